from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier

from assay.levels import Levels
from assay.randomness import stream
from assay.regressions import PerLevel

ALPHAS = np.array([0.2, 0.5, 0.8])
X = torch.randn(100, 2, generator=stream(0, "x"))
U = torch.rand(100, 2, generator=stream(0, "u"))


def test_against_one_fit_at_a_time():
    copies = Levels(U, X).copies(2, 0)
    found = PerLevel(LogisticRegression()).fit(copies, ALPHAS, 0)(X[:3])
    assert found.shape == (1, 3, 3, 2, 3)
    x = copies.levels.x.numpy()
    for h in range(3):
        u = copies(h, torch.arange(100)).numpy()
        for j in range(2):
            for g, alpha in enumerate(ALPHAS):
                fit = LogisticRegression().fit(x, u[:, j] <= np.float32(alpha))
                expected = fit.predict_proba(X[:3].numpy())[:, 1]
                np.testing.assert_allclose(found[0, :, h, j, g], expected, atol=1e-5)


def test_levels_at_which_there_is_one_class():
    u = torch.linspace(0.3, 0.6, 100)
    copies = Levels(u, X).copies(1, 0)
    found = PerLevel(LogisticRegression()).fit(copies, ALPHAS, 0)(X[:2])[0, :, 0, 0]
    assert found[:, 0].tolist() == [0, 0]
    assert found[:, 2].tolist() == [1, 1]
    assert ((found[:, 1] > 0) & (found[:, 1] < 1)).all()


def test_an_executor_changes_nothing():
    copies = Levels(U, X).copies(2, 0)
    estimator = MLPClassifier((4,), max_iter=5000, tol=1e-2)
    plain = PerLevel(estimator).fit(copies, ALPHAS, 3)(X[:2])
    with ThreadPoolExecutor(2) as pool:
        spread = PerLevel(estimator, pool).fit(copies, ALPHAS, 3)(X[:2])
    np.testing.assert_array_equal(plain, spread)


def test_the_default_is_the_published_network():
    estimator = PerLevel().estimator
    assert (estimator.alpha, estimator.max_iter) == (0, 25_000)
    assert estimator.hidden_layer_sizes == (100,)


def test_a_regressor_is_no_classifier():
    with pytest.raises(TypeError, match="estimator: expected"):
        PerLevel(LogisticRegression)

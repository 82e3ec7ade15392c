"""The published local HPD, with a small estimator in place of the network."""

import numpy as np
import pytest
import torch
from experiments.local_hpd import ALPHAS, curves, local_hpd, network
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from assay._core import stream
from assay.diagnostics.local.levels import Levels

X_O = np.zeros((1, 2))


def levels(width, n=500, seed=0):
    """HPD levels of N(x / 2, width^2 / 2) for truths of N(x / 2, 1 / 2), in one dimension."""
    generator = stream(seed, "levels")
    z = torch.randn(n, generator=generator) / width
    return Levels(torch.erf(z.abs() / 2**0.5), torch.randn(n, 2, generator=generator))


@pytest.mark.parametrize(("width", "sign"), [(1.0, 0), (1.5, 1), (0.6, -1)])
def test_the_direction_of_the_verdict(width, sign):
    """The curve is above the diagonal for a wide q, below for a narrow one."""
    found = local_hpd(levels(width), X_O, 19, make=LogisticRegression)
    area = float((found.curves - ALPHAS).mean())
    if sign:
        assert area * sign > 0.05
        assert found.pvalue == pytest.approx(0.05)
    else:
        assert abs(area) < 0.05
        assert found.pvalue > 0.05


def test_it_is_local():
    """Too wide where the first feature of x is negative, right where it is not."""
    right, wide = levels(1.0, 2000), levels(2.0, 2000)
    u = torch.where(right.x[:, :1] < 0, wide.u, right.u)
    found = local_hpd(Levels(u, right.x), np.array([[-2.0, 0.0], [2.0, 0.0]]), 1, (0.5,), tree)
    np.testing.assert_allclose(found.curves[:, 0], [0.82, 0.5], atol=0.06)


def tree():
    return DecisionTreeClassifier(max_depth=1)


def test_its_level():
    """Where q is right, a tenth of 100 tests at 0.1, within a 99.9 % binomial interval."""
    found = [
        local_hpd(levels(1.0, 60, seed), X_O, 9, (0.3, 0.7), GaussianNB, seed).pvalue
        for seed in range(100)
    ]
    assert 0.01 < np.mean(np.array(found) <= 0.1) < 0.22


def test_levels_at_which_there_is_one_class():
    u, x = np.linspace(0.3, 0.6, 100), np.random.default_rng(0).normal(size=(100, 2))
    found = curves(u, x, x[:3], (0.2, 0.45, 0.8), LogisticRegression)
    assert found.shape == (3, 3)
    assert (found[:, 0] == 0).all()
    assert (found[:, 2] == 1).all()
    assert ((found[:, 1] > 0) & (found[:, 1] < 1)).all()


def test_the_published_network():
    found = network()
    assert (found.alpha, found.max_iter, found.hidden_layer_sizes) == (0, 25_000, (100,))

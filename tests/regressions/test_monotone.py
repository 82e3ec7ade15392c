import numpy as np
import pytest
import scipy.stats
import torch

from assay.levels import Levels
from assay.randomness import stream
from assay.regressions import Monotone
from assay.regressions.monotone import _basis

ALPHAS = np.linspace(0.05, 0.95, 19)
X = torch.randn(400, 2, generator=stream(0, "x"))
U = torch.rand(400, 2, generator=stream(0, "u"))
QUICK = Monotone((16,), epochs=5, batch=64)


def test_curves_rise_from_zero_to_one():
    copies = Levels(U**2, X).copies(3, 0)
    grid = np.linspace(1e-9, 1 - 1e-9, 201)
    found = Monotone((16,), epochs=20, batch=32, decay=0).fit(copies, grid, 0)(3 * X[:20])
    assert found.shape == (1, 20, 4, 2, 201)
    assert (np.diff(found, axis=-1) >= 0).all()
    assert np.abs(found[..., 0]).max() < 1e-6
    assert np.abs(found[..., -1] - 1).max() < 1e-6


def test_equal_weights_are_the_diagonal():
    basis = _basis(torch.as_tensor(ALPHAS), 8)
    np.testing.assert_allclose(basis.mean(1), ALPHAS, atol=1e-12)


def test_it_finds_a_distribution_that_varies_with_x():
    """U given x is Beta(2, 1) right of zero and Beta(1, 2) left of it."""
    n = 4000
    x = torch.randn(n, 1, generator=stream(1, "x"))
    u = torch.rand(n, generator=stream(1, "u")).sqrt()
    u = torch.where(x[:, 0] > 0, u, 1 - u)
    curves = Monotone(epochs=20, decay=0.01).fit(Levels(u, x).copies(1, 0), ALPHAS, 0)
    found = curves(torch.tensor([[1.5], [-1.5]]))[0, :, 0, 0]
    expected = [scipy.stats.beta(2, 1).cdf(ALPHAS), scipy.stats.beta(1, 2).cdf(ALPHAS)]
    assert np.abs(found - expected).max() < 0.06


def test_the_same_seed_gives_the_same_curves():
    copies = Levels(U, X).copies(2, 0)
    first, again, other = (QUICK.fit(copies, ALPHAS, seed)(X[:3]) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_copies_do_not_mind_each_other():
    """The data's curve is the same, however many nulls are trained beside it."""
    few, many = (QUICK.fit(Levels(U, X).copies(n, 0), ALPHAS, 0)(X[:3]) for n in (1, 30))
    np.testing.assert_allclose(many[:, :, :2], few, atol=1e-5)


@pytest.mark.parametrize(
    "bad",
    [{"hidden": ()}, {"components": 1}, {"epochs": 0}, {"batch": 0}, {"rate": 0}, {"decay": -1}],
    ids=str,
)
def test_bad_settings(bad):
    with pytest.raises(ValueError, match=f"{next(iter(bad))}: expected"):
        Monotone(**bad)

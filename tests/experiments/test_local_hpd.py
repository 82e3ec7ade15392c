"""The published local HPD: its networks, its grid, and what its statistic says."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from experiments.local_hpd import curves, grid, nulls, published_statistics
from experiments.networks import LEVELS, Batched, Sklearn


class Shares:
    """A classifier that knows the share of class 1 alone, left and right of zero."""

    def fit(self, inputs, labels):
        return [
            self._asked(x[:, 0], truth.float()) for x, truth in zip(inputs, labels, strict=True)
        ]

    def _asked(self, x, truth):
        left, right = truth[x < 0].mean(), truth[x >= 0].mean()
        return lambda at: torch.where(at[:, 0] < 0, left, right)


def observations(n, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 2))


X_O = np.array([[-1.0, 0.0], [1.0, 0.0]])


@pytest.mark.parametrize(("power", "sign"), [(1.0, 0), (2.0, 1), (0.5, -1)])
def test_the_direction_of_the_curve(power, sign):
    """Low levels, as where q is too wide, lie above the diagonal; high ones below."""
    (u,) = nulls(4000, 1, 0)
    alphas = [(0.25, 0.5, 0.75)]
    curve = curves([u**power], observations(4000), X_O, alphas, Shares())
    expected = np.array(alphas[0]) ** (1 / power)
    np.testing.assert_allclose(curve[0], [expected, expected], atol=0.04)
    assert np.sign(np.round((curve - alphas).mean(), 1)) == sign


def test_it_is_local():
    """Levels are low where the first feature of x is negative."""
    (u,), x = nulls(4000, 1, 0), observations(4000)
    u = np.where(x[:, 0] < 0, u**2, u)
    (bad, right), *rest = published_statistics([u], x, X_O, Shares())
    assert not rest
    assert bad > 0.02 > 50 * right


def test_a_null_has_the_distribution_of_data_where_q_is_right():
    """Uniform levels as data: p-values of 200 runs at 0.1 within a 99.9 % binomial interval."""
    p = []
    for seed in range(200):
        data, *null = published_statistics(
            [*nulls(60, 10, seed)], observations(60, seed), X_O[:1], Shares()
        )
        p.append(np.mean(np.array(null) > data))
    # Nine nulls have no ties: p is 0 in a tenth.
    assert 0.04 < np.mean(np.array(p) == 0) < 0.18


def test_levels_at_which_there_is_one_class():
    u, x = np.linspace(0.3, 0.6, 100), observations(100)
    (found,) = curves([u], x, x[:3], [(0.2, 0.45, 0.8)], Shares())
    assert found.shape == (3, 3)
    assert (found[:, 0] == 0).all()
    assert (found[:, 2] == 1).all()
    assert ((found[:, 1] > 0) & (found[:, 1] < 1)).all()


def test_the_grid_ends_below_the_largest_level():
    """Uniform levels up to 1/2 lie on the grid of eleven levels, and are told as such."""
    u = np.linspace(0, 0.5, 2000)
    assert grid(u) == pytest.approx(np.linspace(0, 0.499, 11))
    x = observations(2000)
    ((half, _),) = published_statistics([u], x, X_O, Shares())
    # P(u <= a) = 2 a at a = 0, 0.05, ..., 0.5, which is a too much.
    assert abs(half - np.square(np.linspace(0, 0.5, 11)).mean()) < 0.01


def test_the_stack_is_the_published_network():
    """Two copies with eleven levels each, by scikit-learn and in one stack, before they stop.

    In the precision of the data rounding may move the epoch of a stop; stops are those of
    scikit-learn in double precision, see test_networks.py.
    """
    u, x, network = nulls(80, 2, 0), observations(80), replace(LEVELS, epochs=100)
    one, other = (published_statistics(u, x, X_O, kind(network)) for kind in (Sklearn, Batched))
    np.testing.assert_allclose(one, other, rtol=1e-3)

"""theta ~ N(0, I), x ~ N(theta, I), so that r observations leave N(sum / (1 + r), I / (1 + r))."""

from dataclasses import dataclass

import numpy as np
import pytest
import torch

import assay

X_O = torch.tensor([0.5, -1.0])


@dataclass(frozen=True)
class Posterior:
    width: float = 1.0
    shift: float = 0.0

    def sample(self, xs, n):
        variance = 1 / (1 + len(xs))
        noise = self.width * variance**0.5 * torch.randn(n, 2)
        return variance * xs.sum(0) + self.shift + noise


def simulate(theta):
    return theta + torch.randn(theta.shape)


def test_exact():
    found = assay.posterior_sbc(Posterior(), simulate, X_O)
    assert found.ranks.shape == (200, 2)
    assert found.k == 100
    assert (found.adjusted > 0.05).all()


def test_conservative():
    """However wide, it seems at most 1.22 times too wide: x is simulated from as wide a q."""
    found = assay.posterior_sbc(Posterior(width=4.0), simulate, X_O, 600, 30)
    assert (found.adjusted <= 0.05).any()
    assert (np.abs(found.dispersion - 48**0.5 / 33**0.5) < 4 * found.dispersion_null).all()


def test_overconfident():
    """Its truths scatter with a variance of (1 + 2 w^2) / 9 around its mean, not 3 w^2 / 9."""
    found = assay.posterior_sbc(Posterior(width=0.5), simulate, X_O, 300, 30)
    assert (found.adjusted <= 0.05).all()
    assert (np.abs(found.dispersion - 0.5**0.5) < 4 * found.dispersion_null).all()


def test_biased():
    """A third of a constant bias shows: x tells of the other two thirds."""
    found = assay.posterior_sbc(Posterior(shift=0.6), simulate, X_O, 300, 30)
    assert (found.adjusted <= 0.05).all()
    assert (np.abs(found.bias - 0.2 * 3**0.5) < 4 * found.bias_null).all()


def test_a_q_that_ignores_x_agrees_with_itself():
    found = assay.posterior_sbc(lambda xs, n: torch.randn(n, 2), simulate, X_O, 200, 30)
    assert (found.adjusted > 0.05).all()


def test_it_says_what_it_is():
    found = assay.posterior_sbc(Posterior().sample, simulate, X_O, 50, 20, null=99, seed=3)
    assert found.settings["test"] == "posterior SBC"
    assert found.settings["failed"] == 0
    assert found.hypothesis.startswith("q(theta | x_o, x) is the update of q(theta | x_o) by x")
    assert found.null.shape == (2, 99)
    again = assay.posterior_sbc(Posterior(), simulate, X_O, 50, 20, null=99, seed=3)
    np.testing.assert_array_equal(found.ranks, again.ranks)


def test_quantities():
    likelihood = {"fit": lambda theta, x: -(x - theta).square().sum(1)}
    found = assay.posterior_sbc(Posterior(), simulate, X_O, 100, 20, quantities=likelihood)
    assert found.names == ("fit",)


def test_failures_are_left_out():
    def failing(theta):
        x = simulate(theta)
        x[torch.rand(len(x)) < 0.2] = torch.nan
        return x

    found = assay.posterior_sbc(Posterior(), failing, X_O, 100, 20)
    assert 5 < found.settings["failed"] < 40
    assert len(found.ranks) == 100 - found.settings["failed"]


def test_bad_input():
    with pytest.raises(TypeError, match="posterior: expected an object with sample"):
        assay.posterior_sbc(3, simulate, X_O)
    with pytest.raises(ValueError, match="x_o: expected one observation of shape"):
        assay.posterior_sbc(lambda xs, n: torch.randn(n, 2), simulate, X_O.expand(4, -1), 50)
    with pytest.raises(ValueError, match="n: expected at least 20"):
        assay.posterior_sbc(Posterior(), simulate, X_O, 5)
    with pytest.raises(ValueError, match="simulator: expected a function that takes"):
        assay.posterior_sbc(Posterior(), lambda theta: theta[:, :1], X_O)

import numpy as np
import pytest
import torch

from assay import Calibration, Draws, lpit
from assay._support.random import stream
from assay.local.levels import Levels
from tests.local.test_levels import X_O

SPACES = ["latents", "draws"]


def given(posterior, space, n=600, k=15, seed=0):
    latent = space == "latents"
    return posterior.latents(n, seed) if latent else posterior.calibration(n, k, seed)


@pytest.mark.parametrize("space", SPACES)
class TestTriple:
    """A right, a wide, a narrow and a shifted posterior, and the direction of the error."""

    def found(self, posterior, space):
        return lpit(given(posterior, space, n=1500), null=199)(X_O)

    def test_exact(self, gaussian, space):
        assert self.found(gaussian(), space).pvalue > 0.05

    @pytest.mark.parametrize(("width", "words"), [(1.6, "too wide"), (0.6, "too narrow")])
    def test_width(self, gaussian, space, width, words):
        result = self.found(gaussian(width=width), space)
        assert result.pvalue <= 0.01
        assert (result.width.sign == np.sign(width - 1)).all()
        assert words in result.sentence

    @pytest.mark.parametrize(("shift", "words"), [(0.4, "too high"), (-0.4, "too low")])
    def test_shift(self, gaussian, space, shift, words):
        result = self.found(gaussian(shift=shift), space)
        assert result.pvalue <= 0.01
        assert (result.pvalues <= 0.05).all()
        assert (result.area.sign == np.sign(shift)).all()
        assert words in result.sentence


def correlated(space, n=1000, k=15, rho=0.6, seed=0):
    """True parameters with correlated coordinates, where q has no correlation."""
    generator = stream(seed, "correlated")
    factor = torch.linalg.cholesky(torch.tensor([[1.0, rho], [rho, 1.0]]))
    theta = torch.randn(n, 2, generator=generator) @ factor.mT
    x = torch.randn(n, 2, generator=generator)
    if space == "latents":
        return Calibration.from_base(theta, x)
    return Calibration(theta, x, torch.randn(n, k, 2, generator=generator))


@pytest.mark.parametrize("space", SPACES)
def test_a_wrong_correlation_shows_in_the_independence_alone(space):
    result = lpit(correlated(space))(X_O)
    assert result.pvalue_independence == 0.001
    assert result.pvalue == 0.001
    assert result.pvalue_curves > 0.05
    assert result.correlation[0, 1] == pytest.approx(0.6, abs=0.15)
    assert result.correlation[0, 0] == pytest.approx(1)
    assert "a dependence of coordinates shows" in result.sentence


def test_the_right_correlation_is_none():
    """Draws of a q that is right and correlated: nothing is left of it in conditional PITs."""
    generator = stream(0, "right")
    factor = torch.linalg.cholesky(torch.tensor([[1.0, 0.9], [0.9, 1.0]]))
    members = torch.randn(1000, 16, 2, generator=generator) @ factor.mT
    x = torch.randn(1000, 2, generator=generator)
    result = lpit(Calibration(members[:, 0], x, members[:, 1:]))(X_O)
    assert result.pvalue_independence > 0.05
    assert result.pvalue > 0.05


def test_wrong_margins_alone_are_no_dependence(gaussian):
    found = lpit(gaussian(width=1.4, shift=0.4).latents(1000))(X_O)
    assert found.pvalue_curves == 0.001
    assert found.pvalue_independence > 0.05


def test_a_single_column_has_no_independence(gaussian):
    result = lpit(gaussian(m=1, shift=1.0).latents(200), null=99)(Draws([0.3]))
    assert result.pvalue == result.pvalue_curves == 0.01
    assert result.pvalue_independence == 1
    assert "dependence" not in result.sentence


@pytest.mark.parametrize("space", SPACES)
def test_correlations_at_many_observations(gaussian, space):
    test = lpit(given(gaussian(width=1.2), space, n=200), null=19)
    x_o = torch.stack([X_O, -X_O, 2 * X_O])
    many, one = test(x_o), test(x_o[1])
    assert many.correlation.shape == (3, 2, 2)
    np.testing.assert_allclose(many.correlation[1], one.correlation, atol=1e-12)
    assert many.pvalue_independence[1] == one.pvalue_independence
    assert "p indep." in many.table[0]


def test_units_of_x_do_not_matter(gaussian):
    latents = gaussian(width=1.2).latents(200)
    moved = Calibration.from_base(latents.theta, 1000 * latents.x - 7)
    first, again = lpit(latents)(X_O), lpit(moved)(1000 * X_O - 7)
    np.testing.assert_allclose(first.curves, again.curves, atol=0.02)


def test_levels_of_ones_own():
    u, x = torch.rand(2, 100, 2, generator=stream(0, "own"))
    result = lpit(Levels(u, x, names=("a", "b")), null=19)(x[0])
    assert result.names == ("a", "b")
    assert result.pvalue > 0.05


def test_levels_of_zero_and_one_are_no_trouble():
    x = torch.randn(100, 2, generator=stream(0, "x"))
    u = torch.cat([torch.zeros(100, 1), torch.ones(100, 1)], 1)
    result = lpit(Levels(u, x), null=19)(x[0])
    assert result.pvalue == 0.05
    assert np.isfinite(result.correlation).all()


def test_bad_input():
    with pytest.raises(TypeError, match="calibration: expected a Calibration"):
        lpit(torch.zeros(5, 2))

import numpy as np
import pytest
import scipy.stats
import torch

from assay import Calibration, Draws, lhpd
from assay.local.levels import Levels
from assay.neighbourhood import Nearest
from tests.local.test_levels import X_O, log_q


def exact(posterior, n, seed=0):
    """HPD levels of a Gaussian q, by their formula."""
    latents = posterior.latents(n, seed=seed)
    u = scipy.stats.chi2(posterior.m).cdf(latents.theta.double().square().sum(1))
    return Levels(u, latents.x)


class TestTriple:
    """An exact, a conservative and an overconfident posterior, and the direction of the error."""

    def result(self, posterior):
        return lhpd(posterior.calibration(500, k=30), log_q(posterior))(X_O)

    def test_exact(self, gaussian):
        assert self.result(gaussian()).pvalue > 0.05

    @pytest.mark.parametrize(("width", "words"), [(1.6, "too wide"), (0.6, "too narrow")])
    def test_wrong(self, gaussian, width, words):
        result, sign = self.result(gaussian(width=width)), np.sign(width - 1)
        assert result.pvalue == 0.001
        assert result.area.sign == [sign]
        assert (sign * (result.curves[0] - result.alphas) > 0).all()
        assert words in result.sentence


@pytest.mark.parametrize("width", [0.8, 1.3])
def test_against_the_chi_square_law(gaussian, width):
    """A region of mass alpha holds the true parameter in F(width^2 F^-1(alpha)) of cases."""
    posterior = gaussian(width=width, m=3)
    calibration = posterior.calibration(4000, k=200)
    result = lhpd(calibration, log_q(posterior))(Draws(torch.zeros(3)))
    law = scipy.stats.chi2(3)
    expected = law.cdf(width**2 * law.ppf(result.alphas))
    bands = result.bands(0.001)
    assert (result.curves[0] - expected <= bands.envelope_upper[0] - result.alphas).all()
    assert (result.curves[0] - expected >= bands.envelope_lower[0] - result.alphas).all()
    assert np.abs(expected - result.alphas).max() > 0.1
    area = np.trapezoid(expected - result.alphas, result.alphas)
    # Four standard deviations, as wide as the null band.
    wide = result.area.upper[0] - result.area.lower[0]
    assert result.area.value[0] == pytest.approx(area, abs=wide)


def test_an_error_near_x_o_alone_is_found(gaussian):
    """q wrong in the nearest 20 %, right elsewhere."""
    right, wrong = exact(gaussian(), 2000), exact(gaussian(width=1.4), 2000)
    near = Nearest().inside(right.x, X_O[None])[0]
    levels = Levels(torch.where(near[:, None], wrong.u, right.u), right.x)
    assert lhpd(levels)(X_O).pvalue == 0.001


def test_units_do_not_matter(gaussian):
    posterior = gaussian(width=1.2)
    calibration, density = posterior.calibration(300, k=9), log_q(posterior)
    first = lhpd(calibration, density)(X_O)
    moved = Calibration(100 * calibration.theta, 8 * calibration.x + 3, 100 * calibration.theta_q)
    test = lhpd(moved, lambda theta, x: density(theta / 100, (x - 3) / 8))
    there = test(8 * X_O + 3)
    np.testing.assert_allclose(there.curves, first.curves, atol=0.02)
    assert there.pvalue == pytest.approx(first.pvalue, abs=0.02)


LEVELS = Levels(torch.rand(50), torch.randn(50, 2))
BAD = {
    "no density": (lambda c: lhpd(c), ValueError, "log_q: expected the log-density"),
    "a density beside levels": (lambda c: lhpd(LEVELS, c.theta), ValueError, "log_q: expected no"),
    "a density that is none": (lambda c: lhpd(c, 3), TypeError, "log_q: expected a function"),
    "latents": (lambda c: lhpd(c.from_base(c.theta, c.x), log_q), ValueError, "got latents"),
    "an array": (lambda c: lhpd(c.theta), TypeError, "calibration: expected a Calibration or"),
    "two columns": (
        lambda c: lhpd(Levels(torch.rand(50, 2), torch.randn(50, 2))),
        ValueError,
        "calibration: expected HPD levels .* got 2 columns",
    ),
}


@pytest.mark.parametrize(("call", "kind", "message"), BAD.values(), ids=BAD)
def test_bad_input(gaussian, call, kind, message):
    with pytest.raises(kind, match=message):
        call(gaussian().calibration(50, k=3))

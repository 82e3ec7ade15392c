import numpy as np
import pytest
import scipy.stats
import torch

from assay import Calibration, Draws
from assay._core import stream
from assay.classifiers.features import NormalScores, Whitened
from assay.diagnostics.local.estimates import Estimates, _binomial
from assay.diagnostics.local.seen import source_of, usable
from assay.results import LEVELS

LEVEL = np.array(LEVELS)


def sets(n, k, m=2, width=1.0, shift=0.0, seed=0):
    """Truths N(0, I), and draws of a q that is so many times as wide, and shifted."""
    noise = torch.randn(n, k + 1, m, generator=stream(seed, "sets", k), dtype=torch.double)
    x = torch.randn(n, 1, generator=stream(seed, "x"), dtype=torch.double)
    return Calibration(noise[:, 0], x, width * noise[:, 1:] + shift)


def latents(n, change, m=2, seed=0):
    z = torch.randn(n, m, generator=stream(seed, "latents"), dtype=torch.double)
    return Calibration.from_base(change(z), torch.zeros(n, 1))


def told(calibration, coordinates=None):
    """Averages over all sets."""
    calibration, n = usable(calibration, 0), len(calibration)
    source = source_of(calibration, coordinates or Whitened(), Draws(torch.zeros(1)), 0)
    seen = source.seen(torch.arange(n), 0, stream(0, "chance"))
    return Estimates(seen, torch.full((1, n), 1 / n, dtype=torch.double), None)


def value(estimate):
    return estimate.near.value[0].numpy()


def error(estimate):
    return (estimate.near.upper - estimate.near.lower)[0].numpy() / (2 * 1.96)


def test_latents_by_hand():
    """Latents with mean 1 and variance 4: q is one too low, and half as wide as it should be."""
    found = told(latents(50_000, lambda z: 2 * z + 1))
    np.testing.assert_allclose(value(found.bias), -1, atol=0.05)
    np.testing.assert_allclose(value(found.width), 0.5, atol=0.01)
    np.testing.assert_allclose(error(found.bias), 2 * 50_000**-0.5, rtol=0.05)
    np.testing.assert_allclose(found.bias.null, 50_000**-0.5)
    np.testing.assert_allclose(found.width.null, 0.5 * (2 / 50_000) ** 0.5)
    np.testing.assert_allclose(value(found.correlation), 0, atol=0.02)
    assert found.bias.at is found.coverage.at is None


@pytest.mark.parametrize("k", [8, 16])
@pytest.mark.parametrize(("shift", "width"), [(0.5, 1.0), (0.0, 0.7), (0.0, 1.4), (0.4, 1.3)])
def test_bias_and_width_do_not_depend_on_the_number_of_draws(k, shift, width):
    """Against few draws residuals are wider, and their scale uncertain: both are made up for."""
    found = told(sets(20_000, k, width=width, shift=shift))
    np.testing.assert_allclose(value(found.bias), shift / width, atol=0.03)
    np.testing.assert_allclose(value(found.width), width, rtol=0.025)


@pytest.mark.parametrize("width", [0.3, 3.0])
def test_large_errors_of_width(width):
    """The law of residuals is that of draws alone, whatever the truth."""
    np.testing.assert_allclose(value(told(sets(20_000, 16, width=width)).width), width, rtol=0.04)


@pytest.mark.parametrize(("shift", "width"), [(0.0, 1.0), (0.4, 1.0), (0.0, 1.3)])
def test_skewed_draws_have_no_bias_of_their_own(shift, width):
    """Mean and deviation of few skewed draws go together, which moves residuals by skew / 2k."""
    gamma = np.random.default_rng(0).standard_gamma(4.0, (20_000, 17, 1)) / 2 - 2
    calibration = Calibration(gamma[:, 0], np.zeros((20_000, 1)), width * gamma[:, 1:] + shift)
    found = told(calibration)
    np.testing.assert_allclose(value(found.bias), shift / width, atol=0.02)
    np.testing.assert_allclose(value(found.width), width, rtol=0.02)


@pytest.mark.parametrize("own", [0.0, 0.6])
@pytest.mark.parametrize("true", [0.0, -0.5])
def test_correlations_of_draws(own, true):
    """That of q less that of the truth, also where q is twice too wide and shifted."""

    def linked(z, r):
        return torch.stack([z[..., 0], r * z[..., 0] + (1 - r * r) ** 0.5 * z[..., 1]], -1)

    plain = sets(20_000, 16)
    draws = 2 * linked(plain.theta_q, own) + 1
    found = told(Calibration(linked(plain.theta, true), plain.x, draws)).correlation
    np.testing.assert_allclose(value(found), own - true, atol=0.04)
    assert abs(value(found) - (own - true)) < 4 * error(found)


def test_a_width_that_is_known_from_below_only():
    """A truth that hardly varies, against sixteen draws: more than so many times too wide."""
    found = told(sets(200, 16, width=1000.0)).width.near
    assert found.value.isnan().all()
    assert (found.lower > 2).all()
    assert found.upper.isinf().all()


def test_tails_without_a_deviation_are_not_known():
    cauchy = np.random.default_rng(0).standard_cauchy((500, 17, 1))
    calibration = Calibration(cauchy[:, 0], np.zeros((500, 1)), cauchy[:, 1:])
    assert not told(calibration).known.any()
    assert told(sets(500, 16)).known.all()


class TestCoverage:
    def true(self, width, m=2):
        edges = scipy.stats.norm.ppf((1 + LEVEL) / 2)
        interval = 2 * scipy.stats.norm.cdf(width * edges) - 1
        return interval, scipy.stats.chi2.cdf(width**2 * scipy.stats.chi2.ppf(LEVEL, m), m)

    @pytest.mark.parametrize("width", [0.7, 1.0, 1.4])
    def test_of_latents(self, width):
        found = told(latents(20_000, lambda z: z / width)).coverage
        interval, region = self.true(width)
        np.testing.assert_allclose(value(found)[0], interval, atol=0.012)
        np.testing.assert_allclose(value(found)[2], region, atol=0.012)
        np.testing.assert_allclose(found.null[0, 0], np.sqrt(LEVEL * (1 - LEVEL) / 20_000))

    @pytest.mark.parametrize("k", [16, 32])
    @pytest.mark.parametrize("width", [0.7, 1.0, 1.4])
    def test_of_draws_whatever_their_number(self, k, width):
        """The first-order error in 1 / k would be 0.04 for a region of 90 % of a narrow q."""
        found = told(sets(20_000, k, width=width)).coverage
        interval, region = self.true(width)
        np.testing.assert_allclose(value(found)[0], interval, atol=0.015)
        np.testing.assert_allclose(value(found)[2], region, atol=0.02)

    @pytest.mark.parametrize("coordinates", [Whitened(), NormalScores()])
    @pytest.mark.parametrize("k", [4, 8])
    def test_of_few_draws_of_a_right_q(self, k, coordinates):
        """Also of a skewed one, and where halves would be too few."""
        plain = sets(20_000, k)
        skewed = Calibration(plain.theta.exp(), plain.x, plain.theta_q.exp())
        found = told(skewed, coordinates).coverage
        assert (np.abs(value(found) - LEVEL) < 5 * found.null[0].numpy()).all()

    def test_nulls_and_errors_are_those_of_repetitions(self):
        """200 repetitions of a right q: deviations within 20 %."""
        found = [told(sets(200, 16, seed=i)).coverage for i in range(200)]
        share = np.array([value(one) for one in found])[..., :2]  # at 95 % many are cut off at one
        null = np.mean([one.null[0].numpy() for one in found], 0)[..., :2]
        np.testing.assert_allclose(share.std(0), null, rtol=0.2)
        np.testing.assert_allclose(share.mean(0), np.tile(LEVEL[:2], (3, 1)), atol=0.01)

    def test_a_share_that_was_cut_off_keeps_its_error(self):
        """Put together of several views it may lie beyond one, where no pair tells its error."""
        share, error, null = (torch.full((3,), v) for v in (1.0, 0.004, 0.01))
        found = _binomial(share, error, null)
        assert (found.lower <= 1 - 1.95 * 0.004).all()
        assert (found.upper == 1).all()
        assert (_binomial(share, 0 * error, null).lower < 1).all()

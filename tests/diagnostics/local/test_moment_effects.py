import numpy as np
import pytest
import scipy.stats
import torch

from assay import Calibration, Draws, Exchange, KnownBase, moments
from assay._core import stream
from assay.classifiers.features import NormalScores, Whitened
from assay.diagnostics.local.moment_effects import (
    Balls,
    Ellipsoids,
    ResidualLaw,
    carried_to,
    expected_under_q,
    moment_table,
    residuals,
    shares_inside,
    tail,
)
from assay.results import LEVELS
from assay.samples.neighbourhoods import Nearest, Smooth

LEVEL = np.array(LEVELS)


def sets(n, k, m=2, width=1.0, shift=0.0, seed=0):
    """Truths N(0, I), first, and draws of a q that is so many times as wide, and shifted."""
    noise = torch.randn(n, k + 1, m, generator=stream(seed, "sets", k))
    return torch.cat([noise[:, :1], width * noise[:, 1:] + shift], 1)


def true(width, m=2):
    edges = scipy.stats.norm.ppf((1 + LEVEL) / 2)
    interval = 2 * scipy.stats.norm.cdf(width * edges) - 1
    return interval, scipy.stats.chi2.cdf(width**2 * scipy.stats.chi2.ppf(LEVEL, m), m)


def everywhere(n):
    return torch.ones(1, 1, n) / n**0.5


@pytest.mark.parametrize("width", [0.7, 1.0, 1.4])
def test_latents_tell_the_coverage(width):
    z = sets(20_000, 1)[:, 0]
    share, error, null = shares_inside(Balls(z / width), everywhere(20_000))
    interval, region = true(width)
    np.testing.assert_allclose(share[0, 0, 0], interval, atol=0.012)
    np.testing.assert_allclose(share[0, 0, 2], region, atol=0.012)
    np.testing.assert_allclose(null[0, 0, 0], np.sqrt(LEVEL * (1 - LEVEL) / 20_000), rtol=1e-6)
    np.testing.assert_allclose(error, np.sqrt(share * (1 - share) / 20_000), rtol=1e-4)


@pytest.mark.parametrize("k", [16, 32])
@pytest.mark.parametrize("width", [0.7, 1.0, 1.4])
def test_draws_tell_the_coverage_whatever_their_number(k, width):
    """The first-order error in 1 / k would be 0.04 for a region of 90 % of a narrow q."""
    shells = Ellipsoids(sets(20_000, k, width=width), Whitened())
    share, _, _ = shares_inside(shells, everywhere(20_000))
    interval, region = true(width)
    np.testing.assert_allclose(share[0, 0, 0], interval, atol=0.015)
    np.testing.assert_allclose(share[0, 0, 2], region, atol=0.02)


def test_halves_matter():
    members = sets(20_000, 16, width=0.7)
    views = Ellipsoids(members, Whitened()).inside(torch.arange(20_000), torch.ones(20_000))
    region = true(0.7)[1][1]
    assert views[0, :, 2, 1].double().mean() > region + 0.03


@pytest.mark.parametrize("coordinates", [Whitened(), NormalScores()])
@pytest.mark.parametrize("k", [4, 8])
def test_few_draws_of_a_right_q_are_covered_as_they_should(k, coordinates):
    """Also of a skewed one, and where halves would be too few."""
    shells = Ellipsoids(sets(20_000, k).exp(), coordinates)
    assert len(shells.combined) == (3 if k // 2 >= (4 if coordinates == Whitened() else 3) else 1)
    share, _, null = shares_inside(shells, everywhere(20_000))
    assert (np.abs(share - LEVEL) < 5 * null).all()


def test_null_deviations_and_errors_are_those_of_repetitions():
    """300 repetitions of a right q: deviations within 20 %, of the mean by three errors."""
    found = [
        [part[0, 0] for part in shares_inside(Ellipsoids(sets(200, 16, seed=i), Whitened()), w)]
        for i in range(300)
        for w in [everywhere(200)]
    ]
    share, error, null = (np.array(part) for part in zip(*found, strict=True))
    inner = [0, 1]  # at 95 % many repetitions are cut off at one
    np.testing.assert_allclose(share.std(0)[:, inner], null.mean(0)[:, inner], rtol=0.2)
    np.testing.assert_allclose(share.std(0)[:, inner], error.mean(0)[:, inner], rtol=0.2)
    np.testing.assert_allclose(share.mean(0)[:, inner], np.tile(LEVEL[inner], (3, 1)), atol=0.01)


def test_residuals_are_those_of_each_member_against_the_others():
    members = torch.randn(5, 9, 3, generator=stream(0, "members"), dtype=torch.double)
    others = torch.cat([members[:, :4], members[:, 5:]], 1)
    expected = (members[:, 4] - others.mean(1)) / others.std(1)
    torch.testing.assert_close(residuals(members)[:, 4], expected)


class TestTail:
    def test_latents(self):
        z = torch.zeros(10, 2)
        z[3] = 9.0
        near = torch.ones(1, 2, 10)
        near[0, 0, :5] = 0
        found = tail(Balls(z), near)
        np.testing.assert_array_equal(found.count, [[0, 1]])
        np.testing.assert_array_equal(found.truths, [[5, 10]])
        assert found.pvalue[0, 0] == 1
        assert found.pvalue[0, 1] == pytest.approx(1 - 0.999**10)

    def test_draws(self):
        members = sets(100, 20)
        members[:7, 0] = 50.0
        found = tail(Ellipsoids(members, Whitened()), everywhere(100))
        assert found.share == pytest.approx(1 / 21)
        assert found.count[0, 0] >= 7

    @pytest.mark.parametrize("k", [0, 20])
    def test_level(self, k):
        """1000 repetitions of a right q: p <= 0.05 within a 99.9 % binomial limit."""
        found = []
        for i in range(1000):
            members = sets(300, max(k, 1), seed=i)
            shells = Ellipsoids(members, Whitened()) if k else Balls(members[:, 0])
            found.append(tail(shells, everywhere(300)).pvalue[0, 0])
        assert 0 < np.sum(np.array(found) <= 0.05) <= scipy.stats.binom(1000, 0.05).ppf(0.999)

    def test_a_lost_mode_shows(self):
        """Half of the truths lie where q never draws."""
        members = sets(200, 20)
        theta = members[:, 0] + 8.0 * torch.randint(2, (200, 1), generator=stream(0, "modes"))
        x = torch.randn(200, 1, generator=stream(0, "x"))
        calibration = Calibration(theta, x, members[:, 1:])
        result = moments(calibration, null=Exchange(9))(Draws(torch.zeros(1)))
        assert result.tail.pvalue[-1] < 1e-6


WHERES = {"nearest": Nearest(), "smooth": Smooth()}


@pytest.mark.parametrize("where", WHERES.values(), ids=WHERES)
@pytest.mark.parametrize("latent", [True, False])
def test_results_of_every_neighbourhood_hold_coverage(gaussian, where, latent):
    posterior = gaussian(width=1.4)
    calibration = posterior.latents(500) if latent else posterior.calibration(500, k=16)
    null = KnownBase(9) if latent else Exchange(9)
    result = moments(calibration, where, null)(Draws(torch.zeros(3, 2)))
    assert result.region.share.shape == (3, 3, 3)
    assert result.directions.intervals.shape == (3, 3, 2, 3)
    assert (result.region.share[:, -1] > LEVEL).all()
    assert (result.region.null > 0).all()
    assert result.tail.count.shape == (3, 3)


def test_coverage_is_local():
    """Latents too wide for x < 0 only."""
    z, x = torch.randn(2, 4000, 1, generator=stream(0, "local"))
    z = torch.where(x < 0, 1.5 * z, z)
    test = moments(Calibration.from_base(z, x), Nearest((0.2,)), KnownBase(9))
    result = test(Draws(torch.tensor([[-1.0], [1.0]])))
    wrong, right = result.region.share[:, 0, 1]
    assert wrong < 0.8
    assert abs(right - 0.9) < 4 * result.region.null[1, 0, 1]


def test_intervals_in_parameters_through_a_curved_flow():
    """Parameters are exp(z) at every x; q is 1.3 times too wide in z."""

    class Curved:
        base = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(2), 1.0), 1)

        def theta_to_base(self, theta, x):
            return theta.log() / 1.3

        def sample(self, x, n):
            return torch.exp(1.3 * torch.randn(n, 2))

    z, x = torch.randn(2, 4000, 2, generator=stream(0, "curved"))
    flow = Curved()
    latent = Calibration(torch.exp(z), x, torch.exp(1.3 * x.flip(0))).to_latent(flow)
    result = moments(latent, Nearest((0.5,)), KnownBase(1))(Draws(torch.zeros(2), n=4000))
    np.testing.assert_allclose(result.parameters.intervals[0, 0], true(1.3)[0], atol=0.04)


def test_a_table_by_hand():
    """Latents with mean 1 and variance 4: q is one too low, and half as wide as it should be."""
    z = torch.randn(50_000, 2, generator=stream(0, "table"), dtype=torch.double)
    z = 2 * z + 1
    law = ResidualLaw(0 * z, torch.ones_like(z), torch.full_like(z, 3.0), 0.0)
    weights = everywhere(50_000).double()
    table = moment_table(weights, z, z.square(), law, correlated=True)
    np.testing.assert_allclose(table.bias[0, 0], -1, atol=0.05)
    np.testing.assert_allclose(table.dispersion[0, 0], 0.5, atol=0.01)
    np.testing.assert_allclose(table.bias_null[0, 0], 50_000**-0.5)
    np.testing.assert_allclose(table.bias_error[0, 0], 2 * 50_000**-0.5, rtol=0.05)
    np.testing.assert_allclose(table.correlation[0, 0], np.eye(2), atol=0.05)
    assert moment_table(weights, z, z.square(), law, correlated=False).correlation is None


def test_means_under_q_are_constants_of_a_regression():
    """Exact for what the features explain, and plain means with few draws."""
    z = torch.randn(200, 1, generator=stream(0, "under q"), dtype=torch.double)
    values = 3 + 5 * z
    torch.testing.assert_close(expected_under_q(values, z), torch.tensor([3.0]).double())
    assert abs(float(values.mean()) - 3) > 1e-3
    torch.testing.assert_close(expected_under_q(values[:5], z[:5]), values[:5].mean(0))


def test_latents_are_carried_through_an_affine_flow():
    draws = torch.randn(500, 2, generator=stream(0, "draws"), dtype=torch.double)
    z = torch.randn(20, 2, generator=stream(0, "z"), dtype=torch.double)
    gain = torch.tensor([[2.0, 1.0], [0.0, 0.5]]).double()
    found = carried_to(z, draws, draws @ gain + 7)
    torch.testing.assert_close(found, z @ gain + 7, atol=0.05, rtol=0)

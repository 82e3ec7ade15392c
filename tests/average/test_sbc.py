from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay import Calibration, sbc
from assay._support.random import stream
from assay.average.ranks import UniformRanks


class TestTriple:
    """An exact, a conservative and an overconfident posterior, and the direction of the error."""

    def test_exact(self, gaussian):
        result = sbc(gaussian().calibration(1000, k=50))
        for p in (result.pvalue, result.chi_square.pvalue, result.envelope.pvalue):
            assert (p > 0.05).all()
        assert all("beyond noise" in words for words in result.directions)
        assert "no quantity" in result.sentence

    @pytest.mark.parametrize(
        ("width", "shift", "word"),
        [
            (0.7, 0.0, "overconfident"),
            (1.4, 0.0, "conservative"),
            (1.0, 0.3, "too high"),
            (1.0, -0.3, "too low"),
            (1.0, 3.0, "too high"),  # and not conservative
        ],
    )
    def test_wrong(self, gaussian, width, shift, word):
        posterior = gaussian(width=width, shift=shift)
        result = sbc(posterior.calibration(1000, k=100))
        assert (result.pvalue == 0.001).all()
        if not shift:
            assert (result.chi_square.pvalue == 0.001).all()
            assert (result.envelope.pvalue == 0.001).all()
        assert all(words.startswith(word) for words in result.directions)
        assert word in result.sentence
        assert abs(shift) < 1 or not any("conservative" in words for words in result.directions)


@pytest.mark.parametrize("test", [sbc, assay.coverage])
def test_nulls_can_adjust_for_many_quantities(test):
    """100 parameters, of which the fourth is off."""
    members = torch.randn(200, 20, 100, generator=stream(0, "many"))
    members[:, 1:, 3] += 0.7
    x = torch.randn(200, 1, generator=stream(1, "many"))
    many = Calibration(members[:, 0], x, members[:, 1:])
    result = test(many)
    assert result.null.shape == (100, 1999)
    assert "cannot be below" not in result.sentence
    assert test is not sbc or (result.adjusted <= 0.05).nonzero()[0].tolist() == [3]
    words = "With 199 null copies p, corrected for 100, cannot be below 0.500: take 1999."
    assert words in test(many, null=199).sentence


def test_the_prior_passes_until_a_quantity_depends_on_x(gaussian):
    calibration = gaussian().calibration(1000)
    prior = torch.randn(1000, 40, 2, generator=stream(0, "prior"))
    prior = Calibration(calibration.theta, calibration.x, prior)
    assert (sbc(prior).pvalue > 0.05).all()
    result = sbc(prior, {"misfit": lambda theta, x: (theta - x).square().sum(1)})
    assert result.pvalue == 0.001
    assert result.names == ("misfit",)


@pytest.mark.slow
def test_directions_are_silent_under_the_null(gaussian):
    """400 repetitions: words on any of three parameters in at most 5 %, at 99.9 %."""
    rejections = 0
    for i in range(400):
        result = sbc(gaussian(m=3).calibration(100, k=20, seed=i), null=UniformRanks(9))
        rejections += any("beyond noise" not in words for words in result.directions)
    assert rejections <= scipy.stats.binom(400, 0.05).ppf(0.9995)


@pytest.mark.parametrize("k", [4, 16, 300])
@pytest.mark.parametrize(("width", "shift"), [(0.6, 0.0), (1.5, 0.4), (0.7, -0.3)])
def test_few_draws_give_the_same_errors(gaussian, k, width, shift):
    """Ranks among few draws cannot lie far out; errors are estimated as if they could."""
    q = gaussian(width=width, shift=shift)
    result = sbc(q.calibration(20_000, k=k), seed=1)
    np.testing.assert_allclose(result.dispersion, width, rtol=0.05)
    np.testing.assert_allclose(result.bias, shift / q.scale, atol=0.04)


def test_null_deviations_of_bias_and_width(gaussian):
    """400 parameters that do not depend on each other: their deviation has an error of 3.5 %."""
    members = torch.randn(200, 21, 400, generator=stream(0, "null deviations"))
    x = torch.randn(200, 1, generator=stream(1, "null deviations"))
    result = sbc(Calibration(members[:, 0], x, members[:, 1:]), null=UniformRanks(9))
    found = result.bias.std(), result.dispersion.std()
    np.testing.assert_allclose(found, result.null_deviations, rtol=0.12)
    assert abs(result.bias.mean()) < 4 * result.bias.std() / 20


def test_seeds_and_data_choose_the_null(gaussian):
    how = [{"seed": 5}, {"seed": 5}, {"seed": 6}, {"seed": 5, "data": 1}]
    first, again, *others = (
        sbc(gaussian().calibration(60, k=5, seed=h.pop("data", 0)), **h).null for h in how
    )
    assert np.array_equal(first, again)
    assert not any(np.array_equal(first, other) for other in others)


def test_what_it_returns(gaussian):
    result = sbc(gaussian(m=3).calibration(60, k=5), null=UniformRanks(99))
    assert result.statistic.shape == result.pvalue.shape == result.adjusted.shape == (3,)
    assert result.null.shape == result.envelope.null.shape == (3, 99)
    curve = result.ecdf(0.1)
    assert curve.ecdf.shape == curve.lower.shape == curve.upper.shape == (3, 7)
    assert curve.null_lower.shape == curve.null_upper.shape == curve.levels.shape == (7,)
    expected = {"test": "SBC", "n": 60, "m": 3, "k": 5, "seed": 0, "null": "UniformRanks(n=99)"}
    assert expected.items() <= result.settings.items()
    assert "theta[1]" in repr(result)
    assert np.array_equal(result["theta[1]"].ranks, result.ranks[:, 1:2])


@pytest.mark.parametrize(("n", "k"), [(300, 30), (200, 12), (1000, 16), (400, 19)])
@pytest.mark.parametrize("alpha", [0.05, 0.2])
def test_the_band_of_a_histogram_is_exact(gaussian, n, k, alpha):
    """4000 right posteriors: all bars are inside for 1 - alpha of them, within four errors.

    Counts are whole numbers: the band that is one count narrower on one side holds too few.
    """
    right = sbc(gaussian().calibration(20, k=4), null=19)
    ranks = np.random.default_rng(n).integers(0, k + 1, (n, 4000))
    found = replace(right, ranks=ranks, k=k).histogram(alpha)
    assert (found.counts.sum(1) == n).all()
    assert (found.edges[0], found.edges[-1]) == (0, k + 1)
    np.testing.assert_allclose(found.expected, n * np.diff(found.edges) / (k + 1))
    held = [
        ((found.counts >= found.lower + less) & (found.counts <= found.upper)).all(1).mean()
        for less in (0, 1)
    ]
    error = 4 * np.sqrt(alpha * (1 - alpha) / 4000)
    assert held[0] > 1 - alpha - error
    assert held[1] < 1 - alpha + error


BAD = {
    "null": (lambda c: sbc(c, null="99"), "null: expected a number of copies or .*UniformRanks"),
    "another null": (lambda c: sbc(c, null=assay.Exchange(9)), "null: .* got Exchange"),
    "quantities": (lambda c: sbc(c, "theta"), "quantities: expected a mapping"),
    "no quantities": (lambda c: sbc(c, {}), "quantities: expected a mapping"),
    "alpha": (lambda c: sbc(c).histogram(0), "alpha: expected"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input(gaussian, call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(gaussian().calibration(60, k=5))


class Stub:
    """A posterior in sbi's manner that hands over stored draws (k, n, m)."""

    def __init__(self, draws):
        self.draws = draws

    def sample_batched(self, shape, x, **settings):
        return self.draws


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::PendingDeprecationWarning")
def test_against_sbi(gaussian):
    """Ranks of parameters and of a density are those of sbi, one by one."""
    from sbi.diagnostics.sbc import run_sbc

    def density(theta, x):
        return -(theta - x / 2).square().sum(-1)

    calibration = gaussian().calibration(150, k=110)
    stub = Stub(calibration.theta_q.transpose(0, 1))
    for quantities, functions in ((None, {}), ({"density": density}, {"reduce_fns": density})):
        given = {"num_posterior_samples": 110, "show_progress_bar": False, **functions}
        theirs, _ = run_sbc(calibration.theta, calibration.x, stub, **given)
        np.testing.assert_array_equal(sbc(calibration, quantities).ranks, theirs.numpy())

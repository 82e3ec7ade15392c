from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay import Calibration, sbc
from assay._support.random import stream
from assay.average.ranks import Values
from assay.average.uniform import UniformRanks


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
        np.testing.assert_allclose(result.dispersion, width, rtol=0.1)
        np.testing.assert_allclose(result.bias, shift / posterior.scale, atol=0.1)

    def test_a_gross_bias_is_not_taken_for_a_width(self, gaussian):
        result = sbc(gaussian(shift=3.0).calibration(300, k=30))
        assert all(words.startswith("too high") for words in result.directions)
        assert not any("conservative" in words for words in result.directions)

    def test_shapes_of_histograms(self, gaussian):
        """U-shaped ranks are overconfident, humps conservative."""
        ends = {}
        for width in (0.6, 1.6):
            counts = sbc(gaussian(width=width).calibration(1000, k=19)).histogram().counts
            ends[width] = counts[:, [0, -1]].mean() / counts[:, 9:11].mean()
        assert ends[0.6] > 2
        assert ends[1.6] < 0.5


@pytest.fixture(scope="module")
def many():
    """100 parameters, of which the fourth is off."""
    members = torch.randn(200, 20, 100, generator=stream(0, "many"))
    members[:, 1:, 3] += 0.7
    x = torch.randn(200, 1, generator=stream(1, "many"))
    return Calibration(members[:, 0], x, members[:, 1:])


class TestManyQuantities:
    """Nulls must be able to adjust for all of them."""

    @pytest.mark.parametrize("test", [sbc, assay.coverage])
    def test_there_are_enough_nulls(self, many, test):
        result = test(many)
        assert result.null.shape == (100, 1999)
        assert "cannot be below" not in result.sentence

    def test_it_is_found(self, many):
        assert (sbc(many).adjusted <= 0.05).nonzero()[0].tolist() == [3]

    @pytest.mark.parametrize("test", [sbc, assay.coverage])
    def test_too_few_are_reported(self, many, test):
        words = "With 199 null copies p, corrected for 100, cannot be below 0.500: take 1999."
        assert words in test(many, null=199).sentence


def test_the_prior_passes_until_a_quantity_depends_on_x(gaussian):
    generator = stream(0, "prior")
    calibration = gaussian().calibration(1000)
    prior = torch.randn(1000, 40, 2, generator=generator)
    prior = Calibration(calibration.theta, calibration.x, prior)
    assert (sbc(prior).pvalue > 0.05).all()
    result = sbc(prior, {"misfit": lambda theta, x: (theta - x).square().sum(1)})
    assert result.pvalue == 0.001
    assert result.names == ("misfit",)


def test_quantities_may_be_values(gaussian):
    calibration = gaussian().calibration(100, k=10)
    own = Values(calibration.theta[:, 0], calibration.theta_q[..., 0])
    result = sbc(calibration, {"values": own, "function": lambda theta, x: theta[:, 0]})
    np.testing.assert_array_equal(result.ranks[:, 0], result.ranks[:, 1])
    assert result.names == ("values", "function")
    assert result.statistic[0] == result.statistic[1]


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
    assert result.bias.std() == pytest.approx(result.bias_null, rel=0.12)
    assert result.dispersion.std() == pytest.approx(result.dispersion_null, rel=0.12)
    assert abs(result.bias.mean()) < 4 * result.bias.std() / 20


def test_invariances(gaussian):
    """The order of rows, and units of parameters and observations, do not matter."""
    calibration = gaussian(width=1.1).calibration(150, k=9)
    before = sbc(calibration, seed=2)
    order = np.random.default_rng(0).permutation(150)
    theta, x, theta_q = calibration.theta, calibration.x, calibration.theta_q
    for other in (calibration.subset(order), Calibration(4 * theta - 1, 2 * x, 4 * theta_q - 1)):
        after = sbc(other, seed=2)
        np.testing.assert_array_equal(before.pvalue, after.pvalue)
        np.testing.assert_array_equal(before.null, after.null)
        np.testing.assert_array_equal(before.envelope.pvalue, after.envelope.pvalue)


def test_the_same_seed_gives_the_same_result_and_no_generator_moves(gaussian):
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, again, other = (sbc(gaussian().calibration(60, k=5), seed=s) for s in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), states[0])
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])
    np.testing.assert_array_equal(first.null, again.null)
    assert not np.array_equal(first.null, other.null)


def test_data_sets_meet_different_nulls_at_one_seed(gaussian):
    first, other = (sbc(gaussian().calibration(60, k=5, seed=s)) for s in range(2))
    assert not np.array_equal(first.null, other.null)


class TestResult:
    def test_it_prints_and_has_its_settings(self, gaussian):
        result = sbc(gaussian().calibration(60, k=5), null=UniformRanks(99))
        text = repr(result)
        assert "theta[1]" in text
        assert "H0: q(theta | x) = p(theta | x) at almost every x" in text
        expected = {"test": "SBC", "n": 60, "m": 2, "k": 5, "seed": 0}
        assert expected.items() <= result.settings.items()
        assert result.settings["null"] == "UniformRanks(n=99)"
        assert {"assay", "torch", "numpy", "python"} <= set(result.settings)
        assert "<table>" in result._repr_html_()

    def test_shapes(self, gaussian):
        result = sbc(gaussian(m=3).calibration(60, k=5), null=UniformRanks(99))
        assert result.ranks.shape == (60, 3)
        assert result.statistic.shape == result.pvalue.shape == result.adjusted.shape == (3,)
        assert result.null.shape == result.envelope.null.shape == (3, 99)
        curve = result.ecdf(0.1)
        assert curve.ecdf.shape == curve.difference.shape == (3, 7)
        assert curve.lower.shape == curve.upper.shape == curve.levels.shape == (7,)
        assert len(result.table) == len(result.directions) == 3
        with pytest.raises(ValueError, match="read-only"):
            result.envelope.null[:] = 0

    def test_the_curve_leaves_its_band_where_the_envelope_rejects(self, gaussian):
        for width in (1.0, 0.5):
            result = sbc(gaussian(width=width).calibration(300, k=20))
            curve = result.ecdf(0.05)
            out = ((curve.ecdf < curve.lower) | (curve.ecdf > curve.upper)).any(1)
            np.testing.assert_array_equal(out, result.envelope.pvalue <= 0.05)

    def test_the_histogram_counts_all_ranks(self, gaussian):
        histogram = sbc(gaussian().calibration(300, k=30)).histogram(0.1)
        assert (histogram.counts.sum(1) == 300).all()
        assert histogram.edges[0] == 0
        assert histogram.edges[-1] == 31
        assert (histogram.lower <= histogram.expected).all()
        assert (histogram.upper >= histogram.expected).all()
        np.testing.assert_allclose(histogram.expected, 300 * np.diff(histogram.edges) / 31)

    @pytest.mark.parametrize(("n", "k"), [(300, 30), (200, 12), (1000, 16), (400, 19)])
    @pytest.mark.parametrize("alpha", [0.05, 0.2])
    def test_the_band_of_a_histogram_is_exact(self, gaussian, n, k, alpha):
        """4000 right posteriors: all bars are inside for 1 - alpha of them, within four errors.

        Counts are whole numbers: the band that is one count narrower on one side holds too few.
        """
        right = sbc(gaussian().calibration(20, k=4), null=19)
        ranks = np.random.default_rng(n).integers(0, k + 1, (n, 4000))
        found = replace(right, ranks=ranks, k=k).histogram(alpha)
        held = [
            ((found.counts >= found.lower + less) & (found.counts <= found.upper)).all(1).mean()
            for less in (0, 1)
        ]
        error = 4 * np.sqrt(alpha * (1 - alpha) / 4000)
        assert held[0] > 1 - alpha - error
        assert held[1] < 1 - alpha + error


BAD = {
    "calibration": (lambda c: sbc(c.theta), "calibration: expected a Calibration"),
    "null": (lambda c: sbc(c, null="99"), "null: expected a number of copies or .*UniformRanks"),
    "no nulls": (lambda c: sbc(c, null=0), "null: expected at least 1"),
    "another null": (lambda c: sbc(c, null=assay.Exchange(9)), "null: .* UniformRanks.* got Exch"),
    "quantities": (lambda c: sbc(c, "theta"), "quantities: expected a mapping"),
    "seed": (lambda c: sbc(c, seed=1.5), "seed: expected"),
    "alpha": (lambda c: sbc(c).histogram(0), "alpha: expected"),
    "alpha of a band": (lambda c: sbc(c).ecdf(1e-6), "alpha: expected at least 0.001"),
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

    calibration = gaussian().calibration(150, k=110)
    stub = Stub(calibration.theta_q.transpose(0, 1))
    given = {"num_posterior_samples": 110, "show_progress_bar": False}
    theirs, _ = run_sbc(calibration.theta, calibration.x, stub, **given)
    np.testing.assert_array_equal(sbc(calibration).ranks, theirs.numpy())

    def density(theta, x):
        return -(theta - x / 2).square().sum(-1)

    theirs, _ = run_sbc(calibration.theta, calibration.x, stub, reduce_fns=density, **given)
    ours = sbc(calibration, {"density": density})
    np.testing.assert_array_equal(ours.ranks, theirs.numpy())

from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest
import scipy.stats
import torch

from assay import Calibration, coverage, tarp
from assay._support.random import stream
from assay.average.coverage import ScaledEuclidean, UniformBox
from assay.average.ranks import Values
from tests.average.test_ranks import densities, log_density
from tests.average.test_sbc import Stub


def highest_density(calibration, posterior, **how):
    return coverage(calibration, log_density(posterior), **how)


def central_intervals(calibration, posterior, **how):
    return coverage(calibration, **how)


def centre(x):
    return x / 2


def balls(calibration, posterior, references=UniformBox(), **how):  # noqa: B008
    return tarp(calibration, references, **how)


KINDS = {"highest density": highest_density, "central intervals": central_intervals}
FORMS = {**KINDS, "balls": balls, "balls of x": partial(balls, references=centre)}
every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@every_form
class TestTriple:
    """An exact, a conservative and an overconfident posterior, and the direction of the error."""

    def test_exact(self, gaussian, form):
        result = form(gaussian().calibration(1000, k=50), gaussian())
        assert (result.pvalue > 0.05).all()
        assert (result.area_pvalue > 0.01).all()
        assert result.sentence.startswith("No departure from the right coverage beyond noise")
        lower, upper = result.intervals(result.coverage, 0.001)
        assert (lower < result.levels).all()
        assert (upper > result.levels).all()

    @pytest.mark.parametrize(("width", "word"), [(0.6, "overconfident"), (1.5, "conservative")])
    def test_width(self, gaussian, form, width, word):
        posterior, sign = gaussian(width=width), np.sign(width - 1)
        result = form(posterior.calibration(1000, k=50), posterior)
        assert (result.pvalue == 0.001).all()
        assert (sign * result.area > 0).all()
        assert all(words.startswith(word) for words in result.directions)
        assert result.sentence.startswith(f"q is {word}")
        # Of 90 %; balls say it at high levels alone.
        assert (sign * (result.coverage[:, 1] - 0.9) > 0.04).all()


@every_form
class TestEveryForm:
    def test_invariances(self, gaussian, form):
        """The order of rows, and units of parameters and observations, do not matter."""
        posterior = gaussian(width=1.1)
        calibration = posterior.calibration(150, k=9)
        before = form(calibration, posterior, seed=2)
        order = np.random.default_rng(0).permutation(150)
        # The function for the density ranks members in these units as it did.
        moved = Calibration(4 * calibration.theta, 4 * calibration.x, 4 * calibration.theta_q)
        for other in (calibration.subset(order), moved):
            after = form(other, posterior, seed=2)
            np.testing.assert_array_equal(before.pvalue, after.pvalue)
            np.testing.assert_array_equal(before.area_pvalue, after.area_pvalue)

    def test_the_same_seed_gives_the_same_result_and_no_generator_moves(self, gaussian, form):
        states = torch.get_rng_state(), np.random.get_state()[1].copy()
        calibration = gaussian().calibration(60, k=5)
        first, again, other = (form(calibration, gaussian(), seed=s) for s in (5, 5, 6))
        assert torch.equal(torch.get_rng_state(), states[0])
        np.testing.assert_array_equal(np.random.get_state()[1], states[1])
        np.testing.assert_array_equal(first.null, again.null)
        assert not np.array_equal(first.null, other.null)

    @pytest.mark.parametrize("width", [1.0, 0.6])
    def test_the_curve_leaves_its_band_where_it_is_rejected(self, gaussian, form, width):
        posterior = gaussian(width=width)
        result = form(posterior.calibration(300, k=20), posterior)
        curve = result.curve(0.05)
        out = (curve.coverage < curve.null_lower) | (curve.coverage > curve.null_upper)
        np.testing.assert_array_equal(out.any(1), result.pvalue <= 0.05)
        assert (curve.lower <= curve.coverage).all()
        assert (curve.upper >= curve.coverage).all()

    def test_it_cannot_be_written(self, gaussian, form):
        with pytest.raises(ValueError, match="read-only"):
            form(gaussian().calibration(60, k=5), gaussian()).area[:] = 0

    def test_latents_and_single_draws(self, gaussian, form):
        for given in (gaussian().latents(30), gaussian().calibration(30, k=1)):
            with pytest.raises(ValueError, match="expected .*; got"):
                form(given, gaussian())


@every_kind
class TestCoverage:
    @pytest.mark.parametrize("k", [2, 3, 9, 10])
    def test_few_draws_do_not_bias_the_curve(self, gaussian, kind, k):
        """20 000 pairs: the mean at every level is the level, within four standard errors."""
        levels = (0.05, 0.5, 0.77, 0.95)
        result = kind(gaussian().calibration(20_000, k=k), gaussian(), levels=levels)
        error = np.sqrt(result.levels * (1 - result.levels) / 20_000)
        assert (np.abs(result.coverage - result.levels) < 4 * error).all()
        curve = result.curve()
        assert np.abs(curve.coverage - curve.levels).max() < 0.02

    def test_the_area_is_that_under_the_curve(self, gaussian, kind):
        posterior = gaussian(width=0.8)
        result = kind(posterior.calibration(200, k=20), posterior)
        curve = result.curve()
        area = np.trapezoid(curve.coverage - curve.levels, curve.levels, axis=1)
        np.testing.assert_allclose(result.area, area, atol=1e-12)

    def test_against_the_exact_coverage(self, gaussian, kind):
        """The alpha-region of a q of width w has radius^2 = w^2 chi2(alpha)."""
        posterior = gaussian(width=0.7)
        result = kind(posterior.calibration(4000, k=400), posterior)
        law = scipy.stats.chi2(2 if kind is highest_density else 1)
        exact = law.cdf(0.7**2 * law.ppf(result.levels))
        np.testing.assert_allclose(result.coverage, np.tile(exact, (len(result), 1)), atol=0.03)
        lower, upper = result.intervals(result.coverage, 0.05)[:, 0]
        assert (lower < exact).all()
        assert (exact < upper).all()


def test_a_density_may_be_values(gaussian):
    posterior = gaussian()
    calibration = posterior.calibration(100, k=10)
    values = Values(*densities(calibration, log_density(posterior)))
    first, again = (coverage(calibration, q) for q in (log_density(posterior), values))
    np.testing.assert_array_equal(first.positions, again.positions)


def test_the_mirror_image_has_the_same_intervals(gaussian):
    calibration = gaussian(width=0.8).calibration(100, k=10)
    mirrored = Calibration(-calibration.theta, calibration.x, -calibration.theta_q)
    np.testing.assert_array_equal(coverage(calibration).positions, coverage(mirrored).positions)


def test_the_level_that_is_quoted_shows_the_direction():
    """Two modes in a normal q: too much at medium levels, too little at high ones."""
    generator = torch.Generator().manual_seed(0)
    n, k = 3000, 64
    sign = 2.0 * torch.randint(2, (n, 1), generator=generator) - 1
    x = torch.randn(n, 1, generator=generator)
    theta = x + 0.97 * sign + 0.243 * torch.randn(n, 1, generator=generator)
    theta_q = x[:, None] + torch.randn(n, k, 1, generator=generator)
    result = coverage(Calibration(theta, x, theta_q), levels=(0.5, 0.9, 0.95))
    assert result.coverage[0, 1] > 0.93
    assert result.directions == ("overconfident",)
    words = "overconfident: its 50 % central intervals hold the true parameter in 16.8 %"
    assert words in result.sentence


def test_a_bias_is_found_by_balls(gaussian):
    result = tarp(gaussian(shift=0.7).calibration(1000, k=50))
    assert result.pvalue == 0.001
    assert "biased" in result.sentence


def test_the_prior_passes_random_references_but_not_those_of_x(gaussian):
    calibration = gaussian().calibration(1000)
    prior = torch.randn(1000, 40, 2, generator=stream(0, "prior"))
    prior = Calibration(calibration.theta, calibration.x, prior)
    assert tarp(prior).pvalue > 0.05
    assert tarp(prior, centre).pvalue == 0.001


def test_duplicates_of_the_true_parameter_are_ties(gaussian):
    """Draws that are copies of the true parameter, in eight dimensions: ranks are random."""
    calibration = gaussian(m=8).calibration(2000)
    draws = calibration.theta[:, None].repeat(1, 3, 1)
    draws[:, 0] += 1
    copies = Calibration(calibration.theta, calibration.x, draws)
    found = tarp(copies, references=calibration.theta - 0.3).positions
    counts = np.bincount(found[:, 0], minlength=4)
    assert counts[3] == 0
    assert scipy.stats.chisquare(counts[:3]).pvalue > 1e-3


class TestReferences:
    def test_the_box_holds_them_and_follows_units(self, gaussian):
        calibration = gaussian().calibration(300, k=9)
        result = tarp(calibration)
        members = calibration.members.flatten(0, 1)
        assert (result.references >= members.amin(0).numpy()).all()
        assert (result.references <= members.amax(0).numpy()).all()
        theta, x, theta_q = calibration.theta, calibration.x, calibration.theta_q
        moved = tarp(Calibration(4 * theta - 1, x, 4 * theta_q - 1))
        np.testing.assert_allclose(moved.references, 4 * result.references - 1, rtol=1e-4)

    def test_arrays_and_functions_agree(self, gaussian):
        calibration = gaussian().calibration(60, k=9)
        first, again = tarp(calibration, centre), tarp(calibration, (calibration.x / 2).numpy())
        np.testing.assert_array_equal(first.positions, again.positions)

    def test_which_member_is_the_true_parameter_has_no_say(self, gaussian):
        """Box and scales come from members chosen by chance; on average none is preferred."""
        calibration = gaussian(shift=5.0).calibration(1000, k=4)
        flipped = calibration.with_members(
            calibration.theta_q[:, 0],
            torch.cat([calibration.theta[:, None], calibration.theta_q[:, 1:]], 1),
        )
        lows = [tarp(c).references.min(0) for c in (calibration, flipped)]
        np.testing.assert_allclose(*lows, atol=1.0)


class TestMetric:
    def test_scales_against_a_function(self, gaussian):
        calibration = gaussian().calibration(80, k=9)

        def scaled(theta, references):
            scales = torch.tensor([1.0, 10.0])
            return torch.linalg.vector_norm((theta - references) / scales, dim=-1)

        first = tarp(calibration, centre, ScaledEuclidean((1.0, 10.0)))
        again = tarp(calibration, centre, scaled)
        np.testing.assert_array_equal(first.positions, again.positions)
        other = tarp(calibration, centre)
        assert not np.array_equal(first.positions, other.positions)

    def test_one_that_is_not_euclidean(self, gaussian):
        calibration = gaussian().calibration(40, k=9)
        result = tarp(calibration, centre, lambda theta, refs: (theta - refs).abs().sum(-1))
        truth = (calibration.theta - calibration.x / 2).abs().sum(1, keepdim=True)
        draws = (calibration.theta_q - calibration.x[:, None] / 2).abs().sum(2)
        np.testing.assert_array_equal(result.positions[:, 0], (draws < truth).sum(1))


def test_intervals_are_those_of_clopper_and_pearson(gaussian):
    """Against SciPy's, of the number of true parameters in each ball."""
    result = tarp(gaussian(width=0.8).calibration(200, k=9), levels=(0.5, 0.9))
    curve = result.curve(0.1)
    counts = (result.positions[:, 0, None] < np.arange(11)).sum(0)
    np.testing.assert_allclose(curve.coverage[0], counts / 200)
    for count, lower, upper in zip(counts, curve.lower[0], curve.upper[0], strict=True):
        exact = scipy.stats.binomtest(int(count), 200).proportion_ci(0.9, "exact")
        assert (lower, upper) == pytest.approx((exact.low, exact.high))


SETTINGS = {
    "coverage": (
        partial(coverage, levels=(0.8, 0.25)),
        "at 80 %",
        {"test": "expected coverage of central intervals"},
    ),
    "TARP": (
        partial(tarp, references=centre),
        "balls around references",
        {"test": "TARP", "references": "centre", "metric": "ScaledEuclidean(scales=None)"},
    ),
}


@pytest.mark.parametrize(("form", "words", "own"), SETTINGS.values(), ids=SETTINGS)
def test_it_prints_and_has_its_settings(gaussian, form, words, own):
    result = form(gaussian().calibration(60, k=5))
    assert words in " ".join(repr(result).split())
    assert {**own, "n": 60, "m": 2, "k": 5, "seed": 0}.items() <= result.settings.items()
    assert {"assay", "torch", "numpy", "python"} <= set(result.settings)
    np.testing.assert_array_equal(result.levels, sorted(result.levels))


BAD = {
    "calibration": (lambda c: coverage(c.theta), "calibration: expected a Calibration"),
    "a level of one": (lambda c: coverage(c, levels=(0.5, 1.0)), "levels: expected numbers betw"),
    "a level of zero": (lambda c: coverage(c, levels=(0, 0.5)), "levels: expected a finite numb"),
    "per cent": (lambda c: coverage(c, levels=(50, 90)), "levels: expected numbers between"),
    "nan": (lambda c: coverage(c, levels=(float("nan"),)), "levels: expected a finite number"),
    "no levels": (lambda c: coverage(c, levels=()), "levels: expected numbers between"),
    "words": (lambda c: coverage(c, levels=("0.5",)), "levels: expected a number"),
    "null": (
        lambda c: coverage(c, null="99"),
        "null: expected a number of copies or .*UniformRanks",
    ),
    "no nulls": (lambda c: coverage(c, null=0), "null: expected at least 1"),
    "log_q": (lambda c: coverage(c, 3.0), "log_q: expected a function of theta and x"),
    "nan in log_q": (lambda c: coverage(c, lambda t, x: t[:, 0] * torch.nan), "log_q: .* NaN"),
    "no density": (lambda c: coverage(c, lambda t, x: t[:, 0] - torch.inf), "log_q: .* got zero"),
    "shape of log_q": (lambda c: coverage(c, lambda t, x: t), "log_q: expected a function that"),
    "TARP of an array": (lambda c: tarp(c.theta), "calibration: expected a Calibration"),
    "shape": (lambda c: tarp(c, torch.zeros(60, 3)), r"references: expected shape \(60, 2\)"),
    "one point": (lambda c: tarp(c, torch.zeros(2)), r"references: expected shape \(60, 2\)"),
    "a function": (lambda c: tarp(c, lambda x: x[:, 0]), r"references: expected shape \(60, 2\)"),
    "nan references": (lambda c: tarp(c, c.x * torch.nan), "references: expected finite numbers"),
    "a word": (lambda c: tarp(c, "random"), "references: expected UniformBox"),
    "a class": (lambda c: tarp(c, UniformBox), "references: expected UniformBox"),
    "metric": (lambda c: tarp(c, metric="l2"), "metric: expected ScaledEuclidean"),
    "scales": (lambda c: tarp(c, metric=ScaledEuclidean((1.0,))), "metric: expected a scale for"),
    "no scale": (lambda c: ScaledEuclidean((0.0, 1.0)), "scales: expected a finite number above"),
    "metric shape": (lambda c: tarp(c, metric=lambda t, r: t), "metric: expected a function that"),
    "metric nan": (
        lambda c: tarp(c, metric=lambda t, r: (t - r)[..., 0] * torch.nan),
        "metric: expected finite numbers",
    ),
    "levels of TARP": (lambda c: tarp(c, levels=(1.5,)), "levels: expected numbers between"),
    "null of TARP": (lambda c: tarp(c, null="99"), "null: expected a number of copies or"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input(gaussian, call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(gaussian().calibration(60, k=5))


def test_densities_of_another_order(gaussian):
    posterior = gaussian()
    calibration = posterior.calibration(200, k=50)
    true, draws = densities(calibration, log_density(posterior))
    with pytest.raises(ValueError, match="log_q: .* rows in another order"):
        coverage(calibration, Values(true, draws.roll(1, 0)))


WARNINGS = ["ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"]


@dataclass
class Stored:
    """A distribution in lampe's manner that hands over stored draws."""

    draws: torch.Tensor
    log_prob: object

    def sample(self, shape):
        return self.draws


@pytest.mark.filterwarnings(*WARNINGS)
def test_coverage_against_lampe(gaussian):
    """Levels, as shares of the k draws with a higher density, are those of lampe.

    Its curve is that of these shares, r / k, between (0, 0) and (1, 1); ours puts the step r at
    (r + 1) / (k + 1), which is what makes it right on average for few draws.
    """
    from lampe.diagnostics import expected_coverage_mc

    posterior, k = gaussian(width=0.8), 60
    calibration = posterior.calibration(300, k=k)
    stored = {
        float(x[0]): draws for x, draws in zip(calibration.x, calibration.theta_q, strict=True)
    }

    def estimator(x):
        def log_prob(theta):
            return -posterior.theta_to_base(theta, x).square().sum(-1) / 2

        return Stored(stored[float(x[0])], log_prob)

    pairs = list(zip(calibration.theta, calibration.x, strict=True))
    theirs, coverages = expected_coverage_mc(estimator, pairs, n=k)
    ours = coverage(calibration, log_density(posterior))
    shares = np.sort(np.concatenate([[0.0], ours.positions[:, 0] / k, [1.0]]))
    np.testing.assert_allclose(theirs.numpy(), shares, atol=1e-6)
    # The curves differ by the two points lampe adds and by the convention for steps.
    there = [(theirs.numpy() <= a + 1e-9).mean() for a in ours.levels]
    np.testing.assert_allclose(ours.coverage[0], there, atol=2 / 300 + 2 / k)


def below(result, alphas):
    """The share of true parameters with fewer than a share alpha of draws in their ball.

    That is how the peers count: shares r / k, strictly below the inner edges of a histogram that
    reaches from the smallest to the largest share. Here the step r is at (r + 1) / (k + 1).
    """
    shares = result.positions[:, 0] / result.settings["k"]
    return np.array([(shares < alpha - 1e-6).mean() for alpha in alphas])


@pytest.mark.filterwarnings(*WARNINGS)
def test_tarp_against_its_authors(gaussian):
    from tarp import get_tarp_coverage

    calibration = gaussian(width=0.8).calibration(400, k=60)
    references = 3 * torch.randn(400, 2, generator=stream(0, "references"))
    samples = calibration.theta_q.transpose(0, 1).numpy().copy()
    theirs, alphas = get_tarp_coverage(
        samples, calibration.theta.numpy(), references.numpy(), num_alpha_bins=7, norm=False
    )
    ours = tarp(calibration, references, ScaledEuclidean((1.0, 1.0)))
    np.testing.assert_allclose(below(ours, alphas[:-1]), theirs[:-1], atol=1e-9)
    levels, curve = ours.curve().levels, ours.curve().coverage[0]
    np.testing.assert_allclose(np.interp(alphas, levels, curve), theirs, atol=0.05)


@pytest.mark.filterwarnings(*WARNINGS)
@pytest.mark.parametrize("scaled", [True, False])
def test_tarp_against_sbi(gaussian, scaled):
    from sbi.diagnostics.tarp import run_tarp

    calibration = gaussian(width=0.8).calibration(400, k=110)
    references = 3 * torch.randn(400, 2, generator=stream(1, "references"))
    theirs, alphas = run_tarp(
        calibration.theta,
        calibration.x,
        Stub(calibration.theta_q.transpose(0, 1)),
        references=references,
        num_posterior_samples=110,
        show_progress_bar=False,
        num_bins=7,
        z_score_theta=scaled,
    )
    scales = (calibration.theta.amax(0) - calibration.theta.amin(0)).tolist()
    ours = tarp(calibration, references, ScaledEuclidean(tuple(scales) if scaled else (1.0, 1.0)))
    # Squares here and roots there may round differently, for a pair or two.
    np.testing.assert_allclose(below(ours, alphas[:-1].numpy()), theirs[:-1].numpy(), atol=0.006)

from functools import partial

import numpy as np
import pytest
import scipy.stats
import torch

from assay import Calibration, coverage, tarp
from assay._support.random import stream
from assay.average.coverage import log_densities
from assay.average.ranks import Sets, Values
from experiments.tasks import task
from tests.average.test_ranks import log_density
from tests.average.test_sbc import Stub


def highest_density(calibration, posterior, **how):
    return coverage(calibration, log_density(posterior), **how)


def central_intervals(calibration, posterior, **how):
    return coverage(calibration, **how)


def centre(x):
    return x / 2


def balls(calibration, posterior, references=None, **how):
    return tarp(calibration, references, **how)


KINDS = {"highest density": highest_density, "central intervals": central_intervals}
FORMS = {**KINDS, "balls": balls, "balls of x": partial(balls, references=centre)}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
class TestTriple:
    """An exact, a conservative and an overconfident posterior, and the direction of the error."""

    def test_exact(self, gaussian, form):
        result = form(gaussian().calibration(1000, k=50), gaussian())
        assert (result.pvalue > 0.05).all()
        assert (result.area_pvalue > 0.01).all()
        assert result.sentence.startswith("No departure from the right coverage beyond noise")

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

    @pytest.mark.parametrize("width", [1.0, 0.6])
    def test_the_curve_leaves_its_band_where_it_is_rejected(self, gaussian, form, width):
        posterior = gaussian(width=width)
        result = form(posterior.calibration(300, k=20), posterior)
        curve = result.curve(0.05)
        out = (curve.ecdf < curve.null_lower) | (curve.ecdf > curve.null_upper)
        np.testing.assert_array_equal(out.any(1), result.pvalue <= 0.05)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
class TestCoverage:
    @pytest.mark.parametrize("k", [2, 3, 9, 10])
    def test_few_draws_do_not_bias_the_curve(self, gaussian, kind, k):
        """20 000 pairs: the mean at every level is the level, within four standard errors."""
        levels = (0.05, 0.5, 0.77, 0.95)
        result = kind(gaussian().calibration(20_000, k=k), gaussian(), levels=levels)
        error = np.sqrt(result.levels * (1 - result.levels) / 20_000)
        assert (np.abs(result.coverage - result.levels) < 4 * error).all()

    def test_the_area_is_that_under_the_curve(self, gaussian, kind):
        posterior = gaussian(width=0.8)
        result = kind(posterior.calibration(200, k=20), posterior)
        curve = result.curve()
        area = np.trapezoid(curve.ecdf - curve.levels, curve.levels, axis=1)
        np.testing.assert_allclose(result.area, area, atol=1e-12)

    def test_against_the_exact_coverage(self, gaussian, kind):
        """The alpha-region of a q of width w has radius^2 = w^2 chi2(alpha)."""
        posterior = gaussian(width=0.7)
        result = kind(posterior.calibration(4000, k=400), posterior)
        law = scipy.stats.chi2(2 if kind is highest_density else 1)
        exact = law.cdf(0.7**2 * law.ppf(result.levels))
        np.testing.assert_allclose(result.coverage, np.tile(exact, (len(result), 1)), atol=0.03)


def test_the_level_that_is_quoted_has_the_direction():
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


def test_balls_find_a_bias_and_that_q_is_the_prior(gaussian):
    """The latter with references that depend on x alone."""
    result = tarp(gaussian(shift=0.7).calibration(1000, k=50))
    assert result.pvalue == 0.001
    assert "biased" in result.sentence
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
    found = tarp(copies, references=calibration.theta - 0.3).ranks
    counts = np.bincount(found[:, 0], minlength=4)
    assert counts[3] == 0
    assert scipy.stats.chisquare(counts[:3]).pvalue > 1e-3


class TestReferences:
    def test_the_box_follows_units(self, gaussian):
        given = gaussian().calibration(300, k=9)
        moved = tarp(Calibration(4 * given.theta - 1, given.x, 4 * given.theta_q - 1))
        np.testing.assert_allclose(moved.references, 4 * tarp(given).references - 1, rtol=1e-4)

    def test_which_member_is_the_true_parameter_has_no_say(self, gaussian):
        """Box and scales come from members chosen by chance; on average none is preferred."""
        calibration = gaussian(shift=5.0).calibration(1000, k=4)
        flipped = calibration.with_members(
            calibration.theta_q[:, 0],
            torch.cat([calibration.theta[:, None], calibration.theta_q[:, 1:]], 1),
        )
        lows = [tarp(c).references.min(0) for c in (calibration, flipped)]
        np.testing.assert_allclose(*lows, atol=1.0)

    def test_arrays_functions_and_metrics(self, gaussian):
        calibration = gaussian().calibration(60, k=9)
        first, again = tarp(calibration, centre), tarp(calibration, (calibration.x / 2).numpy())
        np.testing.assert_array_equal(first.ranks, again.ranks)
        result = tarp(calibration, centre, lambda theta, refs: (theta - refs).abs().sum(-1))
        distances = (calibration.members - calibration.x[:, None] / 2).abs().sum(2)
        expected = (distances[:, 1:] < distances[:, :1]).sum(1)
        np.testing.assert_array_equal(result.ranks[:, 0], expected)


def test_what_they_return(gaussian):
    calibration = gaussian().calibration(60, k=9)
    intervals, balls = coverage(calibration, levels=(0.8, 0.25)), tarp(calibration, centre)
    assert intervals.levels.tolist() == [0.25, 0.8]
    assert "at 80 %" in " ".join(repr(intervals).split())
    own = {"test": "TARP", "references": "centre", "metric": "Euclidean", "k": 9, "seed": 0}
    assert own.items() <= balls.settings.items()
    mirrored = Calibration(-calibration.theta, calibration.x, -calibration.theta_q)
    np.testing.assert_array_equal(intervals.ranks, coverage(mirrored).ranks)


BAD = {
    "a level of one": (lambda c: coverage(c, levels=(0.5, 1.0)), "levels: expected numbers betw"),
    "words": (lambda c: coverage(c, levels=("0.5",)), "levels: expected a number"),
    "null": (lambda c: coverage(c, null="9"), "null: expected a number of .*UniformRanks"),
    "log_q": (lambda c: coverage(c, 3.0), "log_q: expected a function of theta and x"),
    "shape": (lambda c: tarp(c, torch.zeros(60, 3)), r"references: expected shape \(60, 2\)"),
    "nan references": (lambda c: tarp(c, c.x * torch.nan), "references: expected finite numbers"),
    "a word": (lambda c: tarp(c, "random"), "references: expected an array"),
    "metric": (lambda c: tarp(c, metric="l2"), "metric: expected a function of parameters"),
    "metric shape": (lambda c: tarp(c, metric=lambda t, r: t), "metric: expected a function that"),
    "metric nan": (
        lambda c: tarp(c, metric=lambda t, r: (t - r)[..., 0] * torch.nan),
        "metric: expected finite numbers",
    ),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input(gaussian, call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(gaussian().calibration(60, k=5))


def of_task(name, n, k):
    """A right posterior of a task, and its log-density."""
    of, generator = task(name), stream(0, "densities", name)
    theta, x = of.joint(n, generator)
    calibration = Calibration(theta, x, of.draws(x, k, generator))
    return calibration, lambda theta, x: of.log_posterior(theta.double(), x.double())


def checked(calibration, log_q):
    return log_densities(Sets.of(calibration, 0), log_q)


WRONG = "log_q: expected the density of the q that made"


class TestDensities:
    """Refused are those that cannot belong to the draws, and no right ones."""

    @pytest.fixture(params=["two_moons", "gaussian_mixture", "gaussian_linear_uniform", 1, 2, 10])
    def right(self, request, gaussian):
        """Calibrations with their right densities, of tasks and of Gaussians."""
        if isinstance(request.param, str):
            return of_task(request.param, 200, 100)
        posterior = gaussian(m=request.param)
        return posterior.calibration(200, 100), log_density(posterior)

    def test_right_and_wrong_ones(self, right):
        """Those of another draw, of another x or of the opposite sign are refused."""
        calibration, log_q = right
        values = checked(*right)
        for roll in (0, 1):
            with pytest.raises(ValueError, match="log_q: .* rows in another order"):
                checked(calibration, Values(values[:, 0], values[:, 1:].roll(1, roll)))
        moved = Calibration(calibration.theta, calibration.x.roll(1, 0), calibration.theta_q)
        for given, density in ((moved, log_q), (calibration, lambda t, x: -log_q(t, x))):
            with pytest.raises(ValueError, match=WRONG):
                checked(given, density)

    @pytest.mark.parametrize("k", [12, 20, 40])
    @pytest.mark.parametrize("name", ["two_moons", "gaussian_mixture", "gaussian_linear_uniform"])
    def test_right_ones_pass_with_few_draws(self, name, k):
        assert checked(*of_task(name, 200, k)).shape == (200, k + 1)

    def test_strong_correlations(self, gaussian):
        given, mix = gaussian().calibration(200, 50), torch.tensor([[1.0, 1.0], [0.0, 1e-3]])
        thin = Calibration(given.theta @ mix, given.x, given.theta_q @ mix)
        values = checked(given, log_density(gaussian()))
        assert torch.equal(checked(thin, Values(values[:, 0], values[:, 1:])), values)
        with pytest.raises(ValueError, match="log_q: .* rows in another order"):
            checked(thin, Values(values[:, 0], values[:, 1:].roll(1, 0)))

    def test_what_is_not_refused(self, gaussian):
        """A constant for each x, a flat density, repeated draws, and those on a thin ring."""
        calibration, log_q = gaussian().calibration(200, 50), log_density(gaussian())
        checked(calibration, lambda theta, x: log_q(theta, x) + 100 * x[:, 0])
        members = torch.rand(200, 51, 2, generator=stream(0, "flat"))
        flat = Calibration(members[:, 0], members[:, 0], members[:, 1:])
        assert (checked(flat, lambda theta, x: theta[:, 0] * 0) == 0).all()
        repeated = calibration.theta_q[:, :10].repeat(1, 4, 1)
        checked(Calibration(calibration.theta, calibration.x, repeated), log_q)
        angle, noise = torch.randn(2, 200, 51, generator=stream(0, "ring"))
        ring = (1 + 1e-3 * noise)[..., None] * torch.stack([angle.cos(), angle.sin()], 2)
        density = -noise.square() / 2
        thin = Calibration(ring[:, 0], calibration.x, ring[:, 1:])
        assert torch.equal(checked(thin, Values(density[:, 0], density[:, 1:])), density)

    def test_zero_and_infinity(self, gaussian):
        calibration, log_q = gaussian().calibration(50, 8), log_density(gaussian())
        with pytest.raises(ValueError, match="positive at every draw; got zero at .* Truncate"):
            checked(calibration, lambda theta, x: theta[:, 0].log().nan_to_num(-torch.inf))
        with pytest.raises(ValueError, match="log_q: expected numbers below infinity"):
            checked(calibration, lambda theta, x: theta[:, 0] + torch.inf)
        # Zero at a true parameter is allowed.
        values = checked(calibration, log_q)
        values[3, 0] = -torch.inf
        assert checked(calibration, Values(values[:, 0], values[:, 1:]))[3, 0] == -torch.inf


@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"
)
def test_tarp_against_sbi(gaussian):
    """Shares r / k strictly below the inner edges of its histogram; our step r is at (r + 1)."""
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
        z_score_theta=True,
    )
    scales = calibration.theta.amax(0) - calibration.theta.amin(0)
    ours = tarp(calibration, references, lambda t, points: ((t - points) / scales).norm(dim=-1))
    below = (ours.ranks / 110 < alphas[:-1].numpy() - 1e-6).mean(0)
    # Distances may round differently, for a pair or two.
    np.testing.assert_allclose(below, theirs[:-1].numpy(), atol=0.006)

import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay import Calibration, tarp
from assay.diagnostics.tarp import ScaledEuclidean, UniformBox
from assay.randomness import stream
from assay.uniformity import UniformRanks
from tests.diagnostics.test_sbc import Stub, heavily_tied


def centre(x):
    return x / 2


REFERENCES = {"box": UniformBox(), "of x": centre}


@pytest.mark.parametrize("references", REFERENCES.values(), ids=REFERENCES)
class TestTriple:
    """An exact, a conservative and an overconfident posterior, and the direction of the error."""

    def test_exact(self, gaussian, references):
        result = tarp(gaussian().calibration(1000, k=50), references)
        assert (result.pvalue > 0.05).all()
        assert (result.area_pvalue > 0.01).all()
        assert result.sentence.startswith("No departure from the right coverage beyond noise")

    def test_overconfident(self, gaussian, references):
        result = tarp(gaussian(width=0.6).calibration(1000, k=50), references)
        assert result.pvalue == 0.001
        assert result.area < 0
        assert result.directions == ("overconfident or biased",)
        assert result.coverage[0, 1] < 0.85

    def test_conservative(self, gaussian, references):
        result = tarp(gaussian(width=1.5).calibration(1000, k=50), references)
        assert result.pvalue == 0.001
        assert result.area > 0
        assert result.directions[0].startswith("conservative")
        assert result.coverage[0, 1] > 0.95


def test_a_bias_is_seen(gaussian):
    result = tarp(gaussian(shift=0.7).calibration(1000, k=50))
    assert result.pvalue == 0.001
    assert "biased" in result.sentence


def test_the_prior_passes_random_references_but_not_those_of_x(gaussian):
    calibration = gaussian().calibration(1000)
    prior = torch.randn(1000, 40, 2, generator=stream(0, "prior"))
    prior = Calibration(calibration.theta, calibration.x, prior)
    assert tarp(prior).pvalue > 0.05
    assert tarp(prior, centre).pvalue == 0.001


LEVELS = {
    "box": lambda g, i: (g().calibration(40, k=12, seed=i), UniformBox()),
    "of x": lambda g, i: (g().calibration(40, k=12, seed=i), centre),
    "heavy ties": lambda g, i: (heavily_tied(40, 12, i), UniformBox()),
}


@pytest.mark.parametrize("make", LEVELS.values(), ids=LEVELS)
def test_level(gaussian, make):
    """1000 repetitions at one seed: rejections at 0.1 within 99.9 % binomial intervals.

    Statistics are discrete and ties count against rejection, so there may be fewer.
    """
    rejections = np.zeros(2)
    for i in range(1000):
        calibration, references = make(gaussian, i)
        result = tarp(calibration, references, null=UniformRanks(99))
        rejections += result.pvalue[0] <= 0.1, result.area_pvalue[0] <= 0.1
    low, high = scipy.stats.binom(1000, 0.1).interval(0.999)
    assert (rejections <= high).all()
    assert (rejections >= low - 40).all()


def test_duplicates_of_the_truth_are_ties(gaussian):
    """Draws that are copies of the truth, in eight dimensions: ranks are as chance has them."""
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
        members = torch.cat([calibration.theta[:, None], calibration.theta_q], 1).flatten(0, 1)
        assert (result.references >= members.amin(0).numpy()).all()
        assert (result.references <= members.amax(0).numpy()).all()
        theta, x, theta_q = calibration.theta, calibration.x, calibration.theta_q
        moved = tarp(Calibration(4 * theta - 1, x, 4 * theta_q - 1))
        np.testing.assert_allclose(moved.references, 4 * result.references - 1, rtol=1e-4)

    def test_arrays_and_functions_agree(self, gaussian):
        calibration = gaussian().calibration(60, k=9)
        first, again = tarp(calibration, centre), tarp(calibration, (calibration.x / 2).numpy())
        np.testing.assert_array_equal(first.positions, again.positions)

    def test_which_member_is_the_truth_has_no_say(self, gaussian):
        """Box and scales come from members chosen by chance; on average no truth is preferred."""
        calibration = gaussian(shift=5.0).calibration(1000, k=4)
        flipped = Calibration(
            calibration.theta_q[:, 0],
            calibration.x,
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


def test_intervals_are_those_of_the_bootstrap(gaussian):
    """Against 4000 bootstrap samples of the pairs, within two counts of 200."""
    result = tarp(gaussian(width=0.8).calibration(200, k=9))
    curve = result.curve(0.1)
    rng = np.random.default_rng(0)
    picked = result.positions[rng.integers(0, 200, (4000, 200)), 0]
    shares = (picked[..., None] < np.arange(11)).mean(1)
    lower, upper = np.quantile(shares, [0.05, 0.95], axis=0)
    np.testing.assert_allclose(curve.lower[0], lower, atol=2.01 / 200)
    np.testing.assert_allclose(curve.upper[0], upper, atol=2.01 / 200)


def test_invariances(gaussian):
    """The order of rows, and units of parameters and observations, do not matter."""
    calibration = gaussian(width=1.1).calibration(150, k=9)
    before = tarp(calibration, seed=2)
    order = np.random.default_rng(0).permutation(150)
    theta, x, theta_q = calibration.theta, calibration.x, calibration.theta_q
    for other in (calibration.subset(order), Calibration(4 * theta, 2 * x, 4 * theta_q)):
        after = tarp(other, seed=2)
        np.testing.assert_array_equal(before.pvalue, after.pvalue)
        np.testing.assert_array_equal(before.area_pvalue, after.area_pvalue)


def test_the_same_seed_gives_the_same_result_and_no_generator_moves(gaussian):
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, again, other = (tarp(gaussian().calibration(60, k=5), seed=s) for s in (5, 5, 6))
    assert torch.equal(torch.get_rng_state(), states[0])
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])
    np.testing.assert_array_equal(first.references, again.references)
    np.testing.assert_array_equal(first.null, again.null)
    assert not np.array_equal(first.references, other.references)


class TestResult:
    def test_it_prints_and_says_how_it_was_made(self, gaussian):
        result = tarp(gaussian().calibration(60, k=5), centre)
        assert "balls around references" in repr(result)
        expected = {"test": "TARP", "references": "centre", "n": 60, "m": 2, "k": 5, "seed": 0}
        assert expected.items() <= result.settings.items()
        assert result.settings["metric"] == "ScaledEuclidean(scales=None)"

    def test_it_is_saved_and_loaded(self, gaussian, tmp_path):
        result = tarp(gaussian().calibration(60, k=5))
        assay.save(result, tmp_path / "file.npz")
        back = assay.load(tmp_path / "file.npz")
        assert repr(back) == repr(result)
        np.testing.assert_array_equal(back.curve().lower, result.curve().lower)
        np.testing.assert_array_equal(back.references, result.references)


BAD = {
    "calibration": (lambda c: tarp(c.theta), "calibration: expected a Calibration"),
    "shape": (lambda c: tarp(c, torch.zeros(60, 3)), r"references: expected shape \(60, 2\)"),
    "one point": (lambda c: tarp(c, torch.zeros(2)), r"references: expected shape \(60, 2\)"),
    "a function": (lambda c: tarp(c, lambda x: x[:, 0]), r"references: expected shape \(60, 2\)"),
    "nan": (lambda c: tarp(c, c.x * torch.nan), "references: expected finite numbers"),
    "words": (lambda c: tarp(c, "random"), "references: expected UniformBox"),
    "a class": (lambda c: tarp(c, UniformBox), "references: expected UniformBox"),
    "metric": (lambda c: tarp(c, metric="l2"), "metric: expected ScaledEuclidean"),
    "scales": (lambda c: tarp(c, metric=ScaledEuclidean((1.0,))), "metric: expected a scale for"),
    "no scale": (lambda c: ScaledEuclidean((0.0, 1.0)), "scales: expected a finite number above"),
    "metric shape": (lambda c: tarp(c, metric=lambda t, r: t), "metric: expected a function that"),
    "metric nan": (
        lambda c: tarp(c, metric=lambda t, r: (t - r)[..., 0] * torch.nan),
        "metric: expected finite numbers",
    ),
    "levels": (lambda c: tarp(c, levels=(1.5,)), "levels: expected numbers between"),
    "null": (lambda c: tarp(c, null=99), "null: expected UniformRanks"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input(gaussian, call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(gaussian().calibration(60, k=5))


@pytest.mark.parametrize("make", [lambda g: g().latents(30), lambda g: g().calibration(30, k=1)])
def test_latents_and_single_draws(gaussian, make):
    with pytest.raises(ValueError, match="expected .*; got"):
        tarp(make(gaussian))


def below(result, alphas):
    """The share of truths with fewer than a share alpha of draws in their ball.

    That is how the peers count: shares r / k, strictly below the inner edges of a histogram that
    reaches from the smallest to the largest share. Here the step r is at (r + 1) / (k + 1).
    """
    shares = result.positions[:, 0] / result.settings["k"]
    return np.array([(shares < alpha - 1e-6).mean() for alpha in alphas])


FOREIGN = ["ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning"]


@pytest.mark.filterwarnings(*FOREIGN)
def test_against_the_authors(gaussian):
    from tarp import get_tarp_coverage

    calibration = gaussian(width=0.8).calibration(400, k=60)
    generator = stream(0, "references")
    references = 3 * torch.randn(400, 2, generator=generator)
    samples = calibration.theta_q.transpose(0, 1).numpy().copy()
    theirs, alphas = get_tarp_coverage(
        samples, calibration.theta.numpy(), references.numpy(), num_alpha_bins=7, norm=False
    )
    ours = tarp(calibration, references, ScaledEuclidean((1.0, 1.0)))
    np.testing.assert_allclose(below(ours, alphas[:-1]), theirs[:-1], atol=1e-9)
    levels, curve = ours.curve().levels, ours.curve().coverage[0]
    np.testing.assert_allclose(np.interp(alphas, levels, curve), theirs, atol=0.05)


@pytest.mark.filterwarnings(*FOREIGN)
@pytest.mark.parametrize("scaled", [True, False])
def test_against_sbi(gaussian, scaled):
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

import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay import Calibration, Draws, Exchange, LocalExchange, lhpd
from assay._core import stream
from assay.diagnostics.average.ranks import Values
from assay.diagnostics.local.levels import ALPHAS, Levels
from assay.samples.neighbourhoods import Nearest, Smooth
from tests.diagnostics.local.test_levels import log_q

X_O = torch.tensor([0.3, -0.3])
FEW = (0.25, 0.5, 0.75)


def exact(posterior, n, seed=0):
    """HPD levels of a Gaussian q, by their formula."""
    latents = posterior.latents(n, seed=seed)
    u = scipy.stats.chi2(posterior.m).cdf(latents.theta.double().square().sum(1))
    return Levels(u, latents.x)


FORMS = {"nearest": (Nearest(), 999, ALPHAS), "smooth": (Smooth(), 99, FEW)}


@pytest.mark.parametrize(("where", "null", "alphas"), FORMS.values(), ids=FORMS)
class TestTriple:
    """An exact, a conservative and an overconfident posterior, and the direction of the error."""

    def found(self, posterior, where, null, alphas):
        calibration = posterior.calibration(500, k=30)
        return lhpd(calibration, log_q(posterior), where, null, alphas)(Draws(X_O))

    def test_exact(self, gaussian, where, null, alphas):
        assert self.found(gaussian(), where, null, alphas).pvalue > 0.05

    def test_conservative(self, gaussian, where, null, alphas):
        result = self.found(gaussian(width=1.6), where, null, alphas)
        assert result.pvalue == 1 / (null + 1)
        assert result.area.sign == [1]
        assert (result.curves[0] > result.alphas).all()
        assert "too wide" in result.sentence

    def test_overconfident(self, gaussian, where, null, alphas):
        result = self.found(gaussian(width=0.6), where, null, alphas)
        assert result.pvalue == 1 / (null + 1)
        assert result.area.sign == [-1]
        assert (result.curves[0] < result.alphas).all()
        assert "too narrow" in result.sentence


@pytest.mark.parametrize("width", [0.8, 1.3])
def test_against_the_chi_square_law(gaussian, width):
    """A region of q of mass alpha holds the truth with probability F(width^2 F^-1(alpha))."""
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


def rejections(pvalues, alpha):
    return int((np.array(pvalues) <= alpha + 1e-9).sum())


def check_level(pvalues, share=0.999):
    """Rejections at 0.05 and 0.2 within binomial intervals; ties only lower them."""
    for alpha in (0.05, 0.2):
        low, high = scipy.stats.binom(len(pvalues), alpha).interval(share)
        assert low <= rejections(pvalues, alpha) <= high


def test_errors_elsewhere_do_not_leak_in(gaussian):
    """100 repetitions with q far too wide outside the nearest 20 %: a 99.9 % interval."""
    found, smooth = [], []
    for i in range(100):
        right, wrong = exact(gaussian(), 200, i), exact(gaussian(width=2), 200, i)
        far = Nearest().weights(right.x, X_O[None])[0, -1] == 0
        levels = Levels(torch.where(far[:, None], wrong.u, right.u), right.x)
        found.append(lhpd(levels, null=19)(Draws(X_O)).pvalue)
        smooth.append(lhpd(levels, None, Smooth(), 19)(Draws(X_O)).pvalue)
    check_level(found)
    # What is exact for the neighbourhood alone differs from what is not.
    assert rejections(smooth, 0.05) > 50


def test_an_error_near_x_o_is_seen(gaussian):
    """What the weights must not miss: q wrong in the nearest 20 %, right elsewhere."""
    right, wrong = exact(gaussian(), 2000), exact(gaussian(width=1.4), 2000)
    far = Nearest().weights(right.x, X_O[None])[0, -1] == 0
    levels = Levels(torch.where(far[:, None], right.u, wrong.u), right.x)
    assert lhpd(levels)(Draws(X_O)).pvalue == 0.001


def test_invariances(gaussian):
    """The order of rows changes nothing; units of theta and x next to nothing."""
    posterior = gaussian(width=1.2)
    calibration = posterior.calibration(300, k=9)
    first = lhpd(calibration, log_q(posterior))(Draws(X_O))
    order = torch.randperm(300, generator=stream(0, "shuffle"))
    again = lhpd(calibration.subset(order), log_q(posterior))(Draws(X_O))
    np.testing.assert_array_equal(first.null_curves, again.null_curves)
    np.testing.assert_array_equal(first.curves, again.curves)
    moved = Calibration(100 * calibration.theta, 8 * calibration.x + 3, 100 * calibration.theta_q)
    density = log_q(posterior)
    test = lhpd(moved, lambda theta, x: density(theta / 100, (x - 3) / 8))
    there = test(Draws(8 * X_O + 3))
    np.testing.assert_allclose(there.curves, first.curves, atol=0.02)
    assert there.pvalue == pytest.approx(first.pvalue, abs=0.02)


def test_one_observation_is_a_row_of_many(gaussian):
    test = lhpd(exact(gaussian(width=1.2), 200), null=19)
    x_o = torch.stack([X_O, -X_O, 2 * X_O])
    many, one = test(Draws(x_o)), test(Draws(x_o[1]))
    assert many.statistic.shape == (3,)
    assert many.null.shape == (3, 19)
    assert many.curves.shape == (3, 1, 19)
    assert many.null_curves.shape == (3, 19, 1, 19)
    assert many.pvalues.shape == (3, 1)
    assert many.area.value.shape == (3, 1)
    assert many.bands().envelope_upper.shape == (3, 1, 19)
    assert many.bands().pvalue.shape == (3, 1)
    assert one.curves.shape == (1, 19)
    assert one.bands().lower.shape == (1, 19)
    np.testing.assert_array_equal(many.curves[1], one.curves)
    np.testing.assert_allclose(many.null[1], one.null)
    assert many.pvalue[1] == one.pvalue
    assert len(many.table) == 3
    assert many.adjusted.shape == (3,)
    assert "At " in repr(many)
    assert "Near x_o" in repr(one)


def test_the_same_seed_gives_the_same_result_and_no_generator_moves(gaussian):
    state = torch.get_rng_state()
    calibration = gaussian().calibration(100, k=5)
    first, again, other = (
        lhpd(calibration, log_q(gaussian()), seed=seed)(Draws(X_O)) for seed in (4, 4, 5)
    )
    np.testing.assert_array_equal(first.null, again.null)
    assert not np.array_equal(first.null, other.null)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_band_holds_the_nulls(gaussian):
    result = lhpd(exact(gaussian(), 500))(Draws(X_O))
    bands = result.bands(0.1)
    inside = (result.null_curves >= bands.lower) & (result.null_curves <= bands.upper)
    assert inside.mean() == pytest.approx(0.9, abs=0.02)
    whole = (result.null_curves >= bands.envelope_lower) & (
        result.null_curves <= bands.envelope_upper
    )
    assert whole.all((1, 2)).mean() == pytest.approx(0.9, abs=0.02)
    with pytest.raises(ValueError, match="alpha: expected a number between 0 and 1"):
        result.bands(2)


def test_it_says_what_it_tests(gaussian):
    levels = exact(gaussian(), 100)
    near = lhpd(levels, null=9)(Draws(X_O))
    assert near.hypothesis.endswith("throughout the nearest 20% of x around x_o")
    result = lhpd(levels, None, Smooth(), 9, FEW)(Draws(X_O))
    assert result.hypothesis.endswith("at almost every x, tested at x_o")
    assert result.adjustment.words.endswith("if q is right at almost every x")
    assert near.adjustment.words.endswith("whichever of the local hypotheses are true")
    expected = {"test": "local HPD coverage", "n": 100, "nulls": 9, "seed": 0, "d": 2}
    assert expected.items() <= near.settings.items()
    assert {"assay", "torch", "numpy"} <= set(near.settings)


@pytest.mark.parametrize("where", [Nearest(), Smooth()])
def test_save_and_load(gaussian, tmp_path, where):
    test = lhpd(exact(gaussian(), 100), None, where, 9, FEW)
    result = test(Draws(X_O))
    for thing, name in ((test, "test"), (result, "result"), (test.copies.levels, "levels")):
        assay.save(thing, tmp_path / name)
    again = assay.load(tmp_path / "result")
    assert repr(again) == repr(result)
    np.testing.assert_array_equal(again.null_curves, result.null_curves)
    assert repr(assay.load(tmp_path / "test")) == repr(test)
    np.testing.assert_array_equal(assay.load(tmp_path / "test")(Draws(X_O)).null, result.null)
    assert torch.equal(assay.load(tmp_path / "levels").u, test.copies.levels.u)


class TestMadeAgain:
    """The same recipe on another calibration, with another seed or another number of nulls."""

    def test_on_the_same_and_on_another_calibration(self, gaussian):
        right, wide = gaussian(), gaussian(width=1.6)
        first, other = right.calibration(200, 9), right.calibration(200, 9, seed=1)
        test = lhpd(first, log_q(right), Smooth(), 19, FEW, seed=3)
        for calibration in (first, other, wide.calibration(200, 9)):
            again = test.refit_on(calibration)
            made = lhpd(calibration, log_q(right), Smooth(), 19, FEW, seed=3)
            np.testing.assert_array_equal(again(X_O).null_curves, made(X_O).null_curves)
            np.testing.assert_array_equal(again(X_O).curves, made(X_O).curves)
            assert again.settings == made.settings
            assert again.calibration is calibration
        assert test(X_O).pvalue == test.refit_on(test.calibration)(X_O).pvalue

    def test_with_another_seed_and_number(self, gaussian):
        calibration = gaussian().calibration(100, 9)
        test = lhpd(calibration, log_q(gaussian()), null=19)
        other = test.with_seed(7)
        assert (other.seed, other.copies.n) == (7, 19)
        np.testing.assert_array_equal(other(X_O).curves, test(X_O).curves)
        assert not np.array_equal(other(X_O).null, test(X_O).null)
        made = lhpd(calibration, log_q(gaussian()), null=19, seed=7)
        np.testing.assert_array_equal(other.refit_on(calibration)(X_O).null, made(X_O).null)
        fewer = test.with_nulls(5)
        assert fewer.copies.n == 5
        np.testing.assert_array_equal(fewer(X_O).null_curves, test(X_O).null_curves[:5])

    def test_not_without_pairs_or_a_function(self, gaussian):
        calibration = gaussian().calibration(100, 3)
        with pytest.raises(ValueError, match="test: expected one that was made of a Calibration"):
            _ = lhpd(exact(gaussian(), 100)).calibration
        density = log_q(gaussian())
        truth = density(calibration.theta, calibration.x)
        draws = density(calibration.theta_q.flatten(0, 1), calibration.x.repeat_interleave(3, 0))
        test = lhpd(calibration, Values(truth, draws.reshape(100, 3)), null=9)
        with pytest.raises(ValueError, match="log_q: expected a function.*got values"):
            test.refit_on(calibration)


def test_local_exchange_says_what_is_near(gaussian):
    levels = exact(gaussian(width=1.3), 400)
    one = lhpd(levels, null=LocalExchange(19, 0.2))(X_O)
    two = lhpd(levels, where=Nearest((0.2,)), null=19)(X_O)
    np.testing.assert_array_equal(one.null, two.null)
    assert "nearest 20%" in one.hypothesis


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
    "a class": (lambda c: lhpd(LEVELS, None, Nearest), TypeError, "where: expected a neighb"),
    "a null": (lambda c: lhpd(LEVELS, null=Exchange(9)), TypeError, "null: expected"),
    "alpha 0": (lambda c: lhpd(LEVELS, alphas=(0, 0.5)), ValueError, "alphas: expected levels"),
    "alpha 1": (lambda c: lhpd(LEVELS, alphas=(0.5, 1.0)), ValueError, "alphas: expected levels"),
    "no alpha": (lambda c: lhpd(LEVELS, alphas=()), ValueError, "alphas: expected a non-empty"),
    "alpha nan": (lambda c: lhpd(LEVELS, alphas=(np.nan,)), ValueError, "alphas: expected lev"),
    "words": (lambda c: lhpd(LEVELS, alphas="many"), TypeError, "alphas: expected an array"),
    "no nulls": (lambda c: lhpd(LEVELS, null=0), ValueError, "null: expected at least 1"),
    "words for x": (lambda c: lhpd(LEVELS)("x_o"), TypeError, "x_o: expected an array"),
    "x_o": (lambda c: lhpd(LEVELS)(Draws(torch.zeros(3))), ValueError, "x_o: expected shape"),
}


@pytest.mark.parametrize(("call", "kind", "message"), BAD.values(), ids=BAD)
def test_bad_input(gaussian, call, kind, message):
    with pytest.raises(kind, match=message):
        call(gaussian().calibration(50, k=3))

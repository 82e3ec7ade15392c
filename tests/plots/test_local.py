"""Tests near x_o: their null, their curves, many observations, and their classifier."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba

import assay
from assay import plots
from assay.plots._style import CURVE
from tests.plots.cases import levels, local, many, quality


def points(ax):
    """Positions by label."""
    return {c.get_label(): c.get_offsets().data for c in ax.collections if len(c.get_offsets())}


@pytest.fixture(scope="module")
def two_samples():
    p, q = torch.randn(2, 300, 2, generator=torch.Generator().manual_seed(0))
    return assay.c2st(p, 1.1 * q, assay.Ridge(), assay.Exchange(199))


class TestNull:
    @pytest.mark.parametrize("rank", [-100, -21, -20, -19, -1])
    @pytest.mark.parametrize("name", ["accuracy", "mse", "auc"])
    def test_it_draws_the_null_and_the_observed_value(self, two_samples, name, rank):
        one = two_samples[name]
        one = replace(one, statistic=np.sort(one.null)[rank])
        ax = plots.null_histogram(one, alpha=0.1)
        threshold, observed = (line.get_xdata()[0] for line in ax.get_lines())
        assert observed == one.statistic
        # At level 0.1 the twentieth largest of 199.
        assert threshold == np.sort(one.null)[-20]
        assert (observed > threshold) == (one.pvalue <= 0.1)
        bars = ax.patches
        assert sum(bar.get_height() for bar in bars) == 199
        assert bars[0].get_x() == pytest.approx(one.null.min())
        assert bars[-1].get_x() + bars[-1].get_width() == pytest.approx(one.null.max())
        assert ax.get_xlabel() == name
        assert ax.get_title() == f"p = {float(one.pvalue):.3g}"

    @pytest.mark.parametrize("side", [1, -1])
    def test_an_arrow_points_to_a_value_far_beyond_the_null(self, side):
        one = local()
        low, high = one.null.min(), one.null.max()
        ax = plots.null_histogram(replace(one, statistic=np.array(high + side * 123.4)))
        (words,) = ax.texts
        assert words.get_text() == f"observed\n{high + side * 123.4:.3g}"
        assert words.arrow_patch is not None
        # The null takes at least half of the axis, and the arrow points out of it.
        left, right = ax.get_xlim()
        assert left <= low < high <= right
        assert high - low > 0.5 * (right - left)
        assert words.xy[0] == (right if side > 0 else left)
        assert side * (words.xy[0] - words.get_position()[0]) > 0
        assert ax.get_xlabel() == "statistic"

    def test_one_statistic_at_a_time(self, two_samples):
        with pytest.raises(
            ValueError, match=r"expected one statistic; got 6. Choose one .* result\[0\]"
        ):
            plots.null_histogram(two_samples)
        with pytest.raises(ValueError, match="alpha: expected a number between 0 and 1"):
            plots.null_histogram(two_samples["mse"], alpha=5)

    def test_a_null_without_spread(self):
        ax = plots.null_histogram(replace(local(), null=np.full(9, 0.25)))
        assert sum(bar.get_height() for bar in ax.patches) == 9


def beta(rng, shape, a=20):
    return rng.beta(a, a, size=shape).astype(np.float32)


def with_probabilities(data, null):
    """A result with probabilities (..., s) of data and (..., H, s) of copies."""
    parts = {"statistic": np.zeros(data.shape[:-1]), "null": np.zeros(null.shape[:-1])}
    return replace(local(), probabilities=data, null_probabilities=null, **parts)


class TestPP:
    def test_it_draws_the_curve_and_its_bands(self):
        rng = np.random.default_rng(0)
        result = with_probabilities(beta(rng, 80, a=3), beta(rng, (99, 80)))
        ax, curve = plots.pp(result), result.pp_curve()
        ideal, line = ax.get_lines()
        # Shares of draws whose probability of class 1 lies below.
        shares = [(result.probabilities < level).mean() for level in line.get_xdata()]
        np.testing.assert_allclose(line.get_ydata(), shares, atol=1e-9)
        np.testing.assert_allclose(line.get_ydata(), 1 - curve.ecdf[::-1])
        np.testing.assert_array_equal(ideal.get_xdata(), [0, 0.5, 0.5, 1])
        envelope, band = (c.get_paths()[0].vertices[:, 1] for c in ax.collections)
        assert envelope.max() == 1 - curve.envelope_lower.min()
        ends = {round(1 - v, 6) for v in [*curve.lower, *curve.upper]}
        assert {round(v, 6) for v in band} <= ends
        assert ax.get_xlabel() == "probability of class 1 (truth)"
        assert ax.get_title() == f"whole curve: p = {float(curve.pvalue):.3g}"

    def test_too_much_mass_lies_on_the_left(self):
        """Where every draw of q has a probability below 1/2, all of the curve rises before 1/2."""
        rng = np.random.default_rng(0)
        low = with_probabilities(0.1 + 0.2 * rng.uniform(size=80), beta(rng, (99, 80)))
        line = plots.pp(low).get_lines()[1]
        at = dict(zip(line.get_xdata().round(6), line.get_ydata(), strict=True))
        assert at[0.5] == 1


class TestLevels:
    def test_it_draws_a_curve_a_column_and_the_bands(self, gaussian):
        posterior = gaussian(width=1.3).latents(200)
        result = assay.lpit(posterior, null=99)(assay.Draws(torch.zeros(2)))
        ax, bands = plots.levels(result), result.bands()
        ideal, *lines = ax.get_lines()
        np.testing.assert_array_equal(ideal.get_ydata(), [0, 1])
        assert [line.get_label() for line in lines] == ["z[0]", "z[1]"]
        for line, curve in zip(lines, result.curves, strict=True):
            np.testing.assert_array_equal(line.get_xdata()[1:-1], result.alphas)
            np.testing.assert_array_equal(line.get_ydata()[1:-1], curve)
            assert line.get_ydata()[[0, -1]].tolist() == [0, 1]
        envelope, band = (c.get_paths()[0].vertices for c in ax.collections)
        middle = [v[np.isclose(v[:, 0], 0.5), 1] for v in (envelope, band)]
        at = int(np.flatnonzero(np.isclose(result.alphas, 0.5))[0])
        assert middle[0].max() == bands.envelope_upper[:, at].max()
        assert middle[1].min() == bands.lower[:, at].min()
        assert (result.null_curves <= bands.envelope_upper).mean() > 0.95

    def test_a_single_curve(self, gaussian):
        test = assay.lhpd(gaussian().calibration(100, k=9), lambda theta, x: theta[:, 0], null=19)
        assert len(plots.levels(test(torch.zeros(2))).get_lines()) == 2

    def test_one_observation_at_a_time(self, gaussian):
        x_o = assay.Draws([[0.0, 0.0], [1.0, 1.0]])
        with pytest.raises(ValueError, match="result: expected one observation; got 2"):
            plots.levels(assay.lpit(gaussian().latents(100), null=19)(x_o))

    def test_curves_have_their_names(self):
        texts = plots.levels(levels(3)).get_legend().get_texts()
        assert [text.get_text() for text in texts][-3:] == ["theta[0]", "theta[1]", "theta[2]"]


class TestSweep:
    def test_it_draws_the_statistic_and_its_band(self):
        result = many()
        values = result.x[:, 0]
        ax = plots.sweep(result, values=values, label="gain")
        edge = ax.collections[0].get_paths()[0].vertices
        mean, line = ax.get_lines()
        np.testing.assert_array_equal(line.get_ydata(), result.statistic)
        np.testing.assert_array_equal(mean.get_ydata(), result.null.mean(1))
        for value, null in zip(values, result.null, strict=True):
            ends = edge[np.isclose(edge[:, 0], value), 1]
            # The band holds what is not among the ten largest of 199.
            assert (ends.min(), ends.max()) == (0, np.sort(null)[-10])
            assert (null <= ends.max()).mean() >= 0.95
        assert ax.get_xlabel() == "gain"

    @pytest.mark.parametrize(("h", "alpha"), [(199, 0.05), (99, 0.1), (118, 0.05)])
    def test_points_above_the_band_are_rejected_and_no_others(self, h, alpha):
        result = many(60, h=h)
        ax = plots.sweep(result, values=np.arange(60), alpha=alpha)
        edge = ax.collections[0].get_paths()[0].vertices
        tops = [edge[np.isclose(edge[:, 0], i), 1].max() for i in range(60)]
        above = np.flatnonzero(result.statistic > tops).tolist()
        rejected = points(ax)[f"rejected, p ≤ {alpha:g}"]
        assert above == rejected[:, 0].tolist() == np.flatnonzero(result.pvalue <= alpha).tolist()
        assert len(points(ax)["not rejected"]) == 60 - len(rejected)

    def test_values_in_any_order(self):
        result = many()
        order = np.random.default_rng(0).permutation(20)
        mixed = replace(result, statistic=result.statistic[order], null=result.null[order])
        ours = plots.sweep(result, values=np.arange(20)).get_lines()[1].get_xydata()
        theirs = plots.sweep(mixed, values=order).get_lines()[1].get_xydata()
        np.testing.assert_array_equal(ours, theirs)

    def test_statistics_below_zero(self):
        result = many()
        low = replace(result, statistic=result.statistic - 1, null=result.null - 1)
        edge = plots.sweep(low, values=np.arange(20)).collections[0].get_paths()[0].vertices
        assert edge[:, 1].min() <= low.null.min()

    @pytest.mark.parametrize(
        ("values", "error", "words"),
        [
            ([1, 2, 3], ValueError, r"values: .* 20 observations; got shape \(3,\)"),
            (np.full(20, np.nan), ValueError, "values: .* got NaN"),
            (["a"] * 20, TypeError, "values: expected an array of real numbers"),
        ],
    )
    def test_bad_values(self, values, error, words):
        with pytest.raises(error, match=words):
            plots.sweep(many(), values=values)


class TestPvalues:
    @pytest.mark.parametrize(("o", "h"), [(2, 199), (12, 199), (200, 999)])
    def test_pvalues_and_their_line(self, o, h):
        result = many(o, h=h)
        ax = plots.pvalues(result, alpha=0.1)
        ideal, line, least = ax.get_lines()
        np.testing.assert_allclose(line.get_ydata(), 0.1 * np.arange(1, o + 1) / o)
        np.testing.assert_allclose(ideal.get_ydata(), np.arange(1, o + 1) / o)
        assert least.get_ydata()[0] == 1 / (h + 1)
        count = int((result.fdr <= 0.1).sum())
        discoveries, others = points(ax)[f"discoveries, {count}"], points(ax)["others"]
        heights = np.concatenate([discoveries, others])[:, 1]
        np.testing.assert_allclose(np.sort(heights), np.sort(result.pvalue))
        # The step-up rule itself: all up to the last on or below the line.
        last = np.flatnonzero(np.sort(result.pvalue) <= 0.1 * np.arange(1, o + 1) / o + 1e-12)
        assert count == (last[-1] + 1 if len(last) else 0)
        assert discoveries[:, 0].tolist() == list(range(1, count + 1))
        low, high = ax.get_ylim()
        assert low < result.pvalue.min() <= result.pvalue.max() < high

    def test_few_discoveries_are_numbered(self):
        result = many(12)
        numbers = {int(text.get_text()) for text in plots.pvalues(result).texts}
        assert numbers == set(np.flatnonzero(result.fdr <= 0.05).tolist())
        assert not plots.pvalues(many(200, h=999)).texts

    def test_nothing_is_discovered(self):
        ax = plots.pvalues(replace(many(12), statistic=np.zeros(12)))
        assert "discoveries, 0" not in points(ax)
        assert len(points(ax)["others"]) == 12
        (others,) = (c for c in ax.collections if c.get_label() == "others")
        np.testing.assert_allclose(others.get_edgecolors()[0], to_rgba(CURVE))


@pytest.mark.parametrize("name", ["sweep", "pvalues"])
def test_only_many_observations(name):
    def draw(result, **options):
        options |= {"values": np.arange(20)} if name == "sweep" else {}
        return getattr(plots, name)(result, **options)

    with pytest.raises(ValueError, match="result: expected many observations; got one"):
        draw(local())
    with pytest.raises(ValueError, match="alpha: expected a number between 0 and 1"):
        draw(many(), alpha=5)
    with pytest.raises(TypeError, match="result: expected that of a local test"):
        draw(None)


class TestQuality:
    def test_reliability(self):
        result = quality()
        ax = plots.reliability(result)
        predicted, observed, lower, upper = result.reliability()
        (bars,) = ax.containers
        line, _, (intervals,) = bars.lines
        np.testing.assert_array_equal(line.get_xdata(), predicted)
        np.testing.assert_array_equal(line.get_ydata(), observed)
        ends = np.array(intervals.get_segments())[:, :, 1]
        np.testing.assert_allclose(ends, np.stack([lower, upper], 1))
        diagonal = ax.get_lines()[0]
        np.testing.assert_array_equal(diagonal.get_xdata(), diagonal.get_ydata())
        low, high = ax.get_xlim()
        assert low <= min(lower.min(), 0.5) < max(upper.max(), 0.5) <= high
        assert ax.get_xlabel() == "probability of class 1 (truth)"
        assert ax.get_title() == f"AUC {result.auc:.2f}"

    def test_roc(self):
        result = quality()
        diagonal, curve = plots.roc(result).get_lines()
        draws, true = curve.get_data()
        assert (np.diff(draws) >= 0).all()
        assert (np.diff(true) >= 0).all()
        # Nothing lies above the highest threshold, and everything above the lowest.
        assert max(draws[0], true[0]) < 0.01
        assert (draws[-1], true[-1]) == (1, 1)
        np.testing.assert_array_equal(diagonal.get_ydata(), [0, 1])
        # The area under it is the chance that a true parameter scores above a draw.
        assert np.trapezoid([0, *true], [0, *draws]) == pytest.approx(result.auc, abs=0.01)
        assert f"AUC {result.auc:.2f}" in curve.get_label()

    def test_a_classifier_that_knows_nothing(self):
        half = replace(quality(), truths=np.full(500, 0.5), draws=np.full(500, 0.5))
        assert plots.reliability(half).get_title() == "AUC 0.50"
        assert "AUC 0.50" in plots.roc(half).get_lines()[1].get_label()

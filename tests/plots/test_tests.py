"""Tests over all x and near x_o: what is drawn are the numbers of the results, on their sides."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

import assay
from assay import plots
from tests.plots.cases import calibration, covered, levels, local, many, quality, sbc, tarp


def ends(collection):
    """The ends of a band."""
    return {round(float(v), 6) for v in collection.get_paths()[0].vertices[:, 1]}


def rounded(*arrays):
    return {round(float(v), 6) for v in np.concatenate(arrays)}


def points(ax):
    """Positions by label."""
    return {c.get_label(): c.get_offsets().data for c in ax.collections if len(c.get_offsets())}


@pytest.mark.parametrize("make", [covered, tarp, lambda: covered(8)])
def test_coverage_less_the_level_with_intervals_and_the_band(make):
    result = make()
    ax, curve = plots.coverage(result), result.curve()
    lines = [tuple(line.get_ydata()) for line in ax.get_lines() if len(line.get_xdata()) > 2]
    assert sorted(lines) == sorted(map(tuple, curve.coverage - curve.levels))
    band, *intervals = map(ends, ax.collections)
    assert band <= rounded(curve.null_lower - curve.levels, curve.null_upper - curve.levels)
    both = zip(curve.lower - curve.levels, curve.upper - curve.levels, strict=True)
    each = [rounded(*one) for one in both]
    assert len(intervals) == min(3, len(each))
    assert all(any(one <= own for own in each) for one in intervals)
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert f"95 % interval, {'farthest curves' if len(each) > 3 else 'each level'}" in legend


def test_ranks_and_their_bands():
    result = sbc()
    ax, bins, curve = (
        plots.rank_histogram(result, quantity="theta[1]"),
        result.histogram(),
        result.ecdf(),
    )
    band, stairs = (patch.get_data() for patch in ax.patches)
    np.testing.assert_allclose(stairs.values, bins.counts[1] / bins.expected)
    np.testing.assert_allclose(band.values, bins.upper / bins.expected)
    np.testing.assert_allclose(band.baseline, bins.lower / bins.expected)
    with pytest.raises(ValueError, match="quantity: expected one of theta"):
        plots.rank_histogram(result, quantity="phi")
    for plot, values, lower, upper in (
        (plots.rank_ecdf, curve.ecdf, curve.lower, curve.upper),
        (plots.rank_difference, curve.difference, curve.difference_lower, curve.difference_upper),
    ):
        ax = plot(result)
        np.testing.assert_array_equal([line.get_ydata() for line in ax.get_lines()[1:]], values)
        assert ends(ax.collections[0]) <= rounded(lower, upper)


class TestCalibrations:
    def test_recovery_is_how_means_and_true_values_agree(self):
        pairs = calibration()
        some = np.unique(np.linspace(0, 599, 300).astype(int))
        for j, ax in enumerate(plots.recovery(pairs)):
            true, mean = pairs.theta[:, j].numpy(), pairs.theta_q[:, :, j].mean(1).numpy()
            r, error = map(float, re.findall(r"-?\d+\.\d+", ax.get_title().split("\n")[1]))
            assert r == pytest.approx(np.corrcoef(true, mean)[0, 1], abs=0.006)
            assert error == pytest.approx(np.sqrt(np.mean((true - mean) ** 2)), rel=0.06)
            intervals, means = ax.collections
            places = np.asarray(means.get_offsets())
            np.testing.assert_allclose(places, np.stack([true, mean], 1)[some])
            low, high = np.array(intervals.get_segments())[:, :, 1].T
            assert ((low <= places[:, 1]) & (places[:, 1] <= high)).all()

    def test_contraction_is_that_of_the_variances(self):
        pairs = calibration(2)
        left, right = plots.contraction(pairs)
        theta, theta_q = pairs.theta[:, 1].numpy(), pairs.theta_q[:, :, 1].numpy()
        contracted = 1 - theta_q.var(1, ddof=1) / theta.var(ddof=1)
        z = (theta - theta_q.mean(1)) / theta_q.std(1, ddof=1)
        low, far = right.get_xlim()[0], right.get_ylim()[1]
        expected = np.stack([np.clip(contracted, low, None), np.clip(z, -far, far)], 1)
        some = np.unique(np.linspace(0, 599, 300).astype(int))
        np.testing.assert_allclose(right.collections[0].get_offsets(), expected[some])
        # The first parameter is the one that is known better.
        medians = [float(ax.get_title().split()[-1]) for ax in (left, right)]
        assert medians[1] == pytest.approx(np.median(contracted), abs=0.006)
        assert medians[0] > medians[1]

    @pytest.mark.parametrize("draw", [plots.recovery, plots.contraction])
    def test_what_never_varies_and_what_is_refused(self, draw, gaussian):
        pairs = calibration(2)
        pairs.theta[:, 1], pairs.theta_q[:, :, 1] = 1.0, 1.0
        for ax in draw(pairs):
            ax.figure.canvas.draw()
        with pytest.raises(ValueError, match="ax: expected 3 axes"):
            draw(calibration(), ax=[ax, ax])
        with pytest.raises(ValueError, match="names: expected 3 different names"):
            draw(calibration(), names=("a",))
        with pytest.raises(ValueError, match="calibration: expected draws theta_q"):
            draw(gaussian().latents(50))
        with pytest.raises(ValueError, match="theta_q: expected at least 3 draws .* got 1"):
            plots.contraction(gaussian().calibration(50))


class TestNull:
    @pytest.mark.parametrize("rank", [-100, -21, -20, -19, -1])
    def test_the_observed_value_is_beyond_the_line_where_it_is_rejected(self, rank):
        one = many(2)[1]
        one = replace(one, statistic=np.sort(one.null)[rank])
        ax = plots.null_histogram(one, alpha=0.1)
        threshold, observed = (line.get_xdata()[0] for line in ax.get_lines())
        # At level 0.1 the twentieth largest of 199.
        assert (threshold, observed) == (np.sort(one.null)[-20], one.statistic)
        assert (observed > threshold) == (one.pvalue <= 0.1)
        assert sum(bar.get_height() for bar in ax.patches) == 199

    @pytest.mark.parametrize("side", [1, -1])
    def test_an_arrow_points_to_a_value_far_beyond_the_null(self, side):
        low, high = local().null.min(), local().null.max()
        ax = plots.null_histogram(replace(local(), statistic=np.array(high + side * 123.4)))
        (words,), (left, right) = ax.texts, ax.get_xlim()
        assert words.get_text() == f"observed\n{high + side * 123.4:.3g}"
        # The null takes at least half of the axis, and the arrow points out of it.
        assert left <= low < high <= right
        assert high - low > 0.5 * (right - left)
        assert words.xy[0] == (right if side > 0 else left)
        assert side * (words.xy[0] - words.get_position()[0]) > 0

    def test_names_and_what_is_refused(self):
        p, q = torch.randn(2, 300, 2, generator=torch.Generator().manual_seed(0))
        result = assay.c2st(p, 1.1 * q, assay.Ridge(), assay.Exchange(19))
        assert plots.null_histogram(result["mse"]).get_xlabel() == "mse"
        with pytest.raises(ValueError, match=r"expected one statistic; got 6. .* result\[0\]"):
            plots.null_histogram(result)
        with pytest.raises(ValueError, match="alpha: expected a number between 0 and 1"):
            plots.null_histogram(result["mse"], alpha=5)


def test_the_pp_curve_is_that_of_class_1_and_levels_have_the_widest_bands():
    result, curve = local(), local().pp_curve()
    ax = plots.pp(result)
    line = ax.get_lines()[1]
    # Shares of draws whose probability of class 1 lies below.
    shares = [(result.probabilities < level).mean() for level in line.get_xdata()]
    np.testing.assert_allclose(line.get_ydata(), shares, atol=1e-9)
    assert ends(ax.collections[1]) <= rounded(1 - curve.lower, 1 - curve.upper)
    # Where every draw of q has a probability below 1/2, all of the curve rises before 1/2.
    low = replace(result, probabilities=0.4 * result.probabilities)
    line = plots.pp(low).get_lines()[1]
    assert line.get_ydata()[line.get_xdata().round(6) == 0.5] == 1
    ax, bands = plots.levels(levels()), levels().bands()
    for line, curve in zip(ax.get_lines()[1:], levels().curves, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), [0, *curve, 1])
    assert ends(ax.collections[1]) <= rounded(bands.lower.min(0), bands.upper.max(0), [0, 1])


@pytest.mark.parametrize(("h", "alpha"), [(199, 0.05), (99, 0.1), (118, 0.05)])
def test_points_above_the_band_of_a_sweep_are_rejected_and_no_others(h, alpha):
    result, order = many(60, h=h), np.random.default_rng(0).permutation(60)
    # In any order, and below zero, too.
    mixed = replace(result, statistic=result.statistic[order] - 1, null=result.null[order] - 1)
    ax = plots.sweep(mixed, values=order, alpha=alpha)
    mean, line = ax.get_lines()
    np.testing.assert_allclose(line.get_ydata(), result.statistic - 1)
    np.testing.assert_allclose(mean.get_ydata(), result.null.mean(1) - 1)
    edge = ax.collections[0].get_paths()[0].vertices
    assert edge[:, 1].min() <= mixed.null.min()
    tops = [edge[np.isclose(edge[:, 0], i), 1].max() for i in range(60)]
    above = np.flatnonzero(result.statistic - 1 > tops).tolist()
    rejected = points(ax)[f"rejected, p ≤ {alpha:g}"][:, 0].tolist()
    assert above == rejected == np.flatnonzero(result.pvalue <= alpha).tolist()


@pytest.mark.parametrize(("o", "h"), [(2, 199), (12, 199), (200, 999)])
def test_pvalues_and_the_step_up_rule(o, h):
    result = many(o, h=h)
    ax = plots.pvalues(result, alpha=0.1)
    ideal, line, least = (line.get_ydata() for line in ax.get_lines())
    np.testing.assert_allclose(line, 0.1 * np.arange(1, o + 1) / o)
    np.testing.assert_allclose(ideal, np.arange(1, o + 1) / o)
    assert least[0] == 1 / (h + 1)
    # All up to the last on or below the line.
    last = np.flatnonzero(np.sort(result.pvalue) <= 0.1 * np.arange(1, o + 1) / o + 1e-12)
    count = last[-1] + 1 if len(last) else 0
    heights = np.concatenate([points(ax)[f"discoveries, {count}"], points(ax)["others"]])[:, 1]
    np.testing.assert_allclose(heights, np.sort(result.pvalue))
    numbers = {int(text.get_text()) for text in ax.texts}
    assert numbers == (set(np.argsort(result.pvalue)[:count]) if o < 200 else set())
    nothing = plots.pvalues(replace(result, statistic=np.zeros(o)))
    assert list(points(nothing)) == ["others"]


@pytest.mark.parametrize(
    ("result", "options", "error", "words"),
    [
        (local(), {}, ValueError, "result: expected many observations; got one"),
        (None, {}, TypeError, "result: expected that of a local test"),
        (many(), {"alpha": 5}, ValueError, "alpha: expected a number between 0 and 1"),
        (many(), {"values": [1]}, ValueError, r"values: .* 20 observations; got shape \(1,\)"),
        (many(), {"values": [np.nan] * 20}, ValueError, "values: .* got NaN"),
        (many(), {"values": ["a"] * 20}, TypeError, "values: expected an array of real numbers"),
    ],
)
def test_what_many_observations_ask_for(result, options, error, words):
    with pytest.raises(error, match=words):
        plots.sweep(result, **{"values": np.arange(20)} | options)
    if "values" not in options:
        with pytest.raises(error, match=words):
            plots.pvalues(result, **options)


def test_reliability_and_roc():
    result, half = quality(), replace(quality(), truths=np.full(500, 0.5), draws=np.full(500, 0.5))
    predicted, observed, lower, upper = result.reliability()
    line, _, (intervals,) = plots.reliability(result).containers[0].lines
    np.testing.assert_array_equal(line.get_xydata(), np.stack([predicted, observed], 1))
    bars = np.array(intervals.get_segments())[:, :, 1]
    np.testing.assert_allclose(bars, np.stack([lower, upper], 1))
    draws, true = plots.roc(result).get_lines()[1].get_data()
    # Nothing lies above the highest threshold, and everything above the lowest.
    assert max(draws[0], true[0]) < 0.01
    assert (draws[-1], true[-1]) == (1, 1)
    # The area under it is the chance that a true parameter scores above a draw.
    assert np.trapezoid([0, *true], [0, *draws]) == pytest.approx(result.auc, abs=0.01)
    assert plots.reliability(half).get_title() == "AUC 0.50"
    assert "AUC 0.50" in plots.roc(half).get_lines()[1].get_label()

"""Tests over all x and near x_o: what is drawn are the numbers of the results, on their sides."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from matplotlib.patches import StepPatch

import assay
from assay import plots
from tests.plots.cases import CASES, axes_of, calibration, draw, local, many, quality

SOME = np.unique(np.linspace(0, 599, 300).astype(int))


def covered(result):
    """Curves (j, g) of coverage, and ends of their band and of intervals of two of them."""
    curve = result.curve()
    ends = [curve.null_lower, curve.null_upper, *curve.lower[:2], *curve.upper[:2]]
    return curve.ecdf - curve.levels, ends - curve.levels


def less_diagonal(curve):
    return curve.ecdf - curve.levels, [curve.null_lower - curve.levels]


def bins_of(bins):
    return [
        bins.counts[0] / bins.expected,
        *np.divide([bins.lower, bins.upper], bins.expected),
    ], []


def pairs_of(calibration):
    """True values, mean of q and its standard deviation, (n, m) each, and its 90 % interval."""
    theta, theta_q = calibration.theta.numpy(), calibration.theta_q.numpy()
    return theta, theta_q.mean(1), theta_q.std(1, ddof=1), np.quantile(theta_q, [0.05, 0.95], 1)


# Heights of lines, bars and points, and of edges, that the picture of a result must have.
HEIGHTS = {
    "coverage": covered,
    "coverage_tarp": covered,
    "rank_ecdf": lambda r: (r.ecdf().ecdf, [r.ecdf().null_lower, r.ecdf().null_upper]),
    "rank_difference": lambda r: less_diagonal(r.ecdf()),
    "rank_histogram": lambda r: bins_of(r.histogram()),
    "recovery": lambda c: (pairs_of(c)[1][SOME].T, pairs_of(c)[3][0, SOME].T),
    "levels": lambda r: ([[0, *c, 1] for c in r.curves], [r.bands().lower.min(0)]),
    "sweep": lambda r: ([r.statistic, r.null.mean(1)], [np.sort(r.null)[:, -10]]),
    "pvalues_of_12": lambda r: ([0.05 * np.arange(1, 13) / 12, np.full(2, 1 / 200)], []),
    "reliability": lambda r: ([r.reliability()[1]], r.reliability()[2:]),
}


@pytest.mark.parametrize("case", HEIGHTS)
def test_what_is_drawn_are_the_numbers_of_the_result(case):
    result = CASES[case][0]()
    heights, edges = HEIGHTS[case](result)
    found, ends = [], [[]]
    for ax in axes_of(draw(case, result)):
        steps = [patch.get_data() for patch in ax.patches if isinstance(patch, StepPatch)]
        found += [step.values for step in steps] + [np.ravel(step.baseline) for step in steps]
        found += [line.get_ydata() for line in ax.lines]
        found += [np.asarray(part.get_offsets())[:, 1] for part in ax.collections]
        ends += [path.vertices[:, 1] for part in ax.collections for path in part.get_paths()]
    for one in heights:
        assert any(len(one) == len(own) and np.allclose(one, own) for own in found)
    assert all(np.isclose(value, np.concatenate(ends)).any() for value in np.ravel(edges))


def test_titles_of_calibrations_are_what_they_say():
    theta, mean, deviation, _ = pairs_of(calibration())
    for j, ax in enumerate(plots.recovery(calibration())):
        r, error = map(float, re.findall(r"-?\d+\.\d+", ax.get_title().split("\n")[1]))
        assert r == pytest.approx(np.corrcoef(theta[:, j], mean[:, j])[0, 1], abs=0.006)
        assert error == pytest.approx(np.sqrt(np.mean((theta - mean)[:, j] ** 2)), rel=0.06)
    contracted, z = 1 - deviation**2 / theta.var(0, ddof=1), (theta - mean) / deviation
    for j, ax in enumerate(plots.contraction(calibration())):
        median = float(ax.get_title().split()[-1])
        assert median == pytest.approx(np.median(contracted[:, j]), abs=0.006)
        low, far = ax.get_xlim()[0], ax.get_ylim()[1]
        places = np.stack([contracted[:, j].clip(low, None), z[:, j].clip(-far, far)], 1)
        np.testing.assert_allclose(ax.collections[0].get_offsets(), places[SOME])


@pytest.mark.parametrize("plot", [plots.recovery, plots.contraction])
def test_calibrations_without_variation_and_those_that_are_refused(plot, gaussian):
    pairs = calibration(2)
    pairs.theta[:, 1], pairs.theta_q[:, :, 1] = 1.0, 1.0
    for ax in plot(pairs):
        ax.figure.canvas.draw()
    with pytest.raises(ValueError, match="ax: expected 3 axes"):
        plot(calibration(), ax=[ax, ax])
    with pytest.raises(ValueError, match="names: expected 3 different names"):
        plot(calibration(), names=("a",))
    with pytest.raises(ValueError, match="calibration: expected draws theta_q"):
        plot(gaussian().latents(50))
    with pytest.raises(ValueError, match="theta_q: expected at least 3 draws .* got 1"):
        plots.contraction(gaussian().calibration(50))


@pytest.mark.parametrize("rank", [-100, -21, -20, -19, -1])
def test_the_observed_value_is_beyond_the_line_where_it_is_rejected(rank):
    one = many(2)[1]
    one = replace(one, statistic=np.sort(one.null)[rank])
    ax = plots.null_histogram(one, alpha=0.1)
    threshold, observed = (line.get_xdata()[0] for line in ax.get_lines())
    # At level 0.1 the twentieth largest of 199.
    assert (threshold, observed) == (np.sort(one.null)[-20], one.statistic)
    assert (observed > threshold) == (one.pvalue <= 0.1)
    assert sum(bar.get_height() for bar in ax.patches) == 199


@pytest.mark.parametrize("side", [1, -1])
def test_an_arrow_points_out_of_the_axes_to_a_value_far_beyond_the_null(side):
    ax = plots.null_histogram(replace(local(), statistic=np.array(side * 123.4)))
    (words,), (left, right) = ax.texts, ax.get_xlim()
    assert words.get_text() == f"observed\n{side * 123:.3g}"
    assert np.ptp(local().null) > 0.5 * (right - left)
    assert words.xy[0] == (right if side > 0 else left)
    assert side * (words.xy[0] - words.get_position()[0]) > 0


def test_one_statistic_and_one_quantity_at_a_time():
    p, q = torch.randn(2, 300, 2, generator=torch.Generator().manual_seed(0))
    result = assay.c2st(p, 1.1 * q, assay.Ridge(), assay.Exchange(19))
    assert plots.null_histogram(result["mse"]).get_xlabel() == "mse"
    with pytest.raises(ValueError, match=r"expected one statistic; got 6. .* result\[0\]"):
        plots.null_histogram(result)
    with pytest.raises(ValueError, match="alpha: expected a number between 0 and 1"):
        plots.null_histogram(result["mse"], alpha=5)
    with pytest.raises(ValueError, match="quantity: expected one of theta"):
        draw("rank_histogram", quantity="phi")


def test_the_pp_curve_is_that_of_class_1():
    result = local()
    line = plots.pp(result).get_lines()[1]
    # Shares of draws whose probability of class 1 lies below.
    shares = [(result.probabilities < level).mean() for level in line.get_xdata()]
    np.testing.assert_allclose(line.get_ydata(), shares, atol=1e-9)
    # Where every draw of q has a probability below 1/2, all of the curve rises before 1/2.
    low = replace(result, probabilities=0.4 * result.probabilities)
    line = plots.pp(low).get_lines()[1]
    assert line.get_ydata()[line.get_xdata().round(6) == 0.5] == 1


@pytest.mark.parametrize(("h", "alpha"), [(199, 0.05), (99, 0.1), (118, 0.05)])
def test_points_above_the_band_of_a_sweep_are_rejected_and_no_others(h, alpha):
    result, order = many(60, h=h), np.random.default_rng(0).permutation(60)
    # In any order, and below zero, too.
    mixed = replace(result, statistic=result.statistic[order] - 1, null=result.null[order] - 1)
    ax = plots.sweep(mixed, values=order, alpha=alpha)
    edge = ax.collections[0].get_paths()[0].vertices
    assert edge[:, 1].min() <= mixed.null.min()
    tops = [edge[np.isclose(edge[:, 0], i), 1].max() for i in range(60)]
    above = np.flatnonzero(result.statistic - 1 > tops).tolist()
    rejected = ax.collections[1].get_offsets()[:, 0].tolist()
    assert above == rejected == np.flatnonzero(result.pvalue <= alpha).tolist()


@pytest.mark.parametrize(("o", "h"), [(2, 199), (12, 199), (200, 999)])
def test_discoveries_are_those_of_the_step_up_rule(o, h):
    result = many(o, h=h)
    ax, line = plots.pvalues(result, alpha=0.1), 0.1 * np.arange(1, o + 1) / o
    # All up to the last on or below the line.
    last = np.flatnonzero(np.sort(result.pvalue) <= line + 1e-12)
    count = last[-1] + 1 if len(last) else 0
    discoveries, others = (np.asarray(part.get_offsets()) for part in ax.collections)
    assert len(discoveries) == count
    heights = np.concatenate([discoveries, others])[:, 1]
    np.testing.assert_allclose(heights, np.sort(result.pvalue))
    numbers = {int(text.get_text()) for text in ax.texts}
    assert numbers == (set(np.argsort(result.pvalue)[:count]) if o < 200 else set())


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


def test_the_area_under_the_roc_curve_is_the_auc():
    result = quality()
    draws, true = plots.roc(result).get_lines()[1].get_data()
    assert (draws[-1], true[-1]) == (1, 1)
    assert np.trapezoid([0, *true], [0, *draws]) == pytest.approx(result.auc, abs=0.01)
    nothing = replace(result, truths=np.full(500, 0.5), draws=np.full(500, 0.5))
    assert plots.reliability(nothing).get_title() == "AUC 0.50"

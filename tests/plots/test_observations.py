from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_rgba

from assay import plots
from assay.plots._canvas import CURVE
from tests.plots.cases import local, many


def points(ax):
    """Positions by label."""
    return {c.get_label(): c.get_offsets().data for c in ax.collections if len(c.get_offsets())}


def test_a_sweep_and_its_band():
    result = many()
    values = result.x[:, 0]
    ax = plots.sweep(result, values=values, label="gain")
    band, *_ = ax.collections
    edge = band.get_paths()[0].vertices
    mean, line = ax.get_lines()
    np.testing.assert_array_equal(line.get_ydata(), result.statistic)
    np.testing.assert_array_equal(mean.get_ydata(), result.null.mean(1))
    for value, null in zip(values, result.null, strict=True):
        ends = edge[np.isclose(edge[:, 0], value), 1]
        assert ends.min() == 0
        # The band holds what is not among the ten largest of 199.
        assert ends.max() == np.sort(null)[-10]
        assert (null <= ends.max()).mean() >= 0.95
    assert ax.get_xlabel() == "gain"


@pytest.mark.parametrize(("h", "alpha"), [(199, 0.05), (99, 0.1), (118, 0.05)])
def test_points_above_the_band_are_rejected_and_no_others(h, alpha):
    result = many(60, h=h)
    ax = plots.sweep(result, values=np.arange(60), alpha=alpha)
    edge = ax.collections[0].get_paths()[0].vertices
    drawn_points = points(ax)
    above = [
        i
        for i, statistic in enumerate(result.statistic)
        if statistic > edge[np.isclose(edge[:, 0], i), 1].max()
    ]
    rejected = drawn_points[f"rejected, p ≤ {alpha:g}"]
    assert above == rejected[:, 0].tolist() == np.flatnonzero(result.pvalue <= alpha).tolist()
    assert len(drawn_points["not rejected"]) == 60 - len(rejected)


def test_a_sweep_in_any_order():
    result = many()
    order = np.random.default_rng(0).permutation(20)
    mixed = replace(result, statistic=result.statistic[order], null=result.null[order])
    ours = plots.sweep(result, values=np.arange(20)).get_lines()[1].get_xydata()
    theirs = plots.sweep(mixed, values=order).get_lines()[1].get_xydata()
    np.testing.assert_array_equal(ours, theirs)


def test_statistics_below_zero():
    result = many()
    low = replace(result, statistic=result.statistic - 1, null=result.null - 1)
    ax = plots.sweep(low, values=np.arange(20))
    edge = ax.collections[0].get_paths()[0].vertices
    assert edge[:, 1].min() <= low.null.min()


@pytest.mark.parametrize(("o", "h"), [(2, 199), (12, 199), (200, 999)])
def test_pvalues_and_their_line(o, h):
    result = many(o, h=h)
    ax = plots.pvalues(result, alpha=0.1)
    ideal, line, least = ax.get_lines()
    np.testing.assert_allclose(line.get_ydata(), 0.1 * np.arange(1, o + 1) / o)
    np.testing.assert_allclose(ideal.get_ydata(), np.arange(1, o + 1) / o)
    assert least.get_ydata()[0] == 1 / (h + 1)
    drawn_points = points(ax)
    count = int((result.fdr <= 0.1).sum())
    drawn = np.concatenate([drawn_points[f"discoveries, {count}"], drawn_points["others"]])
    np.testing.assert_allclose(np.sort(drawn[:, 1]), np.sort(result.pvalue))
    # The step-up rule itself: all up to the last on or below the line.
    last = np.flatnonzero(np.sort(result.pvalue) <= 0.1 * np.arange(1, o + 1) / o + 1e-12)
    assert count == (last[-1] + 1 if len(last) else 0)
    assert drawn_points[f"discoveries, {count}"][:, 0].tolist() == list(range(1, count + 1))
    low, high = ax.get_ylim()
    assert low < result.pvalue.min() <= result.pvalue.max() < high


def test_few_discoveries_are_numbered():
    result = many(12)
    numbers = {int(text.get_text()) for text in plots.pvalues(result).texts}
    assert numbers == set(np.flatnonzero(result.fdr <= 0.05).tolist())
    assert not plots.pvalues(many(200, h=999)).texts


def test_nothing_is_discovered():
    ax = plots.pvalues(replace(many(12), statistic=np.zeros(12)))
    assert "discoveries, 0" not in points(ax)
    assert len(points(ax)["others"]) == 12
    (others,) = (c for c in ax.collections if c.get_label() == "others")
    np.testing.assert_allclose(others.get_edgecolors()[0], to_rgba(CURVE))


def test_it_draws_where_it_is_told():
    _, (a, b) = plt.subplots(2)
    assert plots.sweep(many(), a, values=np.arange(20)) is a
    assert plots.pvalues(many(), b) is b
    assert plots.sweep(many(), values=np.arange(20)).figure.get_figwidth() == 3.4
    assert plots.pvalues(many()).figure.get_figwidth() == 3.4


def test_bad_input():
    with pytest.raises(ValueError, match=r"values: .* 20 observations; got shape \(3,\)"):
        plots.sweep(many(), values=[1, 2, 3])
    with pytest.raises(ValueError, match="values: .* got NaN"):
        plots.sweep(many(), values=np.full(20, np.nan))
    with pytest.raises(TypeError, match="values: expected an array of real numbers"):
        plots.sweep(many(), values=["a"] * 20)
    for draw in (lambda r, **k: plots.sweep(r, values=np.arange(20), **k), plots.pvalues):
        with pytest.raises(ValueError, match="result: expected many observations; got one"):
            draw(local())
        with pytest.raises(ValueError, match="alpha: expected a number between 0 and 1"):
            draw(many(), alpha=5)
        with pytest.raises(TypeError, match="result: expected that of a local test"):
            draw(None)

"""How far off q can be, where x_o lies among simulations, and the figure of a whole check."""

from dataclasses import replace

import numpy as np
import pytest
from matplotlib.colors import to_rgba

from assay import plots
from assay.plots._style import CURVE, GREEN, INK
from tests.plots.cases import ALL, bounds, check, draw, drawn_figure, interval, surroundings


def with_widths(widths, **options):
    whole = bounds(len(widths), **options)
    width = np.exp(interval(np.log([widths]), 0.02))
    return replace(whole, table={**whole.table, "width": width})


class TestForest:
    def test_numbers_and_intervals_are_coloured_where_they_are_wrong(self):
        found = bounds(sizes=(0.0, 1.0))
        pair = plots.forest(found, which=1)
        for ax, kind, right in zip(pair, ("bias", "width"), (0, 1), strict=True):
            lines, points = ax.collections
            value, *ends = found.table[kind][1]
            np.testing.assert_allclose(points.get_offsets()[:, 0], value)
            np.testing.assert_allclose(np.array(lines.get_segments())[:, :, 0].T, ends)
            colours = [CURVE if one else INK for one in (ends[0] > right) | (ends[1] < right)]
            np.testing.assert_allclose(points.get_facecolors(), list(map(to_rgba, colours)))
        # Twice as wide and half as wide are equally far from right.
        assert np.prod(pair[1].get_xlim()) == pytest.approx(1)
        titles = [plots.forest(found, which=i)[0].get_title("left") for i in (0, 1)]
        assert titles == ["95 % for all rows together", "● wrong; 95 % for all rows together"]
        for tolerance, expected in ((0.25, [-0.25, 0.25, 0.8, 1.25]), (None, [])):
            lines = [line for ax in plots.forest(found, tolerance=tolerance) for line in ax.lines]
            dotted = [line.get_xdata()[0] for line in lines if line.get_linestyle() == ":"]
            assert dotted == expected

    @pytest.mark.parametrize("ratio", [1.05, 1.3, 1.8, 2.2, 3.0, 5.0, 8.0, 12.0, 30.0, 1e4])
    def test_widths_have_plain_numbers_at_any_range(self, ratio):
        _, ax = plots.forest(with_widths([ratio, np.nan, 1.0]))
        drawn_figure(ax)
        ticks, (low, high) = [text.get_text() for text in ax.get_xticklabels()], ax.get_xlim()
        assert 3 <= len(ticks) <= 5
        assert "1" in ticks
        assert low <= float(ticks[0]) < float(ticks[-1]) <= high
        boxes = [text.get_window_extent() for text in ax.get_xticklabels()]
        assert all(a.x1 + 2 < b.x0 for a, b in zip(boxes, boxes[1:], strict=False))
        # Even the largest is drawn, at the edge, and what is unknown is not.
        points = ax.collections[1].get_offsets()
        assert points[0, 0] == pytest.approx(min(ratio, high))
        assert np.ma.getmaskarray(points)[:, 0].tolist() == [False, True, False]

    def test_of_many_parameters_the_worst_and_what_is_refused(self):
        widths = np.where(np.arange(60) == 3, np.e, 1.0)
        bias, _ = plots.forest(with_widths(widths, sizes=(0.0,)))
        # The one that is wrong, and those with the widest intervals.
        names = ["theta[3]", *(f"theta[{j}]" for j in range(21, 60))]
        assert [text.get_text() for text in bias.get_yticklabels()] == names
        with pytest.raises(IndexError, match="expected one of 1 rows; got 3"):
            plots.forest(bounds(), which=3)
        with pytest.raises(ValueError, match="result: expected bounds near x_o"):
            plots.near(replace(bounds(), near_truths=None))
        with pytest.raises(ValueError, match="two or more parameters; got 1"):
            plots.correlations(bounds(1))


def test_true_parameters_over_draws_of_q_with_what_lies_beyond():
    true, draws = np.array([[[-9.0], [np.nan]]]), np.array([[[0.1], [9.0]]])
    (panel,) = plots.near(replace(bounds(1), near_truths=true, near_draws=draws))
    q, outline = (patch.get_data().values for patch in panel.patches)
    assert (outline[0], q[-1], q[len(q) // 2]) == (1, 0.5, 0.5)
    assert (outline.sum(), q.sum()) == (1, 1)


def test_correlations_and_frames_of_wrong_ones():
    whole, ax = bounds(), plots.correlations(bounds())
    table = ax.images[0].get_array()
    assert (table[0, 0], table[1, 1]) == (whole.correlation[0, 1, 0], whole.correlation[0, 2, 1])
    assert np.ma.getmaskarray(table)[0, 1]
    assert len(ax.patches) == 2
    assert plots.correlations(bounds(60)).images[0].get_array().shape == (23, 23)


def test_every_verdict_at_its_place_and_where_q_was_tested():
    found = check(ALL)
    ax, around = plots.surroundings(found), found.surroundings
    near, p = around.near.any(0), around.pvalue
    for part, some in zip(ax.collections, (~near, near, p <= 0.05, p > 0.05), strict=False):
        np.testing.assert_allclose(part.get_offsets(), around.x[some])
    styles = {c.get_label(): c for c in ax.collections}
    for i, word in enumerate(ALL):
        np.testing.assert_allclose(styles[word].get_offsets(), found.test.x[i : i + 1])
    for word, colour in (("passed", GREEN), ("rejected", CURVE)):
        np.testing.assert_allclose(styles[word].get_facecolors()[0], to_rgba(colour))
    assert len({len(styles[word].get_paths()[0].vertices) for word in ALL}) == 4
    with pytest.raises(ValueError, match="check: expected simulated observations"):
        plots.surroundings(replace(found, surroundings=None))


def test_many_entries_of_x_are_projected_and_one_is_a_place_on_a_line():
    found, around = check(), surroundings(2, 6)
    x = around.x @ np.random.default_rng(0).normal(size=(6, 6))
    test, around = replace(found.test, x=x[:2]), replace(around, x=x)
    ax = plots.surroundings(replace(found, surroundings=around, test=test))
    places = np.concatenate([ax.collections[i].get_offsets() for i in (0, 1, 4)])
    variance = np.linalg.eigvalsh(np.corrcoef(np.concatenate([x, x[:2]]).T))[::-1]
    np.testing.assert_allclose(places.var(0), variance[:2])
    ax = draw("surroundings_of_1")
    # Simulations are spread upwards, where no number is meant.
    assert np.ptp(ax.collections[0].get_offsets()[:, 1]) > 0.9
    assert not ax.collections[4].get_offsets()[:, 1].any()


def test_a_summary_has_the_panels_and_numbers_of_the_observation():
    found, bias = check(ALL), "mean of q − true, in sd"
    for i, which in enumerate((0, "x_o[1]", 2)):
        figure = found.plot(which)
        panels = {ax.get_xlabel().split("\n")[0]: ax for ax in figure.axes}
        assert figure.get_suptitle() == f"x_o[{i}]: {found.verdicts[i]}"
        assert list(panels)[-2:] == ["statistic", "probability of class 1 (truth)"]
        points = panels[bias].collections[1].get_offsets()
        np.testing.assert_array_equal(points[:, 0], found.bounds.bias[i])
        assert panels["statistic"].get_title() == f"p = {found.test.pvalue[i]:.3g}"
    assert [ax.get_xlabel() for ax in found.plot(3).axes] == ["x[0]"]
    assert draw("summary_without").axes[-1].get_xlabel() == "x[0]"
    with pytest.raises(KeyError, match="expected one of"):
        plots.summary(found, "elsewhere")

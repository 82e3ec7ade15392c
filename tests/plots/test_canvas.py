"""Axes, curves and legends."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from assay import plots
from assay.plots import _canvas as canvas
from assay.plots._style import BAND
from tests.plots.cases import covered, levels, local, many, sbc


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_new_axes_have_the_width_of_a_column():
    ax = canvas.axes(None, 2.0)
    assert ax.figure.get_size_inches().tolist() == [3.4, 2.0]
    assert canvas.axes(None, 2.0, lines=3).figure.get_figheight() > 2.4
    assert canvas.axes(ax, 9.0) is ax


def test_many_curves_name_the_farthest():
    grid = np.linspace(0, 1, 5)
    lines = np.outer(np.arange(20), np.ones(5)) / 100
    ax = canvas.axes(None, 2.0)
    canvas.curves(ax, grid, lines, [f"theta[{j}]" for j in range(20)], np.zeros(5))
    named = [line for line in ax.get_lines() if line.get_label().startswith("theta")]
    assert [line.get_label() for line in named] == [f"theta[{j}]" for j in range(16, 20)]
    assert len({line.get_color() for line in named}) == 4
    grey = [line for line in ax.get_lines() if line not in named]
    assert len(grey) == 16
    assert {line.get_color() for line in grey} == {BAND}
    assert grey[0].get_label() == "16 nearer to the ideal"


@pytest.mark.parametrize("plot", [plots.rank_ecdf, plots.rank_difference])
def test_many_quantities_leave_room_for_their_curves(plot):
    ax = plot(sbc(14))
    ax.figure.canvas.draw()
    box = ax.get_window_extent()
    assert box.height > 0.45 * ax.figure.bbox.height
    above = ax.get_legend().get_window_extent()
    assert above.y0 >= box.y1
    assert above.y1 <= ax.figure.bbox.y1


@pytest.mark.parametrize("draw", [lambda: plots.coverage(covered(2)), lambda: plots.pp(local())])
def test_legends_fit_into_the_column(draw):
    ax = draw()
    ax.figure.canvas.draw()
    above = ax.get_legend().get_window_extent()
    assert 0 <= above.x0 < above.x1 <= ax.figure.bbox.x1


def test_intervals_of_the_farthest_curves_alone():
    ax = plots.coverage(covered(8))
    assert len(ax.collections) == 1 + 3
    assert "95 % interval, farthest curves" in labels(ax)
    assert "95 % interval, each level" in labels(plots.coverage(covered(3)))


TITLED = [
    lambda: plots.coverage(covered(8)),
    lambda: plots.pp(local()),
    lambda: plots.levels(levels()),
    lambda: plots.null_histogram(local()),
    lambda: plots.rank_histogram(sbc()),
    lambda: plots.rank_ecdf(sbc(14)),
    lambda: plots.rank_difference(sbc(14)),
    lambda: plots.pvalues(many(12)),
    lambda: plots.sweep(many(12), values=np.arange(12)),
]


@pytest.mark.parametrize("draw", TITLED)
def test_titles_say_p_above_the_legend_and_inside_the_figure(draw):
    ax = draw()
    ax.figure.canvas.draw()
    assert "p = " in ax.get_title()
    title, above = ax.title.get_window_extent(), ax.get_legend().get_window_extent()
    assert above.y1 <= title.y0 + 1
    assert title.y1 <= ax.figure.bbox.y1
    assert 0 <= title.x0 < title.x1 <= ax.figure.bbox.x1


def test_as_many_axes_as_panels():
    _, axes = plt.subplots(2, 2)
    assert list(canvas.panels(axes, 4, 2.0, 2)) == list(axes.flat)
    with pytest.raises(ValueError, match="ax: expected 2 axes, one for each panel; got 4"):
        canvas.panels(axes, 2, 2.0, 2)
    assert len(canvas.panels(None, 5, 2.0, 3)) == 5


def test_what_a_user_prefers_does_not_break_it():
    with plt.style.context("ggplot"):
        plots.pp(local()).figure.canvas.draw()

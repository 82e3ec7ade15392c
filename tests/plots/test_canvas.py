import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.cbook import is_math_text

from assay import plots
from assay.plots import _canvas as canvas
from tests.plots.cases import covered, effects, levels, local, sbc


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_new_axes_have_the_width_of_a_column():
    ax = canvas.axes(None, 2.0)
    assert ax.figure.get_size_inches().tolist() == [3.4, 2.0]
    assert canvas.axes(None, 2.0, lines=3).figure.get_figheight() > 2.4
    assert canvas.axes(ax, 9.0) is ax


def test_the_threshold_is_what_a_rejected_statistic_exceeds():
    rng = np.random.default_rng(0)
    for h, alpha in ((99, 0.05), (199, 0.05), (118, 0.05), (57, 0.2)):
        null = rng.normal(size=(300, h))
        statistic = rng.normal(1, size=300)
        p = (1 + (null >= statistic[:, None]).sum(1)) / (1 + h)
        assert ((statistic > canvas.threshold(null, alpha)) == (p <= alpha)).all()
    assert canvas.threshold(np.arange(9.0), 0.05) == 8


@pytest.mark.parametrize("name", ["theta_1", "$\\alpha$", "_hidden", "100 %", "a$b"])
def test_names_are_shown_as_written(name):
    ax = canvas.axes(None, 2.0)
    (line,) = ax.plot([0, 1], label=canvas.plain(name))
    canvas.legend(ax)
    ax.figure.canvas.draw()
    assert not is_math_text(line.get_label())
    assert [label.strip().replace("\\$", "$") for label in labels(ax)] == [name]


def test_many_curves_name_the_farthest():
    grid = np.linspace(0, 1, 5)
    lines = np.outer(np.arange(20), np.ones(5)) / 100
    ax = canvas.axes(None, 2.0)
    canvas.curves(ax, grid, lines, [f"theta[{j}]" for j in range(20)], np.zeros(5))
    named = [line for line in ax.get_lines() if line.get_label().startswith("theta")]
    assert [line.get_label() for line in named] == [f"theta[{j}]" for j in range(8, 20)]
    assert len({(line.get_color(), line.get_linestyle()) for line in named}) == 12
    grey = [line for line in ax.get_lines() if line not in named]
    assert len(grey) == 8
    assert grey[0].get_label() == "8 nearer to the ideal"


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


def test_curves_of_levels_have_their_names():
    ax = plots.levels(levels(3))
    assert labels(ax)[-3:] == ["theta[0]", "theta[1]", "theta[2]"]


def test_effects_have_their_names():
    ax = plots.effects(effects(2))
    names = [text.get_text() for text in ax.get_yticklabels()]
    assert names == ["theta[0] bias", "theta[1] bias", "theta[0] width", "theta[1] width"]


def test_what_a_user_prefers_does_not_break_it():
    with plt.style.context("ggplot"):
        plots.pp(local()).figure.canvas.draw()

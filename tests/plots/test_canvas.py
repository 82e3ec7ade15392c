"""What pictures have in common: axes, curves and legends, names as text, and numbers."""

import subprocess
import sys
from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.cbook import is_math_text

from assay import plots
from assay.plots import _canvas as canvas
from assay.plots._numbers import bin_count, components, critical_value
from assay.plots._style import BAND, display_name
from tests.plots.cases import bounds, calibration, covered, drawn_figure, local, sbc


def test_axes_of_a_column_and_as_many_as_panels():
    ax = canvas.axes(None, 2.0)
    assert ax.figure.get_size_inches().tolist() == [3.4, 2.0]
    assert canvas.axes(None, 2.0, lines=3).figure.get_figheight() > 2.4
    assert canvas.axes(ax, 9.0) is ax
    _, four = plt.subplots(2, 2)
    assert list(canvas.panels(four, 4, 2.0, 2)) == list(four.flat)
    with pytest.raises(ValueError, match="ax: expected 2 axes, one for each panel; got 4"):
        canvas.panels(four, 2, 2.0, 2)
    assert len(canvas.panels(None, 5, 2.0, 3)) == 5
    with plt.style.context("ggplot"):
        drawn_figure(plots.pp(local()))


def test_of_many_curves_the_farthest_are_named():
    lines, names = np.outer(np.arange(20), np.ones(5)) / 100, [f"theta[{j}]" for j in range(20)]
    ax = canvas.axes(None, 2.0)
    canvas.curves(ax, np.linspace(0, 1, 5), lines, names, np.zeros(5))
    named = [line for line in ax.get_lines() if line.get_label().startswith("theta")]
    assert [line.get_label() for line in named] == names[16:]
    assert len({line.get_color() for line in named}) == 4
    grey = [line for line in ax.get_lines() if line not in named]
    assert {line.get_color() for line in grey} == {BAND}
    assert grey[0].get_label() == "16 nearer to the ideal"
    one, several = (
        canvas.smallest_pvalue(np.array(p), "ab"[: len(p)]) for p in ([0.3], [0.3, 0.02])
    )
    assert (one, several) == ("p = 0.3", "smallest corrected p = 0.02 (b)")


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plots.rank_ecdf(sbc(14)),
        lambda: plots.coverage(covered(8)),
        lambda: plots.pp(local()),
    ],
)
def test_legends_and_titles_leave_room_and_do_not_overlap(draw):
    ax = draw()
    figure, box = drawn_figure(ax), ax.get_window_extent()
    above, title = ax.get_legend().get_window_extent(), ax.title.get_window_extent()
    assert box.height > 0.45 * figure.bbox.height
    assert box.y1 <= above.y0 < above.y1 <= title.y0 + 1 < title.y1 <= figure.bbox.y1 + 1
    assert 0 <= above.x0 < above.x1 <= figure.bbox.x1


@pytest.mark.parametrize("name", ["theta_1", "$\\nonsense$", "$a", "_hidden", "100 %", "a$b"])
def test_names_are_as_written(name):
    (line,) = plt.plot([0, 1], label=display_name(name))
    (text,) = plt.legend().get_texts()
    plt.gcf().canvas.draw()
    assert not is_math_text(line.get_label())
    assert text.get_text().strip().replace("\\$", "$") == name


def test_latex_is_typeset_and_long_names_are_cut():
    for name in ("$\\theta_1$", "$g_{Na}$ conductance"):
        assert is_math_text(display_name(name))
        assert display_name(name) == name
    assert display_name("a" * 30, 10) == "a" * 9 + "…"
    assert display_name("$\\alpha_{1}$", 4) == "$\\alpha_{1}$"
    # Mathematics that does not fit is left out as a whole.
    assert display_name("rate $\\alpha_{1}$ of something", 10) == "rate…"


@pytest.mark.parametrize("name", ["$\\nonsense$", "$\\frac{1}$", "$x", "$$", "$_^$", "a" * 80])
def test_no_name_breaks_a_picture(name):
    drawn_figure(plots.coverage(replace(covered(1), names=(name,))))
    drawn_figure(plots.rank_histogram(replace(sbc(1), names=(name,))))
    drawn_figure(plots.forest(bounds(1, names=(name,))))
    drawn_figure(plots.pairs(local(2), names=(name, "b")))
    drawn_figure(plots.recovery(calibration(1), names=(name,)))


def test_components_have_the_largest_variances_in_any_units():
    x = np.random.default_rng(0).normal(size=(30, 4)) @ np.diag([3, 1, 1, 1])
    x[:, 1] += x[:, 0]
    np.testing.assert_allclose(components(x), components(5 * x - 2))
    variances = np.linalg.eigvalsh(np.corrcoef(x.T))[::-1]
    np.testing.assert_allclose(components(x).var(0), variances[:2])
    np.testing.assert_allclose(np.corrcoef(components(x).T)[0, 1], 0, atol=1e-12)


def test_a_null_without_spread_is_one_bar():
    assert [bin_count(null) for null in (np.zeros(99), np.arange(4.0), np.arange(1e4))] == [
        1,
        5,
        30,
    ]


def test_the_threshold_is_what_a_rejected_statistic_exceeds():
    rng = np.random.default_rng(0)
    for h, alpha in ((99, 0.05), (199, 0.05), (118, 0.05), (57, 0.2)):
        null, statistic = rng.normal(size=(300, h)), rng.normal(1, size=300)
        p = (1 + (null >= statistic[:, None]).sum(1)) / (1 + h)
        assert ((statistic > critical_value(null, alpha)) == (p <= alpha)).all()
    assert critical_value(np.arange(9.0), 0.05) == 8


def test_reports_do_without_matplotlib():
    code = "import sys, assay.report, assay.plots; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

"""What pictures have in common: axes, curves and legends, names as text, and numbers."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.cbook import is_math_text

from assay import plots
from assay.plots import _canvas as canvas
from assay.plots._numbers import bin_count, components, critical_value
from assay.plots._style import display_name
from tests.plots.cases import covered, drawn_figure, local, sbc


def test_of_many_curves_the_farthest_are_named():
    lines, names = np.outer(np.arange(20), np.ones(5)) / 100, [f"theta[{j}]" for j in range(20)]
    ax = canvas.axes(None, 2.0)
    canvas.curves(ax, np.linspace(0, 1, 5), lines, names, np.zeros(5))
    own = [line for line in ax.get_lines() if line.get_label() in names]
    assert [line.get_label() for line in own] == names[16:]
    assert len({line.get_color() for line in own}) == 4
    assert ax.get_lines()[0].get_label() == "16 nearer to the ideal"
    several = canvas.smallest_pvalue(np.array([0.3, 0.02]), "ab")
    assert several == "smallest corrected p = 0.02 (b)"
    assert len(canvas.panels(None, 5, 2.0, 3)) == 5


BAD = ["$\\nonsense$", "$\\frac{1}$", "$x", "$$", "$_^$", "a$b", "_hidden", "100 %", "theta_1"]


@pytest.mark.parametrize("name", BAD)
def test_names_are_as_written_and_break_no_picture(name):
    for plot, result in ((plots.coverage, covered(1)), (plots.rank_histogram, sbc(1))):
        ax = plot(replace(result, names=(name,)))
        drawn_figure(ax)
        text = ax.get_legend().get_texts()[-1].get_text()
        assert not is_math_text(text)
        assert text.strip().replace("\\$", "$") == name
    drawn_figure(plots.pairs(local(2), names=(name, "b")))


def test_latex_is_typeset_and_long_names_are_cut():
    assert is_math_text(display_name("$g_{Na}$ conductance"))
    assert display_name("a" * 30, 10) == "a" * 9 + "…"
    assert display_name("$\\alpha_{1}$", 4) == "$\\alpha_{1}$"
    # Mathematics that does not fit is left out as a whole.
    assert display_name("rate $\\alpha_{1}$ of something", 10) == "rate…"


def test_components_have_the_largest_variances_in_any_units():
    x = np.random.default_rng(0).normal(size=(30, 4)) @ np.diag([3, 1, 1, 1])
    x[:, 1] += x[:, 0]
    np.testing.assert_allclose(components(x), components(5 * x - 2))
    variances = np.diag(np.linalg.eigvalsh(np.corrcoef(x.T))[:1:-1])
    np.testing.assert_allclose(np.cov(components(x).T, bias=True), variances, atol=1e-12)


def test_bars_of_a_null_and_what_a_rejected_statistic_exceeds():
    assert [bin_count(v) for v in (np.zeros(99), np.arange(4.0), np.arange(1e4))] == [1, 5, 30]
    rng = np.random.default_rng(0)
    for h, alpha in ((99, 0.05), (199, 0.05), (118, 0.05), (57, 0.2)):
        null, statistic = rng.normal(size=(300, h)), rng.normal(1, size=300)
        p = (1 + (null >= statistic[:, None]).sum(1)) / (1 + h)
        assert ((statistic > critical_value(null, alpha)) == (p <= alpha)).all()
    assert critical_value(np.arange(9.0), 0.05) == 8


def test_reports_do_without_matplotlib():
    code = "import sys, assay.report, assay.plots; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)

"""Names as text, mathematics or plain."""

from dataclasses import replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.cbook import is_math_text

from assay import plots
from assay.plots._style import display_name, smallest_pvalue
from tests.plots.cases import bounds, calibration, covered, local, sbc


@pytest.mark.parametrize("name", ["theta_1", "$\\nonsense$", "$a", "_hidden", "100 %", "a$b"])
def test_names_are_as_written(name):
    (line,) = plt.plot([0, 1], label=display_name(name))
    (text,) = plt.legend().get_texts()
    plt.gcf().canvas.draw()
    assert not is_math_text(line.get_label())
    assert text.get_text().strip().replace("\\$", "$") == name


@pytest.mark.parametrize("name", ["$\\theta_1$", "$g_{Na}$ conductance"])
def test_latex_is_typeset(name):
    plt.plot([0, 1], label=display_name(name))
    plt.legend()
    plt.gcf().canvas.draw()
    assert is_math_text(display_name(name))
    assert display_name(name) == name


def test_long_names_are_cut():
    assert display_name("a" * 30, 10) == "a" * 9 + "…"
    assert display_name("$\\alpha_{1}$", 4) == "$\\alpha_{1}$"
    # Mathematics that does not fit is left out as a whole.
    assert display_name("rate $\\alpha_{1}$ of something", 10) == "rate…"


BAD = ("$\\nonsense$", "$\\frac{1}$", "$x", "$\\theta_1$", "$$", "$_^$", "a" * 80)


@pytest.mark.parametrize("name", BAD)
def test_no_name_breaks_a_picture(name):
    pictures = [
        plots.coverage(replace(covered(1), names=(name,))),
        plots.rank_histogram(replace(sbc(1), names=(name,))),
        plots.forest(bounds(1, names=(name,)))[0],
        plots.pairs(local(2), names=(name, "b"))[0, 0],
        plots.recovery(calibration(1), names=(name,))[0],
    ]
    for ax in pictures:
        ax.figure.canvas.draw()


def test_the_smallest_p_is_that_of_its_curve():
    assert smallest_pvalue(np.array([0.3, 0.02]), ("a", "b")) == "smallest corrected p = 0.02 (b)"
    assert smallest_pvalue(np.array([0.3]), ("a",)) == "p = 0.3"

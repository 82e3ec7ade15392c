"""What holds for every public plot: its stored picture, arguments, axes, words, p and names."""

import inspect
import re
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.testing.compare import compare_images
from PIL import Image

from assay import plots
from tests.browser import unavailable
from tests.plots.cases import BASELINES, CASES, axes_of, draw, drawn_figure, repeated

# The root mean square difference of colours from 0 to 255. It is zero for the same version of
# matplotlib, and at least 0.7 where a line, band, bar or word of any of the cases is missing.
TOLERANCE = 0.5
LONG = tuple(f"{name} with a name that never ends and goes on and on" for name in "abc")
LATEX = (r"$\theta_1$", r"$g_{Na}$", r"$\log \alpha$")
OPTIONS = {"alpha", "label", "marks", "names", "quantity", "tolerance", "values", "which"}
# A case of every plot but the summary, and the number of its axes, where there is more than one.
EVERY = {name: name for name in plots.__all__ if name != "summary"}
EVERY |= {"pairs": "pairs_of_3", "pvalues": "pvalues_of_12"}
PANELS = {"forest": 2, "near": 3, "recovery": 3, "contraction": 5}
# Plots of results with names, those whose names are given, and those of tests.
NAMED = "coverage rank_difference rank_ecdf rank_histogram levels correlations forest near".split()
GIVEN = ["pairs", "recovery"]
TESTS = ["null_histogram", "pp", "predictive", "pvalues", "sweep", "pairs", *NAMED[:5]]


def named(name, names):
    """What a plot returns where parameters have these names."""
    result = CASES[EVERY[name]][0]()
    if name in NAMED:
        result = replace(result, names=names[: len(result.names)])
    return draw(EVERY[name], result, **({"names": names} if name in GIVEN else {}))


class TestPictures:
    @pytest.mark.parametrize("case", CASES)
    def test_a_picture_is_the_one_stored(self, case, tmp_path):
        stored = re.search(r"\d+\.\d+", Image.open(BASELINES / f"{case}.png").text["Software"])[0]
        if not f"{mpl.__version__}.".startswith(f"{stored}."):
            unavailable(f"stored pictures were made by matplotlib {stored}: see constraints.txt")
        drawn_figure(draw(case), tmp_path / "own.png")
        images = BASELINES / f"{case}.png", tmp_path / "own.png"
        assert compare_images(*images, TOLERANCE) is None

    def test_every_plot_has_a_picture(self):
        for name in plots.__all__:
            assert any(f"{case}_".startswith(f"{name}_") for case in CASES)
        assert {path.stem for path in BASELINES.glob("*.png")} == set(CASES)
        assert max(path.stat().st_size for path in BASELINES.glob("*.png")) < 45_000


def test_names_and_arguments():
    assert not {path.stem for path in Path(plots.__file__).parent.glob("*.py")} & set(EVERY)
    assert dir(plots) == sorted(plots.__all__)
    with pytest.raises(AttributeError, match="no attribute 'pie'"):
        _ = plots.pie
    assert list(inspect.signature(plots.summary).parameters) == ["check", "which"]
    for name in EVERY:
        first, second, *others = inspect.signature(getattr(plots, name)).parameters.values()
        assert first.name in {"result", "calibration", "check"}
        assert (second.name, second.default) == ("ax", None)
        assert {option.name for option in others} <= OPTIONS


@pytest.mark.parametrize("name", EVERY)
class TestEveryPlot:
    def test_it_draws_in_the_axes_given_and_returns_them(self, name):
        figure, given = plt.subplots(1, PANELS.get(name, 1), squeeze=False)
        returned = axes_of(draw(EVERY[name], ax=given[0] if name in PANELS else given[0, 0]))
        assert returned == given[0].tolist() or name == "pairs"  # whose panels fill the axes
        assert {one.figure for one in returned} == {figure}
        assert plt.get_fignums() == [figure.number]
        with pytest.raises((TypeError, ValueError), match="ax: expected "):
            draw(EVERY[name], ax=[figure])

    def test_words_say_what_axes_are_and_stay_inside_a_column_or_two(self, name):
        returned = axes_of(named(name, LONG))
        figure = drawn_figure(returned)
        assert figure.get_figwidth() == (7.0 if PANELS.get(name, 1) > 2 else 3.4)
        axes = figure.findobj(plt.Axes)
        ticks = {text for ax in axes for text in [*ax.get_xticklabels(), *ax.get_yticklabels()]}
        texts = {text for text in figure.findobj(plt.Text) if text.get_visible()}
        for text in (text for text in texts - ticks if text.get_text()):
            box = text.get_window_extent()
            assert -1 <= box.x0 < box.x1 <= figure.bbox.x1 + 1, text.get_text()
            assert -1 <= box.y0 < box.y1 <= figure.bbox.y1 + 1, text.get_text()
        assert any("p = " in text.get_text() for text in texts) == (name in TESTS)
        # Panels in a row share the axis of the first, and a histogram of pairs needs none.
        for ax in returned if name not in ("forest", "pairs") else ():
            assert ax.get_xlabel() or any(t.get_text() for t in ax.get_xticklabels())
            assert ax.get_ylabel() or any(t.get_text() for t in ax.get_yticklabels())


@pytest.mark.parametrize("name", [*NAMED, *GIVEN])
def test_latex_is_typeset_and_long_names_take_no_room(name):
    texts = [text.get_text() for text in drawn_figure(named(name, LATEX)).findobj(plt.Text)]
    assert any(r"$\theta_1$" in text for text in texts)
    assert not any(r"\$" in text for text in texts)
    usual, long = (named(name, names) for names in (("a", "b", "c"), LONG))
    drawn_figure(usual), drawn_figure(long)
    for one, other in zip(axes_of(usual), axes_of(long), strict=True):
        sizes = [np.array(ax.get_window_extent().size) for ax in (one, other)]
        assert (sizes[1] > 0.6 * sizes[0]).all()


@pytest.mark.parametrize("name", ["null_histogram", "pp", "pairs", "predictive", "levels"])
def test_one_of_many_observations_or_quantities(name):
    assert draw("rank_ecdf", CASES["rank_ecdf"][0]()["theta[1]"]).get_title().startswith("p = ")
    result = CASES[EVERY[name]][0]()
    arrays = {key for key, value in vars(result).items() if isinstance(value, np.ndarray)}
    two = repeated(result, arrays - set(result.shared), 2)
    assert axes_of(draw(EVERY[name], two["1"]))
    with pytest.raises(ValueError, match="result: expected one"):
        draw(EVERY[name], two)

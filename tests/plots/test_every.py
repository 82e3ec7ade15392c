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
from tests.plots.cases import BASELINES, CASES, axes_of, draw, drawn_figure, repeated, save

# The root mean square difference of colours from 0 to 255. It is zero for the same version of
# matplotlib, and at least 0.7 where a line, band, bar or word of any of the cases is missing.
TOLERANCE = 0.5
LONG = tuple(f"{name} with a name that never ends and goes on and on" for name in "abc")
LATEX = (r"$\theta_1$", r"$g_{Na}$", r"$\log \alpha$")
OPTIONS = {"alpha", "label", "marks", "names", "quantity", "tolerance", "values", "which"}
# A case of every plot but the summary, and the number of its axes, where there is more than one.
EVERY = {name: name for name in plots.__all__ if name != "summary"}
EVERY |= {"pairs": "pairs_of_3", "pvalues": "pvalues_of_12", "recovery": "recovery"}
PANELS = {"forest": 2, "near": 3, "recovery": 3, "contraction": 5}
# Those whose names are given, and those of results with names.
GIVEN = ("pairs", "recovery")
NAMED = "coverage rank_difference rank_ecdf rank_histogram levels correlations forest near".split()
TESTS = "null_histogram pp predictive pvalues sweep".split() + NAMED[:5]


def named(name, names, **options):
    """What a plot returns where parameters have these names."""
    case = EVERY[name]
    if name in GIVEN:
        return draw(case, names=names, **options)
    result = CASES[case][0]()
    if name in NAMED:
        result = replace(result, names=names[: len(result.names)])
    return draw(case, result, **options)


class TestPictures:
    @pytest.mark.parametrize("case", CASES)
    def test_a_picture_is_the_one_stored(self, case, tmp_path):
        software = Image.open(BASELINES / f"{case}.png").text["Software"]
        stored, own = (re.search(r"(\d+\.\d+)", text)[1] for text in (software, mpl.__version__))
        if stored != own:
            unavailable(f"stored pictures were made by matplotlib {stored}: see constraints.txt")
        save(draw(case), tmp_path / "own.png")
        images = BASELINES / f"{case}.png", tmp_path / "own.png"
        assert compare_images(*images, TOLERANCE) is None

    def test_every_plot_has_a_picture(self):
        for name in plots.__all__:
            assert any(f"{case}_".startswith(f"{name}_") for case in CASES)
        assert {path.stem for path in BASELINES.glob("*.png")} == set(CASES)
        assert max(path.stat().st_size for path in BASELINES.glob("*.png")) < 45_000

    @pytest.mark.parametrize("case", ["pp", "sweep", "levels", "null_histogram"])
    def test_what_is_missing_or_wrong_is_found(self, case, tmp_path):
        def hide(kind, i):
            return lambda ax: getattr(ax, kind)[i].set_visible(False)

        (ax,) = axes_of(draw(case))
        parts = [("lines", i) for i in range(len(ax.lines))]
        parts += [("collections", i) for i in range(len(ax.collections))]
        changes = [hide(*part) for part in parts] + [lambda ax: ax.set_xlabel("q")]
        assert len(changes) >= 3
        for change in changes:
            # Drawn anew, since the layout moves when a figure is saved twice.
            ax = draw(case)
            change(ax)
            save(ax, tmp_path / "own.png")
            images = BASELINES / f"{case}.png", tmp_path / "own.png"
            assert "RMS" in compare_images(*images, TOLERANCE)


def test_names_and_arguments():
    modules = {path.stem for path in Path(plots.__file__).parent.glob("*.py")}
    assert not modules & set(plots.__all__)
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
        open_before = plt.get_fignums()
        ax = given[0] if name in PANELS else given[0, 0]
        returned = axes_of(draw(EVERY[name], ax=ax))
        if name != "pairs":  # whose panels fill the axes
            assert returned == given[0].tolist()
        assert {one.figure for one in returned} == {figure}
        assert plt.get_fignums() == open_before
        with pytest.raises((TypeError, ValueError), match="ax: expected "):
            draw(EVERY[name], ax=[figure])

    def test_new_axes_have_the_width_of_a_column_or_two_and_say_what_they_are(self, name):
        returned = axes_of(draw(EVERY[name]))
        width = drawn_figure(returned).get_figwidth()
        assert width == (7.0 if PANELS.get(name, 1) > 2 else 3.4)
        for ax in returned:
            across = ax.get_xlabel() or any(t.get_text() for t in ax.get_xticklabels())
            up = ax.get_ylabel() or any(t.get_text() for t in ax.get_yticklabels())
            # Panels in a row share the axis of the first, and a histogram of pairs needs none.
            assert (across and up) or name in ("forest", "pairs")
            labels = ax.get_xlabel() + ax.get_ylabel()
            assert labels or name in ("pairs", "correlations")

    def test_words_stay_inside_the_figure(self, name):
        figure = drawn_figure(named(name, LONG))
        axes = figure.findobj(plt.Axes)
        ticks = {text for ax in axes for text in [*ax.get_xticklabels(), *ax.get_yticklabels()]}
        texts = [text for text in figure.findobj(plt.Text) if text.get_visible()]
        for text in set(texts) - ticks:
            box = text.get_window_extent()
            assert not text.get_text() or -1 <= box.x0 < box.x1 <= figure.bbox.x1 + 1
            assert not text.get_text() or -1 <= box.y0 < box.y1 <= figure.bbox.y1 + 1
        assert ("p = " in "".join(text.get_text() for text in texts)) == (
            name in (*TESTS, "pairs")
        )


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
def test_one_of_many_observations(name):
    result = CASES[EVERY[name]][0]()
    arrays = [k for k, v in vars(result).items() if isinstance(v, np.ndarray)]
    two = repeated(result, set(arrays) - set(result.shared), 2)
    for which in (1, "1"):
        assert axes_of(draw(EVERY[name], two[which]))
    with pytest.raises(ValueError, match="result: expected one"):
        draw(EVERY[name], two)


@pytest.mark.parametrize("name", ["rank_histogram", "rank_ecdf", "rank_difference", "coverage"])
def test_one_of_many_quantities(name):
    result = CASES[name][0]()
    one, own = draw(name, result), draw(name, result["theta[1]"])
    assert len(axes_of(own)[0].get_lines()) <= len(axes_of(one)[0].get_lines())
    assert axes_of(own)[0].get_title().split("p = ")[0] in ("", "chi-square: ")

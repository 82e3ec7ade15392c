"""What holds for every public plot: arguments, axes, which results it takes, units, p, names."""

import inspect
from dataclasses import replace
from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest

from assay import plots
from tests.plots.cases import (
    bounds,
    calibration,
    check,
    covered,
    levels,
    local,
    many,
    predicted,
    quality,
    repeated,
    sbc,
)

LONG = tuple(f"{name} with a name that never ends and goes on and on" for name in "abc")
LATEX = (r"$\theta_1$", r"$g_{Na}$", r"$\log \alpha$")
SWEPT = {"values": np.arange(12)}
OPTIONS = {"alpha", "label", "marks", "names", "quantity", "tolerance", "values", "which"}


def named(make, names):
    return replace(make(len(names)), names=names)


# The result of a plot whose parameters have names, what else it is given, and its panels.
NAMED = {
    "coverage": (partial(named, covered), {}, 1),
    "rank_difference": (partial(named, sbc), {}, 1),
    "rank_ecdf": (partial(named, sbc), {}, 1),
    "rank_histogram": (partial(named, sbc), {}, 1),
    "levels": (partial(named, levels), {}, 1),
    "correlations": (bounds, {}, 1),
    "forest": (bounds, {}, 2),
    "near": (bounds, {}, 3),
}
# The same of plots that are given names, or need none.
GIVEN = {
    "contraction": (calibration, {}, 3),
    "recovery": (calibration, {}, 3),
    "pairs": (partial(local, 3), {}, 1),
}
OTHERS = {
    "reliability": (quality, {}, 1),
    "roc": (quality, {}, 1),
    "surroundings": (check, {}, 1),
    "null_histogram": (local, {}, 1),
    "pp": (local, {}, 1),
    "predictive": (predicted, {}, 1),
    "pvalues": (partial(many, 12), {}, 1),
    "sweep": (partial(many, 12), SWEPT, 1),
}
EVERY = [name for name in plots.__all__ if name != "summary"]
TESTS = "coverage rank_difference rank_ecdf rank_histogram levels null_histogram pp predictive"
TESTS += " pvalues sweep"


def draw(name, names=LATEX, ax=None):
    """The axes that a plot returns."""
    if name in NAMED:
        make, how, _ = NAMED[name]
        return getattr(plots, name)(make(names=names), ax, **how)
    make, how, _ = (GIVEN | OTHERS)[name]
    how = how | {"names": names} if name in GIVEN else how
    return getattr(plots, name)(make(), ax, **how)


def texts_of(figure):
    figure.canvas.draw()
    texts = [text for text in figure.findobj(plt.Text) if text.get_visible()]
    return [text for text in texts if text.get_text()]


def axes_of(returned):
    return [ax for ax in np.ravel(np.array(returned, dtype=object)) if ax is not None]


@pytest.mark.parametrize("name", EVERY)
def test_a_result_then_axes_then_options(name):
    first, second, *others = inspect.signature(getattr(plots, name)).parameters.values()
    assert first.name in {"result", "calibration", "check"}
    assert (second.name, second.default) == ("ax", None)
    assert {option.name for option in others} <= OPTIONS


def test_a_summary_takes_a_check_and_an_observation():
    assert list(inspect.signature(plots.summary).parameters) == ["check", "which"]


def test_no_module_has_the_name_of_a_plot():
    modules = {path.stem for path in Path(plots.__file__).parent.glob("*.py")}
    assert not modules & set(plots.__all__)
    assert dir(plots) == sorted(plots.__all__)


def test_an_unknown_plot():
    with pytest.raises(AttributeError, match="no attribute 'pie'"):
        _ = plots.pie


def test_all_are_here():
    assert set(NAMED) | set(GIVEN) | set(OTHERS) == set(EVERY)


@pytest.mark.parametrize("name", EVERY)
def test_it_draws_in_the_axes_given_and_returns_them(name):
    count = (NAMED | GIVEN | OTHERS)[name][2]
    figure, given = plt.subplots(1, count, squeeze=False)
    open_before = plt.get_fignums()
    ax = given[0] if count > 1 else given[0, 0]
    returned = axes_of(draw(name, ax=ax))
    if name != "pairs":  # whose panels fill the axes
        assert returned == given[0].tolist()
    assert {one.figure for one in returned} == {figure}
    assert plt.get_fignums() == open_before


@pytest.mark.parametrize("name", EVERY)
def test_new_axes_have_the_width_of_one_column_or_two(name):
    panels = (NAMED | GIVEN | OTHERS)[name][2]
    assert axes_of(draw(name))[0].figure.get_figwidth() == (7.0 if panels > 2 else 3.4)


@pytest.mark.parametrize("name", EVERY)
def test_both_axes_say_what_they_are(name):
    returned = draw(name)
    axes_of(returned)[0].figure.canvas.draw()
    for ax in axes_of(returned):
        across = ax.get_xlabel() or any(t.get_text() for t in ax.get_xticklabels())
        up = ax.get_ylabel() or any(t.get_text() for t in ax.get_yticklabels())
        # Panels in a row share the axis of the first, and a histogram of pairs needs none.
        alone = name not in ("forest", "pairs")
        assert (across and up) or not alone
    labels = [ax.get_xlabel() + ax.get_ylabel() for ax in axes_of(returned)]
    assert all(labels) or name in ("pairs", "correlations")


@pytest.mark.parametrize("name", TESTS.split())
def test_titles_say_p(name):
    texts = texts_of(axes_of(draw(name))[0].figure)
    assert any("p = " in text.get_text() for text in texts)


@pytest.mark.parametrize("name", [*NAMED, *GIVEN])
def test_latex_is_typeset_and_long_names_take_no_room(name):
    texts = texts_of(axes_of(draw(name))[0].figure)
    typeset = [text for text in texts if r"$\theta_1$" in text.get_text()]
    assert typeset
    assert not any(r"\$" in text.get_text() for text in texts)
    usual, long = (draw(name, names) for names in (("a", "b", "c"), LONG))
    for returned in (usual, long):
        axes_of(returned)[0].figure.canvas.draw()
    for one, other in zip(axes_of(usual), axes_of(long), strict=True):
        sizes = [np.array(ax.get_window_extent().size) for ax in (one, other)]
        assert (sizes[1] > 0.6 * sizes[0]).all()


@pytest.mark.parametrize("name", EVERY)
def test_words_stay_inside_the_figure(name):
    figure = axes_of(draw(name, LONG))[0].figure
    ticks = {text for ax in figure.axes for text in [*ax.get_xticklabels(), *ax.get_yticklabels()]}
    for text in set(texts_of(figure)) - ticks:
        box = text.get_window_extent()
        assert -1 <= box.x0 < box.x1 <= figure.bbox.x1 + 1, text.get_text()
        assert -1 <= box.y0 < box.y1 <= figure.bbox.y1 + 1, text.get_text()


def two(one, *arrays):
    return repeated(one, ("statistic", "null", "x", *arrays), 2)


MANY = {
    "null_histogram": two(local(), "probabilities", "null_probabilities", "draws", "theta"),
    "pp": two(local(), "probabilities", "null_probabilities", "draws", "theta"),
    "pairs": two(local(3), "probabilities", "null_probabilities", "draws", "theta"),
    "predictive": two(predicted(), "theta"),
}


@pytest.mark.parametrize("name", MANY)
def test_one_of_many_observations(name):
    plot = getattr(plots, name)
    for which in (1, "1"):
        assert axes_of(plot(MANY[name][which]))
    with pytest.raises(ValueError, match="result: expected one"):
        plot(MANY[name])


@pytest.mark.parametrize("name", ["rank_histogram", "rank_ecdf", "rank_difference", "coverage"])
def test_one_of_many_quantities(name):
    result = (covered if name == "coverage" else sbc)(2)
    assert getattr(plots, name)(result["theta[1]"]) is not None

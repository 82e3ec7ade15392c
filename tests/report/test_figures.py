"""Figures of the report: the numbers of the check, and no others."""

from dataclasses import replace

import numpy as np
import pytest

from assay.report import traces
from assay.report.bounds import forest, near, worst_pair
from assay.report.classifier import chosen_draws, colour_range, pairs, pp
from assay.report.nulls import average_figures, null
from assay.report.places import places
from tests.checks import made
from tests.plots import cases

from .conftest import REJECTED

# The names of the parameters beside a figure, and in its key.
BRIEF = ["&lt;script&gt;al…ript&gt;", "θ", 'a &amp; "b"']
LITERAL = ["&lt;script&gt;alert(1)&lt;/script&gt;", *BRIEF[1:]]


def numbers(figure, name):
    """The numbers at the points of the traces of a name, in all panels."""
    return [t["x"] for t in figure["data"] if t["name"] == name and t["mode"] == "markers"]


def test_a_forest_has_the_bounds_and_marks_what_is_wrong(check):
    figure, bounds = forest(check, REJECTED), check.bounds
    assert figure["layout"]["yaxis"]["ticktext"] == BRIEF
    # The first is too high, the second too narrow, and holds too little.
    wrong = [
        bounds.bias[REJECTED, 0],
        bounds.width[REJECTED, 1],
        100 * bounds.coverage[REJECTED, 1, 1],
    ]
    assert numbers(figure, "wrong") == [[pytest.approx(value, rel=1e-3)] for value in wrong]
    sticks = [t["x"][:2] for t in figure["data"] if t["mode"] == "lines"]
    assert sticks[0] == pytest.approx(bounds.table["bias"][REJECTED, 1:, 0], rel=1e-3)
    assert [shape["x0"] for shape in figure["layout"]["shapes"]] == [0.0, 1.0, 90.0]
    assert "θ 0.6 (0.49 to 0.73)" in figure["words"]
    assert numbers(forest(check, 0), "wrong") == []
    assert len(forest(made(m=40), 0)["layout"]["yaxis"]["ticktext"]) == 10


def test_true_parameters_over_q_the_worst_first(check):
    data = near(check, REJECTED)["data"]
    for trace in data[:4]:
        width = trace["x"][1] - trace["x"][0]
        assert sum(trace["y"][:-1]) * width == pytest.approx(1, abs=0.01)
    assert [trace["type"] for trace in data] == ["scatter"] * 4 + ["contour"] * 2
    assert worst_pair(check, REJECTED) == check.worst_parameters(REJECTED)[:2] == [0, 1]
    assert worst_pair(made(m=1), 0) == []
    assert {trace["type"] for trace in near(made(m=1), 0)["data"]} == {"scatter"}


def test_the_classifier(check):
    curve = pp(check, 0)["data"][-1]
    assert curve["y"] == sorted(curve["y"])
    figure, result, some = pairs(check, 0), check.classified, chosen_draws(check)
    *columns, probabilities = map(np.array, figure["columns"])
    np.testing.assert_allclose(columns, result.theta[0][some].T, rtol=1e-3)
    np.testing.assert_allclose(probabilities, result.probabilities[0][some], atol=2e-3)
    assert 0.05 <= colour_range(check) <= 0.5
    scale = figure["layout"]["coloraxis"]
    assert scale["cmin"] + scale["cmax"] == pytest.approx(1)


@pytest.mark.parametrize("statistic", [0.01, 5.0, 1e9])
def test_the_observed_statistic_is_inside_its_figure(check, statistic):
    test = replace(check.test, statistic=np.full(len(check), statistic))
    figure = null(replace(check, test=test), 0)
    low, high = figure["layout"]["xaxis"]["range"]
    assert all(low <= line["x0"] <= high for line in figure["layout"]["shapes"])
    assert sum(figure["data"][0]["y"]) == check.test.null.shape[1]


def test_tests_over_all_x_and_their_curves(check):
    figures = average_figures(check)
    assert list(figures) == ["sbc", "coverage", "tarp"]
    assert [t["name"] for t in figures["sbc"]["data"]][-3:] == LITERAL
    assert "θ p = " in figures["coverage"]["words"]
    assert average_figures(replace(check, sbc=None, tarp=None)).keys() == {"coverage"}
    # Of many curves the farthest have a colour or a dash of their own.
    lines = np.outer(np.arange(20), np.ones(5)) / 100
    each = traces.curves(np.linspace(0, 1, 5), lines, [f"<{j}>" for j in range(20)], np.zeros(5))
    assert [t["name"] for t in each] == [f"&lt;{j}&gt;" for j in range(20)]
    assert [t.get("showlegend", True) for t in each] == [False] * 8 + [True] * 12
    assert len({(t["line"]["color"], t["line"].get("dash")) for t in each[8:]}) == 12


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_map_has_the_verdicts_and_what_is_near_inside_its_axes(check, d):
    around = cases.surroundings(len(check), d)
    x = np.concatenate([1e6 * np.ones((1, d)), cases.places(len(check) - 1, d)])
    figure = places(replace(check, surroundings=around, test=replace(check.test, x=x)))
    for axis, column in zip(("xaxis", "yaxis"), figure["own"], strict=True):
        low, high = figure["layout"][axis]["range"]
        assert low < min(column) <= max(column) < high
    own = [group for group in figure["groups"] if "text" in group]
    marks = {group["name"]: group["marker"]["symbol"] for group in own}
    assert set(marks) == {"rejected", "outside", "inconclusive", "passed"}
    assert len(set(marks.values())) == 4
    assert sorted(row for group in own for row in group["customdata"]) == list(range(5))
    assert figure["words"].endswith("2 rejected, 1 passed, 1 inconclusive, 1 outside.")
    assert figure["near"] == [np.flatnonzero(row).tolist() for row in around.near]
    assert {group["mode"] for group in own} == {"markers+text"}
    assert {group["mode"] for group in places(made(("passed",) * 20))["groups"]} == {"markers"}
    assert places(replace(check, surroundings=None)) is None


def test_names_and_numbers_are_short():
    assert traces.brief("amplitude of mode 12") == "amplitude…de 12"
    assert traces.rounded(np.array([0.123456, 1e4, np.nan]), 3) == [0.123, 10000.0, None]
    decimals = [traces.decimals(value) for value in (-0.12345, 12345.0, -0.0001)]
    assert decimals == ["−0.123", "12345", "0.000"]

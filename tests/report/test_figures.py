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


class TestBounds:
    def test_a_forest_has_the_bounds_and_marks_what_is_wrong(self, check):
        figure, bounds = forest(check, REJECTED), check.bounds
        assert figure["layout"]["yaxis"]["ticktext"] == BRIEF
        # The first is too high, the second too narrow, and holds too little.
        assert numbers(figure, "wrong") == [
            pytest.approx(bounds.bias[REJECTED, :1], rel=1e-3),
            pytest.approx(bounds.width[REJECTED, 1:2], rel=1e-3),
            pytest.approx(100 * bounds.coverage[REJECTED, 1:2, 1], rel=1e-3),
        ]
        sticks = [t for t in figure["data"] if t["mode"] == "lines"]
        ends = [bounds.bias_lower[REJECTED, 0], bounds.bias_upper[REJECTED, 0]]
        assert sticks[0]["x"][:2] == pytest.approx(ends, rel=1e-3)
        assert [shape["x0"] for shape in figure["layout"]["shapes"]] == [0.0, 1.0, 90.0]
        assert "θ 0.6 (0.49 to 0.73)" in figure["words"]
        assert numbers(forest(check, 0), "wrong") == []
        assert len(numbers(forest(check, 0), "95 % interval, all rows together")) == 3
        assert len(forest(made(m=40), 0)["layout"]["yaxis"]["ticktext"]) == 10

    def test_true_parameters_over_q_the_worst_first(self, check):
        data = near(check, REJECTED)["data"]
        histograms = [t for t in data if t["type"] == "scatter"]
        assert len(histograms) == 4
        for trace in histograms:
            width = trace["x"][1] - trace["x"][0]
            assert sum(trace["y"][:-1]) * width == pytest.approx(1, abs=0.01)
        assert len(data) == 6
        assert {t["type"] for t in near(made(m=1), 0)["data"]} == {"scatter"}
        assert worst_pair(check, REJECTED) == check.worst_parameters(REJECTED)[:2] == [0, 1]
        assert worst_pair(made(m=1), 0) == []


def test_the_classifier(check):
    curve = pp(check, 0)["data"][-1]
    assert curve["y"] == sorted(curve["y"])
    figure, result = pairs(check, 0), check.classified
    *columns, probabilities = figure["columns"]
    some = chosen_draws(check)
    for column, own in zip(columns, result.theta[0][some].T, strict=True):
        assert column == pytest.approx(own, rel=1e-3)
    assert probabilities == pytest.approx(result.probabilities[0][some], abs=2e-3)
    assert 0.05 <= colour_range(check) <= 0.5
    scale = figure["layout"]["coloraxis"]
    assert scale["cmin"] + scale["cmax"] == pytest.approx(1)
    assert "θ" in figure["words"]


@pytest.mark.parametrize("statistic", [0.01, 5.0, 1e9])
def test_the_observed_statistic_is_inside_its_figure(check, statistic):
    test = replace(check.test, statistic=np.full(len(check), statistic))
    figure = null(replace(check, test=test), 0)
    low, high = figure["layout"]["xaxis"]["range"]
    assert all(low <= line["x0"] <= high for line in figure["layout"]["shapes"])
    assert sum(figure["data"][0]["y"]) == check.test.null.shape[1]
    assert "The observed statistic is" in figure["words"]


def test_tests_over_all_x(check):
    figures = average_figures(check)
    assert list(figures) == ["sbc", "coverage", "tarp"]
    assert [t["name"] for t in figures["sbc"]["data"]][-3:] == LITERAL
    assert "θ p = " in figures["coverage"]["words"]
    assert average_figures(replace(check, sbc=None, tarp=None)).keys() == {"coverage"}


class TestPlaces:
    def test_verdicts_have_their_marks_and_what_is_near_is_that_of_the_check(self, check):
        figure = places(check)
        own = [group for group in figure["groups"] if "text" in group]
        marks = {group["name"]: group["marker"]["symbol"] for group in own}
        assert set(marks) == {"rejected", "outside", "inconclusive", "passed"}
        assert len(set(marks.values())) == 4
        assert sorted(row for group in own for row in group["customdata"]) == list(range(5))
        assert figure["words"].endswith("2 rejected, 1 passed, 1 inconclusive, 1 outside.")
        for rows, expected in zip(figure["near"], check.surroundings.near, strict=True):
            assert rows == np.flatnonzero(expected).tolist()
        assert {group["mode"] for group in own} == {"markers+text"}
        for several in (made(("passed",)), made(("passed",) * 20)):
            assert all(group["mode"] == "markers" for group in places(several)["groups"])
        assert places(replace(check, surroundings=None)) is None

    @pytest.mark.parametrize("d", [1, 2, 5])
    def test_all_lies_inside_the_axes(self, check, d):
        around = cases.surroundings(len(check), d)
        x = np.concatenate([1e6 * np.ones((1, d)), cases.places(len(check) - 1, d)])
        around = replace(around, near=np.zeros((len(check), 400), bool))
        figure = places(replace(check, surroundings=around, test=replace(check.test, x=x)))
        for axis, column in zip(("xaxis", "yaxis"), figure["own"], strict=True):
            low, high = figure["layout"][axis]["range"]
            assert low < min(column) <= max(column) < high


def test_traces():
    grid = np.linspace(0, 1, 5)
    lines = np.outer(np.arange(20), np.ones(5)) / 100
    each = traces.curves(grid, lines, [f"<{j}>" for j in range(20)], np.zeros(5))
    # Of many curves the farthest have a colour or a dash of their own.
    assert [t["name"] for t in each] == [f"&lt;{j}&gt;" for j in range(20)]
    assert [t.get("showlegend", True) for t in each] == [False] * 8 + [True] * 12
    assert len({(t["line"]["color"], t["line"].get("dash")) for t in each[8:]}) == 12
    assert traces.upright(0.5)["line"]["dash"] == "dash"
    assert traces.upright(0.5, color="@curve", width=2)["line"] == {"color": "@curve", "width": 2}
    assert traces.brief("amplitude of mode 12") == "amplitude…de 12"
    assert traces.rounded(np.array([0.123456, 1e4, np.nan]), 3) == [0.123, 10000.0, None]
    assert [traces.decimals(v) for v in (-0.12345, 12345.0, -0.0001)] == [
        "−0.123",
        "12345",
        "0.000",
    ]

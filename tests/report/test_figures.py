"""The figures of the report as plain values: they show the numbers of the check, and no others."""

from dataclasses import replace

import numpy as np
import pytest

from assay.report.answer import forest, near, worst_pair
from assay.report.context import average_figures, places
from assay.report.pairs import PairPlot
from assay.report.picture import null, pp, pp_curves
from tests.checks import made
from tests.plots import cases

REJECTED = 3


def numbers(figure, name):
    """The numbers at the points of the traces of a name, in all panels."""
    return [t["x"] for t in figure.data if t["name"] == name and t["mode"] == "markers"]


def test_a_forest_shows_the_bounds(check):
    figure = forest(check, REJECTED)
    bounds = check.bounds
    ticks = figure.layout["yaxis"]["ticktext"]
    assert ticks == ["&lt;script&gt;al…ript&gt;", "θ", 'a &amp; "b"']
    # The first is too high, the second too narrow, and holds too little.
    assert numbers(figure, "wrong") == [
        pytest.approx(bounds.bias[REJECTED, :1], rel=1e-3),
        pytest.approx(bounds.width[REJECTED, 1:2], rel=1e-3),
        pytest.approx(100 * bounds.coverage[REJECTED, 1:2, 1], rel=1e-3),
    ]
    sticks = [t for t in figure.data if t["mode"] == "lines"]
    assert sticks[0]["x"][:2] == pytest.approx(
        [bounds.bias_lower[REJECTED, 0], bounds.bias_upper[REJECTED, 0]], rel=1e-3
    )
    assert [shape["x0"] for shape in figure.layout["shapes"]] == [0.0, 1.0, 90.0]
    assert "θ 0.6 (0.49 to 0.73)" in figure.words


def test_nothing_is_wrong_where_q_is_not_rejected(check):
    assert numbers(forest(check, 0), "wrong") == []
    assert len(numbers(forest(check, 0), "95 % interval, all rows together")) == 3


def test_of_many_parameters_ten_have_a_row():
    figure = forest(made(("rejected",), 40), 0)
    assert len(figure.layout["yaxis"]["ticktext"]) == 10


def test_true_parameters_are_drawn_over_q(check):
    figure = near(check, REJECTED)
    histograms = [t for t in figure.data if t["type"] == "scatter"]
    assert len(histograms) == 4
    for trace in histograms:
        width = trace["x"][1] - trace["x"][0]
        assert sum(trace["y"][:-1]) * width == pytest.approx(1, abs=0.01)
    assert sum(t["type"] == "contour" for t in figure.data) == 2
    (single,) = [near(made(("passed",), 1), 0)]
    assert {t["type"] for t in single.data} == {"scatter"}


def test_the_worst_come_first(check):
    assert check.worst_parameters(REJECTED)[:2] == [0, 1]
    assert worst_pair(check, REJECTED) == [0, 1]
    assert worst_pair(made(("rejected",), 1), 0) is None


@pytest.mark.parametrize("statistic", [0.01, 5.0, 1e9])
def test_the_observed_statistic_is_inside_its_figure(check, statistic):
    test = replace(check.test, statistic=np.full(len(check), statistic))
    figure = null(replace(check, test=test), 0)
    low, high = figure.layout["xaxis"]["range"]
    lines = figure.layout["shapes"]
    assert all(low <= line["x0"] <= high for line in lines)
    assert sum(figure.data[0]["y"]) == check.test.null.shape[1]
    assert "The observed statistic is" in figure.words


def test_probabilities_of_the_draws(check):
    figure = pp(pp_curves(check), 0)
    curve = figure.data[-1]
    assert curve["y"] == sorted(curve["y"])
    assert figure.words.startswith("PP-plot: ")
    plot = PairPlot(check.classified, check.names)
    drawn = plot.figure(0, [2, 0, 1])
    assert len(drawn.columns) == 4
    assert drawn.columns[3] == pytest.approx(
        check.classified.probabilities[0][plot.shown], abs=2e-3
    )
    assert 0.05 <= plot.colour_range <= 0.5
    scale = drawn.layout["coloraxis"]
    assert scale["cmin"] + scale["cmax"] == pytest.approx(1)
    assert "θ" in drawn.words
    assert pp_curves(made(("passed",))) is None


class TestPlaces:
    def test_every_verdict_has_its_own_mark(self, check):
        drawn = places(check)
        marks = {g["name"]: g["marker"]["symbol"] for g in drawn["groups"] if "text" in g}
        assert set(marks) == {"rejected", "outside", "inconclusive", "passed"}
        assert len(set(marks.values())) == 4
        rows = [row for g in drawn["groups"] for row in g.get("customdata", [])]
        assert sorted(rows) == list(range(len(check)))
        assert drawn["words"].endswith("2 rejected, 1 passed, 1 inconclusive, 1 outside.")

    def test_what_is_near_is_that_of_the_check(self, check):
        drawn = places(check)
        for rows, expected in zip(drawn["near"], check.surroundings.near, strict=True):
            assert rows == np.flatnonzero(expected).tolist()

    @pytest.mark.parametrize("d", [1, 2, 5])
    def test_all_lies_inside_the_axes(self, check, d):
        around = cases.surroundings(len(check), d)
        x = np.concatenate([1e6 * np.ones((1, d)), cases.places(len(check) - 1, d)])
        around = replace(around, near=np.zeros((len(check), 400), bool))
        found = replace(check, surroundings=around, test=replace(check.test, x=x))
        drawn = places(found)
        for axis, column in zip(("xaxis", "yaxis"), drawn["own"], strict=True):
            low, high = drawn["layout"][axis]["range"]
            assert low < min(column) <= max(column) < high

    def test_few_have_labels(self, check):
        assert any(g.get("mode") == "markers+text" for g in places(check)["groups"])
        for many in (made(("passed",)), made(("passed",) * 20)):
            assert all(g["mode"] == "markers" for g in places(many)["groups"])


def test_tests_over_all_x(check):
    figures = average_figures(check)
    assert list(figures) == ["sbc", "coverage", "tarp"]
    names = [t["name"] for t in figures["sbc"].data]
    assert names[-3:] == ["&lt;script&gt;alert(1)&lt;/script&gt;", "θ", 'a &amp; "b"']
    assert "θ p = " in figures["coverage"].words
    assert average_figures(replace(check, sbc=None, tarp=None)).keys() == {"coverage"}

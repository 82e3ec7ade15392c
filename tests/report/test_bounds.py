"""Intervals and true parameters near x_o: the numbers of the check, and no others."""

import pytest

from assay.report.bounds import forest, near, worst_pair
from tests.checks import made

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


def test_true_parameters_over_q(check):
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
    assert worst_pair(made(("rejected",), 1), 0) == []

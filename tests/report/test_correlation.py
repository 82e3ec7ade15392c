import numpy as np
import pytest

from assay.report.correlation import MOST, correlation_figure, worst
from assay.report.page import page
from tests.plots.cases import estimate

from .conftest import trace


def test_only_the_wrong_pair_is_marked(linked):
    figure = correlation_figure(linked.effects[0])
    marks = trace(figure, "beyond noise")
    assert {*marks["x"], *marks["y"]} == {"b &lt; c", "e"}
    assert len(marks["x"]) == 1
    assert "Beyond noise: b < c and e: 0." in figure.words
    assert not linked.effects.bias.wrong.any()
    assert not linked.effects.dispersion.wrong.any()
    assert "the correlation of b &lt; c and e is 0." in page(linked)


def test_cells_are_the_errors(linked):
    effects = linked.effects[0]
    cells, _ = correlation_figure(effects).data
    order = worst(effects.correlation, 4)
    assert set(order[:2]) == {1, 3}
    assert cells["z"][0][0] == pytest.approx(effects.correlation.value[4], abs=0.01)
    shown = [value for row in cells["z"] for value in row if value is not None]
    assert np.allclose(np.sort(shown), np.sort(effects.correlation.value), atol=0.01)
    # The triangle below the diagonal.
    assert [sum(value is None for value in row) for row in cells["z"]] == [2, 1, 0]


def test_of_many_parameters_the_worst_are_shown():
    m = 30
    errors = np.zeros(m * (m - 1) // 2)
    errors[-1] = 0.9
    order = worst(estimate(errors, np.full(len(errors), 0.1), 0), m)
    assert len(order) == MOST
    assert set(order[:2]) == {28, 29}


def test_two_parameters_have_no_picture(scored):
    assert correlation_figure(scored.effects[0]) is None

"""The PP-plot and the pair plot of the classifier."""

import pytest

from assay.report.classifier import chosen_draws, colour_range, pairs, pp


def test_the_pp_plot(check):
    figure = pp(check, 0)
    curve = figure.data[-1]
    assert curve["y"] == sorted(curve["y"])
    assert figure.words.startswith("PP-plot: ")


def test_the_pair_plot_has_draws_and_their_probabilities(check):
    figure, result = pairs(check, 0), check.classified
    *columns, probabilities = figure.columns
    some = chosen_draws(result)
    assert len(columns) == 3
    assert columns[0] == pytest.approx(result.theta[0][some, 0], rel=1e-3)
    assert probabilities == pytest.approx(result.probabilities[0][some], abs=2e-3)
    assert 0.05 <= colour_range(result) <= 0.5
    scale = figure.layout["coloraxis"]
    assert scale["cmin"] + scale["cmax"] == pytest.approx(1)
    assert "θ" in figure.words

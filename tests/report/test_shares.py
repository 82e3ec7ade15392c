import numpy as np
import pytest

from assay.report.forest import BIAS, WIDTH
from assay.report.shares import MOST, shares_figure
from assay.report.words import rounded, short


@pytest.mark.parametrize("quantity", [BIAS, WIDTH])
def test_intervals_are_those_of_the_effects(linked, quantity):
    """At x_o, and at the largest share, they are what the tables say."""
    effects = linked.effects[0]
    figure, estimate = shares_figure(effects, quantity), getattr(effects, quantity.field)
    assert len(figure.data) == MOST
    assert np.isfinite(estimate.at).all()
    for j, curve in zip(effects.worst, figure.data, strict=False):
        ends = [(estimate.at, estimate.at_lower, estimate.at_upper)]
        ends.append((estimate.value, estimate.lower, estimate.upper))
        for i, (value, lower, upper) in zip((0, -1), ends, strict=True):
            assert [curve["y"][i]] == rounded(value[j : j + 1])
            bars = curve["error_y"]
            assert [bars["array"][i]] == rounded((upper - value)[j : j + 1])
            assert [bars["arrayminus"][i]] == rounded((value - lower)[j : j + 1])
            assert short(value[j]) in curve["text"][i]
        assert curve["text"][0].endswith("at x_o, extrapolated")
        assert curve["text"][1].endswith("nearest 5 %")


def test_shares_stand_where_they_are(check):
    figure = shares_figure(check.effects[0], BIAS)
    assert figure.layout["xaxis"]["tickvals"] == [0, 0.05, 0.1, 0.2]
    for curve in figure.data:
        assert np.allclose(np.diff(curve["x"]), [0.05, 0.05, 0.1], atol=1e-3)
    assert figure.words.startswith("Bias near x_o and at x_o: ")


def test_without_shares_there_is_nothing_to_show(scored):
    assert shares_figure(scored.effects[0], BIAS) is None

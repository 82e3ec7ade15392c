import pytest

from assay.report.forest import BIAS, WIDTH, forest
from assay.report.words import number, rounded

from .conftest import trace


@pytest.mark.parametrize("quantity", [BIAS, WIDTH])
def test_both_estimates_are_shown(check, quantity):
    figure = forest(check, 0, quantity)
    sources = {"near x_o": check.effects, "by the classifier": check.classifier_effects}
    worst = check.effects[0].worst
    for name, effects in sources.items():
        value = getattr(effects, quantity.field)[0].value[worst]
        assert trace(figure, name)["x"] == rounded(value)
    low, high = figure.layout["xaxis"]["range"]
    estimate = getattr(check.effects, quantity.field)[0]
    assert low < estimate.lower.min()
    assert high > estimate.upper.max()
    assert (
        figure.layout["yaxis"]["ticktext"][worst.tolist().index(0)] == "&lt;script&gt;al…ript&gt;"
    )


def test_null_bands_are_drawn_below_the_estimates(check):
    estimate = check.effects.bias[0]
    bars = forest(check, 0, BIAS).data[0]
    assert bars["name"] == "95 % null"
    worst = check.effects[0].worst
    ends = rounded(estimate.null_lower[worst]), rounded(estimate.null_upper[worst])
    assert (bars["x"][::3], bars["x"][1::3], bars["x"][2::3]) == (*ends, [None] * 3)


def test_wrong_estimates_are_coloured_and_said(check):
    figure, estimate = forest(check, 0, WIDTH), check.effects.dispersion[0]
    shown = trace(figure, "near x_o")
    assert estimate.wrong.any()
    wrong = estimate.wrong[check.effects[0].worst].tolist()
    assert [c == "@curve" for c in shown["marker"]["color"]] == wrong
    assert ["beyond noise" in text for text in shown["text"]] == wrong
    assert figure.words.startswith("Width near x_o: ")
    assert all(number(value) in figure.words for value in estimate.value)
    assert figure.words.count("beyond noise") == estimate.wrong.sum()


def test_one_source_stands_in_the_middle_of_its_row(bare):
    assert trace(forest(bare, 0, BIAS), "near x_o")["y"] == [0, 1, 2]

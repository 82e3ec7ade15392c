import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import assay
from assay.plots._shapes import mirrored
from assay.report.at_observation import FIGURES, ObservationFigures
from assay.report.words import number, rounded

from .conftest import trace


@pytest.fixture(scope="module")
def figures(check):
    return ObservationFigures(check)


def test_every_figure_is_there_and_is_json(figures):
    for which in range(2):
        drawn = figures.at(which)
        assert tuple(drawn) == FIGURES
        json.dumps({name: figure.plain for name, figure in drawn.items()}, allow_nan=False)
        assert "<script" not in json.dumps([figure.data for figure in drawn.values()])


def test_figures_have_words_with_numbers(figures):
    words = [figure.words for figure in figures.at(1).values()]
    assert all(any(c.isdigit() for c in said) and said.endswith(".") for said in words)


def test_the_null_and_the_statistic(figures, check):
    figure = figures.null(1)
    assert sum(figure.data[0]["y"]) == len(check.local.null[1])
    threshold = figure.layout["shapes"][0]["x0"]
    assert threshold == np.quantile(check.local.null[1], 0.95)
    assert number(check.local.statistic[1]) in figure.words


def test_a_statistic_far_out_is_pointed_at(check):
    null, statistic = check.local.null[1], check.local.statistic.copy()
    for times, lines, arrows in ((1.0, 2, 0), (100.0, 1, 1)):
        statistic[1] = null.max() + times * np.ptp(null)
        figure = ObservationFigures(
            replace(check, local=replace(check.local, statistic=statistic))
        )
        layout = figure.null(1).layout
        assert len(layout["shapes"]) == lines
        assert len(layout.get("annotations", ())) == arrows
        assert layout["xaxis"]["range"][1] < null.max() + 3 * np.ptp(null)
    assert number(float(statistic[1])) in layout["annotations"][0]["text"]


def test_nothing_is_drawn_of_what_lies_outside(figures, check):
    assert check.verdicts[2] == "outside"
    assert figures.at(2) == {}


def test_pictures_of_noise_are_pale_and_correct_nothing(figures, check):
    learned = replace(check, health=SimpleNamespace(learned=True))
    noise = replace(check, health=SimpleNamespace(learned=False))
    plots = [ObservationFigures(one).pair_plot for one in (learned, noise)]
    assert plots[0].weights is not None
    assert plots[1].weights is None
    assert plots[1].colour_range == 0.5 > plots[0].colour_range


def test_the_pp_curve_is_that_of_the_library(figures, check):
    curve, figure = mirrored(assay.pp_curve(check.classifier, check.alpha)), figures.pp(2)
    assert trace(figure, "draws of q at x_o")["y"] == rounded(curve.ecdf[2])
    whole = trace(figure, "95 % null, whole curve")
    each = trace(figure, "95 % null, each level")
    assert max(whole["y"]) >= max(each["y"])
    assert whole["y"][-1] == rounded(curve.envelope_lower[2])[0]
    assert whole["x"] == each["x"] == 0
    assert figure.columns[0][0] == 0
    assert len(figure.columns[0]) == len(whole["y"])


def test_pits_are_named_as_the_parameters(figures, check):
    shown = trace(figures.pits(0), "&lt;script&gt;alert(1)&lt;/script&gt;")
    assert shown["y"][1:-1] == rounded(check.pits.curves[0, 0])


def test_power_marks_the_minimum_detectable_effect(figures, check):
    marks = [t for t in figures.power(0).data if t.get("marker", {}).get("symbol") == "diamond"]
    finite = [c.mde[0] for c in check.detectable.weakest.curves if np.isfinite(c.mde[0])]
    assert finite
    assert [m["x"] for m in marks] == [rounded(np.array([mde])) for mde in finite]
    assert all(m["y"] == [0.8] for m in marks)


def test_what_is_missing_is_not_drawn(bare, scored):
    assert set(ObservationFigures(bare).at(0)) == {
        *("near", "null", "bias", "width", "power"),
        *("bias-shares", "width-shares", "correlation"),
    }
    assert set(ObservationFigures(scored).at(0)) == {"null", "bias", "width", "power"}


def test_nothing_is_drawn_at_random(check):
    one, other = (ObservationFigures(check).at(1) for _ in range(2))
    assert {k: f.plain for k, f in one.items()} == {k: f.plain for k, f in other.items()}

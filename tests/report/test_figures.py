import json

import numpy as np
import pytest

import assay
from assay.report.observed import Observed
from assay.report.overall import overall
from assay.report.places import Places, components
from assay.report.words import rounded

from .conftest import LABELS, NAMES


@pytest.fixture(scope="module")
def observed(found):
    return Observed(found)


def trace(figure, name):
    (only,) = [t for t in figure.data if t["name"] == name]
    return only


def test_every_figure_is_there_and_is_json(observed, found):
    expected = {"null", "bias", "width", "pp", "pits", "power", "pairs"}
    for which in range(3):
        figures = observed.figures(which)
        assert set(figures) == expected
        text = json.dumps({k: f.plain for k, f in figures.items()}, allow_nan=False)
        assert "<script" not in json.dumps([f.data for f in figures.values()])
        assert "NaN" not in text
    assert set(overall(found)) == {"sbc", "coverage", "tarp", "reliability", "roc"}


def test_figures_have_words_with_numbers(observed, found):
    figures = {**observed.figures(1), **overall(found)}
    assert all(any(c.isdigit() for c in figure.words) for figure in figures.values())
    assert all(figure.words.endswith(".") for figure in figures.values())


def test_the_null_and_the_statistic(observed, found):
    figure = observed.null(1)
    assert sum(figure.data[0]["y"]) == len(found.local.null[1])
    threshold, value = (shape["x0"] for shape in figure.layout["shapes"])
    assert threshold == np.quantile(found.local.null[1], 0.95)
    assert value == found.local.statistic[1]


@pytest.mark.parametrize(("key", "field"), [("bias", "bias"), ("width", "dispersion")])
def test_forest_plots_show_both_estimates(observed, found, key, field):
    figure = getattr(observed, key)(0)
    for name, effects in (("near x_o", found.effects), ("by the classifier", found.ratio)):
        shown = trace(figure, name)
        assert shown["x"] == rounded(getattr(effects, field)[0].value)
    low, high = figure.layout["xaxis"]["range"]
    estimate = getattr(found.effects, field)[0]
    assert low < estimate.lower.min()
    assert high > estimate.upper.max()
    assert figure.layout["yaxis"]["ticktext"][0] == "&lt;script&gt;alert(1…"


def test_wrong_estimates_are_coloured(observed, found):
    shown = trace(observed.width(0), "near x_o")["marker"]["color"]
    wrong = found.effects.dispersion[0].wrong
    assert [c == "@curve" for c in shown] == wrong.tolist()
    assert wrong.any()


def test_the_pp_curve_is_that_of_the_library(observed, found):
    curve = assay.pp_curve(found.classified, found.alpha)
    shown = trace(observed.pp(2), "draws of q at x_o")
    assert shown["y"] == rounded(curve.ecdf[2])
    whole = trace(observed.pp(2), "95 % null, whole curve")
    each = trace(observed.pp(2), "95 % null, each level")
    assert max(whole["y"]) >= max(each["y"])
    assert whole["y"][-1] == rounded(curve.envelope_lower[2])[0]
    assert whole["x"] == each["x"] == 0
    assert observed.pp(2).columns[0][0] == 0
    assert len(observed.pp(2).columns[0]) == len(whole["y"])


def test_pits_are_named_as_the_parameters(observed, found):
    figure = observed.pits(0)
    shown = trace(figure, "&lt;script&gt;alert(1)&lt;/script&gt;")
    assert shown["y"][1:-1] == rounded(found.pits.curves[0, 0])


def test_power_marks_the_minimum_detectable_effect(observed, found):
    figure = observed.power(0)
    marks = [t for t in figure.data if t.get("marker", {}).get("symbol") == "diamond"]
    finite = [c.mde[0] for c in found.seen.curves if np.isfinite(c.mde[0])]
    assert [m["x"] for m in marks] == [rounded(np.array([mde])) for mde in finite]
    assert all(m["y"] == [0.8] for m in marks)


def test_pairs_share_columns_and_a_symmetric_scale(observed, found):
    scales = [observed.pairs(i).layout["coloraxis"] for i in range(3)]
    assert scales[0] == scales[1] == scales[2]
    assert scales[0]["cmin"] + scales[0]["cmax"] == pytest.approx(1)
    figure = observed.pairs(0)
    dots = [t for t in figure.data if t["mode"] == "markers"]
    assert len(dots) == 3
    assert {t["marker"]["color"] for t in dots} == {3}
    assert figure.columns[0] == rounded(found.classified.theta[0, observed.shown, 0])
    assert figure.columns[3] == rounded(found.classified.probabilities[0, observed.shown], 3)
    far = np.abs(found.classified.probabilities - 0.5).max()
    assert far <= observed.reach < far + 0.05 + 1e-9


def test_marginals_are_densities(observed):
    lines = [t for t in observed.pairs(0).data if t["mode"] == "lines"]
    assert len(lines) == 6
    for t in lines:
        mass = np.diff(t["x"]) @ np.array(t["y"][:-1])
        assert mass == pytest.approx(1, abs=0.01)


def test_the_map_holds_observations_and_cloud(found):
    plain = Places(found).plain
    assert plain["count"] == 3
    assert [len(column) for column in plain["columns"]] == [8] * len(plain["names"])
    rows = sorted(row for group in plain["groups"] for row in group["rows"])
    assert rows == list(range(8))
    assert plain["names"][:3] == [
        "first principal component of x",
        "second principal component of x",
        "x[0]",
    ]
    assert plain["columns"][2][:3] == rounded(found.local.x[:, 0])
    assert "&lt;b&gt;x&lt;/b&gt;" in plain["text"][0]
    assert found.verdicts[0] in plain["text"][0]
    json.dumps(plain, allow_nan=False)


def test_verdicts_on_the_map_are_those_found(found):
    groups = Places(found).plain["groups"]
    said = {row: g["name"] for g in groups if not g["faint"] for row in g["rows"]}
    assert tuple(said[i] for i in range(3)) == found.verdicts


def test_components_do_not_depend_on_units():
    x = np.random.default_rng(0).normal(size=(30, 4)) @ np.diag([3, 1, 1, 1])
    x[:, 1] += x[:, 0]
    one, other = (np.stack(list(components(part).values())) for part in (x, 5 * x - 2))
    assert np.allclose(one, other)
    assert components(x[:2]) == {}


def test_ranks_and_coverage_are_those_found(found):
    figures = overall(found)
    ranks = found.sbc.ecdf(found.alpha)
    assert figures["sbc"].data[1]["y"] == rounded(ranks.difference[0])
    assert figures["sbc"].data[0]["y"][: len(ranks.levels)] == rounded(ranks.difference_upper)
    curve = found.coverage.curve(found.alpha)
    assert figures["coverage"].data[2]["y"] == rounded(curve.coverage[0])
    assert figures["tarp"].data[2]["y"] == rounded(found.tarp.curve(found.alpha).coverage[0])


def test_health_is_that_found(found):
    bins = found.health.reliability
    shown = overall(found)["reliability"].data[1]
    assert shown["y"] == rounded(bins.observed)
    assert np.allclose(np.add(shown["y"], shown["error_y"]["array"]), bins.upper, atol=2e-4)
    assert "AUC" in overall(found)["roc"].data[1]["name"]


def test_what_is_missing_is_not_drawn(bare, scored):
    assert set(Observed(bare).figures(0)) == {"null", "bias", "width"}
    assert set(Observed(scored).figures(0)) == {"null", "bias", "width", "pp", "pairs"}
    assert overall(bare) == {}
    assert Places(bare).plain["groups"][0]["symbol"] in ("x", "circle-open")


def test_nothing_is_changed_or_drawn_at_random(found):
    one, other = (Observed(found).figures(1) for _ in range(2))
    assert {k: f.plain for k, f in one.items()} == {k: f.plain for k, f in other.items()}


def test_names_are_those_of_the_fixture(found):
    assert (found.names, found.labels) == (NAMES, LABELS)

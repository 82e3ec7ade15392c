"""The map of the observations among the simulations."""

from dataclasses import replace

import numpy as np
import pytest

from assay.report.places import places
from tests.checks import made
from tests.plots import cases


def test_every_verdict_has_its_own_mark(check):
    figure = places(check)
    marks = {g["name"]: g["marker"]["symbol"] for g in figure["groups"] if "text" in g}
    assert set(marks) == {"rejected", "outside", "inconclusive", "passed"}
    assert len(set(marks.values())) == 4
    rows = [row for g in figure["groups"] for row in g.get("customdata", [])]
    assert sorted(rows) == list(range(len(check)))
    assert figure["words"].endswith("2 rejected, 1 passed, 1 inconclusive, 1 outside.")


def test_what_is_near_is_that_of_the_check(check):
    figure = places(check)
    for rows, expected in zip(figure["near"], check.surroundings.near, strict=True):
        assert rows == np.flatnonzero(expected).tolist()


@pytest.mark.parametrize("d", [1, 2, 5])
def test_all_lies_inside_the_axes(check, d):
    around = cases.surroundings(len(check), d)
    x = np.concatenate([1e6 * np.ones((1, d)), cases.places(len(check) - 1, d)])
    around = replace(around, near=np.zeros((len(check), 400), bool))
    found = replace(check, surroundings=around, test=replace(check.test, x=x))
    figure = places(found)
    for axis, column in zip(("xaxis", "yaxis"), figure["own"], strict=True):
        low, high = figure["layout"][axis]["range"]
        assert low < min(column) <= max(column) < high


def test_few_have_labels(check):
    assert any(g.get("mode") == "markers+text" for g in places(check)["groups"])
    for many in (made(("passed",)), made(("passed",) * 20)):
        assert all(g["mode"] == "markers" for g in places(many)["groups"])


def test_no_simulations_no_map(check):
    assert places(replace(check, surroundings=None)) is None

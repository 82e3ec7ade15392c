import json
from dataclasses import replace

import numpy as np

from assay.report.map import Map, _ends
from assay.report.words import rounded
from tests.conftest import Gaussian

from .conftest import PLACES


def test_it_holds_the_observations_and_those_of_the_calibration(check):
    plain = Map(check).plain
    assert plain["count"] == 3
    assert [len(column) for column in plain["columns"]] == [308] * len(plain["names"])
    assert plain["simulated"] == list(range(8, 308))
    rows = sorted(row for group in plain["groups"] for row in group["rows"])
    assert rows == list(range(8))
    assert plain["names"][:3] == [
        "first principal component of x",
        "second principal component of x",
        "x[0]",
    ]
    assert plain["columns"][2][:3] == rounded(check.local.x[:, 0])
    # Nothing is claimed of what lies outside.
    assert plain["columns"][-1][:3] == [*rounded(check.local.pvalue[:2]), None]
    assert plain["logarithmic"] == len(plain["names"]) - 1
    assert plain["line"] == check.alpha
    json.dumps(plain, allow_nan=False)


def test_verdicts_are_those_of_the_check(check):
    groups = Map(check).plain["groups"]
    said = {row: g["name"] for g in groups if not g["faint"] for row in g["rows"]}
    assert tuple(said[i] for i in range(3)) == check.verdicts


def test_what_is_said_under_the_pointer(check):
    text = Map(check).plain["text"]
    assert len(text) == 8
    assert text[0].startswith(f"<b>&lt;b&gt;x&lt;/b&gt;</b><br>{check.verdicts[0]}<br>p-value: ")
    assert "detectable shift: " in text[0]
    assert text[-1].startswith("<b>a simulated observation</b>")
    assert text[2].split("<br>")[1:] == ["outside", "simulations near: 0"]


def test_numbers_under_the_pointer_have_two_digits(check):
    lines = Map(check).plain["text"][0].split("<br>")[2:]
    numbers = [said.split(": ")[1] for said in lines if not said.startswith("simulations near")]
    assert all(len(n.replace(".", "").lstrip("0")) <= 2 for n in numbers if n != "none")


def test_what_is_near_is_what_was_nearest(check):
    """The nearest fifth, in the distance of the test."""
    plain, calibration = Map(check).plain, Gaussian(width=0.6, m=3).calibration(300, k=8)
    assert [len(rows) for rows in plain["near"]] == [60, 60, 0]
    distances = calibration.distance(calibration.features, PLACES).numpy()
    for which in range(2):
        nearest = np.sort(distances[which].argsort()[:60])
        assert plain["near"][which] == (8 + nearest).tolist()


def test_an_outlier_does_not_press_the_others_together(check):
    far = replace(check.local, x=np.where(check.local.x == 9, 1e4, check.local.x))
    for coordinates, ends in (
        (Map(one).plain["columns"], Map(one).plain["ends"])
        for one in (check, replace(check, local=far))
    ):
        for column, (low, high) in zip(coordinates[:5], ends, strict=False):
            inside = [low <= v <= high for v in column]
            assert inside.count(False) <= 5
            assert not inside[2]
            assert high - low < 15


def test_half_of_the_numbers_may_be_alike():
    assert _ends(np.array([0.0, 0, 0, 0, 7])) == [0, 7]


def test_words_count_those_of_the_calibration(check):
    assert Map(check).words.endswith(".")
    assert "Of 5 observations of the calibration, " in Map(check).words
    assert "of the calibration" not in Map(replace(check, context=None)).words


def test_few_points_have_no_components(bare, scored):
    assert list(Map(scored).coordinates) == ["x[0]", "x[1]", "p-value"]
    for group in Map(bare).plain["groups"]:
        symbols = {"rejected": "x", "inconclusive": "triangle-up", "outside": "square-open"}
        assert group["symbol"] == symbols[group["name"]]
        assert {bare.verdicts[row] for row in group["rows"]} == {group["name"]}
    assert Map(bare).plain["labels"][2] == "far %{x} &amp; away"

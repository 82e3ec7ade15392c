import json
from dataclasses import replace

from assay.report.map import Map
from assay.report.words import rounded


def test_it_holds_the_observations_and_those_of_the_calibration(check):
    plain = Map(check).plain
    assert plain["count"] == 3
    assert [len(column) for column in plain["columns"]] == [8] * len(plain["names"])
    rows = sorted(row for group in plain["groups"] for row in group["rows"])
    assert rows == list(range(8))
    assert plain["names"][:3] == [
        "first principal component of x",
        "second principal component of x",
        "x[0]",
    ]
    assert plain["columns"][2][:3] == rounded(check.local.x[:, 0])
    assert plain["columns"][-1][:3] == rounded(check.local.pvalue)
    assert plain["lines"] == {str(len(plain["names"]) - 1): check.alpha}
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
    assert text[-1].startswith("<b>an observation of the calibration</b>")


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

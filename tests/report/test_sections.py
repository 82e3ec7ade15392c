import numpy as np
import pytest

from assay.report.at_observation import ObservationFigures
from assay.report.sections import sections
from assay.report.words import probability, short


def values(check):
    return sections(check, ObservationFigures(check))


@pytest.fixture(scope="module")
def made(check):
    return values(check)


def leaves(value):
    """All that is in nested values but for containers and keys."""
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [leaf for one in value for leaf in leaves(one)]
        if isinstance(value, list | tuple)
        else [value]
    )


def test_values_are_plain(made):
    assert {type(leaf) for leaf in leaves(made)} <= {str, int, bool, type(None)}


def test_verdicts_are_those_of_the_check(made, check):
    at = made["observations"]
    assert tuple(one["verdict"] for one in at) == check.verdicts
    assert [one["local"]["adjusted"] for one in at] == [
        probability(p) for p in check.local.adjusted
    ]
    assert sum(made["verdict"]["counts"].values()) == 3


def test_pvalues_are_those_of_the_check(made, check):
    at = made["observations"][1]
    for name, test in (("local", check.local), ("classifier", check.classifier)):
        assert at[name]["pvalue"] == probability(test.pvalue[1])
    assert at["pits"]["curves"] == probability(check.pits.pvalue_curves[1])
    assert at["pits"]["independence"] == probability(check.pits.pvalue_independence[1])
    assert at["support"]["near"] == check.local.support.pairs[1]
    tail = check.effects[1].tail
    assert (at["tail"]["count"], at["tail"]["truths"]) == (tail.count[-1], tail.truths[-1])
    assert at["tail"]["pvalue"] == probability(tail.pvalue[-1])


def test_wrong_effects_are_marked(made, check):
    width = check.effects.dispersion[0]
    rows = made["observations"][0]["effects"]
    shown = [row["own"] for row in rows if row["name"].endswith("width over the true one")]
    worst = check.effects[0].worst
    assert [one["shown"] for one in shown] == [short(value) for value in width.value[worst]]
    assert np.array_equal([one["wrong"] for one in shown], width.wrong[worst])
    assert width.wrong.any()


def test_settings_are_told_once(made, check):
    told = dict(made["made"]["settings"]) | dict(made["made"]["versions"])
    assert set(told) | {"call"} == set(check.settings)
    assert made["made"]["calls"] == [check.settings["call"]]


def test_missing_parts_are_none(bare):
    made = values(bare)
    assert made["overall"] == []
    assert made["classifier"] is made["where"]["context"] is made["pairs"] is None
    for at in made["observations"]:
        assert at["classifier"] is at["pits"] is None
        assert at["sources"] == 1

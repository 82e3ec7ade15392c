import json
from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay.interpret.trust import judged
from assay.interpret.verdict import _cell
from assay.suite import Suite
from tests.conftest import Gaussian

QUICK = Suite(null=39, classifier=None, context=0, pairs=200)


@pytest.fixture(scope="module")
def found():
    """Wrong on one side; right, far out, and wrong by what six observations drown."""
    posterior = Gaussian()
    calibration = posterior.calibration(1500, k=8)
    shift = torch.where(calibration.x[:, :1] < 0, 1.2, 0.0)
    wrong = replace(calibration, theta_q=calibration.theta_q + shift[:, None])
    x_o = torch.tensor([[-1.5, 0.0], [1.5, 0.0], [9.0, 9.0]])
    labels = ["left", "right", "far"]
    return assay.check(
        wrong, x_o=posterior.draws(x_o), suite=QUICK, names=["mu", "nu"], labels=labels
    )


def test_words(found):
    assert found.verdicts == ("rejected", "passed", "outside")
    assert found.verdict.startswith("Of 3 observations: 1 rejected, 1 passed, 1 outside (local s")
    assert "left: Near x_o (nearest 20 %), q's mean of mu is" in found.verdict
    assert "too high" in found.verdict
    assert "At right: No error found. With probability 0.8 the test detects any" in found.verdict
    assert "far: It lies outside the simulated observations; nothing can" in found.verdict
    assert "SBC" in found.verdict


def test_at_one_observation(found):
    low = "p, corrected for 3 observations, = 0.0250, the smallest possible with 39 null copies"
    assert found.at(0).startswith(f"left: rejected ({low}). Near x_o (nearest 20 %), q's mean of ")
    assert found.at(1).startswith("right: passed. No error found. With probability 0.8")
    assert found.at(2) == (
        "far: outside. It lies outside the simulated observations; nothing can be said there."
    )


def judged_again(found, **changes):
    """The same with other verdicts."""
    trust = judged(found.local, found.detectable.weakest, changes.pop("relevant", 0.5), 0.05)
    return replace(found, trust=trust, **changes)


def test_where_too_little_is_detectable(found):
    blunt = judged_again(found, relevant=0.05)
    assert blunt.verdicts == ("rejected", "inconclusive", "outside")
    assert "right: No error found, but the test could not have detected a shift" in blunt.verdict


def test_few_simulations_near(found):
    support = replace(found.local.support, pairs=np.array([50, 3, 0]))
    few = judged_again(replace(found, local=replace(found.local, support=support)))
    assert few.verdicts[1] == "inconclusive"
    assert "right: No error found, but only 3 simulations are near" in few.verdict


def test_what_is_rejected_without_an_effect(found):
    local = replace(found.local, statistic=np.full(3, 1e6))
    wrong = judged_again(replace(found, local=local))
    assert wrong.verdicts == ("rejected", "rejected", "outside")
    assert "right: Neither bias, width, correlation nor coverage is off" in wrong.verdict


def test_the_summary_is_a_table(found):
    head, *rows = found.summary().splitlines()[:4]
    assert head.split()[:2] == ["observation", "verdict"]
    assert [row.split()[0] for row in rows] == ["left", "right", "far"]
    assert all(len(row) == len(head) for row in rows)


def test_the_record_is_json(found):
    text = json.dumps(found.record, allow_nan=False)
    record = json.loads(text)
    row = record["observations"][0]
    assert row["label"] == "left"
    assert row["pvalue"] == pytest.approx(float(found.local.pvalue[0]))
    assert row["corrected_p"] == pytest.approx(float(found.local.adjusted[0]))
    assert row["effects"]["mu bias"]["estimate"] == pytest.approx(
        float(found.effects.bias.value[0, 0])
    )
    assert record["over_all_x"]["SBC"]["pvalue"] == found.global_pvalues["SBC"]
    assert record["settings"]["seed"] == 0


def test_global_pvalues_are_adjusted_for_all_quantities(found):
    """Two of SBC, two of coverage and one of TARP: five together."""
    results = found.sbc, found.coverage, found.tarp
    assert min(found.global_pvalues.values()) == pytest.approx(
        min(1, 5 * min(float(result.pvalue.min()) for result in results))
    )
    alone = replace(found, coverage=None, tarp=None)
    assert alone.global_pvalues == {"SBC": pytest.approx(min(1, 2 * found.sbc.pvalue.min()))}
    assert replace(alone, sbc=None).global_pvalues == {}


@pytest.mark.slow
def test_a_right_q_is_seldom_rejected_over_all_x(found):
    """300 repetitions: any of the three in at most 5 % of them, within a 99.9 % interval."""
    wrong = 0
    for seed in range(300):
        given = Gaussian().calibration(200, k=16, seed=seed)
        tests = {"sbc": assay.sbc, "coverage": assay.coverage, "tarp": assay.tarp}
        made = replace(found, **{name: test(given, seed=seed) for name, test in tests.items()})
        wrong += "reject" in made._elsewhere[-1]
    assert wrong <= scipy.stats.binom(300, 0.05).ppf(0.999)


def test_many_observations_are_counted(found):
    many = replace(
        found,
        labels=tuple(f"x{i}" for i in range(8)),
        local=replace(
            found.local,
            statistic=np.repeat(found.local.statistic[:1], 8),
            null=np.repeat(found.local.null[:1], 8, 0),
            support=type(found.local.support)(
                *(np.repeat(v[:1], 8) for v in vars(found.local.support).values())
            ),
        ),
        trust=replace(found.trust, verdicts=("rejected",) * 8),
    )
    assert many.verdicts == ("rejected",) * 8
    assert many._counted.startswith("Of 8 observations: 8 rejected")


def test_numbers_of_a_table():
    assert [_cell(v) for v in (71.0, 1.0, 0.005, float("inf"))] == ["71", "1.00", "0.00500", "inf"]

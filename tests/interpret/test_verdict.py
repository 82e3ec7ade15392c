import json
from dataclasses import replace

import numpy as np
import pytest
import torch

import assay
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
    assert found.verdicts[:2] == ("rejected", "trusted")
    assert "left: Near x_o (nearest 20 %), q's mean of mu is" in found.verdict
    assert "too high" in found.verdict
    assert "At right nothing was found, and a shift of" in found.verdict
    assert "far is untested: it lies outside the simulated observations." in found.verdict
    assert "SBC" in found.verdict


def test_at_one_observation(found):
    said = "left: rejected (adjusted p = 0.0250). Near x_o (nearest 20 %), q's mean of mu is "
    assert found.at(0).startswith(said)
    assert found.at(1).startswith("right: trusted; a shift of ")
    assert found.at(2).startswith(
        "far: untested, since it lies outside the simulated observations."
    )


def test_where_too_little_would_have_been_seen(found):
    blunt = replace(
        found, trust=replace(found.trust, verdicts=("rejected", "untested", "untested"))
    )
    assert "right is untested: nothing smaller than a shift of" in blunt.verdict
    assert blunt.verdicts == ("rejected", "untested", "untested")


def test_what_is_rejected_outside_is_said_with_caution(found):
    local = replace(found.local, statistic=np.full(3, 1e6))
    wrong = replace(found, local=local, trust=replace(found.trust, verdicts=("rejected",) * 3))
    assert "It lies outside the simulated observations" in wrong.at(2)
    assert "It lies outside the simulated observations" not in wrong.at(0)
    assert wrong.verdict.count("outside the simulated observations") == 1
    # The one where no effect shows is wrong in another way.
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
    assert row["adjusted"] == pytest.approx(float(found.local.adjusted[0]))
    assert row["effects"]["mu bias"]["estimate"] == pytest.approx(
        float(found.effects.bias.value[0, 0])
    )
    assert record["over_all_x"]["SBC"]["pvalue"] == found.global_pvalues["SBC"]
    assert record["settings"]["seed"] == 0


def test_global_pvalues_are_adjusted_for_parameters(found):
    p = found.sbc.pvalue
    assert found.global_pvalues["SBC"] == pytest.approx(min(1, 2 * p.min()))


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
        trust=None,
        detectable=None,
    )
    assert many.verdicts == ("rejected",) * 8
    assert many._counted.startswith("At 8 of 8 observations q is rejected")


def test_numbers_of_a_table():
    assert [_cell(v) for v in (71.0, 1.0, 0.005, float("inf"))] == ["71", "1.00", "0.00500", "inf"]

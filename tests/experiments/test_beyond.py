import math
from pathlib import Path

import pytest
import torch

import assay
from assay._support.random import stream
from experiments.beyond import BOUNDED, BUDGETS, FAR, MODEL, NEAR, _wrong, needed, run
from experiments.runs import Context


def test_pairs_that_a_power_needs():
    assert needed([100, 1000], [0.9, 1.0]) == 100
    assert needed([100, 1000], [0.1, 0.5]) == math.inf
    assert needed([100, 10_000], [0.6, 1.0]) == pytest.approx(1000)


@pytest.mark.parametrize("pairs", BUDGETS["paper"]["cal"])
def test_where_the_leak_is_measured_all_neighbours_are_right(pairs):
    theta, x = MODEL.joint(pairs, stream(0, "neighbours"))
    latents = assay.Calibration.from_base(MODEL.theta_to_base(theta, x), x)
    (near,) = latents.nearest(NEAR).inside(latents.features, torch.tensor(FAR)[None])
    assert int(near.sum()) == round(0.2 * pairs)
    assert not _wrong(x[near]).any()
    assert 0.15 < float(_wrong(x).double().mean()) < 0.4


def test_a_leak_is_measured_where_q_is_right():
    job = {"error": "half", "size": 0.8, "cal": 100, "run": 0, "nulls": 9, "method": "score-NF"}
    found = run(job, Context(Path()))
    assert (found["distance"], found["bias"], found["width"]) == (0, 0, 1)
    shifted = run({**job, "error": "shift", "cal": 1000}, Context(Path()))
    assert shifted["distance"] > 0.2
    assert shifted["bias"] == pytest.approx(0.8, abs=0.03)
    # The smallest that 999 copies allow, of which the nine are made where it is at most 0.1.
    assert shifted["pvalue"] == 0.001
    for row in (found, shifted):
        for kind in BOUNDED:
            _, lower, upper = row[f"bounds of {kind}"]
            assert lower <= row[kind] <= upper
    assert shifted["bounds of bias"][1] > 0

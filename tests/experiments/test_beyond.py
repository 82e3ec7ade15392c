import math
from pathlib import Path

import pytest
import torch
from experiments.beyond import BUDGETS, FAR, MODEL, NEAR, _wrong, needed, run
from experiments.runs import Context

from assay._core import stream


def test_pairs_that_a_power_needs():
    assert needed([100, 1000], [0.9, 1.0]) == 100
    assert needed([100, 1000], [0.1, 0.5]) == math.inf
    assert needed([100, 10_000], [0.6, 1.0]) == pytest.approx(1000)


@pytest.mark.parametrize("pairs", BUDGETS["paper"]["cal"])
def test_where_the_leak_is_measured_all_neighbours_are_right(pairs):
    x = MODEL.joint(pairs, stream(0, "neighbours"))[1]
    far = (x - torch.tensor(FAR)).div(x.std(0)).norm(dim=1)
    neighbours = x[far.argsort()[: round(NEAR * pairs)]]
    assert not _wrong(neighbours).any()
    assert 0.15 < float(_wrong(x).double().mean()) < 0.4


def test_a_leak_is_measured_where_q_is_right():
    job = {"error": "half", "size": 0.8, "cal": 100, "run": 0, "nulls": 9, "method": "moments-NF"}
    found = run(job, Context(Path()))
    assert (found["distance"], found["bias"]) == (0, 0)
    shifted = run({**job, "error": "shift", "cal": 1000}, Context(Path()))
    assert shifted["distance"] > 0.2
    assert shifted["bias"] == pytest.approx(0.8, abs=0.03)
    # The smallest that nine nulls allow.
    assert shifted["pvalue"] == pytest.approx(0.1)

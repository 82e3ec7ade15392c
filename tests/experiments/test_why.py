import json

import pytest
import torch

from experiments.limit import mse
from experiments.published import trial_of_lc2st
from experiments.runs import Context, conduct
from experiments.why import NULLS, WHY, jobs, means


def rows(free):
    n = 50
    theta, theta_q, x = torch.zeros(n, 1), torch.ones(n, 1), torch.arange(float(n))[:, None]
    there = torch.zeros(1, 1), torch.zeros(1, 5, 1)
    trial = trial_of_lc2st((theta, x, theta_q), there, 20, free=free)
    assert trial.inputs.shape == (21, 100, 2)
    return trial.inputs


def test_the_data_come_first_whatever_the_null():
    torch.testing.assert_close(rows(True)[0], rows(False)[0])


def test_members_of_a_pair_change_places():
    inputs = rows(False)[1:]
    first, second = inputs[:, :50], inputs[:, 50:]
    # A pair has one x, one draw of q and one truth, in any order.
    assert torch.equal(first[..., 1], second[..., 1])
    assert torch.equal(first[..., 0] + second[..., 0], torch.ones(20, 50))
    share = float(first[..., 0].mean())
    assert share == pytest.approx(0.5, abs=4 * 0.5 / 1000**0.5)
    assert len({tuple(row.tolist()) for row in first[..., 0]}) == 20


def test_free_permutations_break_pairs():
    inputs = rows(True)[1:]
    assert not torch.equal(inputs[:, :50, 1], inputs[:, 50:, 1])


def test_mass_outside_is_told_apart():
    """A q with a half outside, and right inside: the MSE is known."""
    # p / q is 2 inside, so that d = 2 / 3, and zero outside.
    inside, outside = torch.full((500,), 2.0).log(), torch.full((500,), -torch.inf)
    of_q, of_p = torch.cat([inside, outside]), torch.full((1000,), 2.0).log()
    known = (((1 / 6) ** 2 + 0.25) / 2 + (1 / 6) ** 2) / 2
    assert mse(of_q, of_p) == pytest.approx(known, abs=1e-6)
    assert mse(of_q[:500], of_p) == pytest.approx(0.0, abs=1e-9)


def test_jobs_are_all_different():
    for budget in ("ci", "smoke", "paper"):
        found = jobs(budget)
        assert len({str(job) for job in found}) == len(found)


def test_the_smallest_budget(tmp_path):
    found = conduct(WHY, "ci", Context(tmp_path))
    assert json.loads((tmp_path / "why.json").read_text())["results"] == found
    assert (tmp_path / "why.png").stat().st_size > 1000
    assert {row["null"] for row in found if "null" in row} == set(NULLS)
    (outside,) = [row for row in found if "share" in row]
    share, whole, truncated = means(outside)
    assert 0 < share < 1
    assert 0 < truncated < whole < 0.25
    assert "within pairs" in WHY.table(found)

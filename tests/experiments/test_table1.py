import itertools
import json

import pytest
import torch

from experiments.material import Recipe, flow
from experiments.methods import METHODS
from experiments.networks import Batched, two_layers
from experiments.runs import Context, conduct
from experiments.table1 import TABLE1, TESTS, Alone, Ready, jobs, medians, table


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    return Context(tmp_path_factory.mktemp("flows"))


@pytest.fixture
def setting(context):
    recipe = Recipe("slcp", 200, 2)
    return Ready(recipe, flow(recipe, context), 60, 0, 40, level_draws=10)


def row(**given):
    start = {"task": "slcp", "train": 100, "cal": 5000, "round": 0, "method": "L-C2ST"}
    times = {"samples": 0.1, "without": 1.0, "with": 2.0, "nulls": 100, "device": "a machine"}
    return {**start, **times, **given}


def test_all_methods_have_their_turn_in_every_round():
    """Rounds are outermost: no method is timed twice before all are timed once."""
    for budget in ("ci", "smoke", "paper"):
        found = jobs(budget)
        assert len({str(job) for job in found}) == len(found)
        assert [job["round"] for job in found] == sorted(job["round"] for job in found)
    paper = jobs("paper")
    assert {job["cal"] for job in paper} == {5000, 10_000}
    named = {job["method"].removesuffix(", scikit-learn") for job in paper}
    assert named == {*METHODS, "published local HPD"}


def test_material_is_made_once_and_its_time_is_taken_out(setting, monkeypatch):
    """By a clock that moves one second each time that it is read."""
    monkeypatch.setattr("experiments.table1._now", itertools.count().__next__)
    assert setting.sets(2) is setting.sets(2)
    assert setting.spent == [1]
    # Two readings inside are one second that is taken out, and one that is not.
    assert setting.seconds(lambda: setting.latents) == 2
    assert setting.seconds(lambda: setting.latents) == 1
    assert setting.spent == [1, 1]
    assert setting.x_o.shape == (1, 8)
    assert setting.theta_o.shape == (1, 40, 5)


def test_the_data_alone():
    """As if nulls were not there: the probabilities are those of the first copy."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(3, 200, 2, generator=generator)
    labels = (torch.arange(200) >= 100).long().expand(3, -1)
    (found,) = Alone(Batched(two_layers(1))).fit(inputs, labels)
    expected = Batched(two_layers(1)).fit(inputs, labels)[0]
    at = inputs[0]
    torch.testing.assert_close(found(at), expected(at), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "name", ["published L-C2ST, scikit-learn", "published L-C2ST", "Ridge-NF"]
)
def test_times(name, setting):
    without, with_nulls = TESTS[name](setting, 5)
    assert 0 < without < 60
    assert 0 < with_nulls < 60
    if "scikit-learn" in name:
        assert with_nulls == 6 * without


@pytest.mark.slow
@pytest.mark.parametrize("name", TESTS)
def test_every_method_can_be_timed(name, setting):
    assert min(TESTS[name](setting, 3)) > 0


def test_medians_are_over_rounds():
    found = [row(round=i, without=seconds) for i, seconds in enumerate((1.0, 9.0, 2.0))]
    assert medians(found, 5000, "without") == {"L-C2ST": {100: (2.0, 3)}}


def test_the_table_says_which_machine():
    text = table([row(), row(method="moments")])
    assert "on a machine" in text
    assert "different machines" not in text
    assert "different machines" in table([row(), row(method="moments", device="another")])


def test_the_smallest_budget_resumes_with_the_stored_times(tmp_path):
    first = conduct(TABLE1, "ci", Context(tmp_path))
    again = conduct(TABLE1, "ci", Context(tmp_path))
    assert first == again
    assert len(first) == len(jobs("ci"))
    assert json.loads((tmp_path / "table1.json").read_text())["results"] == first
    assert "N_cal" in TABLE1.table(first)

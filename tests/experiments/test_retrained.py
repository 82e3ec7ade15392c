"""Flows of the paper's kind: which cells, which flows, and draws that all runs share."""

import pytest
import torch

from experiments import material, retrained
from experiments.material import Recipe, flow
from experiments.retrained import RETRAINED, Fixed
from experiments.runs import Context


@pytest.fixture
def printed(monkeypatch):
    """Two Moons alone has informative cells."""
    rate = {"two_moons": 0.5}
    monkeypatch.setattr(retrained, "printed_rate", lambda cell: rate.get(cell["task"], 1.0))


def test_cells_are_informative_and_the_cheapest_come_first(printed):
    cells = retrained.cells()
    assert {cell["task"] for cell in cells} == {"two_moons"}
    sizes = [cell["cal"] for cell in cells]
    assert sizes == sorted(sizes)
    # An oracle is dear, but for few pairs.
    assert max(c["cal"] for c in cells if c["method"] == "published C2ST") == 500
    jobs = [job for job in retrained.jobs("paper") if job["task"] == "two_moons"]
    jobs = [job for job in jobs if not job["right"]]
    local = [job for job in jobs if job["method"] == "published L-C2ST" and job["cal"] == 500]
    runs = [job["first"] + i for job in local for i in range(job["runs"])]
    assert runs == list(range(16))
    oracles = [job for job in jobs if job["method"] == "published C2ST" and job["cal"] == 100]
    assert [(job["draw"], job["runs"]) for job in oracles] == [(i, 1) for i in range(5)]


def test_a_job(printed, tmp_path):
    job = {**retrained.jobs("ci")[0], "train": 200}
    found = RETRAINED.run(job, context=Context(tmp_path))
    assert len(found["each"][0]["pvalue"]) == 10
    rows = [{**job, **row} for row in found["each"]]
    assert "two moons, 200, 100 " in RETRAINED.table(rows)
    RETRAINED.draw(rows, tmp_path / "cells.png")
    assert (tmp_path / "cells.pdf").exists()


def test_where_truths_are_draws_of_q(printed, tmp_path):
    """Levels: ten runs in a cell, in which latents of truths are standard normal."""
    (*_, job) = retrained.jobs("ci")
    assert job["right"]
    assert len(RETRAINED.run({**job, "train": 200}, context=Context(tmp_path))["each"]) == 1
    recipe = Recipe("two_moons", 200, 3, "SbiNSF")
    setting = Fixed(recipe, flow(recipe, Context(tmp_path)), 2000, 0, 20, right=True)
    z = setting.latents.theta
    assert abs(float(z.mean())) < 0.1
    assert float(z.std()) == pytest.approx(1, abs=0.1)
    jobs = [job for job in retrained.jobs("paper") if job["right"]]
    assert sum(job["runs"] for job in jobs) == 10 * sum(c["right"] for c in retrained.others())


def test_flows_differ_by_draw_and_kind_and_are_found_where_they_are_kept(monkeypatch, tmp_path):
    recipes = [Recipe("two_moons", 100, 2, "SbiNSF", draw) for draw in (0, 1)]
    assert len({r.name for r in (*recipes, Recipe("two_moons", 100, 2))}) == 3
    context, x = Context(tmp_path), torch.zeros(5, 2)
    one, other = (flow(recipe, context) for recipe in recipes)
    assert not torch.equal(one.theta_to_base(x, x), other.theta_to_base(x, x))
    # Another folder, and no training.
    monkeypatch.setattr(material, "KEPT", tmp_path)
    monkeypatch.setattr(Recipe, "trained", lambda *_: pytest.fail("trained again"))
    again = flow(recipes[1], Context(tmp_path / "elsewhere"))
    assert torch.equal(again.theta_to_base(x, x), other.theta_to_base(x, x))


def test_draws_at_the_observations_are_those_of_all_runs(tmp_path):
    recipe = Recipe("two_moons", 100, 2, "SbiNSF")
    one, other = (Fixed(recipe, flow(recipe, Context(tmp_path)), 50, run, 20) for run in (0, 1))
    assert torch.equal(one.theta_o, other.theta_o)
    assert not torch.equal(one.latents.theta, other.latents.theta)

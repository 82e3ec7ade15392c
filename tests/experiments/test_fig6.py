import json
import math

import numpy as np
import pytest
import torch

from experiments.fig6 import (
    FIG6,
    LOCALS,
    ORACLES,
    Elsewhere,
    alike,
    correlation,
    jobs,
    printed,
    stacked,
    table,
)
from experiments.material import Recipe, flow
from experiments.networks import Batched, two_layers
from experiments.published import together, trial_of_c2st
from experiments.runs import Context, conduct


@pytest.fixture(scope="module")
def setting(tmp_path_factory):
    recipe = Recipe("two_moons", 200, 2)
    context = Context(tmp_path_factory.mktemp("flows"))
    return elsewhere(flow(recipe, context), context.folder, recipe)


OTHER = Recipe("two_moons", 50)


def elsewhere(trained, folder, recipe=OTHER, places=None):
    return Elsewhere(recipe, trained, 100, 0, 40, places=places or {"joint": 3}, folder=folder)


def test_correlations_have_their_signs():
    one, other = [1.0, 2.0, 3.0, 5.0], [8.0, 6.0, 5.0, 1.0]
    found = correlation(one, other)
    assert found["pearson_r"] == pytest.approx(np.corrcoef(one, other)[0, 1], rel=1e-4)
    assert found["spearman_r"] == -1
    assert 0 < found["pearson_p"] < 0.05
    assert found["n"] == 4


def test_constants_have_no_correlation():
    found = correlation([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])
    assert found == dict.fromkeys(found) | {"n": 3}


def test_observations_of_the_joint_do_not_depend_on_the_flow(setting):
    other = elsewhere(None, setting.folder)
    torch.testing.assert_close(setting.x_o, other.x_o)
    assert not torch.allclose(setting.x_o, setting.task.observations.x[:3])
    benchmark = elsewhere(None, setting.folder, places={"benchmark": 10})
    torch.testing.assert_close(benchmark.x_o, setting.task.observations.x)
    both = elsewhere(None, setting.folder, places={"benchmark": 4, "joint": 3})
    torch.testing.assert_close(both.x_o, torch.cat([benchmark.x_o[:4], setting.x_o]))
    assert len(both.exact(10)) == 7


def test_posteriors_are_those_at_the_observations(setting):
    """Two Moons: the truths of an observation lie on crescents near it."""
    draws = setting.exact(50)
    assert all(map(torch.equal, draws, setting.exact(50)))
    for x, theta in zip(setting.x_o, draws, strict=True):
        assert theta.shape == (50, 2)
        assert setting.task.log_posterior(theta, x).isfinite().all()


def test_the_stack_is_the_published_oracle(setting):
    """All observations at once: what the published test finds at each by itself."""
    q, exact = setting.q(200), setting.exact(200)
    network = Batched(two_layers(2))
    alone = [
        together(network, [trial_of_c2st(pair, 100, 0, (setting.run, o))])[0][0]
        for o, pair in enumerate(zip(q, exact, strict=True))
    ]
    np.testing.assert_allclose(stacked(setting), alone, rtol=0.02, atol=1e-5)


def test_jobs_are_all_different():
    for budget in ("ci", "smoke", "paper"):
        found = jobs(budget)
        assert len({str(job) for job in found}) == len(found)
    assert all(job["observations"] == {"benchmark": 10, "joint": 100} for job in jobs("paper"))


def test_printed_values_stand_beside_ours(monkeypatch):
    cell = {"pearson_r": -0.5, "pearson_p": 0.01, "n_obs": 92}
    kinds = {"empirical": {"lc2st": {"1000": cell}, "lc2st_nf": {"1000": cell}}}
    numbers = {
        "scatter": {"slcp": {**kinds, "task": kinds["empirical"]}},
        "table3_printed": {"slcp": [["1", "2"], ["3", "4"], ["5", "6"], ["7", "8"]]},
    }
    monkeypatch.setattr("experiments.fig6.published_numbers", lambda: numbers)
    row = {"task": "slcp", "train": 1000, "places": "joint"}
    assert printed(row, "published L-C2ST-NF") == {**cell, "table3": "4"}
    assert printed({**row, "places": "benchmark"}, "published L-C2ST") == cell
    assert printed(row, "moments-NF") == {}
    monkeypatch.setattr("experiments.fig6.published_numbers", dict)
    assert printed(row, "published L-C2ST") == {}


def test_correlations_are_alike_within_their_interval():
    """With 103 and 103 observations the interval of the difference of z is 1.96 sqrt(0.02)."""
    one = {"method": "L-C2ST", "oracle": "published C2ST", "pearson_r": 0.0, "n": 103}
    row = {"correlation": [one]}
    half = 1.96 * math.sqrt(0.02)
    for factor, expected in ((0.99, True), (1.01, False)):
        theirs = {"pearson_r": math.tanh(factor * half), "n_obs": 103}
        assert alike(row, "L-C2ST", theirs) is expected
    constant = {"correlation": [{**one, "pearson_r": None}]}
    assert not alike(constant, "L-C2ST", theirs)


def test_the_smallest_budget(tmp_path):
    found = conduct(FIG6, "ci", Context(tmp_path))
    assert json.loads((tmp_path / "fig6.json").read_text())["results"] == found
    assert (tmp_path / "fig6.png").stat().st_size > 1000
    for row in found:
        assert set(row["statistic"]) == {*ORACLES, *LOCALS}
        assert {len(values) for values in row["statistic"].values()} == {row["count"]}
        assert len(row["correlation"]) == len(ORACLES) * len(LOCALS)
    assert "observations of the joint" in table(found)
    assert conduct(FIG6, "ci", Context(tmp_path)) == found


def test_cells_that_were_not_run_are_left_blank(tmp_path):
    (kept, *_), path = conduct(FIG6, "ci", Context(tmp_path)), tmp_path / "part.png"
    FIG6.draw([kept, {**kept, "task": "slcp", "train": 1000}], path)
    assert path.stat().st_size > 1000

"""Jobs of the published tests, in a given time: which, what they are made of, and what is left."""

import json
import tarfile

import pytest
import torch

from assay._support.random import stream
from experiments import authors, blocks, cells, couplings, gpu, published, runner
from experiments.blocks import Blocks, Posteriors
from experiments.flows import SbiNSF, _AsZuko
from experiments.material import Recipe, Setting, flow
from experiments.networks import Batched, two_layers
from experiments.runner import Clock, Runner, done, expected
from experiments.runs import Context, Records
from experiments.stacked import Torch

TASK = "two_moons"


@pytest.fixture(scope="module")
def context(tmp_path_factory):
    """Where a flow of the paper's kind is, hardly trained."""
    found = Context(tmp_path_factory.mktemp("flows"))
    flow(Recipe(TASK, 200, 3, "SbiNSF"), found)
    return found


def jobs_of(*stages):
    return [job for job in cells.jobs("ci", stages or tuple(cells.STAGES)) if "kind" in job]


@pytest.fixture
def printed(monkeypatch):
    """Two Moons alone has informative cells."""
    rate = {TASK: 0.5}
    monkeypatch.setattr(cells, "printed_rate", lambda cell: rate.get(cell["task"], 1.0))


def test_cells_have_fifty_runs_where_a_difference_can_show(printed):
    jobs = [job for job in cells.jobs("paper") if "kind" in job]
    runs = {}
    for job in jobs:
        cell = tuple(job[key] for key in ("task", "train", "cal", "right", "method"))
        runs[cell] = [*runs.get(cell, []), *range(job["first"], job["first"] + job["runs"])]
    # Power along N_train and N_cal, and level along N_cal; three methods and six tasks.
    assert len(runs) == 6 * 3 * (4 + 2 * 6 - 1)
    for cell, each in runs.items():
        assert each == list(range(50 if cell[0] == TASK else 10))
    assert len({json.dumps(job, sort_keys=True) for job in jobs}) == len(jobs)


def test_panels_are_done_one_after_the_other(printed):
    jobs = cells.jobs("paper", ("power",))
    panels = [(job["task"], job["method"], job["train"] != cells.FIXED_TRAIN) for job in jobs]
    changes = sum(a != b for a, b in zip(panels, panels[1:], strict=False))
    assert changes == len(set(panels)) - 1
    more = cells.jobs("paper", ("power-more",))
    assert {job["task"] for job in more} == {TASK}
    assert {(job["first"], job["runs"]) for job in more} == {(10, 40)}


def test_jobs_on_samples_are_those_of_samples():
    from experiments import samples

    mine = [job for job in cells.jobs("paper", ("samples",)) if job["cal"] in (100, 10_000)]
    theirs = [{k: job[k] for k in mine[0]} for job in samples.jobs("paper")]
    assert all(job in theirs for job in mine)


def by_one(job, context, run):
    """What the published trials find in a run."""
    recipe = Recipe.of(job)
    setting = Setting(recipe, flow(recipe, context), job["cal"], run, job["draws"], job["right"])
    if job["method"].endswith("NF"):
        pairs = setting.latents.theta, setting.latents.x
        trial = published.trial_of_lc2st_nf(pairs, setting.x_o, job["nulls"], 50, run=run)
    else:
        sets, generator = setting.sets(1), stream(0, recipe.task, recipe.train, "observations")
        there = setting.x_o, setting.flow.sample_each(setting.x_o, 50, generator)
        pairs = sets.theta, sets.x, sets.theta_q[:, 0]
        trial = published.trial_of_lc2st(pairs, there, job["nulls"], run=run)
    ((statistic, null),) = published.together(Batched(two_layers(setting.task.m)), [trial])
    return statistic.tolist(), published.pvalue(statistic, null).tolist()


@pytest.mark.parametrize("stage", ["power", "level"])
def test_runs_are_those_of_the_published_trials(context, stage):
    """With draws of q at observations that are those of all runs."""
    for job in jobs_of(stage):
        found = done({**job, "first": 2}, Blocks(context), Torch()).found["each"]
        assert [one["run"] for one in found] == [2, 3]
        for one in found:
            statistic, pvalue = by_one(job, context, one["run"])
            assert one["statistic"] == pytest.approx(statistic, rel=1e-2, abs=1e-5)
            assert one["pvalue"] == pytest.approx(pvalue, abs=0.12)


def test_oracles_have_draws_of_their_own_in_each_run(context):
    (job,) = jobs_of("oracle")
    stack = Blocks(context).stack(job)
    # Two runs and a null at ten observations, of q and of the true posterior.
    left = stack.rows.left.reshape(3, 10, 2, 60, 2)
    assert len({tuple(row.tolist()) for row in left.flatten(0, 3)}) == 3 * 10 * 2 * 60
    truth = left[:, :, 1].abs()
    assert (truth <= 1).all()
    assert stack.places.draws.shape == (10 * 2 * 50, 2)
    (job,) = jobs_of("oracle-level")
    stack = Blocks(context).stack(job)
    assert (stack.rows.left.reshape(3, 10, 2, 60, 2)[:, :, 1].abs() > 1).any()


def test_posteriors_are_drawn_once(monkeypatch):
    calls = []
    monkeypatch.setattr(
        blocks, "_posterior", lambda *key: calls.append(key) or torch.zeros(5, 2).numpy()
    )
    posteriors = Posteriors()
    assert posteriors.draws("bernoulli_glm_raw", 5, 3).shape == (10, 5, 2)
    posteriors.draws("bernoulli_glm", 5, 3)
    assert calls == [("bernoulli_glm", place, 5, 3) for place in range(10)]


def test_parts_of_the_authors_pairs():
    from experiments.samples import Theirs

    if authors.absent():
        pytest.skip(authors.absent())
    for run in (1, 5):
        theirs = Theirs(TASK, 1000, 2500, run, 10)
        assert torch.equal(blocks.part(theirs.arrays["x_cal"], 2500, run), theirs.latents.x)
    job = {**cells.jobs("ci", ("samples",))[1], "cal": 100}
    stack = Blocks(Context("")).stack(job)
    assert stack.rows.pairs == 100


def test_flows_are_built_without_sbi():
    """The same weights from the same stream, and the same map."""
    for m, d in ((2, 2), (5, 8)):
        pair = []
        for build in (lambda: SbiNSF().build(m, d), lambda: _AsZuko(nsf(m, d))):  # noqa: B023
            torch.manual_seed(0)
            pair.append(build())
        states = [network.state_dict() for network in pair]
        assert list(states[0]) == list(states[1])
        assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
        z, x = torch.randn(9, m), torch.randn(9, d)
        assert torch.equal(*(network(x).transform.inv(z) for network in pair))
    with pytest.raises(ValueError, match="at least two"):
        nsf(1, 2)


def nsf(m, d):
    shape = {"num_transforms": 5, "num_bins": 10, "hidden_features": 50}
    return couplings.build_nsf(m, d, **shape)


def test_the_time_is_kept(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(runner.time, "perf_counter", lambda: now[0])
    clock, job = Clock(100.0), cells.jobs("paper", ("power",))[5]
    clock.start = 0.0
    assert clock.fits(job)
    clock.watch()
    clock.begin(job)
    now[0] = 3 * expected(job)
    clock.end(job, done=True)
    assert 1 < clock.factor < 3
    now[0] = 100.0 - runner.MARGIN - expected(job)
    assert not clock.fits(job)
    now[0] = 100.0
    with pytest.raises(runner.Late):
        clock.watch()


def test_a_runner_does_what_fits_and_keeps_it(context, tmp_path):
    jobs = jobs_of("power", "level")
    records = Records(tmp_path / "records.jsonl")
    records.add(jobs[1], {"each": []})
    left = Runner(Blocks(context), Torch(), records, Clock(1e6)).run(jobs, workers=2)
    assert left == []
    again = Records(records.path)
    assert again[jobs[1]] == {"each": []}
    assert len(again[jobs[0]]["each"][0]["pvalue"]) == 10
    assert Runner(Blocks(context), Torch(), Records(tmp_path / "none"), Clock(5)).run(jobs) == jobs


def test_a_runner_ends_where_all_fails(context, tmp_path, capsys):
    jobs = [{**job, "task": task} for job in jobs_of() for task in ("slcp", "bernoulli_glm")]
    records = Records(tmp_path / "records.jsonl")
    broken = Blocks(context)
    broken.stack = lambda job: 1 / 0
    assert Runner(broken, Torch(), records, Clock(1e6)).run(jobs, 1) == jobs
    assert capsys.readouterr().err.count("ZeroDivisionError") == runner.FAILURES


def run(out, context, *further):
    words = ["run", "--out", str(out), "--flows", str(context.folder), "--device", "cpu"]
    words += ["--engine", "torch", "--budget", "ci", "--processes", "1", "--workers", "1"]
    gpu.main([*words, *further])


def test_records_are_carried_and_merged(context, tmp_path, capsys):
    run(tmp_path / "a", context, "--stage", "power", "--method", "L-C2ST")
    first = tmp_path / "a" / "published.jsonl"
    assert len(first.read_text().splitlines()) == 1
    run(tmp_path / "b", context, "--stage", "power,oracle-level", "--done", str(first))
    second = tmp_path / "b" / "published.jsonl"
    methods = [json.loads(line)["job"]["method"] for line in second.read_text().splitlines()]
    assert methods == ["published L-C2ST-NF", "published C2ST"]
    assert "1 were done before" in capsys.readouterr().err
    lines = first.read_text() + second.read_text()
    paper = [json.loads(line) for line in lines.splitlines()]
    wanted = {json.dumps(job, sort_keys=True) for job in cells.jobs("paper")}
    # As if they were of the paper's budget.
    done_there = [
        {**one, "job": json.loads(key)} for one, key in zip(paper, sorted(wanted), strict=False)
    ]
    second.write_text("".join(f"{json.dumps(one)}\n" for one in done_there))
    gpu.main(["merge", str(second), str(second), "--into", str(tmp_path / "c")])
    whole = json.loads((tmp_path / "c" / "published.json").read_text())
    assert whole["missing"] == sum("kind" in job for job in cells.jobs("paper")) - 3
    assert len(whole["results"]) == sum(len(one["found"]["each"]) for one in done_there)


def test_flows_are_trained_and_packed(context, tmp_path, monkeypatch):
    recipe = Recipe(TASK, 200, 3, "SbiNSF")
    assert gpu.missing_flows(context) == gpu.missing_flows(Context(tmp_path))
    monkeypatch.setattr(gpu, "missing_flows", lambda *_: [recipe])
    monkeypatch.setattr(gpu, "_begun", lambda one, at: flow(one, at) and Ended())
    words = ["--out", str(tmp_path), "--flows", str(tmp_path / "flows")]
    (tmp_path / "flows").mkdir()
    gpu.main(["flows", *words, "--device", "cpu", "--seconds", "60"])
    with tarfile.open(tmp_path / "flows.tar") as archive:
        assert archive.getnames() == [f"{recipe.name}.safetensors"]
    names = [one.train for one in gpu.missing_flows(Context(tmp_path))]
    assert names == sorted(names, reverse=True)
    assert all(one.kind == "SbiNSF" for one in gpu.missing_flows(Context(tmp_path)))


class Ended:
    """A process that is done."""

    returncode = 0

    def poll(self):
        return 0

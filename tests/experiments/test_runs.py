"""Runs go on where they stopped, and end with the same numbers."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from experiments.runs import Context, Experiment, Records, completed, conduct, seed

JOBS = [{"n": n, "name": "a"} for n in range(6)]


def square(job, context=None):
    return {"square": job["n"] ** 2 / 3}


def experiment(run=square):
    def draw(found, path):
        path.write_text(str(len(found)))

    return Experiment("toy", "Squares.", lambda budget: JOBS, run, str, draw)


def test_all_jobs_are_done_in_their_order(tmp_path):
    found = completed(JOBS, square, Records(tmp_path / "r.jsonl"))
    assert [row["square"] for row in found] == [n**2 / 3 for n in range(6)]
    assert found[1]["name"] == "a"


def test_any_executor(tmp_path):
    with ThreadPoolExecutor(3) as pool:
        found = completed(JOBS, square, Records(tmp_path / "r.jsonl"), pool)
    assert found == completed(JOBS, square, Records(tmp_path / "s.jsonl"))


def test_nothing_is_done_twice(tmp_path):
    done = []
    for _ in range(2):
        records = Records(tmp_path / "r.jsonl")
        completed(JOBS, lambda job: done.append(job) or square(job), records)
    assert done == JOBS


def test_only_what_is_to_be_done_is_prepared(tmp_path):
    seen = []

    def prepare(todo, context, executor):
        seen.append([job["n"] for job in todo])

    toy, context = replace(experiment(), prepare=prepare, partial=True), Context(tmp_path)
    for only in ({"n": ["1", "2"]}, None, None):
        conduct(toy, "ci", context, only=only)
    assert seen == [[1, 2], [0, 3, 4, 5]]


def told(context):
    """The JSON that a run left, but for its seconds."""
    found = json.loads((context.folder / "toy.json").read_text())
    return {**found, "jobs": [one[:2] for one in found["jobs"]]}


class Killed(BaseException):
    pass


@pytest.mark.parametrize("cut", [0, 7])
def test_a_killed_run_goes_on(tmp_path, cut):
    """Stopped after three jobs, and in the middle of a line; the JSON is that of a whole run."""
    left = [3]

    def mortal(job, context):
        if not left[0]:
            raise Killed
        left[0] -= 1
        return square(job)

    stopped, whole = (Context(tmp_path / name) for name in ("stopped", "whole"))
    with pytest.raises(Killed):
        conduct(experiment(mortal), "smoke", stopped)
    path = stopped.folder / "toy.jsonl"
    if cut:
        path.write_bytes(path.read_bytes()[:-cut])
    assert len(Records(path).found) == 3 - bool(cut)
    conduct(experiment(), "smoke", stopped)
    conduct(experiment(), "smoke", whole)
    assert told(stopped) == told(whole)
    assert told(whole)["results"][5] == {"n": 5, "name": "a", "square": 25 / 3}
    assert (whole.folder / "toy.png").read_text() == "6"


@pytest.mark.parametrize(
    "line", [b"{", b"[1]", b"null", b'{"job": 1, "found": {}}', b'{"found": {}}', b"\xff\x00", b""]
)
def test_a_bad_line_is_named_and_left_out(tmp_path, line):
    path = tmp_path / "r.jsonl"
    completed(JOBS[:3], square, Records(path))
    first, second, third = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, line, third, b""]))
    with pytest.warns(UserWarning, match=r"r.jsonl, line 2: no record; it is left out"):
        records = Records(path)
    assert [job in records for job in JOBS[:3]] == [True, False, True]
    completed(JOBS[:3], square, records)
    # Nothing is rewritten; what was lost is added.
    assert path.read_bytes() == b"\n".join([first, line, third, second, b""])


def _added(path, who):
    records = Records(path)
    for n in range(200):
        records.add({"n": n, "who": who}, {"much": "x" * 20_000})
    return len(Records(path).found)


def test_writers_are_kept_apart(tmp_path):
    """Each opens the file by itself, so that threads are kept apart as processes are."""
    path = tmp_path / "r.jsonl"
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(_added, [path] * 3, range(3)))
    # Without a warning: every line is whole.
    assert len(Records(path).found) == 600


def test_what_jobs_were_made_with(tmp_path):
    toy = replace(experiment(), partial=True)
    conduct(toy, "ci", Context(tmp_path, "cuda"), only={"n": ["0"]})
    conduct(toy, "ci", Context(tmp_path))
    made = json.loads((tmp_path / "toy.json").read_text())["made"]
    assert [one["device"] for one in made] == ["cpu", "cuda"]
    assert all({"commit", "machine", "torch"} <= one.keys() for one in made)


def test_every_record_has_its_seed_and_seconds(tmp_path):
    """Some records say who made them, and others are older than that."""
    path, slow = tmp_path / "toy.jsonl", experiment(lambda job, context: time.sleep(0.02) or {})
    path.write_text(json.dumps({"job": JOBS[0], "found": {}}) + "\n")
    conduct(slow, "ci", Context(tmp_path))
    (old, *new), made = (
        json.loads((tmp_path / "toy.json").read_text())[k] for k in ("jobs", "made")
    )
    assert (made[old[0]], old[1:3]) == ({}, [None, None])
    assert all(made[i]["device"] == "cpu" and s == 0 and t >= 0.02 for i, s, t, _ in new)
    assert seed({"run": 3}) == seed({"first": 3}) == 3


def test_parameters_are_not_in_paths(tmp_path):
    conduct(experiment(), "smoke", Context(tmp_path))
    assert {p.name for p in tmp_path.iterdir()} == {"toy.json", "toy.jsonl", "toy.png"}


def test_other_parameters_are_another_job(tmp_path):
    records = Records(tmp_path / "r.jsonl")
    completed(JOBS, square, records)
    assert {"n": 0, "name": "b"} not in records
    assert {"name": "a", "n": 0} in records


def test_numbers_that_json_cannot_hold_are_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        completed(JOBS, lambda job: {"x": float("nan")}, Records(tmp_path / "r.jsonl"))


def test_a_part_of_the_jobs(tmp_path):
    """Records of parts are joined, and the JSON of all parts is that of a whole run."""
    part, whole = (Context(tmp_path / name) for name in ("part", "whole"))
    conduct(experiment(), "smoke", part, only={"n": ["1", "4"]})
    assert not (part.folder / "toy.json").exists()
    conduct(replace(experiment(), partial=True), "smoke", part, only={"n": ["4", "5"]})
    found = json.loads((part.folder / "toy.json").read_text())
    assert [row["n"] for row in found["results"]] == [1, 4, 5]
    assert found["missing"] == 3
    for context in (part, whole):
        conduct(experiment(), "smoke", context)
    assert told(part) == told(whole)
    with pytest.raises(ValueError, match="only: expected parameters of a job of toy"):
        conduct(experiment(), "smoke", part, only={"n": ["7"]})


def test_records_that_are_gone_are_made_of_the_json(tmp_path):
    """Nothing is done twice, and what made a job is still known."""

    def both(job, context):
        return {"each": [{"sign": s, "root": s * job["n"]} for s in (1, -1)]}

    toy, context = replace(experiment(both), partial=True), Context(tmp_path)
    conduct(toy, "ci", context, only={"n": ["1", "4"]})
    first, path = (tmp_path / "toy.json").read_text(), tmp_path / "toy.jsonl"
    path.unlink()
    never = replace(toy, run=lambda job, context: pytest.fail("done twice"))
    conduct(never, "ci", context, only={"n": ["1"]})
    assert (tmp_path / "toy.json").read_text() == first
    conduct(toy, "ci", context)
    assert json.loads((tmp_path / "toy.json").read_text())["missing"] == 0


def test_a_budget_that_has_changed_keeps_what_is_still_a_job(tmp_path):
    """With what made it: the others are neither restored nor mistaken for it."""
    toy, context = experiment(), Context(tmp_path)
    conduct(toy, "smoke", context)
    path = tmp_path / "toy.jsonl"
    kept = [line for line in path.read_text().splitlines() if json.loads(line)["job"]["n"] > 2]
    path.unlink()
    fewer = replace(toy, jobs=lambda budget: [job for job in toy.jobs(budget) if job["n"] > 2])
    conduct(fewer, "smoke", context, only={"n": ["3"]})
    again = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one["made"] for one in again] == [json.loads(line)["made"] for line in kept]


def test_several_rows_of_a_job(tmp_path):
    def both(job):
        return {"each": [{"sign": s, "root": s * job["n"]} for s in (1, -1)]}

    found = completed(JOBS[:2], both, Records(tmp_path / "r.jsonl"))
    assert [(row["n"], row["root"]) for row in found] == [(0, 0), (0, 0), (1, 1), (1, -1)]

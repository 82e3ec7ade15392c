"""Runs: jobs of plain parameters, each done once and kept as soon as it is done.

An experiment is a list of jobs and a function that does one. What a job found is written behind
the parameters that made it, one line each, so that an interrupted run goes on where it stopped and
ends with the same numbers as one that was never interrupted. Lines are only ever added, by one
process at a time; one that is no record is named and left out.
"""

import hashlib
import json
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import IO, Any

import torch
from tqdm import tqdm

from assay._support.files import atomic_write
from assay._support.work import run_jobs
from assay.results import versions

if sys.platform != "win32":
    import fcntl

__all__ = ["Context", "Experiment", "Job", "Records", "assembled", "completed", "conduct"]

Job = dict[str, Any]
Found = tuple[dict[str, Any], float]


@dataclass(frozen=True)
class Context:
    """Where an experiment is run.

    Args:
        folder: Where its files go.
        device: Where networks are trained.
    """

    folder: Path
    device: str = "cpu"


@dataclass(frozen=True)
class Experiment:
    """One figure or table.

    Args:
        name: Its name on the command line.
        about: What it shows, in one sentence.
        jobs: The jobs of a budget, by its name.
        run: Does one job, given as its only argument beside ``context``.
        table: What is printed of all that was found.
        draw: Draws it into a file; None for a table.
        prepare: Makes what jobs that are still to be done share, with an executor or without; None
            if nothing.
        partial: Whether some of the jobs make a table and a figure of their own.
        absent: Says what it needs that is not here; empty, or None, if all is.
    """

    name: str
    about: str
    jobs: Callable[[str], list[Job]]
    run: Callable[..., dict[str, Any]]
    table: Callable[[list[dict[str, Any]]], str]
    draw: Callable[[list[dict[str, Any]], Path], None] | None = None
    prepare: Callable[[list[Job], Context, Executor | None], None] | None = None
    partial: bool = False
    absent: Callable[[], str] | None = None


class Records:
    """What jobs have found, in a file of one line each, and what they were made with.

    Args:
        path: The file; it need not exist.
        device: Where networks are trained now.
    """

    def __init__(self, path: Path, device: str = "cpu") -> None:
        self.path = path
        self.found: dict[str, dict[str, Any]] = {}
        self.made: dict[str, dict[str, str]] = {}
        self.now = made_with(device)
        for record in self._lines():
            self._keep(record)

    def _keep(self, record: dict[str, Any]) -> None:
        key = _key(record["job"])
        self.found[key] = record["found"]
        self.made[key] = record.get("made", {})

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        with self._alone() as file:
            file.seek(0)
            lines = file.read().splitlines()
        for number, line in enumerate(lines, 1):
            record = _record(line)
            if record is None:
                said = f"{self.path}, line {number}: no record; it is left out, and done again."
                warnings.warn(said, stacklevel=3)
            else:
                yield record

    @contextmanager
    def _alone(self) -> Iterator[IO[bytes]]:
        """The file, to append to, as long as no other process does."""
        with self.path.open("a+b") as file:
            if sys.platform != "win32":
                fcntl.flock(file, fcntl.LOCK_EX)
            _mend(file)
            yield file

    def __contains__(self, job: Job) -> bool:
        return _key(job) in self.found

    def __getitem__(self, job: Job) -> dict[str, Any]:
        return self.found[_key(job)]

    def add(self, job: Job, found: dict[str, Any], seconds: float = 0.0) -> None:
        """Keeps what a job found, and how long it took."""
        made = {**self.now, "seed": seed(job), "seconds": round(seconds, 2)}
        record = {"job": job, "found": found, "made": made}
        line = json.dumps(record, allow_nan=False)
        with self._alone() as file:
            file.write(f"{line}\n".encode())
        # As it would be read again.
        self._keep(json.loads(line))

    def makers(self, jobs: Sequence[Job]) -> list[dict[str, str]]:
        """Commits, machines and versions that some jobs were done with, each once."""
        texts = {_key(_common(self.made[_key(job)])) for job in jobs if job in self}
        return [json.loads(text) for text in sorted(texts)]

    def provenance(self, jobs: Sequence[Job]) -> list[list[Any]]:
        """Of each job that is done: which of the makers, its seed, its seconds, and its mark."""
        makers = self.makers(jobs)
        each = [(_mark(job), self.made[_key(job)]) for job in jobs if job in self]
        return [
            [makers.index(_common(m)), m.get("seed"), m.get("seconds"), mark] for mark, m in each
        ]


def _mend(file: IO[bytes]) -> None:
    """Takes away a line that was cut off when a run was killed."""
    file.seek(max(0, file.seek(0, os.SEEK_END) - 1))
    if file.read(1) not in (b"", b"\n"):
        file.seek(0)
        file.truncate(file.read().rfind(b"\n") + 1)


def _record(line: bytes) -> dict[str, Any] | None:
    """The record of a line, or None if it is none."""
    try:
        record = json.loads(line)
        parts = [record["job"], record["found"], record.get("made", {})]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return record if all(isinstance(part, dict) for part in parts) else None


def _key(job: Job) -> str:
    return json.dumps(job, sort_keys=True)


def _mark(job: Job) -> str:
    """By which a job is known from others."""
    return hashlib.blake2b(_key(job).encode(), digest_size=6).hexdigest()


def _common(made: dict[str, Any]) -> dict[str, Any]:
    """What a job was made with, but for what is its own."""
    return {key: value for key, value in made.items() if key not in ("seed", "seconds")}


def seed(job: Job) -> int:
    """The number on which all chance in a job depends: its run, or the first of them."""
    return int(next((job[key] for key in ("run", "first") if key in job), 0))


def made_with(device: str) -> dict[str, str]:
    """The commit, the machine, and versions."""
    return {"commit": _commit(), "machine": _machine(device), "device": device, **versions()}


@cache
def _commit() -> str:
    """The commit of the sources, and whether they were changed since; empty without git."""
    named = _git("rev-parse", "--short", "HEAD")
    # Records and pages may change while a run is on.
    changed = _git("status", "--short", "src", "experiments")
    return f"{named}-dirty" if changed else named


def _git(*words: str) -> str:
    root = Path(__file__).parents[1]
    try:
        found = subprocess.run(
            ["git", *words], cwd=root, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return found.stdout.strip()


def _machine(device: str) -> str:
    """The kind of processor, and of GPU; nothing by which one machine is known from another."""
    name = f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores"
    gpu = device.startswith("cuda") and torch.cuda.is_available()
    return f"{name}, {torch.cuda.get_device_name(device)}" if gpu else name


def completed(
    jobs: Sequence[Job],
    run: Callable[[Job], dict[str, Any]],
    records: Records,
    executor: Executor | None = None,
) -> list[dict[str, Any]]:
    """Does the jobs that are not done, and returns what all have found, in their order.

    What a job found is one row behind its parameters, or several, in a list called ``each``.

    Args:
        jobs: The jobs.
        run: Does one.
        records: What was found before; new findings are added as they come.
        executor: Any executor; one job after the other if None.
    """
    todo = [job for job in jobs if job not in records]
    bar = tqdm(total=len(jobs), initial=len(jobs) - len(todo), unit="job", disable=None)
    with bar:
        for job, (found, seconds) in _done(todo, partial(_timed, run), executor):
            records.add(job, found, seconds)
            bar.update()
    return _rows(jobs, records)


def _timed(run: Callable[[Job], dict[str, Any]], job: Job) -> Found:
    """What a job found, and its seconds."""
    start = time.perf_counter()
    return run(job), time.perf_counter() - start


def _rows(jobs: Sequence[Job], records: Records) -> list[dict[str, Any]]:
    """What jobs have found, behind their parameters; nothing of those that are not done."""
    done = [(job, records[job]) for job in jobs if job in records]
    return [{**job, **one} for job, found in done for one in found.get("each", [found])]


def _done(
    todo: Sequence[Job], run: Callable[[Job], Found], executor: Executor | None
) -> Iterator[tuple[Job, Found]]:
    # A job whose worker died is done by another.
    yield from ((todo[number], found) for number, found in run_jobs(executor, run, todo))


def conduct(
    experiment: Experiment,
    budget: str,
    context: Context,
    executor: Executor | None = None,
    only: Mapping[str, Collection[str]] | None = None,
) -> list[dict[str, Any]]:
    """Runs an experiment; leaves its records, and a JSON file and a figure of all that is done.

    Args:
        experiment: The experiment.
        budget: The name of its budget.
        context: Where.
        executor: Any executor.
        only: Values that parameters of a job must have to be done now, as text; any if None.
    """
    context.folder.mkdir(parents=True, exist_ok=True)
    jobs = experiment.jobs(budget)
    chosen = [job for job in jobs if all(str(job.get(k)) in v for k, v in (only or {}).items())]
    if not chosen:
        raise ValueError(f"only: expected parameters of a job of {experiment.name}, got {only}")
    path = context.folder / f"{experiment.name}.jsonl"
    if not path.exists():
        _restore(path, jobs)
    records = Records(path, context.device)
    todo = [job for job in chosen if job not in records]
    if experiment.prepare is not None and todo:
        experiment.prepare(todo, context, executor)
    completed(chosen, partial(experiment.run, context=context), records, executor)
    # What is prepared may be a parameter of the jobs.
    return assembled(experiment, budget, context, records, jobs)


def assembled(
    experiment: Experiment,
    budget: str,
    context: Context,
    records: Records,
    jobs: list[Job] | None = None,
) -> list[dict[str, Any]]:
    """Leaves a JSON file and a figure of all that is recorded, and returns it.

    Args:
        experiment: The experiment.
        budget: The name of its budget.
        context: Where.
        records: What is recorded.
        jobs: The jobs of that budget, as they were prepared; as they are listed if None.
    """
    jobs = experiment.jobs(budget) if jobs is None else jobs
    found = _rows(jobs, records)
    missing = sum(job not in records for job in jobs)
    if missing and not experiment.partial:
        return found
    whole = {
        "experiment": experiment.name,
        "about": experiment.about,
        "budget": budget,
        "missing": missing,
        "made": records.makers(jobs),
        "jobs": records.provenance(jobs),
        "results": found,
    }
    with atomic_write(context.folder / f"{experiment.name}.json") as file:
        file.write(_text(whole).encode())
    if experiment.draw is not None:
        # What is drawn may lie beside it.
        experiment.draw(found, context.folder / f"{experiment.name}.png")
    return found


def _restore(path: Path, jobs: Sequence[Job]) -> None:
    """Makes records of the JSON file of a run, where they are gone and it is there."""
    kept = path.with_suffix(".json")
    if not kept.exists():
        return
    whole = json.loads(kept.read_text(encoding="utf-8"))
    known: dict[str, list[dict[str, Any]]] = {}
    for keys in dict.fromkeys(tuple(job) for job in jobs):
        for row in whole["results"]:
            if all(key in row for key in keys):
                found = {k: v for k, v in row.items() if k not in keys}
                known.setdefault(_key({k: row[k] for k in keys}), []).append(found)
    # Where budgets have changed, some of what was done is no job any more.
    made = {mark: _made(whole, *rest) for *rest, mark in whole.get("jobs", [])}
    lines = [
        json.dumps({"job": job, "found": {"each": known[_key(job)]}, "made": one})
        for job in jobs
        if _key(job) in known
        for one in [made.get(_mark(job), {})]
    ]
    with atomic_write(path) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())


def _made(whole: dict[str, Any], maker: int, seed: int | None, seconds: float | None) -> Any:
    """What one job was made with, if that was kept."""
    own = {"seed": seed, "seconds": seconds}
    return whole["made"][maker] | {k: v for k, v in own.items() if v is not None}


def _text(whole: dict[str, Any]) -> str:
    """JSON with a line for each entry, and one for each of the results."""
    entries = {key: json.dumps(value, allow_nan=False) for key, value in whole.items()}
    rows = ",\n  ".join(json.dumps(row, allow_nan=False) for row in whole["results"])
    entries["results"] = f"[\n  {rows}\n ]"
    lines = ",\n".join(f" {json.dumps(key)}: {value}" for key, value in entries.items())
    return f"{{\n{lines}\n}}\n"

"""Runs: jobs of plain parameters, each done once and kept as soon as it is done.

An experiment is a list of jobs and a function that does one. What a job found is written behind
the parameters that made it, one line each, so that an interrupted run goes on where it stopped and
ends with the same numbers as one that was never interrupted.
"""

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tqdm import tqdm

from assay._core import over
from assay.results import versions

__all__ = ["Context", "Experiment", "Job", "Records", "completed", "conduct"]

Job = dict[str, Any]


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
        self.now = {"device": device, **versions()}
        for record in self._lines():
            self._keep(record)

    def _keep(self, record: dict[str, Any]) -> None:
        key = _key(record["job"])
        self.found[key] = record["found"]
        self.made[key] = record.get("made", {})

    def _lines(self) -> Iterator[dict[str, Any]]:
        if not self.path.exists():
            return
        whole = self.path.read_bytes()
        # A line that was cut off when a run was killed is no record, and must not stay.
        kept = whole[: whole.rfind(b"\n") + 1]
        if len(kept) < len(whole):
            self.path.write_bytes(kept)
        for line in kept.splitlines():
            yield json.loads(line)

    def __contains__(self, job: Job) -> bool:
        return _key(job) in self.found

    def __getitem__(self, job: Job) -> dict[str, Any]:
        return self.found[_key(job)]

    def add(self, job: Job, found: dict[str, Any]) -> None:
        """Keeps what a job found."""
        record = {"job": job, "found": found, "made": self.now}
        line = json.dumps(record, allow_nan=False)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")
        # As it would be read again.
        self._keep(json.loads(line))

    def makers(self, jobs: Sequence[Job]) -> list[dict[str, str]]:
        """Devices and versions that some jobs were done with, each once."""
        texts = {_key(self.made[_key(job)]) for job in jobs if job in self}
        return [json.loads(text) for text in sorted(texts)]


def _key(job: Job) -> str:
    return json.dumps(job, sort_keys=True)


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
        for job, found in _done(todo, run, executor):
            records.add(job, found)
            bar.update()
    return _rows(jobs, records)


def _rows(jobs: Sequence[Job], records: Records) -> list[dict[str, Any]]:
    """What jobs have found, behind their parameters; nothing of those that are not done."""
    done = [(job, records[job]) for job in jobs if job in records]
    return [{**job, **one} for job, found in done for one in found.get("each", [found])]


def _done(
    todo: Sequence[Job], run: Callable[[Job], dict[str, Any]], executor: Executor | None
) -> Iterator[tuple[Job, dict[str, Any]]]:
    # A job whose worker died is done by another.
    yield from ((todo[number], found) for number, found in over(executor, run, todo))


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
    records = Records(context.folder / f"{experiment.name}.jsonl", context.device)
    todo = [job for job in chosen if job not in records]
    if experiment.prepare is not None and todo:
        experiment.prepare(todo, context, executor)
    completed(chosen, partial(experiment.run, context=context), records, executor)
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
        "results": found,
    }
    (context.folder / f"{experiment.name}.json").write_text(_text(whole), encoding="utf-8")
    if experiment.draw is not None:
        experiment.draw(found, context.folder / f"{experiment.name}.png")
    return found


def _text(whole: dict[str, Any]) -> str:
    """JSON with a line for each entry, and one for each of the results."""
    entries = {key: json.dumps(value, allow_nan=False) for key, value in whole.items()}
    rows = ",\n  ".join(json.dumps(row, allow_nan=False) for row in whole["results"])
    entries["results"] = f"[\n  {rows}\n ]"
    lines = ",\n".join(f" {json.dumps(key)}: {value}" for key, value in entries.items())
    return f"{{\n{lines}\n}}\n"

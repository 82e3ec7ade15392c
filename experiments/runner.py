"""A runner of jobs on a GPU in a given time: several at once, so that no part of it waits.

While the last networks of one job are trained those of another begin. All small operations go
before training, whose blocks of threads are long (:mod:`experiments.kernels`). What a job found is
written as soon as it is done, in the form of :mod:`experiments.runs`.
"""

import json
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from .blocks import Blocks
from .cells import SIZES, units
from .networks import two_layers
from .runs import Job, Records
from .stacked import Engine, Stacked

__all__ = ["Clock", "Done", "Late", "Runner", "done", "expected", "say"]

# Operations a second, by units of a layer: what is expected before anything was measured.
SPEED = {20: 6e12, 50: 12e12, 100: 25e12}
# Seconds that a job takes besides, and that count as measured before any job is done.
BESIDES, PRIOR = 0.5, 10.0
# What is left of the time when work that is not done is given up.
MARGIN = 8.0
# Jobs that may fail before no other is begun.
FAILURES = 3


class Late(Exception):  # noqa: N818
    """The time is over."""


@dataclass
class Clock:
    """How much time there is, and how much of it jobs take.

    Args:
        seconds: The time from now on.
    """

    seconds: float
    start: float = field(default_factory=time.perf_counter)
    done: float = 0.0
    under_way: dict[str, float] = field(default_factory=dict)

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.perf_counter() - self.start

    @property
    def factor(self) -> float:
        """How much longer jobs take than they were expected to."""
        expected = self.done + 0.5 * sum(self.under_way.values())
        return (self.elapsed + PRIOR) / (expected + PRIOR)

    def watch(self) -> None:
        """Ends what is under way when there is no time left."""
        if self.elapsed > self.seconds - MARGIN:
            raise Late

    def fits(self, job: Job) -> bool:
        """Whether a job would be done in time, behind those that are under way."""
        ahead = expected(job) + sum(self.under_way.values())
        return self.elapsed + self.factor * ahead < self.seconds - MARGIN

    def begin(self, job: Job) -> None:
        """A job is under way."""
        self.under_way[_name(job)] = expected(job)

    def end(self, job: Job, *, done: bool) -> None:
        """A job is so no more."""
        seconds = self.under_way.pop(_name(job))
        self.done += seconds if done else 0.0


def expected(job: Job) -> float:
    """Seconds of a job on a GPU, from its operations."""
    m, _ = SIZES[job["task"]]
    return BESIDES + units(job) / SPEED.get(10 * m, min(SPEED.values()))


def _name(job: Job) -> str:
    return json.dumps(job, sort_keys=True)


def _queue(device: torch.device) -> AbstractContextManager[Any]:
    """A queue of operations that go before training."""
    if device.type != "cuda":
        return nullcontext()
    return torch.cuda.stream(torch.cuda.Stream(device, priority=-1))


class Done(NamedTuple):
    """What a job found, and how many epochs its networks were trained on average."""

    found: dict[str, Any]
    epochs: float


def done(job: Job, blocks: Blocks, engine: Engine) -> Done:
    """Does a job."""
    stack = blocks.stack(job)
    trained = Stacked(two_layers(stack.m), engine=engine).train(stack.rows)
    found = stack.judge(engine.ask(trained, stack.places).cpu())
    runs = range(job.get("first", 0), job.get("first", 0) + job["runs"])
    each = [{"run": run, **one} for run, one in zip(runs, found, strict=True)]
    return Done({"each": each}, float(trained.epochs.double().mean()))


class Runner:
    """Does jobs in turn.

    Args:
        blocks: What makes their networks.
        engine: What trains these.
        records: Where findings go.
        clock: The time that there is.
    """

    def __init__(self, blocks: Blocks, engine: Engine, records: Records, clock: Clock) -> None:
        self.blocks, self.engine, self.records, self.clock = blocks, engine, records, clock
        self._lock = threading.Lock()
        self._todo: list[Job] = []
        self.failed = 0

    def run(self, jobs: Sequence[Job], workers: int = 3) -> list[Job]:
        """Does jobs that are not done, those first that come first; returns what is left."""
        self._todo = [job for job in jobs if job not in self.records]
        with ThreadPoolExecutor(workers) as pool:
            for future in [pool.submit(self._work) for _ in range(workers)]:
                future.result()
        return [job for job in jobs if job not in self.records]

    def _work(self) -> None:
        """One after the other, in a thread with a queue of its own."""
        with torch.no_grad(), _queue(self.blocks.device):
            while (job := self._next()) is not None:
                well = self._tried(job)
                with self._lock:
                    self.clock.end(job, done=well)

    def _next(self) -> Job | None:
        """The first job that still fits; none after some have failed."""
        with self._lock:
            for number, job in enumerate(self._todo):
                if self.failed < FAILURES and self.clock.fits(job):
                    self.clock.begin(job)
                    return self._todo.pop(number)
        return None

    def _tried(self, job: Job) -> bool:
        """Does a job and keeps what it finds; whether it did not fail, and time was left."""
        start = time.perf_counter()
        try:
            found, epochs = done(job, self.blocks, self.engine)
            with self._lock:
                self.records.add(job, found, time.perf_counter() - start)
            self._say(job, time.perf_counter() - start, epochs)
        except Late:
            say(f"{_name(job)}: given up, the time is over")
        except Exception:
            self.failed += 1
            say(f"{_name(job)}: {traceback.format_exc()}")
        else:
            return True
        return False

    def _say(self, job: Job, seconds: float, epochs: float) -> None:
        name = job["method"].removeprefix("published ")
        kind = "level" if job["right"] else "power"
        say(
            f"{self.clock.elapsed:6.1f} s  {name}, {kind}, {job['task']} {job['train']} "
            f"{job['cal']}, {job['runs']} runs: {seconds:.1f} s, expected {expected(job):.1f}; "
            f"{epochs:.0f} epochs; factor {self.clock.factor:.2f}"
        )


def say(text: str) -> None:
    """Tells who looks on."""
    print(text, file=sys.stderr, flush=True)  # noqa: T201

r"""Runs a user's simulator: in chunks, anywhere, with failures counted, and kept as it goes.

**Simulations that fail**, by an error, NaN or infinity, are left out. With s = 1 for success and
parameters from a proposal g of weights w over the prior, the pairs that are left have density

.. math:: g(\theta) \, p(x, s = 1 \mid \theta)
    = w(\theta) \, p(\theta \mid x, s = 1) \, p(x, s = 1).

Tests are as exact as ever, for the hypothesis that q is the posterior **given success**. That is
what is learned from pairs of which failed ones were left out. It is not what comes of a
likelihood, unless failures are as frequent for all parameters. No simulation is repeated because
it failed: parameters that fail would then be kept too often. Where one row makes a whole batch
raise an error, all are drawn anew, with other parameters, and simulated one at a time.

**Randomness.** The global generators of torch, NumPy and Python are seeded for every call of the
simulator, so that numbers depend neither on the executor nor on the order of chunks. Code that
keeps a generator of its own cannot be repeated, and may repeat itself in worker processes that
are copies of each other.
"""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._support.files import atomic_write
from .._support.inputs import as_tensors, error_line
from .._support.parallel import run_jobs
from .._support.progress import progress
from .._support.random import isolated, seed_of, stream
from .chunks import Chunk, existing_folder, failed

# Simulations that are made, and kept, together.
TOGETHER = 50
# How often a simulator is tried, in each form.
TRIES = 8
# The share of simulations that may fail.
MOST_FAILED = 0.5
# What files keep, and of what.
_KEPT = ("simulations", "parameters")

Simulator = Callable[[Any], Any]
# Parameters (n, m) for a number n and a seed.
Draw = Callable[[int, int], Tensor]


@dataclass(frozen=True)
class Form:
    """How a simulator is called, and what it returns.

    Args:
        rows: How many parameter vectors it takes at a time; 0 if one, without a leading axis.
        numpy: Whether it takes NumPy arrays; tensors otherwise.
        shape: The shape of one observation.
        dtype: The precision of observations.
        repeats: Whether the same seeds give the same observations.
    """

    rows: int
    numpy: bool
    shape: tuple[int, ...] = ()
    dtype: str = "float64"
    repeats: bool = False

    @property
    def words(self) -> str:
        """How many at a time."""
        return f"{self.rows} at a time" if self.rows > 1 else "one at a time"

    def call(self, simulator: Simulator, theta: np.ndarray, seed: int, *key: int) -> np.ndarray:
        """Observations (b, ...) of parameters (b, m), all in one call."""
        given = theta if self.rows else theta[0]
        # A copy: what was simulated must not change under the simulator's hands.
        given = given.copy() if self.numpy else torch.from_numpy(given.copy())
        with isolated(stream(seed, *key)), torch.no_grad():
            x = as_tensors({"simulator": simulator(given)})["simulator"].cpu().numpy()
        return x if self.rows else x[None]


@dataclass(frozen=True, eq=False)
class Simulated:
    """Simulations that succeeded, how many others failed, and how the simulator was called.

    Parameters have shape (n, m), observations (n, ...); the first error is empty if failures were
    NaN or infinity.
    """

    theta: Tensor
    x: Tensor
    failed: int
    error: str
    form: Form


@dataclass(frozen=True, eq=False)
class Runner:
    """Runs a simulator that is called in a known form.

    Args:
        simulator: The simulator.
        form: How it is called.
        seed: Names the streams of its random numbers.
        executor: Any executor; everything is run here if None.
        folder: Where simulations are kept; nowhere if None.
        most_failed: The share of simulations that may fail.
    """

    simulator: Simulator
    form: Form
    seed: int
    executor: Executor | None = None
    folder: Path | None = None
    most_failed: float = MOST_FAILED

    def repeat(self, stage: str, theta: Tensor, n: int) -> Simulated:
        """Simulates the same parameters (m,) n times; any number may fail."""
        return replace(self, most_failed=1.0).run(stage, lambda b, _: theta.repeat(b, 1), n)

    def run(self, stage: str, draw: Draw, n: int) -> Simulated:
        """Simulates n parameters that are drawn; anew and one at a time where a batch fails."""
        try:
            return self._run(stage, draw, n)
        except _BatchFailed:
            return replace(self, form=replace(self.form, rows=1))._run(stage, draw, n)

    def _run(self, stage: str, draw: Draw, n: int) -> Simulated:
        # With a seed for each form, parameters that are drawn anew know nothing of what failed.
        seed = seed_of(stream(self.seed, "simulate", stage, self.form.rows))
        theta = draw(n, seed).numpy()
        parts = [theta[i : i + TOGETHER] for i in range(0, n, TOGETHER)]
        files = [self._file(stage, i) for i in range(len(parts))]
        done = {
            i: Chunk.read(f, parts[i], *_KEPT) for i, f in enumerate(files) if f and f.exists()
        }
        todo = {i: part for i, part in enumerate(parts) if i not in done}
        self._check(done, n)
        with progress(desc=f"simulating: {stage}", total=n, unit="simulation") as bar:
            bar.update(sum(len(chunk.made) for chunk in done.values()))
            for i, chunk in self._finished(todo, seed):
                chunk.write(files[i])
                done[i] = chunk
                bar.update(len(chunk.made))
                self._check(done, n)
        return self._kept([done[i] for i in range(len(parts))])

    def _finished(self, todo: dict[int, np.ndarray], seed: int) -> Iterator[tuple[int, Chunk]]:
        """Chunks as they are done."""
        work, numbers = partial(_simulated, self.simulator, self.form, seed), list(todo)
        found = run_jobs(self.executor, work, todo.items())
        try:
            yield from ((numbers[i], chunk) for i, chunk in found)
        except Exception as error:
            if self.executor is None or str(error).startswith("executor: "):
                raise
            raise RuntimeError(
                "executor: expected one that runs the simulator; it failed with: "
                f"{error_line(error)}. "
                "Worker processes need a function of a module that they can import."
            ) from error

    def _check(self, done: dict[int, Chunk], n: int) -> None:
        """Refuses a simulator that mostly fails, and batches that fail as a whole."""
        errors = [done[i].error for i in sorted(done) if done[i].error]
        if errors and self.form.rows > 1:
            raise _BatchFailed
        bad = sum(int(chunk.failed.sum()) for chunk in done.values())
        if bad > self.most_failed * n:
            raise ValueError(
                f"simulator: expected simulations most of which succeed; {bad} of "
                f"{sum(len(chunk.made) for chunk in done.values())} failed, the first with: "
                f"{(errors or ['NaN or infinity'])[0]}"
            )

    def _kept(self, chunks: list[Chunk]) -> Simulated:
        theta, x = (np.concatenate([chunk[part] for chunk in chunks]) for part in (0, 1))
        good, error = ~failed(x), next((chunk.error for chunk in chunks if chunk.error), "")
        kept = torch.from_numpy(theta[good]), torch.from_numpy(x[good])
        return Simulated(*kept, int((~good).sum()), error, self.form)

    def _file(self, stage: str, chunk: int) -> Path | None:
        name = f"{stage}-{self.form.rows}-{chunk:05d}.npz"
        return None if self.folder is None else self.folder / name


class _BatchFailed(Exception):
    """One of several rows that were simulated together raised an error."""


class _Refused(ValueError):
    """The simulator can be called, but its numbers are of no use."""


def form_of(simulator: Simulator, draw: Draw, x_o: Tensor, seed: int) -> Form:
    """Finds out how a simulator is called, on parameters that are used for nothing else.

    Its observations must be like x_o, of shape (...,) for one or (o, ...) for many.

    Example:
        >>> def draw(n, seed):
        ...     return torch.rand(n, 2)
        >>> form_of(lambda theta: theta + torch.randn(theta.shape), draw, torch.ones(2), 0).words
        '50 at a time'
        >>> form_of(lambda theta: theta[0] + np.random.randn(2), draw, torch.ones(2), 0).words
        'one at a time'
    """
    seed = seed_of(stream(seed, "simulate", "tried"))
    m = draw(1, seed).shape[1]
    # So many rows that they are no parameters, and no part of an observation.
    batch = next(b for b in range(2, 99) if b not in (m, *x_o.shape))
    theta = draw(2 * batch * TRIES, seed).numpy().reshape(TRIES, 2, batch, m)
    problems: dict[int, str] = {}
    for rows, numpy, i in product((batch, 0), (False, True), range(TRIES)):
        try:
            return _tried(simulator, Form(rows, numpy), theta[i][:, : rows or 1], x_o, seed + i)
        except _Refused:
            raise
        except Exception as problem:
            problems.setdefault(rows, error_line(problem))
    raise ValueError(
        f"simulator: expected a function that takes parameters (b, {m}) and returns observations "
        f"(b, ...), or takes one vector ({m},) and returns one observation, like x_o of shape "
        f"{tuple(x_o.shape)}. From {batch} vectors came: {problems[batch]}. From one came: "
        f"{problems[0]}."
    )


def _tried(simulator: Simulator, form: Form, theta: np.ndarray, x_o: Tensor, seed: int) -> Form:
    """The whole form, by calls with parameters theta (2, b, m)."""
    x = form.call(simulator, theta[0], seed, 0)
    shapes = [tuple(x_o.shape), tuple(x_o.shape[1:])][: x_o.ndim]
    if len(x) != theta.shape[1] or x.shape[1:] not in shapes:
        raise ValueError(f"shape {x.shape if form.rows else x.shape[1:]}")
    if failed(x).all():
        raise ValueError("NaN or infinity")
    # The first row must not depend on the others; where nothing repeats, that cannot be seen.
    mixed = np.concatenate([theta[0, :1], theta[1, 1:]])
    calls = ((theta[0], 0), (mixed, 0), (theta[0], 1))
    again, apart, fresh = (_attempted(form, simulator, rows, seed, key) for rows, key in calls)
    _check_noise(x, fresh)
    repeats = _same(x, again)
    rows = TOGETHER if repeats and _same(x[:1], apart[:1]) else 1
    dtype = min(x.dtype, x_o.cpu().numpy().dtype, key=lambda kind: kind.itemsize)
    return Form(form.rows and rows, form.numpy, x.shape[1:], dtype.name, repeats)


def _check_noise(x: np.ndarray, fresh: np.ndarray) -> None:
    """Refuses a simulator that has one and the same noise in every call; counts may repeat."""
    if _same(x, fresh) and (np.nan_to_num(x) % 1).any():
        raise _Refused(
            "simulator: expected other noise in every call; got the same x twice for the same "
            "parameters. Take random numbers from torch's or NumPy's global generator, and do not "
            "set its seed."
        )


def resumed(
    folder: str | os.PathLike[str], call: dict[str, Any], find: Callable[[], Form]
) -> Form:
    """The form that an earlier run of the same call found, or a new one; refuses another call."""
    file = existing_folder(Path(folder)) / "call.json"
    if not file.exists():
        form = find()
        with atomic_write(file) as handle:
            handle.write(json.dumps({**call, "form": asdict(form)}).encode())
        return form
    before = json.loads(file.read_text(encoding="utf-8"))
    differ = [name for name in call if before.get(name) != call[name]]
    if differ:
        raise ValueError(
            f"resume: expected a folder of the same call; {folder} was made with another "
            f"{' and another '.join(differ)}. Give another folder, or make the same call."
        )
    return Form(**{**before["form"], "shape": tuple(before["form"]["shape"])})


def _simulated(simulator: Simulator, form: Form, seed: int, job: tuple[int, np.ndarray]) -> Chunk:
    """Simulates a chunk with its number, of parameters (b, m)."""
    number, theta = job
    x, error = np.full((len(theta), *form.shape), np.nan, form.dtype), ""
    step = max(1, form.rows)
    for i in range(0, len(theta), step):
        try:
            rows = form.call(simulator, theta[i : i + step], seed, number, i)
            if rows.shape[1:] != form.shape:
                raise ValueError(
                    f"expected an observation of shape {form.shape}; got {rows.shape}"
                )
            x[i : i + step] = rows
        except Exception as problem:
            error = error or error_line(problem)
    x[failed(x)] = np.nan
    return Chunk(theta, x, error)


def _attempted(
    form: Form, simulator: Simulator, theta: np.ndarray, seed: int, key: int
) -> np.ndarray:
    """Observations, or nothing where the simulator fails."""
    try:
        return form.call(simulator, theta, seed, key)
    except Exception:
        return np.empty(0)


def _same(x: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(x, other, equal_nan=True)

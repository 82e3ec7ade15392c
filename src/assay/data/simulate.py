r"""Pairs from a simulator for a check at x_o: some from the prior, the others around x_o.

A first part of the simulations has parameters from the prior. It says where x_o lies among all
observations, and how q does on average. The others have parameters from a proposal around q at x_o
(:class:`~assay.data.proposal.Around`), where each pair says most, and sets whose members are
exchangeable: tests are exact, since the proposal depends on x_o and on draws of q there alone.

**Simulations that fail**, by an error, NaN or infinity, are left out. With s = 1 for success and
parameters from a proposal g of weights w over the prior, the pairs that are left have density

.. math:: g(\theta) \, p(x, s = 1 \mid \theta)
    = w(\theta) \, p(\theta \mid x, s = 1) \, p(x, s = 1),

so that q is tested against the posterior **given success**, as a network learns it from pairs
without failed ones. No simulation is repeated because it failed: parameters that fail would then
be kept too often. Where one row makes a batch raise an error, all parameters are replaced.
"""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from .._support.files import atomic_write
from .._support.inputs import (
    as_tensors,
    check_count,
    check_executor,
    check_finite,
    check_function,
    check_kind,
    check_path,
    cpu,
    error_line,
)
from .._support.random import Seed, isolated, seed_of, stream
from .._support.work import progress, run_jobs
from .calibration import Calibration
from .draw import PATIENT, Chunk, Drawing, Draws, draw_at, draw_observed, existing_folder, failed
from .posterior import Embed, as_posterior
from .proposal import (
    RESERVE,
    Around,
    Density,
    NoCompanions,
    as_density,
    call_seeded,
    exchangeable_pairs,
)

# Simulations that are made, and kept, together.
TOGETHER = 50
# How often a simulator is tried, in each form.
TRIES = 8
# The share of simulations that may fail.
MOST_FAILED = 0.5
# The share of simulations whose parameters are from the prior, and how many there are at least,
# unless that is half of all: they say whether x_o is like the simulations.
FIRST, FEWEST_FIRST = 0.2, 200
# The share of the others that is near x_o: with a single x_o, and at least.
MOST_NEAR, LEAST_NEAR = 0.8, 0.2
# Simulations of one draw of q at each x_o: a share of all, and how many there are at least, or
# none, and at most.
PREDICTIVE, LEAST, MOST = 0.1, 19, 199
# The fewest simulations, and draws of q at each x beyond the number of parameters.
FEWEST, ENOUGH = 50, 4

Simulator = Callable[[Any], Any]
# Parameters (n, m) for a number n and a seed.
Draw = Callable[[int, int], Tensor]


@dataclass(frozen=True)
class Form:
    """How a simulator is called, and what it returns."""

    rows: int  # parameter vectors that it takes at a time; 0 if one, without a leading axis
    numpy: bool  # whether it takes NumPy arrays; tensors otherwise
    shape: tuple[int, ...] = ()  # of one observation
    dtype: str = "float64"  # the precision of observations
    repeats: bool = False  # whether the same seeds give the same observations

    def call(self, simulator: Simulator, theta: np.ndarray, seed: int, *key: int) -> np.ndarray:
        """Observations (b, ...) of parameters (b, m), all in one call."""
        given = theta if self.rows else theta[0]
        # A copy: the simulator must not change what is tested.
        given = given.copy() if self.numpy else torch.from_numpy(given.copy())
        with isolated(stream(seed, *key)), torch.no_grad():
            x = as_tensors({"simulator": simulator(given)})["simulator"].cpu().numpy()
        return x if self.rows else x[None]

    def chunk(self, simulator: Simulator, seed: int, job: tuple[int, np.ndarray]) -> Chunk:
        """Simulates a chunk with its number, of parameters (b, m)."""
        number, theta = job
        x, error = np.full((len(theta), *self.shape), np.nan, self.dtype), ""
        step = max(1, self.rows)
        for i in range(0, len(theta), step):
            try:
                rows = self.call(simulator, theta[i : i + step], seed, number, i)
                if rows.shape[1:] != self.shape:
                    raise ValueError(
                        f"expected an observation of shape {self.shape}; got {rows.shape}"
                    )
                x[i : i + step] = rows
            except Exception as problem:
                error = error or error_line(problem)
        x[failed(x)] = np.nan
        return Chunk(theta, x, error)


class _UnusableError(ValueError):
    """The simulator can be called, but its numbers are of no use."""


def form_of(simulator: Simulator, draw: Draw, x_o: Tensor, seed: int) -> Form:
    """Finds out how a simulator is called, with parameters that are used for nothing else.

    Its observations must be like x_o, of shape (...,) for one or (o, ...) for many.

    Example:
        >>> def draw(n, seed):
        ...     return torch.rand(n, 2)
        >>> form_of(lambda theta: theta + torch.randn(theta.shape), draw, torch.ones(2), 0).rows
        50
        >>> form_of(lambda theta: theta[0] + np.random.randn(2), draw, torch.ones(2), 0).rows
        0
    """
    seed = seed_of(stream(seed, "simulate", "tried"))
    m = draw(1, seed).shape[1]
    # So many rows that they are no parameters, and no part of an observation.
    batch = next(b for b in range(2, 99) if b not in (m, *x_o.shape))
    theta = draw(2 * batch * TRIES, seed).numpy().reshape(TRIES, 2, batch, m)
    problems: dict[int, str] = {}
    for rows, numpy, i in product((batch, 0), (False, True), range(TRIES)):
        try:
            return _try(simulator, Form(rows, numpy), theta[i][:, : rows or 1], x_o, seed + i)
        except _UnusableError:
            raise
        except Exception as problem:
            problems.setdefault(rows, error_line(problem))
    raise ValueError(
        f"simulator: expected a function that takes parameters (b, {m}) and returns observations "
        f"(b, ...), or takes one vector ({m},) and returns one observation, like x_o of shape "
        f"{tuple(x_o.shape)}. From {batch} vectors came: {problems[batch]}. From one came: "
        f"{problems[0]}."
    )


def _try(simulator: Simulator, form: Form, theta: np.ndarray, x_o: Tensor, seed: int) -> Form:
    """The whole form, by calls with parameters theta (2, b, m)."""

    def call(rows: np.ndarray, key: int) -> np.ndarray:
        try:
            return form.call(simulator, rows, seed, key)
        except Exception:  # which may be rare
            return np.empty(0)

    same = partial(np.array_equal, equal_nan=True)
    x = form.call(simulator, theta[0], seed, 0)
    shapes = [tuple(x_o.shape), tuple(x_o.shape[1:])][: x_o.ndim]
    if len(x) != theta.shape[1] or x.shape[1:] not in shapes:
        raise ValueError(f"shape {x.shape if form.rows else x.shape[1:]}")
    if failed(x).all():
        raise ValueError("NaN or infinity")
    # Whole numbers, such as counts, may come twice.
    if same(x, call(theta[0], 1)) and (np.nan_to_num(x) % 1).any():
        raise _UnusableError(
            "simulator: expected other noise in every call; got the same x twice for the same "
            "parameters. Take random numbers from torch's or NumPy's global generator, and do not "
            "set its seed."
        )
    repeats = same(x, call(theta[0], 0))
    # The first row must not depend on the others; where nothing repeats, that cannot be known.
    mixed = np.concatenate([theta[0, :1], theta[1, 1:]])
    rows = TOGETHER if repeats and same(x[:1], call(mixed, 0)[:1]) else 1
    dtype = min(x.dtype, x_o.cpu().numpy().dtype, key=lambda kind: kind.itemsize)
    return Form(form.rows and rows, form.numpy, x.shape[1:], dtype.name, repeats)


@dataclass(frozen=True, eq=False)
class Simulated:
    """Simulations (n, m) and (n, ...) that succeeded, and how many others failed.

    The first error is empty if failures were NaN or infinity.
    """

    theta: Tensor
    x: Tensor
    failed: int
    error: str
    form: Form


class _BatchError(Exception):
    """One of several rows that were simulated together raised an error."""


@dataclass(frozen=True, eq=False)
class Runner:
    """Runs a simulator that is called in a known form.

    Everything is run here without an executor, and kept nowhere without a folder. The seed names
    the streams of random numbers.
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
        """Simulates n parameters; other ones, one at a time, where a batch raises an error."""
        try:
            chunks = self._chunks(stage, draw, n)
        except _BatchError:
            return replace(self, form=replace(self.form, rows=1)).run(stage, draw, n)
        theta, x = (np.concatenate([chunk[part] for chunk in chunks]) for part in (0, 1))
        good, error = ~failed(x), next((chunk.error for chunk in chunks if chunk.error), "")
        kept = torch.from_numpy(theta[good]), torch.from_numpy(x[good])
        return Simulated(*kept, int((~good).sum()), error, self.form)

    def _chunks(self, stage: str, draw: Draw, n: int) -> list[Chunk]:
        # With a seed for each form, parameters that replace others know nothing of what failed.
        seed = seed_of(stream(self.seed, "simulate", stage, self.form.rows))
        theta = draw(n, seed).numpy()
        parts = [theta[i : i + TOGETHER] for i in range(0, n, TOGETHER)]
        names = [f"{stage}-{self.form.rows}-{i:05d}.npz" for i in range(len(parts))]
        files = [self.folder / name if self.folder else None for name in names]
        done = {
            i: Chunk.read(file, parts[i], "simulations", "parameters")
            for i, file in enumerate(files)
            if file and file.exists()
        }
        jobs = [(i, part) for i, part in enumerate(parts) if i not in done]
        self._check(done, n)
        with progress(desc=f"simulating: {stage}", total=n, unit="simulation") as bar:
            bar.update(sum(len(chunk.given) for chunk in done.values()))
            for i, chunk in self._run(jobs, seed):
                chunk.write(files[i])
                done[i] = chunk
                bar.update(len(chunk.given))
                self._check(done, n)
        return [done[i] for i in range(len(parts))]

    def _run(self, jobs: list[tuple[int, np.ndarray]], seed: int) -> Iterator[tuple[int, Chunk]]:
        """Chunks with their numbers, as they are done."""
        try:
            work = partial(self.form.chunk, self.simulator, seed)
            yield from ((jobs[i][0], chunk) for i, chunk in run_jobs(self.executor, work, jobs))
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
            raise _BatchError
        bad = sum(int(chunk.failed.sum()) for chunk in done.values())
        if bad > self.most_failed * n:
            raise ValueError(
                f"simulator: expected simulations most of which succeed; {bad} of "
                f"{sum(len(chunk.given) for chunk in done.values())} failed, the first with: "
                f"{(errors or ['NaN or infinity'])[0]}"
            )


@dataclass(frozen=True, eq=False)
class Simulations:
    """A simulator and its prior, how many simulations are made, and where.

    Args:
        simulator: Takes parameters (b, m) and returns observations (b, ...), a row for each; or
            takes one vector (m,) and returns one observation. Whether it takes tensors or NumPy
            arrays is found out, too. Random numbers come from global generators.
        prior: A torch distribution over m parameters, or a
            :class:`~assay.data.proposal.Density`.
        n: How many simulations are made.
        executor: Any :class:`concurrent.futures.Executor`; simulations are made here if None.
            Threads work one after the other, since global generators are one for all of them.
        resume: A folder in which simulations are kept as they are made. The same call with the
            same folder makes only those that are missing.
    """

    simulator: Callable[[Any], Any]
    prior: Any
    n: int = 2000
    executor: Executor | None = None
    resume: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_function("simulator", self.simulator, "a function of parameters")
        check_executor(self.executor)
        if self.resume is not None:
            check_path(self.resume, "resume", "a folder, or None")
        object.__setattr__(self, "prior", as_density("prior", self.prior))
        object.__setattr__(self, "n", check_count("simulations", self.n, FEWEST))

    def runner(self, draw: Draw, x_o: Tensor, seed: int) -> Runner:
        """What runs the simulator, in the form that an earlier run of the same call found."""
        run = partial(Runner, self.simulator, seed=seed, executor=self.executor)
        if self.resume is None:
            return run(form_of(self.simulator, draw, x_o, seed))
        folder = existing_folder(Path(self.resume))
        file = folder / "call.json"
        call = {"seed": seed, "simulations": self.n, "x_o": x_o.tolist()}
        if not file.exists():
            form = form_of(self.simulator, draw, x_o, seed)
            with atomic_write(file) as handle:
                handle.write(json.dumps({**call, "form": asdict(form)}).encode())
            return run(form, folder=folder)
        before = json.loads(file.read_text(encoding="utf-8"))
        differ = [name for name in call if before.get(name) != call[name]]
        if differ:
            raise ValueError(
                f"resume: expected a folder of the same call; {self.resume} was made with another "
                f"{' and another '.join(differ)}. Give another folder, or make the same call."
            )
        form = Form(**{**before["form"], "shape": tuple(before["form"]["shape"])})
        return run(form, folder=folder)


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs that a simulator makes for a check at x_o."""

    prior: Calibration  # parameters from the prior, with draws of q
    # Parameters drawn around q at x_o, in exchangeable sets; or the pairs from the prior.
    near: Calibration
    draws: Draws  # the observations (o, ...), with draws of q there
    predicted: tuple[Tensor, Tensor]  # simulations (o, n, ...) of a draw at each, and draws (o, m)
    counts: tuple[int, int, int]  # simulations from the prior, around x_o, and of draws there
    failed: tuple[int, int, int]  # how many of each failed
    error: str  # the first; empty if failures were NaN or infinity
    form: Form

    @property
    def around(self) -> bool:
        """Whether pairs around the observations decide; if not, those from the prior do."""
        return self.near is not self.prior

    @property
    def share(self) -> float | None:
        """What is near: a large share of pairs around one observation, a smaller one of many."""
        return None if not self.around else max(LEAST_NEAR, MOST_NEAR / len(self.draws.x))

    @property
    def sentence(self) -> str:
        """How the pairs were made."""
        o, (first, around, repeated) = len(self.draws.x), self.counts
        more = f", {repeated} repeat a draw of q there" if repeated else ""
        rows = f"{self.form.rows} at a time" if self.form.rows > 1 else "one at a time"
        far = "Only the first decide: q at x_o is far from q at what it makes."
        sentences = [
            f"{first} simulations have parameters from the prior, {around} have parameters drawn "
            f"around q at {'x_o' if o == 1 else f'the {o} observations'}{more} ({rows}).",
            "Only the second decide." if self.around else far,
        ]
        if any(self.failed):
            first_error = f"the first: {self.error}" if self.error else "NaN or infinity"
            sentences.append(
                f"{sum(self.failed)} of them failed ({first_error}) and were left out: q is "
                "tested against the posterior given that a simulation succeeds. This is what a "
                "network learns if failed pairs are left out of its training. A posterior that "
                "comes from a likelihood is another one if failures depend on parameters."
            )
        if not self.form.repeats:
            sentences.append(
                "The simulator keeps a random generator of its own: the same seed does not give "
                "the same simulations, and processes that are copies of each other may repeat "
                "them."
            )
        return " ".join(sentences)


def pairs_around(
    posterior: Any,
    x_o: Any,
    simulations: Simulations,
    *,
    k: int = 16,
    draws: int = 1000,
    embed: Embed | None = None,
    drawing: Drawing = PATIENT,
    seed: Seed = 0,
) -> Pairs:
    """Simulates pairs for a check at x_o, in two stages, and a draw of q at x_o.

    `x_o` is one observation, many, over which the simulations are then spread, or
    :class:`assay.Draws`; k is the number of draws of q in a set, more where there are many
    parameters, and `draws` that of draws at each x_o.

    Example:
        >>> prior = torch.distributions.MultivariateNormal(torch.zeros(1), torch.eye(1))
        >>> source = Simulations(lambda theta: theta + torch.randn(theta.shape), prior, 100)
        >>> pairs_around(lambda x, n: x / 2 + 0.5**0.5 * torch.randn(n, 1), [0.5], source).near
        Calibration(n=50, m=1, k=16, x=(1,), space='parameters')
    """
    check_kind("simulations", simulations, "Simulations(simulator, prior)", "simulator", "prior")
    prior, seed = simulations.prior, seed_of(seed)
    given = x_o if isinstance(x_o, Draws) else Draws(x_o, n=draws)
    check_finite("x_o", given.x)
    runner = simulations.runner(partial(_parameters, prior), given.x, seed)
    rows = given.x.reshape(-1, *runner.form.shape)
    sampler, counts = as_posterior(posterior, rows), _counts(simulations.n, len(rows))
    # From the prior.
    first = runner.run("prior", partial(_parameters, prior), counts[0])
    k = max(check_count("k", k), first.theta.shape[1] + ENOUGH)
    label = "simulation {} of the prior"
    of_q = draw_at(sampler, first.x, k, seed, "draws", drawing, label)
    theta, x = first.theta[of_q.kept], first.x[of_q.kept]
    wide = Calibration(theta, x, of_q.theta.to(theta), embed, remarks=of_q.left_out)
    observed = draw_observed(sampler, given.many(wide.observation(given).x), seed, drawing)
    # Around q at x_o.
    proposal = Around(wide.observe(observed, seed).draws, prior)
    runner = replace(runner, form=first.form)
    second = runner.run("around", partial(_parameters, proposal), counts[1])
    label = "simulation {} around x_o"
    of_q = draw_at(sampler, second.x, RESERVE * k, seed, "draws around x_o", drawing, label)
    theta, x = second.theta[of_q.kept], second.x[of_q.kept]
    sets, remarks = (theta, x, of_q.theta.to(theta)), of_q.remarks + of_q.left_out
    try:
        near = exchangeable_pairs(*sets, prior, proposal, k, seed, embed, remarks)
    except NoCompanions:
        near = wide
    # Of a draw of q at x_o.
    one = one_of(cast(Tensor, observed.theta), seed).to(theta)
    third = Simulated(one, observed.x[:, None][:, :0], 0, "", second.form)
    if counts[2]:
        third = _repeat(replace(runner, form=second.form), one, counts[2] // len(one))
    failures = first.failed, second.failed, third.failed
    error = first.error or second.error or third.error
    return Pairs(wide, near, observed, (third.x, one), counts, failures, error, second.form)


def _parameters(density: Density, n: int, seed: int) -> Tensor:
    """Parameters (n, m) from a prior, or from a proposal."""
    theta = call_seeded("prior", density.sample, seed, n)
    if theta.ndim != 2 or len(theta) != n:
        raise ValueError(
            f"prior: expected draws with shape ({n}, m); got {tuple(theta.shape)}. Independent "
            "parameters need torch.distributions.Independent(marginals, 1)."
        )
    return theta


def _repeat(runner: Runner, theta: Tensor, n: int) -> Simulated:
    """Simulates each of some parameters (o, m) n times; as many of each, (o, n', ...)."""
    parts = [runner.repeat(f"predictive-{i}", each, n) for i, each in enumerate(theta)]
    fewest = min(len(part.x) for part in parts)
    x = torch.stack([part.x[:fewest] for part in parts])
    error = next((part.error for part in parts if part.error), "")
    return Simulated(theta, x, sum(part.failed for part in parts), error, runner.form)


def _counts(n: int, o: int) -> tuple[int, int, int]:
    """How many of n simulations are from the prior, around o observations, and of draws there."""
    first = max(round(FIRST * n), min(FEWEST_FIRST, n // 2))
    each = min(round(PREDICTIVE * n / o), MOST)
    repeated = each * o if each >= LEAST else 0
    return first, n - first - repeated, repeated


def one_of(theta: Tensor, seed: int) -> Tensor:
    """One of the draws (o, s, m) at each observation, by chance, with shape (o, m)."""
    which = cpu.randint(theta.shape[1], (len(theta),), generator=stream(seed, "predictive"))
    return theta[cpu.arange(len(theta)), which]

r"""Runs a simulator, and simulates pairs from a proposal around x_o.

**Simulations that fail**, by an error, NaN or infinity, are left out, so that q is tested against
the posterior **given success**, whatever the proposal. No simulation is repeated because it
failed: parameters that fail would then be kept too often. Where one row makes a batch raise an
error, all parameters are replaced.
"""

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._support.files import atomic_write
from .._support.inputs import (
    WORD,
    as_tensors,
    check_count,
    check_finite,
    check_fits,
    check_function,
    check_kind,
    cpu,
    error_line,
    full_precision,
)
from .._support.random import Seed, call_user_code, isolated, seed_of, stream
from .._support.work import progress, run_jobs
from .calibration import Calibration
from .draw import Chunk, Drawing, existing_folder, failed
from .proposal import RESERVE, Density, as_density, companions, log_weights

# Simulations that are made, and kept, together; how often a simulator is tried, in each form.
TOGETHER, TRIES = 50, 8
# The share of simulations that may fail, and the fewest that a check makes.
MOST_FAILED, FEWEST = 0.5, 50

# Parameters (n, m) for a number n and a seed.
Draw = Callable[[int, int], Tensor]


@dataclass(frozen=True, eq=False)
class Runner:
    """Runs a simulator in a known form; here without an executor. The seed names its streams."""

    simulator: Callable[[Any], Any]
    seed: int
    rows: int  # parameter vectors that it takes at a time; 0 if one, without a leading axis
    numpy: bool  # whether it takes NumPy arrays; tensors otherwise
    shape: tuple[int, ...] = ()  # of one observation
    dtype: str = "float64"  # the precision of observations
    repeats: bool = False  # whether the same seeds give the same observations
    executor: Executor | None = None
    folder: Path | None = None  # in which simulations are kept
    failed: int = 0  # simulations until now
    error: str = ""  # the first of them; empty if failures were NaN or infinity

    @classmethod
    def of(cls, simulator: Callable[[Any], Any], draw: Draw, x_o: Tensor, seed: int) -> "Runner":
        """Finds out how a simulator is called, whose x is like x_o, (...,) or (o, ...)."""
        chance = seed_of(stream(seed, "simulate", "tried"))
        m = draw(1, chance).shape[1]
        # So many rows that they are no parameters, and no part of an observation.
        batch = next(b for b in range(2, 99) if b not in (m, *x_o.shape))
        theta = draw(2 * batch * TRIES, chance).numpy().reshape(TRIES, 2, batch, m)
        shapes = [tuple(x_o.shape), tuple(x_o.shape[1:])][: x_o.ndim]
        problems: dict[int, str] = {}
        for rows, numpy, i in product((batch, 0), (False, True), range(TRIES)):
            runner, given = cls(simulator, seed, rows, numpy), theta[i][:, : rows or 1]
            try:
                x = runner.call(given[0], chance + i, 0)
                if len(x) != len(given[0]) or x.shape[1:] not in shapes:
                    raise ValueError(f"shape {x.shape if rows else x.shape[1:]}")
                if failed(x).all():
                    raise ValueError("NaN or infinity")
            except Exception as problem:
                problems.setdefault(rows, error_line(problem))
                continue
            dtype = min(x.dtype, x_o.cpu().numpy().dtype, key=lambda kind: kind.itemsize)
            runner = replace(runner, shape=x.shape[1:], dtype=dtype.name)
            return runner.with_noise(given, x, chance + i)
        raise ValueError(
            f"simulator: expected a function that takes parameters (b, {m}) and returns "
            f"observations (b, ...), or takes one vector ({m},) and returns one observation, like "
            f"x_o of shape {tuple(x_o.shape)}. From {batch} vectors came: {problems[batch]}. From "
            f"one came: {problems[0]}."
        )

    def with_noise(self, theta: np.ndarray, x: np.ndarray, seed: int) -> "Runner":
        """What other calls find out, for parameters (2, b, m) of which the first gave x."""

        def same(one: np.ndarray, rows: np.ndarray, key: int) -> bool:
            try:
                other = self.call(rows, seed, key)
            except Exception:  # which may be rare
                return False
            return np.array_equal(one, other[: len(one)], equal_nan=True)

        # Whole numbers, such as counts, may come twice.
        if same(x, theta[0], 1) and (np.nan_to_num(x) % 1).any():
            raise ValueError(
                "simulator: expected other noise in every call; got the same x twice for the same "
                "parameters. Take random numbers from torch's or NumPy's global generator, and do "
                "not set its seed."
            )
        repeats = same(x, theta[0], 0)
        # The first row must not depend on the others; where nothing repeats, nobody knows.
        mixed = np.concatenate([theta[0, :1], theta[1, 1:]])
        rows = TOGETHER if repeats and same(x[:1], mixed, 0) else 1
        return replace(self, rows=self.rows and rows, repeats=repeats)

    def call(self, theta: np.ndarray, seed: int, *key: int) -> np.ndarray:
        """Observations (b, ...) of parameters (b, m), all in one call."""
        # A copy: the simulator must not change what is tested.
        given = (theta if self.rows else theta[0]).copy()
        with isolated(stream(seed, *key)), torch.no_grad():
            x = self.simulator(given if self.numpy else torch.from_numpy(given))
            x = as_tensors({"simulator": x})["simulator"].cpu().numpy()
        return x if self.rows else x[None]

    def chunk(self, seed: int, job: tuple[int, np.ndarray]) -> Chunk:
        """Simulates a chunk with its number, of parameters (b, m)."""
        number, theta = job
        x, error = np.full((len(theta), *self.shape), np.nan, self.dtype), ""
        step = max(1, self.rows)
        for i in range(0, len(theta), step):
            try:
                rows = self.call(theta[i : i + step], seed, number, i)
                if rows.shape[1:] != self.shape:
                    expected = f"an observation of shape {self.shape}"
                    raise ValueError(f"expected {expected}; got {rows.shape}")
                x[i : i + step] = rows
            except Exception as problem:
                error = error or error_line(problem)
        x[failed(x)] = np.nan
        return Chunk(theta, x, error)

    def chunks(self, seed: int, jobs: list[tuple[int, np.ndarray]]) -> Iterator[tuple[int, Chunk]]:
        """Chunks with their numbers, as they are done."""
        try:
            work = partial(replace(self, executor=None).chunk, seed)
            yield from ((jobs[i][0], chunk) for i, chunk in run_jobs(self.executor, work, jobs))
        except Exception as error:
            if self.executor is None or str(error).startswith("executor: "):
                raise
            raise RuntimeError(
                f"executor: expected one that runs the simulator; it failed with: "
                f"{error_line(error)}. Worker processes need a function of a module that they can "
                "import."
            ) from error

    def repeat(self, stage: str, theta: Tensor, n: int) -> tuple[Tensor, Tensor, "Runner"]:
        """Simulates the same parameters (m,) n times; any number may fail."""
        return self.run(stage, lambda b, _: theta.repeat(b, 1), n, 1.0)

    def run(
        self, stage: str, draw: Draw, n: int, most_failed: float = MOST_FAILED
    ) -> tuple[Tensor, Tensor, "Runner"]:
        """Parameters (s, m) and x (s, ...) of those of n simulations that succeed; and the runner.

        Where a batch raises an error, other parameters are simulated, one at a time.
        """
        # With a seed for each form, parameters that replace others know nothing of what failed.
        seed = seed_of(stream(self.seed, "simulate", stage, self.rows))
        theta = draw(n, seed).numpy()
        parts = [theta[i : i + TOGETHER] for i in range(0, n, TOGETHER)]
        names = [f"{stage}-{self.rows}-{i:05d}.npz" for i in range(len(parts))]
        files = [self.folder / name if self.folder else None for name in names]
        words = "simulations", "parameters"
        read = (Chunk.read(file, part, *words) for file, part in zip(files, parts, strict=True))
        kept = {i: chunk for i, chunk in enumerate(read) if chunk is not None}
        jobs = [(i, part) for i, part in enumerate(parts) if i not in kept]
        done: dict[int, Chunk] = {}
        with progress(desc=f"simulating: {stage}", total=n, unit="simulation") as bar:
            for i, chunk in chain(kept.items(), self.chunks(seed, jobs)):
                if i not in kept:
                    chunk.write(files[i])
                done[i] = chunk
                bar.update(len(chunk.given))
                errors = [done[i].error for i in sorted(done) if done[i].error]
                bad = sum(int(failed(one.results).sum()) for one in done.values())
                if (errors and self.rows > 1) or bad > most_failed * n:
                    break
        if errors and self.rows > 1:
            return replace(self, rows=1).run(stage, draw, n, most_failed)
        theta = np.concatenate([done[i].given for i in sorted(done)])
        if bad > most_failed * n:
            raise ValueError(
                f"simulator: expected simulations most of which succeed; {bad} of {len(theta)} "
                f"failed, the first with: {(errors or ['NaN or infinity'])[0]}"
            )
        x = np.concatenate([done[i].results for i in sorted(done)])
        error = self.error or next(iter(errors), "")
        runner = replace(self, failed=self.failed + bad, error=error)
        return torch.from_numpy(theta[~failed(x)]), torch.from_numpy(x[~failed(x)]), runner


@dataclass(frozen=True, eq=False)
class Simulations:
    """A simulator and its prior, as :func:`assay.check` takes them."""

    simulator: Callable[[Any], Any]
    prior: Any
    n: int = 2000  # how many simulations are made
    executor: Executor | None = None
    resume: str | os.PathLike[str] | None = None  # a folder in which simulations are kept

    def __post_init__(self) -> None:
        check_function("simulator", self.simulator, "a function of parameters")
        Drawing(resume=self.resume, executor=self.executor)  # which checks both
        prior, n = as_density("prior", self.prior), check_count("simulations", self.n, FEWEST)
        vars(self).update(prior=prior, n=n)

    def runner(self, x_o: Tensor, seed: int) -> Runner:
        """What runs the simulator, in the form that an earlier run of the same call found."""
        find = partial(Runner.of, self.simulator, partial(parameters, self.prior), x_o, seed)
        if self.resume is None:
            return replace(find(), executor=self.executor)
        folder = existing_folder(self.resume)
        file = folder / "call.json"
        call = {"seed": seed, "simulations": self.n, "x_o": x_o.tolist()}
        if not file.exists():
            found = vars(find())
            form = {name: found[name] for name in ("rows", "numpy", "shape", "dtype", "repeats")}
            with atomic_write(file) as handle:
                handle.write(json.dumps({**call, "form": form}).encode())
        before = json.loads(file.read_text(encoding="utf-8"))
        differ = [name for name in call if before.get(name) != call[name]]
        if differ:
            raise ValueError(
                f"resume: expected a folder of the same call; {self.resume} was made with another "
                f"{' and another '.join(differ)}. Give another folder, or make the same call."
            )
        form = before["form"] | {"shape": tuple(before["form"]["shape"])}
        return Runner(self.simulator, seed, **form, executor=self.executor, folder=folder)


def parameters(density: Density, n: int, seed: int, name: str = "prior") -> Tensor:
    """Parameters (n, m) from a prior, or from a proposal."""
    theta = _call_seeded(name, density.sample, seed, n)
    if theta.ndim != 2 or len(theta) != n:
        raise ValueError(
            f"{name}: expected draws with shape ({n}, m); got {tuple(theta.shape)}. Independent "
            "parameters need torch.distributions.Independent(marginals, 1)."
        )
    return theta


def one_of(theta: Tensor, seed: int) -> Tensor:
    """One of the draws (o, s, m) at each observation, by chance, with shape (o, m)."""
    which = cpu.randint(theta.shape[1], (len(theta),), generator=stream(seed, "predictive"))
    return theta[cpu.arange(len(theta)), which]


@full_precision()
def zoom(
    model: Any,
    sample: Callable[[Tensor, int, torch.Generator], Any],
    proposal: Any,
    n: int,
    k: int = 8,
    seed: Seed = 0,
) -> Calibration:
    """Simulates a calibration around an observation, with sets whose members are exchangeable.

    A test in parameter space is exact with :class:`assay.Exchange` if q is right at almost every x
    that the proposal leads to, and with :class:`assay.LocalExchange` if q is right near x_o.

    Args:
        model: A :class:`~assay.data.proposal.Model`, or an object with a prior and `simulate`.
        sample: Takes observations (n, ...), a number k and a generator, which it may ignore, and
            returns independent draws of q, (n, k, m). Of four k draws, a set keeps k.
        proposal: An :class:`~assay.data.proposal.Around`, a torch distribution or a
            :class:`~assay.data.proposal.Density` in the support of the prior. It may depend on
            x_o and on draws of q there, but not on this calibration.
        n: The number of simulations.
        k: The number of draws of q in a set.
        seed: An int or a generator. The same seed gives the same calibration.

    Example:
        >>> from assay.data.proposal import Around, Model
        >>> prior = torch.distributions.MultivariateNormal(torch.zeros(1), torch.eye(1))
        >>> model = Model(prior, lambda theta, generator: theta + torch.randn(theta.shape))
        >>> q = lambda x, k, generator: x[:, None] / 2 + 0.5**0.5 * torch.randn(len(x), k, 1)
        >>> theta_o = q(torch.ones(1, 1), 500, None)[0]
        >>> zoom(model, q, Around(theta_o, prior), 300)
        Calibration(n=300, m=1, k=8, x=(1,), space='parameters')
    """
    check_kind("model", model, "a Model(prior, simulate)", "prior", "simulate")
    check_function("sample", sample, "a function of (x, k, generator)")
    prior, proposal = as_density("prior", model.prior), as_density("proposal", proposal)
    n, k, seed = check_count("n", n), check_count("k", k), seed_of(seed)
    theta = parameters(proposal, n, seed, "proposal")
    weights = log_weights(theta, prior, proposal)
    if weights.isnan().any():
        raise ValueError(
            "proposal: expected draws in the support of the prior; got "
            f"{int(weights.isnan().sum())} of {n} outside. Reject those, as Around does."
        )
    if weights.isinf().any():
        raise ValueError(
            "proposal: expected a finite log_prob at its own draws; got minus infinity at "
            f"{int(weights.isinf().sum())} of {n}."
        )
    x = _call_seeded("simulate", model.simulate, seed, theta)
    if x.ndim < 2 or len(x) != n:
        raise ValueError(f"simulate: expected shape ({n}, ...); got {tuple(x.shape)}.")
    check_fits("k", k, RESERVE * WORD * theta.numel())
    draws = _call_seeded("sample", sample, seed, x, RESERVE * k).to(theta)
    expected = n, RESERVE * k, theta.shape[1]
    if draws.shape != expected:
        raise ValueError(f"sample: expected shape {expected}; got {tuple(draws.shape)}.")
    chosen: Any = companions(theta, draws, prior, proposal, k, seed)
    return Calibration(theta, x, **chosen)


def _call_seeded(name: str, function: Callable[..., Any], seed: int, *given: Any) -> Tensor:
    """What a function returns, given a generator; the global ones are seeded during the call."""
    chance = stream(seed, name, "global")
    tensor = call_user_code(name, function, *given, stream(seed, name), generator=chance).cpu()
    check_finite(name, tensor)
    return tensor

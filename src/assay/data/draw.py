r"""Makes draws of q at many x: in batches, with a time limit, and kept as it goes.

A call of a posterior draws at as many x as it takes, with a random stream of its own. Where a call
raises an error or takes too long, each of its x is tried alone. An x at which no draws can be made
is named by its number. It may be left out: which x these are depends on x and on q but not on
theta, so that tests stay exact, for the other x.
"""

import os
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import (
    WORD,
    as_tensors,
    check_executor,
    check_fits,
    check_number,
    check_path,
    error_line,
)
from .._support.parallel import run_jobs, time_limit
from .._support.progress import progress
from .._support.random import isolated, stream
from .chunks import Chunk, existing_folder
from .posterior import LIMIT, Posterior

# Observations up to which drawing shows no progress, and those that are kept together.
FEW, TOGETHER = 100, 50
# Failures that are named.
NAMED = 5
# What files keep, and of what.
_KEPT = ("draws", "observations")


@dataclass(frozen=True)
class Drawing:
    """How draws of q are made.

    Args:
        limit: Seconds that one call of the posterior may take. Python is stopped then, in the main
            thread and not on Windows; a call that never comes back to Python cannot be.
        failures: The share of x at which drawing may fail; these are left out, with a remark.
        resume: A folder in which draws are kept as they are made. The same call with the same
            folder makes only those that are missing. Give each posterior a folder of its own.
        executor: Any :class:`concurrent.futures.Executor`, to which the posterior is sent with
            some x at a time; all are drawn here if None. Does not change draws.

    Example:
        >>> Drawing(limit=60, failures=0.01)
        Drawing(limit=60.0, failures=0.01, resume=None)
    """

    limit: float = LIMIT
    failures: float = 0.0
    resume: str | os.PathLike[str] | None = None
    executor: Executor | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "limit", check_number("limit", self.limit))
        if not 0 <= check_number("failures", self.failures, strict=False) < 1:
            raise ValueError(f"failures: expected a share below 1; got {self.failures}.")
        if self.resume is not None:
            check_path(self.resume, "resume", "a folder, or None")
        check_executor(self.executor)

    def file(self, name: str) -> Path | None:
        """A file in which draws are kept, if they are."""
        return None if self.resume is None else existing_folder(Path(self.resume)) / name


PATIENT = Drawing()
# What to do where no draws can be made, at an x of the pairs and at x_o.
LEAVE_OUT = (
    "Mend it there; or leave up to a hundredth of all x out with drawing=Drawing(failures=0.01)."
)
LOOK_THERE = (
    "Is x_o like the observations that the posterior was trained on? Draws that were made "
    "elsewhere can be given as x_o=Draws(x_o, theta_o)."
)


@dataclass(frozen=True, eq=False)
class Drawn:
    """Draws (c, n, m) at those x (c,) of b at which they could be made, and what to say of it.

    That is what the posterior says of them, and which x were left out.
    """

    theta: Tensor
    kept: Tensor
    said: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()

    @property
    def remarks(self) -> tuple[str, ...]:
        """All that is to be said."""
        return (*self.said, *self.left_out)


def drawn_at(
    posterior: Posterior,
    x: Tensor,
    n: int,
    seed: int,
    purpose: str,
    how: Drawing = PATIENT,
    label: Callable[[int], str] = "x[{}]".format,
    remedy: str = LEAVE_OUT,
) -> Drawn:
    """Draws of q at observations (b, ...), each call with a stream named by the purpose.

    Example:
        >>> from assay.data.posterior import as_posterior
        >>> x = torch.zeros(10, 2)
        >>> q = as_posterior(lambda x, n: x + torch.randn(n, 2), x)
        >>> drawn_at(q, x, 5, 0, "here").theta.shape
        torch.Size([10, 5, 2])
    """
    check_fits("draws at each x", n, WORD * len(x))
    failures = _Failures(label, int(how.failures * len(x)), len(x), remedy)
    job = _Job(posterior, n, seed, purpose, replace(how, executor=None), failures)
    size = posterior.rows * max(1, TOGETHER // posterior.rows)
    pieces = ((x[first : first + size], first) for first in range(0, len(x), size))
    found: dict[int, Chunk] = {}
    silent = None if len(x) > FEW else True
    with progress(desc=f"drawing: {purpose}", total=len(x), silent=silent, unit="x") as bar:
        work = job.here if how.executor is None else job.elsewhere
        for i, (found[i], errors) in run_jobs(how.executor, work, pieces):
            for number, error in errors.items():
                failures.add(number, error)
            bar.update(len(found[i].made))
    chunks = [found[i] for i in range(len(found))]
    good = torch.from_numpy(np.concatenate([~chunk.failed for chunk in chunks]))
    theta = np.concatenate([chunk.made[~chunk.failed] for chunk in chunks])
    with isolated(stream(seed, purpose, "remarks")):
        words = posterior.remarks(x[good.to(x.device)])
    kept = good.nonzero().flatten()
    return Drawn(torch.from_numpy(theta).to(x), kept, words, failures.remarks)


def draw_at(posterior: Posterior, x: Tensor, n: int, seed: int, purpose: str) -> Tensor:
    """Draws (b, n, m) of q at all observations (b, ...)."""
    return drawn_at(posterior, x, n, seed, purpose).theta


def draw_observed(
    posterior: Posterior, x: Tensor, n: int, seed: int, how: Drawing = PATIENT
) -> Tensor:
    """Draws (o, n, m) of q at the observations (o, ...) that are tested; none is left out."""
    strict = replace(how, failures=0.0)
    there = "x_o[{}]".format, LOOK_THERE
    return drawn_at(posterior, x, n, seed, "observations", strict, *there).theta


class _TooMany(ValueError):
    """Drawing failed at more x than may be left out."""


@dataclass(frozen=True, eq=False)
class _Failures:
    """Where no draws could be made, and why; so many of all x may fail."""

    label: Callable[[int], str]
    most: int
    total: int
    remedy: str
    errors: dict[int, str] = field(default_factory=dict)

    def add(self, number: int, error: str) -> None:
        """One more; refuses if these are too many."""
        self.errors[number] = error
        if len(self.errors) > self.most:
            raise _TooMany(
                f"posterior: expected draws of q at every x; got none at {self._named} "
                f"({self._first}). {self.remedy}"
            )

    @property
    def _named(self) -> str:
        numbers = [self.label(i) for i in sorted(self.errors)]
        return ", ".join(numbers[:NAMED] + ["..."] * (len(numbers) > NAMED))

    @property
    def _first(self) -> str:
        return self.errors[min(self.errors)]

    @property
    def remarks(self) -> tuple[str, ...]:
        """What was left out."""
        if not self.errors:
            return ()
        return (
            f"No draws of q could be made at {len(self.errors)} of {self.total} x: {self._named} "
            f"({self._first}). These pairs are left out; nothing is said of q there.",
        )


@dataclass(frozen=True, eq=False)
class _Job:
    """Draws that are made for a purpose."""

    posterior: Posterior
    n: int
    seed: int
    purpose: str
    how: Drawing
    failures: _Failures

    def here(self, piece: tuple[Tensor, int]) -> tuple[Chunk, dict[int, str]]:
        """Draws at x (b, ...), the first of which has this number; failures are known already."""
        return self.chunk(*piece), {}

    def elsewhere(self, piece: tuple[Tensor, int]) -> tuple[Chunk, dict[int, str]]:
        """The same in another process, with what failed."""
        failures = replace(self.failures, most=self.failures.total, errors={})
        return replace(self, failures=failures).chunk(*piece), failures.errors

    def chunk(self, x: Tensor, first: int) -> Chunk:
        """Draws at x (b, ...), of which the first has this number; those that are not kept yet."""
        name = f"{self.purpose.replace(' ', '-')}-{self.n}-{self.seed}-{first:06d}.npz"
        file, given = self.how.file(name), x.cpu().numpy()
        kept = Chunk.read(file, given, *_KEPT) if file and file.exists() else None
        each: list[np.ndarray | None] = []
        try:
            for i in range(0, len(x), self.posterior.rows):
                some = slice(i, i + self.posterior.rows)
                if kept is not None and not kept.failed[some].any():
                    each += list(kept.made[some])
                else:
                    each += self._rows(x[some], first + i)
        finally:
            chunk = Chunk(given, self._filled(each, len(x)), "")
            chunk.write(file)
        return chunk

    def _filled(self, each: list[np.ndarray | None], b: int) -> np.ndarray:
        """Draws (b, n, m), NaN where there are none."""
        there = next((draws for draws in each if draws is not None), np.zeros((self.n, 1)))
        none = np.full_like(there, np.nan)
        each = each + [None] * (b - len(each))
        return np.stack([none if draws is None else draws for draws in each])

    def _rows(self, x: Tensor, first: int) -> list[np.ndarray | None]:
        """Draws (n, m) at each x in one call, or one after the other; None where they fail."""
        try:
            theta = self._call(x, first)
        except Exception as problem:
            if len(x) > 1:
                alone = (self._rows(at[None], first + i)[0] for i, at in enumerate(x))
                return list(alone)
            self.failures.add(first, error_line(problem))
            return [None]
        bad = ~theta.isfinite().flatten(1).all(1)
        for i in bad.nonzero().flatten().tolist():
            self.failures.add(first + i, "NaN or infinity among the draws")
        each = zip(theta.cpu().numpy(), bad.tolist(), strict=True)
        return [None if fails else draws for draws, fails in each]

    def _call(self, x: Tensor, first: int) -> Tensor:
        generator = stream(self.seed, self.purpose, first)
        with time_limit(self.how.limit), isolated(generator):
            given = self.posterior.sample_batched(x.clone(), self.n)
        theta = as_tensors({"draws": given})["draws"].to(x)
        if theta.ndim != 3 or theta.shape[:2] != (len(x), self.n):
            raise ValueError(
                f"expected n = {self.n} draws at each x, with shape ({len(x)}, {self.n}, m); got "
                f"{tuple(theta.shape)}"
            )
        return theta

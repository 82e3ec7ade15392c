"""Makes draws of q at many x: in batches, with a time limit, kept as they are made.

Each call of a posterior has a random stream of its own. Where one raises an error or takes too
long, each of its x is tried alone. An x at which no draws can be made may be left out: which x
these are depends on x and on q but not on theta, so that tests stay exact for the other x.
"""

import os
import zipfile
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .._support.files import atomic_write
from .._support.inputs import (
    WORD,
    as_tensors,
    check_count,
    check_executor,
    check_finite,
    check_fits,
    check_kind,
    check_names,
    check_number,
    check_path,
    error_line,
)
from .._support.random import isolated, stream
from .._support.work import progress, run_jobs, time_limit
from .guards import check_shapes
from .posterior import LIMIT, Embed, Posterior, as_posterior, as_table
from .tables import Layout, Table, layout_of, leading_axes

# Observations up to which there is no bar, that are kept together, and that a message names.
FEW, TOGETHER, NAMED = 100, 50, 5
LEAVE_OUT = (
    "Mend it there; or leave up to a hundredth of all x out with drawing=Drawing(failures=0.01)."
)


class Chunk(NamedTuple):
    """Observations or parameters, and the draws or simulations of them that are kept."""

    given: np.ndarray  # (b, ...)
    results: np.ndarray  # (b, ...), NaN where a row failed
    error: str = ""  # the first of a simulator

    def write(self, file: Path | None) -> None:
        """Keeps the chunk in a file, or nowhere."""
        if file is not None:
            with atomic_write(file) as handle:
                np.savez(handle, **self._asdict())

    @classmethod
    def read(cls, file: Path | None, given: np.ndarray, kept: str, of: str) -> "Chunk | None":
        """The chunk of some rows, if there is one in a file; `kept` and `of` name both."""
        if file is None or not file.exists():
            return None
        try:
            with open(file, "rb") as handle, np.load(handle, allow_pickle=False) as parts:
                chunk = cls(parts["given"], parts["results"], str(parts["error"]))
        except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as problem:
            raise ValueError(
                f"resume: expected {kept} that were kept; {file} cannot be read. Delete it, and "
                "they are made again."
            ) from problem
        same = chunk.given.shape == given.shape
        # Not to the last digit: draws of q may be rounded differently on another day.
        if not (same and np.allclose(chunk.given, given, 1e-3, 1e-6, equal_nan=True)):
            raise ValueError(
                f"resume: expected {kept} of the same {of}; got others in {file}. Was it made "
                "with another prior or posterior? Give another folder, or make the same call."
            )
        return chunk


def failed(results: np.ndarray) -> np.ndarray:
    """Which rows (n, ...) are not finite, (n,)."""
    return np.asarray(~np.isfinite(results).reshape(len(results), -1).all(1))


def existing_folder(given: str | os.PathLike[str]) -> Path:
    """A folder to keep files in, created where it is missing."""
    folder = Path(given)
    if folder.is_file():
        raise ValueError(f"resume: expected a folder; got the file {folder}.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@dataclass(frozen=True)
class Drawing:
    """How draws of q are made.

    Args:
        limit: Seconds that one call of the posterior may take. Python is stopped then, in the main
            thread and not on Windows.
        failures: The share of x at which drawing may fail; these are left out, with a remark.
        resume: A folder in which draws are kept as they are made. The same call with the same
            folder makes only those that are missing. Give each posterior a folder of its own.
        executor: Any :class:`concurrent.futures.Executor`, to which the posterior is sent with
            some x at a time. It does not change draws.

    Example:
        >>> Drawing(limit=60, failures=0.01)
        Drawing(limit=60.0, failures=0.01, resume=None)
    """

    limit: float = LIMIT
    failures: float = 0.0
    resume: str | os.PathLike[str] | None = None
    executor: Executor | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        vars(self)["limit"] = check_number("limit", self.limit)
        if not 0 <= check_number("failures", self.failures, strict=False) < 1:
            raise ValueError(f"failures: expected a share below 1; got {self.failures}.")
        if self.resume is not None:
            check_path(self.resume, "resume", "a folder, or None")
        check_executor(self.executor)


PATIENT = Drawing()


@dataclass(frozen=True, eq=False)
class Draws:
    r"""An observation with draws of q there; the two travel together.

    Args:
        x: One observation, with shape (...,), or many, with shape (o, ...).
        theta: Draws of :math:`q(\cdot \mid x)`, with shape (s, m) or (o, s, m). Not needed in
            latent space, where the test makes its own.
        n: The number of draws per observation that a test in latent space makes.

    Example:
        >>> Draws([0.5, 1.0], torch.zeros(100, 2))
        Draws(x=(2,), theta=(100, 2))
    """

    x: Tensor
    theta: Tensor | None = None
    n: int = 1000
    _: KW_ONLY
    layout: Layout | None = None  # of the columns of x, if they have names
    names: tuple[str, ...] | None = None  # of the parameters

    if TYPE_CHECKING:  # arrays of any library come in; tensors are what is kept

        def __init__(self, x: Any, theta: Any = None, n: int = 1000, **about: Any) -> None: ...

    def __post_init__(self) -> None:
        vars(self)["n"] = check_count("n", self.n)
        if self.layout is not None:
            check_kind("layout", self.layout, "a Layout, or None", Layout)
        x: Any = self.x
        axes = leading_axes(x, self.layout) if isinstance(x, Mapping) else 0
        tables = {"x_o": as_table("x_o", x, axes)}
        if self.theta is not None:
            tables["theta"] = as_table("theta", self.theta)
        arrays = as_tensors({name: table.array for name, table in tables.items()})
        vars(self).update(x=arrays["x_o"], layout=tables["x_o"].layout or self.layout)
        if self.theta is None:
            return
        check_finite("theta", arrays["theta"])
        shape, layout = tuple(arrays["theta"].shape), tables["theta"].layout
        if len(shape) not in (2, 3):
            raise ValueError(f"theta: expected shape (s, m) or (o, s, m); got {shape}.")
        names = self.names if layout is None else layout.names
        if names is not None:
            names = check_names("names", names, shape[-1])
        vars(self).update(theta=arrays["theta"], n=shape[-2], names=names)

    @classmethod
    def of(cls, given: Any) -> "Draws":
        """Draws as they are, or a bare observation x_o without any."""
        return given if isinstance(given, cls) else cls(given)

    def parameters(self, o: int, like: Tensor, names: tuple[str, ...] | None) -> Tensor:
        """Draws (o, s, m) at o observations as parameters (n, m) are, with these names."""
        if self.theta is None:
            raise ValueError(
                "draws: expected Draws(x_o, theta_o) with draws of q at x_o; got no theta."
            )
        theta, m = self.theta, like.shape[1]
        if names is not None and self.names is not None:
            table = Table(theta, layout_of(self.names))
            theta = table.like(layout_of(names), "theta_o", "theta").array
        theta = (theta[None] if theta.ndim == 2 else theta).to(like)
        if len(theta) != o or theta.shape[2] != m:
            raise ValueError(
                f"theta_o: expected shape ({o}, s, {m}) for {o} observation(s) of {m} "
                f"parameter(s); got {tuple(self.theta.shape)}."
            )
        check_finite("theta_o", theta.flatten(0, 1), f"It is beyond the range of {theta.dtype}.")
        return theta

    def many(self, x: Tensor) -> "Draws":
        """The same with a leading axis, as the observations x (o, ...) have it."""
        theta = self.theta
        theta = theta if theta is None or theta.ndim == 3 else theta[None]
        return Draws(x, theta, self.n, names=self.names)

    def __repr__(self) -> str:
        theta = self.n if self.theta is None else tuple(self.theta.shape)
        return f"Draws(x={tuple(self.x.shape)}, theta={theta})"


class PosteriorDraws(NamedTuple):
    """Draws of q at those of some observations at which they could be made."""

    theta: Tensor  # (c, n, m)
    kept: Tensor  # the numbers of these observations, (c,)
    remarks: tuple[str, ...]  # what the posterior says about its draws there
    left_out: tuple[str, ...]  # which observations are left out, and why


@dataclass(frozen=True, eq=False)
class Sampler:
    """A posterior, how draws of it are made, and the seed of their random streams."""

    posterior: Posterior
    seed: int = 0
    how: Drawing = PATIENT

    def draw(
        self, x: Tensor, n: int, purpose: str, label: str = "x[{}]", remedy: str = LEAVE_OUT
    ) -> PosteriorDraws:
        """Makes n draws at each x (b, ...); the label names numbers of x, the purpose streams."""
        check_fits("draws at each x", n, WORD * len(x))
        most = int(self.how.failures * len(x))
        here = replace(self, how=replace(self.how, executor=None))
        work = partial(here.chunk, n, purpose, most)
        step = self.posterior.rows * max(1, TOGETHER // self.posterior.rows)
        jobs = ((x[first : first + step], first) for first in range(0, len(x), step))
        draws: dict[int, np.ndarray] = {}  # (n, m) at each observation where they could be made
        errors: dict[int, str] = {}  # at all others
        silent = None if len(x) > FEW else True
        with progress(desc=f"drawing: {purpose}", total=len(x), silent=silent, unit="x") as bar:
            for _, (some, more) in run_jobs(self.how.executor, work, jobs):
                draws.update(some)
                errors.update(more)
                bar.update(len(some) + len(more))
                if len(errors) > most:
                    break
        left_out: tuple[str, ...] = ()
        if errors:
            names = [label.format(number) for number in sorted(errors)]
            names = names[:NAMED] + ["..."] * (len(names) > NAMED)
            where = f"{', '.join(names)} ({errors[min(errors)]})"
            if len(errors) > most:
                expected = "expected draws of q at every x"
                raise ValueError(f"posterior: {expected}; got none at {where}. {remedy}")
            rest = "These pairs are left out; nothing is said of q there."
            share = f"{len(errors)} of {len(x)} x"
            left_out = (f"No draws of q could be made at {share}: {where}. {rest}",)
        kept = torch.from_numpy(np.array(sorted(draws)))
        theta = torch.from_numpy(np.stack([draws[i] for i in sorted(draws)])).to(x)
        with isolated(stream(self.seed, purpose, "remarks")):
            remarks = self.posterior.remarks(x[kept.to(x.device)])
        return PosteriorDraws(theta, kept, remarks, left_out)

    def chunk(
        self, n: int, purpose: str, most: int, job: tuple[Tensor, int]
    ) -> tuple[dict[int, np.ndarray], dict[int, str]]:
        """Draws (n, m) at x (b, ...), of which the first has a number, and errors; by numbers."""
        x, start = job
        name = f"{purpose.replace(' ', '-')}-{n}-{self.seed}-{start:06d}.npz"
        file = None if self.how.resume is None else existing_folder(self.how.resume) / name
        given, step = x.cpu().numpy(), self.posterior.rows
        kept = Chunk.read(file, given, "draws", "observations")
        draws: dict[int, np.ndarray] = {}
        errors: dict[int, str] = {}
        calls = [range(len(x))[i : i + step] for i in range(0, len(x), step)]
        try:
            while calls:
                rows = calls.pop(0)
                if kept is not None and not failed(kept.results[rows]).any():
                    draws.update((start + i, kept.results[i]) for i in rows)
                    continue
                if len(errors) > most:
                    continue
                generator = stream(self.seed, purpose, start + rows[0])
                try:
                    theta = self.call(x[rows].clone(), n, generator)
                except Exception as problem:
                    if len(rows) > 1:
                        calls = [range(i, i + 1) for i in rows] + calls
                    else:
                        errors[start + rows[0]] = error_line(problem)
                    continue
                for i, each in zip(rows, theta, strict=True):
                    if np.isfinite(each).all():
                        draws[start + i] = each
                    else:
                        errors[start + i] = "NaN or infinity among the draws"
        finally:
            shape = next((each.shape for each in draws.values()), (n, 1))
            none = np.full(shape, np.nan, given.dtype)
            results = np.stack([draws.get(start + i, none) for i in range(len(x))])
            Chunk(given, results).write(file)
        return draws, errors

    def call(self, x: Tensor, n: int, generator: torch.Generator) -> np.ndarray:
        """Draws (b, n, m) at x (b, ...), in one call."""
        with time_limit(self.how.limit), isolated(generator):
            given = self.posterior.sample_batched(x, n)
        theta = as_tensors({"draws": given})["draws"].to(x)
        if theta.ndim != 3 or theta.shape[:2] != (len(x), n):
            raise ValueError(
                f"expected n = {n} draws at each x, with shape ({len(x)}, {n}, m); got "
                f"{tuple(theta.shape)}"
            )
        return theta.cpu().numpy()


def draw_pairs(
    posterior: Any, theta: Any, x: Any, k: int, embed: Embed | None, how: Drawing, seed: int
) -> tuple[Sampler, dict[str, Any]]:
    """A sampler, and the arguments of a calibration with k draws of it at each x.

    Parameters take the order of the posterior's, where both have names.
    """
    tables = as_table("theta", theta), as_table("x", x)
    arrays = as_tensors({"theta": tables[0].array, "x": tables[1].array})
    theta, x = check_shapes(arrays).values()
    check_finite("theta", theta, "Leave these pairs out.")
    if embed is None:
        check_finite("x", x, "Leave these pairs out; x padded with NaN needs embed=.")
    layout = tables[1].layout
    sampler = Sampler(as_posterior(posterior, x, layout), seed, how)
    table = Table(theta, tables[0].layout)
    if sampler.posterior.names is not None:
        table = table.like(layout_of(sampler.posterior.names), "theta", "the posterior")
    if embed is None and (x.ndim > 2 or (layout and layout.packed)):
        embed = sampler.posterior.embed
    draws = sampler.draw(x, k, "draws")
    pairs = {"theta": table.array[draws.kept], "x": x[draws.kept], "theta_q": draws.theta}
    names = table.layout.names if table.layout else None
    about = {"names": names, "layout": layout, "remarks": draws.remarks + draws.left_out}
    return sampler, {**pairs, **about, "embed": embed}

r"""Makes draws of q at many x: in batches, with a time limit, kept as they are made.

A call of a posterior draws at as many x as it takes, with a random stream of its own. Where a call
raises an error or takes too long, each of its x is tried alone. An x at which no draws can be made
is named by its number. It may be left out: which x these are depends on x and on q but not on
theta, so that tests stay exact for the other x.
"""

import os
import zipfile
from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import KW_ONLY, dataclass, field, replace
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

# Observations up to which drawing shows no progress, and those that are kept together.
FEW, TOGETHER = 100, 50
# Failures that are named.
NAMED = 5
# What to do where no draws can be made at an x of the pairs, or at x_o.
LEAVE_OUT = (
    "Mend it there; or leave up to a hundredth of all x out with drawing=Drawing(failures=0.01)."
)
LOOK_THERE = (
    "Is x_o like the observations that the posterior was trained on? Draws that were made "
    "elsewhere can be given as x_o=Draws(x_o, theta_o)."
)


class Chunk(NamedTuple):
    """What was given (b, ...), the results (b, ...), NaN where a row failed, and the first error.

    A simulator is given parameters and returns observations; a posterior is given observations
    and returns draws.
    """

    given: np.ndarray
    results: np.ndarray
    error: str

    @property
    def failed(self) -> np.ndarray:
        """Which rows failed, (b,)."""
        return failed(self.results)

    def write(self, file: Path | None) -> None:
        """Keeps the chunk in a file, or nowhere."""
        if file is not None:
            with atomic_write(file) as handle:
                np.savez(handle, **self._asdict())

    @classmethod
    def read(cls, file: Path, given: np.ndarray, kept: str, of: str) -> "Chunk":
        """The chunk in a file, for what must be given (b, ...); `kept` and `of` name both."""
        try:
            with open(file, "rb") as handle, np.load(handle, allow_pickle=False) as parts:
                chunk = cls(parts["given"], parts["results"], str(parts["error"]))
        except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as problem:
            raise ValueError(
                f"resume: expected {kept} that were kept; {file} cannot be read. Delete it, and "
                "they are made again."
            ) from problem
        same_shape = chunk.given.shape == given.shape
        # Not to the last digit: draws of q may be rounded differently on another day.
        if not same_shape or not np.allclose(chunk.given, given, 1e-3, 1e-6, equal_nan=True):
            raise ValueError(
                f"resume: expected {kept} of the same {of}; got others in {file}. Was it made "
                "with another prior or posterior? Give another folder, or make the same call."
            )
        return chunk


def failed(results: np.ndarray) -> np.ndarray:
    """Which rows (n, ...) are not finite, (n,)."""
    return np.asarray(~np.isfinite(results).reshape(len(results), -1).all(1))


def existing_folder(folder: Path) -> Path:
    """A folder to keep files in, created where it is missing."""
    if folder.is_file():
        raise ValueError(f"resume: expected a folder; got the file {folder}.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


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
            some x at a time; all draws are made here if None. Does not change draws.

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


@dataclass(frozen=True, eq=False)
class PosteriorDraws:
    """Draws of q at those of b observations at which they could be made."""

    theta: Tensor  # (c, n, m)
    kept: Tensor  # the numbers of these observations, (c,)
    remarks: tuple[str, ...]  # what the posterior says about its draws there
    left_out: tuple[str, ...]  # which observations are left out, and why


def draw_at(
    posterior: Posterior,
    x: Tensor,
    n: int,
    seed: int,
    purpose: str,
    how: Drawing = PATIENT,
    label: str = "x[{}]",
    remedy: str = LEAVE_OUT,
) -> PosteriorDraws:
    """Makes n draws of q at each of some observations (b, ...), or refuses if too many fail.

    The seed and the purpose name the random stream of each call. In messages, the label turns
    numbers into names of observations, and the remedy is what they advise.

    Example:
        >>> from assay.data.posterior import as_posterior
        >>> x = torch.zeros(10, 2)
        >>> q = as_posterior(lambda x, n: x + torch.randn(n, 2), x)
        >>> draw_at(q, x, 5, 0, "here").theta.shape
        torch.Size([10, 5, 2])
    """
    check_fits("draws at each x", n, WORD * len(x))
    most = int(how.failures * len(x))
    job = _Job(posterior, n, seed, purpose, replace(how, executor=None), most)
    step = posterior.rows * max(1, TOGETHER // posterior.rows)
    pieces = ((x[first : first + step], first) for first in range(0, len(x), step))
    found: dict[int, Chunk] = {}
    errors: dict[int, str] = {}
    silent = None if len(x) > FEW else True
    with progress(desc=f"drawing: {purpose}", total=len(x), silent=silent, unit="x") as bar:
        for i, (found[i], more) in run_jobs(how.executor, job, pieces):
            errors |= more
            if len(errors) > most:
                raise ValueError(
                    "posterior: expected draws of q at every x; got none at "
                    f"{_named(errors, label)}. {remedy}"
                )
            bar.update(len(found[i].results))
    chunks = [found[i] for i in range(len(found))]
    kept = torch.from_numpy(np.flatnonzero(~np.concatenate([chunk.failed for chunk in chunks])))
    some = [chunk.results[~chunk.failed] for chunk in chunks if not chunk.failed.all()]
    with isolated(stream(seed, purpose, "remarks")):
        remarks = posterior.remarks(x[kept.to(x.device)])
    left_out: tuple[str, ...] = ()
    if errors:
        names = f"{len(errors)} of {len(x)} x: {_named(errors, label)}"
        rest = "These pairs are left out; nothing is said of q there."
        left_out = (f"No draws of q could be made at {names}. {rest}",)
    return PosteriorDraws(torch.from_numpy(np.concatenate(some)).to(x), kept, remarks, left_out)


def draw_pairs(
    posterior: Any, theta: Any, x: Any, k: int, embed: Embed | None, how: Drawing, seed: int
) -> tuple[Posterior, dict[str, Any]]:
    """The posterior as tests take it, and pairs with k draws of it where they could be made.

    The pairs are the arguments of a calibration. x may hold NaN if an embedding reads it.
    Parameters take the order of the posterior's, where both have names.
    """
    tables = as_table("theta", theta), as_table("x", x)
    arrays = as_tensors({"theta": tables[0].array, "x": tables[1].array})
    theta, x = check_shapes(arrays).values()
    check_finite("theta", theta, "Leave these pairs out.")
    if embed is None:
        check_finite("x", x, "Leave these pairs out; x padded with NaN needs embed=.")
    layout = tables[1].layout
    sampler = as_posterior(posterior, x, layout)
    named = Table(theta, tables[0].layout)
    if sampler.names is not None:
        named = named.like(layout_of(sampler.names), "theta", "the posterior")
    if embed is None and (x.ndim > 2 or (layout and layout.packed)):
        embed = sampler.embed
    draws = draw_at(sampler, x, k, seed, "draws", how)
    names = named.layout.names if named.layout else None
    about = {"names": names, "layout": layout, "remarks": draws.remarks + draws.left_out}
    pairs = {"theta": named.array[draws.kept], "x": x[draws.kept], "theta_q": draws.theta}
    return sampler, pairs | {"embed": embed} | about


def draw_observed(posterior: Posterior, given: Draws, seed: int, how: Drawing = PATIENT) -> Draws:
    """Observations (o, ...) with draws of q there, made if none are given; none is left out."""
    if given.theta is not None:
        return given
    how = replace(how, failures=0.0)
    at = draw_at(posterior, given.x, given.n, seed, "observations", how, "x_o[{}]", LOOK_THERE)
    return replace(given, theta=at.theta)


def _named(errors: dict[int, str], label: str) -> str:
    """The first observations at which drawing failed, with the first error."""
    names = [label.format(number) for number in sorted(errors)]
    more = ["..."] * (len(names) > NAMED)
    return f"{', '.join(names[:NAMED] + more)} ({errors[min(errors)]})"


@dataclass(frozen=True, eq=False)
class _Job:
    """Makes draws for a purpose at some x, here or in another process.

    Where more than `most` of them fail, the others are not tried.
    """

    posterior: Posterior
    n: int
    seed: int
    purpose: str
    how: Drawing
    most: int

    def __call__(self, piece: tuple[Tensor, int]) -> tuple[Chunk, dict[int, str]]:
        """Draws at x (b, ...), of which the first has this number, and errors by number.

        Draws that are kept are not made again; those of a call that is interrupted are kept.
        """
        x, first = piece
        name = f"{self.purpose.replace(' ', '-')}-{self.n}-{self.seed}-{first:06d}.npz"
        folder, given = self.how.resume, x.cpu().numpy()
        file = None if folder is None else existing_folder(Path(folder)) / name
        kept = Chunk.read(file, given, "draws", "observations") if file and file.exists() else None
        draws: list[np.ndarray | None] = []
        errors: dict[int, str] = {}
        try:
            for i in range(0, len(x), self.posterior.rows):
                some = slice(i, i + self.posterior.rows)
                if kept is not None and not kept.failed[some].any():
                    draws += list(kept.results[some])
                else:
                    draws += self._draw(x[some], first + i, errors)
        finally:
            shape = next((np.shape(each) for each in draws if each is not None), (self.n, 1))
            draws += [None] * (len(x) - len(draws))
            none = np.full(shape, np.nan, given.dtype)
            results = np.stack([none if each is None else each for each in draws])
            chunk = Chunk(given, results, "")
            chunk.write(file)
        return chunk, errors

    def _draw(self, x: Tensor, first: int, errors: dict[int, str]) -> list[np.ndarray | None]:
        """Draws (n, m) at each x in one call, or one after the other; None where they fail."""
        if len(errors) > self.most:
            return [None] * len(x)
        try:
            theta = self._call(x, first)
        except Exception as problem:
            if len(x) > 1:
                return [self._draw(at[None], first + i, errors)[0] for i, at in enumerate(x)]
            errors[first] = error_line(problem)
            return [None]
        bad = (~theta.isfinite().flatten(1).all(1)).tolist()
        for i in np.flatnonzero(bad).tolist():
            errors[first + i] = "NaN or infinity among the draws"
        each = zip(theta.cpu().numpy(), bad, strict=True)
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

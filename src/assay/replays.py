r"""Replays: the same test at the same observations, on data with a planted error.

A replay makes the p-values of planted data, as cheaply as the test allows:

* :class:`Closed` scores planted truths as the moment test would, without making the test again.
* :class:`Pooled` makes a test by a single classifier again with a few null copies, and compares
  its statistic with the null copies of all repetitions at the same size of the error.
* :class:`Rerun` makes any other test again, whole.

Each repetition of the latter two has a seed of its own.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, is_dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from .coordinates import Whitened
from .diagnostics.lc2st import LC2ST
from .diagnostics.moments import FARTHEST, STEP, Moments, _surprise
from .nulls import Exchange, FreePermutation, KnownBase, LocalExchange
from .planted import Declared, Error, Member, without_bars
from .randomness import seed_of, stream
from .results import pvalue
from .samples import Calibration, Draws, Place

__all__ = ["Closed", "Pooled", "Repeatable", "Replay", "Rerun", "replayed"]

# Repetitions by default: of a test whose nulls are made once, in closed form, and of any other.
FAST, SLOW = 100, 40
# Null copies of the moment test, where it has fewer itself.
POOL = 499
# Null copies of each repetition where they are pooled, and the nulls that can be.
EACH = 4
POOLED = (Exchange, FreePermutation, KnownBase, LocalExchange)


class Repeatable(Protocol):
    """A local test that can be made again."""

    @property
    def calibration(self) -> Calibration:
        """What it looks at."""

    @property
    def settings(self) -> dict[str, Any]:
        """The settings and versions that made it."""

    def again(self, calibration: Calibration) -> "Repeatable":
        """The same test of another calibration."""

    def __call__(self, draws: Draws) -> Any:
        """Tests q at one observation or many."""


class Replay(Protocol):
    """How p-values of planted data are made."""

    @property
    def place(self) -> Place:
        """The observations as they were given."""

    @property
    def nulls(self) -> int:
        """The number of null copies of the test."""

    @property
    def hypothesis(self) -> str:
        """What the test tests."""

    @property
    def words(self) -> str:
        """How errors were planted, for the settings."""

    @property
    def repetitions(self) -> int:
        """Repetitions by default."""

    @property
    def workers(self) -> int:
        """Threads over which repetitions are spread."""

    def run(self, error: Error, sizes: list[float], repetition: int) -> np.ndarray:
        """What one repetition finds at some sizes, with shape (g, o, c)."""

    def pvalues(self, found: np.ndarray) -> np.ndarray:
        """P-values (n, o) from what n repetitions found at one size, with shape (n, o, c)."""


def replayed(test: Repeatable, draws: Draws, seed: int) -> Replay:
    """The cheapest way to run a test on planted data."""
    whole: Calibration = getattr(test, "whole", test.calibration)
    place, declared = whole.place(draws), Declared.of(whole, seed)
    first = declared.unplanted()
    # Features stand for x from here on: an embedding is not run again for every data set.
    if isinstance(test, Moments):
        there = Draws(place.features)
        if whole.base is not None or isinstance(test.coordinates, Whitened):
            return Closed.of(test.again(first), declared, there, place)
    else:
        theta = None if whole.base is not None else whole.observe(draws).draws
        there = Draws(place.features, theta, n=draws.n)
    found = test.again(first)(there)
    rerun = test, declared, there, place, found.null.shape[-1], found.hypothesis
    if isinstance(test, LC2ST) and isinstance(test.null, POOLED) and _single(test):
        return Pooled(replace(test, null=replace(test.null, n=EACH)), *rerun[1:])
    return Rerun(*rerun)


def _single(test: LC2ST) -> bool:
    """Whether a statistic is that of one classifier, and not combined over the copies."""
    fitted = getattr(test.scores, "data", test.scores)
    return not any(hasattr(fitted, name) for name in ("views", "statistics"))


@dataclass(frozen=True, eq=False)
class Rerun:
    """Runs the test itself on planted data.

    Args:
        test: The test.
        declared: What stands for the truth.
        draws: The observations.
        place: The same as they were given.
        nulls: The number of null copies of the test.
        hypothesis: Its hypothesis.
    """

    test: Any
    declared: Declared
    draws: Draws
    place: Place
    nulls: int
    hypothesis: str

    @property
    def words(self) -> str:
        """How errors were planted, for the settings."""
        return "whole test"

    @property
    def repetitions(self) -> int:
        """Repetitions by default."""
        return SLOW

    @property
    def workers(self) -> int:
        """One: fits have threads of their own."""
        return 1

    def run(self, error: Error, sizes: list[float], repetition: int) -> np.ndarray:
        """P-values (g, o, 1) at some sizes in one repetition."""
        results = self._results(error, sizes, repetition)
        return np.stack([pvalue(result.statistic, result.null)[:, None] for result in results])

    def pvalues(self, found: np.ndarray) -> np.ndarray:
        """P-values (n, o) of n repetitions, which are what they found."""
        return np.asarray(found[..., 0])

    def _results(self, error: Error, sizes: list[float], repetition: int) -> list[Any]:
        """Results at some sizes in one repetition."""
        member, test = self.declared.member(repetition), _seeded(self.test, repetition)
        found = []
        for size in sizes:
            truth = member.moved(error, size, self.declared.chance(repetition))
            calibration = self.declared.calibration(member, truth)
            with without_bars():
                found.append(test.again(calibration)(self.draws))
        return found


class Pooled(Rerun):
    """Runs the test with a few null copies, to be pooled over repetitions.

    Null statistics of one data set scatter around those of all like it; a network's depend on
    what there is to learn in its sets, so that they are pooled at each size by itself.
    """

    @property
    def words(self) -> str:
        """How errors were planted, for the settings."""
        return "pooled nulls"

    def run(self, error: Error, sizes: list[float], repetition: int) -> np.ndarray:
        """Statistics, first, and null statistics, with shape (g, o, 1 + h)."""
        results = self._results(error, sizes, repetition)
        parts = [np.concatenate([r.statistic[:, None], r.null], 1) for r in results]
        return np.stack(parts)

    def pvalues(self, found: np.ndarray) -> np.ndarray:
        """P-values (n, o) of n repetitions, against the nulls of all of them."""
        null = np.moveaxis(found[..., 1:], 1, 0).reshape(found.shape[1], -1)
        return pvalue(found[..., 0], np.broadcast_to(null, (len(found), *null.shape)))


def _seeded(test: Any, repetition: int) -> Any:
    """The same test with another seed, where it has one."""
    if not is_dataclass(test) or not hasattr(test, "seed"):
        return test
    seed = seed_of(stream(test.seed, "replay", repetition))
    return replace(test, seed=seed)  # type: ignore[type-var]


@dataclass(frozen=True, eq=False)
class Closed:
    r"""The moment test of planted truths, with nulls and set means made once.

    In sets, a truth with :math:`u = L^{-1} (\theta - \mu)` for the mean and the Cholesky factor of
    the covariance of the k others has, whitened among all k + 1 = r, the coordinates

    .. math:: z_j = \sqrt{k / r} \; u_j / \sqrt{a_{j-1} a_j}, \qquad
        a_j = 1 + \tfrac1r \sum_{i \le j} u_i^2 .

    Args:
        test: The test of the same sets without an error.
        declared: What stands for the truth.
        place: The observations as they were given.
        nulls: The number of null copies of the test.
        hypothesis: Its hypothesis.
        null: Null statistics (o, p), of which H are taken at random for each repetition, so that
            effects do not depend on a few of them.
        weights: Weights of the sets near an observation, with shape (o c, b).
        near: These sets, with shape (b,).
        offsets: Weighted sums (o c, p) of the set means of each bank's features.
        laws: Mean and degrees of freedom of each bank's squared length.
    """

    test: Moments
    declared: Declared
    place: Place
    nulls: int
    hypothesis: str
    null: np.ndarray
    weights: Tensor
    near: Tensor
    offsets: tuple[Tensor, ...]
    laws: tuple[np.ndarray, np.ndarray]

    @classmethod
    def of(cls, test: Moments, declared: Declared, draws: Draws, place: Place) -> "Closed":
        """Makes nulls and set means."""
        pool = replace(test, null=replace(test.null, n=max(POOL, test.null.n)))
        weights = test._weights(test.calibration.place(draws))
        near = (weights != 0).any(1).any(0).nonzero().flatten()
        table = weights[..., near].flatten(0, 1)
        share = float((weights != 0).sum(2).max()) / weights.shape[2]
        return cls(
            test,
            declared,
            place,
            test.null.n,
            test.where.hypothesis(share),
            pool.surprises(draws).max(2).T,
            table,
            near,
            _set_means(test, table, near),
            test._source.laws(test.banks),
        )

    @property
    def words(self) -> str:
        """How errors were planted, for the settings."""
        return "closed form"

    @property
    def repetitions(self) -> int:
        """Repetitions by default."""
        return FAST

    @property
    def workers(self) -> int:
        """Threads over which repetitions are spread."""
        return torch.get_num_threads() if self.weights.device.type == "cpu" else 1

    def run(self, error: Error, sizes: list[float], repetition: int) -> np.ndarray:
        """P-values (g, o, 1) at some sizes in one repetition."""
        member = self.declared.member(repetition)
        coordinates = _coordinates(member, self.near)
        chance = stream(self.declared.seed, "nulls", repetition)
        null = self.null[:, torch.randperm(self.null.shape[1], generator=chance)[: self.nulls]]
        found = []
        for size in sizes:
            truth = member.moved(error, size, self.declared.chance(repetition))
            z = coordinates(truth[self.near]).clamp(-FARTHEST, FARTHEST)
            found.append(pvalue(self._statistic(z), null)[:, None])
        return np.stack(found)

    def pvalues(self, found: np.ndarray) -> np.ndarray:
        """P-values (n, o) of n repetitions, which are what they found."""
        return np.asarray(found[..., 0])

    def _statistic(self, z: Tensor) -> np.ndarray:
        """Statistics (o,) of truths with coordinates (b, m)."""
        parts = list(zip(self.weights.split(STEP, 1), z.split(STEP), strict=True))
        squares = []
        for bank, offset in zip(self.test.banks, self.offsets, strict=True):
            total = sum((part @ bank(rows) for part, rows in parts), -offset)
            squares.append(total.square().sum(1))
        table = torch.stack(squares, 1).double().cpu().numpy()
        surprise = _surprise(table.reshape(len(self.null), -1, len(squares)), *self.laws)
        return np.asarray(surprise.max(1))


def _set_means(test: Moments, weights: Tensor, near: Tensor) -> tuple[Tensor, ...]:
    """Weighted sums (o c, p) of the set means of features; zero in latent space."""
    calibration = test.calibration
    totals: list[Any] = [weights.new_zeros(())] * len(test.banks)
    if calibration.theta_q is None:
        return tuple(totals)
    members = torch.cat([calibration.theta[:, None], calibration.theta_q], 1)
    step = max(1, STEP // members.shape[1])
    for rows, part in zip(near.split(step), weights.split(step, 1), strict=True):
        z = test.coordinates(members[rows]).clamp(-FARTHEST, FARTHEST)
        for i, bank in enumerate(test.banks):
            totals[i] = totals[i] + part @ bank(z).mean(1)
    return tuple(totals)


def _coordinates(member: Member, near: Tensor) -> Callable[[Tensor], Tensor]:
    """Coordinates (b, m) of truths (b, m) among the others of their sets."""
    if member.others is None:
        return lambda truth: truth
    others = member.others[near]
    r = others.shape[1] + 1
    mean = others.mean(1)
    centred = others - mean[:, None]
    covariance = centred.mT @ centred / (r - 1)
    diagonal = covariance.diagonal(dim1=1, dim2=2)
    # As in `Whitened`: a little more than rounding, and a parameter without variation stays.
    diagonal += torch.where(diagonal > 0, 1e-4 * diagonal, torch.ones_like(diagonal))
    factor = torch.linalg.cholesky(covariance)
    inverse = torch.linalg.solve_triangular(
        factor, torch.eye(factor.shape[1]).to(factor).expand_as(factor), upper=False
    )

    def whitened(truth: Tensor) -> Tensor:
        u = (inverse @ (truth - mean)[..., None])[..., 0]
        above = 1 + u.square().cumsum(1) / r
        before = torch.cat([torch.ones_like(above[:, :1]), above[:, :-1]], 1)
        white: Tensor = math.sqrt((r - 1) / r) * u * (above * before).rsqrt()
        return white

    return whitened

"""A suite of alternatives: what a deciding test finds, beside the best that any could find.

    python -m benchmarks.alternatives [--half all] [--repetitions 200]
        [--workers 2] [--tests score] [--references oracle,energy] [--only "m = 20"] [--seed 0]
        [--out alternatives.json]

**Designs.** x ~ N(0, I_d), of which two numbers are informative. In standard coordinates u, q is
N(0, I_m) at every x, and theta = location(x) + scale(x) L u. An error moves the truths away from
N(0, I_m), or the draws of q; its size is a function of x, the extent. Its density ratio is known.
Calibrations hold draws of q, or latents, which are the coordinates u themselves.

**Tests under study** are functions of a calibration, an observation and a seed that return a
p-value (`TESTS`). Where a test refuses a design, the table shows a dash, and the mean counts it as
one that does not reject.

**References** look at the nearest 20 % of x, with 199 nulls: for draws another member of each set
plays the truth, for latents the truths are draws of N(0, I). The *oracle* knows the density ratio
p / q: its statistic is the likelihood ratio, so no test of these sets is better, and where q is
right it never rejects. A test that is better knows other sets: the oracle that is *informed* takes
the nearest 20 % in the two informative numbers. The rivals are an energy test, MMD with a Gaussian
kernel of median bandwidth, the largest Anderson-Darling statistic of a coordinate, and the largest
chi-square of its ranks. In latents they look at these; among draws at members by the mean and the
standard deviation of their set.

**Sizes** are such that the oracle rejects in 0.75 to 0.995 of all repetitions. q is right in the
designs "none", and near x_o in "leak", where it is off by 10 standard deviations elsewhere.

**Halves.** The designs of one kind are chosen and held by turns, in the order of the table, so
that both halves have every kind, and every m, d, n, extent and space. A test is made on those that
are chosen, and judged on those that are held.
"""

import argparse
import json
import math
import multiprocessing
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.special
import scipy.stats
import torch
from torch import Tensor
from tqdm import tqdm

import assay
from assay._support.random import stream
from assay.neighbourhood import Distance, Nearest

from .record import origin

NULLS, SHARE, LEVEL = 199, 0.2, 0.05
# The informative numbers of x, and their values at x_o.
X_O = torch.tensor([1.0, -0.5])
# Members that a member's mean distance is taken to, at most, and distances at a time.
MOST_MEMBERS, AT_A_TIME = 8000, 200_000
# Cells of equal mass that latents are counted in.
CELLS = 16


# Where q is wrong.


@dataclass(frozen=True)
class Extent:
    """How the size of an error depends on the informative numbers of x, (n, 2) to (n,)."""

    name: str
    profile: Callable[[Tensor], Tensor]


def _near(informative: Tensor, share: float) -> Tensor:
    return Nearest(share).inside(informative, X_O[None])[0].float()


def _nearest(share: float) -> Extent:
    return Extent(f"nearest {share:.0%}", partial(_near, share=share))


CONSTANT = Extent("constant", lambda x: torch.ones(len(x)))
SLOPED = Extent("sloped", lambda x: x[:, 0])
# About one period within the nearest 20 % of x_o.
OSCILLATING = Extent("oscillating", lambda x: (4 * x[:, 0]).sin())
NEAREST_2, NEAREST_5, NEAREST_20 = _nearest(0.02), _nearest(0.05), _nearest(0.2)
OUTSIDE = Extent("outside 20%", lambda x: 1 - _near(x, SHARE))


# How q is wrong.


@dataclass(frozen=True)
class Error(ABC):
    """A law of u beside N(0, I), of a size that may be another at every x.

    Args:
        dims: The number of coordinates that it concerns, the last ones; all if None. L is lower
            triangular, so that the last coordinate moves the last parameter alone.
    """

    dims: int | None = None

    def draw(self, noise: Tensor, size: Tensor, generator: torch.Generator) -> Tensor:
        """Draws (n, r, m) from noise of N(0, I), with sizes that broadcast to (n, r)."""
        u = noise.clone()
        u[..., self._which] = self._moved(noise[..., self._which], size[..., None], generator)
        return u

    def log_ratio(self, u: Tensor, size: Tensor) -> Tensor:
        """The log-density (n, r) at u (n, r, m), less that of N(0, I)."""
        return self._log_ratio(u[..., self._which], size)

    @property
    def _which(self) -> slice:
        return slice(None if self.dims is None else -self.dims, None)

    @abstractmethod
    def _moved(self, noise: Tensor, size: Tensor, generator: torch.Generator) -> Tensor:
        """The coordinates concerned, from noise (n, r, dims)."""

    @abstractmethod
    def _log_ratio(self, u: Tensor, size: Tensor) -> Tensor:
        """The log-ratio (n, r) of the coordinates concerned."""


class Shift(Error):
    """Shifted by the size."""

    def _moved(self, noise: Tensor, size: Tensor, generator: torch.Generator) -> Tensor:
        return noise + size

    def _log_ratio(self, u: Tensor, size: Tensor) -> Tensor:
        return (size[..., None] * u - size[..., None] ** 2 / 2).sum(-1)


class Width(Error):
    """Wider by a factor of exp(size): q is too narrow if the size is positive."""

    def _moved(self, noise: Tensor, size: Tensor, generator: torch.Generator) -> Tensor:
        return noise * size.exp()

    def _log_ratio(self, u: Tensor, size: Tensor) -> Tensor:
        return u.square().sum(-1) * -torch.expm1(-2 * size) / 2 - size * u.shape[-1]


@dataclass(frozen=True)
class Correlation(Error):
    """Two coordinates have a correlation of the size, or of 0.9 where it is larger."""

    dims: int | None = 2

    def _moved(self, noise: Tensor, size: Tensor, generator: torch.Generator) -> Tensor:
        (first, second), size = noise.split(1, -1), size.clamp(-0.9, 0.9)
        return torch.cat([first, size * first + (1 - size**2).sqrt() * second], -1)

    def _log_ratio(self, u: Tensor, size: Tensor) -> Tensor:
        (first, second), size = u.unbind(-1), size.clamp(-0.9, 0.9)
        rest = (second - size * first) ** 2 / (1 - size**2)
        return (second**2 - rest - torch.log1p(-(size**2))) / 2


@dataclass(frozen=True)
class Ignored(Error):
    """The last parameter has correlation rho with a number of x, the size; q is the prior."""

    dims: int | None = 1
    rho: float = 0.3

    def _moved(self, noise: Tensor, size: Tensor, generator: torch.Generator) -> Tensor:
        return self.rho * size + math.sqrt(1 - self.rho**2) * noise

    def _log_ratio(self, u: Tensor, size: Tensor) -> Tensor:
        rest = (u - self.rho * size[..., None]) ** 2 / (1 - self.rho**2)
        return ((u**2 - rest - math.log1p(-(self.rho**2))) / 2).sum(-1)


class Shape(Error):
    """Of another shape with a probability of the size, and of N(0, I) else."""

    def _moved(self, noise: Tensor, size: Tensor, generator: torch.Generator) -> Tensor:
        chance = torch.rand(*noise.shape[:-1], 1, generator=generator)
        return torch.where(chance < size, self._other(noise, generator), noise)

    def _log_ratio(self, u: Tensor, size: Tensor) -> Tensor:
        size = size.clamp(0, 1)
        return torch.logaddexp(torch.log1p(-size), size.log() + self._log_other(u))

    @abstractmethod
    def _other(self, noise: Tensor, generator: torch.Generator) -> Tensor:
        """Draws of the other shape, from noise (n, r, dims)."""

    @abstractmethod
    def _log_other(self, u: Tensor) -> Tensor:
        """The log-density (n, r) of the other shape, less that of N(0, I)."""


@dataclass(frozen=True)
class TCopula(Shape):
    """The copula of a t distribution, with normal marginals."""

    degrees: int = 3

    def _other(self, noise: Tensor, generator: torch.Generator) -> Tensor:
        t = noise / _root_of_mean_square(noise[..., :1], self.degrees, generator)
        return _by_tails(t, lambda p: scipy.special.ndtri(scipy.special.stdtr(self.degrees, p)))

    def _log_other(self, u: Tensor) -> Tensor:
        nu, p, gamma = self.degrees, u.shape[-1], math.lgamma
        t = _by_tails(u, lambda z: scipy.special.stdtrit(nu, scipy.special.ndtr(z)))
        constant = gamma((nu + p) / 2) + (p - 1) * gamma(nu / 2) - p * gamma((nu + 1) / 2)
        joint = (nu + p) / 2 * torch.log1p(t.square().sum(-1) / nu)
        return constant - joint + (nu + 1) / 2 * torch.log1p(t.square() / nu).sum(-1)


@dataclass(frozen=True)
class HeavyTails(Shape):
    """Independent t distributions of unit variance."""

    degrees: int = 5

    def _other(self, noise: Tensor, generator: torch.Generator) -> Tensor:
        return self._scale * noise / _root_of_mean_square(noise, self.degrees, generator)

    def _log_other(self, u: Tensor) -> Tensor:
        law = torch.distributions.StudentT(self.degrees, scale=self._scale)
        return _over_normal(law.log_prob(u), u)

    @property
    def _scale(self) -> float:
        return math.sqrt((self.degrees - 2) / self.degrees)


@dataclass(frozen=True)
class Skew(Shape):
    """Independent skew-normal distributions of zero mean and unit variance."""

    slant: float = 4.0

    def _other(self, noise: Tensor, generator: torch.Generator) -> Tensor:
        half = torch.randn(noise.shape, generator=generator).abs()
        raw = self._delta * half + math.sqrt(1 - self._delta**2) * noise
        return (raw - self._mean) / self._sd

    def _log_other(self, u: Tensor) -> Tensor:
        raw = self._mean + self._sd * u
        slanted = torch.special.log_ndtr(self.slant * raw) + math.log(2 * self._sd)
        return _over_normal(_log_normal(raw) + slanted, u)

    @property
    def _delta(self) -> float:
        return self.slant / math.sqrt(1 + self.slant**2)

    @property
    def _mean(self) -> float:
        return self._delta * math.sqrt(2 / math.pi)

    @property
    def _sd(self) -> float:
        return math.sqrt(1 - self._mean**2)


@dataclass(frozen=True)
class TwoModes(Shape):
    """Two modes at plus and minus `at`, with the first three moments of N(0, 1)."""

    dims: int | None = 1
    at: float = 0.82

    def _other(self, noise: Tensor, generator: torch.Generator) -> Tensor:
        side = 2 * torch.randint(2, noise.shape, generator=generator) - 1
        return side * self.at + self._sd * noise

    def _log_other(self, u: Tensor) -> Tensor:
        modes = [_log_normal((u - at) / self._sd) for at in (self.at, -self.at)]
        return _over_normal(torch.logaddexp(*modes) - math.log(2 * self._sd), u)

    @property
    def _sd(self) -> float:
        return math.sqrt(1 - self.at**2)


@dataclass(frozen=True)
class LostMode(Shape):
    """A mode far out that q does not have."""

    dims: int | None = 1
    at: float = 4.0

    def _other(self, noise: Tensor, generator: torch.Generator) -> Tensor:
        return noise + self.at

    def _log_other(self, u: Tensor) -> Tensor:
        return (self.at * u - self.at**2 / 2).sum(-1)


@dataclass(frozen=True)
class Parity(Shape):
    """The product of four coordinates is positive; any three of them are independent."""

    dims: int | None = 4

    def _other(self, noise: Tensor, generator: torch.Generator) -> Tensor:
        sign = noise.prod(-1, keepdim=True).sign()
        return torch.cat([noise[..., :-1], sign * noise[..., -1:]], -1)

    def _log_other(self, u: Tensor) -> Tensor:
        return torch.log1p(u.prod(-1).sign())


def _root_of_mean_square(like: Tensor, degrees: int, generator: torch.Generator) -> Tensor:
    """What turns normal numbers into those of a t distribution, in the shape of a tensor."""
    return torch.randn(*like.shape, degrees, generator=generator).square().mean(-1).sqrt()


def _by_tails(values: Tensor, odd: Callable[[np.ndarray], np.ndarray]) -> Tensor:
    """An odd function, computed in the lower tail, where probabilities keep their digits."""
    lower = odd(-values.abs().double().numpy())
    return (-values.sign() * torch.from_numpy(lower)).to(values)


def _log_normal(u: Tensor) -> Tensor:
    return -(u**2) / 2 - math.log(2 * math.pi) / 2


def _over_normal(log_density: Tensor, u: Tensor) -> Tensor:
    return (log_density - _log_normal(u)).sum(-1)


# What q is, and what a test is given.


@dataclass(frozen=True)
class Model:
    """theta = location(x) + scale(x) L u, where u ~ N(0, I) for q.

    Args:
        gain: How much location and scale depend on x; q is the prior if it is 0.
        correlation: That of any two parameters.
    """

    gain: float = 1.0
    correlation: float = 0.0

    def parameters(self, u: Tensor, x: Tensor) -> Tensor:
        """Parameters (n, r, m) of coordinates (n, r, m) at x (n, d)."""
        location, scale = self._at(x, u.shape[-1])
        return location + scale * (u @ self._factor(u.shape[-1]).mT)

    def standard(self, theta: Tensor, x: Tensor) -> Tensor:
        """Coordinates (n, r, m) of parameters (n, r, m) at x (n, d)."""
        m = theta.shape[-1]
        location, scale = self._at(x, m)
        rest = ((theta - location) / scale).mT
        u: Tensor = torch.linalg.solve_triangular(self._factor(m), rest, upper=False)
        return u.mT

    def _at(self, x: Tensor, m: int) -> tuple[Tensor, Tensor]:
        location = self.gain * x[:, None, torch.arange(m) % len(X_O)]
        return location, (self.gain * x[:, 1, None, None] / 4).exp()

    def _factor(self, m: int) -> Tensor:
        alike = torch.full((m, m), self.correlation)
        factor: Tensor = torch.linalg.cholesky(alike + (1 - self.correlation) * torch.eye(m))
        return factor


class Copies(ABC):
    """The truths near x_o and what they could have been; copy 0 is the data."""

    @property
    @abstractmethod
    def truths(self) -> Tensor:
        """Coordinates (c, n, m) in which q looks like N(0, I)."""

    @property
    @abstractmethod
    def uniform(self) -> Tensor:
        """The same (c, n, m), about uniform between 0 and 1 if q is right."""

    @property
    @abstractmethod
    def cells(self) -> tuple[Tensor, int]:
        """The cell (c, n, m) that each falls into, and how many of the same mass there are."""

    @property
    @abstractmethod
    def bandwidth(self) -> float:
        """The median distance of two draws of q."""

    @property
    @abstractmethod
    def to_q(self) -> tuple[Tensor, Tensor]:
        """Mean distance of truths (c, n) to q, and mean of the kernel."""

    @abstractmethod
    def likelihood_ratio(self, log_ratio: Callable[[Tensor], Tensor]) -> Tensor:
        """Log-likelihood ratios (c,), from log p / q of members (n, r, m) in (n, r)."""

    @cached_property
    def within(self) -> tuple[Tensor, Tensor]:
        """Mean distance (c,) of two different truths of a copy, and mean of the kernel."""
        means = _joined([_means(truths, truths, self.bandwidth) for truths in self.truths])
        n = self.truths.shape[1]
        distance, kernel = (each.reshape(-1, n).sum(1) / (n - 1) for each in means)
        return distance, kernel - 1 / (n - 1)


@dataclass(frozen=True, eq=False)
class LatentCopies(Copies):
    """Latents (c, n, m), those of the truths and draws of N(0, I)."""

    z: Tensor

    @property
    def truths(self) -> Tensor:
        """Latents are standardised already."""
        return self.z

    @cached_property
    def uniform(self) -> Tensor:
        """By the distribution function of N(0, 1)."""
        below: Tensor = torch.special.ndtr(self.z)
        return below

    @property
    def cells(self) -> tuple[Tensor, int]:
        """Cells of equal mass."""
        return (CELLS * self.uniform).long().clamp_max(CELLS - 1), CELLS

    @property
    def bandwidth(self) -> float:
        """The median of the chi distribution, times the root of two."""
        return math.sqrt(2) * float(scipy.stats.chi(self.z.shape[2]).median())

    @cached_property
    def to_q(self) -> tuple[Tensor, Tensor]:
        """In closed form: functions of the distance from the origin."""
        square, m, h2 = self.z.square().sum(2), self.z.shape[2], self.bandwidth**2
        kernel = (h2 / (h2 + 1)) ** (m / 2) * (-square / (2 * (h2 + 1))).exp()
        return _mean_distance(square, m), kernel

    def likelihood_ratio(self, log_ratio: Callable[[Tensor], Tensor]) -> Tensor:
        """That of the truths."""
        return log_ratio(self.z.transpose(0, 1)).double().sum(0)


@dataclass(frozen=True, eq=False)
class DrawCopies(Copies):
    """Members (n, r, m), and which of them plays the truth (c, n)."""

    members: Tensor
    labels: Tensor
    generator: torch.Generator

    def pick(self, values: Tensor) -> Tensor:
        """The truths' values (c, n, ...) of those of all members (n, r, ...)."""
        return values[torch.arange(len(values)), self.labels]

    @cached_property
    def standardised(self) -> Tensor:
        """Members (n, r, m) by the mean and the standard deviation of their set."""
        centred = self.members - self.members.mean(1, keepdim=True)
        return centred / self.members.std(1, keepdim=True)

    @cached_property
    def truths(self) -> Tensor:
        """Standardised."""
        return self.pick(self.standardised)

    @property
    def uniform(self) -> Tensor:
        """By the rank among all members of all sets."""
        pooled = self.standardised.flatten(0, 1)
        return self.pick(((_ranks(pooled) + 0.5) / len(pooled)).reshape(self.members.shape))

    @property
    def cells(self) -> tuple[Tensor, int]:
        """By the rank in the set."""
        return self.pick(_ranks(self.members.transpose(0, 1)).transpose(0, 1)), self._r

    @cached_property
    def bandwidth(self) -> float:
        """The median over some members, whoever plays the truth."""
        return float(torch.pdist(self._some[:1000]).median())

    @cached_property
    def to_q(self) -> tuple[Tensor, Tensor]:
        """Of each member to all members, or to many where there are more."""
        means = _means(self.standardised.flatten(0, 1), self._some, self.bandwidth)
        distance, kernel = (each.reshape(-1, self._r) for each in means)
        return self.pick(distance), self.pick(kernel)

    def likelihood_ratio(self, log_ratio: Callable[[Tensor], Tensor]) -> Tensor:
        """That these members are the truths, rather than any of their sets."""
        ratio = log_ratio(self.members).double()
        return self.pick(ratio.log_softmax(1) + math.log(self._r)).sum(1)

    @property
    def _r(self) -> int:
        return self.members.shape[1]

    @cached_property
    def _some(self) -> Tensor:
        pooled = self.standardised.flatten(0, 1)
        return pooled[torch.randperm(len(pooled), generator=self.generator)[:MOST_MEMBERS]]


def _ranks(values: Tensor) -> Tensor:
    """Ranks from 0 along the first axis."""
    return values.argsort(0).argsort(0)


def _means(first: Tensor, second: Tensor, bandwidth: float) -> tuple[Tensor, Tensor]:
    """Mean distance (a,) of points (a, m) to points (b, m), and mean of the kernel."""
    parts = first.split(max(1, AT_A_TIME // len(second)))
    return _joined([_part_means(torch.cdist(part, second), bandwidth) for part in parts])


def _part_means(distances: Tensor, bandwidth: float) -> tuple[Tensor, Tensor]:
    mean = distances.mean(1)
    return mean, distances.square_().mul_(-0.5 / bandwidth**2).exp_().mean(1)


def _joined(pairs: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    first, second = zip(*pairs, strict=True)
    return torch.cat(first), torch.cat(second)


def _mean_distance(square: Tensor, m: int) -> Tensor:
    """The mean distance to N(0, I_m) of points whose squared norms are given."""
    grid = np.linspace(0, float(square.max()), 2000)
    factor = math.sqrt(2) * math.exp(math.lgamma((m + 1) / 2) - math.lgamma(m / 2))
    known = factor * scipy.special.hyp1f1(-0.5, m / 2, -grid / 2)
    return torch.from_numpy(np.interp(square.numpy(), grid, known)).to(square)


class Space(ABC):
    """What a test is given: draws of q or latents."""

    name: str

    @abstractmethod
    def calibration(
        self, design: "Design", x: Tensor, size: Tensor, generator: torch.Generator
    ) -> assay.Calibration:
        """A calibration at x (n, d), with an error of these sizes (n, 1)."""

    @abstractmethod
    def copies(self, near: assay.Calibration, generator: torch.Generator) -> Copies:
        """The data near x_o, and its nulls."""

    @abstractmethod
    def log_ratio(self, members: Tensor, design: "Design", x: Tensor, size: Tensor) -> Tensor:
        """The log of p / q (n, r) for members (n, r, m) at x (n, d), with errors (n, 1)."""


class InLatents(Space):
    """Latents; those of the truths carry the error."""

    name = "latents"

    def calibration(
        self, design: "Design", x: Tensor, size: Tensor, generator: torch.Generator
    ) -> assay.Calibration:
        """Latents of the truths."""
        noise = torch.randn(len(x), 1, design.m, generator=generator)
        z = design.error.draw(noise, size, generator)
        return assay.Calibration.from_base(z[:, 0], x)

    def copies(self, near: assay.Calibration, generator: torch.Generator) -> LatentCopies:
        """Fresh draws of N(0, I)."""
        fresh = torch.randn(NULLS, *near.theta.shape, generator=generator)
        return LatentCopies(torch.cat([near.theta[None], fresh]))

    def log_ratio(self, members: Tensor, design: "Design", x: Tensor, size: Tensor) -> Tensor:
        """Of latents."""
        return design.error.log_ratio(members, size)


@dataclass(frozen=True)
class InSets(Space):
    """Sets of a truth and draws of q; some members carry the error.

    Args:
        name: What it is called.
        carries: Whether a member carries the error, by its index; the truth is 0.
        sign: 1 where the truth does, so that its law is above, and -1 where the draws do.
    """

    name: str
    carries: Callable[[Tensor], Tensor]
    sign: int

    def calibration(
        self, design: "Design", x: Tensor, size: Tensor, generator: torch.Generator
    ) -> assay.Calibration:
        """Pairs with draws of q."""
        noise = torch.randn(len(x), 1 + max(16, design.m + 4), design.m, generator=generator)
        wrong = design.error.draw(noise, size, generator)
        carries = self.carries(torch.arange(noise.shape[1]))[:, None]
        theta = design.model.parameters(torch.where(carries, wrong, noise), x)
        return assay.Calibration(theta[:, 0], x, theta[:, 1:])

    def copies(self, near: assay.Calibration, generator: torch.Generator) -> DrawCopies:
        """Exchanges of who plays the truth."""
        n, r = near.members.shape[:2]
        labels = torch.randint(r, (NULLS + 1, n), generator=generator)
        labels[0] = 0
        return DrawCopies(near.members, labels, generator)

    def log_ratio(self, members: Tensor, design: "Design", x: Tensor, size: Tensor) -> Tensor:
        """Of parameters."""
        u = design.model.standard(members, x)
        return self.sign * design.error.log_ratio(u, size)


LATENTS = InLatents()
DRAWS = InSets("draws", lambda member: member == 0, 1)
# The truths are N(0, I), and q is what departs from it.
WRONG_DRAWS = InSets("wrong draws", lambda member: member > 0, -1)


# The designs.


@dataclass(frozen=True)
class Design:
    """An error of known size and extent, and the sizes of a calibration."""

    kind: str
    error: Error
    size: float
    m: int
    n: int = 2000
    d: int = 2
    extent: Extent = CONSTANT
    space: Space = DRAWS
    model: Model = Model()

    @property
    def name(self) -> str:
        """All that tells it from the others."""
        sizes = f"m = {self.m}, d = {self.d}, n = {self.n}"
        return f"{self.kind}, {self.extent.name}, {self.space.name}, {sizes}"

    @property
    def right(self) -> bool:
        """Whether q is right near x_o, so that a rejection is an error of the test."""
        return self.size == 0 or self.extent is OUTSIDE

    def sizes(self, x: Tensor) -> Tensor:
        """The size (n, 1) of the error at x (n, d)."""
        return self.size * self.extent.profile(x[:, : len(X_O)])[:, None]

    def make(self, seed: int) -> tuple[assay.Calibration, Tensor]:
        """A calibration, and an observation (d,) at which q is tested."""
        generator = stream(seed, "alternatives", self.name)
        x = torch.randn(self.n, self.d, generator=generator)
        x_o = torch.cat([X_O, torch.randn(self.d - len(X_O), generator=generator)])
        return self.space.calibration(self, x, self.sizes(x), generator), x_o


_shift_all = partial(Design, "shift of all", Shift())
_shift_one = partial(Design, "shift of one", Shift(1))
# The truth is wider or narrower than q by a factor of exp(size).
_wide_all = partial(Design, "all too wide", Width())
_wide_one = partial(Design, "one too wide", Width(1))
_narrow_all = partial(Design, "all too narrow", Width())
_narrow_one = partial(Design, "one too narrow", Width(1))
_correlation = partial(Design, "correlation of two", Correlation())
_copula = partial(Design, "t copula", TCopula())
_tails = partial(Design, "heavy tails", HeavyTails(1))
_skew = partial(Design, "skewness", Skew(1))
_modes = partial(Design, "two modes", TwoModes())
_lost = partial(Design, "lost mode", LostMode())
_parity = partial(Design, "parity copula", Parity())


def _prior(rho: float, **sizes: Any) -> Design:
    return Design("q = prior", Ignored(1, rho), 1.0, extent=SLOPED, model=Model(gain=0), **sizes)


_none = partial(Design, "none", Shift(), 0.0)
_leak = partial(Design, "leak", Shift(), 10.0, extent=OUTSIDE)
_ALIKE = Model(correlation=0.5)

# Sizes are round numbers that would matter to a user: 0.3 sd, a width off by 40 %, a correlation
# of 0.4; larger where the error is confined to few x, smaller where it is in all parameters.
DESIGNS = (
    _shift_all(0.35, m=1, n=500, space=LATENTS),
    _shift_all(0.35, m=1, n=500),
    _shift_all(0.2, m=5, d=10, extent=SLOPED, model=_ALIKE),
    _shift_all(0.2, m=10, d=10, extent=SLOPED, space=LATENTS),
    _shift_all(0.3, m=2, d=100, extent=NEAREST_20),
    _shift_all(0.3, m=5, d=100, extent=NEAREST_20, space=LATENTS),
    _shift_all(1.0, m=2, extent=NEAREST_2, space=LATENTS),
    _shift_all(0.5, m=2, n=10_000, extent=NEAREST_2),
    _shift_one(0.3, m=20),
    _shift_one(0.3, m=20, space=LATENTS),
    _shift_one(0.3, m=40, space=LATENTS),
    _shift_one(0.3, m=40),
    _shift_one(0.5, m=10, extent=OSCILLATING),
    _shift_one(0.5, m=5, extent=OSCILLATING, space=LATENTS),
    _shift_one(1.0, m=2, n=10_000, d=10, extent=NEAREST_5),
    _shift_one(0.3, m=10, d=100),
    _wide_all(-0.2, m=5, n=500, space=LATENTS),
    _wide_all(-0.35, m=5, extent=NEAREST_5),
    _narrow_all(0.35, m=10, d=10, extent=NEAREST_5, space=LATENTS),
    _narrow_all(0.35, m=2, n=500),
    _wide_one(-0.35, m=20, model=_ALIKE),
    _wide_one(-0.35, m=10, space=LATENTS),
    _narrow_one(0.35, m=2, d=100, extent=NEAREST_20, space=LATENTS),
    _narrow_one(0.35, m=20),
    _correlation(0.4, m=2, extent=SLOPED),
    _correlation(0.4, m=20, space=LATENTS),
    _correlation(0.4, m=10, extent=NEAREST_20, space=LATENTS),
    _correlation(0.4, m=5, d=10, extent=NEAREST_20, model=_ALIKE),
    _copula(1.0, m=2, space=LATENTS),
    _copula(1.0, m=5, n=500),
    _tails(1.0, m=1, space=LATENTS),
    _tails(1.0, m=5, space=WRONG_DRAWS),
    _skew(1.0, m=1, n=500, space=WRONG_DRAWS),
    _skew(1.0, m=10, space=LATENTS),
    _modes(1.0, m=2, n=500, space=LATENTS),
    _modes(1.0, m=5),
    _lost(0.02, m=2, n=500, space=LATENTS),
    _lost(0.05, m=5, extent=NEAREST_5),
    _parity(0.4, m=4, space=LATENTS),
    _parity(0.4, m=4, n=10_000, extent=NEAREST_20),
    _prior(0.36, m=1, n=500),
    _prior(0.36, m=2, d=10, space=LATENTS),
    _none(m=2, space=LATENTS),
    _none(m=20, n=500),
    _none(m=5, d=100, model=_ALIKE),
    _leak(m=2),
    _leak(m=2, space=LATENTS),
)


def designs() -> tuple[Design, ...]:
    """All designs, in the order of the table."""
    return DESIGNS


def named(name: str) -> Design:
    """The design of a name."""
    return next(design for design in DESIGNS if design.name == name)


def half(design: Design) -> str:
    """Designs of one kind are chosen and held by turns."""
    kind = [other.name for other in DESIGNS if other.kind == design.kind]
    return ("chosen", "held")[kind.index(design.name) % 2]


# The oracle and its rivals.


class Near(NamedTuple):
    """What is near x_o in one sense: the sets, the sizes of their errors (n, 1), the copies."""

    design: Design
    sets: assay.Calibration
    sizes: Tensor
    copies: Copies


def find(
    design: Design, calibration: assay.Calibration, x_o: Tensor, where: Nearest, seed: int
) -> Near:
    rows = where.inside(calibration.features, x_o[None])[0]
    sets = calibration.subset(rows.numpy())
    copies = design.space.copies(sets, stream(seed, "references", design.name))
    return Near(design, sets, design.sizes(calibration.x)[rows], copies)


def likelihood_ratio(near: Near) -> Tensor:
    known = partial(near.design.space.log_ratio, design=near.design, x=near.sets.x)
    return near.copies.likelihood_ratio(partial(known, size=near.sizes))


def energy(near: Near) -> Tensor:
    return 2 * near.copies.to_q[0].mean(1) - near.copies.within[0]


def mmd(near: Near) -> Tensor:
    return near.copies.within[1] - 2 * near.copies.to_q[1].mean(1)


def anderson_darling(near: Near) -> Tensor:
    u = near.copies.uniform.clamp(1e-7, 1 - 1e-7).sort(1).values
    weights = (2 * torch.arange(u.shape[1]) + 1) / u.shape[1]
    tails = u.log() + torch.log1p(-u.flip(1))
    return -(weights[:, None] * tails).sum(1).amin(1)


def rank_chi_square(near: Near) -> Tensor:
    cells, count = near.copies.cells
    c, n, m = cells.shape
    first = count * torch.arange(c * m).reshape(c, 1, m)
    counts = (cells + first).flatten().bincount(minlength=c * m * count)
    return (counts.reshape(c, m, count) - n / count).square().sum(2).amax(1)


def _informative(x: Tensor) -> Tensor:
    return x[:, : len(X_O)]


IN_X = Nearest(SHARE)
RIVALS: dict[str, Callable[[Near], Tensor]] = {
    "energy": energy,
    "MMD": mmd,
    "AD": anderson_darling,
    "ranks": rank_chi_square,
}
ORACLES = {"oracle": IN_X, "informed": Nearest(SHARE, Distance(_informative))}
REFERENCES = {name: (IN_X, statistic) for name, statistic in RIVALS.items()} | {
    name: (where, likelihood_ratio) for name, where in ORACLES.items()
}


def compared(
    design: Design, calibration: assay.Calibration, x_o: Tensor, seed: int, names: Iterable[str]
) -> dict[str, float]:
    """The p-values of references."""
    made: dict[Nearest, Near] = {}
    found = {}
    for name in names:
        where, statistic = REFERENCES[name]
        if where not in made:
            made[where] = find(design, calibration, x_o, where, seed)
        found[name] = pvalue(statistic(made[where]))
    return found


def pvalue(statistics: Tensor) -> float:
    """The p-value of statistics (c,), of which the first is that of the data."""
    return (1 + int((statistics[1:] >= statistics[0]).sum())) / len(statistics)


# The tests under study.

Test = Callable[[assay.Calibration, Tensor, int], float]


def _score(calibration: assay.Calibration, x_o: Tensor, seed: int) -> float:
    return float(assay.score(calibration, seed=seed)(x_o).pvalue)


TESTS: dict[str, Test] = {"score": _score}


def studied(test: Test, calibration: assay.Calibration, x_o: Tensor, seed: int) -> float:
    """The p-value of a test; NaN where it refuses."""
    try:
        return test(calibration, x_o, seed)
    except ValueError:
        return math.nan


# The runner.


class Job(NamedTuple):
    """One repetition of a design, and what is asked of it."""

    design: str
    seed: int
    tests: tuple[str, ...]
    references: tuple[str, ...]


class Found(NamedTuple):
    """The p-values of a repetition, and the seconds of the tests under study."""

    pvalues: dict[str, float]
    seconds: dict[str, float]


def repetition(job: Job) -> Found:
    design = named(job.design)
    calibration, x_o = design.make(job.seed)
    pvalues, seconds = {}, {}
    for name in job.tests:
        start = time.perf_counter()
        pvalues[name] = studied(TESTS[name], calibration, x_o, job.seed)
        seconds[name] = time.perf_counter() - start
    return Found(pvalues | compared(design, calibration, x_o, job.seed, job.references), seconds)


def run_all(jobs: list[Job], workers: int) -> Iterator[Found]:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, spawn, torch.set_num_threads, (1,)) as pool:
        yield from tqdm(pool.map(repetition, jobs, chunksize=4), total=len(jobs), disable=None)


class Row(NamedTuple):
    """A design, and what its repetitions found: p-values (repetitions,), and seconds of a call."""

    design: Design
    pvalues: dict[str, np.ndarray]
    seconds: dict[str, float]

    @property
    def rates(self) -> dict[str, float]:
        """Rejection rates; NaN where a test refuses."""
        return {name: rejected(p) for name, p in self.pvalues.items()}


def rejected(pvalues: np.ndarray) -> float:
    return math.nan if np.isnan(pvalues).any() else float(np.mean(pvalues <= LEVEL + 1e-9))


def row(design: Design, found: list[Found]) -> Row:
    pvalues = {name: np.array([f.pvalues[name] for f in found]) for name in found[0].pvalues}
    seconds = {name: float(np.mean([f.seconds[name] for f in found])) for name in found[0].seconds}
    return Row(design, pvalues, seconds)


def best_rival(rates: dict[str, float]) -> tuple[str, float]:
    """The rival that rejects most often, and how often."""
    rivals = {name: rate for name, rate in rates.items() if name in RIVALS}
    return max(rivals.items(), key=lambda item: item[1], default=("", math.nan))


def report(rows: list[Row]) -> None:
    names = list(rows[0].pvalues)
    print(f"{'':20}{'space':13}{'n':>6}{'m':>4}{'d':>5}  {'extent':12}", end="")
    print("".join(f"{name:>9}" for name in names) + f"{'best rival':>18}")
    for right in (False, True):
        some = [each for each in rows if each.design.right == right]
        for each in some:
            print(line(each, names), flush=True)
        if some:
            print(mean_line(some, names))


def line(of: Row, names: list[str]) -> str:
    d, (best, rate) = of.design, best_rival(of.rates)
    head = f"{d.kind:20}{d.space.name:13}{d.n:>6}{d.m:>4}{d.d:>5}  {d.extent.name:12}"
    return head + "".join(_rate(of.rates[name]) for name in names) + _rate(rate) + f"  {best:7}"


def mean_line(rows: list[Row], names: list[str]) -> str:
    """Means over designs; a test that refuses one does not reject there."""
    rates = [[*(each.rates[name] for name in names), best_rival(each.rates)[1]] for each in rows]
    return f"{'mean':62}" + "".join(map(_rate, np.nan_to_num(rates).mean(0))) + "\n"


def _rate(rate: float) -> str:
    return f"{'-' if math.isnan(rate) else f'{rate:.3f}':>9}"


def record(rows: list[Row], run: argparse.Namespace) -> dict[str, Any]:
    """What was run, where, and every p-value."""
    return {
        **origin(),
        "seed": run.seed,
        "repetitions": run.repetitions,
        "nulls": NULLS,
        "designs": [_plain(each) for each in rows],
    }


def _plain(of: Row) -> dict[str, Any]:
    d = of.design
    sizes = {"size": d.size, "m": d.m, "n": d.n, "d": d.d}
    parts = {"error": repr(d.error), "model": repr(d.model)}
    return {
        **{"name": d.name, "kind": d.kind, "half": half(d), "right": d.right},
        **{"extent": d.extent.name, "space": d.space.name, **sizes, **parts},
        "rejected": {name: _number(rate, 4) for name, rate in of.rates.items()},
        "seconds": {name: _number(mean, 3) for name, mean in of.seconds.items()},
        "pvalues": {name: [_number(p, 4) for p in each] for name, each in of.pvalues.items()},
    }


def _number(value: float, digits: int) -> float | None:
    return None if math.isnan(value) else round(float(value), digits)


def _names(text: str, known: Iterable[str]) -> tuple[str, ...]:
    """Names separated by commas, all of them known."""
    names = tuple(name for name in text.split(",") if name)
    if unknown := set(names) - set(known):
        raise SystemExit(f"expected some of {', '.join(known)}; got {', '.join(unknown)}.")
    return names


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--half", choices=("chosen", "held", "all"), default="all")
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--tests", default="score", help="names of TESTS, by commas")
    parser.add_argument("--references", default=",".join(REFERENCES), help="likewise")
    parser.add_argument("--only", default="", help="a pattern of designs to run")
    parser.add_argument("--seed", type=int, default=0, help="that of the first repetition")
    parser.add_argument("--out", type=Path, help="a file for the record")
    return parser.parse_args()


def main() -> None:
    run = arguments()
    chosen = [d for d in DESIGNS if run.half in (half(d), "all") and re.search(run.only, d.name)]
    if not chosen:
        raise SystemExit(f"--only: expected a pattern of designs; got {run.only!r}.")
    asked = _names(run.tests, TESTS), _names(run.references, REFERENCES)
    seeds = range(run.seed, run.seed + run.repetitions)
    found = run_all([Job(d.name, seed, *asked) for d in chosen for seed in seeds], run.workers)
    rows = [row(d, [next(found) for _ in seeds]) for d in chosen]
    report(rows)
    if run.out is not None:
        run.out.write_text(json.dumps(record(rows, run)) + "\n")


if __name__ == "__main__":
    main()

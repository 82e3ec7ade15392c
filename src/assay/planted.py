r"""Planted errors: the calibration that a q with one known error would have.

Declare q the truth. At every x of a calibration one draw of q, in its standard coordinates
:math:`u = (\theta - \mu(x)) / \sigma(x)` under q, plays the truth and is moved to where it would
be if q had an error of a known size; the other draws stay. **Sizes are told as errors of q**: q
is too high by s standard deviations if truths are moved by -s, and 1 + s times too wide if they
are scaled by 1 / (1 + s).

**No label is read.** In latent space truths are draws of the base. With enough draws of q at each
x one of them is the new truth, and the real truth is left out. With few draws all members of a
set take part, and chance says which of them plays the truth, whoever it was: under the hypothesis
that q is right they are all draws of q, and otherwise they are draws of a mixture of which q makes
up k parts in k + 1. A function of such sets is the same whoever is the truth.
"""

import io
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from .bases import Base, StandardNormal
from .classifiers.frames import Conditional
from .classifiers.scaling import Scaling
from .door import check_count, check_kind, check_number
from .randomness import stream
from .samples import Calibration
from .scaling import Robust, spread

__all__ = [
    "Declared",
    "Error",
    "Lost",
    "Member",
    "Narrow",
    "Shift",
    "Skew",
    "Wide",
    "checked_errors",
    "without_bars",
]

# Draws at each x from which one can be spared: without it the test loses 1 % of its reach.
ENOUGH = 8
# Other members from which the mean and deviation of q at an x are taken; with fewer, they are
# regressed on x over all sets.
FEWEST = 4
# Base draws that tell location and scale of a base that is not standard.
MEASURED = 10_000


class Error(Protocol):
    """An error of q, in standard coordinates of q."""

    @property
    def name(self) -> str:
        """One word for tables."""

    @property
    def sizes(self) -> tuple[float, float]:
        """The smallest and the largest size that is looked at."""

    def apply(self, u: Tensor, size: float, generator: torch.Generator) -> Tensor:
        """Moves truths u (n, m), draws of q, to where they are if q has an error of this size."""

    def words(self, size: float) -> str:
        """The error in words, to stand behind 'would have seen'."""


@dataclass(frozen=True)
class Shift:
    """One coordinate of q is too high.

    Args:
        along: The parameter, or the latent direction; another one at random for every planted
            data set if None, so that rejection rates are means over them.

    Example:
        >>> Shift(0).apply(torch.zeros(1, 2), 0.5, torch.Generator())
        tensor([[-0.5000,  0.0000]])
    """

    along: int | None = None
    sizes: ClassVar[tuple[float, float]] = (0.01, 5.0)

    def __post_init__(self) -> None:
        _check_along(self.along)

    @property
    def name(self) -> str:
        """One word for tables, and the coordinate."""
        return _named("shift", self.along)

    def apply(self, u: Tensor, size: float, generator: torch.Generator) -> Tensor:
        """Moves truths u (n, m) down by `size` standard deviations."""
        j = _column(self.along, u, generator)
        return _changed(u, j, u[:, j] - size)

    def words(self, size: float) -> str:
        """The error in words."""
        return f"a shift of {size:.2g} sd{_where(self.along)}"


@dataclass(frozen=True)
class Wide:
    """All coordinates of q are 1 + s times too wide.

    Example:
        >>> Wide().apply(torch.ones(1, 2), 1.0, torch.Generator())
        tensor([[0.5000, 0.5000]])
    """

    name: ClassVar[str] = "too wide"
    sizes: ClassVar[tuple[float, float]] = (0.01, 10.0)

    def apply(self, u: Tensor, size: float, generator: torch.Generator) -> Tensor:
        """Draws truths u (n, m) in."""
        return u / (1 + size)

    def words(self, size: float) -> str:
        """The error in words."""
        return f"a width {100 * size:.2g} % too large"


@dataclass(frozen=True)
class Narrow:
    """All coordinates of q are 1 + s times too narrow."""

    name: ClassVar[str] = "too narrow"
    sizes: ClassVar[tuple[float, float]] = (0.01, 10.0)

    def apply(self, u: Tensor, size: float, generator: torch.Generator) -> Tensor:
        """Spreads truths u (n, m) out."""
        return u * (1 + size)

    def words(self, size: float) -> str:
        """The error in words."""
        return f"a width {100 * size / (1 + size):.2g} % too small"


@dataclass(frozen=True)
class Skew:
    r"""One coordinate of q is skewed to the right, with the right mean and deviation.

    Truths are :math:`\sinh(\operatorname{arsinh} u - s)`, less its mean and over its deviation for
    normal u.

    Args:
        along: As in :class:`Shift`.

    References:
        Jones and Pewsey 2009, *Sinh-arcsinh distributions*.
    """

    along: int | None = None
    sizes: ClassVar[tuple[float, float]] = (0.02, 3.0)

    def __post_init__(self) -> None:
        _check_along(self.along)

    @property
    def name(self) -> str:
        """One word for tables, and the coordinate."""
        return _named("skew", self.along)

    def apply(self, u: Tensor, size: float, generator: torch.Generator) -> Tensor:
        """Skews one coordinate of truths u (n, m) to the left."""
        j = _column(self.along, u, generator)
        nodes, weights = np.polynomial.hermite_e.hermegauss(64)
        values, weights = np.sinh(np.arcsinh(nodes) - size), weights / weights.sum()
        mean = float(weights @ values)
        deviation = math.sqrt(float(weights @ (values - mean) ** 2))
        return _changed(u, j, (torch.sinh(torch.asinh(u[:, j]) - size) - mean) / deviation)

    def words(self, size: float) -> str:
        """The error in words."""
        return f"a sinh-arcsinh skew of {size:.2g}{_where(self.along)}"


@dataclass(frozen=True)
class Lost:
    """Q has lost a mode, which holds a share s of the truth.

    Args:
        distance: How far the mode lies from the others, in standard deviations of q.
        along: As in :class:`Shift`.
    """

    distance: float = 4.0
    along: int | None = None
    sizes: ClassVar[tuple[float, float]] = (0.001, 0.9)

    def __post_init__(self) -> None:
        check_number("distance", self.distance)
        _check_along(self.along)

    @property
    def name(self) -> str:
        """One word for tables, and the coordinate."""
        return _named("lost mode", self.along)

    def apply(self, u: Tensor, size: float, generator: torch.Generator) -> Tensor:
        """Moves a share of the truths u (n, m) into the lost mode; a larger share holds it."""
        j = _column(self.along, u, generator)
        lost = torch.rand(len(u), generator=generator).to(u) < size
        return _changed(u, j, u[:, j] + self.distance * lost)

    def words(self, size: float) -> str:
        """The error in words."""
        return f"a lost mode with {100 * size:.2g} % of the truth{_where(self.along)}"


@dataclass(frozen=True, eq=False)
class Member:
    """Members that play the truth, one in each set, with what is known of q there.

    Args:
        truth: The members, with shape (n, m).
        others: The other members of their sets, with shape (n, k, m); None in latent space.
        location: Mean of q at each x, with shape (n, m) or (m,).
        scale: Standard deviation of q, shaped alike.
    """

    truth: Tensor
    others: Tensor | None
    location: Tensor
    scale: Tensor

    def moved(self, error: Error, size: float, generator: torch.Generator) -> Tensor:
        """The truths (n, m) if q had an error of this size."""
        u = (self.truth - self.location) / self.scale
        # The difference is added: without an error truths are what they are, to the last digit.
        found: Tensor = self.truth + self.scale * (error.apply(u, size, generator) - u)
        return found


@dataclass(frozen=True, eq=False)
class Declared:
    """Draws of q at the x of a calibration, any of which may play the truth.

    Args:
        x: Features of the observations, with shape (n, d).
        members: Draws of q at each x, with shape (n, k + 1, m); None in latent space.
        base: The base, in latent space.
        seed: Names the streams of all that is left to chance.

    Example:
        >>> theta, noise, z = torch.randn(3, 100, 1, generator=torch.Generator().manual_seed(0))
        >>> declared = Declared.of(Calibration(theta, theta + noise, z))
        >>> declared.plant(Shift(0), 0.5, 0)
        Calibration(n=100, m=1, k=1, x=(1,), space='parameters')
    """

    x: Tensor
    members: Tensor | None
    base: Base | None
    seed: int = 0

    @classmethod
    def of(cls, calibration: Calibration, seed: int = 0) -> Self:
        """The draws of a calibration; where there are few, with the truths among them."""
        theta_q, m = calibration.theta_q, calibration.m
        if theta_q is None or theta_q.shape[1] < ENOUGH or theta_q.shape[1] <= m + 2:
            return cls.pooled(calibration, seed)
        return cls(calibration.features, theta_q, None, seed)

    @classmethod
    def pooled(cls, calibration: Calibration, seed: int = 0) -> Self:
        """All members of a calibration, which are the same whoever is the truth."""
        if calibration.theta_q is None:
            return cls(calibration.features, None, calibration.base, seed)
        members = torch.cat([calibration.theta[:, None], calibration.theta_q], 1)
        return cls(calibration.features, ordered(members), None, seed)

    def subset(self, rows: Tensor) -> Self:
        """Some of the sets (b,)."""
        members = None if self.members is None else self.members[rows]
        return replace(self, x=self.x[rows], members=members)

    def plant(self, error: Error, size: float, repetition: int) -> Calibration:
        """A calibration with an error; in a repetition all sizes share their chances."""
        member = self.member(repetition)
        return self.calibration(member, member.moved(error, size, self.chance(repetition)))

    def unplanted(self) -> Calibration:
        """A calibration without any error."""
        member = self.member(0)
        return self.calibration(member, member.truth)

    def chance(self, repetition: int) -> torch.Generator:
        """What an error leaves to chance in a repetition."""
        return stream(self.seed, "error", check_count("repetition", repetition, 0))

    def calibration(self, member: Member, truth: Tensor) -> Calibration:
        """The calibration with these truths (n, m)."""
        return Calibration(truth, self.x, member.others, base=self.base)

    def member(self, repetition: int) -> Member:
        """Who plays the truth in a repetition."""
        generator = stream(self.seed, "truth", repetition)
        if self.members is None:
            assert self.base is not None
            z = self.base.sample(len(self.x), generator).to(self.x)
            return Member(z, None, *self._frame)
        n, r, m = self.members.shape
        who = torch.randint(r, (n, 1), generator=generator).to(self.x.device)
        rest = (torch.arange(r - 1, device=who.device) + who + 1) % r
        truth = self.members[torch.arange(n, device=who.device), who[:, 0]]
        others = self.members.gather(1, rest[..., None].expand(-1, -1, m))
        if r - 1 < FEWEST:
            return Member(truth, others, *self._frame)
        chance = torch.randn(truth.shape, generator=generator).to(truth)
        scale = _deviation(others)
        return Member(truth, others, self._centre + scale * self._open * chance, scale)

    @property
    def _centre(self) -> Tensor:
        """Means of q (n, m), from what x tells and from the sets, as far as x does not tell."""
        assert self.members is not None
        regressed, mean = self._frame[0], self.members.mean(1)
        return regressed + self._unknown * (mean - regressed)

    @property
    def _open(self) -> Tensor:
        """Deviations (m,) of what sets leave open of these means, in deviations of q.

        Means are drawn so. Around the mean of its own set a truth would be scaled by the very
        number that a test measures it by, and an error look too large.
        """
        assert self.members is not None
        return (self._unknown / self.members.shape[1]).sqrt()

    @cached_property
    def _unknown(self) -> Tensor:
        """Shares (m,) of the variance of set means around their regression that q has itself."""
        assert self.members is not None
        location, scale = self._frame
        between = ((self.members.mean(1) - location) / scale).square().mean(0)
        within = (self.members.var(1) / scale.square()).mean(0) / self.members.shape[1]
        return 1 - (within / between.clamp_min(torch.finfo(between.dtype).tiny)).clamp(0, 1)

    @cached_property
    def _frame(self) -> tuple[Tensor, Tensor]:
        """Location and scale of q: those of the base (m,), or regressed on x (n, m)."""
        if self.members is None:
            return _base_frame(self.base, self.x)
        pool = self.members.flatten(0, 1)
        scaling = Scaling(pool.mean(0), spread(pool), Robust.fit(self.x))
        # Few enough features not to fit the members one by one.
        waves = Conditional(n=max(4, min(128, len(self.x) // 20)))
        found = waves.fit(self.members, self.x, scaling)
        design = waves.design(scaling.x(self.x))
        location = scaling.location + scaling.scale * (design @ found.location)
        return location, scaling.scale * found.unit * (design @ found.scale).exp()


def checked_errors(errors: Sequence[Error] | Error) -> tuple[Error, ...]:
    """Errors as a tuple, or a reason why not."""
    found = errors if isinstance(errors, Sequence) else (errors,)
    for error in found:
        check_kind("errors", error, "errors such as Shift()", "apply", "sizes", "words")
    if not found or len({error.name for error in found}) < len(found):
        raise ValueError(f"errors: expected at least one, each of its own kind; got {errors}.")
    return tuple(found)


@contextmanager
def without_bars() -> Iterator[None]:
    """Runs tests one after the other without a progress bar for each."""
    with redirect_stderr(io.StringIO()):
        yield


def ordered(members: Tensor) -> Tensor:
    """Members (n, r, m) in an order of their own, whoever stood first: by each parameter."""
    for column in reversed(range(members.shape[2])):
        order = members[..., column].argsort(dim=1, stable=True)
        members = members.gather(1, order[..., None].expand_as(members))
    return members


def _deviation(draws: Tensor) -> Tensor:
    """Deviations (n, m) of sets (n, k, m), unbiased for normal draws; one where there is none."""
    k = draws.shape[1]
    shrunk = math.sqrt(2 / (k - 1)) * math.exp(math.lgamma(k / 2) - math.lgamma((k - 1) / 2))
    centred = draws - draws.mean(1, keepdim=True)
    scale = (centred.square().sum(1) / (k - 1)).sqrt() / shrunk
    return torch.where(scale > 0, scale, torch.ones_like(scale))


def _base_frame(base: Base | None, x: Tensor) -> tuple[Tensor, Tensor]:
    assert base is not None
    if isinstance(base, StandardNormal):
        return x.new_zeros(base.dim), x.new_ones(base.dim)
    z = base.sample(MEASURED, stream(0, "declared")).to(x)
    return z.mean(0), spread(z)


def _column(along: int | None, u: Tensor, generator: torch.Generator) -> int:
    m = u.shape[1]
    if along is None:
        return int(torch.randint(m, (), generator=generator))
    if along >= m:
        raise ValueError(f"along: expected one of {m} coordinate(s), from 0; got {along}.")
    return along


def _named(kind: str, along: int | None) -> str:
    return kind if along is None else f"{kind} {along}"


def _where(along: int | None) -> str:
    return "" if along is None else f" in coordinate {along}"


def _check_along(along: int | None) -> None:
    if along is not None:
        check_count("along", along, 0)


def _changed(u: Tensor, column: int, values: Tensor) -> Tensor:
    """A copy with one column replaced."""
    u = u.clone()
    u[:, column] = values
    return u

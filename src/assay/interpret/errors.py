r"""Errors of q of a known size, and the calibration that a q with one of them would have.

Declare q the truth. At every x of a calibration one draw of q, in its standard coordinates
:math:`u = (\theta - \mu(x)) / \sigma(x)` under q, plays the truth and is moved to where it would
be if q had an error of a known size; the other draws stay. **Sizes are told as errors of q**: q
is too high by s standard deviations if truths are moved by -s, and 1 + s times too wide if they
are scaled by 1 / (1 + s). The same errors make posteriors that are wrong by design
(:class:`~assay.tasks.Perturbed`), where draws of q are moved instead.

**No label is read.** In latent space truths are draws of the base. With enough draws of q at each
x one of them is the new truth, and the real truth is left out. With few draws all members of a
set take part, and chance says which of them plays the truth, whoever it was: under the hypothesis
that q is right they are all draws of q, and otherwise they are draws of a mixture of which q makes
up k parts in k + 1. A function of such sets is the same whoever is the truth.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from .._core import check_count, cpu, stream
from ..classifiers.base import Scaling
from ..classifiers.features import Conditional
from ..samples.calibration import Calibration, Draws, Latents
from ..samples.neighbourhoods import Robust, spread
from ..samples.posterior import StandardNormal

# Draws at each x from which one can be spared: without it the test loses 1 % of its power.
ENOUGH = 8
# Other members from which the mean and deviation of q at an x are taken; with fewer, they are
# regressed on x over all sets.
FEWEST = 4
# Base draws that tell location and scale of a base that is not standard.
MEASURED = 10_000


class Error(ABC):
    r"""An error of q, of any size: a size says how wrong q is, and zero is no error.

    One map :math:`u' = g_s(u)` of standard coordinates is the whole error, and it is read both
    ways. :meth:`distort`, which is g, turns draws of a right q into draws of a q with the error.
    :meth:`apply`, which is its inverse, moves truths to where they are if a right q has the error.
    """

    kind: ClassVar[str]
    # The smallest and the largest size that is looked at.
    sizes: ClassVar[tuple[float, float]]
    # Shares of its size that it has in equal parts of where it is planted.
    fading: ClassVar[tuple[float, ...]] = (1.0,)

    @property
    def name(self) -> str:
        """The kind for tables, with the coordinate if it has one."""
        return self.kind

    @property
    def any(self) -> "Error":
        """The same error in any single coordinate, for words."""
        return self

    def apply(self, u: Tensor, size: float, generator: torch.Generator) -> Tensor:
        """Moves truths u (n, m), draws of q, to where they are if q has an error of this size."""
        return self._chosen(u.shape[1], generator).undo(u, size)

    def ratio(self, wrong: Tensor, size: float, log_density: Callable[[Tensor], Tensor]) -> Tensor:
        r"""Ratios of the right density to that of q.

        .. math:: p(u') / q(u') = |\det g_s'(u)| \, p(u') / p(u), \qquad u = g_s^{-1}(u')

        Args:
            wrong: Draws of q, with shape (n, m).
            size: The size of its error.
            log_density: The right log-density (n,) at coordinates (n, m), up to a constant.

        Example:
            >>> def normal(u):
            ...     return -u.square().sum(1) / 2
            >>> Wide().ratio(torch.zeros(1, 2), 1.0, normal)  # (1 + s)^m at the mean
            tensor([4.])
        """
        right = self.undo(wrong, size)
        return (log_density(wrong) - log_density(right) + self.log_slope(right, size)).exp()

    @abstractmethod
    def distort(self, u: Tensor, size: float) -> Tensor:
        """Turns draws u (n, m) of a right q into draws of a q with an error of this size."""

    @abstractmethod
    def undo(self, u: Tensor, size: float) -> Tensor:
        """Turns draws u (n, m) of a q with an error of this size into right ones."""

    @abstractmethod
    def log_slope(self, u: Tensor, size: float) -> Tensor:
        """Logarithms (n,) of the determinant of the derivative of `distort` at u (n, m)."""

    @abstractmethod
    def words(self, size: float) -> str:
        """The error in words, as something that is detectable or not."""

    def _chosen(self, m: int, generator: torch.Generator) -> "Error":
        """This error with all that it leaves to chance, among m coordinates."""
        return self


@dataclass(frozen=True)
class _OneCoordinate(Error):
    """An error in one coordinate, or in one at random for every planted data set."""

    along: int | None = None

    @property
    def any(self) -> Error:
        """The same error in any single coordinate, for words."""
        return replace(self, along=None)

    def __post_init__(self) -> None:
        if self.along is not None:
            object.__setattr__(self, "along", check_count("along", self.along, 0))

    @property
    def name(self) -> str:
        """The kind for tables, with the coordinate."""
        return self.kind if self.along is None else f"{self.kind} {self.along}"

    def distort(self, u: Tensor, size: float) -> Tensor:
        """Turns draws u (n, m) of a right q into wrong ones."""
        return self._changed(u, size, self._forward)

    def undo(self, u: Tensor, size: float) -> Tensor:
        """Turns wrong draws u (n, m) into right ones."""
        return self._changed(u, size, self._back)

    def log_slope(self, u: Tensor, size: float) -> Tensor:
        """Logarithms (n,) of the derivative of `distort` at u (n, m)."""
        return self._log_slope(u[:, self._column(u)], size)

    @abstractmethod
    def _forward(self, u: Tensor, size: float) -> Tensor:
        """Right values (n,) made wrong."""

    @abstractmethod
    def _back(self, u: Tensor, size: float) -> Tensor:
        """Wrong values (n,) made right."""

    @abstractmethod
    def _log_slope(self, u: Tensor, size: float) -> Tensor:
        """Logarithms of the derivative at right values (n,)."""

    def _chosen(self, m: int, generator: torch.Generator) -> Self:
        if self.along is not None:
            return self
        return replace(self, along=int(cpu.randint(m, (), generator=generator)))

    def _changed(self, u: Tensor, size: float, by: Callable[[Tensor, float], Tensor]) -> Tensor:
        j, changed = self._column(u), u.clone()
        changed[:, j] = by(u[:, j], size)
        return changed

    def _column(self, u: Tensor) -> int:
        m = u.shape[1]
        if self.along is None or self.along >= m:
            raise ValueError(
                f"along: expected one of {m} coordinate(s), from 0; got {self.along}."
            )
        return self.along

    @property
    def _where(self) -> str:
        return "" if self.along is None else f" in coordinate {self.along}"


@dataclass(frozen=True)
class Shift(_OneCoordinate):
    """One coordinate of q is too high by s standard deviations, :math:`g_s(u) = u + s`.

    Args:
        along: The parameter, or the latent direction; another one at random for every planted
            data set if None, so that rejection rates are means over them.

    Example:
        >>> Shift(0).distort(torch.zeros(1, 2), 0.5)  # draws of q
        tensor([[0.5000, 0.0000]])
        >>> Shift(0).apply(torch.zeros(1, 2), 0.5, torch.Generator())  # truths, seen from q
        tensor([[-0.5000,  0.0000]])
    """

    kind: ClassVar[str] = "shift"
    sizes: ClassVar[tuple[float, float]] = (0.01, 5.0)

    def words(self, size: float) -> str:
        """The error in words."""
        return f"a shift of {size:.2g} sd{self._where}"

    def _forward(self, u: Tensor, size: float) -> Tensor:
        return u + size

    def _back(self, u: Tensor, size: float) -> Tensor:
        return u - size

    def _log_slope(self, u: Tensor, size: float) -> Tensor:
        return torch.zeros_like(u)


@dataclass(frozen=True)
class _Scaled(Error):
    """Coordinates of q are 1 + s times too wide, or as many times too narrow: all, or one."""

    along: int | None = None
    sizes: ClassVar[tuple[float, float]] = (0.01, 10.0)
    wide: ClassVar[bool]

    def __post_init__(self) -> None:
        if self.along is not None:
            object.__setattr__(self, "along", check_count("along", self.along, 0))

    @property
    def any(self) -> Error:
        """The same error in any single coordinate, for words."""
        return replace(self, along=None)

    @property
    def name(self) -> str:
        """The kind for tables, with the coordinate if it has one."""
        return self.kind if self.along is None else f"{self.kind} {self.along}"

    def distort(self, u: Tensor, size: float) -> Tensor:
        """Spreads draws u (n, m) out, or draws them in."""
        return u * self._factors(u, size if self.wide else -size)

    def undo(self, u: Tensor, size: float) -> Tensor:
        """The other way round."""
        return u * self._factors(u, -size if self.wide else size)

    def log_slope(self, u: Tensor, size: float) -> Tensor:
        """The same (n,) everywhere."""
        slope = (u.shape[1] if self.along is None else 1) * math.log1p(size)
        return u.new_full(u.shape[:1], slope if self.wide else -slope)

    def _factors(self, u: Tensor, size: float) -> Tensor:
        """Factors (m,) of 1 + s, or its inverse for a negative size."""
        factor = 1 + size if size >= 0 else 1 / (1 - size)
        factors = u.new_ones(u.shape[1])
        factors[slice(None) if self.along is None else self.along] = factor
        return factors

    @property
    def _where(self) -> str:
        return "" if self.along is None else f" in coordinate {self.along}"


@dataclass(frozen=True)
class Wide(_Scaled):
    """Coordinates of q are 1 + s times too wide, :math:`g_s(u) = (1 + s) u`.

    Args:
        along: The parameter, or the latent direction; all if None.

    Example:
        >>> Wide().distort(torch.ones(1, 2), 1.0)
        tensor([[2., 2.]])
        >>> Wide().apply(torch.ones(1, 2), 1.0, torch.Generator())
        tensor([[0.5000, 0.5000]])
    """

    kind: ClassVar[str] = "too wide"
    wide: ClassVar[bool] = True

    def words(self, size: float) -> str:
        """The error in words."""
        return f"a width {percent(size)} too large{self._where}"


@dataclass(frozen=True)
class Narrow(_Scaled):
    """Coordinates of q are 1 + s times too narrow, :math:`g_s(u) = u / (1 + s)`.

    Args:
        along: As in :class:`Wide`.

    Example:
        >>> Narrow().distort(torch.ones(1, 2), 1.0)
        tensor([[0.5000, 0.5000]])
        >>> Narrow().apply(torch.ones(1, 2), 1.0, torch.Generator())
        tensor([[2., 2.]])
    """

    kind: ClassVar[str] = "too narrow"
    wide: ClassVar[bool] = False

    def words(self, size: float) -> str:
        """The error in words."""
        return f"a width {percent(size / (1 + size))} too small{self._where}"


@dataclass(frozen=True)
class FadingShift(Shift):
    """A shift that has its size at x_o and fades to none over the smallest neighbourhood.

    Only a test that plants errors near x_o alone knows where that is.
    """

    kind: ClassVar[str] = "fading shift"
    fading: ClassVar[tuple[float, ...]] = (0.875, 0.625, 0.375, 0.125)

    def words(self, size: float) -> str:
        """The error in words."""
        return f"a shift of {size:.2g} sd at x_o that fades over the nearest 5 %{self._where}"


@dataclass(frozen=True)
class Skew(_OneCoordinate):
    r"""One coordinate of q is skewed to the right.

    .. math:: g_s(u) = \sinh(\operatorname{arsinh}(c + d u) + s)

    Truths are moved by :math:`(\sinh(\operatorname{arsinh} u - s) - c) / d`. Here c and d are the
    mean and the deviation of :math:`\sinh(\operatorname{arsinh} u - s)` for normal u: where q is
    normal, moved truths have its mean and deviation.

    Args:
        along: As in :class:`Shift`.

    Example:
        >>> Skew(0).distort(torch.tensor([[-2.0], [0.0], [2.0]]), 0.5).mT
        tensor([[-1.7354, -0.1581,  2.7699]])

    References:
        Jones and Pewsey 2009, *Sinh-arcsinh distributions*.
    """

    kind: ClassVar[str] = "skew"
    sizes: ClassVar[tuple[float, float]] = (0.02, 3.0)

    def words(self, size: float) -> str:
        """The error in words."""
        return f"a sinh-arcsinh skew of {size:.2g}{self._where}"

    def _forward(self, u: Tensor, size: float) -> Tensor:
        mean, deviation = _left_skewed(size)
        return torch.sinh(torch.asinh(mean + deviation * u) + size)

    def _back(self, u: Tensor, size: float) -> Tensor:
        mean, deviation = _left_skewed(size)
        return (torch.sinh(torch.asinh(u) - size) - mean) / deviation

    def _log_slope(self, u: Tensor, size: float) -> Tensor:
        mean, deviation = _left_skewed(size)
        inner = mean + deviation * u
        slope = torch.cosh(torch.asinh(inner) + size) / (1 + inner.square()).sqrt()
        return (deviation * slope).log()


@dataclass(frozen=True, eq=False)
class Played:
    """Members (n, m) that play the truth, the others (n, k, m) of their sets, and q there.

    In latent space there are no others. Mean and deviation of q have shape (n, m) or (m,).
    """

    truth: Tensor
    others: Tensor | None
    location: Tensor
    scale: Tensor

    def moved(self, error: Error, size: float, generator: torch.Generator) -> Tensor:
        """The truths (n, m) if q had an error of this size."""
        u = (self.truth - self.location) / self.scale
        # The difference is added: without an error truths are what they are, to the last digit.
        moved: Tensor = self.truth + self.scale * (error.apply(u, size, generator) - u)
        return moved


@dataclass(frozen=True, eq=False)
class Planter(ABC):
    """Calibrations in which q is the truth up to a planted error, at the x of a calibration.

    Args:
        calibration: The calibration; who plays the truth in it makes no difference.
        seed: Names the streams of all that is left to chance.

    Example:
        >>> theta, noise, z = torch.randn(3, 100, 1, generator=torch.Generator().manual_seed(0))
        >>> planter = Planter.of(Calibration(theta, theta + noise, z))
        >>> planter.plant(Shift(0), 0.5, 0)
        Calibration(n=100, m=1, k=1, x=(1,), space='parameters')
    """

    calibration: Calibration
    seed: int = 0

    @staticmethod
    def of(calibration: Calibration, seed: int = 0) -> "Planter":
        """From base draws, or from draws of q, with the truths among them where these are few."""
        if isinstance(calibration, Latents):
            return BasePlanter(calibration, seed)
        k, m = calibration.k or 0, calibration.m
        if k < ENOUGH or k <= m + 2:
            return Planter.pooled(calibration, seed)
        return SetPlanter(calibration, seed, members=calibration.members[:, 1:])

    @staticmethod
    def pooled(calibration: Calibration, seed: int = 0) -> "Planter":
        """From all members of a calibration, which are the same whoever is the truth."""
        if isinstance(calibration, Latents):
            return BasePlanter(calibration, seed)
        return SetPlanter(calibration, seed, members=ordered(calibration.members))

    @abstractmethod
    def played(self, repetition: int) -> Played:
        """Who plays the truth in a repetition."""

    @abstractmethod
    def draws(self, rows: Tensor, n: int) -> Draws:
        """The observations of some sets (b,) with draws of q there: n of them if they are made."""

    @abstractmethod
    def located(self, rows: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of q at some sets (b,), for each of their members (b, r, m)."""

    def move(self, error: Error, size: float) -> Callable[[Tensor, Tensor], Tensor]:
        """Moves members of sets to where they would be as truths if q had an error."""

        def moved(rows: Tensor, members: Tensor) -> Tensor:
            location, scale = self.located(rows, members)
            u = ((members - location) / scale).flatten(0, 1)
            by = error.apply(u, size, self.chance(0)) - u
            there: Tensor = members + scale * by.unflatten(0, members.shape[:2])
            return there

        return moved

    def subset(self, rows: Tensor) -> Self:
        """Some of the sets (b,)."""
        return replace(self, calibration=self.calibration.subset(rows))

    def plant(self, error: Error, size: float, repetition: int) -> Calibration:
        """A calibration with an error; in a repetition all sizes share their chances."""
        played = self.played(repetition)
        return self.with_truths(played, played.moved(error, size, self.chance(repetition)))

    def unplanted(self) -> Calibration:
        """A calibration without any error."""
        played = self.played(0)
        return self.with_truths(played, played.truth)

    def chance(self, repetition: int) -> torch.Generator:
        """What an error leaves to chance in a repetition."""
        return stream(self.seed, "error", check_count("repetition", repetition, 0))

    def with_truths(self, played: Played, truth: Tensor) -> Calibration:
        """The calibration with these truths (n, m)."""
        return self.calibration.with_members(truth, played.others)


@dataclass(frozen=True, eq=False)
class BasePlanter(Planter):
    """Truths are draws of the base, which no flow and no data have a say in."""

    calibration: Latents

    def draws(self, rows: Tensor, n: int) -> Draws:
        """The observations of some sets (b,), at which a test makes n base draws."""
        return Draws(self.calibration.x[rows], n=n)

    def located(self, rows: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        """Location and scale of the base."""
        location, scale = self._frame
        return location, scale.expand_as(members)

    def played(self, repetition: int) -> Played:
        """Base draws in a repetition."""
        like, generator = self.calibration.theta, stream(self.seed, "truth", repetition)
        z = self.calibration.base.sample(len(like), generator).to(like)
        return Played(z, None, *self._frame)

    @cached_property
    def _frame(self) -> tuple[Tensor, Tensor]:
        """Location and scale (m,) of the base."""
        base, like = self.calibration.base, self.calibration.theta
        if isinstance(base, StandardNormal):
            return like.new_zeros(base.dim), like.new_ones(base.dim)
        z = base.sample(MEASURED, stream(0, "declared")).to(like)
        return z.mean(0), spread(z)


@dataclass(frozen=True, eq=False)
class SetPlanter(Planter):
    """Truths are members (n, r, m) of their sets: draws of q, any of which may play the truth."""

    members: Tensor = field(kw_only=True)

    def subset(self, rows: Tensor) -> Self:
        """Some of the sets (b,)."""
        return replace(super().subset(rows), members=self.members[rows])

    def draws(self, rows: Tensor, n: int) -> Draws:
        """The observations of some sets (b,), with their members as draws of q."""
        return Draws(self.calibration.x[rows], self.members[rows])

    def played(self, repetition: int) -> Played:
        """Who plays the truth in a repetition."""
        generator = stream(self.seed, "truth", repetition)
        n, r, _ = self.members.shape
        who = cpu.randint(r, (n, 1), generator=generator).to(self.members.device)
        rest = (torch.arange(r - 1, device=who.device) + who + 1) % r
        rows = torch.arange(n, device=who.device)[:, None]
        truth, others = self.members[rows[:, 0], who[:, 0]], self.members[rows, rest]
        if r - 1 < FEWEST:
            return Played(truth, others, *self._frame)
        scale = self._without(truth)
        return Played(truth, others, self._drawn(self._centre, scale, generator), scale)

    def located(self, rows: Tensor, members: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation of q at some sets (b,), for each of their members (b, r, m)."""
        if self.members.shape[1] - 1 < FEWEST:
            location, scale = (part[rows][:, None].expand_as(members) for part in self._frame)
            return location, scale
        scale = members.std(1) / _shrunk(members.shape[1])
        scale = torch.where(scale > 0, scale, 1.0)[:, None].expand_as(members)
        centre = self._centre[rows][:, None].expand_as(members)
        return self._drawn(centre, scale, stream(self.seed, "located")), scale

    def _drawn(self, centre: Tensor, scale: Tensor, generator: torch.Generator) -> Tensor:
        """Means of q as far as sets leave them open.

        Around the mean of its own set a truth would be scaled by the very number that a test
        measures it by, and an error look too large.
        """
        chance = cpu.randn(centre.shape, generator=generator).to(centre)
        drawn: Tensor = centre + scale * (self._unknown / self.members.shape[1]).sqrt() * chance
        return drawn

    def _without(self, truth: Tensor) -> Tensor:
        """Deviations (n, m) of k others, unbiased for normal draws; one where there is none."""
        k, (mean, total) = self.members.shape[1] - 1, self._sums
        # The others have the sums of all, less what the truth adds.
        left = total - (truth - mean).square() * (1 + 1 / k)
        scale = (left.clamp_min(0) / (k - 1)).sqrt() / _shrunk(k)
        return torch.where(left > 1e-12 * total, scale, 1.0).to(truth)

    @cached_property
    def _sums(self) -> tuple[Tensor, Tensor]:
        """Means of sets (n, m), and sums of squares around them, in double precision."""
        members = self.members.double()
        mean = members.mean(1, keepdim=True)
        return mean[:, 0], (members - mean).square().sum(1)

    @property
    def _centre(self) -> Tensor:
        """Means of q (n, m), from what x tells and from the sets, as far as x does not tell."""
        regressed, mean = self._frame[0], self.members.mean(1)
        return regressed + self._unknown * (mean - regressed)

    @cached_property
    def _unknown(self) -> Tensor:
        """Shares (m,) of the variance of set means around their regression that q has itself."""
        location, scale = self._frame
        between = ((self.members.mean(1) - location) / scale).square().mean(0)
        within = (self.members.var(1) / scale.square()).mean(0) / self.members.shape[1]
        return 1 - (within / between.clamp_min(torch.finfo(between.dtype).tiny)).clamp(0, 1)

    @cached_property
    def _frame(self) -> tuple[Tensor, Tensor]:
        """Location and scale (n, m) of q, regressed on x."""
        pool, x = self.members.flatten(0, 1), self.calibration.features
        scaling = Scaling(pool.mean(0), spread(pool), Robust.fit(x))
        # Few enough features not to fit the members one by one.
        waves = Conditional(n=max(4, min(128, len(x) // 20)))
        frame = waves.fit(self.members, x, scaling)
        design = waves.design(scaling.x(x))
        location = scaling.location + scaling.scale * (design @ frame.location)
        return location, scaling.scale * frame.unit * (design @ frame.scale).exp()


def percent(share: float) -> str:
    """A share in per cent, with two digits, never with an exponent."""
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 else f"{value:.2g} %"


def checked_errors(errors: Sequence[Error] | Error) -> tuple[Error, ...]:
    """Errors as a tuple, or a reason why not."""
    given = errors if isinstance(errors, Sequence) else (errors,)
    for error in given:
        if not isinstance(error, Error):
            raise TypeError(f"errors: expected errors such as Shift(); got {error!r}.")
    if not given or len({error.name for error in given}) < len(given):
        raise ValueError(f"errors: expected at least one, each of its own kind; got {errors}.")
    return tuple(given)


def ordered(members: Tensor) -> Tensor:
    """Members (n, r, m) in an order of their own, whoever stood first: by each parameter."""
    for column in reversed(range(members.shape[2])):
        order = members[..., column].argsort(dim=1, stable=True)
        members = members.gather(1, order[..., None].expand_as(members))
    return members


def _shrunk(k: int) -> float:
    """The mean deviation of k normal draws, over the true one."""
    return math.sqrt(2 / (k - 1)) * math.exp(math.lgamma(k / 2) - math.lgamma((k - 1) / 2))


def _left_skewed(size: float) -> tuple[float, float]:
    """Mean and deviation of sinh(arsinh u - s) for normal u."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    values, weights = np.sinh(np.arcsinh(nodes) - size), weights / weights.sum()
    mean = float(weights @ values)
    return mean, math.sqrt(float(weights @ (values - mean) ** 2))

r"""Posteriors that are wrong by design, in a way that is known.

An error acts on a draw of the true posterior in its own standard coordinates
:math:`u = (\theta - \mu(x)) / \sigma(x)`, everywhere or in a region of x. Most errors are maps
:math:`u' = g(u)`; the density of the wrong posterior is then

.. math:: q(\theta' \mid x) = p(\theta \mid x) / |\det g'|,

so that q / p is known wherever the likelihood is, without its normalising constant, and the total
variation distance is an average over draws.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from ..bases import StandardNormal
from ..door import check_count, check_number
from ..randomness import stream
from ..samples import Calibration, Draws
from .linear_gaussian import LinearGaussian
from .task import Task

__all__ = [
    "Drop",
    "Error",
    "Leak",
    "Map",
    "Moved",
    "Perturbed",
    "Rotate",
    "Shift",
    "Skew",
    "Widen",
]

# Draws by which an error is measured.
MEASURED = 20_000
# Rounds of four times as many draws, for errors that lose some.
ROUNDS = 7


class Error(Protocol):
    """An error of a posterior, in standard coordinates."""

    def apply(self, u: Tensor, generator: torch.Generator) -> Tensor:
        """Turns right draws (n, m) into wrong ones; rows that are NaN are to be drawn again."""

    def ratio(self, wrong: Tensor, log_density: Callable[[Tensor], Tensor]) -> Tensor:
        """Ratios p / q (n,) at wrong draws (n, m), given the right log-density, but a constant."""


class Map:
    """An error that moves draws."""

    def apply(self, u: Tensor, generator: torch.Generator) -> Tensor:
        """Moves draws (n, m)."""
        return self._forward(u)

    def ratio(self, wrong: Tensor, log_density: Callable[[Tensor], Tensor]) -> Tensor:
        """Ratios p / q (n,) at wrong draws (n, m)."""
        right = self.undo(wrong)
        return (log_density(wrong) - log_density(right) + self._log_slope(right)).exp()

    def _forward(self, u: Tensor) -> Tensor:
        raise NotImplementedError

    def undo(self, u: Tensor) -> Tensor:
        """Moves draws (n, m) back."""
        raise NotImplementedError

    def _log_slope(self, u: Tensor) -> Tensor:
        """Logarithms (n,) of the determinant of the derivative at u (n, m)."""
        return torch.zeros(len(u), dtype=u.dtype)


@dataclass(frozen=True)
class Shift(Map):
    """Draws are moved along one parameter.

    Args:
        by: How far, in posterior standard deviations.
        along: The parameter.
    """

    by: float
    along: int = 0

    def _forward(self, u: Tensor) -> Tensor:
        return _changed(u, self.along, u[:, self.along] + self.by)

    def undo(self, u: Tensor) -> Tensor:
        """Moves draws (n, m) back."""
        return _changed(u, self.along, u[:, self.along] - self.by)


@dataclass(frozen=True)
class Widen(Map):
    """Draws are spread around the mean in all parameters; below one, narrowed.

    Args:
        times: How many times as wide.
    """

    times: float

    def __post_init__(self) -> None:
        check_number("times", self.times)

    def _forward(self, u: Tensor) -> Tensor:
        return self.times * u

    def undo(self, u: Tensor) -> Tensor:
        """Moves draws (n, m) back."""
        return u / self.times

    def _log_slope(self, u: Tensor) -> Tensor:
        return torch.full((len(u),), u.shape[1] * math.log(self.times), dtype=u.dtype)


@dataclass(frozen=True)
class Skew(Map):
    r"""One parameter is skewed by :math:`u' = \sinh(\operatorname{arsinh} u + a)`.

    Args:
        by: How much; above zero to the right.
        along: The parameter.

    References:
        Jones and Pewsey 2009, *Sinh-arcsinh distributions*.
    """

    by: float
    along: int = 0

    def _forward(self, u: Tensor) -> Tensor:
        return _changed(u, self.along, torch.sinh(torch.asinh(u[:, self.along]) + self.by))

    def undo(self, u: Tensor) -> Tensor:
        """Moves draws (n, m) back."""
        return _changed(u, self.along, torch.sinh(torch.asinh(u[:, self.along]) - self.by))

    def _log_slope(self, u: Tensor) -> Tensor:
        one = u[:, self.along]
        return (torch.cosh(torch.asinh(one) + self.by) / torch.hypot(one, torch.ones(()))).log()


@dataclass(frozen=True)
class Rotate(Map):
    """Two parameters are rotated around their means.

    Args:
        angle: The angle, in radians.
        first: One parameter.
        second: The other.
    """

    angle: float
    first: int = 0
    second: int = 1

    def _forward(self, u: Tensor) -> Tensor:
        return self._turned(u, self.angle)

    def undo(self, u: Tensor) -> Tensor:
        """Moves draws (n, m) back."""
        return self._turned(u, -self.angle)

    def _turned(self, u: Tensor, angle: float) -> Tensor:
        a, b = u[:, self.first], u[:, self.second]
        c, s = math.cos(angle), math.sin(angle)
        return _changed(_changed(u, self.first, c * a - s * b), self.second, s * a + c * b)


@dataclass(frozen=True)
class Drop:
    """A part of the posterior is lost, for instance a mode.

    Args:
        along: The parameter along which it is cut.
        below: Draws below this many standard deviations from the mean are lost.
    """

    along: int = 0
    below: float = 0.0

    def apply(self, u: Tensor, generator: torch.Generator) -> Tensor:
        """Marks what is lost."""
        lost = u[:, self.along] < self.below
        return torch.where(lost[:, None], torch.nan, u)

    def ratio(self, wrong: Tensor, log_density: Callable[[Tensor], Tensor]) -> Tensor:
        """P / q is the mass that was kept, which :class:`Perturbed` counts."""
        return torch.ones(len(wrong), dtype=wrong.dtype)


@dataclass(frozen=True)
class Leak:
    """A share of the draws lands beyond the highest value of a parameter.

    Args:
        share: The share.
        along: The parameter.
        beyond: How far out at least, in standard deviations from the mean. Choose it beyond the
            prior's edge.
    """

    share: float
    along: int = 0
    beyond: float = 8.0

    def __post_init__(self) -> None:
        if not 0 < check_number("share", self.share) < 1:
            raise ValueError(f"share: expected a number between 0 and 1; got {self.share}.")

    def apply(self, u: Tensor, generator: torch.Generator) -> Tensor:
        """Moves a share of the draws out."""
        leaks = torch.rand(len(u), generator=generator) < self.share
        out = self.beyond + torch.rand(len(u), generator=generator).to(u)
        return _changed(u, self.along, torch.where(leaks, out, u[:, self.along]))

    def ratio(self, wrong: Tensor, log_density: Callable[[Tensor], Tensor]) -> Tensor:
        """P / q is 1 / (1 - share) inside and zero beyond."""
        inside = wrong[:, self.along] < self.beyond
        return torch.where(inside, 1 / (1 - self.share), 0.0).to(wrong)


class Moved(NamedTuple):
    """What an error does to the posterior at an observation.

    Args:
        bias: Mean of q less that of the truth, in standard deviations of the truth, (m,).
        dispersion: Standard deviation of q over that of the truth, (m,).
        total_variation: The total variation distance, between 0 and 1.
    """

    bias: Tensor
    dispersion: Tensor
    total_variation: float


@dataclass(frozen=True)
class Perturbed:
    """The true posterior of a task with an error, everywhere or in a region of x.

    Args:
        task: The task.
        error: The error.
        region: Takes observations (n, d) and says where the error applies, (n,); everywhere if
            None.

    Example:
        >>> from assay.tasks import ConjugateGaussian
        >>> q = Perturbed(ConjugateGaussian(), Shift(0.5), region=lambda x: x[:, 0] > 0)
        >>> round(q.moved(torch.ones(5)).total_variation, 2)
        0.28
        >>> q.moved(-torch.ones(5)).total_variation
        0.0
    """

    task: Task
    error: Error
    region: Callable[[Tensor], Tensor] | None = None

    def draws(self, x: Any, k: int, generator: torch.Generator) -> Tensor:
        """Draws (n, k, m) at observations (n, d)."""
        x = self.task._checked("x", x, self.task.d)
        tries = check_count("k", k)
        for _ in range(ROUNDS):
            found = self._tried(x, tries, generator)
            lost = found[..., 0].isnan()
            if (lost.sum(1) <= tries - k).all():
                first = lost.byte().argsort(stable=True, dim=1)[:, :k, None]
                return found.gather(1, first.expand(-1, -1, self.task.m)).to(x.dtype)
            tries *= 4
        raise ValueError(
            f"error: expected one that keeps some draws; got {self.error!r}, which keeps none."
        )

    def _tried(self, x: Tensor, k: int, generator: torch.Generator) -> Tensor:
        """Draws (n, k, m) at observations (n, d), with NaN for those that are lost."""
        found = self.task.draws(x, k, generator).double()
        wrong = self._wrong(x)
        if not wrong.any():
            return found
        mean, deviation = (part[:, None] for part in self.task.moments(x[wrong]))
        u = (found[wrong] - mean) / deviation
        u = self.error.apply(u.flatten(0, 1), generator).reshape(u.shape)
        found[wrong] = mean + deviation * u
        return found

    @property
    def base(self) -> StandardNormal:
        """The base of the exact flow, for a task that is one."""
        return self._flow.base

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, d) to latents (n, m), through the error."""
        error = self.error
        if not isinstance(error, Map):
            raise ValueError(
                f"error: expected one that moves draws, which can be undone; got {error!r}. Use "
                "draws."
            )
        mean, deviation = self.task.moments(x)
        undone = mean + deviation * error.undo((theta.double() - mean) / deviation)
        right = torch.where(self._wrong(x)[:, None], undone, theta.double())
        return self._flow.theta_to_base(right, x).to(theta.dtype)

    def sample(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (n, m) at one observation (d,), by the global generator, as flows do."""
        return self.draws(x[None], n, torch.default_generator)[0]

    @property
    def _flow(self) -> LinearGaussian:
        if not isinstance(self.task, LinearGaussian):
            raise ValueError(
                f"task: expected one with latents, such as ConjugateGaussian; got {self.task!r}."
            )
        return self.task

    def calibration(self, n: int, k: int, generator: torch.Generator) -> Calibration:
        """Pairs of the task's joint with k draws of this posterior at each x."""
        theta, x = self.task.joint(n, generator)
        return Calibration(theta, x, self.draws(x, k, generator))

    def at(self, x: Any, n: int, generator: torch.Generator) -> Draws:
        """One observation (d,) with n draws there."""
        x = torch.as_tensor(x)
        return Draws(x, self.draws(x[None], n, generator)[0])

    def moved(self, x: Any, generator: torch.Generator | None = None) -> Moved:
        """What the error does at one observation (d,), measured on many draws.

        Args:
            x: The observation.
            generator: The source of the draws; always the same if None.
        """
        (x,) = self.task._checked("x", torch.as_tensor(x)[None], self.task.d)
        if not self._wrong(x[None])[0]:
            return Moved(torch.zeros(self.task.m), torch.ones(self.task.m), 0.0)
        generator = generator or stream(0, "moved")
        mean, deviation = (part[0] for part in self.task.moments(x[None]))
        right = self.task.posterior(x, MEASURED, generator).theta.double()
        u = (right - mean) / deviation
        wrong = self.error.apply(u, generator)
        kept = ~wrong[:, 0].isnan()

        def log_density(u: Tensor) -> Tensor:
            return self.task.log_posterior(mean + deviation * u, x)

        # TV = E_q (1 - p / q)_+ for q over what was kept, and the mass that was lost otherwise.
        ratio = self.error.ratio(wrong[kept], log_density) * kept.double().mean()
        distance = (1 - ratio).clamp_min(0).mean()
        spread = wrong[kept].std(0) / u.std(0)
        bias = (wrong[kept].mean(0) - u.mean(0)) / u.std(0)
        return Moved(bias.float(), spread.float(), float(distance))

    def _wrong(self, x: Tensor) -> Tensor:
        if self.region is None:
            return torch.ones(len(x), dtype=torch.bool)
        return torch.as_tensor(self.region(x)).bool()


def _changed(u: Tensor, column: int, values: Tensor) -> Tensor:
    """A copy with one column replaced."""
    u = u.clone()
    u[:, column] = values
    return u

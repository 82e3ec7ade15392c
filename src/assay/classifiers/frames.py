r"""Frames: coordinates in which members of all sets can be compared.

A frame is found from members and x alone, whoever plays the truth, so that it cannot spoil
exactness.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from ..coordinates import Coordinates
from ..door import check_count, check_kind, check_number
from ..randomness import stream
from ..scaling import spread
from .scaling import Scaling

__all__ = ["Conditional", "Frame", "Framed", "Known", "Pooled", "Within", "waves"]

# Coordinates beyond this are moved to it.
FARTHEST = 8.0


class Framed(Protocol):
    """A frame that was found."""

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Coordinates (b, r, u) of members (b, r, m) and features of observations (b, d)."""


class Frame(Protocol):
    """How a frame is found."""

    def fit(self, theta: Tensor, x: Tensor, scaling: Scaling) -> Framed:
        """The frame of members (n, r, m) and features of observations (n, d)."""


@dataclass(frozen=True)
class Pooled:
    """Members are standardised by mean and deviation of the whole pool."""

    def fit(self, theta: Tensor, x: Tensor, scaling: Scaling) -> "Standardised":
        """The frame of members (n, r, m) and features of observations (n, d)."""
        return Standardised(scaling)


@dataclass(frozen=True, eq=False)
class Standardised:
    """What :class:`Pooled` found."""

    scaling: Scaling

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Coordinates (b, r, m) of members (b, r, m) and features of observations (b, d)."""
        return self.scaling.theta(theta)


@dataclass(frozen=True)
class Conditional:
    r"""Members are standardised by mean and scale given x.

    Both are ridge regressions on features of x over all members: of theta first, and then of the
    logarithm of what is left. A posterior that is narrow and moves with x then stands still, and
    features of moderate frequency see its shape.

    Args:
        n: The number of random Fourier features of x, beside x itself.
        reach: The typical length of their frequencies.
        penalty: The ridge penalty, relative to the mean square of the features.
    """

    n: int = 256
    reach: float = 1.0
    penalty: float = 1e-3

    def __post_init__(self) -> None:
        check_count("n", self.n)
        check_number("reach", self.reach, strict=False)
        check_number("penalty", self.penalty)

    def fit(self, theta: Tensor, x: Tensor, scaling: Scaling) -> "Residuals":
        """The frame of members (n, r, m) and features of observations (n, d)."""
        members = scaling.theta(theta)
        design = self.design(scaling.x(x)).double()
        gram = design.mT @ design / len(design)
        gram.diagonal().add_(self.penalty * gram.diagonal().mean())

        def regress(targets: Tensor) -> Tensor:
            sums = design.mT @ targets.double() / len(design)
            weights: Tensor = torch.linalg.solve(gram, sums)
            return weights.float()

        location = regress(members.mean(1))
        rest = members - (design.float() @ location)[:, None]
        scale = regress((rest.abs() + 1e-4).log().mean(1))
        found = Residuals(self, scaling, location, scale, torch.ones_like(location[0]))
        return replace(found, unit=spread(found(theta, x).flatten(0, 1)))

    def design(self, x: Tensor) -> Tensor:
        """One, x and random Fourier features of it, with shape (b, 1 + d + n)."""
        frequencies, phases = waves(self.n, self.reach, x.shape[1], "frame")
        cosines = (x @ frequencies.to(x) + phases.to(x)).cos()
        return torch.cat([x.new_ones(len(x), 1), x, math.sqrt(2 / self.n) * cosines], 1)


@dataclass(frozen=True, eq=False)
class Residuals:
    """What :class:`Conditional` found.

    Args:
        frame: How it was found.
        scaling: The scale of members and observations.
        location: Weights (p, m) of the mean.
        scale: Weights (p, m) of the logarithm of the scale.
        unit: The deviation (m,) that is left.
    """

    frame: Conditional
    scaling: Scaling
    location: Tensor
    scale: Tensor
    unit: Tensor

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Coordinates (b, r, m) of members (b, r, m) and features of observations (b, d)."""
        design = self.frame.design(self.scaling.x(x))
        rest = self.scaling.theta(theta) - (design @ self.location)[:, None]
        unit = self.unit * (design @ self.scale).exp()[:, None]
        return (rest / unit).clamp(-FARTHEST, FARTHEST)


@dataclass(frozen=True)
class Within:
    """Coordinates of a set of several draws: whitened, or ranks, which are PITs.

    Args:
        coordinates: :class:`~assay.coordinates.Whitened` or :class:`~assay.coordinates.Ranks`.
    """

    coordinates: Coordinates

    def __post_init__(self) -> None:
        check_kind("coordinates", self.coordinates, "coordinates such as Whitened()", "check")

    def fit(self, theta: Tensor, x: Tensor, scaling: Scaling) -> "Within":
        """Refuses sets that are too small; nothing else is to be found."""
        self.coordinates.check(theta.shape[1] - 1, theta.shape[2])
        return self

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Coordinates (b, r, m) of members (b, r, m) and features of observations (b, d)."""
        return self.coordinates(theta).float().clamp(-FARTHEST, FARTHEST)


@dataclass(frozen=True)
class Known:
    r"""Quantities that people know, such as :math:`\log q`, HPD levels or conditional PITs.

    Args:
        function: Takes members (b, r, m) and features of the observations (b, d) and returns
            quantities (b, r) or (b, r, u). It must not know who plays the truth.

    Example:
        The logarithm of a density, as a coordinate:

        >>> def log_q(theta, x):
        ...     return torch.distributions.Normal(x[:, None] / 2, 1.0).log_prob(theta).sum(2)
        >>> frame = Known(log_q)
    """

    function: Callable[[Tensor, Tensor], Any]

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise TypeError(f"function: expected a function; got {self.function!r}.")

    def fit(self, theta: Tensor, x: Tensor, scaling: Scaling) -> "Quantities":
        """The frame of members (n, r, m) and features of observations (n, d)."""
        raw = Quantities(self.function, torch.zeros(()), torch.ones(()))(theta, x).flatten(0, 1)
        return Quantities(self.function, raw.mean(0), spread(raw))


@dataclass(frozen=True, eq=False)
class Quantities:
    """What :class:`Known` found: the function, and location and scale (u,) of its values."""

    function: Callable[[Tensor, Tensor], Any]
    location: Tensor
    scale: Tensor

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Coordinates (b, r, u) of members (b, r, m) and features of observations (b, d)."""
        found = torch.as_tensor(self.function(theta, x)).to(theta)
        found = found[..., None] if found.ndim == 2 else found
        if found.ndim != 3 or found.shape[:2] != theta.shape[:2]:
            raise ValueError(
                f"function: expected quantities with shape {tuple(theta.shape[:2])} or "
                f"{tuple(theta.shape[:2])} and one axis more; got {tuple(found.shape)}."
            )
        if not found.isfinite().all():
            raise ValueError(
                "function: expected finite quantities; got NaN or infinity. Clip them, for "
                "instance a logarithm of zero."
            )
        scaled = (found - self.location.to(found)) / self.scale.to(found)
        return scaled.float().clamp(-FARTHEST, FARTHEST)


def waves(n: int, length: float, width: int, *key: int | str) -> tuple[Tensor, Tensor]:
    """Frequencies (width, n) of typical length, and phases (n,); the same whenever asked."""
    generator = stream(0, "waves", n, width, *key)
    frequencies = torch.randn(width, n, generator=generator) * length / math.sqrt(max(1, width))
    return frequencies, 2 * math.pi * torch.rand(n, generator=generator)

r"""Where a test looks: weights of the calibration points around an observation.

A weight function depends on x alone, never on parameters, so it cannot spoil exactness. Weights of
one size have unit Euclidean norm: a weighted sum of independent features with mean zero and unit
variance has mean zero and unit variance again.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from .door import check_number
from .scaling import Robust

__all__ = ["Nearest", "Smooth", "Where"]

FEWEST = 10


class Where(Protocol):
    """How calibration points are weighted around an observation, at c sizes."""

    @property
    def shares(self) -> tuple[float, ...]:
        """The sizes, as shares of the calibration points."""

    def hypothesis(self, share: float) -> str:
        """What a small p-value speaks against, where points up to this share have weight."""

    def weights(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Weights (o, c, n) of features x (n, d) around observations (o, d), of unit norm."""


@dataclass(frozen=True)
class Nearest:
    """The calibration points nearest to x_o, all with the same weight; the rest with none.

    Points at the same distance are all in or all out, so where x has ties there may be more.

    Args:
        shares: Shares of the calibration points, tested together.

    Example:
        >>> x = torch.arange(100.0)[:, None]
        >>> Nearest((0.2,)).weights(x, x[:1]).nonzero()[:, 2].max()
        tensor(19)
    """

    shares: tuple[float, ...] = (0.05, 0.1, 0.2)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", _checked(self.shares))

    def hypothesis(self, share: float) -> str:
        """What a small p-value speaks against, where points up to this share have weight."""
        return f"q(theta | x) = p(theta | x) throughout the nearest {share:.0%} of x around x_o"

    def weights(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Weights (o, c, n) of features x (n, d) around observations (o, d), of unit norm."""
        distances = _distances(x, x_o)
        ordered = distances.sort(1).values
        limits = torch.stack([ordered[:, k - 1] for k in _sizes(self.shares, len(x))], 1)
        inside = (distances[:, None] <= limits[..., None]).to(x)
        return torch.nn.functional.normalize(inside, dim=2)


@dataclass(frozen=True)
class Smooth:
    """All calibration points, weighted by a Gaussian kernel around x_o.

    Args:
        shares: The length scales, each as the share of points within one of them.
    """

    shares: tuple[float, ...] = (0.05, 0.1, 0.2)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", _checked(self.shares))

    def hypothesis(self, share: float) -> str:
        """What a small p-value speaks against, whatever the share: all points have weight."""
        return "q(theta | x) = p(theta | x) at almost every x, seen through x_o"

    def weights(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Weights (o, c, n) of features x (n, d) around observations (o, d), of unit norm."""
        distances = _distances(x, x_o)
        ordered = distances.sort(1).values
        lengths = torch.stack([ordered[:, k - 1] for k in _sizes(self.shares, len(x))], 1)
        # Where many points coincide with x_o the length scale is zero: they alone count then.
        lengths = lengths.clamp_min(torch.finfo(x.dtype).tiny ** 0.5)
        weights = (-0.5 * (distances[:, None] / lengths[..., None]) ** 2).exp()
        return torch.nn.functional.normalize(weights, dim=2)


def _checked(shares: tuple[float, ...] | float) -> tuple[float, ...]:
    given = np.atleast_1d(np.asarray(shares, dtype=object)).tolist()
    numbers = [check_number("shares", share) for share in given]
    if not numbers or max(numbers) > 1:
        raise ValueError(f"shares: expected numbers above 0 and up to 1; got {given}.")
    return tuple(sorted(numbers))


def _sizes(shares: tuple[float, ...], n: int) -> list[int]:
    return [min(n, max(FEWEST, round(share * n))) for share in shares]


def _distances(x: Tensor, x_o: Tensor) -> Tensor:
    """Distances (o, n) between features on a common scale."""
    robust = Robust.fit(x)
    return torch.cdist(robust(x_o), robust(x))

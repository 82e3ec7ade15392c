r"""Where a test looks: weights of the calibration points around an observation.

A weight function depends on x alone, never on parameters, so it cannot spoil exactness. Weights of
one size have unit Euclidean norm: a weighted sum of independent features with mean zero and unit
variance has mean zero and unit variance again.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .scaling import Robust

__all__ = ["Nearest", "Smooth", "Where"]

FEWEST = 10


class Where(Protocol):
    """How calibration points are weighted around an observation, at c sizes."""

    @property
    def shares(self) -> tuple[float, ...]:
        """The sizes, as shares of the calibration points."""

    @property
    def hypothesis(self) -> str:
        """What a small p-value speaks against."""

    def weights(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Weights (o, c, n) of features x (n, d) around observations (o, d), of unit norm."""


@dataclass(frozen=True)
class Nearest:
    """The calibration points nearest to x_o, all with the same weight; the rest with none.

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

    @property
    def hypothesis(self) -> str:
        """What a small p-value speaks against."""
        largest = max(self.shares)
        return f"q(theta | x) = p(theta | x) throughout the nearest {largest:.0%} of x around x_o"

    def weights(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Weights (o, c, n) of features x (n, d) around observations (o, d), of unit norm."""
        order = _distances(x, x_o).argsort(dim=1, stable=True)
        weights = x.new_zeros(len(x_o), len(self.shares), len(x))
        for i, size in enumerate(_sizes(self.shares, len(x))):
            weights[:, i].scatter_(1, order[:, :size], size**-0.5)
        return weights


@dataclass(frozen=True)
class Smooth:
    """All calibration points, weighted by a Gaussian kernel around x_o.

    Args:
        shares: The length scales, each as the share of points within one of them.
    """

    shares: tuple[float, ...] = (0.05, 0.1, 0.2)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", _checked(self.shares))

    @property
    def hypothesis(self) -> str:
        """What a small p-value speaks against."""
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
    shares = tuple(shares) if isinstance(shares, tuple | list) else (shares,)
    if not shares or not all(0 < share <= 1 for share in shares):
        raise ValueError(f"shares: expected numbers above 0 and up to 1; got {shares}.")
    return tuple(sorted(shares))


def _sizes(shares: tuple[float, ...], n: int) -> list[int]:
    return [min(n, max(FEWEST, round(share * n))) for share in shares]


def _distances(x: Tensor, x_o: Tensor) -> Tensor:
    """Distances (o, n) between features on a common scale."""
    robust = Robust.fit(x)
    return torch.cdist(robust(x_o), robust(x))

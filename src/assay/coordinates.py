r"""Coordinates of a set: the truth and the k draws of q at the same x, brought to a common frame.

Where q has no flow, its draws take the place of latents. A coordinate map may look at a whole set,
but not at which member is the truth: then members stay exchangeable if q is right.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

__all__ = ["Coordinates", "Ranks", "Whitened"]


class Coordinates(Protocol):
    """A map of sets to coordinates that look like N(0, I) for a q without structure."""

    def check(self, k: int, m: int) -> None:
        """Refuses too few draws of m parameters."""

    def __call__(self, members: Tensor) -> Tensor:
        """Coordinates (n, r, m) of members (n, r, m)."""


@dataclass(frozen=True)
class Whitened:
    """Each set is whitened by its own pooled mean and covariance.

    Example:
        >>> sets = torch.randn(5, 40, 3, generator=torch.Generator().manual_seed(0))
        >>> white = Whitened()(sets * torch.tensor([1.0, 10.0, 100.0]) + 7)
        >>> torch.allclose(white.mT @ white / 40, torch.eye(3), atol=1e-3)
        True
    """

    def check(self, k: int, m: int) -> None:
        """Refuses too few draws of m parameters."""
        _check_draws(k, m, m + 2)

    def __call__(self, members: Tensor) -> Tensor:
        """Coordinates (n, r, m) of members (n, r, m)."""
        # By the largest first: squares of tiny or huge units would leave the range of numbers.
        largest = members.abs().amax(1, keepdim=True)
        centred = members / torch.where(largest > 0, largest, torch.ones_like(largest))
        centred = centred - centred.mean(1, keepdim=True)
        scale = centred.square().mean(1, keepdim=True).sqrt()
        # A parameter that does not vary in a set stays at zero there.
        still = scale <= 10 * torch.finfo(members.dtype).eps
        centred = torch.where(
            still, 0, centred / torch.where(still, torch.ones_like(scale), scale)
        )
        covariance = centred.mT @ centred / members.shape[1]
        # A little more than the identity's rounding error, for draws on a line.
        jitter = 1e-4 * torch.eye(members.shape[2]).to(members)
        factor = torch.linalg.cholesky(covariance + jitter)
        white: Tensor = torch.linalg.solve_triangular(factor, centred.mT, upper=False)
        return white.mT


@dataclass(frozen=True)
class Ranks:
    """Each parameter is replaced by the normal score of its rank in the set.

    Sees order only, so it does not mind several modes, heavy tails or monotone changes of units.
    """

    def check(self, k: int, m: int) -> None:
        """Refuses too few draws of m parameters."""
        _check_draws(k, m, 3)

    def __call__(self, members: Tensor) -> Tensor:
        """Coordinates (n, r, m) of members (n, r, m)."""
        columns = members.mT.contiguous()
        ordered = columns.sort(2).values
        first = torch.searchsorted(ordered, columns)
        last = torch.searchsorted(ordered, columns, right=True)
        # Tied members share their mean rank.
        ranks = 0.5 * (first + last + 1).mT
        scores: Tensor = torch.special.ndtri((ranks - 0.5).to(members) / members.shape[1])
        return scores


def _check_draws(k: int, m: int, fewest: int) -> None:
    if k < fewest:
        raise ValueError(
            f"theta_q: expected at least {fewest} draws of q at each x for {m} parameter(s); got "
            f"{k}. With 32 a local test sees nearly all there is."
        )

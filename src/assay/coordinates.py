r"""Coordinates of a set: the truth and the k draws of q at the same x, brought to a common frame.

Where q has no flow, its draws take the place of latents. A coordinate map may look at a whole set,
but not at which member is the truth: then members stay exchangeable if q is right.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from .samples import Calibration

__all__ = ["Coordinates", "Ranks", "Whitened"]


class Coordinates(Protocol):
    """A map of sets to coordinates that look like N(0, I) for a q without structure."""

    def check(self, calibration: Calibration) -> None:
        """Refuses a calibration with too few draws."""

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

    def check(self, calibration: Calibration) -> None:
        """Refuses a calibration with too few draws."""
        _check_draws(calibration, calibration.m + 2)

    def __call__(self, members: Tensor) -> Tensor:
        """Coordinates (n, r, m) of members (n, r, m)."""
        centred = members - members.mean(1, keepdim=True)
        scale = centred.square().mean(1, keepdim=True).sqrt()
        # A parameter that does not vary in a set stays at zero there.
        centred = centred / torch.where(scale > 0, scale, torch.ones_like(scale))
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

    def check(self, calibration: Calibration) -> None:
        """Refuses a calibration with too few draws."""
        _check_draws(calibration, 3)

    def __call__(self, members: Tensor) -> Tensor:
        """Coordinates (n, r, m) of members (n, r, m)."""
        # Tied members share their mean rank.
        less = (members[:, :, None] > members[:, None]).sum(2)
        tied = (members[:, :, None] == members[:, None]).sum(2)
        ranks = less + 0.5 * (tied + 1)
        scores: Tensor = torch.special.ndtri((ranks - 0.5).to(members) / members.shape[1])
        return scores


def _check_draws(calibration: Calibration, fewest: int) -> None:
    if calibration.k is None or calibration.k < fewest:
        raise ValueError(
            f"theta_q: expected at least {fewest} draws of q at each x for {calibration.m} "
            f"parameter(s); got {calibration.k}. With 32 the moment test sees nearly all there is."
        )

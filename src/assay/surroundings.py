r"""Surroundings: does the calibration know anything of x_o?

A test can say nothing about an observation that none of its pairs resembles, and a large p-value
there is no comfort. The distance to the tenth nearest calibration point is compared with the same
distance for calibration points themselves: the share of them that lie as far out is the conformal
p-value of x_o being one of them. It is a statement on the simulator's world, not on q: an x_o
outside is a sign of a model that is wrong, or of a calibration that is too small.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from .scaling import Robust

__all__ = ["Surroundings", "surroundings"]

# The neighbour whose distance counts, and the share of points that makes a neighbourhood.
NEIGHBOUR, SHARE = 10, 0.05
# Calibration points that are looked at, and those among them whose distances are compared.
MOST_POINTS, COMPARED, STEP = 20_000, 500, 50
# Below this p-value x_o is said to lie outside.
OUTSIDE = 0.01


@dataclass(frozen=True, eq=False)
class Surroundings:
    """How the calibration surrounds one observation, or o of them.

    Args:
        pairs: The calibration pairs that are as near as a twentieth of all pairs is to a typical
            x, with shape () or (o,).
        distance: The distance to the tenth nearest pair, over that of a typical x.
        pvalue: The share of calibration points that lie as far from the others.
    """

    pairs: np.ndarray
    distance: np.ndarray
    pvalue: np.ndarray

    @property
    def outside(self) -> np.ndarray:
        """Whether x_o lies outside the cloud of the calibration."""
        return np.asarray(self.pvalue <= OUTSIDE)

    def __getitem__(self, which: int) -> "Surroundings":
        return Surroundings(self.pairs[which], self.distance[which], self.pvalue[which])


def surroundings(x: Tensor, x_o: Tensor) -> Surroundings:
    """Compares observations with the calibration's own.

    Args:
        x: Features of the calibration's observations, with shape (n, d).
        x_o: Features of the observations, with shape (o, d).

    Example:
        >>> x = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
        >>> found = surroundings(x, torch.tensor([[0.0, 0.0], [6.0, 6.0]]))
        >>> found.outside
        array([False,  True])
    """
    robust = Robust.fit(x)
    points = robust(x)[:: 1 + len(x) // MOST_POINTS]
    some = points[:: 1 + len(points) // COMPARED]
    neighbour = min(NEIGHBOUR, len(points) - 1)
    # A calibration point is its own nearest neighbour.
    own = _near(points, some, neighbour + 1)
    there = _near(points, robust(x_o), neighbour)
    near = max(neighbour, round(SHARE * len(points)))
    radius = _near(points, some[:: 1 + len(some) // 100], near + 1).median()
    counts = torch.stack([(_distances(points, o[None]) <= radius).sum() for o in robust(x_o)])
    larger = (own >= there[:, None]).sum(1)
    # Where many points coincide, typical distances are zero.
    typical = own.median().clamp_min(torch.finfo(own.dtype).tiny)
    return Surroundings(
        (counts * (len(x) / len(points))).round().long().cpu().numpy(),
        (there / typical).cpu().numpy(),
        ((1 + larger) / (1 + len(own))).cpu().numpy(),
    )


def _near(points: Tensor, x: Tensor, k: int) -> Tensor:
    """Distances (o,) of x (o, d) to their k-th nearest of points (n, d)."""
    parts = [_distances(points, part).kthvalue(k, dim=1).values for part in x.split(STEP)]
    return torch.cat(parts)


def _distances(points: Tensor, x: Tensor) -> Tensor:
    return torch.cdist(x, points, compute_mode="donot_use_mm_for_euclid_dist")

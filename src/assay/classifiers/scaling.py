r"""A common scale for the inputs of a network, computed from what no relabelling changes.

Parameters or latents are standardised by the pooled location and scale of all members. Features of
x are centred by their median, scaled by their interquartile range and passed through
:math:`\operatorname{arsinh}`, which is linear near the centre and logarithmic in the tails: an
outlying observation then no longer lies far outside all that the network has learnt, where its
null distribution would be too wide for any error to show. Both are invariant under affine maps of
single columns.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from ..copies import Copies

__all__ = ["Scaling"]

# Members beyond this many scales are moved to it, so that one wild latent cannot end training.
FARTHEST = 10.0
# The interquartile range of a standard normal.
IQR = 1.349
# torch.quantile takes at most 2^24 numbers; so many rows tell the quartiles well enough.
MOST_ROWS = 100_000


@dataclass(frozen=True, eq=False)
class Scaling:
    """Location and scale of members, each (m,), and of features of x, each (d,)."""

    theta_location: Tensor
    theta_scale: Tensor
    x_location: Tensor
    x_scale: Tensor

    @classmethod
    def fit(cls, copies: Copies) -> Self:
        """The scaling of a data set, the same for all its copies."""
        x = copies.x[:: 1 + len(copies.x) // MOST_ROWS]
        quarter, median, three_quarters = x.quantile(x.new_tensor([0.25, 0.5, 0.75]), 0)
        scale = (three_quarters - quarter) / IQR
        # Discrete features can have no interquartile range, and constant ones no spread at all.
        scale = torch.where(scale > 0, scale, x.std(0))
        scale = torch.where(scale > 0, scale, torch.ones_like(scale))
        return cls(*copies.scaling, median, scale)

    @property
    def width(self) -> int:
        """The number of inputs, m + d."""
        return len(self.theta_location) + len(self.x_location)

    def theta(self, theta: Tensor) -> Tensor:
        """Members (..., m) on the common scale, in single precision."""
        scaled = (theta - self.theta_location) / self.theta_scale
        return scaled.clamp(-FARTHEST, FARTHEST).float()

    def x(self, x: Tensor) -> Tensor:
        """Features (..., d) on the common scale, in single precision."""
        return torch.asinh((x - self.x_location) / self.x_scale).float()

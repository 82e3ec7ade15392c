r"""A common scale for features of x, whatever their units and tails.

A feature is centred by its median, scaled by its interquartile range and passed through
:math:`\operatorname{arsinh}`, which is linear near the centre and logarithmic in the tails. An
outlying observation then no longer lies far outside all others, where every null would be too wide
for an error to show. The map is invariant under affine maps of single columns.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

__all__ = ["Robust", "spread"]

# The interquartile range of a standard normal.
IQR = 1.349
# So many rows tell the quartiles well enough, and torch.quantile has its limits.
MOST_ROWS = 10_000


def spread(rows: Tensor) -> Tensor:
    """Standard deviations of columns (n, p); one for a column that is constant."""
    varies = rows.amax(0) > rows.amin(0)
    return torch.where(varies, rows.std(0), torch.ones_like(rows[0]))


@dataclass(frozen=True, eq=False)
class Robust:
    """Location and scale of the d features of x, each with shape (d,)."""

    location: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, x: Tensor) -> Self:
        """The scaling of features (n, d)."""
        x = x[:: 1 + len(x) // MOST_ROWS]
        quarter, median, three_quarters = x.quantile(x.new_tensor([0.25, 0.5, 0.75]), 0)
        scale = (three_quarters - quarter) / IQR
        # Discrete features can have no interquartile range, and constant ones no spread at all.
        varies = x.amax(0) > x.amin(0)
        return cls(median, torch.where(varies & (scale > 0), scale, spread(x)))

    def __call__(self, x: Tensor) -> Tensor:
        """Features (..., d) on the common scale."""
        return torch.asinh((x - self.location) / self.scale)

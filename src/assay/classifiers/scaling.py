"""A common scale for the inputs of a network, computed from what no relabelling changes."""

from dataclasses import dataclass
from typing import Self

from torch import Tensor

from ..copies import Copies
from ..scaling import Robust

__all__ = ["Scaling"]

# Members beyond this many scales are moved to it, so that one wild latent cannot end training.
FARTHEST = 10.0


@dataclass(frozen=True, eq=False)
class Scaling:
    """Location and scale of members, each (m,), and the scale of features of x."""

    location: Tensor
    scale: Tensor
    robust: Robust

    @classmethod
    def fit(cls, copies: Copies) -> Self:
        """The scaling of a data set, the same for all its copies."""
        x = copies.x
        # Without x, as in a test of two samples, there are no quartiles to find.
        return cls(*copies.scaling, Robust.fit(x) if x.shape[1] else Robust(x[0], x[0]))

    @property
    def width(self) -> int:
        """The number of inputs, m + d."""
        return len(self.location) + len(self.robust.location)

    def theta(self, theta: Tensor) -> Tensor:
        """Members (..., m) on the common scale, in single precision."""
        scaled = (theta - self.location) / self.scale
        return scaled.clamp(-FARTHEST, FARTHEST).float()

    def x(self, x: Tensor) -> Tensor:
        """Features (..., d) on the common scale, in single precision."""
        return self.robust(x).float()

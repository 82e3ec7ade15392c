r"""What a regression of levels is: an estimate of :math:`r(\alpha, x) = P(u \le \alpha \mid x)`.

If q is right at x, then :math:`r(\alpha, x) = \alpha`. A regression is fitted to the data and all
null copies, which it must treat alike: its curves are one and the same function of each copy.
"""

from typing import Protocol

import numpy as np
from torch import Tensor

from ..levels import LevelCopies
from ..results import Family

__all__ = ["Curves", "Regression"]


class Curves(Protocol):
    """The fitted curves of all copies."""

    @property
    def family(self) -> Family:
        """How p-values at many observations are adjusted for their number."""

    def hypothesis(self, x_o: Tensor) -> str:
        """What a small p-value at observations (o, d) speaks against."""

    def __call__(self, x_o: Tensor) -> np.ndarray:
        """Estimates of r, with shape (c, o, H + 1, j, g), at observations (o, d).

        At each of c sizes, which a test combines; a regression of one size has c = 1.
        """


class Regression(Protocol):
    """A recipe for curves."""

    @property
    def nulls(self) -> int:
        """A number of null copies that is sensible for its cost."""

    def fit(self, copies: LevelCopies, alphas: np.ndarray, seed: int) -> Curves:
        """Fits the data, first, and its null copies, at the levels alphas (g,)."""

r"""Levels regressed on x in closed form: one weighted count for all levels and all nulls.

A linear smoother has weights :math:`w_n(x_o)` that depend on x alone, and

.. math:: \hat r(\alpha, x_o) = \frac{\sum_n w_n(x_o) \, 1\{u_n \le \alpha\}}{\sum_n w_n(x_o)}.

Nothing is trained: a null copy costs a look at which of the levels each of its u lies below, and a
sum of weights. With :class:`~assay.neighbourhoods.Nearest`, levels far from x_o have no weight,
and the test is exact for the neighbourhood alone; nothing leaks in.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..door import check_kind
from ..levels import LevelCopies
from ..neighbourhoods import Nearest
from ..results import Family
from ..workers import spread_over

__all__ = ["Around", "Linear", "Weighted", "Weights"]


class Weights(Protocol):
    """Weights around an observation, such as :class:`~assay.neighbourhoods.Nearest`."""

    @property
    def family(self) -> Family:
        """How p-values at many observations are adjusted for their number."""

    def hypothesis(self, share: float) -> str:
        """What a small p-value speaks against, where points up to this share have weight."""

    def weights(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Weights (o, c, n) of features x (n, d) around observations (o, d), of unit norm."""


@dataclass(frozen=True)
class Linear:
    """A linear smoother of levels over x.

    Args:
        where: The weights around x_o: :class:`~assay.neighbourhoods.Nearest` by default, which is
            exact for the neighbourhood; :class:`~assay.neighbourhoods.Smooth` or
            :class:`~assay.neighbourhoods.Regressed` over all points.

    Example:
        >>> Linear(Nearest((0.1,))).where.shares
        (0.1,)
    """

    where: Weights = field(default_factory=Nearest)

    def __post_init__(self) -> None:
        check_kind("where", self.where, "weights such as Nearest()", "weights", "hypothesis")

    @property
    def nulls(self) -> int:
        """A number of null copies that is sensible for its cost."""
        return 999

    def fit(self, copies: LevelCopies, alphas: np.ndarray, seed: int) -> "Weighted":
        """Nothing needs to be fitted before x_o is known."""
        return Weighted(self.where, copies, alphas)


@dataclass(frozen=True, eq=False)
class Weighted:
    """Curves by weighted counts.

    Args:
        where: The weights around x_o.
        copies: The levels of the data and its nulls.
        alphas: The levels at which curves are found, with shape (g,).
    """

    where: Weights
    copies: LevelCopies
    alphas: np.ndarray

    @property
    def family(self) -> Family:
        """How p-values at many observations are adjusted for their number."""
        return self.where.family

    def hypothesis(self, x_o: Tensor) -> str:
        """What a small p-value at observations (o, d) speaks against."""
        around = Around.of(self.where, self.copies, x_o)
        return self.where.hypothesis(float(around.pairs.max()) / len(self.copies.levels))

    def __call__(self, x_o: Tensor) -> np.ndarray:
        """Estimates of r, with shape (c, o, H + 1, j, g), at observations (o, d)."""
        around = Around.of(self.where, self.copies, x_o)
        alphas = torch.as_tensor(self.alphas).to(self.copies.levels.u)
        g, columns = len(alphas), self.copies.levels.u.shape[1]

        def counts(h: int) -> Tensor:
            """Sums of weights (j, g, o c) of the levels up to each alpha, for copy h."""
            bins = torch.bucketize(self.copies(h, around.rows), alphas)
            sums = around.weights.new_zeros(columns, g + 1, around.weights.shape[1])
            for total, places in zip(sums, bins.mT, strict=True):
                total.index_add_(0, places.contiguous(), around.weights)
            return sums[:, :g].cumsum(1)

        found = torch.stack(list(around.spread(counts, len(self.copies))))
        curves = found.unflatten(3, around.shape).permute(4, 3, 0, 1, 2)
        return np.asarray(curves.cpu().numpy())


@dataclass(frozen=True, eq=False)
class Around:
    """The rows that have weight around some observations, and their weights.

    Args:
        rows: The rows, with shape (b,).
        weights: Their weights, which add up to one, with shape (b, o c), in double precision.
        shape: The numbers of observations and of sizes, o and c.
    """

    rows: Tensor
    weights: Tensor
    shape: tuple[int, int]

    @classmethod
    def of(cls, where: Weights, copies: LevelCopies, x_o: Tensor) -> "Around":
        """The weights of some observations (o, d)."""
        weights = where.weights(copies.levels.calibration.features, x_o).double()
        rows = (weights != 0).any(1).any(0).nonzero().flatten()
        shares = weights / weights.sum(2, keepdim=True)
        o, c, _ = weights.shape
        return cls(rows, shares[..., rows].flatten(0, 1).mT.contiguous(), (o, c))

    @property
    def pairs(self) -> np.ndarray:
        """Effective numbers of pairs (o, c): one over the sum of squared shares."""
        pairs = 1 / self.weights.square().sum(0)
        return np.asarray(pairs.unflatten(0, self.shape).cpu().numpy())

    def spread(self, function: Callable[[int], Any], copies: int) -> Iterable[Any]:
        """A function of each copy, in order, over the threads there are."""
        workers = torch.get_num_threads() if self.rows.device.type == "cpu" else 1
        with spread_over(workers if copies > 1 else 1) as apply:
            yield from apply(function, range(copies))

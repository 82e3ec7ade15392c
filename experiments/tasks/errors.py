r"""Errors of q of a known size: one map of standard coordinates that makes a right q wrong.

:math:`u = (\theta - \mu(x)) / \sigma(x)` are the standard coordinates of the true posterior. An
error :math:`g_s` turns draws of it into draws of a q that is wrong by the size s.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from assay._support.inputs import check_count


@dataclass(frozen=True)
class Error(ABC):
    """An error of q in one coordinate, or in all of them if `along` is None."""

    along: int | None = None

    def __post_init__(self) -> None:
        if self.along is not None:
            object.__setattr__(self, "along", check_count("along", self.along, 0))

    def distort(self, u: Tensor, size: float) -> Tensor:
        """Turns right draws u (n, m) into wrong ones."""
        return self._change(u, lambda part: self._forward(part, size))

    def undo(self, u: Tensor, size: float) -> Tensor:
        """Turns wrong draws u (n, m) into right ones."""
        return self._change(u, lambda part: self._back(part, size))

    def ratio(self, wrong: Tensor, size: float, log_density: Callable[[Tensor], Tensor]) -> Tensor:
        r"""Ratios p / q (n,) of the right density to that of q, at draws of q (n, m).

        Args:
            wrong: Draws of q.
            size: The size of its error.
            log_density: The right log-density (n,) at coordinates (n, m), up to a constant.

        Example:
            >>> def normal(u):
            ...     return -u.square().sum(1) / 2
            >>> Wide().ratio(torch.zeros(1, 2), 1.0, normal)  # (1 + s)^m at the mean
            tensor([4.])
        """
        right = self.undo(wrong, size)
        slope = self._log_slope(right[:, self._columns(right)], size).sum(1)
        return (log_density(wrong) - log_density(right) + slope).exp()

    def _change(self, u: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        columns, changed = self._columns(u), u.clone()
        changed[:, columns] = function(u[:, columns])
        return changed

    def _columns(self, u: Tensor) -> slice:
        if self.along is None:
            return slice(None)
        if self.along >= u.shape[1]:
            raise ValueError(
                f"along: expected one of {u.shape[1]} coordinate(s), from 0; got {self.along}."
            )
        return slice(self.along, self.along + 1)

    @abstractmethod
    def _forward(self, u: Tensor, size: float) -> Tensor:
        """Right values made wrong."""

    @abstractmethod
    def _back(self, u: Tensor, size: float) -> Tensor:
        """Wrong values made right."""

    @abstractmethod
    def _log_slope(self, u: Tensor, size: float) -> Tensor:
        """Logarithms of the derivative at right values."""


class Shift(Error):
    """Too high by s standard deviations.

    Example:
        >>> Shift(0).distort(torch.zeros(1, 2), 0.5)
        tensor([[0.5000, 0.0000]])
    """

    def _forward(self, u: Tensor, size: float) -> Tensor:
        return u + size

    def _back(self, u: Tensor, size: float) -> Tensor:
        return u - size

    def _log_slope(self, u: Tensor, size: float) -> Tensor:
        return torch.zeros_like(u)


class Wide(Error):
    """1 + s times too wide.

    Example:
        >>> Wide().distort(torch.ones(1, 2), 1.0)
        tensor([[2., 2.]])
    """

    def _forward(self, u: Tensor, size: float) -> Tensor:
        return u * (1 + size)

    def _back(self, u: Tensor, size: float) -> Tensor:
        return u / (1 + size)

    def _log_slope(self, u: Tensor, size: float) -> Tensor:
        return torch.full_like(u, math.log1p(size))


class Narrow(Error):
    """1 + s times too narrow.

    Example:
        >>> Narrow().distort(torch.ones(1, 2), 1.0)
        tensor([[0.5000, 0.5000]])
    """

    def _forward(self, u: Tensor, size: float) -> Tensor:
        return u / (1 + size)

    def _back(self, u: Tensor, size: float) -> Tensor:
        return u * (1 + size)

    def _log_slope(self, u: Tensor, size: float) -> Tensor:
        return torch.full_like(u, -math.log1p(size))


class Skew(Error):
    r"""Skewed to the right: :math:`g_s(u) = \sinh(\operatorname{arsinh} u + s)`.

    References:
        Jones and Pewsey 2009, *Sinh-arcsinh distributions*.
    """

    def _forward(self, u: Tensor, size: float) -> Tensor:
        return torch.sinh(torch.asinh(u) + size)

    def _back(self, u: Tensor, size: float) -> Tensor:
        return torch.sinh(torch.asinh(u) - size)

    def _log_slope(self, u: Tensor, size: float) -> Tensor:
        return (torch.cosh(torch.asinh(u) + size) / (1 + u.square()).sqrt()).log()

"""Priors: distributions over parameters that know their support."""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from assay._support.inputs import cpu


class Prior(Protocol):
    """A distribution over m parameters."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws with shape (n, m)."""

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log-densities (n,) of parameters (n, m); minus infinity outside the support."""

    def inside(self, theta: Tensor) -> Tensor:
        """Whether parameters (n, m) lie in the support, with shape (n,)."""


@dataclass(frozen=True)
class Box:
    """A uniform distribution between lower and upper limits, one for each parameter.

    Example:
        >>> Box((0.0, -1.0), (2.0, 1.0)).log_prob(torch.tensor([[1.0, 0.0], [3.0, 0.0]]))
        tensor([-1.3863,    -inf])
    """

    low: tuple[float, ...]
    high: tuple[float, ...]

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws with shape (n, m)."""
        low, high = cpu.tensor(self.low), cpu.tensor(self.high)
        return low + (high - low) * cpu.rand(n, len(low), generator=generator)

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log-densities (n,) of parameters (n, m); minus infinity outside the support."""
        volume = math.prod(b - a for a, b in zip(self.low, self.high, strict=True))
        density = theta.new_tensor(-math.log(volume))
        return torch.where(self.inside(theta), density, -torch.inf)

    def inside(self, theta: Tensor) -> Tensor:
        """Whether parameters (n, m) lie in the support, with shape (n,)."""
        low, high = theta.new_tensor(self.low), theta.new_tensor(self.high)
        return ((theta >= low) & (theta <= high)).all(1)


@dataclass(frozen=True, eq=False)
class Gaussian:
    """A normal distribution with mean zero and a precision (m, m), in double precision."""

    precision: Tensor

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws with shape (n, m)."""
        factor = torch.linalg.cholesky(self.precision)
        noise = cpu.randn(len(factor), n, generator=generator, dtype=factor.dtype)
        draws: Tensor = torch.linalg.solve_triangular(factor.mT, noise, upper=True)
        return draws.mT.float()

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log-densities (n,) of parameters (n, m)."""
        precision = self.precision.to(theta)
        square = ((theta @ precision) * theta).sum(1)
        return 0.5 * (torch.logdet(precision) - len(precision) * math.log(2 * math.pi) - square)

    def inside(self, theta: Tensor) -> Tensor:
        """Whether parameters (n, m) lie in the support, with shape (n,): all do."""
        return torch.ones(len(theta), dtype=torch.bool, device=theta.device)

    def __repr__(self) -> str:
        return f"Gaussian(m={len(self.precision)})"

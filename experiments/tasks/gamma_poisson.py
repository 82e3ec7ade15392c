r"""Counts with gamma rates: a conjugate model whose observations are discrete, with many ties.

.. math:: \theta_j \sim \text{Gamma}(2, 1), \qquad x_j \sim \text{Poisson}(\theta_j), \qquad
    \theta_j \mid x \sim \text{Gamma}(2 + x_j, 2),

independently in both coordinates, with rates as second arguments.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from assay._support.inputs import cpu
from assay._support.random import seed_of

from .task import Direct

SHAPE, RATE, SIZE = 2.0, 1.0, 2


@dataclass(frozen=True)
class _Gamma:
    """The prior: independent gamma distributions."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws with shape (n, m)."""
        return _gamma(cpu.full((n, SIZE), SHAPE), RATE, generator).float()

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log-densities (n,) of parameters (n, m); minus infinity outside the support."""
        density = (SHAPE - 1) * theta.log() - RATE * theta + SHAPE * math.log(RATE)
        total = (density - math.lgamma(SHAPE)).sum(1)
        return torch.where(self.inside(theta), total, -torch.inf)

    def inside(self, theta: Tensor) -> Tensor:
        """Whether parameters (n, m) lie in the support, with shape (n,)."""
        return (theta > 0).all(1)


class GammaPoisson(Direct):
    """Two rates and two counts."""

    name = "gamma_poisson"
    parameters = ("rate_1", "rate_2")
    d = SIZE
    prior = _Gamma()

    def _simulate(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        return torch.poisson(theta, generator=generator)

    def _draws(self, x: Tensor, k: int, generator: torch.Generator) -> Tensor:
        if (x < 0).any() or (x != x.round()).any():
            raise ValueError(f"x: expected counts; got {x.min()} to {x.max()}.")
        return _gamma(SHAPE + x[:, None].expand(-1, k, -1), RATE + 1, generator)

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return (SHAPE + x) / (RATE + 1), (SHAPE + x).sqrt() / (RATE + 1)

    def _log_likelihood(self, theta: Tensor, x: Tensor) -> Tensor:
        return (x * theta.log() - theta - torch.lgamma(x + 1)).sum(1)


def _gamma(shape: Tensor, rate: float, generator: torch.Generator) -> Tensor:
    """Gamma draws, in double precision; torch's own sampler takes no generator."""
    source = np.random.default_rng(seed_of(generator))
    return torch.from_numpy(source.standard_gamma(shape.double().numpy()) / rate)

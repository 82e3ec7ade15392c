r"""Gaussian Linear Uniform: ten parameters seen through noise, in a box.

.. math:: \theta \sim U[-1, 1]^{10}, \qquad x \sim N(\theta, 0.1\, I).

Reference: Lueckmann et al. 2021, *Benchmarking simulation-based inference*.
"""

import math

import torch
from torch import Tensor

from assay._support.inputs import cpu

from .priors import Box
from .task import Direct
from .truncated import log_mass, truncated_normal

M = 10
WIDTH = math.sqrt(0.1)


class GaussianLinearUniform(Direct):
    """Ten parameters, each observed once; the posterior is a product of truncated normals."""

    name = "gaussian_linear_uniform"
    parameters = tuple(f"theta_{j}" for j in range(1, M + 1))
    d = M
    prior = Box((-1.0,) * M, (1.0,) * M)

    def _simulate(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        return theta + WIDTH * cpu.randn(theta.shape, generator=generator).to(theta)

    def _draws(self, x: Tensor, k: int, generator: torch.Generator) -> Tensor:
        x = x[:, None].expand(-1, k, -1)
        low, high = ((edge - x) / WIDTH for edge in (-1.0, 1.0))
        return x + WIDTH * truncated_normal(low, high, generator)

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Moments of truncated normals, as in every textbook."""
        low, high = ((edge - x) / WIDTH for edge in (-1.0, 1.0))
        mass, normal = log_mass(low, high), math.log(math.sqrt(2 * math.pi))
        at_low, at_high = ((-0.5 * z**2 - normal - mass).exp() for z in (low, high))
        mean = at_low - at_high
        variance = 1 + low * at_low - high * at_high - mean**2
        return x + WIDTH * mean, WIDTH * variance.sqrt()

    def _log_likelihood(self, theta: Tensor, x: Tensor) -> Tensor:
        scaled = ((x - theta) / WIDTH).square().sum(1)
        return -0.5 * scaled - M * math.log(WIDTH * math.sqrt(2 * math.pi))

r"""Gaussian Mixture: two components of the same mean and very different widths.

.. math:: \theta \sim U[-10, 10]^2, \qquad
    x \sim \tfrac12 N(\theta, I) + \tfrac12 N(\theta, 0.01\, I),

with a component for every single observation.

Reference: Lueckmann et al. 2021, *Benchmarking simulation-based inference*.
"""

import math

import torch
from torch import Tensor

from assay._support.inputs import cpu

from .priors import Box
from .task import Direct
from .truncated import log_mass, truncated_normal

EDGE = 10.0
WIDTHS = (1.0, 0.1)


class GaussianMixture(Direct):
    """Two parameters, observed once with noise that is wide or narrow."""

    name = "gaussian_mixture"
    parameters = ("theta_1", "theta_2")
    d = 2
    prior = Box((-EDGE, -EDGE), (EDGE, EDGE))

    def _simulate(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        component = cpu.randint(2, (len(theta), 1), generator=generator)
        noise = cpu.randn(len(theta), 2, generator=generator)
        return theta + (cpu.tensor(WIDTHS)[component] * noise).to(theta)

    def _draws(self, x: Tensor, k: int, generator: torch.Generator) -> Tensor:
        """A mixture of truncated normals, whose weights are the masses inside the square."""
        widths = cpu.tensor(WIDTHS, dtype=torch.float64)
        low, high = ((edge - x[:, None]) / widths[:, None] for edge in (-EDGE, EDGE))
        weights = log_mass(low, high).sum(2).softmax(1)
        component = torch.multinomial(weights, k, replacement=True, generator=generator)
        width, x = widths[component][..., None], x[:, None]
        noise = truncated_normal((-EDGE - x) / width, (EDGE - x) / width, generator)
        return x + width * noise

    def _log_likelihood(self, theta: Tensor, x: Tensor) -> Tensor:
        square = (x - theta).square().sum(1)
        parts = [
            -0.5 * square / width**2 - math.log(2 * math.pi * width**2) - math.log(2)
            for width in WIDTHS
        ]
        return torch.logsumexp(torch.stack(parts), 0)

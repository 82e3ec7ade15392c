r"""Two Moons: a posterior of two crescents, known in closed form.

.. math::
    \theta \sim U[-1, 1]^2, \qquad
    x = (r \cos a + \tfrac14, \; r \sin a) +
        \tfrac{1}{\sqrt 2} (-|\theta_1 + \theta_2|, \; \theta_2 - \theta_1)

with :math:`a \sim U(-\pi/2, \pi/2)` and :math:`r \sim N(0.1, 0.01^2)`.

References: Greenberg et al. 2019, *Automatic posterior transformation for likelihood-free
inference*; Lueckmann et al. 2021, *Benchmarking simulation-based inference*.
"""

import math

import torch
from torch import Tensor

__all__ = ["posterior", "prior", "simulate"]


def prior(n: int, generator: torch.Generator) -> Tensor:
    """Returns n draws of the prior, with shape (n, 2)."""
    return 2 * torch.rand(n, 2, generator=generator) - 1


def simulate(theta: Tensor, generator: torch.Generator) -> Tensor:
    """Simulates one observation, with shape (2,), for each row of theta (n, 2)."""
    total, difference = theta.sum(1), theta[:, 1] - theta[:, 0]
    moved = torch.stack([-total.abs(), difference], 1) / math.sqrt(2)
    return _crescent(len(theta), generator) + moved


def posterior(x: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Returns n exact draws of the posterior at one observation x, with shape (n, 2).

    The map from parameters to the crescent's points is a reflection and a rotation, which keep
    areas: so draw the crescent, map it back to either moon, and reject what the prior excludes.
    """
    accepted = torch.empty(0, 2)
    for _ in range(1000):
        across, along = (_crescent(2 * n, generator) - x).unbind(1)
        sign = 2 * torch.randint(2, (2 * n,), generator=generator) - 1
        theta = torch.stack([sign * across + along, sign * across - along], 1) / math.sqrt(2)
        accepted = torch.cat([accepted, theta[(across >= 0) & (theta.abs() <= 1).all(1)]])
        if len(accepted) >= n:
            return accepted[:n]
    raise ValueError(f"x: expected an observation that the prior can produce; got {x.tolist()}.")


def _crescent(n: int, generator: torch.Generator) -> Tensor:
    angle = math.pi * (torch.rand(n, generator=generator) - 0.5)
    radius = 0.1 + 0.01 * torch.randn(n, generator=generator)
    return torch.stack([radius * angle.cos() + 0.25, radius * angle.sin()], 1)

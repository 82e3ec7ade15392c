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

from .priors import Box
from .task import Exact, Task

__all__ = ["TwoMoons"]

RADIUS, WIDTH, CENTRE = 0.1, 0.01, 0.25


# Proposals after which an observation is said to be out of the prior's reach: where none was
# accepted, and where some were.
MOST_REFUSED, MOST_PROPOSED = 2**22, 2**28


class TwoMoons(Task):
    """Two parameters, two observed numbers, two crescents."""

    name = "two_moons"
    parameters = ("theta_1", "theta_2")
    d = 2

    @property
    def prior(self) -> Box:
        """Uniform on the square."""
        return Box((-1.0, -1.0), (1.0, 1.0))

    def _simulate(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        total, difference = theta.sum(1), theta[:, 1] - theta[:, 0]
        moved = torch.stack([-total.abs(), difference], 1) / math.sqrt(2)
        return _crescent(len(theta), generator).to(theta) + moved

    def _posterior(self, x: Tensor, n: int, generator: torch.Generator) -> Exact:
        """Draws the crescent, maps it back to either moon, and rejects what the prior excludes.

        The map from parameters to the crescent's points is a reflection and a rotation, which keep
        areas.
        """
        found, proposed, accepted, size = [], 0, 0, 2 * n
        while proposed < (MOST_PROPOSED if accepted else MOST_REFUSED) + 2 * n:
            across, along = (_crescent(size, generator).double() - x).unbind(1)
            sign = 2 * torch.randint(2, (size,), generator=generator) - 1
            theta = torch.stack([sign * across + along, sign * across - along], 1) / math.sqrt(2)
            found.append(theta[(across >= 0) & (theta.abs() <= 1).all(1)])
            proposed, accepted = proposed + size, accepted + len(found[-1])
            if accepted >= n:
                return Exact(torch.cat(found)[:n], accepted / proposed)
            # At the edge of what the prior can produce hardly anything is accepted.
            size = min(2 * size, 2**20)
        raise ValueError(
            f"x: expected an observation that the prior can produce; got {x.tolist()}."
        )

    def _log_likelihood(self, theta: Tensor, x: Tensor) -> Tensor:
        """The density of the crescent at its points, with 1 / (pi r) for its polar coordinates."""
        across = theta.sum(1).abs() / math.sqrt(2)
        along = (theta[:, 1] - theta[:, 0]) / math.sqrt(2)
        u, v = x[:, 0] + across - CENTRE, x[:, 1] - along
        radius = torch.hypot(u, v)
        density = -0.5 * ((radius - RADIUS) / WIDTH) ** 2 - (math.pi * radius).log()
        density = density - math.log(WIDTH * math.sqrt(2 * math.pi))
        return torch.where(u > 0, density, -torch.inf)


def _crescent(n: int, generator: torch.Generator) -> Tensor:
    angle = math.pi * (torch.rand(n, generator=generator) - 0.5)
    radius = RADIUS + WIDTH * torch.randn(n, generator=generator)
    return torch.stack([radius * angle.cos() + CENTRE, radius * angle.sin()], 1)

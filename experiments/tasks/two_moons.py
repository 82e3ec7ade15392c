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

import scipy.special
import torch
from torch import Tensor

from assay._support.inputs import cpu
from assay._support.random import stream

from .priors import Box
from .task import MOMENT_DRAWS, Exact, Task

RADIUS, WIDTH, CENTRE = 0.1, 0.01, 0.25
# Deviations of the radius beyond which an observation is said to be out of the prior's reach.
FARTHEST = 7.0
# Points in the prior that tell mean and deviation, and observations that are looked at together.
FEWEST, STEP = 500, 256


class TwoMoons(Task):
    """Two parameters, two observed numbers, two crescents."""

    name = "two_moons"
    parameters = ("theta_1", "theta_2")
    d = 2
    prior = Box((-1.0, -1.0), (1.0, 1.0))

    def _simulate(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        total, difference = theta.sum(1), theta[:, 1] - theta[:, 0]
        moved = torch.stack([-total.abs(), difference], 1) / math.sqrt(2)
        return _crescent(_radius((len(theta),), generator), generator).to(theta) + moved

    def _posterior(self, x: Tensor, n: int, generator: torch.Generator) -> Exact:
        """Draws the crescent, maps it back to either moon, and rejects what the prior excludes.

        The map to the crescent's points is a reflection and a rotation, which keep areas.
        """
        least, most = _radii(x)
        # Not the other way round: a radius that overflows is NaN, and is refused as well.
        if not (least < RADIUS + FARTHEST * WIDTH and most > RADIUS - FARTHEST * WIDTH):
            words = f"x: expected an observation that the prior can produce; got {x.tolist()}."
            raise ValueError(words)
        kept, proposed, accepted = [], 0, 0
        while accepted < n:
            radius = _truncated(2 * n, least, most, generator)
            theta, inside = _proposed(x[None], radius[None], generator)
            kept.append(theta[0, inside[0]])
            proposed, accepted = proposed + len(radius), accepted + len(kept[-1])
        return Exact(torch.cat(kept)[:n], accepted / proposed)

    def _draws(self, x: Tensor, k: int, generator: torch.Generator) -> Tensor:
        """All observations at once; those at the edge of the prior one after the other."""
        theta, inside = _proposed(x, _radius((len(x), 4 * k), generator), generator)
        first = (~inside).byte().argsort(stable=True, dim=1)[:, :k, None]
        drawn = theta.gather(1, first.expand(-1, -1, 2))
        for i in (inside.sum(1) < k).nonzero().flatten().tolist():
            drawn[i] = self._posterior(x[i], k, generator).theta
        return drawn

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """From the same points of the crescent for all x, on both moons."""
        chance = stream(0, "moments")
        points = _crescent(_radius((MOMENT_DRAWS,), chance), chance)
        parts = [_averaged(part, points) for part in x.split(STEP)]
        mean, deviation = torch.cat(parts, 1) if parts else x.new_empty(2, 0, 2)
        # Where hardly any of them is in the prior, there are draws.
        few = (~deviation.isfinite()).any(1)
        mean[few], deviation[few] = super()._moments(x[few])
        return mean, deviation

    def _log_likelihood(self, theta: Tensor, x: Tensor) -> Tensor:
        """The density of the crescent at its points, with 1 / (pi r) for its polar coordinates."""
        across = theta.sum(1).abs() / math.sqrt(2)
        along = (theta[:, 1] - theta[:, 0]) / math.sqrt(2)
        u, v = x[:, 0] + across - CENTRE, x[:, 1] - along
        radius = torch.hypot(u, v)
        density = -0.5 * ((radius - RADIUS) / WIDTH) ** 2 - (math.pi * radius).log()
        density = density - math.log(WIDTH * math.sqrt(2 * math.pi))
        return torch.where(u > 0, density, -torch.inf)


def _radii(x: Tensor) -> tuple[float, float]:
    """The smallest and the largest distance from the crescent's centre of points that x allows.

    Points less x are what a parameter of the square can be mapped to: a triangle.
    """
    left = max(0.0, float(x[0]) - CENTRE)
    high, low = (math.sqrt(2) + float(x[0]) - CENTRE + sign * float(x[1]) for sign in (1, -1))
    tip = (high + low) / 2
    if tip < left:
        return math.inf, math.inf
    corners = ((left, high - left), (left, left - low), (tip, (high - low) / 2))
    inside = left == 0 and high >= 0 and low >= 0
    sides = zip(corners, corners[1:] + corners[:1], strict=True)
    near = 0.0 if inside else min(_distance(*side) for side in sides)
    return near, max(math.hypot(*corner) for corner in corners)


def _distance(start: tuple[float, float], end: tuple[float, float]) -> float:
    """The distance of a line between two points from the origin."""
    along = end[0] - start[0], end[1] - start[1]
    length = along[0] ** 2 + along[1] ** 2
    part = -(start[0] * along[0] + start[1] * along[1]) / length if length else 0.0
    part = min(1.0, max(0.0, part))
    return math.hypot(start[0] + part * along[0], start[1] + part * along[1])


def _truncated(n: int, least: float, most: float, generator: torch.Generator) -> Tensor:
    """Radii (n,) between two numbers."""
    low, high = (least - RADIUS) / WIDTH, (most - RADIUS) / WIDTH
    # In the tail that lies nearer, where probabilities are small numbers and not nearly one.
    sign = -1.0 if low > 0 else 1.0
    low, high = sorted((sign * low, sign * high))
    edges = scipy.special.ndtr([low, high])
    part = cpu.rand(n, generator=generator, dtype=torch.double)
    score: Tensor = torch.special.ndtri(edges[0] + part * (edges[1] - edges[0]))
    return RADIUS + sign * WIDTH * score


def _proposed(x: Tensor, radius: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Proposals (b, n, 2) at observations (b, 2), and whether prior and map allow them, (b, n)."""
    points = _crescent(radius, generator)
    sign = 2 * cpu.randint(2, radius.shape, generator=generator) - 1
    return _mapped(points - x[:, None], sign)


def _mapped(moved: Tensor, sign: Tensor) -> tuple[Tensor, Tensor]:
    """Parameters of points less x (..., 2), on the moon of a sign, and whether they may be."""
    across, along = moved.unbind(-1)
    theta = torch.stack([sign * across + along, sign * across - along], -1) / math.sqrt(2)
    return theta, (across >= 0) & (theta.abs() <= 1).all(-1)


def _averaged(x: Tensor, points: Tensor) -> Tensor:
    """Means and deviations (2, b, 2) at observations (b, 2), NaN where few points are left."""
    theta, inside = _mapped((points - x[:, None])[:, None], cpu.arange(-1, 2, 2)[:, None])
    weights = inside.flatten(1).double()
    weights = weights / torch.where(weights.sum(1) < FEWEST, torch.nan, weights.sum(1))[:, None]
    rows = theta.flatten(1, 2)
    mean = (weights[..., None] * rows).sum(1)
    square = (weights[..., None] * (rows - mean[:, None]).square()).sum(1)
    return torch.stack([mean, square.sqrt()])


def _radius(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return RADIUS + WIDTH * cpu.randn(shape, generator=generator, dtype=torch.double)


def _crescent(radius: Tensor, generator: torch.Generator) -> Tensor:
    """Points (..., 2) of the crescent at radii (...)."""
    angle = math.pi * (cpu.rand(radius.shape, generator=generator, dtype=torch.double) - 0.5)
    return torch.stack([radius * angle.cos() + CENTRE, radius * angle.sin()], -1)

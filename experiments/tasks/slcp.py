r"""SLCP, simple likelihood and complex posterior: four points of a bivariate normal.

.. math::
    \theta \sim U[-3, 3]^5, \qquad
    x_1, \dots, x_4 \sim N(\mu, S), \qquad \mu = (\theta_1, \theta_2),

with standard deviations :math:`\theta_3^2, \theta_4^2` and correlation :math:`\tanh \theta_5` (and
:math:`10^{-6}` on the diagonal of S). The signs of :math:`\theta_3` and :math:`\theta_4` do not
matter, so that the posterior has four equal modes.

**The posterior.** With mean :math:`\bar x` and scatter matrix A of the points, :math:`\mu` given S
is :math:`N(\bar x, S / 4)` cut to the box, and S has density :math:`|S|^{-3/2}
\exp(-\operatorname{tr} S^{-1} A / 2)\, P(\mu \in \text{box})` in the flat parameters. That is put
on a grid of three dimensions, zoomed to where the mass is; cells are proposed, points within them
accepted or rejected, and :math:`\mu` is drawn given S.

References: Papamakarios, Sterratt and Murray 2019, *Sequential neural likelihood*; Lueckmann et
al. 2021, *Benchmarking simulation-based inference*.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import max_pool3d

from assay._support.inputs import cpu

from .priors import Box
from .task import Exact, Task, rejection
from .truncated import log_mass, truncated_normal

EDGE = 3.0
FLOOR = 1e-6
# Cells along the roots of |theta_3| and |theta_4|, and along theta_5: thrice few, then many.
CELLS = ((20, 20, 24), (20, 20, 24), (20, 20, 24), (40, 40, 48))
# An axis is cut to the cells that hold more than this share of the mass.
NEGLIGIBLE = 1e-8
# The first coordinate of the mean is drawn in so many strata of its truncated normal.
STRATA = 6
# The bound of the rejection sampler is so much larger than the largest weight of the pilots.
MARGIN = 1.1
ROUNDS = 1000


class SLCP(Task):
    """Five parameters, four points in the plane, four modes."""

    name = "slcp"
    parameters = tuple(f"theta_{j}" for j in range(1, 6))
    d = 8
    prior = Box((-EDGE,) * 5, (EDGE,) * 5)

    def _simulate(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        noise = cpu.randn(len(theta), 4, 2, generator=generator, dtype=torch.float64)
        s = _Covariance.of(theta[:, 2:].double())
        first, second = s.first.sqrt(), (s.determinant / s.first).sqrt()
        lower = s.cross / first
        across = first[:, None] * noise[..., 0]
        up = lower[:, None] * noise[..., 0] + second[:, None] * noise[..., 1]
        return (theta[:, None, :2] + torch.stack([across, up], 2)).flatten(1).to(theta)

    def _posterior(self, x: Tensor, n: int, generator: torch.Generator) -> Exact:
        points = x.reshape(4, 2)
        # The coordinate that lies farther out comes first: what the other has to be given it is
        # then less of a surprise. Roles of both are the same.
        order = points.mean(0).abs().argsort(descending=True)
        back = torch.cat([order.argsort(), 2 + order.argsort(), cpu.arange(4, 5)])
        grid = _Grid.zoomed(points[:, order])
        _, weights = grid.propose(max(4 * n, 4000), generator)
        bound = weights.max() + math.log(MARGIN)
        batches = (grid.propose(max(2 * n, 4000), generator) for _ in range(ROUNDS))
        proposals = ((theta, weights - bound) for theta, weights in batches)
        exact = rejection(x, n, generator, proposals)
        return exact._replace(theta=exact.theta[:, back])

    def _log_likelihood(self, theta: Tensor, x: Tensor) -> Tensor:
        s = _Covariance.of(theta[:, 2:])
        u, v = (x.reshape(-1, 4, 2) - theta[:, None, :2]).unbind(2)
        square = s.square(u.mT, v.mT).sum(0)
        return -0.5 * square - 2 * s.determinant.log() - 4 * math.log(2 * math.pi)


@dataclass(frozen=True, eq=False)
class _Covariance:
    """Covariances S of the points: two variances and what they share, each of one shape."""

    first: Tensor
    second: Tensor
    cross: Tensor
    determinant: Tensor

    @classmethod
    def of(cls, shape: Tensor) -> "_Covariance":
        """From theta_3, theta_4 and theta_5, with shape (..., 3)."""
        a, b, c = shape.unbind(-1)
        deviation, other = a**2, b**2
        cross = c.tanh() * deviation * other
        first, second = deviation**2 + FLOOR, other**2 + FLOOR
        # Without cancellation: 1 - tanh^2 = 1 / cosh^2.
        free = (deviation * other / c.cosh()) ** 2
        determinant = free + FLOOR * (deviation**2 + other**2) + FLOOR**2
        return cls(first, second, cross, determinant)

    def square(self, u: Tensor, v: Tensor) -> Tensor:
        """The quadratic form of S^-1 in (u, v)."""
        form = self.second * u**2 - 2 * self.cross * u * v + self.first * v**2
        return form / self.determinant


@dataclass(frozen=True, eq=False)
class _Grid:
    """The density of (v_3, v_4, theta_5), with |theta_j| = 3 v_j^4, on cells of a box.

    Given the observed points (4, 2), the lower corner of the box (3,) and the sides of a cell
    (3,); as a logarithm in the middle of the cells, along three axes.
    """

    points: Tensor
    low: Tensor
    cell: Tensor
    density: Tensor

    @classmethod
    def zoomed(cls, points: Tensor) -> "_Grid":
        """The grid around the mass."""
        low = cpu.tensor([0.0, 0.0, -EDGE], dtype=torch.float64)
        high = cpu.tensor([1.0, 1.0, EDGE], dtype=torch.float64)
        for cells in CELLS:
            grid = cls._over(points, low, high, cells)
            mass = grid.density.flatten().softmax(0).reshape(cells)
            for axis in range(3):
                others = [i for i in range(3) if i != axis]
                kept = (mass.sum(others) > NEGLIGIBLE).nonzero().flatten()
                # A cell more on either side, within the limits.
                first, last = max(0, int(kept[0]) - 1), min(cells[axis], int(kept[-1]) + 2)
                low[axis] = grid.low[axis] + first * grid.cell[axis]
                high[axis] = grid.low[axis] + last * grid.cell[axis]
        return grid

    @classmethod
    def _over(
        cls, points: Tensor, low: Tensor, high: Tensor, cells: tuple[int, int, int]
    ) -> "_Grid":
        cell = (high - low) / cpu.tensor(cells, dtype=torch.int64)
        middles = [cpu.arange(count, dtype=torch.float32) + 0.5 for count in cells]
        axes = [low[i] + middles[i] * cell[i] for i in range(3)]
        centres = torch.cartesian_prod(*axes)
        density = _log_marginal(points, centres) + _Mean.of(points, centres).log_mass
        return cls(points, low.clone(), cell, density.reshape(cells))

    def propose(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Proposals (n, 5), and the logarithms (n,) of target over proposal."""
        near = max_pool3d(self.density[None, None], 3, 1, 1)[0, 0]
        log_mass = torch.logaddexp(self.density, near).flatten().log_softmax(0)
        cells = torch.multinomial(log_mass.exp(), n, replacement=True, generator=generator)
        index = torch.stack(torch.unravel_index(cells, self.density.shape), 1)
        u = cpu.rand(n, 3, generator=generator, dtype=torch.float64)
        v = self.low + (index + u) * self.cell
        mu, weight = _Mean.of(self.points, v).draw(generator)
        signs = 2.0 * cpu.randint(2, (n, 2), generator=generator) - 1
        theta = torch.cat([mu, signs * EDGE * v[:, :2] ** 4, v[:, 2:]], 1)
        return theta, _log_marginal(self.points, v) + weight - log_mass[cells]


def _log_marginal(points: Tensor, v: Tensor) -> Tensor:
    """The log-density (n,) of v (n, 3), but for the mass of the mean in the box."""
    s = _Covariance.of(_shape(v))
    u, w = (points - points.mean(0)).mT[..., None]
    jacobian = 3 * (v[:, 0] * v[:, 1]).log()
    return -0.5 * s.square(u, w).sum(0) - 1.5 * s.determinant.log() + jacobian


def _shape(v: Tensor) -> Tensor:
    """Parameters (n, 3) at v (n, 3)."""
    return torch.cat([EDGE * v[:, :2] ** 4, v[:, 2:]], 1)


@dataclass(frozen=True, eq=False)
class _Mean:
    """The mean given S: a bivariate normal in the box, one coordinate after the other.

    Around the mean of the points (2,), the first coordinate has a width (n,) and a log-mass (n,)
    in the box. The second has a slope (n,) on the first, a width (n,) for the rest, and the
    largest log-masses in the box over the strata of the first, (n, STRATA).
    """

    middle: Tensor
    width: Tensor
    slope: Tensor
    rest: Tensor
    strata: Tensor
    first: Tensor

    @classmethod
    def of(cls, points: Tensor, v: Tensor) -> "_Mean":
        """The mean at v (n, 3)."""
        s, middle = _Covariance.of(_shape(v)), points.mean(0)
        width, rest = (s.first / 4).sqrt(), (s.determinant / s.first / 4).sqrt()
        low, high = ((edge - middle[0]) / width for edge in (-EDGE, EDGE))
        mean = cls(middle, width, s.cross / s.first, rest, width[:, None], log_mass(low, high))
        # The mass is log-concave in the first coordinate: about its largest value in a stratum is
        # that at its ends or in its middle.
        u = cpu.linspace(0, 1, 2 * STRATA + 1, dtype=torch.float64).expand(len(v), -1)
        masses = mean._second(mean._quantile(u)).unfold(1, 3, 2).amax(2)
        return cls(middle, width, mean.slope, rest, masses, mean.first)

    @property
    def log_mass(self) -> Tensor:
        """The logarithm of the mass in the box, about, with shape (n,)."""
        return self.first + self.strata.logsumexp(1) - math.log(STRATA)

    def draw(self, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Means (n, 2), and the logarithm (n,) of mass in the box over proposal."""
        strata = torch.multinomial(self.strata.softmax(1), 1, generator=generator)
        u = cpu.rand(strata.shape, generator=generator, dtype=torch.float64)
        first = self._quantile((strata + u) / STRATA)
        weight = self._second(first) - self.strata.gather(1, strata)
        low, high = self._limits(first[:, 0])
        second = self._centre(first[:, 0]) + self.rest * truncated_normal(low, high, generator)
        return torch.stack([first[:, 0], second], 1), self.log_mass + weight[:, 0]

    def _quantile(self, u: Tensor) -> Tensor:
        """The first coordinate (n, k) at quantiles (n, k) of its truncated normal."""
        low, high = (((edge - self.middle[0]) / self.width)[:, None] for edge in (-EDGE, EDGE))
        z = truncated_normal(low.expand_as(u), high.expand_as(u), u)
        return self.middle[0] + self.width[:, None] * z

    def _second(self, first: Tensor) -> Tensor:
        """The logarithm of the mass of the second coordinate in the box, given the first."""
        return log_mass(*self._limits(first.mT)).mT

    def _centre(self, first: Tensor) -> Tensor:
        return self.middle[1] + self.slope * (first - self.middle[0])

    def _limits(self, first: Tensor) -> tuple[Tensor, Tensor]:
        centre = self._centre(first)
        return (-EDGE - centre) / self.rest, (EDGE - centre) / self.rest

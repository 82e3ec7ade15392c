r"""What is seen of q in the sets near x_o: residuals of truths, and what they are exchanged with.

A residual is a truth less the mean of q, in standard deviations of q, at the same x. It comes from
latents, which are standard normal if q is right; from latents that are carried to x_o, where draws
of the flow tell parameters; or from the k draws at each x. A mean and a deviation of k draws are
noisy: :math:`E z = b \, E[\sigma / s]` and :math:`E z^2 = (\rho + b^2 + 1 / k) \, E[\sigma^2 /
s^2]`, where b is the bias, s the deviation of the draws and :math:`\rho` the variance of the truth
over that of q. The last factor is that of draws measured by each other, and its power 3/8 is the
first where s is nearly lognormal; for normal draws it is right to a thousandth from k = 16 on.
"""

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from ..._core import cpu, stream
from ...nulls.exchange import BASE_DRAWS
from ...results import LEVELS
from ...samples.calibration import Calibration, Draws, Latents
from ...samples.posterior import StandardNormal
from .claims import pairs
from .moment_effects import Balls, Ellipsoids, Shells, residuals, still

if TYPE_CHECKING:
    from ...classifiers.features import Coordinates

# Draws at each x that claims need; those that estimates need: squares of residuals have a mean.
FEWEST_DRAWS, TELLING_DRAWS = 3, 4
# Draws of a base other than the standard normal, at each x.
BASE_SETS = 16
# The share of sets without variation from which on a parameter has no standard deviation of q.
STILL = 0.05
# Draws for each unknown of an affine map between latents and parameters.
NEIGHBOURS = 3
# Draws for each feature from which on least squares are steadier than means of products.
PER_FEATURE = 4
# Rows that are carried to x_o at a time.
ROWS = 2**14


@dataclass(frozen=True, eq=False)
class Law:
    """Moments (b, m) of residuals of truths if q were right; few skewed draws have a first one.

    Noise is the variance of the mean of draws they are taken from, over that of one draw.
    """

    first: Tensor
    second: Tensor
    fourth: Tensor
    noise: float


@dataclass(frozen=True, eq=False)
class Seen:
    """What is seen of q in b sets.

    Args:
        members: What is exchanged: comparable values of members (b, r, m), the truth first.
        distances: How far out members are in the regions of q, with shape (b, r).
        z: Residuals of the truths, with shape (b, m).
        law: What they would be if q were right.
        known: Whether q has a standard deviation that is told, with shape (m,).
        linked: The correlation of q (m, m); None where members tell it.
        shells: Regions and intervals of q.
        inside: Whether truths lie in intervals (b, m, l) of so many draws; None for the shells'.
        draws: That number.
    """

    members: Tensor
    distances: Tensor
    z: Tensor
    law: Law
    known: Tensor
    linked: Tensor | None
    shells: Shells
    inside: Tensor | None = None
    draws: float = math.inf


class Source(Protocol):
    """Where residuals come from."""

    def seen(self, rows: Tensor, which: int, chance: torch.Generator) -> Seen:
        """What is seen in some sets (b,) around one of the observations."""


def usable(calibration: Calibration, seed: int) -> Calibration:
    """The calibration in an order that x decides; draws in place of a base that is not N(0, I)."""
    if isinstance(calibration, Latents) and not isinstance(calibration.base, StandardNormal):
        sets = calibration.sets(BASE_SETS, stream(calibration.own_seed(seed), "base"))
        given = calibration.theta, calibration.x, sets[:, 1:], calibration.embed
        calibration = Calibration(*given, layout=calibration.layout)
    if calibration.k is not None and calibration.k < FEWEST_DRAWS:
        raise ValueError(
            f"theta_q: expected at least {FEWEST_DRAWS} draws of q at each x; got {calibration.k}."
        )
    return calibration.sorted()


def source_of(
    calibration: Calibration, coordinates: "Coordinates", draws: Draws, seed: int
) -> Source:
    """Where residuals come from, for a calibration and draws at the observations."""
    if not isinstance(calibration, Latents):
        return _Draws(calibration, coordinates)
    if calibration.flow is None:
        return _Latents(calibration)
    observed = calibration.observe(draws, seed)
    assert observed.theta is not None
    return _Carried(calibration, observed.draws.double(), observed.theta.double())


@dataclass(frozen=True, eq=False)
class _Draws:
    """Truths among the draws of q at the same x."""

    calibration: Calibration
    coordinates: "Coordinates"

    def seen(self, rows: Tensor, which: int, chance: torch.Generator) -> Seen:
        """Residuals of members against the others of their set, and ellipsoids of sets."""
        assert self.calibration.theta_q is not None
        parts = self.calibration.theta[rows][:, None], self.calibration.theta_q[rows]
        members = torch.cat(parts, 1).double()
        each, alike = residuals(members), still(members)
        known = alike.double().mean(0) <= STILL
        if members.shape[1] - 1 < TELLING_DRAWS:
            known = torch.zeros_like(known)
        # A set in which k members are the same has no deviation to measure by.
        law = _law(torch.where(alike[:, None], 0, members))
        shells = Ellipsoids(members, self.coordinates)
        z = torch.where(alike, 0, each[:, 0])
        return Seen(each, shells.distances, z, law, known, None, shells)


def _law(members: Tensor) -> Law:
    """Moments of residuals of the draws of sets (b, k + 1, m), each against the other draws.

    A mean of squares against k - 1 draws is brought to k, as it is for normal draws; with few of
    them the truth takes part instead.
    """
    k = members.shape[1] - 1
    few = k < 6
    each = residuals(members if few else members[:, 1:])
    first, second = each.mean(1), each.square().mean(1)
    if not few:
        inflated = 1 + (second / (1 + 1 / (k - 1)) - 1) * (k - 4) / (k - 3)
        second = inflated * (1 + 1 / k)
    return Law(first, second, each.pow(4).mean(1), 1 / k)


@dataclass(frozen=True, eq=False)
class _Latents:
    """Truths as latents, which are standard normal if q is right."""

    calibration: Latents

    def seen(self, rows: Tensor, which: int, chance: torch.Generator) -> Seen:
        """Latents are residuals; base draws are what they are exchanged with."""
        return self._latents(self._sets(rows, chance))

    def _sets(self, rows: Tensor, chance: torch.Generator) -> Tensor:
        """Latents of truths, first, and base draws (b, r, m)."""
        z = self.calibration.theta[rows].double()
        draws = self.calibration.base.sample(BASE_DRAWS * len(rows), chance).to(z)
        return torch.cat([z[:, None], draws.unflatten(0, (len(rows), BASE_DRAWS))], 1)

    def _latents(self, sets: Tensor) -> Seen:
        z, m = sets[:, 0], sets.shape[2]
        law = Law(0 * z, torch.ones_like(z), torch.full_like(z, 3.0), 0.0)
        known, linked = torch.ones_like(z[0]).bool(), cpu.eye(m).to(z)
        return Seen(sets, sets.square().sum(2), z, law, known, linked, Balls(z))


@dataclass(frozen=True, eq=False)
class _Carried(_Latents):
    """Truths as parameters at x_o, where their latents are carried through draws of q.

    Moments of q there are constants of a regression on Hermite functions of the latents of its
    draws, which have mean zero: only what they do not explain is left as noise.
    """

    latents: Tensor  # of the draws at every observation, (o, s, m)
    theta: Tensor  # the draws, (o, s, m)

    def seen(self, rows: Tensor, which: int, chance: torch.Generator) -> Seen:
        """Carried truths less the mean of q, in its deviation; balls of latents are regions."""
        sets, latents, theta = self._sets(rows, chance), self.latents[which], self.theta[which]
        scale = theta.std(0)
        theta = (theta - theta.mean(0)) / torch.where(scale > 0, scale, 1)
        carried = carried_to(sets.flatten(0, 1), latents, theta).reshape(sets.shape)
        first, second = pairs(latents.shape[1])
        products = latents[:, first] * latents[:, second]
        there = torch.cat([latents, latents.square() - 1, products], 1)
        mean, square = (expected_under_q(values, there) for values in (theta, theta**2))
        unit = (square - mean**2).clamp_min(0.5).sqrt()
        moved = (carried - mean) / unit
        flat = torch.ones_like(moved[:, 0])
        own = (theta - mean) / unit
        levels = theta.new_tensor(LEVELS)
        low, high = (theta.quantile((1 + sign * levels) / 2, dim=0).mT for sign in (-1, 1))
        inside = (carried[:, 0, :, None] >= low) & (carried[:, 0, :, None] <= high)
        return replace(
            self._latents(sets),
            members=moved,
            z=moved[:, 0],
            law=Law(0 * flat, flat, own.pow(4).mean(0) * flat, 0.0),
            known=scale > 0,
            linked=own.mT.corrcoef().reshape(own.shape[1], -1),
            inside=inside.double(),
            draws=len(theta),
        )


def expected_under_q(values: Tensor, features: Tensor) -> Tensor:
    """Means (j,) under q of values (s, j) at draws with features (s, p), whose means are zero.

    The constants of least squares; plain means with too few draws for them.
    """
    s, p = features.shape
    if s < PER_FEATURE * (1 + p):
        return values.mean(0)
    rows = torch.cat([torch.ones_like(features[:, :1]), features], 1).double()
    constants: Tensor = torch.linalg.lstsq(rows, values.double()).solution[0].to(values)
    return constants


def carried_to(z: Tensor, draws: Tensor, theta: Tensor) -> Tensor:
    """Parameters (n, m) at x_o of latents (n, m), by affine maps through the nearest draws.

    A flow tells latents of parameters only; the other way, its draws at x_o, in latents (s, m) and
    parameters theta (s, m), are interpolated.
    """
    near = min(len(draws), NEIGHBOURS * (z.shape[1] + 1))
    parts = []
    for some in z.split(ROWS):
        index = torch.cdist(some, draws).topk(near, largest=False).indices
        moved = draws[index] - some[:, None]
        rows = torch.cat([torch.ones_like(moved[..., :1]), moved], 2)
        gram = rows.mT @ rows + 1e-4 * cpu.eye(rows.shape[2]).to(rows)
        parts.append(torch.linalg.solve(gram, rows.mT @ theta[index])[:, 0])
    return torch.cat(parts)

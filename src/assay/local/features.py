r"""Feature maps of the score test: where a member lies in its set, given x, and among all members.

The **members** of a set are the true parameter and the draws of q at the same x. A feature map
treats all members alike, whichever is labelled the true parameter; if q is right, exchanging that
label then changes nothing.

A **dense** map gives features (b, r, p) of all parameters and x together, which are weighed by
their covariance. A **sparse** map gives features (b, r, j, q), a few for each parameter or pair j,
of which the largest counts: errors are confined to one parameter more often than not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Self

import torch
from torch import Tensor

from .._support.inputs import cpu
from .._support.random import stream
from ..neighbourhood import (
    TINY,
    RobustScale,
    random_waves,
    regression_design,
    ridge,
    standard_deviation,
)

FEWEST_MEMBERS = 6  # in a set from which z-scores and ranks within a set are taken
FARTHEST = 8.0  # coordinates beyond it are moved to it: the cube of a wild one would hide others
MOST_FITTED = 20_000  # sets from which means and scales are learned
FEWEST_COSINES, MOST_COSINES = 16, 256  # of x, on which members are regressed
LENGTH = 3.0  # of the frequencies of oscillating errors
MOST_PRODUCTS = 512  # features of products with x
MOST_PAIRED = 150  # parameters up to which pairs are looked at
PENALTY, DIRECTIONS = 0.01, 16  # of a covariance; in which squared lengths are taken


@dataclass(frozen=True, eq=False)
class Positions:
    """Where the r members of b sets lie, and the features of their observations."""

    z: Tensor  # z-scores among the members of the set, (b, r, m)
    levels: Tensor  # ranks among them between 0 and 1, that of the radius last, (b, r, m + 1)
    given_x: Tensor  # residuals of a regression on x, in units of the scale given x, (b, r, m)
    given_others: Tensor  # residuals of these on the other parameters, (b, r, m)
    pooled: Tensor  # in units of all members at any x, (b, r, m)
    x: Tensor  # features of the observations on a common scale, (b, d)


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Turns members into positions; learned from all members and x, whatever their labels."""

    x_scale: RobustScale
    mean: Tensor  # of all members, (m,)
    deviation: Tensor  # of all members, (m,)
    cosines: int  # of x, in the regression on it
    regression: Tensor | None  # weights (p, 2 m) of mean and log scale; None for a normal base
    partial: Tensor  # turns residuals given x into those given the other parameters, (m, m)

    @classmethod
    def fit(cls, members: Tensor, x: Tensor, *, normal: bool) -> Self:
        """Learns from members (n, r, m) and features (n, d); `normal` for draws of N(0, I)."""
        step = 1 + len(x) // MOST_FITTED
        members, x = members[::step], x[::step]
        everyone, m = members.flatten(0, 1), members.shape[2]
        # A constant parameter stays at zero, whatever rounding leaves of it.
        varies = everyone.amax(0) > everyone.amin(0)
        deviation = standard_deviation(everyone).where(varies, torch.inf)
        scale, mean = RobustScale.fit(x), everyone.mean(0)
        if normal:
            return cls(scale, mean, deviation, 0, None, cpu.eye(m))
        # Few enough cosines that sets are not fitted one by one.
        cosines = max(FEWEST_COSINES, min(MOST_COSINES, len(x) // 10))
        design = regression_design(scale(x).float(), cosines)
        scaled = ((members - mean) / deviation).double()
        centre, _ = ridge(design, scaled.mean(1))
        residuals = scaled - (design @ centre)[:, None]
        width, _ = ridge(design, (residuals.abs() + 1e-4).log().mean(1))
        u = residuals / (design @ width).exp()[:, None]
        # The constant is the first column of the design: residuals get unit variance.
        deviations = standard_deviation(u.flatten(0, 1))
        width[0] += deviations.log()
        u = u / deviations
        table = (u - u.mean(1, keepdim=True)).flatten(0, 1)
        covariance = table.mT @ table / len(table)
        covariance.diagonal().add_(1e-3 * covariance.diagonal().mean().clamp_min(TINY))
        precision = torch.linalg.inv(covariance)
        given_others = precision / precision.diagonal().clamp_min(TINY).sqrt()
        weights = torch.cat([centre, width], 1).float()
        return cls(scale, mean, deviation, cosines, weights, given_others.float())

    def __call__(self, members: Tensor, x: Tensor) -> Positions:
        """Positions of members (b, r, m) at observations with features (b, d)."""
        x = self.x_scale(x).float()
        if self.regression is None:
            z = clamp(members)
            return Positions(z, normal_levels(z), z, z, z, x)
        pooled = ((members - self.mean) / self.deviation).float()
        design = regression_design(x, self.cosines).float()
        centre, width = (design @ self.regression.to(x))[:, None].chunk(2, 2)
        given_x = clamp((pooled - centre) / width.exp())
        given_others = clamp(given_x @ self.partial.to(x))
        if members.shape[1] < FEWEST_MEMBERS:
            z, levels = given_x, normal_levels(given_x)
        else:
            z = z_scores(members)
            length = z.square().sum(2, keepdim=True).to(members)
            levels = mid_ranks(torch.cat([members, length], 2))
        return Positions(z, levels, given_x, given_others, clamp(pooled), x)


def clamp(u: Tensor) -> Tensor:
    """Coordinates in single precision, none of them wild."""
    return u.float().clamp(-FARTHEST, FARTHEST)


def z_scores(members: Tensor) -> Tensor:
    """Z-scores (b, r, m) within sets; zero for a parameter that does not vary in its set."""
    residuals = members - members.mean(1, keepdim=True)
    scale = residuals.square().mean(1, keepdim=True).sqrt()
    rounding = 10 * torch.finfo(members.dtype).eps * members.abs().amax(1, keepdim=True)
    constant = scale <= rounding
    return clamp(torch.where(constant, 0, residuals / torch.where(constant, 1, scale)))


def mid_ranks(values: Tensor) -> Tensor:
    """Mid-ranks of values (b, r, j) within their set, as levels between 0 and 1."""
    columns = values.mT.contiguous()
    ordered = columns.sort(2).values
    below = torch.searchsorted(ordered, columns)
    up_to = torch.searchsorted(ordered, columns, right=True)
    return ((below + up_to) / (2 * values.shape[1])).mT.float()


def normal_levels(z: Tensor) -> Tensor:
    """Levels (b, r, m + 1) of coordinates that are standard normal if q is right."""
    half = cpu.tensor(z.shape[2] / 2).to(z)
    radius = torch.special.gammainc(half, z.square().sum(2, keepdim=True) / 2)
    return torch.cat([torch.special.ndtr(z), radius], 2)


def waves(at: Positions, bandwidth: float, coordinates: str = "given_x", n: int = 256) -> Tensor:
    """Cosines of coordinates and x, whose frequencies in the coordinates have a typical length."""
    u = getattr(at, coordinates)
    name = f"{coordinates} {bandwidth}"
    of_u, _ = random_waves(n, bandwidth, u.shape[2], "member", name)
    of_x, phases = random_waves(n, 1.0, at.x.shape[1], "x", name)
    shift = at.x @ of_x.to(u) + phases.to(u)
    return (u @ of_u.to(u)).add_(shift[:, None]).cos_()


def first_two_powers(at: Positions) -> Tensor:
    """First and second powers of coordinates given x."""
    return torch.cat([at.given_x, at.given_x.square() - 1], 2)


def powers_times_x(at: Positions) -> Tensor:
    """First and second powers, times one and x: errors that change with x."""
    powers, x = first_two_powers(at), at.x
    most = max(1, MOST_PRODUCTS // powers.shape[2])
    if x.shape[1] > most:
        x = x @ random_waves(most, 1.0, x.shape[1], "products")[0].to(x)
    factors = torch.cat([torch.ones_like(x[:, :1]), x], 1)
    return (powers[..., None] * factors[:, None, None]).flatten(2)


def powers_times_waves(at: Positions) -> Tensor:
    """First and second powers, times cosines in x: errors that oscillate with x."""
    powers, d = first_two_powers(at), at.x.shape[1]
    n = max(2, min(32, MOST_PRODUCTS // powers.shape[2]))
    frequencies, phases = random_waves(n, LENGTH, d, "oscillations")
    # Half of them have random directions, half are cosines and sines along single features.
    single = cpu.arange(n // 2)
    feature, size = single // 2 % d, (single // 2 // d).float()
    frequencies[:, : n // 2] = 0
    frequencies[feature, single] = LENGTH * (0.5 + (size + 0.5) / (1 + size.max()))
    phases[: n // 2] = -math.pi / 2 * (single % 2)
    factors = (at.x @ frequencies.to(powers) + phases.to(powers)).cos()
    return (powers[..., None] * factors[:, None, None]).flatten(2)


def hermite_powers(at: Positions, orders: tuple[int, ...], coordinates: str = "z") -> Tensor:
    """Hermite polynomials of each parameter."""
    polynomials = hermite(getattr(at, coordinates))
    return torch.stack([polynomials[order] for order in orders], 3)


def rank_polynomials(at: Positions, order: int = 8) -> Tensor:
    """Legendre polynomials of the level of each parameter, and of the radius."""
    # Neyman 1937, *Smooth test for goodness of fit*: they see several modes, and tails. Of a
    # single parameter the radius says nothing more.
    levels = at.levels[..., :1] if at.levels.shape[2] == 2 else at.levels
    return torch.stack(legendre(2 * levels - 1, order), 3)


def pair_products(at: Positions, order: int) -> Tensor:
    """Products of Hermite polynomials, of one order, of each two parameters."""
    power = hermite(at.z)[order]
    first, second = torch.triu_indices(power.shape[2], power.shape[2], 1, device=power.device)
    return (power[..., first] * power[..., second])[..., None]


def distances(at: Positions, order: int = 4) -> Tensor:
    """Legendre polynomials of ranks of distances to other members: the nearest, the third, all."""
    # A member where q has no draws is far from all, whatever the shape of q.
    u = at.given_x
    apart = torch.cdist(u, u, compute_mode="donot_use_mm_for_euclid_dist")
    ordered = apart.sort(2).values[:, :, 1:]  # without that to itself, (b, r, r - 1)
    third = min(2, ordered.shape[2] - 1)
    three = torch.stack([ordered[:, :, 0], ordered[:, :, third], ordered.mean(2)], 2)
    return torch.stack(legendre(2 * mid_ranks(three) - 1, order), 3)


def hermite(z: Tensor) -> list[Tensor]:
    """Orthonormal Hermite polynomials of orders 0 to 4."""
    orders = [torch.ones_like(z), z]
    for k in range(1, 4):
        orders.append((z * orders[k] - math.sqrt(k) * orders[k - 1]) / math.sqrt(k + 1))
    return orders


def legendre(t: Tensor, order: int) -> list[Tensor]:
    """Orthonormal Legendre polynomials of orders from 1 on, on [-1, 1]."""
    each = [torch.ones_like(t), t]
    for k in range(1, order):
        each.append(((2 * k + 1) * t * each[k] - k * each[k - 1]) / (k + 1))
    return [math.sqrt(2 * k + 1) * p for k, p in enumerate(each) if k]


@dataclass(frozen=True)
class FeatureMap:
    """A feature map, and the kind of evidence that its sums are added to."""

    kind: str
    function: Callable[[Positions], Tensor]
    near_sizes: int = 2  # neighbourhoods, from the largest, whose sums are looked at alone
    columns: int | None = None  # for each parameter or pair; None for a dense map

    def __call__(self, at: Positions) -> Tensor:
        """Features (b, r, p) of members, less their mean within each set."""
        features = self.function(at).flatten(2)
        return features.sub_(features.mean(1, keepdim=True))

    def whitening(self, features: Tensor) -> Tensor:
        """What whitens features (b, p): a matrix (p, p); for a sparse map, scales (p,)."""
        if self.columns is not None:
            scale = features.double().square().mean(0).sqrt()
            return torch.where(scale > TINY, scale, torch.ones_like(scale))
        covariance = (features.mT @ features / len(features)).double()
        covariance.diagonal().add_(PENALTY * covariance.diagonal().mean().clamp_min(TINY))
        factor = torch.linalg.cholesky(covariance)
        return torch.linalg.solve_triangular(factor, cpu.eye(len(factor)).to(factor), upper=False)


# Chosen together on one half of the designs of benchmarks/alternatives.py; see docs/defaults.md.
FEATURE_MAPS = (
    FeatureMap("smooth", partial(waves, bandwidth=0.5)),
    FeatureMap("smooth", partial(waves, bandwidth=1.0)),
    FeatureMap("smooth", powers_times_x, near_sizes=0),
    FeatureMap("smooth", first_two_powers),
    FeatureMap("fine", partial(waves, bandwidth=2.0), near_sizes=1),
    FeatureMap("fine", partial(waves, bandwidth=2.0, coordinates="pooled"), near_sizes=0),
    FeatureMap("fine", partial(waves, bandwidth=4.0, coordinates="pooled"), near_sizes=0),
    FeatureMap("fine", powers_times_waves, near_sizes=0),
    FeatureMap("finest", partial(waves, bandwidth=4.0), near_sizes=1),
    FeatureMap("finest", partial(waves, bandwidth=8.0, coordinates="pooled"), near_sizes=1),
    FeatureMap("one parameter", partial(hermite_powers, orders=(1,)), columns=1),
    FeatureMap("one parameter", partial(hermite_powers, orders=(2,)), columns=1),
    FeatureMap("one parameter", partial(hermite_powers, orders=(3, 4)), columns=2),
    FeatureMap("one parameter", rank_polynomials, columns=8),
    FeatureMap("distances", distances, columns=4),
)


def feature_maps(m: int, *, normal: bool) -> tuple[FeatureMap, ...]:
    """The maps for m parameters; `normal` where members are draws of a normal base."""
    others = partial(hermite_powers, coordinates="given_others")
    residuals = [FeatureMap("one parameter", partial(others, orders=(k,)), 2, 1) for k in (1, 2)]
    pairs = [FeatureMap("pairs", partial(pair_products, order=k), 2, 1) for k in (1, 2)]
    # Draws of a normal base are independent: residuals given the others say nothing new.
    return (*FEATURE_MAPS, *residuals * (not normal), *pairs * (1 < m <= MOST_PAIRED))


def random_directions(p: int) -> Tensor:
    """Orthogonal random directions (p, c), in which squared lengths keep their mean."""
    c = min(p, DIRECTIONS)
    chance = cpu.randn(p, c, generator=stream(0, "directions", p), dtype=torch.double)
    return torch.linalg.qr(chance).Q * math.sqrt(p / c)

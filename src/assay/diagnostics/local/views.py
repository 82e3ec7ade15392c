r"""Views: the features of members that the score test looks at, and what their sums say.

**Where a member stands** is told in four ways, none of which knows who plays the truth: by its
z-score in each parameter among the members of its set, by its rank among them, by its coordinates
given x, in which mean and scale of all members are regressed on x
(:class:`~assay.classifiers.features.Conditional`), and by its coordinates among all members at
any x. Latents of a normal base stand where they are.

**Dense banks** (:class:`Waves`, :class:`Products`) are many features of all parameters and x
together, weighed by their covariance as a linear classifier would. **Sparse banks**
(:class:`Powers`, :class:`Polynomials`, :class:`Pairs`) are a few features of each parameter, or of
each pair of them: errors are sparse more often than dense.

Features are centred within their set. Let :math:`L_h` be the sum, over the sets near x_o, of the
features of those who play the truth in copy h, S that of the true truths elsewhere, and A the
covariance of features within sets, with a small multiple of the identity. A dense bank gives

.. math:: L_h A^{-1} L_h - D_h \quad \text{(near)}, \qquad
    L_h A^{-1} (S + L_h) - D_h \quad \text{(learned)} ;

the second is the score that a linear classifier gives to the truths near x_o, trained on all sets
but the one it scores: :math:`D_h` is what sets would have told of themselves. A sparse bank gives
:math:`|L_{hj}|^2` for each parameter or pair j, of which the largest counts, and :math:`\sum_j
L_{hj} \, \eta(S_j)`, where :math:`\eta` leaves nothing of what is not larger than noise.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
import scipy.special
import torch
from torch import Tensor

from ..._core import cpu, stream
from ...classifiers.base import Scaling
from ...classifiers.features import Conditional, Framed, waves
from ...samples.neighbourhoods import Robust, spread

# Draws at each x from which z-scores and ranks within a set say something.
FEWEST = 4
# Coordinates beyond this are moved to it: the cube of a wild one would drown all others.
FARTHEST = 8.0
# Sets from which covariances are taken; more would not change them.
MEASURED = 2000
# Features of a bank of products, and parameters up to which there are pairs.
MOST_PRODUCTS, MOST_PAIRED = 512, 150
# The penalty of A, as a share of the mean variance of a feature.
PENALTY = 0.01
# Sums elsewhere count as far as they are beyond so many standard deviations.
NOISE = 3.0
# Random directions in which lengths of scaled features are taken.
DIRECTIONS = 16
# The order of rank polynomials.
ORDER = 8
# Below this, a variance is none.
TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Standing:
    """Where members of b sets stand, each with shape (b, r, m), and features of x (b, d)."""

    z: Tensor
    levels: Tensor  # with that of the radius behind those of the parameters
    conditional: Tensor
    others: Tensor  # what is left of each parameter, given the other parameters
    pooled: Tensor  # in units of all members
    x: Tensor


@dataclass(frozen=True, eq=False)
class Stand:
    """How members are placed; found from all members and x, whoever plays the truth.

    Args:
        scaling: Scales of x and of members.
        framed: Coordinates given x; None where members are latents of a normal base.
        ranked: Whether sets are large enough for z-scores and ranks of their own.
        left: Takes coordinates given x to what the other parameters leave of each, (m, m).
    """

    scaling: Scaling
    framed: Framed | None
    ranked: bool
    left: Tensor

    @classmethod
    def of(cls, members: Tensor, x: Tensor, *, normal: bool) -> "Stand":
        """From members (n, r, m) and features of observations (n, d)."""
        step = 1 + len(x) // (10 * MEASURED)
        members, x = members[::step], x[::step]
        pool = members.flatten(0, 1)
        scaling = Scaling(pool.mean(0), spread(pool), Robust.fit(x))
        if normal:
            return cls(scaling, None, ranked=False, left=cpu.eye(members.shape[2]))
        # Few enough waves not to fit the members one by one.
        framed = Conditional(n=max(16, min(256, len(x) // 10))).fit(members, x, scaling)
        given = framed(members, x)
        left = _left(given - given.mean(1, keepdim=True))
        return cls(scaling, framed, ranked=members.shape[1] > FEWEST, left=left)

    def __call__(self, members: Tensor, x: Tensor) -> Standing:
        """Places members (b, r, m) with features of observations (b, d)."""
        scaled = self.scaling.x(x).float()
        if self.framed is None:
            given = pooled = members.float().clamp(-FARTHEST, FARTHEST)
        else:
            given, all_members = self.framed(members, x).float(), self.scaling
            pooled = ((members - all_members.location) / all_members.scale).float()
            pooled = pooled.clamp(-FARTHEST, FARTHEST)
        others = (given @ self.left.to(given)).clamp(-FARTHEST, FARTHEST)
        if not self.ranked:
            return Standing(given, _normal_levels(given), given, others, pooled, scaled)
        z = _z_scores(members).float().clamp(-FARTHEST, FARTHEST)
        return Standing(z, _levels(members, z), given, others, pooled, scaled)

    def moved(self, members: Tensor, x: Tensor, moved: Tensor) -> Standing:
        """Where members (b, r, m) stand if each is moved (b, r, m) while its set stays."""
        there = self(moved, x)
        if not self.ranked:
            return there
        z, levels = _moved_z(members, moved), _moved_levels(members, moved)
        before = self(members, x).z
        length, own = z.square().sum(2), before.square().sum(2)
        radius = _among(own[..., None], length[..., None])
        return replace(there, z=z, levels=torch.cat([levels, radius], 2))


def _left(given: Tensor) -> Tensor:
    r"""The matrix (m, m) that takes coordinates (n, r, m) to residuals given the other parameters.

    With the covariance C of coordinates it is :math:`C^{-1}`, its columns scaled to unit variance.
    """
    table = given.flatten(0, 1)
    covariance = (table.mT @ table / len(table)).double()
    covariance.diagonal().add_(1e-3 * covariance.diagonal().mean().clamp_min(TINY))
    inverse = torch.linalg.inv(covariance)
    left: Tensor = inverse / inverse.diagonal().clamp_min(TINY).sqrt()
    return left.float()


def _moved_z(members: Tensor, moved: Tensor) -> Tensor:
    """Z-scores (b, r, m) of members that are moved one at a time."""
    r, by = members.shape[1], moved - members
    centred = members - members.mean(1, keepdim=True)
    variance = centred.square().mean(1, keepdim=True)
    after = variance + (2 * by * centred + by.square()) / r - (by / r).square()
    scale = after.clamp_min(0).sqrt()
    z = (centred + by * (1 - 1 / r)) / torch.where(scale > 0, scale, torch.ones_like(scale))
    return z.float().clamp(-FARTHEST, FARTHEST)


def _moved_levels(members: Tensor, moved: Tensor) -> Tensor:
    columns = zip(members.unbind(2), moved.unbind(2), strict=True)
    return torch.cat([_among(old[..., None], new[..., None]) for old, new in columns], 2)


def _among(old: Tensor, new: Tensor) -> Tensor:
    """Levels (b, r, 1) of new values (b, r, 1) among the old ones of the others of their set."""
    below = (old.mT < new).sum(2) - (old < new)[..., 0].long()
    upto = (old.mT <= new).sum(2) - (old <= new)[..., 0].long()
    return ((below + upto + 1) / (2 * old.shape[1]))[..., None].float()


def _z_scores(members: Tensor) -> Tensor:
    centred = members - members.mean(1, keepdim=True)
    scale = centred.square().mean(1, keepdim=True).sqrt()
    still = scale <= 10 * torch.finfo(members.dtype).eps * members.abs().amax(1, keepdim=True)
    return torch.where(still, 0, centred / torch.where(still, 1, scale))


def _normal_levels(z: Tensor) -> Tensor:
    """Levels (b, r, m + 1) of standard normal latents, that of the radius last."""
    radius = torch.special.gammainc(
        cpu.tensor(z.shape[2] / 2).to(z), z.square().sum(2, keepdim=True) / 2
    )
    return torch.cat([torch.special.ndtr(z), radius], 2)


def _levels(members: Tensor, z: Tensor) -> Tensor:
    """Mid-ranks (b, r, m + 1) among the members of a set, as levels, that of the radius last."""
    columns = torch.cat([members, z.square().sum(2, keepdim=True).to(members)], 2).mT.contiguous()
    ordered = columns.sort(2).values
    first = torch.searchsorted(ordered, columns)
    last = torch.searchsorted(ordered, columns, right=True)
    return ((first + last) / (2 * members.shape[1])).mT.float()


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of scaled features of those who play the truth, in double precision.

    Args:
        near: Near x_o at c sizes, in h copies, with shape (c, h, p).
        squares: Sums of their squared lengths, with shape (c, h).
        around: In the nearest half of all sets, but not near, with shape (1, p) or (h, p).
        outside: In all sets that are not near, likewise.
        sizes: Numbers of sets near, with shape (c,).
        others: The number of sets that are not near.
    """

    near: Tensor
    squares: Tensor
    around: Tensor
    outside: Tensor
    sizes: tuple[int, ...]
    others: int

    def elsewhere(self, copies: range) -> "Sums":
        """The same with sums of some copies where x is not near."""
        some = slice(copies.start, copies.stop)
        return replace(self, around=self.around[some], outside=self.outside[some])


# Groups of evidence, with statistics (j, h) of which the largest over j counts.
Statistics = Iterator[tuple[str, Tensor]]


class Weights(ABC):
    """What sums of a bank's features say, once its features were measured."""

    @abstractmethod
    def scaled(self, features: Tensor) -> Tensor:
        """Features (..., p) in units of their deviations."""

    @abstractmethod
    def squares(self, features: Tensor) -> Tensor:
        """Squared lengths (...) of scaled features."""

    @abstractmethod
    def statistics(self, sums: Sums) -> Statistics:
        """Groups of evidence, and statistics (j, h) that belong to them."""


class Bank(ABC):
    """A recipe for features of members."""

    # Whether it tells where a member stands among those of its own set.
    among: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, standing: Standing) -> Tensor:
        """Features (b, r, p) of where members stand."""

    @abstractmethod
    def weigh(self, features: Tensor) -> Weights:
        """The weights of centred features (b, p) of some members, whoever plays the truth."""


@dataclass(frozen=True)
class Dense(Bank):
    """A bank of features that are weighed together.

    Args:
        learned: The group of evidence that its learned scores belong to.
        sizes: The number of sizes, from the largest, at which it looks near x_o alone.
    """

    learned: str
    sizes: int

    def weigh(self, features: Tensor) -> Weights:
        """The covariance of features (b, p)."""
        covariance = (features.mT @ features / len(features)).double()
        penalty = PENALTY * covariance.diagonal().mean().clamp_min(TINY)
        covariance.diagonal().add_(penalty)
        factor = torch.linalg.cholesky(covariance)
        unit = torch.eye(len(factor), dtype=factor.dtype, device=factor.device)
        return Together(self, torch.linalg.solve_triangular(factor, unit, upper=False))


@lru_cache(16)
def _directions(p: int) -> Tensor:
    """Orthogonal directions (p, q) at random, in which lengths keep their mean."""
    q, generator = min(p, DIRECTIONS), stream(0, "directions", p)
    random = cpu.randn(p, q, generator=generator, dtype=torch.double)
    directions: Tensor = torch.linalg.qr(random).Q * math.sqrt(p / q)
    return directions


@dataclass(frozen=True, eq=False)
class Together(Weights):
    """A dense bank, and the inverse of the Cholesky factor (p, p) of A."""

    bank: Dense
    inverse: Tensor

    def scaled(self, features: Tensor) -> Tensor:
        """Features (..., p) in coordinates in which A is the identity."""
        return features @ self.inverse.mT.to(features)

    def squares(self, features: Tensor) -> Tensor:
        """Squared lengths (...) of scaled features, by their components in random directions."""
        components: Tensor = features @ self.sketch.to(features)
        return components.square().sum(-1)

    @cached_property
    def sketch(self) -> Tensor:
        """Takes features to their components, with shape (p, q): lengths keep their mean."""
        sketch: Tensor = self.inverse.mT @ _directions(len(self.inverse)).to(self.inverse)
        return sketch

    def statistics(self, sums: Sums) -> Statistics:
        """Groups of evidence, and statistics (1, h) that belong to them."""
        # Of a set with itself there is nothing to be learned.
        for near, own in list(zip(sums.near, sums.squares, strict=True))[::-1][: self.bank.sizes]:
            yield "near", (near.square().sum(1) - own)[None]
        near, own = sums.near[-1], sums.squares[-1]
        for elsewhere in (sums.around, sums.outside):
            yield self.bank.learned, ((near * (elsewhere + near)).sum(1) - own)[None]


@dataclass(frozen=True)
class Waves(Dense):
    """Random Fourier features of coordinates given x, and of x.

    Args:
        bandwidth: The typical length of a frequency of the coordinates.
        pooled: Whether coordinates among all members are taken: where q is far from normal, its
            fine structure need not move with its mean.
        n: The number of features.
    """

    bandwidth: float
    pooled: bool = False
    n: int = 256

    def __call__(self, standing: Standing) -> Tensor:
        """Features (b, r, n)."""
        u = standing.pooled if self.pooled else standing.conditional
        x, key = standing.x, f"{self.bandwidth}{' of all' * self.pooled}"
        ours, _ = waves(self.n, self.bandwidth, u.shape[2], "member", key)
        theirs, phases = waves(self.n, 1.0, x.shape[1], "x", key)
        shift = x @ theirs.to(x) + phases.to(x)
        return (u @ ours.to(u)).add_(shift[:, None]).cos_()


@dataclass(frozen=True)
class Moments(Dense):
    """First and second powers of coordinates given x."""

    def __call__(self, standing: Standing) -> Tensor:
        """Features (b, r, 2 m)."""
        u = standing.conditional
        return torch.cat([u, u.square() - 1], 2)


@dataclass(frozen=True)
class Products(Dense):
    """First and second powers of coordinates given x, times one and x."""

    def __call__(self, standing: Standing) -> Tensor:
        """Features (b, r, p)."""
        u, x = standing.conditional, standing.x
        powers = torch.cat([u, u.square() - 1], 2)
        most, d = max(1, MOST_PRODUCTS // powers.shape[2]), x.shape[1]
        if d > most:
            # As many directions of x as there is room for.
            x = x @ waves(most, 1.0, d, "products")[0].to(x)
        by = torch.cat([torch.ones_like(x[:, :1]), x], 1)
        return (powers[..., None] * by[:, None, None]).flatten(2)


@dataclass(frozen=True)
class Ripples(Dense):
    """First and second powers of coordinates given x, times waves in x: errors that oscillate."""

    def __call__(self, standing: Standing) -> Tensor:
        """Features (b, r, p)."""
        u, x = standing.conditional, standing.x
        powers = torch.cat([u, u.square() - 1], 2)
        n = max(2, min(32, MOST_PRODUCTS // powers.shape[2]))
        frequencies, phases = waves(n, 3.0, x.shape[1], "ripples")
        by = (x @ frequencies.to(x) + phases.to(x)).cos()
        return (powers[..., None] * by[:, None, None]).flatten(2)


@dataclass(frozen=True)
class Sparse(Bank):
    """A bank of a few features (b, r, j, q) for each parameter or pair j.

    Args:
        group: The group of evidence near x_o.
    """

    group: str

    def __call__(self, standing: Standing) -> Tensor:
        """Features (b, r, j q)."""
        return self.table(standing).flatten(2)

    @property
    @abstractmethod
    def q(self) -> int:
        """The number of features of a parameter or pair."""

    @abstractmethod
    def table(self, standing: Standing) -> Tensor:
        """Features (b, r, j, q)."""

    def weigh(self, features: Tensor) -> Weights:
        """The deviations of features (b, p)."""
        scale = features.double().square().mean(0).sqrt()
        return Alone(self, torch.where(scale > TINY, scale, torch.ones_like(scale)))


@dataclass(frozen=True, eq=False)
class Alone(Weights):
    """A sparse bank, and the deviations (p,) of its features."""

    bank: Sparse
    scale: Tensor

    def scaled(self, features: Tensor) -> Tensor:
        """Features (..., p) in units of their deviations."""
        return features / self.scale.to(features)

    def squares(self, features: Tensor) -> Tensor:
        """None are asked for: parameters and pairs are looked at one by one."""
        return features.new_zeros(features.shape[:-1])

    def statistics(self, sums: Sums) -> Statistics:
        """Groups of evidence, and statistics (j, h) that belong to them."""
        for each, size in zip(sums.near, sums.sizes, strict=True):
            squares = each.square().unflatten(1, (-1, self.bank.q)).sum(2)
            yield self.bank.group, squares.mT / size
        z = sums.outside / math.sqrt(max(1, sums.others))
        beyond = z.sign() * (z.abs() - NOISE).clamp_min(0)
        yield "learned", (sums.near[-1] * beyond).sum(1)[None]


@dataclass(frozen=True)
class Powers(Sparse):
    """Hermite polynomials of the z-score of each parameter, of some orders up to four."""

    among = True
    orders: tuple[int, ...]

    @property
    def q(self) -> int:
        """One for each order."""
        return len(self.orders)

    def table(self, standing: Standing) -> Tensor:
        """Features (b, r, m, q)."""
        polynomials = hermite(standing.z)
        return torch.stack([polynomials[order] for order in self.orders], 3)


@dataclass(frozen=True)
class Residual(Powers):
    """The same of what is left of each parameter, given the other parameters."""

    among = False

    def table(self, standing: Standing) -> Tensor:
        """Features (b, r, m, q)."""
        polynomials = hermite(standing.others)
        return torch.stack([polynomials[order] for order in self.orders], 3)


@dataclass(frozen=True)
class Polynomials(Sparse):
    """Legendre polynomials of the level of each parameter, and of the radius, up to order eight.

    Neyman 1937, *Smooth test for goodness of fit*: it finds several modes, and tails.
    """

    among = True

    @property
    def q(self) -> int:
        """One for each order."""
        return ORDER

    def table(self, standing: Standing) -> Tensor:
        """Features (b, r, m + 1, q); of a single parameter the radius is left out."""
        u = standing.levels
        return torch.stack(legendre(2 * (u[..., :1] if u.shape[2] == 2 else u) - 1), 3)


@dataclass(frozen=True)
class Pairs(Sparse):
    """Products of Hermite polynomials of the z-scores of two parameters, of the same order."""

    among = True
    order: int

    @property
    def q(self) -> int:
        """There is one feature."""
        return 1

    def table(self, standing: Standing) -> Tensor:
        """Features (b, r, m (m - 1) / 2, 1)."""
        power = hermite(standing.z)[self.order]
        first, second = cpu.triu_indices(power.shape[2], power.shape[2], 1)
        return (power[..., first] * power[..., second])[..., None]


def hermite(z: Tensor) -> list[Tensor]:
    """Orthonormal Hermite polynomials of orders 0 to 4."""
    each = [torch.ones_like(z), z]
    for k in range(1, 4):
        each.append((z * each[k] - math.sqrt(k) * each[k - 1]) / math.sqrt(k + 1))
    return each


def legendre(t: Tensor) -> list[Tensor]:
    """Orthonormal Legendre polynomials of orders 1 to 8 on [-1, 1]."""
    each = [torch.ones_like(t), t]
    for k in range(1, ORDER):
        each.append(((2 * k + 1) * t * each[k] - k * each[k - 1]) / (k + 1))
    return [math.sqrt(2 * k + 1) * p for k, p in enumerate(each) if k]


# Chosen together on one half of the designs of benchmarks/alternatives.py; see docs/defaults.md.
BANKS: tuple[Bank, ...] = (
    *(Waves("smooth", 2, 0.5), Waves("smooth", 2, 1.0), Products("smooth", 0)),
    Moments("smooth", 2),
    *(Waves("fine", 1, 2.0), Waves("fine", 0, 2.0, pooled=True)),
    *(Waves("fine", 0, 4.0, pooled=True), Ripples("fine", 0)),
    *(Powers("one parameter", (1,)), Powers("one parameter", (2,))),
    *(Powers("one parameter", (3, 4)), Polynomials("one parameter")),
    *(Residual("one parameter", (1,)), Residual("one parameter", (2,))),
    *(Pairs("pairs", 1), Pairs("pairs", 2)),
)


def banks_of(m: int, *, normal: bool) -> tuple[Bank, ...]:
    """The banks that make sense for m parameters; normal ones do not depend on each other."""
    without = ((Pairs,) if m == 1 or m > MOST_PAIRED else ()) + ((Residual,) if normal else ())
    return tuple(bank for bank in BANKS if not isinstance(bank, without))


def evidence(groups: dict[str, list[np.ndarray]], reference: int | None = None) -> np.ndarray:
    r"""The evidence (g, h) of each group of statistics (j, h) in h copies.

    Statistics are standardised over all copies and turned into :math:`e = -\log P(Z \ge z)`; with
    a `reference`, over that many of the first, and each of the others joins these alone. The
    largest over j, standardised again, is added up over a group: a sum sees what several views
    half see.
    """
    totals = [np.sum([_view(view, reference) for view in views], 0) for views in groups.values()]
    return np.stack([surprise(total, reference) for total in totals])


def pooled(evidence: np.ndarray) -> np.ndarray:
    """The logarithm (h,) of the mean of exponentials of the evidence (g, h) of all groups.

    It finds what one group alone sees.
    """
    return np.asarray(scipy.special.logsumexp(evidence, 0) - math.log(len(evidence)))


def _view(statistics: np.ndarray, reference: int | None) -> np.ndarray:
    """The evidence (h,) of the largest of statistics (j, h)."""
    each = surprise(statistics, reference)
    return each[0] if len(each) == 1 else surprise(each.max(0), reference)


def surprise(statistics: np.ndarray, reference: int | None) -> np.ndarray:
    """Minus the logarithm of normal tails of standardised statistics (..., h)."""
    some = statistics[..., :reference]
    # Sums of squares; what may be negative is nearly normal as it is.
    roots = np.where((some < 0).any(-1, keepdims=True), statistics, np.cbrt(statistics))
    some = roots[..., :reference]
    spread = some.std(-1, keepdims=True)
    z = (roots - some.mean(-1, keepdims=True)) / np.where(spread > 0, spread, 1)
    if reference is not None:
        z[..., reference:] = _joining(z[..., reference:], reference)
    return np.asarray(-scipy.special.log_ndtr(-z))


def _joining(z: np.ndarray, n: int) -> np.ndarray:
    """Values that n others were standardised without, each standardised together with them."""
    return np.asarray(z * math.sqrt(n / (n + 1)) / np.sqrt(1 + np.square(z) / (n + 1)))

r"""Features of members: coordinates of a set, features of known mean, and banks for Ridge.

**Coordinates of a set** (:class:`Whitened`, :class:`NormalScores`): where q has no flow, the draws
at the same x take the place of latents. A map may look at a whole set, but not at which member is
the truth: then members stay exchangeable if q is right.

**Features with mean zero under N(0, I)** (:class:`Hermite`, :class:`Fourier`): for
:math:`a = \sum_n w_n \phi(z_n)` with :math:`\sum_n w_n^2 = 1` and independent
:math:`z_n \sim N(0, I)`, the squared length :math:`|a|^2` has mean :math:`\operatorname{tr} C`
and, for many points, variance :math:`2 \operatorname{tr} C^2`, where C is the covariance of the
features. Both are known, so that features of any number and scale can be put on one scale.

**Frames** (:class:`Pooled`, :class:`Conditional`, :class:`Within`) are coordinates in which
members of all sets can be compared, and a **bank** (:class:`Joint`) makes features of them and x.
Both are found from members and x alone, whoever plays the truth.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from itertools import combinations_with_replacement
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from .._support.inputs import ALL, check_count, check_kind, check_number, cpu
from .._support.random import stream
from .._support.regression import random_waves, standard_deviation
from ..nulls.copies import Copies, Feature
from .base import Scaling

# Features of a bank, whose covariance must fit into memory.
MOST_FEATURES = 10_000
# The order from which on polynomials leave the range of floating point.
HIGHEST = 100
# Coordinates beyond this are moved to it.
FARTHEST = 8.0
# Rows up to which all products are made at once.
FEW = 2**10
# Sets from which a frame is found; more would not change it.
MOST_SETS = 20_000


class Coordinates(ABC):
    """A map of sets to coordinates that look like N(0, I) for a q without structure."""

    @abstractmethod
    def fewest(self, m: int) -> int:
        """The number of draws of m parameters that a set must have."""

    @abstractmethod
    def __call__(self, members: Tensor) -> Tensor:
        """Coordinates (n, r, m) of members (n, r, m)."""

    def enough(self, k: int, m: int) -> bool:
        """Whether k draws of m parameters are enough."""
        return k >= self.fewest(m)

    def check(self, k: int, m: int) -> None:
        """Refuses too few draws of m parameters."""
        if not self.enough(k, m):
            raise ValueError(
                f"theta_q: expected at least {self.fewest(m)} draws of q at each x for {m} "
                f"parameter(s); got {k}. With 32 a local test sees nearly all there is."
            )


@dataclass(frozen=True)
class Whitened(Coordinates):
    """Each set is whitened by its own pooled mean and covariance.

    Example:
        >>> sets = torch.randn(5, 40, 3, generator=torch.Generator().manual_seed(0))
        >>> white = Whitened()(sets * torch.tensor([1.0, 10.0, 100.0]) + 7)
        >>> torch.allclose(white.mT @ white / 40, torch.eye(3), atol=1e-3)
        True
    """

    def fewest(self, m: int) -> int:
        """Two more than there are parameters, so that a covariance is regular."""
        return m + 2

    def __call__(self, members: Tensor) -> Tensor:
        """Coordinates (n, r, m) of members (n, r, m)."""
        # By the largest first: squares of tiny or huge units would leave the range of numbers.
        offset = members.amin(1, keepdim=True) / 2 + members.amax(1, keepdim=True) / 2
        centred = members - offset
        largest = centred.abs().amax(1, keepdim=True)
        centred = centred / torch.where(largest > 0, largest, torch.ones_like(largest))
        centred = centred - centred.mean(1, keepdim=True)
        scale = centred.square().mean(1, keepdim=True).sqrt()
        # A parameter that does not vary in a set beyond rounding stays at zero there.
        still = scale * largest <= torch.finfo(members.dtype).eps * offset.abs()
        scale = torch.where(still, torch.ones_like(scale), scale)
        centred = torch.where(still, 0, centred / scale)
        covariance = centred.mT @ centred / members.shape[1]
        # A little more than the identity's rounding error, for draws on a line.
        jitter = 1e-4 * cpu.eye(members.shape[2]).to(members)
        factor = torch.linalg.cholesky(covariance + jitter)
        white: Tensor = torch.linalg.solve_triangular(factor, centred.mT, upper=False)
        return white.mT


@dataclass(frozen=True)
class NormalScores(Coordinates):
    """Each parameter is replaced by the normal score of its rank in the set.

    Sees order only, so it does not mind several modes, heavy tails or monotone changes of units.
    """

    def fewest(self, m: int) -> int:
        """Three, whatever the number of parameters."""
        return 3

    def __call__(self, members: Tensor) -> Tensor:
        """Coordinates (n, r, m) of members (n, r, m)."""
        ordered, order = members.mT.contiguous().sort(2)
        apart = ordered.diff(dim=2) != 0
        place = torch.arange(members.shape[1], device=members.device).expand_as(ordered)
        # Tied members share their mean place.
        ends = torch.nn.functional.pad(apart, (1, 0), value=True)
        first = torch.where(ends, place, 0).cummax(2).values
        ends = torch.nn.functional.pad(apart, (0, 1), value=True)
        last = torch.where(ends, place, len(place[0, 0])).flip(2).cummin(2).values.flip(2)
        places = torch.empty_like(place).scatter_(2, order, first + last).mT
        scores: Tensor = torch.special.ndtri((places + 1).to(members) / (2 * members.shape[1]))
        return scores


class Latent(Protocol):
    """Features of z with mean zero under N(0, I)."""

    def size(self, m: int) -> int:
        """The number of features of m latents."""

    def __call__(self, z: Tensor) -> Tensor:
        """Features (..., p) of latents (..., m)."""

    def spread(self, m: int) -> tuple[float, float]:
        """Traces of C and of C squared, C being the covariance under N(0, I)."""


@dataclass(frozen=True)
class Hermite:
    r"""Orthonormal Hermite polynomials of one total order.

    Order 1 is the mean, order 2 variance and correlation, order 3 skewness. For multi-indices
    :math:`|\alpha|` = order, :math:`h_\alpha(z) = \prod_j He_{\alpha_j}(z_j) / \sqrt{\alpha_j!}`.

    Args:
        order: The total order.
        most: The number of features beyond which not all are made: those of single latents, and
            products of several that chance chooses, the same whenever asked.

    Example:
        >>> Hermite(2)(torch.tensor([1.0, 3.0]))
        tensor([0.0000, 3.0000, 5.6569])
        >>> Hermite(3).size(10), Hermite(3).size(100)
        (220, 1000)
    """

    order: int
    most: int = 1000

    def __post_init__(self) -> None:
        object.__setattr__(self, "order", check_count("order", self.order, 1, HIGHEST))
        object.__setattr__(self, "most", check_count("most", self.most, 1, ALL))

    def size(self, m: int) -> int:
        """The number of features of m latents."""
        return min(math.comb(m + self.order - 1, self.order), max(m, self.most))

    def __call__(self, z: Tensor) -> Tensor:
        """Features (..., p) of latents (..., m)."""
        # Features first in memory: a column is then contiguous, which is several times faster.
        m, flat = z.shape[-1], z.reshape(-1, z.shape[-1]).mT.contiguous()
        single = [torch.ones_like(flat), flat]
        for k in range(1, self.order):
            single.append((flat * single[k] - math.sqrt(k) * single[k - 1]) / math.sqrt(k + 1))
        columns: Tensor = _products(single, _factors(self.order, m, self.size(m)))
        return columns.reshape(-1, *z.shape[:-1]).movedim(0, -1)

    def spread(self, m: int) -> tuple[float, float]:
        """Traces of C and of C squared; C is the identity."""
        return float(self.size(m)), float(self.size(m))


@lru_cache(maxsize=32)
def _factors(order: int, m: int, size: int) -> Tensor:
    """The factors (order, size) of products of m latents: powers times m, and which latent."""
    every = size == math.comb(m + order - 1, order)
    indices = combinations_with_replacement(range(m), order) if every else _some(order, m, size)
    powers = [[k * m + j for j, k in Counter(index).items()] for index in indices]
    # The power of no latent is one.
    table = [row + [0] * (order - len(row)) for row in powers]
    return cpu.tensor(table, dtype=torch.int64).mT.contiguous()


def _products(single: list[Tensor], factors: Tensor) -> Tensor:
    """Products (p, b) of powers (m, b) of latents, from none on, by factors (order, p)."""
    if single[0].shape[1] <= FEW:
        table, (first, *others) = torch.cat(single), factors
        return reduce(lambda product, rows: product.mul_(table[rows]), others, table[first])
    # Column by column where there is more than the cache holds.
    powers = [row for part in single for row in part]
    columns = single[0].new_empty(factors.shape[1], single[0].shape[1])
    for column, (one, *others) in zip(columns, factors.mT.tolist(), strict=True):
        column.copy_(powers[one])
        for other in filter(None, others):
            column *= powers[other]
    return columns


def _some(order: int, m: int, size: int) -> Iterable[tuple[int, ...]]:
    """So many different products of latents: powers of each alone, and others by chance."""
    generator, kept = stream(0, "products", order, m), {(j,) * order: None for j in range(m)}
    while len(kept) < size:
        drawn = cpu.randint(m, (size, order), generator=generator).sort(1).values
        kept |= dict.fromkeys(map(tuple, drawn.tolist()))
    return list(kept)[:size]


@dataclass(frozen=True)
class Fourier:
    r"""Random Fourier features: cosines and sines of random projections of z.

    For frequencies :math:`\omega_i \sim N(0, b^2 I / m)`, they are
    :math:`\cos \omega_i z - e^{-|\omega_i|^2 / 2}` and :math:`\sin \omega_i z`; they see shapes
    that low moments do not.

    Args:
        n: The number of frequencies.
        bandwidth: The typical length b of a frequency.
    """

    n: int = 32
    bandwidth: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_count("n", self.n, 1, MOST_FEATURES))
        check_number("bandwidth", self.bandwidth)

    def size(self, m: int) -> int:
        """The number of features of m latents."""
        return 2 * self.n

    def __call__(self, z: Tensor) -> Tensor:
        """Features (..., p) of latents (..., m)."""
        frequencies = self._frequencies(z.shape[-1]).to(z)
        phases = z @ frequencies.T
        means = (-0.5 * frequencies.square().sum(1)).exp()
        return torch.cat([phases.cos() - means, phases.sin_()], -1)

    def spread(self, m: int) -> tuple[float, float]:
        """Traces of C and of C squared, by the characteristic function of the normal."""
        w = self._frequencies(m).double()
        near = (-0.5 * (w[:, None] - w[None]).square().sum(2)).exp()
        far = (-0.5 * (w[:, None] + w[None]).square().sum(2)).exp()
        means = (-0.5 * w.square().sum(1)).exp()
        cosines = 0.5 * (near + far) - means[:, None] * means[None]
        sines = 0.5 * (near - far)
        trace = cosines.trace() + sines.trace()
        return float(trace), float(cosines.square().sum() + sines.square().sum())

    def _frequencies(self, m: int) -> Tensor:
        scale = self.bandwidth / math.sqrt(m)
        return scale * cpu.randn(self.n, m, generator=stream(0, "frequencies", self.n, m))


BANKS: tuple[Latent, ...] = (
    *(Hermite(1), Hermite(2), Hermite(3)),
    *(Fourier(16, 1.0), Fourier(16, 2.0), Fourier(16, 4.0)),
)


class Framed(Protocol):
    """A frame that was found."""

    # Whether coordinates mean the same for the many draws at x_o as for the sets.
    comparable: ClassVar[bool]

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Coordinates (b, r, u) of members (b, r, m) and features of observations (b, d)."""


class Frame(Protocol):
    """How a frame is found."""

    def fit(self, theta: Tensor, x: Tensor, scaling: Scaling) -> Framed:
        """The frame of members (n, r, m) and features of observations (n, d)."""


@dataclass(frozen=True)
class Pooled:
    """Members are standardised by mean and deviation of the whole pool."""

    def fit(self, theta: Tensor, x: Tensor, scaling: Scaling) -> "Standardised":
        """The frame of members (n, r, m) and features of observations (n, d)."""
        return Standardised(scaling)


@dataclass(frozen=True, eq=False)
class Standardised:
    """What :class:`Pooled` found."""

    scaling: Scaling
    comparable: ClassVar[bool] = True

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Coordinates (b, r, m) of members (b, r, m) and features of observations (b, d)."""
        return self.scaling.theta(theta)


@dataclass(frozen=True)
class Conditional:
    r"""Members are standardised by mean and scale given x.

    Both are ridge regressions on features of x over all members: of theta first, and then of the
    logarithm of what is left. A posterior that is narrow and moves with x then stands still, and
    features of moderate frequency see its shape.

    Args:
        n: The number of random Fourier features of x, beside x itself.
        x_frequency: The typical length of their frequencies.
        penalty: The ridge penalty, relative to the mean square of the features.
    """

    n: int = 256
    x_frequency: float = 1.0
    penalty: float = 1e-3

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_count("n", self.n, 1, MOST_FEATURES))
        check_number("x_frequency", self.x_frequency, strict=False)
        check_number("penalty", self.penalty)

    def fit(self, theta: Tensor, x: Tensor, scaling: Scaling) -> "Residuals":
        """The frame of members (n, r, m) and features of observations (n, d)."""
        members = scaling.theta(theta)
        design = self.design(scaling.x(x)).double()
        gram = design.mT @ design / len(design)
        gram.diagonal().add_(self.penalty * gram.diagonal().mean())

        def regress(targets: Tensor) -> Tensor:
            sums = design.mT @ targets.double() / len(design)
            return torch.linalg.solve(gram, sums).float()  # type: ignore[no-any-return]

        location = regress(members.mean(1))
        rest = members - (design.float() @ location)[:, None]
        scale = regress((rest.abs() + 1e-4).log().mean(1))
        frame = Residuals(self, scaling, location, scale, torch.ones_like(location[0]))
        return replace(frame, unit=standard_deviation(frame(theta, x).flatten(0, 1)))

    def design(self, x: Tensor) -> Tensor:
        """One, x and random Fourier features of it, with shape (b, 1 + d + n)."""
        frequencies, phases = random_waves(self.n, self.x_frequency, x.shape[1], "frame")
        cosines = (x @ frequencies.to(x) + phases.to(x)).cos()
        return torch.cat([x.new_ones(len(x), 1), x, math.sqrt(2 / self.n) * cosines], 1)


@dataclass(frozen=True, eq=False)
class Residuals:
    """What :class:`Conditional` found."""

    frame: Conditional
    scaling: Scaling
    location: Tensor  # weights of the mean, (p, m)
    scale: Tensor  # weights of the logarithm of the scale, (p, m)
    unit: Tensor  # the deviation that is left, (m,)
    comparable: ClassVar[bool] = True

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Coordinates (b, r, m) of members (b, r, m) and features of observations (b, d)."""
        design = self.frame.design(self.scaling.x(x))
        rest = self.scaling.theta(theta) - (design @ self.location)[:, None]
        unit = self.unit * (design @ self.scale).exp()[:, None]
        return (rest / unit).clamp(-FARTHEST, FARTHEST)


@dataclass(frozen=True)
class Within:
    """Coordinates of a set of several draws: :class:`Whitened`, or :class:`NormalScores`."""

    coordinates: Coordinates
    # Those of a truth among few draws are never far out.
    comparable: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_kind("coordinates", self.coordinates, "coordinates such as Whitened()", "check")

    def fit(self, theta: Tensor, x: Tensor, scaling: Scaling) -> "Within":
        """Refuses sets that are too small; nothing else is to be found."""
        self.coordinates.check(theta.shape[1] - 1, theta.shape[2])
        return self

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Coordinates (b, r, m) of members (b, r, m) and features of observations (b, d)."""
        return self.coordinates(theta).float().clamp(-FARTHEST, FARTHEST)


class Bank(Protocol):
    """A recipe for features of members and observations."""

    def fit(self, copies: Copies, scaling: Scaling) -> Feature:
        """The map itself, found from what no exchange of labels changes."""


@dataclass(frozen=True)
class Joint:
    r"""Random Fourier features of members and x together.

    With coordinates u of a member in its frame, and x on a common scale, they are
    :math:`\cos(\omega_i u + \nu_i x + b_i)` with random frequencies and phases.

    Args:
        n: The number of features.
        bandwidth: The typical length of a frequency of u.
        x_frequency: The typical length of a frequency of x.
        frame: The coordinates of members.
    """

    n: int = 512
    bandwidth: float = 1.0
    x_frequency: float = 1.0
    frame: Frame = field(default_factory=Pooled)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_count("n", self.n))
        check_number("bandwidth", self.bandwidth)
        check_number("x_frequency", self.x_frequency, strict=False)
        check_kind("frame", self.frame, "a frame such as Pooled() or Within(Whitened())", "fit")
        if self.n > MOST_FEATURES:
            raise ValueError(
                f"features: expected at most {MOST_FEATURES} features in a bank, whose covariance "
                f"must fit into memory; got {self.n} from {self!r}. Choose a smaller n or order."
            )

    def fit(self, copies: Copies, scaling: Scaling) -> "JointMap":
        """The map itself, with a frame found from some members of all copies."""
        x = copies.x
        rows = torch.arange(0, len(x), 1 + len(x) // MOST_SETS, device=x.device)
        members = copies[:1].batch(rows, 0)[0][0]
        return JointMap(self, scaling, self.frame.fit(members, x[rows], scaling))


@dataclass(frozen=True, eq=False)
class JointMap:
    """What :class:`Joint` found."""

    bank: Joint
    scaling: Scaling  # of observations
    framed: Framed  # the coordinates of members

    @property
    def size(self) -> int:
        """The number of features p."""
        return self.bank.n

    @property
    def comparable(self) -> bool:
        """Whether features mean the same for the many draws at x_o as for the sets."""
        return self.framed.comparable

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Features (b, r, p) of members (b, r, m) and observations (b, d)."""
        # Banks of other bandwidths get other directions.
        n, key = self.bank.n, str(self.bank.bandwidth)
        u, scaled = self.framed(theta, x), self.scaling.x(x)
        ours, _ = random_waves(n, self.bank.bandwidth, u.shape[-1], "member", key)
        theirs, phases = random_waves(n, self.bank.x_frequency, x.shape[1], "x", key)
        shift = scaled @ theirs.to(scaled) + phases.to(scaled)
        return (u @ ours.to(u)).add_(shift[:, None]).cos_()

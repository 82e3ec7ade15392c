r"""Where an observation lies among the simulated ones: which are near, and is it inside?

Features of x are first brought to a **common scale**: a feature is centred by its median, scaled
by its interquartile range and passed through :math:`\operatorname{arsinh}`, which is linear near
the centre and logarithmic in the tails. An outlying observation then no longer lies far outside
all others. The map is invariant under affine maps of single columns.

A **weight** depends on x alone, never on parameters, so it cannot spoil exactness. Weights of one
size have unit Euclidean norm: a weighted sum of independent features with mean zero and unit
variance has mean zero and unit variance again.

**Support.** A test can say nothing about an observation that none of its pairs resembles, and a
large p-value there is no comfort. The distance to the tenth nearest calibration point is compared
with the same distance for calibration points themselves: the share of them that lie as far out is
the conformal p-value of x_o being one of them. It is a statement on the simulator's world, not on
q: an x_o outside is a sign of a model that is wrong, or of a calibration that is too small.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from .._core import (
    as_tensors,
    check_finite,
    check_function,
    check_kind,
    check_numbers,
    cpu,
    foreign,
    spread_over,
)

# Where q is right under the global hypothesis, and what that is.
EVERYWHERE = "at almost every x"
GLOBAL = f"q(theta | x) = p(theta | x) {EVERYWHERE}, tested at x_o"
# The neighbour whose distance counts, and the share of points that makes a neighbourhood.
NEIGHBOUR, SHARE = 10, 0.05
# Calibration points that are looked at, and those among them whose distances are compared.
MOST_POINTS, COMPARED, AT_A_TIME = 20_000, 500, 50
# The smallest neighbourhood.
FEWEST_POINTS = 10
# Below this p-value x_o is said to lie outside.
OUTSIDE = 0.01
# The interquartile range of a standard normal.
IQR = 1.349
# So many rows tell the quartiles well enough, and torch.quantile has its limits.
MOST_ROWS = 10_000
# Sets from which means and scales given x are learned, and members from which a scale is taken.
MOST_FITTED, FEWEST_MEMBERS = 4000, 4
# Directions of x and waves in it that they are regressed on, and penalties that are tried.
DIRECTIONS, WAVES, PENALTIES = 256, 64, (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
# How many features of x count in full.
FEW = 4
TINY = 1e-12


def middle(rows: Tensor, dim: int) -> Tensor:
    """The middle of the range along an axis, which is kept with length one.

    Numbers far from zero lose no digits where it is taken off first; a mean of them does.
    """
    return rows.amin(dim, keepdim=True) / 2 + rows.amax(dim, keepdim=True) / 2


def spread(rows: Tensor) -> Tensor:
    """Standard deviations of columns (n, p); one for a column that is constant."""
    varies = rows.amax(0) > rows.amin(0)
    return torch.where(varies, (rows - middle(rows, 0)).std(0), torch.ones_like(rows[0]))


@dataclass(frozen=True, eq=False)
class Robust:
    """Location and scale of the d features of x, each with shape (d,)."""

    location: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, x: Tensor) -> Self:
        """The scaling of features (n, d)."""
        x = x[:: 1 + len(x) // MOST_ROWS]
        quarter, median, three_quarters = x.quantile(x.new_tensor([0.25, 0.5, 0.75]), 0)
        scale = (three_quarters - quarter) / IQR
        # Discrete features can have no interquartile range, and constant ones no spread at all.
        varies = x.amax(0) > x.amin(0)
        return cls(median, torch.where(varies & (scale > 0), scale, spread(x)))

    def __call__(self, x: Tensor) -> Tensor:
        """Features (..., d) on the common scale."""
        # What is too far to be told is as far as can be told.
        far = torch.finfo(x.dtype).max
        return torch.asinh(((x - self.location) / self.scale).clamp(-far, far))


@dataclass(frozen=True)
class Distance:
    """Distances between observations whose features are brought to a common scale.

    Args:
        function: Turns features (n, d) into what distances are taken in (n, e), for instance the
            means and scales of q at these x, or a summary network; features themselves if None.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
        >>> Distance()(x, x[:1]).argsort(1)
        tensor([[0, 1, 2, 3]])
    """

    function: Callable[[Tensor], Any] | None = None
    # How near is told, for a hypothesis.
    words: ClassVar[str] = ""

    def __post_init__(self) -> None:
        if self.function is not None:
            check_function("function", self.function, "a function of features")

    def __call__(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Distances (o, n) between features x (n, d) and observations (o, d)."""
        return _distances(*self.coordinates(*_features(x, x_o)))

    def coordinates(self, x: Tensor, x_o: Tensor) -> tuple[Tensor, Tensor]:
        """Coordinates (n, e) and (o, e) of features and observations, in which it is Euclidean."""
        x, x_o = self._represented(x), self._represented(x_o)
        robust = Robust.fit(x)
        return robust(x), robust(x_o)

    def _represented(self, x: Tensor) -> Tensor:
        if self.function is None:
            return x
        represented = foreign("function", self.function, x).to(x)
        if represented.ndim != 2 or len(represented) != len(x):
            raise ValueError(
                f"function: expected one that maps features ({len(x)}, d) to ({len(x)}, e); got "
                f"{tuple(represented.shape)}."
            )
        check_finite("function", represented)
        return represented


@dataclass(frozen=True, eq=False)
class NearForQ(Distance):
    r"""Distances in which near means near for q: by its mean and scale given x, and by x.

    With many features of x, of which few matter, all observations are far from each other.
    Means and logarithms of deviations of the members of each set are regressed on x (ridge, with
    the penalty that predicts sets left out best). Predictions count as far as they explain what
    is predicted, and x itself as much as four features do: a q that ignores x leaves x alone.

    Labels have no say: members are the truth and the draws of q alike.

    Example:
        >>> x, z = torch.randn(1000, 50), torch.randn(1000, 8, 1)
        >>> distance = NearForQ.fit(x, x[:, :1, None] + z)
        >>> near = distance(x, x[:1]).argsort(1)[0, :100]
        >>> bool(x[near, 0].std() < 0.7)
        True
    """

    scale: Robust = field(kw_only=True)
    weights: Tensor = field(kw_only=True)  # of the regressions, (p, j)
    words: ClassVar[str] = " (by q's mean and scale given x, and by x)"

    @classmethod
    def fit(cls, x: Tensor, members: Tensor) -> "NearForQ":
        """From features of observations (n, d) and members (n, r, m)."""
        step = 1 + len(x) // MOST_FITTED
        x, members = x[::step], members[::step].double()
        scale = Robust.fit(x)
        targets = members.mean(1)
        if members.shape[1] >= FEWEST_MEMBERS:
            deviations = members.std(1)
            targets = torch.cat([targets, (deviations + TINY * deviations.mean(0)).log()], 1)
        targets = torch.nan_to_num((targets - targets.mean(0)) / spread(targets), 0.0)
        return cls(scale=scale, weights=_predicted(_design(scale(x)), targets))

    def coordinates(self, x: Tensor, x_o: Tensor) -> tuple[Tensor, Tensor]:
        """Coordinates (n, e) and (o, e) of features and observations, in which it is Euclidean."""
        return self._represented(x), self._represented(x_o)

    def __repr__(self) -> str:
        return "NearForQ()"

    def _represented(self, x: Tensor) -> Tensor:
        scaled = self.scale(x)
        told = _design(scaled) @ self.weights
        return torch.cat([told, scaled.double() * (min(1.0, FEW / x.shape[1])) ** 0.5], 1)


def _design(x: Tensor) -> Tensor:
    """One, directions of x and waves in it, in double precision, with shape (n, p)."""
    d = x.shape[1]
    generator = torch.Generator().manual_seed(d)
    if d > DIRECTIONS:
        x = x @ (cpu.randn(d, DIRECTIONS, generator=generator) / d**0.5).to(x)
    frequencies = cpu.randn(x.shape[1], WAVES, generator=generator) / max(1, x.shape[1]) ** 0.5
    phases = 2 * torch.pi * cpu.rand(WAVES, generator=generator)
    waves = (x @ frequencies.to(x) + phases.to(x)).cos() * (2 / WAVES) ** 0.5
    return torch.cat([torch.ones_like(x[:, :1]), x, waves], 1).double()


def _predicted(design: Tensor, targets: Tensor) -> Tensor:
    """Weights (p, j) of ridge regressions, scaled by how much they explain of sets left out."""
    values, vectors = torch.linalg.eigh(design.mT @ design)
    turned, products = design @ vectors, vectors.mT @ (design.mT @ targets)

    def ridge(penalty: float) -> tuple[Tensor, Tensor]:
        """Weights (p, j), and the share (j,) that they explain of sets left out one by one."""
        shrunk = 1 / (values.clamp_min(0) + penalty * len(design))
        own = (turned.square() @ shrunk).clamp(max=1 - 1e-6)
        left = (targets - turned @ (shrunk[:, None] * products)) / (1 - own)[:, None]
        share = 1 - left.square().mean(0) / targets.square().mean(0).clamp_min(TINY)
        return vectors @ (shrunk[:, None] * products), share.clamp_min(0)

    weights, share = max(map(ridge, PENALTIES), key=lambda found: float(found[1].mean()))
    scaled: Tensor = weights / spread(design @ weights) * share.sqrt()
    scaled *= (FEW / len(share)) ** 0.5
    return scaled


@dataclass(frozen=True)
class Neighbourhood(ABC):
    """How calibration points are weighted around an observation, at several sizes."""

    # The sizes, as shares of the calibration points, tested together.
    shares: tuple[float, ...] = (0.05, 0.1, 0.2)
    # Whether points far from x_o have no weight, so that the claim is local.
    local: ClassVar[bool] = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", _checked_shares(self.shares))

    def scope(self, share: float) -> str:
        """Where q is right under the hypothesis, where points up to this share have weight."""
        return EVERYWHERE

    def hypothesis(self, share: float) -> str:
        """What a small p-value speaks against, where points up to this share have weight."""
        return GLOBAL

    @abstractmethod
    def weights(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Weights (o, c, n) of features x (n, d) around observations (o, d), of unit norm."""

    def coordinates(self, x: Tensor, x_o: Tensor) -> tuple[Tensor, Tensor]:
        """Coordinates (n, e) of features and (o, e) of observations, in which near is meant."""
        return Distance().coordinates(x, x_o)


@dataclass(frozen=True)
class Nearest(Neighbourhood):
    """The calibration points nearest to x_o, all with the same weight; the rest with none.

    Points at the same distance are all in or all out, so where x has ties there may be more.

    Args:
        shares: Shares of the calibration points, tested together.
        distance: What near means.

    Example:
        >>> x = torch.arange(100.0)[:, None]
        >>> Nearest((0.2,)).weights(x, x[:1]).nonzero()[:, 2].max()
        tensor(19)
    """

    distance: Distance = Distance()
    local: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kind("distance", self.distance, "one such as Distance()", Distance)

    def scope(self, share: float) -> str:
        """A part of all x."""
        return f"throughout the nearest {share:.0%} of x{self.distance.words}"

    def hypothesis(self, share: float) -> str:
        """The local null."""
        return f"q(theta | x) = p(theta | x) {self.scope(share)} around x_o"

    def weights(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Weights (o, c, n) of features x (n, d) around observations (o, d), of unit norm."""
        x, x_o = _features(x, x_o)
        return torch.nn.functional.normalize(self.inside(x, x_o).to(x), dim=2)

    def coordinates(self, x: Tensor, x_o: Tensor) -> tuple[Tensor, Tensor]:
        """Those of its distance."""
        return self.distance.coordinates(x, x_o)

    def inside(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Whether features x (n, d) are near observations (o, d), with shape (o, c, n)."""
        distances = self.distance(x, x_o)
        return distances[:, None] <= _limits(distances, self.shares)[..., None]

    def share_used(self, x: Tensor, x_o: Tensor) -> float:
        """The share of features x (n, d) that is near any of the observations (o, d), at most.

        It is larger than the share asked for where ten points are more, or where x has ties.
        """
        return float(self.inside(x, x_o)[:, -1].double().mean(1).max())


@dataclass(frozen=True)
class Smooth(Neighbourhood):
    """All calibration points, weighted by a Gaussian kernel around x_o.

    Args:
        shares: The length scales, each as the share of points within one of them.
    """

    def weights(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Weights (o, c, n) of features x (n, d) around observations (o, d), of unit norm."""
        x, x_o = _features(x, x_o)
        distances = Distance()(x, x_o)
        # Where many points coincide with x_o the length scale is zero: they alone count then.
        lengths = _limits(distances, self.shares).clamp_min(torch.finfo(x.dtype).tiny ** 0.5)
        weights = (-0.5 * (distances[:, None] / lengths[..., None]) ** 2).exp()
        return torch.nn.functional.normalize(weights, dim=2)


def read_only(array: Any) -> np.ndarray:
    """A copy that cannot be written."""
    own = np.array(array)
    own.setflags(write=False)
    return own


@dataclass(frozen=True, eq=False)
class Support:
    """Whether one observation, or each of o, lies inside the simulated ones; fields () or (o,)."""

    pairs: np.ndarray  # calibration pairs as near as a twentieth of all is to a typical x
    distance: np.ndarray  # to the tenth nearest pair, over that of a typical x
    pvalue: np.ndarray  # the share of calibration points that lie as far from the others

    def __post_init__(self) -> None:
        for name, array in vars(self).items():
            object.__setattr__(self, name, read_only(array))

    @property
    def outside(self) -> np.ndarray:
        """Whether x_o lies outside the simulated observations."""
        return np.asarray(self.pvalue <= OUTSIDE)

    def __getitem__(self, which: int) -> "Support":
        return Support(self.pairs[which], self.distance[which], self.pvalue[which])


def support(x: Tensor, x_o: Tensor) -> Support:
    """Compares features of observations (o, d) with the calibration's own (n, d).

    Example:
        >>> x = torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
        >>> inside = support(x, torch.tensor([[0.0, 0.0], [6.0, 6.0]]))
        >>> inside.outside
        array([False,  True])
    """
    robust = Robust.fit(x)
    points = robust(x)[:: 1 + len(x) // MOST_POINTS]
    some = points[:: 1 + len(points) // COMPARED]
    neighbour = min(NEIGHBOUR, len(points) - 1)
    # A calibration point is its own nearest neighbour.
    own = _distance_to(points, some, neighbour + 1)
    there = _distance_to(points, robust(x_o), neighbour)
    near = max(neighbour, round(SHARE * len(points)))
    radius = _distance_to(points, some[:: 1 + len(some) // 100], near + 1).median()
    counts = torch.stack([(_distances(points, o[None]) <= radius).sum() for o in robust(x_o)])
    larger = (own >= there[:, None]).sum(1)
    # Where many points coincide, typical distances are zero.
    typical = own.median().clamp_min(torch.finfo(own.dtype).tiny)
    return Support(
        (counts.double() * (len(x) / len(points))).round().long().cpu().numpy(),
        (there / typical).cpu().numpy(),
        ((1 + larger).float() / (1 + len(own))).cpu().numpy(),
    )


def as_neighbourhood(where: Any) -> Neighbourhood:
    """A neighbourhood as it is, the nearest points if None, or refuses."""
    where = Nearest() if where is None else where
    check_kind("where", where, "a neighbourhood such as Nearest()", Neighbourhood)
    return where  # type: ignore[no-any-return]


def _features(x: Any, x_o: Any) -> tuple[Tensor, Tensor]:
    """Features (n, d) and those of observations (o, d), or refuses."""
    arrays = as_tensors({"x": x, "x_o": x_o})
    for name, array in arrays.items():
        if array.ndim != 2:
            raise ValueError(f"{name}: expected features (n, d); got {tuple(array.shape)}.")
        check_finite(name, array)
    if arrays["x"].shape[1] != arrays["x_o"].shape[1]:
        widths = " and ".join(str(array.shape[1]) for array in arrays.values())
        raise ValueError(f"x_o: expected as many features as x has; got {widths}.")
    return arrays["x"], arrays["x_o"]


def _limits(distances: Tensor, shares: tuple[float, ...]) -> Tensor:
    """The distances (o, c) within which shares of the points lie, from distances (o, n)."""
    n = distances.shape[1]
    sizes = [min(n, max(FEWEST_POINTS, round(share * n))) for share in shares]
    ordered = distances.sort(1).values
    return torch.stack([ordered[:, size - 1] for size in sizes], 1)


def _checked_shares(shares: tuple[float, ...] | float) -> tuple[float, ...]:
    numbers = check_numbers("shares", shares)
    if not numbers or max(numbers) > 1:
        raise ValueError(f"shares: expected numbers above 0 and up to 1; got {shares}.")
    return tuple(sorted(numbers))


def _distance_to(points: Tensor, x: Tensor, k: int) -> Tensor:
    """Distances (o,) of x (o, d) to their k-th nearest of points (n, d)."""

    def distances(part: Tensor) -> Tensor:
        return _distances(points, part).kthvalue(k, dim=1).values

    with spread_over(torch.get_num_threads() if x.device.type == "cpu" else 1) as apply:
        return torch.cat(list(apply(distances, x.split(AT_A_TIME))))


def _distances(points: Tensor, x: Tensor) -> Tensor:
    # Products of matrices would lose the distances of near points, and let ties fall apart.
    return torch.cdist(x, points, compute_mode="donot_use_mm_for_euclid_dist")

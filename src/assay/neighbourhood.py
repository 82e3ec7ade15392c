r"""Which simulations are near an observation, in which distance, and with which weights.

**Near** are the simulations with the smallest distance to x_o, all with the same weight. Nearness
may depend on x, and on all members of a set alike (the true parameter and the draws of q), never
on which member is the true parameter: otherwise exchanging them would not be exact.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from ._support.inputs import as_tensors, check_finite, check_function, check_kind, check_share, cpu
from ._support.random import call_user_code, stream

SHARE, FULL = 0.2, 5000  # of simulations that is near x_o; the number from which on it shrinks
FEWEST_NEAR = 10  # simulations
FEW_FEATURES = 4  # with more, near means near for q rather than near in x
MOST_FITTED, FEWEST_MEMBERS = 4000, 4  # sets to learn from, and members to take a width of
COSINES, DIRECTIONS = 64, 256  # of x in a regression; random ones in place of more features
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)  # of the regression that are tried
SETS_PER_COEFFICIENT, TINY = 12, 1e-12  # of a local-quadratic fit
IQR = 1.349  # the interquartile range of a standard normal distribution
MOST_ROWS = 10_000  # from which quartiles are taken; torch.quantile has a limit


def standard_deviation(rows: Tensor) -> Tensor:
    """Standard deviations of columns (n, p); one for a column that is constant."""
    varies = rows.amax(0) > rows.amin(0)
    middle = rows.amin(0) / 2 + rows.amax(0) / 2  # a large offset would cost digits
    return torch.where(varies, (rows - middle).std(0), torch.ones_like(rows[0]))


@dataclass(frozen=True, eq=False)
class RobustScale:
    """Median and scale of d features, each with shape (d,)."""

    median: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, x: Tensor) -> Self:
        """Finds the scale of features (n, d)."""
        x = x[:: 1 + len(x) // MOST_ROWS]
        quarter, median, three_quarters = x.quantile(x.new_tensor([0.25, 0.5, 0.75]), 0)
        scale = (three_quarters - quarter) / IQR
        # A discrete feature may have no interquartile range.
        return cls(median, torch.where(scale > 0, scale, standard_deviation(x)))

    def __call__(self, x: Tensor) -> Tensor:
        """Features (..., d) on the common scale."""
        largest = torch.finfo(x.dtype).max
        return torch.asinh(((x - self.median) / self.scale).clamp(-largest, largest))


def random_waves(n: int, length: float, d: int, *key: str) -> tuple[Tensor, Tensor]:
    """Random frequencies (d, n) and phases (n,), always the same (Rahimi and Recht 2007)."""
    generator = stream(0, "waves", n, d, *key)
    frequencies = cpu.randn(d, n, generator=generator) * length / math.sqrt(max(1, d))
    return frequencies, 2 * math.pi * cpu.rand(n, generator=generator)


def regression_design(x: Tensor, cosines: int) -> Tensor:
    """One, directions of x (n, d) and cosines of them, in double precision, (n, p)."""
    if x.shape[1] > DIRECTIONS:
        x = x @ random_waves(DIRECTIONS, 1.0, x.shape[1], "directions")[0].to(x)
    frequencies, phases = random_waves(cosines, 1.0, x.shape[1], "regression")
    waves = (x @ frequencies.to(x) + phases.to(x)).cos() * math.sqrt(2 / cosines)
    return torch.cat([torch.ones_like(x[:, :1]), x, waves], 1).double()


def ridge(design: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Weights (p, j) of a ridge regression of targets (n, j) on a design (n, p).

    With the penalty that predicts rows best that are left out one by one; and the share (j,) of
    their variance that is explained.
    """
    values, vectors = torch.linalg.eigh(design.mT @ design)
    rotated, products = design @ vectors, vectors.mT @ (design.mT @ targets)

    def fit(penalty: float) -> tuple[Tensor, Tensor]:
        inverse = 1 / (values.clamp_min(0) + penalty * len(design))
        leverage = (rotated.square() @ inverse).clamp(max=1 - 1e-6)
        left_out = (targets - rotated @ (inverse[:, None] * products)) / (1 - leverage)[:, None]
        missed = left_out.square().mean(0) / targets.square().mean(0).clamp_min(TINY)
        return vectors @ (inverse[:, None] * products), (1 - missed).clamp_min(0)

    return max(map(fit, PENALTIES), key=lambda found: float(found[1].mean()))


@dataclass(frozen=True)
class Distance:
    """Euclidean distance between observations whose features are on a common scale.

    Args:
        function: Turns features (n, d) into the coordinates (n, e) in which distances are taken,
            for example a summary network. None takes the features themselves.

    Example:
        >>> Distance()(torch.tensor([[0.0], [9.0], [1.0]]), torch.zeros(1, 1)).argsort(1)
        tensor([[0, 2, 1]])
    """

    function: Callable[[Tensor], Any] | None = None
    words: ClassVar[str] = ""  # of a hypothesis, on how nearness is measured

    def __post_init__(self) -> None:
        if self.function is not None:
            check_function("function", self.function, "a function of features")

    def __call__(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Distances (o, n) between features x (n, d) and those of observations (o, d)."""
        coordinates, centres = self.coordinates(*check_features(x, x_o))
        # Products of matrices would lose the small distances, and would separate ties.
        return torch.cdist(centres, coordinates, compute_mode="donot_use_mm_for_euclid_dist")

    def coordinates(self, x: Tensor, x_o: Tensor) -> tuple[Tensor, Tensor]:
        """Coordinates (n, e) and (o, e) in which the distance is Euclidean."""
        x, x_o = self._apply(x), self._apply(x_o)
        scale = RobustScale.fit(x)
        return scale(x), scale(x_o)

    def _apply(self, x: Tensor) -> Tensor:
        if self.function is None:
            return x
        found, n = call_user_code("function", self.function, x).to(x), len(x)
        if found.ndim != 2 or len(found) != n:
            expected = f"one that maps features ({n}, d) to ({n}, e)"
            raise ValueError(f"function: expected {expected}; got {tuple(found.shape)}.")
        check_finite("function", found)
        return found


@dataclass(frozen=True, eq=False)
class DistanceForQ(Distance):
    """A distance in which near means near for q: by its mean and width given x, and by x.

    Means and log standard deviations of the members of each set are regressed on x. A prediction
    counts as much as it explains of sets left out, and x itself as much as four features.
    """

    scale: RobustScale = field(kw_only=True)
    weights: Tensor = field(kw_only=True)  # of the regressions, (p, j)
    words: ClassVar[str] = " (by q's mean and width given x, and by x)"

    @classmethod
    def fit(cls, x: Tensor, members: Tensor) -> Self:
        """Learns nearness from features (n, d) and members of sets (n, r, m)."""
        step = 1 + len(x) // MOST_FITTED
        x, members = x[::step], members[::step].double()
        scale = RobustScale.fit(x)
        targets = members.mean(1)
        if members.shape[1] >= FEWEST_MEMBERS:
            widths = members.std(1)
            targets = torch.cat([targets, (widths + TINY * widths.mean(0)).log()], 1)
        targets = torch.nan_to_num((targets - targets.mean(0)) / standard_deviation(targets), 0.0)
        design = regression_design(scale(x), COSINES)
        weights, explained = ridge(design, targets)
        weights = weights / standard_deviation(design @ weights) * explained.sqrt()
        return cls(scale=scale, weights=weights * math.sqrt(FEW_FEATURES / len(explained)))

    def coordinates(self, x: Tensor, x_o: Tensor) -> tuple[Tensor, Tensor]:
        """Coordinates (n, e) and (o, e) in which the distance is Euclidean."""
        return self._predict(x), self._predict(x_o)

    def _predict(self, x: Tensor) -> Tensor:
        scaled = self.scale(x)
        own = scaled.double() * math.sqrt(min(1.0, FEW_FEATURES / x.shape[1]))
        return torch.cat([regression_design(scaled, COSINES) @ self.weights, own], 1)

    def __repr__(self) -> str:
        return "DistanceForQ()"


@dataclass(frozen=True)
class Nearest:
    """The simulations that are nearest to x_o; of those at the same distance all, or none.

    Args:
        share: The share of the simulations that is near. None takes 20 % of up to 5000, and 1000
            times the root of n / 5000 of more: the claim becomes more local as simulations grow.
        distance: How nearness is measured. None takes the distance in x for up to four features,
            and :class:`DistanceForQ` for more.

    Example:
        >>> Nearest().count(1000), Nearest().count(20_000)
        (200, 2000)
    """

    share: float | None = None
    distance: Distance | None = None

    def __post_init__(self) -> None:
        if self.share is not None:
            object.__setattr__(self, "share", check_share("share", self.share, whole=True))
        if self.distance is not None:
            check_kind("distance", self.distance, "one such as Distance()", Distance)

    def count(self, n: int, part: float = 1.0) -> int:
        """How many of n simulations are near; `part` of them where a smaller size is looked at."""
        size = SHARE * n if n <= FULL else SHARE * math.sqrt(FULL * n)
        size = size if self.share is None else self.share * n
        return min(n, max(FEWEST_NEAR, round(part * size)))

    def simulations_for(self, n: int, times: Any) -> Any:
        """How many simulations there must be, in place of n, for so many times as many near."""
        near = times * self.count(n)
        shrinking = np.where(near <= SHARE * FULL, near / SHARE, (near / SHARE) ** 2 / FULL)
        return shrinking if self.share is None else near / self.share

    def inside(self, x: Tensor, x_o: Tensor, part: float = 1.0) -> Tensor:
        """Whether features x (n, d) are near observations (o, d), with shape (o, n)."""
        distances = (self.distance or Distance())(x, x_o)
        return distances <= distances.kthvalue(self.count(len(x), part), 1).values[:, None]

    def coordinates(self, x: Tensor, x_o: Tensor) -> tuple[Tensor, Tensor]:
        """Coordinates (n, e) of features and (o, e) of observations in which nearness is meant."""
        return (self.distance or Distance()).coordinates(*check_features(x, x_o))

    @property
    def words(self) -> str:
        """Where q is right under the hypothesis of a local test."""
        share = "simulations" if self.share is None else f"{self.share:.0%} of x"
        return f"throughout the nearest {share}{(self.distance or Distance()).words} around x_o"


def as_nearest(near: Any) -> Nearest:
    """What is near: the default for None, by a share of the simulations, or as it is given."""
    if isinstance(near, Nearest):
        return near
    return Nearest(None if near is None else check_share("near", near, whole=True))


def local_quadratic(
    coordinates: Tensor, centre: Tensor, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    r"""The design (n, p) of a local-quadratic fit at x_o, and the weights (p, n) of coefficients.

    Near x_o, by the kernel :math:`1 - (d_i / d_{max})^2`, in powers up to two of the leading
    principal coordinates, as many as n simulations can carry. The first weights, of the mean at
    x_o, sum to one, and remove errors of first and second order in the distance.
    """
    offset = (coordinates - centre).double()
    n, e = offset.shape
    carried = [q for q in range(1, e + 1) if (q + 1) * (q + 2) // 2 * SETS_PER_COEFFICIENT <= n]
    u = principal_coordinates(offset, max(carried, default=1)).numpy()
    u = u / np.maximum(np.abs(u).max(0), TINY)
    first, second = np.triu_indices(u.shape[1])
    design = np.concatenate([np.ones((n, 1)), u, u[:, first] * u[:, second]], 1)
    squared = offset.square().sum(1).numpy()
    kernel = np.maximum(1 - squared / max(1.0001 * squared.max(), TINY), 0)
    weighted = design.T * (weights * kernel)
    gram = weighted @ design
    gram += 1e-9 * np.trace(gram) / len(gram) * np.eye(len(gram))
    return design, np.linalg.solve(gram, weighted)


def principal_coordinates(offset: Tensor, most: int) -> Tensor:
    """At most so many coordinates (n, q), along which offsets (n, e) vary most."""
    if offset.shape[1] <= most:
        return offset
    directions = torch.linalg.svd(offset - offset.mean(0), full_matrices=False).Vh
    return offset @ directions[:most].mT


def check_features(x: Any, x_o: Any) -> tuple[Tensor, Tensor]:
    """Features (n, d) and those of observations (o, d), or refuses."""
    arrays = as_tensors({"x": x, "x_o": x_o})
    for name, array in arrays.items():
        if array.ndim != 2:
            raise ValueError(f"{name}: expected features (n, d); got {tuple(array.shape)}.")
        check_finite(name, array)
    d, d_o = (array.shape[1] for array in arrays.values())
    if d != d_o:
        raise ValueError(f"x_o: expected as many features as x has; got {d} and {d_o}.")
    return arrays["x"], arrays["x_o"]

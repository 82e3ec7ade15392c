r"""How far is q from the true parameters near x_o? Simultaneous intervals.

All statistics compare a true parameter with draws of q **at the same x**; no smooth mean of q
stands between them, which would dilute errors. In units of a scale :math:`\sigma(x)` of q, let
:math:`e_i` be the mean of the k draws at :math:`x_i` less the true parameter, and :math:`s_i^2`
the variance of the draws. With weights :math:`w_i` that sum to one,

.. math:: S = \sum_i w_i s_i^2, \qquad b = \sum_i w_i e_i, \qquad
    V = \frac{\sum_i w_i e_i^2 - b^2}{1 - \sum_i w_i^2} - \frac{S}{k} .

V is the variance of true parameters around q's mean, without what k draws add to it: q's mean is
:math:`b / \sqrt S` of its standard deviations too high, and q is :math:`\sqrt{S / V}` times too
wide. Near x_o all simulations weigh the same, and the numbers are averages over the neighbourhood;
*at* x_o the weights are those of a local-quadratic fit.

**Intervals** come from a bootstrap over sets, with errors from influence functions. There are two
families, each simultaneous with probability 0.95: means, widths and slopes of the mean decide,
all other rows explain.

References: Hall 1992, *The Bootstrap and Edgeworth Expansion*, for studentised intervals; Romano
and Wolf 2005, *Exact and Approximate Stepdown Methods*, for simultaneous ones; Clopper and Pearson
1934 for coverage.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import scipy.spatial
import scipy.special
import torch
from torch import Tensor

from .._support.inputs import check_number, cpu, full_precision
from .._support.parallel import available_threads, one_thread, spread_over
from .._support.progress import progress
from .._support.random import Seed, seed_of, stream
from ..data.calibration import Calibration, Draws, check_calibration
from ..neighbourhood import Nearest, local_quadratic, principal_coordinates
from ..results import Frozen, clopper_pearson
from .rows import Row, rows_of

# Weightings of the bootstrap, and the probability with which a family of intervals holds.
BOOTSTRAP, HELD = 1000, 0.95
# A number that more bootstrap samples than this share cannot estimate has no interval.
UNDEFINED = 0.01
# Sets from which the scale of q at an x is taken.
SCALED = 30
# Coordinates of nearness along which means may change.
MOST_SLOPES = 3
# Draws at each x from which quantiles are told; two tell widths and correlations.
FEWEST_FOR_QUANTILES = 4
# Parameters up to which there are correlations.
MOST_PAIRED = 60
# Levels of the intervals whose coverage is told.
LEVELS = (0.5, 0.9, 0.95)
# Quantiles that tell skewness and tails, and how far around them densities are taken.
QUANTILES, AROUND = np.array([0.05, 0.25, 0.5, 0.75, 0.95]), np.array([0.04, 0.1, 0.1, 0.1, 0.04])
# How much more of q than they should intervals may hold, where draws have ties.
TIES = 0.02
# Draws of the base at each x in latent space.
BASE_DRAWS = 16
# For pictures: true parameters near x_o, numbers of them, and draws beside each, at most.
SHOWN, MOST_NUMBERS, PICTURED = 400, 4_000_000, 4
# The part of the tolerance that intervals should have as half-widths, to be settled most likely.
SETTLED = 0.6
TINY = 1e-12


@dataclass(frozen=True, eq=False)
class Interval(Frozen):
    """Numbers with their intervals, arrays of one shape; NaN where nothing can be told."""

    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray

    def row(self, which: int | slice) -> "Interval":
        """Some of the numbers."""
        return Interval(self.value[which], self.lower[which], self.upper[which])

    def reshape(self, *shape: int) -> "Interval":
        """The same in another shape."""
        return Interval(*(part.reshape(shape) for part in (self.value, self.lower, self.upper)))

    def map(self, function: Callable[[np.ndarray], np.ndarray]) -> "Interval":
        """The same on another scale, by an increasing function."""
        return Interval(*map(function, (self.value, self.lower, self.upper)))


Table = dict[str, Interval]


@full_precision()
@one_thread()
def bounds(
    calibration: Calibration, x_o: Any, near: float | Nearest | None = None, seed: Seed = 0
) -> "Bounds":
    """Bounds how far q is from the true parameters near x_o, and at x_o itself.

    Args:
        calibration: Pairs with k draws of q at each x. One draw tells means, and widths whose
            errors appear smaller; two tell widths and correlations, four tell all. Latents are
            compared with draws of their base.
        x_o: One observation (...,) or many (o, ...).
        near: What is near x_o: a share of the simulations, or :class:`assay.Nearest`.
        seed: An int or a generator. The same seed gives the same intervals.

    Returns:
        Numbers with simultaneous intervals for every parameter and every pair of them.

    Example:
        >>> generator = torch.Generator().manual_seed(0)
        >>> theta, noise = torch.randn(2, 2000, 1, generator=generator)
        >>> x, z = theta + noise, torch.randn(2000, 16, 1, generator=generator)
        >>> wide = assay.Calibration(theta, x, x[:, None] / 2 + z, names=["mu"])  # 1, not 0.7
        >>> found = bounds(wide, [0.0])
        >>> found.wrong[0][0].sentence
        'q is 1... times too wide in mu (1... to 1...)'
        >>> found.bias.shape, bool(abs(found.bias[0, 0]) < 0.1)
        ((1, 1), True)
    """
    check_calibration(calibration)
    observation = calibration.observation(Draws.of(x_o))
    near, seed = calibration.nearest(near), seed_of(seed)
    members = calibration.sets(BASE_DRAWS, stream(seed, "base"))
    if calibration.plain_draws is not None:
        members = torch.cat([calibration.theta[:, None], calibration.plain_draws], 1)
    members, weights = members.double().cpu(), cpu.ones(len(members), dtype=torch.float64)
    if calibration.weights is not None:
        weights = calibration.weights.double().cpu()
    coordinates, centres = (
        part.double().cpu()
        for part in near.coordinates(calibration.features, observation.features)
    )
    inside = near.inside(calibration.features, observation.features).cpu()
    pictured = min(SHOWN, MOST_NUMBERS // (len(centres) * calibration.m))

    def bound(i: int) -> tuple[Any, ...]:
        rows = inside[i]
        sets = NearSets.of(members[rows], coordinates[rows], weights[rows])
        return (
            *rows_near(sets, seed),
            rows_at(sets, centres[i], seed),
            sets.worth,
            *sets.picture(pictured),
        )

    with spread_over(min(available_threads(), len(inside))) as apply:
        found = list(progress(apply(bound, range(len(inside))), "bounding", total=len(inside)))
    near_tables, expected_width, at_tables, worth, truths, draws = zip(*found, strict=True)
    known: dict[str, Any] = {
        "names": calibration.parameter_names,
        "near": np.array(worth),
        "n": len(calibration),
        "draws": members.shape[1] - 1,
        "expected_width": np.stack(expected_width),
        "share": near.share,
        "scope": near.words,
    }
    at = Bounds(table=_stacked(at_tables), **known)
    known |= {"near_truths": joined_rows(truths), "near_draws": joined_rows(draws)}
    return Bounds(table=_stacked(near_tables), at=at, **known)


def joined_rows(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Tables (t, m) behind each other, filled up with NaN to the longest, (o, t, m)."""
    longest = max(len(part) for part in parts)
    filled = np.full((len(parts), longest, parts[0].shape[1]), np.nan, np.float32)
    for row, part in zip(filled, parts, strict=True):
        row[: len(part)] = part
    return filled


def _stacked(tables: Sequence[Table]) -> Table:
    """Tables of one observation each, behind each other."""
    parts = ("value", "lower", "upper")
    return {
        kind: Interval(
            *(np.stack([getattr(table[kind], part) for table in tables]) for part in parts)
        )
        for kind in tables[0]
    }


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Bounds(Frozen):
    """How far off q can be near o observations, for m parameters.

    The numbers are arrays, as `bias`, each with its ends, as `bias_lower` and `bias_upper`; what
    cannot be told is NaN. They hold for q on average over the neighbourhood of x_o.

    - `bias`: q's mean less that of the true parameters, in standard deviations of q, (o, m).
    - `width`: q's standard deviation over that of the true parameters, (o, m).
    - `slope`: how the bias changes for a standard deviation of the leading coordinates of x near
      x_o, (o, m, c).
    - `skewness`: (Q95 + Q5 - 2 Q50) / (Q95 - Q5) of q less that of the true parameters, (o, m).
    - `tails`: log (Q95 - Q5) / (Q75 - Q25) of q less that of the true parameters, (o, m).
    - `correlation`: q's correlation of two parameters less the true one, (o, m, m).
    - `coverage`: the share of true parameters in q's central 50, 90 and 95 % intervals, (o, m, 3).
    - `region_coverage`: the same for ellipsoids of q in all parameters, (o, 3).

    Args:
        names: Names of the parameters.
        table: All numbers with their intervals, by kind.
        near: The number of simulations near each observation; with weights, what they are worth.
        n: The number of simulations.
        draws: Draws of q at each x.
        expected_width: Half-widths of intervals of log widths if q is right, by its draws, which
            are more than the true parameters and say more of their tails, (o, m).
        share: The share that is near; None if it depends on n.
        scope: Where the numbers hold.
        at: Bias and width at x_o itself. There each interval holds by itself.
        near_truths, near_draws: Some true parameters near x_o and draws of q at the same x, in
            standard deviations of q around its mean there, with shape (o, t, m).
    """

    names: tuple[str, ...]
    table: Mapping[str, Interval]
    near: np.ndarray
    n: int
    draws: int
    expected_width: np.ndarray
    share: float | None
    scope: str
    at: "Bounds | None" = None
    near_truths: np.ndarray | None = None
    near_draws: np.ndarray | None = None

    def __getattr__(self, name: str) -> np.ndarray:
        kind, _, part = name.rpartition("_")
        if part not in ("lower", "upper"):
            kind, part = name, "value"
        table = vars(self).get("table", {})
        if kind not in table:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        array: np.ndarray = getattr(table[kind], part)
        return array

    def __len__(self) -> int:
        return len(self.near)

    @cached_property
    def rows(self) -> tuple[tuple[Row, ...], ...]:
        """All rows at each observation, the worst first, without those that cannot be told."""
        return tuple(
            tuple(rows_of({kind: each.row(i) for kind, each in self.table.items()}, self.names))
            for i in range(len(self))
        )

    @cached_property
    def wrong(self) -> tuple[tuple[Row, ...], ...]:
        """The rows that are wrong at each observation, the worst first."""
        return tuple(tuple(row for row in rows if row.wrong) for rows in self.rows)

    def within(self, tolerance: float = 0.5) -> np.ndarray:
        """Whether all means and widths are right within a tolerance, (o,).

        A mean within so many standard deviations of q, a width within a factor of one and so much.
        Never with one draw of q at each x, from which errors of widths appear smaller.
        """
        tolerance = check_number("tolerance", tolerance)
        return np.asarray((self._sizes(tolerance) <= 1).all(1) & (self.draws > 1))

    def pairs_for(self, tolerance: float = 0.5) -> np.ndarray:
        """About how many simulations settle whether q is right within the tolerance, (o,).

        Intervals are then so narrow that they lie within the tolerance if q is right, most likely.
        """
        tolerance = check_number("tolerance", tolerance)
        bias = (self.bias_upper - self.bias_lower) / (2 * tolerance)
        width = np.log(self.width_upper / self.width_lower) / 2
        width = np.maximum(width, self.expected_width) / math.log1p(tolerance)
        largest = np.concatenate([bias, width], 1).max(1) / SETTLED
        return Nearest(self.share).simulations_for(self.n, np.maximum(1, np.square(largest)))

    def without(self, which: np.ndarray) -> "Bounds":
        """The same with NaN at some observations (o,), of which nothing is said."""

        def hidden(part: np.ndarray) -> np.ndarray:
            return np.where(which.reshape(-1, *[1] * (part.ndim - 1)), np.nan, part)

        return replace(
            self,
            table={kind: numbers.map(hidden) for kind, numbers in self.table.items()},
            at=None if self.at is None else self.at.without(which),
            near_truths=None if self.near_truths is None else hidden(self.near_truths),
            near_draws=None if self.near_draws is None else hidden(self.near_draws),
        )

    def _sizes(self, tolerance: float) -> np.ndarray:
        """The farthest ends of means and widths over the tolerance, (o, 2 m)."""
        ends = (self.bias_lower, self.bias_upper, self.width_lower, self.width_upper)
        low, high, narrow, wide = ends
        bias = np.maximum(-low, high) / tolerance
        width = np.maximum(-np.log(narrow), np.log(wide)) / math.log1p(tolerance)
        # What cannot be told is within no tolerance; a parameter that is constant has no width.
        return np.nan_to_num(np.concatenate([bias, width], 1), nan=np.inf)


@dataclass(frozen=True, eq=False)
class NearSets:
    """The n sets near x_o, in units of a scale of q given x that is smooth in x.

    Args:
        error: Mean of the k draws less the true parameter, (n, m).
        square: Its square, (n, m).
        covariance: Covariances of the draws within the set, (n, m, m).
        truths: True parameters less the mean of k - 1 draws, (n, m).
        draws: Draws, each less the mean of the k - 1 others, (n, k, m).
        coordinates: In which nearness is measured, (n, e).
        weights: Of the sets, (n,); they sum to one.
    """

    error: np.ndarray
    square: np.ndarray
    covariance: np.ndarray
    truths: np.ndarray
    draws: np.ndarray
    coordinates: Tensor
    weights: np.ndarray

    @classmethod
    def of(cls, members: Tensor, coordinates: Tensor, weights: Tensor) -> "NearSets":
        """From members (n, 1 + k, m), the true parameter first, and weights (n,)."""
        truth, draws = members[:, 0].numpy(), members[:, 1:].numpy()
        k, nearest = draws.shape[1], nearest_sets(coordinates.numpy())
        if k > 1:
            centre = draws.mean(1)
            others = (k * centre[:, None] - draws) / (k - 1)
            apart = draws - centre[:, None]
        else:
            # One draw is measured from a smooth mean of draws at other x, which dilutes errors.
            centre = draws[nearest, 0].mean(1)
            others = centre[:, None]
            apart = draws - others
        covariance = np.einsum("nkj,nkl->njl", apart, apart) / max(1, k - 1)
        scale = np.sqrt(np.einsum("njj->nj", covariance)[nearest].mean(1))
        scale = np.where(scale > 0, scale, np.nan)
        error = (draws.mean(1) - truth) / scale
        truths, draws = (truth - others[:, -1]) / scale, (draws - others) / scale[:, None]
        return cls(
            error=error,
            square=error**2 if k > 1 else truths**2 + draws[:, 0] ** 2,
            covariance=covariance / (scale[:, :, None] * scale[:, None]),
            truths=truths,
            draws=draws,
            coordinates=coordinates,
            weights=(weights / weights.sum()).numpy(),
        )

    @property
    def k(self) -> int:
        """The number of draws of q at each x."""
        return self.draws.shape[1]

    @property
    def variance(self) -> np.ndarray:
        """Variances of the draws within the set, (n, m)."""
        return np.einsum("njj->nj", self.covariance)

    def picture(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Some true parameters and draws of q beside them, both (t, m), for pictures."""
        step = 1 + len(self.truths) // max(1, most)
        draws = self.draws[::step, :PICTURED].reshape(-1, self.draws.shape[2])
        return self.truths[::step], draws

    @property
    def worth(self) -> float:
        """How many sets of equal weight these are worth."""
        return float(1 / np.square(self.weights).sum())


def nearest_sets(coordinates: np.ndarray) -> np.ndarray:
    """The sets that are nearest to each of n, without itself, (n, SCALED)."""
    n, count = len(coordinates), min(SCALED, len(coordinates) - 1)
    found = scipy.spatial.cKDTree(coordinates).query(coordinates, count + 1)[1]
    itself = found == np.arange(n)[:, None]
    # Among many at the same place, a set may not find itself: then the last one goes.
    itself[~itself.any(1), -1] = True
    return np.asarray(found[~itself].reshape(n, count))


class Estimate(NamedTuple):
    """Numbers (r,), their standard errors, and how far bootstrap samples are from them (B, r)."""

    value: np.ndarray
    error: np.ndarray
    deviations: np.ndarray  # in standard errors

    def interval(self, critical: float | np.ndarray) -> Interval:
        """The interval of so many standard errors; NaN where it has no ends."""
        half = critical * self.error
        half = np.where(np.isfinite(half), half, np.nan)
        return Interval(self.value, self.value - half, self.value + half)


@lru_cache(maxsize=4)
def weightings(n: int, seed: int) -> np.ndarray:
    """How often each of n sets is drawn in each bootstrap sample, less one, (B, n)."""
    chance = np.random.default_rng([seed, n])
    return chance.multinomial(n, np.full(n, 1 / n), size=BOOTSTRAP) - 1.0


def simultaneous(estimates: Sequence[Estimate]) -> float:
    """So many standard errors contain all deviations together with the probability held.

    Not fewer than one number by itself needs: shares of 0 and 1 do not vary in the bootstrap.
    """
    deviations = np.concatenate([np.abs(each.deviations) for each in estimates], 1)
    known = np.concatenate([np.isfinite(each.error) for each in estimates])
    largest = np.nan_to_num(deviations[:, known], nan=np.inf).max(1, initial=0.0)
    alone = -float(scipy.special.ndtri((1 - HELD) / 2))
    return max(alone, float(np.quantile(largest, HELD, method="higher")))


def linear(
    value: np.ndarray, influence: np.ndarray, weights: np.ndarray, moves: np.ndarray
) -> Estimate:
    """An estimate of r numbers from the influence (n, r) that each set has on them."""
    pulls = weights[:, None] * influence
    error = np.sqrt(np.square(pulls).sum(0) * len(weights) / (len(weights) - 1))
    error = np.where(error > TINY, error, np.nan)
    return Estimate(value, error, moves @ pulls / error)


def rows_near(sets: NearSets, seed: int) -> tuple[Table, np.ndarray]:
    """All rows near x_o, by kind, and half-widths (m,) expected of those of log widths."""
    m, moves = sets.error.shape[1], weightings(len(sets.error), seed)
    moments, slopes = bias_and_width(sets, sets.weights, None, moves), mean_slopes(sets, moves)
    decides = simultaneous([moments, slopes])
    shapes, related = shape_differences(sets, moves), correlations(sets, moves)
    inside = coverages(sets, moves)
    explains = simultaneous([shapes, related[0], inside])
    skewness, tails = (shapes.interval(explains).reshape(2, m).row(i) for i in (0, 1))
    tail = 2 * scipy.special.ndtr(-explains)
    ends = clopper_pearson(np.nan_to_num(inside.value), sets.worth, tail)
    ends = np.where(np.isfinite(inside.value), ends, np.nan)
    covered = Interval(inside.value, *ends).reshape(m + 1, len(LEVELS))
    table = {
        **_bias_and_width(moments.interval(decides)),
        "slope": slopes.interval(decides).reshape(m, -1),
        "skewness": skewness,
        "tails": tails,
        "correlation": _in_correlations(related, explains, m),
        "coverage": covered.row(slice(m)),
        "region_coverage": covered.row(m),
    }
    return table, decides * expected_width_error(sets)


def rows_at(sets: NearSets, centre: Tensor, seed: int) -> Table:
    """Bias and width at x_o itself, each interval by itself."""
    fit = local_quadratic(sets.coordinates, centre, sets.weights)
    moments = bias_and_width(sets, fit[1][0], fit, weightings(len(sets.error), seed))
    deviations = np.nan_to_num(np.abs(moments.deviations), nan=np.inf)
    critical = np.quantile(deviations, HELD, axis=0, method="higher")
    return _bias_and_width(moments.interval(critical))


def _bias_and_width(both: Interval) -> Table:
    bias, log_width = (both.reshape(2, -1).row(i) for i in (0, 1))
    return {"bias": bias, "width": log_width.map(np.exp)}


def bias_and_width(
    sets: NearSets,
    weights: np.ndarray,
    fit: tuple[np.ndarray, np.ndarray] | None,
    moves: np.ndarray,
) -> Estimate:
    """Biases and log widths, (2 m,), with studentised deviations.

    Args:
        sets: The sets near x_o.
        weights: Of the sets, (n,).
        fit: Design (n, p) and coefficients (p, n) of a fit of values; their weighted mean if None.
        moves: The bootstrap's weightings, (B, n).
    """
    columns = np.stack([sets.error, sets.square, sets.variance], 2)  # (n, m, 3)
    n, m, _ = columns.shape
    means = np.einsum("n,njc->jc", weights, columns)
    if fit is None:
        residuals = (columns - means) / (1 - weights)[:, None, None]
    else:
        design, solve = fit
        fitted = (design @ (solve @ columns.reshape(n, -1))).reshape(columns.shape)
        leverage = np.clip((design * solve.T).sum(1), 0, 0.9)
        residuals = (columns - fitted) / (1 - leverage)[:, None, None]
    products = (residuals[..., None] * residuals[..., None, :]).reshape(n, -1)
    without_own = 1 - np.square(weights).sum()

    def studentise(means: np.ndarray, products: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Values and errors (..., 2 m) from means (..., m, 3) and their covariances (..., 9 m)."""
        b, square, spread = np.moveaxis(means, -1, 0)
        covariance = products.reshape(*means.shape, 3)
        rest = (square - b**2) / without_own - spread / sets.k  # V
        spread, rest = (np.where(part > 0, part, np.nan) for part in (spread, rest))
        root, zero = np.sqrt(spread), np.zeros_like(b)
        gradients = (
            np.stack([1 / root, zero, -b / (2 * root**3)], -1),
            np.stack([2 * b, -1 + zero, without_own / sets.k + zero], -1)
            / (2 * without_own * rest[..., None])
            + np.stack([zero, zero, 1 / (2 * spread)], -1),
        )
        bias_error, width_error = (
            np.sqrt(((covariance * each[..., None, :]).sum(-1) * each).sum(-1))
            for each in gradients
        )
        # The log of an estimated variance is too small by half of its relative variance.
        log_width = np.log(spread / rest) / 2 - width_error**2
        values = np.concatenate([b / root, log_width], -1)
        return values, np.concatenate([bias_error, width_error], -1)

    products *= np.square(weights)[:, None]
    value, error = studentise(means, products.sum(0))
    pulls = weights[:, None] * residuals.reshape(n, -1)
    moved = means + (moves @ pulls).reshape(-1, m, 3)
    values, errors = studentise(moved, products.sum(0) + moves @ products)
    deviations = (values - value) / errors
    if fit is None:
        # Otherwise one number that is hardly known would widen the intervals of all.
        error = np.where(np.isfinite(deviations).mean(0) < 1 - UNDEFINED, np.nan, error)
    return Estimate(value, error, deviations)


def expected_width_error(sets: NearSets) -> np.ndarray:
    """Standard errors (m,) of log widths if true parameters were distributed as draws are."""
    square, fourth = (
        np.einsum("n,nkj->j", sets.weights, sets.draws**power) / sets.k for power in (2, 4)
    )
    with np.errstate(invalid="ignore"):
        kurtosis = fourth / np.where(square > 0, square, np.nan) ** 2
    return np.asarray(np.sqrt(np.maximum(kurtosis - 1, 0) / sets.worth) / 2)


def mean_slopes(sets: NearSets, moves: np.ndarray) -> Estimate:
    """How the bias changes with the leading coordinates of x near x_o, (m c,)."""
    w = sets.weights
    u = principal_coordinates(sets.coordinates, MOST_SLOPES).numpy()
    u = u - w @ u
    u = u / np.sqrt(np.maximum(w @ u**2, TINY))
    root = np.sqrt(w @ sets.variance)
    e = (sets.error - w @ sets.error) / root
    slope = np.einsum("n,nc,nj->jc", w, u, e)
    influence = u[:, None] * (e[..., None] - slope * u[:, None])
    return linear(slope.ravel(), influence.reshape(len(w), -1), w, moves)


def shape_differences(sets: NearSets, moves: np.ndarray) -> Estimate:
    """Skewness and tails of q less those of the true parameters, (2 m,)."""
    w, (_, k, m) = sets.weights, sets.draws.shape
    if k < FEWEST_FOR_QUANTILES:
        return unknown(2 * m, moves)
    parts = []
    for values in (sets.draws, sets.truths[:, None]):
        flat, each = values.reshape(-1, m), np.repeat(w, values.shape[1])
        around = np.stack([QUANTILES, QUANTILES - AROUND, QUANTILES + AROUND])
        at, below, above = weighted_quantiles(flat, each, around.ravel()).reshape(3, -1, m)
        slowness = (above - below) / (2 * AROUND[:, None])  # one over the density
        share = (values[:, :, None] <= at).mean(1)  # (n, 5, m)
        influence = (QUANTILES[:, None] - share) * np.where(slowness > 0, slowness, np.nan)
        parts.append((skewness_and_tails(at), skewness_and_tails(at, influence)))
    (of_q, moved_q), (of_truth, moved_truth) = parts
    return linear(of_q - of_truth, moved_q - moved_truth, w, moves)


def skewness_and_tails(quantiles: np.ndarray, moved: np.ndarray | None = None) -> np.ndarray:
    """Skewness and log ratio of ranges (2 m,) from quantiles (5, m).

    With moves of the quantiles (n, 5, m), how much these numbers move, (n, 2 m).
    """
    low, lower, middle, upper, high = quantiles
    # Of few values, quantiles may be the same.
    outer, inner = (np.where(part > 0, part, np.nan) for part in (high - low, upper - lower))
    with np.errstate(divide="ignore", invalid="ignore"):
        skewness = (high + low - 2 * middle) / outer
        if moved is None:
            return np.concatenate([skewness, np.log(outer / inner)])
        low, lower, middle, upper, high = np.moveaxis(moved, 1, 0)
        first = ((1 - skewness) * high + (1 + skewness) * low - 2 * middle) / outer
        return np.concatenate([first, (high - low) / outer - (upper - lower) / inner], 1)


def weighted_quantiles(values: np.ndarray, weights: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles (l, m) of columns (n, m) with weights (n,) that sum to more than nothing."""
    order = values.argsort(0)
    total = weights[order].cumsum(0)
    middles = (total - weights[order] / 2) / total[-1]
    ordered = np.take_along_axis(values, order, 0)
    pairs = zip(middles.T, ordered.T, strict=True)
    return np.stack([np.interp(levels, at, column) for at, column in pairs], 1)


def correlations(sets: NearSets, moves: np.ndarray) -> tuple[Estimate, np.ndarray]:
    """Fisher's z of q's correlations less the true ones, (p,) over pairs; and q's own z (p,)."""
    w, m = sets.weights, sets.error.shape[1]
    first, second = np.triu_indices(m, 1)
    if not 1 < m <= MOST_PAIRED or sets.k == 1:
        return unknown(len(first), moves), np.full(len(first), np.nan)
    e = sets.error - w @ sets.error
    own = sets.covariance
    rest = e[:, :, None] * e[:, None] / (1 - np.square(w).sum()) - own / sets.k
    found = []
    for each in (own, rest):
        total = np.einsum("n,njl->jl", w, each)
        scale = np.sqrt(np.where(np.diag(total) > 0, np.diag(total), np.nan))
        each = each / (scale[:, None] * scale)
        r = np.einsum("n,njl->jl", w, each)[first, second]
        r = np.where(np.abs(r) < 1 - 1e-6, r, np.nan)
        squares = np.einsum("njj->nj", each)
        influence = each[:, first, second] - r / 2 * (squares[:, first] + squares[:, second])
        found.append((np.arctanh(r), influence / (1 - r**2)))
    (z, moved), (true_z, true_moved) = found
    return linear(z - true_z, moved - true_moved, w, moves), z


def _in_correlations(related: tuple[Estimate, np.ndarray], critical: float, m: int) -> Interval:
    """Intervals (m, m) of q's correlations less the true ones; zero for a parameter itself."""
    difference, z = related[0].interval(critical), related[1]
    first, second = np.triu_indices(m, 1)

    def square(values: np.ndarray) -> np.ndarray:
        table = np.where(np.eye(m) > 0, 0.0, np.nan)
        table[first, second] = table[second, first] = np.tanh(z) - np.tanh(z - values)
        return table

    return difference.map(square)


def coverages(sets: NearSets, moves: np.ndarray) -> Estimate:
    """Shares of true parameters in intervals of q, and in regions last, (3 (m + 1),)."""
    w, (n, k, m) = sets.weights, sets.draws.shape
    if k < FEWEST_FOR_QUANTILES:
        return unknown(3 * (m + 1), moves)
    flat, each, levels = sets.draws.reshape(-1, m), np.repeat(w, k), np.array(LEVELS)
    lower, upper = (weighted_quantiles(flat, each, (1 + side * levels) / 2) for side in (-1, 1))
    total = np.einsum("n,njl->jl", w, sets.covariance)
    metric = np.linalg.pinv(np.nan_to_num(total))
    lengths, own = (
        np.einsum("...j,jl,...l->...", part, metric, part, optimize=True)
        for part in map(np.nan_to_num, (sets.truths, sets.draws))
    )
    radius = weighted_quantiles(own.reshape(-1, 1), each, levels)

    def held(values: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Whether values (..., m) with squared lengths (...) are inside, (..., m + 1, 3)."""
        inside = (values[..., None] >= lower.T) & (values[..., None] <= upper.T)
        return np.concatenate([inside, (length[..., None] <= radius.T)[..., None, :]], -2)

    truths, draws = held(sets.truths, lengths).astype(float), held(sets.draws, own)
    share = np.einsum("n,njl->jl", w, truths)
    # With ties, intervals of q hold more of q than they should: then nothing can be told.
    of_q = np.einsum("n,nkjl->jl", w, draws) / k
    constant = np.append(np.isnan(sets.error).any(0), False)
    share = np.where((np.abs(of_q - levels) > TIES) | constant[:, None], np.nan, share)
    chance = np.sqrt(levels * (1 - levels) / sets.worth) + 0 * share
    pulls = (w[:, None, None] * (truths - share)).reshape(n, -1)
    return Estimate(share.ravel(), chance.ravel(), moves @ pulls / chance.ravel())


def unknown(count: int, moves: np.ndarray) -> Estimate:
    """Numbers that cannot be told."""
    nothing = np.full(count, np.nan)
    return Estimate(nothing, nothing, np.full((len(moves), count), np.nan))

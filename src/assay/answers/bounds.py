r"""How far is q from the true parameters near x_o? Simultaneous intervals.

True parameters are compared with draws of q **at the same x**. In units of a scale of q, let
:math:`e_i` be the mean of the k draws at :math:`x_i` less the true parameter, :math:`s_i^2` the
variance of the draws, and :math:`w_i` weights that sum to one; *at* x_o those of a local fit:

.. math:: S = \sum_i w_i s_i^2, \qquad b = \sum_i w_i e_i, \qquad
    V = \frac{\sum_i w_i e_i^2 - b^2}{1 - \sum_i w_i^2} - \frac{S}{k} .

Then q's mean is :math:`b / \sqrt S` of its standard deviations too high, and q is
:math:`\sqrt{S / V}` times too wide. Intervals come from a bootstrap over sets (a true parameter
with the draws at its x). References: Hall 1992, *The Bootstrap and Edgeworth Expansion*; Romano
and Wolf 2005, *Exact and Approximate Stepdown Methods*, whose first step this is; Clopper and
Pearson 1934 for coverage.
"""

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.spatial
import scipy.special
import torch
from torch import Tensor

from .._support.inputs import cpu, full_precision
from .._support.random import Seed, seed_of, stream
from .._support.work import available_threads, one_thread, progress, spread_over
from ..data.guards import check_calibration
from ..neighbourhood import Nearest, local_quadratic, principal_coordinates
from ..results import LEVELS, clopper_pearson
from .rows import Bounds

if TYPE_CHECKING:
    from ..data.calibration import Calibration

BOOTSTRAP, CONFIDENCE = 1000, 0.95
UNDEFINED = 0.01  # no interval for numbers that more bootstrap samples than this cannot estimate
SCALE_SETS, BASE_DRAWS = 30, 16  # nearest sets for the scale of q; draws of the base at each x
FEWEST_FOR_QUANTILES = 4  # draws at each x; widths and correlations need two
MOST_SLOPES, MOST_PAIRED = 3, 60  # coordinates of x with slopes; parameters with correlations
# Quantiles behind skewness and tails; steps to both sides from which densities are taken; and the
# asymmetry around the median, the outer and the inner range, as sums of them.
QUANTILES, STEPS = np.array([0.05, 0.25, 0.5, 0.75, 0.95]), np.array([0.04, 0.1, 0.1, 0.1, 0.04])
CONTRASTS = np.array([[1.0, 0, -2, 0, 1], [-1, 0, 0, 0, 1], [0, -1, 0, 1, 0]])
TIES = 0.02  # how much more of q than they should intervals may hold, where draws have ties
# For pictures: true parameters near x_o, numbers of them, and draws beside each, at most.
MOST_TRUTHS, MOST_NUMBERS, MOST_DRAWS = 400, 4_000_000, 4
TINY, FARTHEST_LOG_WIDTH = 1e-12, 50.0


@full_precision()
@one_thread()
def bounds(
    calibration: "Calibration", x_o: Any, near: float | Nearest | None = None, seed: Seed = 0
) -> Bounds:
    """Bounds how far q is from the true parameters near x_o, and at x_o itself.

    Args:
        calibration: Pairs with k draws of q at each x: one is enough for means, two for widths
            and correlations, four for all. Latents are compared with draws of their base.
        x_o: One observation (...,) or many (o, ...).
        near: What is near x_o: a share of the simulations, or :class:`assay.Nearest`.
        seed: An int or a generator. The same seed gives the same intervals.

    Returns:
        Numbers with simultaneous intervals for every parameter and every pair of them.

    Example:
        >>> theta, noise, *z = torch.randn(18, 2000, 1, generator=torch.Generator().manual_seed(0))
        >>> x, z = theta + noise, torch.stack(z, 1)
        >>> wide = assay.Calibration(theta, x, x[:, None] / 2 + z, names=["mu"])  # 1, not 0.7
        >>> found = bounds(wide, [0.0])
        >>> found.wrong[0][0].sentence, found.bias.shape
        ('q is 1... times too wide in mu (1... to 1...)', (1, 1))
    """
    check_calibration(calibration)
    features = calibration.features, calibration.observation(x_o).features
    near, seed = calibration.nearest(near), seed_of(seed)
    if calibration.plain_draws is None:
        members = calibration.sets(BASE_DRAWS, stream(seed, "base"))
    else:  # simulated around x_o: draws in their sets were chosen, but all were kept beside them
        members = torch.cat([calibration.theta[:, None], calibration.plain_draws], 1)
    weights = cpu.ones(len(members)) if calibration.weights is None else calibration.weights
    coordinates, centres, members, weights = (
        part.double().cpu() for part in (*near.coordinates(*features), members, weights)
    )
    inside, count = near.inside(*features).cpu(), near.count(len(members))
    most = max(1, min(MOST_TRUTHS, MOST_NUMBERS // (len(centres) * calibration.m)))
    some = slice(0, count, math.ceil(count / most))

    def bound(i: int) -> tuple[dict[str, Any], ...]:
        sets = NearSets(members[inside[i]], coordinates[inside[i]], weights[inside[i]], seed)
        table, expected_width = numbers_near(sets)
        sizes = {"near": np.array(sets.worth), "expected_width": expected_width}
        truths, draws = sets.truths[some], sets.draws[some, :MOST_DRAWS].reshape(-1, sets.m)
        pictures = {"near_truths": np.float32(truths), "near_draws": np.float32(draws)}
        return table, numbers_at(sets, centres[i]), sizes, pictures

    with spread_over(min(available_threads(), len(inside))) as apply:
        found = list(progress(apply(bound, range(len(inside))), "bounding", total=len(inside)))
    stacked: list[dict[str, Any]] = [
        {name: np.stack([each[name] for each in parts]) for name in parts[0]}
        for parts in zip(*found, strict=True)
    ]
    table, at, sizes, pictures = stacked
    sizes |= {"n": len(calibration), "draws": members.shape[1] - 1, "share": near.share}
    here = Bounds(names=calibration.parameter_names, table=at, **sizes)
    return replace(here, table=table, at=here, **pictures)


class Estimate(NamedTuple):
    """Numbers with standard errors, both (...), and deviations of bootstrap samples, (B, ...)."""

    value: np.ndarray
    error: np.ndarray
    deviations: np.ndarray  # in standard errors

    def interval(self, critical: float | np.ndarray) -> np.ndarray:
        """The numbers and both ends of intervals of so many standard errors, (3, ...)."""
        half = critical * self.error
        half = np.where(np.isfinite(half), half, np.nan)
        return np.stack([self.value, self.value - half, self.value + half])


def unknown(*shape: int) -> Estimate:
    """Numbers that cannot be estimated."""
    nothing = np.full(shape, np.nan)
    return Estimate(nothing, nothing, np.broadcast_to(nothing, (BOOTSTRAP, *shape)))


def critical_value(*estimates: Estimate) -> float:
    """How many standard errors the intervals of a family reach, so that they hold together."""
    deviations = [each.deviations[:, np.isfinite(each.error)] for each in estimates]
    sizes = np.nan_to_num(np.abs(np.concatenate(deviations, 1)), nan=np.inf)
    largest = sizes.max(1, initial=0.0)
    # Not fewer than a single number needs: shares of 0 and 1 do not vary in the bootstrap.
    alone = -float(scipy.special.ndtri((1 - CONFIDENCE) / 2))
    return max(alone, float(np.quantile(largest, CONFIDENCE, method="higher")))


class NearSets:
    """The n sets near x_o, in units of a scale of q given x that is smooth in x."""

    def __init__(self, members: Tensor, coordinates: Tensor, weights: Tensor, seed: int) -> None:
        """From members (n, 1 + k, m), true ones first, coordinates (n, e) and weights (n,)."""
        truth, draws = members[:, 0].numpy(), members[:, 1:].numpy()
        self.n, self.k, self.m = n, k, _ = draws.shape
        self.coordinates, self.bootstrap = coordinates, bootstrap_samples(n, seed)
        self.weights = w = (weights / weights.sum()).numpy()
        self.worth = float(1 / np.square(w).sum())  # so many sets of equal weight
        nearest = nearest_sets(coordinates.numpy())
        # A single draw is measured from the mean of draws at other x, which dilutes errors.
        centre = draws.mean(1) if k > 1 else draws[nearest, 0].mean(1)
        # For each draw the mean of all others at its x.
        others = (k * centre[:, None] - draws) / (k - 1) if k > 1 else centre[:, None]
        apart = draws - centre[:, None]
        covariance = np.einsum("nkj,nkl->njl", apart, apart) / max(1, k - 1)
        scale = np.sqrt(np.einsum("njj->nj", covariance)[nearest].mean(1))
        # Where all draws of the nearest sets are the same, the scale is that of all sets.
        pooled = np.sqrt(np.square(scale).mean(0))
        scale = np.where(scale > 0, scale, np.where(pooled > 0, pooled, np.nan))
        # Covariances (n, m, m) and variances (n, m) of the draws in each set.
        self.covariance = covariance / (scale[:, :, None] * scale[:, None])
        self.variance = np.einsum("njj->nj", self.covariance)
        # True parameters (n, m) and draws (n, k, m), both less the mean of k - 1 draws of their
        # set, so that they have the same distribution if q is right.
        self.truths = (truth - others[:, -1]) / scale
        self.draws = (draws - others) / scale[:, None]
        # e, the mean of the draws less the true parameter, and e^2, (n, m). With a single draw e^2
        # is the sum of both squares: the mean of their product is zero.
        self.offset = (draws.mean(1) - truth) / scale
        self.square = self.offset**2 if k > 1 else self.truths**2 + self.draws[:, 0] ** 2
        # The error of the log width that one true parameter gives, if it is distributed as draws.
        square, fourth = (np.einsum("n,nkj->j", w, self.draws**power) / k for power in (2, 4))
        kurtosis = fourth / np.where(square > 0, square, np.nan) ** 2
        self.width_error = np.sqrt(np.maximum(kurtosis - 1, 0)) / 2  # (m,)

    def comparable_truths(self) -> np.ndarray:
        """True parameters with as much noise of q's mean in them as draws have, (n, m)."""
        # Both are less the mean of k - 1 draws, whose variance is S / (k - 1): if q is too wide, a
        # larger part of the variance V of true parameters than of that of draws, S.
        w, k = self.weights, self.k
        mean, s = w @ self.truths, w @ self.variance
        v = (w @ self.square - (w @ self.offset) ** 2) / (1 - 1 / self.worth) - s / k
        v = np.maximum(v, 0)
        own = np.sqrt(v / np.maximum(v + s / (k - 1), TINY))
        return np.asarray((mean + (self.truths - mean) * own) * math.sqrt(k / (k - 1)))

    def estimate(self, value: np.ndarray, influence: np.ndarray) -> Estimate:
        """Numbers (...) from the influence (n, ...) of each set."""
        pulls = np.einsum("n,n...->n...", self.weights, influence)
        squares = np.square(pulls).sum(0)
        squares = np.where(squares > TINY**2, squares, np.nan)  # unknown without variation
        error = np.sqrt(squares * self.n / (self.n - 1))
        # The error is itself estimated. This factor turns normal quantiles near 2.7 into those of
        # Student, with degrees of freedom two over the relative variance of the sum of squares.
        # Deviations keep the plain error.
        inflated = error * (1 + np.power(pulls, 4).sum(0) / squares**2 - 1 / self.n)
        return Estimate(value, inflated, np.tensordot(self.bootstrap, pulls, 1) / error)


def nearest_sets(coordinates: np.ndarray) -> np.ndarray:
    """The sets that are nearest to each of n, without itself, (n, SCALE_SETS)."""
    n, count = len(coordinates), min(SCALE_SETS, len(coordinates) - 1)
    found = scipy.spatial.cKDTree(coordinates).query(coordinates, count + 1)[1]
    itself = found == np.arange(n)[:, None]
    # Among many at the same place, a set may not find itself: then the last one goes.
    itself[~itself.any(1), -1] = True
    return np.asarray(found[~itself].reshape(n, count))


@lru_cache(maxsize=4)
def bootstrap_samples(n: int, seed: int) -> np.ndarray:
    """How often each of n sets is in each bootstrap sample, less one, (B, n)."""
    chance = np.random.default_rng([seed, n])
    return chance.multinomial(n, np.full(n, 1 / n), size=BOOTSTRAP) - 1.0


def numbers_near(sets: NearSets) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """By kind numbers near x_o with ends, (3, ...), and half-widths (m,) if widths are right."""
    moments = bias_and_width(sets, np.ones((sets.n, 1)), sets.weights[None])
    # One number that is hardly known would widen the intervals of all.
    known = np.isfinite(moments.deviations).mean(0) >= 1 - UNDEFINED
    moments = moments._replace(error=np.where(known, moments.error, np.nan))
    slopes = mean_slopes(sets)
    critical = critical_value(moments, slopes)
    table = bias_and_factor(moments, critical) | {"slope": slopes.interval(critical)}
    wrong_width = (table["width"][1] > 1) | (table["width"][2] < 1)
    shapes, shares = shape_differences(sets), coverages(sets, wrong_width)
    z_difference, z = correlations(sets)
    critical_of_others = critical_value(shapes, z_difference, shares)
    # A wrong width leaves more of the noise of q's mean in one of both shapes than in the other.
    shape = np.where(wrong_width, np.nan, shapes.interval(critical_of_others))  # (3, 2, m)
    table |= {"skewness": shape[:, 0], "tails": shape[:, 1]}
    correlation = np.tanh(z) - np.tanh(z - z_difference.interval(critical_of_others))
    table["correlation"] = np.where(np.eye(sets.m) > 0, 0.0, correlation)
    tail = 2 * scipy.special.ndtr(-critical_of_others)
    ends = clopper_pearson(np.nan_to_num(shares.value), sets.worth, tail)
    share = np.where(np.isfinite(shares.value), [shares.value, *ends], np.nan)  # (3, m + 1, 3)
    table |= {"coverage": share[:, :-1], "region_coverage": share[:, -1]}
    return table, critical * sets.width_error / math.sqrt(sets.worth)


def numbers_at(sets: NearSets, centre: Tensor) -> dict[str, np.ndarray]:
    """Bias and width at x_o itself, each interval by itself."""
    design, projection = local_quadratic(sets.coordinates, centre, sets.weights)
    moments = bias_and_width(sets, design, projection)
    # Of few sets the errors of widths are hardly known: they are at least those that draws have.
    least = sets.width_error * np.linalg.norm(projection[0])
    moments.error[1] = np.maximum(moments.error[1], least)
    sizes = np.nan_to_num(np.abs(moments.deviations), nan=np.inf)
    return bias_and_factor(moments, np.quantile(sizes, CONFIDENCE, axis=0, method="higher"))


def bias_and_factor(moments: Estimate, critical: float | np.ndarray) -> dict[str, np.ndarray]:
    """Biases and widths with the ends of their intervals, from biases and log widths."""
    bias, log_width = moments.interval(critical).swapaxes(0, 1)
    possible = np.abs(log_width) < FARTHEST_LOG_WIDTH
    return {"bias": bias, "width": np.exp(np.where(possible, log_width, np.nan))}


def bias_and_width(sets: NearSets, design: np.ndarray, projection: np.ndarray) -> Estimate:
    """Biases and log widths, (2, m), by a regression: a design (n, p) and a projection (p, n)."""
    values, k = np.stack([sets.offset, sets.square, sets.variance]), sets.k
    coefficients, weights = projection @ values, projection[0]  # (3, p, m) and (n,)
    # Residuals over 1 - leverage, which a set that is fitted almost alone must not blow up.
    leverage = np.clip((design * projection.T).sum(1), 0, 0.9)
    pulls = (values - design @ coefficients) * (weights / (1 - leverage))[:, None]
    products = pulls[:, None] * pulls  # (3, 3, n, m)
    without_own = 1 - np.square(weights).sum()
    samples = np.vstack([np.zeros(sets.n), sets.bootstrap])  # the first one is the data
    b, square, s = coefficients[:, :1] + samples @ pulls  # (1 + B, m) each
    covariance = products.sum(2, keepdims=True) + samples @ products  # (3, 3, 1 + B, m)
    v = (square - b**2) / without_own - s / k
    s, v = (np.where(part > 0, part, np.nan) for part in (s, v))
    twice = 2 * without_own * v
    of_bias = [1 / np.sqrt(s), 0 * b, -b / (2 * s**1.5)]
    of_log_width = [2 * b / twice, -1 / twice, 1 / (2 * s) + 1 / (2 * k * v)]
    gradient = np.array([of_bias, of_log_width])  # in b, square and s: (2, 3, 1 + B, m)
    error = np.sqrt(np.einsum("pibm,ijbm,pjbm->pbm", gradient, covariance, gradient))
    # The log of an estimated variance is too small by half of its relative variance.
    found = np.stack([b / np.sqrt(s), np.log(s / v) / 2 - error[1] ** 2])
    deviations = (found[:, 1:] - found[:, :1]) / error[:, 1:]  # each by its own sample's error
    return Estimate(found[:, 0], error[:, 0], deviations.swapaxes(0, 1))


def mean_slopes(sets: NearSets) -> Estimate:
    """How the bias changes with the leading coordinates of x near x_o, (m, c)."""
    w = sets.weights
    u = principal_coordinates(sets.coordinates, MOST_SLOPES).numpy()
    u = u - w @ u
    u = (u / np.sqrt(np.maximum(w @ u**2, TINY)))[:, None]  # (n, 1, c)
    e = ((sets.offset - w @ sets.offset) / np.sqrt(w @ sets.variance))[:, :, None]  # (n, m, 1)
    slope = np.einsum("n,njc->jc", w, e * u)
    return sets.estimate(slope, (e - slope * u) * u)


def shape_differences(sets: NearSets) -> Estimate:
    """Skewness and tails of q less those of the true parameters, (2, m)."""
    if sets.k < FEWEST_FOR_QUANTILES:
        return unknown(2, sets.m)
    of_q, influence_q = skewness_and_tails(sets.draws, sets.weights)
    of_truth, influence_truth = skewness_and_tails(sets.truths[:, None], sets.weights)
    return sets.estimate(of_q - of_truth, influence_q - influence_truth)


def skewness_and_tails(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Skewness and log ratio of ranges (2, m) of values (n, k, m), and the influence (n, 2, m)."""
    levels = np.concatenate([QUANTILES, QUANTILES - STEPS, QUANTILES + STEPS])
    quantiles, below, above = np.split(weighted_quantiles(values, weights, levels), 3)
    # The influence on a quantile is the level less the share below it, over the density.
    one_over_density = (above - below) / (2 * STEPS[:, None])
    one_over_density = np.where(one_over_density > 0, one_over_density, np.nan)
    share = (values[:, :, None] <= quantiles).mean(1)  # (n, 5, m)
    influence = (QUANTILES[:, None] - share) * one_over_density
    asymmetry, *ranges = CONTRASTS @ quantiles
    outer, inner = np.where(np.greater(ranges, 0), ranges, np.nan)  # of few values, quantiles tie
    skewness, tails = asymmetry / outer, np.log(outer / inner)
    on_asymmetry, on_outer, on_inner = (CONTRASTS @ influence).swapaxes(0, 1)
    on_skewness = (on_asymmetry - skewness * on_outer) / outer
    on_tails = on_outer / outer - on_inner / inner
    return np.stack([skewness, tails]), np.stack([on_skewness, on_tails], 1)


def weighted_quantiles(values: np.ndarray, weights: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """Quantiles (l, m) of values (n, k, m) with weights (n,) of the sets."""
    flat, each = values.reshape(-1, values.shape[2]), np.repeat(weights, values.shape[1])
    order = flat.argsort(0)
    total = each[order].cumsum(0)
    below = (total - each[order] / 2) / total[-1]
    pairs = zip(below.T, np.take_along_axis(flat, order, 0).T, strict=True)
    return np.stack([np.interp(levels, share, column) for share, column in pairs], 1)


def correlations(sets: NearSets) -> tuple[Estimate, np.ndarray]:
    """Fisher's z of q's correlations less the true ones, and q's own z, both (m, m)."""
    w, m, own = sets.weights, sets.m, sets.covariance
    if m > MOST_PAIRED or sets.k == 1:
        return unknown(m, m), np.full((m, m), np.nan)
    e = sets.offset - w @ sets.offset
    true = e[:, :, None] * e[:, None] / (1 - 1 / sets.worth) - own / sets.k
    parts = []
    for covariance in (own, true):
        variance = w @ np.einsum("njj->nj", covariance)
        scale = np.sqrt(np.where(variance > 0, variance, np.nan))
        scaled = covariance / np.outer(scale, scale)
        r = np.einsum("n,njl->jl", w, scaled)
        r = np.where(np.abs(r) < 1 - 1e-6, r, np.nan)
        squares = np.einsum("njj->nj", scaled)
        influence = scaled - r / 2 * (squares[:, :, None] + squares[:, None])
        parts.append((np.arctanh(r), influence / (1 - r**2)))
    (z, influence), (true_z, true_influence) = parts
    return sets.estimate(z - true_z, influence - true_influence), z


def coverages(sets: NearSets, wrong_width: np.ndarray) -> Estimate:
    """Shares of true parameters in intervals of q, and in its ellipsoids last, (m + 1, 3)."""
    w, levels = sets.weights, np.array(LEVELS)
    if sets.k < FEWEST_FOR_QUANTILES:
        return unknown(sets.m + 1, len(levels))
    truths = np.where(wrong_width, sets.comparable_truths(), sets.truths)
    members = np.concatenate([truths[:, None], sets.draws], 1)  # (n, 1 + k, m)
    metric = np.linalg.pinv(np.nan_to_num(np.einsum("n,njl->jl", w, sets.covariance)))
    finite = np.nan_to_num(members)
    length = np.einsum("nij,jl,nil->ni", finite, metric, finite, optimize=True)
    members = np.concatenate([members, length[..., None]], 2)  # (n, 1 + k, m + 1)
    both_ends = np.concatenate([(1 - levels) / 2, (1 + levels) / 2, levels])
    lower, upper, radius = np.split(weighted_quantiles(members[:, 1:], w, both_ends).T, 3, 1)
    lower[-1], upper[-1] = -np.inf, radius[-1]  # all are (m + 1, 3)
    inside = (members[..., None] >= lower) & (members[..., None] <= upper)
    share_q = np.einsum("n,nkjl->jl", w, inside[:, 1:]) / sets.k
    # With ties, intervals of q hold more of q than they should: then nothing is known.
    known = (np.abs(share_q - levels) <= TIES) & ~np.isnan(members[:, 0]).any(0)[:, None]
    share = np.where(known, np.einsum("n,njl->jl", w, inside[:, 0]), np.nan)
    error = np.where(known, np.sqrt(levels * (1 - levels) / sets.worth), np.nan)
    pulls = w[:, None, None] * (inside[:, 0] - share)
    return Estimate(share, error, np.tensordot(sets.bootstrap, pulls, 1) / error)

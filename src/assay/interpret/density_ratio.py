r"""What a density ratio says of q at x_o: steady estimates from weights with heavy tails.

A classifier's ratio :math:`w = d / (1 - d)` is :math:`p / q`: means under p are means of draws of
q with weights w. **Weights are smoothed.** The largest M of a sample are replaced by the expected
order statistics of a generalised Pareto distribution that is fitted to them, and none may exceed
the largest weight there was. Its shape :math:`\hat k` says how far importance sampling can be
trusted: below 0.5 variances exist, above 0.7 estimates are unreliable at any sample size of
practice. **Numbers have two bands.** That of the null is what ratios of null copies give; the
stated one is made to hold the true value, with the spread of the nulls, a jackknife over draws,
and what a classifier may miss.

References: Vehtari, Simpson, Gelman, Yao and Gabry 2024, *Pareto Smoothed Importance Sampling*;
Zhang and Stephens 2009, *A New and Efficient Estimation Method for the Generalized Pareto
Distribution*.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.stats

from ..results import LEVELS, Rowed, rows_of

# Shapes up to which importance sampling is reliable.
RELIABLE = 0.7
# Fewer tail weights than this are left as they are.
FEWEST_TAIL = 5


def pareto_smoothed(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Smoothed weights (h, s) with mean one, and shapes (h,) of their tails, from weights (h, s).

    Weights that are all alike have no tail; they are left as they are, with shape 0.

    Example:
        >>> ratios = np.exp(np.random.default_rng(0).standard_normal((1, 4000)))
        >>> weights, shape = pareto_smoothed(ratios)
        >>> bool(weights.max() < ratios.max() / ratios.mean() + 1e-9), bool(shape[0] < 0.7)
        (True, True)
    """
    h, s = weights.shape
    smoothed, shapes = np.array(weights, float), np.zeros(h)
    count = math.ceil(min(0.2 * s, 3 * math.sqrt(s)))
    order = np.argsort(smoothed, axis=1, kind="stable")[:, s - count - 1 :]
    tails = np.take_along_axis(smoothed, order, 1)
    excess = tails[:, 1:] - tails[:, :1]
    # The fit looks at the first quartile of what exceeds the threshold.
    known = excess[:, _quartile(count)] > 1e-9 * tails[:, -1]
    if count >= FEWEST_TAIL and known.any():
        shape, scale = pareto_fit(excess[known])
        p = (np.arange(count) + 0.5) / count
        smooth = tails[known, :1] + _quantiles(p, shape[:, None], scale[:, None])
        smooth = np.minimum(smooth, tails[known, -1:])
        part = smoothed[known]
        np.put_along_axis(part, order[known, 1:], smooth, 1)
        smoothed[known], shapes[known] = part, shape
    return smoothed / smoothed.mean(1, keepdims=True), shapes


def pareto_fit(excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Shapes k and scales (h,) of generalised Pareto distributions, from sorted excesses (h, n).

    An empirical Bayes estimate: the likelihood is profiled in :math:`b = -k / \sigma` and averaged
    over a grid; k is then drawn to 0.5 with the weight of ten observations, as in Vehtari et al.
    2024, appendix C.
    """
    n = excess.shape[1]
    size = 30 + math.floor(math.sqrt(n))
    grid = 1 - np.sqrt(size / (np.arange(size) + 0.5))
    quartile = excess[:, _quartile(n), None]
    b = 1 / excess[:, -1:] + grid / (3 * quartile)
    profile = np.log1p(-b[..., None] * excess[:, None]).mean(2)
    likelihood = n * (np.log(-b / profile) - profile - 1)
    chances = np.exp(likelihood - likelihood.max(1, keepdims=True))
    b = (b * chances).sum(1) / chances.sum(1)
    shape = np.log1p(-b[:, None] * excess).mean(1)
    return (n * shape + 5) / (n + 10), -shape / b


def _quartile(n: int) -> int:
    return max(0, math.floor(n / 4 + 0.5) - 1)


def _quantiles(p: np.ndarray, shape: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Quantiles of generalised Pareto distributions; exponential ones where the shape is zero."""
    exponential = -np.log1p(-p)
    safe = np.where(np.abs(shape) < 1e-8, 1.0, shape)
    powers = np.expm1(safe * exponential) / safe
    return np.asarray(scale * np.where(np.abs(shape) < 1e-8, exponential, powers))


# Probabilities below and above these cannot be told from 0 and 1: no calibration of a usual size
# shows a truth to be a hundred times as likely as a draw of q there, but least squares may say so.
LEAST, MOST = 1e-4, 0.99
# Groups of draws of the jackknife.
GROUPS = 20
# The spread of the nulls is that of a fit to noise; a fit that has found something is less steady.
STEADINESS = 1.5
# The share of a log-ratio, or of an effect, that a classifier may miss.
MISSED = 0.15
TITLES = {
    "total_variation": "total variation",
    "kl_pq": "KL(p || q)",
    "kl_qp": "KL(q || p)",
    "chi_square": "chi-square",
    "ess": "ESS share",
}
# Plug-in estimates that noise makes worse, whatever the truth.
DIVERGENCES = tuple(TITLES)
# What may be any number is not here.
RANGES = {
    **dict.fromkeys(("intervals", "region", "total_variation", "ess"), (0.0, 1.0)),
    **dict.fromkeys(("dispersion", "kl_pq", "kl_qp", "chi_square"), (0.0, math.inf)),
}


@dataclass(frozen=True, eq=False)
class Estimate(Rowed):
    """Numbers with what noise alone would make of them; all fields have the same shape.

    Args:
        value: The estimate.
        lower, upper: Ends of the stated band, made to hold the true value 95 times in 100.
        null_mean: What is found on average if q is right.
        null_lower, null_upper: What is exceeded 97.5 and 2.5 times in 100 if q is right.
        wrong: Whether the estimate is farther out than noise would bring any of the numbers of its
            family, 95 times in 100.
        at, at_lower, at_upper: The same at x_o, where the others are averages near it; else None.
        varies: Whether the error changes near x_o by more than noise; None where at is.
        pvalue: The p-value of the claim, corrected for all claims and sizes; None where at is.

    What is not identifiable is NaN; its interval then says the direction, where that is known.
    """

    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    null_mean: np.ndarray
    null_lower: np.ndarray
    null_upper: np.ndarray
    wrong: np.ndarray
    at: np.ndarray | None = None
    at_lower: np.ndarray | None = None
    at_upper: np.ndarray | None = None
    varies: np.ndarray | None = None
    pvalue: np.ndarray | None = None

    @property
    def excess(self) -> np.ndarray:
        """What is left when the mean of the null is taken away."""
        return np.asarray(self.value - self.null_mean)

    @property
    def outside(self) -> np.ndarray:
        """Whether the estimate lies outside its null band."""
        return np.asarray((self.value < self.null_lower) | (self.value > self.null_upper))

    def claimed_at(self, which: np.ndarray) -> "Estimate":
        """The same with errors claimed at some observations (o,) only."""
        there = which.reshape(which.shape + (1,) * (self.wrong.ndim - which.ndim))
        varies = None if self.varies is None else self.varies & there
        return replace(self, wrong=self.wrong & there, varies=varies)

    def rows(self) -> Iterator[dict[str, float]]:
        """One row of a table for each number."""
        columns = {"estimate": self.value, "lower": self.lower, "upper": self.upper}
        columns |= {"null 2.5 %": self.null_lower, "null 97.5 %": self.null_upper}
        columns["excess"] = self.excess
        there = {"at x_o": self.at, "at lower": self.at_lower, "at upper": self.at_upper}
        columns |= {name: values for name, values in there.items() if values is not None}
        yield from rows_of({name: np.ravel(values) for name, values in columns.items()})


@dataclass(frozen=True, eq=False)
class Weighted:
    """Estimates by name at one observation, smoothed weights (s,) and the shape of their tail."""

    estimates: dict[str, Estimate]
    weights: np.ndarray
    khat: np.ndarray


def weighted(
    probabilities: np.ndarray,
    null: np.ndarray,
    theta: np.ndarray,
    draws: np.ndarray,
    exponent: float = 1.0,
) -> Weighted:
    """Estimates at one observation, from probabilities (s,) and those of null copies (H, s).

    The draws (s, m) come in the units that are reported and in the space of the test. All ratios,
    those of nulls as well, are raised to the power `exponent`.
    """
    d = np.concatenate([probabilities[None], null]).astype(float).clip(LEAST, MOST)
    weights, khat = pareto_smoothed((d / (1 - d)) ** exponent)
    noisy, _ = pareto_smoothed(weights[:1] * weights[1:])
    sample = _Sample.of(theta.astype(float), draws.astype(float))
    bent = weights[0] ** np.array([[1 - MISSED], [1 + MISSED]])
    bent = bent / bent.mean(1, keepdims=True)
    numbers, spread, missed = (sample.numbers(w) for w in (weights, noisy, bent))
    chance = _jackknife(sample, weights[:1])
    halves = {k: _half_width(numbers[k], spread[k], missed[k], chance[k]) for k in numbers}
    wrong = _beyond({k: v for k, v in numbers.items() if k not in DIVERGENCES})
    estimates = {k: _estimate(k, numbers[k], half, wrong.get(k)) for k, half in halves.items()}
    return Weighted(estimates, weights[0], khat[0])


@dataclass(frozen=True, eq=False)
class _Sample:
    """Draws (s, m) of q, and distances (s,) in their mean and covariance in the test's space."""

    theta: np.ndarray
    distances: np.ndarray

    @classmethod
    def of(cls, theta: np.ndarray, draws: np.ndarray) -> "_Sample":
        centred = draws - draws.mean(0)
        scale = centred.std(0)
        if not ((scale > 0).all() and (theta.std(0) > 0).all()):
            raise ValueError(
                "result: expected draws that vary in every parameter; got a constant."
            )
        white = centred / scale
        # Directions without variation have no say.
        precision = np.linalg.pinv(np.cov(white, rowvar=False).reshape(2 * scale.shape))
        return cls(theta, np.einsum("si,ij,sj->s", white, precision, white))

    def without(self, group: slice) -> "_Sample":
        return _Sample(np.delete(self.theta, group, 0), np.delete(self.distances, group, 0))

    def numbers(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """All numbers, with a leading axis h, from weights (h, s) of mean one."""
        h, (s, m) = len(weights), self.theta.shape
        scale = self.theta.std(0)
        # Without some of the draws a parameter of few values may not vary.
        scale = np.where(scale > 0, scale, 1)
        z = (self.theta - self.theta.mean(0)) / scale
        mean, square = weights @ z / s, weights @ z**2 / s
        inverse = np.square(weights).mean(1)
        # A weighted variance is too small by the share of one effective draw.
        variance = (square - mean**2) / (1 - np.minimum(inverse / s, 0.5))[:, None]
        inside = (weights @ self._inside.reshape(s, -1) / s).reshape(h, m + 1, len(LEVELS))
        logs = np.log(weights)
        return {
            "bias": -mean,
            "dispersion": 1 / np.sqrt(variance.clip(1e-12)),
            "intervals": inside[:, :m],
            "region": inside[:, m],
            "total_variation": 0.5 * np.abs(weights - 1).mean(1),
            "kl_pq": (weights * logs).mean(1),
            "kl_qp": -logs.mean(1),
            "chi_square": inverse - 1,
            "ess": 1 / inverse,
        }

    @cached_property
    def _inside(self) -> np.ndarray:
        """Whether draws are inside intervals and, last, regions of q, with shape (s, m + 1, l)."""
        levels = np.array(LEVELS)
        table = np.column_stack([self.theta, self.distances])
        edges = np.quantile(table, np.concatenate([(1 - levels) / 2, (1 + levels) / 2, levels]), 0)
        lower, upper, radii = np.split(edges.T, 3, axis=1)
        lower[-1], upper[-1] = -np.inf, radii[-1]
        rows = table[..., None]
        return np.asarray((rows >= lower) & (rows <= upper), float)


def _jackknife(sample: _Sample, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Variances of numbers that finitely many draws cause, from weights (1, s); Tukey 1958.

    Groups serve quantiles too: Shao and Wu 1989, *A general theory for jackknife variance
    estimation*.
    """
    replicates = []
    for i in range(GROUPS):
        group = slice(i, None, GROUPS)
        rest = np.delete(weights, group, 1)
        replicates.append(sample.without(group).numbers(rest / rest.mean()))
    factor = (GROUPS - 1) ** 2 / GROUPS
    each = {k: [one[k][0] for one in replicates] for k in replicates[0]}
    return {k: factor * np.var(values, axis=0, ddof=1) for k, values in each.items()}


def _half_width(
    numbers: np.ndarray, noisy: np.ndarray, bent: np.ndarray, chance: np.ndarray
) -> np.ndarray:
    """Half the width of the stated band, from numbers (H + 1, ...) of data, first, and nulls.

    Those of the data come with the noise of each null copy on top (H, ...), with smaller and with
    larger log-ratios (2, ...), and with their variances (...) due to finitely many draws.
    """
    spread = STEADINESS**2 * noisy.var(0, ddof=1) + chance
    effect = np.abs(numbers[0] - numbers[1:].mean(0))
    missed = np.maximum(np.abs(bent[1] - bent[0]) / 2, MISSED * effect)
    quantile = scipy.stats.t.ppf(0.975, len(noisy) - 1)
    return np.asarray(quantile * np.sqrt(spread + missed**2))


def _estimate(
    name: str, numbers: np.ndarray, half: np.ndarray, wrong: np.ndarray | None
) -> Estimate:
    """An estimate; the band of a divergence spans what noise adds to it, on average over nulls."""
    value, null = numbers[0], numbers[1:]
    mean = null.mean(0)
    low, high = np.quantile(null, [0.025, 0.975], axis=0)
    least, most = RANGES.get(name, (-math.inf, math.inf))
    added = mean - (1.0 if name == "ess" else 0.0) if name in DIVERGENCES else np.zeros(())
    lower, upper = value - half - np.maximum(added, 0), value + half - np.minimum(added, 0)
    if wrong is None:
        wrong = value < low if name == "ess" else value > high
    lower, upper = np.clip(lower, least, most), np.clip(upper, least, most)
    return Estimate(value, lower, upper, mean, low, high, wrong)


def _beyond(numbers: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Whether numbers of the data, first of (H + 1, ...), are farther out than in 95 % of copies.

    Distances are in units of the pointwise quantiles on either side, as for an envelope of curves
    (Myllymäki et al. 2017); data and nulls enter alike, so that a right q has any number called
    wrong at most 5 times in 100.
    """
    flat = np.concatenate([v.reshape(len(v), -1) for v in numbers.values()], 1)
    centre = flat.mean(0)
    low, high = np.quantile(flat, [0.025, 0.975], axis=0)
    above, below = (np.where(d > 1e-12, d, np.inf) for d in (high - centre, centre - low))
    moves = flat - centre
    excursions = np.maximum(moves / above, -moves / below)
    largest, count = np.sort(excursions.max(1)), len(flat)
    edge = largest[max(0, count - 1 - math.floor(0.05 * count + 1e-9))]
    # Nothing inside its own null band is called wrong.
    null_low, null_high = np.quantile(flat[1:], [0.025, 0.975], axis=0)
    wrong = (excursions[0] > edge) & ((flat[0] < null_low) | (flat[0] > null_high))
    ends = np.cumsum([v[0].size for v in numbers.values()])[:-1]
    parts = zip(numbers.items(), np.split(wrong, ends), strict=True)
    return {k: part.reshape(v.shape[1:]) for (k, v), part in parts}

r"""Ratios: what the weights of a classifier at draws of q say about the truth, and how surely.

With :math:`d(\theta_i)` at draws of q at x_o, the weights :math:`w_i \propto d_i / (1 - d_i)`
estimate :math:`p / q`, and means with them are means under the truth. Every null copy is weighted
by the same function; what it finds is noise.

A **null band** holds 95 % of the null copies: what lies inside is noise. A **stated band** is made
to hold the true value. The noise of a fit acts on log-ratios, and null copies show how much of it
there is at each draw: so the data's weights are multiplied by those of every null copy in turn,
and the spread of what is found then is the spread of the estimate, which grows with the error as
it should. To it are added the noise of finitely many draws, by the grouped jackknife, and what a
classifier may miss, by weights :math:`w^{1 \pm \gamma}`.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import scipy.stats

from .pareto import smoothed
from .results import LEVELS, _freeze

__all__ = ["DIVERGENCES", "Estimate", "Weighted", "weighted"]

# Probabilities below and above these cannot be told from 0 and 1: no calibration of a usual size
# shows a truth to be a hundred times as likely as a draw of q there, but least squares may say so.
LEAST, MOST = 1e-4, 0.99
# Groups of draws of the jackknife.
GROUPS = 20
# The spread of the nulls is that of a fit to noise; a fit that has found something is less steady.
STEADINESS = 1.5
# The share of a log-ratio, or of an effect, that a classifier may miss.
MISSED = 0.15
# Plug-in estimates that noise makes worse, whatever the truth.
DIVERGENCES = ("total_variation", "kl_pq", "kl_qp", "chi_square", "ess")
RANGES = {
    "dispersion": (0.0, math.inf),
    "intervals": (0.0, 1.0),
    "region": (0.0, 1.0),
    "total_variation": (0.0, 1.0),
    "kl_pq": (0.0, math.inf),
    "kl_qp": (0.0, math.inf),
    "chi_square": (0.0, math.inf),
    "ess": (0.0, 1.0),
}


@dataclass(frozen=True, eq=False)
class Estimate:
    """Numbers with what noise alone would make of them; all fields have the same shape.

    Args:
        value: The estimate.
        lower: Lower end of the stated band, made to hold the true value 95 times in 100.
        upper: Upper end of the stated band.
        null_mean: What is found on average if q is right.
        null_lower: What is exceeded 97.5 times in 100 if q is right.
        null_upper: What is exceeded 2.5 times in 100 if q is right.
        wrong: Whether the estimate is farther out than noise would bring any of the numbers of its
            family, 95 times in 100; no number inside its null band is.
    """

    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    null_mean: np.ndarray
    null_lower: np.ndarray
    null_upper: np.ndarray
    wrong: np.ndarray

    def __post_init__(self) -> None:
        _freeze(self)

    @property
    def excess(self) -> np.ndarray:
        """What is left when the mean of the null is taken away."""
        return np.asarray(self.value - self.null_mean)

    @property
    def outside(self) -> np.ndarray:
        """Whether the estimate lies outside its null band."""
        return np.asarray((self.value < self.null_lower) | (self.value > self.null_upper))

    def __getitem__(self, which: Any) -> "Estimate":
        return Estimate(**{f.name: getattr(self, f.name)[which] for f in fields(self)})

    def rows(self) -> Iterator[dict[str, float]]:
        """One row of a table for each number."""
        columns = {
            "estimate": self.value,
            "lower": self.lower,
            "upper": self.upper,
            "null 2.5 %": self.null_lower,
            "null 97.5 %": self.null_upper,
            "excess": self.excess,
        }
        for values in zip(*(np.ravel(c) for c in columns.values()), strict=True):
            yield dict(zip(columns, map(float, values), strict=True))


@dataclass(frozen=True, eq=False)
class Weighted:
    """What weights say at one observation.

    Args:
        estimates: Estimates by their names, as in :class:`assay.effects.Effects`.
        weights: The data's smoothed weights of mean one, with shape (s,).
        khat: The shape of their tail, with shape ().
    """

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
    """Estimates, weights and the shape of their tail, at one observation.

    Args:
        probabilities: Those of the data, with shape (s,).
        null: Those of the null copies, with shape (H, s).
        theta: The draws in the units that are reported, with shape (s, m).
        draws: The draws in the space of the test, with shape (s, m).
        exponent: The power to which ratios are raised, those of nulls as well.
    """
    d = np.concatenate([probabilities[None], null]).astype(float)
    d = d.clip(LEAST, MOST)
    weights, khat = smoothed((d / (1 - d)) ** exponent)
    noisy, _ = smoothed(weights[:1] * weights[1:])
    sample = _Sample.of(theta.astype(float), draws.astype(float))
    bent = weights[0] ** np.array([[1 - MISSED], [1 + MISSED]])
    bent = bent / bent.mean(1, keepdims=True)
    numbers, spread, missed = (sample.numbers(w) for w in (weights, noisy, bent))
    chance = _jackknife(sample, weights[:1])
    halves = {k: _half_width(numbers[k], spread[k], missed[k], chance[k]) for k in numbers}
    wrong = _beyond({k: v for k, v in numbers.items() if k not in DIVERGENCES})
    found = {k: _estimate(k, numbers[k], half, wrong.get(k)) for k, half in halves.items()}
    return Weighted(found, weights[0], khat[0])


@dataclass(frozen=True, eq=False)
class _Sample:
    """Draws of q and its regions.

    Args:
        theta: The draws, with shape (s, m).
        distances: Their distances in their own mean and covariance, in the space of the test (s,).
    """

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
        # Directions without variation have no say.
        precision = np.linalg.pinv(np.cov(centred / scale, rowvar=False).reshape(2 * scale.shape))
        white = centred / scale
        return cls(theta, np.einsum("si,ij,sj->s", white, precision, white))

    def without(self, group: slice) -> "_Sample":
        """The sample without every GROUPS-th draw."""
        return _Sample(np.delete(self.theta, group, 0), np.delete(self.distances, group, 0))

    def numbers(self, weights: np.ndarray) -> dict[str, np.ndarray]:
        """All numbers, with a leading axis h, from weights (h, s) of mean one."""
        h, (s, m) = len(weights), self.theta.shape
        scale = self.theta.std(0)
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
    """Variances of numbers that finitely many draws cause, from weights (1, s).

    References:
        Tukey 1958; Shao and Wu 1989, *A general theory for jackknife variance estimation*, for
        groups, which serve quantiles too.
    """
    found = []
    for i in range(GROUPS):
        group = slice(i, None, GROUPS)
        rest = np.delete(weights, group, 1)
        found.append(sample.without(group).numbers(rest / rest.mean()))
    factor = (GROUPS - 1) ** 2 / GROUPS
    return {k: factor * np.var([one[k][0] for one in found], axis=0, ddof=1) for k in found[0]}


def _half_width(
    numbers: np.ndarray, noisy: np.ndarray, bent: np.ndarray, chance: np.ndarray
) -> np.ndarray:
    """Half the width of the stated band.

    Args:
        numbers: Those of the data, first, and of the null copies, with shape (H + 1, ...).
        noisy: Those of the data with the noise of each null copy on top, with shape (H, ...).
        bent: Those of the data with smaller and with larger log-ratios, with shape (2, ...).
        chance: Variances due to finitely many draws, with shape (...).
    """
    spread = STEADINESS**2 * noisy.var(0, ddof=1) + chance
    effect = np.abs(numbers[0] - numbers[1:].mean(0))
    missed = np.maximum(np.abs(bent[1] - bent[0]) / 2, MISSED * effect)
    quantile = scipy.stats.t.ppf(0.975, len(noisy) - 1)
    return np.asarray(quantile * np.sqrt(spread + missed**2))


def _estimate(
    name: str, numbers: np.ndarray, half: np.ndarray, wrong: np.ndarray | None
) -> Estimate:
    """An estimate with its bands.

    The band of a divergence also spans what noise has added to it, on average over the nulls.
    """
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
    """Whether numbers of the data are farther out than any are in 95 of 100 copies.

    Distances are in units of the pointwise quantiles on either side, as for an envelope of curves
    (Myllymäki et al. 2017); data and nulls enter alike, so that a right q has any number called
    wrong at most 5 times in 100.

    Args:
        numbers: Those of the data, first, and of the null copies, with shape (H + 1, ...).
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

r"""Pareto-smoothed importance weights: steady estimates from ratios with heavy tails.

The largest M weights of a sample are replaced by the expected order statistics of a generalised
Pareto distribution that is fitted to them, and none may exceed the largest weight there was. Its
shape :math:`\hat k` says how far importance sampling can be trusted: below 0.5 variances exist,
above 0.7 estimates are unreliable at any sample size of practice.

References: Vehtari, Simpson, Gelman, Yao and Gabry 2024, *Pareto Smoothed Importance Sampling*;
Zhang and Stephens 2009, *A New and Efficient Estimation Method for the Generalized Pareto
Distribution*.
"""

import math

import numpy as np

__all__ = ["RELIABLE", "pareto_fit", "smoothed"]

# Shapes up to which importance sampling is reliable.
RELIABLE = 0.7
# Fewer tail weights than this are left as they are.
FEWEST = 5


def smoothed(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Smoothed weights (h, s) with mean one, and shapes (h,) of their tails.

    Weights that are all alike have no tail; they are left as they are, with shape 0.

    Args:
        weights: Positive weights of h samples, with shape (h, s).

    Example:
        >>> ratios = np.exp(np.random.default_rng(0).standard_normal((1, 4000)))
        >>> weights, shape = smoothed(ratios)
        >>> bool(weights.max() < ratios.max() / ratios.mean() + 1e-9), bool(shape[0] < 0.7)
        (True, True)
    """
    h, s = weights.shape
    found, shapes = np.array(weights, float), np.zeros(h)
    count = math.ceil(min(0.2 * s, 3 * math.sqrt(s)))
    order = np.argsort(found, axis=1, kind="stable")[:, s - count - 1 :]
    tails = np.take_along_axis(found, order, 1)
    excess = tails[:, 1:] - tails[:, :1]
    # The fit looks at the first quartile of what exceeds the threshold.
    known = excess[:, _quartile(count)] > 1e-9 * tails[:, -1]
    if count >= FEWEST and known.any():
        shape, scale = pareto_fit(excess[known])
        p = (np.arange(count) + 0.5) / count
        smooth = tails[known, :1] + _quantiles(p, shape[:, None], scale[:, None])
        smooth = np.minimum(smooth, tails[known, -1:])
        part = found[known]
        np.put_along_axis(part, order[known, 1:], smooth, 1)
        found[known], shapes[known] = part, shape
    return found / found.mean(1, keepdims=True), shapes


def pareto_fit(excess: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Shapes k and scales of generalised Pareto distributions, by an empirical Bayes estimate.

    The likelihood is profiled in :math:`b = -k / \sigma` and averaged over a grid; k is then drawn
    to 0.5 with the weight of ten observations, as in Vehtari et al. 2024, appendix C.

    Args:
        excess: Sorted excesses over a threshold of h samples, with shape (h, n).
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
    found = np.expm1(safe * exponential) / safe
    return np.asarray(scale * np.where(np.abs(shape) < 1e-8, exponential, found))

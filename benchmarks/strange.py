"""Observations that are unlike the simulations: sixteen designs, each with its density.

A design samples simulations (n, d), makes an observation (d,) that is unlike them, and knows the
log-density of the simulations up to a constant: the oracle ranks x_o by it.
"""

import math
from collections.abc import Callable

import numpy as np
import scipy.special

Sample = Callable[[int, np.random.Generator], np.ndarray]
Strange = Callable[[np.random.Generator], np.ndarray]
LogDensity = Callable[[np.ndarray], np.ndarray]
Made = tuple[Sample, Strange, LogDensity]


def _normal_log(z: np.ndarray) -> np.ndarray:
    return -np.square(z) / 2


def _side(rng: np.random.Generator) -> float:
    return float(rng.choice([-1.0, 1.0]))


def one_feature(d: int, off: float) -> Made:
    """One of d independent features is so many standard deviations off."""

    def strange(rng: np.random.Generator) -> np.ndarray:
        x = rng.standard_normal(d)
        x[rng.integers(d)] = off * _side(rng)
        return x

    return lambda n, rng: rng.standard_normal((n, d)), strange, lambda x: _normal_log(x).sum(1)


def one_of_mixed(d: int = 30, off: float = 4.0) -> Made:
    """One of d features, which five hidden numbers make, is so many marginal deviations off."""
    mixing = np.random.default_rng(5).standard_normal((d, 5))
    covariance = mixing @ mixing.T + 0.49 * np.eye(d)
    precision, deviations = np.linalg.inv(covariance), np.sqrt(np.diag(covariance))

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((n, 5)) @ mixing.T + 0.7 * rng.standard_normal((n, d))

    def strange(rng: np.random.Generator) -> np.ndarray:
        x, j = sample(1, rng)[0], rng.integers(d)
        x[j] += off * deviations[j] * _side(rng)
        return x

    return sample, strange, lambda x: -np.einsum("ni,ij,nj->n", x, precision, x) / 2


def contradiction(d: int = 10, correlation: float = 0.9) -> Made:
    """The first feature contradicts four others; all are usual by themselves."""
    covariance = np.eye(d)
    covariance[:5, :5] = correlation
    np.fill_diagonal(covariance, 1)
    factor, precision = np.linalg.cholesky(covariance), np.linalg.inv(covariance)

    def strange(rng: np.random.Generator) -> np.ndarray:
        x = factor @ rng.standard_normal(d)
        x[1:5], x[0] = 1.2 + 0.2 * rng.standard_normal(4), -1.2
        return x

    return (
        lambda n, rng: rng.standard_normal((n, d)) @ factor.T,
        strange,
        lambda x: -np.einsum("ni,ij,nj->n", x, precision, x) / 2,
    )


def ring(d: int) -> Made:
    """The empty middle of a ring in two of d features."""

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        angle, radius = rng.uniform(0, 2 * np.pi, n), 2 + 0.2 * rng.standard_normal(n)
        x = rng.standard_normal((n, d))
        x[:, 0], x[:, 1] = radius * np.cos(angle), radius * np.sin(angle)
        return x

    def strange(rng: np.random.Generator) -> np.ndarray:
        x = rng.standard_normal(d)
        x[:2] = 0.1 * rng.standard_normal(2)
        return x

    def log_density(x: np.ndarray) -> np.ndarray:
        radius = np.hypot(x[:, 0], x[:, 1])
        return (
            _normal_log((radius - 2) / 0.2) - np.log(radius + 1e-9) + _normal_log(x[:, 2:]).sum(1)
        )

    return sample, strange, log_density


def surface(function: Callable[[np.ndarray], np.ndarray], d: int, off: float) -> Made:
    """Off a curved surface, which the third feature follows with deviation 0.15."""
    width = 0.15

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        x = rng.standard_normal((n, d))
        x[:, 2] = function(x) + width * x[:, 2]
        return x

    def strange(rng: np.random.Generator) -> np.ndarray:
        x = sample(1, rng)[0]
        x[2] += off * _side(rng)
        return x

    def log_density(x: np.ndarray) -> np.ndarray:
        others = _normal_log(np.delete(x, 2, 1)).sum(1)
        return _normal_log((x[:, 2] - function(x)) / width) + others

    return sample, strange, log_density


def too_wide(d: int = 10, times: float = 7.8) -> Made:
    """The second feature is too wide for the first, which its scale depends on."""

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        x = rng.standard_normal((n, d))
        x[:, 1] *= 0.3 * np.exp(x[:, 0])
        return x

    def strange(rng: np.random.Generator) -> np.ndarray:
        x = sample(1, rng)[0]
        x[0], x[1] = -1.2, times * 0.3 * math.exp(-1.2) * _side(rng)
        return x

    def log_density(x: np.ndarray) -> np.ndarray:
        own = _normal_log(x[:, 1] / (0.3 * np.exp(x[:, 0]))) - x[:, 0]
        return own + _normal_log(np.delete(x, 1, 1)).sum(1)

    return sample, strange, log_density


def gap(d: int = 5, at: float = 2.5) -> Made:
    """Between two modes of one feature."""

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        x = rng.standard_normal((n, d))
        x[:, 0] = at * rng.choice([-1, 1], n) + 0.5 * x[:, 0]
        return x

    def strange(rng: np.random.Generator) -> np.ndarray:
        x = rng.standard_normal(d)
        x[0] *= 0.1
        return x

    def log_density(x: np.ndarray) -> np.ndarray:
        modes = [_normal_log((x[:, 0] - side * at) / 0.5) for side in (-1, 1)]
        return np.logaddexp(*modes) + _normal_log(x[:, 1:]).sum(1)

    return sample, strange, log_density


def diagonal_gap(d: int = 4, at: float = 1.8) -> Made:
    """Between two modes that lie on a diagonal of two features."""

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        x = 0.6 * rng.standard_normal((n, d))
        x[:, :2] += (at * rng.choice([-1, 1], n))[:, None]
        return x

    def strange(rng: np.random.Generator) -> np.ndarray:
        x = 0.6 * rng.standard_normal(d)
        x[:2] = 0.1 * rng.standard_normal(2)
        return x

    def log_density(x: np.ndarray) -> np.ndarray:
        modes = [_normal_log((x[:, :2] - side * at) / 0.6).sum(1) for side in (-1, 1)]
        return np.logaddexp(*modes) + _normal_log(x[:, 2:] / 0.6).sum(1)

    return sample, strange, log_density


def dense(d: int = 20, times: float = 1.7) -> Made:
    """All features are a little too far out."""
    return (
        lambda n, rng: rng.standard_normal((n, d)),
        lambda rng: times * rng.standard_normal(d),
        lambda x: _normal_log(x).sum(1),
    )


def series(d: int = 50, rho: float = 0.9, jump: float = 3.0) -> Made:
    """One value of an autoregressive series jumps."""
    noise = math.sqrt(1 - rho**2)

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        x = rng.standard_normal((n, d))
        for i in range(1, d):
            x[:, i] = rho * x[:, i - 1] + noise * x[:, i]
        return x

    def strange(rng: np.random.Generator) -> np.ndarray:
        x = sample(1, rng)[0]
        x[rng.integers(5, d - 5)] += jump
        return x

    def log_density(x: np.ndarray) -> np.ndarray:
        steps = _normal_log((x[:, 1:] - rho * x[:, :-1]) / noise)
        return _normal_log(x[:, 0]) + steps.sum(1)

    return sample, strange, log_density


def heavy(d: int = 5) -> Made:
    """Two Cauchy features that belong together do not."""

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        x = rng.standard_cauchy((n, d))
        x[:, 1] = x[:, 0] + 0.3 * rng.standard_normal(n)
        return x

    def strange(rng: np.random.Generator) -> np.ndarray:
        x = sample(1, rng)[0]
        x[0] = np.clip(x[0], -2, 2)
        x[1] = x[0] + 1.8 * _side(rng)
        return x

    def log_density(x: np.ndarray) -> np.ndarray:
        others = np.log1p(np.square(np.delete(x, 1, 1))).sum(1)
        return _normal_log((x[:, 1] - x[:, 0]) / 0.3) - others

    return sample, strange, log_density


def counts(d: int = 6) -> Made:
    """One count is high though the others, which share its rate, are usual."""
    grid = np.linspace(-3.5, 3.5, 71)

    def strange(rng: np.random.Generator) -> np.ndarray:
        x = rng.poisson(3, d).astype(float)
        x[0] = 18
        return x

    def log_density(x: np.ndarray) -> np.ndarray:
        rates = 3 * np.exp(grid)
        joint = x.sum(1)[:, None] * np.log(rates) - d * rates - np.square(grid) / 2
        return np.logaddexp.reduce(joint, 1) - scipy.special.gammaln(x + 1).sum(1)

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        return rng.poisson(3 * np.exp(rng.standard_normal((n, 1))), (n, d)).astype(float)

    return sample, strange, log_density


STRANGE: dict[str, Made] = {
    "one of 10 features, 4 sd": one_feature(10, 4),
    "one of 10 features, 6 sd": one_feature(10, 6),
    "one of 30 mixed features, 4 sd": one_of_mixed(),
    "one of 100 features, 5 sd": one_feature(100, 5),
    "contradiction": contradiction(),
    "ring": ring(2),
    "ring among five": ring(5),
    "curve": surface(lambda x: np.sin(2 * x[:, 0]), 5, 0.6),
    "bowl": surface(lambda x: x[:, 0] ** 2 - x[:, 1], 6, 0.8),
    "saddle": surface(lambda x: x[:, 0] * x[:, 1], 6, 0.8),
    "too wide": too_wide(),
    "gap": gap(),
    "diagonal gap": diagonal_gap(),
    "all features": dense(),
    "series": series(),
    "heavy tails": heavy(),
    "counts": counts(),
}

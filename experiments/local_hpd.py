r"""Local HPD coverage as published: a network for each level and for each null.

For a level u of the truth (the share of draws of q with a higher density) and every alpha on a
grid, a classifier predicts :math:`1\{u \le \alpha\}` from x. The statistic at an observation is

.. math:: T(x_o) = \frac1g \sum_\alpha \left(\hat P(u \le \alpha \mid x_o) - \alpha\right)^2,

and its null is what the same networks find where levels are uniform, with the same x. A test of g
levels and H nulls costs (H + 1) g fits; :func:`assay.lhpd` asks the same without any.

In the published code the grid ends just below the largest level, so that it differs between data
and nulls (:func:`published_statistic`). In :func:`local_hpd` it is one and the same for all, and
the p-value counts the data among the nulls.

References: Zhao, Dalmasso, Izbicki and Lee 2021, *Diagnostics for Conditional Density Models and
Bayesian Inference Algorithms*; Linhart et al. 2023 for the network.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.neural_network import MLPClassifier

from assay.diagnostics.local.levels import Levels

__all__ = [
    "ALPHAS",
    "LocalHPD",
    "curves",
    "local_hpd",
    "network",
    "nulls",
    "published_statistic",
]

Array = NDArray[np.float64]
# The published grid has eleven levels from 0 to 1; at its ends there is nothing to tell.
ALPHAS = tuple(0.1 * i for i in range(1, 10))


def network() -> Any:
    """The published classifier: one hidden layer of a hundred units, without penalty."""
    return MLPClassifier(alpha=0, max_iter=25_000, random_state=0)


@dataclass(frozen=True, eq=False)
class LocalHPD:
    """What was found at o observations.

    Args:
        statistic: Mean squared distances of curves from the diagonal, (o,).
        null: The same of the nulls, (o, H).
        curves: Estimates of P(u <= alpha) of the data, (o, g).
    """

    statistic: Array
    null: Array
    curves: Array

    @property
    def pvalue(self) -> Array:
        """P-values (o,), which are never zero."""
        larger = (self.null >= self.statistic[:, None]).sum(1)
        return np.asarray((1 + larger) / (1 + self.null.shape[1]))


def local_hpd(
    levels: Levels,
    x_o: Array,
    n: int = 100,
    alphas: tuple[float, ...] = ALPHAS,
    make: Callable[[], Any] = network,
    seed: int = 0,
) -> LocalHPD:
    """Tests local coverage at observations as published.

    Args:
        levels: HPD levels u (n, 1) and observations x (n, d).
        x_o: The observations to test at, (o, d).
        n: The number of nulls.
        alphas: The levels at which curves are compared with the diagonal.
        make: Makes a scikit-learn classifier.
        seed: The seed of the nulls.
    """
    x, u = (part.cpu().double().numpy() for part in (levels.x, levels.u[:, 0]))
    found = curves(u, x, x_o, alphas, make)
    null = [curves(v, x, x_o, alphas, make) for v in nulls(len(u), n, seed)]
    each = np.stack([_statistic(one, alphas) for one in (found, *null)], 1)
    return LocalHPD(each[:, 0], each[:, 1:], found)


def nulls(size: int, n: int, seed: int) -> Array:
    """Uniform levels (n, size), as they are where q is right."""
    return np.random.default_rng(seed).random((n, size))


def curves(
    u: Array, x: Array, x_o: Array, alphas: tuple[float, ...], make: Callable[[], Any] = network
) -> Array:
    """Estimates (o, g) of P(u <= alpha | x_o), by a classifier for each alpha."""
    return np.stack([_probability(u <= alpha, x, x_o, make()) for alpha in alphas], 1)


def published_statistic(
    u: Array, x: Array, x_o: Array, make: Callable[[], Any] = network
) -> Array:
    """Statistics (o,) with eleven levels from 0 to just below the largest of u (n,)."""
    alphas = tuple(map(float, np.linspace(0, u.max() - 0.001, 11)))
    return _statistic(curves(u, x, x_o, alphas, make), alphas)


def _probability(below: NDArray[np.bool_], x: Array, x_o: Array, estimator: Any) -> Array:
    """Probabilities (o,) of lying below; where all do, or none, there is nothing to learn."""
    if below.all() or not below.any():
        return np.full(len(x_o), float(below[0]))
    found: Array = estimator.fit(x, below).predict_proba(x_o)[:, 1]
    return found


def _statistic(curve: Array, alphas: tuple[float, ...]) -> Array:
    distance: Array = np.square(curve - np.asarray(alphas)).mean(1)
    return distance

r"""Local HPD coverage as published: a network for each level and for each null.

For a level u of the truth (the share of draws of q with a higher density) and every alpha on a
grid, a classifier predicts :math:`1\{u \le \alpha\}` from x. The statistic at an observation is

.. math:: T(x_o) = \frac1g \sum_\alpha \left(\hat P(u \le \alpha \mid x_o) - \alpha\right)^2,

and its null is what the same networks find where levels are uniform, with the same x. A test of g
levels and H nulls costs (H + 1) g fits; :func:`assay.lhpd` asks the same without any.

In the published code the grid ends just below the largest level, so that it differs between data
and nulls.

References: Zhao, Dalmasso, Izbicki and Lee 2021, *Diagnostics for Conditional Density Models and
Bayesian Inference Algorithms*; Linhart et al. 2023 for the network.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from .networks import LEVELS, Batched, Classifier

__all__ = ["curves", "grid", "nulls", "published_statistics"]

Array = NDArray[np.float64]
# How many levels the published grid has.
COUNT = 11


def grid(u: Array) -> tuple[float, ...]:
    """Levels from 0 to just below the largest of u (n,)."""
    return tuple(map(float, np.linspace(0, u.max() - 0.001, COUNT)))


def nulls(size: int, n: int, seed: int) -> Array:
    """Uniform levels (n, size), as they are where q is right."""
    return np.random.default_rng(seed).random((n, size))


def curves(
    u: Sequence[Array],
    x: Array,
    x_o: Array,
    alphas: Sequence[Sequence[float]],
    classifier: Classifier = Batched(LEVELS),  # noqa: B008
) -> Array:
    """Estimates (h, o, g) of P(u <= alpha | x_o), by a network for each alpha of each copy.

    Where all levels lie below, or none does, there is nothing to learn.

    Args:
        u: Levels (n,) of each copy.
        x: Observations (n, d), the same for all.
        x_o: Observations (o, d) to ask at.
        alphas: As many levels (g,) of each copy.
        classifier: What is fitted.
    """
    below = np.stack([one <= a for one, some in zip(u, alphas, strict=True) for a in some])
    found = np.repeat(below[:, :1].astype(float), len(x_o), 1)
    both = np.flatnonzero(below.any(1) & ~below.all(1))
    inputs = torch.as_tensor(x, dtype=torch.float32).expand(len(both), -1, -1)
    at = torch.as_tensor(x_o, dtype=torch.float32)
    fitted = classifier.fit(inputs, torch.from_numpy(below[both]).long())
    for row, one in zip(both, fitted, strict=True):
        found[row] = one(at).numpy()
    return found.reshape(len(u), -1, len(x_o)).swapaxes(1, 2)


def published_statistics(
    u: Sequence[Array],
    x: Array,
    x_o: Array,
    classifier: Classifier = Batched(LEVELS),  # noqa: B008
) -> Array:
    """Statistics (h, o) of copies with levels (n,) at observations x (n, d)."""
    alphas = [grid(one) for one in u]
    curve = curves(u, x, x_o, alphas, classifier)
    statistic: Array = np.square(curve - np.array(alphas)[:, None]).mean(2)
    return statistic

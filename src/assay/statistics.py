r"""Statistics of a local test: how far the class probabilities at x_o are from 1/2.

All are functions of :math:`d_i = d(\theta_i, x_o)`, the probability of class 1 (the truth) at
draws :math:`\theta_i \sim q(\cdot \mid x_o)`, i.e. of class 0 alone; truths at x_o are not to be
had.
Large values speak against q.
"""

from collections.abc import Callable

import numpy as np

__all__ = ["Statistic", "acc0", "logit_variance", "max0", "mse0"]

Statistic = Callable[[np.ndarray], np.ndarray]


def mse0(probabilities: np.ndarray) -> np.ndarray:
    r"""The statistic of the paper, :math:`\frac{1}{s} \sum_i (d_i - \frac{1}{2})^2`.

    Zero if and only if q is right at x_o, for the Bayes classifier and s to infinity (Linhart et
    al. 2023, Theorem 3).

    Args:
        probabilities: Class probabilities, with shape (..., s).

    Example:
        >>> float(mse0(np.array([0.5, 0.75])))
        0.03125
    """
    return np.asarray(np.mean((_double(probabilities) - 0.5) ** 2, axis=-1))


def acc0(probabilities: np.ndarray) -> np.ndarray:
    r"""The one-class accuracy :math:`\frac{1}{s} \sum_i 1\{d_i < \frac{1}{2}\}`.

    Not sufficient: it can be 1/2, or below, for a q that is wrong (Figure 1 of the paper).

    Args:
        probabilities: Class probabilities, with shape (..., s).
    """
    return np.asarray(np.mean(_double(probabilities) < 0.5, axis=-1))


def max0(probabilities: np.ndarray) -> np.ndarray:
    r"""The mean confidence :math:`\frac{1}{s} \sum_i \max(d_i, 1 - d_i)`.

    Args:
        probabilities: Class probabilities, with shape (..., s).
    """
    d = _double(probabilities)
    return np.asarray(np.mean(np.maximum(d, 1 - d), axis=-1))


def logit_variance(probabilities: np.ndarray) -> np.ndarray:
    r"""The variance of :math:`g_i = \log d_i / (1 - d_i)` over draws of q, a centred statistic.

    :math:`g = \log p / q` up to a constant for the Bayes classifier, and p is proportional to q if
    and only if p = q. What the classifier adds to g for x alone, which is noise, drops out.

    Args:
        probabilities: Class probabilities, with shape (..., s).
    """
    d = np.clip(_double(probabilities), 1e-6, 1 - 1e-6)
    return np.asarray(np.var(np.log(d) - np.log1p(-d), axis=-1))


def _double(probabilities: np.ndarray) -> np.ndarray:
    return np.asarray(probabilities, dtype=np.float64)

r"""Statistics of a test: how far class probabilities are from 1/2, or how often they are right.

Those of a **local** test are functions of :math:`d_i = d(\theta_i, x_o)`, the probability of
class 1 (the truth) at draws :math:`\theta_i \sim q(\cdot \mid x_o)`, i.e. of class 0 alone; truths
at x_o are not to be had: :func:`mse0`, :func:`acc0`, :func:`max0`, :func:`logit_variance`.

Those of **two samples** are functions of the probabilities of class 1 at truths and at draws of q,
in this order; both samples have the same weight, whatever their sizes: :func:`accuracy`,
:func:`mse`, :func:`auc`, :func:`confidence`.

Large values speak against q.
"""

from collections.abc import Callable

import numpy as np

__all__ = [
    "Statistic",
    "TwoSample",
    "acc0",
    "accuracy",
    "auc",
    "confidence",
    "logit_variance",
    "max0",
    "mse",
    "mse0",
]

Statistic = Callable[[np.ndarray], np.ndarray]
TwoSample = Callable[[np.ndarray, np.ndarray], np.ndarray]


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
    r"""The one-class accuracy :math:`\frac{1}{s} \sum_i 1\{d_i < \frac{1}{2}\}`; 1/2 counts half.

    Not sufficient: it can be 1/2, or below, for a q that is wrong (Figure 1 of the paper).

    Args:
        probabilities: Class probabilities, with shape (..., s).
    """
    return np.asarray(np.mean(0.5 - 0.5 * np.sign(_double(probabilities) - 0.5), axis=-1))


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


def accuracy(truths: np.ndarray, draws: np.ndarray) -> np.ndarray:
    r"""The share of rows that are told rightly, with the same weight for both classes.

    .. math:: \tfrac{1}{2} P(d > \tfrac{1}{2} \mid \text{class } 1)
        + \tfrac{1}{2} P(d < \tfrac{1}{2} \mid \text{class } 0)

    For the Bayes classifier it is 1/2 + TV / 2, with the total variation between truth and q. A
    probability of exactly 1/2 counts half, as if a coin were thrown.

    Args:
        truths: Class probabilities at truths, with shape (..., s1).
        draws: Class probabilities at draws of q, with shape (..., s0).

    References:
        Lopez-Paz and Oquab 2017, *Revisiting classifier two-sample tests*.

    Example:
        >>> float(accuracy(np.array([0.9, 0.4]), np.array([0.1, 0.2, 0.3, 0.4])))
        0.75
    """
    return np.asarray(0.5 * (acc0(1 - _double(truths)) + acc0(draws)))


def mse(truths: np.ndarray, draws: np.ndarray) -> np.ndarray:
    r"""The regression statistic, :math:`(d - \frac{1}{2})^2` on average over both classes.

    .. math:: \frac{1}{2} \Big( \frac{1}{s_1} \sum_i (d(\theta_i) - \tfrac{1}{2})^2
        + \frac{1}{s_0} \sum_j (d(\theta_{q, j}) - \tfrac{1}{2})^2 \Big) \le \frac{1}{4},

    whose limit is :math:`\frac{1}{2} \int (d - \frac{1}{2})^2 (p + q)`, as in the proof of
    Theorem 2 of the paper and in its authors' code; the formula in the paper's text is the sum of
    both means, which is twice as large.

    Args:
        truths: Class probabilities at truths, with shape (..., s1).
        draws: Class probabilities at draws of q, with shape (..., s0).

    References:
        Kim, Lee and Lei 2019, *Global and local two-sample tests via regression*; Linhart et al.
        2023, Theorem 2.
    """
    return np.asarray(0.5 * (mse0(truths) + mse0(draws)))


def auc(truths: np.ndarray, draws: np.ndarray) -> np.ndarray:
    r"""The area under the ROC curve, :math:`P(d > d_q) + \frac{1}{2} P(d = d_q)`, from ranks.

    It is the statistic of Mann and Whitney, over the product of the sample sizes.

    Args:
        truths: Class probabilities d at truths, with shape (..., s1).
        draws: Class probabilities d_q at draws of q, with shape (..., s0).

    Example:
        >>> float(auc(np.array([0.9, 0.4]), np.array([0.1, 0.4])))
        0.875
    """
    above, below = np.sort(truths, -1), np.sort(draws, -1)
    shape, s0 = above.shape[:-1], below.shape[-1]
    pairs = zip(*(a.reshape(-1, a.shape[-1]) for a in (above, below)), strict=True)
    return np.asarray(np.reshape([_rank(a, b) for a, b in pairs], shape) / s0)


def confidence(truths: np.ndarray, draws: np.ndarray) -> np.ndarray:
    r"""The mean of :math:`\max(d, 1 - d)` over both classes.

    For the Bayes classifier it is its accuracy; for any other, what it believes its accuracy to
    be.

    Args:
        truths: Class probabilities at truths, with shape (..., s1).
        draws: Class probabilities at draws of q, with shape (..., s0).
    """
    return np.asarray(0.5 * (max0(truths) + max0(draws)))


def _rank(values: np.ndarray, among: np.ndarray) -> float:
    """The mean number of sorted values `among` below one of `values`; equal ones count half."""
    sides = (np.searchsorted(among, values, side) for side in ("left", "right"))
    return float(np.mean([side.mean() for side in sides]))


def _double(probabilities: np.ndarray) -> np.ndarray:
    return np.asarray(probabilities, dtype=np.float64)

"""The Bayes classifier between q and the true posterior, the most accurate there is.

Where densities are known, so is the classifier :math:`d = p / (p + q)`, but for the constant of p,
which is where both classes are confused alike (Bennett 1976, *Efficient estimation of free energy
differences from Monte Carlo data*; Meng and Wong 1996).
"""

import scipy.optimize
import scipy.stats
import torch
from torch import Tensor

from .material import Setting

__all__ = ["bayes", "log_constant", "log_ratio", "mse", "tested"]

# A log-ratio beyond which probabilities are 0 or 1.
FAR = 50.0


def log_ratio(setting: Setting, theta: Tensor, x: Tensor) -> Tensor:
    """The logarithm of p / q but for a constant, (n,), at parameters (n, m)."""
    log_q = setting.flow.log_prob(theta, x).double().cpu()
    return setting.task.log_posterior(theta.cpu(), x) - log_q


def log_constant(of_q: Tensor, of_p: Tensor) -> float:
    """The logarithm of the constant c of p: d = r / (r + c) errs as often on q as on p.

    Args:
        of_q: Logarithms of the ratio r of p, but for its constant, and q at draws of q, (n,);
            minus infinity where p is zero.
        of_p: The same at draws of p, (n,).
    """

    def excess(constant: float) -> float:
        return float(torch.sigmoid(of_q - constant).mean() - torch.sigmoid(constant - of_p).mean())

    low, high = float(of_p.min()), float(of_p.max())
    if not of_q.isfinite().any():
        return low - FAR
    low = min(low, float(of_q[of_q.isfinite()].min()))
    return float(scipy.optimize.brentq(excess, low - FAR, max(high, float(of_q.max())) + FAR))


def mse(of_q: Tensor, of_p: Tensor, constant: float | None = None) -> float:
    """The MSE of the Bayes classifier over both classes, given logarithms of p / q at draws."""
    if constant is None:
        constant = log_constant(of_q, of_p)
    parts = (torch.sigmoid(v - constant) - 0.5 for v in (of_q, of_p))
    return float(torch.stack([d.square().mean() for d in parts]).mean())


def bayes(setting: Setting) -> list[float]:
    """The MSE at all observations, on as many draws as an oracle is trained and judged on."""
    n = 2 * setting.pairs
    found = []
    for x, q, p in zip(setting.x_o, setting.q(n), setting.exact(n), strict=True):
        of_q, of_p = (log_ratio(setting, draws, x) for draws in (q, p))
        found.append(float(f"{mse(of_q, of_p):.6g}"))
    return found


def tested(setting: Setting) -> dict[str, list[float]]:
    """MSE, and p-values of the accuracy, at the observations.

    The constant is found on half of the draws. On the others any classifier is right as often as
    not if q = p, and the number of cases is no more spread than a binomial one, which makes the
    p-value conservative (Lopez-Paz and Oquab 2017, *Revisiting classifier two-sample tests*).
    """
    n = setting.pairs
    found: dict[str, list[float]] = {"statistic": [], "pvalue": []}
    for x, q, p in zip(setting.x_o, setting.q(2 * n), setting.exact(2 * n), strict=True):
        of_q, of_p = (log_ratio(setting, draws, x) for draws in (q, p))
        constant = log_constant(of_q[:n], of_p[:n])
        right = int((of_q[n:] < constant).sum() + (of_p[n:] > constant).sum())
        # At the constant itself both classes are as likely: half of these are right.
        right += int((torch.cat([of_q[n:], of_p[n:]]) == constant).sum()) // 2
        found["statistic"].append(mse(of_q[n:], of_p[n:], constant))
        found["pvalue"].append(float(scipy.stats.binom.sf(right - 1, 2 * n, 0.5)))
    return {key: [float(f"{v:.6g}") for v in values] for key, values in found.items()}

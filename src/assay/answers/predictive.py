r"""Is x_o what the simulator makes of what q draws there? A posterior predictive check.

One draw of q at x_o is simulated n times. If q is the true posterior at x_o, this draw and x_o
have the law of parameters and an observation that they made: given the draw, x_o and the n
simulations are independent and alike, and the rank of x_o among them, by a distance that treats
all n + 1 alike, is uniform. P-values are exact over x_o of the prior, whatever its dimension.
Simulations of many draws, as is usual, make p-values that crowd around 1/2, since x_o has been
used twice.

A small p-value says that x_o is unusual even for the fitted model: the simulator does not
describe x_o, or q is wrong there. A large one does not say that q is right: the prior passes.

References: Besag and Clifford 1989, *Generalized Monte Carlo Significance Tests*; Gosselin 2011,
*A New Calibrated Bayesian Internal Goodness-of-Fit Method: Sampled Posterior p-Values*.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import as_tensors, check_count, check_finite, cpu, full_precision
from .._support.random import Seed, seed_of
from ..data.calibration import features_of
from ..data.pairs import one_of
from ..data.posterior import Embed
from ..data.simulator import Runner, form_of
from ..results import Adjustment, Holm, LocalResult, equals, versions


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PredictiveResult(LocalResult):
    """Where x_o lies among simulations of a draw of q: distances of both from their centre.

    Args:
        theta: The draw that was simulated, with shape (m,) or (o, m).
    """

    theta: np.ndarray
    adjustment: Adjustment = Holm()

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        return self.said(0.05, self.labels)

    def said(
        self, alpha: float, labels: tuple[str, ...], some: Sequence[bool] | None = None
    ) -> str:
        """The same at another level, with names of the observations, and of some of them alone."""
        p, n = np.atleast_1d(self.adjusted), self.null.shape[-1]
        chosen = np.ones(len(p), bool) if some is None else np.asarray(some)
        low = [labels[i] for i in np.flatnonzero(chosen & (p <= alpha))]
        told, who = f"p {equals(float(p[chosen].min()))}", "x_o"
        if len(labels) > 1:
            told = f"smallest {told}, corrected for {len(labels)} observations"
            who = ", ".join(low) or ("Every x_o" if chosen.all() else "Every other x_o")
        said = f"what the simulator makes of a draw of q there ({told}; {n} simulations)"
        if not low:
            return f"{who} is typical of {said}."
        return (
            f"{who} {'is' if len(low) == 1 else 'are'} unusual even for {said}: the simulator "
            "does not describe x_o, or q is wrong there. This does not set the verdict."
        )


@full_precision()
def predictive(
    theta_o: Any,
    simulator: Callable[[Any], Any],
    x_o: Any,
    n: int = 199,
    *,
    embed: Embed | None = None,
    seed: Seed = 0,
) -> PredictiveResult:
    """Tests whether x_o is what a simulator makes of a draw of q at x_o.

    Args:
        theta_o: Draws of q at x_o, with shape (s, m), of which one is simulated.
        simulator: A function of parameters (b, m) that returns observations (b, ...), or of one
            vector.
        x_o: The observation, with shape (...,).
        n: How many simulations are made.
        embed: Turns observations into features, as in :class:`assay.Calibration`.
        seed: An int or a generator; it chooses the draw, too.

    Example:
        >>> theta_o = 0.2 + 0.7 * torch.randn(9, 1, generator=torch.Generator().manual_seed(0))
        >>> noisy = lambda theta: theta + torch.randn(theta.shape)
        >>> float(predictive(theta_o, noisy, [0.5]).pvalue) > 0.05
        True
        >>> predictive(theta_o, noisy, [9.0]).sentence
        'x_o is unusual even for what the simulator makes of a draw of q there (p = 0.005; 199 ...'
    """
    seed, x = seed_of(seed), as_tensors({"x_o": x_o})["x_o"]
    (drawn,) = as_tensors({"theta_o": theta_o}).values()
    if drawn.ndim != 2:
        raise ValueError(f"theta_o: expected draws (s, m); got {tuple(drawn.shape)}.")
    check_finite("theta_o", drawn)
    theta = one_of(drawn[None], seed)
    form = form_of(simulator, lambda b, _: theta.repeat(b, 1), x, seed)
    if x.shape != form.shape:
        raise ValueError(
            f"x_o: expected one observation of shape {form.shape}, as the simulator returns them; "
            f"got {tuple(x.shape)}."
        )
    made = Runner(simulator, form, seed).repeat("predictive", theta[0], check_count("n", n))
    found = among(made.x[None], theta, x[None], embed)
    if found is None:
        raise ValueError(f"simulator: expected some simulations to succeed; got {made.error}.")
    return found[0]


def among(
    made: Tensor, theta: Tensor, x_o: Tensor, embed: Embed | None
) -> PredictiveResult | None:
    """The result from simulations (o, n, ...) of draws (o, m) at observations (o, ...).

    None where all simulations failed.
    """
    if not made.shape[1]:
        return None
    both = torch.cat([x_o[:, None].to(made), made], 1)
    distances = np.stack([_distances(features_of(each, embed)) for each in both])
    return PredictiveResult(
        statistic=distances[:, 0],
        null=distances[:, 1:],
        hypothesis="x_o is what the simulator makes of parameters that q draws at x_o",
        settings={"test": "predictive", "n": made.shape[1], "scope": "at x_o", **versions()},
        x=x_o.cpu().numpy(),
        theta=theta.cpu().numpy(),
    )


def _distances(features: Tensor) -> np.ndarray:
    """Distances (n,) of features (n, d) from their mean, by their covariance.

    All are treated alike. The less there are for each feature, the more correlations are shrunk.
    """
    z = features.double() - features.double().mean(0)
    spread = z.std(0)
    z = z / torch.where(spread > 0, spread, 1)
    n, d = z.shape
    shrunk = d / (d + n)
    covariance = (1 - shrunk) * z.mT @ z / n + shrunk * cpu.eye(d).to(z)
    return np.asarray((z * torch.linalg.solve(covariance, z.mT).mT).sum(1).sqrt().cpu())

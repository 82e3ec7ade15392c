r"""Is x_o what the simulator makes of what q draws there? A posterior predictive check.

One draw of q at x_o is simulated n times. If q is the true posterior at x_o, x_o and the n
simulations are independent and alike given the draw, and the rank of x_o among them, by a distance
that treats all n + 1 alike, is uniform: p-values are exact over x_o of the prior. Simulations of
many draws, as is usual, make p-values that crowd around 1/2, since x_o has been used twice.

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
from ..data.guards import features_of
from ..data.posterior import Embed
from ..data.simulate import Runner, form_of, one_of
from ..printing import equals
from ..results import Adjustment, Holm, LocalResult, versions


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
        return self.describe(0.05, self.labels)

    def describe(self, alpha: float, labels: Sequence[str], some: Any = None) -> str:
        """The sentence at a level, with labels (o,), about those of the mask `some` (o,) alone."""
        p, n = np.atleast_1d(self.adjusted), self.null.shape[-1]
        some = np.full(len(p), True if some is None else some)
        unusual = [labels[i] for i in np.flatnonzero(some & (p <= alpha)).tolist()]
        smallest, who = f"p {equals(float(p[some].min()))}", "x_o"
        if len(labels) > 1:
            smallest = f"smallest {smallest}, corrected for {len(labels)} observations"
            who = ", ".join(unusual) or ("Every x_o" if some.all() else "Every other x_o")
        model = f"what the simulator makes of a draw of q there ({smallest}; {n} simulations)"
        if not unusual:
            return f"{who} is typical of {model}."
        return (
            f"{who} {'are' if unusual[1:] else 'is'} unusual even for {model}: the simulator does "
            "not describe x_o, or q is wrong there. This does not set the verdict."
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
        theta_o: Draws of q at x_o, (s, m), of which one is simulated.
        simulator: A function of parameters (b, m) that returns observations (b, ...), or of one.
        x_o: The observation, (...,).
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
    seed, n = seed_of(seed), check_count("n", n)
    draws, x = as_tensors({"theta_o": theta_o})["theta_o"], as_tensors({"x_o": x_o})["x_o"]
    if draws.ndim != 2:
        raise ValueError(f"theta_o: expected draws (s, m); got {tuple(draws.shape)}.")
    check_finite("theta_o", draws)
    theta = one_of(draws[None], seed)
    form = form_of(simulator, lambda b, _: theta.repeat(b, 1), x, seed)
    if x.shape != form.shape:
        raise ValueError(
            f"x_o: expected one observation of shape {form.shape}, as the simulator returns them; "
            f"got {tuple(x.shape)}."
        )
    runs = Runner(simulator, form, seed).repeat("predictive", theta[0], n)
    result = rank_among(runs.x[None], theta, x[None], embed)
    if result is None:
        raise ValueError(f"simulator: expected some simulations to succeed; got {runs.error}.")
    return result[0]


def rank_among(
    simulated: Tensor, theta: Tensor, x_o: Tensor, embed: Embed | None
) -> PredictiveResult | None:
    """Ranks observations (o, ...) among simulations (o, n, ...) of draws (o, m), if n > 0."""
    n = simulated.shape[1]
    if not n:
        return None
    both = torch.cat([x_o[:, None].to(simulated), simulated], 1)
    distances = np.stack([_distances(features_of(each, embed)) for each in both])
    return PredictiveResult(
        statistic=distances[:, 0],
        null=distances[:, 1:],
        hypothesis="x_o is what the simulator makes of parameters that q draws at x_o",
        settings={"test": "predictive", "n": n, "scope": "at x_o", **versions()},
        x=x_o.cpu().numpy(),
        theta=theta.cpu().numpy(),
    )


def _distances(features: Tensor) -> np.ndarray:
    """Distances (n,) of features (n, d) from their mean, by their shrunk covariance."""
    z = features.double() - features.double().mean(0)
    z = z / torch.where(z.std(0) > 0, z.std(0), 1)
    n, d = z.shape
    # The fewer rows for each feature, the more correlations are shrunk.
    shrinkage = d / (d + n)
    covariance = (1 - shrinkage) * z.mT @ z / n + shrinkage * cpu.eye(d).to(z)
    return np.asarray((z * torch.linalg.solve(covariance, z.mT).mT).sum(1).sqrt().cpu())

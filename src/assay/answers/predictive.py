r"""Is x_o what the simulator makes of what q draws there? A posterior predictive check.

One draw of q at x_o is simulated n times. If q is the true posterior at x_o, x_o and the n
simulations are alike given the draw, so that the rank of x_o among them, by a distance that treats
all n + 1 alike, is uniform: p-values are exact over x_o of the prior. Simulations of many draws
make p-values that crowd around 1/2. A large p does not say that q is right: the prior passes.

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
from ..data.simulate import Runner, one_of
from ..printing import equals
from ..results import Adjustment, Holm, LocalResult, versions


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PredictiveResult(LocalResult):
    """Distances of x_o and of simulations of a draw of q (m,) or (o, m) from their centre."""

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
        >>> predictive(theta_o, noisy, [9.0]).sentence
        'x_o is unusual even for what the simulator makes of a draw of q there (p = 0.005; 199 ...'
    """
    seed, n = seed_of(seed), check_count("n", n)
    draws, x = as_tensors({"theta_o": theta_o})["theta_o"], as_tensors({"x_o": x_o})["x_o"]
    if draws.ndim != 2:
        raise ValueError(f"theta_o: expected draws (s, m); got {tuple(draws.shape)}.")
    check_finite("theta_o", draws)
    theta = one_of(draws[None], seed)
    runner = Runner.of(simulator, lambda b, _: theta.repeat(b, 1), x, seed)
    if x.shape != runner.shape:
        raise ValueError(
            f"x_o: expected one observation of shape {runner.shape}, as the simulator returns "
            f"them; got {tuple(x.shape)}."
        )
    _, simulated, runner = runner.repeat("predictive", theta[0], n)
    if not len(simulated):
        raise ValueError(f"simulator: expected some simulations to succeed; got {runner.error}.")
    return rank_among(simulated[None], theta, x[None], embed)[0]


def rank_among(
    simulated: Tensor, theta: Tensor, x_o: Tensor, embed: Embed | None
) -> PredictiveResult:
    """Ranks observations (o, ...) among simulations (o, n, ...) of draws (o, m)."""
    distances = []
    for x in torch.cat([x_o[:, None].to(simulated), simulated], 1):  # (n + 1, ...)
        features = features_of(x, embed).double()
        z = features - features.mean(0)
        z = z / torch.where(z.std(0) > 0, z.std(0), 1)
        n, d = z.shape
        # The fewer rows for each feature, the more correlations are shrunk.
        shrinkage = d / (d + n)
        covariance = (1 - shrinkage) * z.mT @ z / n + shrinkage * cpu.eye(d).to(z)
        squared = (z * torch.linalg.solve(covariance, z.mT).mT).sum(1)
        distances.append(squared.sqrt().cpu().numpy())
    each = np.stack(distances)  # of x_o first, (o, n + 1)
    return PredictiveResult(
        statistic=each[:, 0],
        null=each[:, 1:],
        hypothesis="x_o is what the simulator makes of parameters that q draws at x_o",
        settings={"test": "predictive", "n": simulated.shape[1], "scope": "at x_o", **versions()},
        x=x_o.cpu().numpy(),
        theta=theta.cpu().numpy(),
    )

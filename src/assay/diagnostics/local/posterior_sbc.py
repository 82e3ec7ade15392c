r"""Posterior SBC: is q at x_o consistent with what it becomes when one more observation is known?

For a posterior that can condition on several observations, x_o makes a prior of its own. With

.. math:: \theta \sim q(\cdot \mid x_o), \qquad x \sim p(x \mid \theta), \qquad
    \theta_{q,j} \sim q(\cdot \mid x_o, x)

the rank of :math:`\theta` among the :math:`\theta_{q,j}` is uniform if the second q is the update
of the first by Bayes' rule, as it is for true posteriors. All parameters are drawn where x_o puts
them, so that this is SBC near x_o. It needs no prior and no pairs. Passing says that q agrees with
itself: errors at x_o which the next update hands on, such as a q that ignores x, do not show.

Reference: Säilynoja, Schmitt, Bürkner and Vehtari 2025, *Posterior SBC: Simulation-Based
Calibration Checking Conditional on Data*.
"""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ..._core import Seed, as_tensors, check_count, check_executor, own_terms, seed_of
from ...nulls.ranks import UniformRanks
from ...samples.calibration import Calibration
from ...samples.drawing import draw_at
from ...samples.posterior import as_posterior
from ...samples.simulator import Runner, form_of
from ..average.ranks import Quantity
from ..average.sbc import SBCResult, sbc

HYPOTHESIS = "q(theta | x_o, x) is the update of q(theta | x_o) by x, tested by ranks"


@own_terms()
def posterior_sbc(
    sample: Callable[[Tensor, int], Any],
    simulator: Callable[[Any], Any],
    x_o: Any,
    n: int = 200,
    draws: int = 100,
    *,
    quantities: Mapping[str, Quantity] | None = None,
    null: int | UniformRanks | None = None,
    executor: Executor | None = None,
    seed: Seed = 0,
) -> SBCResult:
    """Tests whether q at x_o is consistent with q at x_o and a further observation.

    Args:
        sample: Takes r observations (r, ...) and a number, and returns so many draws (n, m) of q
            given all of them; or an object with such a method. It is asked for r = 1 and r = 2.
        simulator: As in :class:`~assay.samples.pairs.Simulations`.
        x_o: One observation, with shape (...,).
        n: How many further observations are simulated.
        draws: Draws of q given both observations.
        quantities: As in :func:`assay.sbc`; functions are given the further observation as x.
        null: The number of null copies, 999 by default.
        executor: Any :class:`concurrent.futures.Executor` that runs the simulator.
        seed: An int or a generator.

    Returns:
        As :func:`assay.sbc`. Simulations that failed are left out.

    Example:
        >>> def sample(xs, n):  # theta ~ N(0, 1), x ~ N(theta, 1)
        ...     width = 1 / (1 + len(xs))
        ...     return width * xs.sum(0) + width**0.5 * torch.randn(n, 1)
        >>> result = posterior_sbc(sample, lambda t: t + torch.randn(t.shape), [0.5], 100)
        >>> bool(result.pvalue > 0.05)
        True
    """
    check_executor(executor)
    (x_o,) = as_tensors({"x_o": x_o}).values()
    q, seed = as_posterior(sample, x_o[None, None]), seed_of(seed)

    def drawn(count: int, key: int) -> Tensor:
        return draw_at(q, x_o[None, None], count, key, "x_o")[0]

    form = form_of(simulator, drawn, x_o, seed)
    if form.shape != tuple(x_o.shape):
        raise ValueError(
            f"x_o: expected one observation of shape {form.shape}, as the simulator returns them; "
            f"got {tuple(x_o.shape)}."
        )
    made = Runner(simulator, form, seed, executor).run("posterior", drawn, check_count("n", n, 20))
    both = torch.stack([x_o.to(made.x).expand_as(made.x), made.x], 1)
    theta_q = draw_at(q, both, check_count("draws", draws), seed, "draws given both")
    found = sbc(Calibration(made.theta, made.x, theta_q), quantities, null, seed)
    settings = {**found.settings, "test": "posterior SBC", "failed": made.failed}
    return replace(found, hypothesis=HYPOTHESIS, settings=settings)

"""Estimators of lampe."""

from typing import Any

import lampe.inference
from torch import Tensor

from ..data.posterior import Posterior, StandardNormal
from ..data.tables import Layout
from .networks import NetworkPosterior
from .zuko import ZukoFlow


def adapted(posterior: Any, x: Tensor, layout: Layout | None = None) -> Posterior | None:
    """A posterior estimator of lampe; ratio estimators have no draws."""
    if isinstance(posterior, lampe.inference.NPE):
        return ZukoFlow(posterior.flow)
    if isinstance(posterior, lampe.inference.FMPE):
        return _flow_matching(posterior)
    raise TypeError(
        f"posterior: expected an estimator of lampe that can be sampled, NPE or FMPE; got "
        f"{type(posterior).__name__}. Give a function of x and n that returns its draws, as by "
        "lampe.inference.MetropolisHastings with a chain for each of them."
    )


def _flow_matching(network: lampe.inference.FMPE) -> NetworkPosterior:
    """Draws and latents by the ordinary differential equation of a trained network.

    Example:
        >>> _flow_matching(lampe.inference.FMPE(2, 3)).sample(torch.zeros(3), 7).shape
        torch.Size([7, 2])
    """

    def draw(x: Tensor, n: int) -> Tensor:
        # The equation is solved for rows, so every draw has an x of its own.
        theta = network.flow(x.repeat_interleave(n, 0)).sample()
        return theta.unflatten(0, (len(x), n))

    return NetworkPosterior(
        network,
        draw,
        log_prob=lambda theta, x: network.flow(x).log_prob(theta),
        to_base=lambda theta, x: network.flow(x).transform(theta),
        base=StandardNormal(network.zeros.numel()),
    )

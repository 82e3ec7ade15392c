"""Zuko's conditional flows, and its other conditional distributions."""

from typing import Any

import torch
from torch import Tensor, nn

from .._support.inputs import extra
from ..data.posterior import Base, Posterior, as_base, as_posterior
from ..data.tables import Layout
from .networks import NetworkPosterior, inputs

with extra("zuko"):
    import zuko


class ZukoFlow(NetworkPosterior):
    """A trained zuko flow over m parameters, conditioned on observations (..., d).

    Its samples are not truncated to any prior: the q under test is the flow itself.

    Args:
        network: A lazy flow, for instance ``zuko.flows.NSF(features=m, context=d)``.
        summary: The network, if there is one, that turns observations (b, ...) into what the flow
            is conditioned on.

    Example:
        >>> flow = ZukoFlow(zuko.flows.MAF(features=2, context=3))
        >>> x = torch.zeros(5, 3)
        >>> flow.theta_to_base(torch.zeros(5, 2), x).shape, flow.sample(x[0], 7).shape
        (torch.Size([5, 2]), torch.Size([7, 2]))
    """

    def __init__(self, network: zuko.lazy.Flow, summary: nn.Module | None = None) -> None:
        super().__init__(
            network,
            draw=lambda x, n: self._at(x).sample((n,)).swapaxes(0, 1),
            log_prob=lambda theta, x: self._at(x).log_prob(theta),
            to_base=lambda theta, x: self._at(x).transform(theta),
            summary=summary,
        )

    @torch.no_grad()
    def _at(self, x: Tensor) -> Any:
        """The flow at observations (n, ...)."""
        if self.summary is not None:
            x = self.summary(*inputs(self.summary, x))
        return self.network(*inputs(self.network, x))

    @property
    def base(self) -> Base:
        """The distribution of latents if q is right; it may have been trained since."""
        base: Any = self.network.base()  # type: ignore[operator]
        return as_base(base, base.event_shape.numel())


def adapted(posterior: Any, x: Tensor, layout: Layout | None = None) -> Posterior | None:
    """A flow, or another conditional distribution, of zuko."""
    if isinstance(posterior, zuko.lazy.Flow):
        return ZukoFlow(posterior)
    if isinstance(posterior, zuko.lazy.LazyDistribution):
        return as_posterior(lambda x: posterior(*inputs(posterior, x)), x)
    return None

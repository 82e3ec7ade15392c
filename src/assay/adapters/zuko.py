"""Zuko's conditional flows, and its other conditional distributions."""

from typing import Any

import torch
from torch import Tensor, nn

from .._support.inputs import extra
from ..data.posterior import Base, Embed, Posterior, as_base, as_posterior
from ..data.tables import Layout
from .networks import NetworkFlow, embedding, inputs

with extra("zuko"):
    import zuko


class ZukoFlow(NetworkFlow):
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
        self.network, self.summary = network, summary

    @property
    def base(self) -> Base:
        """The distribution of latents if q is right."""
        base = self.network.base()
        return as_base(base, base.event_shape.numel())

    @property
    def embed(self) -> Embed | None:
        """The summary network."""
        return embedding(self.summary)

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, ...) to latents (n, m)."""
        return self._given(x).transform(*inputs(self.network, theta))  # type: ignore[no-any-return]

    def log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """The log-density (n,) of parameters (n, m) at observations (n, ...)."""
        return self._given(x).log_prob(*inputs(self.network, theta))  # type: ignore[no-any-return]

    @torch.no_grad()
    def sample_batched(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (b, n, m) at each of b observations (b, ...)."""
        return self._given(x).sample((n,)).swapaxes(0, 1)  # type: ignore[no-any-return]

    def _given(self, x: Tensor) -> Any:
        if self.summary is not None:
            x = self.summary(*inputs(self.summary, x))
        with torch.no_grad():
            return self.network(*inputs(self.network, x))


def adapted(posterior: Any, x: Tensor, layout: Layout | None = None) -> Posterior | None:
    """A flow, or another conditional distribution, of zuko."""
    if isinstance(posterior, zuko.lazy.Flow):
        return ZukoFlow(posterior)
    if isinstance(posterior, zuko.lazy.LazyDistribution):
        return as_posterior(lambda x: posterior(*inputs(posterior, x)), x)
    return None

"""Flows of nflows, which sbi trains too."""

from typing import Any

import nflows.distributions
import nflows.flows
import torch
from torch import Tensor

from ..data.posterior import Base, Embed, Flow, Posterior, StandardNormal
from ..data.tables import Layout
from .networks import NetworkFlow, embedding, inputs


class NFlow(NetworkFlow):
    """A trained flow of nflows, with its embedding net; not truncated to any prior.

    Example:
        >>> from nflows.transforms import MaskedAffineAutoregressiveTransform
        >>> transform = MaskedAffineAutoregressiveTransform(2, 8, context_features=3)
        >>> base = nflows.distributions.StandardNormal([2])
        >>> flow = NFlow(nflows.flows.Flow(transform, base))
        >>> flow.sample(torch.zeros(3), 7).shape
        torch.Size([7, 2])
    """

    def __init__(self, network: nflows.flows.Flow) -> None:
        self.network = network

    @property
    def base(self) -> Base:
        """The distribution of latents if q is right."""
        return StandardNormal(self.network._distribution._shape.numel())

    @property
    def flow(self) -> Flow | None:
        """The flow itself, if its base is N(0, I)."""
        normal = nflows.distributions.StandardNormal
        return self if isinstance(self.network._distribution, normal) else None

    @property
    def embed(self) -> Embed | None:
        """The embedding net."""
        return embedding(self.network._embedding_net)

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, ...) to latents (n, m)."""
        theta, x = inputs(self.network, theta, x)
        return self.network.transform_to_noise(theta, context=x)  # type: ignore[no-any-return]

    def log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """The log-density (n,) of parameters (n, m) at observations (n, ...)."""
        theta, x = inputs(self.network, theta, x)
        return self.network.log_prob(theta, context=x)  # type: ignore[no-any-return]

    @torch.no_grad()
    def sample_batched(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (b, n, m) at each of b observations (b, ...)."""
        return self.network.sample(n, context=inputs(self.network, x)[0])  # type: ignore[no-any-return]


def adapted(posterior: Any, x: Tensor, layout: Layout | None = None) -> Posterior | None:
    """A flow of nflows."""
    return NFlow(posterior) if isinstance(posterior, nflows.flows.Flow) else None

"""Flows of nflows, which sbi trains too."""

from typing import Any

import nflows.distributions
import nflows.flows
from torch import Tensor

from ..data.posterior import Posterior, StandardNormal
from ..data.tables import Layout
from .networks import NetworkPosterior


def nflow(flow: nflows.flows.Flow) -> NetworkPosterior:
    """A trained flow, with its embedding net; it has latents if its base is N(0, I).

    Example:
        >>> from nflows.transforms import MaskedAffineAutoregressiveTransform
        >>> transform = MaskedAffineAutoregressiveTransform(2, 8, context_features=3)
        >>> flow = nflows.flows.Flow(transform, nflows.distributions.StandardNormal([2]))
        >>> nflow(flow).sample(torch.zeros(3), 7).shape
        torch.Size([7, 2])
    """

    def to_base(theta: Tensor, x: Tensor) -> Tensor:
        return flow.transform_to_noise(theta, context=x)

    normal = isinstance(flow._distribution, nflows.distributions.StandardNormal)
    return NetworkPosterior(
        flow,
        draw=lambda x, n: flow.sample(n, context=x),
        log_prob=lambda theta, x: flow.log_prob(theta, context=x),
        to_base=to_base if normal else None,
        base=StandardNormal(flow._distribution._shape.numel()) if normal else None,
        summary=flow._embedding_net,
    )


def adapted(posterior: Any, x: Tensor, layout: Layout | None = None) -> Posterior | None:
    """A flow of nflows."""
    return nflow(posterior) if isinstance(posterior, nflows.flows.Flow) else None

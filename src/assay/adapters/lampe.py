"""Estimators of lampe."""

from typing import Any

import lampe.inference
import torch
from torch import Tensor

from ..data.posterior import Base, Posterior, StandardNormal
from ..data.tables import Layout
from .networks import NetworkFlow, inputs
from .zuko import ZukoFlow


class FlowMatching(NetworkFlow):
    """A trained ``lampe.inference.FMPE``: draws and latents by its ordinary differential equation.

    Example:
        >>> FlowMatching(lampe.inference.FMPE(2, 3)).sample(torch.zeros(3), 7).shape
        torch.Size([7, 2])
    """

    def __init__(self, network: lampe.inference.FMPE) -> None:
        self.network = network

    @property
    def base(self) -> Base:
        """The distribution of latents if q is right."""
        return StandardNormal(self.network.zeros.numel())

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, d) to latents (n, m)."""
        theta, x = inputs(self.network, theta, x)
        return self.network.flow(x).transform(theta)  # type: ignore[no-any-return]

    def log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """The log-density (n,) of parameters (n, m) at observations (n, d)."""
        theta, x = inputs(self.network, theta, x)
        return self.network.flow(x).log_prob(theta)  # type: ignore[no-any-return]

    @torch.no_grad()
    def sample_batched(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (b, n, m) at each of b observations (b, d)."""
        # Every draw with an x of its own: the equation is solved for rows.
        rows = inputs(self.network, x)[0].repeat_interleave(n, 0)
        return self.network.flow(rows).sample().unflatten(0, (len(x), n))  # type: ignore[no-any-return]


def adapted(posterior: Any, x: Tensor, layout: Layout | None = None) -> Posterior | None:
    """A posterior estimator of lampe; ratio estimators have no draws."""
    if isinstance(posterior, lampe.inference.NPE):
        return ZukoFlow(posterior.flow)
    if isinstance(posterior, lampe.inference.FMPE):
        return FlowMatching(posterior)
    raise TypeError(
        f"posterior: expected an estimator of lampe that can be sampled, NPE or FMPE; got "
        f"{type(posterior).__name__}. Give a function of x and n that returns its draws, as by "
        "lampe.inference.MetropolisHastings with a chain for each of them."
    )

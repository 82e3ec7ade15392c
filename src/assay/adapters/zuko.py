"""Zuko's conditional flows as flows of this library."""

import torch
from torch import Tensor

from .._core import extra
from ..samples.posterior import Base, as_base

with extra("zuko"):
    import zuko


class ZukoFlow:
    """A trained zuko flow over m parameters, conditioned on observations (..., d).

    Its samples are not truncated to any prior: the q under test is the flow itself.

    Args:
        flow: A lazy flow, for instance ``zuko.flows.NSF(features=m, context=d)``.

    Example:
        >>> flow = ZukoFlow(zuko.flows.MAF(features=2, context=3))
        >>> x = torch.zeros(5, 3)
        >>> flow.theta_to_base(torch.zeros(5, 2), x).shape, flow.sample(x[0], 7).shape
        (torch.Size([5, 2]), torch.Size([7, 2]))
    """

    def __init__(self, flow: zuko.lazy.Flow) -> None:
        self.flow = flow
        base = flow.base()
        self.base: Base = as_base(base, base.event_shape.numel())

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, d) to latents (n, m)."""
        with torch.no_grad():
            return self.flow(x).transform(theta)  # type: ignore[no-any-return]

    def sample(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (n, m) at one observation x, with shape (d,)."""
        with torch.no_grad():
            return self.flow(x).sample((n,))  # type: ignore[no-any-return]

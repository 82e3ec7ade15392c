"""What adapters of torch's flows share."""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from ..data.posterior import Base, Embed, Flow, LogDensity, Posterior


class NetworkFlow(Posterior):
    """A flow made of a torch network: all of its draws are q, its latents are of the same q."""

    @property
    @abstractmethod
    def base(self) -> Base:
        """The distribution of latents if q is right."""

    @abstractmethod
    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, ...) to latents (n, m)."""

    @abstractmethod
    def log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """The log-density (n,) of parameters (n, m) at observations (n, ...)."""

    @property
    def flow(self) -> Flow | None:
        """The flow itself."""
        return self

    @property
    def log_density(self) -> LogDensity | None:
        """That of the network."""
        return torch.no_grad()(self.log_prob)


def inputs(network: nn.Module, *arrays: Tensor) -> list[Tensor]:
    """Arrays in the precision and on the device of a network.

    Example:
        >>> inputs(nn.Linear(2, 2), torch.zeros(3, 2, dtype=torch.float64))[0].dtype
        torch.float32
    """
    like = next((p for p in network.parameters() if p.is_floating_point()), None)
    return [array if like is None else array.to(like) for array in arrays]


def embedding(network: Any) -> Embed | None:
    """A summary network as a function of x in any precision; None where it does nothing."""
    if network is None or isinstance(network, nn.Identity):
        return None

    def embed(x: Tensor) -> Tensor:
        with torch.no_grad():
            return network(*inputs(network, x)).flatten(1)  # type: ignore[no-any-return]

    return embed

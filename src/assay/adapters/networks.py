"""What adapters of torch's networks share: precision, device and gradients of their calls."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..data.posterior import Base, Coordinates, LogDensity, Posterior


class NetworkPosterior(Posterior):
    """A posterior made of a torch network: all of its draws are q, truncated to no prior.

    Args:
        network: The network, whose precision and device all arrays get.
        draw: Of x (b, ...) and n, to draws (b, n, m).
        log_prob: Of parameters (n, m) and x (n, ...), to log-densities (n,).
        to_base: Of parameters (n, m) and x (n, ...), to latents (n, m), if it is a flow.
        base: The distribution of these latents if q is right.
        summary: The network, if there is one, that x goes through first.
    """

    base: Any = None

    def __init__(
        self,
        network: nn.Module,
        draw: Callable[[Tensor, int], Tensor],
        log_prob: LogDensity,
        to_base: Coordinates | None = None,
        base: Base | None = None,
        summary: nn.Module | None = None,
    ) -> None:
        self.network, self.summary = network, summary
        self._draw, self._log_prob, self._to_base = draw, log_prob, to_base
        if base is not None:
            self.base = base
        self.flow = None if to_base is None else self
        self.log_density = self.log_prob
        self.embed = None if isinstance(summary, nn.Identity | None) else self._embed

    @torch.no_grad()
    def _embed(self, x: Tensor) -> Tensor:
        assert self.summary is not None
        return self.summary(*inputs(self.summary, x)).flatten(1)

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, ...) to latents (n, m)."""
        assert self._to_base is not None
        return self._to_base(*inputs(self.network, theta, x))

    @torch.no_grad()
    def log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """The log-density (n,) of parameters (n, m) at observations (n, ...)."""
        return self._log_prob(*inputs(self.network, theta, x))

    @torch.no_grad()
    def sample_batched(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (b, n, m) at each of b observations (b, ...)."""
        (x,) = inputs(self.network, x)
        return self._draw(x, n)


def inputs(network: nn.Module, *arrays: Tensor) -> list[Tensor]:
    """Arrays in the precision and on the device of a network.

    Example:
        >>> inputs(nn.Linear(2, 2), torch.zeros(3, 2, dtype=torch.float64))[0].dtype
        torch.float32
    """
    like = next((p for p in network.parameters() if p.is_floating_point()), None)
    return [array if like is None else array.to(like) for array in arrays]

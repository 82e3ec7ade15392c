r"""The base distribution of a flow: what the latents of the truth look like if q is right.

For a flow :math:`\theta = T(z; x)` with base :math:`u(z)`, the approximation is right at x if and
only if :math:`T^{-1}(\theta; x) \sim u` for :math:`\theta \sim p(\theta \mid x)` (Linhart et al.
2023, Theorem 4). The base does not depend on x, on the flow or on the data, which is why nulls
in latent space can be drawn at will.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution

from .randomness import isolated

__all__ = ["Base", "Foreign", "StandardNormal", "as_base"]


class Base(Protocol):
    """A distribution over R^m that can be drawn from with an explicit generator."""

    @property
    def dim(self) -> int:
        """The dimension m."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Returns n draws, with shape (n, m)."""


@dataclass(frozen=True)
class StandardNormal:
    """The base :math:`N(0, I_m)` of nearly every flow.

    Example:
        >>> StandardNormal(3).sample(5, torch.Generator().manual_seed(0)).shape
        torch.Size([5, 3])
    """

    dim: int

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Returns n draws, with shape (n, m)."""
        return torch.randn(n, self.dim, generator=generator)


@dataclass(frozen=True, eq=False)
class Foreign:
    """Any other base, given as a :class:`torch.distributions.Distribution`."""

    distribution: Distribution

    @property
    def dim(self) -> int:
        """The dimension m."""
        return int(self.distribution.event_shape.numel())

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Returns n draws, with shape (n, m)."""
        with isolated(generator), torch.no_grad():
            return self.distribution.sample(torch.Size((n,))).reshape(n, -1).cpu()


def as_base(base: Any, dim: int) -> Base:
    """Returns `base` as a :class:`Base`; a standard normal is recognised by its density.

    Args:
        base: A :class:`Base` or a torch distribution.
        dim: The dimension that is expected.
    """
    if isinstance(base, Distribution):
        foreign = Foreign(base)
        base = StandardNormal(dim) if foreign.dim == dim and _is_standard(base) else foreign
    if not callable(getattr(base, "sample", None)) or not hasattr(base, "dim"):
        raise TypeError(
            "base: expected a torch.distributions.Distribution or an object with `dim` and "
            f"`sample(n, generator)`; got {type(base).__name__}."
        )
    if base.dim != dim:
        raise ValueError(
            f"base: expected dimension {dim}, that of theta; got {base.dim}. Independent normals "
            "need torch.distributions.Independent(base, 1)."
        )
    return base  # type: ignore[no-any-return]


def _is_standard(distribution: Distribution) -> bool:
    shape = distribution.event_shape
    z = torch.linspace(-2, 2, 7 * shape.numel()).reshape(7, *shape)
    expected = torch.distributions.Normal(0.0, 1.0).log_prob(z).flatten(1).sum(1)
    try:
        found = distribution.log_prob(z).detach().cpu()
    except (ValueError, NotImplementedError, RuntimeError):
        return False
    return found.shape == expected.shape and torch.allclose(found.to(expected), expected, 1e-4)

"""Distributions of torch, which a function of x returns."""

import torch
from torch import Tensor
from torch.distributions import Distribution


def draws(distribution: Distribution, n: int) -> Tensor:
    """Draws (n, ...).

    Example:
        >>> draws(torch.distributions.Normal(torch.zeros(3), 1.0), 5).shape
        torch.Size([5, 3])
    """
    with torch.no_grad():
        return distribution.sample(torch.Size((n,)))

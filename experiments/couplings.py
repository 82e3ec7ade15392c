"""The network of the paper's flows where sbi is absent: the same parts of nflows, put together.

Reference: Durkan et al. 2019, *Neural spline flows*.
"""

from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor

__all__ = ["build_nsf"]

# What sbi's builder chooses where it is not told.
BLOCKS, EDGE = 2, 3.0


def build_nsf(m: int, d: int, *, num_transforms: int, num_bins: int, hidden_features: int) -> Any:
    """Spline couplings and LU layers over m parameters given d numbers, with random weights."""
    if m < 2:
        raise ValueError(f"m: expected at least two parameters; got {m}")
    names = ("flows", "transforms", "nn.nets", "distributions")
    flows, transforms, nets, distributions = (import_module(f"nflows.{name}") for name in names)
    conditioner = partial(
        nets.ResidualNet,
        hidden_features=hidden_features,
        context_features=d,
        num_blocks=BLOCKS,
        activation=torch.relu,
    )
    layers: list[Any] = []
    for i in range(num_transforms):
        coupling = transforms.PiecewiseRationalQuadraticCouplingTransform(
            mask=_mask(m, i % 2),
            transform_net_create_fn=conditioner,
            num_bins=num_bins,
            tails="linear",
            tail_bound=EDGE,
        )
        layers += [coupling, transforms.LULinear(m)]
    return flows.Flow(transforms.CompositeTransform(layers), distributions.StandardNormal((m,)))


def _mask(m: int, start: int) -> Tensor:
    """Every other parameter is predicted."""
    mask = torch.zeros(m, dtype=torch.uint8)
    mask[start::2] = 1
    return mask

r"""Regression on x: features on a common scale, random cosines of them, and ridge.

Features are brought to a **common scale**: a feature is centred by its median, divided by its
interquartile range and passed through :math:`\operatorname{arsinh}`, which is linear near the
centre and logarithmic in the tails, so that a single outlying value decides nothing.

Reference: Rahimi and Recht 2007, *Random Features for Large-Scale Kernel Machines*.
"""

import math
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from .inputs import cpu
from .random import stream

# The interquartile range of a standard normal distribution.
IQR = 1.349
# Rows from which quartiles are taken; torch.quantile has a limit.
MOST_ROWS = 10_000
# Random directions that replace more features, and penalties that are tried.
DIRECTIONS, PENALTIES = 256, (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
TINY = 1e-12


def standard_deviation(rows: Tensor) -> Tensor:
    """Standard deviations of columns (n, p); one for a column that is constant."""
    varies = rows.amax(0) > rows.amin(0)
    # The middle of the range is taken off first, so that a large offset costs no digits.
    middle = rows.amin(0) / 2 + rows.amax(0) / 2
    return torch.where(varies, (rows - middle).std(0), torch.ones_like(rows[0]))


@dataclass(frozen=True, eq=False)
class RobustScale:
    """Median and scale of d features, each with shape (d,)."""

    median: Tensor
    scale: Tensor

    @classmethod
    def fit(cls, x: Tensor) -> Self:
        """Finds the scale of features (n, d)."""
        x = x[:: 1 + len(x) // MOST_ROWS]
        quarter, median, three_quarters = x.quantile(x.new_tensor([0.25, 0.5, 0.75]), 0)
        scale = (three_quarters - quarter) / IQR
        # A discrete feature may have no interquartile range.
        return cls(median, torch.where(scale > 0, scale, standard_deviation(x)))

    def __call__(self, x: Tensor) -> Tensor:
        """Brings features (..., d) to the common scale."""
        largest = torch.finfo(x.dtype).max
        return torch.asinh(((x - self.median) / self.scale).clamp(-largest, largest))


def random_waves(n: int, length: float, d: int, *key: str) -> tuple[Tensor, Tensor]:
    """Random frequencies (d, n) of a typical length, and phases (n,); always the same."""
    generator = stream(0, "waves", n, d, *key)
    frequencies = cpu.randn(d, n, generator=generator) * length / math.sqrt(max(1, d))
    return frequencies, 2 * math.pi * cpu.rand(n, generator=generator)


def regression_design(x: Tensor, cosines: int) -> Tensor:
    """One, directions of x (n, d) and cosines of them, in double precision, (n, p)."""
    if x.shape[1] > DIRECTIONS:
        x = x @ random_waves(DIRECTIONS, 1.0, x.shape[1], "directions")[0].to(x)
    frequencies, phases = random_waves(cosines, 1.0, x.shape[1], "regression")
    waves = (x @ frequencies.to(x) + phases.to(x)).cos() * math.sqrt(2 / cosines)
    return torch.cat([torch.ones_like(x[:, :1]), x, waves], 1).double()


def ridge(design: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Ridge regression of targets (n, j) on a design (n, p).

    Returns weights (p, j) with the penalty that predicts rows best that are left out one by one,
    and the share (j,) of the variance that is explained of these.
    """
    values, vectors = torch.linalg.eigh(design.mT @ design)
    rotated, products = design @ vectors, vectors.mT @ (design.mT @ targets)

    def fit(penalty: float) -> tuple[Tensor, Tensor]:
        inverse = 1 / (values.clamp_min(0) + penalty * len(design))
        leverage = (rotated.square() @ inverse).clamp(max=1 - 1e-6)
        left_out = (targets - rotated @ (inverse[:, None] * products)) / (1 - leverage)[:, None]
        missed = left_out.square().mean(0) / targets.square().mean(0).clamp_min(TINY)
        return vectors @ (inverse[:, None] * products), (1 - missed).clamp_min(0)

    return max(map(fit, PENALTIES), key=lambda found: float(found[1].mean()))

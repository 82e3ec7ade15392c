"""Data of a size, for timings; made by either edition of the package."""

from typing import NamedTuple

import torch

import assay


class Size(NamedTuple):
    """The size of a problem."""

    n: int = 10_000
    nulls: int = 999
    observations: int = 10
    d: int = 8
    m: int = 5
    k: int = 16


class Data(NamedTuple):
    """Calibrations with k draws, with one, and of latents; observations with draws there."""

    sets: assay.Calibration
    pairs: assay.Calibration
    latents: assay.Calibration
    draws: assay.Draws

    @classmethod
    def of(cls, size: Size, device: str = "cpu") -> "Data":
        """Data of a size, whose q is slightly too wide."""
        generator = torch.Generator().manual_seed(0)
        theta = torch.randn(size.n, size.m, generator=generator)
        which, parts = [j % size.m for j in range(size.d)], [j % size.d for j in range(size.m)]
        x = theta[:, which] + torch.randn(size.n, size.d, generator=generator)
        noise = torch.randn(size.n, size.k, size.m, generator=generator)
        q = x[:, None, parts] / 2 + 0.75 * noise
        x_o = torch.randn(size.observations, size.d, generator=generator)
        there = torch.randn(size.observations, 1000, size.m, generator=generator)
        made = (
            assay.Calibration(theta, x, q),
            assay.Calibration(theta, x, q[:, 0]),
            assay.Calibration.from_base((theta - x[:, parts] / 2) / 0.75, x),
        )
        draws = assay.Draws(x_o, x_o[:, None, parts] / 2 + 0.75 * there)
        return cls(*(calibration.to(device) for calibration in made), draws)

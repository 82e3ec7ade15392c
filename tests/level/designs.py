"""Designs: right posteriors of every kind, the ugly ones among them.

The truth and the draws of q at an x come from one function, so that q is right whatever it is. A
new design is one line of DESIGNS.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from assay import Calibration, Draws
from assay._support.random import stream


@dataclass(frozen=True)
class Design:
    """A right q.

    Args:
        draw: Members from normal numbers z (n, r, m), at x (n, 1, d), with a generator.
        n, k, m, d: Pairs, draws of q at each x, parameters and features of x.
        place: What becomes of x.
        few: Whether members or exchanges have few values: ties count against a rejection.
    """

    draw: Callable = lambda z, x, g: z + x[..., :1]
    n: int = 40
    k: int = 6
    m: int = 2
    d: int = 2
    place: Callable = lambda x: x
    few: bool = False

    def pairs(self, seed):
        generator = stream(seed, "design")
        x = self.place(torch.randn(self.n, self.d, generator=generator))
        z = torch.randn(self.n, self.k + 1, self.m, generator=generator)
        members = self.draw(z, x[:, None], generator)
        return Calibration(members[:, 0], x, members[:, 1:])

    def latents(self, seed):
        """Latents of a right flow at the same x; q itself does not matter there."""
        calibration = self.pairs(seed)
        z = torch.randn(self.n, self.m, generator=stream(seed, "latents"))
        return Calibration.from_base(z, calibration.x)

    @property
    def x_o(self):
        return torch.full((self.d,), 0.5)

    def observations(self, o):
        """So many of them, apart from each other in the first feature."""
        moved = torch.linspace(-1, 1, o)[:, None] * torch.eye(self.d)[:1]
        return self.x_o + moved

    def draws(self, seed, s=30):
        generator = stream(seed, "draws")
        z, x = torch.randn(1, s, self.m, generator=generator), self.place(self.x_o)
        return Draws(self.x_o, self.draw(z, x[None, None], generator)[0])


def counts(rate):
    return lambda z, x, g: torch.poisson(torch.full(z.shape, rate), generator=g)


DESIGNS = {
    "normal": Design(),
    "Cauchy": Design(lambda z, x, g: torch.tan(3.14 * torch.special.ndtr(z) - 1.57)),
    "lognormal": Design(lambda z, x, g: (3 * z).exp(), k=7),
    "collinear": Design(lambda z, x, g: z[..., :1] + 1e-3 * z, k=5),
    "scale moves with x": Design(lambda z, x, g: z * (2 * x[..., :1]).exp()),
    "a hundred features": Design(d=100),
    "ten parameters": Design(m=10, k=14),
    "one parameter, one feature": Design(m=1, d=1),
    "twelve pairs": Design(n=12, few=True),
    "counts": Design(counts(0.7), k=7, few=True),
    "mostly zero": Design(counts(0.1), few=True),
    "two values": Design(lambda z, x, g: (z > 0.5).float(), few=True),
    "ties in x": Design(place=lambda x: x.round(), few=True),
    "one x": Design(place=torch.zeros_like, few=True),
}


def log_density(theta, x):
    """Any function of theta and x ranks members; this one makes intervals and regions."""
    return -(theta - x[:, :1]).abs().sum(1) / math.pi

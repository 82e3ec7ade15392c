"""Designs for statistical bars: calibrations whose q is right or wrong in a known way.

A design makes, from a seed, members (n, k + 1, m) of sets, the true parameter first, at x (n, d),
with an observation x_o (d,). q is N(mean(x), scale(x)) in some law; it is wrong by a width, a
shift, or a change of both with x.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import assay

Law = Callable[[tuple[int, ...], torch.Generator], Tensor]


def normal(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=g)


def gamma(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    """Of shape 4: the sum of four exponentials."""
    exponentials = -torch.rand(*shape, 4, generator=g).clamp_min(1e-30).log()
    return (exponentials.sum(-1) - 4) / 2


def t5(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    chi = torch.randn(*shape, 5, generator=g).square().mean(-1)
    return torch.randn(shape, generator=g) / chi.sqrt() * math.sqrt(3 / 5)


def lognormal(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    s = 0.5
    mean, sd = math.exp(s * s / 2), math.sqrt((math.exp(s * s) - 1) * math.exp(s * s))
    return ((s * torch.randn(shape, generator=g)).exp() - mean) / sd


def poisson(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    return (torch.poisson(torch.full(shape, 2.0), generator=g) - 2) / math.sqrt(2)


def bounded(shape: tuple[int, ...], g: torch.Generator) -> Tensor:
    return (torch.rand(shape, generator=g) - 0.5) * math.sqrt(12)


@dataclass(frozen=True)
class Design:
    """See the module; `mean` and `scale` are functions of x (n, d) with values (n,)."""

    name: str
    law: Law = normal
    m: int = 2
    n: int = 1000
    k: int = 16
    d: int = 2
    mean: Callable[[Tensor], Tensor] = lambda x: x[:, 0]
    scale: Callable[[Tensor], Tensor] = lambda x: torch.ones(len(x))
    correlation: float = 0.0
    # How wrong draws of q are in the last parameter: in sd, and times as wide.
    shift: Callable[[Tensor], Tensor] | None = None
    width: Callable[[Tensor], Tensor] | None = None
    all_wrong: bool = False
    latents: bool = False
    # Pairs come from a proposal that prefers parameters near those of x_o, and carry weights.
    around: bool = False

    def wrong(self, *, shift: float = 0.0, width: float = 1.0, name: str = "") -> "Design":
        """The same with a constant error of the last parameter."""
        name = name or f"{self.name}, shift {shift:g}, width {width:.3g}"
        return replace(
            self,
            name=name,
            shift=lambda x: torch.full((len(x),), shift),
            width=lambda x: torch.full((len(x),), width),
        )

    def members(self, x: Tensor, g: torch.Generator) -> tuple[Tensor, Tensor]:
        """Members (n, k + 1, m), the true parameter first, and the unit in which errors count."""
        u = self.law((len(x), self.k + 1, self.m), g)
        if self.correlation:
            shared = u[..., :1]
            u = math.sqrt(1 - self.correlation) * u + math.sqrt(self.correlation) * shared
        columns = slice(None) if self.all_wrong else slice(-1, None)
        if self.width is not None:
            u[:, 1:, columns] *= self.width(x)[:, None, None]
        if self.shift is not None:
            u[:, 1:, columns] += self.shift(x)[:, None, None]
        scale = self.scale(x)[:, None, None]
        return self.mean(x)[:, None, None] + scale * u, scale

    def make(self, seed: int) -> tuple[assay.Calibration, Tensor]:
        """A calibration and an observation (d,)."""
        g = torch.Generator().manual_seed(seed * 1_000_003 + sum(map(ord, self.name)))
        x_o = 0.5 * torch.randn(self.d, generator=g)
        if self.around:
            return self._make_around(x_o, g), x_o
        x = torch.randn(self.n, self.d, generator=g)
        members, _ = self.members(x, g)
        if self.latents:
            return assay.Calibration.from_base(members[:, 0] - self.mean(x)[:, None], x), x_o
        return assay.Calibration(members[:, 0], x, members[:, 1:]), x_o

    def _make_around(self, x_o: Tensor, g: torch.Generator) -> assay.Calibration:
        """Pairs that are accepted with a probability that falls from x_o's mean parameter on."""
        x = torch.randn(10 * self.n, self.d, generator=g)
        members, _ = self.members(x, g)
        distance = members[:, 0].mean(1) - self.mean(x_o[None])
        accepted = 0.2 + 0.8 * (-distance.square()).exp()
        rows = (torch.rand(len(x), generator=g) < accepted).nonzero().flatten()[: self.n]
        weights, members = 1 / accepted[rows], members[rows]
        return assay.Calibration(members[:, 0], x[rows], members[:, 1:], weights=weights)


def wiggly(x: Tensor) -> Tensor:
    """A mean whose range is ten times q's standard deviation, and that oscillates."""
    return 5 * ((3 * x[:, 0]).sin() + x[:, 0] * x[:, 1]) / 1.5


def design(name: str, **given: Any) -> Design:
    return Design(name, **given)

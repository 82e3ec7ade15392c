r"""Feature banks of members and observations together, for linear classifiers.

A bank is a value; its ``fit`` finds what it needs (scales, a frame) from members and x, whoever
plays the truth, and returns the map itself.
"""

import math
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from ..copies import Copies, Feature
from ..door import check_count, check_kind, check_number
from .features import MOST_FEATURES, Latent
from .frames import Frame, Framed, Pooled, waves
from .scaling import Scaling

__all__ = ["Bank", "Joint", "JointMap", "Product", "ProductMap"]

# Sets from which a frame is found; more would not change it.
MOST_SETS = 20_000


class Bank(Protocol):
    """A recipe for features of members and observations."""

    def fit(self, copies: Copies, scaling: Scaling) -> Feature:
        """The map itself, found from what no relabelling changes."""


@dataclass(frozen=True)
class Joint:
    r"""Random Fourier features of members and x together.

    With coordinates u of a member in its frame, and x on a common scale, they are
    :math:`\cos(\omega_i u + \nu_i x + b_i)` with random frequencies and phases.

    Args:
        n: The number of features.
        bandwidth: The typical length of a frequency of u.
        reach: The typical length of a frequency of x.
        frame: The coordinates of members.
    """

    n: int = 512
    bandwidth: float = 1.0
    reach: float = 1.0
    frame: Frame = field(default_factory=Pooled)

    def __post_init__(self) -> None:
        check_count("n", self.n)
        check_number("bandwidth", self.bandwidth)
        check_number("reach", self.reach, strict=False)
        check_kind("frame", self.frame, "a frame such as Pooled() or Within(Whitened())", "fit")
        _check_size(self.n, self)

    def fit(self, copies: Copies, scaling: Scaling) -> "JointMap":
        """The map itself, found from what no relabelling changes."""
        return JointMap(self, scaling, _framed(self.frame, copies, scaling)[0])


@dataclass(frozen=True)
class Product:
    r"""Features of a member times features of x: moments that vary with x.

    Args:
        bank: Features of the member's coordinates, such as
            :class:`~assay.classifiers.features.Hermite`.
        n: The number of random Fourier features of x, beside a constant.
        reach: The typical length of their frequencies.
        frame: The coordinates of members.
    """

    bank: Latent
    n: int = 32
    reach: float = 1.0
    frame: Frame = field(default_factory=Pooled)

    def __post_init__(self) -> None:
        check_kind("bank", self.bank, "a bank such as Hermite(2)", "size")
        check_count("n", self.n, least=0)
        check_number("reach", self.reach, strict=False)
        check_kind("frame", self.frame, "a frame such as Pooled() or Within(Whitened())", "fit")

    def fit(self, copies: Copies, scaling: Scaling) -> "ProductMap":
        """The map itself, found from what no relabelling changes."""
        framed, width = _framed(self.frame, copies, scaling)
        size = self.bank.size(width) * (1 + self.n)
        _check_size(size, self)
        return ProductMap(self, scaling, framed, size)


@dataclass(frozen=True, eq=False)
class JointMap:
    """Random Fourier features of members and x together.

    Args:
        bank: The recipe.
        scaling: The scale of observations.
        framed: The coordinates of members.
    """

    bank: Joint
    scaling: Scaling
    framed: Framed

    @property
    def size(self) -> int:
        """The number of features p."""
        return self.bank.n

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Features (b, r, p) of members (b, r, m) and observations (b, d)."""
        # Banks of other bandwidths get other directions.
        n, key = self.bank.n, str(self.bank.bandwidth)
        u, scaled = self.framed(theta, x), self.scaling.x(x)
        ours, _ = waves(n, self.bank.bandwidth, u.shape[-1], "member", key)
        theirs, phases = waves(n, self.bank.reach, x.shape[1], "x", key)
        shift = scaled @ theirs.to(scaled) + phases.to(scaled)
        return (u @ ours.to(u)).add_(shift[:, None]).cos_()


@dataclass(frozen=True, eq=False)
class ProductMap:
    """Features of a member times features of x.

    Args:
        bank: The recipe.
        scaling: The scale of observations.
        framed: The coordinates of members.
        size: The number of features p.
    """

    bank: Product
    scaling: Scaling
    framed: Framed
    size: int

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Features (b, r, p) of members (b, r, m) and observations (b, d)."""
        u, scaled = self.bank.bank(self.framed(theta, x)), self.scaling.x(x)
        frequencies, phases = waves(self.bank.n, self.bank.reach, x.shape[1], "product")
        cosines = math.sqrt(2) * (scaled @ frequencies.to(scaled) + phases.to(scaled)).cos_()
        factors = torch.cat([scaled.new_ones(len(scaled), 1), cosines], 1)
        return (u[..., None] * factors[:, None, None]).flatten(2)


def _framed(frame: Frame, copies: Copies, scaling: Scaling) -> tuple[Framed, int]:
    """A frame found from some members of all copies, and the number of its coordinates."""
    rows = torch.arange(0, len(copies.x), 1 + len(copies.x) // MOST_SETS, device=copies.x.device)
    members = copies[:1].batch(rows, 0)[0][0]
    framed = frame.fit(members, copies.x[rows], scaling)
    return framed, framed(members[:2], copies.x[rows[:2]]).shape[-1]


def _check_size(size: int, bank: Bank) -> None:
    if size > MOST_FEATURES:
        raise ValueError(
            f"features: expected at most {MOST_FEATURES} features in a bank, whose covariance "
            f"must fit into memory; got {size} from {bank!r}. Choose a smaller n or order."
        )

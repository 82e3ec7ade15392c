r"""Truths among the draws of q: residuals, nested regions that hold them, and the tail of q.

If q is right, the truth lies in a region of level l with probability l. **In latent space** the
regions are balls, :math:`|z|^2 \le \chi^2_{m, l}`, and intervals :math:`|z_j| \le \Phi^{-1}((1 +
l) / 2)`. **With k draws** at each x, every member of a set is measured against the others of its
set: by its distance in their own mean and covariance, and by its residual in every parameter. A
region ends where a share l of all members near x_o lies inside, so that the coverage is exactly l
if q is right, whatever k, m and the shape of q.

A mean and a covariance of k draws are noisy, which draws the coverage of a wrong q towards l by an
amount of order 1 / k. The same is computed with both halves of the draws, where it is twice as
large, and

.. math:: 2 C(k) - \tfrac{1}{2} (C_1(k / 2) + C_2(k / 2))

leaves an error of order :math:`1 / k^2` (Quenouille 1956, *Notes on bias in estimation*).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import scipy.special
import torch
from torch import Tensor

from ..._core import cpu
from ...results import LEVELS, Rowed
from ...samples.neighbourhoods import middle

if TYPE_CHECKING:
    from ...classifiers.features import Coordinates

# The share of latents beyond which a truth is said to lie in the tail of q.
BEYOND = 1e-3
# Members by which the edges of regions are found.
MEMBERS = 2**16


@dataclass(frozen=True, eq=False)
class Tail(Rowed):
    """Truths near x_o where q has next to no mass, at c sizes; fields (c,), or (o, c).

    What q cannot show, such as a mode it has lost, no reweighting of its draws can show either.
    Of so many truths near x_o a count lies beyond, where a share (), expected if q is right, is
    that of latents outside a ball of 99.9 %, or of truths farther out than all k draws.
    """

    count: np.ndarray
    truths: np.ndarray
    share: np.ndarray
    shared: ClassVar[tuple[str, ...]] = ("share",)

    @property
    def pvalue(self) -> np.ndarray:
        """The exact binomial probability of as many truths beyond if q is right."""
        return np.asarray(scipy.special.bdtrc(self.count - 1, self.truths, self.share))


class Shells(Protocol):
    """Nested regions of q at n points, and where the truths lie in them."""

    @property
    def combined(self) -> tuple[float, ...]:
        """How v ways of telling what is inside are added up."""

    @property
    def beyond(self) -> tuple[Tensor, float]:
        """Whether truths lie in the tail of q (n,), and the share that does if q is right."""

    def inside(self, rows: Tensor, shares: Tensor) -> Tensor:
        """Whether the truths of b rows are inside (v, b, m + 1, l), the region behind intervals.

        Where ties make an edge unsharp, how much of them is inside. Shares (b,) sum to one.
        """


@dataclass(frozen=True, eq=False)
class Balls:
    """Balls and intervals of a standard normal base, with latents z (n, m) of the truths."""

    z: Tensor
    combined: ClassVar[tuple[float, ...]] = (1.0,)

    @property
    def beyond(self) -> tuple[Tensor, float]:
        """Whether truths lie in the tail of q (n,), and the share that does if q is right."""
        m = self.z.shape[1]
        return self.z.double().square().sum(1) > scipy.special.chdtri(m, BEYOND), BEYOND

    def inside(self, rows: Tensor, shares: Tensor) -> Tensor:
        """Whether the truths of b rows are inside (1, b, m + 1, l), the region last."""
        squares = self.z[rows].double().square()
        table = torch.cat([squares, squares.sum(1, keepdim=True)], 1)
        degrees = np.array([1] * squares.shape[1] + [squares.shape[1]])
        edges = scipy.special.chdtri(degrees[:, None], 1 - np.array(LEVELS))
        return (table[..., None] <= torch.from_numpy(edges).to(table)).to(table)[None]


@dataclass(frozen=True, eq=False)
class Ellipsoids:
    """Ellipsoids and intervals of the draws at each x, from members (n, k + 1, m), truths first.

    The length of a member in the coordinates of its set is its distance.
    """

    members: Tensor
    coordinates: "Coordinates"

    @property
    def combined(self) -> tuple[float, ...]:
        """All draws, and both halves of them where they are enough."""
        return (2.0, -0.5, -0.5) if len(self._views) == 3 else (1.0,)

    @property
    def distances(self) -> Tensor:
        """How far out the members of each set are (n, r)."""
        return self._views[0][..., -1]

    @property
    def beyond(self) -> tuple[Tensor, float]:
        """Whether truths lie farther out than all draws (n,), and the share if q is right."""
        norms = self.distances
        return norms[:, 0] > norms[:, 1:].amax(1), 1 / norms.shape[1]

    def inside(self, rows: Tensor, shares: Tensor) -> Tensor:
        """Whether the truths of b rows are inside (v, b, m + 1, l), the region last."""
        some = cpu.arange(0, len(rows), 1 + len(rows) * self._views[0].shape[1] // MEMBERS)
        some = some.to(rows.device)
        weights = shares[some].clamp_min(0)
        views = (_inside(view[rows, 0], view[rows[some]], weights) for view in self._views)
        return torch.stack(list(views))

    @cached_property
    def _views(self) -> list[Tensor]:
        """Residuals and distances (n, r, m + 1) of members, the truth first, in three views."""
        r, m = self.members.shape[1:]
        half = (r - 1) // 2
        truth, parts = self.members[:, :1], [self.members]
        if self.coordinates.enough(half, m):
            # Too few draws to be halved leave an error of order 1 / k.
            halves = self.members[:, 1 : 1 + half], self.members[:, 1 + half : 1 + 2 * half]
            parts += [torch.cat([truth, draws], 1) for draws in halves]
        return [self._measured(part) for part in parts]

    def _measured(self, members: Tensor) -> Tensor:
        own, (_, r, m) = residuals(members), members.shape
        # Too few draws for their covariance are measured parameter by parameter.
        white = self.coordinates(members) if self.coordinates.enough(r - 1, m) else own
        return torch.cat([own, white.square().sum(2, keepdim=True)], 2)


def residuals(members: Tensor) -> Tensor:
    """Members (n, r, m) against the mean of the others of their set, in their deviations."""
    k = members.shape[1] - 1
    centred = members - middle(members, 1)
    centred = centred - centred.mean(1, keepdim=True)
    total = centred.square().sum(1, keepdim=True)
    # Mean and variance of the others: their sum is minus one's own.
    variance = (total - centred.square() * (1 + 1 / k)).clamp_min(0) / (k - 1)
    # A set without variation, or a member far from k identical ones, tells nothing.
    least = torch.finfo(members.dtype).eps * total / k
    scale = torch.maximum(variance, least).sqrt()
    return centred * (1 + 1 / k) / torch.where(scale > 0, scale, torch.ones_like(scale))


def still(members: Tensor) -> Tensor:
    """Whether all but one of the members (n, r, m) of a set are the same, with shape (n, m)."""
    ordered = members.sort(1).values
    return (ordered[:, 1] == ordered[:, -1]) | (ordered[:, 0] == ordered[:, -2])


def _inside(truths: Tensor, view: Tensor, weights: Tensor) -> Tensor:
    """How much of truths (b, m + 1) lies inside intervals and regions of members (b, m + 1, l).

    A truth takes the levels between the weight of members below it and that of members not above
    it; ties share them, so that a right q is covered as it should be whatever its ties. Members
    near x_o have the view (c, r, m + 1), and their sets weights (c,).
    """
    table, order = view.flatten(0, 1).sort(0)
    below = weights.repeat_interleave(view.shape[1])[order].double().cumsum(0).mT
    below = torch.nn.functional.pad(below / below[:, -1:], (1, 0))
    columns, values = table.mT.contiguous(), truths.mT.contiguous()
    start, end = (
        below.gather(1, torch.searchsorted(columns, values, right=right)).mT[..., None]
        for right in (False, True)
    )
    levels = cpu.tensor(LEVELS).to(below)
    lower = ((1 - levels) / 2).repeat(view.shape[2], 1)
    upper = ((1 + levels) / 2).repeat(view.shape[2], 1)
    lower[-1], upper[-1] = 0, levels
    # Truths among members have levels of their own; one between two members has a single one.
    width = (end - start).clamp_min(1e-12)
    overlap = torch.minimum(start + width, upper) - torch.maximum(start, lower)
    return (overlap / width).clamp(0, 1)


def tail(shells: Shells, weights: Tensor) -> Tail:
    """Truths with any of the weights (o, c, n) that lie in the tail of q."""
    beyond, share = shells.beyond
    near = weights != 0
    return Tail((near & beyond).sum(2).cpu().numpy(), near.sum(2).cpu().numpy(), np.array(share))

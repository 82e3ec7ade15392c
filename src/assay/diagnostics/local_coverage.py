r"""Coverage near x_o: how often q's regions and intervals contain the truths around it.

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
from typing import Protocol

import numpy as np
import scipy.stats
import torch
from torch import Tensor

from ..coordinates import Coordinates
from ..results import LEVELS, Tail

__all__ = ["Balls", "Ellipsoids", "Shells", "residuals", "shares_inside", "tail"]

# The share of latents beyond which a truth is said to lie in the tail of q.
BEYOND = 1e-3
# Members by which the edges of regions are found.
MEMBERS = 2**16
# The share of the correction for few draws that may be left, from k = 12 on; measured.
LEFT = 0.2


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

        Where ties make an edge unsharp, how much of them is inside.

        Args:
            rows: The rows that matter, with shape (b,).
            shares: Their weights, with shape (b,), which sum to one.
        """


@dataclass(frozen=True, eq=False)
class Balls:
    """Balls and intervals of a standard normal base.

    Args:
        z: Latents of the truths, with shape (n, m).
    """

    z: Tensor

    @property
    def combined(self) -> tuple[float, ...]:
        """There is one way of telling what is inside."""
        return (1.0,)

    @property
    def beyond(self) -> tuple[Tensor, float]:
        """Whether truths lie in the tail of q (n,), and the share that does if q is right."""
        m = self.z.shape[1]
        return self.z.double().square().sum(1) > scipy.stats.chi2.isf(BEYOND, m), BEYOND

    def inside(self, rows: Tensor, shares: Tensor) -> Tensor:
        """Whether the truths of b rows are inside (1, b, m + 1, l), the region last."""
        squares = self.z[rows].double().square()
        table = torch.cat([squares, squares.sum(1, keepdim=True)], 1)
        degrees = np.array([1] * squares.shape[1] + [squares.shape[1]])
        edges = scipy.stats.chi2.ppf(np.array(LEVELS), degrees[:, None])
        return (table[..., None] <= torch.from_numpy(edges).to(table)).to(table)[None]


@dataclass(frozen=True, eq=False)
class Ellipsoids:
    """Ellipsoids and intervals of the draws at each x.

    Args:
        theta: The truths, with shape (n, m).
        theta_q: The draws, with shape (n, k, m).
        coordinates: Coordinates of a set, in which the length of a member is its distance.
    """

    theta: Tensor
    theta_q: Tensor
    coordinates: Coordinates

    @property
    def combined(self) -> tuple[float, ...]:
        """All draws, and both halves of them where they are enough."""
        return (2.0, -0.5, -0.5) if len(self._views) == 3 else (1.0,)

    @property
    def beyond(self) -> tuple[Tensor, float]:
        """Whether truths lie farther out than all draws (n,), and the share if q is right."""
        norms = self._views[0][..., -1]
        return norms[:, 0] > norms[:, 1:].amax(1), 1 / norms.shape[1]

    def inside(self, rows: Tensor, shares: Tensor) -> Tensor:
        """Whether the truths of b rows are inside (v, b, m + 1, l), the region last."""
        some = torch.arange(0, len(rows), 1 + len(rows) * self._views[0].shape[1] // MEMBERS)
        some = some.to(rows.device)
        weights = shares[some].clamp_min(0)
        found = []
        for view in self._views:
            found.append(_inside(view[rows, 0], view[rows[some]], weights))
        return torch.stack(found)

    @cached_property
    def _views(self) -> list[Tensor]:
        """Residuals and distances (n, r, m + 1) of members, the truth first, in three views."""
        k, m = self.theta_q.shape[1:]
        half = k // 2
        parts = [self.theta_q]
        try:
            self.coordinates.check(half, m)
            parts += [self.theta_q[:, :half], self.theta_q[:, half : 2 * half]]
        except ValueError:
            # Too few draws to be halved: what is left is of order 1 / k.
            pass
        return [self._measured(part) for part in parts]

    def _measured(self, draws: Tensor) -> Tensor:
        members = torch.cat([self.theta[:, None], draws], 1)
        norms = self.coordinates(members).square().sum(2, keepdim=True)
        return torch.cat([residuals(members), norms], 2)


def residuals(members: Tensor) -> Tensor:
    """Members (n, r, m) against the mean of the others of their set, in their deviations."""
    k = members.shape[1] - 1
    centred = members - members.mean(1, keepdim=True)
    total = centred.square().sum(1, keepdim=True)
    # Mean and variance of the others: their sum is minus one's own.
    variance = (total - centred.square() * (1 + 1 / k)).clamp_min(0) / (k - 1)
    # A set without variation, or a member far from k identical ones, tells nothing.
    least = torch.finfo(members.dtype).eps * total / k
    scale = torch.maximum(variance, least).sqrt()
    return centred * (1 + 1 / k) / torch.where(scale > 0, scale, torch.ones_like(scale))


def _inside(truths: Tensor, view: Tensor, weights: Tensor) -> Tensor:
    """How much of the truths lies inside intervals, and regions, of members (b, m + 1, l).

    A truth takes the levels between the weight of members below it and that of members not above
    it; ties share them, so that a right q is covered as it should be whatever its ties.

    Args:
        truths: Residuals and distances of truths, with shape (b, m + 1).
        view: The same of members near x_o, with shape (c, r, m + 1).
        weights: Weights of their sets, with shape (c,).
    """
    table, order = view.flatten(0, 1).sort(0)
    below = weights.repeat_interleave(view.shape[1])[order].double().cumsum(0).mT
    below = torch.nn.functional.pad(below / below[:, -1:], (1, 0))
    columns, values = table.mT.contiguous(), truths.mT.contiguous()
    start, end = (
        below.gather(1, torch.searchsorted(columns, values, right=right)).mT[..., None]
        for right in (False, True)
    )
    levels = torch.tensor(LEVELS).to(below)
    lower = ((1 - levels) / 2).repeat(view.shape[2], 1)
    upper = ((1 + levels) / 2).repeat(view.shape[2], 1)
    lower[-1], upper[-1] = 0, levels
    # Truths among members have levels of their own; one between two members has a single one.
    width = (end - start).clamp_min(1e-12)
    overlap = torch.minimum(start + width, upper) - torch.maximum(start, lower)
    return (overlap / width).clamp(0, 1)


def shares_inside(shells: Shells, weights: Tensor) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Shares of truths inside, standard errors and null deviations, (o, c, m + 1, l) each.

    Args:
        shells: Regions and intervals of q at n points.
        weights: Weights of the points around o observations at c sizes, with shape (o, c, n).

    Example:
        >>> z = torch.randn(10_000, 2, generator=torch.Generator().manual_seed(0))
        >>> share, error, null = shares_inside(Balls(0.7 * z), torch.ones(1, 1, 10_000))
        >>> share[0, 0, :, 1].round(2)  # both intervals and the region of 90 %
        array([0.98, 0.98, 0.99])
    """
    found = [_shares_inside(shells, row) for row in weights.flatten(0, 1)]
    parts = (
        torch.stack(part).unflatten(0, weights.shape[:2]) for part in zip(*found, strict=True)
    )
    share, error, null = (part.cpu().numpy() for part in parts)
    return share, error, null


def _shares_inside(shells: Shells, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same (m + 1, l) for weights (n,) of one observation and size."""
    rows = weights.nonzero().flatten()
    shares = (weights[rows] / weights[rows].sum()).double()
    views = shells.inside(rows, shares).double()
    values = torch.einsum("v,vbjl->bjl", views.new_tensor(shells.combined), views)
    mean, plain = (torch.einsum("b,bjl->jl", shares, part) for part in (values, views[0]))
    squares = shares.square()
    spread, alone = (
        torch.einsum("b,bjl->jl", squares, (part - centre).square())
        for part, centre in ((values, mean), (views[0], plain))
    )
    levels = mean.new_tensor(LEVELS)
    # What combining costs in variance is seen in the data, where anything varies at all.
    cost = torch.where(alone > 0, spread / alone.clamp_min(1e-300), 1.0).clamp_min(1)
    null = (levels * (1 - levels) * squares.sum() * cost).sqrt()
    error = (spread + (LEFT * (mean - plain)).square()).sqrt()
    return mean.clamp(0, 1), error, null


def tail(shells: Shells, weights: Tensor) -> Tail:
    """Truths with any weight that lie in the tail of q, at o observations and c sizes.

    Args:
        shells: Regions of q at n points.
        weights: Weights of the points, with shape (o, c, n).
    """
    beyond, share = shells.beyond
    near = weights != 0
    return Tail((near & beyond).sum(2).cpu().numpy(), near.sum(2).cpu().numpy(), np.array(share))

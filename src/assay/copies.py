r"""Copies: the data and its nulls, as H + 1 labelled versions of one data set.

Copy 0 is the data; the others are what the data could have been under the null hypothesis. All
share the same x. A copy consists of n sets, one for each x, and a set of r members of which some
play class 1 (the truth) and the others class 0 (q). This is all that passes from a null to a
classifier:

* :class:`Relabelled`: all copies have the same members and differ in who plays the truth.
* :class:`Redrawn`: class 0 is a known distribution, with fresh draws in every epoch, and the
  copies differ in their truths.

A classifier is anything with ``fit(copies, seed)`` that returns :class:`Scores`; it must treat all
copies alike, so that its statistic is one and the same function of each.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor

from .bases import Base, StandardNormal
from .randomness import stream
from .scaling import spread

__all__ = ["Classifier", "Copies", "Redrawn", "Relabelled", "Rows", "Scores"]


class Rows(NamedTuple):
    """One copy, row by row.

    Args:
        theta: Parameters or latents, with shape (n r, m).
        x: Features of the observations, with shape (n r, d).
        labels: Whether a row plays the truth, with shape (n r,).
    """

    theta: Tensor
    x: Tensor
    labels: Tensor


class Copies(Protocol):
    """H + 1 labelled versions of one data set; a slice of it is the same with fewer copies."""

    @property
    def x(self) -> Tensor:
        """Features of the observations, with shape (n, d)."""

    @property
    def odds(self) -> int:
        """The number of class-0 members for each class-1 member of a set."""

    @property
    def scaling(self) -> tuple[Tensor, Tensor]:
        """Location and scale (m,) of the members, the same for every copy."""

    def __len__(self) -> int:
        """The number of copies, H + 1."""

    def __getitem__(self, which: slice) -> Self:
        """Some of the copies."""

    def batch(self, rows: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Members and labels of b sets.

        Args:
            rows: Which sets, with shape (b,).
            epoch: The pass over the data; where class 0 is known, its draws change with it.

        Returns:
            Members (c, b, r, m) and labels (c, b, r) of all c copies, or with 1 in place of c
            where the copies do not differ.
        """

    def rows(self, copy: int) -> Rows:
        """One copy, row by row, for classifiers that take one data set at a time."""


class Scores(Protocol):
    """A fitted classifier: H + 1 functions of (theta, x), the first of which saw the data."""

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities.

        Args:
            theta: Parameters or latents, with shape (o, s, m).
            x: Features of the observations, with shape (o, d).

        Returns:
            Probabilities with shape (o, H + 1, s).
        """


class Classifier(Protocol):
    """A recipe that turns copies into scores.

    It must be a deterministic function of a copy and the seed, the same for every copy; any
    preprocessing may look at members and x, but not at who plays the truth.

    Example:
        A classifier of one's own, least squares on products of one theta and one x:

        >>> def features(theta, x):
        ...     return torch.cat([torch.ones_like(x), theta, x, theta * x], -1)
        >>> class Products:
        ...     def fit(self, copies, seed):
        ...         tables = [copies.rows(h) for h in range(len(copies))]
        ...         return Fitted(torch.stack([self.solve(*table) for table in tables]))
        ...
        ...     def solve(self, theta, x, labels):
        ...         return torch.linalg.lstsq(features(theta, x), labels.float()).solution
        >>> class Fitted:
        ...     def __init__(self, weights):
        ...         self.weights = weights  # (H + 1, 4)
        ...
        ...     def __call__(self, theta, x):
        ...         x = x[:, None].expand(*theta.shape[:2], -1)
        ...         scores = torch.einsum("osi,hi->ohs", features(theta, x), self.weights)
        ...         return scores.clamp(0, 1)
        >>> theta, noise, z = torch.randn(3, 300, 1, generator=torch.Generator().manual_seed(0))
        >>> calibration = assay.Calibration(theta, theta + noise, z)
        >>> test = assay.lc2st(calibration, Products(), assay.Exchange(99))
        >>> result = test(assay.Draws([2.0], z))
        >>> bool(result.pvalue <= 0.05)  # the prior is no posterior
        True
    """

    def fit(self, copies: Copies, seed: int) -> Scores:
        """Fits all copies."""


@dataclass(frozen=True, eq=False)
class Relabelled:
    """Copies with the same members, which differ in who plays the truth.

    Args:
        members: The truth and the draws of q at the same x, with shape (n, r, m).
        x: Features of the observations, with shape (n, d).
        relabel: The labels (n, r) of copy h.
        which: The copies h.
    """

    members: Tensor
    x: Tensor
    relabel: Callable[[int], Tensor]
    which: range

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, which: slice) -> Self:
        return replace(self, which=self.which[which])

    @property
    def odds(self) -> int:
        """The number of class-0 members for each class-1 member of a set."""
        return self.members.shape[1] - 1

    @cached_property
    def scaling(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation over all members, which no relabelling changes."""
        pooled = self.members.flatten(0, 1)
        return pooled.mean(0), spread(pooled)

    @cached_property
    def labels(self) -> Tensor:
        """Who plays the truth, with shape (c, n, r)."""
        return torch.stack([self.relabel(h) for h in self.which]).to(self.members.device)

    def batch(self, rows: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Members (1, b, r, m) and labels (c, b, r) of some sets."""
        return self.members[rows][None], self.labels[:, rows]

    def rows(self, copy: int) -> Rows:
        """One copy, row by row."""
        return _rows(self.members, self.x, self.relabel(self.which[copy]))


@dataclass(frozen=True, eq=False)
class Redrawn:
    """Copies whose class 0 is a known base and whose truths are draws of it, except copy 0's.

    Args:
        truths: The latents of the truths, for copy 0, with shape (n, m).
        x: Features of the observations, with shape (n, d).
        base: The known distribution.
        seed: Names the streams of all draws.
        which: The copies h.
    """

    truths: Tensor
    x: Tensor
    base: Base
    seed: int
    which: range
    odds: int = 1

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, which: slice) -> Self:
        return replace(self, which=self.which[which])

    @cached_property
    def scaling(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the base."""
        if isinstance(self.base, StandardNormal):
            return self.truths.new_zeros(self.base.dim), self.truths.new_ones(self.base.dim)
        z = self.base.sample(10_000, stream(0, "scaling")).to(self.truths)
        return z.mean(0), spread(z)

    @cached_property
    def redrawn(self) -> Tensor:
        """The truths of all copies, with shape (c, n, m)."""
        return torch.stack([self._truths(h) for h in self.which])

    def batch(self, rows: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Members (c, b, 2, m), a base draw and the truth, and labels (1, b, 2) of some sets."""
        truths = self.redrawn[:, rows]
        class0 = self._class0(epoch)[rows].expand_as(truths)
        return torch.stack([class0, truths], 2), self._roles.expand(1, len(rows), 2)

    def rows(self, copy: int) -> Rows:
        """One copy, row by row, with one base draw for each truth."""
        members = torch.stack([self._class0(0), self._truths(self.which[copy])], 1)
        return _rows(members, self.x, self._roles.expand(len(self.x), 2))

    @cached_property
    def _roles(self) -> Tensor:
        return torch.tensor([False, True], device=self.truths.device)

    @cached_property
    def _latest(self) -> dict[int, Tensor]:
        return {}

    def _class0(self, epoch: int) -> Tensor:
        if epoch not in self._latest:
            self._latest.clear()
            self._latest[epoch] = self._draw("class 0", epoch)
        return self._latest[epoch]

    def _truths(self, h: int) -> Tensor:
        return self.truths if h == 0 else self._draw("null", h)

    def _draw(self, *key: int | str) -> Tensor:
        return self.base.sample(len(self.x), stream(self.seed, *key)).to(self.truths)


def _rows(members: Tensor, x: Tensor, labels: Tensor) -> Rows:
    r = members.shape[1]
    return Rows(members.flatten(0, 1), x.repeat_interleave(r, 0), labels.flatten())

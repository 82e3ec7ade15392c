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

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, Protocol, Self

import torch
from torch import Tensor

from .bases import Base, StandardNormal
from .randomness import stream
from .scaling import spread

__all__ = [
    "Classifier",
    "Copies",
    "Feature",
    "Redrawn",
    "Relabelled",
    "Rows",
    "Scores",
    "Sums",
    "views",
]

# Sets whose labels are made at a time: a million of them are never held for all copies at once.
BLOCK = 2**13
# Members of a set from which a covariance is taken; they stand in random order.
MOST_MEMBERS = 8
# Numbers in the largest table of a sum that is taken step by step.
ROOM = 2**22


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


class Feature(Protocol):
    """A map from members and observations to p features, which no relabelling changes."""

    @property
    def size(self) -> int:
        """The number of features p."""

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Features (b, r, p) of members (b, r, m) and observations (b, d)."""


class Sums(NamedTuple):
    """What least squares need to know of copies, in double precision.

    Args:
        mean: Mean of the features over all members, with shape (p,).
        covariance: Their covariance over all members, with shape (p, p).
        contrasts: Mean of the features of class 1 less that of class 0 at the same x, (c, p).
        rows: The number of members.
    """

    mean: Tensor
    covariance: Tensor
    contrasts: Tensor
    rows: int


class Copies(Protocol):
    """H + 1 labelled versions of one data set; a slice of it is the same with fewer copies."""

    @property
    def x(self) -> Tensor:
        """Features of the observations, with shape (n, d)."""

    @property
    def base(self) -> Base | None:
        """The distribution of class 0, where it is known."""

    @property
    def size(self) -> int:
        """The number of members of a set, r."""

    @property
    def odds(self) -> float:
        """The number of class-0 members for each class-1 member of a set."""

    @property
    def scaling(self) -> tuple[Tensor, Tensor]:
        """Location and scale (m,) of the members, the same for every copy."""

    def __len__(self) -> int:
        """The number of copies, H + 1."""

    def __getitem__(self, which: slice) -> Self:
        """Some of the copies."""

    def inside(self, near: Tensor) -> Self:
        """Copies that differ from the data in some sets only, as near (n,) says."""

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

    def sums(self, features: Sequence[Feature]) -> list[Sums]:
        """Sums of features for linear classifiers, streamed over the sets."""


class Scores(Protocol):
    """A fitted classifier: H + 1 functions of (theta, x), the first of which saw the data."""

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities.

        Args:
            theta: Parameters or latents, with shape (o, s, m).
            x: Features of the observations, with shape (o, d).

        Returns:
            Probabilities with shape (o, H + 1, s).

        Scores that are several classifiers in one have a method ``views(theta, x)`` as well,
        which yields those of one after the other; a test then combines their statistics. A view
        may go beyond 0 and 1, as least squares do: a statistic sees it as it is, since far beyond
        is further evidence.
        """


def views(scores: Scores, theta: Tensor, x: Tensor) -> Iterator[Tensor]:
    """Class-1 probabilities (o, H + 1, s) of each of the classifiers that scores consist of."""
    several = getattr(scores, "views", None)
    if several is None:
        yield scores(theta, x)
    else:
        yield from several(theta, x)


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
        relabel: The labels (b, r) of copy h in the j-th block of sets.
        which: The copies h.
        base: The distribution of class 0, where it is known.
        truths: How many members of a set play the truth: one, or all but one.
    """

    members: Tensor
    x: Tensor
    relabel: Callable[[int, int], Tensor]
    which: range
    base: Base | None = None
    truths: int = 1

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, which: slice) -> Self:
        return replace(self, which=self.which[which])

    def inside(self, near: Tensor) -> Self:
        """Copies that differ from the data in some sets only, as near (n,) says."""
        blocks = near.cpu()[:, None].split(BLOCK)

        def relabel(h: int, j: int) -> Tensor:
            return torch.where(blocks[j], self.relabel(h, j), self.relabel(0, j))

        return replace(self, relabel=relabel)

    def subset(self, rows: Tensor) -> Self:
        """The same copies of some sets (b,), each with the labels that it has here."""

        def relabel(h: int, j: int) -> Tensor:
            return self.relabelled(h)[rows[j * BLOCK : (j + 1) * BLOCK]].cpu()

        return replace(self, members=self.members[rows], x=self.x[rows], relabel=relabel)

    @property
    def size(self) -> int:
        """The number of members of a set, r."""
        return self.members.shape[1]

    @property
    def odds(self) -> float:
        """The number of class-0 members for each class-1 member of a set."""
        draws = self.size - self.truths
        return draws if self.truths == 1 else draws / self.truths

    @cached_property
    def scaling(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation over all members, which no relabelling changes."""
        pooled = self.members.flatten(0, 1)
        return pooled.mean(0), spread(pooled)

    @cached_property
    def labels(self) -> Tensor:
        """Who plays the truth, with shape (c, n, r)."""
        return torch.stack([self.relabelled(h) for h in self.which])

    def relabelled(self, h: int) -> Tensor:
        """The labels (n, r) of copy h."""
        parts = [self.relabel(h, j) for j in range(-(-len(self.x) // BLOCK))]
        return torch.cat(parts).to(self.members.device)

    def batch(self, rows: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Members (1, b, r, m) and labels (c, b, r) of some sets."""
        return self.members[rows][None], self.labels[:, rows]

    def rows(self, copy: int) -> Rows:
        """One copy, row by row."""
        return _rows(self.members, self.x, self.relabelled(self.which[copy]))

    def sums(self, features: Sequence[Feature]) -> list[Sums]:
        """Covariances, and contrasts of the members that play the truth, centred within sets."""
        n, r, _ = self.members.shape
        pools = [_Pool() for _ in features]
        width = max(feature.size for feature in features)
        step = _step(max(r * width, len(self) * (r - 1)))
        for j, block in enumerate(torch.arange(n, device=self.x.device).split(BLOCK)):
            alone = torch.stack([self._alone(h, j) for h in self.which])
            for rows, part in zip(block.split(step), alone.split(step, 1), strict=True):
                # Centred features do not mind what is added to all labels of a set: with that of
                # the last member taken off, the last member drops out.
                labels = part[..., None] == torch.arange(r)
                signs = (labels[..., :-1].float() - labels[..., -1:].float()).flatten(1)
                for feature, pool in zip(features, pools, strict=True):
                    table = feature(self.members[rows], self.x[rows])
                    pool.add(table[:, :MOST_MEMBERS].flatten(0, 1))
                    centred = (table - table.mean(1, keepdim=True))[:, :-1].flatten(0, 1)
                    pool.contrast(signs.to(centred) @ centred)
        # The truth less the mean of its set is the k-th part of k + 1 of its contrast; where it is
        # the draw of q that stands alone, the contrast is the other way round.
        scale = (1 if self.truths == 1 else -1) * r / (r - 1) / n
        return [Sums(pool.mean, pool.covariance, pool.sums * scale, n * r) for pool in pools]

    def _alone(self, h: int, j: int) -> Tensor:
        """Which member of each set (b,) is the only one of its class in copy h, in block j."""
        labels = self.relabel(h, j)
        return _truth(labels if self.truths == 1 else ~labels)


@dataclass(frozen=True, eq=False)
class Redrawn:
    """Copies whose class 0 is a known base and whose truths are draws of it, except copy 0's.

    Args:
        truths: The latents of the truths, for copy 0, with shape (n, m).
        x: Features of the observations, with shape (n, d).
        base: The known distribution.
        seed: Names the streams of all draws.
        which: The copies h.
        odds: The number of class-0 members for each class-1 member of a set.
        size: The number of members of a set.
        near: The sets (n,) in which copies differ from the data; all of them if None.
    """

    truths: Tensor
    x: Tensor
    base: Base
    seed: int
    which: range
    odds: float = 1
    size: int = 2
    near: Tensor | None = None

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, which: slice) -> Self:
        return replace(self, which=self.which[which])

    def inside(self, near: Tensor) -> Self:
        """Copies that differ from the data in some sets only, as near (n,) says."""
        return replace(self, near=near.to(self.x.device))

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

    def sums(self, features: Sequence[Feature]) -> list[Sums]:
        """Refuses: members differ between copies, so there is nothing to share."""
        raise ValueError(
            "null: expected Exchange(n) for a classifier in closed form, whose copies share their "
            "members; got KnownBase(n), whose copies do not."
        )

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
        if h == 0:
            return self.truths
        drawn = self._draw("null", h)
        return drawn if self.near is None else drawn.where(self.near[:, None], self.truths)

    def _draw(self, *key: int | str) -> Tensor:
        return self.base.sample(len(self.x), stream(self.seed, *key)).to(self.truths)


def _rows(members: Tensor, x: Tensor, labels: Tensor) -> Rows:
    r = members.shape[1]
    return Rows(members.flatten(0, 1), x.repeat_interleave(r, 0), labels.flatten())


def _truth(labels: Tensor) -> Tensor:
    """Which member of each set plays the truth (b,), from labels (b, r)."""
    if not (labels.sum(1) == 1).all():
        raise ValueError(
            "null: expected Exchange(n) for a classifier in closed form, whose copies have one "
            "truth in every set; got a null whose copies have not, such as FreePermutation(n)."
        )
    return labels.byte().argmax(1).to(torch.int32)


def _step(width: int) -> int:
    """How many sets to sum over at a time."""
    return max(16, ROOM // max(1, width))


class _Pool:
    """Running sums of features, around their first mean, in double precision."""

    def __init__(self) -> None:
        self.rows = 0
        self.sums = torch.empty(0)

    def add(self, table: Tensor) -> None:
        """Adds rows (b, p)."""
        if not self.rows:
            self.centre = table.mean(0)
            p = table.shape[1]
            self.first = table.new_zeros(p, dtype=torch.float64)
            self.second = table.new_zeros(p, p, dtype=torch.float64)
        table = table - self.centre
        self.rows += len(table)
        self.first += table.sum(0)
        self.second += table.mT @ table

    def contrast(self, sums: Tensor) -> None:
        """Adds sums (c, p) of features with their labels."""
        if not self.sums.numel():
            self.sums = torch.zeros_like(sums, dtype=torch.float64)
        self.sums += sums

    @property
    def mean(self) -> Tensor:
        """The mean of all rows, with shape (p,)."""
        return self.centre + self.first / self.rows

    @property
    def covariance(self) -> Tensor:
        """The covariance of all rows, with shape (p, p)."""
        mean = self.first / self.rows
        return self.second / self.rows - torch.outer(mean, mean)

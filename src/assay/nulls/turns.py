r"""Who plays the truth in copies: groups of sets that turn together, or a free permutation.

**Turns.** The members of a set stand in random order. If q is right, whoever stands any number of
places further could as well be the truth. Sets are divided at random into g groups, and in a copy
all sets of a group turn by the same number of places, from 0 to r - 1; every group on its own. The
:math:`r^g` turns of all groups are a group of transformations that change nothing in law, from
which copies are drawn independently, so that p-values are exact (Hemerik and Goeman 2018, *Exact
testing with random permutations*); in each set every member plays the truth with the same
probability. Groups are as many as the sets where these are few.

**Sums.** What is summed over those who play the truth has only r values for each group. With these
made once, a copy is a sum of g of them, however many sets there are.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import torch
from torch import Tensor

from .._support.inputs import WORD, check_fits, cpu
from .._support.random import stream

# Turns of all groups together, about, and the fewest and the most groups.
TURNS, FEWEST, MOST = 2**11, 128, 512
# Parts into which groups are divided, whatever the number of threads.
PARTS = 16


class Labels(ABC):
    """Who plays the truth in n sets of r members, copy by copy."""

    @abstractmethod
    def __call__(self, h: int) -> Tensor:
        """Whether members play the truth in copy h, with shape (n, r)."""

    def copies(self, which: range) -> Tensor:
        """The same in several copies, with shape (c, n, r)."""
        return torch.stack([self(h) for h in which])

    @abstractmethod
    def subset(self, rows: Tensor) -> Self:
        """The same for some sets (b,)."""

    @abstractmethod
    def inside(self, near: Tensor) -> Self:
        """The same in some sets, as near (n,) says; all others stay as they are in the data."""


@dataclass(frozen=True, eq=False)
class Turns(Labels):
    """Groups of sets that turn together.

    Args:
        truth: The place of the truth in the data, with shape (n,).
        group: The group of each set, with shape (n,).
        by: How many places a group turns in each copy, with shape (H + 1, g); none in the data.
        r: The number of members of a set.
    """

    truth: Tensor
    group: Tensor
    by: Tensor
    r: int

    @classmethod
    def of(cls, truth: Tensor, r: int, copies: int, seed: int) -> "Turns":
        """Random groups, and turns of them, for places (n,) of the truth."""
        n = len(truth)
        g = min(n, max(FEWEST, min(MOST, TURNS // r)))
        group = cpu.randperm(n, generator=stream(seed, "groups")) % g
        check_fits("null", copies, 2 * WORD * g)
        by = cpu.randint(r, (copies, g), generator=stream(seed, "turns"))
        by = torch.cat([torch.zeros_like(by[:1]), by])
        return cls(truth, group.to(truth.device), by.to(truth.device), r)

    def __call__(self, h: int) -> Tensor:
        """Whether members play the truth in copy h, with shape (n, r)."""
        return self.copies(range(h, h + 1))[0]

    def copies(self, which: range) -> Tensor:
        """The same in several copies, with shape (c, n, r)."""
        labels: Tensor = self.played(which)[..., None] == cpu.arange(self.r).to(self.truth)
        return labels

    def subset(self, rows: Tensor) -> Self:
        """The same for some sets (b,)."""
        rows = rows.to(self.truth.device)
        return replace(self, truth=self.truth[rows], group=self.group[rows])

    def inside(self, near: Tensor) -> Self:
        """The same in some sets, as near (n,) says; all others are a group that never turns."""
        group = torch.where(near.to(self.group.device), self.group, self.by.shape[1])
        return replace(self, group=group, by=torch.cat([self.by, 0 * self.by[:, :1]], 1))

    def played(self, copies: range, rows: Tensor | None = None) -> Tensor:
        """The member (h, b) that plays the truth in some copies and sets (b,), all if None."""
        some = self if rows is None else self.subset(rows)
        by = some.by[copies.start : copies.stop]
        return (some.truth + by[:, some.group]).remainder_(self.r)

    def sums(self, values: Tensor, parts: Sequence[Tensor]) -> Tensor:
        """Sums (parts, H + 1) of values (n, r) of those who play the truth in some sets."""
        turned = self.bags(parts).turned(values.to(self.truth.device)[..., None])
        return torch.stack([turned_by(self.by, each)[:, 0] for each in turned])

    def bags(self, parts: Sequence[Tensor], weights: Sequence[Tensor] | None = None) -> "Bags":
        """What to add up for several parts: each is some of the sets (b,), with weights if any."""
        g, turn = self.by.shape[1], torch.arange(self.r, device=self.truth.device)[:, None]
        places, first, each, start = [], [], [], 0
        for i, part in enumerate(parts):
            order = self.group[part].argsort(stable=True)
            part = part[order]
            places.append((part * self.r + (self.truth[part] + turn) % self.r).flatten())
            count = torch.bincount(self.group[part], minlength=g).cumsum(0)
            first.append(start + turn * len(part) + torch.cat([0 * count[:1], count[:-1]]))
            start += self.r * len(part)
            if weights is not None:
                each.append(weights[i][order].repeat(self.r))
        return Bags(torch.cat(places), torch.stack(first), torch.cat(each) if each else None)

    def filled(self) -> Self:
        """The same without groups that have no sets."""
        kept, group = self.group.unique(return_inverse=True)
        return replace(self, group=group, by=self.by[:, kept])

    def parts(self) -> "list[Part]":
        """All sets in a fixed number of parts, each of whole groups, for threads to share."""
        g, step = self.by.shape[1], -(-self.by.shape[1] // PARTS)
        order = self.group.argsort(stable=True)
        starts = [0, *self.group.bincount(minlength=g).cumsum(0).tolist()]
        groups = [range(i, min(g, i + step)) for i in range(0, g, step)]
        return [Part(each, order[starts[each.start] : starts[each.stop]]) for each in groups]

    def portions(self, weights: Tensor, groups: range) -> "Portions":
        """What to add up for t parts at once, with weights (t, n) of the sets, all of some groups.

        Sets that have no weight in any part are left out.
        """
        rows = (weights != 0).any(0).nonzero().flatten()
        group = self.group[rows] - groups.start
        order = group.argsort(stable=True)
        rows, group = rows[order], group[order]
        count = torch.bincount(group, minlength=len(groups))
        place = torch.arange(len(rows), device=rows.device) - (count.cumsum(0) - count)[group]
        width = int(count.max())
        chosen = rows.new_zeros(len(groups), width)
        chosen[group, place] = rows
        table = weights.new_zeros(len(groups), len(weights), width)
        table[group, :, place] = weights[:, rows].mT
        turn = torch.arange(self.r, device=rows.device)
        places = chosen[..., None] * self.r + (self.truth[chosen][..., None] + turn) % self.r
        return Portions(places, table)


class Part(NamedTuple):
    """Some groups, and their sets (b,)."""

    groups: range
    rows: Tensor


@dataclass(frozen=True, eq=False)
class Portions:
    """What to add up for many parts of the sets at once, as one product for each group.

    Args:
        places: Members of each set of each group, turn by turn, as places in a table of sets
            (n r, p), with shape (g, s, r).
        weights: Weights of these sets in t parts, with shape (g, t, s); zero beyond a group's end.
    """

    places: Tensor
    weights: Tensor

    def turned(self, table: Tensor) -> Tensor:
        """Sums (g, t, r, p) of members in a table (n, r, p)."""
        rows = table.flatten(0, 1)[self.places.flatten(1)]
        each = rows.unflatten(1, self.places.shape[1:]).flatten(2)
        sums: Tensor = (self.weights.to(each) @ each).unflatten(2, (self.places.shape[2], -1))
        return sums


@dataclass(frozen=True, eq=False)
class Bags:
    """What to add up: the sums of r turns of g groups in several parts of the sets.

    Args:
        places: Members (i,) of all parts, turns and groups, as places in a table of sets (n r, p).
        first: Where those of each part, turn and group begin, with shape (parts, r, g).
        weights: The weights (i,) of members; None if they all count once.
    """

    places: Tensor
    first: Tensor
    weights: Tensor | None

    def turned(self, table: Tensor) -> Tensor:
        """Sums (parts, r, g, p) of members in a table (n, r, p)."""
        rows = table.flatten(0, 1)
        sums = _sums(self.places, rows, self.first.flatten(), self.weights)
        return sums.view(*self.first.shape, -1)


def turned_by(by: Tensor, turned: Tensor) -> Tensor:
    """Sums (h, p) of copies whose groups turn by (h, g), from those of all turns (r, g, p)."""
    g = by.shape[1]
    return _sums(by * g + torch.arange(g, device=by.device), turned.flatten(0, 1))


def turned_parts(by: Tensor, turned: Sequence[Tensor], which: int) -> Tensor:
    """The same for one of t portions, from those of the turns (g, t, r, p) of some groups each."""
    return turned_by(by, torch.cat([each[:, which] for each in turned]).transpose(0, 1))


def _sums(
    places: Tensor, table: Tensor, first: Tensor | None = None, weights: Tensor | None = None
) -> Tensor:
    """Sums of rows of a table, each in the order of its places, whatever the number of threads."""
    bag = torch.nn.functional.embedding_bag
    sums: Tensor = bag(places, table, first, mode="sum", per_sample_weights=weights)
    return sums


@dataclass(frozen=True, eq=False)
class Permuted(Labels):
    """Labels of all members, permuted freely.

    Args:
        data: Whether members play the truth in the data, with shape (n, r).
        seed: Names the streams of permutations.
        rows: Which of the sets (b,) these are; None for all.
        near: The sets in which copies differ from the data; None for all.
    """

    data: Tensor
    seed: int
    rows: Tensor | None = None
    near: Tensor | None = None

    def __call__(self, h: int) -> Tensor:
        """Whether members play the truth in copy h, with shape (n, r)."""
        labels = self.data
        if h:
            order = cpu.randperm(labels.numel(), generator=stream(self.seed, "null", h))
            labels = labels.flatten()[order.to(labels.device)].reshape(labels.shape)
        if self.near is not None:
            labels = torch.where(self.near[:, None], labels, self.data)
        return labels if self.rows is None else labels[self.rows]

    def subset(self, rows: Tensor) -> Self:
        """The same for some sets (b,)."""
        rows = rows.to(self.data.device)
        return replace(self, rows=rows if self.rows is None else self.rows[rows])

    def inside(self, near: Tensor) -> Self:
        """The same in some sets, as near (n,) says; all others stay as they are in the data."""
        whole, near = torch.zeros_like(self.data[:, 0]), near.to(self.data.device)
        whole[slice(None) if self.rows is None else self.rows] = near
        return replace(self, near=whole)

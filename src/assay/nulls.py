r"""Nulls: what the data could have been if q were right, as H + 1 labelled versions called copies.

Copy 0 is the data, the others are null copies; all have the same x. A copy consists of n sets, one
for each x; of the r members of a set some are labelled class 1, the true parameter, the others
class 0, q. With one and the same function T of the data and of H null copies,
:math:`p = (1 + \#\{T_h \ge T_0\}) / (1 + H)` is at most :math:`\alpha` with probability at most
:math:`\alpha`, for every sample size and classifier.

If q is right, the true parameter and the independent draws of q at the same x are exchangeable
(:class:`Exchange`), and true latents are draws of the base distribution (:class:`KnownBase`). Both
nulls are exact for the *global null*, q = p at almost every x; :class:`LocalExchange` is exact for
the *local null*, q = p throughout a neighbourhood of x_o, whatever q does elsewhere. All ask that
x_o was not chosen by looking at theta of the calibration.

Reference: Linhart, Gramfort and Rodrigues 2023, *L-C2ST: Local Diagnostics for Posterior
Approximations in Simulation-Based Inference*.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from ._support.inputs import WORD, check_count, check_fits, check_kind, cpu
from ._support.random import mix_seed, seed_of, stream
from ._support.work import spread_over
from .data.calibration import Calibration, Latents
from .data.guards import check_calibration
from .data.posterior import Base, StandardNormal
from .neighbourhood import Nearest, standard_deviation

BASE_DRAWS = 4  # of the base, beside each true latent that they are exchanged with
BLOCK = 2**20  # sets that are put together at a time
SEEDING = 200  # sets whose members change the seed of null copies
# The fewest and the most groups of sets that share shifts; between them, groups times members.
FEWEST, MOST, SHIFTS = 128, 512, 2**11


@dataclass(frozen=True)
class Null:
    """How many null copies are made, and which hypothesis they stand for."""

    n: int = 199

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_count("n", self.n))

    @property
    def where(self) -> Nearest | None:
        """The neighbourhood outside of which all copies are the data; None for a global null."""
        return None

    @property
    def scope(self) -> str:
        """Where q is right under the hypothesis."""
        return "at almost every x" if self.where is None else self.where.words

    @property
    def hypothesis(self) -> str:
        """What a small p-value speaks against."""
        tested = ", tested at x_o" if self.where is None else ""
        return f"q(theta | x) = p(theta | x) {self.scope}{tested}"


class GlobalNull(Null, ABC):
    """A null that stands for q = p at almost every x, and is fitted once for all x_o."""

    @abstractmethod
    def copies(self, calibration: Calibration, seed: int) -> "Copies":
        """The data, and n null copies of it."""


@dataclass(frozen=True)
class Exchange(GlobalNull):
    """The true parameter and the k draws of q at the same x are exchangeable if q is right.

    A copy chooses which of the k + 1 members is labelled the true parameter, uniformly at every x:
    independently where there are few x, else in random groups of sets that shift their labels
    together. Observations stay with their sets, so both classes keep the same x. In latent space
    four draws of the base distribution stand in for draws of q at each x.

    Args:
        n: The number of null copies.

    Example:
        >>> Exchange(99)
        Exchange(n=99)
    """

    def copies(self, calibration: Calibration, seed: int) -> "LabelCopies":
        """The data, and n exchanges of it."""
        return _label_copies(calibration, self.n, seed, GroupShifts.random)


@dataclass(frozen=True)
class FreePermutation(GlobalNull):
    """The labels of all rows are permuted freely, as in Algorithm 1 of the paper.

    In a copy the classes no longer share the same x, so null classifiers can learn chance
    imbalances of x that the data cannot have. It is not exact: on average it was conservative, the
    more so the more dimensions x has. Kept for reproduction.

    Args:
        n: The number of null copies.
    """

    def copies(self, calibration: Calibration, seed: int) -> "LabelCopies":
        """The data, and n permutations of its labels."""
        return _label_copies(calibration, self.n, seed, LabelTable.permuted)


@dataclass(frozen=True)
class LocalExchange(Null):
    """Exchanges labels in the sets near x_o only; all others keep the labels they have.

    If q is right throughout the neighbourhood, the p-value is exact however wrong q is elsewhere:
    what a classifier smooths into x_o from outside is in the data and in the nulls alike. The
    classifier is fitted to all sets, with null copies of its own for every observation; only the
    data's fit is shared. With :class:`KnownBase`, base draws replace the true latents near x_o.

    Args:
        n: The number of null copies.
        near: What is near x_o.

    Example:
        >>> LocalExchange(99).hypothesis
        'q(theta | x) = p(theta | x) throughout the nearest simulations around x_o'
    """

    near: Nearest = Nearest()

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kind("near", self.near, "a neighbourhood such as Nearest(0.1)", Nearest)

    @property
    def where(self) -> Nearest:
        """The neighbourhood outside of which all copies are the data."""
        return self.near


@dataclass(frozen=True)
class KnownBase(GlobalNull):
    """In latent space, true latents are draws of the base distribution if q is right.

    A copy replaces the true latents by base draws; class 0 is the base itself, with fresh draws in
    every epoch. These are Algorithms 3 and 4 of the paper with two repairs: data and nulls are
    treated by the same function, and no null is evaluated on its own training draws. Null copies
    depend on x alone and serve every flow of the same task: ``test.refit_on(latents)`` of a fitted
    test fits the data of another flow alone.

    Args:
        n: The number of null copies.
    """

    def copies(self, calibration: Calibration, seed: int) -> "BaseCopies":
        """The data, and n copies whose true latents are replaced by base draws."""
        if not isinstance(calibration, Latents):
            raise ValueError(
                "null: expected a calibration in latent space for KnownBase; got parameters. "
                "Use calibration.to_latent(flow), or the null Exchange(n)."
            )
        x, n = calibration.features, len(calibration)
        return BaseCopies(
            x=x,
            which=range(self.n + 1),
            base=calibration.base,
            size=2,
            latents=calibration.theta,
            seed=calibration.own_seed(seed),
            near=torch.ones(n, dtype=torch.bool, device=x.device),
            sets=torch.arange(n, device=x.device),
            total=n,
        )


def global_null(calibration: Calibration, preferred: GlobalNull | None = None) -> GlobalNull:
    """The null a classifier prefers; else exchanges of draws of q, base draws in latent space."""
    return preferred or (KnownBase() if isinstance(calibration, Latents) else Exchange())


@dataclass(frozen=True, eq=False, kw_only=True)
class Copies(ABC):
    """H + 1 labelled versions of one data set; a slice of it is the same with fewer copies."""

    x: Tensor  # features of the observations, (n, d)
    which: range  # the numbers of the copies, of which 0 is the data
    base: Base | None  # the distribution of class 0, where it is known
    size: int  # members of a set, r
    truths: int = 1  # class-1 members of a set: one, or all but one

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, which: slice) -> Self:
        return replace(self, which=self.which[which])

    @property
    def odds(self) -> float:
        """The number of class-0 members for each class-1 member of a set."""
        return (self.size - self.truths) / self.truths

    @property
    @abstractmethod
    def scaling(self) -> tuple[Tensor, Tensor]:
        """Location and scale (m,) of the members, the same for every copy."""

    @abstractmethod
    def subset(self, rows: Tensor) -> Self:
        """The same copies of some sets (b,), each with the labels and draws that it has here."""

    @abstractmethod
    def inside(self, near: Tensor) -> Self:
        """Copies that differ from the data in some sets only, as near (n,) says."""

    @abstractmethod
    def batch(self, rows: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Members (c, b, r, m) and labels (c, b, r) of some sets (b,), in all c copies.

        With 1 in place of c where the copies do not differ. Where class 0 is known, its draws
        change with the epoch, the pass over the data.
        """

    def rows(self, copy: int) -> tuple[Tensor, Tensor, Tensor]:
        """One copy, row by row: members (n r, m), features of x (n r, d) and labels (n r,).

        For classifiers that take one data set at a time. A label is true for class 1.
        """
        h, every = self.which[copy], torch.arange(len(self.x), device=self.x.device)
        (members,), (labels,) = replace(self, which=range(h, h + 1)).batch(every, 0)
        return members.flatten(0, 1), self.x.repeat_interleave(self.size, 0), labels.flatten()


@dataclass(frozen=True, eq=False)
class GroupShifts:
    r"""Labels of sets of r members, of which one is the true parameter; a group shares its shifts.

    Members are in random order. If q is right, the member any number of places further could as
    well be the true parameter. Sets are divided at random into g groups; in a copy all sets of a
    group shift their labels by the same number of places, 0 to r - 1, independently of other
    groups. The :math:`r^g` shifts are a group of transformations that change no distribution, from
    which copies are drawn independently: p-values are exact (Hemerik and Goeman 2018, *Exact
    testing with random permutations*). Sums over the members labelled true have only r values in
    each group, so that those of a copy cost g additions. Where sets are few, each is a group.
    """

    truth: Tensor  # the member that is the true parameter in the data, (n,)
    group: Tensor  # the group of each set, (n,)
    shifts: Tensor  # how far labels of a group shift in each copy, zero in the data, (H + 1, g)
    r: int  # members of a set

    @classmethod
    def random(cls, truth: Tensor, r: int, copies: int, seed: int) -> "GroupShifts":
        """Random groups, and random shifts for so many null copies."""
        n = len(truth)
        g = min(n, max(FEWEST, min(MOST, SHIFTS // r)))
        group = cpu.randperm(n, generator=stream(seed, "groups")) % g
        check_fits("null", copies, 2 * WORD * g)
        shifts = cpu.randint(r, (copies, g), generator=stream(seed, "turns"))
        shifts = torch.cat([torch.zeros_like(shifts[:1]), shifts])
        return cls(truth, group.to(truth.device), shifts.to(truth.device), r)

    def __call__(self, which: range) -> Tensor:
        """Labels (c, n, r) in some copies."""
        shifts = self.shifts[which.start : which.stop : which.step]
        chosen = (self.truth + shifts[:, self.group]).remainder_(self.r)
        labels: Tensor = chosen[..., None] == cpu.arange(self.r).to(self.truth)
        return labels

    def subset(self, rows: Tensor) -> "GroupShifts":
        """The same labels of some sets (b,)."""
        rows = rows.to(self.truth.device)
        return replace(self, truth=self.truth[rows], group=self.group[rows])

    def inside(self, near: Tensor) -> "GroupShifts":
        """The same labels where near (n,) is true; all other sets are a group without shifts."""
        group = torch.where(near.to(self.group.device), self.group, self.shifts.shape[1])
        shifts = torch.cat([self.shifts, torch.zeros_like(self.shifts[:, :1])], 1)
        return replace(self, group=group, shifts=shifts)

    def group_sums(self, table: Tensor) -> Tensor:
        """Sums (r, g, p) over members labelled true, of a table (n, r, p), for each shift."""
        g, shift = self.shifts.shape[1], torch.arange(self.r, device=self.truth.device)[:, None]
        order = self.group.argsort(stable=True)
        places = order * self.r + (self.truth[order] + shift) % self.r
        count = torch.bincount(self.group, minlength=g)
        first = shift * len(order) + count.cumsum(0) - count
        sums = _sum_rows(table.flatten(0, 1), places.flatten(), first.flatten())
        return sums.view(self.r, g, -1)

    def copy_sums(self, group_sums: Tensor, which: range) -> Tensor:
        """Sums (c, p) over members labelled true in some copies, from sums of groups."""
        shifts = self.shifts[which.start : which.stop : which.step]
        groups = torch.arange(shifts.shape[1], device=shifts.device)
        return _sum_rows(group_sums.flatten(0, 1), shifts * len(groups) + groups)


def _sum_rows(table: Tensor, places: Tensor, first: Tensor | None = None) -> Tensor:
    """Sums of rows of a table, each in the order of its places, whatever the number of threads."""
    return torch.nn.functional.embedding_bag(places, table, first, mode="sum")


@dataclass(frozen=True, eq=False)
class LabelTable:
    """Labels of all copies, written out in a table with shape (H + 1, n, r)."""

    table: Tensor

    @classmethod
    def permuted(cls, truth: Tensor, r: int, copies: int, seed: int) -> "LabelTable":
        """Random permutations of the labels of all members of all sets."""
        data = truth[:, None] == cpu.arange(r).to(truth)
        check_fits("null", copies, data.numel())
        table = torch.stack([data] * (copies + 1))
        for h in range(1, copies + 1):
            order = cpu.randperm(data.numel(), generator=stream(seed, "null", h))
            table[h] = data.flatten()[order.to(data.device)].view_as(data)
        return cls(table)

    def __call__(self, which: range) -> Tensor:
        """Labels (c, n, r) in some copies."""
        return self.table[which.start : which.stop : which.step]

    def subset(self, rows: Tensor) -> "LabelTable":
        """The same labels of some sets (b,)."""
        return LabelTable(self.table[:, rows.to(self.table.device)])

    def inside(self, near: Tensor) -> "LabelTable":
        """The same labels where near (n,) is true; in all other sets those of the data."""
        near = near.to(self.table.device)[:, None]
        return LabelTable(torch.where(near, self.table, self.table[:1]))


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelCopies(Copies):
    """Copies with the same members, which differ in their labels."""

    members: Tensor  # the true parameter and the draws of q at the same x, shuffled, (n, r, m)
    labelling: GroupShifts | LabelTable  # which member is class 1; class 0 where all others are

    @cached_property
    def scaling(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation over all members, which no exchange of labels changes."""
        pooled = self.members.flatten(0, 1)
        return pooled.mean(0, dtype=torch.float64).to(pooled), standard_deviation(pooled)

    @cached_property
    def labels(self) -> Tensor:
        """Whether members are class 1, with shape (c, n, r)."""
        labels = self.labelling(self.which).to(self.members.device)
        return labels if self.truths == 1 else ~labels

    def subset(self, rows: Tensor) -> Self:
        """The same copies of some sets (b,), each with the labels that it has here."""
        members, labelling = self.members[rows], self.labelling.subset(rows)
        return replace(self, x=self.x[rows], members=members, labelling=labelling)

    def inside(self, near: Tensor) -> Self:
        """Copies that differ from the data in some sets only, as near (n,) says."""
        return replace(self, labelling=self.labelling.inside(near))

    def batch(self, rows: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Members (1, b, r, m) and labels (c, b, r) of some sets."""
        return self.members[rows][None], self.labels[:, rows]


@dataclass(frozen=True, eq=False, kw_only=True)
class BaseCopies(Copies):
    """Copies whose class 0 is a known base and whose class 1 are draws of it, except copy 0's."""

    base: Base
    latents: Tensor  # true latents, which are class 1 in copy 0, (n, m)
    seed: int  # names the streams of all draws
    near: Tensor  # whether null copies differ from the data, (n,)
    sets: Tensor  # the numbers of these sets among all that draws are for, (n,)
    total: int  # the number of all sets that draws are for
    _latest: dict[int, Tensor] = field(default_factory=dict, init=False)  # class 0 of an epoch

    @cached_property
    def scaling(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the base."""
        if isinstance(self.base, StandardNormal):
            return self.latents.new_zeros(self.base.dim), self.latents.new_ones(self.base.dim)
        z = self.base.sample(10_000, stream(0, "scaling")).to(self.latents)
        return z.mean(0), standard_deviation(z)

    def subset(self, rows: Tensor) -> Self:
        """The same copies of some sets (b,), each with the draws that it has here."""
        kept = {name: getattr(self, name)[rows] for name in ("x", "latents", "near", "sets")}
        return replace(self, **kept)

    def inside(self, near: Tensor) -> Self:
        """Copies that differ from the data in some sets only, as near (n,) says."""
        return replace(self, near=near.to(self.x.device))

    def batch(self, rows: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Members (c, b, 2, m), a base draw and class 1, and labels (1, b, 2) of some sets."""
        if epoch not in self._latest:
            self._latest.clear()
            self._latest[epoch] = self._draw("class 0", epoch)
        class1 = self.class1[:, rows]
        class0 = self._latest[epoch][rows].expand_as(class1)
        labels = cpu.tensor([False, True], dtype=torch.bool).to(rows.device)
        return torch.stack([class0, class1], 2), labels.expand(1, len(rows), 2)

    @cached_property
    def class1(self) -> Tensor:
        """The members of class 1 in all copies, with shape (c, n, m)."""

        def latents(h: int) -> Tensor:
            if h == 0:
                return self.latents
            return self._draw("null", h).where(self.near[:, None], self.latents)

        with spread_over(torch.get_num_threads() if len(self.which) > 1 else 1) as apply:
            return torch.stack(list(apply(latents, self.which)))

    def _draw(self, *key: int | str) -> Tensor:
        """Draws of the base (n, m): those of these sets, of as many as there are in all."""
        draws = self.base.sample(self.total, stream(self.seed, *key)).to(self.latents)
        return draws[self.sets]


def _label_copies(
    calibration: Calibration,
    copies: int,
    seed: int,
    labelling: Callable[..., GroupShifts | LabelTable],
) -> LabelCopies:
    """The data and so many copies, with labels from places of true parameters, r and a seed."""
    check_calibration(calibration)
    own = calibration.own_seed(seed_of(seed))
    members, truth = _shuffled_sets(calibration, own)
    # The seed of labels depends on the members of the first sets, in any order and units.
    some = members[:SEEDING].sort(1).values.flatten(0, 1).cpu().numpy()
    r = members.shape[1]
    return LabelCopies(
        x=calibration.features,
        which=range(copies + 1),
        base=calibration.base,
        size=r,
        members=members,
        labelling=labelling(truth, r, copies, mix_seed(own, some.argsort(0, kind="stable"))),
    )


def _shuffled_sets(calibration: Calibration, seed: int) -> tuple[Tensor, Tensor]:
    """The members (n, r, m) of all sets, and which of them is the true parameter (n,).

    Members are in random order in the data, as they are in a null copy: otherwise a classifier
    that depends on the order of rows would treat the data and its nulls differently.
    """
    n, r = len(calibration), 1 + (calibration.k or BASE_DRAWS)
    base, places = stream(seed, "base"), stream(seed, "places")
    shuffled = calibration.theta.new_empty(n, r, calibration.m)
    truth = cpu.zeros(n, dtype=torch.int64)
    for block in (slice(start, start + BLOCK) for start in range(0, n, BLOCK)):
        members = calibration.subset(block).sets(BASE_DRAWS, base)
        order = cpu.rand(members.shape[:2], generator=places).argsort(1)
        index = order.to(members.device)[..., None].expand_as(members)
        torch.gather(members, 1, index, out=shuffled[block])
        truth[block] = order.argmin(1)
    return shuffled, truth.to(shuffled.device)

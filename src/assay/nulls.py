r"""Nulls: what the data could have been if q were right, as H + 1 labelled versions called copies.

Copy 0 is the data; all copies have the same x. A copy consists of n sets, one for each x; of the r
members of a set one is labelled class 1, the true parameter, the others class 0, q. With one and
the same function T of all copies, :math:`p = (1 + \#\{T_h \ge T_0\}) / (1 + H)` is at most
:math:`\alpha` with probability at most :math:`\alpha`, for every sample size and classifier.

Nulls are exact if q = p at almost every x, or throughout a neighbourhood of x_o for
:class:`LocalExchange`, and if x_o was not chosen by looking at theta of the calibration.

Reference: Linhart, Gramfort and Rodrigues 2023, *L-C2ST*, NeurIPS; Algorithms 1 to 4.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, pad

from ._support.inputs import WORD, check_count, check_fits, check_kind, cpu
from ._support.random import mix_seed, seed_of, stream
from ._support.work import spread_over
from .data.guards import check_calibration
from .data.posterior import Base, StandardNormal
from .neighbourhood import Nearest, standard_deviation

if TYPE_CHECKING:
    from .data.calibration import Calibration

BASE_DRAWS = 4  # of the base, beside each true latent that they are exchanged with
BLOCK = 2**20  # sets that are put together at a time
SEEDING = 200  # sets whose members change the seed of null copies
# The fewest and the most groups of sets that share shifts; between them, groups times members.
FEWEST, MOST, SHIFTS = 128, 512, 2**11


@dataclass(frozen=True)
class Null:
    """How many null copies are made, and which hypothesis they stand for."""

    n: int = 199
    near: ClassVar[Nearest | None] = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_count("n", self.n))

    @property
    def where(self) -> Nearest | None:
        """The neighbourhood outside of which all copies are the data; None for a global null."""
        return self.near

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
    def copies(self, calibration: "Calibration", seed: int) -> "Copies":
        """The data, and n null copies of it."""


@dataclass(frozen=True)
class Exchange(GlobalNull):
    """The true parameter and the k draws of q at the same x are exchangeable if q is right.

    A copy chooses which of the k + 1 members is labelled the true parameter, uniformly at every x;
    where there are many x, groups of sets shift their labels together. In latent space four draws
    of the base distribution stand in for draws of q.

    Args:
        n: The number of null copies.
    """

    def copies(self, calibration: "Calibration", seed: int) -> "LabelCopies":
        """The data, and n exchanges of it."""
        check_calibration(calibration)
        seed = calibration.own_seed(seed_of(seed))
        n, r = len(calibration), 1 + (calibration.k or BASE_DRAWS)
        members = calibration.theta.new_empty(n, r, calibration.m)
        truth = cpu.zeros(n, dtype=torch.int64)
        base, places = stream(seed, "base"), stream(seed, "places")
        # In random order in the data, as in null copies: classifiers may depend on the order.
        for block in (slice(start, start + BLOCK) for start in range(0, n, BLOCK)):
            ordered = calibration.subset(block).sets(BASE_DRAWS, base)
            order = cpu.rand(ordered.shape[:2], generator=places).argsort(1)
            index = order.to(ordered.device)[..., None].expand_as(ordered)
            torch.gather(ordered, 1, index, out=members[block])
            truth[block] = order.argmin(1)
        # The seed of labels depends on the members of the first sets, in any order and units.
        some = members[:SEEDING].sort(1).values.flatten(0, 1).cpu().numpy()
        seed = mix_seed(seed, some.argsort(0, kind="stable"))
        g = min(n, max(FEWEST, min(MOST, SHIFTS // r)))
        check_fits("null", self.n, 2 * WORD * g)
        group = cpu.randperm(n, generator=stream(seed, "groups")) % g
        shifts = cpu.randint(r, (self.n, g), generator=stream(seed, "turns"))
        return LabelCopies(
            x=calibration.features,
            near=torch.ones(n, dtype=torch.bool, device=members.device),
            which=range(self.n + 1),
            base=calibration.base,
            size=r,
            members=members,
            truth=truth.to(members.device),
            group=group.to(members.device),
            shifts=pad(shifts, (0, 1, 1, 0)).to(members.device),
            seed=seed,
        )


@dataclass(frozen=True)
class FreePermutation(GlobalNull):
    """The labels of all rows are permuted freely, as published (Algorithm 1 of the paper).

    The classes of a null copy do not share the same x, so its classifier can learn chance
    imbalances of x that the data cannot have. This is not exact, and was conservative on average.

    Args:
        n: The number of null copies.
    """

    def copies(self, calibration: "Calibration", seed: int) -> "LabelCopies":
        """The data, and n permutations of its labels."""
        copies = Exchange(1).copies(calibration, seed)
        data = copies.labels[0]  # (n, r)
        check_fits("null", self.n, data.numel())
        table = torch.stack([data] * (self.n + 1), 1)
        for h in range(1, self.n + 1):
            order = cpu.randperm(data.numel(), generator=stream(copies.seed, "null", h))
            table[:, h] = data.flatten()[order.to(data.device)].view_as(data)
        return replace(copies, which=range(self.n + 1), table=table)


@dataclass(frozen=True)
class LocalExchange(Null):
    """Exchanges labels in the sets near x_o only; all others keep the labels they have.

    If q is right throughout the neighbourhood, the p-value is exact however wrong q is elsewhere:
    what a classifier smooths into x_o from outside is in the data and in the nulls alike. Null
    copies are fitted for every observation. In latent space base draws replace latents there only.

    Args:
        n: The number of null copies.
        near: What is near x_o.

    Example:
        >>> LocalExchange(99).hypothesis
        'q(theta | x) = p(theta | x) throughout the nearest simulations around x_o'
    """

    near: Nearest = Nearest()  # type: ignore[misc]

    def __post_init__(self) -> None:
        super().__post_init__()
        check_kind("near", self.near, "a neighbourhood such as Nearest(0.1)", Nearest)


@dataclass(frozen=True)
class KnownBase(GlobalNull):
    """In latent space, true latents are draws of the base distribution if q is right.

    A copy replaces the true latents by base draws; class 0 is the base itself, with fresh draws in
    every epoch. These are Algorithms 3 and 4 of the paper, but data and nulls are treated by the
    same function, and no null is evaluated on its own training draws. Null copies depend on x
    alone and serve all flows of a task: ``test.refit_on(latents)`` fits the data of another alone.

    Args:
        n: The number of null copies.
    """

    def copies(self, calibration: "Calibration", seed: int) -> "BaseCopies":
        """The data, and n copies whose true latents are replaced by base draws."""
        check_calibration(calibration)
        if calibration.base is None:
            raise ValueError(
                "null: expected a calibration in latent space for KnownBase; got parameters. "
                "Use calibration.to_latent(flow), or the null Exchange(n)."
            )
        x, n = calibration.features, len(calibration)
        return BaseCopies(
            x=x,
            near=torch.ones(n, dtype=torch.bool, device=x.device),
            which=range(self.n + 1),
            base=calibration.base,
            size=2,
            latents=calibration.theta,
            seed=calibration.own_seed(seed),
            sets=torch.arange(n, device=x.device),
            total=n,
        )


def global_null(calibration: "Calibration", preferred: GlobalNull | None = None) -> GlobalNull:
    """The null a classifier prefers; else exchanges of draws of q, base draws in latent space."""
    return preferred or (Exchange() if calibration.base is None else KnownBase())


@dataclass(frozen=True, eq=False, kw_only=True)
class Copies(ABC):
    """H + 1 labelled versions of one data set; a slice of it is the same with fewer copies."""

    x: Tensor  # features of the observations, (n, d)
    near: Tensor  # whether null copies differ from the data in a set, (n,)
    which: range  # the numbers of the copies, of which 0 is the data
    base: Base | None  # the distribution of class 0, where it is known
    size: int  # members of a set, r
    truths: int = 1  # class-1 members of a set: one, or all but one
    of_sets: ClassVar[tuple[str, ...]] = ("x", "near")  # tensors with an entry for each set

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, which: slice) -> Self:
        return replace(self, which=self.which[which])

    def subset(self, rows: Tensor) -> Self:
        """The same copies of some sets (b,), each with the labels and draws that it has here."""
        tensors = {name: getattr(self, name) for name in self.of_sets}
        return replace(self, **{k: v[rows] for k, v in tensors.items() if v is not None})

    def inside(self, near: Tensor) -> Self:
        """Copies that differ from the data in some sets only, as near (n,) says."""
        return replace(self, near=near.to(self.x.device))

    @property
    def odds(self) -> float:
        """The number of class-0 members for each class-1 member of a set."""
        return (self.size - self.truths) / self.truths

    @property
    @abstractmethod
    def scaling(self) -> tuple[Tensor, Tensor]:
        """Location and scale (m,) of the members, the same for every copy."""

    @abstractmethod
    def batch(self, rows: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Members (c, b, r, m) and labels (c, b, r) of sets (b,); c is 1 if copies are alike."""

    def rows(self, copy: int) -> tuple[Tensor, Tensor, Tensor]:
        """Members (n r, m), features of x (n r, d) and labels (n r,) of one copy, row by row."""
        h, every = self.which[copy], torch.arange(len(self.x), device=self.x.device)
        (members,), (labels,) = replace(self, which=range(h, h + 1)).batch(every, 0)
        return members.flatten(0, 1), self.x.repeat_interleave(self.size, 0), labels.flatten()


@dataclass(frozen=True, eq=False, kw_only=True)
class LabelCopies(Copies):
    r"""Copies with the same members, which differ in their labels.

    In a copy all sets of a group shift their labels by the same number of places, 0 to r - 1,
    independently of other groups. If q is right, none of these :math:`r^g` transformations changes
    the distribution, so that p-values are exact (Hemerik and Goeman 2018, *Exact testing with
    random permutations*); and a sum over members labelled true has only r values in each group.
    """

    members: Tensor  # the true parameter and the draws of q at the same x, shuffled, (n, r, m)
    truth: Tensor  # the member that is the true parameter in the data, (n,)
    group: Tensor  # the group of each set, (n,)
    shifts: Tensor  # of groups in each copy; zero in the data, and in the last group, (H + 1, g)
    seed: int  # names the streams of labels
    table: Tensor | None = None  # labels that are written out in place of shifts, (n, H + 1, r)
    of_sets: ClassVar[tuple[str, ...]] = ("x", "near", "members", "truth", "group", "table")

    @cached_property
    def scaling(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation over all members, which no exchange of labels changes."""
        pooled = self.members.flatten(0, 1)
        return pooled.mean(0, dtype=torch.float64).to(pooled), standard_deviation(pooled)

    @cached_property
    def labels(self) -> Tensor:
        """Whether members are class 1, with shape (c, n, r)."""
        which = list(self.which)
        if self.table is None:
            # Sets that are the same in all copies are in the last group, which never shifts.
            group = self.group.where(self.near, -1)
            place = (self.truth + self.shifts[which][:, group]).remainder_(self.size)  # (c, n)
            labels = place[..., None] == cpu.arange(self.size).to(place)
        else:
            near = self.near[:, None, None]
            labels = self.table[:, which].where(near, self.table[:, :1]).swapaxes(0, 1)
        return labels if self.truths == 1 else ~labels

    def batch(self, rows: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Members (1, b, r, m) and labels (c, b, r) of some sets."""
        return self.members[rows][None], self.labels[:, rows]

    def group_sums(self, table: Tensor) -> Tensor:
        """Sums (r, g, p) over members labelled true, of a table (n, r, p), for each shift."""
        g, shift = self.shifts.shape[1], torch.arange(self.size, device=table.device)[:, None]
        group = self.group.where(self.near, g - 1)
        order, count = group.argsort(stable=True), group.bincount(minlength=g)
        places = order * self.size + (self.truth[order] + shift) % self.size
        first = shift * len(order) + count.cumsum(0) - count
        # Adds rows in the order of their places, whatever the number of threads.
        sums = embedding_bag(places.flatten(), table.flatten(0, 1), first.flatten(), mode="sum")
        return sums.view(self.size, g, -1)

    def copy_sums(self, group_sums: Tensor) -> Tensor:
        """Sums (c, p) over members labelled true in each copy, from sums of groups."""
        g = self.shifts.shape[1]
        rows = self.shifts[list(self.which)] * g + torch.arange(g, device=self.shifts.device)
        return embedding_bag(rows, group_sums.flatten(0, 1), mode="sum")


@dataclass(frozen=True, eq=False, kw_only=True)
class BaseCopies(Copies):
    """Copies whose class 0 is a known base and whose class 1 are draws of it, except copy 0's."""

    base: Base
    latents: Tensor  # true latents, which are class 1 in copy 0, (n, m)
    seed: int  # names the streams of all draws
    sets: Tensor  # the numbers of these sets among all that draws are for, (n,)
    total: int  # the number of all sets that draws are for
    of_sets: ClassVar[tuple[str, ...]] = ("x", "near", "latents", "sets")
    _latest: dict[int, Tensor] = field(default_factory=dict, init=False)  # class 0 of an epoch

    @cached_property
    def scaling(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the base."""
        if isinstance(self.base, StandardNormal):
            return self.latents.new_zeros(self.base.dim), self.latents.new_ones(self.base.dim)
        z = self.base.sample(10_000, stream(0, "scaling")).to(self.latents)
        return z.mean(0), standard_deviation(z)

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
        own, near = self.latents, self.near[:, None]
        with spread_over(torch.get_num_threads() if len(self.which) > 1 else 1) as apply:
            draws = apply(
                lambda h: self._draw("null", h).where(near, own) if h else own, self.which
            )
            return torch.stack(list(draws))

    def _draw(self, *key: int | str) -> Tensor:
        """Draws of the base (n, m): those of these sets, of as many as there are in all."""
        return self.base.sample(self.total, stream(self.seed, *key)).to(self.latents)[self.sets]

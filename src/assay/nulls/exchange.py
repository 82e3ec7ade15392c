r"""Nulls: how the data could have looked if q were right.

**Exchanges.** If q is right, the truth and the draws of q at the same x are exchangeable, and so
are all ways to choose who of them plays the truth. :class:`Exchange` asks that the k draws at an x
are exchangeable with each other, as independent ones are and neighbours in a Markov chain are not.

**Base draws.** In latent space the truths are draws of the base if q is right: :class:`KnownBase`.

Both are exact for the **global null**, q = p at almost every x. Evaluated at x_o, copies say
whether the error of q shows *there*; a classifier smooths errors from elsewhere into x_o.
:class:`LocalExchange` is exact for the **local null**, q = p throughout a neighbourhood of x_o,
whatever q does elsewhere. Both ask that x_o was not chosen by looking at theta of the calibration.

Reference: Linhart, Gramfort and Rodrigues 2023, *L-C2ST: Local Diagnostics for Posterior
Approximations in Simulation-Based Inference*.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Self

import torch
from torch import Tensor

from .._support.inputs import check_count, check_kind, cpu
from .._support.parallel import spread_over
from .._support.random import mix_seed, seed_of, stream
from .._support.regression import standard_deviation
from ..data.calibration import Calibration, Latents, check_calibration
from ..data.posterior import Base, StandardNormal
from ..neighbourhood import Nearest
from .copies import Copies, Feature, Rows, Sums
from .turns import Labels, Permuted, Turns, turned_by

# Where q is right under the global hypothesis, and what that is.
EVERYWHERE = "at almost every x"
GLOBAL = f"q(theta | x) = p(theta | x) {EVERYWHERE}, tested at x_o"
# Members of a set from which a covariance is taken; they stand in random order.
MOST_MEMBERS = 8
# Numbers in the largest table of a sum that is taken step by step.
ROOM = 2**22
# Sets whose members have a say in the seeds of nulls.
MIXED = 200
# Rows whose sets are made at a time.
ROWS = 2**20
# Base draws at each x that are exchanged with a truth in latent space.
BASE_DRAWS = 4


@dataclass(frozen=True)
class Null(ABC):  # noqa: B024
    """How H = n null copies are made, and which hypothesis they stand for."""

    n: int = 199
    # The neighbourhood outside of which copies are the data; None for a global null.
    where: ClassVar[Nearest | None] = None
    # What a small p-value speaks against, and where q is right under it.
    hypothesis: ClassVar[str] = GLOBAL
    scope: ClassVar[str] = EVERYWHERE

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_count("n", self.n))


class GlobalNull(Null):
    """A null that stands for q = p at almost every x, and is fitted once for all x_o."""

    @abstractmethod
    def copies(self, calibration: Calibration, seed: int) -> Copies:
        """The data, and n null copies of it."""


@dataclass(frozen=True)
class Exchange(GlobalNull):
    """The truth and the k draws of q at the same x are exchangeable if q is right.

    A copy chooses which of the k + 1 plays the truth, uniformly at every x; independently where
    there are few x, else in random groups of them that turn together
    (:class:`~assay.nulls.turns.Turns`). The observations stay with their sets, so both classes
    keep the same x, as in the data. In latent space the draws of q are draws of the base, four at
    each x.

    Args:
        n: The number of null copies.

    Example:
        >>> Exchange(99)
        Exchange(n=99)
    """

    def copies(
        self, calibration: Calibration, seed: int, base_draws: int = BASE_DRAWS
    ) -> "LabelCopies":
        """The data, and n exchanges of it; in latent space with so many draws of the base."""
        check_calibration(calibration)
        seed = seed_of(seed)
        members, data = _members(calibration, seed, base_draws)
        truth, mixed = data.byte().argmax(1), _mixed(calibration, members, seed)
        turns = Turns.of(truth.to(members.device), data.shape[1], self.n, mixed)
        x, base = calibration.features, calibration.base
        return LabelCopies(members, x, turns, range(self.n + 1), base)


@dataclass(frozen=True)
class FreePermutation(GlobalNull):
    """The labels of all rows are permuted freely, as in Algorithm 1 of the paper.

    This breaks the pairing: in a copy the classes no longer share the same x, so null classifiers
    can learn chance imbalances of x that the data cannot have. It is not exact: on average it was
    conservative, the more so the more dimensions x has. Kept for reproduction.

    Args:
        n: The number of null copies.
    """

    def copies(self, calibration: Calibration, seed: int) -> "LabelCopies":
        """The data, and n permutations of its labels."""
        members, data = _members(calibration, seed)
        permuted = Permuted(data.to(members.device), _mixed(calibration, members, seed))
        x, base = calibration.features, calibration.base
        return LabelCopies(members, x, permuted, range(self.n + 1), base)


@dataclass(frozen=True)
class LocalExchange(Null):
    """Exchanges the sets near x_o only; all others keep the truth they have.

    If q is right throughout the neighbourhood, the sets in it are exchangeable given the rest of
    the data, so that the p-value is exact for the neighbourhood however wrong q is elsewhere:
    what a classifier smooths into x_o from outside is in the data and in the nulls alike. The
    classifier is fitted to all sets, with null copies of its own for every observation; only the
    data's fit is shared. In latent space the truths near x_o are replaced by base draws.

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
    def where(self) -> Nearest:  # type: ignore[override]
        """The neighbourhood."""
        return self.near

    @property
    def hypothesis(self) -> str:  # type: ignore[override]
        """What a small p-value speaks against."""
        return f"q(theta | x) = p(theta | x) {self.near.words}"

    @property
    def scope(self) -> str:  # type: ignore[override]
        """Where q is right under the hypothesis."""
        return self.near.words

    def like(self, null: GlobalNull) -> GlobalNull:
        """The global null whose copies are made near x_o, with as many of them."""
        return replace(null, n=self.n)


@dataclass(frozen=True)
class KnownBase(GlobalNull):
    """In latent space the truths are draws of the base if q is right.

    A copy replaces the latents of the truths by base draws; class 0 is the base itself, with fresh
    draws in every epoch. These are Algorithms 3 and 4 of the paper with two repairs: data and
    nulls are treated by the same function, and no null is evaluated on its own training draws.

    The null copies know x but neither q nor the data, so that they serve every flow of the same
    task: ``test.refit_on(latents)`` of a fitted test fits the data of another flow alone.

    Args:
        n: The number of null copies.
    """

    def copies(self, calibration: Calibration, seed: int) -> "BaseCopies":
        """The data, and n copies whose truths are base draws."""
        if not isinstance(calibration, Latents):
            raise ValueError(
                "null: expected a calibration in latent space for KnownBase; got parameters. "
                "Use calibration.to_latent(flow), or the null Exchange(n)."
            )
        base, z, x = calibration.base, calibration.theta, calibration.features
        return BaseCopies(z, x, base, calibration.own_seed(seed), range(self.n + 1))


def global_null(calibration: Calibration, preferred: GlobalNull | None = None) -> GlobalNull:
    """The null a classifier prefers; else exchanges of draws of q, base draws in latent space."""
    usual = KnownBase() if isinstance(calibration, Latents) else Exchange()
    return usual if preferred is None else preferred


@dataclass(frozen=True, eq=False)
class LabelCopies(Copies):
    """Copies with the same members, which differ in who plays the truth."""

    members: Tensor  # the truth and the draws of q at the same x, (n, r, m)
    x: Tensor  # features of the observations, (n, d)
    who: Labels  # who plays the truth; the only draw of q where all but one do
    which: range
    base: Base | None = None
    truths: int = 1  # how many members of a set play the truth: one, or all but one

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, which: slice) -> Self:
        return replace(self, which=self.which[which])

    def inside(self, near: Tensor) -> Self:
        """Copies that differ from the data in some sets only, as near (n,) says."""
        return replace(self, who=self.who.inside(near))

    def subset(self, rows: Tensor) -> Self:
        """The same copies of some sets (b,), each with the labels that it has here."""
        kept = replace(self, members=self.members[rows], x=self.x[rows])
        return replace(kept, who=self.who.subset(rows))

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
        """Mean and standard deviation over all members, which no exchange of labels changes."""
        pooled = self.members.flatten(0, 1)
        return pooled.mean(0, dtype=torch.float64).to(pooled), standard_deviation(pooled)

    @cached_property
    def labels(self) -> Tensor:
        """Who plays the truth, with shape (c, n, r)."""
        labels = self.who.copies(self.which).to(self.members.device)
        return labels if self.truths == 1 else ~labels

    def copy_labels(self, h: int) -> Tensor:
        """The labels (n, r) of copy h."""
        labels = self.who(h).to(self.members.device)
        return labels if self.truths == 1 else ~labels

    @property
    def turns(self) -> Turns:
        """Exchanges of who plays the truth, or who is the only draw of q."""
        if isinstance(self.who, Turns):
            return self.who
        raise ValueError(
            "null: expected Exchange(n) for a classifier in closed form, whose copies have one "
            "truth in every set; got a null whose copies have not, such as FreePermutation(n)."
        )

    def batch(self, rows: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Members (1, b, r, m) and labels (c, b, r) of some sets."""
        return self.members[rows][None], self.labels[:, rows]

    def rows(self, copy: int) -> Rows:
        """One copy, row by row."""
        return Rows.of(self.members, self.x, self.copy_labels(self.which[copy]))

    def sums(self, features: Sequence[Feature]) -> list[Sums]:
        """Covariances, and contrasts of the members that play the truth, centred within sets."""
        n, r, _ = self.members.shape
        step = max(16, ROOM // (r * max(feature.size for feature in features)))
        blocks = [self.subset(some) for some in torch.arange(n, device=self.x.device).split(step)]
        bags = [
            block.turns.bags([cpu.arange(len(block.x)).to(block.x.device)]) for block in blocks
        ]
        # The truth less the mean of its set is the k-th part of k + 1 of its contrast; where it is
        # the draw of q that stands alone, the contrast is the other way round.
        scale = (1 if self.truths == 1 else -1) * r / (r - 1) / n
        by = self.turns.by[self.which.start : self.which.stop]

        def summed(feature: Feature) -> Sums:
            pool = _Pool()
            for block, added in zip(blocks, bags, strict=True):
                table = feature(block.members, block.x)
                pool.add(table[:, :MOST_MEMBERS].flatten(0, 1))
                pool.turn(added.turned(table - table.mean(1, keepdim=True))[0])
            return Sums(pool.mean, pool.covariance, scale * pool.turned_by(by), n * r)

        # One thread to each feature: how sums round does not depend on their number.
        workers = torch.get_num_threads() if self.x.device.type == "cpu" else 1
        with spread_over(workers) as apply:
            return list(apply(summed, features))


@dataclass(frozen=True, eq=False)
class BaseCopies(Copies):
    """Copies whose class 0 is a known base and whose truths are draws of it, except copy 0's."""

    truths: Tensor  # the latents of the truths, for copy 0, (n, m)
    x: Tensor  # features of the observations, (n, d)
    base: Base
    seed: int  # names the streams of all draws
    which: range
    odds: float = 1
    size: int = 2
    near: Tensor | None = None  # the sets (n,) in which copies differ from the data; None for all
    some: Tensor | None = None  # which of the drawn sets (b,) these are; None for all
    drawn: int = 0  # how many sets are drawn, where these are some of them

    def __len__(self) -> int:
        return len(self.which)

    def __getitem__(self, which: slice) -> Self:
        return replace(self, which=self.which[which])

    def subset(self, rows: Tensor) -> Self:
        """The same copies of some sets (b,), each with the draws that it has here."""
        some = rows if self.some is None else self.some[rows]
        near = None if self.near is None else self.near[rows]
        kept = replace(self, truths=self.truths[rows], x=self.x[rows], near=near)
        return replace(kept, some=some, drawn=self.drawn or len(self.x))

    def inside(self, near: Tensor) -> Self:
        """Copies that differ from the data in some sets only, as near (n,) says."""
        return replace(self, near=near.to(self.x.device))

    @cached_property
    def scaling(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the base."""
        if isinstance(self.base, StandardNormal):
            return self.truths.new_zeros(self.base.dim), self.truths.new_ones(self.base.dim)
        z = self.base.sample(10_000, stream(0, "scaling")).to(self.truths)
        return z.mean(0), standard_deviation(z)

    @cached_property
    def copy_truths(self) -> Tensor:
        """The truths of all copies, with shape (c, n, m)."""
        with spread_over(torch.get_num_threads() if len(self.which) > 1 else 1) as apply:
            return torch.stack(list(apply(self._truths, self.which)))

    def batch(self, rows: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
        """Members (c, b, 2, m), a base draw and the truth, and labels (1, b, 2) of some sets."""
        truths = self.copy_truths[:, rows]
        class0 = self._class0(epoch)[rows].expand_as(truths)
        return torch.stack([class0, truths], 2), self._roles.expand(1, len(rows), 2)

    def rows(self, copy: int) -> Rows:
        """One copy, row by row, with one base draw for each truth."""
        members = torch.stack([self._class0(0), self._truths(self.which[copy])], 1)
        return Rows.of(members, self.x, self._roles.expand(len(self.x), 2))

    def sums(self, features: Sequence[Feature]) -> list[Sums]:
        """Refuses: members differ between copies, so there is nothing to share."""
        raise ValueError(
            "null: expected Exchange(n) for a classifier in closed form, whose copies share their "
            "members; got KnownBase(n), whose copies do not."
        )

    @cached_property
    def _roles(self) -> Tensor:
        return torch.tensor([False, True], dtype=torch.bool, device=self.truths.device)

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
        n = self.drawn or len(self.x)
        drawn = self.base.sample(n, stream(self.seed, *key)).to(self.truths)
        return drawn if self.some is None else drawn[self.some]


def _members(
    calibration: Calibration, seed: int, base_draws: int = BASE_DRAWS
) -> tuple[Tensor, Tensor]:
    """The truth and draws of q at the same x (n, k + 1, m), and who is the truth (n, k + 1)."""
    # The truth stands at a random place of its set, as it does in a null copy: otherwise a
    # classifier that minds the order of rows would treat the data and its nulls differently.
    own, n, r = calibration.own_seed(seed), len(calibration), 1 + (calibration.k or base_draws)
    base, places = stream(own, "base"), stream(own, "places")
    shuffled = calibration.theta.new_empty(n, r, calibration.m)
    data = cpu.zeros(n, r, dtype=torch.bool)
    for some in (slice(start, start + ROWS) for start in range(0, n, ROWS)):
        members = calibration.subset(some).sets(base_draws, base)
        order = cpu.rand(members.shape[:2], generator=places).argsort(1)
        index = order.to(members.device)[..., None].expand_as(members)
        torch.gather(members, 1, index, out=shuffled[some])
        data[some] = order == 0
    return shuffled, data


def _mixed(calibration: Calibration, members: Tensor, seed: int) -> int:
    """A seed that depends on x and on the members of the first sets, whoever plays the truth."""
    # Ranks do not depend on units; members are sorted, so that their places do not matter.
    some = members[:MIXED].sort(1).values.flatten(0, 1).cpu().numpy()
    return mix_seed(calibration.own_seed(seed), some.argsort(0, kind="stable"))


class _Pool:
    """Running sums of features, around their first mean, in double precision."""

    def __init__(self) -> None:
        self.rows = 0
        self.turned: Tensor | None = None

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

    def turn(self, sums: Tensor) -> None:
        """Adds sums (r, g, p) of features of all turns."""
        self.turned = sums.double() if self.turned is None else self.turned.add_(sums)

    def turned_by(self, by: Tensor) -> Tensor:
        """Sums (h, p) of copies whose groups turn by (h, g)."""
        assert self.turned is not None
        return turned_by(by, self.turned)

    @property
    def mean(self) -> Tensor:
        """The mean of all rows, with shape (p,)."""
        return self.centre + self.first / self.rows

    @property
    def covariance(self) -> Tensor:
        """The covariance of all rows, with shape (p, p)."""
        mean = self.first / self.rows
        return self.second / self.rows - torch.outer(mean, mean)

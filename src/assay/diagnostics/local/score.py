r"""The local score test: strength from all calibration sets, a claim about those near x_o alone.

Each set is the truth and k draws of q at one x; in latent space, the latent of the truth and draws
of the base. Features of members (:mod:`assay.diagnostics.local.views`) are summed over those who
play the truth: near x_o, around it, and elsewhere. A linear classifier that is trained on all sets
scores the truths near x_o; single parameters and pairs are looked at one by one; all that is put
together into one number T.

**Null copies exchange who plays the truth near x_o only**; everything else stays as it is. Given
the rest of the data, T is one function of the labels near x_o, so that :math:`p = (1 + \#\{T_h \ge
T\}) / (1 + H)` is exact for "q = p throughout the neighbourhood", however wrong q is elsewhere.
Nothing is split and nothing is refitted: sums of all copies are gathered at once.

**The local C2ST.** The scores of members near x_o, each by a classifier that has not seen its set,
tell truths from draws with an accuracy and an area under the ROC curve (AUC) that are 1/2 where
they cannot be told apart.
"""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..._core import Seed, as_null, check_kind, cpu, own_terms, progress, seed_of, spread_over
from ...nulls.exchange import Exchange, LocalExchange
from ...nulls.turns import Part, Portions, Turns, turned_parts
from ...results import LocalResult, MaxT, probability, pvalue, settings_of
from ...samples.calibration import Calibration, Draws, Observation, check_calibration
from ...samples.neighbourhoods import Nearest
from ...samples.posterior import StandardNormal
from .base import LocalTest, Move, Planted
from .levels import Band, null_band
from .views import (
    MEASURED,
    TINY,
    Bank,
    Dense,
    Stand,
    Standing,
    Sums,
    Waves,
    Weights,
    banks_of,
    evidence,
    pooled,
)

# Base draws at each x that stand beside a truth in latent space.
BASE_DRAWS = 16
# Sets in the nearest half are around x_o.
AROUND = 0.5
# Numbers in the largest table of features.
ROOM = 2**24
# Versions of the truths elsewhere under planted errors, and members that are moved.
VERSIONS, PLANTED = 16, 1000
# Sets whose truths are told from draws at a time.
TOLD = 64
# Observations that are tested at a time, and from which on progress is shown.
OBSERVATIONS, MANY = 32, 64
# Sizes of the neighbourhood: errors confined to the nearest few need a small one.
SHARES = (0.05, 0.2)


@own_terms()
def score(
    calibration: Calibration,
    where: Nearest | None = None,
    null: int | Exchange | LocalExchange | None = None,
    seed: Seed = 0,
) -> "Score":
    """Prepares the local score test; nothing is trained.

    Args:
        calibration: Pairs with k draws of q at each x, k = 1 or more, or latents of a flow.
        where: What is near x_o: :class:`assay.Nearest` with 5 and 20 % of all x by default, where
            nearness is that of q's mean and scale given x, and of x. The hypothesis belongs to
            the largest size.
        null: Null copies, or their number: :class:`assay.Exchange`, 199 by default;
            :class:`assay.LocalExchange` is the same with its own neighbourhood for `where`.
        seed: An int or a generator. The same seed gives the same test.

    Example:
        >>> theta, noise = torch.randn(2, 1000, 2, generator=torch.Generator().manual_seed(0))
        >>> z = torch.randn(1000, 16, 2, generator=torch.Generator().manual_seed(1))
        >>> x = theta + noise
        >>> wide = Calibration(theta, x, x[:, None] / 2 + z)  # 1 in place of 0.7
        >>> result = score(wide)(torch.zeros(2))
        >>> float(result.pvalue)
        0.005
        >>> bool(result.auc.value > result.auc.upper)  # truths are told from draws
        True
    """
    check_calibration(calibration)
    if isinstance(null, LocalExchange):
        where, null = null.near(where), Exchange(null.n)
    null = as_null(null, Exchange(), Exchange)
    if where is not None:
        check_kind("where", where, "a neighbourhood such as Nearest()", Nearest)
    calibration = calibration.sorted()
    where = Nearest(SHARES, calibration.distance) if where is None else where
    return Score(calibration, where, null, seed_of(seed))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScoreResult(LocalResult):
    """What the local score test found at one observation, or at o of them.

    Args:
        kinds: The g kinds of evidence that are put together.
        evidence: The p-value of each kind alone, with shape (g,) or (o, g).
        pairs: The number of calibration pairs near x_o at each size, with shape (c,) or (o, c).
        auc, accuracy: How well truths are told from draws near x_o by a classifier that has not
            seen them, with null bands: 1/2 where they cannot be told apart; shape () or (o,). None
            where only the p-value was asked for.
    """

    kinds: tuple[str, ...]
    evidence: np.ndarray
    pairs: np.ndarray
    auc: Band | None = None
    accuracy: Band | None = None
    adjustment: MaxT = MaxT()

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        own = {} if self.auc is None else {"AUC": self.auc.value}
        return {**super()._columns, **own, "simulations near x_o": self.pairs[..., -1]}

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        if self.many:
            return f"{self._counted}. {self._adjusted_by}"
        return (
            f"If q were right near x_o, a statistic at least this large would occur with "
            f"probability {probability(float(self.pvalue))} ({self.null.shape[-1]} null copies)."
            f"{self._told_apart}{self._warning}"
        )

    @property
    def _told_apart(self) -> str:
        if self.auc is None:
            return ""
        value = f"{self.auc.value:.2f}"
        return (
            f" Near x_o, a classifier separates truths from draws of q with AUC {value} "
            f"({self.auc.lower:.2f} to {self.auc.upper:.2f} if q is right)."
        )


@dataclass(frozen=True, eq=False)
class Score(LocalTest):
    """A local score test, see :func:`score`; call it with x_o, or with :class:`assay.Draws`."""

    calibration: Calibration
    where: Nearest
    null: Exchange
    seed: int

    @own_terms()
    def __call__(self, draws: Any) -> ScoreResult:
        """Tests q at one observation or many."""
        return self._decided(self.calibration.observation(Draws.of(draws)), told=True)

    @own_terms()
    def decided(self, draws: Any) -> ScoreResult:
        """The same without telling truths from draws."""
        return self._decided(self.calibration.observation(Draws.of(draws)), told=False)

    def _decided(self, observation: Observation, *, told: bool) -> ScoreResult:
        silent = True if len(observation.x) < MANY else None
        # Sums of all turns are held for each.
        most = max(1, OBSERVATIONS * BASE_DRAWS // max(BASE_DRAWS, self.sets.members.shape[1] - 1))
        parts = progress(observation.parts(most), "testing", silent=silent)
        found = [self._found(part, told=told) for part in parts]
        statistics, evidence, sizes = (np.concatenate([f[i] for f in found]) for i in range(3))
        each = zip(*(f.told for f in found), strict=True)
        bands = [observation.shaped(_band(np.concatenate(values))) for values in each]
        auc, accuracy = bands if told else (None, None)
        shaped, share = observation.shaped, float(sizes.max()) / len(self.calibration)
        return ScoreResult(
            statistic=shaped(statistics[:, 0]),
            null=shaped(statistics[:, 1:]),
            kinds=found[0].kinds,
            evidence=shaped(evidence),
            pairs=shaped(sizes),
            auc=auc,
            accuracy=accuracy,
            x=shaped(observation.x.cpu().numpy()),
            hypothesis=self.where.hypothesis(share),
            settings=self.settings | {"scope": self.where.scope(share)},
            support=self.calibration.support(observation),
        )

    def _found(self, observation: Observation, *, told: bool) -> "_Found":
        """What is found at a few observations."""
        rings, sums = self._asked(observation, range(1))
        with spread_over(min(torch.get_num_threads(), len(sums))) as apply:
            kinds, tables = zip(*apply(self.sets.evidence, sums), strict=True)
        apart = self.sets.told_apart(rings, sums) if told else []
        statistics = np.stack([pooled(table) for table in tables])
        evidence = np.stack([pvalue(each[:, 0], each[:, 1:]) for each in tables])
        values = tuple(np.stack(part) for part in zip(*apart, strict=True))
        return _Found(statistics, evidence, rings.sizes, values, kinds[0])

    def refit_on(self, calibration: Calibration) -> "Score":
        """The same recipe on another calibration."""
        check_calibration(calibration)
        return replace(self, calibration=calibration.sorted())

    @property
    def settings(self) -> dict[str, Any]:
        """The settings and versions that made this test, as plain values."""
        own = {"where": self.where, "null": self.null, "seed": self.seed}
        return settings_of("local score", self.calibration, **own)

    def __repr__(self) -> str:
        return f"Score({self.calibration!r}, {self.where!r}, {self.null!r}, seed={self.seed})"

    def planted(self, observation: Observation) -> "PlantedScore":
        """The test of errors that are planted near observations."""
        rings, sums = self._asked(observation, range(1, min(VERSIONS, self.null.n) + 1))
        sums = [_renulled(each) for each in sums]
        claim = self.null.n, self.null.n, self.where.hypothesis(rings.share)
        samples = [self._sample(rings.near(i)) for i in range(len(rings.ring))]
        return PlantedScore(*claim, self.sets, samples, sums)

    def _sample(self, near: Tensor) -> "_Sample":
        """Some of the sets (b,) near an observation."""
        r = self.sets.members.shape[1]
        return _Sample(self.sets, near[:: 1 + len(near) * r // PLANTED])

    def _asked(self, observation: Observation, outside: range) -> tuple["Rings", list[list[Sums]]]:
        """What is near observations, and sums there, with those of some copies elsewhere.

        They are kept until other observations are asked for: the data's and those of planted
        errors differ elsewhere alone.
        """
        key = observation.features.cpu().numpy().tobytes()
        if key not in self._kept or self._kept[key].copies < outside.stop:
            rings = self.rings(observation)
            self._kept.clear()
            self._kept[key] = _Kept(rings, self.sets.sums(rings, range(outside.stop)))
        return self._kept[key].of(outside)

    @cached_property
    def _kept(self) -> "dict[bytes, _Kept]":
        return {}

    def rings(self, observation: Observation) -> "Rings":
        """Which sets are near observations, around them, and elsewhere."""
        shares = self.where.shares
        where = replace(self.where, shares=(*shares, max(AROUND, *shares)))
        inside = where.inside(self.calibration.features, observation.features)
        return Rings(len(shares) + 1 - inside.sum(1), len(shares))

    @cached_property
    def sets(self) -> "Sets":
        """The sets, who plays the truth in them, and what is to be summed."""
        copies = self.null.copies(self.calibration, self.seed, BASE_DRAWS)
        normal = isinstance(self.calibration.base, StandardNormal)
        members, x = copies.members, self.calibration.features
        stand = Stand.of(members, x, normal=normal)
        return Sets(members, x, copies.turns, stand, banks_of(self.calibration.m, normal=normal))


class _Found(NamedTuple):
    """What is found at o observations.

    Args:
        statistics: Statistics of the data and of null copies, with shape (o, h).
        evidence: The p-value of each kind of evidence alone, with shape (o, g).
        sizes: Numbers of sets near, with shape (o, c).
        told: AUC and accuracy, each with shape (o, h); empty where they were not asked for.
        kinds: The kinds of evidence.
    """

    statistics: np.ndarray
    evidence: np.ndarray
    sizes: np.ndarray
    told: tuple[np.ndarray, ...]
    kinds: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Rings:
    """Where n sets lie around o observations, with c sizes of the neighbourhood.

    A ring (o, n) is the number of sizes that do not hold a set: below c it is near, at c it is
    around, and beyond that elsewhere.
    """

    ring: Tensor
    c: int

    @cached_property
    def sizes(self) -> np.ndarray:
        """Numbers of sets near (o, c), at every size."""
        return torch.stack([(self.ring <= i).sum(1) for i in range(self.c)], 1).cpu().numpy()

    @property
    def share(self) -> float:
        """The largest share of sets that is near."""
        return float(self.sizes.max()) / self.ring.shape[1]

    def near(self, which: int) -> Tensor:
        """The sets (b,) near one observation."""
        return (self.ring[which] < self.c).nonzero().flatten()


@dataclass(frozen=True, eq=False)
class _Kept:
    """What is near observations, and the sums of each bank there."""

    rings: Rings
    sums: list[list[Sums]]

    @property
    def copies(self) -> int:
        """The number of copies whose sums elsewhere are known."""
        return len(self.sums[0][0].outside)

    def of(self, outside: range) -> tuple[Rings, list[list[Sums]]]:
        """The same with the sums of some copies elsewhere."""
        return self.rings, [[s.elsewhere(outside) for s in each] for each in self.sums]


@dataclass(frozen=True, eq=False)
class Sets:
    """Members (n, r, m) of all sets with features of x (n, d), and who plays the truth."""

    members: Tensor
    x: Tensor
    turns: Turns
    stand: Stand
    banks: tuple[Bank, ...]

    @cached_property
    def weights(self) -> tuple[Weights, ...]:
        """What sums of each bank say, by covariances that no exchange changes."""
        rows = torch.arange(0, len(self.x), 1 + len(self.x) // MEASURED, device=self.x.device)
        places = [self.stand(self.members[r], self.x[r]) for r in rows.split(self._step)]

        def weigh(bank: Bank) -> Weights:
            parts = [_centred(bank, standing).flatten(0, 1) for standing in places]
            return bank.weigh(torch.cat(parts))

        with spread_over(self._workers) as apply:
            return tuple(apply(weigh, self.banks))

    @property
    def _workers(self) -> int:
        return torch.get_num_threads() if self.x.device.type == "cpu" else 1

    def evidence(
        self, sums: list[Sums], reference: int | None = None
    ) -> tuple[tuple[str, ...], np.ndarray]:
        """The kinds of evidence, and how much of each there is in h copies (g, h)."""
        groups: dict[str, list[np.ndarray]] = {}
        for weights, each in zip(self.weights, sums, strict=True):
            for kind, table in weights.statistics(each):
                groups.setdefault(kind, []).append(table.cpu().numpy())
        return tuple(groups), evidence(groups, reference)

    def sums(self, rings: Rings, outside: range) -> list[list[Sums]]:
        """Sums of each bank's features around o observations.

        Elsewhere they are those of some copies, of the data alone in ``range(1)``.
        """
        numbers = itertools.product(range(len(rings.ring)), range(len(self.banks)))
        every, _ = self.turns.parts(), self.weights  # which has threads of its own
        with spread_over(self._workers) as apply:
            parts = list(apply(partial(self._turned, rings=rings, outside=outside), every))
            work = partial(self._summed, parts=parts, rings=rings)
            found = list(apply(lambda each: work(*each), numbers))
        step = len(self.banks)
        return [found[i : i + step] for i in range(0, len(found), step)]

    def _turned(self, part: Part, rings: Rings, outside: range) -> list["_Total"]:
        """Sums of each bank's features over the sets of some groups."""
        totals = [_Total() for _ in self.banks]
        for rows in part.rows.split(self._step):
            turns = self.turns.subset(rows)
            block = _Block.of(turns, part.groups, rings.ring[:, rows], rings.c, outside)
            standing = self.stand(self.members[rows], self.x[rows])
            for bank, weights, total in zip(self.banks, self.weights, totals, strict=True):
                total.add(*block.sums(_centred(bank, standing), weights))
        return totals

    def _summed(self, at: int, bank: int, parts: list[list["_Total"]], rings: Rings) -> Sums:
        """The sums of all copies of one bank's features at one observation."""
        turned, squares, *apart = zip(*(part[bank].parts for part in parts), strict=True)
        weights, sizes = self.weights[bank], tuple(map(int, rings.sizes[at]))
        each = range(at * rings.c, (at + 1) * rings.c)
        near, own = (self._copied(table, each) for table in (turned, squares))
        around, outside = (weights.scaled(sum(part[at] for part in table)) for table in apart)
        others = len(self.x) - sizes[-1]
        return Sums(weights.scaled(near), own[..., 0], around, outside, sizes, others)

    def _copied(self, turned: Sequence[Tensor], which: range) -> Tensor:
        """Sums (c, h, p) of all copies at every size, which are some of the portions."""
        sums = [turned_parts(self.turns.by, turned, i) for i in which]
        return torch.stack(sums).double().cumsum(0)

    @property
    def _step(self) -> int:
        """Sets whose features are held at a time."""
        r, m = self.members.shape[1:]
        return max(8, ROOM // (r * max(512, m * m // 2)))

    def told_apart(
        self, rings: Rings, sums: list[list[Sums]]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """AUC and accuracy (h,) of copies, by classifiers that have not seen the set they score.

        A classifier is trained on the nearest half of all sets but one.
        """
        which = next(i for i, bank in enumerate(self.banks) if isinstance(bank, Waves))
        some = torch.zeros_like(rings.ring[0], dtype=torch.bool)
        some[:: 1 + int(rings.sizes.max()) // MEASURED] = True
        near = (rings.ring < rings.c) & some
        shown = near.any(0).nonzero().flatten()

        def white(rows: Tensor) -> Tensor:
            standing = self.stand(self.members[rows], self.x[rows])
            return self.weights[which].scaled(_centred(self.banks[which], standing))

        with spread_over(self._workers) as apply:
            # A set near several observations is placed once.
            table = torch.cat(list(apply(white, shown.split(TOLD))))
            told = partial(self._told_apart, table, which)
            return list(
                apply(told, [shown[at[shown]] for at in near], [at[shown] for at in near], sums)
            )

    def _told_apart(
        self, table: Tensor, which: int, rows: Tensor, chosen: Tensor, sums: list[Sums]
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same at one observation, from scaled features (s, r, p), some of which are near."""
        trained = (sums[which].around + sums[which].near[-1]).to(table).mT
        parts = zip(rows.split(TOLD), table[chosen].split(TOLD), strict=True)
        each = [
            _told(white, trained, self.turns.played(range(len(self.turns.by)), some))
            for some, white in parts
        ]
        auc, accuracy = ((sum(part) / len(rows)).cpu().numpy() for part in zip(*each, strict=True))
        return auc, accuracy


def _told(white: Tensor, trained: Tensor, played: Tensor) -> tuple[Tensor, Tensor]:
    """Sums (h,) of AUC and accuracy over sets with scaled features (b, r, p).

    Classifiers (p, h) are trained with them, and whoever plays the truth (h, b) is left out.
    """
    played = played.mT[:, None]
    own = (white @ white.mT).gather(2, played.expand(-1, white.shape[1], -1))
    scores = (white @ trained).sub_(own)
    truth, r = scores.gather(1, played), scores.shape[1]
    # A sign counts one for below, a half for a tie, and nothing above.
    below = (r - scores.sign().sum(1)) / 2
    right = (1 + truth.sign()[:, 0]) / 2
    won = (r - 1 + (truth - scores).sign_().sum(1)) / 2
    draws = (below - 1 + right) / (r - 1)
    return (won / (r - 1)).double().sum(0), (0.5 * (right + draws)).double().sum(0)


@dataclass(frozen=True, eq=False)
class _Sample:
    """Some sets (b,) near x_o, whose members are moved one at a time."""

    sets: Sets
    rows: Tensor

    def changes(self, move: Move) -> Iterator["Change"]:
        """How the scaled features of each bank change if each member is moved."""
        sets, members, x = self.sets, self.sets.members[self.rows], self.sets.x[self.rows]
        stand, r = sets.stand, members.shape[1]
        after = stand.moved(members, x, move(self.rows, members))
        given = self._standing.conditional, after.conditional
        own = (1 - 1 / r) / (1.0 if stand.framed is None else _measured(*given, r))
        for bank, weights, old in zip(sets.banks, sets.weights, self._features, strict=True):
            new = bank(after)
            change = weights.scaled((new - old).mean(1).double())
            # A member is a part of the mean and scale that it is measured by; but what is told by
            # the others of a set has the same mean wherever a member is moved.
            if not (stand.ranked and bank.among):
                change = change * own
            noise = change.var(0).sum() / len(change)
            yield Change(change.mean(0), _ratio(old, new, together=isinstance(bank, Dense)), noise)

    @cached_property
    def _features(self) -> list[Tensor]:
        """Features (b, r, p) of each bank."""
        return [bank(self._standing) for bank in self.sets.banks]

    @cached_property
    def _standing(self) -> Standing:
        return self.sets.stand(self.sets.members[self.rows], self.sets.x[self.rows])


class Change(NamedTuple):
    """What an error does to the scaled features (p,) of a bank.

    Args:
        mean: The mean change, with shape (p,).
        ratio: Deviations after it over those before, with shape (p,).
        noise: The squared length that the mean has by chance, as it comes from some members.
    """

    mean: Tensor
    ratio: Tensor
    noise: Tensor


def _measured(before: Tensor, after: Tensor, r: int) -> float:
    """Squared scales of coordinates (b, r, m) after over before, if one in r members is moved."""
    old, new = (u.var((0, 1)).double() for u in (before, after))
    grown = (new / old.clamp_min(TINY) - 1) / r
    return 1 + float(grown[grown.abs().argmax()])


def _ratio(old: Tensor, new: Tensor, *, together: bool) -> Tensor:
    """Deviations (p,) of features around their means, after over before; one for all together."""
    centre = old.mean(1, keepdim=True)
    away = [f - centre - (f - centre).mean((0, 1)) for f in (old, new)]
    before, after = (f.square().mean((0, 1)).double() for f in away)
    if together:
        before, after = (v.mean().expand_as(v) for v in (before, after))
    return torch.where(before > TINY, after / before.clamp_min(TINY), 1).sqrt()


@dataclass(frozen=True, eq=False)
class PlantedScore(Planted):
    r"""The score test of errors that are planted in the sets near x_o, and nowhere else.

    Null copies take the part of data sets in which q is right: n of them, with other truths
    elsewhere. An error moves each who plays the truth, and by that the sum of n_s sets,

    .. math:: L_h \to n_s \, E[\phi' - \phi] + L_h \, \sigma(\phi') / \sigma(\phi),

    where features of moved members :math:`\phi'` and of members :math:`\phi` are compared in sets
    near x_o, whoever plays the truth there. Nothing is summed again.
    """

    nulls: int
    repetitions: int
    hypothesis: str
    sets: Sets
    samples: list[_Sample]
    sums: list[list[Sums]]

    def pvalues(self, moves: Sequence[Move], extent: int) -> np.ndarray:
        """P-values (n, o) in n repetitions, at o observations."""

        def at(which: int) -> np.ndarray:
            return self._at(which, moves, extent)

        with spread_over(min(torch.get_num_threads(), len(self.sums))) as apply:
            return np.stack(list(apply(at, range(len(self.sums)))), 1)

    def _at(self, which: int, moves: Sequence[Move], extent: int) -> np.ndarray:
        """P-values (n,) at one observation."""
        changes = zip(*(self.samples[which].changes(move) for move in moves), strict=True)
        both = []
        for each, bank in zip(self.sums[which], changes, strict=True):
            change = Change(*(torch.stack(part).mean(0) for part in zip(*bank, strict=True)))
            both.append(_joined(each, change, extent))
        _, table = self.sets.evidence(both, self.nulls)
        total, n = pooled(table), self.nulls
        return pvalue(total[n:], np.broadcast_to(total[:n], (n, n)))


def _renulled(sums: list[Sums]) -> list[Sums]:
    """Sums of null copies alone, each with other truths elsewhere."""
    made = []
    for each in sums:
        h = each.near.shape[1] - 1
        which = cpu.arange(h) % len(each.around)
        near, squares = each.near[:, 1:], each.squares[:, 1:]
        apart = each.around[which], each.outside[which]
        made.append(replace(each, near=near, squares=squares, around=apart[0], outside=apart[1]))
    return made


def _joined(sums: Sums, change: Change, extent: int) -> Sums:
    """Sums of null copies, and behind them those of the same copies with an error.

    The error is that of the sets of one size; those of a smaller one are among them.
    """
    count = cpu.tensor(sums.sizes, dtype=torch.int64).to(change.mean)
    wrong = count.clamp(max=sums.sizes[extent])
    # Where few of the sets are wrong, deviations are nearly what they were.
    share = (wrong / count)[:, None, None]
    spread = (1 - share + share * change.ratio.square()).sqrt()
    moved = sums.near * spread + wrong[:, None, None] * change.mean
    # What chance adds to the length of the mean is taken off, with the squares.
    squares = sums.squares * spread.square().mean(2) + wrong[:, None].square() * change.noise
    near, squares = torch.cat([sums.near, moved], 1), torch.cat([sums.squares, squares], 1)
    around, outside = (torch.cat([v, v]) for v in (sums.around, sums.outside))
    return replace(sums, near=near, squares=squares, around=around, outside=outside)


def _centred(bank: Bank, standing: Standing) -> Tensor:
    """Features (b, r, p) of sets, less their means."""
    features = bank(standing)
    return features.sub_(features.mean(1, keepdim=True))


@dataclass(frozen=True, eq=False)
class _Block:
    """Some sets, and what of them is summed around o observations.

    Args:
        near: The sets near any of them, with shape (s,), or all where most are.
        portions: Turns of groups at each observation and size.
        apart: Whether sets are around an observation, and not near it, with shape (2, o, b).
        played: Who plays the truth where x is not near, in some copies, with shape (v, b).
    """

    near: Tensor | slice
    portions: Portions
    apart: Tensor
    played: Tensor

    @classmethod
    def of(cls, turns: Turns, groups: range, ring: Tensor, c: int, outside: range) -> "_Block":
        """From rings (o, b) of sets of some groups around observations."""
        near = (ring < c).any(0).nonzero().flatten()
        sizes = torch.arange(c, device=ring.device)
        masks = (ring[:, None] == sizes[:, None]).float().flatten(0, 1)
        apart = torch.stack([ring == c, ring >= c])
        some = near if 2 * len(near) < ring.shape[1] else slice(None)
        return cls(some, turns.portions(masks, groups), apart, turns.played(outside))

    def sums(self, features: Tensor, weights: Weights) -> Iterator[Tensor]:
        """Sums of centred features (b, r, p) around observations.

        Those of all turns near (g, o c, r, p), and of squared lengths (g, o c, r, 1); around and
        outside (o, v, p), in double precision.
        """
        squares = features.new_zeros(*features.shape[:2], 1)
        squares[self.near] = weights.squares(features[self.near])[..., None]
        for table in (features, squares):
            yield self.portions.turned(table)
        rows = torch.arange(len(features), device=features.device)
        truths = features[rows, self.played]  # (v, b, p)
        for masks in self.apart:
            yield (masks.to(truths) @ truths).double().transpose(0, 1)


class _Total:
    """Running sums of one bank's features."""

    def __init__(self) -> None:
        self.parts: list[Tensor] = []

    def add(self, *parts: Tensor) -> None:
        """Adds sums."""
        pairs = zip(self.parts, parts, strict=True)
        self.parts = [a.add_(b) for a, b in pairs] if self.parts else list(parts)


def _band(values: np.ndarray) -> Band:
    """Values (o,) of the data with the null band of the other copies, from values (o, h)."""
    lower, upper = null_band(values[:, 1:], 1)
    return Band(values[:, 0], lower, upper)

r"""The local score test: strength from all simulations, a claim about those near x_o alone.

A set is the true parameter and k draws of q at one x; in latent space, the latent of the true
parameter and draws of the base. Member 0 is the true parameter. With features :math:`f_{ij}` of
member j of set i, centred within the set, and labels :math:`\lambda_i` that say which member
counts as the true parameter, two sums matter:

.. math:: L = \sum_{i \text{ near } x_o} f_{i \lambda_i}, \qquad
    S = \sum_{i \text{ elsewhere}} f_{i 0} .

With A the covariance of the features, :math:`A^{-1} S` is a linear classifier that was trained
elsewhere, and :math:`L A^{-1} (S + L) - D` is the score that it gives to the labelled members near
x_o. D is the part of :math:`L A^{-1} L` in which sets are multiplied with themselves, so that only
agreement between sets counts. If q is right, the rest is noise. Such statistics of several feature
maps, each standardised over the data and all copies, are put together into one, T.

**Why the p-value is exact.** A copy of the data changes the labels of sets near x_o, and of those
only. If q is right at these x, the members of their sets are exchangeable, so that the data and
its copies have the same law given all that lies elsewhere, however wrong q is there. T treats the
data and all copies alike, so that :math:`p = (1 + \#\{T_h \ge T\}) / (1 + H)` is exact.

References: Hemerik and Goeman 2018, *Exact testing with random permutations*; Rao 1948, *Large
sample tests of statistical hypotheses*, for scores.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.special
import torch
from torch import Tensor

from .._support.inputs import WORD, as_null, check_fits, cpu, full_precision
from .._support.random import Seed, seed_of, stream
from .._support.work import map_in_threads, one_thread, progress
from ..data.calibration import Calibration
from ..data.draw import Draws
from ..data.guards import check_calibration
from ..data.posterior import StandardNormal
from ..neighbourhood import Nearest
from ..nulls import Exchange
from ..printing import probability
from ..results import Holm, LocalResult, MaxT, holm, pvalue, pvalue_error, settings_of
from .features import (
    Coordinates,
    FeatureMap,
    centred,
    feature_maps,
    random_directions,
    scales,
    whitener,
)

# P-values are valid with any of these values, which were chosen for power and for time.
BASE_DRAWS = 16  # at each x, beside a true latent
GROUPS = 32  # of sets whose labels change together, so that sums are made once for each
INNER = 0.25  # part of the near sets: errors may be confined to the nearest few
AROUND = 0.5  # share of all sets that are around x_o
MEASURED = 1000  # sets that covariances are taken from
NOISE = 3.0  # standard deviations beyond which the sum of a sparse feature elsewhere counts
RECHECKED, MORE_COPIES = 0.1, 999  # p-values up to this are made of so many copies
FOLDS = 5  # in which classifiers near x_o are trained
MOST_FEATURES, MOST_SUMS = 2**27, 3 * 2**24  # numbers in the largest tables
# Observations up to which sets elsewhere count. Holm then corrects, for which there are copies
# enough. For more of them max-T does, which asks that no statistic looks at labels that are near
# another observation.
MOST_BORROWING = 50


@full_precision()
def score(
    calibration: Calibration,
    near: float | Nearest | None = None,
    null: int | Exchange | None = None,
    seed: Seed = 0,
) -> "Score":
    """Prepares the local score test; nothing is trained.

    Args:
        calibration: Pairs with k draws of q at each x, k = 1 or more, or latents of a flow. Pairs
            that were simulated around x_o need no weights here: their sets are exchangeable.
        near: What is near x_o: a share of the simulations, or :class:`assay.Nearest`.
        null: Relabelled copies, or their number; 199 by default. A p-value of at most 0.1 is made
            of 999 copies.
        seed: An int or a generator. The same seed gives the same test.

    Returns:
        A test; call it with x_o, one observation (...,) or many (o, ...).

    Example:
        >>> theta, noise = torch.randn(2, 1000, 2, generator=torch.Generator().manual_seed(0))
        >>> z = torch.randn(1000, 16, 2, generator=torch.Generator().manual_seed(1))
        >>> x = theta + noise
        >>> wide = assay.Calibration(theta, x, x[:, None] / 2 + z)  # 1 in place of 0.7
        >>> result = score(wide)(torch.zeros(2))
        >>> float(result.pvalue)
        0.001
        >>> bool(result.auc > 0.6)  # true parameters near x_o differ from draws of q
        True
    """
    check_calibration(calibration)
    calibration = calibration.sorted()  # by x, so that the order of rows does not matter
    null = as_null(null, Exchange(), Exchange)
    return Score(calibration, calibration.nearest(near), null, seed_of(seed))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScoreResult(LocalResult):
    """What the local score test found at one observation, or at o of them.

    Args:
        pvalues: The p-value of each observation by itself, with shape () or (o,).
        copies: The number of copies that it is made of, with shape () or (o,).
        kinds: The kinds of evidence that are put together, e of them.
        evidence: The p-value of each kind alone, with shape (e,) or (o, e).
        near: The number of simulations near x_o, with shape () or (o,).
        auc, auc_error: How well a linear classifier separates true parameters near x_o from draws
            of q there: the area under its ROC curve, 1/2 if not at all, and its standard error.
    """

    pvalues: np.ndarray
    copies: np.ndarray
    kinds: tuple[str, ...]
    evidence: np.ndarray
    near: np.ndarray
    auc: np.ndarray
    auc_error: np.ndarray

    @property
    def pvalue(self) -> np.ndarray:
        """The exact Monte-Carlo p-value of each observation by itself; never zero."""
        return self.pvalues

    @property
    def pvalue_error(self) -> np.ndarray:
        """The Monte-Carlo standard error of the p-value, due to the finite number of copies.

        It is that of counting. Copies also standardise the statistic, which makes the error up to
        about twice as large.
        """
        return pvalue_error(self.pvalues, self.copies)

    @property
    def adjusted(self) -> np.ndarray:
        """P-values corrected for the number of observations, as :attr:`adjustment` says."""
        if isinstance(self.adjustment, Holm) and self.many:
            return holm(self.pvalues)
        return super().adjusted

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        return {**super()._columns, "AUC": self.auc, "simulations near x_o": self.near}

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        if self.many:
            return f"{self._counted}. Corrected by {self.adjustment.words}."
        return (
            f"If q were right near x_o, a statistic at least this large would occur with "
            f"probability {probability(float(self.pvalue))} ({int(self.copies)} relabelled "
            f"copies, {int(self.near)} simulations near x_o). A linear classifier separates the "
            f"true parameters from draws of q there with AUC {self.auc:.2f} ± "
            f"{1.96 * self.auc_error:.2f}."
        )


class Sums(NamedTuple):
    """Sums of the features of a map, for s sizes of neighbourhoods, the whole one first."""

    near: Tensor  # of each member over the near sets of each group, (s, g, r, p)
    squares: Tensor  # of squared lengths of whitened features, (s, g, r); zero for a sparse map
    # Of whitened features of true parameters around x_o, and of all that are not near, (2, p).
    elsewhere: Tensor


@dataclass(frozen=True, eq=False)
class Score:
    """A local score test, see :func:`score`; call it with x_o, or with :class:`assay.Draws`."""

    calibration: Calibration
    near: Nearest
    null: Exchange
    seed: int

    @full_precision()
    @one_thread()
    def __call__(self, x_o: Any) -> ScoreResult:
        """Tests q at one observation or many."""
        observation = self.calibration.observation(Draws.of(x_o))
        borrow = len(observation.x) <= MOST_BORROWING
        found = [
            self._test(sums, near, borrow=borrow)
            for sums, near in self._sets.sums_at(observation.features, self.near, borrow=borrow)
        ]
        shaped: Any = observation.shaped
        return ScoreResult(
            **{name: shaped(np.stack([each[name] for each in found])) for name in found[0]},
            kinds=self._sets.kinds,
            x=shaped(observation.x.cpu().numpy()),
            adjustment=Holm() if borrow else MaxT(),
            hypothesis=f"q(theta | x) = p(theta | x) {self.near.words}",
            settings=self.settings,
        )

    @full_precision()
    @one_thread()
    def pvalues(self, x_o: Any, copies: int | None = None) -> np.ndarray:
        """P-values (o,) at many observations, of so many copies, and nothing else."""
        features = self.calibration.observation(Draws.of(x_o)).features
        tables = [
            combine(self._evidence(sums, near, copies or self.null.n))
            for sums, near in self._sets.sums_at(features, self.near, borrow=True)
        ]
        return np.array([pvalue(table[0], table[1:]) for table in tables])

    @property
    def settings(self) -> dict[str, Any]:
        """The settings and versions that made this test, as plain values."""
        own = {"near": self.near, "null": self.null, "seed": self.seed}
        return settings_of("local score", self.calibration, **own, scope=self.near.words)

    def __repr__(self) -> str:
        return f"Score({self.calibration!r}, {self.near!r}, {self.null!r}, seed={self.seed})"

    @cached_property
    def _labels_seed(self) -> int:
        """A seed that depends on all members alike."""
        return self.calibration.members_seed(self.seed)

    @cached_property
    def _sets(self) -> "Sets":
        return Sets(self.calibration, self.calibration.own_seed(self.seed))

    # The test at one observation, from sums of each map and the near sets (2, n): all of them, and
    # those that are nearest.

    def _test(self, sums: list[Sums], near: Tensor, *, borrow: bool) -> dict[str, Any]:
        """What the result says of the observation, by its names."""
        evidence = self._evidence(sums, near, self.null.n)
        statistics = combine(evidence)
        first = p = pvalue(statistics[0], statistics[1:])
        if borrow and first <= RECHECKED and self.null.n < MORE_COPIES:
            # A p-value of at most t <= RECHECKED is one of more copies; if t is larger, the first
            # one was at most t. Both are exact, so that P(p <= t) <= t at every level.
            evidence = self._evidence(sums, near, MORE_COPIES)
            statistics = combine(evidence)
            p = pvalue(statistics[0], statistics[1:])
        auc, auc_error = self._sets.auc(near[0], sums[0])
        return {
            "statistic": statistics[0],
            # As many at every observation: a p-value may be made of more of them.
            "null": statistics[1 : 1 + self.null.n],
            "pvalues": p,
            "copies": len(statistics) - 1,
            "evidence": pvalue(evidence[:, 0], evidence[:, 1:]),
            "near": int(near[0].sum()),
            "auc": auc,
            "auc_error": auc_error,
        }

    def _labels(self, copies: int) -> Tensor:
        """Which member counts as the true parameter in the sets of each group, (H + 1, g).

        The first version is the data, where it is member 0. In copies it is any member with the
        same probability. If q is right, members are exchangeable, and so are all versions.
        """
        g, r = len(self._sets.groups), self._sets.members.shape[1]
        check_fits("null", copies, WORD * (g * r + self._sets.numbers // r))
        chance = stream(self._labels_seed, "labels")
        labels = cpu.randint(r, (copies, g), generator=chance).to(self._sets.groups)
        return torch.cat([torch.zeros_like(labels[:1]), labels])

    def _evidence(self, sums: list[Sums], near: Tensor, copies: int) -> np.ndarray:
        """Evidence of each kind in the data and in copies, with shape (kinds, H + 1)."""
        labels, sizes = self._labels(copies), near.sum(1).tolist()
        g, r = self._sets.groups.shape[0], self._sets.members.shape[1]
        n_elsewhere = max(1, near.shape[1] - sizes[0])
        # Rows of labelled members in tables (g r, ...) of all members of all groups, (H + 1, g).
        rows = labels + r * torch.arange(g, device=labels.device)

        def add(table: Tensor) -> Tensor:
            """Sums (H + 1, p) of the labelled rows of a table (g, r, p)."""
            return torch.nn.functional.embedding_bag(rows, table.flatten(0, 1), mode="sum")

        def statistics_of(i: int) -> list[tuple[str, np.ndarray]]:
            """Kinds of evidence and statistics (H + 1,) of one map."""
            each, here = self._sets.maps[i], sums[i]
            if copies < g * r:  # whitened where there are fewer rows
                total = self._sets.whitened(i, torch.stack([add(part) for part in here.near]))
            else:
                total = torch.stack([add(part) for part in self._sets.whitened(i, here.near)])
            total = total.double()  # L
            if each.dense:
                own = torch.stack([add(part[..., None])[:, 0] for part in here.squares])  # D
                found = dense_statistics(each, total, own.double(), here.elsewhere)
            else:
                # Sums elsewhere have unit variance if q is right.
                scaled = here.elsewhere[1] / math.sqrt(n_elsewhere)
                found = sparse_statistics(each, total, scaled, sizes)
            return [(kind, largest(table.cpu().numpy())) for kind, table in found]

        each_map = map_in_threads(statistics_of, range(len(sums)))
        kinds, statistics = zip(*(one for found in each_map for one in found), strict=True)
        all_kinds, evidence = np.array(kinds), surprise(np.stack(statistics))
        return surprise(
            np.stack([evidence[all_kinds == kind].sum(0) for kind in self._sets.kinds])
        )


class Sets:
    """All sets in groups, and sums of their features; nothing here knows of copies.

    It has the members (n, r, m), the true parameter first and then draws in a random order; the
    sets (g, s) of each group, at random, -1 where a group has fewer; and, for each map, what
    whitens features: a matrix (p, p), or scales (p,) of a sparse map.
    """

    def __init__(self, calibration: Calibration, seed: int) -> None:
        members = calibration.sets(BASE_DRAWS, stream(seed, "base"))
        n, r, m = members.shape
        order = cpu.rand(n, r - 1, generator=stream(seed, "draws")).argsort(1) + 1
        order = torch.cat([torch.zeros_like(order[:, :1]), order], 1).to(members.device)
        self.members = members.gather(1, order[..., None].expand_as(members))
        g = min(GROUPS, n)
        groups = cpu.full((math.ceil(n / g) * g,), -1, dtype=torch.int64)
        groups[:n] = cpu.randperm(n, generator=stream(seed, "groups"))
        self.groups = groups.reshape(-1, g).mT.contiguous().to(members.device)
        normal = isinstance(calibration.base, StandardNormal)
        self.maps, self.x = feature_maps(m, normal=normal), calibration.features
        self.kinds = (*dict.fromkeys(each.kind for each in self.maps), "near", "learned")
        self.coordinates = Coordinates.fit(self.members, self.x, normal=normal)
        # Features of all sets, group by group, or of some where they do not fit into memory.
        self.numbers = sum(table.numel() for table in self.features(self.groups[0, :1]))
        self.all_kept = self.groups.numel() * self.numbers <= MOST_FEATURES
        every = self.groups.flatten()
        self.kept = self.features(every if self.all_kept else every[:MEASURED])
        some = [table[:MEASURED].flatten(0, 1) for table in self.kept]
        self.whitening = map_in_threads(
            lambda i: (whitener if self.maps[i].dense else scales)(some[i]), range(len(some))
        )

    def features(self, sets: Tensor, maps: Sequence[FeatureMap] | None = None) -> list[Tensor]:
        """Features (b, r, p) of members of some sets (b,), by each map."""
        at = self.coordinates(self.members[sets], self.x[sets])
        return map_in_threads(lambda each: centred(each, at), maps or self.maps)

    def sums_at(
        self, x_o: Tensor, nearest: Nearest, *, borrow: bool
    ) -> Iterator[tuple[list[Sums], Tensor]]:
        """Sums of each map at observations with features (o, d), and which sets are near, (2, n).

        Without borrowing, nothing elsewhere counts.
        """
        parts = x_o.split(max(1, MOST_SUMS // (2 * len(self.groups) * self.numbers)))
        step = max(1, MOST_FEATURES // (self.groups.shape[1] * self.numbers))
        for part in progress(parts, "testing"):
            near, inner = nearest.inside(self.x, part), nearest.inside(self.x, part, INNER)
            around = Nearest(AROUND, nearest.distance).inside(self.x, part) & ~near
            inside = torch.stack([near, inner], 1)
            outside = torch.stack([around, ~near], 1)
            by_groups = [
                self._sums(groups, inside, outside * borrow)
                for groups in torch.arange(len(self.groups), device=near.device).split(step)
            ]
            sums = [
                Sums(torch.cat(added, 2), torch.cat(squares, 2), torch.stack(elsewhere).sum(0))
                for added, squares, elsewhere in (
                    zip(*of_map, strict=True) for of_map in zip(*by_groups, strict=True)
                )
            ]
            for i, mask in enumerate(inside):
                yield [Sums(*(each[i] for each in of_map)) for of_map in sums], mask

    def _sums(self, groups: Tensor, near: Tensor, elsewhere: Tensor) -> list[Sums]:
        """Sums of each map over sets of some groups that are near o observations, or elsewhere.

        Both are masks (o, 2, n). Sums have a leading axis of observations.
        """
        sets = self.groups[groups]
        # Where all are kept, these are all groups.
        tables = self.kept if self.all_kept else self.features(sets.flatten())
        # A set that a group lacks has no weight.
        weights, others = ((mask[..., sets] & (sets >= 0)).float() for mask in (near, elsewhere))

        def add(values: Tensor, sizes: int) -> Tensor:
            """Sums (o, sizes, g, r, ...) of values (g s, r, ...)."""
            by_group = weights[:, :sizes].flatten(0, 1).transpose(0, 1)  # (g, o sizes, s)
            added = by_group @ values.reshape(*sets.shape, -1)
            return added.reshape(len(sets), -1, sizes, *values.shape[1:]).movedim(0, 2)

        def sums_of(i: int) -> Sums:
            table, sizes = tables[i], self.maps[i].sizes
            away = self.whitened(i, (others.flatten(2) @ table[:, 0]).double())
            if not self.maps[i].dense:
                squares = table.new_zeros(len(near), sizes, len(sets), table.shape[1])
                return Sums(add(table, sizes), squares, away)
            # Squared lengths of whitened features, by their components in a few directions.
            sketch = self.whitening[i].mT @ random_directions(table.shape[2]).to(away)
            squares = add((table @ sketch.to(table)).square().sum(2), sizes)
            return Sums(add(table, sizes), squares, away)

        return map_in_threads(sums_of, range(len(tables)))

    def whitened(self, i: int, sums: Tensor) -> Tensor:
        """Sums (..., p) of features of map i, whitened or scaled."""
        each = self.whitening[i].to(sums)
        return sums @ each.mT if self.maps[i].dense else sums / each

    def auc(self, near: Tensor, sums: Sums) -> tuple[float, float]:
        """AUC between true parameters and draws near x_o, and its standard error.

        By features and sums of the first map. Sets of each fold are scored by a linear classifier
        that is trained on all others in the nearest half.
        """
        sets = self.groups.flatten()
        chosen = near[sets] & (sets >= 0)
        if self.all_kept:
            table = self.kept[0][chosen]  # (b, r, p)
        else:
            (table,) = self.features(sets[chosen], self.maps[:1])
        rows = torch.arange(len(table), device=table.device)
        truths, fold = table[:, 0], rows % FOLDS
        in_fold = torch.nn.functional.one_hot(fold, FOLDS).to(table)
        others = (truths.sum(0) - in_fold.mT @ truths).double()
        whitening = self.whitening[0]
        directions = (sums.elsewhere[0] + others @ whitening.mT) @ whitening  # (folds, p)
        scores = (table @ directions.to(table).mT)[rows, :, fold]
        truth, draws = scores[:, :1], scores[:, 1:]
        wins = ((truth > draws).double() + (truth == draws).double() / 2).mean(1)
        return float(wins.mean()), float(wins.std()) / math.sqrt(len(wins))


Statistics = Iterator[tuple[str, Tensor]]


def dense_statistics(
    each: FeatureMap, total: Tensor, own: Tensor, elsewhere: Tensor
) -> Statistics:
    """Kinds of evidence and statistics (1, H + 1) of a dense map.

    From L (s, H + 1, p) and D (s, H + 1) in neighbourhoods of s sizes, the whole one first, and S
    (2, p) around x_o and over all that is not near; L and S are whitened.
    """
    lengths = total.square().sum(2)
    for length, diagonal in zip(lengths[: each.near_sizes], own, strict=False):
        yield "near", (length - diagonal)[None]
    # Directions that were learned elsewhere, S, which the near sets improve: L (S + L) - D.
    for along in (total[0] @ elsewhere.mT).mT:
        yield each.kind, (along + lengths[0] - own[0])[None]


def sparse_statistics(
    each: FeatureMap, total: Tensor, elsewhere: Tensor, sizes: list[int]
) -> Statistics:
    """Kinds of evidence and statistics (j, H + 1) of a sparse map, of which the largest counts.

    From scaled L (2, H + 1, j c) of so many sets in the whole and the smaller neighbourhood, and S
    (j c,) over all that is not near, which has unit variance if q is right.
    """
    for near, size in zip(total, sizes, strict=True):
        yield each.kind, near.square().unflatten(1, (-1, each.columns)).sum(2).mT / size
    beyond = elsewhere.sign() * (elsewhere.abs() - NOISE).clamp_min(0)
    yield "learned", (total[0] * beyond).sum(1)[None]


def surprise(statistics: np.ndarray) -> np.ndarray:
    """Statistics (..., H + 1), standardised over all versions, as -log of a normal tail."""
    # Cube roots of sums of squares are nearly normal; what may be negative is so as it is.
    signed = (statistics < 0).any(-1, keepdims=True)
    roots = np.where(signed, statistics, np.cbrt(statistics))
    spread = roots.std(-1, keepdims=True)
    z = (roots - roots.mean(-1, keepdims=True)) / np.where(spread > 0, spread, 1)
    return np.asarray(-scipy.special.log_ndtr(-z))


def largest(statistics: np.ndarray) -> np.ndarray:
    """The largest (H + 1,) of statistics (j, H + 1) on a common scale."""
    found: np.ndarray = statistics[0] if len(statistics) == 1 else surprise(statistics).max(0)
    return found


def combine(evidence: np.ndarray) -> np.ndarray:
    """One statistic (H + 1,) from evidence of several kinds (k, H + 1), and of all together.

    The log of a mean of exponentials: what one kind alone sees is not diluted by the others.
    """
    both = np.concatenate([evidence, surprise(evidence.sum(0, keepdims=True))])
    return np.asarray(scipy.special.logsumexp(both, 0) - math.log(len(both)))

r"""The local score test: strength from all simulations, a claim about those near x_o alone.

A set is the true parameter, member 0, and k draws of q at one x; in latent space, the latent of
the true parameter and draws of the base. With features :math:`f_{ij}` of member j of set i, less
their mean over the set, and :math:`\lambda_i` the member that is labelled as the true parameter,

.. math:: L = \sum_{i \text{ near } x_o} f_{i \lambda_i}, \qquad
    S = \sum_{i \text{ elsewhere}} f_{i 0}, \qquad T = L A^{-1} (S + L) - D .

With A the covariance of the features, :math:`A^{-1} S` is a linear classifier that was trained
elsewhere, and T the score that it gives to the labelled members near x_o (Rao 1948, *Large sample
tests of statistical hypotheses*). D is the part of :math:`L A^{-1} L` in which sets are multiplied
with themselves: only agreement between sets counts. The T of several feature maps are combined.

**Why the p-value is exact.** A copy of the data changes the labels of sets near x_o alone. If q is
right there, members of these sets are exchangeable: given all else, the data and its copies have
one law, however wrong q is elsewhere. T treats them alike: p = (1 + #{T_h >= T}) / (1 + H) is
exact (Hemerik and Goeman 2018, *Exact testing with random permutations*).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import scipy.special
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, one_hot, pad

from .._support.inputs import WORD, check_count, check_fits, cpu, full_precision
from .._support.random import Seed, seed_of, stream
from .._support.work import map_in_threads, one_thread, progress
from ..data.calibration import Calibration
from ..data.guards import check_calibration
from ..data.posterior import StandardNormal
from ..neighbourhood import Nearest
from ..printing import probability
from ..results import Holm, LocalResult, MaxT, holm, pvalue, pvalue_error, settings_of
from .features import Coordinates, FeatureMap, feature_maps, random_directions

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
MOST_BORROWING = 50  # observations up to which sets elsewhere count, and Holm corrects


@full_precision()
def score(
    calibration: Calibration, near: float | Nearest | None = None, null: int = 199, seed: Seed = 0
) -> "Score":
    """Prepares the local score test, which is called with x_o, one (...,) or many (o, ...).

    Args:
        calibration: Pairs with k draws of q at each x, k = 1 or more, or latents of a flow. Pairs
            that were simulated around x_o need no weights here: their sets are exchangeable.
        near: What is near x_o: a share of the simulations, or :class:`assay.Nearest`.
        null: The number of relabelled copies. A p-value of at most 0.1 is made of 999 copies.
        seed: An int or a generator. The same seed gives the same test.

    Example:
        >>> theta, noise = torch.randn(2, 1000, 2, generator=torch.Generator().manual_seed(0))
        >>> z = torch.randn(1000, 16, 2, generator=torch.Generator().manual_seed(1))
        >>> x = theta + noise
        >>> wide = assay.Calibration(theta, x, x[:, None] / 2 + z)  # 1 in place of 0.7
        >>> float(score(wide)(torch.zeros(2)).pvalue)
        0.001
    """
    check_calibration(calibration)
    calibration = calibration.sorted()  # by x, so that the order of rows does not matter
    return Score(calibration, calibration.nearest(near), check_count("null", null), seed_of(seed))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ScoreResult(LocalResult):
    """What the local score test found at one observation, or at o of them."""

    pvalues: np.ndarray  #: of each observation by itself, () or (o,)
    copies: np.ndarray  #: the number of copies that its p-value is made of, () or (o,)
    kinds: tuple[str, ...]  #: of evidence, e of them
    evidence: np.ndarray  #: the p-value of each kind alone, (e,) or (o, e)
    near: np.ndarray  #: the number of simulations near x_o, () or (o,)
    auc: np.ndarray  #: of a linear classifier between true parameters and draws near x_o
    auc_error: np.ndarray  #: the standard error of the AUC

    @property
    def pvalue(self) -> np.ndarray:
        """The exact Monte-Carlo p-value of each observation by itself; never zero."""
        return self.pvalues

    @property
    def pvalue_error(self) -> np.ndarray:
        """The standard error of counting copies; they also standardise, which may double it."""
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
    """Sums of the features of a map, in neighbourhoods of s sizes, the whole one first."""

    near: Tensor  # of each member over the near sets of each group, (g, r, s, p)
    squares: Tensor  # of squared lengths of whitened features, (g, r, s); zero for a sparse map
    elsewhere: Tensor  # whitened, of true parameters around x_o, and of all not near, (2, p)


@dataclass(frozen=True, eq=False)
class Score:
    """A local score test, see :func:`score`; call it with x_o, or with :class:`assay.Draws`."""

    calibration: Calibration
    near: Nearest
    null: int
    seed: int

    @full_precision()
    @one_thread()
    def __call__(self, x_o: Any) -> ScoreResult:
        """Tests q at one observation or many."""
        observation = self.calibration.observation(x_o)
        borrow = len(observation.x) <= MOST_BORROWING
        sums_at = self._sets.sums_at(observation.features, borrow=borrow)
        found = [self._test(sums, near, borrow=borrow) for sums, near in sums_at]
        shaped: Any = observation.shaped
        own = {"near": self.near, "null": self.null, "seed": self.seed, "scope": self.near.words}
        return ScoreResult(
            **{name: shaped(np.stack([each[name] for each in found])) for name in found[0]},
            kinds=self._sets.kinds,
            x=shaped(observation.x.cpu().numpy()),
            # Max-T asks that no statistic looks at labels that are near another observation.
            adjustment=Holm() if borrow else MaxT(),
            hypothesis=f"q(theta | x) = p(theta | x) {self.near.words}",
            settings=settings_of("local score", self.calibration, **own),
        )

    @full_precision()
    @one_thread()
    def pvalues(self, x_o: Any, copies: int | None = None) -> np.ndarray:
        """P-values (o,) at many observations, of so many copies, and nothing else."""
        observation, found = self.calibration.observation(x_o), []
        for sums, near in self._sets.sums_at(observation.features, borrow=True):
            table = self._evidence(sums, near, copies or self.null)
            found.append(pvalue(table[0, 0], table[0, 1:]))
        return np.array(found)

    @cached_property
    def _sets(self) -> "Sets":
        return Sets(self.calibration, self.near, self.seed)

    def _test(self, sums: list[Sums], near: Tensor, *, borrow: bool) -> dict[str, Any]:
        """Fields of the result at one observation, from sums of each map and near sets (2, n)."""
        table = self._evidence(sums, near, self.null)
        p = pvalue(table[:, 0], table[:, 1:])  # with the statistic, and with each kind of evidence
        if borrow and p[0] <= RECHECKED and self.null < MORE_COPIES:
            # A p-value of at most t <= RECHECKED is one of more copies; if t is larger, the first
            # one was at most t. Both are exact, so that P(p <= t) <= t at every level.
            table = self._evidence(sums, near, MORE_COPIES)
            p = pvalue(table[:, 0], table[:, 1:])
        return {
            "statistic": table[0, 0],
            "null": table[0, 1 : 1 + self.null],  # as many at every observation
            "pvalues": p[0],
            "copies": table.shape[1] - 1,
            "evidence": p[1:],
            "near": int(near[0].sum()),
            **self._sets.auc(near[0], sums[0]),
        }

    def _labels(self, copies: int) -> Tensor:
        """Which member counts as the true parameter in the sets of each group, (H + 1, g)."""
        # The first version is the data, where it is member 0. In copies it is any member with the
        # same probability. If q is right, members are exchangeable, and so are all versions.
        g, r = len(self._sets.groups), self._sets.members.shape[1]
        check_fits("null", copies, WORD * (g * r + self._sets.numbers_per_set // r))
        chance = stream(self._sets.labels_seed, "labels")
        labels = cpu.randint(r, (copies, g), generator=chance).to(self._sets.groups)
        return torch.cat([torch.zeros_like(labels[:1]), labels])

    def _evidence(self, sums: list[Sums], near: Tensor, copies: int) -> np.ndarray:
        """The statistic and evidence of each kind in data and copies, (1 + kinds, H + 1)."""
        sets, labels = self._sets, self._labels(copies)
        g, r = len(sets.groups), sets.members.shape[1]
        # Rows of labelled members in tables (g r, ...) of all members of all groups, (H + 1, g).
        rows = labels + r * torch.arange(g, device=labels.device)

        def add(table: Tensor) -> Tensor:
            """Sums (H + 1, ...) of the labelled rows of a table (g, r, ...)."""
            flat = table.flatten(0, 1).flatten(1)
            return embedding_bag(rows, flat, mode="sum").unflatten(1, table.shape[2:])

        def statistics_of(i: int) -> list[tuple[str, np.ndarray]]:
            if copies < g * r:  # whitened where there are fewer rows
                total = sets.whitened(i, add(sums[i].near))
            else:
                total = add(sets.whitened(i, sums[i].near))
            parts = total, add(sums[i].squares), sums[i].elsewhere
            letters = (part.double().cpu().numpy() for part in parts)  # L, D and S
            return list(statistics(sets.maps[i], near.cpu().numpy(), *letters))

        found = [one for each in map_in_threads(statistics_of, range(len(sums))) for one in each]
        kinds = np.array([kind for kind, _ in found])
        each_map = surprise(np.stack([values for _, values in found]))
        evidence = surprise(np.stack([each_map[kinds == kind].sum(0) for kind in sets.kinds]))
        return np.concatenate([combine(evidence)[None], evidence])


class Sets:
    """All sets in groups, and sums of their features; nothing here knows of copies."""

    def __init__(self, calibration: Calibration, near: Nearest, seed: int) -> None:
        self.near, self.x = near, calibration.features
        self.labels_seed = calibration.members_seed(seed)  # depends on all members alike
        seed = calibration.own_seed(seed)
        members = calibration.sets(BASE_DRAWS, stream(seed, "base"))
        n, r, m = members.shape
        # The true parameter first, and then draws in a random order.
        order = cpu.rand(n, r - 1, generator=stream(seed, "draws")).argsort(1).to(members.device)
        draws = members[:, 1:].gather(1, order[..., None].expand(-1, -1, m))
        self.members = torch.cat([members[:, :1], draws], 1)
        # The sets of each group, at random, -1 where a group has fewer, (g, s).
        g, order = min(GROUPS, n), cpu.randperm(n, generator=stream(seed, "groups"))
        groups = pad(order, (0, -n % g), value=-1).reshape(-1, g).mT
        self.groups = groups.contiguous().to(members.device)
        normal = isinstance(calibration.base, StandardNormal)
        self.maps = feature_maps(m, normal=normal)
        self.kinds = (*dict.fromkeys(each.kind for each in self.maps), "near", "learned")
        self.coordinates = Coordinates.fit(self.members, self.x, normal=normal)
        self.kept: list[Tensor] = []
        self.numbers_per_set = sum(table.numel() for table in self.features(slice(1)))
        if self.groups.numel() * self.numbers_per_set <= MOST_FEATURES:
            self.kept = self.features(slice(None))
        few = [table.flatten(0, 1) for table in self.features(slice(MEASURED))]
        self.whitening = map_in_threads(lambda i: self.maps[i].whitening(few[i]), range(len(few)))

    def features(self, places: slice | Tensor, maps: int | None = None) -> list[Tensor]:
        """Features (b, r, p) of members of the sets at some places, by so many maps."""
        if self.kept:
            return [table[places] for table in self.kept[:maps]]
        sets = self.groups.flatten()[places]
        at = self.coordinates(self.members[sets], self.x[sets])
        return map_in_threads(lambda each: each(at), self.maps[:maps])

    def whitened(self, i: int, sums: Tensor) -> Tensor:
        """Sums (..., p) of features of map i, whitened or scaled."""
        each = self.whitening[i].to(sums)
        return sums @ each.mT if each.ndim == 2 else sums / each

    def sums_at(self, x_o: Tensor, *, borrow: bool) -> Iterator[tuple[list[Sums], Tensor]]:
        """Sums of each map at observations (o, d), and the near sets, all and inner, (2, n)."""
        g, s = self.groups.shape
        parts = x_o.split(max(1, MOST_SUMS // (2 * g * self.numbers_per_set)))
        step = max(1, MOST_FEATURES // (s * self.numbers_per_set))
        for part in progress(parts, "testing"):
            near, inner = self.near.inside(self.x, part), self.near.inside(self.x, part, INNER)
            around = Nearest(AROUND, self.near.distance).inside(self.x, part) & ~near
            inside = torch.stack([near, inner], 1)
            outside = torch.stack([around, ~near], 1)
            by_groups = [
                self._sums(i, i + step, inside, outside * borrow) for i in range(0, g, step)
            ]
            sums = []
            for of_map in zip(*by_groups, strict=True):
                added, squares, elsewhere = zip(*of_map, strict=True)
                sums.append(Sums(torch.cat(added, 1), torch.cat(squares, 1), sum(elsewhere)))
            for i, mask in enumerate(inside):
                yield [Sums(*(each[i] for each in of_map)) for of_map in sums], mask

    def _sums(self, first: int, end: int, near: Tensor, elsewhere: Tensor) -> list[Sums]:
        """Sums of each map over sets of some groups that masks (o, 2, n) choose, (o, ...)."""
        sets = self.groups[first:end]  # (g, s)
        tables = self.features(slice(first * sets.shape[1], end * sets.shape[1]))
        # A set that a group lacks has no weight.
        weights, others = ((mask[..., sets] & (sets >= 0)).float() for mask in (near, elsewhere))

        def add(values: Tensor, sizes: int) -> Tensor:
            """Sums (o, g, r, sizes, ...) of values (g s, r, ...)."""
            values = values.unflatten(0, sets.shape)
            return torch.einsum("ozgs,gsr...->ogrz...", weights[:, :sizes], values)

        def sums_of(i: int) -> Sums:
            each, table, sizes = self.maps[i], tables[i], max(1, self.maps[i].near_sizes)
            added = add(table, sizes)
            away = self.whitened(i, (others.flatten(2) @ table[:, 0]).double())
            squares = added.new_zeros(added.shape[:-1])
            if each.columns is None:
                # Squared lengths of whitened features, by their components in a few directions.
                sketch = self.whitening[i].mT @ random_directions(table.shape[2]).to(away)
                squares = add((table @ sketch.to(table)).square().sum(2), sizes)
            return Sums(added, squares, away)

        return map_in_threads(sums_of, range(len(tables)))

    def auc(self, near: Tensor, sums: Sums) -> dict[str, float]:
        """AUC between true parameters and draws near x_o by the first map, and its error."""
        sets = self.groups.flatten()
        (table,) = self.features(near[sets] & (sets >= 0), 1)  # (b, r, p)
        truths, fold = table[:, 0], torch.arange(len(table), device=table.device) % FOLDS
        in_fold = one_hot(fold, FOLDS).to(table)
        others = (truths.sum(0) - in_fold.mT @ truths).double()
        # Of classifiers that are trained on all other folds, (folds, p).
        directions = (sums.elsewhere[0] + self.whitened(0, others)) @ self.whitening[0]
        scores = ((table @ directions.to(table).mT) * in_fold[:, None]).sum(2)  # (b, r)
        truth, draws = scores[:, :1], scores[:, 1:]
        wins = ((truth > draws).double() + (truth == draws).double() / 2).mean(1)
        return {"auc": float(wins.mean()), "auc_error": float(wins.std()) / math.sqrt(len(wins))}


def statistics(
    each: FeatureMap, near: np.ndarray, L: np.ndarray, D: np.ndarray, S: np.ndarray
) -> Iterator[tuple[str, np.ndarray]]:
    """Kinds of evidence and statistics (H + 1,) of a map, from near sets (2, n), L, D and S."""
    # L (H + 1, s, p) and D (H + 1, s) are those of s sizes of the neighbourhood; S (2, p) is that
    # around x_o and that of all sets that are not near. L and S are whitened.
    if each.columns is None:
        lengths = (L**2).sum(2) - D
        for i in range(each.near_sizes):
            yield "near", lengths[:, i]
        # Directions that were learned elsewhere, which the near sets improve: L (S + L) - D.
        for direction in S:
            yield each.kind, L[:, 0] @ direction + lengths[:, 0]
        return
    for i, size in enumerate(near.sum(1)):
        squares = (L[:, i] ** 2).reshape(len(L), -1, each.columns).sum(2).T / size
        # The largest over parameters or pairs (j, H + 1), on a common scale.
        yield each.kind, squares[0] if len(squares) == 1 else surprise(squares).max(0)
    scaled = S[1] / math.sqrt(max(1, (~near[0]).sum()))  # of unit variance if q is right
    beyond = np.sign(scaled) * np.maximum(np.abs(scaled) - NOISE, 0)
    yield "learned", (L[:, 0] * beyond).sum(1)


def surprise(statistics: np.ndarray) -> np.ndarray:
    """Statistics (..., H + 1), standardised over all versions, as -log of a normal tail."""
    # Cube roots of sums of squares are nearly normal; what may be negative is so as it is.
    signed = (statistics < 0).any(-1, keepdims=True)
    roots = np.where(signed, statistics, np.cbrt(statistics))
    spread = roots.std(-1, keepdims=True)
    z = (roots - roots.mean(-1, keepdims=True)) / np.where(spread > 0, spread, 1)
    return np.asarray(-scipy.special.log_ndtr(-z))


def combine(evidence: np.ndarray) -> np.ndarray:
    """One statistic (H + 1,) from evidence of several kinds (k, H + 1), and of all together."""
    # The log of a mean of exponentials: what one kind alone sees is not diluted by the others.
    both = np.concatenate([evidence, surprise(evidence.sum(0, keepdims=True))])
    return np.asarray(scipy.special.logsumexp(both, 0) - math.log(len(both)))

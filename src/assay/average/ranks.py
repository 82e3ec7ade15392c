r"""Ranks of true parameters among draws of q at the same x, and their null.

The rank :math:`\#\{j : f(\theta_{q,j}, x) < f(\theta, x)\}` of any quantity f among k draws is
uniform on 0..k if q is right; ties are broken by chance. Counts of ranks in cells are then
multinomial. A statistic is one function of counts, for the data and for null copies. With
:math:`c_i` of n ranks below the edges :math:`z_i` of the cells, the surprise of a curve is the
largest :math:`-\log 2 \min\{P(B_i \le c_i), P(B_i \ge c_i)\}`, where :math:`B_i \sim B(n, z_i)`;
its null quantile gives a band that holds whole curves.

References: Talts et al. 2018, *Validating Bayesian Inference Algorithms with Simulation-Based
Calibration*; Säilynoja, Bürkner and Vehtari 2022, *Graphical test for discrete uniformity*.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import scipy.special
import scipy.stats
import torch
from torch import Tensor

from .._support import inputs
from .._support.inputs import as_null, as_tensors, check_finite, check_function, cpu
from .._support.random import call_user_code, mix_seed, stream
from ..data.calibration import Calibration, has_order, tied_ranks
from ..data.guards import check_calibration
from ..results import Frozen, Result, clopper_pearson, enough_nulls, holm, pvalue

# Members that are compared at a time, and features of x by which rows are ordered, at most.
PIECE, COLUMNS = 2**17, 4
# Cells in which ranks are counted, at most; bins of a histogram, at most, and ranks in each.
MOST_CELLS, MOST_BINS, IN_BIN = 60, 20, 20
# Standard deviations of counts beyond which a tail counts no further.
FARTHEST = 9.0
# Slots of the table from which Poisson numbers are taken: as many as 16 bits distinguish.
SLOTS = 2**16


class Values(NamedTuple):
    """Values of a quantity that were computed already, row by row as in the calibration."""

    truth: Any  # at the true parameters, (n,)
    draws: Any  # at the draws of q, (n, k)


# A function of matching rows theta (b, m) and x (b, ...) with values (b,), or its values.
Quantity = Callable[[Tensor, Tensor], Any] | Values


@dataclass(frozen=True, eq=False)
class Sets:
    """True parameters with draws of q, and random numbers that belong to their observations.

    Rows are ordered by the first few features of x that vary, and the seed depends on x too: the
    order of rows changes nothing, and with one seed two data sets still meet independent nulls.
    """

    members: Tensor  # (n, k + 1, m), true parameters first
    x: Tensor  # (n, ...)
    order: np.ndarray  # of rows by x, (n,)
    seed: int

    @classmethod
    def of(cls, calibration: Calibration, seed: int) -> Self:
        """The sets of a calibration; refuses latents, and a single draw of q."""
        check_calibration(calibration)
        members = calibration.members
        if members.shape[1] < 3:
            raise ValueError(
                "theta_q: expected at least 2 draws of q at each x, with shape (n, k, m); got 1. "
                "Ranks among a single draw say next to nothing; 100 draws are common."
            )
        features = calibration.features
        varies = (features != features[:1]).any(0).nonzero().flatten()[:COLUMNS]
        columns = features[:, varies if len(varies) else slice(1)].cpu().numpy()
        order = np.lexsort(columns.T[::-1])
        rows = columns[order]
        if not has_order(tied_ranks(columns)):
            seed = calibration.members_seed(seed)
        elif rows.shape[1] > 1:
            seed = mix_seed(seed, np.argsort(rows[:, 1:], 0, kind="stable"))
        else:
            # A single feature has no order once sorted: which of neighbouring gaps are larger.
            seed = mix_seed(seed, np.diff(rows.astype(float), 2, axis=0) > 0)
        return cls(members, calibration.x, order, seed)

    def uniform(self, *key: str, width: tuple[int, ...] = ()) -> Tensor:
        """Uniform numbers (n, *width) in double precision, a row for each observation."""
        shape, generator = (len(self.order), *width), stream(self.seed, *key)
        numbers = cpu.rand(shape, generator=generator, dtype=torch.double)
        return numbers[torch.from_numpy(self.order.argsort())]

    def parameters(self) -> dict[str, Tensor]:
        """The values (n, k + 1) of every parameter."""
        return {f"theta[{j}]": column for j, column in enumerate(self.members.unbind(2))}

    def evaluate(self, name: str, quantity: Quantity) -> Tensor:
        """The values (n, k + 1) of a quantity; they may be infinite, not NaN."""
        n, r, _ = self.members.shape
        if isinstance(quantity, Values):
            true, draws = as_tensors({"truth": quantity.truth, "draws": quantity.draws}).values()
            if true.shape != (n,) or draws.shape != (n, r - 1):
                raise ValueError(
                    f"{name}: expected values at {(n, r - 1)} draws and {n} true parameters, as "
                    f"in the calibration; got {tuple(draws.shape)} and {tuple(true.shape)}."
                )
            values = torch.cat([true[:, None], draws], 1)
        else:
            check_function(name, quantity, "a function of theta and x, or Values")
            parts, rows = [], max(1, PIECE // r)
            for sets, x in zip(self.members.split(rows), self.x.split(rows), strict=True):
                theta = sets.flatten(0, 1)  # (b, m)
                found = call_user_code(name, quantity, theta, x.repeat_interleave(r, 0))
                if found.shape != theta.shape[:1]:
                    raise ValueError(
                        f"{name}: expected a function that maps theta (b, m) and x (b, ...) to "
                        f"(b,); got {tuple(found.shape)} for b = {len(theta)}."
                    )
                parts.append(found.to(theta.device).unflatten(0, (-1, r)))
            values = torch.cat(parts)
        check_finite(name, values.nan_to_num(torch.nan, 0.0, 0.0), "Infinity is allowed, NaN not.")
        return values

    def rank(self, values: Mapping[str, Tensor]) -> np.ndarray:
        """Ranks (n, j) of the true parameters in quantities with values (n, k + 1)."""
        columns, k = [], self.members.shape[1] - 1
        for name, table in values.items():
            counts = []
            for part in table.split(max(1, PIECE // k)):  # which stays in the cache
                true, draws = part[:, :1], part[:, 1:]
                counts.append(torch.stack([(draws < true).sum(1), (draws == true).sum(1)]))
            below, ties = torch.cat(counts, 1).cpu().numpy()  # (n,) each
            if (ties == k).all():
                raise ValueError(
                    f"{name}: expected a quantity that varies among the draws of q; got a "
                    "constant at every x."
                )
            if ties.any():
                below += (self.uniform("ties", name).numpy() * (ties + 1)).astype(below.dtype)
            columns.append(below)
        return np.stack(columns, 1)


@dataclass(frozen=True)
class UniformRanks:
    """The null of ranks: independent and uniform on 0..k if q is right at almost every x."""

    n: int = 999  # the number of null copies

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", inputs.check_count("n", self.n))

    @classmethod
    def enough(cls, quantities: int, alpha: float = 0.05) -> "UniformRanks":
        """As many copies as usual, or as are needed to reject one of many quantities."""
        return cls(max(cls.n, enough_nulls(quantities, alpha)))

    @classmethod
    def of(cls, null: Any, quantities: int) -> "UniformRanks":
        """A null as it is, or with so many copies; with enough of them if None."""
        return as_null(null, cls.enough(quantities), cls, hint="UniformRanks(999)")


@lru_cache(maxsize=8)
def uniform_counts(n: int, sizes: tuple[int, ...], copies: int, seed: int) -> np.ndarray:
    """How many of n uniform ranks lie below the end of each of g cells, (g, copies).

    Nearly all are put into cells at once, as Poisson numbers, which are multinomial given their
    sum; few follow one by one. Copies with too many, which depends on the sum alone, are replaced.
    """
    inputs.check_fits("null", copies, 3 * inputs.WORD * len(sizes))
    state = cpu.randint(2**62, (), generator=stream(seed, "uniform ranks")).item()
    rng = np.random.Generator(np.random.SFC64(int(state)))
    places = np.repeat(np.arange(len(sizes)), sizes)
    rates = max(0.0, n - 1.2 * np.sqrt(n)) / len(places) * np.array(sizes)
    counts = np.empty((len(sizes), 0), dtype=np.int32)
    while counts.shape[1] < copies:
        more = np.empty((len(sizes), copies + copies // 6 + 5), dtype=np.int32)
        for rate in np.unique(rates):
            same = rates == rate
            more[same] = _poisson(rate, more[same].shape, rng)
        counts = np.concatenate([counts, more[:, more.sum(0) <= n]], 1)[:, :copies]
    copy = np.repeat(np.arange(copies), n - counts.sum(0))
    cell = places[rng.integers(0, len(places), len(copy))]
    missing = np.bincount(cell * copies + copy, minlength=counts.size).reshape(counts.shape)
    # Rows are summed faster by torch than by NumPy.
    below: np.ndarray = torch.from_numpy(missing + counts).cumsum(0).numpy()
    below.setflags(write=False)
    return below


def _poisson(rate: float, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Poisson numbers by inversion: 16 random bits, and more where these do not decide."""
    below = scipy.special.pdtr(np.arange(int(rate + 12 * np.sqrt(rate) + 40)), rate)
    least = np.searchsorted(below, np.arange(SLOTS + 1) / SLOTS)
    slots = rng.integers(0, SLOTS, shape, dtype=np.uint16)
    numbers = least[slots]
    undecided = numbers < least[1:][slots]
    share = (slots[undecided] + rng.random(int(undecided.sum()))) / SLOTS
    numbers[undecided] = np.searchsorted(below, share, side="right")
    return numbers


@lru_cache(maxsize=8)
def surprises(n: int, sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """First counts (g - 1,) below inner edges, and surprises (g - 1, w) of w counts from there."""
    z = np.cumsum(sizes[:-1])[:, None] / sum(sizes)
    reach = int(FARTHEST * np.sqrt(n) / 2) + 10
    first = np.floor(n * z).astype(int) - reach
    mass = scipy.stats.binom.pmf(first + np.arange(2 * reach + 2), n, z)
    smaller = np.minimum(mass.cumsum(1), mass[:, ::-1].cumsum(1)[:, ::-1])
    return first[:, 0], -np.log(2 * np.maximum(smaller, 1e-300))


@dataclass(frozen=True, eq=False)
class RankStatistic(Frozen):
    """A statistic (j,) of j quantities, with its values (j, H) for the null copies."""

    statistic: np.ndarray
    null: np.ndarray

    @property
    def pvalue(self) -> np.ndarray:
        """The exact Monte-Carlo p-values, with shape (j,)."""
        return pvalue(self.statistic, self.null)


@dataclass(frozen=True, eq=False)
class RankCurve:
    """Distribution functions of ranks of j quantities, with intervals and a null band."""

    levels: np.ndarray  # shares of ranks from 0 to 1, (g,)
    ecdf: np.ndarray  # the share of the n ranks among the lowest share of ranks, (j, g)
    lower: np.ndarray  # lower end of its pointwise confidence interval, (j, g)
    upper: np.ndarray  # its upper end, (j, g)
    null_lower: np.ndarray  # lower end of the band that holds whole curves if q is right, (g,)
    null_upper: np.ndarray  # its upper end, (g,)
    alpha: float  # one minus the coverage of interval and band


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of neighbouring ranks, with statistics of counts (g, c) below the end of each."""

    edges: np.ndarray  # ranks at which the g cells begin, and p at last, (g + 1,)
    sizes: tuple[int, ...]  # the weight of each cell
    levels: np.ndarray  # the share of weight before each cell, and one at last, (g + 1,)

    @classmethod
    def of(cls, weights: np.ndarray) -> Self:
        """Cells of p ranks with weights (p,): each alone if there are at most 60 of them."""
        p = len(weights)
        edges = np.arange(p + 1)
        if p > MOST_CELLS:
            # Halved down to one rank at both ends, where true parameters outside q are found.
            ends = np.cumsum([1, *(2**i for i in range((p // MOST_CELLS).bit_length()))])
            middle = np.linspace(ends[-1], p - ends[-1], MOST_CELLS - 2 * len(ends) + 1)
            parts = [0], ends[:-1], middle.round(), p - ends[-2::-1], [p]
            edges = np.concatenate(parts).astype(int)
        sizes = np.add.reduceat(weights, edges[:-1])
        return cls(edges, tuple(sizes.tolist()), np.append(0, np.cumsum(sizes)) / sizes.sum())

    def below(self, ranks: np.ndarray) -> np.ndarray:
        """How many of n ranks (n, j) lie below the end of each cell, with shape (g, j)."""
        columns = np.sort(ranks, 0).T
        return np.stack([np.searchsorted(column, self.edges[1:]) for column in columns], 1)

    def compare(
        self, ranks: np.ndarray, null: UniformRanks, seed: int, *statistics: Callable[..., Any]
    ) -> list[RankStatistic]:
        """Functions of counts, for ranks (n, j) and for null copies."""
        data, found = self.below(ranks), []
        copies = uniform_counts(len(ranks), self.sizes, null.n, seed)
        for statistic in statistics:
            values = np.broadcast_to(statistic(copies), (data.shape[1], null.n))
            found.append(RankStatistic(statistic(data), values))
        return found

    def ks(self, below: np.ndarray) -> np.ndarray:
        """The largest distance of the distribution function from the uniform one, at edges."""
        n = below[-1, 0]
        return np.abs(below - n * self.levels[1:, None]).max(0) / n

    def chi_square(self, below: np.ndarray) -> np.ndarray:
        """Pearson's statistic over bins."""
        starts = self.bins(below[-1, 0])
        expected = below[-1, 0] * np.diff(self.levels[starts])[:, None]
        counts = np.diff(below[starts[1:] - 1], axis=0, prepend=0)
        return (np.square(counts - expected) / expected).sum(0)

    def bins(self, n: int) -> np.ndarray:
        """The cells at which bins begin that hold 20 of n ranks each or more, and g at last."""
        g = len(self.sizes)
        most = min(g, MOST_BINS, max(2, n // IN_BIN))
        count = max(min(2, most), g // -(-g // most))
        # The edges nearest to equal shares.
        distance = np.abs(self.levels - np.linspace(0, 1, count + 1)[:, None])
        return np.unique(distance.argmin(1))

    def surprise(self, below: np.ndarray) -> np.ndarray:
        """The surprise of whole curves."""
        first, table = surprises(int(below[-1, 0]), self.sizes)
        g, w = table.shape
        # Beyond the table a tail counts no further, for data and copies alike.
        index = np.clip(below[:-1] - first[:, None], 0, w - 1) + w * np.arange(g)[:, None]
        return table.take(index).max(0)

    def curve(self, ranks: np.ndarray, null: np.ndarray, alpha: float) -> RankCurve:
        """Curves of ranks (n, j), which leave the band if and only if p <= alpha by null (H,)."""
        n, size, alpha = len(ranks), len(null) + 1, inputs.check_number("alpha", alpha)
        largest = int(alpha * size + 1e-9)
        if not 1 <= largest < size:
            raise ValueError(
                f"alpha: expected at least {1 / size:.3g} with {size - 1} null copies, and less "
                f"than 1; got {alpha}."
            )
        first, table = surprises(n, self.sizes)
        # Within rounding error, as p-values are.
        inside = table <= np.sort(null)[-largest] + 1e-9
        last = inside.shape[1] - 1 - inside[:, ::-1].argmax(1)
        ecdf = np.insert(self.below(ranks).T / n, 0, 0.0, axis=1)
        lower, upper = clopper_pearson(ecdf, n, alpha)
        inner = first + inside.argmax(1), first + last
        least, most = (np.concatenate([[0], counts, [n]]) / n for counts in inner)
        return RankCurve(self.levels, ecdf, lower, upper, least, most, alpha)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class RankResult(Result):
    """What tests of ranks have in common, for j quantities."""

    ranks: np.ndarray  # of the true parameters, (n, j)
    names: tuple[str, ...]  # of the quantities
    hypothesis: str = "q(theta | x) = p(theta | x) at almost every x, tested by ranks"
    shared: ClassVar[tuple[str, ...]] = ("ranks",)

    @property
    def adjusted(self) -> np.ndarray:
        """P-values adjusted for the number of quantities, by Holm, with shape (j,)."""
        return holm(self.pvalue)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the quantities."""
        return self.names

    def _row(self, i: int) -> Self:
        own = slice(i, i + 1)
        return replace(self._take(own), ranks=self.ranks[:, own], names=self.names[own])

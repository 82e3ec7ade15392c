r"""The null of ranks: n of them, independent and uniform on 0..k if q is right.

The counts of a null copy are multinomial. A statistic is one function of counts, for data and
copies alike, and p-values are exact. Where k is 60 or more, neighbouring ranks are counted
together in 60 cells, which are finer at both ends, where true parameters outside q are found.

**Bands.** The number of ranks among the lowest share z is binomial, n and z. The smallest tail

.. math:: \gamma = 2 \min_i \min\{P(B_i \le c_i), P(B_i \ge c_i)\}, \quad B_i \sim B(n, z_i),

over the edges of the cells measures the whole curve; its surprise is :math:`-\log\gamma`. The band
of all curves whose surprise is below its null quantile has joint coverage :math:`1 - \alpha`.

References: Säilynoja, Bürkner and Vehtari 2022, *Graphical test for discrete uniformity and its
applications in goodness-of-fit evaluation and multiple sample comparison*; Talts et al. 2018.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
import scipy.special
import torch

from .._support.inputs import WORD, check_count, check_fits, check_number, cpu
from .._support.random import stream
from ..results import Frozen, enough_nulls, pvalue

# Cells in which ranks are counted, at most; bins of a histogram, at most, and ranks in each.
MOST_CELLS, MOST_BINS, IN_BIN = 60, 20, 20
# Standard deviations of counts beyond which a tail counts no further.
FARTHEST = 9.0
# Slots of the table from which Poisson numbers are taken: as many as 16 bits distinguish.
SLOTS = 2**16


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells in which ordered positions are counted.

    Example:
        >>> Cells.of(np.ones(4, int)).levels
        array([0.  , 0.25, 0.5 , 0.75, 1.  ])
    """

    weights: np.ndarray  # how many of the k + 1 equally likely ranks are at each position, (p,)
    edges: np.ndarray  # positions at which cells begin, and p at last, (g + 1,)

    @classmethod
    def of(cls, weights: np.ndarray) -> "Cells":
        """Each position alone if there are at most 60 of them, otherwise 60 cells.

        Towards both ends the size of cells is halved until they hold one position.
        """
        p = len(weights)
        if p <= MOST_CELLS:
            return cls(weights, np.arange(p + 1))
        ends = np.cumsum([1, *(2**i for i in range((p // MOST_CELLS).bit_length()))])
        middle = np.linspace(ends[-1], p - ends[-1], MOST_CELLS - 2 * len(ends) + 1)
        edges = np.concatenate([[0], ends[:-1], middle.round(), p - ends[-2::-1], [p]])
        return cls(weights, edges.astype(int))

    @cached_property
    def cumulative(self) -> np.ndarray:
        """The share of ranks before each position, and one at last, with shape (p + 1,)."""
        return np.append(0.0, np.cumsum(self.weights)) / np.sum(self.weights)

    @cached_property
    def levels(self) -> np.ndarray:
        """The share of ranks before each cell, and one at last, with shape (g + 1,)."""
        return self.cumulative[self.edges]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The number of ranks in each of the g cells."""
        return tuple(np.add.reduceat(self.weights, self.edges[:-1]).tolist())

    def below(self, positions: np.ndarray) -> np.ndarray:
        """How many of n positions (n, j) lie below the end of each cell, with shape (g, j)."""
        g, j = len(self.sizes), positions.shape[1]
        cell = np.repeat(np.arange(g), np.diff(self.edges))
        flat = cell[positions] * j + np.arange(j)
        return np.bincount(flat.ravel(), minlength=g * j).reshape(g, j).cumsum(0)

    def covered(self, positions: np.ndarray, levels: np.ndarray) -> np.ndarray:
        """The share (j, l) of positions (n, j) that lie below levels (l,).

        A position spreads evenly over its share of ranks, so if q is right the mean is the level
        itself, however few the draws.
        """
        p = len(self.weights)
        table = np.stack([np.bincount(column, minlength=p) for column in positions.T])
        below = np.append(np.zeros((len(table), 1)), table.cumsum(1), 1) / len(positions)
        return np.stack([np.interp(levels, self.cumulative, row) for row in below])


@dataclass(frozen=True)
class UniformRanks:
    """The null of ranks: independent and uniform on 0..k if q is right at almost every x.

    Args:
        n: The number of null copies.

    Example:
        >>> UniformRanks(99).below(50, Cells.of(np.ones(10, int)), seed=0)[-1, :3]
        array([50, 50, 50])
    """

    n: int = 999
    # What a small p-value speaks against.
    hypothesis: ClassVar[str] = "q(theta | x) = p(theta | x) at almost every x, tested by ranks"

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_count("n", self.n))

    @classmethod
    def enough(cls, quantities: int, alpha: float = 0.05) -> "UniformRanks":
        """As many copies as usual, or as are needed to reject one of many quantities."""
        return cls(max(cls.n, enough_nulls(quantities, alpha)))

    def below(self, n: int, cells: Cells, seed: int) -> np.ndarray:
        """How many of n uniform ranks lie below the end of each cell, (g, H), for every copy."""
        return _multinomial(n, cells.sizes, self.n, seed)


@lru_cache(maxsize=8)
def _multinomial(n: int, sizes: tuple[int, ...], copies: int, seed: int) -> np.ndarray:
    """Cumulative counts (g, copies) of n items, in cells with so many equally likely places.

    Nearly all items are put into their cells at once, as independent Poisson numbers, which are
    multinomial given their sum; the few that are missing follow one by one. Copies that have too
    many, which depends on the sum alone, are replaced.
    """
    check_fits("null", copies, 3 * WORD * len(sizes))
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
    steps = np.minimum((below * SLOTS).astype(int), SLOTS)
    table = np.repeat(
        np.arange(len(below) + 1, dtype=np.int32), np.diff(steps, prepend=0, append=SLOTS)
    )
    table[steps[steps < SLOTS]] = -1
    slots = rng.integers(0, SLOTS, shape, dtype=np.uint16)
    numbers = table.take(slots)
    undecided = numbers < 0
    share = (slots[undecided] + rng.random(int(undecided.sum()))) / SLOTS
    numbers[undecided] = np.searchsorted(below, share, side="right")
    return numbers


# A function of the counts (g, c) below the ends of cells, of c copies, with one value for each.
Statistic = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True, eq=False)
class RankStatistic(Frozen):
    """A statistic (j,) of j quantities, with its values (j, H) for the null copies."""

    statistic: np.ndarray
    null: np.ndarray

    @property
    def pvalue(self) -> np.ndarray:
        """The exact Monte-Carlo p-values, with shape (j,)."""
        return pvalue(self.statistic, self.null)


def compare(data: np.ndarray, copies: np.ndarray, statistic: Statistic) -> RankStatistic:
    """One function of the counts below (g, j) of the data and (g, H) of null copies."""
    own = statistic(data)
    return RankStatistic(own, np.broadcast_to(statistic(copies), (len(own), copies.shape[1])))


def ks(below: np.ndarray, cells: Cells) -> np.ndarray:
    r"""The largest distance of the empirical from the uniform distribution function.

    From counts (g, c) below the end of each cell, of c copies. Over the edges of the cells, which
    are all k + 1 steps where k is below 60: :math:`\max_r |F_n(r) - (r + 1) / (k + 1)|`.
    """
    n = below[-1, 0]
    distance = below - n * cells.levels[1:, None]
    return np.abs(distance, out=distance).max(0) / n


def chi_square(below: np.ndarray, cells: Cells) -> np.ndarray:
    r"""Pearson's :math:`\sum_b (c_b - e_b)^2 / e_b` over bins of whole cells, of c copies."""
    starts = bins(int(below[-1, 0]), cells)
    expected = below[-1, 0] * np.diff(cells.levels[starts])[:, None]
    counts = np.diff(below[starts[1:] - 1], axis=0, prepend=0)
    return (np.square(counts - expected) / expected).sum(0)


def bins(n: int, cells: Cells) -> np.ndarray:
    """The cells at which the bins for n ranks begin, and the number of cells at last.

    As many bins as hold 20 ranks each on average, at least 2 and at most 20, with about the same
    number of cells each: expected counts may differ.
    """
    g = len(cells.sizes)
    most = min(g, MOST_BINS, max(2, n // IN_BIN))
    count = max(min(2, most), g // -(-g // most))
    # The edges nearest to equal shares.
    distance = np.abs(cells.levels - np.linspace(0, 1, count + 1)[:, None])
    return np.unique(distance.argmin(1))


@dataclass(frozen=True, eq=False)
class Tails:
    """Binomial tails of the counts below each inner edge of cells, as a table."""

    first: np.ndarray  # the count with which each row of the table begins, (g - 1,)
    table: np.ndarray  # minus the logarithm of twice the smaller tail, (g - 1, w)

    def __call__(self, below: np.ndarray) -> np.ndarray:
        r"""The surprise :math:`-\log\gamma` of whole curves, from counts below (g, c)."""
        g, w = self.table.shape
        # Beyond the table a tail counts no further, for data and copies alike.
        index = below[:-1] - self.first[:, None]
        np.clip(index, 0, w - 1, out=index)
        index += w * np.arange(g)[:, None]
        return self.table.take(index).max(0)

    def band(self, edge: float) -> tuple[np.ndarray, np.ndarray]:
        """The smallest and largest counts (g - 1,) whose surprise is at most `edge`."""
        # Within rounding error, as p-values are.
        inside = self.table <= edge + 1e-9
        last = inside.shape[1] - 1 - inside[:, ::-1].argmax(1)
        return self.first + inside.argmax(1), self.first + last


@lru_cache(maxsize=8)
def tails(n: int, sizes: tuple[int, ...]) -> Tails:
    """The tails of n ranks in cells that hold so many of the k + 1 equally likely ranks."""
    z = np.cumsum(sizes[:-1])[:, None] / sum(sizes)
    reach = int(FARTHEST * np.sqrt(n) / 2) + 10
    first = np.floor(n * z).astype(int) - reach
    count = first + np.arange(2 * reach + 2)
    known = np.clip(count, 0, n)
    factorials = scipy.special.gammaln(np.arange(1, n + 2))
    log_mass = factorials[n] - factorials[known] - factorials[n - known]
    log_mass += known * np.log(z) + (n - known) * np.log1p(-z)
    mass = np.where(count == known, np.exp(log_mass), 0.0)
    smaller = np.minimum(mass.cumsum(1), mass[:, ::-1].cumsum(1)[:, ::-1])
    return Tails(first[:, 0], -np.log(2 * np.maximum(smaller, 1e-300)))


@dataclass(frozen=True, eq=False)
class RankCurve:
    """The distribution of ranks of j quantities, with a simultaneous null band."""

    levels: np.ndarray  # shares of ranks z from 0 to 1, (g,)
    ecdf: np.ndarray  # the share of the n ranks among the lowest share z, (j, g)
    lower: np.ndarray  # lower end of the band that holds the whole curve, (g,)
    upper: np.ndarray  # its upper end, (g,)
    alpha: float  # one minus the joint coverage of the band if q is right

    @classmethod
    def of(
        cls, positions: np.ndarray, cells: Cells, surprises: np.ndarray, alpha: float
    ) -> "RankCurve":
        """The curve of positions (n, j), and the band that 1 - alpha of null curves do not leave.

        With surprises (H,) of null copies: a curve leaves the band if and only if its p-value is
        at most alpha.
        """
        n = len(positions)
        ecdf = np.insert(cells.below(positions).T / n, 0, 0.0, axis=1)
        inner = tails(n, cells.sizes).band(critical_value(surprises, alpha))
        lower, upper = (np.concatenate([[0], counts, [n]]) / n for counts in inner)
        return cls(cells.levels, ecdf, lower, upper, alpha)

    @property
    def difference(self) -> np.ndarray:
        """The curve less the diagonal, with shape (j, g)."""
        return self.ecdf - self.levels

    @property
    def difference_lower(self) -> np.ndarray:
        """Lower end of the band of the difference, with shape (g,)."""
        return self.lower - self.levels

    @property
    def difference_upper(self) -> np.ndarray:
        """Upper end of the band of the difference, with shape (g,)."""
        return self.upper - self.levels


def critical_value(null: np.ndarray, alpha: float) -> float:
    """What a statistic exceeds if and only if its p-value with nulls (H,) is at most alpha."""
    alpha = check_number("alpha", alpha)
    size = len(null) + 1
    largest = int(alpha * size + 1e-9)
    if not 1 <= largest < size:
        raise ValueError(
            f"alpha: expected at least {1 / size:.3g} with {size - 1} null copies, and less than "
            f"1; got {alpha}."
        )
    return float(np.sort(null)[-largest])

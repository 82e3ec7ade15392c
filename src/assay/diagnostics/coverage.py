r"""Expected coverage: how often regions of q that should hold a share of truths do hold it.

The level of a truth is the mass of q in the smallest region that holds it. For highest-density
regions (Hermans et al. 2022) it is the share of draws of q with a higher density than the truth,
for central intervals of a parameter the share of draws nearer to the middle of the ranks. Then

.. math:: C(\alpha) = P(\text{level} \le \alpha)

is the coverage of regions of mass :math:`\alpha`, over pairs of the joint; it is :math:`\alpha` if
q is right. Below the diagonal q is overconfident, above it conservative. Among k draws the level
is one of k + 1 equally likely steps (pairs of steps for central intervals), and each is spread
evenly over its width: so the curve has mean :math:`\alpha` exactly, even for k = 9.

The signed area between curve and diagonal is one half less the mean level. Like all averages over
x, coverage is necessary, not sufficient: q = prior has it.

References: Hermans et al. 2022, *A Trust Crisis In Simulation-Based Inference? Your Posterior
Approximations Can Be Unfaithful*; Deistler, Goncalves and Macke 2022, *Truncated proposals*.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..door import check_kind, check_number
from ..randomness import Seed, seed_of
from ..ranks import Chance, Quantity, log_densities, ranked
from ..results import Tested, adjusted
from ..results import pvalue as exact_pvalue
from ..samples import Calibration
from ..uniformity import (
    Cells,
    Compared,
    UniformRanks,
    clopper_pearson,
    compared,
    rank_curve,
    surprised,
)
from ..version import versions

__all__ = [
    "LEVELS",
    "Covered",
    "CoverageCurve",
    "CoverageResult",
    "checked_levels",
    "checked_null",
    "compared_curves",
    "coverage",
]

LEVELS = (0.5, 0.9, 0.95)


def coverage(
    calibration: Calibration,
    log_q: Quantity | None = None,
    levels: Sequence[float] = LEVELS,
    null: UniformRanks | None = None,
    seed: Seed = 0,
) -> "CoverageResult":
    """Tests whether regions of q hold as many truths as they should.

    Args:
        calibration: Pairs with k draws of q at each x, independent of each other.
        log_q: The log-density of q, as a function of matching rows theta (b, m) and x (b, ...)
            with values (b,), or its :class:`~assay.ranks.Values`; it may lack a constant for each
            x. With it, the regions are those of highest density; without it, central intervals of
            every parameter.
        levels: Levels between 0 and 1 that are reported by name. Between the steps that k draws
            tell apart the curve is interpolated: a level of 0.95 asks for 19 draws or more, of
            central intervals for 39.
        null: How many null copies: :class:`~assay.uniformity.UniformRanks` with 999 by default.
        seed: An int or a generator; it breaks ties and draws the null.

    Returns:
        The curve of expected coverage, its test, and the coverage at the levels.

    Example:
        >>> theta, noise, *z = torch.randn(22, 500, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> narrow = Calibration(theta, x, x[:, None] / 2 + 0.4 * torch.stack(z, 1))
        >>> log_q = lambda theta, x: -((theta - x / 2) ** 2).sum(1) / (2 * 0.4**2)
        >>> coverage(narrow, log_q).sentence
        'q is overconfident: its 90 % highest-density regions hold the truth in 68 % of cases.'
    """
    check_kind("calibration", calibration, "a Calibration", "theta_q", "features")
    named, null, seed = checked_levels(levels), checked_null(null), seed_of(seed)
    if log_q is None:
        found = ranked(calibration, None, seed)
        regions, names = "central intervals", found.names
        positions, weights = _central(found.ranks, found.k)
    else:
        values = log_densities(calibration, log_q)
        found = ranked(calibration, {"log_q": values}, seed)
        regions, names = "highest-density regions", ("highest density",)
        positions, weights = found.k - found.ranks, np.ones(found.k + 1, int)
    chance = Chance.of(calibration, seed)
    curve, area = compared_curves(positions, weights, null, lambda u: 0.5 - u, chance.seed)
    return CoverageResult(
        statistic=curve.statistic,
        null=curve.null,
        area=area.statistic,
        area_null=area.null,
        positions=positions,
        weights=weights,
        levels=named,
        names=names,
        regions=regions,
        hypothesis=null.hypothesis,
        settings={
            "test": f"expected coverage of {regions}",
            **calibration.summary,
            "null": repr(null),
            "seed": seed,
            **versions(),
        },
    )


def compared_curves(
    positions: np.ndarray,
    weights: np.ndarray,
    null: UniformRanks,
    area: Callable[[np.ndarray], np.ndarray],
    seed: int,
) -> tuple[Compared, Compared]:
    """The surprise and the signed area of the curves of positions (n, j), with their nulls.

    Args:
        positions: Positions of the truths, with shape (n, j).
        weights: How many ranks stand at each position, with shape (p,).
        null: How many null copies.
        area: What a truth at a level adds to the area, for levels of any shape.
        seed: The seed of the null.
    """
    n, cells = len(positions), Cells.of(weights)
    data, copies = cells.below(positions), null.below(n, cells, seed)
    # Summed by parts: what a truth adds in its cell is what it adds in the last, and the steps
    # of all cells from its own on.
    each = area((cells.levels[1:] + cells.levels[:-1]) / 2)
    steps = -np.diff(each, append=0.0)

    def total(below: np.ndarray) -> np.ndarray:
        return np.asarray(steps @ below / n)

    return surprised(data, cells, null, seed), compared(data, copies, total)


def checked_levels(levels: Sequence[float]) -> np.ndarray:
    """Levels between 0 and 1, in ascending order, or refuses."""
    given = np.atleast_1d(np.asarray(levels, dtype=object)).tolist()
    numbers = [check_number("levels", level) for level in given]
    if not numbers or max(numbers) >= 1:
        raise ValueError(f"levels: expected numbers between 0 and 1, such as 0.9; got {given}.")
    return np.array(sorted(numbers))


def checked_null(null: UniformRanks | None) -> UniformRanks:
    """A null of ranks, the usual one if None, or refuses."""
    null = UniformRanks() if null is None else null
    if not isinstance(null, UniformRanks):
        raise TypeError(f"null: expected UniformRanks(n); got {null!r}.")
    return null


def _central(ranks: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """How far ranks (n, j) are from the middle, and how many ranks are as far.

    Two ranks are, but for the one in the middle where k is even.
    """
    weights = np.full(k // 2 + 1, 2)
    weights[0] -= 1 - k % 2
    return k // 2 - np.minimum(ranks, k - ranks), weights


@dataclass(frozen=True, eq=False)
class CoverageCurve:
    """A curve of expected coverage with its error, and what it would be if q were right.

    Args:
        levels: The grid of levels, from 0 to 1, with shape (g,).
        coverage: The expected coverage, with shape (j, g).
        lower: Lower end of its pointwise confidence interval, with shape (j, g).
        upper: Its upper end.
        null_lower: Lower end of the simultaneous null band, with shape (g,).
        null_upper: Its upper end.
        alpha: One minus the coverage of interval and band.
    """

    levels: np.ndarray
    coverage: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    null_lower: np.ndarray
    null_upper: np.ndarray
    alpha: float


class Covered(Tested):
    """What tests of coverage have in common; subclasses are their results."""

    area: np.ndarray
    area_null: np.ndarray
    positions: np.ndarray
    weights: np.ndarray
    levels: np.ndarray
    names: tuple[str, ...]
    settings: Mapping[str, Any]

    @property
    @abstractmethod
    def held(self) -> str:
        """What holds the truth, e.g. 'highest-density regions'."""

    @abstractmethod
    def intervals(self, share: np.ndarray, alpha: float) -> np.ndarray:
        """Ends (2, ...) of confidence intervals of shares (...) of the n pairs."""

    @property
    def adjusted(self) -> np.ndarray:
        """P-values adjusted for the number of curves, by Holm, with shape (j,)."""
        return adjusted(self.pvalue)

    @property
    def area_pvalue(self) -> np.ndarray:
        """The two-sided p-value of the signed area, with shape (j,)."""
        return exact_pvalue(np.abs(self.area), np.abs(self.area_null))

    @cached_property
    def coverage(self) -> np.ndarray:
        """The expected coverage at the levels, with shape (j, l)."""
        return Cells.of(self.weights).covered(self.positions, self.levels)

    @property
    def interval(self) -> np.ndarray:
        """Lower and upper ends of 95 % intervals of the coverage, with shape (2, j, l)."""
        return clopper_pearson(self.coverage, len(self.positions))

    def curve(self, alpha: float = 0.05) -> CoverageCurve:
        """The whole curve, at the edges of at most 60 cells of levels.

        It leaves the null band somewhere if and only if its p-value is at most alpha.

        Args:
            alpha: One minus the coverage of its intervals and of the null band.
        """
        band = rank_curve(self.positions, Cells.of(self.weights), self.null[0], alpha)
        lower, upper = self.intervals(band.ecdf, alpha)
        return CoverageCurve(band.levels, band.ecdf, lower, upper, band.lower, band.upper, alpha)

    @property
    def directions(self) -> tuple[str, ...]:
        """What each curve says of q, in a word, where it says more than noise."""
        words = []
        for area, p in zip(self.area, self.area_pvalue, strict=True):
            word = "conservative" if area > 0 else "overconfident"
            words.append(word if p <= 0.05 else "neither overconfident nor conservative")
        return tuple(words)

    @property
    def labels(self) -> tuple[str, tuple[str, ...]]:
        """What the rows of the table are, and their names."""
        return "coverage of", self.names

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each curve."""
        columns = {
            **{f"at {100 * a:g} %": c for a, c in zip(self.levels, self.coverage.T, strict=True)},
            "area": self.area,
            "p area": self.area_pvalue,
            "p-value": self.pvalue,
            "adjusted": self.adjusted,
        }
        return [{k: float(v[j]) for k, v in columns.items()} for j in range(len(self.names))]

    def _telling(self, j: int) -> tuple[int, bool]:
        """The level that is quoted of a curve, and whether it shows what its area says.

        It is 90 % if it can be, or else the one that departs most in that direction.
        """
        usual = int(np.abs(self.levels - 0.9).argmin())
        beyond = (self.coverage[j] - self.levels) * np.sign(self.area[j])
        level = usual if beyond[usual] > 0 else int(beyond.argmax())
        telling = bool(self.area_pvalue[j] <= 0.05 and beyond[level] > 0)
        return (level, True) if telling else (usual, False)

    @property
    def sentence(self) -> str:
        """One sentence to quote, on the curve with the smallest p-value."""
        j = int(np.lexsort((-np.abs(self.area), self.adjusted))[0])
        level, telling = self._telling(j)
        where = "" if len(self.names) == 1 else f" of {self.names[j]}"
        held = (
            f"its {100 * self.levels[level]:.4g} % {self.held}{where} hold the truth in "
            f"{100 * self.coverage[j, level]:.3g} % of cases"
        )
        if self.adjusted[j] > 0.05:
            return f"No departure from the right coverage beyond noise: {held}."
        if telling:
            return f"q is {self.directions[j]}: {held}."
        return f"The coverage of q is off, at some levels too high and at others too low: {held}."


@dataclass(frozen=True, eq=False, repr=False)
class CoverageResult(Covered):
    """What a test of expected coverage found, for j kinds of regions.

    Args:
        statistic: The surprise of the whole curve, see :class:`~assay.uniformity.Tails`, (j,).
        null: Its values for the null copies, with shape (j, H).
        area: The signed area between curve and diagonal, from -1/2 to 1/2, with shape (j,):
            negative where q is overconfident, positive where it is conservative.
        area_null: Its values for the null copies, with shape (j, H).
        positions: How many steps of level lie below that of each truth, with shape (n, j).
        weights: How many ranks make a step, with shape (p,).
        levels: The levels that are reported, with shape (l,).
        names: Names of the j curves.
        regions: The kind of regions.
        hypothesis: What a small p-value speaks against.
        settings: The settings and versions that made it.
    """

    statistic: np.ndarray
    null: np.ndarray
    area: np.ndarray
    area_null: np.ndarray
    positions: np.ndarray
    weights: np.ndarray
    levels: np.ndarray
    names: tuple[str, ...]
    regions: str
    hypothesis: str
    settings: Mapping[str, Any]

    @property
    def held(self) -> str:
        """What holds the truth."""
        return self.regions

    def intervals(self, share: np.ndarray, alpha: float) -> np.ndarray:
        """Clopper and Pearson's intervals (2, ...) of shares (...) of the n pairs."""
        return clopper_pearson(share, len(self.positions), alpha)

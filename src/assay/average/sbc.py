r"""Simulation-based calibration: ranks of the true parameter among draws of q, over all x.

If q is right, the rank of the true parameter in any quantity :math:`f(\theta, x)` among the k
draws of q at the same x is uniform on 0..k. By default the quantities are the parameters;
functions that depend on x as well, such as the log-likelihood, find errors that parameters alone
do not. Passing says little: q = prior passes for every parameter, and errors at one x may cancel
those at another.

The shape of ranks tells the error. :math:`w = \Phi^{-1}((r + 1/2) / (k + 1))` is about the true
parameter in standard deviations of q if q is Gaussian. The bias and the width of q are those for
which normal true parameters, ranked among k draws, have the observed mean and variance of w.

References: Talts et al. 2018, *Validating Bayesian Inference Algorithms with Simulation-Based
Calibration*; Modrák et al. 2023, *Simulation-Based Calibration Checking for Bayesian Computation*;
Säilynoja, Bürkner and Vehtari 2022, *Graphical test for discrete uniformity*.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import ClassVar

import numpy as np
import scipy.optimize
import scipy.special
import scipy.stats

from .._support.inputs import as_null, check_share, full_precision
from .._support.random import Seed, seed_of
from ..data.calibration import Calibration
from ..data.guards import check_calibration
from ..printing import equals, readable, rows_of
from ..results import Result, holm, settings_of, too_few
from .ranks import Quantity, RowStream, check_draws, evaluate, rank
from .uniform import (
    Cells,
    RankCurve,
    RankStatistic,
    UniformRanks,
    bins,
    chi_square,
    compare,
    ks,
    tails,
)

# With a bias beyond this many standard deviations ranks pile up at one end, whatever the width.
LARGEST_BIAS = 1.0
# A grid of true parameters in standard deviations of q, and nodes of a standard normal.
GRID = np.linspace(-12, 12, 1201)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
# Half the step of a numerical derivative.
STEP = 0.01
# Copies of uniform ranks by which the band of a histogram is found.
COPIES = 4999


@full_precision()
def sbc(
    calibration: Calibration,
    quantities: Mapping[str, Quantity] | None = None,
    null: int | UniformRanks | None = None,
    seed: Seed = 0,
) -> "SBCResult":
    """Tests whether q is calibrated, one quantity at a time.

    Args:
        calibration: Pairs with k draws of q at each x, independent of each other.
        quantities: Names, and functions of matching rows theta (b, m) and x (b, ...) with values
            (b,), or their :class:`~assay.average.ranks.Values`; every parameter by
            default.
        null: The number of null copies; 999 by default, or as many as adjusting for all
            quantities asks for.
        seed: An int or a generator; it breaks ties and makes the null.

    Returns:
        Ranks, three tests of their uniformity, and what their shape says.

    Example:
        >>> theta, noise, *z = torch.randn(11, 500, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> narrow = Calibration(theta, x, x[:, None] / 2 + 0.4 * torch.stack(z, 1))
        >>> result = sbc(narrow)
        >>> float(result.pvalue[0]) <= 0.05
        True
        >>> result.directions[0].split(":")[0]
        'overconfident'
    """
    check_calibration(calibration)
    seed = seed_of(seed)
    values = evaluate(calibration, quantities)
    ranks, k = rank(calibration, values, seed), check_draws(calibration).shape[1]
    null = as_null(null, UniformRanks.enough(len(values)), UniformRanks, hint="UniformRanks(999)")
    cells = Cells.of(np.ones(k + 1, int))
    data = cells.below(ranks)
    copies = null.below(len(ranks), cells, RowStream.of(calibration, seed).seed)
    distance = compare(data, copies, partial(ks, cells=cells))
    return SBCResult(
        statistic=distance.statistic,
        null=distance.null,
        chi_square=compare(data, copies, partial(chi_square, cells=cells)),
        envelope=compare(data, copies, tails(len(ranks), cells.sizes)),
        ranks=ranks,
        k=k,
        names=tuple(values),
        hypothesis=null.hypothesis,
        settings=settings_of("SBC", calibration, null=null, seed=seed),
    )


@dataclass(frozen=True, eq=False)
class RankHistogram:
    """Counts of ranks in bins, with a null band that holds all bars of a quantity at once."""

    edges: np.ndarray  # the ranks at which bins begin, and k + 1 at last, (b + 1,)
    counts: np.ndarray  # counts of j quantities, (j, b)
    expected: np.ndarray  # what they are on average if q is right, (b,)
    lower: np.ndarray  # lower end of the band, (b,)
    upper: np.ndarray  # its upper end, (b,)
    alpha: float  # one minus the joint coverage of the band


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class SBCResult(Result):
    r"""What simulation-based calibration found for j quantities.

    The statistics are Kolmogorov-Smirnov distances of ranks from uniform.

    Args:
        chi_square: The chi-square statistic over bins of ranks, with its null.
        envelope: The surprise of the whole distribution function, with its null: it is beyond
            the band of :meth:`ecdf` if and only if its p-value is at most alpha.
        ranks: The ranks of the true parameters, from 0 to k, with shape (n, j).
        k: The number of draws of q at each x.
        names: Names of the quantities.
    """

    chi_square: RankStatistic
    envelope: RankStatistic
    ranks: np.ndarray
    k: int
    names: tuple[str, ...]
    heading: ClassVar[str] = "quantity"
    shared: ClassVar[tuple[str, ...]] = ("ranks",)

    @property
    def adjusted(self) -> np.ndarray:
        """P-values adjusted for the number of quantities, by Holm, with shape (j,)."""
        return holm(self.pvalue)

    @property
    def bias(self) -> np.ndarray:
        """How much too high q is, about, in standard deviations of q, with shape (j,)."""
        return self._errors[:, 0]

    @property
    def bias_null(self) -> float:
        """The standard deviation of the bias if q is right."""
        return self._null_deviations[0]

    @property
    def dispersion(self) -> np.ndarray:
        """Width of q over the true one, about, with shape (j,): above one, q is too wide."""
        return np.exp(self._errors[:, 1])

    @property
    def dispersion_null(self) -> float:
        """The standard deviation of the dispersion, around one, if q is right."""
        return self._null_deviations[1]

    @property
    def directions(self) -> tuple[str, ...]:
        """What the ranks of each quantity say of q, in words.

        Only what lies beyond a band that holds both numbers of all quantities at once in 95 % of
        cases if q is right.
        """
        limit = scipy.special.ndtri(1 - 0.05 / (4 * len(self.names)))
        pairs = zip(self.bias, self.dispersion, strict=True)
        return tuple(self._direction(bias, width, limit) for bias, width in pairs)

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the quantities."""
        return self.names

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each quantity."""
        columns = {
            "KS": self.statistic,
            "p-value": self.pvalue,
            "adjusted": self.adjusted,
            "p chi-sq.": self.chi_square.pvalue,
            "p ECDF": self.envelope.pvalue,
            "bias / sd": self.bias,
            "width": self.dispersion,
        }
        return rows_of(columns)

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        low = np.flatnonzero(self.adjusted <= 0.05)
        smallest = f"p {equals(float(self.adjusted.min()))}"
        if len(self.names) > 1:
            smallest = f"smallest {smallest}, corrected for {len(self.names)} quantities"
        if not len(low):
            return (
                f"The ranks of no quantity depart from uniform beyond noise ({smallest}); "
                f"errors that ranks do not show remain possible.{too_few(*self.null.shape)}"
            )
        words = "; ".join(f"{readable(self.names[j])}: q is {self.directions[j]}" for j in low[:6])
        more = "; ..." if len(low) > 6 else ""
        return (
            f"The ranks of {len(low)} of {len(self.names)} quantities depart from uniform "
            f"({smallest}): {words}{more}."
        )

    def ecdf(self, alpha: float = 0.05) -> RankCurve:
        """The distribution functions of ranks, with a band of joint coverage 1 - alpha."""
        return RankCurve.of(self.ranks, self._cells, self.envelope.null[0], alpha)

    def histogram(self, alpha: float = 0.05) -> RankHistogram:
        """Counts of ranks in the bins of the chi-square statistic.

        The band is binomial in each bin, at the level, the same for all, with which it holds all
        counts of a share 1 - alpha of copies of uniform ranks.
        """
        check_share("alpha", alpha)
        n, cells = len(self.ranks), self._cells
        starts = bins(n, cells)
        counts = np.diff(cells.below(self.ranks)[starts[1:] - 1], axis=0, prepend=0)
        shares = np.diff(cells.levels[starts])
        law = scipy.stats.binom(n, shares)
        copies = np.random.default_rng(0).multinomial(n, shares, COPIES)
        smaller = np.minimum(law.cdf(copies), law.sf(copies - 1)).min(1)
        # The largest tail below which so few copies lie; a count that has it is inside.
        level = 2 * np.sort(smaller)[max(0, int(alpha * (1 + COPIES)) - 1)] * (1 - 1e-9)
        lower, upper = law.interval(1 - level)
        return RankHistogram(cells.edges[starts], counts.T, law.mean(), lower, upper, alpha)

    def _row(self, i: int) -> "SBCResult":
        own = slice(i, i + 1)
        return replace(self._take(own), ranks=self.ranks[:, own], names=self.names[own])

    @property
    def _cells(self) -> Cells:
        return Cells.of(np.ones(self.k + 1, int))

    @cached_property
    def _errors(self) -> np.ndarray:
        """Bias and logarithm of the width of q, (j, 2)."""
        law = _ScoreMoments.of(self.k)
        scores = law.scores[self.ranks]
        moments = zip(scores.mean(0), scores.var(0), strict=True)
        return np.array([law.solve(*pair) for pair in moments])

    @cached_property
    def _null_deviations(self) -> tuple[float, float]:
        """Standard deviations of bias and width if q is right, by the delta method."""
        law = _ScoreMoments.of(self.k)
        steps = STEP * np.eye(2)
        slopes = [(law(*step) - law(*-step))[i] / (2 * STEP) for i, step in enumerate(steps)]
        square = law.scores**2
        variances = square.mean(), (square**2).mean() - square.mean() ** 2
        bias, width = np.sqrt(np.array(variances) / len(self.ranks)) / np.abs(slopes)
        return float(bias), float(width)

    def _direction(self, bias: float, width: float, limit: float) -> str:
        words = []
        # If true parameters scatter more than q says, its bias is less certain.
        if abs(bias) > limit * self.bias_null * max(1, 1 / width):
            words.append(f"too {'high' if bias > 0 else 'low'} by {abs(bias):.2f} sd")
        if abs(width - 1) > limit * self.dispersion_null and abs(bias) < LARGEST_BIAS:
            word = "conservative" if width > 1 else "overconfident"
            words.append(f"{word}: ranks as if it were {width:.2f} times as wide as the truth")
        return ", ".join(words) or "off in neither location nor width beyond noise"


@dataclass(frozen=True, eq=False)
class _ScoreMoments:
    """Mean and variance of the normal scores of ranks among k draws, for a normal q.

    Ranks among few draws cannot lie far out, however far out the true parameter lies. Scores of a
    true parameter at each point of a grid, in standard deviations of q, have these moments.
    """

    scores: np.ndarray  # of the ranks 0..k, (k + 1,)
    first: np.ndarray  # moments of order one and two at the points of the grid
    second: np.ndarray

    @classmethod
    def of(cls, k: int) -> "_ScoreMoments":
        scores = scipy.special.ndtri((np.arange(k + 1) + 0.5) / (k + 1))
        shares = scipy.special.ndtr(GRID)[:, None]
        weights = scipy.stats.binom.pmf(np.arange(k + 1), k, shares)
        return cls(scores, weights @ scores, weights @ scores**2)

    def __call__(self, bias: float, log_width: float) -> np.ndarray:
        """Mean and variance (2,) for a bias and the logarithm of a width of q."""
        z = NODES * np.exp(-log_width) - bias
        mean = WEIGHTS @ np.interp(z, GRID, self.first)
        return np.array([mean, WEIGHTS @ np.interp(z, GRID, self.second) - mean**2])

    def solve(self, mean: float, variance: float) -> np.ndarray:
        """The bias and the logarithm of the width (2,) that come nearest to both."""
        fit = scipy.optimize.least_squares(
            lambda error: self(*error) - (mean, variance), np.zeros(2), bounds=(-5, 5)
        )
        return fit.x

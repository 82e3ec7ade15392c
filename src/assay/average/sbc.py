r"""Simulation-based calibration: is the true parameter ranked evenly among draws of q?

Passing says little: q = prior passes for every parameter, and errors at one x may cancel others.
If q is Gaussian, :math:`\Phi^{-1}((r + 1/2) / (k + 1))` is about the true parameter in standard
deviations of q. The bias and the width of q are those for which normal true parameters, ranked
among k draws, have such scores with the observed mean and variance.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import numpy as np
import scipy.special
import scipy.stats
from scipy.optimize import least_squares

from .._support.inputs import check_names, check_share, full_precision
from .._support.random import Seed, seed_of
from ..data.calibration import Calibration
from ..printing import equals, readable, rows_of
from ..results import settings_of, too_few
from .ranks import Cells, Quantity, RankCurve, RankResult, RankStatistic, Sets, UniformRanks

# With a bias beyond this many standard deviations ranks pile up at one end, whatever the width.
LARGEST_BIAS = 1.0
# A grid of true parameters in standard deviations of q, and nodes of a standard normal.
GRID = np.linspace(-12, 12, 1201)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
WEIGHTS = WEIGHTS / WEIGHTS.sum()
# Half the step of a numerical derivative, and copies by which the band of a histogram is found.
STEP, COPIES = 0.01, 4999


@full_precision()
def sbc(
    calibration: Calibration,
    quantities: Mapping[str, Quantity] | None = None,
    null: int | UniformRanks | None = None,
    seed: Seed = 0,
) -> "SBCResult":
    """Tests whether ranks of each quantity are uniform, and says what their shape means for q.

    Args:
        calibration: Pairs with k draws of q at each x, independent of each other.
        quantities: Names, and functions of matching rows theta (b, m) and x (b, ...) with values
            (b,), or their :class:`~assay.average.ranks.Values`; every parameter by default.
        null: The number of null copies; 999 by default, or more for many quantities.
        seed: An int or a generator; it breaks ties and makes the null.

    Example:
        >>> theta, noise, *z = torch.randn(11, 500, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> narrow = Calibration(theta, x, x[:, None] / 2 + 0.4 * torch.stack(z, 1))
        >>> sbc(narrow).directions[0].split(":")[0]
        'overconfident'
    """
    seed = seed_of(seed)
    sets = Sets.of(calibration, seed)
    if quantities is None:
        values = sets.parameters()
    elif not isinstance(quantities, Mapping) or not quantities:
        raise TypeError(
            "quantities: expected a mapping from names to functions of theta and x, or to Values; "
            f"got {quantities!r}."
        )
    else:
        names = check_names("quantities", list(quantities), len(quantities))
        pairs = zip(names, quantities.values(), strict=True)
        values = {name: sets.evaluate(name, quantity) for name, quantity in pairs}
    ranks, null = sets.rank(values), UniformRanks.of(null, len(values))
    cells = Cells.of(np.ones(sets.members.shape[1], int))
    tests = cells.ks, cells.chi_square, cells.surprise
    distance, bins, curve = cells.compare(ranks, null, sets.seed, *tests)
    return SBCResult(
        statistic=distance.statistic,
        null=distance.null,
        chi_square=bins,
        envelope=curve,
        ranks=ranks,
        k=sets.members.shape[1] - 1,
        names=tuple(values),
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
class SBCResult(RankResult):
    """What SBC found; statistics are Kolmogorov-Smirnov distances of ranks from uniform."""

    chi_square: RankStatistic  # over bins of ranks
    envelope: RankStatistic  # the surprise of whole curves, whose band :meth:`ecdf` has
    k: int  # the number of draws of q at each x
    heading: ClassVar[str] = "quantity"

    @cached_property
    def _errors(self) -> np.ndarray:
        """Bias and logarithm of the width of q, (2, j)."""
        scores = _normal_scores(self.k)[0][self.ranks]
        moments = np.stack([scores.mean(0), scores.var(0)], 1)
        fits = [
            least_squares(_moments, np.zeros(2), bounds=(-5, 5), args=(self.k, observed))
            for observed in moments
        ]
        return np.stack([fit.x for fit in fits], 1)

    @property
    def bias(self) -> np.ndarray:
        """How much too high q is, about, in standard deviations of q, with shape (j,)."""
        return self._errors[0]

    @property
    def dispersion(self) -> np.ndarray:
        """Width of q over the true one, about, with shape (j,): above one, q is too wide."""
        return np.exp(self._errors[1])

    @property
    def null_deviations(self) -> np.ndarray:
        """Standard deviations (2,) of bias and dispersion if q is right, by the delta method."""
        slopes = [_moments(e, self.k) - _moments(-e, self.k) for e in STEP * np.eye(2)]
        square = _normal_scores(self.k)[0] ** 2
        variances = np.array([square.mean(), (square**2).mean() - square.mean() ** 2])
        return np.sqrt(variances / len(self.ranks)) / np.abs(np.diagonal(slopes) / (2 * STEP))

    @property
    def directions(self) -> tuple[str, ...]:
        """What the ranks of each quantity say of q beyond a 95 % band for all, in words."""
        factor, found = scipy.special.ndtri(1 - 0.05 / (4 * len(self.names))), []
        bias_limit, width_limit = factor * self.null_deviations
        for bias, width in zip(self.bias, self.dispersion, strict=True):
            words = []
            # If true parameters scatter more than q says, its bias is less certain.
            if abs(bias) > bias_limit * max(1, 1 / width):
                words.append(f"too {'high' if bias > 0 else 'low'} by {abs(bias):.2f} sd")
            if abs(width - 1) > width_limit and abs(bias) < LARGEST_BIAS:
                word = "conservative" if width > 1 else "overconfident"
                words.append(f"{word}: ranks as if it were {width:.2f} times as wide as the truth")
            found.append(", ".join(words) or "off in neither location nor width beyond noise")
        return tuple(found)

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each quantity."""
        tests = {"KS": self.statistic, "p-value": self.pvalue, "adjusted": self.adjusted}
        tests |= {"p chi-sq.": self.chi_square.pvalue, "p ECDF": self.envelope.pvalue}
        return rows_of(tests | {"bias / sd": self.bias, "width": self.dispersion})

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        low, count = np.flatnonzero(self.adjusted <= 0.05), len(self.names)
        smallest = f"p {equals(float(self.adjusted.min()))}"
        if count > 1:
            smallest = f"smallest {smallest}, corrected for {count} quantities"
        if not len(low):
            return (
                f"The ranks of no quantity depart from uniform beyond noise ({smallest}); "
                f"errors that ranks do not show remain possible.{too_few(*self.null.shape)}"
            )
        directions = self.directions
        words = [f"{readable(self.names[j])}: q is {directions[j]}" for j in low[:6]]
        more = ["..."] if len(low) > 6 else []
        return (
            f"The ranks of {len(low)} of {count} quantities depart from uniform ({smallest}): "
            f"{'; '.join(words + more)}."
        )

    def ecdf(self, alpha: float = 0.05) -> RankCurve:
        """The distribution functions of ranks, with a band of joint coverage 1 - alpha."""
        cells = Cells.of(np.ones(self.k + 1, int))
        return cells.curve(self.ranks, self.envelope.null[0], alpha)

    def histogram(self, alpha: float = 0.05) -> RankHistogram:
        """Counts of ranks in the bins of the chi-square statistic.

        The band is binomial in each bin, at one level for all, and holds whole histograms.
        """
        check_share("alpha", alpha)
        n, cells = len(self.ranks), Cells.of(np.ones(self.k + 1, int))
        starts = cells.bins(n)
        counts = np.diff(cells.below(self.ranks)[starts[1:] - 1], axis=0, prepend=0)
        shares = np.diff(cells.levels[starts])
        law = scipy.stats.binom(n, shares)
        copies = np.random.default_rng(0).multinomial(n, shares, COPIES)
        smaller = np.minimum(law.cdf(copies), law.sf(copies - 1)).min(1)
        # The largest tail below which so few copies lie; a count that has it is inside.
        level = 2 * np.sort(smaller)[max(0, int(alpha * (1 + COPIES)) - 1)] * (1 - 1e-9)
        lower, upper = law.interval(1 - level)
        return RankHistogram(cells.edges[starts], counts.T, law.mean(), lower, upper, alpha)


@lru_cache(maxsize=8)
def _normal_scores(k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Normal scores of ranks 0..k; their mean and mean square for true parameters on the grid."""
    scores = scipy.special.ndtri((np.arange(k + 1) + 0.5) / (k + 1))
    weights = scipy.stats.binom.pmf(np.arange(k + 1), k, scipy.special.ndtr(GRID)[:, None])
    return scores, weights @ scores, weights @ scores**2


def _moments(error: np.ndarray, k: int, less: np.ndarray | float = 0.0) -> np.ndarray:
    """Mean and variance (2,) of scores for a bias and the logarithm of a width of q, (2,)."""
    bias, log_width = error
    _, first, second = _normal_scores(k)
    z = NODES * np.exp(-log_width) - bias
    mean = WEIGHTS @ np.interp(z, GRID, first)
    return np.array([mean, WEIGHTS @ np.interp(z, GRID, second) - mean**2]) - less

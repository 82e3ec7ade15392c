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
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import (
    as_null,
    as_tensors,
    check_finite,
    check_function,
    check_numbers,
    full_precision,
)
from .._support.random import Seed, call_user_code, seed_of
from .._support.regression import standard_deviation
from ..data.calibration import Calibration, check_calibration
from ..names import readable
from ..printing import rows_of
from ..results import LEVELS, Result, clopper_pearson, holm, settings_of, too_few
from ..results import pvalue as exact_pvalue
from .ranks import (
    Quantity,
    RowStream,
    check_draws,
    count_below,
    log_densities,
    pieces,
    ranked,
    ranks_of,
)
from .uniform import Cells, UniformRanks, rank_curve, surprised


@full_precision()
def coverage(
    calibration: Calibration,
    log_q: Quantity | None = None,
    levels: Sequence[float] = LEVELS,
    null: int | UniformRanks | None = None,
    seed: Seed = 0,
) -> "CoverageResult":
    """Tests whether regions of q hold as many truths as they should.

    Args:
        calibration: Pairs with k draws of q at each x, independent of each other.
        log_q: The log-density of q, as a function of matching rows theta (b, m) and x (b, ...)
            with values (b,), or its :class:`~assay.average.ranks.Values`; it may lack
            a constant for each x. With it, the regions are those of highest density; without it,
            central intervals of every parameter.
        levels: Levels between 0 and 1 that are reported by name. Between the steps that k draws
            tell apart the curve is interpolated: a level of 0.95 asks for 19 draws or more, of
            central intervals for 39.
        null: The number of null copies; 999 by default, or as many as adjusting for all
            curves asks for.
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
    check_calibration(calibration)
    named, seed = checked_levels(levels), seed_of(seed)
    if log_q is None:
        ranks = ranked(calibration, None, seed)
        regions, names = "central intervals", ranks.names
        positions, weights = _central(ranks.ranks, ranks.k)
    else:
        values = log_densities(calibration, log_q)
        ranks = ranked(calibration, {"log_q": values}, seed)
        regions, names = "highest-density regions", ("highest density",)
        positions, weights = ranks.k - ranks.ranks, np.ones(ranks.k + 1, int)
    usual, chance = UniformRanks.enough(len(names)), RowStream.of(calibration, seed)
    null = as_null(null, usual, UniformRanks, hint="UniformRanks(999)")
    return CoverageResult(
        **compared_curves(positions, weights, null, lambda u: 0.5 - u, chance.seed),
        levels=named,
        names=names,
        regions=regions,
        settings=settings_of(f"expected coverage of {regions}", calibration, null=null, seed=seed),
    )


def compared_curves(
    positions: np.ndarray,
    weights: np.ndarray,
    null: UniformRanks,
    area: Callable[[np.ndarray], np.ndarray],
    seed: int,
) -> dict[str, Any]:
    """The surprise and the signed area of curves with their nulls, as fields of a result.

    Positions (n, j) are those of truths, weights (p,) say how many ranks stand at each position,
    and area tells what a truth at a level adds to the area.
    """
    n, cells = len(positions), Cells.of(weights)
    data, copies = cells.below(positions), null.below(n, cells, seed)
    # Summed by parts: what a truth adds in its cell is what it adds in the last, and the steps
    # of all cells from its own on.
    each = area((cells.levels[1:] + cells.levels[:-1]) / 2)
    steps = -np.diff(each, append=0.0)
    areas, null_areas = steps @ data / n, steps @ copies / n
    shared = np.broadcast_to(null_areas, (len(areas), null.n))
    curve = surprised(data, cells, null, seed)
    return {
        **{"statistic": curve.statistic, "null": curve.null, "hypothesis": null.hypothesis},
        **{"area": areas, "area_null": shared, "positions": positions, "weights": weights},
    }


def checked_levels(levels: Sequence[float]) -> np.ndarray:
    """Levels between 0 and 1, in ascending order, or refuses."""
    numbers = check_numbers("levels", levels)
    if not numbers or max(numbers) >= 1:
        raise ValueError(f"levels: expected numbers between 0 and 1, such as 0.9; got {levels}.")
    return np.array(sorted(numbers))


def _central(ranks: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """How far ranks (n, j) are from the middle, and how many ranks are as far.

    Two ranks are, except the one in the middle where k is even.
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
        lower, upper: Ends of its pointwise confidence interval, with shape (j, g).
        null_lower, null_upper: Ends of the simultaneous null band, with shape (g,).
        alpha: One minus the coverage of interval and band.
    """

    levels: np.ndarray
    coverage: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    null_lower: np.ndarray
    null_upper: np.ndarray
    alpha: float


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Covered(Result):
    """What tests of coverage have in common, for j curves.

    The statistics are the surprises of whole curves, see :class:`~assay.average.uniform.Tails`.

    Args:
        area: The signed area between curve and diagonal, with shape (j,): negative where q is
            overconfident, positive where it is conservative.
        area_null: Its values for the null copies, with shape (j, H).
        positions: How many steps of level lie below that of each truth, with shape (n, j).
        weights: How many ranks make a step, with shape (p,).
        levels: The levels that are reported, with shape (l,).
        names: Names of the j curves.
    """

    area: np.ndarray
    area_null: np.ndarray
    positions: np.ndarray
    weights: np.ndarray
    levels: np.ndarray
    names: tuple[str, ...]
    heading: ClassVar[str] = "coverage of"
    # What a negative area says of q, and what a positive one does.
    _signs: ClassVar[tuple[str, str]] = ("overconfident", "conservative")

    @property
    @abstractmethod
    def held(self) -> str:
        """What holds the truth, e.g. 'highest-density regions'."""

    def intervals(self, share: np.ndarray, alpha: float) -> np.ndarray:
        """Clopper and Pearson's intervals (2, ...) of shares (...) of the n pairs."""
        return clopper_pearson(share, len(self.positions), alpha)

    @property
    def adjusted(self) -> np.ndarray:
        """P-values adjusted for the number of curves, by Holm, with shape (j,)."""
        return holm(self.pvalue)

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
        return self.intervals(self.coverage, 0.05)

    def curve(self, alpha: float = 0.05) -> CoverageCurve:
        """The whole curve, at the edges of at most 60 cells of levels.

        It leaves the null band somewhere if and only if its p-value is at most alpha.
        """
        band = rank_curve(self.positions, Cells.of(self.weights), self.null[0], alpha)
        lower, upper = self.intervals(band.ecdf, alpha)
        return CoverageCurve(band.levels, band.ecdf, lower, upper, band.lower, band.upper, alpha)

    @property
    def directions(self) -> tuple[str, ...]:
        """What each curve says of q, in a word, where it says more than noise."""
        low, high = self._signs
        words = np.where(self.area > 0, high, low)
        neither = "neither overconfident nor conservative"
        return tuple(np.where(self.area_pvalue <= 0.05, words, neither).tolist())

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the curves."""
        return self.names

    def _row(self, i: int) -> Self:
        own, columns = slice(i, i + 1), ("statistic", "null", "area", "area_null", "names")
        parts: dict[str, Any] = {name: getattr(self, name)[own] for name in columns}
        made: Self = replace(self, positions=self.positions[:, own], **parts)
        return made

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each curve."""
        pairs = zip(self.levels, self.coverage.T, strict=True)
        covered = {f"at {100 * level:g} %": share for level, share in pairs}
        area = {"area": self.area, "p area": self.area_pvalue}
        return rows_of(covered | area | {"p-value": self.pvalue, "adjusted": self.adjusted})

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
        where = "" if len(self.names) == 1 else f" of {readable(self.names[j])}"
        held = (
            f"its {100 * self.levels[level]:.4g} % {self.held}{where} hold the truth in "
            f"{100 * self.coverage[j, level]:.3g} % of cases"
        )
        if self.adjusted[j] > 0.05:
            few = too_few(*self.null.shape)
            return f"No departure from the right coverage beyond noise: {held}.{few}"
        if telling:
            return f"q is {self.directions[j]}: {held}."
        return f"The coverage of q is wrong at some levels, and {held}."


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CoverageResult(Covered):
    """What a test of expected coverage found, for j curves of one kind of regions."""

    regions: str

    @property
    def held(self) -> str:
        """What holds the truth."""
        return self.regions


# Members of the sets, truths and draws alike, from which box and scales are taken.
MEMBERS = 2**11


@dataclass(frozen=True)
class UniformBox:
    """References that are uniform in the box of truths and draws together, whatever x.

    Box and scales are taken from two thousand members or more of all sets, chosen without regard
    to which of them is the truth, so that neither depends on it.
    """


@dataclass(frozen=True)
class ScaledEuclidean:
    """Euclidean distances in scales, by default the deviations of truths and draws together."""

    scales: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.scales is not None:
            object.__setattr__(self, "scales", tuple(check_numbers("scales", self.scales)))


# References (n, m), a function of x (n, ...) that gives them, or a uniform box.
References = UniformBox | Callable[[Tensor], Any] | Any
# Distances (b, r) of parameters (b, r, m) to references (b, 1, m).
Metric = ScaledEuclidean | Callable[[Tensor, Tensor], Any]


@full_precision()
def tarp(
    calibration: Calibration,
    references: References = UniformBox(),  # noqa: B008
    metric: Metric = ScaledEuclidean(),  # noqa: B008
    levels: Sequence[float] = LEVELS,
    null: int | UniformRanks | None = None,
    seed: Seed = 0,
) -> "TARPResult":
    """Tests q by the distances of truth and draws to reference points.

    Args:
        calibration: Pairs with k draws of q at each x, independent of each other.
        references: :class:`UniformBox` by default; or an array (n, m) in units of theta that was
            made without regard to the truths; or a function of the observations (n, ...) with
            values (n, m).
        metric: :class:`ScaledEuclidean` by default, or a function of parameters (b, r, m) and
            references (b, 1, m) with distances (b, r).
        levels: Levels between 0 and 1 that are reported by name.
        null: The number of null copies, 999 by default.
        seed: An int or a generator; it draws references, breaks ties and draws the null.

    Returns:
        The curve of expected coverage, its test, and the coverage at the levels.

    Example:
        >>> theta, noise, *z = torch.randn(22, 500, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> narrow = Calibration(theta, x, x[:, None] / 2 + 0.4 * torch.stack(z, 1))
        >>> result = tarp(narrow, references=lambda x: x / 2)
        >>> result.directions
        ('overconfident or biased',)
    """
    check_calibration(calibration)
    check_draws(calibration)
    named, seed = checked_levels(levels), seed_of(seed)
    null = as_null(null, UniformRanks(), UniformRanks, hint="UniformRanks(999)")
    chance = RowStream.of(calibration, seed)
    members, share = _some_members(calibration, chance)
    points = _references(calibration, references, members, share)
    counts = _counted_nearer(calibration, points, _measure(metric, members))
    ranks = ranks_of(calibration, "distance", counts, seed)
    weights, area = np.ones(ranks.k + 1, int), lambda u: np.minimum(0.5, 1 - u) - 0.375
    own = {"references": _named(references), "metric": _named(metric), "null": null, "seed": seed}
    return TARPResult(
        **compared_curves(ranks.ranks, weights, null, area, chance.seed),
        levels=named,
        names=("distance",),
        references=points.cpu().numpy(),
        settings=settings_of("TARP", calibration, **own),
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TARPResult(Covered):
    """What TARP found.

    The area is that above 1/2: negative where q is overconfident or biased, positive where it is
    conservative or biased away from the references (n, m). Positions are the numbers of draws that
    are nearer to the reference than the truth.
    """

    references: np.ndarray
    held = "balls around references"
    _signs = "overconfident or biased", "conservative or biased away from the references"


def _some_members(calibration: Calibration, chance: RowStream) -> tuple[Tensor, Tensor]:
    """Some members of every set, truth or draw alike, (r, m), and uniform numbers (n, m)."""
    theta, theta_q = calibration.theta, calibration.theta_q
    assert theta_q is not None
    k = theta_q.shape[1]
    size = min(k + 1, -(-MEMBERS // len(theta)))
    # A member at random may be the truth as likely as any draw; none is preferred.
    uniform = chance.uniform("references", width=(size + theta.shape[1],)).to(theta.device)
    index = (uniform[:, :size] * (k + 1)).long()
    rows = torch.arange(len(theta), device=theta.device)[:, None]
    draws = theta_q[rows, (index - 1).clamp_min(0)]
    members = torch.where((index == 0)[..., None], theta[:, None], draws).flatten(0, 1)
    return members, uniform[:, size:].to(theta.dtype)


def _references(
    calibration: Calibration, references: References, members: Tensor, share: Tensor
) -> Tensor:
    """References (n, m) on the device and in the precision of the parameters."""
    theta = calibration.theta
    if isinstance(references, UniformBox):
        low, high = members.amin(0), members.amax(0)
        return low + share * (high - low)
    if references is None or isinstance(references, type | str):
        raise TypeError(
            "references: expected UniformBox(), an array (n, m) or a function of x; got "
            f"{references!r}."
        )
    if callable(references):
        references = call_user_code("references", references, calibration.x)
    points = as_tensors({"references": references})["references"].to(theta)
    if points.shape != theta.shape:
        raise ValueError(
            f"references: expected shape {tuple(theta.shape)}, one point in units of theta for "
            f"each x; got {tuple(points.shape)}."
        )
    check_finite("references", points)
    return points


def _measure(metric: Metric, members: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of parameters (b, r, m) and references (b, 1, m) with distances (b, r)."""
    if not isinstance(metric, ScaledEuclidean):
        check_function(
            "metric", metric, "ScaledEuclidean() or a function of parameters and references"
        )
        return _checked_metric(metric)
    scales = (
        standard_deviation(members) if metric.scales is None else members.new_tensor(metric.scales)
    )
    if scales.shape != members[0].shape:
        raise ValueError(
            f"metric: expected a scale for each of {len(members[0])} parameters; got "
            f"{len(scales)}."
        )
    units = scales.tolist()

    def squared(theta: Tensor, references: Tensor) -> Tensor:
        # Number by number: products of matrices may round equal points differently.
        total, one = (torch.empty_like(theta[..., 0]) for _ in range(2))
        total.zero_()
        for j, scale in enumerate(units):
            torch.sub(theta[..., j], references[..., j], out=one)
            total.add_(one.div_(scale).square_())
        return total

    return squared


def _checked_metric(metric: Callable[[Tensor, Tensor], Any]) -> Callable[[Tensor, Tensor], Tensor]:
    """A metric of any kind, which must give numbers of the right shape."""

    def measure(theta: Tensor, references: Tensor) -> Tensor:
        distances = call_user_code("metric", metric, theta, references).to(theta.device)
        if distances.shape != theta.shape[:2]:
            raise ValueError(
                "metric: expected a function that maps parameters (b, r, m) and references "
                f"(b, 1, m) to distances (b, r); got {tuple(distances.shape)} from "
                f"{tuple(theta.shape)}."
            )
        check_finite("metric", distances)
        return distances

    return measure


def _counted_nearer(
    calibration: Calibration, references: Tensor, measure: Callable[[Tensor, Tensor], Tensor]
) -> list[Tensor]:
    """How many draws are nearer to the references than the truths, piece by piece."""
    theta, theta_q = calibration.theta[:, None], calibration.theta_q
    assert theta_q is not None
    counts = []
    for rows in pieces(calibration):
        points = references[rows, None]
        truth, draws = measure(theta[rows], points)[:, 0], measure(theta_q[rows], points)
        counts.append(count_below(truth, draws))
    return counts


def _named(value: Any) -> str:
    if isinstance(value, UniformBox | ScaledEuclidean):
        return repr(value)
    return getattr(value, "__name__", type(value).__name__)

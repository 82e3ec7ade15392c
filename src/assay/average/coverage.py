r"""Expected coverage: how often regions of q hold the true parameter.

The level of a true parameter is the mass of q in the smallest region that holds it: the share of
draws of q with a higher density for highest-density regions (Hermans et al. 2022), with a rank
nearer to the middle for central intervals, nearer to a reference point for TARP (Lemos et al.
2023). Then

.. math:: C(\alpha) = P(\text{level} \le \alpha)

is the coverage of regions of mass :math:`\alpha`, over pairs of the joint; it is :math:`\alpha` if
q is right. Below the diagonal q is overconfident, above it conservative. Among k draws the level
is one of k + 1 equally likely steps (pairs of steps for central intervals), each spread evenly
over its width: so the curve has mean :math:`\alpha` exactly, even for k = 9. Like all averages
over x, coverage is necessary, not sufficient: q = prior has it.

References: Hermans et al. 2022, *A Trust Crisis In Simulation-Based Inference? Your Posterior
Approximations Can Be Unfaithful*; Lemos et al. 2023, *Sampling-Based Accuracy Testing of Posterior
Estimators for General Inference*.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
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
from ..data.calibration import Calibration
from ..data.guards import check_calibration
from ..neighbourhood import standard_deviation
from ..printing import readable, rows_of
from ..results import LEVELS, Result, clopper_pearson, holm, settings_of, too_few
from ..results import pvalue as exact_pvalue
from .ranks import Quantity, RowStream, check_draws, evaluate, log_densities, pieces, rank
from .uniform import Cells, RankCurve, UniformRanks, compare, tails


@full_precision()
def coverage(
    calibration: Calibration,
    log_q: Quantity | None = None,
    levels: Sequence[float] = LEVELS,
    null: int | UniformRanks | None = None,
    seed: Seed = 0,
) -> "CoverageResult":
    """Tests whether regions of q hold as many true parameters as they should.

    Args:
        calibration: Pairs with k draws of q at each x, independent of each other.
        log_q: The log-density of q, as a function of matching rows theta (b, m) and x (b, ...)
            with values (b,), or its :class:`~assay.average.ranks.Values`; it may lack
            a constant for each x. With it, the regions are those of highest density; without it,
            central intervals of every parameter.
        levels: Levels between 0 and 1 that are reported by name. Between the steps that k draws
            distinguish the curve is interpolated: a level of 0.95 asks for 19 draws or more, of
            central intervals for 39.
        null: The number of null copies; 999 by default, or as many as adjusting for all
            curves asks for.
        seed: An int or a generator; it breaks ties and makes the null.

    Returns:
        The curve of expected coverage, its test, and the coverage at the levels.

    Example:
        >>> theta, noise, *z = torch.randn(22, 500, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> narrow = Calibration(theta, x, x[:, None] / 2 + 0.4 * torch.stack(z, 1))
        >>> log_q = lambda theta, x: -((theta - x / 2) ** 2).sum(1) / (2 * 0.4**2)
        >>> print(coverage(narrow, log_q).sentence)
        q is overconfident: its 90 % highest-density regions hold the true parameter in 68 % of
        cases.
    """
    check_calibration(calibration)
    reported, seed = check_levels(levels), seed_of(seed)
    k = check_draws(calibration).shape[1]
    if log_q is None:
        regions, values = "central intervals", evaluate(calibration)
        names, ranks = tuple(values), rank(calibration, values, seed)
        # How far ranks are from the middle. Two ranks are as far, except for an even k in the
        # middle, where there is one.
        positions, weights = k // 2 - np.minimum(ranks, k - ranks), np.full(k // 2 + 1, 2)
        weights[0] -= 1 - k % 2
    else:
        regions, names = "highest-density regions", ("highest density",)
        values = {"log_q": log_densities(calibration, log_q)}
        positions, weights = k - rank(calibration, values, seed), np.ones(k + 1, int)
    null = as_null(null, UniformRanks.enough(len(names)), UniformRanks, hint="UniformRanks(999)")
    return CoverageResult.of(
        positions,
        weights,
        null,
        RowStream.of(calibration, seed).seed,
        levels=reported,
        names=names,
        regions=regions,
        settings=settings_of(f"expected coverage of {regions}", calibration, null=null, seed=seed),
    )


def check_levels(levels: Sequence[float]) -> np.ndarray:
    """Levels between 0 and 1, in ascending order, or refuses."""
    numbers = check_numbers("levels", levels)
    if not numbers or max(numbers) >= 1:
        raise ValueError(f"levels: expected numbers between 0 and 1, such as 0.9; got {levels}.")
    return np.array(sorted(numbers))


@dataclass(frozen=True, eq=False)
class CoverageCurve:
    """A curve of expected coverage with its error, and what it would be if q were right."""

    levels: np.ndarray  # the grid of levels, from 0 to 1, (g,)
    coverage: np.ndarray  # the expected coverage, (j, g)
    lower: np.ndarray  # lower end of its pointwise confidence interval, (j, g)
    upper: np.ndarray  # its upper end, (j, g)
    null_lower: np.ndarray  # lower end of the simultaneous null band, (g,)
    null_upper: np.ndarray  # its upper end, (g,)
    alpha: float  # one minus the coverage of interval and band


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CoverageResult(Result):
    """What a test of expected coverage found, for j curves of one kind of regions.

    The statistics are the surprises of whole curves, see :class:`~assay.average.uniform.Tails`.

    Args:
        area: The signed area between curve and diagonal, with shape (j,): negative where q is
            overconfident, positive where it is conservative.
        area_null: Its values for the null copies, with shape (j, H).
        positions: How many steps of level lie below that of each true parameter, (n, j).
        weights: How many ranks make a step, with shape (p,).
        levels: The levels that are reported, with shape (l,).
        names: Names of the j curves.
        regions: What holds true parameters, such as 'highest-density regions'.
    """

    area: np.ndarray
    area_null: np.ndarray
    positions: np.ndarray
    weights: np.ndarray
    levels: np.ndarray
    names: tuple[str, ...]
    regions: str
    heading: ClassVar[str] = "coverage of"
    shared: ClassVar[tuple[str, ...]] = ("positions", "weights", "levels", "references")
    # What a negative area says of q, and what a positive one does.
    _signs: ClassVar[tuple[str, str]] = ("overconfident", "conservative")

    @classmethod
    def of(
        cls, positions: np.ndarray, weights: np.ndarray, null: UniformRanks, seed: int, **own: Any
    ) -> Self:
        """Compares the positions of true parameters with those of uniform ranks."""
        n, cells = len(positions), Cells.of(weights)
        data, copies = cells.below(positions), null.below(n, cells, seed)
        curve = compare(data, copies, tails(n, cells.sizes))
        # Summed by parts: what a true parameter adds in its cell is what it adds in the last one,
        # and the steps of all cells from its own on.
        each = cls._area_at((cells.levels[1:] + cells.levels[:-1]) / 2)
        area = compare(data, copies, lambda below: -np.diff(each, append=0.0) @ below / n)
        own |= {"positions": positions, "weights": weights, "hypothesis": null.hypothesis}
        own |= {"area": area.statistic, "area_null": area.null}
        return cls(statistic=curve.statistic, null=curve.null, **own)

    @staticmethod
    def _area_at(levels: np.ndarray) -> np.ndarray:
        """What a true parameter at a level adds to the area."""
        return 0.5 - levels

    @property
    def held(self) -> str:
        """What holds true parameters; the regions."""
        return self.regions

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

    def intervals(self, share: np.ndarray, alpha: float) -> np.ndarray:
        """Clopper and Pearson's intervals (2, ...) of shares (...) of the n pairs."""
        return clopper_pearson(share, len(self.positions), alpha)

    def curve(self, alpha: float = 0.05) -> CoverageCurve:
        """The whole curve, at the edges of at most 60 cells of levels.

        It leaves the null band somewhere if and only if its p-value is at most alpha.
        """
        band = RankCurve.of(self.positions, Cells.of(self.weights), self.null[0], alpha)
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

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each curve."""
        pairs = zip(self.levels, self.coverage.T, strict=True)
        covered = {f"at {100 * level:g} %": share for level, share in pairs}
        area = {"area": self.area, "p area": self.area_pvalue}
        return rows_of(covered | area | {"p-value": self.pvalue, "adjusted": self.adjusted})

    @property
    def sentence(self) -> str:
        """One sentence to quote, on the curve with the smallest p-value."""
        j = int(np.lexsort((-np.abs(self.area), self.adjusted))[0])
        level, agrees = self._quoted_level(j)
        where = "" if len(self.names) == 1 else f" of {readable(self.names[j])}"
        share = (
            f"its {100 * self.levels[level]:.4g} % {self.regions}{where} hold the true parameter "
            f"in {100 * self.coverage[j, level]:.3g} % of cases"
        )
        if self.adjusted[j] > 0.05:
            few = too_few(*self.null.shape)
            return f"No departure from the right coverage beyond noise: {share}.{few}"
        if agrees:
            return f"q is {self.directions[j]}: {share}."
        return f"The coverage of q is wrong at some levels, and {share}."

    def _quoted_level(self, j: int) -> tuple[int, bool]:
        """The level that is quoted of a curve, and whether the curve departs there as its area.

        It is 90 % if it can be, or else the one that departs most in that direction.
        """
        usual = int(np.abs(self.levels - 0.9).argmin())
        beyond = (self.coverage[j] - self.levels) * np.sign(self.area[j])
        level = usual if beyond[usual] > 0 else int(beyond.argmax())
        agrees = bool(self.area_pvalue[j] <= 0.05 and beyond[level] > 0)
        return (level, True) if agrees else (usual, False)

    def _row(self, i: int) -> Self:
        own = slice(i, i + 1)
        return replace(self._take(own), positions=self.positions[:, own], names=self.names[own])


# Members of the sets, true parameters and draws alike, from which box and scales are taken.
MEMBERS = 2**11


@dataclass(frozen=True)
class UniformBox:
    """References that are uniform in the box of true parameters and draws together, whatever x.

    Box and scales are taken from two thousand members or more of all sets, chosen without regard
    to which of them is the true parameter, so that neither depends on it.
    """


@dataclass(frozen=True)
class ScaledEuclidean:
    """Euclidean distances in scales, by default the deviations of all members together."""

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
    """Tests q by the distances of true parameters and draws to reference points.

    Args:
        calibration: Pairs with k draws of q at each x, independent of each other.
        references: :class:`UniformBox` by default; or an array (n, m) in units of theta that was
            chosen without regard to the true parameters; or a function of the observations
            (n, ...) with values (n, m).
        metric: :class:`ScaledEuclidean` by default, or a function of parameters (b, r, m) and
            references (b, 1, m) with distances (b, r).
        levels: Levels between 0 and 1 that are reported by name.
        null: The number of null copies, 999 by default.
        seed: An int or a generator; it makes references, breaks ties and makes the null.

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
    theta, theta_q = calibration.theta[:, None], check_draws(calibration)
    reported, seed = check_levels(levels), seed_of(seed)
    null = as_null(null, UniformRanks(), UniformRanks, hint="UniformRanks(999)")
    members, share = _choose_members(calibration, theta_q, seed)
    points = _reference_points(calibration, references, members, share)
    distance = _distance_function(metric, members)
    true, draws = (
        torch.cat([distance(part[rows], points[rows, None]) for rows in pieces(calibration)])
        for part in (theta, theta_q)
    )
    ranks = rank(calibration, {"distance": (true[:, 0], draws)}, seed)
    own = {"references": _word(references), "metric": _word(metric), "null": null, "seed": seed}
    return TARPResult.of(
        ranks,
        np.ones(theta_q.shape[1] + 1, int),
        null,
        RowStream.of(calibration, seed).seed,
        levels=reported,
        names=("distance",),
        references=points.cpu().numpy(),
        settings=settings_of("TARP", calibration, **own),
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class TARPResult(CoverageResult):
    """What TARP found.

    The area is that above 1/2: negative where q is overconfident or biased, positive where it is
    conservative or biased away from the references (n, m). Positions are the numbers of draws that
    are nearer to the reference than the true parameter.
    """

    references: np.ndarray
    regions: str = "balls around references"
    _signs = "overconfident or biased", "conservative or biased away from the references"

    @staticmethod
    def _area_at(levels: np.ndarray) -> np.ndarray:
        return np.minimum(0.5, 1 - levels) - 0.375


def _choose_members(calibration: Calibration, theta_q: Tensor, seed: int) -> tuple[Tensor, Tensor]:
    """Some members of every set, true parameter or draw, (r, m), and uniform numbers (n, m)."""
    n, k, m = theta_q.shape
    size = min(k + 1, -(-MEMBERS // n))
    # A member at random may be the true parameter as likely as any draw; none is preferred.
    width = (size + m,)
    uniform = RowStream.of(calibration, seed).uniform("references", width=width).to(theta_q.device)
    index = (uniform[:, :size] * (k + 1)).long()
    rows = torch.arange(n, device=theta_q.device)[:, None]
    draws = theta_q[rows, (index - 1).clamp_min(0)]
    members = torch.where((index == 0)[..., None], calibration.theta[:, None], draws)
    return members.flatten(0, 1), uniform[:, size:].to(theta_q.dtype)


def _reference_points(
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


def _distance_function(metric: Metric, members: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of parameters (b, r, m) and references (b, 1, m) with distances (b, r)."""
    if not isinstance(metric, ScaledEuclidean):
        words = "ScaledEuclidean() or a function of parameters and references"
        check_function("metric", metric, words)
        return partial(_own_distance, metric)
    if metric.scales is None:
        return partial(_squared_distance, standard_deviation(members).tolist())
    if len(metric.scales) != members.shape[1]:
        raise ValueError(
            f"metric: expected a scale for each of {members.shape[1]} parameters; got "
            f"{len(metric.scales)}."
        )
    return partial(_squared_distance, members.new_tensor(metric.scales).tolist())


def _squared_distance(scales: list[float], theta: Tensor, references: Tensor) -> Tensor:
    # Number by number: products of matrices may round equal points differently.
    total = torch.zeros_like(theta[..., 0])
    for j, scale in enumerate(scales):
        total += ((theta[..., j] - references[..., j]) / scale).square_()
    return total


def _own_distance(
    metric: Callable[[Tensor, Tensor], Any], theta: Tensor, references: Tensor
) -> Tensor:
    distances = call_user_code("metric", metric, theta, references).to(theta.device)
    if distances.shape != theta.shape[:2]:
        raise ValueError(
            "metric: expected a function that maps parameters (b, r, m) and references (b, 1, m) "
            f"to distances (b, r); got {tuple(distances.shape)} from {tuple(theta.shape)}."
        )
    check_finite("metric", distances)
    return distances


def _word(value: Any) -> str:
    if isinstance(value, UniformBox | ScaledEuclidean):
        return repr(value)
    return getattr(value, "__name__", type(value).__name__)

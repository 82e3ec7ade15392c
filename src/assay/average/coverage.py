r"""Expected coverage: how often regions of q hold the true parameter.

The level of a true parameter is the mass of q in the smallest region that holds it: the share of
draws with a higher density for highest-density regions (Hermans et al. 2022, *A Trust Crisis In
Simulation-Based Inference?*), with a rank nearer to the middle for central intervals, nearer to a
reference point for TARP (Lemos et al. 2023, *Sampling-Based Accuracy Testing of Posterior
Estimators for General Inference*). It is uniform if q is right. Each of its steps is spread evenly
over its width, so that coverage is right on average for few draws, too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import (
    as_tensors,
    check_finite,
    check_function,
    check_numbers,
    cpu,
    full_precision,
)
from .._support.random import Seed, call_user_code, seed_of, stream
from ..data.calibration import Calibration
from ..neighbourhood import standard_deviation
from ..printing import readable, rows_of
from ..results import LEVELS, pvalue, settings_of, too_few
from .ranks import PIECE, Cells, Quantity, RankCurve, RankResult, Sets, UniformRanks

# Members of the sets, true parameters and draws alike, from which box and scales are taken.
MEMBERS = 2**11
# Sets and draws on which densities are compared with the draws they should belong to.
SETS, DRAWS, FEWEST_DRAWS, FAR = 200, 100, 20, 6


@full_precision()
def coverage(
    calibration: Calibration,
    log_q: Quantity | None = None,
    levels: Sequence[float] = LEVELS,
    null: int | UniformRanks | None = None,
    seed: Seed = 0,
) -> "CoverageResult":
    """Tests whether regions of q hold as many true parameters as they should, at all levels.

    Args:
        calibration: Pairs with k draws of q at each x, independent of each other.
        log_q: The log-density of q, up to a constant for each x: a function of matching rows theta
            (b, m) and x (b, ...) with values (b,), or its :class:`~assay.average.ranks.Values`.
            Regions are then those of highest density, without it central intervals.
        levels: Levels between 0 and 1 that are reported by name; those between the steps that k
            draws distinguish are interpolated.
        null: The number of null copies; 999 by default, or more for many curves.
        seed: An int or a generator; it breaks ties and makes the null.

    Example:
        >>> theta, noise, *z = torch.randn(22, 500, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> narrow = Calibration(theta, x, x[:, None] / 2 + 0.4 * torch.stack(z, 1))
        >>> coverage(narrow, lambda theta, x: -((theta - x / 2) ** 2).sum(1)).directions
        ('overconfident',)
    """
    reported, seed = check_levels(levels), seed_of(seed)
    sets = Sets.of(calibration, seed)
    k = sets.members.shape[1] - 1
    if log_q is None:
        values = sets.parameters()
        names, regions, ranks = tuple(values), "central intervals", sets.rank(values)
        # Steps from the middle outwards: of two ranks each, but of one in the middle of an even k.
        ranks, weights = k // 2 - np.minimum(ranks, k - ranks), np.full(k // 2 + 1, 2)
        weights[0] -= 1 - k % 2
    else:
        names, regions = ("highest density",), "highest-density regions"
        ranks = k - sets.rank({"log_q": log_densities(sets, log_q)})
        weights = np.ones(k + 1, int)
    null = UniformRanks.of(null, len(names))
    settings = settings_of(f"expected coverage of {regions}", calibration, null=null, seed=seed)
    own = {"levels": reported, "names": names, "regions": regions, "settings": settings}
    return _result(ranks, weights, null, sets.seed, **own)


def check_levels(levels: Sequence[float]) -> np.ndarray:
    """Levels between 0 and 1, in ascending order, or refuses."""
    numbers = check_numbers("levels", levels)
    if not numbers or max(numbers) >= 1:
        raise ValueError(f"levels: expected numbers between 0 and 1, such as 0.9; got {levels}.")
    return np.array(sorted(numbers))


def _result(
    ranks: np.ndarray, weights: np.ndarray, null: UniformRanks, seed: int, **own: Any
) -> "CoverageResult":
    cells = Cells.of(weights)
    middle = (cells.levels[1:] + cells.levels[:-1]) / 2
    # What a true parameter adds to the area; with references, to that above 1/2.
    adds = np.minimum(0.5, 1 - middle) - 0.375 if "references" in own else 0.5 - middle
    # Summed by parts: what it adds in the last cell, and the steps of all cells from its own on.
    steps = -np.diff(adds, append=0.0)
    statistics = cells.surprise, lambda below: steps @ below / len(ranks)
    curve, area = cells.compare(ranks, null, seed, *statistics)
    own |= {"area": area.statistic, "area_null": area.null, "ranks": ranks, "weights": weights}
    return CoverageResult(statistic=curve.statistic, null=curve.null, **own)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class CoverageResult(RankResult):
    """What a test of expected coverage found for j curves; the statistics are their surprises.

    Ranks count the steps of level below that of each true parameter.
    """

    # The area between curve and diagonal, for TARP above 1/2, (j,): below 0 q is overconfident.
    area: np.ndarray
    area_null: np.ndarray  # its values for the null copies, (j, H)
    weights: np.ndarray  # how many ranks among the draws make a step of level, (p,)
    levels: np.ndarray  # the levels that are reported, (l,)
    regions: str  # what holds true parameters, such as 'highest-density regions'
    references: np.ndarray | None = None  # those of TARP, (n, m)
    heading: ClassVar[str] = "coverage of"
    shared: ClassVar[tuple[str, ...]] = ("ranks", "weights", "levels", "references")

    @property
    def area_pvalue(self) -> np.ndarray:
        """The two-sided p-value of the signed area, with shape (j,)."""
        return pvalue(np.abs(self.area), np.abs(self.area_null))

    @property
    def coverage(self) -> np.ndarray:
        """The expected coverage at the levels, with shape (j, l)."""
        steps = np.arange(len(self.weights) + 1)
        shares = np.append(0, np.cumsum(self.weights)) / self.weights.sum()
        below = [np.searchsorted(column, steps) for column in np.sort(self.ranks, 0).T]
        return np.stack([np.interp(self.levels, shares, b / len(self.ranks)) for b in below])

    def curve(self, alpha: float = 0.05) -> RankCurve:
        """The whole curve; it leaves the null band if and only if its p-value is at most alpha."""
        return Cells.of(self.weights).curve(self.ranks, self.null[0], alpha)

    @property
    def directions(self) -> tuple[str, ...]:
        """What each curve says of q, in a word, where it says more than noise."""
        low, high = "overconfident", "conservative"
        if self.references is not None:
            low, high = f"{low} or biased", f"{high} or biased away from the references"
        words = np.where(self.area > 0, high, low)
        neither = "neither overconfident nor conservative"
        return tuple(np.where(self.area_pvalue <= 0.05, words, neither).tolist())

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
        # The level of 90 %, or else the one that departs most in the direction of the area.
        beyond = (self.coverage[j] - self.levels) * np.sign(self.area[j])
        usual = int(np.abs(self.levels - 0.9).argmin())
        i = usual if beyond[usual] > 0 else int(beyond.argmax())
        agrees = bool(self.area_pvalue[j] <= 0.05 and beyond[i] > 0)
        i = i if agrees else usual
        where = "" if len(self.names) == 1 else f" of {readable(self.names[j])}"
        share = (
            f"its {100 * self.levels[i]:.4g} % {self.regions}{where} hold the true parameter "
            f"in {100 * self.coverage[j, i]:.3g} % of cases"
        )
        if self.adjusted[j] > 0.05:
            few = too_few(*self.null.shape)
            return f"No departure from the right coverage beyond noise: {share}.{few}"
        if agrees:
            return f"q is {self.directions[j]}: {share}."
        return f"The coverage of q is wrong at some levels, and {share}."


@full_precision()
def tarp(
    calibration: Calibration,
    references: Any = None,
    metric: Callable[[Tensor, Tensor], Any] | None = None,
    levels: Sequence[float] = LEVELS,
    null: int | UniformRanks | None = None,
    seed: Seed = 0,
) -> CoverageResult:
    """Tests coverage of balls around reference points that hold some of the draws of q.

    Args:
        calibration: Pairs with k draws of q at each x, independent of each other.
        references: Points (n, m) in units of theta, chosen without regard to true parameters, or
            a function of observations (n, ...) with such values; by default uniform in the box of
            true parameters and draws together, whatever x.
        metric: A function of parameters (b, r, m) and references (b, 1, m) with distances (b, r);
            by default Euclidean, in deviations of true parameters and draws together.
        levels: Levels between 0 and 1 that are reported by name.
        null: The number of null copies, 999 by default.
        seed: An int or a generator; it makes references, breaks ties and makes the null.

    Example:
        >>> theta, noise, *z = torch.randn(22, 500, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> narrow = Calibration(theta, x, x[:, None] / 2 + 0.4 * torch.stack(z, 1))
        >>> tarp(narrow, references=lambda x: x / 2).directions
        ('overconfident or biased',)
    """
    reported, seed = check_levels(levels), seed_of(seed)
    sets = Sets.of(calibration, seed)
    members, (n, r, m) = sets.members, sets.members.shape
    # Box and scales are those of some members of every set, chosen without regard to which of them
    # is the true parameter.
    some = min(r, -(-MEMBERS // n))
    uniform = sets.uniform("references", width=(some + m,)).to(members.device)
    rows = torch.arange(n, device=members.device)[:, None]
    chosen = members[rows, (uniform[:, :some] * r).long()].flatten(0, 1)  # (n * some, m)
    if references is None:
        low, high = chosen.amin(0), chosen.amax(0)
        points = low + uniform[:, some:].to(members.dtype) * (high - low)
    else:
        points = _reference_points(calibration, references)
    distances = _distances(members, points, metric, standard_deviation(chosen).tolist())
    ranks, null = sets.rank({"distance": distances}), UniformRanks.of(null, 1)
    words = {"references": _name(references, "uniform box"), "metric": _name(metric, "Euclidean")}
    settings = settings_of("TARP", calibration, **words, null=null, seed=seed)
    own = {"levels": reported, "names": ("distance",), "regions": "balls around references"}
    own |= {"settings": settings, "references": points.cpu().numpy()}
    return _result(ranks, np.ones(r, int), null, sets.seed, **own)


def _name(value: Any, usual: str) -> str:
    return usual if value is None else getattr(value, "__name__", type(value).__name__)


def _reference_points(calibration: Calibration, references: Any) -> Tensor:
    theta = calibration.theta
    if isinstance(references, type | str):
        raise TypeError(
            f"references: expected an array (n, m) or a function of x; got {references!r}."
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


def _distances(members: Tensor, points: Tensor, metric: Any, scales: list[float]) -> Tensor:
    """Distances (n, r), or their squares, of members (n, r, m) from points (n, m)."""
    if metric is not None:
        check_function("metric", metric, "a function of parameters and references")
    rows, parts = max(1, PIECE // members.shape[1]), []
    for theta, point in zip(members.split(rows), points[:, None].split(rows), strict=True):
        if metric is None:
            found = torch.zeros_like(theta[..., 0])
            # Number by number: products of matrices may round equal points differently.
            for j, scale in enumerate(scales):
                found += ((theta[..., j] - point[..., j]) / scale).square_()
        else:
            found = call_user_code("metric", metric, theta, point).to(theta.device)
        if found.shape != theta.shape[:2]:
            raise ValueError(
                "metric: expected a function that maps parameters (b, r, m) and references "
                f"(b, 1, m) to distances (b, r); got {tuple(found.shape)} from "
                f"{tuple(theta.shape)}."
            )
        check_finite("metric", found)
        parts.append(found)
    return torch.cat(parts)


def log_densities(sets: Sets, log_q: Quantity) -> Tensor:
    """Log-densities (n, k + 1) of q at all members, which cannot be those of another q.

    A draw of q has a positive density, and where draws of q are dense its density is high.
    """
    values = sets.evaluate("log_q", log_q)
    draws = values[:, 1:]
    absent = int((draws == -torch.inf).sum())
    if absent:
        raise ValueError(
            f"log_q: expected the density of the q that made theta_q, which is positive at every "
            f"draw; got zero at {absent} of {draws.numel()}. Truncate both to the prior, or "
            "neither."
        )
    if (values == torch.inf).any():
        raise ValueError("log_q: expected numbers below infinity; got infinity.")
    if draws.shape[1] >= max(FEWEST_DRAWS, 2 * sets.members.shape[2]):
        theta_q = sets.members[:SETS, 1 : DRAWS + 1].double()
        _check_own_density(theta_q, draws[:SETS, :DRAWS].double())
    return values


def _check_own_density(theta_q: Tensor, log_q: Tensor) -> None:
    """Refuses densities (s, k) that do not rise where the draws (s, k, m) of q are dense.

    In a whitened set, -m times the logarithm of the distance to a near neighbour estimates log q.
    Its slope in right densities is at most one, and 0.16 or more wherever neighbours see all m
    dimensions; in those of other rows zero, in those of another x small, and they vary too much.
    """
    _, k, m = theta_q.shape
    axes, lengths, _ = torch.linalg.svd(
        theta_q - theta_q.mean(1, keepdim=True), full_matrices=False
    )
    near, far = _neighbours(axes * (lengths > 1e-6 * lengths[:, :1])[:, None])
    usable = (near > 0).all(1)
    near, far, given = near[usable], far[usable], log_q[usable]
    dense, given = (v - v.mean(1, keepdim=True) for v in (-m * far.log(), given))
    square, product = given.square().sum(1), (dense * given).sum(1)
    # The variance of log q is m / 2 for a Gaussian, and at most m if q is log-concave.
    excess = float(square.sum() / max(given.numel(), 1) / m)
    if excess < 0.05:
        return
    slope = float(product.sum() / square.sum())
    error = float((product - slope * square).norm() / square.sum())
    # On a thin surface neighbours see fewer dimensions d: twice as many lie 2^(1/d) times as far.
    noise = cpu.randn(50, k, m, generator=stream(0, "dimension"), dtype=torch.double)
    pairs = (near, far), _neighbours(noise)
    own, gaussian = (float((far / near).log().mean()) for near, far in pairs)
    full = gaussian > 0.6 * own
    if slope + 3 * error < (0.3 if excess > 1.5 else 0.12) and (full or excess > 50):
        raise ValueError(
            "log_q: expected the density of the q that made theta_q, high where its draws are "
            f"dense; got densities along which the draws' own density has slope {slope:.2f}, far "
            "from 1. Are rows in another order, or densities those of another x or q? If they are "
            'right, sbc(calibration, {"log_q": log_q}) ranks them without this check.'
        )


def _neighbours(draws: Tensor) -> tuple[Tensor, Tensor]:
    """Distances (s, k) of draws (s, k, m) to a near neighbour, and to one of twice its order."""
    ordered = torch.cdist(draws, draws).topk(FAR + 1, largest=False).values
    return ordered[..., FAR // 2], ordered[..., FAR]

r"""TARP: tests of accuracy with random points.

Around a reference point :math:`\theta_r` draw the ball on whose surface the truth lies. If q is
right, the share of draws of q inside,

.. math:: f = \frac{1}{k} \#\{j : |\theta_{q,j} - \theta_r| < |\theta - \theta_r|\},

has a uniform rank among 0..k, so a ball that holds a share :math:`\alpha` of q holds the truth
with probability :math:`\alpha`. No density of q is needed, and all parameters are seen together.

**What it can see depends on the references.** Where they do not depend on x, q = prior passes.
If the curve is diagonal for every choice of :math:`\theta_r(x)`, q is right: references that
depend on x, such as a point estimate, make the test sufficient in the limit.

An overconfident q leaves the truth too often farther from the reference than nearly all draws:
above 1/2 its curve is below the diagonal, so the signed area is that above 1/2. A bias of q does
the same, and one away from the references the opposite, so words name both.

Reference: Lemos, Coogan, Hezaveh and Perreault-Levasseur 2023, *Sampling-Based Accuracy Testing
of Posterior Estimators for General Inference*.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.stats
import torch
from torch import Tensor

from ..door import as_tensors, check_finite, check_kind, check_number
from ..randomness import Seed, isolated, seed_of, stream
from ..ranks import Chance, check_draws, ranked_by
from ..samples import Calibration
from ..scaling import spread
from ..uniformity import UniformRanks
from ..version import versions
from .coverage import LEVELS, Covered, checked_levels, checked_null, compared_curves

__all__ = ["Metric", "References", "ScaledEuclidean", "TARPResult", "UniformBox", "tarp"]

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
    """Euclidean distances between parameters in units of their own.

    Args:
        scales: The unit of each parameter; by default its standard deviation over truths and
            draws together.
    """

    scales: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.scales is not None:
            given = np.atleast_1d(np.asarray(self.scales, dtype=object)).tolist()
            checked = tuple(check_number("scales", scale) for scale in given)
            object.__setattr__(self, "scales", checked)


# References (n, m), a function of x (n, ...) that gives them, or a uniform box.
References = UniformBox | Callable[[Tensor], Any] | Any
# Distances (b, r) of parameters (b, r, m) to references (b, 1, m).
Metric = ScaledEuclidean | Callable[[Tensor, Tensor], Any]


def tarp(
    calibration: Calibration,
    references: References = UniformBox(),  # noqa: B008
    metric: Metric = ScaledEuclidean(),  # noqa: B008
    levels: Sequence[float] = LEVELS,
    null: UniformRanks | None = None,
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
        null: How many null copies: :class:`~assay.uniformity.UniformRanks` with 999 by default.
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
    check_kind("calibration", calibration, "a Calibration", "theta_q", "features")
    check_draws(calibration)
    named, null, seed = checked_levels(levels), checked_null(null), seed_of(seed)
    chance = Chance.of(calibration, seed)
    members, share = _members(calibration, chance)
    points = _references(calibration, references, members, share)
    measure = _measure(metric, members)
    found = ranked_by(calibration, "distance", _distances(calibration, points, measure), seed)
    weights = np.ones(found.k + 1, int)
    curve, area = compared_curves(
        found.ranks, weights, null, lambda u: np.minimum(0.5, 1 - u) - 0.375, chance.seed
    )
    return TARPResult(
        statistic=curve.statistic,
        null=curve.null,
        area=area.statistic,
        area_null=area.null,
        positions=found.ranks,
        weights=weights,
        levels=named,
        names=("distance",),
        references=points.cpu().numpy(),
        hypothesis=null.hypothesis,
        settings={
            "test": "TARP",
            **calibration.summary,
            "references": _name(references),
            "metric": _name(metric),
            "null": repr(null),
            "seed": seed,
            **versions(),
        },
    )


@dataclass(frozen=True, eq=False, repr=False)
class TARPResult(Covered):
    """What TARP found.

    Args:
        statistic: The surprise of the whole curve, see :class:`~assay.uniformity.Tails`, (1,).
        null: Its values for the null copies, with shape (1, H).
        area: The signed area between curve and diagonal above 1/2, with shape (1,): negative
            where q is overconfident or biased, positive where it is conservative or biased away
            from the references.
        area_null: Its values for the null copies, with shape (1, H).
        positions: How many draws are nearer to the reference than the truth, with shape (n, 1).
        weights: Ones, with shape (k + 1,).
        levels: The levels that are reported, with shape (l,).
        names: The name of the curve.
        references: The reference points, with shape (n, m).
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
    references: np.ndarray
    hypothesis: str
    settings: Mapping[str, Any]

    @property
    def held(self) -> str:
        """What holds the truth."""
        return "balls around references"

    @property
    def directions(self) -> tuple[str, ...]:
        """What the curve says of q, where it says more than noise."""
        if self.area_pvalue[0] > 0.05:
            return ("neither overconfident nor conservative",)
        low, high = "overconfident or biased", "conservative or biased away from the references"
        return (high if self.area[0] > 0 else low,)

    def intervals(self, share: np.ndarray, alpha: float) -> np.ndarray:
        """Bootstrap intervals (2, ...) of shares (...) of the n pairs.

        A share of pairs that are drawn anew from the n has a binomial law, so the percentiles of
        infinitely many bootstrap samples are known.
        """
        law = scipy.stats.binom(len(self.positions), share)
        return np.stack(law.ppf([[[alpha / 2]], [[1 - alpha / 2]]])) / len(self.positions)


def _members(calibration: Calibration, chance: Chance) -> tuple[Tensor, Tensor]:
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
        with torch.no_grad(), isolated(stream(0, "references")):
            references = references(calibration.x)
    found = as_tensors({"references": references})["references"].to(theta)
    if found.shape != theta.shape:
        raise ValueError(
            f"references: expected shape {tuple(theta.shape)}, one point in units of theta for "
            f"each x; got {tuple(found.shape)}."
        )
    check_finite("references", found)
    return found


def _measure(metric: Metric, members: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """A function of parameters (b, r, m) and references (b, 1, m) with distances (b, r)."""
    if not isinstance(metric, ScaledEuclidean):
        if not callable(metric) or isinstance(metric, type):
            raise TypeError(
                "metric: expected ScaledEuclidean() or a function of parameters and references; "
                f"got {metric!r}."
            )
        return _checked(metric)
    scales = spread(members) if metric.scales is None else members.new_tensor(metric.scales)
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


def _checked(metric: Callable[[Tensor, Tensor], Any]) -> Callable[[Tensor, Tensor], Tensor]:
    """A metric of whatever origin, which must give numbers of the right shape."""

    def measure(theta: Tensor, references: Tensor) -> Tensor:
        with torch.no_grad(), isolated(stream(0, "metric")):
            given = metric(theta, references)
        found = as_tensors({"metric": given})["metric"].to(theta.device)
        if found.shape != theta.shape[:2]:
            raise ValueError(
                "metric: expected a function that maps parameters (b, r, m) and references "
                f"(b, 1, m) to distances (b, r); got {tuple(found.shape)} from "
                f"{tuple(theta.shape)}."
            )
        check_finite("metric", found)
        return found

    return measure


def _distances(
    calibration: Calibration, references: Tensor, measure: Callable[[Tensor, Tensor], Tensor]
) -> Callable[[slice], tuple[Tensor, Tensor]]:
    """Distances of truths (b,) and draws (b, k) of some rows to their references."""
    theta, theta_q = calibration.theta[:, None], calibration.theta_q
    assert theta_q is not None

    def of(rows: slice) -> tuple[Tensor, Tensor]:
        points = references[rows, None]
        return measure(theta[rows], points)[:, 0], measure(theta_q[rows], points)

    return of


def _name(value: Any) -> str:
    if isinstance(value, UniformBox | ScaledEuclidean):
        return repr(value)
    return getattr(value, "__name__", type(value).__name__)

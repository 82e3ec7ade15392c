r"""Effects: what is wrong with q near x_o and at x_o, in units that a scientist can weigh.

**From the ratio** :math:`p / q`, which a classifier estimates at draws of q at x_o: bias,
dispersion, the true coverage of q's intervals and regions, divergences, and draws of a corrected
posterior (:mod:`assay.interpret.density_ratio`).

**From truths near x_o**, by averages over a neighbourhood and by a fit that goes on to x_o
(:mod:`assay.diagnostics.local.local_effects`); this needs no classifier. What needs a ratio is
missing then, and truths where q has no mass, which no weights can show, are counted.

Every number comes with its null band, so that noise is not read as error, and with an interval
that is made to hold the true value. Of truths near x_o, an error is called wrong by exchanges:
any of them is, falsely, with probability at most alpha if q is right there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import combinations
from typing import Any, ClassVar, cast

import numpy as np
import scipy.stats
import torch

from .._core import (
    MOST,
    Seed,
    check_count,
    check_names,
    check_number,
    check_share,
    cpu,
    own_terms,
    seed_of,
    shown,
    stream,
)
from ..diagnostics.local.local_effects import Kind, LocalEffects, Sizes
from ..diagnostics.local.moment_effects import Tail
from ..diagnostics.local.moments import MomentsResult
from ..results import LEVELS, Frozen, LC2STResult, Readable, chosen, equals, position
from .density_ratio import DIVERGENCES, RELIABLE, TITLES, Estimate, weighted

# Fewest null copies whose spread can be told.
FEWEST = 9
# Fewer effective draws than this make no posterior.
FEWEST_DRAWS = 100
Z = float(scipy.stats.norm.ppf(0.975))
# Parameters, and pairs of them, that are named in a sentence.
MOST_NAMED = 6
# Correlations in a table, at most.
MOST_PAIRS = 1000
# What is said of an error without a size.
UNTOLD = "(by how much is not identifiable)"
# Null bands of bias that are narrower than this are those of a classifier that is constant.
FLAT = 1e-3


@dataclass(frozen=True, eq=False)
class Reweighted(Frozen):
    """Draws of the corrected posterior.

    Args:
        theta: The draws, with shape (n, m) or (o, n, m); some are repeated.
        khat, ess: The shape of the tail of the weights, and the number of independent draws that
            they are worth, with shape () or (o,).
        remark: What is to be said against them; empty if nothing.
    """

    theta: np.ndarray
    khat: np.ndarray
    ess: np.ndarray
    remark: str

    @property
    def reliable(self) -> np.ndarray:
        """Whether the tail is light enough and the draws are many enough."""
        return np.asarray((self.khat <= RELIABLE) & (self.ess >= FEWEST_DRAWS))


@dataclass(frozen=True, eq=False, repr=False)
class Effects(Readable):
    r"""What is wrong with q near one observation and at it, or at o of them.

    Estimates have the shapes given here, with a leading axis of length o for many observations.

    Args:
        names: The names of the m parameters.
        bias: How much too high q is, in standard deviations of q, with shape (m,).
        dispersion: Standard deviation of q over that of the truth, (m,): above one, q is too wide.
        intervals: How often q's central intervals of 50, 90 and 95 % hold the truth, (m, 3).
        region: The same of q's regions, (3,): ellipsoids of draws of q, or balls of latents.
        total_variation: :math:`\frac{1}{2} E_q |w - 1|`, with shape (); as all that follows, None
            where there is no ratio.
        kl_pq: :math:`E_q[w \log w]`, the divergence of q from the truth p, in nats.
        kl_qp: :math:`-E_q[\log w]`, the other way round.
        chi_square: :math:`E_q (w - 1)^2`.
        ess: The share of draws that are left when they are reweighted, 1 / (1 + chi-square).
        khat: The shape of the tail of the weights, with shape ().
        weights: Smoothed weights of mean one, with shape (s,).
        theta: The draws that they belong to, with shape (s, m).
        tail: Truths near x_o where q has next to no mass; None where no truths were looked at.
        hypothesis: For what hypothesis the null bands hold.
        settings: The settings and versions of the result.
        correlation: How much too high the correlation of q is, for all pairs of parameters.
        near: The share of all x that is near, with shape (); None, as the former, without truths.
        truths, drawn: Some truths near x_o, and as many draws of q, less the mean of q and in its
            deviations, at the same x, with shape (s, m); NaN where there are fewer.
        sizes: Bias and width against the share that is near; None, as the former, without truths.
    """

    names: tuple[str, ...]
    bias: Estimate
    dispersion: Estimate
    intervals: Estimate
    region: Estimate
    total_variation: Estimate | None
    kl_pq: Estimate | None
    kl_qp: Estimate | None
    chi_square: Estimate | None
    ess: Estimate | None
    khat: np.ndarray | None
    weights: np.ndarray | None
    theta: np.ndarray | None
    tail: Tail | None
    hypothesis: str
    settings: Mapping[str, Any]
    correlation: Estimate | None = None
    near: np.ndarray | None = None
    truths: np.ndarray | None = None
    drawn: np.ndarray | None = None
    sizes: Sizes | None = None
    digits: ClassVar[int] = 2

    def __getitem__(self, which: int | str) -> "Effects":
        """The effects at one of many observations."""
        i = position([str(i) for i in range(len(self))], which)
        return cast(Effects, chosen(self, i)) if self.many else self

    def __len__(self) -> int:
        return len(self.bias.value) if self.many else 1

    @property
    def many(self) -> bool:
        """Whether there is a leading axis of observations."""
        return self.bias.value.ndim == 2

    @property
    def wrong(self) -> np.ndarray:
        """Whether bias, dispersion, correlation or region is wrong beyond noise, () or (o,)."""
        parts = (self.bias, self.dispersion, self.correlation, self.region)
        return np.asarray(np.any([p.wrong.any(-1) for p in parts if p is not None], axis=0))

    def claimed_at(self, which: np.ndarray) -> "Effects":
        """The same with errors claimed at some observations (o,) only."""
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        claimed: dict[str, Any] = {
            name: part.claimed_at(which)
            for name, part in parts.items()
            if isinstance(part, Estimate)
        }
        return replace(self, **claimed)

    @property
    def worst(self) -> np.ndarray:
        """The parameters (m,), or (o, m), from the one that is farthest out of its null bands.

        Where a correlation is wrong, both of its parameters are as far out as it.
        """
        each = [np.abs(e.excess) / _half(e) for e in (self.bias, self.dispersion)]
        far = np.nan_to_num(np.max(each, 0))
        if self.correlation is not None:
            wrong = np.abs(self.correlation.excess) / _half(self.correlation)
            wrong = np.nan_to_num(wrong) * self.correlation.wrong
            rows = far.T  # of parameters, so that an index is one array
            for ends in np.triu_indices(len(self.names), 1):
                np.maximum.at(rows, ends, wrong.T)
        return np.argsort(-far, -1, kind="stable")

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """The names of all pairs of parameters."""
        return list(combinations(self.names, 2))

    @property
    def heading(self) -> str:  # type: ignore[override]
        """What the rows of the table are."""
        return "x_o, effect" if self.many else "effect"

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the numbers, behind that of their observation where there are many."""
        if not self.many:
            return tuple(name for name, _ in self._rows())
        return tuple(f"{i} {name}" for i in range(len(self)) for name, _ in self[i]._rows())

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each number: the estimate, its stated band, its null band, its excess.

        Of many correlations, those that are farthest out of their null bands.
        """
        return [row for i in range(len(self)) for _, row in self[i]._rows()]

    def _rows(self) -> Iterator[tuple[str, dict[str, float]]]:
        one = self[0]
        shares = [f"{100 * level:g} %" for level in LEVELS]
        kinds: list[tuple[Estimate | None, list[str]]] = [
            (one.bias, [f"{name} bias" for name in self.names]),
            (one.dispersion, [f"{name} width" for name in self.names]),
            one._correlations(),
            (one.region, [f"region {share}" for share in shares]),
            *((getattr(one, name), [TITLES[name]]) for name in DIVERGENCES),
            (one.intervals, [f"{name} {share}" for name in self.names for share in shares]),
        ]
        for estimate, names in kinds:
            if estimate is not None:
                yield from zip(names, estimate.rows(), strict=True)

    def _correlations(self) -> tuple[Estimate | None, list[str]]:
        """Correlations with their names: all of few, or those farthest out, in their order."""
        if self.correlation is None:
            return None, []
        far = np.nan_to_num(np.abs(self.correlation.excess) / _half(self.correlation))
        some = np.sort(np.argsort(-far, kind="stable")[:MOST_PAIRS])
        first, second = (ends[some] for ends in np.triu_indices(len(self.names), 1))
        both = zip(first, second, strict=True)
        names = [f"{self.names[i]}, {self.names[j]} correlation" for i, j in both]
        return self.correlation[some], names

    @property
    def sentence(self) -> str:
        """One sentence to quote: only what is farther out than noise is said to be wrong."""
        if self.many:
            which = np.flatnonzero(self.wrong)
            listed = f": {', '.join(map(str, which))}" if len(which) else ""
            there = f"{'At' if self.near is None else 'Near'} {len(which)} of {len(self.wrong)}"
            return f"{there} observations q is wrong by more than noise{listed}."
        errors = self._errors()
        text = "; ".join([*(errors or [self._noise()]), *self._remarks(wrong=bool(errors))])
        return f"{text[0].upper()}{text[1:]}." if self._where or not errors else f"{text}."

    @property
    def _where(self) -> str:
        """Where averages are taken, in words."""
        return "" if self.near is None else f"near x_o (nearest {two(100 * float(self.near))} %), "

    def _errors(self) -> list[str]:
        """What is wrong, in words."""
        words = [part for j, name in enumerate(self.names) if (part := self._parameter(j, name))]
        if self.correlation is not None:
            words += [
                f"the correlation of {a} and {b} is {_off(self.correlation, i, '')}"
                for i, (a, b) in enumerate(self.pairs)
                if self.correlation.wrong[i]
            ]
        if len(words) > MOST_NAMED:
            words = [*words[:MOST_NAMED], f"{len(words) - MOST_NAMED} more are wrong"]
        changes = [e.varies for e in (self.bias, self.dispersion) if e.varies is not None]
        names = [name for j, name in enumerate(self.names) if any(c[j] for c in changes)]
        if names:
            words.append(f"the error of {', '.join(names[:MOST_NAMED])} varies near x_o")
        if words or self.region.wrong.any():
            words.append(_covers(self.region))
        return [f"{self._where}{words[0]}", *words[1:]] if words else []

    def _parameter(self, j: int, name: str) -> str:
        """What is wrong with one parameter."""
        said = []
        if self.bias.wrong[j]:
            said.append(f"q's mean of {name} is {_off(self.bias, j, ' sd')}")
        if self.dispersion.wrong[j]:
            whose = "its sd" if said else f"q's sd of {name}"
            said.append(f"{whose} is {_width(self.dispersion, j)}")
        return "; ".join(said)

    def _noise(self) -> str:
        """What could not be told from noise, in words."""
        if np.abs([self.bias.null_lower, self.bias.null_upper]).max() < FLAT:
            return "the classifier's probabilities do not vary here, which tells nothing"
        if not np.isfinite(self.bias.value).any():
            return f"{self._where}no error beyond noise; sizes are not identifiable"
        bias = np.nanmax(np.abs([self.bias.lower, self.bias.upper]))
        low, high = np.nanmin(self.dispersion.lower), np.nanmax(self.dispersion.upper)
        return (
            f"{self._where}no error beyond noise: bias within ±{two(bias)} sd, width within "
            f"{_ratio(low)} to {_ratio(high)} times the true one (95 % intervals); "
            f"{_covers(self.region)}"
        )

    def _remarks(self, *, wrong: bool) -> list[str]:
        """What else must be known."""
        remarks = []
        if wrong and self.tail is not None and self.tail.pvalue[-1] < 0.01:
            tail, p = self.tail, float(self.tail.pvalue[-1])
            expected = float(tail.share * tail.truths[-1])
            remarks.append(
                f"{tail.count[-1]} of {tail.truths[-1]} truths near x_o lie in the outermost "
                f"{100 * float(tail.share):.2g} % of q ({expected:.1f} expected, "
                f"p {equals(p)})"
            )
        if self.khat is not None and self.khat > RELIABLE:
            remarks.append(
                f"the weights have too heavy a tail to be trusted (k = {self.khat:.2f})"
            )
        return remarks

    def reweighted(self, n: int, seed: Seed = 0) -> Reweighted:
        """So many draws of the corrected posterior, by systematic resampling, in random order.

        They correct what the classifier saw where q has mass; they cannot show what q never
        draws, and the data that made the weights cannot prove them right.
        """
        n, seed = check_count("n", n), seed_of(seed)
        if self.weights is None or self.theta is None or self.khat is None:
            raise ValueError(
                "effects: expected those of a test with a ratio, such as lc2st; got those of "
                f"{self.settings['test']}, which has no weights."
            )
        parts = (self.weights, self.theta)
        each = zip(*(part if self.many else part[None] for part in parts), strict=True)
        resampled = [theta[_resampled(w, n, seed, i)] for i, (w, theta) in enumerate(each)]
        ess = self.weights.shape[-1] / np.square(self.weights).mean(-1)
        draws = Reweighted(np.stack(resampled) if self.many else resampled[0], self.khat, ess, "")
        return draws if draws.reliable.all() else replace(draws, remark=_remark(draws))


@own_terms()
def effects(
    result: LC2STResult | MomentsResult,
    names: Sequence[str] | None = None,
    size: int | None = None,
    exponent: float = 1.0,
    alpha: float = 0.05,
) -> Effects:
    """What is wrong according to a result; nothing is trained or drawn.

    Args:
        result: What :func:`assay.lc2st` or :func:`assay.moments` found.
        names: Names of the parameters; ``theta[0]`` and so on by default.
        size: Which of the sizes of a neighbourhood is asked, where there are several; by default
            the largest at which anything is wrong, or the largest of all.
        exponent: The power to which the classifier's ratio is raised. With
            ``test.health.exponent`` it claims no more than it knows on sets it has not seen,
            which reweighted draws need.
        alpha: How often any error may be named where q is right near x_o.

    Example:
        >>> from assay import Calibration, Draws, moments
        >>> z, x = torch.randn(2, 2000, 2, generator=torch.Generator().manual_seed(0))
        >>> narrow = Calibration.from_base(1.4 * z, x)
        >>> effects(moments(narrow)(Draws(torch.zeros(2)))).sentence
        "Near x_o (nearest 20 %), q's sd of latent[0] is 0.71 times the true sd (at x_o, ..."
    """
    size = None if size is None else check_count("size", size, -MOST)
    exponent = check_number("exponent", exponent, strict=False)
    alpha = check_share("alpha", alpha)
    if isinstance(result, MomentsResult) and result.effects is not None:
        said = (result.hypothesis, dict(result.settings))
        return effects_of(result.effects, names, size, alpha, *said)
    if not isinstance(result, LC2STResult):
        raise TypeError(
            f"result: expected what lc2st or moments found at an observation; got {shown(result)}."
        )
    return _from_ratio(result, names, exponent)


def _from_ratio(result: LC2STResult, names: Sequence[str] | None, exponent: float) -> Effects:
    null = result.null_probabilities
    if null is None or null.shape[-2] < FEWEST:
        got = "none" if null is None else null.shape[-2]
        raise ValueError(
            f"result: expected one with at least {FEWEST} fitted nulls, such as that of "
            f"lc2st(calibration, null=Exchange(99)); got {got}."
        )
    many = result.probabilities.ndim == 2
    theta = result.draws if result.theta is None else result.theta
    parts = (result.probabilities, null, theta, result.draws)
    each = zip(*(part if many else part[None] for part in parts), strict=True)
    ratios = [weighted(d, h, t, z, exponent) for d, h, t, z in each]
    latent = result.theta is None and result.settings["space"] == "latent"
    return Effects(
        names=_names(names, theta.shape[-1], "latent" if latent else "theta"),
        **{k: _joined([f.estimates[k] for f in ratios], many=many) for k in ratios[0].estimates},
        khat=_joined([f.khat for f in ratios], many=many),
        weights=_joined([f.weights for f in ratios], many=many),
        theta=theta,
        tail=None,
        hypothesis=result.hypothesis,
        settings={**result.settings, "exponent": exponent},
    )


def effects_of(
    found: LocalEffects,
    names: Sequence[str] | None,
    size: int | None,
    alpha: float,
    hypothesis: str,
    settings: Mapping[str, Any],
) -> Effects:
    """Effects from truths near x_o, see :func:`effects`."""
    sizes, many = found.near.shape[-1], found.near.ndim == 2
    if size is not None and not -sizes <= size < sizes:
        raise ValueError(f"size: expected one of {sizes} sizes; got {size}.")
    found = found if many else found[None]
    kinds = {name: (getattr(found, name), right) for name, right in RIGHT.items()}
    wrong = {name: _wrong(*kind, alpha) for name, kind in kinds.items()}
    which = _sizes([wrong[name] for name in CLAIMED], size)
    rows, tail = np.arange(len(which)), found.tail
    parts: dict[str, Any] = {
        name: _estimate(*kind, wrong[name], which, alpha) for name, kind in kinds.items()
    }
    made = Effects(
        names=_names(names, found.bias.at.shape[-1], "theta" if found.named else "latent"),
        **parts | dict.fromkeys((*DIVERGENCES, "khat", "weights", "theta")),
        tail=Tail(tail.count[rows, which, None], tail.truths[rows, which, None], tail.share),
        near=found.near[rows, which],
        truths=found.truths,
        drawn=found.drawn,
        sizes=found.sizes,
        hypothesis=hypothesis,
        settings=settings,
    )
    return made if many else made[0]


# What numbers are if q is right, and those by which sizes are chosen.
RIGHT: dict[str, Any] = {"bias": 0.0, "dispersion": 1.0, "correlation": 0.0}
RIGHT |= {"intervals": np.array(LEVELS), "region": np.array(LEVELS)}
CLAIMED = ("bias", "dispersion", "correlation", "region")


def _wrong(kind: Kind, right: Any, alpha: float) -> np.ndarray:
    """Where errors are claimed: by exchanges, and outside of their interval if it is known."""
    outside = (kind.lower > right) | (kind.upper < right) | np.isnan(kind.lower)
    return np.asarray((kind.pvalue < alpha) & outside)


def _sizes(wrong: list[np.ndarray], size: int | None) -> np.ndarray:
    """The size that is asked (o,), or the largest at which anything (o, c, ...) is wrong."""
    any_wrong = np.any([part.any(-1) for part in wrong], axis=0)
    o, c = any_wrong.shape
    if size is not None:
        return np.full(o, range(c)[size])
    largest = c - 1 - any_wrong[:, ::-1].argmax(1)
    return np.asarray(np.where(any_wrong.any(1), largest, c - 1))


def _estimate(
    kind: Kind, right: Any, wrong: np.ndarray, which: np.ndarray, alpha: float
) -> Estimate:
    """Numbers at one size of each observation, with their null bands."""
    parts = (kind.value, kind.lower, kind.upper, kind.null, kind.sign, wrong)
    rows = np.arange(len(which))
    value, lower, upper, null, sign, flags = (part[rows, which] for part in parts)
    centre = np.broadcast_to(right, value.shape)
    low, high = centre - Z * null, centre + Z * null
    if isinstance(right, np.ndarray):
        low, high = np.clip(low, 0, 1), np.clip(high, 0, 1)
    elif right == 1:
        low, high = np.exp(-Z * null), np.exp(Z * null)
    # Of an error that has no size the direction is still known: truths with more, q too low.
    blind = flags & np.isnan(lower)
    lower = np.where(blind, np.where(sign > 0, -np.inf, centre), lower)
    upper = np.where(blind, np.where(sign > 0, centre, np.inf), upper)
    there = (kind.at, kind.at_lower, kind.at_upper, flags & (kind.varies < alpha))
    return Estimate(value, lower, upper, centre, low, high, flags, *there, kind.pvalue.min(1))


def _names(names: Sequence[str] | None, m: int, kind: str) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{kind}[{j}]" for j in range(m))
    return check_names("names", names, m)


def _joined(parts: list[Any], *, many: bool) -> Any:
    """Estimates or arrays at every observation as one, with a leading axis if many."""
    if not many:
        return parts[0]
    if not isinstance(parts[0], Estimate):
        return np.stack(parts)
    names = [f.name for f in fields(Estimate) if getattr(parts[0], f.name) is not None]
    return Estimate(**{name: np.stack([getattr(part, name) for part in parts]) for name in names})


def two(value: float) -> str:
    """A number with two digits that count, without an exponent.

    Example:
        >>> two(0.6149), two(1.26), two(12345.0), two(float("inf"))
        ('0.61', '1.3', '12000', 'inf')
    """
    if not np.isfinite(value):
        return f"{value:g}"
    return np.format_float_positional(float(f"{value:.2g}"), trim="-")


def _off(estimate: Estimate, j: int, unit: str) -> str:
    """How far a number of q is too high or too low, near x_o and at x_o."""
    value = float(estimate.value[j])
    if np.isnan(value):
        return f"too {_side(float(estimate.upper[j]))} {UNTOLD}"
    near = f"{_amount(value, unit)}{' (of q)' if unit else ''} too {_side(value)}"
    at, low, high = _at(estimate, j)
    if np.isnan(at):
        return near
    low, high = (low, high) if at > 0 else (-high, -low)
    there = f"{_amount(at, unit)} too {_side(at)}, {two(low)} to {two(high)}"
    return f"{near} (at x_o, extrapolated: {there})"


def _width(estimate: Estimate, j: int) -> str:
    """The standard deviation of q over the true one, near x_o and at x_o."""
    value, lower = float(estimate.value[j]), float(estimate.lower[j])
    if np.isnan(value):
        size = f"more than {two(lower)} times the true sd" if lower > 1 else ""
        return f"{size or ('too large' if lower == 1 else 'too small')} {UNTOLD}"
    near, (at, low, high) = f"{_ratio(value)} times the true sd", _at(estimate, j)
    if np.isnan(at):
        return near
    ends = f"{_ratio(low)} to {_ratio(high)}"
    return f"{near} (at x_o, extrapolated: {_ratio(at)} times, {ends})"


def _at(estimate: Estimate, j: int) -> tuple[float, float, float]:
    """A number at x_o and the ends of its interval; NaN where that is not told."""
    if estimate.at is None or estimate.at_lower is None or estimate.at_upper is None:
        return np.nan, np.nan, np.nan
    return float(estimate.at[j]), float(estimate.at_lower[j]), float(estimate.at_upper[j])


def _half(estimate: Estimate) -> np.ndarray:
    """Half of the width of null bands."""
    half = (estimate.null_upper - estimate.null_lower) / 2
    return np.asarray(np.where(half > 0, half, np.inf))


def _side(value: float) -> str:
    return "high" if value > 0 else "low"


def _amount(value: float, unit: str) -> str:
    """The size of an error; a small one may be known to be there."""
    return f"{two(abs(value)) if abs(value) >= 0.005 else 'less than 0.01'}{unit}"


def _ratio(value: float) -> str:
    """A ratio, with as many digits as show that it is not one."""
    off = abs(value - 1)
    return two(value) if off >= 0.1 else f"{value:.2f}" if off >= 0.005 else f"{value:.3f}"


def _covers(region: Estimate) -> str:
    """What a region of 90 % covers, near x_o and at x_o."""
    near = (float(part[1]) for part in (region.value, region.lower, region.upper))
    said = f"the 90 % region covers about {_percent(*near)}"
    there = _at(region, 1)
    return said if np.isnan(there[0]) else f"{said}, at x_o {_percent(*there)}"


def _percent(share: float, low: float, high: float) -> str:
    return f"{100 * share:.0f} % ({100 * low:.0f} to {100 * high:.0f} %)"


def _resampled(weights: np.ndarray, n: int, seed: int, which: int) -> np.ndarray:
    """Indices (n,) of draws, each about n w / s times, in random order (Kitagawa 1996)."""
    generator = stream(seed, "reweighted", which)
    start = float(cpu.rand((), generator=generator, dtype=torch.double))
    edges = np.cumsum(weights) / weights.sum()
    chosen = np.searchsorted(edges, (np.arange(n) + start) / n).clip(max=len(weights) - 1)
    return np.asarray(chosen[cpu.randperm(n, generator=generator).numpy()])


def _remark(draws: Reweighted) -> str:
    return (
        f"Not to be relied on: the tail of the weights has shape {np.max(draws.khat):.2f} (at "
        f"most {RELIABLE} can be trusted), and the draws are worth {np.min(draws.ess):.0f} "
        f"independent ones (at least {FEWEST_DRAWS} make a posterior)."
    )

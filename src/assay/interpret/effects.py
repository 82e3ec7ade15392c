r"""Effects: what is wrong with q at x_o, in units that a scientist can weigh.

**From the ratio** :math:`p / q`, which a classifier estimates at draws of q at x_o: bias,
dispersion, the true coverage of q's intervals and regions, divergences, and draws of a corrected
posterior (:mod:`assay.interpret.density_ratio`).

**From moments.** Truths near x_o tell the same by averages, which need no classifier and are
unbiased where the error is constant in the neighbourhood; what needs a ratio is missing then, and
truths where q has no mass, which no weights can show, are counted.

Every number comes with its null band, so that noise is not read as error, and with a stated band
that is made to hold the true value.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, cast

import numpy as np
import scipy.stats
import torch

from .._core import Seed, check_count, check_number, seed_of, stream
from ..diagnostics.local.moment_effects import MomentTable, Tail
from ..diagnostics.local.moments import MomentsResult
from ..results import LEVELS, Frozen, LC2STResult, Readable, chosen, position
from .density_ratio import DIVERGENCES, RELIABLE, TITLES, Estimate, weighted

# Fewest null copies whose spread can be told.
FEWEST = 9
# Fewer effective draws than this make no posterior.
FEWEST_DRAWS = 100
Z = float(scipy.stats.norm.ppf(0.975))
# The largest logarithm of a ratio that is told.
FAR = 30.0
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
    r"""What is wrong with q at one observation, or at o of them.

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
        """Whether bias, dispersion or region is wrong by more than noise, () or (o,)."""
        parts = (self.bias.wrong.any(-1), self.dispersion.wrong.any(-1), self.region.wrong.any(-1))
        return np.asarray(np.any(parts, axis=0))

    @property
    def heading(self) -> str:  # type: ignore[override]
        """What the rows of the table are."""
        return "x_o, effect" if self.many else "effect"

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the numbers, behind that of their observation where there are many."""
        names = tuple(name for name, _ in self._rows())
        many = tuple(f"{i} {name}" for i in range(len(self)) for name in names)
        return many if self.many else names

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each number: the estimate, its stated band, its null band, its excess."""
        return [row for i in range(len(self)) for _, row in self[i]._rows()]

    def _rows(self) -> Iterator[tuple[str, dict[str, float]]]:
        one = self[0]
        shares = [f"{100 * level:g} %" for level in LEVELS]
        kinds: list[tuple[Estimate | None, list[str]]] = [
            (one.bias, [f"{name} bias" for name in self.names]),
            (one.dispersion, [f"{name} width" for name in self.names]),
            (one.region, [f"region {share}" for share in shares]),
            *((getattr(one, name), [TITLES[name]]) for name in DIVERGENCES),
            (one.intervals, [f"{name} {share}" for name in self.names for share in shares]),
        ]
        for estimate, names in kinds:
            if estimate is not None:
                yield from zip(names, estimate.rows(), strict=True)

    @property
    def sentence(self) -> str:
        """One sentence to quote: only what is farther out than noise is said to be wrong."""
        if self.many:
            which = np.flatnonzero(self.wrong)
            at = f": {', '.join(map(str, which))}" if len(which) else ""
            return (
                f"At {len(which)} of {len(self.wrong)} observations q is wrong by more than "
                f"noise{at}."
            )
        errors = self._errors()
        text = "; ".join([*(errors or [self._noise()]), *self._remarks()])
        return f"{text}." if errors else f"{text[0].upper()}{text[1:]}."

    def _errors(self) -> list[str]:
        """What is wrong, in words."""
        words = []
        for j, name in enumerate(self.names):
            bias, width = float(self.bias.value[j]), float(self.dispersion.value[j])
            said = []
            if self.bias.wrong[j]:
                said.append(f"{_shift(abs(bias))} too {'high' if bias > 0 else 'low'}")
            if self.dispersion.wrong[j]:
                said.append(_width(width))
            if said:
                words.append(f"{name} is {' and '.join(said)}")
        errors = [", ".join(words)] if words else []
        if words or self.region.wrong.any():
            errors.append(_covers(self.region))
        return errors

    def _noise(self) -> str:
        """What could not be told from noise, in words."""
        bias = np.abs([self.bias.null_lower, self.bias.null_upper]).max()
        if bias < FLAT:
            return "the classifier's probabilities do not vary here, which tells nothing"
        width = np.abs([self.dispersion.null_lower - 1, self.dispersion.null_upper - 1]).max()
        return (
            f"no error larger than noise: bias below ±{bias:.2f} sd, width within "
            f"{100 * width:.0f} %; {_covers(self.region)}"
        )

    def _remarks(self) -> list[str]:
        """What else must be known."""
        remarks = []
        if self.tail is not None and self.tail.pvalue[-1] < 0.01:
            tail, p = self.tail, float(self.tail.pvalue[-1])
            expected = float(tail.share * tail.truths[-1])
            remarks.append(
                f"{tail.count[-1]} of {tail.truths[-1]} truths near x_o lie in the outermost "
                f"{100 * float(tail.share):.2g} % of q ({expected:.1f} expected, "
                f"p {f'= {p:.1g}' if p >= 1e-6 else '< 1e-6'})"
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


def effects(
    result: LC2STResult | MomentsResult,
    names: Sequence[str] | None = None,
    size: int = -1,
    exponent: float = 1.0,
) -> Effects:
    """What is wrong at x_o according to a result; nothing is trained or drawn.

    Args:
        result: What :func:`assay.lc2st` or :func:`assay.moments` found.
        names: Names of the parameters; ``theta[0]`` and so on by default.
        size: Which of the sizes of a neighbourhood is asked, where there are several; the largest
            by default.
        exponent: The power to which the classifier's ratio is raised. With
            ``test.health.exponent`` it claims no more than it knows on sets it has not seen,
            which reweighted draws need.

    Example:
        >>> from assay import Calibration, Draws, moments
        >>> z, x = torch.randn(2, 2000, 2, generator=torch.Generator().manual_seed(0))
        >>> narrow = Calibration.from_base(1.4 * z, x)
        >>> effects(moments(narrow)(Draws(torch.zeros(2)))).sentence
        'latent[0] is 29 % too narrow, latent[1] is 28 % too narrow; the 90 % region covers ...'
    """
    if isinstance(result, MomentsResult):
        return _from_moments(result, names, size)
    if not isinstance(result, LC2STResult):
        raise TypeError(
            "result: expected what lc2st or moments found at an observation; got "
            f"{type(result).__name__}."
        )
    return _from_ratio(result, names, check_number("exponent", exponent, strict=False))


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


def _from_moments(result: MomentsResult, names: Sequence[str] | None, size: int) -> Effects:
    sizes = result.pairs.shape[-1]
    if not -sizes <= size < sizes:
        raise ValueError(f"size: expected one of {sizes} sizes; got {size}.")
    shown = result.shown
    if result.region is None or shown.intervals is None or shown.intervals_null is None:
        raise ValueError(
            "result: expected one with coverage; got one of an older version. Run the test again."
        )
    m = shown.bias.shape[-1]
    # Bias, dispersion and the region are one family of numbers, none of which noise should move.
    far = float(scipy.stats.norm.isf(0.025 / (2 * m + 1)))
    parts = (result.region.share, result.region.error, result.region.null)
    share, error, null = (part[..., size, :] for part in parts)
    return Effects(
        names=_names(names, m, "theta" if result.named else "latent"),
        bias=_normal(*_sized(shown, "bias", size), far),
        dispersion=_positive(*_sized(shown, "dispersion", size), far),
        intervals=_binomial(*_sized(shown, "intervals", size), far),
        region=_binomial(share, error, null, far),
        **dict.fromkeys((*DIVERGENCES, "khat", "weights", "theta")),
        tail=None if result.tail is None else result.tail[..., size : size + 1 or None],
        hypothesis=result.hypothesis,
        settings=dict(result.settings),
    )


def _sized(table: MomentTable, name: str, size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Numbers of one size, with their errors and nulls."""
    columns = (getattr(table, f"{name}{end}") for end in ("", "_error", "_null"))
    axis = -3 if name == "intervals" else -2
    value, error, null = (np.take(column, size, axis=axis) for column in columns)
    return value, error, null


def _normal(value: np.ndarray, error: np.ndarray, null: np.ndarray, far: float) -> Estimate:
    """A mean with a standard error, and a deviation of it, around zero, if q is right."""
    zero = np.zeros_like(value)
    bands = (value - Z * error, value + Z * error, zero, zero - Z * null, zero + Z * null)
    # Where truths scatter more than q says, an estimate is less sure than its null.
    return Estimate(value, *bands, np.abs(value) > far * np.maximum(null, error))


def _positive(value: np.ndarray, error: np.ndarray, null: np.ndarray, far: float) -> Estimate:
    """A ratio around one, which is more nearly normal by its logarithm."""
    logs = _normal(np.log(value), error / value, null, far)
    numbers = {k: v for k, v in vars(logs).items() if k != "wrong"}
    # With a handful of pairs a band may span all that numbers can be.
    return replace(logs, **{k: np.exp(v.clip(-FAR, FAR)) for k, v in numbers.items()})


def _binomial(share: np.ndarray, error: np.ndarray, null: np.ndarray, far: float) -> Estimate:
    """A share around its level, by the interval of Wilson 1927 for as many pairs as errors say.

    A share that was put together of several views may have been cut off at zero or one, where
    nothing tells the pairs; its own error reaches as far as it would have.
    """
    levels = np.broadcast_to(LEVELS, share.shape)
    n = levels * (1 - levels) / np.square(null)
    inner = (share > 0) & (share < 1) & (error > 0)
    told = share * (1 - share) / np.square(np.where(inner, error, 1))
    n = np.minimum(n, np.where(inner, told, n))
    centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * np.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    low = np.minimum(centre - half, share - Z * error).clip(0, 1)
    high = np.maximum(centre + half, share + Z * error).clip(0, 1)
    lower, upper = np.clip(levels - Z * null, 0, 1), np.clip(levels + Z * null, 0, 1)
    wrong = (np.abs(share - levels) > far * null) & ((share < lower) | (share > upper))
    return Estimate(share, low, high, levels, lower, upper, wrong)


def _names(names: Sequence[str] | None, m: int, kind: str) -> tuple[str, ...]:
    if names is None:
        return tuple(f"{kind}[{j}]" for j in range(m))
    if len(names) != m:
        raise ValueError(f"names: expected {m} names, one for each parameter; got {names!r}.")
    return tuple(str(name) for name in names)


def _joined(parts: list[Any], *, many: bool) -> Any:
    """Estimates or arrays at every observation as one, with a leading axis if many."""
    if not many:
        return parts[0]
    if not isinstance(parts[0], Estimate):
        return np.stack(parts)
    names = [f.name for f in fields(Estimate)]
    return Estimate(*(np.stack([getattr(part, name) for part in parts]) for name in names))


def _shift(value: float) -> str:
    """The size of a bias in words; a small one may be known to be there."""
    return f"{value:.2f} sd" if value >= 0.005 else "less than 0.01 sd"


def _width(value: float) -> str:
    """A width in words."""
    if value >= 3:
        return f"{value:.2g} times too wide"
    by = abs(value - 1)
    size = f"{100 * by:.0f} %" if by >= 0.005 else "less than 1 %"
    return f"{size} too {'wide' if value > 1 else 'narrow'}"


def _covers(region: Estimate) -> str:
    bands = (region.value, region.lower, region.upper)
    share, low, high = (100 * min(1.0, max(0.0, float(v[1]))) for v in bands)
    return f"the 90 % region covers about {share:.0f} % ({low:.0f} to {high:.0f} %)"


def _resampled(weights: np.ndarray, n: int, seed: int, which: int) -> np.ndarray:
    """Indices (n,) of draws, each about n w / s times, in random order (Kitagawa 1996)."""
    generator = stream(seed, "reweighted", which)
    start = float(torch.rand((), generator=generator, dtype=torch.double))
    edges = np.cumsum(weights) / weights.sum()
    chosen = np.searchsorted(edges, (np.arange(n) + start) / n).clip(max=len(weights) - 1)
    return np.asarray(chosen[torch.randperm(n, generator=generator).numpy()])


def _remark(draws: Reweighted) -> str:
    return (
        f"Not to be relied on: the tail of the weights has shape {np.max(draws.khat):.2f} (at "
        f"most {RELIABLE} can be trusted), and the draws are worth {np.min(draws.ess):.0f} "
        f"independent ones (at least {FEWEST_DRAWS} make a posterior)."
    )

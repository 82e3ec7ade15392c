r"""Power: what a test could have seen at x_o, as minimum detectable effects.

A large p-value is a comfort only if an error that matters would have made it small. Declare q the
truth, plant an error of known size s at the x of the calibration (:mod:`assay.planted`), and run
the same test with the same classifier, null and statistic at the same observations; repeated with
fresh truths this gives the rejection rate :math:`\pi(s)`. The **minimum detectable effect** is the
s with :math:`\pi(s)` = 0.8, from the monotone curve

.. math:: \pi(s) = \Phi\big(\Phi^{-1}(\alpha) + (s / c)^g\big),

which has the right level at s = 0, fitted by maximum likelihood to the rejections around it. All
sizes share the same truths in a repetition, and all observations the same planted data.

**Nulls are made once** for the moment test. In latent space they know neither q nor the truths,
and nothing is lost; for draws they are those of the same sets without an error, since exchanges of
a set in which one member of k + 1 was moved a little are nearly those of the set. Other tests are
made again for every planted data set, see :mod:`assay.replays`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.optimize
import scipy.stats
from tqdm import tqdm

from .door import check_count, check_kind, check_number
from .planted import Error, Shift, Wide, checked_errors
from .randomness import Seed, seed_of
from .replays import Repeatable, Replay, replayed
from .results import _freeze, _html, _text
from .samples import Draws
from .workers import spread_over

__all__ = ["PowerCurve", "PowerResult", "Repeatable", "power"]

ERRORS: tuple[Error, ...] = (Shift(), Wide())
# Sizes are steps of a ladder, four to a doubling.
RATIO = 2**0.25
# Repetitions by which a size is first looked at, and steps around the one that is found.
FIRST, AROUND, MOST_STEPS = 8, 2, 9
# How steep a curve is expected to be, and how surely, in logarithms.
SHAPE = (math.log(1.7), 0.4)


def power(
    test: Repeatable,
    draws: Draws,
    errors: Sequence[Error] | Error = ERRORS,
    n: int | None = None,
    seed: Seed = 0,
    *,
    alpha: float = 0.05,
    target: float = 0.8,
) -> "PowerResult":
    """Minimum detectable effects of a test at one observation or many.

    No label is read, so a p-value may be looked at before or after; see :mod:`assay.planted` for
    what stands for the truth.

    Args:
        test: The test: :func:`assay.moments`, :func:`assay.lc2st` or :func:`assay.region`.
        draws: The observations, with draws of q where the test needs them.
        errors: Errors to plant, such as :class:`~assay.planted.Shift`.
        n: Repetitions at each size: by default 100 for the moment test and 40 for others. The
            relative error of an effect is about a half over the root of it.
        seed: An int or a generator. The same seed gives the same result.
        alpha: The level of the test.
        target: The probability of rejection at the effects that are reported.

    Example:
        >>> z, x = torch.randn(2, 500, 2, generator=torch.Generator().manual_seed(0))
        >>> test = assay.moments(assay.Calibration.from_base(z, x))
        >>> result = power(test, Draws(torch.zeros(2)), Shift(), n=20)
        >>> bool(0.2 < result["shift"].mde < 0.7)
        True
    """
    check_kind("test", test, "a test such as moments(calibration)", "again", "calibration")
    check_kind("draws", draws, "Draws(x_o, theta_o)", "x", "theta")
    kinds = checked_errors(errors)
    if not 0 < check_number("alpha", alpha) < check_number("target", target) < 1:
        raise ValueError(
            f"target: expected a probability above alpha and below 1; got {target} at {alpha}."
        )
    engine = replayed(test, draws, seed_of(seed))
    n = engine.repetitions if n is None else check_count("n", n, FIRST)
    level = _level(alpha, engine.nulls)
    curves = [_curve(engine, error, n, level, target) for error in kinds]
    single = engine.place.single
    return PowerResult(
        curves=tuple(curve[0] if single else curve for curve in curves),
        x=engine.place.x.cpu().numpy()[0 if single else slice(None)],
        alpha=alpha,
        target=target,
        n=n,
        hypothesis=engine.hypothesis,
        settings={
            **test.settings,
            **{"nulls": engine.nulls, "planted": engine.words, "repetitions": n},
        },
    )


@dataclass(frozen=True, eq=False)
class PowerCurve:
    """Rejection rates of one planted error, at one observation or at o of them.

    Args:
        error: The error.
        sizes: Sizes that were planted, with shape (g,).
        rates: Shares of repetitions in which the test rejected, with shape (g,) or (o, g).
        mde: The minimum detectable effect, with shape () or (o,): infinite where the largest
            size is not seen often enough, and the smallest size where that is seen too often.
        mde_error: Its standard error over repetitions; NaN where the effect is no such number.
        scale: The parameter c of the fitted curve, shaped as the effect.
        shape: Its parameter g.
        level: The rejection rate without an error.
    """

    error: Error
    sizes: np.ndarray
    rates: np.ndarray
    mde: np.ndarray
    mde_error: np.ndarray
    scale: np.ndarray
    shape: np.ndarray
    level: float

    def __post_init__(self) -> None:
        _freeze(self)

    def __getitem__(self, which: int) -> "PowerCurve":
        names = ("rates", "mde", "mde_error", "scale", "shape")
        return replace(self, **{name: getattr(self, name)[which] for name in names})

    def fitted(self, sizes: np.ndarray) -> np.ndarray:
        """The fitted rejection rates, with shape (..., g) at sizes (g,)."""
        return _model(np.asarray(sizes), self.scale[..., None], self.shape[..., None], self.level)

    def words(self, share: float = 1.0) -> str:
        """What would have been seen, at this share of the observations at least."""
        found = np.sort(np.atleast_1d(self.mde))
        mde = float(found[max(0, math.ceil(share * len(found) - 1e-9) - 1)])
        least, most = self.error.sizes
        if math.isinf(mde):
            return f"not even {self.error.words(most)}"
        return f"less than {self.error.words(least)}" if mde <= least else self.error.words(mde)


@dataclass(frozen=True, eq=False, repr=False)
class PowerResult:
    """What a test would have seen at one observation, or at o of them.

    Args:
        curves: Rejection rates and the minimum detectable effect of each error.
        x: The observation, with shape (...,) or (o, ...).
        alpha: The level of the test.
        target: The probability with which effects would have been seen.
        n: Repetitions at each size.
        hypothesis: What the test tests.
        settings: The settings of the test, and how errors were planted.
    """

    curves: tuple[PowerCurve, ...]
    x: np.ndarray
    alpha: float
    target: float
    n: int
    hypothesis: str
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        _freeze(self)

    def __getitem__(self, name: str) -> PowerCurve:
        found = {curve.error.name: curve for curve in self.curves}
        if name not in found:
            raise KeyError(f"expected one of {sorted(found)}; got {name!r}")
        return found[name]

    @property
    def labels(self) -> tuple[str, tuple[str, ...]]:
        """What the rows of the table are, and their names."""
        return "x_o", tuple(str(i) for i in range(self.curves[0].mde.size))

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each observation: every effect and its standard error."""
        columns = {}
        for curve in self.curves:
            columns[curve.error.name] = np.atleast_1d(curve.mde)
            columns[f"± {curve.error.name}"] = np.atleast_1d(curve.mde_error)
        names = range(len(self.labels[1]))
        return [{name: float(values[i]) for name, values in columns.items()} for i in names]

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        everywhere = ", ".join(curve.words() for curve in self.curves)
        how = f"with probability {self.target:g} at level {self.alpha:g}"
        if not self.curves[0].mde.ndim:
            return f"The test would have seen {everywhere}, {how}."
        half = ", ".join(curve.words(0.5) for curve in self.curves)
        return (
            f"At half of the {self.curves[0].mde.size} observations the test would have seen "
            f"{half}, {how}; at all of them, {everywhere}."
        )

    def __repr__(self) -> str:
        return _text(self.labels, self.table, self.hypothesis, self.sentence)

    def _repr_html_(self) -> str:
        return _html(self.labels, self.table, self.hypothesis, self.sentence)


class _Runs:
    """Rejections of one planted error at the steps of a ladder, as they are asked for."""

    def __init__(self, engine: Replay, error: Error, alpha: float) -> None:
        self.engine, self.error, self.alpha = engine, error, alpha
        least, most = error.sizes
        count = math.ceil(math.log(most / least) / math.log(RATIO) - 1e-9)
        self.sizes = np.minimum(least * RATIO ** np.arange(count + 1), most)
        self.found: dict[int, list[np.ndarray]] = {}
        self.bar = tqdm(desc=f"planting: {error.name}", unit="run", disable=None, leave=None)

    def rates(self, step: int) -> np.ndarray:
        """Rejection rates (o,) at one step, from a few repetitions."""
        return np.asarray(self.hits([step], FIRST).mean(0)[0])

    def hits(self, steps: list[int], n: int) -> np.ndarray:
        """Rejections (n, g, o) at some steps in the first n repetitions."""
        have = [len(self.found.setdefault(step, [])) for step in steps]
        todo = range(min(have), n)

        def run(repetition: int) -> list[tuple[int, np.ndarray]]:
            missing = [s for s, count in zip(steps, have, strict=True) if count <= repetition]
            sizes = [float(self.sizes[step]) for step in missing]
            found = self.engine.run(self.error, sizes, repetition)
            self.bar.update(len(missing))
            return list(zip(missing, found, strict=True))

        with spread_over(min(self.engine.workers, max(1, len(todo)))) as apply:
            for done in apply(run, todo):
                for step, found in done:
                    self.found[step].append(found)
        pvalues = [self.engine.pvalues(np.stack(self.found[step][:n])) for step in steps]
        return np.stack(pvalues, 1) <= self.alpha + 1e-9


def _curve(engine: Replay, error: Error, n: int, level: float, target: float) -> PowerCurve:
    """Rejection rates around the size that is seen as often as wanted, at all observations."""
    runs = _Runs(engine, error, level)
    with runs.bar:
        steps, hits = _searched(runs, n, target)
    sizes = runs.sizes[steps]
    fits = [_fitted(sizes, hits[..., i], level, target) for i in range(hits.shape[2])]
    scale, shape, mde, mde_error = np.array(fits).T
    least, most = runs.sizes[[0, -1]]
    never, always = mde > most * (1 + 1e-9), mde <= least
    return PowerCurve(
        error=error,
        sizes=sizes,
        rates=hits.mean(0).T,
        mde=np.where(never, np.inf, np.maximum(mde, least)),
        mde_error=np.where(never | always, np.nan, mde_error),
        scale=scale,
        shape=shape,
        level=level,
    )


def _searched(runs: _Runs, n: int, target: float) -> tuple[list[int], np.ndarray]:
    """Steps that enclose the target at every observation, and rejections (n, g, o) there."""
    last = len(runs.sizes) - 1
    low = _first(last, lambda step: bool((runs.rates(step) >= target).any()))
    high = _first(last, lambda step: bool((runs.rates(step) >= target).all()))
    low, high = max(0, low - AROUND), min(last, high + AROUND)
    while True:
        stride = -(-(high - low + 1) // MOST_STEPS)
        steps = sorted({*range(low, high, stride), high})
        hits = runs.hits(steps, n)
        seen = hits.mean(0) >= target
        down, up = low > 0 and seen[0].any(), high < last and not seen[-1].all()
        if not (down or up):
            return steps, hits
        low, high = max(0, low - AROUND * down), min(last, high + AROUND * up)


def _first(last: int, found: Callable[[int], bool]) -> int:
    """The first step at which something is so, by halving; the last one if it never is."""
    low, high = 0, last
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if found(middle) else (middle + 1, high)
    return low


def _level(alpha: float, nulls: int) -> float:
    """The level that so many nulls can have, at most alpha."""
    level = math.floor(alpha * (nulls + 1) + 1e-9) / (nulls + 1)
    if level == 0:
        raise ValueError(
            f"alpha: expected at least {1 / (nulls + 1):.3g} for {nulls} nulls, with which no "
            f"p-value is smaller; got {alpha}. Use more nulls."
        )
    return level


def _model(sizes: np.ndarray, scale: Any, shape: Any, level: float) -> np.ndarray:
    start = scipy.stats.norm.ppf(level)
    return np.asarray(scipy.stats.norm.cdf(start + (sizes / scale) ** shape))


def _fitted(
    sizes: np.ndarray, hits: np.ndarray, level: float, target: float
) -> tuple[float, float, float, float]:
    """Scale, shape, minimum detectable effect and its error, from rejections (n, g).

    Sizes far beyond the target are left out: where a test is blind to gross errors, the curve
    comes down again.
    """
    enough = np.flatnonzero(hits.mean(0) >= target)
    some = slice(0, 1 + AROUND + (enough[0] if len(enough) else len(sizes)))
    start = float(scipy.stats.norm.ppf(level))
    reach = float(scipy.stats.norm.ppf(target)) - start
    curve = _Likelihood(np.log(sizes[some]), hits[:, some].astype(float), start, reach)
    guess = sizes[enough[0]] if len(enough) else sizes[-1] * RATIO
    best = scipy.optimize.minimize(curve.loss, np.array([math.log(guess), SHAPE[0]]), jac=True).x
    effect, shape = math.exp(best[0]), math.exp(best[1])
    return effect / reach ** (1 / shape), shape, effect, effect * curve.error(best)


@dataclass(frozen=True, eq=False)
class _Likelihood:
    """Rejections under a curve, by the logarithms of the effect at the target and of the shape.

    Args:
        sizes: Logarithms of sizes, with shape (g,).
        hits: Rejections, with shape (n, g).
        start: The normal score of the level.
        reach: That of the target, less it.
    """

    sizes: np.ndarray
    hits: np.ndarray
    start: float
    reach: float

    def parts(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rates (g,), densities (g,), and slopes (2, g) of the normal scores of rates."""
        shape, away = math.exp(parameters[1]), self.sizes - parameters[0]
        ratio = self.reach * np.exp(np.clip(shape * away, -50, 5))
        rates = np.clip(scipy.stats.norm.cdf(self.start + ratio), 1e-9, 1 - 1e-9)
        slopes = shape * ratio * np.stack([-np.ones_like(away), away])
        return rates, scipy.stats.norm.pdf(self.start + ratio), slopes

    def loss(self, parameters: np.ndarray) -> tuple[float, np.ndarray]:
        """Minus the logarithm of the likelihood with a prior of the shape, and its gradient."""
        rates, _, _ = self.parts(parameters)
        likelihood = self.hits * np.log(rates) + (1 - self.hits) * np.log(1 - rates)
        away = (parameters[1] - SHAPE[0]) / SHAPE[1]
        prior = np.array([0.0, away / SHAPE[1]])
        return 0.5 * away**2 - float(likelihood.sum()), prior - self.scores(parameters).sum(0)

    def scores(self, parameters: np.ndarray) -> np.ndarray:
        """Gradients (n, 2) of the repetitions' logarithmic likelihoods."""
        rates, density, slopes = self.parts(parameters)
        found: np.ndarray = (self.hits - rates) / (rates * (1 - rates)) * density @ slopes.T
        return found

    def error(self, parameters: np.ndarray) -> float:
        """The relative error of the effect; repetitions are clusters, whose sizes share truths."""
        rates, density, slopes = self.parts(parameters)
        weights = density**2 / (rates * (1 - rates))
        information = len(self.hits) * (slopes * weights) @ slopes.T
        inverse = np.linalg.pinv(information + np.diag([0.0, SHAPE[1] ** -2]))
        scores = self.scores(parameters) @ inverse
        return float(np.sqrt((scores[:, 0] ** 2).sum()))

r"""Power: what a test detects at x_o, as minimum detectable effects.

A large p-value is a comfort only if an error that matters would have made it small. Declare q the
truth, plant an error of known size s at the x of the calibration (:mod:`assay.interpret.errors`),
and run the same test with the same classifier, null and statistic at the same observations;
repeated with fresh truths this gives the rejection rate :math:`\pi(s)`. The **minimum detectable
effect** is the s with :math:`\pi(s)` = 0.8, from the monotone curve

.. math:: \pi(s) = \Phi\big(\Phi^{-1}(\alpha) + (s / c)^g\big),

which has the right level at s = 0, fitted by maximum likelihood to the rejections around it. All
sizes share the same truths in a repetition, and all observations the same planted data.

**Nulls are made once** for the moment test. In latent space they know neither q nor the truths,
and nothing is lost; for draws they are those of the same sets without an error, since exchanges of
a set in which one member of k + 1 was moved a little are nearly those of the set. The score test
is run on all its null copies at once, with the error planted near x_o alone. Other tests are made
again for every planted data set: whole, or, where its statistic is that of a single classifier,
with a few null copies that are pooled over all repetitions at the same size.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import scipy.optimize
import torch
from scipy.stats import norm
from torch import Tensor

from .._core import (
    Seed,
    check_count,
    check_executor,
    check_kind,
    check_share,
    cpu,
    over,
    own_terms,
    progress,
    seed_of,
    spread_over,
    stream,
    without_progress,
)
from ..diagnostics.local.base import ClosedForm, LocalTest, Planted
from ..results import Frozen, LocalResult, Readable, pvalue, rows_of
from ..samples.calibration import Draws, Observation
from ..samples.neighbourhoods import Robust
from .errors import Error, Planter, Shift, Wide, checked_errors

# Repetitions by default: of a test whose nulls are made once, in closed form, and of any other.
FAST, SLOW = 100, 40
# Null copies of a test in closed form, where it has fewer itself.
POOL = 499
# Null copies of each repetition where they are pooled.
EACH = 4
# More repetitions than anybody asks for.
MANY = 10**9


@dataclass(frozen=True, eq=False)
class Replay(ABC):
    """The same test, of so many null copies, at the same observations, on planted data."""

    words: ClassVar[str]
    repetitions: ClassVar[int] = SLOW
    # Steps of the ladder on either side of what is found.
    around: ClassVar[int] = 2

    planter: Planter
    observation: Observation
    nulls: int
    hypothesis: str

    @property
    def most(self) -> int:
        """The most repetitions there can be."""
        return MANY

    @property
    def workers(self) -> int:
        """Threads over which repetitions are spread; one where fits have threads of their own."""
        return 1

    @abstractmethod
    def run(self, error: Error, sizes: list[float], repetition: int) -> np.ndarray:
        """What one repetition gives at some sizes, with shape (g, o, c)."""

    def pvalues(self, runs: np.ndarray) -> np.ndarray:
        """P-values (n, o) from what n repetitions gave at one size, with shape (n, o, c)."""
        return np.asarray(runs[..., 0])


@dataclass(frozen=True, eq=False)
class Rerun(Replay):
    """Makes the test again, whole, with a seed of its own in each repetition."""

    words: ClassVar[str] = "whole test"

    test: LocalTest
    draws: Draws

    def run(self, error: Error, sizes: list[float], repetition: int) -> np.ndarray:
        """P-values (g, o, 1) at some sizes in one repetition."""
        results = self._results(error, sizes, repetition)
        return np.stack([pvalue(result.statistic, result.null)[:, None] for result in results])

    def _results(self, error: Error, sizes: list[float], repetition: int) -> list[LocalResult]:
        seed = seed_of(stream(self.test.seed, "replay", repetition))
        with without_progress():
            test = self.test.with_seed(seed)
            planted = (self.planter.plant(error, size, repetition) for size in sizes)
            return [test.refit_on(calibration).decided(self.draws) for calibration in planted]


@dataclass(frozen=True, eq=False)
class PooledRerun(Rerun):
    """Makes the test again with a few null copies, which are pooled over repetitions.

    Null statistics of one data set scatter around those of all like it; a network's depend on
    what there is to learn in its sets, so that they are pooled at each size by itself.
    """

    words: ClassVar[str] = "pooled nulls"

    def run(self, error: Error, sizes: list[float], repetition: int) -> np.ndarray:
        """Statistics, first, and null statistics, with shape (g, o, 1 + h)."""
        results = self._results(error, sizes, repetition)
        return np.stack([np.concatenate([r.statistic[:, None], r.null], 1) for r in results])

    def pvalues(self, runs: np.ndarray) -> np.ndarray:
        """P-values (n, o) of n repetitions, against the nulls of all of them."""
        null = np.moveaxis(runs[..., 1:], 1, 0).reshape(runs.shape[1], -1)
        return pvalue(runs[..., 0], np.broadcast_to(null, (len(runs), *null.shape)))


@dataclass(frozen=True, eq=False)
class Closed(Replay):
    """Scores planted truths in closed form, without making the test again.

    As many of its nulls as the test has are taken at random for each repetition, so that effects
    do not depend on a few of them.
    """

    words: ClassVar[str] = "closed form"
    repetitions: ClassVar[int] = FAST

    form: ClosedForm

    @property
    def workers(self) -> int:
        """Threads over which repetitions are spread."""
        return torch.get_num_threads() if self.form.near.device.type == "cpu" else 1

    def run(self, error: Error, sizes: list[float], repetition: int) -> np.ndarray:
        """P-values (g, o, 1) at some sizes in one repetition."""
        played, near = self.planter.played(repetition), self.form.near
        others = None if played.others is None else played.others[near]
        chance = stream(self.planter.seed, "nulls", repetition)
        which = cpu.randperm(self.form.null.shape[1], generator=chance)[: self.nulls]
        moved = (played.moved(error, size, self.planter.chance(repetition)) for size in sizes)
        statistics = self.form.statistics((truth[near] for truth in moved), others)
        return np.stack([pvalue(s, self.form.null[:, which]) for s in statistics])[..., None]


@dataclass(frozen=True, eq=False)
class AtOnce(Replay):
    """Scores all repetitions of a planted error at once."""

    words: ClassVar[str] = "planted near x_o alone"
    repetitions: ClassVar[int] = FAST
    around: ClassVar[int] = 1

    form: Planted
    done: dict[tuple[str, float], np.ndarray] = field(default_factory=dict)

    @property
    def most(self) -> int:
        """The most repetitions there can be."""
        return self.form.repetitions

    def run(self, error: Error, sizes: list[float], repetition: int) -> np.ndarray:
        """P-values (g, o, 1) at some sizes in one repetition."""
        return np.stack([self._all(error, size)[repetition] for size in sizes])[..., None]

    def _all(self, error: Error, size: float) -> np.ndarray:
        """P-values (n, o) of all repetitions."""
        if (error.name, size) not in self.done:
            moves = [self.planter.move(error, size * share) for share in error.fading]
            extent = 0 if len(moves) > 1 else -1
            self.done[error.name, size] = self.form.pvalues(moves, extent)
        return self.done[error.name, size]


def replay_of(test: LocalTest, draws: Draws, seed: int) -> Replay:
    """The cheapest way to run a test on planted data."""
    observation, planter = test.calibration.observation(draws), Planter.of(test.calibration, seed)
    at_once = test.planted(observation)
    if at_once is not None:
        return AtOnce(planter, observation, at_once.nulls, at_once.hypothesis, at_once)
    first = test.refit_on(planter.unplanted())
    form = first.closed_form(observation, POOL)
    if form is not None:
        return Closed(planter, observation, form.nulls, form.hypothesis, form)
    many = draws.many(observation)
    result = first.decided(many)
    claim = planter, observation, result.null.shape[-1], result.hypothesis
    if test.poolable:
        return PooledRerun(*claim, test.with_nulls(EACH), many)
    return Rerun(*claim, test, many)


ERRORS: tuple[Error, ...] = (Shift(), Wide())
# Sizes are steps of a ladder, four to a doubling.
RATIO = 2**0.25
# Repetitions by which a size is first looked at, and steps around the one that is found.
FIRST, AROUND, MOST_STEPS = 8, 2, 9
# Repetitions by which a power is known to a tenth of a percent: nobody asks for more.
MOST_REPETITIONS = 10**6
# Observations at which errors are planted where there are more, and how many speak for another.
MOST_PLANTED, NEIGHBOURS = 32, 3
# How steep a curve is expected to be, and how surely, in logarithms.
SHAPE = (math.log(1.7), 0.4)


@own_terms()
def power(
    test: LocalTest,
    draws: Any,
    errors: Sequence[Error] | Error = ERRORS,
    repetitions: int | None = None,
    seed: Seed = 0,
    *,
    alpha: float = 0.05,
    target: float = 0.8,
    executor: Executor | None = None,
) -> "PowerResult":
    """Minimum detectable effects of a test at one observation or many.

    No label is read, so a p-value may be looked at before or after; see
    :mod:`assay.interpret.errors` for what stands for the truth.

    Args:
        test: The test: :func:`assay.moments`, :func:`assay.lc2st`, :func:`assay.region`,
            :func:`assay.lhpd` or :func:`assay.lpit`.
        draws: The observations, with draws of q where the test needs them.
        errors: Errors to plant, such as :class:`~assay.interpret.errors.Shift`.
        repetitions: Repetitions at each size: by default 100 for the moment test and 40 for
            others. The relative error of an effect is about a half over the root of it.
        seed: An int or a generator. The same seed gives the same result.
        alpha: The level of the test.
        target: The probability of rejection at the effects that are reported.
        executor: Any :class:`concurrent.futures.Executor` that runs the repetitions of a test that
            is made again in each; numbers do not depend on it.

    Example:
        >>> z, x = torch.randn(2, 500, 2, generator=torch.Generator().manual_seed(0))
        >>> test = assay.moments(assay.Calibration.from_base(z, x))
        >>> result = power(test, Draws(torch.zeros(2)), Shift(), repetitions=20)
        >>> bool(0.2 < result["shift"].mde < 0.7)
        True
    """
    planting = Planting.of(test, draws, seed, alpha, target)
    check_executor(executor)
    planting = replace(planting, executor=executor)
    return planting(checked_errors(errors), repetitions)


@dataclass(frozen=True, eq=False)
class Planting:
    """A test at observations, made ready once for whatever errors are planted."""

    test: LocalTest
    engine: Replay
    alpha: float
    target: float
    spread: "Spread | None" = None  # to all observations, where errors are planted at some
    executor: Executor | None = None  # runs repetitions, where a test is made again in each

    @classmethod
    def of(
        cls, test: LocalTest, draws: Any, seed: Seed, alpha: float = 0.05, target: float = 0.8
    ) -> "Planting":
        """From what :func:`power` takes; errors are planted at all observations."""
        check_kind("test", test, "a local test such as moments(calibration)", LocalTest)
        draws = Draws.of(draws)
        if not check_share("alpha", alpha) < check_share("target", target):
            raise ValueError(
                f"target: expected a probability above alpha and below 1; got {target} at {alpha}."
            )
        return cls(test, replay_of(test, draws, seed_of(seed)), alpha, target)

    @classmethod
    def at_some(cls, test: LocalTest, draws: Draws, seed: Seed, alpha: float) -> "Planting":
        """The same; of very many observations errors are planted at some, which tell of others."""
        observation = test.calibration.observation(draws)
        if len(observation.x) <= MOST_PLANTED:
            return cls.of(test, draws, seed, alpha)
        spread = Spread.of(observation)
        made = cls.of(test, draws.subset(spread.rows), seed, alpha)
        return replace(made, spread=spread)

    def __call__(self, errors: Sequence[Error], repetitions: int | None = None) -> "PowerResult":
        """Minimum detectable effects of some errors."""
        engine = self.engine
        n = engine.repetitions if repetitions is None else repetitions
        n = min(check_count("repetitions", n, FIRST, MOST_REPETITIONS), engine.most)
        level, shaped = _level(self.alpha, engine.nulls), engine.observation.shaped
        found: list[PowerCurve] = []
        for error in errors:
            runs = _Runs(engine, error, level, executor=self.executor)
            found.append(_curve(runs, n, self.target, _like(error, found)))
        curves = tuple(shaped(curve) for curve in found)
        x, where = shaped(engine.observation.x.cpu().numpy()), {}
        if self.spread is not None:
            curves, x = tuple(map(self.spread.curve, curves)), self.spread.x.cpu().numpy()
            where = {"planted_at": self.spread.rows.tolist()}
        own = {"nulls": engine.nulls, "planted": engine.words, "repetitions": n, **where}
        settings = {**self.test.settings, **own}
        return PowerResult(curves, x, self.alpha, self.target, n, engine.hypothesis, settings)

    def detects(self, error: Error, size: float) -> np.ndarray:
        """Whether an error of one size is found as often as wanted, at each observation."""
        runs = _Runs(self.engine, error, _level(self.alpha, self.engine.nulls), [size])
        n = min(self.engine.repetitions, self.engine.most)
        with runs.bar:
            found: np.ndarray = self.engine.observation.shaped(runs.hits([0], n).mean(0)[0])
        if self.spread is not None:
            found = found[self.spread.nearest].min(1)
        return found >= self.target


@dataclass(frozen=True, eq=False)
class Spread:
    """What is found at some observations, told of all: the worst of the nearest few.

    Args:
        x: All observations, with shape (o, ...).
        rows: Those at which errors are planted, far from each other, with shape (s,).
        nearest: Which of these are nearest to each observation, with shape (o, 3).
    """

    x: Tensor
    rows: Tensor
    nearest: np.ndarray

    @classmethod
    def of(cls, observation: Observation) -> "Spread":
        """Chooses them one after the other, each farthest from those before."""
        places = Robust.fit(observation.features)(observation.features).double()
        rows = [int((places - places.mean(0)).square().sum(1).argmin())]
        apart = cpu.full((len(places),), torch.inf).to(places)
        while len(rows) < MOST_PLANTED:
            apart = torch.minimum(apart, (places - places[rows[-1]]).square().sum(1))
            rows.append(int(apart.argmax()))
        chosen = cpu.tensor(sorted(set(rows)), dtype=torch.int64)
        nearest = torch.cdist(places, places[chosen]).topk(NEIGHBOURS, largest=False).indices
        return cls(observation.x, chosen, nearest.cpu().numpy())

    def curve(self, curve: "PowerCurve") -> "PowerCurve":
        """The curve of all observations."""
        worst = curve.mde[self.nearest].argmax(1)
        which = self.nearest[np.arange(len(worst)), worst]
        names = [
            "rates",
            "mde",
            "mde_error",
            "scale",
            "shape",
            *["sizes"] * (curve.sizes.ndim - 1),
        ]
        return replace(curve, **{name: getattr(curve, name)[which] for name in names})


@dataclass(frozen=True, eq=False)
class PowerCurve(Frozen):
    """Rejection rates of one planted error, at one observation or at o of them.

    Args:
        error: The error.
        sizes: Sizes that were planted, with shape (g,); (o, g), some of them NaN, where they
            differ between observations.
        rates: Shares of repetitions in which the test rejected, with shape (g,) or (o, g).
        mde: The minimum detectable effect, with shape () or (o,): infinite where the largest
            size is not seen often enough, and the smallest size where that is seen too often.
        mde_error: Its standard error over repetitions; NaN where the effect is no such number.
        scale, shape: The parameters c and g of the fitted curve, shaped as the effect.
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

    def __getitem__(self, which: int) -> "PowerCurve":
        names = ("rates", "mde", "mde_error", "scale", "shape")
        one = replace(self, **{name: getattr(self, name)[which] for name in names})
        if self.sizes.ndim == 1:
            return one
        sizes = self.sizes[which]
        known = np.isfinite(sizes)
        return replace(one, sizes=sizes[known], rates=one.rates[known])

    @property
    def name(self) -> str:
        """The name of the error."""
        return self.error.name

    def fitted(self, sizes: np.ndarray) -> np.ndarray:
        """The fitted rejection rates, with shape (..., g) at sizes (g,)."""
        return _model(np.asarray(sizes), self.scale[..., None], self.shape[..., None], self.level)

    def words(self, share: float = 1.0) -> str:
        """What is detectable, at this share of the observations at least."""
        effects = np.sort(np.atleast_1d(self.mde))
        mde = float(effects[max(0, math.ceil(share * len(effects) - 1e-9) - 1)])
        least, most = self.error.sizes
        if math.isinf(mde):
            return f"not even {self.error.words(most)}"
        return f"less than {self.error.words(least)}" if mde <= least else self.error.words(mde)


@dataclass(frozen=True, eq=False, repr=False)
class PowerResult(Readable):
    """What a test detects at one observation, or at o of them.

    Args:
        curves: Rejection rates and the minimum detectable effect of each error.
        x: The observation, with shape (...,) or (o, ...).
        alpha, target: The level of the test, and the probability with which effects are detected.
        repetitions: Repetitions at each size.
        hypothesis: What the test tests.
        settings: The settings of the test, and how errors were planted.
    """

    curves: tuple[PowerCurve, ...]
    x: np.ndarray
    alpha: float
    target: float
    repetitions: int
    hypothesis: str
    settings: Mapping[str, Any]
    digits: ClassVar[int] = 2

    def __getitem__(self, name: str) -> PowerCurve:
        named = {curve.name: curve for curve in self.curves}
        if not isinstance(name, str) or name not in named:
            raise KeyError(f"expected one of {sorted(named)}; got {name!r}")
        return named[name]

    @property
    def weakest(self) -> "PowerResult":
        """One curve for each kind of error: that of the parameter where it is hardest to find."""
        kinds = dict.fromkeys(curve.error.kind for curve in self.curves)
        each = ([c for c in self.curves if c.error.kind == kind] for kind in kinds)
        return replace(self, curves=tuple(_weakest(curves) for curves in each))

    @property
    def labels(self) -> tuple[str, ...]:
        """The numbers of the observations."""
        return tuple(str(i) for i in range(self.curves[0].mde.size))

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each observation: every effect and its standard error."""
        pairs = [{c.name: c.mde, f"± {c.name}": c.mde_error} for c in self.curves]
        return rows_of({name: column for pair in pairs for name, column in pair.items()})

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        everywhere = ", ".join(curve.words() for curve in self.curves)
        how = f"with probability {self.target:g} at level {self.alpha:g}"
        if self.curves[0].mde.size == 1:
            return f"The test detects {everywhere}, {how}."
        half = ", ".join(curve.words(0.5) for curve in self.curves)
        return (
            f"At half of the {self.curves[0].mde.size} observations the test detects "
            f"{half}, {how}; at all of them, {everywhere}."
        )


def _weakest(curves: list[PowerCurve]) -> PowerCurve:
    """The curve with the largest effect at each observation."""
    if len(curves) == 1:
        return curves[0]
    worst = np.argmax([curve.mde for curve in curves], 0)
    if not worst.ndim:
        return replace(curves[int(worst)], error=curves[0].error.any)
    chosen = [curves[j][i] for i, j in enumerate(worst)]
    names = ("mde", "mde_error", "scale", "shape")
    columns: dict[str, Any] = {
        name: np.array([getattr(c, name) for c in chosen]) for name in names
    }
    width = max(len(curve.sizes) for curve in chosen)
    for name in ("sizes", "rates"):
        rows = [np.asarray(getattr(c, name), float) for c in chosen]
        pads = (np.full(width - len(row), np.nan) for row in rows)
        columns[name] = np.stack([np.append(*pair) for pair in zip(rows, pads, strict=True)])
    return replace(curves[0], error=curves[0].error.any, **columns)


# Steps of a ladder, their sizes, and the repetition that is to be run at them.
_Job = tuple[list[int], list[float], int]


class _Runs:
    """Rejections of one planted error at the steps of a ladder, as they are asked for."""

    def __init__(
        self,
        engine: Replay,
        error: Error,
        alpha: float,
        sizes: Sequence[float] | None = None,
        executor: Executor | None = None,
    ) -> None:
        self.executor = executor if isinstance(engine, Rerun) else None
        self.engine, self.error, self.alpha = engine, error, alpha
        self.sizes = _ladder(error) if sizes is None else np.array(sizes)
        self.done: dict[int, list[np.ndarray]] = {}
        self.bar = progress(desc=f"planting: {error.name}", unit="run")

    def around(self, effects: np.ndarray) -> tuple[int, int]:
        """The steps below and above effects (o,)."""
        low, high = np.searchsorted(self.sizes, [effects.min(), effects.max()])
        return max(0, int(low) - 1), min(len(self.sizes) - 1, int(high))

    def rates(self, step: int) -> np.ndarray:
        """Rejection rates (o,) at one step, from a few repetitions."""
        return np.asarray(self.hits([step], FIRST).mean(0)[0])

    def hits(self, steps: list[int], n: int) -> np.ndarray:
        """Rejections (n, g, o) at some steps in the first n repetitions."""
        have = [len(self.done.setdefault(step, [])) for step in steps]
        jobs = []
        for repetition in range(min(have), n):
            missing = [s for s, count in zip(steps, have, strict=True) if count <= repetition]
            jobs.append((missing, [float(self.sizes[step]) for step in missing], repetition))
        for missing, pieces in self._run(jobs):
            for step, piece in zip(missing, pieces, strict=True):
                self.done[step].append(piece)
        pvalues = [self.engine.pvalues(np.stack(self.done[step][:n])) for step in steps]
        return np.stack(pvalues, 1) <= self.alpha + 1e-9

    def _run(self, jobs: list[_Job]) -> list[tuple[list[int], np.ndarray]]:
        """Steps of each job with what they gave, in order."""
        work = partial(_ran, self.engine, self.error)
        if self.executor is not None:
            found = dict(over(self.executor, work, jobs))
            return [found[i] for i in range(len(jobs))]

        def run(job: _Job) -> tuple[list[int], np.ndarray]:
            done = work(job)
            self.bar.update(len(job[0]))
            return done

        with spread_over(min(self.engine.workers, max(1, len(jobs)))) as apply:
            return list(apply(run, jobs))


def _ran(engine: Replay, error: Error, job: _Job) -> tuple[list[int], np.ndarray]:
    """The steps of a job, and what its repetition gives there."""
    steps, sizes, repetition = job
    return steps, engine.run(error, sizes, repetition)


def _ladder(error: Error) -> np.ndarray:
    least, most = error.sizes
    count = math.ceil(math.log(most / least) / math.log(RATIO) - 1e-9)
    return np.asarray(np.minimum(least * RATIO ** np.arange(count + 1), most))


def _like(error: Error, found: list[PowerCurve]) -> np.ndarray | None:
    """The effects of the last error of the same kind, or else of any kind."""
    same = [curve for curve in found if curve.error.kind == error.kind] or found
    return same[-1].mde if same else None


def _curve(runs: _Runs, n: int, target: float, like: np.ndarray | None) -> PowerCurve:
    """Rejection rates around the size that is found as often as wanted, at all observations.

    Where all repetitions are run at once, sizes around the effects of another error are tried
    first.
    """
    engine, error, level = runs.engine, runs.error, runs.alpha
    with runs.bar:
        if like is None or not isinstance(engine, AtOnce):
            ends = _ends(runs, target, engine.around)
        else:
            ends = runs.around(like)
        steps, hits = _searched(runs, n, target, ends)
    sizes = runs.sizes[steps]
    fits = [_fitted(sizes, hits[..., i], level, target) for i in range(hits.shape[2])]
    scale, shape, mde, mde_error = np.array(fits).T
    least, most = runs.sizes[[0, -1]]
    never, always = mde > most * (1 + 1e-9), mde <= least
    mde = np.where(never, np.inf, np.maximum(mde, least))
    mde_error = np.where(never | always, np.nan, mde_error)
    return PowerCurve(error, sizes, hits.mean(0).T, mde, mde_error, scale, shape, level)


def _ends(runs: _Runs, target: float, around: int) -> tuple[int, int]:
    """The first and the last step at which an error is found as often as wanted, with room."""
    last = len(runs.sizes) - 1
    # With room around what is found, every other step is fine enough.
    steps = range(0, last, 2)
    low = bisect_left(steps, 1, key=lambda step: int((runs.rates(step) >= target).any()))
    high = bisect_left(steps, 1, key=lambda step: int((runs.rates(step) >= target).all()))
    return max(0, 2 * low - around), min(last, 2 * high + around)


def _searched(
    runs: _Runs, n: int, target: float, ends: tuple[int, int]
) -> tuple[list[int], np.ndarray]:
    """Steps that enclose the target at every observation, and rejections (n, g, o) there."""
    last, (low, high) = len(runs.sizes) - 1, ends
    while True:
        stride = -(-(high - low + 1) // MOST_STEPS)
        steps = sorted({*range(low, high, stride), high})
        hits = runs.hits(steps, n)
        seen = hits.mean(0) >= target
        down, up = low > 0 and seen[0].any(), high < last and not seen[-1].all()
        if not (down or up):
            return steps, hits
        low, high = max(0, low - AROUND * down), min(last, high + AROUND * up)


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
    return np.asarray(norm.cdf(norm.ppf(level) + (sizes / scale) ** shape))


def _fitted(
    sizes: np.ndarray, hits: np.ndarray, level: float, target: float
) -> tuple[float, float, float, float]:
    """Scale, shape, minimum detectable effect and its error, from rejections (n, g).

    Sizes far beyond the target are left out: where a test is blind to gross errors, the curve
    comes down again.
    """
    enough = np.flatnonzero(hits.mean(0) >= target)
    some = slice(0, 1 + AROUND + (enough[0] if len(enough) else len(sizes)))
    start = float(norm.ppf(level))
    gap = float(norm.ppf(target)) - start
    curve = _Likelihood(np.log(sizes[some]), hits[:, some].astype(float), start, gap)
    guess = sizes[enough[0]] if len(enough) else sizes[-1] * RATIO
    best = scipy.optimize.minimize(curve.loss, np.array([math.log(guess), SHAPE[0]]), jac=True).x
    effect, shape = math.exp(best[0]), math.exp(best[1])
    return effect / gap ** (1 / shape), shape, effect, effect * curve.error(best)


@dataclass(frozen=True, eq=False)
class _Likelihood:
    """Rejections under a curve, by the logarithms of the effect at the target and of the shape."""

    sizes: np.ndarray  # logarithms (g,)
    hits: np.ndarray  # rejections (n, g)
    start: float  # the normal score of the level
    gap: float  # that of the target, less it

    def parts(self, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rates (g,), densities (g,), and slopes (2, g) of the normal scores of rates."""
        shape, away = math.exp(parameters[1]), self.sizes - parameters[0]
        ratio = self.gap * np.exp(np.clip(shape * away, -50, 5))
        rates = np.clip(norm.cdf(self.start + ratio), 1e-9, 1 - 1e-9)
        slopes = shape * ratio * np.stack([-np.ones_like(away), away])
        return rates, norm.pdf(self.start + ratio), slopes

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
        return np.asarray((self.hits - rates) / (rates * (1 - rates)) * density @ slopes.T)

    def error(self, parameters: np.ndarray) -> float:
        """The relative error of the effect; repetitions are clusters, whose sizes share truths."""
        rates, density, slopes = self.parts(parameters)
        weights = density**2 / (rates * (1 - rates))
        information = len(self.hits) * (slopes * weights) @ slopes.T
        inverse = np.linalg.pinv(information + np.diag([0.0, SHAPE[1] ** -2]))
        scores = self.scores(parameters) @ inverse
        return float(np.sqrt((scores[:, 0] ** 2).sum()))

"""The one-liner: all tests that fit what was given, one local test that decides, one report.

.. code-block:: python

    found = assay.check(posterior, simulator=simulator, prior=prior, x_o=x_o)
    found = assay.check(posterior, theta, x, x_o)  # a flow, or anything with sample(x, n)
    found = assay.check(calibration, x_o=assay.Draws(x_o, theta_o))  # or samples made before
    print(found.verdict)
    found.report("report.html")

**Only one test sets the verdict**, :func:`assay.score`: it is exact for the neighbourhood of x_o,
takes draws of q or latents of a flow, looks at every parameter and pair, and is quick enough to
tell which errors it detects.

**The observation must not be chosen by looking at the parameters of the calibration.** x_o may be
any data, and may depend on the simulated x; if it is picked because of the theta near it, p-values
no longer hold.
"""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ._core import (
    ALL,
    MOST,
    Seed,
    Stages,
    check_count,
    check_kind,
    check_names,
    check_number,
    cpu,
    own_terms,
    seed_of,
    stream,
)
from .classifiers.base import Classifier
from .classifiers.mlp import MLP
from .classifiers.ridge import Ridge
from .diagnostics.average.coverage import coverage, tarp
from .diagnostics.average.sbc import sbc
from .diagnostics.local.base import LocalTest
from .diagnostics.local.lc2st import lc2st
from .diagnostics.local.local_effects import local_effects
from .diagnostics.local.lpit import lpit
from .diagnostics.local.moments import moments_apply
from .diagnostics.local.score import SHARES, score
from .interpret.effects import Effects, effects, effects_of
from .interpret.errors import FadingShift, Narrow, Shift, Wide
from .interpret.health import health
from .interpret.power import MOST_PLANTED, Planting, PowerResult
from .interpret.predictive import PredictiveResult, among
from .interpret.trust import REJECTED, Simulated, TrustMap, judged, judged_by
from .interpret.verdict import OVER_ALL_X, Verdict
from .io import save
from .nulls.exchange import Exchange
from .nulls.ranks import UniformRanks
from .report import TITLE, write
from .results import LocalResult, versions
from .samples.calibration import Calibration, Draws, Joint, Latents
from .samples.drawing import Drawing, draw_observed, drawn_at
from .samples.independence import autocorrelation
from .samples.neighbourhoods import Nearest, Support
from .samples.pairs import ENOUGH, Simulations, pairs_around
from .samples.posterior import (
    AnotherQ,
    Base,
    Embed,
    Flow,
    Posterior,
    as_posterior,
    check_sets,
    flow_to_base,
    latents,
)
from .samples.tables import Layout

# Draws of q at each x that the classifier sees, and the pairs that it is trained on at most.
FEW, MOST_TRAINED = 1, 10_000
# Draws of q at each x that ranks ask for.
FEWEST_DRAWS = 4
# The share of x that are near an observation.
NEAR = 0.2
# Numbers of null curves that are kept to be drawn, at most, and copies of which, at least.
MOST_KEPT, FEWEST_KEPT = 2_000_000, 39
# Simulated observations that are kept to be shown, and numbers of them, at most.
SHOWN, MOST_NUMBERS = 400, 100_000


@dataclass(frozen=True)
class Suite:
    """How a check is run.

    Args:
        alpha: The level.
        null: Null copies of the local test.
        classifier: What scores the draws at x_o, for PP-plots and pair plots; None for none.
        classifier_null: Its null copies.
        k: Draws of q that are made at each x where a posterior is given; more than that where
            there are many parameters.
        draws: Draws of q that are made at each x_o, likewise.
        pairs: Pairs that global tests look at, at most.
        context: Simulated observations at which q is judged too, at most, to see x_o in context.
        relevant: The size of error, in any single parameter, that must be detectable where q
            passes: 0.5 is half a standard deviation, or a width that is wrong by half.
    """

    alpha: float = 0.05
    null: int = 199
    classifier: Classifier | None = MLP()
    classifier_null: int = 49
    k: int = 16
    draws: int = 1000
    pairs: int = 1000
    context: int = 24
    relevant: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "alpha", check_number("alpha", self.alpha))
        if not 0 < self.alpha < 0.5:
            raise ValueError(f"alpha: expected a number between 0 and 0.5; got {self.alpha}.")
        least = {"null": 1, "classifier_null": 9, "k": 1, "draws": 1, "pairs": 10, "context": 0}
        for name, fewest in least.items():
            most = ALL if name in ("pairs", "context") else MOST
            object.__setattr__(self, name, check_count(name, getattr(self, name), fewest, most))
        object.__setattr__(self, "relevant", check_number("relevant", self.relevant))
        if self.classifier is not None:
            expected = "a classifier such as MLP(), or None"
            check_kind("classifier", self.classifier, expected, Classifier)
        if (1 + self.null) * self.alpha < 1 - 1e-9:
            raise ValueError(
                f"null: expected at least {int(np.ceil(1 / self.alpha)) - 1} for level "
                f"{self.alpha:g}; got {self.null}, with which nothing can be rejected."
            )

    @classmethod
    def quick(cls, **changes: Any) -> "Suite":
        """The quick part: the test that decides, effects and global tests, without a classifier.

        Example:
            >>> Suite.quick().classifier is None
            True
        """
        return cls(**{"classifier": None, "context": 0, **changes})


@dataclass(frozen=True, eq=False, repr=False)
class Check(Verdict):
    """What :func:`check` found; it can be printed, saved and reported."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves it to a file, to be read by :func:`assay.load`."""
        save(self, path)

    def report(self, path: str | os.PathLike[str], title: str = TITLE) -> None:
        """Writes one HTML file that works without a network, under a title."""
        write(self, path, title)

    def plot(self, which: int | str = 0) -> Any:
        """One matplotlib figure of what was found at an observation, by its number or label."""
        from .plots import summary  # matplotlib is needed by pictures alone

        return summary(self, which)


@own_terms()
def check(
    posterior: Any,
    theta: Any = None,
    x: Any = None,
    x_o: Any = None,
    suite: Suite | None = None,
    *,
    names: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    embed: Embed | None = None,
    seed: Seed = 0,
    simulator: Callable[[Any], Any] | None = None,
    prior: Any = None,
    simulations: int = 2000,
    executor: Executor | None = None,
    resume: str | os.PathLike[str] | None = None,
    drawing: Drawing | None = None,
) -> Check:
    """Checks q at one observation or many, by every test that fits what was given.

    Args:
        posterior: A posterior of a library that :mod:`assay.adapters` knows, a flow, an object
            with ``sample(x, n)`` or such a function; or a calibration, with draws of q or of
            latents, and then neither `theta` nor `x`.
        theta: Parameters of calibration pairs, with shape (n, m), that q was not trained on; or
            a data frame, a data set or a dict of arrays, whose names are taken over.
        x: Their observations, with shape (n, ...), or likewise.
        x_o: The observation, with shape (...,), or many, with shape (o, ...); or
            :class:`assay.Draws`, which a calibration with draws of q asks for. It may be chosen by
            looking at x, but not by looking at `theta`: p-values would be too small.
        suite: How the check is run.
        names: Names of the parameters.
        labels: Names of the observations.
        embed: Turns observations into features, as in :class:`assay.Calibration`.
        seed: An int or a generator. The same seed gives the same check.
        simulator: In place of `theta` and `x`, what makes them: a function of parameters (b, m)
            that returns observations (b, ...), or of one vector, see
            :class:`~assay.samples.pairs.Simulations`. Most simulations are then made around x_o,
            where they tell most.
        prior: The prior of the simulator's parameters.
        simulations: How many simulations are made. A tenth of them, at most 199 for each x_o,
            repeat a draw of q there, for :func:`assay.predictive`.
        executor: Any :class:`concurrent.futures.Executor` that runs them.
        resume: A folder in which they are kept, so that a check that was stopped goes on.
        drawing: How draws of q are made: time limits, failures and resumption.

    Example:
        >>> theta, noise = torch.randn(2, 400, 1, generator=torch.Generator().manual_seed(0))
        >>> narrow = lambda x, n: x / 2 + 0.3 * torch.randn(n, 1)
        >>> suite = Suite.quick()
        >>> found = check(narrow, theta, theta + noise, [0.5], suite, names=["mu"])
        >>> found.verdicts
        ('rejected',)
        >>> found.effects[0].sentence
        "Near x_o (nearest 20 %), q's sd of mu is 0... times the true sd (at x_o, ..."
    """
    suite = Suite() if suite is None else suite
    check_kind("suite", suite, "a Suite()", Suite)
    seed, start = seed_of(seed), time.perf_counter()
    with Stages("checking", _shares(suite)) as bar:
        bar.enter("drawing")
        source = _simulations(simulator, prior, simulations, executor, resume)
        drawing = Drawing() if drawing is None else drawing
        check_kind("drawing", drawing, "a Drawing(), or None", Drawing)
        how = _How(suite, embed, seed, source, drawing)
        given = _given(posterior, theta, x, x_o, how)
        words = _words(given, names, labels)
        parts = _Run(given, suite, seed, bar).parts(words[0])
    call = _call(posterior, suite, seed, source)
    asked = {"seed": seed, "suite": repr(suite), "call": call}
    when = {"date": time.strftime("%Y-%m-%d %H:%M"), "seconds": time.perf_counter() - start}
    settings = {**given.summary, **asked, **when, **versions()}
    said: dict[str, Any] = {"names": words[0], "labels": words[1], "alpha": suite.alpha}
    remarks = _remarks(given, words[1], parts["local"].outside)
    said |= {"predictive": given.predictive, "remarks": remarks}
    return Check(**parts, **said, settings=settings)


@dataclass(frozen=True, eq=False)
class _Given:
    """Samples as the tests need them."""

    local: Calibration  # what local tests look at: latents of a flow, or draws of q
    sets: Calibration  # pairs with draws of q, for global tests
    draws: Draws  # the observations, with a leading axis
    remarks: tuple[str, ...] = ()  # what is to be said of the draws
    parameters: Calibration | None = None  # the same as the local one, where that has coordinates
    nearest: Nearest | None = None  # what is near, if a simulator made pairs around x_o
    support: Support | None = None  # where they lie among simulated ones, if that was found out
    made: str = ""  # how a simulator made the pairs
    predictive: PredictiveResult | None = None  # x_o among simulations of a draw of q

    @property
    def where(self) -> Nearest:
        """What is near: near for q, as far as the draws of q there tell."""
        return self.nearest or Nearest(SHARES, self.sets.distance)

    @property
    def told(self) -> Calibration:
        """What errors are told from: latents of a flow, or draws of q in parameters."""
        return self.local if self.parameters is None else self.parameters

    @property
    def summary(self) -> dict[str, Any]:
        """Sizes, space and device of what the local test looks at."""
        own = {} if self.parameters is None else {"space": "latent coordinates"}
        return self.local.summary | own

    @property
    def whitened(self) -> bool:
        """Whether sets can be whitened, as moments and PITs ask for."""
        return moments_apply(self.told)


@dataclass(frozen=True, eq=False)
class _How:
    """How samples are made: the suite, the embedding and the seed."""

    suite: Suite
    embed: Embed | None
    seed: int
    source: Simulations | None = None
    drawing: Drawing = Drawing()


def _shares(suite: Suite) -> dict[str, float]:
    """The seconds that stages take at usual sizes, about."""
    shares = {"drawing": 2.0, "local test": 2.0, "detectable errors": 9.0}
    if suite.context:
        shares["detectable errors"] += 6.0
    if suite.classifier is not None:
        shares["classifier"] = 20.0
    return shares | {"global tests": 1.0}


def _simulations(
    simulator: Any, prior: Any, simulations: int, executor: Any, resume: Any
) -> Simulations | None:
    """What makes pairs; None without a simulator."""
    if simulator is not None:
        return Simulations(simulator, prior, simulations, executor, resume)
    idle = {"prior": prior, "executor": executor, "resume": resume}
    for name, value in idle.items():
        if value is not None:
            raise ValueError(
                f"{name}: expected None without a simulator; got {value!r}. Draws of q are kept "
                "by drawing=Drawing(resume=folder)."
            )
    return None


def _given(posterior: Any, theta: Any, x: Any, x_o: Any, how: _How) -> _Given:
    if x_o is None:
        raise ValueError("x_o: expected the observation to be checked; got None.")
    if how.source is not None:
        if theta is not None or x is not None or isinstance(posterior, Calibration):
            raise ValueError(
                "simulator: expected it in place of pairs; got both. Use check(posterior, "
                "simulator=simulator, prior=prior, x_o=x_o), or check(posterior, theta, x, x_o)."
            )
        return _from_simulator(posterior, _observed(x_o, how, None), how, how.source)
    if not isinstance(posterior, Calibration):
        pairs = _pairs(theta, x, how.embed)
        sampler, draws = _sampler(posterior, pairs), _observed(x_o, how, pairs.layout)
        return _from_posterior(sampler, sampler.flow, pairs.named_by(sampler), draws, how)
    if theta is not None or x is not None or how.embed is not None:
        raise ValueError(
            "theta: expected None with a calibration, which holds theta, x and embed; got "
            "more. Use check(calibration, x_o=Draws(x_o, theta_o))."
        )
    draws = _observed(x_o, how, posterior.layout)
    return _from_calibration(posterior, draws, how.suite, how.seed)


def _sampler(posterior: Any, pairs: Joint) -> Posterior:
    return as_posterior(posterior, pairs.x, pairs.layout)


def _observed(x_o: Any, how: _How, layout: Layout | None) -> Draws:
    """The observations, whose dicts are laid out as those of x."""
    if isinstance(x_o, Draws):
        return x_o
    return Draws(x_o, n=how.suite.draws, layout=layout if isinstance(x_o, Mapping) else None)


def _from_simulator(posterior: Any, draws: Draws, how: _How, source: Simulations) -> _Given:
    seed, made = how.seed, partial(pairs_around, k=how.suite.k, embed=how.embed)
    pairs = made(posterior, draws, source, drawing=how.drawing, seed=seed)
    some = pairs.prior.subset(_rows(len(pairs.prior), how.suite.pairs, seed))
    return _Given(
        *(pairs.near, some, pairs.draws, (*pairs.near.remarks, *pairs.prior.remarks)),
        nearest=pairs.where,
        support=pairs.support,
        made=pairs.sentence,
        predictive=among(*pairs.predicted, pairs.draws.x, how.embed),
    )


def _from_calibration(calibration: Calibration, draws: Draws, suite: Suite, seed: int) -> _Given:
    many, said = draws.many(calibration.observation(draws)), calibration.remarks
    some = calibration.subset(_rows(len(calibration), suite.pairs, seed))
    if isinstance(some, Latents):
        sets = some.sets(suite.k, stream(seed, "base"))
        own = Calibration(some.theta, some.x, sets[:, 1:], some.embed, layout=some.layout)
        return _Given(calibration, own, many, said)
    calibration.observe(many, seed)
    return _Given(calibration, some, many, said)


def _from_posterior(
    posterior: Posterior, flow: Flow | None, pairs: Joint, draws: Draws, how: _How
) -> _Given:
    suite, seed, n = how.suite, how.seed, len(pairs.theta)
    rows = _rows(n, n if flow is None else suite.pairs, seed)
    some = replace(pairs, theta=pairs.theta[rows], x=pairs.x[rows])
    # As many as the moment test asks for, and some more.
    k = max(suite.k, pairs.theta.shape[1] + ENOUGH)
    label = "x[{}]".format
    drawn = drawn_at(posterior, some.x, k, seed, "draws", how.drawing, lambda i: label(rows[i]))
    sets = some.with_draws(drawn, some.features_by(posterior, how.embed))
    many = draws.many(sets.observation(draws))
    if many.theta is None:
        at = draw_observed(posterior, many.x, draws.n, seed, how.drawing)
        many = replace(many, theta=at)
    if flow is None:
        return _with_coordinates(posterior, sets, many, suite, seed)
    # Some pairs have draws, which prove that the flow is one q; latents are those of all pairs.
    try:
        base = _proved(flow, sets, many, seed)
    except AnotherQ:
        given = _from_posterior(posterior, None, pairs, draws, how)
        return replace(given, remarks=(*given.remarks, _DRAWS_INSTEAD))
    z = flow_to_base(flow, pairs.theta.to(sets.theta), pairs.x.to(sets.x))
    local = Latents(
        *(z, pairs.x, None, sets.embed),
        names=sets.names,
        layout=sets.layout,
        base=base,
        flow=flow,
    )
    return _Given(local, sets, many, sets.remarks)


def _with_coordinates(
    posterior: Posterior, sets: Calibration, draws: Draws, suite: Suite, seed: int
) -> _Given:
    """Draws as they are, or in the coordinates in which they are nearly standard normal."""
    some = sets.subset(_rows(len(sets), suite.pairs, seed))
    given = _Given(sets, some, draws, sets.remarks)
    if posterior.coordinates is None:
        return given
    members = sets.members
    x = sets.x.repeat_interleave(members.shape[1], 0)
    z = latents(posterior.coordinates, members.flatten(0, 1), x).reshape(members.shape)
    # A truth at the end of a bounded parameter may have no finite latent.
    if not z.isfinite().all():
        return given
    local, said = sets.with_members(z[:, 0], z[:, 1:]), (*sets.remarks, _COORDINATES)
    return replace(given, local=local, parameters=sets, remarks=said)


_COORDINATES = (
    "Draws are compared with the truth in the latent coordinates of the network's flow, which is "
    "exact for the truncated q."
)
_DRAWS_INSTEAD = (
    "The flow's inverse does not belong to the draws that its sample(x, n) returns, as if these "
    "were truncated to the prior. q is what is sampled: it is tested with draws."
)


def _proved(flow: Flow, sets: Calibration, draws: Draws, seed: int) -> Base:
    """The base of a flow whose draws, in all sets, near observations and at them, belong to it."""
    latents = sets.to_latent(flow, seed)
    observation = latents.observe(draws, seed).observation
    theta, near = sets.members[:, 1:], sets.near(observation, NEAR)
    everywhere = torch.ones_like(near[:1])
    check_sets(flow, latents.base, theta, sets.x, torch.cat([everywhere, near]))
    each = cpu.eye(len(observation.x), dtype=torch.bool)
    check_sets(flow, latents.base, cast(Tensor, draws.theta).to(theta), observation.x, each)
    return latents.base


def _pairs(theta: Any, x: Any, embed: Embed | None) -> Joint:
    """Parameters (n, m) and observations (n, ...), or refuses."""
    if theta is None or x is None:
        raise ValueError(
            "theta, x: expected calibration pairs that the posterior was not trained on; got "
            "None. Use check(posterior, theta, x, x_o)."
        )
    return Joint.of(theta, x, embed)


def _rows(n: int, most: int, seed: int) -> np.ndarray:
    """At most so many of n rows, at random, in their order."""
    return np.sort(cpu.randperm(n, generator=stream(seed, "rows"))[:most].numpy())


@dataclass(frozen=True, eq=False)
class _Run:
    """The tests, one after the other."""

    given: _Given
    suite: Suite
    seed: int
    bar: Stages  # progress; the first stage was to make the samples

    def parts(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The parts of a check, by name."""
        self.bar.enter("local test")
        test = score(self.given.local, self.given.where, self.suite.null, self.seed)
        # Sums for planted errors serve the data too.
        planting = self._planting(test, self.given.draws)
        local = test(self.given.draws)
        if self.given.support is not None:
            local = replace(local, support=self.given.support)
        said = names if self.given.local.named else None
        parts: dict[str, Any] = {"local": local, "effects": self._effects(local, said)}
        parts["simulated"] = self._simulated()
        # A bar for each error in each parameter, one that fades, and the context.
        self.bar.enter("detectable errors", 3 * self.given.local.m + 2)
        parts |= self._judged(test, local, planting)
        rejected = np.array([word == REJECTED for word in parts["trust"].verdicts])
        parts["effects"] = parts["effects"].claimed_at(rejected)
        if self.suite.classifier is not None:
            self.bar.enter("classifier")
        parts |= self._classified(said, rejected)
        self.bar.enter("global tests")
        return parts | self._global(names)

    def _effects(self, local: LocalResult, names: tuple[str, ...] | None) -> Effects:
        """What is wrong near x_o, told by truths there, or by a fit over all sets."""
        calibration, draws, alpha = self.given.told, self.given.draws, self.suite.alpha
        if self.given.whitened:
            found = local_effects(calibration, draws, self.given.where, seed=self.seed)
            return effects_of(found, names, None, alpha, local.hypothesis, local.settings)
        null = Exchange(self.suite.classifier_null)
        return effects(lc2st(calibration, Ridge(), null, seed=self.seed)(draws), names)

    def _simulated(self) -> Simulated:
        """Some simulated observations, and which are near those that were asked."""
        calibration, where = self.given.local, self.given.where
        most = min(SHOWN, max(1, MOST_NUMBERS // calibration.x[0].numel()))
        rows = _rows(len(calibration), most, self.seed)
        x_o = calibration.observation(self.given.draws).features
        near = where.inside(calibration.features, x_o)[:, -1, rows]
        return Simulated(calibration.x[rows].cpu().numpy(), near.cpu().numpy(), where.shares[-1])

    def _judged(self, test: LocalTest, local: Any, planting: Planting) -> dict[str, Any]:
        every = range(self.given.local.m)
        detectable = planting([kind(j) for kind in (Shift, Wide, Narrow) for j in every])
        trust = judged(local, detectable.weakest, self.suite.relevant, self.suite.alpha)
        # An error that fades is told of, and need not be detectable.
        hardest = max(every, key=lambda j: float(detectable[f"shift {j}"].mde.max()))
        fading = planting([FadingShift(hardest)])
        both = replace(detectable, curves=(*detectable.curves, *fading.curves))
        context = self._context(test, detectable.weakest)
        return {"detectable": both, "trust": trust, "context": context}

    def _planting(self, test: LocalTest, draws: Draws) -> Planting:
        return Planting.at_some(test, draws, self.seed, self.suite.alpha)

    def _context(self, test: LocalTest, detectable: PowerResult) -> TrustMap | None:
        """Verdicts at observations of the calibration, which x alone chooses."""
        calibration = self.given.local
        # Pairs around x_o tell of no other place.
        if not self.suite.context or self.given.made:
            return None
        rows = _rows(len(calibration), self.suite.context, self.seed)
        there = Draws(calibration.x[rows])
        # The kind of error that is hardest to find stands for the others.
        hardest = max(detectable.curves, key=lambda curve: float(curve.mde.max()))
        kind = {kind.kind: kind for kind in (Shift, Wide, Narrow)}[hardest.error.kind]
        relevant = self.suite.relevant
        sharp = self._planting(test, there).detects(kind(0), relevant)
        return judged_by(test.decided(there), sharp, {}, relevant, self.suite.alpha)

    def _classified(self, names: tuple[str, ...] | None, rejected: np.ndarray) -> dict[str, Any]:
        if self.suite.classifier is None:
            return dict.fromkeys(("classifier", "classifier_effects", "health"))
        calibration = self.given.told
        if len(calibration) > MOST_TRAINED:
            calibration = calibration.subset(_rows(len(calibration), MOST_TRAINED, self.seed))
        if calibration.theta_q is not None:
            calibration = replace(calibration, theta_q=calibration.theta_q[:, :FEW])
        classifier, null = self.suite.classifier, self.suite.classifier_null
        test = lc2st(calibration, classifier, null, seed=self.seed)
        result = test(self.given.draws)
        believed = health(test.calibration, test.classifier, test.null, seed=self.seed)
        ratio = effects(result, names, exponent=believed.exponent).claimed_at(rejected)
        nulls = cast(np.ndarray, result.null_probabilities)
        kept = replace(result, null_probabilities=_drawn(nulls))
        return {"classifier": kept, "classifier_effects": ratio, "health": believed}

    def _global(self, names: tuple[str, ...]) -> dict[str, Any]:
        sets, seed = self.given.sets, self.seed
        if (sets.k or 0) < FEWEST_DRAWS:
            return dict.fromkeys(("pits", "sbc", "coverage", "tarp"))
        # Conditional PITs come from whitened sets, as moments do.
        pits = None
        if self.given.whitened:
            pits = lpit(self.given.told, null=self.suite.null, seed=seed)(self.given.draws)
            pits = replace(pits, null_curves=_drawn(pits.null_curves))
        # Adjusted for the quantities of all three.
        ranks = UniformRanks.enough(2 * sets.m + 1, OVER_ALL_X * self.suite.alpha)
        return {
            "pits": pits,
            "sbc": replace(sbc(sets, null=ranks, seed=seed), names=names),
            "coverage": replace(coverage(sets, null=ranks, seed=seed), names=names),
            "tarp": tarp(sets, null=ranks, seed=seed),
        }


def _drawn(nulls: np.ndarray) -> np.ndarray:
    """Null curves (o, H, ...) with the digits that can be seen; of very many, the first."""
    most = max(FEWEST_KEPT, MOST_KEPT * nulls.shape[1] // nulls.size)
    return nulls[:, :most].astype(np.float16)


def _remarks(given: _Given, labels: tuple[str, ...], outside: np.ndarray) -> tuple[str, ...]:
    """What is to be said of the samples; nothing of what lies outside."""
    remarks = [said for said in (given.made, *given.remarks) if said]
    if not given.whitened and given.local.k is not None:
        remarks.append(
            f"There are only {given.local.k} draws of q at each x: with {given.local.m + 2} or "
            "more, local PITs and tests over all x are run too, and effects are sharper."
        )
    if len(labels) > MOST_PLANTED:
        remarks.append(
            f"Errors were planted at {MOST_PLANTED} of the {len(labels)} observations, far from "
            "each other; the others are said to detect the largest size of the nearest three."
        )
    chain = autocorrelation(given.sets.members[:, 1:])
    if chain is not None:
        remarks.append(chain.words)
    strange = np.array(labels)[~np.array(_own(given)) & ~outside]
    if len(strange):
        remarks.append(
            f"The draws theta_o at {', '.join(strange)} lie outside those of q at the nearest x: "
            "are they draws of q there, and in the same units?"
        )
    return tuple(remarks)


def _own(given: _Given) -> list[bool]:
    """Whether a twentieth of the draws at x_o is in the range of q near it, in each parameter."""
    draws, theta_q = given.draws, given.told.theta_q
    observation = given.told.observation(draws)
    if theta_q is None or draws.theta is None:
        return [True] * len(observation.x)
    near = given.told.near(observation, NEAR)
    own = []
    for rows, theta in zip(near, draws.theta.to(theta_q), strict=True):
        there = theta_q[rows].flatten(0, 1)
        low, high = there.amin(0), there.amax(0)
        inside = ((theta >= low) & (theta <= high)).double().mean(0)
        own.append(bool((inside >= 0.05).all()))
    return own


def _words(
    given: _Given, names: Sequence[str] | None, labels: Sequence[str] | None
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Names of parameters and of observations."""
    m, o = given.local.m, len(given.draws.x)
    kind = "theta" if given.local.named else "latent"
    known = given.local.names if given.local.named else None
    return (
        _named(
            "names", known if names is None else names, m, tuple(f"{kind}[{j}]" for j in range(m))
        ),
        _named("labels", labels, o, tuple(f"x_o[{i}]" for i in range(o)) if o > 1 else ("x_o",)),
    )


def _named(
    argument: str, given: Sequence[str] | None, count: int, default: tuple[str, ...]
) -> tuple[str, ...]:
    return default if given is None else check_names(argument, given, count)


def _call(posterior: Any, suite: Suite, seed: int, source: Simulations | None) -> str:
    """The call that gives the same check again."""
    default = Suite()
    changed = {k: v for k, v in vars(suite).items() if v != getattr(default, k)}
    how = f", Suite({', '.join(f'{k}={v!r}' for k, v in changed.items())})" if changed else ""
    if source is not None:
        made = f"simulator=simulator, prior=prior, x_o=x_o, simulations={source.n}"
        how = how.replace(", Suite", ", suite=Suite")
        return f"assay.check(posterior, {made}{how}, seed={seed})"
    what = (
        f"calibration, x_o=draws{how.replace(', Suite', ', suite=Suite')}"
        if isinstance(posterior, Calibration)
        else f"posterior, theta, x, x_o{how}"
    )
    return f"assay.check({what}, seed={seed})"

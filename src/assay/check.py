"""The check: four questions about q at the observations, in order, and one of four verdicts.

1. **Is x_o like the simulations?** An exact p-value (:mod:`assay.answers.typical`).
2. **Is q right near x_o?** An exact test (:mod:`assay.local.score`).
3. **How far off can q be?** Simultaneous intervals (:mod:`assay.answers.bounds`).
4. **What can be done?** Each verdict ends with one next step (:mod:`assay.verdict`).

**x_o must not be chosen by looking at the parameters of the calibration.** It may be any data, and
may depend on the simulated x; if it is picked because of the theta near it, p-values do not hold.
What is found beside the four answers is context, and changes no verdict.
"""

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from html import escape
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ._support.inputs import check_count, check_kind, check_number, cpu, full_precision
from ._support.random import Seed, seed_of, stream
from ._support.work import Stages
from .answers.bounds import bounds
from .answers.predictive import rank_among
from .answers.typical import typical
from .average.coverage import coverage, tarp
from .average.ranks import UniformRanks
from .average.sbc import sbc
from .classifiers.base import Classifier
from .classifiers.mlp import MLP
from .data.draw import Drawing, Draws
from .data.guards import features_of
from .data.posterior import Embed
from .data.prepare import Samples, prepare
from .data.simulate import Simulations
from .local.score import MORE_COPIES, MOST_BORROWING, Score, score
from .printing import html_part
from .results import enough_nulls, versions
from .verdict import OVER_ALL_X, Surroundings, Verdict

# The stages of a check, and the seconds that they take, about; for progress.
STAGES = {"drawing from q": 2.0, "comparing x_o with simulations": 0.2, "testing q near x_o": 1.0}
STAGES |= {"bounding errors": 0.3, "looking at other x": 4.0}
# Simulated x for pictures, and numbers of all of them, at most; at how many of them q is tested,
# and with how many copies.
PICTURED, MOST_NUMBERS, TESTED, COPIES_ELSEWHERE = 400, 100_000, 16, 99
PAIRS_OVER_ALL_X, FEWEST_DRAWS = 1000, 4  # for tests over all x: at most, and draws at each x
PAIRS_OF_CLASSIFIER, COPIES_OF_CLASSIFIER = 10_000, 49  # at most, and relabelled copies
DEFAULT = MLP()


@full_precision()
def check(
    posterior: Any,
    theta: Any = None,
    x: Any = None,
    x_o: Any = None,
    *,
    simulator: Callable[[Any], Any] | None = None,
    prior: Any = None,
    simulations: int = 2000,
    names: Sequence[str] | None = None,
    labels: Sequence[str] | None = None,
    alpha: float = 0.05,
    tolerance: float = 0.5,
    near: Any = None,
    draws: int = 16,
    nulls: int = 199,
    classifier: Classifier | None = DEFAULT,
    embed: Embed | None = None,
    drawing: Drawing | None = None,
    executor: Executor | None = None,
    resume: str | os.PathLike[str] | None = None,
    seed: Seed = 0,
) -> "Check":
    """Checks q at one observation or many, by four questions.

    Args:
        posterior: A posterior of a library that :mod:`assay.adapters` knows, a flow, an object
            with ``sample(x, n)`` or such a function; or a calibration, with draws of q or of
            latents, and then neither `theta` nor `x`.
        theta: Parameters (n, m) of calibration pairs that q was not trained on; or a data frame,
            a data set or a dict of arrays, whose names are taken over.
        x: Their observations, (n, ...), or likewise.
        x_o: The observation, (...,), or many, (o, ...); or :class:`assay.Draws`, with draws of q
            there. It may be chosen by looking at x, but not by looking at `theta`.
        simulator: In place of `theta` and `x`, what makes them, mostly around x_o: a function of
            parameters (b, m) that returns observations (b, ...), or of one vector.
        prior: The prior of the simulator's parameters.
        simulations: How many simulations are made.
        names: Names of the parameters.
        labels: Names of the observations.
        alpha: The level at which q is rejected; intervals have 95 % whatever it is.
        tolerance: How far off q may be to pass. With 0.5 the intervals of every mean must be right
            within half a standard deviation of q, and of every width within a factor of 1.5.
        near: What is near x_o: a share of the simulations, or :class:`assay.Nearest`.
        draws: Draws of q that are made at each x.
        nulls: The number of relabelled copies that the test makes of the data.
        classifier: Gives the draws at x_o probabilities, for pictures; None leaves it out.
        embed: Turns observations into features, as in :class:`assay.Calibration`.
        drawing: How draws of q are made: time limits, failures and resumption.
        executor: Any :class:`concurrent.futures.Executor` that runs simulations.
        resume: A folder in which simulations are kept, so that a check that was stopped goes on.
        seed: An int or a generator. The same seed gives the same check.

    Example:
        >>> theta, noise = torch.randn(2, 1000, 1, generator=torch.Generator().manual_seed(0))
        >>> narrow = lambda x, n: x / 2 + 0.4 * torch.randn(n, 1)  # 0.4 in place of 0.7
        >>> found = check(narrow, theta, theta + noise, [0.5], names=["mu"], classifier=None)
        >>> found.verdicts, found.bounds.wrong[0][0].sentence
        (('rejected',), 'q is 1... times too narrow in mu (1... to ...)')
    """
    seed, start = seed_of(seed), time.perf_counter()
    alpha, tolerance = check_number("alpha", alpha), check_number("tolerance", tolerance)
    about: dict[str, Any] = {"prior": prior, "executor": executor, "resume": resume}
    check_arguments(alpha, nulls, classifier, about if simulator is None else {})
    source = None if simulator is None else Simulations(simulator, n=simulations, **about)
    how: Any = {"draws": draws, "embed": embed, "drawing": drawing, "seed": seed}
    how |= {"near": near, "names": names, "labels": labels}
    with Stages("checking", STAGES) as stage:
        stage.enter("drawing from q")
        # `pairs` with draws of q; `test_pairs`, the same in latents where q is a flow;
        # `prior_pairs`, without those around x_o; `observed`, the observations with draws there.
        data = prepare(posterior, theta, x, x_o, source, **how)
        if (embed := data.pairs.embed) is not None:
            embed = partial(features_of, embed=embed, layout=data.pairs.layout)
        stage.enter("comparing x_o with simulations")
        typical_x = typical(data.prior_pairs.x, data.observed.x, embed, seed)
        stage.enter("testing q near x_o")
        copies = enough_copies(len(data.labels), alpha, nulls)
        test = score(data.test_pairs, data.near, copies, seed)
        tested = test(data.observed.x)
        stage.enter("bounding errors")
        limits = bounds(data.pairs, data.observed.x, data.near, seed)
        stage.enter("looking at other x")
        context = {
            "predictive": data.predicted and rank_among(*data.predicted, data.observed.x, embed),
            "surroundings": surroundings_of(data, test, seed),
            "classified": None if classifier is None else classify(data, classifier, seed),
            **over_all_x(data, alpha, seed),
        }
    settings = data.test_pairs.summary | {"alpha": alpha, "tolerance": tolerance, "nulls": nulls}
    settings |= {"draws": draws, **({} if source is None else {"simulations": source.n})}
    settings |= {"seed": seed, "date": time.strftime("%Y-%m-%d %H:%M")}
    settings |= {"seconds": time.perf_counter() - start, **versions()}
    return Check(
        names=data.names,
        labels=data.labels,
        alpha=alpha,
        tolerance=tolerance,
        typical=typical_x,
        test=tested,
        bounds=replace(limits, names=data.names).without(typical_x.outside),
        remarks=data.remarks,
        settings=settings,
        **context,
    )


@dataclass(frozen=True, eq=False, repr=False)
class Check(Verdict):
    """What :func:`check` found: a verdict that can be printed, drawn, saved and reported."""

    def _repr_html_(self) -> str:
        return html_part(f"<pre>{escape(self.text())}</pre>")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Saves it to a file, to be read by :func:`assay.load`."""
        from .io import save

        save(self, path)

    def report(self, path: str | os.PathLike[str], title: str | None = None) -> None:
        """Writes one HTML file that works without a network, under a title."""
        from .report import write

        write(self, path, title)

    def plot(self, which: int | str = 0) -> Any:
        """One matplotlib figure of what was found at an observation, by its number or label."""
        from .plots import summary

        return summary(self, which)


def check_arguments(
    alpha: float, nulls: int, classifier: Any, of_simulator: dict[str, Any]
) -> None:
    """Refuses what makes no sense, and arguments that are of use with a simulator alone."""
    if not alpha < 0.5:
        raise ValueError(f"alpha: expected a number between 0 and 0.5; got {alpha}.")
    if check_count("nulls", nulls) < enough_nulls(1, alpha):
        raise ValueError(
            f"nulls: expected at least {enough_nulls(1, alpha)} for level {alpha:g}; got {nulls}, "
            "with which nothing can be rejected."
        )
    if classifier is not None:
        check_kind("classifier", classifier, "a classifier such as MLP(), or None", Classifier)
    for name, value in of_simulator.items():
        if value is not None:
            raise ValueError(
                f"{name}: expected None without a simulator; got {value!r}. Draws of q are kept "
                "by drawing=Drawing(resume=folder)."
            )


def enough_copies(o: int, alpha: float, nulls: int) -> int:
    """Copies with which any of o observations can be rejected at a level, once corrected."""
    # The test itself makes 999 where p is small, and corrects many observations by max-T.
    needed = enough_nulls(o, alpha) if o <= MOST_BORROWING else 0
    return max(nulls, needed) if needed > MORE_COPIES else nulls


def surroundings_of(data: Samples, test: Score, seed: int) -> Surroundings:
    """Some simulated observations, and p-values at a few of them."""
    most = min(PICTURED, max(TESTED, MOST_NUMBERS // data.prior_pairs.x[0].numel()))
    chance = stream(seed, "surroundings")
    rows = some_rows(len(data.prior_pairs), most, chance)
    tested = some_rows(len(rows), TESTED, chance)
    x, pvalue = data.prior_pairs.x[rows], np.full(len(rows), np.nan)
    features, centres = (data.pairs.observation(Draws(at)).features for at in (x, data.observed.x))
    # Near among all pairs, so that the share that is near is that of the check.
    near = data.near.inside(torch.cat([features, data.pairs.features]), centres)[:, : len(rows)]
    if data.pairs is data.prior_pairs:
        pvalue[tested] = test.pvalues(x[tested], COPIES_ELSEWHERE)
    return Surroundings(x.cpu().numpy(), near.cpu().numpy(), pvalue)


def classify(data: Samples, classifier: Classifier, seed: int) -> Any:
    """A classifier's probabilities at draws of q, with those of relabelled copies."""
    from .local.lc2st import lc2st  # trains networks, which a check may leave out

    rows = some_rows(len(data.test_pairs), PAIRS_OF_CLASSIFIER, stream(seed, "classifier"))
    pairs, observed = data.test_pairs.subset(rows), data.observed
    if pairs.theta_q is not None:
        pairs = replace(pairs, theta_q=pairs.theta_q[:, :1])
    elif pairs.flow is None:  # latents alone are evaluated on draws of their base
        observed = Draws(observed.x, n=observed.n)
    found = lc2st(pairs, classifier, COPIES_OF_CLASSIFIER, seed=seed)(observed)
    # As many digits as can be drawn.
    return replace(found, null_probabilities=np.asarray(found.null_probabilities, np.float16))


def over_all_x(data: Samples, alpha: float, seed: int) -> dict[str, Any]:
    """Tests over all x; none where q has too few draws at each x, or a parameter is constant."""
    draws = data.prior_pairs.theta_q  # (n, k, m)
    if draws is None or draws.shape[1] < FEWEST_DRAWS:
        return {}
    if (draws == draws[:1, :1]).all((0, 1)).any():
        return {}
    rows = some_rows(len(data.prior_pairs), PAIRS_OVER_ALL_X, stream(seed, "over all x"))
    pairs = data.prior_pairs.subset(rows)
    null = UniformRanks.enough(2 * pairs.m + 1, OVER_ALL_X * alpha)
    return {
        "sbc": replace(sbc(pairs, null=null, seed=seed), names=data.names),
        "coverage": replace(coverage(pairs, null=null, seed=seed), names=data.names),
        "tarp": tarp(pairs, null=null, seed=seed),
    }


def some_rows(n: int, most: int, generator: torch.Generator) -> Tensor:
    """At most so many of n rows, at random, in their order."""
    return cpu.randperm(n, generator=generator)[:most].sort().values

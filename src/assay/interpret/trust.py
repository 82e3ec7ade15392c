r"""The trust map: where q is rejected, where it passed, and where nothing is known.

A test at many observations says of each one of four things:

* **outside**: x_o lies outside the simulated observations; nothing else is said;
* **rejected**: the p-value, corrected for the number of observations, is at most alpha;
* **passed**: the plain p-value is above alpha, as many simulations as usual are near, and errors
  of q of the stated size, in any single parameter, are detected there with probability 0.8
  (:mod:`assay.interpret.power`);
* **inconclusive**: anything else. No error was found, but the test could not have found it, or
  what was found is not significant after the correction.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core import Seed, check_executor, check_kind, check_number, cpu, over, own_terms
from ..diagnostics.local.base import LocalTest
from ..results import Frozen, LocalResult, Readable, joined, rows_of
from ..samples.calibration import Draws
from ..samples.neighbourhoods import SHARE
from .errors import Error, Shift, Wide, checked_errors
from .power import Planting, PowerResult

VERDICTS = ("rejected", "passed", "inconclusive", "outside")
REJECTED, PASSED, INCONCLUSIVE, OUTSIDE = VERDICTS
# Fewer simulations near x_o than this share of what a typical x has are few.
FEW = 0.2
# Observations that are tested at a time.
TOGETHER = 128


@own_terms()
def trust_map(
    test: LocalTest,
    draws: Any,
    relevant: float = 0.5,
    errors: Sequence[Error] = (Shift(), Wide()),
    *,
    alpha: float = 0.05,
    seed: Seed = 0,
    executor: Executor | None = None,
) -> "TrustMap":
    """Says of every observation whether q is rejected there, passed, or neither.

    Args:
        test: A local test; only one with a local null makes a claim about each observation alone.
        draws: Many observations, with draws of q where the test needs them.
        relevant: The size of error that must be detectable where q passes: 0.5 is half a
            standard deviation of q, or a width that is wrong by half.
        errors: The errors that must be detectable.
        alpha: The level.
        seed: An int or a generator, for planted errors. These are planted at 32 observations,
            far from each other, if there are more: others take the worst of the nearest three.
        executor: Any :class:`concurrent.futures.Executor`, to which the test is sent with some
            observations at a time. Does not change results.

    Example:
        >>> z, x = torch.randn(2, 2000, 2, generator=torch.Generator().manual_seed(0))
        >>> wrong = assay.Calibration.from_base(z + (x[:, :1] < 0), x)  # on one side only
        >>> x_o = [[-1.5, 0.0], [1.5, 0.0], [9.0, 9.0]]
        >>> trust_map(assay.moments(wrong), x_o).verdicts
        ('rejected', 'passed', 'outside')
    """
    check_kind("test", test, "a local test such as moments(calibration)", LocalTest)
    check_number("relevant", relevant)
    check_executor(executor)
    draws = Draws.of(draws)
    observation = test.calibration.observation(draws)
    if observation.single:
        raise ValueError("draws: expected many observations, with a leading axis; got one.")
    draws = draws.many(observation)
    rows = cpu.arange(len(observation.x)).split(TOGETHER)
    found = dict(over(executor, test.decided, (draws.subset(some) for some in rows)))
    result = joined([found[i] for i in range(len(rows))])
    planting = Planting.at_some(test, draws, seed, alpha)
    return judged(result, planting(checked_errors(errors)), relevant, alpha)


def judged(
    result: LocalResult, detectable: PowerResult, relevant: float, alpha: float
) -> "TrustMap":
    """Verdicts from what a test found and what it detects, at the same observations."""
    sharp = np.all([curve.mde <= relevant for curve in detectable.curves], axis=0)
    effects = {curve.name: curve.mde for curve in detectable.curves}
    return judged_by(result, sharp, effects, relevant, alpha)


def judged_by(
    result: LocalResult,
    sharp: np.ndarray,
    effects: Mapping[str, np.ndarray],
    relevant: float,
    alpha: float,
) -> "TrustMap":
    """The same from where relevant errors are detected (o,), and effects (o,) by name if known."""
    few = few_near(result)
    words = np.where((result.pvalue > alpha) & sharp & ~few, PASSED, INCONCLUSIVE)
    words = np.where(result.adjusted <= alpha, REJECTED, words)
    return TrustMap(
        verdicts=tuple(map(str, np.where(result.outside, OUTSIDE, words))),
        x=result.x,
        pvalue=result.pvalue,
        adjusted=result.adjusted,
        effects=np.array(list(effects.values())).reshape(len(effects), len(result.pvalue)).T,
        errors=tuple(effects),
        outside=result.outside,
        relevant=relevant,
        alpha=alpha,
        hypothesis=result.hypothesis,
        settings={**result.settings, "adjusted by": result.adjustment.words},
    )


def few_near(result: LocalResult) -> np.ndarray:
    """Whether far fewer simulations are near observations (o,) than near a typical x."""
    if result.support is None:
        return np.zeros(result.statistic.shape, bool)
    return np.asarray(result.support.pairs < FEW * SHARE * result.settings["n"])


@dataclass(frozen=True, eq=False, repr=False)
class TrustMap(Readable):
    """Verdicts at o observations.

    Args:
        verdicts: A word for each observation: rejected, passed, inconclusive or outside.
        x: The observations, with shape (o, ...).
        pvalue, adjusted: P-values, plain and adjusted for the number of observations, (o,).
        effects, errors: Minimum detectable effects, with shape (o, e), and names of the e errors.
        outside: Whether an observation lies outside the simulated observations, with shape (o,).
        relevant: The size of error that must be detectable where q passes.
        alpha: The level.
        hypothesis: What a small p-value speaks against.
        settings: The settings and versions that made it.
    """

    verdicts: tuple[str, ...]
    x: np.ndarray
    pvalue: np.ndarray
    adjusted: np.ndarray
    effects: np.ndarray
    errors: tuple[str, ...]
    outside: np.ndarray
    relevant: float
    alpha: float
    hypothesis: str
    settings: Mapping[str, Any]

    @property
    def labels(self) -> tuple[str, ...]:
        """The numbers of the observations, and their verdicts."""
        return tuple(f"{i} {verdict}" for i, verdict in enumerate(self.verdicts))

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each observation."""
        columns = {"p-value": self.pvalue, "adjusted": self.adjusted}
        columns |= dict(zip(self.errors, self.effects.T, strict=True))
        return rows_of(columns)

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        counts = ", ".join(f"{self.verdicts.count(word)} {word}" for word in VERDICTS)
        kinds = f" ({', '.join(self.errors)})" if self.errors else ""
        return (
            f"Of {len(self.x)} observations: {counts}. Where q passed, errors of size "
            f"{self.relevant:g}{kinds} are detected with probability 0.8. "
            f"Corrected by {self.settings['adjusted by']}."
        )


@dataclass(frozen=True, eq=False)
class Simulated(Frozen):
    """Some simulated observations, to see o observations among them, and which are near.

    Args:
        x: Some of the simulated observations, at random, with shape (s, ...).
        near: Which of them are used as near each observation, with shape (o, s).
        share: The share of all simulations that is near.
    """

    x: np.ndarray
    near: np.ndarray
    share: float

r"""The trust map: where q is rejected, where it can be trusted, and where nothing is known.

A test at many observations says of each one of three things:

* **rejected**: the p-value, adjusted for the number of observations, is at most alpha;
* **trusted**: the plain p-value is above alpha, x_o lies inside the simulated observations, and
  errors of q of the stated size are detectable there with probability 0.8
  (:mod:`assay.interpret.power`);
* **untested**: anything else. Nothing was found, but little could have been, or what was found
  does not outweigh the number of observations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._core import Seed, check_number
from ..diagnostics.local.base import LocalTest
from ..results import LocalResult, Readable, rows_of
from .errors import Error, Shift, Wide
from .power import PowerResult, power

REJECTED, UNTESTED, TRUSTED = VERDICTS = ("rejected", "untested", "trusted")


def trust_map(
    test: LocalTest,
    draws: Any,
    relevant: float = 0.5,
    errors: Sequence[Error] = (Shift(), Wide()),
    *,
    alpha: float = 0.05,
    seed: Seed = 0,
) -> "TrustMap":
    """Says of every observation whether q is rejected, trusted or untested there.

    Args:
        test: A local test; only one with a local null makes a claim about each observation alone.
        draws: Many observations, with draws of q where the test needs them.
        relevant: The size of error that must be detectable where q is trusted: 0.5 is half a
            standard deviation of q, or a width that is wrong by half.
        errors: The errors that must be seen.
        alpha: The level.
        seed: An int or a generator, for planted errors.

    Example:
        >>> z, x = torch.randn(2, 2000, 2, generator=torch.Generator().manual_seed(0))
        >>> wrong = assay.Calibration.from_base(z + (x[:, :1] < 0), x)  # on one side only
        >>> x_o = [[-1.5, 0.0], [1.5, 0.0], [9.0, 9.0]]
        >>> trust_map(assay.moments(wrong), x_o).verdicts
        ('rejected', 'trusted', 'untested')
    """
    if not isinstance(test, LocalTest):
        raise TypeError(
            f"test: expected a local test such as moments(calibration); got {type(test).__name__}."
        )
    check_number("relevant", relevant)
    result = test.decided(draws)
    if not result.many:
        raise ValueError("draws: expected many observations, with a leading axis; got one.")
    detectable = power(test, draws, errors, seed=seed, alpha=alpha)
    return judged(result, detectable, relevant, alpha)


def judged(
    result: LocalResult, detectable: PowerResult, relevant: float, alpha: float
) -> "TrustMap":
    """Verdicts from what a test found and what it detects, at the same observations."""
    sharp = np.all([curve.mde <= relevant for curve in detectable.curves], axis=0)
    trusted = (result.pvalue > alpha) & sharp & ~result.outside
    words = np.where(trusted, TRUSTED, UNTESTED)
    return TrustMap(
        verdicts=tuple(map(str, np.where(result.adjusted <= alpha, REJECTED, words))),
        x=detectable.x,
        pvalue=result.pvalue,
        adjusted=result.adjusted,
        effects=np.stack([curve.mde for curve in detectable.curves], 1),
        errors=tuple(curve.name for curve in detectable.curves),
        outside=result.outside,
        relevant=relevant,
        alpha=alpha,
        hypothesis=result.hypothesis,
        settings={**result.settings, "adjusted by": result.adjustment.words},
    )


@dataclass(frozen=True, eq=False, repr=False)
class TrustMap(Readable):
    """Verdicts at o observations.

    Args:
        verdicts: A word for each observation: rejected, trusted or untested.
        x: The observations, with shape (o, ...).
        pvalue, adjusted: P-values, plain and adjusted for the number of observations, (o,).
        effects, errors: Minimum detectable effects, with shape (o, e), and names of the e errors.
        outside: Whether an observation lies outside the simulated observations, with shape (o,).
        relevant: The size of error that must be detectable where q is trusted.
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
        rejected, untested, trusted = (self.verdicts.count(word) for word in VERDICTS)
        return (
            f"Of {len(self.x)} observations q is rejected at {rejected}, trusted at {trusted}, "
            f"where errors of size {self.relevant:g} ({', '.join(self.errors)}) would have been "
            f"seen, and untested at {untested}. Adjusted by {self.settings['adjusted by']}."
        )

r"""The trust map: where q is rejected, where it can be trusted, and where nothing is known.

A test at many observations says of each one of three things:

* **rejected**: the p-value, adjusted for the number of observations, is at most alpha;
* **trusted**: the plain p-value is above alpha, x_o lies inside the calibration cloud, and errors
  of q no larger than stated would have been seen there with probability 0.8 (:mod:`assay.power`);
* **untested**: anything else. Nothing was found, but little could have been, or what was found
  does not outweigh the number of observations.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .door import check_kind, check_number
from .planted import Error, Shift, Wide
from .power import PowerResult, Repeatable, power
from .randomness import Seed
from .results import LocalTested, _freeze, _html, _text
from .samples import Draws

__all__ = ["REJECTED", "TRUSTED", "UNTESTED", "TrustMap", "judged", "trust_map"]

REJECTED, UNTESTED, TRUSTED = -1, 0, 1
NAMES = {REJECTED: "rejected", UNTESTED: "untested", TRUSTED: "trusted"}


def trust_map(
    test: Repeatable,
    draws: Draws,
    smallest: float = 0.5,
    errors: Sequence[Error] = (Shift(), Wide()),
    *,
    alpha: float = 0.05,
    seed: Seed = 0,
) -> "TrustMap":
    """Says of every observation whether q is rejected, trusted or untested there.

    Args:
        test: A local test; only one with a local null makes a claim about each place alone.
        draws: Many observations, with draws of q where the test needs them.
        smallest: The size of error that must not go unseen where q is trusted: 0.5 is half a
            standard deviation of q, or a width that is wrong by half.
        errors: The errors that must be seen.
        alpha: The level.
        seed: An int or a generator, for planted errors.

    Example:
        >>> z, x = torch.randn(2, 2000, 2, generator=torch.Generator().manual_seed(0))
        >>> wrong = assay.Calibration.from_base(z + (x[:, :1] < 0), x)  # on one side only
        >>> places = Draws([[-1.5, 0.0], [1.5, 0.0], [9.0, 9.0]])
        >>> trust_map(assay.moments(wrong), places).names
        ('rejected', 'trusted', 'untested')
    """
    check_kind("test", test, "a test such as moments(calibration)", "again", "calibration")
    check_kind("draws", draws, "Draws(x, theta)", "x", "theta")
    check_number("smallest", smallest)
    result: LocalTested = test(draws)
    if not result.statistic.ndim:
        raise ValueError("draws: expected many observations, with a leading axis; got one.")
    seen = power(test, draws, errors, seed=seed, alpha=alpha)
    return judged(result, seen, smallest, alpha)


def judged(result: Any, seen: PowerResult, smallest: float, alpha: float) -> "TrustMap":
    """Verdicts from what a test found and what it would have seen, at the same observations.

    Args:
        result: What a local test found at many observations.
        seen: What it would have seen there.
        smallest: The size of error that must not go unseen where q is trusted.
        alpha: The level.
    """
    assert result.surroundings is not None
    return TrustMap(
        verdicts=_verdicts(result, seen, smallest, alpha),
        x=seen.x,
        pvalue=result.pvalue,
        adjusted=result.adjusted,
        effects=np.stack([curve.mde for curve in seen.curves], 1),
        errors=tuple(curve.error.name for curve in seen.curves),
        outside=result.surroundings.outside,
        smallest=smallest,
        alpha=alpha,
        hypothesis=result.hypothesis,
        settings={**result.settings, "adjusted by": result.family.words},
    )


def _verdicts(result: LocalTested, seen: PowerResult, smallest: float, alpha: float) -> np.ndarray:
    """Verdicts (o,)."""
    assert result.surroundings is not None
    sharp = np.all([curve.mde <= smallest for curve in seen.curves], axis=0)
    trusted = (result.pvalue > alpha) & sharp & ~result.surroundings.outside
    found = np.where(trusted, TRUSTED, UNTESTED)
    return np.where(result.adjusted <= alpha, REJECTED, found)


@dataclass(frozen=True, eq=False, repr=False)
class TrustMap:
    """Verdicts at o observations.

    Args:
        verdicts: -1 where q is rejected, 1 where it is trusted, 0 where it is untested, (o,).
        x: The observations, with shape (o, ...).
        pvalue: P-values, with shape (o,).
        adjusted: P-values adjusted for the number of observations, with shape (o,).
        effects: Minimum detectable effects, with shape (o, e).
        errors: Names of the e errors.
        outside: Whether an observation lies outside the calibration cloud, with shape (o,).
        smallest: The size of error that must not go unseen where q is trusted.
        alpha: The level.
        hypothesis: What a small p-value speaks against.
        settings: The settings and versions that made it.
    """

    verdicts: np.ndarray
    x: np.ndarray
    pvalue: np.ndarray
    adjusted: np.ndarray
    effects: np.ndarray
    errors: tuple[str, ...]
    outside: np.ndarray
    smallest: float
    alpha: float
    hypothesis: str
    settings: Mapping[str, Any]

    def __post_init__(self) -> None:
        _freeze(self)

    @property
    def names(self) -> tuple[str, ...]:
        """The verdicts in words."""
        return tuple(NAMES[int(verdict)] for verdict in self.verdicts)

    @property
    def labels(self) -> tuple[str, tuple[str, ...]]:
        """What the rows of the table are, and their names."""
        return "x_o", tuple(f"{i} {name}" for i, name in enumerate(self.names))

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each observation."""
        columns = {"p-value": self.pvalue, "adjusted": self.adjusted}
        columns |= dict(zip(self.errors, self.effects.T, strict=True))
        return [{k: float(v[i]) for k, v in columns.items()} for i in range(len(self.x))]

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        rejected, untested, trusted = (int((self.verdicts == v).sum()) for v in sorted(NAMES))
        return (
            f"Of {len(self.x)} observations q is rejected at {rejected}, trusted at {trusted}, "
            f"where errors of size {self.smallest:g} ({', '.join(self.errors)}) would have been "
            f"seen, and untested at {untested}. Adjusted by {self.settings['adjusted by']}."
        )

    def __repr__(self) -> str:
        return _text(self.labels, self.table, self.hypothesis, self.sentence)

    def _repr_html_(self) -> str:
        return _html(self.labels, self.table, self.hypothesis, self.sentence)

r"""What every test returns: a statistic with its null inside, so that nothing needs to be rerun.

A result is frozen, and so are its arrays; it has a p-value, a table, a sentence to quote, HTML for
notebooks and :meth:`Result.to_frame`. ``result[i]`` is one of many observations (or quantities)
and ``len(result)`` their number. Arrays have a leading axis of length o for o observations, and
none for a single one. P-values of several observations are adjusted for their number.
"""

import math
import platform
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self

import numpy as np
import scipy.special
import torch

from . import __version__
from ._support.inputs import printable, type_name
from .printing import as_frame, html_table, number, rows_of, text_table, wrapped

# Levels of q's regions and central intervals whose true coverage is estimated.
LEVELS = (0.5, 0.9, 0.95)
# What adjusted p-values control.
AT_MOST = "the probability of any false rejection is at most the level"
WHICHEVER = "whichever of the local hypotheses are true"


def read_only(array: Any) -> np.ndarray:
    """A copy that cannot be written."""
    own = np.array(array)
    own.setflags(write=False)
    return own


class Settings(dict[str, Any]):
    """The settings of a result: a dict that can be read, and not written.

    Example:
        >>> Settings(n=100)["n"]
        100
    """

    def _refuse(self, *given: Any, **more: Any) -> Any:
        raise TypeError(
            "settings: expected to be read, since they say what made the result; got a change. "
            "Take dict(result.settings)."
        )

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __reduce__(self) -> Any:
        return type(self), (dict(self),)


class Frozen:
    """A dataclass with read-only copies of its arrays and settings, and printable names."""

    # Fields with arrays that do not belong to single observations.
    shared: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray | np.generic):
                object.__setattr__(self, name, read_only(value))
            elif isinstance(value, dict):
                object.__setattr__(self, name, Settings(value))
            elif name in ("names", "labels") and isinstance(value, tuple):
                object.__setattr__(self, name, tuple(printable(f"{one}") for one in value))

    def _take(self, which: Any) -> Self:
        """The same with the rows at some observations of arrays, and of parts with rows."""
        whole: Any = self
        names = [field.name for field in fields(whole) if field.name not in self.shared]
        parts = {name: getattr(self, name) for name in names}
        rows = {k: v[which] for k, v in parts.items() if isinstance(v, np.ndarray | Rowed)}
        return replace(whole, **rows)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Result(Frozen, ABC):
    """What every test returns: statistics, their nulls, p-values and a sentence to quote.

    Args:
        statistic: The statistics, with shape () or (o,), a row for each observation or quantity.
        null: Their values for the null copies, with shape (H,) or (o, H).
        hypothesis: What a small p-value speaks against.
        settings: The settings and versions that made it.
    """

    statistic: np.ndarray
    null: np.ndarray
    hypothesis: str
    settings: Mapping[str, Any]
    # What the rows of the table are.
    heading: ClassVar[str] = "x_o"

    @property
    @abstractmethod
    def sentence(self) -> str:
        """One sentence to quote."""

    @abstractmethod
    def _row(self, i: int) -> Self:
        """The i-th row alone."""

    @property
    def pvalue(self) -> np.ndarray:
        """The exact Monte-Carlo p-value, shaped as the statistic."""
        return pvalue(self.statistic, self.null)

    @property
    def pvalue_error(self) -> np.ndarray:
        """The Monte-Carlo standard error of the p-value, due to the finite number of nulls."""
        return pvalue_error(self.pvalue, self.null.shape[-1])

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the rows of the table."""
        return tuple(str(i) for i in range(np.size(self.statistic)))

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each statistic: its value, its null, its p-value and what else belongs."""
        return rows_of(self._columns)

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        return {
            "statistic": self.statistic,
            "null 95 %": np.quantile(self.null, 0.95, axis=-1),
            "p-value": self.pvalue,
            "± MC error": self.pvalue_error,
        }

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame; a list of dicts where pandas is not installed."""
        pairs = zip(self.labels, self.table, strict=True)
        return as_frame([{self.heading: label, **row} for label, row in pairs])

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, which: int | str) -> Self:
        """The result at one of many observations, or for one of many quantities."""
        return self._row(position(self.labels, which))

    def __repr__(self) -> str:
        lines = text_table(self.heading, self.labels, self.table)
        return "\n".join([*lines, wrapped(f"H0: {self.hypothesis}."), wrapped(self.sentence)])

    def _repr_html_(self) -> str:
        caption = f"H0: {self.hypothesis}."
        return html_table(self.heading, self.labels, self.table, caption, self.sentence)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LocalResult(Result):
    """What a test at observations returns, with shape () for one or (o,) for many.

    Args:
        x: The observation, with shape (...,) or (o, ...).
        adjustment: How p-values at many observations are adjusted for their number.
    """

    x: np.ndarray
    adjustment: "Adjustment"

    @property
    def many(self) -> bool:
        """Whether there is a leading axis of observations."""
        return bool(self.statistic.ndim)

    @property
    def adjusted(self) -> np.ndarray:
        """P-values adjusted for the number of observations, as :attr:`adjustment` says."""
        return self.adjustment(self.statistic, self.null) if self.many else self.pvalue

    @property
    def fdr(self) -> np.ndarray:
        """P-values adjusted for the false discovery rate, see :func:`false_discovery`."""
        return false_discovery(self.pvalue)

    def _row(self, i: int) -> Self:
        return self._take(i) if self.many else self

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        columns = super()._columns
        return columns | {"adjusted": self.adjusted} if self.many else columns

    @property
    def _counted(self) -> str:
        """At how many observations the p-value is small."""
        low = int((self.pvalue <= 0.05).sum())
        return f"At {low} of {self.pvalue.size} observations the p-value is at most 0.05"

    @property
    def _adjusted_by(self) -> str:
        return f"Corrected by {self.adjustment.words}.{self._warning}"

    @property
    def _warning(self) -> str:
        """A sentence where there are too few nulls to correct p-values."""
        few = too_few(self.statistic.size, self.null.shape[-1])
        return few if isinstance(self.adjustment, Holm) else ""


class Adjustment(ABC):
    """How p-values at many observations are adjusted for their number."""

    # The method, what it controls, and when.
    words: ClassVar[str]

    @abstractmethod
    def __call__(self, statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
        """Adjusted p-values (o,) from statistics (o,) and their nulls (o, H)."""


@dataclass(frozen=True)
class MaxT(Adjustment):
    """Step-down over nulls that all observations share, each with its own local hypothesis."""

    words: ClassVar[str] = f"max-T step-down over the same nulls; {AT_MOST}, {WHICHEVER}"

    def __call__(self, statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
        """Adjusted p-values (o,), see :func:`step_down`."""
        return step_down(statistic, null)


@dataclass(frozen=True)
class GlobalMaxT(MaxT):
    """Step-down over nulls that all observations share, under one global hypothesis."""

    words: ClassVar[str] = (
        f"max-T step-down over the same nulls; {AT_MOST} if q is right at almost every x"
    )


@dataclass(frozen=True)
class Holm(Adjustment):
    """Holm's step-down, where every observation has nulls of its own."""

    words: ClassVar[str] = f"Holm's step-down; {AT_MOST}, {WHICHEVER}"

    def __call__(self, statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
        """Adjusted p-values (o,), see :func:`holm`."""
        return holm(pvalue(statistic, null))


class Rowed(Frozen):
    """A part of a result with a leading axis of observations in all of its arrays."""

    def __getitem__(self, which: Any) -> Self:
        return self._take(which)


def position(labels: Sequence[str], which: int | str) -> int:
    """The place of a row, by its number or its name."""
    if isinstance(which, str):
        if which not in labels:
            raise KeyError(f"expected one of {', '.join(labels)}; got {which!r}")
        return list(labels).index(which)
    if isinstance(which, bool) or not isinstance(which, int | np.integer):
        raise TypeError(
            f"which: expected the number or the name of a row; got {type_name(which)}."
        )
    if not -len(labels) <= which < len(labels):
        raise IndexError(f"result: expected one of {len(labels)} rows; got {which}.")
    return range(len(labels))[which]


def pvalue(statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
    r"""The exact Monte-Carlo p-value :math:`(1 + \#\{T_h \ge T\}) / (1 + H)`, never zero.

    From statistics T (...) and their nulls (..., H). Ties are counted within rounding error, as in
    :func:`scipy.stats.permutation_test`. Phipson and Smyth 2010, *Permutation p-values should
    never be zero*.

    Example:
        >>> float(pvalue(np.array(3.0), np.array([1.0, 2.0, 3.0])))
        0.5
    """
    statistic, null = np.asarray(statistic, float), np.asarray(null, float)
    if not (np.isfinite(statistic).all() and np.isfinite(null).all()):
        raise ValueError(
            "statistic: expected finite numbers; got NaN or infinity. Look for parameters in "
            "extreme units, or without any variation."
        )
    slack = 100 * np.finfo(float).eps * np.abs(statistic)
    as_large = null >= (statistic - slack)[..., None]
    return np.asarray((1 + as_large.sum(-1)) / (1 + null.shape[-1]))


def pvalue_error(p: np.ndarray, nulls: int | np.ndarray) -> np.ndarray:
    """The Monte-Carlo standard error of a p-value from so many nulls."""
    return np.asarray(np.sqrt(p * (1 - p) / (1 + nulls)))


def holm(pvalues: np.ndarray) -> np.ndarray:
    """P-values (j,) adjusted for their number by Holm's step-down, valid however they depend.

    Holm 1979, *A simple sequentially rejective multiple test procedure*.

    Example:
        >>> holm(np.array([0.01, 0.5, 0.02]))
        array([0.03, 0.5 , 0.04])
    """
    pvalues = np.asarray(pvalues, float)
    order = pvalues.argsort(kind="stable")
    steps = np.maximum.accumulate(pvalues[order] * np.arange(len(pvalues), 0, -1))
    return np.asarray(np.minimum(steps, 1)[order.argsort()])


def enough_nulls(count: int, alpha: float = 0.05) -> int:
    """The number of nulls with which one of so many p-values can be small once adjusted.

    Example:
        >>> enough_nulls(100)
        1999
    """
    return math.ceil(count / alpha - 1e-9) - 1


def too_few(count: int, nulls: int) -> str:
    """A sentence for where so many nulls cannot adjust so many p-values; else none."""
    if nulls >= enough_nulls(count):
        return ""
    least = number(min(1.0, count / (1 + nulls)))
    return (
        f" With {nulls} null copies p, corrected for {count}, cannot be below {least}: take "
        f"{enough_nulls(count)}."
    )


def combined(statistics: np.ndarray) -> np.ndarray:
    r"""One statistic (..., H + 1) from those of v classifiers (v, ..., H + 1).

    Cube roots, which are nearly normal for sums of squares (Wilson and Hilferty 1931), or the
    statistics themselves where some are negative, are standardised over all copies, data included,
    and :math:`-\log P(Z \ge z)` is summed over the classifiers. Since every copy is treated alike,
    p-values stay exact. A sum has more power here than the smallest p-value.

    Example:
        >>> combined(np.array([[[3.0, 1.0, 2.0]]]))  # a single one stays what it is
        array([[3., 1., 2.]])
    """
    if len(statistics) == 1:
        return np.asarray(statistics[0])
    return np.asarray(-scipy.special.log_ndtr(-_scores(statistics)).sum(0))


def _scores(statistics: np.ndarray) -> np.ndarray:
    """Statistics (..., H + 1), or their cube roots, standardised over all copies."""
    signed = (statistics < 0).any(-1, keepdims=True)
    roots = np.where(signed, statistics, np.cbrt(statistics))
    spread = roots.std(-1, keepdims=True)
    return np.asarray((roots - roots.mean(-1, keepdims=True)) / np.where(spread > 0, spread, 1))


def false_discovery(pvalues: np.ndarray) -> np.ndarray:
    """P-values adjusted by Benjamini and Hochberg 1995, of any shape.

    The false discovery rate is controlled where p-values are independent or positively dependent,
    as those of neighbouring observations usually are.

    Example:
        >>> false_discovery(np.array([0.01, 0.5, 0.02]))
        array([0.03, 0.5 , 0.03])
    """
    from scipy.stats import false_discovery_control  # scipy.stats costs half a second

    flat = np.ravel(np.asarray(pvalues, float))
    return np.asarray(false_discovery_control(flat).reshape(np.shape(pvalues)))


def step_down(statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
    r"""P-values (o,) adjusted by the step-down maximum over H null copies that all share.

    Statistics (o,) and nulls (o, H) are brought to a common scale over all copies (see
    :func:`combined`); the largest is compared with the largest of every null copy, the second with
    the largest of the others, and so on. Where the joint law of the statistics of true hypotheses
    does not depend on the false ones, the probability of any false rejection is at most the
    level, whichever are true. Westfall and Young 1993, *Resampling-Based Multiple Testing*,
    Algorithm 4.1; Romano and Wolf 2005, *Exact and Approximate Stepdown Methods*.

    Example:
        >>> step_down(np.array([9.0, 1.0]), np.array([[1.0, 2.0, 1.5], [1.0, 2.0, 1.5]]))
        array([0.25, 1.  ])
    """
    scores = _scores(np.concatenate([statistic[:, None], null], 1))
    order = (-scores[:, 0]).argsort(kind="stable")
    largest = np.maximum.accumulate(scores[order][::-1], 0)[::-1]
    plain = pvalue(statistic, null)[order]
    steps = np.maximum.accumulate(np.maximum(pvalue(scores[order, 0], largest[:, 1:]), plain))
    return np.asarray(steps[order.argsort()])


def clopper_pearson(share: np.ndarray, n: float | np.ndarray, alpha: float = 0.05) -> np.ndarray:
    """Lower and upper ends (2, ...) of binomial intervals of shares (...) among n.

    Counts need not be whole: a mean of numbers between 0 and 1 varies less than a share does.
    Clopper and Pearson 1934, *The use of confidence or fiducial limits*.

    Example:
        >>> clopper_pearson(np.array(1.0), 10).round(2)
        array([0.69, 1.  ])
    """
    inside, outside = n * share, n * (1 - share)
    quantile = scipy.special.betaincinv
    lower = np.where(inside > 0, quantile(np.maximum(inside, 1e-300), outside + 1, alpha / 2), 0.0)
    upper = np.where(
        outside > 0, quantile(inside + 1, np.maximum(outside, 1e-300), 1 - alpha / 2), 1.0
    )
    return np.stack([lower, upper])


@dataclass(frozen=True, eq=False)
class PPCurve(Frozen):
    """A PP-curve with its null bands; fields have shape (g,), or (o, g) for o observations.

    Args:
        levels: The grid of levels, with shape (g,); it contains 1/2.
        ecdf: The share of draws whose class-0 probability is at most the level.
        lower, upper: Ends of the pointwise band.
        envelope_lower, envelope_upper: Ends of the simultaneous band.
        pvalue: The p-value of the whole curve, with shape () or (o,): the curve leaves the
            simultaneous band somewhere if and only if it is at most `alpha`.
        alpha: One minus the coverage of the bands under the null.
    """

    levels: np.ndarray
    ecdf: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    envelope_lower: np.ndarray
    envelope_upper: np.ndarray
    pvalue: np.ndarray
    alpha: float


def envelope(curves: np.ndarray, alpha: float) -> dict[str, np.ndarray]:
    """Curve, bands of coverage 1 - alpha and p-value from curves (H + 1, g), the data first."""
    lower, upper = np.quantile(curves[1:], [alpha / 2, 1 - alpha / 2], axis=0)
    low, high = np.quantile(curves, [alpha / 2, 1 - alpha / 2], axis=0)
    centre = curves.mean(0)
    # Where no null moves, a curve must move by a visible amount to count.
    below, above = np.maximum(centre - low, 1e-3), np.maximum(high - centre, 1e-3)
    moves = curves - centre
    excursions = np.maximum(moves / above, -moves / below).max(1)
    # With the k-th smallest of H + 1 as the edge, exactly the alpha largest lie beyond it.
    count = len(excursions)
    edge = np.sort(excursions)[max(0, count - 1 - int(alpha * count + 1e-9))]
    return {
        "ecdf": curves[0],
        "lower": lower,
        "upper": upper,
        "envelope_lower": np.clip(centre - edge * below, 0, 1),
        "envelope_upper": np.clip(centre + edge * above, 0, 1),
        "pvalue": pvalue(excursions[0], excursions[1:]),
    }


def settings_of(test: str, calibration: Any, **own: Any) -> dict[str, Any]:
    """A test's settings, its own as Python writes them, and versions, as plain values."""
    plain = {k: v if isinstance(v, int | str | list | None) else repr(v) for k, v in own.items()}
    return {"test": test, **calibration.summary, **plain, **versions()}


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    return {
        "assay": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }

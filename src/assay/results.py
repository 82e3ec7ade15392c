r"""What every test returns: a statistic with its null inside, so that nothing needs to be rerun.

A result is frozen, and so are its arrays, which have a leading axis of length o for o observations
and none for a single one. ``result[i]`` is the i-th of them, ``len(result)`` their number.
"""

import math
import platform
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Self, cast

import numpy as np
import scipy.special
import torch

from . import __version__
from ._support.inputs import printable, type_name
from .printing import as_frame, html_table, number, rows_of, text_table, wrapped

# Levels of q's regions and central intervals whose true coverage is estimated.
LEVELS = (0.5, 0.9, 0.95)
AT_MOST = "the probability of any false rejection is at most the level"
WHICHEVER = "whichever of the local hypotheses are true"


def read_only(array: Any) -> np.ndarray:
    """A copy that cannot be written."""
    own = np.array(array)
    own.setflags(write=False)
    return own


class Settings(dict[str, Any]):
    """The settings of a result: a dict that can be read, and not written."""

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

    shared: ClassVar[tuple[str, ...]] = ()  # fields that have no rows of observations

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
        whole = cast(Any, self)
        names = [field.name for field in fields(whole) if field.name not in self.shared]
        own = {name: getattr(self, name) for name in names}  # not what is computed when asked for
        arrays = {k: v[which] for k, v in own.items() if isinstance(v, np.ndarray)}
        parts = {k: v._take(which) for k, v in own.items() if isinstance(v, Frozen)}
        return replace(whole, **arrays, **parts)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Result(Frozen, ABC):
    """What every test returns: statistics, their nulls, p-values and a sentence to quote.

    Statistics are () or (o,), for o observations or quantities, their values for null copies (H,)
    or (o, H). A small p-value speaks against the hypothesis. Settings say what made the result.
    """

    statistic: np.ndarray
    null: np.ndarray
    hypothesis: str
    settings: Mapping[str, Any]
    heading: ClassVar[str] = "x_o"  # of the rows of the table

    @property
    @abstractmethod
    def sentence(self) -> str:
        """One sentence to quote."""

    def _row(self, i: int) -> Self:
        return self._take(i) if self.statistic.ndim else self

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
        words = f"H0: {self.hypothesis}.", self.sentence
        return html_table(self.heading, self.labels, self.table, *words)


@dataclass(frozen=True)
class MaxT:
    """P-values at many observations are adjusted by a step-down over nulls that all share."""

    words: ClassVar[str] = f"max-T step-down over the same nulls; {AT_MOST}, {WHICHEVER}"


@dataclass(frozen=True)
class GlobalMaxT(MaxT):
    """The same step-down under one global hypothesis."""

    words: ClassVar[str] = (
        f"max-T step-down over the same nulls; {AT_MOST} if q is right at almost every x"
    )


@dataclass(frozen=True)
class Holm:
    """P-values are adjusted by Holm's step-down, where every observation has its own nulls."""

    words: ClassVar[str] = f"Holm's step-down; {AT_MOST}, {WHICHEVER}"


Adjustment = MaxT | Holm


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LocalResult(Result):
    """What a test at observations returns, with shape () for one or (o,) for many."""

    x: np.ndarray  # (...,) or (o, ...)
    adjustment: Adjustment  # of p-values for the number of observations

    @property
    def many(self) -> bool:
        """Whether there is a leading axis of observations."""
        return bool(self.statistic.ndim)

    @property
    def adjusted(self) -> np.ndarray:
        """P-values adjusted for the number of observations, as :attr:`adjustment` says."""
        if not self.many:
            return self.pvalue
        if isinstance(self.adjustment, Holm):
            return holm(self.pvalue)
        return step_down(self.statistic, self.null)

    @property
    def fdr(self) -> np.ndarray:
        """False discovery rates (Benjamini and Hochberg 1995) of positively dependent p-values."""
        from scipy.stats import false_discovery_control  # scipy.stats costs half a second

        flat = false_discovery_control(np.ravel(self.pvalue))
        return np.asarray(flat).reshape(self.pvalue.shape)

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        columns = super()._columns
        return columns | {"adjusted": self.adjusted} if self.many else columns

    @property
    def _counted(self) -> str:
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


def position(labels: Sequence[str], which: int | str) -> int:
    """The place of a row, by its number or its name."""
    if isinstance(which, str):
        if which not in labels:
            raise KeyError(f"expected one of {', '.join(labels)}; got {which!r}")
        return list(labels).index(which)
    if isinstance(which, bool) or not isinstance(which, int | np.integer):
        expected = "which: expected the number or the name of a row"
        raise TypeError(f"{expected}; got {type_name(which)}.")
    if not -len(labels) <= which < len(labels):
        raise IndexError(f"result: expected one of {len(labels)} rows; got {which}.")
    return range(len(labels))[which]


def pvalue(statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
    r"""The exact Monte-Carlo p-value :math:`(1 + \#\{T_h \ge T\}) / (1 + H)`, never zero.

    From statistics T (...) and their nulls (..., H); values that are equal but for rounding are
    ties. Phipson and Smyth 2010, *Permutation p-values should never be zero*.

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


def enough_nulls(count: int, alpha: float = 0.05) -> int:
    """The number of nulls with which one of so many p-values can be small once adjusted."""
    return math.ceil(count / alpha - 1e-9) - 1


def too_few(count: int, nulls: int) -> str:
    """A sentence for where so many nulls cannot adjust so many p-values; else none."""
    enough, least = enough_nulls(count), number(min(1.0, count / (1 + nulls)))
    words = f"p, corrected for {count}, cannot be below {least}: take {enough}."
    return f" With {nulls} null copies {words}" if nulls < enough else ""


def holm(pvalues: np.ndarray) -> np.ndarray:
    """P-values (j,) adjusted for their number by Holm's step-down, valid however they depend.

    Holm 1979, *A simple sequentially rejective multiple test procedure*.
    """
    pvalues = np.asarray(pvalues, float)
    order = pvalues.argsort(kind="stable")
    steps = np.maximum.accumulate(pvalues[order] * np.arange(len(pvalues), 0, -1))
    return np.asarray(np.minimum(steps, 1)[order.argsort()])


def step_down(statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
    r"""P-values (o,) adjusted by the step-down maximum over H null copies that all share.

    Statistics (o,) and nulls (o, H) are first standardised as in :func:`combined`. The largest is
    compared with the largest of every copy, the second with the largest of the others, and so on.
    Valid whichever hypotheses are true, if the joint law of the statistics of true ones does not
    depend on the false ones. Westfall and Young 1993, *Resampling-Based Multiple Testing*,
    Algorithm 4.1; Romano and Wolf 2005, *Exact and Approximate Stepdown Methods*.
    """
    scores = _scores(np.concatenate([statistic[:, None], null], 1))  # (o, H + 1)
    order = (-scores[:, 0]).argsort(kind="stable")
    largest = np.maximum.accumulate(scores[order][::-1], 0)[::-1]
    plain = pvalue(statistic, null)[order]
    steps = np.maximum.accumulate(np.maximum(pvalue(scores[order, 0], largest[:, 1:]), plain))
    return np.asarray(steps[order.argsort()])


def combined(statistics: np.ndarray) -> np.ndarray:
    r"""One statistic (..., H + 1) from those of v classifiers (v, ..., H + 1).

    Cube roots, which are nearly normal for sums of squares (Wilson and Hilferty 1931), or the
    statistics themselves where some are negative, are standardised over all copies, data included,
    and :math:`-\log P(Z \ge z)` is summed over the classifiers. Every copy is treated alike, so
    that p-values stay exact. A sum has more power here than the smallest p-value.
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


def clopper_pearson(share: np.ndarray, n: float | np.ndarray, alpha: float = 0.05) -> np.ndarray:
    """Lower and upper ends (2, ...) of binomial intervals of shares (...) among n.

    Counts need not be whole: a mean of numbers between 0 and 1 varies less than a share does.
    Clopper and Pearson 1934, *The use of confidence or fiducial limits*.
    """
    inside, outside = n * share, n * (1 - share)
    quantile = scipy.special.betaincinv
    lower = quantile(np.maximum(inside, 1e-300), outside + 1, alpha / 2)
    upper = quantile(inside + 1, np.maximum(outside, 1e-300), 1 - alpha / 2)
    return np.stack([np.where(inside > 0, lower, 0.0), np.where(outside > 0, upper, 1.0)])


@dataclass(frozen=True, eq=False)
class PPCurve(Frozen):
    """A PP-curve and its bands under the null; fields are (g,), or (o, g) for o observations."""

    levels: np.ndarray  # (g,), with 1/2 among them
    ecdf: np.ndarray  # the share of draws whose class-0 probability is at most the level
    lower: np.ndarray  # of the pointwise band
    upper: np.ndarray
    envelope_lower: np.ndarray  # of the simultaneous band
    envelope_upper: np.ndarray
    pvalue: np.ndarray  # () or (o,), at most alpha if and only if the curve leaves that band
    alpha: float  # one minus the coverage of the bands


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
    own = {"assay": __version__, "python": platform.python_version()}
    return own | {"torch": str(torch.__version__), "numpy": np.__version__}

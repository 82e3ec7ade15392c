r"""Results: what a test found, with its null inside, so that nothing needs to be rerun.

One shape for all: statistic, null, p-value, hypothesis and settings; ``result[i]`` is one of many
observations (or quantities), ``len(result)`` their number; every result has a table, a sentence to
quote, HTML for notebooks and :meth:`Readable.to_frame`. All fields are NumPy arrays that cannot be
written, with a leading axis of length o for o observations and none for a single one.
"""

import math
import platform
import re
import shutil
import textwrap
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from html import escape
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import scipy.special
import torch

from . import __version__
from ._support.inputs import printable, type_name

# Rows of a table that are printed; the others are counted.
MOST_ROWS = 20
# Levels of q's regions and central intervals whose true coverage is told.
LEVELS = (0.5, 0.9, 0.95)


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
    return np.asarray((1 + reached(statistic, null).sum(-1)) / (1 + null.shape[-1]))


def reached(statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
    """Whether nulls (..., H) are as large as their statistics (...), within rounding error."""
    slack = 100 * np.finfo(float).eps * np.abs(statistic)
    return np.asarray(null >= (statistic - slack)[..., None])


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
    """What is to be said where so many nulls cannot adjust for a number of p-values."""
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
    p-values stay exact. A sum sees what several classifiers half see; it is the better of the two
    here, the other being the smallest p-value.

    Example:
        >>> combined(np.array([[[3.0, 1.0, 2.0]]]))  # a single one stays what it is
        array([[3., 1., 2.]])
    """
    if len(statistics) == 1:
        return np.asarray(statistics[0])
    return np.asarray(-scipy.special.log_ndtr(-_scores(statistics)).sum(0))


def _scores(statistics: np.ndarray) -> np.ndarray:
    """Statistics (..., H + 1), or their cube roots, standardised over all copies."""
    # Sums of squares; what may be negative is nearly normal as it is.
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
    does not depend on the false ones, the probability of any false
    rejection is at most the level, whichever are true.

    References:
        Westfall and Young 1993, *Resampling-Based Multiple Testing*, Algorithm 4.1; Romano and
        Wolf 2005, *Exact and Approximate Stepdown Methods for Multiple Hypothesis Testing*.

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


def read_only(array: Any) -> np.ndarray:
    """A copy that cannot be written."""
    own = np.array(array)
    own.setflags(write=False)
    return own


class Frozen:
    """A dataclass with arrays and settings of its own, not to be written, and printable names."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray | np.generic):
                object.__setattr__(self, name, read_only(value))
            elif isinstance(value, dict):
                object.__setattr__(self, name, Settings(value))
            elif name in ("names", "labels") and isinstance(value, tuple):
                object.__setattr__(self, name, tuple(printable(f"{one}") for one in value))


class Settings(dict[str, Any]):
    """What made a result: a dict that is read, and not written.

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


class Readable(Frozen, ABC):
    """What can be read: rows of numbers with their names, and a sentence to quote."""

    # The settings and versions that made it, and what the rows of the table are.
    settings: Mapping[str, Any]
    heading: ClassVar[str] = "x_o"
    # Digits of its numbers that are printed.
    digits: ClassVar[int] = 3

    if TYPE_CHECKING:
        # Fields of some, and properties of others.
        @property
        def hypothesis(self) -> str: ...  # noqa: D102
        @property
        def labels(self) -> tuple[str, ...]: ...  # noqa: D102

    @property
    @abstractmethod
    def table(self) -> list[dict[str, float]]:
        """One row of numbers for each label."""

    @property
    @abstractmethod
    def sentence(self) -> str:
        """One sentence to quote."""

    def __len__(self) -> int:
        return len(self.labels)

    def to_frame(self) -> Any:
        """The table as a pandas DataFrame; a list of dicts where pandas is not installed."""
        return as_frame(self._rows_to_frame())

    def _rows_to_frame(self) -> list[dict[str, Any]]:
        pairs = zip(self.labels, self.table, strict=True)
        return [{self.heading: label, **row} for label, row in pairs]

    @property
    def _last(self) -> tuple[str, ...]:
        """What is printed below the table."""
        return f"H0: {self.hypothesis}.", self.sentence

    def __repr__(self) -> str:
        head, cells = self._as_text()
        lines = laid_out(head, cells[:MOST_ROWS])
        if len(cells) > MOST_ROWS:
            lines.append(f"... and {len(cells) - MOST_ROWS} more")
        return "\n".join([*lines, *map(wrapped, self._last)])

    def _as_text(self) -> tuple[list[str], list[list[str]]]:
        """The heading and the rows of the table as they are printed."""
        rows = self.table
        columns = [_printed(name, [row[name] for row in rows], self.digits) for name in rows[0]]
        head = [self.heading, *(HEADINGS.get(name, name) for name in rows[0])]
        return head, [list(row) for row in zip(self.labels, *columns, strict=True)]

    def _repr_html_(self) -> str:
        *caption, sentence = self._last
        head, cells = self._as_text()
        rows = [[escape(cell) for cell in row] for row in cells]
        table = html_table([escape(name) for name in head], rows, escape(" ".join(caption)))
        return html_part(f"{table}<p>{escape(together(sentence))}</p>")


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Result(Readable):
    """What every test says: statistics, their nulls, p-values and a sentence to quote.

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

    @property
    def pvalue(self) -> np.ndarray:
        """The exact Monte-Carlo p-value, shaped as the statistic."""
        return pvalue(self.statistic, self.null)

    @property
    def pvalue_error(self) -> np.ndarray:
        """The Monte-Carlo standard error of the p-value, due to the finite number of nulls."""
        return pvalue_error(self.pvalue, self.null.shape[-1])

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        return {
            "statistic": self.statistic,
            "null 95 %": np.quantile(self.null, 0.95, axis=-1),
            "p-value": self.pvalue,
            "± MC error": self.pvalue_error,
        }

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the rows of the table."""
        return tuple(str(i) for i in range(np.size(self.statistic)))

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each statistic: its value, its null, its p-value and what else belongs."""
        return rows_of(self._columns)

    def __getitem__(self, which: int | str) -> Self:
        """The result at one of many observations, or for one of many quantities."""
        return self._row(position(self.labels, which))

    @abstractmethod
    def _row(self, i: int) -> Self:
        """The i-th row alone."""


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LocalResult(Result):
    """What a test at observations says, with shape () for one or (o,) for many.

    Args:
        x: The observation, with shape (...,) or (o, ...).
        adjustment: How p-values at many observations are adjusted for their number.
    """

    x: np.ndarray
    adjustment: "Adjustment"
    # Fields that do not belong to single observations.
    shared: ClassVar[tuple[str, ...]] = ()

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
        return chosen(self, i, self.shared) if self.many else self

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
        """What is to be said of too few nulls."""
        few = too_few(self.statistic.size, self.null.shape[-1])
        return few if isinstance(self.adjustment, Holm) else ""


class Adjustment(ABC):
    """How p-values at many observations are adjusted for their number."""

    # What is controlled, and when.
    words: ClassVar[str]

    @abstractmethod
    def __call__(self, statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
        """Adjusted p-values (o,) from statistics (o,) and their nulls (o, H)."""


@dataclass(frozen=True)
class MaxT(Adjustment):
    """Step-down over nulls that all observations share, each with its own local hypothesis."""

    words: ClassVar[str] = (
        "max-T step-down over the same nulls; the probability of any false rejection is at "
        "most the level, whichever of the local hypotheses are true"
    )

    def __call__(self, statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
        """Adjusted p-values (o,) from statistics (o,) and their nulls (o, H)."""
        return step_down(statistic, null)


@dataclass(frozen=True)
class GlobalMaxT(MaxT):
    """Step-down over nulls that all observations share, under one global hypothesis."""

    words: ClassVar[str] = (
        "max-T step-down over the same nulls; the probability of any false rejection is at "
        "most the level if q is right at almost every x"
    )


@dataclass(frozen=True)
class Holm(Adjustment):
    """Holm's step-down, where every observation has nulls of its own."""

    words: ClassVar[str] = (
        "Holm's step-down; the probability of any false rejection is at most the level, whichever "
        "of the local hypotheses are true"
    )

    def __call__(self, statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
        """Adjusted p-values (o,) from statistics (o,) and their nulls (o, H)."""
        return holm(pvalue(statistic, null))


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


def chosen(obj: Any, which: Any, shared: Sequence[str] = ()) -> Any:
    """A dataclass whose arrays, and parts with rows, are those of some; shared fields stay."""
    parts = {f.name: getattr(obj, f.name) for f in fields(obj) if f.name not in shared}
    rows = {k: v[which] for k, v in parts.items() if isinstance(v, np.ndarray | Rowed)}
    return replace(obj, **rows)


def joined(parts: Sequence[Any]) -> Any:
    """Results at some observations each, behind each other; the reverse of `chosen`."""
    first = parts[0]
    if isinstance(first, np.ndarray):
        return np.concatenate(parts)
    shared = getattr(first, "shared", ())
    own = [f.name for f in fields(first) if f.name not in shared]
    kinds = np.ndarray | Rowed
    rows = {name for name in own if isinstance(getattr(first, name), kinds)}
    return replace(first, **{name: joined([getattr(p, name) for p in parts]) for name in rows})


class Rowed(Frozen):
    """A part of a result with a leading axis of observations in all of its arrays."""

    shared: ClassVar[tuple[str, ...]] = ()

    def __getitem__(self, which: Any) -> Self:
        made: Self = chosen(self, which, self.shared)
        return made


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


def rows_of(columns: Mapping[str, Any]) -> list[dict[str, float]]:
    """Rows of a table from columns of the same length; a number is a column of one."""
    flat = {name: np.atleast_1d(values) for name, values in columns.items()}
    rows = zip(*flat.values(), strict=True)
    return [dict(zip(flat, map(float, row), strict=True)) for row in rows]


def as_frame(rows: list[dict[str, Any]]) -> Any:
    """Rows of a table as a pandas DataFrame; as they are where pandas is not installed."""
    try:
        from pandas import DataFrame
    except ModuleNotFoundError:
        return rows
    return DataFrame(rows)


def number(value: float, digits: int = 3) -> str:
    """Some significant digits, without an exponent where that is readable.

    Example:
        >>> number(0.0411), number(1234.5), number(0.612, 2)
        ('0.0411', '1234', '0.61')
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < 1e-4 or abs(value) >= 1e6:
        return f"{value:.{digits - 1}e}"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def percent(share: float) -> str:
    """A share in percent, with two significant digits.

    Example:
        >>> percent(0.2), percent(0.0512), percent(1.3)
        ('20 %', '5.1 %', '130 %')
    """
    return f"{number(100 * share, 2)} %"


def probability(p: float) -> str:
    """A p-value: three decimals, two digits where it is smaller, and never an exponent.

    Example:
        >>> probability(0.635), probability(0.005), probability(0.00012), probability(2.7e-304)
        ('0.635', '0.005', '0.00012', '< 0.000001')
    """
    if math.isnan(p):
        return "–"
    if p < 1e-6:
        return "< 0.000001"
    if p >= 0.0095:
        return f"{p:.3f}" if p < 0.9995 else "1"
    places = 1 - math.floor(math.log10(p))
    shown = f"{p:.{places}f}"
    return shown[:-1] if shown.endswith("0") else shown


def equals(p: float) -> str:
    """A p-value behind 'p': '= 0.005', or '< 0.000001'."""
    shown = probability(p)
    return shown if shown.startswith("<") else f"= {shown}"


# Headings that say more than the names of columns.
HEADINGS = {"p-value": "p", "adjusted": "corrected p", "± MC error": "± error"}
# Letters of a label: at most, and as few as it may be cut to.
LONGEST, SHORTEST = 40, 12
# Letters of a line that are read with ease, and a space that stays between words of one line.
READABLE, NO_BREAK = 100, "\u00a0"


def _printed(name: str, values: Sequence[float], digits: int) -> list[str]:
    """The cells of one column: p-values, counts, or other numbers."""
    if re.search(r"^p\b|\bp$|^adjusted$", name):
        return [probability(value) for value in values]
    known = [value for value in values if math.isfinite(value)]
    whole = all(abs(value - round(value)) < 1e-6 for value in known) and max(known, default=0) > 1
    shown = [f"{value:.0f}" if whole else number(value, digits) for value in values]
    return ["–" if math.isnan(value) else cell for value, cell in zip(values, shown, strict=True)]


def columns() -> int:
    """The letters that fit in a line of the terminal; 80 where that is unknown."""
    return max(40, shutil.get_terminal_size((80, 24)).columns)


def wrapped(text: str, indent: str = "") -> str:
    """A sentence in lines that fit, those after the first indented."""
    how: dict[str, Any] = {"subsequent_indent": indent, "break_on_hyphens": False}
    lines = textwrap.fill(together(text), min(columns(), READABLE), **how)
    return lines.replace(NO_BREAK, " ")


def together(text: str) -> str:
    """The same with blanks that are not broken between numbers and what belongs to them."""
    return re.sub(r"(?<=\d) (?=%|sd\b|± )|(?<=[±=<]) ", NO_BREAK, text)


def clipped(name: str, most: int = LONGEST) -> str:
    """A name that is short enough.

    Example:
        >>> clipped("a name of many letters", 12)
        'a name of m…'
    """
    return name if len(name) <= most else f"{name[: most - 1].rstrip()}…"


def laid_out(
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    left: int = 1,
    *,
    clip_last: bool = False,
) -> list[str]:
    """Lines of a table, no longer than the terminal is wide.

    The first columns are flush left. A table that does not fit has headings of two lines, cut
    labels as long as they differ, is turned, or is broken into tables of fewer columns, whichever
    of these is the first to help.
    """
    table = [list(head), *([clipped(label), *cells] for label, *cells in rows)]
    if clip_last:
        # The last column is words, flush left, in what is left of the line.
        table = _cut(table, columns() // 4)
        room = columns() - sum(width + 2 for width in _widths(table)[:-1])
        body = _lines([row[:-1] for row in table], left)
        width = max(map(len, body))
        ends = (clipped(row[-1], max(SHORTEST, room)) for row in table)
        return [
            f"{line.ljust(width)}  {end}".rstrip() for line, end in zip(body, ends, strict=True)
        ]
    if _fits(table):
        return _lines(table, left)
    folded = [*_folded(head), *table[1:]]
    for tried in (folded, _cut(folded)):
        if _fits(tried):
            return _lines(tried, left)
    turned = [list(row) for row in zip(*table, strict=True)]
    if len(table) < len(head) and _fits(turned):
        return _lines(turned, 1)
    folded, pieces = _cut(folded, columns() // 3), [[0]]
    for j in range(1, len(head)):
        if len(pieces[-1]) > 1 and not _fits(_some(folded, [*pieces[-1], j])):
            pieces.append([0])
        pieces[-1].append(j)
    blocks = (_lines(_some(folded, piece), left if 1 in piece else 1) for piece in pieces)
    return [line for block in blocks for line in ("", *block)][1:]


def _folded(head: Sequence[str]) -> list[list[str]]:
    """Headings in two lines."""
    halves = [_halves(name) for name in head]
    return [[upper for upper, _ in halves], [lower for _, lower in halves]]


def _halves(name: str) -> tuple[str, str]:
    """A name of many words in two parts, about as long; one word is the second part.

    Example:
        >>> _halves("simulations near x_o"), _halves("p")
        (('simulations', 'near x_o'), ('', 'p'))
    """
    blanks = [i for i, letter in enumerate(name) if letter == " " and i]
    if not blanks:
        return "", name
    at = min(blanks, key=lambda i: max(i, len(name) - i - 1))
    return name[:at], name[at + 1 :]


def _cut(table: list[list[str]], room: int | None = None) -> list[list[str]]:
    """The same with labels that are cut to what is left for them, as long as they differ."""
    spare = columns() - sum(width + 2 for width in _widths(table)[1:]) if room is None else room
    labels = [clipped(row[0], max(SHORTEST, spare)) for row in table]
    if len(set(labels)) < len({row[0] for row in table}):
        return table
    return [[label, *row[1:]] for label, row in zip(labels, table, strict=True)]


def _some(table: list[list[str]], piece: list[int]) -> list[list[str]]:
    """Some columns."""
    return [[row[j] for j in piece] for row in table]


def _widths(table: list[list[str]]) -> list[int]:
    return [max(map(len, column)) for column in zip(*table, strict=True)]


def _fits(table: list[list[str]]) -> bool:
    return sum(_widths(table)) + 2 * (len(table[0]) - 1) <= columns()


def _lines(table: list[list[str]], left: int) -> list[str]:
    """Rows with columns of one width, the first ones flush left, the others flush right."""
    widths = _widths(table)
    return [
        "  ".join(
            cell.ljust(width) if j < left else cell.rjust(width)
            for j, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
        if any(row)
    ]


# Without colours of its own, so that it can be read on dark and on light.
STYLE = (
    ".assay table{border-collapse:collapse;margin:.3em 0;color:inherit;font-size:inherit}"
    ".assay caption{caption-side:top;text-align:left;opacity:.75;padding:.2em 0}"
    ".assay td,.assay th{text-align:right;padding:.15em .6em;white-space:nowrap;"
    "font-variant-numeric:tabular-nums}"
    ".assay thead th{border-bottom:1px solid currentColor}"
    ".assay td:first-child,.assay th:first-child{text-align:left}"
    ".assay p{max-width:60em;margin:.3em 0}"
)
# Rows of a table in a notebook; the others are counted.
MOST_HTML = 60


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], caption: str) -> str:
    """A table of cells that are HTML already."""
    more = f"<p>... and {len(rows) - MOST_HTML} more</p>" if len(rows) > MOST_HTML else ""
    cells = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows[:MOST_HTML])
    body = "".join(f"<tr>{row}</tr>" for row in cells)
    named = f"<caption>{caption}</caption>" if caption else ""
    first = "".join(f"<th>{name}</th>" for name in head)
    return f"<table>{named}<thead><tr>{first}</tr></thead><tbody>{body}</tbody></table>{more}"


def html_part(inside: str, style: str = "") -> str:
    """A part of a notebook, with its style; one that has more is a check."""
    kind = "assay check" if style else "assay"
    return f'<div class="{kind}"><style>{STYLE}{style}</style>{inside}</div>'


def settings_of(test: str, calibration: Any, **own: Any) -> dict[str, Any]:
    """A test's settings, its own as Python writes them, and versions, as plain values."""
    said = {k: v if isinstance(v, int | str | list | None) else repr(v) for k, v in own.items()}
    return {"test": test, **calibration.summary, **said, **versions()}


def versions() -> dict[str, str]:
    """Versions that a result depends on."""
    return {
        "assay": __version__,
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "numpy": np.__version__,
    }

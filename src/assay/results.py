r"""Results: what a test found, with its null inside, so that nothing needs to be rerun.

All fields are NumPy arrays. For one observation they have no leading axis; for o observations they
have one of length o.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Protocol

import numpy as np
import scipy.special
import scipy.stats

from .surroundings import Surroundings

__all__ = [
    "Family",
    "LocalResult",
    "LocalTested",
    "MomentResult",
    "MomentTable",
    "RegionCoverage",
    "Separate",
    "Strong",
    "Tail",
    "Tested",
    "Weak",
    "adjusted",
    "combined",
    "pvalue",
    "pvalue_error",
    "step_down",
]

# Rows of a table that are printed; the others are counted.
MOST_ROWS = 20
# Levels of q's regions and central intervals whose true coverage is told.
LEVELS = (0.5, 0.9, 0.95)


def pvalue(statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
    r"""The exact Monte-Carlo p-value :math:`(1 + \#\{T_h \ge T\}) / (1 + H)`, never zero.

    Args:
        statistic: Observed statistics T, with shape (...).
        null: Null statistics, with shape (..., H).

    References:
        Phipson and Smyth 2010, *Permutation p-values should never be zero*. Ties are counted
        within rounding error, as in :func:`scipy.stats.permutation_test`.

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
    larger = null >= (statistic - slack)[..., None]
    return np.asarray((1 + larger.sum(-1)) / (1 + null.shape[-1]))


def pvalue_error(p: np.ndarray, nulls: int) -> np.ndarray:
    """The Monte-Carlo standard error of a p-value from so many nulls."""
    return np.asarray(np.sqrt(p * (1 - p) / (1 + nulls)))


def adjusted(pvalues: np.ndarray) -> np.ndarray:
    """P-values adjusted for their number by Holm's step-down, valid however they depend.

    Args:
        pvalues: P-values, with shape (j,).

    References:
        Holm 1979, *A simple sequentially rejective multiple test procedure*.

    Example:
        >>> adjusted(np.array([0.01, 0.5, 0.02]))
        array([0.03, 0.5 , 0.04])
    """
    pvalues = np.asarray(pvalues, float)
    order = pvalues.argsort(kind="stable")
    steps = np.maximum.accumulate(pvalues[order] * np.arange(len(pvalues), 0, -1))
    found = np.empty_like(steps)
    found[order] = np.minimum(steps, 1)
    return found


def combined(statistics: np.ndarray) -> np.ndarray:
    r"""One statistic from those of several classifiers, the same function for every copy.

    Cube roots, which are nearly normal for sums of squares (Wilson and Hilferty 1931), or the
    statistics themselves where some are negative, are standardised over all copies, data included,
    and :math:`-\log P(Z \ge z)` is summed over the classifiers. Since every copy is treated alike,
    p-values stay exact. A sum sees what several classifiers half see; it is the better of the two
    here, the other being the smallest p-value.

    Args:
        statistics: Statistics of v classifiers, with shape (v, ..., H + 1).

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


class Tested(ABC):
    """What every test says: statistics, their nulls, p-values and a sentence to quote."""

    statistic: np.ndarray
    null: np.ndarray
    hypothesis: str

    def __post_init__(self) -> None:
        _freeze(self)

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
    def labels(self) -> tuple[str, tuple[str, ...]]:
        """What the rows of the table are, and their names."""
        return "x_o", tuple(str(i) for i in range(np.size(self.statistic)))

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each statistic: its value, its null, its p-value and what else belongs."""
        return _rows(self._columns)

    @property
    @abstractmethod
    def sentence(self) -> str:
        """One sentence to quote."""

    def __repr__(self) -> str:
        return _text(self.labels, self.table, self.hypothesis, self.sentence)

    def _repr_html_(self) -> str:
        return _html(self.labels, self.table, self.hypothesis, self.sentence)


class LocalTested(Tested):
    """What a test at observations says, with shape () for one or (o,) for many."""

    family: "Family"
    surroundings: Surroundings | None

    @property
    def adjusted(self) -> np.ndarray:
        """P-values adjusted for the number of observations, as :attr:`family` says."""
        if not self.statistic.ndim:
            return self.pvalue
        return self.family.adjusted(self.statistic, self.null)

    @property
    def fdr(self) -> np.ndarray:
        """P-values adjusted by Benjamini and Hochberg 1995.

        The false discovery rate is controlled where p-values are independent or positively
        dependent, as those of neighbouring observations are wont to be.
        """
        return self._discoveries("bh")

    @property
    def fdr_any(self) -> np.ndarray:
        """P-values adjusted by Benjamini and Yekutieli 2001, valid however they depend."""
        return self._discoveries("by")

    def _discoveries(self, method: str) -> np.ndarray:
        found = scipy.stats.false_discovery_control(np.atleast_1d(self.pvalue), method=method)
        return np.asarray(found.reshape(self.pvalue.shape))

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        columns = super()._columns
        return columns | {"adjusted": self.adjusted} if self.statistic.ndim else columns

    @property
    def _warning(self) -> str:
        """What is to be said of too few nulls, and of observations outside the cloud."""
        count, least = self.statistic.size, 1 / (1 + self.null.shape[-1])
        if isinstance(self.family, Separate) and count * least > 0.05:
            enough = math.ceil(count / 0.05) - 1
            return (
                f" With {self.null.shape[-1]} nulls no adjusted p-value can be below "
                f"{_number(min(1.0, count * least))}: take {enough}.{self._outside}"
            )
        return self._outside

    @property
    def _outside(self) -> str:
        if self.surroundings is None or not self.surroundings.outside.any():
            return ""
        if not self.statistic.ndim:
            return " x_o lies outside the calibration cloud: no test can say much there."
        outside = int(self.surroundings.outside.sum())
        return f" {outside} of them lie outside the calibration cloud, where no test can say much."


class Family(Protocol):
    """How p-values at many observations are adjusted for their number."""

    @property
    def words(self) -> str:
        """What is controlled, and when."""

    def adjusted(self, statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
        """Adjusted p-values (o,) from statistics (o,) and their nulls (o, H)."""


@dataclass(frozen=True)
class Weak:
    """Step-down over nulls that all observations share, under one global hypothesis."""

    @property
    def words(self) -> str:
        """What is controlled, and when."""
        return (
            "max-T step-down over the same nulls; the family-wise error is controlled if q is "
            "right at almost every x"
        )

    def adjusted(self, statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
        """Adjusted p-values (o,) from statistics (o,) and their nulls (o, H)."""
        return step_down(statistic, null)


@dataclass(frozen=True)
class Strong:
    """Step-down over nulls that all observations share, each with its own local hypothesis."""

    @property
    def words(self) -> str:
        """What is controlled, and when."""
        return (
            "max-T step-down over the same nulls; the family-wise error is controlled whichever "
            "of the local hypotheses are true"
        )

    def adjusted(self, statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
        """Adjusted p-values (o,) from statistics (o,) and their nulls (o, H)."""
        return step_down(statistic, null)


@dataclass(frozen=True)
class Separate:
    """Holm's step-down, where every observation has nulls of its own."""

    @property
    def words(self) -> str:
        """What is controlled, and when."""
        return (
            "Holm's step-down; the family-wise error is controlled whichever of the local "
            "hypotheses are true"
        )

    def adjusted(self, statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
        """Adjusted p-values (o,) from statistics (o,) and their nulls (o, H)."""
        return adjusted(pvalue(statistic, null))


def step_down(statistic: np.ndarray, null: np.ndarray) -> np.ndarray:
    r"""P-values adjusted for their number by the step-down maximum over shared nulls.

    Statistics are brought to a common scale over all copies (see :func:`combined`); the largest is
    compared with the largest of every null copy, the second with the largest of the others, and
    so on. Where the joint law of the statistics of true hypotheses does not depend on the false
    ones, the family-wise error is controlled whichever are true.

    Args:
        statistic: Statistics, with shape (o,).
        null: Their values for the same H null copies, with shape (o, H).

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
    found = np.empty_like(steps)
    found[order] = steps
    return found


@dataclass(frozen=True, eq=False, repr=False)
class LocalResult(LocalTested):
    """What a local test found at one observation, or at o of them.

    Args:
        statistic: The statistic at x_o, with shape () or (o,).
        null: Its values for the null copies, with shape (H,) or (o, H).
        probabilities: P(class 1 = truth) at the draws, with shape (s,) or (o, s).
        null_probabilities: The same for the null copies, with shape (H, s) or (o, H, s); None
            where nulls are not fitted.
        x: The observation, with shape (...,) or (o, ...).
        draws: The draws of q that were scored, latents in latent space, with shape (s, m) or
            (o, s, m).
        theta: The same draws in parameter units; None where no flow was given to tell.
        hypothesis: What a small p-value speaks against.
        settings: The settings and versions that made it.
        family: How p-values at many observations are adjusted for their number.
        surroundings: How the calibration surrounds the observations.
    """

    statistic: np.ndarray
    null: np.ndarray
    probabilities: np.ndarray
    null_probabilities: np.ndarray | None
    x: np.ndarray
    draws: np.ndarray
    theta: np.ndarray | None
    hypothesis: str
    settings: Mapping[str, Any]
    family: Family = Weak()
    surroundings: Surroundings | None = None

    def __getitem__(self, which: int) -> "LocalResult":
        """The result at one of many observations."""
        if not self.statistic.ndim:
            raise IndexError("result: expected many observations to choose from; got one.")
        arrays = {k: v[which] for k, v in vars(self).items() if isinstance(v, np.ndarray)}
        around = None if self.surroundings is None else self.surroundings[which]
        return replace(self, **arrays, surroundings=around)

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        h = self.null.shape[-1]
        p = np.atleast_1d(self.pvalue)
        test = f"{self.settings['test']}, {self.settings['n']} calibration pairs, {h} nulls"
        if p.size == 1:
            return (
                f"If q were the true posterior {self.settings['scope']}, a statistic as large as "
                f"that at x_o would be seen with probability {_number(p[0])} ± "
                f"{_number(self._errors[0])} ({test}).{self._warning}"
            )
        low = int((p <= 0.05).sum())
        level = math.floor(0.05 * (h + 1) + 1e-9) / (h + 1)
        return (
            f"At {low} of {p.size} observations the p-value is at most 0.05, where about "
            f"{_number(level * p.size)} would be if q were the true posterior "
            f"{self.settings['scope']} ({test}). Adjusted by {self.family.words}.{self._warning}"
        )

    @property
    def _errors(self) -> np.ndarray:
        return np.atleast_1d(self.pvalue_error)


@dataclass(frozen=True, eq=False)
class MomentTable:
    """Local errors of q in m directions, at c sizes, each with its error and its null.

    Fields have shape (c, m), or (o, c, m) for o observations; correlations one more m, intervals
    one more axis of levels. An error is the standard error of the estimate; a null is the standard
    deviation it would have if q were right, so that anything within twice of it is noise.

    Args:
        bias: How much too high q is, in standard deviations of q.
        bias_error: Its standard error.
        bias_null: Its standard deviation if q is right.
        dispersion: Standard deviation of q over that of the truth: above one, q is too wide.
        dispersion_error: Its standard error.
        dispersion_null: Its standard deviation, around one, if q is right.
        correlation: Correlation of the truth between directions in which q has none; None where
            the directions are parameters.
        correlation_null: Its standard deviation if q is right, with shape (c, 1, 1).
        intervals: How often q's central intervals contain the truth, at the levels
            :data:`LEVELS`; None where that is not told.
        intervals_error: Its standard error.
        intervals_null: Its standard deviation, around the level, if q is right.
    """

    bias: np.ndarray
    bias_error: np.ndarray
    bias_null: np.ndarray
    dispersion: np.ndarray
    dispersion_error: np.ndarray
    dispersion_null: np.ndarray
    correlation: np.ndarray | None
    correlation_null: np.ndarray | None
    intervals: np.ndarray | None = None
    intervals_error: np.ndarray | None = None
    intervals_null: np.ndarray | None = None

    def __post_init__(self) -> None:
        _freeze(self)


@dataclass(frozen=True, eq=False)
class RegionCoverage:
    """How often q's central regions contain the truth near x_o, at c sizes and :data:`LEVELS`.

    A region is the ball of latents that has its level under N(0, I); where there are draws it is
    their ellipsoid, that of their own mean and covariance. Fields have shape (c, l), or (o, c, l).

    Args:
        share: The share of truths inside, which is the level if q is right.
        error: Its standard error.
        null: Its standard deviation, around the level, if q is right.
    """

    share: np.ndarray
    error: np.ndarray
    null: np.ndarray

    def __post_init__(self) -> None:
        _freeze(self)


@dataclass(frozen=True, eq=False)
class Tail:
    """Truths near x_o where q has next to no mass, at c sizes; fields (c,), or (o, c).

    What q cannot show, such as a mode it has lost, no reweighting of its draws can show either.

    Args:
        count: The number of truths beyond.
        truths: The number of truths near x_o.
        share: The share of them that is expected beyond if q is right, with shape (): that of
            latents outside a ball of 99.9 %, or of truths farther out than all k draws.
    """

    count: np.ndarray
    truths: np.ndarray
    share: np.ndarray

    def __post_init__(self) -> None:
        _freeze(self)

    @property
    def pvalue(self) -> np.ndarray:
        """The exact binomial probability of as many truths beyond if q is right."""
        return np.asarray(scipy.stats.binom.sf(self.count - 1, self.truths, self.share))


@dataclass(frozen=True, eq=False, repr=False)
class MomentResult(LocalTested):
    """What the local moment test found at one observation, or at o of them.

    Args:
        statistic: The largest surprise over all sizes, with shape () or (o,).
        null: Its values for the null copies, with shape (H,) or (o, H).
        approximation: The p-value by chi-square approximations, without nulls, shaped as the
            statistic; for draws it is about twice as small as it should be.
        pairs: The effective number of calibration pairs at each size, with shape (c,) or (o, c).
        x: The observation, with shape (...,) or (o, ...).
        directions: Errors of q in latent directions; in parameters where there is no flow.
        parameters: Errors of q in parameters, through the flow; None where there is none.
        hypothesis: What a small p-value speaks against.
        settings: The settings and versions that made it.
        family: How p-values at many observations are adjusted for their number.
        surroundings: How the calibration surrounds the observations.
        region: How often q's regions contain the truth.
        tail: Truths where q has next to no mass.
    """

    statistic: np.ndarray
    null: np.ndarray
    approximation: np.ndarray
    pairs: np.ndarray
    x: np.ndarray
    directions: MomentTable
    parameters: MomentTable | None
    hypothesis: str
    settings: Mapping[str, Any]
    family: Family = Strong()
    surroundings: Surroundings | None = None
    region: RegionCoverage | None = None
    tail: Tail | None = None

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        return {
            **super()._columns,
            "p approx": self.approximation,
            "pairs": self.pairs[..., -1],
        }

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        shown = self.directions if self.parameters is None else self.parameters
        if self.pvalue.ndim:
            low = int((self.pvalue <= 0.05).sum())
            return (
                f"At {low} of {self.pvalue.size} observations the p-value is at most 0.05. "
                f"Adjusted by {self.family.words}.{self._warning}"
            )
        name = "latent" if self.parameters is None and self.settings["k"] is None else "parameter"
        bias, wide = shown.bias[-1], shown.dispersion[-1]
        parts = [
            f"{name} {j}: {bias[j]:+.2f} ± {2 * shown.bias_null[-1, j]:.2f} sd, "
            f"width × {wide[j]:.2f} ± {2 * shown.dispersion_null[-1, j]:.2f}"
            for j in range(min(len(bias), 6))
        ]
        more = "; ..." if len(bias) > len(parts) else ""
        return (
            f"Against the truth near x_o (± two null standard deviations), q is off by "
            f"{'; '.join(parts)}{more}.{self._warning}"
        )


def _freeze(result: Any) -> None:
    """Gives a result arrays of its own that cannot be written."""
    for name, value in vars(result).items():
        if isinstance(value, np.ndarray | np.generic):
            own = np.array(value)
            own.setflags(write=False)
            object.__setattr__(result, name, own)


def _rows(columns: dict[str, np.ndarray]) -> list[dict[str, float]]:
    flat = {name: np.atleast_1d(values) for name, values in columns.items()}
    return [{k: float(v[i]) for k, v in flat.items()} for i in range(len(flat["p-value"]))]


def _text(
    labels: tuple[str, tuple[str, ...]], rows: list[dict[str, float]], hypothesis: str, last: str
) -> str:
    head, names = labels[0], labels[1][:MOST_ROWS]
    width = max(3, len(head), *(len(name) for name in names))
    lines = ["  ".join([f"{head:<{width}}", *(f"{column:>10}" for column in rows[0])])]
    for name, row in zip(names, rows, strict=False):
        lines.append("  ".join([f"{name:>{width}}", *(f"{_number(v):>10}" for v in row.values())]))
    if len(rows) > len(names):
        lines.append(f"... and {len(rows) - len(names)} more")
    return "\n".join([*lines, f"H0: {hypothesis}.", last])


def _html(
    labels: tuple[str, tuple[str, ...]], rows: list[dict[str, float]], hypothesis: str, last: str
) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in (labels[0], *rows[0]))
    body = "".join(
        f"<tr><td>{escape(name)}</td>"
        + "".join(f"<td>{_number(v)}</td>" for v in row.values())
        + "</tr>"
        for name, row in zip(labels[1], rows, strict=True)
    )
    words = f"<p>H0: {escape(hypothesis)}.<br>{escape(last)}</p>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{words}"


def _number(value: float) -> str:
    """Three significant digits, without an exponent where that is readable."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < 1e-4 or abs(value) >= 1e6:
        return f"{value:.2e}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"

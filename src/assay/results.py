r"""Results: what a test found, with its null inside, so that nothing needs to be rerun.

All fields are NumPy arrays. For one observation they have no leading axis; for o observations they
have one of length o.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

__all__ = ["LocalResult", "pvalue"]


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
    slack = 100 * np.finfo(float).eps * np.abs(statistic)
    larger = null >= (statistic - slack)[..., None]
    return np.asarray((1 + larger.sum(-1)) / (1 + null.shape[-1]))


@dataclass(frozen=True, eq=False)
class LocalResult:
    """What a local test found at one observation, or at o of them.

    Args:
        statistic: The statistic at x_o, with shape () or (o,).
        null: Its values for the null copies, with shape (H,) or (o, H).
        probabilities: P(class 1 = truth) at the draws, with shape (s,) or (o, s).
        null_probabilities: The same for the null copies, with shape (H, s) or (o, H, s).
        x: The observation, with shape (...,) or (o, ...).
        draws: The draws of q that were scored, latents in latent space, with shape (s, m) or
            (o, s, m).
        theta: The same draws in parameter units; None where no flow was given to tell.
        hypothesis: What a small p-value speaks against.
        settings: The settings and versions that made it.
    """

    statistic: np.ndarray
    null: np.ndarray
    probabilities: np.ndarray
    null_probabilities: np.ndarray
    x: np.ndarray
    draws: np.ndarray
    theta: np.ndarray | None
    hypothesis: str
    settings: Mapping[str, Any]

    @property
    def pvalue(self) -> np.ndarray:
        """The p-value, with shape () or (o,)."""
        return pvalue(self.statistic, self.null)

    @property
    def pvalue_error(self) -> np.ndarray:
        """The Monte-Carlo standard error of the p-value, due to the finite number of nulls."""
        p = self.pvalue
        return np.asarray(np.sqrt(p * (1 - p) / (1 + self.null.shape[-1])))

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each observation: statistic, 95 % quantile of the null, p-value, error."""
        columns = {
            "statistic": self.statistic,
            "null 95 %": np.quantile(self.null, 0.95, axis=-1),
            "p-value": self.pvalue,
            "± MC error": self.pvalue_error,
        }
        flat = {name: np.atleast_1d(values) for name, values in columns.items()}
        return [{k: float(v[i]) for k, v in flat.items()} for i in range(len(flat["p-value"]))]

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        h = self.null.shape[-1]
        p = np.atleast_1d(self.pvalue)
        test = f"{self.settings['test']}, {self.settings['n']} calibration pairs, {h} nulls"
        if p.size == 1:
            return (
                f"If q were the true posterior at every x, a statistic as large as that at x_o "
                f"would be seen with probability {_number(p[0])} ± {_number(self._errors[0])} "
                f"({test})."
            )
        low = int((p <= 0.05).sum())
        return (
            f"At {low} of {p.size} observations the p-value is at most 0.05, where about "
            f"{_number(0.05 * p.size)} would be if q were the true posterior at every x ({test})."
        )

    @property
    def _errors(self) -> np.ndarray:
        return np.atleast_1d(self.pvalue_error)

    def __repr__(self) -> str:
        rows = self.table
        lines = ["  ".join(["x_o", *(f"{name:>10}" for name in rows[0])])]
        shown = rows[:20]
        for i, row in enumerate(shown):
            lines.append("  ".join([f"{i:>3}", *(f"{_number(v):>10}" for v in row.values())]))
        if len(rows) > len(shown):
            lines.append(f"... and {len(rows) - len(shown)} more")
        return "\n".join([*lines, f"H0: {self.hypothesis}.", self.sentence])

    def _repr_html_(self) -> str:
        rows = self.table
        head = "".join(f"<th>{escape(name)}</th>" for name in ("x_o", *rows[0]))
        body = "".join(
            f"<tr><td>{i}</td>" + "".join(f"<td>{_number(v)}</td>" for v in row.values()) + "</tr>"
            for i, row in enumerate(rows)
        )
        words = f"<p>H0: {escape(self.hypothesis)}.<br>{escape(self.sentence)}</p>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{words}"


def _number(value: float) -> str:
    """Three significant digits, without an exponent where that is readable."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if abs(value) < 1e-4 or abs(value) >= 1e6:
        return f"{value:.2e}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(abs(value))))}f}"

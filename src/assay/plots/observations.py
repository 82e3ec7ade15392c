"""A test at many observations: its statistic along a sweep, and all of its p-values."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ..door import check_kind
from ..results import LocalTested
from .canvas import BAND, CURVE, ENVELOPE, SMALL, STEP, axes, check_level, legend, plain, threshold

__all__ = ["pvalues", "sweep"]

# Observations up to which discoveries are numbered, and from which on points are small.
FEW, CROWD = 15, 50


def sweep(
    result: LocalTested,
    values: Any,
    ax: Axes | None = None,
    alpha: float = 0.05,
    label: str = "swept quantity",
) -> Axes:
    """Draws the statistic along a swept quantity, with its null band (Figure 3 of the paper).

    A point above the band is rejected at level alpha, taken by itself, and no other is. With
    fewer than 1 / alpha - 1 nulls nothing can be rejected, and the band holds all of them.

    Args:
        result: What a local test found at o observations.
        values: The swept quantity at each, with shape (o,), in any order.
        ax: Where to draw; new axes of one column's width if None.
        alpha: The level.
        label: The name of the swept quantity.

    Returns:
        The axes.

    Example:
        >>> z, x = torch.randn(2, 500, 1, generator=torch.Generator().manual_seed(0))
        >>> x_o = torch.linspace(-2, 2, 9)[:, None]
        >>> result = assay.moments(assay.Calibration.from_base(z + (x > 0), x))(assay.Draws(x_o))
        >>> sweep(result, x_o[:, 0], label="x").get_xlabel()
        'x'
    """
    _check(result, alpha)
    at = _swept(values, len(result.statistic))
    order = np.argsort(at, kind="stable")
    at, statistic, null = at[order], result.statistic[order], result.null[order]
    rejected = result.pvalue[order] <= alpha
    ax = axes(ax, 2.6)
    # Only large statistics speak against q: the band reaches down to where none can be.
    floor = min(0.0, float(null.min()), float(statistic.min()))
    upper = threshold(null, alpha)
    words = f"null, all but its {100 * alpha:g} % largest"
    ax.fill_between(at, floor, upper, color=ENVELOPE, lw=0, label=words)
    ax.plot(at, null.mean(1), color=STEP, lw=0.8, ls="--", label="null, mean")
    ax.plot(at, statistic, color=CURVE, lw=1.0, zorder=2)
    kinds = ((rejected, CURVE, f"rejected, p ≤ {alpha:g}"), (~rejected, "white", "not rejected"))
    for some, face, word in kinds:
        ax.scatter(at[some], statistic[some], s=16, c=face, ec=CURVE, lw=1, zorder=3, label=word)
    ax.set_ylim(bottom=floor)
    ax.set_xlabel(plain(label))
    ax.set_ylabel("statistic at x_o")
    ax.spines[["top", "right"]].set_visible(False)
    legend(ax)
    return ax


def pvalues(result: LocalTested, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    r"""Draws sorted p-values with the line of Benjamini and Hochberg, on logarithmic axes.

    With :math:`p_{(i)}` the i-th smallest of o p-values, all up to the last that lies on or below
    the line :math:`\alpha i / o` are discoveries, of which at most a share alpha is false on
    average. If q is right everywhere, the points follow the line i / o above it. No p-value is
    smaller than 1 / (1 + H), where H is the number of nulls; the dotted line is there.

    Args:
        result: What a local test found at o observations.
        ax: Where to draw; new axes of one column's width if None.
        alpha: The false discovery rate.

    Returns:
        The axes.

    References:
        Benjamini and Hochberg 1995, *Controlling the False Discovery Rate*.

    Example:
        >>> z, x = torch.randn(2, 500, 1, generator=torch.Generator().manual_seed(0))
        >>> test = assay.moments(assay.Calibration.from_base(z + (x > 0), x))
        >>> pvalues(test(assay.Draws(x[:20]))).get_ylabel()
        'p-value'
    """
    _check(result, alpha)
    count, least = len(result.pvalue), 1 / (1 + result.null.shape[-1])
    order = np.argsort(result.pvalue, kind="stable")
    rank, p = np.arange(1, count + 1), result.pvalue[order]
    found = result.fdr[order] <= alpha
    ax = axes(ax, 2.9)
    ax.plot(rank, rank / count, color=BAND, lw=1.2, label="if q = p, about")
    ax.plot(
        rank,
        alpha * rank / count,
        color=STEP,
        lw=0.8,
        ls="--",
        label=f"Benjamini–Hochberg, {alpha:g}",
    )
    ax.axhline(least, color=BAND, lw=0.8, ls=":", label="smallest possible p")
    kinds = ((found, CURVE, f"discoveries, {found.sum()}"), (~found, "white", "others"))
    size = 16 if count <= CROWD else 8
    for some, face, word in kinds:
        ax.scatter(rank[some], p[some], size, face, ec=CURVE, lw=0.8, zorder=3, label=word)
    if count <= FEW:
        _number(ax, rank[found], p[found], order[found])
    ax.set(xscale="log", yscale="log")
    _limits(ax, count, min(least, alpha / count))
    ax.set_xlabel("i, rank of the p-value")
    ax.set_ylabel("p-value")
    ax.spines[["top", "right"]].set_visible(False)
    legend(ax)
    return ax


def _number(ax: Axes, rank: np.ndarray, p: np.ndarray, which: np.ndarray) -> None:
    """Says above a point which observation it is."""
    for i, height, o in zip(rank, p, which, strict=True):
        ax.annotate(
            f"{o}",
            (i, height),
            xytext=(0, 4),
            textcoords="offset points",
            ha="center",
            fontsize=SMALL - 1,
        )


def _limits(ax: Axes, count: int, lowest: float) -> None:
    """Plain numbers on the axis of ranks, and room around all that is drawn."""
    steps = [s * 10**e for e in range(len(str(count))) for s in (1, 2, 5) if s * 10**e <= count]
    ax.set_xticks(steps, [f"{step}" for step in steps])
    ax.set_xticks([], minor=True)
    margin = 1.15 if count > 3 else 1.08
    ax.set(xlim=(1 / margin, count * margin), ylim=(lowest / 1.7, 1.4))


def _check(result: LocalTested, alpha: float) -> None:
    check_kind("result", result, "that of a local test such as lc2st", "fdr", "null")
    if not result.statistic.ndim:
        raise ValueError(
            "result: expected many observations; got one. Call the test with many x_o, (o, ...)."
        )
    check_level(alpha)


def _swept(values: Any, count: int) -> np.ndarray:
    """A finite number for each observation."""
    try:
        at = np.asarray(values, float)
    except (TypeError, ValueError) as error:
        raise TypeError(f"values: expected numbers with shape ({count},); got {error}.") from error
    if at.shape != (count,) or not np.isfinite(at).all():
        what = f"shape {at.shape}" if at.shape != (count,) else "NaN or infinity"
        raise ValueError(
            f"values: expected a finite number for each of {count} observations; got {what}."
        )
    return at

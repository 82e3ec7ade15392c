"""Pictures of ranks: histogram, distribution function, and its difference from uniform."""

import numpy as np
from matplotlib.axes import Axes

from ..diagnostics.sbc import SBCResult
from .canvas import CURVE, ENVELOPE, STEP, axes, curves, legend, percent, plain, rows_of

__all__ = ["rank_difference", "rank_ecdf", "rank_histogram"]


def rank_histogram(
    result: SBCResult, ax: Axes | None = None, quantity: str | None = None, alpha: float = 0.05
) -> Axes:
    """Draws the ranks of one quantity in bins, with a null band that holds all bars at once.

    A U shape means that q is overconfident, a hump that it is conservative, a slope to the left
    that it is too high.

    Args:
        result: What simulation-based calibration found.
        ax: Where to draw; new axes of one column's width if None.
        quantity: The name of the quantity; the first if None.
        alpha: One minus the joint coverage of the band.

    Returns:
        The axes.
    """
    j = _index(result, quantity)
    found = result.histogram(alpha)
    ax = axes(ax, 2.4)
    # Counts for each rank, so that bins of unequal size compare.
    size = np.diff(found.edges)
    lower, upper, expected = (
        np.append(part / size, (part / size)[-1])
        for part in (found.lower, found.upper, found.expected)
    )
    label = f"{percent(alpha)} null, all bars"
    ax.fill_between(found.edges, lower, upper, step="post", color=ENVELOPE, lw=0, label=label)
    ax.step(found.edges, expected, where="post", color=STEP, lw=0.8, ls="--", label="if q = p")
    ax.bar(
        found.edges[:-1],
        found.counts[j] / size,
        size,
        align="edge",
        facecolor="none",
        edgecolor=CURVE,
        lw=1.2,
        label=plain(result.names[j]),
    )
    ax.set(xlim=(0, result.k + 1), ylim=(0, None))
    ax.set_xlabel("rank of the truth among draws of q")
    ax.set_ylabel("pairs per rank")
    legend(ax)
    return ax


def rank_ecdf(result: SBCResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the distribution functions of all ranks, with a simultaneous null band.

    Args:
        result: What simulation-based calibration found.
        ax: Where to draw; new axes of one column's width if None.
        alpha: One minus the joint coverage of the band, for each curve.

    Returns:
        The axes.
    """
    curve = result.ecdf(alpha)
    ax = axes(ax, 3.6, rows_of(result.names, 2))
    _band(ax, curve.levels, curve.lower, curve.upper, alpha)
    ax.plot([0, 1], [0, 1], color=STEP, lw=0.8, ls="--", label="if q = p")
    curves(ax, curve.levels, curve.ecdf, result.names, curve.levels)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xlabel("level of the rank")
    ax.set_ylabel("share of truths below")
    legend(ax)
    return ax


def rank_difference(result: SBCResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the distribution functions of all ranks less the diagonal, with a simultaneous band.

    Above zero on the left and below it on the right, q is overconfident; the other way round,
    conservative; above zero throughout, too high.

    Args:
        result: What simulation-based calibration found.
        ax: Where to draw; new axes of one column's width if None.
        alpha: One minus the joint coverage of the band, for each curve.

    Returns:
        The axes.
    """
    curve = result.ecdf(alpha)
    ax = axes(ax, 2.6, rows_of(result.names, 2))
    _band(ax, curve.levels, curve.difference_lower, curve.difference_upper, alpha)
    ax.axhline(0, color=STEP, lw=0.8, ls="--", label="if q = p")
    curves(ax, curve.levels, curve.difference, result.names, np.zeros_like(curve.levels))
    ax.set(xlim=(0, 1))
    ax.set_xlabel("level of the rank")
    ax.set_ylabel("share of truths below − level")
    legend(ax)
    return ax


def _index(result: SBCResult, quantity: str | None) -> int:
    if quantity is not None and quantity not in result.names:
        raise ValueError(f"quantity: expected one of {', '.join(result.names)}; got {quantity!r}.")
    return 0 if quantity is None else result.names.index(quantity)


def _band(
    ax: Axes, levels: np.ndarray, lower: np.ndarray, upper: np.ndarray, alpha: float
) -> None:
    label = f"{percent(alpha)} null, whole curve"
    ax.fill_between(levels, lower, upper, color=ENVELOPE, lw=0, label=label)

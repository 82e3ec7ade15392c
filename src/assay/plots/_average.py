"""Tests over all x: the ranks of truths among draws, and expected coverage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from ._canvas import (
    CURVE,
    ENVELOPE,
    INK,
    axes,
    curves,
    diagonal,
    legend,
    percent,
    plain,
    rows_of,
    square,
    style,
)
from ._shapes import farthest

if TYPE_CHECKING:
    from ..diagnostics.average.coverage import CoverageCurve, Covered
    from ..diagnostics.average.sbc import SBCResult

# Intervals that can be told apart in one picture.
MOST_INTERVALS = 3


def coverage(result: Covered, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws expected coverage or TARP against the level, with its interval and a null band.

    Below the diagonal q is overconfident, above it conservative; for TARP this holds above 1/2.
    Around each curve, or the three farthest from the diagonal, stand its pointwise intervals, of
    Clopper and Pearson for regions and of the bootstrap for TARP; around the diagonal the band
    that holds a whole curve if q is right.
    """
    curve = result.curve(alpha)
    ax = axes(ax, 3.6, rows_of(result.names, 3))
    _null_band(ax, curve.levels, (curve.null_lower, curve.null_upper), alpha)
    diagonal(ax, "if q = p")
    _intervals(ax, curve)
    curves(ax, curve.levels, curve.coverage, result.names, curve.levels)
    return square(ax, f"level of {result.held}", "share of truths inside")


def rank_histogram(
    result: SBCResult, ax: Axes | None = None, quantity: str | None = None, alpha: float = 0.05
) -> Axes:
    """Draws the ranks of a named quantity in bins, with a null band that holds all bars at once.

    A U shape means that q is overconfident, a hump that it is conservative, a slope to the left
    that it is too high. The first quantity is drawn if none is named.
    """
    j = _index(result.names, quantity)
    bars = result.histogram(alpha)
    ax = axes(ax, 2.4)
    # Counts for each rank, so that bins of unequal size compare.
    size = np.diff(bars.edges)
    parts = (part / size for part in (bars.lower, bars.upper, bars.expected))
    lower, upper, expected = (np.append(part, part[-1]) for part in parts)
    label = f"{percent(alpha)} null, all bars"
    ax.fill_between(bars.edges, lower, upper, step="post", color=ENVELOPE, lw=0, label=label)
    ax.step(bars.edges, expected, where="post", color=INK, lw=0.8, ls="--", label="if q = p")
    shape: dict[str, Any] = {"align": "edge", "facecolor": "none", "edgecolor": CURVE, "lw": 1.2}
    ax.bar(bars.edges[:-1], bars.counts[j] / size, size, label=plain(result.names[j]), **shape)
    ax.set(xlim=(0, result.k + 1), ylim=(0, None))
    ax.set(xlabel="rank of the truth among draws of q", ylabel="pairs per rank")
    return legend(ax)


def rank_ecdf(result: SBCResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the distribution functions of all ranks, with a simultaneous null band."""
    ax, curve = axes(ax, 3.6, rows_of(result.names, 2)), result.ecdf(alpha)
    _null_band(ax, curve.levels, (curve.lower, curve.upper), alpha)
    diagonal(ax, "if q = p")
    curves(ax, curve.levels, curve.ecdf, result.names, curve.levels)
    return square(ax, "level of the rank", "share of truths below")


def rank_difference(result: SBCResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the distribution functions of all ranks less the diagonal, with a simultaneous band.

    Above zero on the left and below it on the right, q is overconfident; the other way round,
    conservative; above zero throughout, too high.
    """
    curve = result.ecdf(alpha)
    ax = axes(ax, 2.6, rows_of(result.names, 2))
    _null_band(ax, curve.levels, (curve.difference_lower, curve.difference_upper), alpha)
    ax.axhline(0, color=INK, lw=0.8, ls="--", label="if q = p")
    curves(ax, curve.levels, curve.difference, result.names, np.zeros_like(curve.levels))
    ax.set(xlim=(0, 1), xlabel="level of the rank", ylabel="share of truths below − level")
    return legend(ax)


def _null_band(
    ax: Axes, levels: np.ndarray, ends: tuple[np.ndarray, np.ndarray], alpha: float
) -> None:
    """Draws the band between both ends (g,) that holds a whole curve if q is right."""
    label = f"{percent(alpha)} null, whole curve"
    ax.fill_between(levels, *ends, color=ENVELOPE, lw=0, label=label)


def _intervals(ax: Axes, curve: CoverageCurve) -> None:
    """Draws intervals of the farthest curves in the colours of these."""
    named = farthest(curve.coverage, curve.levels)
    shown = farthest(curve.coverage, curve.levels, MOST_INTERVALS)
    which = "each level" if len(shown) == len(curve.coverage) else "farthest curves"
    for i, j in enumerate(shown):
        label = None if i else f"{percent(curve.alpha)} interval, {which}"
        ends, colour = (curve.lower[j], curve.upper[j]), style(named.index(j))["color"]
        ax.fill_between(curve.levels, *ends, color=colour, alpha=0.2, lw=0, label=label)


def _index(names: Sequence[str], quantity: str | None) -> int:
    """The place of a quantity among the names; the first if None."""
    if quantity is not None and quantity not in names:
        raise ValueError(f"quantity: expected one of {', '.join(names)}; got {quantity!r}.")
    return 0 if quantity is None else names.index(quantity)

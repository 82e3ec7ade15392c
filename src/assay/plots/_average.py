"""Tests over all x: the ranks of truths among draws, and expected coverage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from .._support.inputs import check_kind
from ..results import holm
from ._canvas import (
    CURVE,
    ENVELOPE,
    INK,
    axes,
    curves,
    diagonal,
    legend,
    named,
    percent,
    rows_of,
    smallest,
    square,
    style,
    told_apart,
)
from ._shapes import farthest

if TYPE_CHECKING:
    from ..average.coverage import CoverageCurve, CoverageResult
    from ..average.sbc import SBCResult

# Intervals that can be told apart in one picture.
MOST_INTERVALS = 3


def coverage(result: CoverageResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws how far expected coverage or TARP is from the level, with intervals and a null band.

    Below zero q is overconfident, above it conservative; for TARP this holds above 1/2. Around
    each curve, or the three farthest from zero, stand its pointwise intervals, of Clopper and
    Pearson for regions and of the bootstrap for TARP; around zero the band that holds a whole
    curve if q is right.
    """
    check_kind("result", result, "that of coverage or tarp", "positions", "curve")
    curve = result.curve(alpha)
    ax = axes(ax, 2.7, rows_of(result.names, 3))
    band = (curve.null_lower - curve.levels, curve.null_upper - curve.levels)
    _null_band(ax, curve.levels, band, alpha)
    _zero(ax)
    _intervals(ax, curve)
    difference = curve.coverage - curve.levels
    curves(ax, curve.levels, difference, result.names, np.zeros_like(curve.levels))
    ax.set(xlim=(0, 1), xlabel=f"level of {result.held}", ylabel="share of truths inside − level")
    return legend(ax, title=smallest(result.adjusted, result.names))


def rank_histogram(
    result: SBCResult, ax: Axes | None = None, quantity: str | None = None, alpha: float = 0.05
) -> Axes:
    """Draws the ranks of a named quantity in bins, with a band that holds all bars at once.

    A U shape means that q is overconfident, a hump that it is conservative, a slope to the left
    that it is too high. The first quantity is drawn if none is named. Bins hold whole ranks; some
    hold one more than others, so that bars are shown over what is expected in their bin.
    """
    check_kind("result", result, "that of sbc", "ranks", "ecdf")
    j, bins, ax = _index(result.names, quantity), result.histogram(alpha), axes(ax, 2.5, 1)
    band, edges = (bins.lower / bins.expected, bins.upper / bins.expected), bins.edges
    shape: dict[str, Any] = {"label": f"{percent(alpha)} null, all bars", "fill": True, "lw": 0}
    ax.stairs(band[1], edges, baseline=band[0], color=ENVELOPE, **shape)
    ax.axhline(1, color=INK, lw=0.8, ls="--", label="if q = p")
    bars: dict[str, Any] = {"color": CURVE, "lw": 1.2, "baseline": None}
    ax.stairs(bins.counts[j] / bins.expected, edges, label=named(result.names[j]), **bars)
    ax.set(xlim=(0, result.k + 1), ylim=(0, None), ylabel="pairs in each bin / expected")
    ax.set(xlabel=f"rank of the truth among {result.k} draws of q")
    return legend(ax, title=f"chi-square: p = {result.chi_square.pvalue[j]:.3g}")


def rank_ecdf(result: SBCResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the distribution functions of all ranks, with a simultaneous null band."""
    check_kind("result", result, "that of sbc", "ranks", "ecdf")
    ax, curve = axes(ax, 3.65, rows_of(result.names, 2)), result.ecdf(alpha)
    _null_band(ax, curve.levels, (curve.lower, curve.upper), alpha)
    diagonal(ax, "if q = p")
    curves(ax, curve.levels, curve.ecdf, result.names, curve.levels)
    title = smallest(holm(result.envelope.pvalue), result.names)
    return square(ax, "level of the rank", "share of truths below", title)


def rank_difference(result: SBCResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the distribution functions of all ranks less the diagonal, with a simultaneous band.

    Above zero on the left and below it on the right, q is overconfident; the other way round,
    conservative; above zero throughout, too high.
    """
    check_kind("result", result, "that of sbc", "ranks", "ecdf")
    curve = result.ecdf(alpha)
    ax = axes(ax, 2.7, rows_of(result.names, 2))
    _null_band(ax, curve.levels, (curve.difference_lower, curve.difference_upper), alpha)
    _zero(ax)
    curves(ax, curve.levels, curve.difference, result.names, np.zeros_like(curve.levels))
    ax.set(xlim=(0, 1), xlabel="level of the rank", ylabel="share of truths below − level")
    return legend(ax, title=smallest(holm(result.envelope.pvalue), result.names))


def _zero(ax: Axes) -> None:
    """Draws where differences would lie if all were right."""
    ax.axhline(0, color=INK, lw=0.8, ls="--", label="if q = p")


def _null_band(
    ax: Axes, levels: np.ndarray, ends: tuple[np.ndarray, np.ndarray], alpha: float
) -> None:
    """Draws the band between both ends (g,) that holds a whole curve if q is right."""
    label = f"{percent(alpha)} null, whole curve"
    ax.fill_between(levels, *ends, color=ENVELOPE, lw=0, label=label)


def _intervals(ax: Axes, curve: CoverageCurve) -> None:
    """Draws intervals of the farthest curves in the colours of these."""
    coloured = told_apart(curve.coverage, curve.levels)
    shown = farthest(curve.coverage, curve.levels, MOST_INTERVALS)
    which = "each level" if len(shown) == len(curve.coverage) else "farthest curves"
    for i, j in enumerate(shown):
        label = None if i else f"{percent(curve.alpha)} interval, {which}"
        ends = (curve.lower[j] - curve.levels, curve.upper[j] - curve.levels)
        colour = style(coloured.index(j))["color"]
        ax.fill_between(curve.levels, *ends, color=colour, alpha=0.2, lw=0, label=label)


def _index(names: Sequence[str], quantity: str | None) -> int:
    """The place of a quantity among the names; the first if None."""
    if quantity is not None and (not isinstance(quantity, str) or quantity not in names):
        raise ValueError(f"quantity: expected one of {', '.join(names)}; got {quantity!r}.")
    return 0 if quantity is None else names.index(quantity)

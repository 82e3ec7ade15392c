"""The curve of expected coverage, of regions or of balls around references."""

from matplotlib.axes import Axes

from ..diagnostics.coverage import CoverageCurve, Covered
from .canvas import ENVELOPE, STEP, axes, curves, farthest, legend, percent, rows_of, style

__all__ = ["coverage"]

# Intervals that can be told apart in one picture.
MOST_INTERVALS = 3


def coverage(result: Covered, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws expected coverage against the level, with its interval and a null band.

    Below the diagonal q is overconfident, above it conservative; for TARP this holds above 1/2.
    Around each curve, or the three farthest from the diagonal, stand its pointwise intervals, of
    Clopper and Pearson for regions and of the bootstrap for TARP; around the diagonal the band
    that holds a whole curve if q is right.

    Args:
        result: What :func:`assay.coverage` or :func:`assay.tarp` found.
        ax: Where to draw; new axes of one column's width if None.
        alpha: One minus the coverage of the intervals and of the band, for each curve.

    Returns:
        The axes.
    """
    curve = result.curve(alpha)
    ax = axes(ax, 3.6, rows_of(result.names, 3))
    share = percent(alpha)
    ax.fill_between(
        curve.levels,
        curve.null_lower,
        curve.null_upper,
        color=ENVELOPE,
        lw=0,
        label=f"{share} null, whole curve",
    )
    ax.plot([0, 1], [0, 1], color=STEP, lw=0.8, ls="--", label="if q = p")
    _intervals(ax, curve)
    curves(ax, curve.levels, curve.coverage, result.names, curve.levels)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xlabel(f"level of {result.held}")
    ax.set_ylabel("share of truths inside")
    legend(ax)
    return ax


def _intervals(ax: Axes, curve: CoverageCurve) -> None:
    """Draws intervals in the colours of their curves."""
    named = farthest(curve.coverage, curve.levels)
    shown = farthest(curve.coverage, curve.levels, MOST_INTERVALS)
    which = "each level" if len(shown) == len(curve.coverage) else "farthest curves"
    for i, j in enumerate(shown):
        label = None if i else f"{percent(curve.alpha)} interval, {which}"
        ends, colour = (curve.lower[j], curve.upper[j]), style(named.index(j))["color"]
        ax.fill_between(curve.levels, *ends, color=colour, alpha=0.2, lw=0, label=label)

"""Local PP-plots of levels: coverage at x_o against the level, one curve a column."""

import numpy as np
from matplotlib.axes import Axes

from ..curves import PPCurve
from ..diagnostics.level_curves import LevelResult
from .canvas import BAND, ENVELOPE, STEP, axes, curves, legend, only_one, percent, rows_of

__all__ = ["levels"]


def levels(result: LevelResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws how often the truth lies below each level at one observation, with null bands.

    Of several columns, the bands are the widest at each level.

    Args:
        result: What a test of local levels found at one observation.
        ax: Where to draw; new axes of one column's width if None.
        alpha: One minus the coverage of the bands, for each column.

    Returns:
        The axes.
    """
    only_one(result.curves, 2)
    ax = axes(ax, 3.6, rows_of(result.names, 3))
    grid = np.concatenate([[0], result.alphas, [1]])
    _draw_bands(ax, grid, result.bands(alpha))
    ax.plot([0, 1], [0, 1], color=STEP, lw=0.8, ls="--", label="ideal if q = p")
    closed = np.stack([_closed(curve) for curve in result.curves])
    curves(ax, grid, closed, result.names, grid)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xlabel("level")
    ax.set_ylabel("share of truths below, near x_o")
    legend(ax)
    return ax


def _draw_bands(ax: Axes, grid: np.ndarray, bands: PPCurve) -> None:
    share = percent(bands.alpha)
    pairs = (
        (bands.envelope_lower, bands.envelope_upper, ENVELOPE, f"{share} null, whole curve"),
        (bands.lower, bands.upper, BAND, f"{share} null, each level"),
    )
    for lower, upper, colour, label in pairs:
        edges = (_closed(lower.min(0)), _closed(upper.max(0)))
        ax.fill_between(grid, *edges, color=colour, lw=0, label=label)


def _closed(curve: np.ndarray) -> np.ndarray:
    """A curve with its known ends."""
    return np.concatenate([[0], curve, [1]])

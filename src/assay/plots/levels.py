"""Local PP-plots of levels: coverage at x_o against the level, one curve a column."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from ..curves import PPCurve
from ..diagnostics.level_curves import LevelResult
from .pp import BAND, CURVE, ENVELOPE, STEP

__all__ = ["levels"]

# Okabe and Ito's palette, beginning with the colour of all data curves.
COLOURS = (CURVE, "#0072B2", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
STYLES = ("-", "--", ":", "-.")


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
    if result.curves.ndim != 2:
        raise ValueError(
            f"result: expected one observation; got {len(result.curves)}. "
            "Call the test with one x_o, without a leading axis."
        )
    if ax is None:
        _, ax = plt.subplots(figsize=(3.4, 3.9), layout="constrained")
    grid = np.concatenate([[0], result.alphas, [1]])
    _draw_bands(ax, grid, result.bands(alpha))
    ax.plot([0, 1], [0, 1], color=STEP, lw=0.8, ls="--", label="ideal if q = p")
    for j, (name, curve) in enumerate(zip(result.names, result.curves, strict=True)):
        style = STYLES[j // len(COLOURS) % len(STYLES)]
        colour = COLOURS[j % len(COLOURS)]
        ax.plot(grid, _closed(curve), color=colour, lw=1.4, ls=style, label=name)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xlabel("level")
    ax.set_ylabel("share of truths below, near x_o")
    ax.legend(
        fontsize=7,
        frameon=False,
        handlelength=1.8,
        columnspacing=1.2,
        ncols=2,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.01),
    )
    return ax


def _draw_bands(ax: Axes, grid: np.ndarray, bands: PPCurve) -> None:
    share = f"{100 * (1 - bands.alpha):g} %"
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

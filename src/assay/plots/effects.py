"""A forest plot of effects: bias and dispersion of every parameter, with their null bands."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..effects import Effects
from ..ratios import Estimate
from .canvas import CURVE, ENVELOPE, STEP, axes, legend, plain

__all__ = ["effects"]

# The thickness of a null band, and what lies between bias and dispersion.
THICK, GAP = 0.6, 0.8


def effects(found: Effects, ax: Axes | None = None) -> Axes:
    """Draws bias and dispersion at one observation: stated bands over null bands.

    Dispersion is drawn less one, so that both are zero if q is right; what is wrong by more than
    noise is coloured.

    Args:
        found: The effects at one observation.
        ax: Where to draw; new axes of one column's width if None.

    Returns:
        The axes.
    """
    if found.many:
        raise ValueError(
            f"found: expected one observation; got {len(found.bias.value)}. Choose one, such as "
            "found[0]."
        )
    m = len(found.names)
    rows = np.concatenate([np.arange(m), np.arange(m) + m + GAP])
    ax = axes(ax, 1.1 + 0.2 * (rows[-1] + 1))
    _draw(ax, rows[:m], found.bias, 0.0)
    _draw(ax, rows[m:], found.dispersion, 1.0)
    ax.axvline(0, color=STEP, lw=0.8, ls="--")
    names = [f"{plain(name)} {kind}" for kind in ("bias", "width") for name in found.names]
    ax.set_yticks(rows, names)
    ax.set_ylim(rows[-1] + 0.7, -0.7)
    label = "bias in sd of q; width over the true one, less 1\n← low, narrow          high, wide →"
    ax.set_xlabel(label)
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    legend(ax, 3, handles=_handles(), bbox_to_anchor=(0.35, 1.0))
    return ax


def _draw(ax: Axes, rows: np.ndarray, estimate: Estimate, right: float) -> None:
    """Null bands as bars, stated bands as lines and estimates as points."""
    width = estimate.null_upper - estimate.null_lower
    ax.barh(rows, width, THICK, estimate.null_lower - right, color=ENVELOPE, lw=0)
    colours = [CURVE if wrong else STEP for wrong in estimate.wrong]
    ax.hlines(rows, estimate.lower - right, estimate.upper - right, colors=colours, lw=1.4)
    ax.scatter(estimate.value - right, rows, s=16, c=colours, zorder=3)


def _handles() -> list[Patch | Line2D]:
    kinds = {"within noise": STEP, "beyond noise": CURVE}
    return [
        Patch(color=ENVELOPE, lw=0, label="95 % null"),
        *(
            Line2D([], [], color=colour, label=label, marker="o", markersize=4, lw=1.4)
            for label, colour in kinds.items()
        ),
    ]

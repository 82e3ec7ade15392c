"""The local PP-plot of the paper (Figure 4, Algorithm 5)."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from ..curves import pp_curve
from ..results import LocalResult

__all__ = ["pp"]

# Okabe and Ito's vermilion, and greys that print.
CURVE, BAND, ENVELOPE, STEP = "#D55E00", "#9a9a9a", "#d9d9d9", "#333333"


def pp(result: LocalResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the distribution of class probabilities at one observation, with null bands.

    Args:
        result: What a local test found at one observation.
        ax: Where to draw; new axes of one column's width if None.
        alpha: One minus the coverage of the bands.

    Returns:
        The axes.
    """
    if result.probabilities.ndim != 1:
        raise ValueError(
            f"result: expected one observation; got {len(result.probabilities)}. "
            "Call the test with one x_o, without a leading axis."
        )
    curve = pp_curve(result, alpha)
    if ax is None:
        _, ax = plt.subplots(figsize=(3.4, 3.6), layout="constrained")
    share = f"{100 * (1 - alpha):g} %"
    bands = (
        (curve.envelope_lower, curve.envelope_upper, ENVELOPE, f"{share} null, whole curve"),
        (curve.lower, curve.upper, BAND, f"{share} null, each level"),
    )
    for lower, upper, colour, label in bands:
        ax.fill_between(curve.levels, lower, upper, step="post", color=colour, lw=0, label=label)
    ax.plot([0, 0.5, 0.5, 1], [0, 0, 1, 1], color=STEP, lw=0.8, ls="--", label="ideal if q = p")
    ax.step(curve.levels, curve.ecdf, where="post", color=CURVE, lw=1.6, label="draws of q at x_o")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xlabel("probability of class 0 (q)")
    ax.set_ylabel("share of draws below")
    ax.legend(
        fontsize=7,
        frameon=False,
        handlelength=1.4,
        columnspacing=1.2,
        ncols=2,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.01),
    )
    return ax

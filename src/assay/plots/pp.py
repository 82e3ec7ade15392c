"""The local PP-plot of the paper (Figure 4, Algorithm 5)."""

from matplotlib.axes import Axes

from ..curves import pp_curve
from ..door import check_kind
from ..results import LocalResult
from .canvas import BAND, CURVE, ENVELOPE, STEP, axes, legend, only_one, percent

__all__ = ["pp"]


def pp(result: LocalResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the distribution of class probabilities at one observation, with null bands.

    Args:
        result: What a local test found at one observation.
        ax: Where to draw; new axes of one column's width if None.
        alpha: One minus the coverage of the bands.

    Returns:
        The axes.
    """
    check_kind("result", result, "that of a local test such as lc2st", "probabilities")
    only_one(result.probabilities, 1)
    curve = pp_curve(result, alpha)
    ax = axes(ax, 3.6)
    share = percent(alpha)
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
    legend(ax)
    return ax

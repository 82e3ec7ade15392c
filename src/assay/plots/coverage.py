"""The curve of expected coverage, of regions or of balls around references."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from ..diagnostics.coverage import Covered
from .pp import ENVELOPE, STEP
from .ranks import COLOURS, STYLES

__all__ = ["coverage"]


def coverage(result: Covered, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws expected coverage against the level, with its interval and a null band.

    Below the diagonal q is overconfident, above it conservative; for TARP this holds above 1/2.
    Around each curve stand its pointwise intervals, of Clopper and Pearson for regions and of the
    bootstrap for TARP; around the diagonal the band that holds a whole curve if q is right.

    Args:
        result: What :func:`assay.coverage` or :func:`assay.tarp` found.
        ax: Where to draw; new axes of one column's width if None.
        alpha: One minus the coverage of the intervals and of the band, for each curve.

    Returns:
        The axes.
    """
    curve = result.curve(alpha)
    if ax is None:
        _, ax = plt.subplots(figsize=(3.4, 3.7), layout="constrained")
    share = f"{100 * (1 - alpha):g} %"
    ax.fill_between(
        curve.levels,
        curve.null_lower,
        curve.null_upper,
        color=ENVELOPE,
        lw=0,
        label=f"{share} null, whole curve",
    )
    ax.plot([0, 1], [0, 1], color=STEP, lw=0.8, ls="--", label="if q = p")
    parts = zip(result.names, curve.coverage, curve.lower, curve.upper, strict=True)
    for j, (name, line, lower, upper) in enumerate(parts):
        style, colour = STYLES[j // len(COLOURS) % len(STYLES)], COLOURS[j % len(COLOURS)]
        label = None if j else f"{share} interval, each level"
        ax.fill_between(curve.levels, lower, upper, color=colour, alpha=0.2, lw=0, label=label)
        ax.plot(curve.levels, line, color=colour, lw=1.4, ls=style, label=name)
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xlabel(f"level of {result.held}")
    ax.set_ylabel("share of truths inside")
    ax.legend(
        fontsize=7,
        frameon=False,
        handlelength=1.6,
        columnspacing=1.2,
        ncols=2,
        loc="lower center",
        bbox_to_anchor=(0.5, 1.01),
    )
    return ax

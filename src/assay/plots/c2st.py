"""The null distribution of a statistic as a histogram, with the observed value in it."""

import numpy as np
from matplotlib.axes import Axes

from ..results import Tested
from .canvas import BAND, CURVE, STEP, axes, check_level, legend, percent, plain, threshold

__all__ = ["null_histogram"]


def null_histogram(result: Tested, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the null of one statistic, what it must exceed at level alpha, and what it is.

    The observed value lies beyond the dashed line if and only if its p-value is at most alpha; of
    fewer than 1 / alpha - 1 nulls, with which nothing can be rejected, the largest is marked.

    Args:
        result: What a test found, for one statistic: a local test at one observation, or one
            statistic of several, such as ``result["mse"]`` of :func:`assay.c2st`.
        ax: Where to draw; new axes of one column's width if None.
        alpha: The level whose threshold is drawn.

    Returns:
        The axes.
    """
    if result.statistic.size != 1:
        raise ValueError(
            f"result: expected one statistic; got {result.statistic.size}. Choose one, such as "
            'result["mse"], or call the test with one x_o.'
        )
    check_level(alpha)
    ax = axes(ax, 2.4)
    null, observed = result.null.reshape(-1), float(result.statistic.reshape(()))
    # A null without any spread, as of a classifier that learns nothing, is a single bar.
    bins = min(30, max(5, round(1.5 * len(null) ** 0.5))) if np.ptp(null) > 0 else 1
    ax.hist(null, bins=bins, color=BAND, lw=0, label=f"{len(null)} nulls")
    ax.axvline(
        float(threshold(null, alpha)),
        color=STEP,
        lw=0.8,
        ls="--",
        label=f"{percent(alpha)} of the null",
    )
    p = float(result.pvalue.reshape(()))
    ax.axvline(observed, color=CURVE, lw=1.6, label=f"observed, p = {p:.2g}")
    ax.set_xlabel(_name(result))
    ax.set_ylabel("null copies")
    ax.locator_params(axis="x", nbins=5)
    ax.spines[["top", "right"]].set_visible(False)
    legend(ax, 3, handlelength=1.4, columnspacing=1.0)
    return ax


def _name(result: Tested) -> str:
    """The name of the statistic, where the result has one for it."""
    names: tuple[str, ...] = getattr(result, "names", ())
    return plain(names[0]) if len(names) == 1 else "statistic"

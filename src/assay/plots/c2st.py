"""The null distribution of a statistic as a histogram, with the observed value in it."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from ..results import Tested
from .pp import BAND, CURVE, STEP

__all__ = ["null_histogram"]


def null_histogram(result: Tested, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the null of one statistic, its 1 - alpha quantile and the observed value.

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
    if not 0 < alpha < 1:
        raise ValueError(f"alpha: expected a number between 0 and 1; got {alpha}.")
    if ax is None:
        _, ax = plt.subplots(figsize=(3.4, 2.6), layout="constrained")
    null, observed = result.null.reshape(-1), float(result.statistic.reshape(()))
    threshold = float(np.quantile(null, 1 - alpha))
    # A null without any spread, as of a classifier that learns nothing, is a single bar.
    bins = min(30, max(5, round(1.5 * len(null) ** 0.5))) if np.ptp(null) > 0 else 1
    ax.hist(null, bins=bins, color=BAND, lw=0, label=f"{len(null)} nulls")
    ax.axvline(
        threshold, color=STEP, lw=0.8, ls="--", label=f"{100 * (1 - alpha):g} % of the null"
    )
    p = float(result.pvalue.reshape(()))
    ax.axvline(observed, color=CURVE, lw=1.6, label=f"observed, p = {p:.2g}")
    ax.set_xlabel(_name(result))
    ax.set_ylabel("null copies")
    ax.locator_params(axis="x", nbins=5)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(
        fontsize=7,
        frameon=False,
        handlelength=1.4,
        columnspacing=1.0,
        ncols=3,
        loc="lower center",
        bbox_to_anchor=(0.45, 1.01),
    )
    return ax


def _name(result: Tested) -> str:
    """The name of the statistic, where the result has one for it."""
    names: tuple[str, ...] = getattr(result, "names", ())
    return names[0] if len(names) == 1 else "statistic"

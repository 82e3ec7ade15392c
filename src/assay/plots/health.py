"""Health of a classifier: its reliability diagram and its ROC curve."""

import numpy as np
from matplotlib.axes import Axes

from ..health import Health
from .canvas import BAND, CURVE, SMALL, STEP, axes, legend

__all__ = ["reliability", "roc"]

# Room around the bins of a reliability diagram.
MARGIN = 0.03


def reliability(health: Health, ax: Axes | None = None) -> Axes:
    """Draws the share of truths against the probability that was given to them.

    Points above the diagonal on the right, and below it on the left, are of a classifier that is
    less sure than it could be; the other way round, of one that is too sure.

    Args:
        health: What :func:`assay.health.health` found.
        ax: Where to draw; new axes of one column's width if None.

    Returns:
        The axes.
    """
    ax = axes(ax, 3.5)
    bins = health.reliability
    bars = np.stack([bins.observed - bins.lower, bins.upper - bins.observed])
    low = min(bins.predicted.min(), bins.lower.min(), 0.5) - MARGIN
    high = max(bins.predicted.max(), bins.upper.max(), 0.5) + MARGIN
    limits = max(0.0, low), min(1.0, high)
    ax.plot(limits, limits, color=STEP, lw=0.8, ls="--", label="perfect")
    ax.axhline(0.5, color=BAND, lw=0.6, zorder=0)
    ax.axvline(0.5, color=BAND, lw=0.6, zorder=0)
    error = f"error {health.calibration_error:.3f}, noise {health.perfect.mean():.3f}"
    ax.errorbar(
        bins.predicted,
        bins.observed,
        bars,
        color=CURVE,
        ecolor=BAND,
        marker="o",
        ms=3.5,
        lw=1.4,
        elinewidth=2.4,
        label=f"held out, 95 % intervals\n({error})",
    )
    ax.set(xlim=limits, ylim=limits, aspect="equal")
    ax.set_xlabel("probability of class 1 (truth)")
    ax.set_ylabel("share of truths, at even odds")
    ax.locator_params(nbins=5)
    legend(ax)
    return ax


def roc(health: Health, ax: Axes | None = None) -> Axes:
    """Draws the share of truths against that of draws of q above a threshold, and from x alone.

    Args:
        health: What :func:`assay.health.health` found.
        ax: Where to draw; new axes of one column's width if None.

    Returns:
        The axes.
    """
    ax = axes(ax, 3.5)
    ax.plot([0, 1], [0, 1], color=STEP, lw=0.8, ls="--", label="knows nothing")
    ax.plot(*health.roc_x, color=BAND, lw=1.4, label=f"x alone, AUC {health.auc_x}")
    ax.plot(*health.roc, color=CURVE, lw=1.6, label=f"held out, AUC {health.auc}")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set_xlabel("share of draws of q above threshold")
    ax.set_ylabel("share of truths above threshold")
    ax.legend(fontsize=SMALL, frameon=False, handlelength=1.4, loc="lower right")
    return ax

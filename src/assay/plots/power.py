"""The rejection rate of a test against the size of a planted error."""

import math

import numpy as np
from matplotlib.axes import Axes

from ..power import PowerResult
from .canvas import BAND, CURVE, STEP, axes, legend, plain

__all__ = ["power"]


def power(result: PowerResult, ax: Axes | None = None, error: str | None = None) -> Axes:
    """Draws rejection rates with the fitted curve, and marks the minimum detectable effect.

    Args:
        result: What a test would have seen, at one observation or many; each has its own curve.
        ax: Where to draw; new axes of one column's width if None.
        error: The name of the error; the first of the result if None.

    Returns:
        The axes.
    """
    curve = result.curves[0] if error is None else result[error]
    ax = axes(ax, 2.4)
    rates, effects = np.atleast_2d(curve.rates), np.atleast_1d(curve.mde)
    grid = np.geomspace(curve.sizes[0] / 2, curve.sizes[-1] * 1.1, 200)
    fits = np.atleast_2d(curve.fitted(grid))
    ax.axhline(result.target, color=STEP, lw=0.8, ls="--")
    ax.axhline(curve.level, color=BAND, lw=0.8, ls=":")
    # Many observations are drawn lightly.
    alpha = 1.0 if len(rates) == 1 else max(0.25, 2 / len(rates))
    for i, (rate, fit) in enumerate(zip(rates, fits, strict=True)):
        ax.plot(grid, fit, color=CURVE, lw=1.4, alpha=alpha, label=None if i else "fitted")
        dots = None if i else f"{result.n} repetitions"
        ax.plot(curve.sizes, rate, "o", color=STEP, ms=3, alpha=alpha, label=dots)
    size = 5 if len(rates) == 1 else 3
    seen = effects[np.isfinite(effects)]
    ax.plot(
        seen, np.full(len(seen), result.target), "D", color=CURVE, ms=size, label=_label(effects)
    )
    ax.set_xscale("log")
    ax.set(ylim=(0, 1.02), xlim=(grid[0], grid[-1]))
    _ticks(ax, grid[0], grid[-1])
    ax.set_xlabel(f"{plain(curve.error.name)}, size")
    ax.set_ylabel(f"rejection rate at {result.alpha:g}")
    ax.spines[["top", "right"]].set_visible(False)
    legend(ax, 3)
    return ax


def _label(effects: np.ndarray) -> str:
    """What is said of the effects beside their mark."""
    never = int(np.isinf(effects).sum())
    if len(effects) == 1:
        return "never seen" if never else f"effect {effects[0]:.2g}"
    return "effects" if not never else f"effects, {never} of {len(effects)} never seen"


def _ticks(ax: Axes, low: float, high: float) -> None:
    """Plain numbers on a logarithmic axis that may span less than a decade."""
    steps = [
        m * 10.0**e
        for e in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        for m in (1, 2, 5)
    ]
    inside = [step for step in steps if low <= step <= high]
    ax.set_xticks(inside, [f"{step:g}" for step in inside])
    ax.set_xticks([], minor=True)

"""What a p-value means: power, where to trust q, and the health of a classifier."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.axes import Axes

from .._core import as_tensors, check_finite, check_kind
from ..interpret.trust import INCONCLUSIVE, OUTSIDE, PASSED, REJECTED, TrustMap
from ._canvas import (
    BAND,
    CLASS_1,
    CURVE,
    GREEN,
    INK,
    SMALL,
    axes,
    diagonal,
    legend,
    named,
    open_corner,
    smallest_of,
)
from ._shapes import COMPONENTS, components, reliability_limits, size_grid

if TYPE_CHECKING:
    from ..interpret.health import Health
    from ..interpret.power import PowerCurve, PowerResult

# Numbers on a logarithmic axis, at least, where finer steps can help.
FEWEST_TICKS = 3
# In what errors are measured.
UNITS = {
    "shift": "sd of q",
    "fading shift": "sd of q, at x_o",
    "too wide": "sd of q / true sd − 1",
    "too narrow": "true sd / sd of q − 1",
    "skew": "of sinh-arcsinh",
}
# Verdicts of a trust map: shapes tell them apart as well as colours.
VERDICT_STYLES = {
    PASSED: ("passed", GREEN, "o"),
    INCONCLUSIVE: ("inconclusive", BAND, "^"),
    OUTSIDE: ("outside", INK, "s"),
    REJECTED: ("rejected", CURVE, "X"),
}


def reliability(result: Health, ax: Axes | None = None) -> Axes:
    """Draws the share of truths against the probability that was given to them.

    Points above the diagonal on the right, and below it on the left, are of a classifier that is
    less sure than it could be; the other way round, of one that is too sure.
    """
    check_kind("result", result, "that of health", "reseeded")
    ax = axes(ax, 3.5)
    bins, limits = result.reliability, reliability_limits(result.reliability)
    bars = np.stack([bins.observed - bins.lower, bins.upper - bins.observed])
    ax.plot(limits, limits, color=INK, lw=0.8, ls="--", label="perfect")
    ax.axhline(0.5, color=BAND, lw=0.6, zorder=0)
    ax.axvline(0.5, color=BAND, lw=0.6, zorder=0)
    error = f"error {result.calibration_error:.3f}, noise {result.perfect.mean():.3f}"
    label = f"held out, 95 % intervals\n({error})"
    shape: dict[str, Any] = {"color": CURVE, "marker": "o", "ms": 3.5, "lw": 1.4, "label": label}
    ax.errorbar(bins.predicted, bins.observed, bars, ecolor=BAND, elinewidth=2.4, **shape)
    ax.set(xlim=limits, ylim=limits, aspect="equal")
    ax.set(xlabel=CLASS_1, ylabel="share of truths, at even odds")
    ax.locator_params(nbins=5)
    return legend(ax)


def roc(result: Health, ax: Axes | None = None) -> Axes:
    """Draws the share of truths against that of draws of q above a threshold, and from x alone."""
    check_kind("result", result, "that of health", "reseeded")
    ax = axes(ax, height=3.5)
    diagonal(ax, "knows nothing")
    ax.plot(*result.roc_x, color=BAND, lw=1.4, label=f"x alone, AUC {result.auc_x}")
    ax.plot(*result.roc, color=CURVE, lw=1.6, label=f"held out, AUC {result.auc}")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set(xlabel="share of draws of q above threshold", ylabel="share of truths above threshold")
    ax.legend(fontsize=SMALL, frameon=False, handlelength=1.4, loc="lower right")
    return ax


def power(result: PowerResult, ax: Axes | None = None, error: str | None = None) -> Axes:
    """Draws rejection rates with the fitted curve, and marks the minimum detectable effect.

    Of a named error, or the first if None; each of many observations has a curve of its own.
    """
    check_kind("result", result, "that of power", "curves", "target")
    curve = result.curves[0] if error is None else result[error]
    # Sizes that were not planted at an observation are NaN.
    ax, grid = axes(ax, 2.4), size_grid(np.unique(curve.sizes[np.isfinite(curve.sizes)]), 200)
    ax.axhline(result.target, color=INK, lw=0.8, ls="--")
    ax.axhline(curve.level, color=BAND, lw=0.8, ls=":")
    _draw_rates(ax, curve, grid, f"{result.repetitions} repetitions")
    detectable = np.atleast_1d(curve.mde)
    finite, size = detectable[np.isfinite(detectable)], 5 if len(detectable) == 1 else 3
    target, label = np.full(len(finite), result.target), _effect_label(detectable)
    ax.plot(finite, target, "D", color=CURVE, ms=size, label=label)
    ax.set(xscale="log", ylim=(0, 1.02), xlim=(grid[0], grid[-1]))
    log_ticks(ax, grid[0], grid[-1])
    unit = UNITS.get(curve.error.kind, "size")
    ax.set(xlabel=f"{named(curve.error.name)} ({unit})")
    ax.set(ylabel=f"rejection rate at level {result.alpha:g}")
    open_corner(ax)
    return legend(ax, 3)


def _draw_rates(ax: Axes, curve: PowerCurve, grid: np.ndarray, words: str) -> None:
    """Draws fitted curves over the grid and measured rates; many observations lightly."""
    rates, fits = np.atleast_2d(curve.rates), np.atleast_2d(curve.fitted(grid))
    sizes = np.broadcast_to(curve.sizes, rates.shape)
    alpha = 1.0 if len(rates) == 1 else max(0.25, 2 / len(rates))
    for i, (size, rate, fit) in enumerate(zip(sizes, rates, fits, strict=True)):
        ax.plot(grid, fit, color=CURVE, lw=1.4, alpha=alpha, label=None if i else "fitted")
        dots = None if i else words
        ax.plot(size, rate, "o", color=INK, ms=3, alpha=alpha, label=dots)


def _effect_label(effects: np.ndarray) -> str:
    """What is said of the effects beside their mark."""
    never = int(np.isinf(effects).sum())
    if len(effects) == 1:
        return "not detectable" if never else f"detectable: {effects[0]:.2g}"
    return "detectable" if not never else f"detectable, not at {never} of {len(effects)}"


def log_ticks(ax: Axes, low: float, high: float) -> None:
    """Plain numbers on a logarithmic axis that may span less than a decade."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    for digits in ((1, 2, 5), (1, 1.5, 2, 3, 4, 5, 7)):
        steps = (m * 10.0**e for e in decades for m in digits)
        inside = [step for step in steps if low <= step <= high * (1 + 1e-9)]
        if len(inside) >= FEWEST_TICKS:
            break
    ax.set_xticks(inside, [f"{step:g}" for step in inside])
    ax.set_xticks([], minor=True)


def trust_map(result: TrustMap, ax: Axes | None = None, coordinates: Any = None) -> Axes:
    """Draws where q is rejected, where it passed, and where neither is known.

    Coordinates are one or two numbers for each observation, with shape (o,), (o, 1) or (o, 2),
    such as some parameters or entries of x; the first two principal components of x by default.
    With one number, the p-value is drawn against it.
    """
    check_kind("result", result, "that of trust_map", "verdicts", "relevant")
    table, names = _coordinates(result, coordinates)
    ax = axes(ax, 3.2)
    single = table.shape[1] == 1
    height = result.pvalue if single else table[:, 1]
    for verdict, (label, colour, marker) in VERDICT_STYLES.items():
        some = np.array([own == verdict for own in result.verdicts])
        shape: dict[str, Any] = {"s": 26, "c": colour, "marker": marker, "lw": 0.4}
        ax.scatter(table[some, 0], height[some], label=label, **shape)
    if single:
        ax.axhline(result.alpha, color=INK, lw=0.8, ls="--")
        ax.set(ylim=(-0.02, 1.02))
    ax.set(xlabel=names[0], ylabel="p-value" if single else names[1])
    shape = {"handletextpad": 0.0, "columnspacing": 0.6}
    return legend(ax, 4, smallest_of(result.pvalue), **shape)


def _coordinates(result: TrustMap, given: Any) -> tuple[np.ndarray, tuple[str, str]]:
    """One or two numbers for each observation, (o, 1) or (o, 2), and their names."""
    if given is None:
        x = result.x.reshape(len(result.x), -1).astype(float)
        return (
            (x, ("x[0] (units of x)", "x[1] (units of x)"))
            if x.shape[1] <= 2
            else (components(x), COMPONENTS)
        )
    table = as_tensors({"coordinates": given})["coordinates"].double().cpu().numpy()
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or len(table) != len(result.x) or table.shape[1] not in (1, 2):
        raise ValueError(
            f"coordinates: expected one or two numbers for each of {len(result.x)} observations; "
            f"got shape {table.shape}."
        )
    check_finite("coordinates", torch.from_numpy(table))
    return table, ("coordinate 1", "coordinate 2")

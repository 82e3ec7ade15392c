"""What a p-value means: effects, power, where to trust q, and the health of a classifier."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ..interpret.trust import INCONCLUSIVE, OUTSIDE, PASSED, REJECTED, TrustMap
from ._canvas import (
    BAND,
    CURVE,
    ENVELOPE,
    GREEN,
    INK,
    SMALL,
    axes,
    diagonal,
    legend,
    open_corner,
    plain,
)
from ._shapes import COMPONENTS, components, reliability_limits, size_grid

if TYPE_CHECKING:
    from ..interpret.density_ratio import Estimate
    from ..interpret.effects import Effects
    from ..interpret.health import Health
    from ..interpret.power import PowerCurve, PowerResult

# The thickness of a null band, and what lies between bias and dispersion.
THICK, GAP = 0.6, 0.8
# Verdicts of a trust map: shapes tell them apart as well as colours.
VERDICT_STYLES = {
    PASSED: ("passed", GREEN, "o"),
    INCONCLUSIVE: ("inconclusive", BAND, "^"),
    OUTSIDE: ("outside", INK, "s"),
    REJECTED: ("rejected", CURVE, "X"),
}


def effects(result: Effects, ax: Axes | None = None) -> Axes:
    """Draws bias and dispersion at one observation: stated bands over null bands.

    Dispersion is drawn less one, so that both are zero if q is right; what is wrong by more than
    noise is coloured.
    """
    if result.many:
        got = f"got {len(result.bias.value)}. Choose one, such as result[0]."
        raise ValueError(f"result: expected one observation; {got}")
    m = len(result.names)
    rows = np.concatenate([np.arange(m), np.arange(m) + m + GAP])
    ax = axes(ax, 1.1 + 0.2 * (rows[-1] + 1))
    _draw_estimates(ax, rows[:m], result.bias, 0.0)
    _draw_estimates(ax, rows[m:], result.dispersion, 1.0)
    ax.axvline(0, color=INK, lw=0.8, ls="--")
    names = [f"{plain(name)} {kind}" for kind in ("bias", "width") for name in result.names]
    ax.set_yticks(rows, names)
    ax.set_ylim(rows[-1] + 0.7, -0.7)
    ends = "← low, narrow          high, wide →"
    ax.set_xlabel(f"bias in sd of q; width over the true one, less 1\n{ends}")
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    return legend(ax, 3, handles=_effect_handles(), bbox_to_anchor=(0.35, 1.0))


def _draw_estimates(ax: Axes, rows: np.ndarray, estimate: Estimate, right: float) -> None:
    """Null bands as bars, stated bands as lines and estimates as points."""
    width = estimate.null_upper - estimate.null_lower
    ax.barh(rows, width, THICK, estimate.null_lower - right, color=ENVELOPE, lw=0)
    colours = [CURVE if wrong else INK for wrong in estimate.wrong]
    # What is not identifiable has no interval that could be drawn.
    ends = np.stack([estimate.lower, estimate.upper])
    lower, upper = np.where(np.isfinite(ends), ends - right, np.nan)
    ax.hlines(rows, lower, upper, colors=colours, lw=1.4)
    ax.scatter(estimate.value - right, rows, s=16, c=colours, zorder=3)


def _effect_handles() -> list[Patch | Line2D]:
    shape: dict[str, Any] = {"marker": "o", "markersize": 4, "lw": 1.4}
    kinds = (("within noise", INK), ("beyond noise", CURVE))
    lines = (Line2D([], [], color=colour, label=label, **shape) for label, colour in kinds)
    return [Patch(color=ENVELOPE, lw=0, label="95 % null"), *lines]


def reliability(result: Health, ax: Axes | None = None) -> Axes:
    """Draws the share of truths against the probability that was given to them.

    Points above the diagonal on the right, and below it on the left, are of a classifier that is
    less sure than it could be; the other way round, of one that is too sure.
    """
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
    ax.set(xlabel="probability of class 1 (truth)", ylabel="share of truths, at even odds")
    ax.locator_params(nbins=5)
    return legend(ax)


def roc(result: Health, ax: Axes | None = None) -> Axes:
    """Draws the share of truths against that of draws of q above a threshold, and from x alone."""
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
    curve = result.curves[0] if error is None else result[error]
    ax, grid = axes(ax, 2.4), size_grid(curve.sizes, 200)
    ax.axhline(result.target, color=INK, lw=0.8, ls="--")
    ax.axhline(curve.level, color=BAND, lw=0.8, ls=":")
    _draw_rates(ax, curve, grid, f"{result.repetitions} repetitions")
    detectable = np.atleast_1d(curve.mde)
    finite, size = detectable[np.isfinite(detectable)], 5 if len(detectable) == 1 else 3
    target, label = np.full(len(finite), result.target), _effect_label(detectable)
    ax.plot(finite, target, "D", color=CURVE, ms=size, label=label)
    ax.set(xscale="log", ylim=(0, 1.02), xlim=(grid[0], grid[-1]))
    _log_ticks(ax, grid[0], grid[-1])
    rate = f"rejection rate at {result.alpha:g}"
    ax.set(xlabel=f"{plain(curve.error.name)}, size", ylabel=rate)
    open_corner(ax)
    return legend(ax, 3)


def _draw_rates(ax: Axes, curve: PowerCurve, grid: np.ndarray, words: str) -> None:
    """Draws fitted curves over the grid and measured rates; many observations lightly."""
    rates, fits = np.atleast_2d(curve.rates), np.atleast_2d(curve.fitted(grid))
    alpha = 1.0 if len(rates) == 1 else max(0.25, 2 / len(rates))
    for i, (rate, fit) in enumerate(zip(rates, fits, strict=True)):
        ax.plot(grid, fit, color=CURVE, lw=1.4, alpha=alpha, label=None if i else "fitted")
        dots = None if i else words
        ax.plot(curve.sizes, rate, "o", color=INK, ms=3, alpha=alpha, label=dots)


def _effect_label(effects: np.ndarray) -> str:
    """What is said of the effects beside their mark."""
    never = int(np.isinf(effects).sum())
    if len(effects) == 1:
        return "never seen" if never else f"effect {effects[0]:.2g}"
    return "effects" if not never else f"effects, {never} of {len(effects)} never seen"


def _log_ticks(ax: Axes, low: float, high: float) -> None:
    """Plain numbers on a logarithmic axis that may span less than a decade."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (m * 10.0**e for e in decades for m in (1, 2, 5))
    inside = [step for step in steps if low <= step <= high]
    ax.set_xticks(inside, [f"{step:g}" for step in inside])
    ax.set_xticks([], minor=True)


def trust_map(result: TrustMap, ax: Axes | None = None, coordinates: Any = None) -> Axes:
    """Draws where q is rejected, where it passed, and where neither is known.

    Coordinates are one or two numbers for each observation, with shape (o,), (o, 1) or (o, 2),
    such as some parameters or entries of x; the first two principal components of x by default.
    With one number, the p-value is drawn against it.
    """
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
    return legend(ax, 3, handletextpad=0.2)


def _coordinates(result: TrustMap, given: Any) -> tuple[np.ndarray, tuple[str, str]]:
    """One or two numbers for each observation, (o, 1) or (o, 2), and their names."""
    if given is None:
        x = result.x.reshape(len(result.x), -1).astype(float)
        return (x, ("x[0]", "x[1]")) if x.shape[1] <= 2 else (components(x), COMPONENTS)
    table = np.asarray(given, float)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or len(table) != len(result.x) or table.shape[1] not in (1, 2):
        raise ValueError(
            f"coordinates: expected one or two numbers for each of {len(result.x)} observations; "
            f"got shape {table.shape}."
        )
    return table, ("coordinate 1", "coordinate 2")

"""Over all x: ranks, expected coverage, and how draws of q follow the true parameters."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .._support.inputs import check_kind, check_names
from ..average.coverage import CoverageResult
from ..average.ranks import RankCurve
from ..average.sbc import SBCResult
from ..data.calibration import Calibration
from ..results import holm
from ._canvas import axes, curve_styles, curves, legend, legend_lines, open_corner, panels, square
from ._numbers import farthest
from ._style import BAND, CURVE, DASHED, ENVELOPE, SMALL, display_name, percent, smallest_pvalue

# Curves whose intervals can be distinguished in one picture.
MOST_INTERVALS = 3
# Pairs and new panels that are drawn, and draws of q at each x that have a deviation.
MOST_PAIRS, MOST_PANELS, FEWEST_DRAWS = 300, 24, 3
# How far a z-score is drawn, at least and at most.
NEAREST, FARTHEST = 3.0, 8.0


def coverage(result: CoverageResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws how far expected coverage or TARP is from the level, with intervals and a null band.

    Below zero q is overconfident, above it conservative; for TARP this holds above 1/2. Each
    curve, or the three farthest from zero, has pointwise intervals, of Clopper and Pearson for
    regions and of the bootstrap for TARP. The band around zero holds a whole curve if q is right.
    """
    check_kind("result", result, "that of coverage or tarp", "regions", "curve")
    curve = result.curve(alpha)
    ax = axes(ax, 2.7, legend_lines(result.names, 3))
    band = (curve.null_lower - curve.levels, curve.null_upper - curve.levels)
    _null_band(ax, curve.levels, *band, alpha)
    ax.axhline(0, label="if q = p", **DASHED)
    _intervals(ax, curve)
    difference = curve.ecdf - curve.levels
    curves(ax, curve.levels, difference, result.names, np.zeros_like(curve.levels))
    ax.set(xlim=(0, 1), xlabel=f"level of {result.regions}")
    ax.set(ylabel="share of truths inside − level")
    return legend(ax, title=smallest_pvalue(result.adjusted, result.names))


def _null_band(
    ax: Axes, levels: np.ndarray, lower: np.ndarray, upper: np.ndarray, alpha: float
) -> None:
    """Draws the band (g,) that holds a whole curve if q is right."""
    label = f"{percent(alpha)} null, whole curve"
    ax.fill_between(levels, lower, upper, color=ENVELOPE, lw=0, label=label)


def _intervals(ax: Axes, curve: RankCurve) -> None:
    """Draws intervals of the farthest curves in the colours of these."""
    styles = curve_styles(curve.ecdf, curve.levels)
    chosen = farthest(curve.ecdf, curve.levels, MOST_INTERVALS)
    which = "each level" if len(chosen) == len(curve.ecdf) else "farthest curves"
    for i, j in enumerate(chosen):
        label = None if i else f"{percent(curve.alpha)} interval, {which}"
        ends = (curve.lower[j] - curve.levels, curve.upper[j] - curve.levels)
        colour = styles[j]["color"]
        ax.fill_between(curve.levels, *ends, color=colour, alpha=0.2, lw=0, label=label)


def rank_histogram(
    result: SBCResult, ax: Axes | None = None, quantity: str | None = None, alpha: float = 0.05
) -> Axes:
    """Draws the ranks of a named quantity in bins, with a band that holds all bars at once.

    A U shape means that q is overconfident, a hump that it is conservative, a slope to the left
    that it is too high. The default is the first quantity. Bins hold whole ranks, some one more
    than others, so that each bar is its count over the count that is expected in its bin.
    """
    check_kind("result", result, "that of sbc", "ranks", "ecdf")
    names, quantity = result.names, result.names[0] if quantity is None else quantity
    if not isinstance(quantity, str) or quantity not in names:
        raise ValueError(f"quantity: expected one of {', '.join(names)}; got {quantity!r}.")
    j, bins, ax = names.index(quantity), result.histogram(alpha), axes(ax, 2.5, 1)
    lower, upper, bars = (v / bins.expected for v in (bins.lower, bins.upper, bins.counts[j]))
    shape: dict[str, Any] = {"label": f"{percent(alpha)} null, all bars", "fill": True, "lw": 0}
    ax.stairs(upper, bins.edges, baseline=lower, color=ENVELOPE, **shape)
    ax.axhline(1, label="if q = p", **DASHED)
    outline: dict[str, Any] = {"color": CURVE, "lw": 1.2, "baseline": None}
    ax.stairs(bars, bins.edges, label=display_name(quantity), **outline)
    ax.set(xlim=(0, result.k + 1), ylim=(0, None), ylabel="pairs in each bin / expected")
    ax.set(xlabel=f"rank of the truth among {result.k} draws of q")
    return legend(ax, title=f"chi-square: p = {result.chi_square.pvalue[j]:.3g}")


def rank_ecdf(result: SBCResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the distribution functions of all ranks, with a simultaneous null band."""
    check_kind("result", result, "that of sbc", "ranks", "ecdf")
    ax, curve = axes(ax, 3.65, legend_lines(result.names, 2)), result.ecdf(alpha)
    _null_band(ax, curve.levels, curve.null_lower, curve.null_upper, alpha)
    ax.plot([0, 1], [0, 1], label="if q = p", **DASHED)
    curves(ax, curve.levels, curve.ecdf, result.names, curve.levels)
    title = smallest_pvalue(holm(result.envelope.pvalue), result.names)
    return square(ax, "level of the rank", "share of truths below", title)


def rank_difference(result: SBCResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the distribution functions of all ranks less the diagonal, with a simultaneous band.

    Above zero on the left and below it on the right, q is overconfident; the other way round,
    conservative; above zero throughout, too high.
    """
    check_kind("result", result, "that of sbc", "ranks", "ecdf")
    ax, curve = axes(ax, 2.7, legend_lines(result.names, 2)), result.ecdf(alpha)
    band = (curve.null_lower - curve.levels, curve.null_upper - curve.levels)
    _null_band(ax, curve.levels, *band, alpha)
    ax.axhline(0, label="if q = p", **DASHED)
    curves(ax, curve.levels, curve.ecdf - curve.levels, result.names, np.zeros_like(curve.levels))
    ax.set(xlim=(0, 1), xlabel="level of the rank", ylabel="share of truths below − level")
    return legend(ax, title=smallest_pvalue(holm(result.envelope.pvalue), result.names))


def recovery(
    calibration: Calibration, ax: Any = None, names: Sequence[str] | None = None
) -> np.ndarray:
    """Draws q's mean and central 90 % interval against the true value of every parameter.

    The title of each panel has the correlation r of means and true values, and the root mean
    square error (RMSE) of means, in units of the parameter, over all pairs; at most 300 pairs are
    drawn. A q that is right need not recover anything: where x says little, means stay near that
    of the prior. ``ax`` holds one axes for each parameter; if None, new ones are made for the
    first 24.
    """
    theta, theta_q, some = _arrays(calibration, 1)
    grid, names = _panels(calibration, ax, names)
    for j, (panel, name) in enumerate(zip(grid, names, strict=True)):
        true, mean = theta[:, j], theta_q[:, :, j].mean(1)
        ends = np.quantile(theta_q[some, :, j], [0.05, 0.95], axis=1)
        panel.vlines(true[some], *ends, color=BAND, lw=0.5, alpha=0.6, zorder=1)
        panel.scatter(true[some], mean[some], s=5, color=CURVE, lw=0, zorder=2)
        panel.axline((float(true.mean()),) * 2, slope=1, zorder=3, **DASHED)
        with np.errstate(divide="ignore", invalid="ignore"):
            r = np.corrcoef(true, mean)[0, 1]  # NaN where one does not vary
        error = np.sqrt(np.mean((mean - true) ** 2))
        panel.set_title(f"{name}\nr = {r:.2f}, RMSE = {error:.2g}", fontsize=SMALL)
        panel.set(xlabel="true value (own units)", ylabel="mean of q, 90 % interval")
    return grid


def contraction(
    calibration: Calibration, ax: Any = None, names: Sequence[str] | None = None
) -> np.ndarray:
    """Draws the z-score of true values against the contraction of q, for every parameter.

    The z-score is (true value - mean of q) / sd of q at the same x. The contraction,
    1 - var(q) / var(prior), is one where x tells all and zero where it tells nothing; the variance
    of the prior is that of all true values. If q is right, about 95 % of z-scores lie in the band,
    some more outside where there are few draws of q. What lies beyond the axes is drawn at their
    edge. ``ax`` holds one axes for each parameter; if None, new ones are made for the first 24.
    """
    theta, theta_q, some = _arrays(calibration, FEWEST_DRAWS)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (theta - theta_q.mean(1)) / theta_q.std(1, ddof=1)
        ratio = theta_q.var(1, ddof=1) / theta.var(0, ddof=1)
    z, ratio = (np.nan_to_num(v, posinf=FARTHEST, neginf=-FARTHEST) for v in (z, ratio))
    contracted = 1 - ratio
    far = float(np.clip(1.05 * np.quantile(np.abs(z), 0.99), NEAREST, FARTHEST))
    grid, names = _panels(calibration, ax, names)
    for j, (panel, name) in enumerate(zip(grid, names, strict=True)):
        low = float(np.clip(np.quantile(contracted[:, j], 0.01), -1, 0)) - 0.05
        panel.axhspan(-2, 2, color=ENVELOPE, lw=0)
        panel.axhline(0, **DASHED)
        across, up = np.clip(contracted[some, j], low, 1.05), np.clip(z[some, j], -far, far)
        panel.scatter(across, up, s=6, color=CURVE, lw=0, alpha=0.7, clip_on=False, zorder=3)
        middle = np.median(contracted[:, j])
        panel.set_title(f"{name}\nmedian contraction {middle:.2f}", fontsize=SMALL)
        panel.set(xlim=(low, 1.05), ylim=(-far, far))
        panel.set(xlabel="1 − var(q) / var(prior)", ylabel="z-score (sd of q)")
    return grid


def _arrays(calibration: Calibration, fewest: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """True parameters (n, m), draws of q (n, k, m), and indices of the pairs that are drawn."""
    check_kind("calibration", calibration, "a Calibration", "theta_q", "members")
    members = calibration.members.double().cpu().numpy()
    n, k = members.shape[0], members.shape[1] - 1
    if k < fewest:
        raise ValueError(f"theta_q: expected at least {fewest} draws of q at each x; got {k}.")
    some = np.unique(np.linspace(0, n - 1, min(n, MOST_PAIRS)).astype(int))
    return members[:, 0], members[:, 1:], some


def _panels(
    calibration: Calibration, ax: Any, names: Sequence[str] | None
) -> tuple[np.ndarray, list[str]]:
    """A panel for each parameter, or for the first of many, and their names."""
    given = tuple(f"theta[{j}]" for j in range(calibration.m)) if names is None else names
    titles = [display_name(name) for name in check_names("names", given, calibration.m)]
    titles = titles[:MOST_PANELS] if ax is None else titles
    grid = panels(ax, len(titles), 2.1, 3)
    for panel in grid:
        panel.locator_params(nbins=5)
        open_corner(panel)
    return grid, titles

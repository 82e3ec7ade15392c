"""Tests over all x and near x_o: ranks, coverage, nulls, curves, p-values; and classifiers."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .._support.inputs import as_tensors, check_kind, check_names, check_share
from ..answers.predictive import PredictiveResult
from ..average.coverage import CoverageResult
from ..average.sbc import SBCResult
from ..data.calibration import Calibration
from ..local.lc2st import LC2STResult, Quality
from ..local.levels import LevelResult
from ..results import LocalResult, Result, holm
from ._canvas import axes, curves, legend, null_bands, panels, smallest_pvalue
from ._numbers import bin_count, critical_value, mirrored, one_observation
from ._style import BAND, CLASS_1, CURVE, DASHED, ENVELOPE, SHARES, SMALL, display_name

# Pairs and new panels that are drawn, and draws of q at each x that have a deviation; how far a
# z-score is drawn, at least and at most.
MOST_PAIRS, MOST_PANELS, FEWEST_DRAWS, NEAREST, FARTHEST = 300, 24, 3, 3.0, 8.0
# Observations up to which discoveries are numbered, and from which on points are small.
FEW, CROWD = 15, 50


def coverage(result: CoverageResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws how far expected coverage or TARP is from the level, with intervals and a null band.

    Below zero q is overconfident, above it conservative; for TARP this holds above 1/2. The band
    holds a whole curve if q is right. At most three curves have intervals, which are pointwise.
    """
    check_kind("result", result, "that of coverage or tarp", "regions", "curve")
    curve = result.curve(alpha)
    ax, levels = axes(ax, 2.7, 3, result.names), curve.levels
    null_bands(ax, levels, alpha, (curve.null_lower - levels, curve.null_upper - levels))
    ax.axhline(0, label="if q = p", **DASHED)
    intervals = (curve.lower - levels, curve.upper - levels, f"{100 * (1 - alpha):g} % interval")
    curves(ax, levels, curve.ecdf - levels, result.names, np.zeros_like(levels), intervals)
    ax.set(xlim=(0, 1), xlabel=f"level of {result.regions}")
    ax.set(ylabel="share of truths inside − level")
    return legend(ax, title=smallest_pvalue(result.adjusted, result.names))


def rank_histogram(
    result: SBCResult, ax: Axes | None = None, quantity: str | None = None, alpha: float = 0.05
) -> Axes:
    """Draws the ranks of a named quantity in bins, with a band that holds all bars at once.

    A U shape means that q is overconfident, a hump that it is conservative, a slope to the left
    that it is too high. Bars are relative to what is expected in their bins.
    """
    check_kind("result", result, "that of sbc", "ranks", "ecdf")
    names, quantity = result.names, result.names[0] if quantity is None else quantity
    if not isinstance(quantity, str) or quantity not in names:
        raise ValueError(f"quantity: expected one of {', '.join(names)}; got {quantity!r}.")
    j, bins, ax = names.index(quantity), result.histogram(alpha), axes(ax, 2.5, 3)
    lower, upper, bars = (v / bins.expected for v in (bins.lower, bins.upper, bins.counts[j]))
    band: dict[str, Any] = {"fill": True, "color": ENVELOPE, "lw": 0, "baseline": lower}
    ax.stairs(upper, bins.edges, label=f"{100 * (1 - alpha):g} % null, all bars", **band)
    ax.axhline(1, label="if q = p", **DASHED)
    name = display_name(quantity)
    ax.stairs(bars, bins.edges, baseline=None, color=CURVE, lw=1.2, label=name)
    ax.set(xlim=(0, result.k + 1), xlabel=f"rank of the truth among {result.k} draws of q")
    ax.set(ylim=(0, None), ylabel="pairs in each bin / expected")
    return legend(ax, title=f"chi-square: p = {result.chi_square.pvalue[j]:.3g}")


def rank_ecdf(result: SBCResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the distribution functions of all ranks, with a simultaneous null band."""
    check_kind("result", result, "that of sbc", "ranks", "ecdf")
    ax, curve = axes(ax, 3.65, 2, result.names), result.ecdf(alpha)
    null_bands(ax, curve.levels, alpha, (curve.null_lower, curve.null_upper))
    ax.plot([0, 1], [0, 1], label="if q = p", **DASHED)
    curves(ax, curve.levels, curve.ecdf, result.names, curve.levels)
    ax.set(xlabel="level of the rank", ylabel="share of truths below", **SHARES)
    return legend(ax, title=smallest_pvalue(holm(result.envelope.pvalue), result.names))


def rank_difference(result: SBCResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the distribution functions of all ranks less the diagonal, with a simultaneous band.

    Above zero on the left and below it on the right, q is overconfident; the other way round,
    conservative; above zero throughout, too high.
    """
    check_kind("result", result, "that of sbc", "ranks", "ecdf")
    ax, curve = axes(ax, 2.7, 2, result.names), result.ecdf(alpha)
    levels = curve.levels
    null_bands(ax, levels, alpha, (curve.null_lower - levels, curve.null_upper - levels))
    ax.axhline(0, label="if q = p", **DASHED)
    curves(ax, levels, curve.ecdf - levels, result.names, np.zeros_like(levels))
    ax.set(xlim=(0, 1), xlabel="level of the rank", ylabel="share of truths below − level")
    return legend(ax, title=smallest_pvalue(holm(result.envelope.pvalue), result.names))


def recovery(
    calibration: Calibration, ax: Any = None, names: Sequence[str] | None = None
) -> np.ndarray:
    """Draws q's mean and central 90 % interval against the true value of every parameter.

    Titles have the correlation r of means and true values and the root mean square error (RMSE) of
    means, over all pairs, of which 300 are drawn. Where x says little, means stay near that of the
    prior. ``ax`` holds one axes for each parameter; if None, new ones for the first 24 are made.
    """
    theta, theta_q, some, grid = _arrays_and_panels(calibration, 1, ax, names)
    for j, panel in enumerate(grid):
        true, mean = theta[:, j], theta_q[:, :, j].mean(1)
        ends = np.quantile(theta_q[some, :, j], [0.05, 0.95], axis=1)
        panel.vlines(true[some], *ends, color=BAND, lw=0.5, alpha=0.6, zorder=1)
        panel.scatter(true[some], mean[some], s=5, color=CURVE, lw=0, zorder=2)
        panel.axline((float(true.mean()),) * 2, slope=1, zorder=3, **DASHED)
        with np.errstate(divide="ignore", invalid="ignore"):
            r = np.corrcoef(true, mean)[0, 1]  # NaN where one does not vary
        error = np.sqrt(np.mean((mean - true) ** 2))
        panel.set_title(f"{panel.get_title()}\nr = {r:.2f}, RMSE = {error:.2g}", fontsize=SMALL)
        panel.set(xlabel="true value (own units)", ylabel="mean of q, 90 % interval")
    return grid


def contraction(
    calibration: Calibration, ax: Any = None, names: Sequence[str] | None = None
) -> np.ndarray:
    """Draws the z-score of true values against the contraction of q, for every parameter.

    The z-score is (true value - mean of q) / sd of q; about 95 % lie in the band if q is right.
    The contraction, 1 - var(q) / var(prior), is one where x tells all and zero where it tells
    nothing. Points beyond the axes are at their edge. ``ax`` is that of :func:`recovery`.
    """
    theta, theta_q, some, grid = _arrays_and_panels(calibration, FEWEST_DRAWS, ax, names)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (theta - theta_q.mean(1)) / theta_q.std(1, ddof=1)  # (n, m)
        ratio = theta_q.var(1, ddof=1) / theta.var(0, ddof=1)
    z, ratio = (np.nan_to_num(v, posinf=FARTHEST, neginf=-FARTHEST) for v in (z, ratio))
    far = float(np.clip(1.05 * np.quantile(np.abs(z), 0.99), NEAREST, FARTHEST))
    for j, panel in enumerate(grid):
        contracted = 1 - ratio[:, j]
        low = float(np.clip(np.quantile(contracted, 0.01), -1, 0)) - 0.05
        panel.axhspan(-2, 2, color=ENVELOPE, lw=0)
        panel.axhline(0, **DASHED)
        across, up = np.clip(contracted[some], low, 1.05), np.clip(z[some, j], -far, far)
        panel.scatter(across, up, s=6, color=CURVE, lw=0, alpha=0.7, clip_on=False, zorder=3)
        words = f"median contraction {np.median(contracted):.2f}"
        panel.set_title(f"{panel.get_title()}\n{words}", fontsize=SMALL)
        panel.set(xlim=(low, 1.05), xlabel="1 − var(q) / var(prior)")
        panel.set(ylim=(-far, far), ylabel="z-score (sd of q)")
    return grid


def _arrays_and_panels(
    calibration: Calibration, fewest: int, ax: Any, names: Sequence[str] | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """True parameters (n, m), draws of q (n, k, m), rows that are drawn, and panels with names."""
    check_kind("calibration", calibration, "a Calibration", "theta_q", "members")
    members = calibration.members.double().cpu().numpy()  # (n, 1 + k, m)
    n, k, m = members[:, 1:].shape
    if k < fewest:
        raise ValueError(f"theta_q: expected at least {fewest} draws of q at each x; got {k}.")
    names = tuple(f"theta[{j}]" for j in range(m)) if names is None else names
    titles = [display_name(name) for name in check_names("names", names, m)]
    grid = panels(ax, min(m, MOST_PANELS) if ax is None else m, 2.1, 3)
    for panel, title in zip(grid, titles, strict=False):
        panel.set_title(title)
        panel.locator_params(nbins=5)
        panel.spines[["top", "right"]].set_visible(False)
    some = np.unique(np.linspace(0, n - 1, min(n, MOST_PAIRS)).astype(int))
    return members[:, 0], members[:, 1:], some, grid


def null_histogram(result: Result, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the null of one statistic, what it must exceed at level alpha, and what it is.

    Of many statistics one is chosen, as ``result[0]``, or ``result["mse"]`` of :func:`assay.c2st`.
    The observed value lies beyond the dashed line if and only if its p-value is at most alpha; if
    there are too few nulls to reject anything, the line is at the largest.
    """
    check_kind("result", result, "that of a test", "statistic", "null")
    if result.statistic.size != 1:
        raise ValueError(
            f"result: expected one statistic; got {result.statistic.size}. Choose one by its "
            'number or name, such as result[0] or result["mse"].'
        )
    names: tuple[str, ...] = getattr(result, "names", ())
    ax = _null(result, ax, alpha, ("null copies", "of the null", "observed"))
    ax.set(xlabel=display_name(names[0]) if len(names) == 1 else "statistic")
    return ax


def predictive(result: PredictiveResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws how far x_o, and simulations of a draw of q, lie from the centre of all of them."""
    check_kind("result", result, "that of predictive", "theta", "null")
    ax = _null(one_observation(result), ax, alpha, ("simulations", "of these", "x_o"))
    ax.set(xlabel="distance from the centre (sd of simulations)")
    return ax


def _null(result: Result, ax: Axes | None, alpha: float, words: tuple[str, str, str]) -> Axes:
    """Draws a null, its critical value and the statistic, with words for all three."""
    alpha = check_share("alpha", alpha)
    ax, null = axes(ax, 2.4, 3), result.null.reshape(-1)
    bars: dict[str, Any] = {"color": BAND, "lw": 0, "label": f"{len(null)} {words[0]}"}
    _, edges, _ = ax.hist(null, bins=bin_count(null), **bars)
    critical = float(critical_value(null, alpha))
    ax.axvline(critical, label=f"{100 * (1 - alpha):g} % quantile {words[1]}", **DASHED)
    low, high, observed = float(edges[0]), float(edges[-1]), float(result.statistic.reshape(()))
    if 2 * low - high <= observed <= 2 * high - low:
        ax.axvline(observed, color=CURVE, lw=1.6, label=words[2])
    else:
        # An arrow, whose tip is at the edge of the axes.
        near, far, side = (high, low, "right") if observed > high else (low, high, "left")
        tip, tail = near + 0.6 * (near - far), near + 0.4 * (near - far)
        ax.set_xlim(*sorted((tip, far - 0.05 * (near - far))))
        style: dict[str, Any] = {"color": CURVE, "fontsize": SMALL, "ha": side, "va": "center"}
        style["arrowprops"] = {"arrowstyle": "->", "color": CURVE, "lw": 1.6}
        style["xycoords"] = ax.get_xaxis_transform()
        ax.annotate(f"{words[2]}\n{observed:.3g}", (tip, 0.5), (tail, 0.5), **style)
    ax.set(ylabel=f"{words[0]} in each bin")
    ax.locator_params(axis="x", nbins=5)
    ax.spines[["top", "right"]].set_visible(False)
    return legend(ax, title=f"p = {float(result.pvalue.reshape(())):.3g}")


def pp(result: LC2STResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the distribution of P(class 1) at one observation, with null bands.

    Draws of q left of 1/2 lie where it has too much mass, those on the right where too little.
    """
    check_kind("result", result, "that of lc2st", "probabilities", "pp_curve")
    curve = mirrored(one_observation(result).pp_curve(alpha))
    ax, whole = axes(ax, 3.7, 4), (curve.envelope_lower, curve.envelope_upper)
    null_bands(ax, curve.levels, alpha, whole, (curve.lower, curve.upper), step="pre")
    ax.plot([0, 0.5, 0.5, 1], [0, 0, 1, 1], label="ideal if q = p", **DASHED)
    ax.step(curve.levels, curve.ecdf, where="pre", color=CURVE, lw=1.6, label="draws of q at x_o")
    ax.set(xlabel=CLASS_1, ylabel="share of draws of q below", **SHARES)
    return legend(ax, title=f"whole curve: p = {float(curve.pvalue):.3g}")


def levels(result: LevelResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws how often true parameters lie below each level of q near one x_o, with null bands."""
    check_kind("result", result, "that of lhpd or lpit", "alphas", "null_curves")
    result = one_observation(result)
    ax, bands = axes(ax, 3.6, 3, result.names), result.bands(alpha)
    grid, *lines = (np.concatenate([[0], v, [1]]) for v in (result.alphas, *result.curves))
    both = ((bands.envelope_lower, bands.envelope_upper), (bands.lower, bands.upper))
    widest = (np.stack([lower.min(0), upper.max(0)]) for lower, upper in both)
    ends = (np.pad(each, [(0, 0), (1, 1)], constant_values=(0, 1)) for each in widest)
    null_bands(ax, grid, alpha, *ends)  # of several columns the widest
    ax.plot([0, 1], [0, 1], label="ideal if q = p", **DASHED)
    curves(ax, grid, np.stack(lines), result.names, grid)
    ax.set(xlabel="level of q", ylabel="share of truths below, near x_o", **SHARES)
    return legend(ax, title=f"p = {float(result.pvalue):.3g}")


def sweep(
    result: LocalResult,
    ax: Axes | None = None,
    *,
    values: Any,
    alpha: float = 0.05,
    label: str = "swept quantity",
) -> Axes:
    """Draws the statistic along a swept quantity, with its null band (Figure 3 of the paper).

    The quantity is named by a label and has values (o,) at the o observations, in any order. A
    point above the band is rejected at level alpha, taken by itself, and no other is. With too few
    nulls to reject anything the band holds all of them.
    """
    _check_many(result, alpha)
    o, at = len(result.statistic), as_tensors({"values": values})["values"].double().cpu().numpy()
    if at.shape != (o,) or not np.isfinite(at).all():
        what = f"shape {at.shape}" if at.shape != (o,) else "NaN or infinity"
        each = f"a finite number for each of {o} observations"
        raise ValueError(f"values: expected {each}; got {what}.")
    order = np.argsort(at, kind="stable")
    at, statistic, null = at[order], result.statistic[order], result.null[order]
    ax = axes(ax, 2.6)
    # Only large statistics speak against q: the band reaches down to where none can be.
    floor = min(0.0, float(null.min()), float(statistic.min()))
    words = f"null, all but its {100 * alpha:g} % largest"
    ax.fill_between(at, floor, critical_value(null, alpha), color=ENVELOPE, lw=0, label=words)
    ax.plot(at, null.mean(1), label="null, mean", **DASHED)
    ax.plot(at, statistic, color=CURVE, lw=1.0, zorder=2)
    rejected = result.pvalue[order] <= alpha
    kinds = ((rejected, CURVE, f"rejected, p ≤ {alpha:g}"), (~rejected, "white", "not rejected"))
    for some, face, word in kinds:
        ax.scatter(at[some], statistic[some], s=16, c=face, ec=CURVE, lw=1, zorder=3, label=word)
    ax.set_ylim(bottom=floor)
    ax.set(xlabel=display_name(label, 60), ylabel="statistic at x_o")
    ax.spines[["top", "right"]].set_visible(False)
    return legend(ax, title=f"smallest p = {result.pvalue.min():.3g}, of {o}")


def pvalues(result: LocalResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    r"""Draws sorted p-values with the line of Benjamini and Hochberg, on logarithmic axes.

    All up to the last of the o p-values that lies on or below the line :math:`\alpha i / o` are
    discoveries, of which at most a share alpha is false on average. If q is right everywhere, the
    points follow the line i / o above it. No p-value is below the dotted line, 1 / (1 + H) with H
    nulls. Benjamini and Hochberg 1995, *Controlling the False Discovery Rate*.
    """
    _check_many(result, alpha)
    o, least = len(result.pvalue), 1 / (1 + result.null.shape[-1])
    order = np.argsort(result.pvalue, kind="stable")
    rank, p, discovery = np.arange(1, o + 1), result.pvalue[order], result.fdr[order] <= alpha
    ax = axes(ax, 2.9)
    ax.plot(rank, rank / o, color=BAND, lw=1.2, label="if q = p, about")
    ax.plot(rank, alpha * rank / o, label=f"Benjamini–Hochberg, {alpha:g}", **DASHED)
    ax.axhline(least, color=BAND, lw=0.8, ls=":", label="smallest possible p")
    words, size = f"discoveries, {discovery.sum()}", 16 if o <= CROWD else 8
    for some, face, word in ((discovery, CURVE, words), (~discovery, "white", "others")):
        ax.scatter(rank[some], p[some], size, face, ec=CURVE, lw=0.8, zorder=3, label=word)
    for i in np.flatnonzero(discovery) if o <= FEW else ():
        above: dict[str, Any] = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center"}
        ax.annotate(f"{order[i]}", (rank[i], p[i]), fontsize=SMALL - 1, **above)
    margin = 1.15 if o > 3 else 1.08
    ax.set(xscale="log", xlim=(1 / margin, o * margin), xlabel="rank of the p-value among all")
    ax.set(yscale="log", ylim=(min(least, alpha / o) / 1.7, 1.4), ylabel="p-value")
    ticks = [s * 10**e for e in range(len(str(o))) for s in (1, 2, 5) if s * 10**e <= o]
    ax.set_xticks(ticks, [f"{tick}" for tick in ticks])
    ax.set_xticks([], minor=True)
    ax.spines[["top", "right"]].set_visible(False)
    return legend(ax, title=f"smallest p = {p.min():.3g}, of {o}")


def _check_many(result: LocalResult, alpha: float) -> None:
    check_kind("result", result, "that of a local test such as lc2st", "fdr", "null")
    if not result.statistic.ndim:
        raise ValueError(
            "result: expected many observations; got one. Call the test with many x_o, (o, ...)."
        )
    check_share("alpha", alpha)


def reliability(result: Quality, ax: Axes | None = None) -> Axes:
    """Draws the share of true parameters against the probability that they were given."""
    check_kind("result", result, "that of test.quality()", "reliability", "auc")
    ax = axes(ax, 3.5)
    predicted, observed, lower, upper = result.reliability()
    low = max(0.0, min(predicted.min(), lower.min(), 0.45) - 0.03)
    high = min(1.0, max(predicted.max(), upper.max(), 0.55) + 0.03)
    ax.plot([low, high], [low, high], label="perfect", **DASHED)
    bars = np.stack([observed - lower, upper - observed])
    style: dict[str, Any] = {"color": CURVE, "marker": "o", "ms": 3.5, "lw": 1.4, "ecolor": BAND}
    style |= {"elinewidth": 2.4, "label": "held out, 95 % intervals"}
    ax.errorbar(predicted, observed, bars, **style)
    ax.set(xlim=(low, high), xlabel=CLASS_1, aspect="equal")
    ax.set(ylim=(low, high), ylabel="share of true parameters")
    return legend(ax, title=f"AUC {result.auc:.2f}")


def roc(result: Quality, ax: Axes | None = None) -> Axes:
    """Draws the shares of true parameters and of draws of q above a threshold."""
    check_kind("result", result, "that of test.quality()", "reliability", "auc")
    ax = axes(ax, 3.5)
    ax.plot([0, 1], [0, 1], label="knows nothing", **DASHED)
    both = result.truths, result.draws
    quantiles = np.quantile(np.concatenate(both), np.linspace(1, 0, 201), method="nearest")
    thresholds = np.append(np.inf, quantiles)
    true, draws = ((scores[:, None] >= thresholds).mean(0) for scores in both)
    ax.plot(draws, true, color=CURVE, lw=1.6, label=f"held out, AUC {result.auc:.2f}")
    ax.set(xlabel="share of draws of q above", ylabel="share of true parameters above", **SHARES)
    return legend(ax)

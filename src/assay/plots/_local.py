"""Tests near x_o: their null, their curves, many observations, their classifier."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from .._support.inputs import as_tensors, check_kind, check_share
from ..answers.predictive import PredictiveResult
from ..local.lc2st import LC2STResult, Quality
from ..local.levels import LevelResult
from ..results import LocalResult, PPCurve, Result
from ._canvas import axes, curves, legend, legend_lines, open_corner, square
from ._numbers import bin_count, critical_value, mirrored, null_bands, one_observation
from ._style import BAND, CLASS_1, CURVE, DASHED, ENVELOPE, SMALL, display_name, percent

# Observations up to which discoveries are numbered, and from which on points are small.
FEW, CROWD = 15, 50


def null_histogram(result: Result, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the null of one statistic, what it must exceed at level alpha, and what it is.

    Of a local test at one observation, or of any test for one of its statistics, such as
    ``result["mse"]`` of :func:`assay.c2st`.

    The observed value lies beyond the dashed line if and only if its p-value is at most alpha; of
    fewer than 1 / alpha - 1 nulls, with which nothing can be rejected, the largest is marked. If
    the value is far beyond the null, an arrow at the edge of the axes has it beside it.
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
    """Draws how far x_o lies from the centre of simulations of a draw of q, beside these.

    Distances are measured by the covariance of all of them; see :func:`assay.predictive`.
    """
    check_kind("result", result, "that of predictive", "theta", "null")
    ax = _null(one_observation(result), ax, alpha, ("simulations", "of these", "x_o"))
    ax.set(xlabel="distance from the centre (sd of simulations)")
    return ax


def _null(result: Result, ax: Axes | None, alpha: float, words: tuple[str, str, str]) -> Axes:
    """Draws a null, its critical value and the statistic, with words for all three."""
    alpha = check_share("alpha", alpha)
    ax, null = axes(ax, 2.4, 1), result.null.reshape(-1)
    label = f"{len(null)} {words[0]}"
    _, edges, _ = ax.hist(null, bins=bin_count(null), color=BAND, lw=0, label=label)
    label = f"{percent(alpha)} quantile {words[1]}"
    ax.axvline(float(critical_value(null, alpha)), label=label, **DASHED)
    _mark_observed(ax, float(result.statistic.reshape(())), edges[[0, -1]], words[2])
    ax.set(ylabel=f"{words[0]} in each bin")
    ax.locator_params(axis="x", nbins=5)
    open_corner(ax)
    return legend(ax, title=f"p = {float(result.pvalue.reshape(())):.3g}")


def _mark_observed(ax: Axes, observed: float, ends: np.ndarray, word: str) -> None:
    """Draws a line at the observed value, or an arrow to it if it is far beyond the null."""
    span = float(ends[1] - ends[0])
    if ends[0] - span <= observed <= ends[1] + span:
        ax.axvline(observed, color=CURVE, lw=1.6, label=word)
        return
    above = bool(observed > ends[1])
    near, far = (ends[1], ends[0]) if above else (ends[0], ends[1])
    step = span if above else -span
    tip = near + 0.6 * step
    ax.set_xlim(*sorted((tip, far - 0.05 * step)))
    arrow = {"arrowstyle": "->", "color": CURVE, "lw": 1.6}
    style: dict[str, Any] = {
        "color": CURVE,
        "fontsize": SMALL,
        "va": "center",
        "arrowprops": arrow,
    }
    style |= {"ha": "right" if above else "left", "xycoords": ax.get_xaxis_transform()}
    ax.annotate(f"{word}\n{observed:.3g}", (tip, 0.5), (tip - 0.2 * step, 0.5), **style)


def pp(result: LC2STResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the distribution of P(class 1) at one observation, with null bands.

    Class 1 are true parameters: draws left of 1/2 lie where q has too much mass, draws right of it
    where it has too little.
    """
    check_kind("result", result, "that of lc2st", "probabilities", "pp_curve")
    curve = mirrored(one_observation(result).pp_curve(alpha))
    ax = axes(ax, 3.7, 1)
    for lower, upper, style in _bands(curve):
        ax.fill_between(curve.levels, lower, upper, step="pre", **style)
    ax.plot([0, 0.5, 0.5, 1], [0, 0, 1, 1], label="ideal if q = p", **DASHED)
    ax.step(curve.levels, curve.ecdf, where="pre", color=CURVE, lw=1.6, label="draws of q at x_o")
    title = f"whole curve: p = {float(curve.pvalue):.3g}"
    return square(ax, CLASS_1, "share of draws of q below", title)


def levels(result: LevelResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws how often true parameters lie below each level of q near one x_o, with null bands.

    Of several columns, the bands are the widest at each level.
    """
    check_kind("result", result, "that of lhpd or lpit", "alphas", "null_curves")
    result = one_observation(result)
    ax = axes(ax, 3.6, legend_lines(result.names, 3))
    grid, *lines = (np.concatenate([[0], v, [1]]) for v in (result.alphas, *result.curves))
    for lower, upper, style in _bands(result.bands(alpha)):
        ends = np.stack([lower.min(0), upper.max(0)])
        ax.fill_between(grid, *np.pad(ends, [(0, 0), (1, 1)], constant_values=(0, 1)), **style)
    ax.plot([0, 1], [0, 1], label="ideal if q = p", **DASHED)
    curves(ax, grid, np.stack(lines), result.names, grid)
    title = f"p = {float(result.pvalue):.3g}"
    return square(ax, "level of q", "share of truths below, near x_o", title)


def _bands(curve: PPCurve) -> Iterator[tuple[np.ndarray, np.ndarray, dict[str, Any]]]:
    """Both ends of each null band, and how it is drawn; the wider one first."""
    for (lower, upper, words), colour in zip(null_bands(curve), (ENVELOPE, BAND), strict=True):
        label = f"{percent(curve.alpha)} null, {words}"
        yield lower, upper, {"color": colour, "lw": 0, "label": label}


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
    point above the band is rejected at level alpha, taken by itself, and no other is. With fewer
    than 1 / alpha - 1 nulls nothing can be rejected, and the band holds all of them.

    Example:
        >>> z, x = torch.randn(2, 500, 1, generator=torch.Generator().manual_seed(0))
        >>> x_o = torch.linspace(-2, 2, 9)[:, None]
        >>> result = assay.score(assay.Calibration.from_base(z + (x > 0), x))(x_o)
        >>> sweep(result, values=x_o[:, 0], label="x").get_xlabel()
        'x'
    """
    _check_many(result, alpha)
    at = _finite(values, len(result.statistic))
    order = np.argsort(at, kind="stable")
    at, statistic, null = at[order], result.statistic[order], result.null[order]
    rejected = result.pvalue[order] <= alpha
    ax = axes(ax, 2.6)
    # Only large statistics speak against q: the band reaches down to where none can be.
    floor = min(0.0, float(null.min()), float(statistic.min()))
    words = f"null, all but its {100 * alpha:g} % largest"
    ax.fill_between(at, floor, critical_value(null, alpha), color=ENVELOPE, lw=0, label=words)
    ax.plot(at, null.mean(1), label="null, mean", **DASHED)
    ax.plot(at, statistic, color=CURVE, lw=1.0, zorder=2)
    kinds = ((rejected, CURVE, f"rejected, p ≤ {alpha:g}"), (~rejected, "white", "not rejected"))
    for some, face, word in kinds:
        ax.scatter(at[some], statistic[some], s=16, c=face, ec=CURVE, lw=1, zorder=3, label=word)
    ax.set_ylim(bottom=floor)
    ax.set(xlabel=display_name(label, 60), ylabel="statistic at x_o")
    open_corner(ax)
    return legend(ax, title=f"smallest p = {result.pvalue.min():.3g}, of {len(at)}")


def pvalues(result: LocalResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    r"""Draws sorted p-values with the line of Benjamini and Hochberg, on logarithmic axes.

    With :math:`p_{(i)}` the i-th smallest of o p-values, all up to the last that lies on or below
    the line :math:`\alpha i / o` are discoveries, of which at most a share alpha is false on
    average. If q is right everywhere, the points follow the line i / o above it. No p-value is
    smaller than 1 / (1 + H), where H is the number of nulls; the dotted line is there.

    Reference: Benjamini and Hochberg 1995, *Controlling the False Discovery Rate*.

    Example:
        >>> z, x = torch.randn(2, 500, 1, generator=torch.Generator().manual_seed(0))
        >>> test = assay.score(assay.Calibration.from_base(z + (x > 0), x))
        >>> pvalues(test(x[:20])).get_ylabel()
        'p-value'
    """
    _check_many(result, alpha)
    count, least = len(result.pvalue), 1 / (1 + result.null.shape[-1])
    order = np.argsort(result.pvalue, kind="stable")
    rank, p = np.arange(1, count + 1), result.pvalue[order]
    discovery = result.fdr[order] <= alpha
    ax = axes(ax, 2.9)
    ax.plot(rank, rank / count, color=BAND, lw=1.2, label="if q = p, about")
    ax.plot(rank, alpha * rank / count, label=f"Benjamini–Hochberg, {alpha:g}", **DASHED)
    ax.axhline(least, color=BAND, lw=0.8, ls=":", label="smallest possible p")
    words, size = f"discoveries, {discovery.sum()}", 16 if count <= CROWD else 8
    for some, face, word in ((discovery, CURVE, words), (~discovery, "white", "others")):
        ax.scatter(rank[some], p[some], size, face, ec=CURVE, lw=0.8, zorder=3, label=word)
    if count <= FEW:
        above: dict[str, Any] = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center"}
        for i, which in zip(np.flatnonzero(discovery), order[discovery], strict=True):
            ax.annotate(f"{which}", (rank[i], p[i]), fontsize=SMALL - 1, **above)
    ax.set(xscale="log", yscale="log")
    ticks = [s * 10**e for e in range(len(str(count))) for s in (1, 2, 5) if s * 10**e <= count]
    ax.set_xticks(ticks, [f"{tick}" for tick in ticks])
    ax.set_xticks([], minor=True)
    margin = 1.15 if count > 3 else 1.08
    ax.set(xlim=(1 / margin, count * margin), ylim=(min(least, alpha / count) / 1.7, 1.4))
    ax.set(xlabel="rank of the p-value among all", ylabel="p-value")
    open_corner(ax)
    return legend(ax, title=f"smallest p = {p.min():.3g}, of {count}")


def _check_many(result: LocalResult, alpha: float) -> None:
    check_kind("result", result, "that of a local test such as lc2st", "fdr", "null")
    if not result.statistic.ndim:
        raise ValueError(
            "result: expected many observations; got one. Call the test with many x_o, (o, ...)."
        )
    check_share("alpha", alpha)


def _finite(values: Any, count: int) -> np.ndarray:
    """A finite number for each observation."""
    at = as_tensors({"values": values})["values"].double().cpu().numpy()
    if at.shape != (count,) or not np.isfinite(at).all():
        what = f"shape {at.shape}" if at.shape != (count,) else "NaN or infinity"
        raise ValueError(
            f"values: expected a finite number for each of {count} observations; got {what}."
        )
    return at


def reliability(result: Quality, ax: Axes | None = None) -> Axes:
    """Draws the share of true parameters against the probability that they were given."""
    check_kind("result", result, "that of test.quality()", "reliability", "auc")
    ax = axes(ax, 3.5)
    predicted, observed, lower, upper = result.reliability()
    low = max(0.0, min(predicted.min(), lower.min(), 0.45) - 0.03)
    high = min(1.0, max(predicted.max(), upper.max(), 0.55) + 0.03)
    ax.plot([low, high], [low, high], label="perfect", **DASHED)
    bars = np.stack([observed - lower, upper - observed])
    shape: dict[str, Any] = {"color": CURVE, "marker": "o", "ms": 3.5, "lw": 1.4}
    label = "held out, 95 % intervals"
    ax.errorbar(predicted, observed, bars, ecolor=BAND, elinewidth=2.4, label=label, **shape)
    ax.set(xlim=(low, high), ylim=(low, high), aspect="equal")
    ax.set(xlabel=CLASS_1, ylabel="share of true parameters")
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
    words = "share of draws of q above", "share of true parameters above"
    return square(ax, *words, title="")

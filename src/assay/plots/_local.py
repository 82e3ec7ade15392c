"""Local tests: their null, curves of probabilities and levels, and many observations at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from .._support.inputs import as_tensors, check_kind, check_share
from ..results import LocalResult, PPCurve, Result
from ._canvas import (
    BAND,
    CLASS_1,
    CURVE,
    ENVELOPE,
    INK,
    SMALL,
    axes,
    curves,
    diagonal,
    legend,
    named,
    only,
    open_corner,
    percent,
    rows_of,
    smallest_of,
    square,
    threshold,
)
from ._shapes import bin_count, closed, mirrored, null_bands

if TYPE_CHECKING:
    from ..answers.predictive import PredictiveResult
    from ..local.lc2st import LC2STResult
    from ..local.levels import LevelResult

# Observations up to which discoveries are numbered, and from which on points are small.
FEW, CROWD = 15, 50


def null_histogram(result: Result, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the null of one statistic, what it must exceed at level alpha, and what it is.

    Of a local test at one observation, or of any test for one of its statistics, such as
    ``result["mse"]`` of :func:`assay.c2st`.

    The observed value lies beyond the dashed line if and only if its p-value is at most alpha; of
    fewer than 1 / alpha - 1 nulls, with which nothing can be rejected, the largest is marked. A
    value far beyond the null is told beside an arrow at the edge of the axes.
    """
    check_kind("result", result, "that of a test", "statistic", "null")
    if result.statistic.size != 1:
        raise ValueError(
            f"result: expected one statistic; got {result.statistic.size}. Choose one by its "
            'number or name, such as result[0] or result["mse"].'
        )
    ax = _draw_null(result, ax, alpha, ("null copies", "of the null", "observed"))
    ax.set(xlabel=_statistic_name(result))
    return ax


def predictive(result: PredictiveResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws how far x_o lies from the centre of simulations of a draw of q, beside these.

    Distances are measured by the covariance of all of them; see :func:`assay.predictive`.
    """
    check_kind("result", result, "that of predictive", "theta", "null")
    ax = _draw_null(only(result), ax, alpha, ("simulations", "of these", "x_o"))
    ax.set(xlabel="distance from the centre (sd of simulations)")
    return ax


def _draw_null(result: Result, ax: Axes | None, alpha: float, words: tuple[str, str, str]) -> Axes:
    """Draws a null, what must be exceeded, and the statistic, with words for all three."""
    alpha = check_share("alpha", alpha)
    ax, null = axes(ax, 2.4, 1), result.null.reshape(-1)
    label = f"{len(null)} {words[0]}"
    _, edges, _ = ax.hist(null, bins=bin_count(null), color=BAND, lw=0, label=label)
    least, share = float(threshold(null, alpha)), f"{percent(alpha)} quantile {words[1]}"
    ax.axvline(least, color=INK, lw=0.8, ls="--", label=share)
    _mark_observed(ax, float(result.statistic.reshape(())), edges, words[2])
    ax.set(ylabel=f"{words[0]} in each bin")
    ax.locator_params(axis="x", nbins=5)
    open_corner(ax)
    return legend(ax, title=f"p = {float(result.pvalue.reshape(())):.3g}")


def _mark_observed(ax: Axes, observed: float, edges: np.ndarray, word: str) -> None:
    """A line at the observed value, or an arrow to it where the null would be a sliver."""
    low, high = float(edges[0]), float(edges[-1])
    span = high - low
    if low - span <= observed <= high + span:
        ax.axvline(observed, color=CURVE, lw=1.6, label=word)
        return
    side = 1 if observed > high else -1
    end = (high if side > 0 else low) + 0.6 * side * span
    ax.set_xlim(*sorted((end, (low if side > 0 else high) - 0.05 * side * span)))
    shape: dict[str, Any] = {"color": CURVE, "fontsize": SMALL, "va": "center"}
    arrow = {"arrowstyle": "->", "color": CURVE, "lw": 1.6}
    across = ax.get_xaxis_transform()
    place: dict[str, Any] = {"xycoords": across, "textcoords": across, "arrowprops": arrow}
    tail, words = end - 0.2 * side * span, f"{word}\n{observed:.3g}"
    ha = "right" if side > 0 else "left"
    ax.annotate(words, (end, 0.5), (tail, 0.5), ha=ha, **place, **shape)


def _statistic_name(result: Result) -> str:
    """The name of the statistic, where the result has one for it."""
    names: tuple[str, ...] = getattr(result, "names", ())
    return named(names[0]) if len(names) == 1 else "statistic"


def pp(result: LC2STResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws the distribution of P(class 1), the truth, at one observation, with null bands.

    Draws left of 1/2 lie where q has too much mass, draws right of it where it has too little.
    """
    check_kind("result", result, "that of lc2st", "probabilities", "pp_curve")
    curve = mirrored(only(result).pp_curve(alpha))
    ax = axes(ax, 3.7, 1)
    for lower, upper, shape in _bands(curve):
        ax.fill_between(curve.levels, lower, upper, step="pre", **shape)
    ax.plot([0, 0.5, 0.5, 1], [0, 0, 1, 1], color=INK, lw=0.8, ls="--", label="ideal if q = p")
    ax.step(curve.levels, curve.ecdf, where="pre", color=CURVE, lw=1.6, label="draws of q at x_o")
    title = f"whole curve: p = {float(curve.pvalue):.3g}"
    return square(ax, CLASS_1, "share of draws of q below", title)


def levels(result: LevelResult, ax: Axes | None = None, alpha: float = 0.05) -> Axes:
    """Draws how often the truth lies below each level at one observation, with null bands.

    Of several columns, the bands are the widest at each level.
    """
    check_kind("result", result, "that of lhpd or lpit", "alphas", "null_curves")
    result = only(result)
    ax = axes(ax, 3.6, rows_of(result.names, 3))
    grid = closed(result.alphas)
    for lower, upper, shape in _bands(result.bands(alpha)):
        ax.fill_between(grid, closed(lower.min(0)), closed(upper.max(0)), **shape)
    diagonal(ax, "ideal if q = p")
    curves(ax, grid, np.stack([closed(curve) for curve in result.curves]), result.names, grid)
    title = f"p = {float(result.pvalue):.3g}"
    return square(ax, "level of q", "share of truths below, near x_o", title)


def _bands(curve: PPCurve) -> Iterator[tuple[np.ndarray, np.ndarray, dict[str, Any]]]:
    """Both ends of each null band, and how it is drawn; the wider one first."""
    for (lower, upper, held), colour in zip(null_bands(curve), (ENVELOPE, BAND), strict=True):
        label = f"{percent(curve.alpha)} null, {held}"
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
    at = _swept(values, len(result.statistic))
    order = np.argsort(at, kind="stable")
    at, statistic, null = at[order], result.statistic[order], result.null[order]
    rejected = result.pvalue[order] <= alpha
    ax = axes(ax, 2.6)
    # Only large statistics speak against q: the band reaches down to where none can be.
    floor = min(0.0, float(null.min()), float(statistic.min()))
    words = f"null, all but its {100 * alpha:g} % largest"
    ax.fill_between(at, floor, threshold(null, alpha), color=ENVELOPE, lw=0, label=words)
    ax.plot(at, null.mean(1), color=INK, lw=0.8, ls="--", label="null, mean")
    ax.plot(at, statistic, color=CURVE, lw=1.0, zorder=2)
    kinds = ((rejected, CURVE, f"rejected, p ≤ {alpha:g}"), (~rejected, "white", "not rejected"))
    for some, face, word in kinds:
        ax.scatter(at[some], statistic[some], s=16, c=face, ec=CURVE, lw=1, zorder=3, label=word)
    ax.set_ylim(bottom=floor)
    ax.set(xlabel=named(label, 60), ylabel="statistic at x_o")
    open_corner(ax)
    return legend(ax, title=smallest_of(result.pvalue))


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
    words = f"Benjamini–Hochberg, {alpha:g}"
    ax.plot(rank, alpha * rank / count, color=INK, lw=0.8, ls="--", label=words)
    ax.axhline(least, color=BAND, lw=0.8, ls=":", label="smallest possible p")
    found, size = f"discoveries, {discovery.sum()}", 16 if count <= CROWD else 8
    kinds = ((discovery, CURVE, found), (~discovery, "white", "others"))
    for some, face, word in kinds:
        ax.scatter(rank[some], p[some], size, face, ec=CURVE, lw=0.8, zorder=3, label=word)
    if count <= FEW:
        _number(ax, rank[discovery], p[discovery], order[discovery])
    ax.set(xscale="log", yscale="log")
    _limits(ax, count, min(least, alpha / count))
    ax.set(xlabel="rank of the p-value among all", ylabel="p-value")
    open_corner(ax)
    return legend(ax, title=smallest_of(result.pvalue))


def _number(ax: Axes, rank: np.ndarray, p: np.ndarray, which: np.ndarray) -> None:
    """Says above a point which observation it is."""
    above: dict[str, Any] = {"xytext": (0, 4), "textcoords": "offset points", "ha": "center"}
    for i, height, o in zip(rank, p, which, strict=True):
        ax.annotate(f"{o}", (i, height), fontsize=SMALL - 1, **above)


def _limits(ax: Axes, count: int, lowest: float) -> None:
    """Plain numbers on the axis of ranks, and room around all that is drawn."""
    steps = [s * 10**e for e in range(len(str(count))) for s in (1, 2, 5) if s * 10**e <= count]
    ax.set_xticks(steps, [f"{step}" for step in steps])
    ax.set_xticks([], minor=True)
    margin = 1.15 if count > 3 else 1.08
    ax.set(xlim=(1 / margin, count * margin), ylim=(lowest / 1.7, 1.4))


def _check_many(result: LocalResult, alpha: float) -> None:
    check_kind("result", result, "that of a local test such as lc2st", "fdr", "null")
    if not result.statistic.ndim:
        raise ValueError(
            "result: expected many observations; got one. Call the test with many x_o, (o, ...)."
        )
    check_share("alpha", alpha)


def _swept(values: Any, count: int) -> np.ndarray:
    """A finite number for each observation."""
    at = as_tensors({"values": values})["values"].double().cpu().numpy()
    if at.shape != (count,) or not np.isfinite(at).all():
        what = f"shape {at.shape}" if at.shape != (count,) else "NaN or infinity"
        raise ValueError(
            f"values: expected a finite number for each of {count} observations; got {what}."
        )
    return at

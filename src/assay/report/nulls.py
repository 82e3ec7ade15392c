"""Tests beside their nulls: the exact test of q near x_o, and tests over all x."""

import numpy as np

from ..average.coverage import CoverageResult
from ..average.sbc import SBCResult
from ..plots._numbers import bin_count
from ..printing import probability, readable
from ..verdict import Verdict
from .traces import (
    DASHED,
    Figure,
    Trace,
    axis,
    curves,
    decimals,
    ideal,
    layout,
    line,
    null_band,
    percent,
    rounded,
    upright,
)

# How far beyond the null copies a statistic is drawn, in their range.
FAR = 2.0
# The height of a figure over all x; quantities whose p-values are in its words.
HEIGHT, MOST_PVALUES = 240, 12


def null(check: Verdict, which: int) -> Figure:
    """The null of the test that decides, with the observed statistic."""
    copies, value = check.test.null[which], float(check.test.statistic[which])
    threshold = float(np.quantile(copies, 1 - check.alpha))
    low, high = float(copies.min()), float(copies.max())
    end = min(value, high + FAR * (high - low))
    heights, edges = np.histogram(copies, bin_count(copies))
    bars: Trace = {
        "type": "bar",
        "x": rounded((edges[1:] + edges[:-1]) / 2),
        "y": heights.tolist(),
        "width": rounded(np.diff(edges)),
        "marker": {"color": "@band", "line": {"width": 0}},
        "name": f"{len(copies)} relabelled copies",
        "hovertemplate": "%{y} copies near %{x:.3~g}<extra></extra>",
    }
    nothing, below = np.array([np.nan]), percent(1 - check.alpha)
    keys = (
        line(nothing, nothing, f"{below} of copies", color="@ink", dash="dash"),
        line(nothing, nothing, "observed", color="@curve", width=2),
    )
    span = low - 0.05 * (high - low), max(high, end) + 0.1 * (high - low)
    axes = axis("statistic", span), axis("copies", rangemode="tozero")
    observed = upright(end, color="@curve", width=2.5)
    p = probability(float(check.test.pvalue[which]))
    return Figure(
        (bars, *keys),
        layout(*axes, upright(threshold), observed, bargap=0),
        f"Histogram of {len(copies)} relabelled copies, {below} of which lie below "
        f"{decimals(threshold)}. The observed statistic is {decimals(value)}, p = {p}.",
    )


def average_figures(check: Verdict) -> dict[str, Figure]:
    """Figures over all x, by name."""
    figures = {} if check.sbc is None else {"sbc": ranks(check.sbc, check.alpha)}
    for name, result in (("coverage", check.coverage), ("tarp", check.tarp)):
        if result is not None:
            figures[name] = covered(result, check.alpha)
    return figures


def ranks(result: SBCResult, alpha: float) -> Figure:
    """The distribution functions of ranks less the diagonal, with a simultaneous band."""
    curve = result.ecdf(alpha)
    limits = (curve.null_lower - curve.levels, curve.null_upper - curve.levels)
    band = null_band(curve.levels, *limits, alpha)
    difference = curve.ecdf - curve.levels
    lines = curves(curve.levels, difference, result.names, np.zeros_like(curve.levels))
    axes = axis("level of the rank", (0, 1)), axis("share below − level")
    ends = {"x0": 0, "x1": 1, "xref": "paper", "y0": 0.0, "y1": 0.0}
    zero = {"type": "line", **ends, "line": DASHED}
    return Figure(
        (band, *lines),
        layout(*axes, zero) | {"height": HEIGHT},
        f"Ranks of true parameters among draws of q, {_pvalues(result)}.",
    )


def covered(result: CoverageResult, alpha: float) -> Figure:
    """Expected coverage against the level, with its null band."""
    curve = result.curve(alpha)
    band = null_band(curve.levels, curve.null_lower, curve.null_upper, alpha)
    lines = curves(curve.levels, curve.ecdf, result.names, curve.levels)
    axes = axis(f"level of {result.regions}", (0, 1)), axis("share inside", (0, 1.01))
    return Figure(
        (band, ideal([0, 1], [0, 1]), *lines),
        layout(*axes) | {"height": HEIGHT},
        f"Expected coverage of {result.regions}, {_pvalues(result)}.",
    )


def _pvalues(result: CoverageResult | SBCResult) -> str:
    """The corrected p-values of the first quantities."""
    pairs = list(zip(result.names, np.atleast_1d(result.adjusted), strict=True))[:MOST_PVALUES]
    each = (f"{readable(name)} p = {probability(float(p))}" for name, p in pairs)
    return f"corrected p-values: {'; '.join(each)}"

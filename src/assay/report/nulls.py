"""Tests beside their nulls: the exact test of q near x_o, and tests over all x."""

from typing import Any

import numpy as np

from ..plots._numbers import bin_count
from ..printing import probability, readable
from ..verdict import Verdict
from .traces import DASHED, axis, curves, decimals, line, null_band, percent, rounded, upright

# How far beyond the null copies a statistic is drawn, in their range.
FAR = 2.0
# Quantities whose p-values are in the words of a figure over all x.
MOST_PVALUES = 12


def null(check: Verdict, which: int) -> dict[str, Any]:
    """The null of the test that decides, with the observed statistic."""
    copies, value = check.test.null[which], float(check.test.statistic[which])
    threshold = float(np.quantile(copies, 1 - check.alpha))
    low, high = float(copies.min()), float(copies.max())
    end = min(value, high + FAR * (high - low))
    heights, edges = np.histogram(copies, bin_count(copies))
    bars = {
        "type": "bar",
        "x": rounded((edges[1:] + edges[:-1]) / 2),
        "y": heights.tolist(),
        "width": rounded(np.diff(edges)),
        "marker": {"color": "@band", "line": {"width": 0}},
        "name": f"{len(copies)} relabelled copies",
        "hovertemplate": "%{y} copies near %{x:.3~g}<extra></extra>",
    }
    below = percent(1 - check.alpha)
    # What the lines across the figure are, for its key.
    threshold_key = line(np.nan, np.nan, f"{below} of copies", color="@ink", dash="dash")
    observed_key = line(np.nan, np.nan, "observed", color="@curve", width=2)
    span = low - 0.05 * (high - low), max(high, end) + 0.1 * (high - low)
    axes = {"xaxis": axis("statistic", span), "yaxis": axis("copies", rangemode="tozero")}
    shapes = [upright(threshold), upright(end, color="@curve", width=2.5)]
    layout = {**axes, "shapes": shapes, "height": 300, "bargap": 0}
    words = (
        f"Histogram of {len(copies)} relabelled copies, {below} of which lie below "
        f"{decimals(threshold)}. The observed statistic is {decimals(value)}, "
        f"p = {probability(float(check.test.pvalue[which]))}."
    )
    return {"data": [bars, threshold_key, observed_key], "layout": layout, "words": words}


def average_figures(check: Verdict) -> dict[str, dict[str, Any]]:
    """Figures over all x, by name: ranks less the diagonal and expected coverage, (j, g)."""
    figures = {}
    results = {"sbc": check.sbc, "coverage": check.coverage, "tarp": check.tarp}
    for name, result in results.items():
        if result is None:
            continue
        layout: dict[str, Any] = {"height": 240}
        if name == "sbc":
            curve, what = result.ecdf(check.alpha), "Ranks of true parameters among draws of q"
            ends = curve.null_lower - curve.levels, curve.null_upper - curve.levels
            lines, right, ideal = curve.ecdf - curve.levels, np.zeros_like(curve.levels), []
            titles = axis("level of the rank", (0, 1)), axis("share below − level")
            zero = {"x0": 0, "x1": 1, "xref": "paper", "y0": 0.0, "y1": 0.0, "line": DASHED}
            layout["shapes"] = [{"type": "line", **zero}]
        else:
            curve, what = result.curve(check.alpha), f"Expected coverage of {result.regions}"
            ends, lines = (curve.null_lower, curve.null_upper), curve.ecdf
            right, ideal = curve.levels, [line([0, 1], [0, 1], "if q = p", **DASHED)]
            titles = axis(f"level of {result.regions}", (0, 1)), axis("share inside", (0, 1.01))
        band = null_band(curve.levels, ends, check.alpha)
        layout |= dict(zip(("xaxis", "yaxis"), titles, strict=True))
        each = list(zip(result.names, np.atleast_1d(result.adjusted), strict=True))[:MOST_PVALUES]
        pvalues = "; ".join(f"{readable(one)} p = {probability(float(p))}" for one, p in each)
        data = [band, *ideal, *curves(curve.levels, lines, result.names, right)]
        words = f"{what}, corrected p-values: {pvalues}."
        figures[name] = {"data": data, "layout": layout, "words": words}
    return figures

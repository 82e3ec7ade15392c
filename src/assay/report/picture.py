"""Figures of the tests at one observation: the classifier's PP-plot, and the null of the test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..plots._numbers import bin_count, mirrored, null_bands
from ..results import PPCurve, probability
from .traces import Figure, Trace, axis, ideal, layout, line, null_band, upright
from .words import number, rounded, share

if TYPE_CHECKING:
    from ..verdict import Verdict

# Colours of the null bands of a curve, the wider one first.
BANDS = ("@envelope", "@band")
# How far beyond the null copies a statistic is drawn, in their range.
FAR = 2.0


def null(check: Verdict, which: int) -> Figure:
    """The null of the test that decides, with the observed statistic."""
    copies, value = check.test.null[which], float(check.test.statistic[which])
    threshold = float(np.quantile(copies, 1 - check.alpha))
    low, high = float(copies.min()), float(copies.max())
    end = high + FAR * (high - low)
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
    nothing = np.array([np.nan])
    keys = (
        line(nothing, nothing, f"{share(1 - check.alpha)} of copies", color="@ink", dash="dash"),
        line(nothing, nothing, "observed", color="@curve", width=2),
    )
    span = low - 0.05 * (high - low), max(high, min(value, end)) + 0.1 * (high - low)
    axes = axis("statistic", span), axis("copies", rangemode="tozero")
    observed = upright(min(value, end), color="@curve", width=2.5)
    p = probability(float(check.test.pvalue[which]))
    return Figure(
        (bars, *keys),
        layout(*axes, upright(threshold), observed, bargap=0),
        f"Histogram of {len(copies)} relabelled copies, {share(1 - check.alpha)} of which lie "
        f"below {number(threshold)}. The observed statistic is {number(value)}, p = {p}.",
    )


def pp_curves(check: Verdict) -> PPCurve | None:
    """PP-curves at all observations; None without a classifier."""
    found = check.classified
    if found is None:
        return None
    return mirrored(found.pp_curve(check.alpha))


def pp(curve: PPCurve, which: int) -> Figure:
    """The PP-plot of the classifier at one observation."""
    levels = np.repeat(curve.levels, 2)[:-1]
    bands = []
    for (lower, upper, held), colour in zip(null_bands(curve), BANDS, strict=True):
        ends = (np.repeat(lower[which], 2)[1:], np.repeat(upper[which], 2)[1:])
        bands.append(null_band(levels, ends, curve.alpha, held, colour))
    style = {"color": "@curve", "width": 2, "shape": "vh"}
    drawn = line(curve.levels, curve.ecdf[which], "draws of q at x_o", **style)
    across = axis("probability of class 1 (the truth)", (0, 1))
    return Figure(
        # Both bands have the same abscissa, which is stored once.
        (*(one | {"x": 0} for one in bands), ideal([0, 0.5, 0.5, 1], [0, 0, 1, 1]), drawn),
        layout(across, axis("share of draws below", (0, 1.01))),
        "PP-plot: the distribution of class probabilities at the draws of q. The curve as a whole "
        f"has p = {probability(float(curve.pvalue[which]))}.",
        (bands[0]["x"],),
    )

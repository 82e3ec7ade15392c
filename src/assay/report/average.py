"""Figures over all x: ranks, coverage and TARP; and what the classifier does on held-out sets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ..plots._shapes import reliability_limits
from ..results import probability
from .traces import Figure, axis, error_bars, ideal, layout, level, line, named, null_band
from .words import each_pvalue, listed, number, share

if TYPE_CHECKING:
    from ..diagnostics.average.coverage import Covered
    from ..diagnostics.average.sbc import SBCResult
    from ..interpret.health import Health
    from ..interpret.verdict import Verdict


def average_figures(check: Verdict) -> dict[str, Figure]:
    """All figures that do not belong to one observation, by name."""
    figures = {} if check.sbc is None else {"sbc": ranks(check.sbc, check.alpha)}
    for name, result in (("coverage", check.coverage), ("tarp", check.tarp)):
        if result is not None:
            figures[name] = covered(result, check.alpha)
    if check.health is not None:
        figures |= {"reliability": reliability(check.health), "roc": roc(check.health)}
    return figures


def ranks(result: SBCResult, alpha: float) -> Figure:
    """The distribution functions of ranks less the diagonal, with a simultaneous band."""
    curve = result.ecdf(alpha)
    band = null_band(curve.levels, (curve.difference_lower, curve.difference_upper), alpha)
    zero = np.zeros_like(curve.levels)
    axes = axis("level of the rank", (0, 1)), axis("share of truths below − level")
    return Figure(
        (band, *named(curve.levels, curve.difference, result.names, zero)),
        layout(*axes, level(0.0)),
        "Ranks of the truth among draws of q, adjusted p-values: "
        f"{each_pvalue(result.names, result.adjusted)}.",
    )


def covered(result: Covered, alpha: float) -> Figure:
    """Expected coverage against the level, with its null band."""
    curve = result.curve(alpha)
    band = null_band(curve.levels, (curve.null_lower, curve.null_upper), alpha)
    lines = named(curve.levels, curve.coverage, result.names, curve.levels)
    return Figure(
        (band, ideal([0, 1], [0, 1]), *lines),
        layout(axis(f"level of {result.held}", (0, 1)), axis("share of truths inside", (0, 1.01))),
        f"Expected coverage of {result.held}: {_shares(result)}.",
    )


def reliability(health: Health) -> Figure:
    """The share of truths against the probability that was given to them."""
    bins, ends = health.reliability, reliability_limits(health.reliability)
    dots = line(bins.predicted, bins.observed, "held out, 95 % intervals", color="@curve", width=2)
    bars = error_bars(np.stack([bins.observed, bins.lower, bins.upper]), "@band")
    dots |= {"mode": "lines+markers", "error_y": bars}
    names = ("probability of class 1 (truth)", "share of truths, at even odds")
    return Figure(
        (ideal(ends, ends, "perfect"), dots),
        layout(*(axis(name, ends) for name in names)),
        f"Reliability diagram: calibration error {number(health.calibration_error)}, where noise "
        f"alone would give {number(float(health.perfect.mean()))}.",
    )


def roc(health: Health) -> Figure:
    """ROC curves from theta and x, and from x alone."""
    kinds = (
        ("theta and x", health.roc, health.auc, {"color": "@curve", "width": 2}),
        ("x alone", health.roc_x, health.auc_x, {"color": "@blue", "width": 2, "dash": "dot"}),
    )
    curves = (
        line(curve.draws, curve.truths, f"{name}, AUC {auc.value:.2f}", **style)
        for name, curve, auc, style in kinds
    )
    axes = axis("share of draws of q above", (0, 1)), axis("share of truths above", (0, 1.01))
    return Figure(
        (ideal([0, 1], [0, 1], "knowing nothing"), *curves),
        layout(*axes),
        f"ROC curves: area {health.auc} from theta and x, and {health.auc_x} from x alone.",
    )


def _shares(result: Covered) -> str:
    """The coverage of every quantity, in words."""
    rows = zip(result.names, result.coverage, result.adjusted, strict=True)
    return listed(f"{name} at {_at(result, row)}, p = {probability(p)}" for name, row, p in rows)


def _at(result: Covered, row: np.ndarray) -> str:
    pairs = zip(result.levels, row, strict=True)
    return ", ".join(f"{share(level)}: {share(coverage)}" for level, coverage in pairs)

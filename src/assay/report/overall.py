"""Figures over all x: ranks, coverage and TARP; and what the classifier does on held-out sets."""

import numpy as np

from ..diagnostics.coverage import Covered
from ..diagnostics.sbc import SBCResult
from ..findings import Findings
from ..health import Health
from .traces import HEIGHT, Figure, axis, band, level, line, named
from .words import number, probability, share

__all__ = ["overall"]

DASHED = {"color": "@ink", "dash": "dash", "width": 1}
# Room around the bins of a reliability diagram.
MARGIN = 0.03


def overall(found: Findings) -> dict[str, Figure]:
    """All figures that do not belong to one observation, by name."""
    made = {}
    if found.sbc is not None:
        made["sbc"] = ranks(found.sbc, found.alpha)
    if found.coverage is not None:
        made["coverage"] = covered(found.coverage, found.alpha)
    if found.tarp is not None:
        made["tarp"] = covered(found.tarp, found.alpha)
    if found.health is not None:
        made |= {"reliability": reliability(found.health), "roc": roc(found.health)}
    return made


def ranks(result: SBCResult, alpha: float) -> Figure:
    """The distribution functions of ranks less the diagonal, with a simultaneous band."""
    curve = result.ecdf(alpha)
    zero = np.zeros_like(curve.levels)
    edges = (curve.difference_lower, curve.difference_upper)
    each = [
        f"{name} p = {probability(float(p))}"
        for name, p in zip(result.names, result.adjusted, strict=True)
    ]
    return Figure(
        (
            band(curve.levels, *edges, f"{share(1 - alpha)} null, whole curve", "@envelope"),
            *named(curve.levels, curve.difference, result.names, zero),
        ),
        {
            "xaxis": axis("level of the rank", (0, 1)),
            "yaxis": axis("share of truths below − level"),
            "shapes": [level(0.0)],
            "height": HEIGHT,
        },
        f"Ranks of the truth among draws of q, adjusted p-values: {'; '.join(each[:12])}.",
    )


def covered(result: Covered, alpha: float) -> Figure:
    """Expected coverage against the level, with its null band."""
    curve = result.curve(alpha)
    ends = np.array([0.0, 1.0])
    each = [
        f"{name} at {', '.join(_at(a, c) for a, c in zip(result.levels, row, strict=True))}, "
        f"p = {probability(float(p))}"
        for name, row, p in zip(result.names, result.coverage, result.adjusted, strict=True)
    ]
    bounds = (curve.null_lower, curve.null_upper)
    return Figure(
        (
            band(curve.levels, *bounds, f"{share(1 - alpha)} null, whole curve", "@envelope"),
            line(ends, ends, "if q = p", **DASHED),
            *named(curve.levels, curve.coverage, result.names, curve.levels),
        ),
        {
            "xaxis": axis(f"level of {result.held}", (0, 1)),
            "yaxis": axis("share of truths inside", (0, 1.01)),
            "height": HEIGHT,
        },
        f"Expected coverage of {result.held}: {'; '.join(each[:12])}.",
    )


def reliability(health: Health) -> Figure:
    """The share of truths against the probability that was given to them."""
    bins = health.reliability
    low = max(0.0, min(bins.predicted.min(), bins.lower.min(), 0.5) - MARGIN)
    high = min(1.0, max(bins.predicted.max(), bins.upper.max(), 0.5) + MARGIN)
    ends = np.array([low, high])
    dots = line(bins.predicted, bins.observed, "held out, 95 % intervals", color="@curve", width=2)
    bars = {
        "array": (bins.upper - bins.observed).round(4).tolist(),
        "arrayminus": (bins.observed - bins.lower).round(4).tolist(),
    }
    dots |= {
        "mode": "lines+markers",
        "error_y": {"type": "data", "symmetric": False, **bars, "color": "@band", "thickness": 2},
    }
    return Figure(
        (line(ends, ends, "perfect", **DASHED), dots),
        {
            "xaxis": axis("probability of class 1 (truth)", (low, high)),
            "yaxis": axis("share of truths, at even odds", (low, high)),
            "height": HEIGHT,
        },
        f"Reliability diagram: calibration error {number(health.calibration_error)}, where noise "
        f"alone would give {number(float(health.perfect.mean()))}.",
    )


def roc(health: Health) -> Figure:
    """ROC curves from theta and x, and from x alone."""
    ends = np.array([0.0, 1.0])
    kinds = (
        ("theta and x", health.roc, health.auc, {"color": "@curve", "width": 2}),
        ("x alone", health.roc_x, health.auc_x, {"color": "@blue", "width": 2, "dash": "dot"}),
    )
    curves = (
        line(curve.draws, curve.truths, f"{name}, AUC {auc.value:.2f}", **style)
        for name, curve, auc, style in kinds
    )
    return Figure(
        (line(ends, ends, "knowing nothing", **DASHED), *curves),
        {
            "xaxis": axis("share of draws of q above", (0, 1)),
            "yaxis": axis("share of truths above", (0, 1.01)),
            "height": HEIGHT,
        },
        f"ROC curves: area {health.auc} from theta and x, and {health.auc_x} from x alone.",
    )


def _at(level: float, coverage: float) -> str:
    return f"{share(level)}: {share(float(coverage))}"

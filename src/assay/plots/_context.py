"""Beside the answers: where x_o lies among the simulations, and what a classifier is worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from .._support.inputs import check_kind
from ._canvas import (
    BAND,
    CLASS_1,
    CURVE,
    ENVELOPE,
    GREEN,
    INK,
    axes,
    diagonal,
    legend,
    open_corner,
)
from ._shapes import COMPONENTS, components

if TYPE_CHECKING:
    from ..local.lc2st import Quality
    from ..verdict import Verdict

# Colour and marker of each verdict: shapes tell them apart as well as colours.
VERDICT_STYLES = {
    "passed": (GREEN, "o"),
    "inconclusive": ("#5a5a5a", "^"),
    "outside": (INK, "s"),
    "rejected": (CURVE, "X"),
}


def surroundings(check: Verdict, ax: Axes | None = None) -> Axes:
    """Draws where the observations lie among the simulated ones, with their verdicts.

    Coordinates are the entries of x where there are at most two, or else its first two principal
    components. Where q was tested at simulated observations, crosses are rejected there.
    """
    check_kind("check", check, "what assay.check found", "surroundings", "verdicts")
    if check.surroundings is None:
        raise ValueError("check: expected simulated observations around x_o; got none.")
    around, own = check.surroundings, check.test.x.reshape(len(check), -1)
    simulated = around.x.reshape(len(around.x), -1)
    every = np.nan_to_num(np.concatenate([simulated, own]).astype(float))
    s, d = len(simulated), every.shape[1]
    ax = axes(ax, 3.2 if d > 1 else 1.9)
    if d > 1:
        places = every if d == 2 else components(every)
        across, up = ("x[0]", "x[1]") if d == 2 else COMPONENTS
        ax.set(xlabel=across, ylabel=up)
    else:
        # Simulations are spread upwards, so that those at about the same x do not hide each other.
        upwards = 0.618 * np.arange(len(every)) % 1 - 0.5
        upwards[s:] = 0
        places = np.stack([every[:, 0], upwards], 1)
        ax.set(xlabel="x[0]", ylim=(-0.7, 0.7), yticks=[])
    near = around.near.any(0)
    _dots(ax, places[:s][~near], s=5, c=ENVELOPE, label="simulated")
    _dots(ax, places[:s][near], s=5, c=BAND, label="near x_o")
    tested = np.isfinite(around.pvalue)
    for some, marker in ((around.pvalue <= check.alpha, "x"), (around.pvalue > check.alpha, "o")):
        face = {"c": CURVE} if marker == "x" else {"facecolors": "none", "edgecolors": GREEN}
        _dots(ax, places[:s][tested & some], s=22, lw=0.9, marker=marker, **face)
    for word, (colour, marker) in VERDICT_STYLES.items():
        chosen = np.array([verdict == word for verdict in check.verdicts])
        if chosen.any():
            shape = {"marker": marker, "ec": "white", "lw": 0.6, "label": word}
            _dots(ax, places[s:][chosen], s=40, c=colour, **shape)
    open_corner(ax)
    return legend(ax, 3, handletextpad=0.1)


def _dots(ax: Axes, at: np.ndarray, **style: Any) -> None:
    """Draws points (n, 2)."""
    ax.scatter(at[:, 0], at[:, 1], **style)


def reliability(result: Quality, ax: Axes | None = None) -> Axes:
    """Draws the share of true parameters against the probability that they were given."""
    check_kind("result", result, "that of test.quality()", "reliability", "auc")
    ax = axes(ax, 3.5)
    predicted, observed, lower, upper = result.reliability()
    limits = (
        max(0.0, min(predicted.min(), lower.min(), 0.45) - 0.03),
        min(1.0, max(predicted.max(), upper.max(), 0.55) + 0.03),
    )
    ax.plot(limits, limits, color=INK, lw=0.8, ls="--", label="perfect")
    bars = np.stack([observed - lower, upper - observed])
    shape: dict[str, Any] = {"color": CURVE, "marker": "o", "ms": 3.5, "lw": 1.4}
    label = "held out, 95 % intervals"
    ax.errorbar(predicted, observed, bars, ecolor=BAND, elinewidth=2.4, label=label, **shape)
    ax.set(
        xlim=limits, ylim=limits, aspect="equal", xlabel=CLASS_1, ylabel="share of true parameters"
    )
    return legend(ax, title=f"AUC {result.auc:.2f}")


def roc(result: Quality, ax: Axes | None = None) -> Axes:
    """Draws the shares of true parameters and of draws of q above a threshold."""
    check_kind("result", result, "that of test.quality()", "reliability", "auc")
    ax = axes(ax, 3.5)
    diagonal(ax, "knows nothing")
    both = result.truths, result.draws
    some = np.quantile(np.concatenate(both), np.linspace(1, 0, 201), method="nearest")
    thresholds = np.append(np.inf, some)
    truths, draws = ((part[:, None] >= thresholds).mean(0) for part in both)
    ax.plot(draws, truths, color=CURVE, lw=1.6, label=f"held out, AUC {result.auc:.2f}")
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    ax.set(xlabel="share of draws of q above", ylabel="share of true parameters above")
    return legend(ax)

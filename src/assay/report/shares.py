"""Bias or width against the share of simulations that is near, on to x_o itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .traces import COLOURS, Figure, Trace, axis, error_bars, layout, level, line
from .words import between, listed, literal, share, short

if TYPE_CHECKING:
    from ..interpret.effects import Effects
    from .forest import Quantity

# Parameters that are shown, the worst first, and how far apart, in parts of the largest share.
MOST, APART = 4, 0.018
THERE = "at x_o, extrapolated"


def shares_figure(effects: Effects, quantity: Quantity) -> Figure | None:
    """The worst parameters at one observation, a curve for each; None where shares are unknown."""
    if effects.sizes is None:
        return None
    estimate, worst = getattr(effects, quantity.field), effects.worst[:MOST]
    there = np.stack([estimate.at, estimate.at_lower, estimate.at_upper])
    # Value and ends, at x_o and at every share, of every parameter.
    told = np.concatenate([there[:, None], getattr(effects.sizes, quantity.field)], 1)
    near = np.append(0.0, effects.sizes.near)
    shifts = (np.arange(len(worst)) - (len(worst) - 1) / 2) * APART * near[-1]
    parts = zip(worst, shifts, COLOURS, strict=False)
    where = [THERE, *(f"nearest {share(float(part))}" for part in near[1:])]
    ticks = {"tickvals": near.round(4).tolist(), "ticktext": ["x_o", *map(share, near[1:])]}
    across = axis("share of the simulations that is near", (-0.12 * near[-1], 1.1 * near[-1]))
    return Figure(
        tuple(
            _curve(effects.names[j], near + shift, told[..., j], where, colour)
            for j, shift, colour in parts
        ),
        layout(
            across | ticks | {"zeroline": False},
            axis(quantity.label, zeroline=False, nticks=6),
            level(quantity.right),
        ),
        f"{quantity.title} near x_o and at x_o: "
        f"{listed(_words(effects.names[j], told[..., j], where) for j in worst)}.",
    )


def _curve(name: str, x: np.ndarray, told: np.ndarray, where: list[str], colour: str) -> Trace:
    """Values with intervals (3, c) of one parameter, the first of them extrapolated."""
    symbols = ["diamond-open", *["circle"] * (len(x) - 1)]
    marker: dict[str, Any] = {"symbol": symbols, "size": [11, *[7] * (len(x) - 1)]}
    return line(x, told[0], literal(name), color=colour, width=1.5) | {
        "mode": "lines+markers",
        "marker": marker | {"color": colour, "opacity": 1},
        "error_y": error_bars(told, colour),
        "text": [f"{said}<br>{at}" for said, at in zip(_said(told), where, strict=True)],
        "hovertemplate": "%{text}<extra>%{fullData.name}</extra>",
    }


def _said(told: np.ndarray) -> list[str]:
    """Values with their intervals."""
    return [f"{short(value)} ({between(low, high, short)})" for value, low, high in told.T]


def _words(name: str, told: np.ndarray, where: list[str]) -> str:
    each = zip(_said(told), where, strict=True)
    return f"{name} {', '.join(f'{said} {at}' for said, at in each)}"

"""Errors of correlations near x_o: a cell for each pair of parameters, the worst first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .traces import Figure, Trace, axis, layout, points
from .words import between, brief, listed, literal, rounded, short

if TYPE_CHECKING:
    from ..interpret.density_ratio import Estimate
    from ..interpret.effects import Effects

# Parameters with which there is a picture, and those that it shows at most.
FEWEST, MOST = 3, 20
# Pixels of a row, and the least error that has the full colour.
ROW, LEAST = 24, 0.3


def correlation_figure(effects: Effects) -> Figure | None:
    """A triangle of cells at one observation, with the wrong pairs marked."""
    estimate, m = effects.correlation, len(effects.names)
    if estimate is None or m < FEWEST:
        return None
    order = worst(estimate, m)
    full = [literal(effects.names[j]) for j in order]
    short_names = [brief(effects.names[j]) for j in order]
    down, across = _places(order, m)
    errors = np.full((len(order), len(order)), np.nan)
    shown = down < len(order)
    errors[down[shown], across[shown]] = estimate.value[shown]
    marked = np.flatnonzero(shown & estimate.wrong)
    marks = _marks([full[i] for i in across[marked]], [full[i] for i in down[marked]])
    return Figure(
        (_cells(errors[1:, :-1], full), marks | {"text": [*map(literal, _said(effects, marked))]}),
        layout(
            _names(full[:-1], short_names[:-1], tickangle=-40),
            _names(full[1:], short_names[1:], autorange="reversed"),
            height=130 + ROW * max(3, len(order)),
        ),
        f"Correlation of q less the true one, near x_o, of {len(order)} of {m} parameters. Beyond "
        f"noise: {listed(_said(effects, np.flatnonzero(estimate.wrong)[:MOST])) or 'none'}.",
    )


def worst(estimate: Estimate, m: int) -> np.ndarray:
    """The parameters of the pairs that are farthest off, those of wrong pairs before others."""
    half = (estimate.null_upper - estimate.null_lower) / 2
    far = np.nan_to_num(np.abs(estimate.excess) / np.where(half > 0, half, np.inf))
    scores = np.zeros(m)
    for ends in np.triu_indices(m, 1):
        np.maximum.at(scores, ends, far + far.max() * estimate.wrong)
    return np.argsort(-scores, kind="stable")[:MOST]


def _places(order: np.ndarray, m: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows and columns of the cells of all pairs, in an order; m where a pair is not shown."""
    rank = np.full(m, m)
    rank[order] = np.arange(len(order))
    first, second = (rank[ends] for ends in np.triu_indices(m, 1))
    return np.maximum(first, second), np.minimum(first, second)


def _names(full: list[str], shown: list[str], **more: Any) -> dict[str, Any]:
    """An axis with the name of a parameter at each cell."""
    ticks = {"tickvals": full, "ticktext": shown, "showgrid": False}
    return axis("", None, type="category", **ticks, **more)


def _cells(errors: np.ndarray, names: list[str]) -> Trace:
    """The cells, with names and errors under the pointer."""
    end = max(LEAST, float(np.abs(np.nan_to_num(errors)).max()))
    return {
        "type": "heatmap",
        "name": "error",
        "x": names[:-1],
        "y": names[1:],
        "z": [rounded(row, 2) for row in errors],
        "zmin": -end,
        "zmax": end,
        "colorscale": [[0, "@little"], [0.5, "@grid"], [1, "@much"]],
        "colorbar": {"thickness": 10, "outlinewidth": 0, "nticks": 5},
        "xgap": 1,
        "ygap": 1,
        "showlegend": False,
        "hoverongaps": False,
        "hovertemplate": "%{y} and %{x}: %{z:.2f}<extra></extra>",
    }


def _marks(x: list[str], y: list[str]) -> Trace:
    """Crosses on the pairs that are wrong."""
    nothing = np.array([])
    drawn = points(nothing, nothing, "beyond noise", color="@ink", size=9, symbol="x")
    return drawn | {"x": x, "y": y, "hovertemplate": "%{text}<extra></extra>"}


def _said(effects: Effects, which: np.ndarray) -> list[str]:
    """The errors of some pairs, in words."""
    estimate, names = effects.correlation, effects.names
    assert estimate is not None
    first, second = (ends[which] for ends in np.triu_indices(len(names), 1))
    numbers = (part[which] for part in (estimate.value, estimate.lower, estimate.upper))
    return [
        f"{names[i]} and {names[j]}: {short(value)} ({between(low, high, short)})"
        for i, j, value, low, high in zip(first, second, *numbers, strict=True)
    ]

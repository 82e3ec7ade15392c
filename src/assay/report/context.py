"""Figures of the context: tests over all x, and where the observations lie among simulations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ..plots._numbers import COMPONENTS, components
from .traces import Figure, Trace, axis, ideal, layout, level, named, null_band
from .words import brief, each_pvalue, literal, rounded

if TYPE_CHECKING:
    from ..average.coverage import Covered
    from ..average.sbc import SBCResult
    from ..verdict import Verdict

# The symbol and the colour of every verdict.
SYMBOLS = {
    "rejected": ("x", "@rejected"),
    "passed": ("circle", "@passed"),
    "inconclusive": ("triangle-up", "@inconclusive"),
    "outside": ("square-open", "@outside"),
}
# The height of a figure over all x; observations whose labels are written on the map.
HEIGHT, MOST_LABELS = 240, 8


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
    band = null_band(curve.levels, (curve.difference_lower, curve.difference_upper), alpha)
    zero = np.zeros_like(curve.levels)
    axes = axis("level of the rank", (0, 1)), axis("share below − level")
    return Figure(
        (band, *named(curve.levels, curve.difference, result.names, zero)),
        layout(*axes, level(0.0)) | {"height": HEIGHT},
        "Ranks of true parameters among draws of q, corrected p-values: "
        f"{each_pvalue(result.names, result.adjusted)}.",
    )


def covered(result: Covered, alpha: float) -> Figure:
    """Expected coverage against the level, with its null band."""
    curve = result.curve(alpha)
    band = null_band(curve.levels, (curve.null_lower, curve.null_upper), alpha)
    lines = named(curve.levels, curve.coverage, result.names, curve.levels)
    axes = axis(f"level of {result.held}", (0, 1)), axis("share inside", (0, 1.01))
    return Figure(
        (band, ideal([0, 1], [0, 1]), *lines),
        layout(*axes) | {"height": HEIGHT},
        f"Expected coverage of {result.held}, corrected p-values: "
        f"{each_pvalue(result.names, np.atleast_1d(result.adjusted))}.",
    )


def places(check: Verdict) -> dict[str, Any]:
    """The map as plain values: where simulations, tested ones and the observations lie.

    Coordinates are the entries of x where there are at most two, or else the first two principal
    components of what was simulated. What lies far out stands at the edge.
    """
    around = check.surroundings
    assert around is not None
    o = len(check)
    own = np.asarray(check.test.x, float).reshape(o, -1)
    simulated = np.asarray(around.x, float).reshape(len(around.x), -1)
    middle = np.ma.masked_invalid(simulated).mean(0).filled(0.0)
    table = np.concatenate([own, simulated])
    table = np.where(np.isfinite(table), table, middle)
    names: tuple[str, ...] = ("x[0]", "x[1]")[: table.shape[1]]
    if table.shape[1] > 2:
        table, names = _project(table, o), COMPONENTS
    if table.shape[1] == 1:
        table, names = np.concatenate([table, np.zeros_like(table)], 1), (*names, "")
    low, high = np.quantile(table[o:], [0.005, 0.995], axis=0)
    room = 0.15 * np.where(high > low, high - low, 1.0)
    table = np.clip(table, low - room, high + room)
    tested = np.isfinite(around.pvalue)
    groups = [
        _group("simulated", np.arange(len(simulated)), "circle", "@band", 4, table[o:]),
        _group(
            "q rejected there",
            np.flatnonzero(tested & (around.pvalue <= check.alpha)),
            "x-thin-open",
            "@rejected",
            8,
            table[o:],
        ),
        _group(
            "q not rejected there",
            np.flatnonzero(tested & (around.pvalue > check.alpha)),
            "circle-open",
            "@passed",
            8,
            table[o:],
        ),
    ]
    for word, (symbol, colour) in SYMBOLS.items():
        rows = np.array([i for i, own_word in enumerate(check.verdicts) if own_word == word], int)
        groups.append(_group(word, rows, symbol, colour, 13, table[:o]))
        groups[-1] |= {
            "customdata": rows.tolist(),
            "text": [brief(check.labels[i], 30) for i in rows],
        }
        groups[-1]["hovertemplate"] = "%{text}<extra></extra>"
        if 1 < o <= MOST_LABELS:
            groups[-1] |= {"mode": "markers+text", "textposition": "top center"}
    counts = ", ".join(f"{check.verdicts.count(w)} {w}" for w in SYMBOLS if w in check.verdicts)
    axes = [
        axis(literal(name), (float(a), float(b)))
        for name, a, b in zip(names, low - 1.3 * room, high + 1.3 * room, strict=True)
    ]
    return {
        "groups": [group for group in groups if len(group["x"])],
        "layout": {"xaxis": axes[0], "yaxis": axes[1], "height": 360},
        "own": [rounded(column) for column in table[:o].T],
        "simulated": [rounded(column) for column in table[o:].T],
        "near": [np.flatnonzero(row).tolist() for row in around.near],
        "words": f"Where the observations lie among simulated ones: {counts}.",
    }


def _project(table: np.ndarray, o: int) -> np.ndarray:
    """The first two principal components (n, 2) of what was simulated, behind o observations."""
    known = table[o:] if len(table) - o > 2 else table
    spread = known.std(0)
    scaled = (table - known.mean(0)) / np.where(spread > 0, spread, 1)
    own = (known - known.mean(0)) / np.where(spread > 0, spread, 1)
    return np.asarray(scaled @ np.linalg.lstsq(own, components(known))[0])


def _group(
    name: str, rows: np.ndarray, symbol: str, colour: str, size: int, at: np.ndarray
) -> Trace:
    x, y = at[rows].T if len(rows) else (np.empty(0), np.empty(0))
    return {
        "type": "scatter",
        "mode": "markers",
        "x": rounded(x),
        "y": rounded(y),
        "name": name,
        "marker": {"symbol": symbol, "color": colour, "size": size},
        "hoverinfo": "skip",
        "cliponaxis": False,
    }

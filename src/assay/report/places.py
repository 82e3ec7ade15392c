"""The map: where the observations lie among the simulations."""

from typing import Any

import numpy as np

from ..plots._numbers import COMPONENTS, components
from ..verdict import Verdict
from .traces import axis, brief, literal, rounded

# The symbol and the colour of every verdict.
SYMBOLS = {"rejected": ("x", "@rejected"), "passed": ("circle", "@passed")}
SYMBOLS |= {"inconclusive": ("triangle-up", "@inconclusive")}
SYMBOLS |= {"outside": ("square-open", "@outside")}
# Observations whose labels are written on the map.
MOST_LABELS = 8


def places(check: Verdict) -> dict[str, Any] | None:
    """Where simulations, tested ones and the observations lie; far ones are moved to the edge.

    Coordinates are the entries of x, or the first two principal components of more than two.
    """
    around = check.surroundings
    if around is None:
        return None
    both = (np.asarray(x, float).reshape(len(x), -1) for x in (check.test.x, around.x))
    own, simulated, names = _coordinates(*both)
    low, high = np.quantile(simulated, [0.005, 0.995], axis=0)
    room = 0.15 * np.where(high > low, high - low, 1.0)
    own, simulated = (np.clip(at, low - room, high + room) for at in (own, simulated))
    rejected, others = around.pvalue <= check.alpha, around.pvalue > check.alpha
    groups = [
        _group("simulated", simulated, "circle", "@band", 4),
        _group("q rejected there", simulated[rejected], "x-thin-open", "@rejected", 8),
        _group("q not rejected there", simulated[others], "circle-open", "@passed", 8),
    ]
    mode = "markers+text" if 1 < len(check) <= MOST_LABELS else "markers"
    for word, style in SYMBOLS.items():
        rows = np.flatnonzero(np.array(check.verdicts) == word)
        group = _group(word, own[rows], *style, 13)
        group |= {"customdata": rows.tolist(), "text": [brief(check.labels[i], 30) for i in rows]}
        group |= {"hovertemplate": "%{text}<extra></extra>", "mode": mode}
        groups.append(group | ({"textposition": "top center"} if mode == "markers+text" else {}))
    counts = ", ".join(f"{check.verdicts.count(w)} {w}" for w in SYMBOLS if w in check.verdicts)
    ends = zip(names, low - 1.3 * room, high + 1.3 * room, strict=True)
    x, y = (axis(literal(name), (a, b)) for name, a, b in ends)
    return {
        "groups": [group for group in groups if len(group["x"])],
        "layout": {"xaxis": x, "yaxis": y, "height": 360},
        "own": [rounded(column) for column in own.T],
        "simulated": [rounded(column) for column in simulated.T],
        "near": [np.flatnonzero(row).tolist() for row in around.near],
        "words": f"Where the observations lie among simulated ones: {counts}.",
    }


def _coordinates(
    own: np.ndarray, simulated: np.ndarray
) -> tuple[np.ndarray, np.ndarray, tuple[str, str]]:
    """Coordinates (o, 2) and (s, 2) of the observations and of simulated ones, and their names."""
    middle = np.ma.masked_invalid(simulated).mean(0).filled(0.0)
    own, simulated = (np.where(np.isfinite(x), x, middle) for x in (own, simulated))
    if own.shape[1] == 1:
        own, simulated = (np.pad(x, [(0, 0), (0, 1)]) for x in (own, simulated))
        return own, simulated, ("x[0]", "")
    if own.shape[1] == 2:
        return own, simulated, ("x[0]", "x[1]")
    # One or two simulations have no two components.
    known = simulated if len(simulated) > 2 else np.concatenate([own, simulated])
    mean, sd = known.mean(0), known.std(0)
    own, simulated, known = ((x - mean) / np.where(sd > 0, sd, 1) for x in (own, simulated, known))
    directions = np.linalg.lstsq(known, components(known))[0]
    return own @ directions, simulated @ directions, COMPONENTS


def _group(name: str, at: np.ndarray, symbol: str, colour: str, size: int) -> dict[str, Any]:
    """Points (n, 2), as a trace."""
    marker = {"symbol": symbol, "color": colour, "size": size}
    how = {"type": "scatter", "mode": "markers", "hoverinfo": "skip", "cliponaxis": False}
    return {"x": rounded(at[:, 0]), "y": rounded(at[:, 1]), "name": name, "marker": marker, **how}

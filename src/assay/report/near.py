"""Truths near x_o over draws of q, in q's own scale: the picture that convinces.

At every x near x_o the mean of q is taken off and its deviation is the unit, so that truths and
draws of q at different x can be laid over each other. Where q is right they have the same law.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.ndimage

from .traces import Figure, Trace, axis, line
from .words import brief, rounded

if TYPE_CHECKING:
    from ..interpret.effects import Effects

# Parameters that are shown, the worst first, and panels in a row.
MOST, ACROSS = 5, 3
# Bins of a histogram, cells of a contour along each axis, and where both end.
BINS, CELLS, END = 25, 24, 4.0
# Shares of the mass that contours hold.
SHARES = (0.5, 0.9)
# Pixels of a row of panels.
ROW = 210
STYLES: dict[str, dict[str, Any]] = {
    "draws of q": {"color": "@ink", "width": 1.2},
    "true parameters": {"color": "@curve", "width": 2.2},
}


def near_figure(effects: Effects) -> Figure | None:
    """The worst parameters at one observation, and the two that are linked worst."""
    if effects.truths is None or effects.drawn is None:
        return None
    both = [part[np.isfinite(part).all(1)] for part in (effects.drawn, effects.truths)]
    worst = effects.worst[:MOST]
    panels = [_histograms([part[:, j] for part in both]) for j in worst]
    titles = [(effects.names[j], "") for j in worst]
    if len(effects.names) > 1:
        pair = _pair(effects)
        panels.append(_contours([part[:, pair] for part in both]))
        titles.append((effects.names[pair[0]], effects.names[pair[1]]))
    rows = -(-len(panels) // ACROSS)
    layout: dict[str, Any] = {"height": 60 + ROW * rows}
    traces = []
    for i, (panel, title) in enumerate(zip(panels, titles, strict=True)):
        suffix = str(i + 1) if i else ""
        traces += [t | {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"} for t in panel]
        layout |= _axes(suffix, title, divmod(i, ACROSS), rows)
    # Names of curves stand once in the key.
    seen: set[str] = set()
    for trace in traces:
        trace["showlegend"] = trace["name"] not in seen
        seen.add(trace["name"])
    said = ", ".join(effects.names[j] for j in worst)
    return Figure(
        tuple(traces),
        layout,
        f"True parameters near x_o, in the scale of q, over draws of q: {said}; "
        f"{len(both[1])} of each are shown.",
    )


def _pair(effects: Effects) -> list[int]:
    """The pair whose correlation is farthest out, or the two worst parameters."""
    one = effects.correlation
    if one is None or not np.isfinite(one.value).any():
        return sorted(effects.worst[:2].tolist())
    far = np.abs(one.excess) / np.where(one.null_upper > 0, one.null_upper, np.inf)
    first, second = np.triu_indices(len(effects.names), 1)
    which = int(np.nan_to_num(far).argmax())
    return [int(first[which]), int(second[which])]


def _axes(suffix: str, title: tuple[str, str], at: tuple[int, int], rows: int) -> dict[str, Any]:
    """The axes of one panel."""
    row, column = at
    gap, foot = 0.03, 0.1
    name, other = brief(title[0], 18), brief(title[1], 12)
    x = axis(f"{name}, sd of q", (-END, END), nticks=5)
    y = axis(f"{other}, sd of q" if other else "", (-END, END) if other else None, nticks=5)
    y |= {} if other else {"rangemode": "tozero", "showticklabels": False}
    # A name on the left asks for room.
    left = column / ACROSS + (2.5 if other else 1) * gap
    x |= {"anchor": f"y{suffix}", "domain": [left, (column + 1) / ACROSS - gap]}
    y |= {
        "anchor": f"x{suffix}",
        "domain": [1 - (row + 1) / rows + foot, 1 - row / rows - foot / 4],
    }
    return {f"xaxis{suffix}": x, f"yaxis{suffix}": y}


def _histograms(both: list[np.ndarray]) -> list[Trace]:
    """Outlines of two histograms; what lies beyond the ends is in the last bins."""
    edges = np.linspace(-END, END, BINS + 1)
    heights = [np.histogram(part.clip(-END, END), edges, density=True)[0] for part in both]
    return [
        line(edges, np.append(each, each[-1]), name, **style, shape="hv")
        for each, (name, style) in zip(heights, STYLES.items(), strict=True)
    ]


def _contours(both: list[np.ndarray]) -> list[Trace]:
    """Lines around 50 and 90 % of two clouds of points (s, 2)."""
    centres = (np.arange(CELLS) + 0.5) / CELLS * 2 * END - END
    traces = []
    for part, (name, style) in zip(both, STYLES.items(), strict=True):
        density = _smooth(part)
        inner, outer = (_height(density, held) for held in SHARES)
        lines = {"start": outer, "end": inner, "size": max(inner - outer, 1e-6)}
        traces.append(
            {
                "type": "contour",
                "x": rounded(centres, 3),
                "y": rounded(centres, 3),
                "z": [rounded(row.round(3), 3) for row in density.T],
                "contours": {"coloring": "none", **lines},
                "line": style,
                "name": name,
                "showscale": False,
                "hoverinfo": "skip",
            }
        )
    return traces


def _smooth(part: np.ndarray) -> np.ndarray:
    """A smoothed density (g, g) of points (s, 2), scaled to a largest value of one."""
    ends = (-END, END)
    first, second = part.clip(-END, END).T
    counts, _, _ = np.histogram2d(first, second, CELLS, (ends, ends))
    width = len(part) ** (-1 / 6) / (2 * END / CELLS)
    density = scipy.ndimage.gaussian_filter(counts, width)
    return np.asarray(density / density.max())


def _height(density: np.ndarray, held: float) -> float:
    """The height above which a density holds a share of its mass."""
    ordered = np.sort(density.ravel())[::-1]
    within = np.cumsum(ordered) / ordered.sum()
    return float(ordered[np.searchsorted(within, held)])

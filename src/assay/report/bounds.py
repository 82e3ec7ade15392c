"""How far off q is near x_o: its intervals, and the true parameters near x_o over draws of q."""

from typing import Any

import numpy as np
import scipy.ndimage

from ..printing import number, readable
from ..verdict import REJECTED, Verdict
from .traces import axis, brief, line, rounded, suffix, upright

# Parameters with a row in the forest; panels of true parameters.
MOST_ROWS, MOST_NEAR = 10, 3
# Pixels of a row, of what is around the rows, and of the panels.
ROW, AROUND, PANELS = 30, 110, 300
# The columns of the forest: a kind of bound, its title, the right value, and where it is drawn.
COLUMNS = (
    ("bias", "mean of q − true, in sd of q", 0.0, (0.0, 0.32)),
    ("width", "sd of q over the true one", 1.0, (0.35, 0.67)),
    ("coverage", "90 % interval holds, in %", 90.0, (0.7, 1.0)),
)
# Bins of a histogram, cells of a contour along each axis, and where both end, in sd of q.
BINS, CELLS, END = 25, 24, 4.0
STYLES: dict[str, dict[str, Any]] = {
    "draws of q": {"color": "@ink", "width": 1.2},
    "true parameters near x_o": {"color": "@curve", "width": 2.2},
}


def forest(check: Verdict, which: int) -> dict[str, Any]:
    """Means, widths and coverage with simultaneous intervals; wrong ones are marked by a cross."""
    some = sorted(check.worst_parameters(which)[:MOST_ROWS])
    names = [readable(check.names[j]) for j in some]
    rows = np.arange(len(some), dtype=float)
    ticks = {"tickvals": rows.tolist(), "ticktext": [brief(name) for name in names]}
    y = axis("", (len(some) - 0.4, -0.6), showgrid=False, zeroline=False, **ticks)
    layout: dict[str, Any] = {"height": AROUND + ROW * len(some), "yaxis": y, "shapes": []}
    traces: list[dict[str, Any]] = []
    words = []
    most = check.tolerance
    tolerated = {"bias": (-most, most), "width": (1 / (1 + most), 1 + most)}
    for i, (kind, title, right, domain) in enumerate(COLUMNS):
        table = np.array(check.bounds.table[kind][which][:, some], float)  # (3, j) or (3, j, 3)
        value, lower, upper = values = 100 * table[..., 1] if kind == "coverage" else table
        wrong = (check.verdicts[which] == REJECTED) & ((lower > right) | (upper < right))
        for chosen, colour, symbol, name in (
            (wrong, "@curve", "x", "wrong"),
            (~wrong, "@ink", "circle", "95 % interval, all rows together"),
        ):
            if chosen.any():
                bars, points = _intervals(values[:, chosen], rows[chosen], colour)
                points |= {"name": name, "showlegend": i == 0 or name == "wrong"}
                points["marker"] |= {"symbol": symbol}
                traces += [trace | {"xaxis": f"x{suffix(i)}"} for trace in (bars, points)]
        ends = np.array([right, *lower, *upper, *tolerated.get(kind, ())])
        ends = ends[np.isfinite(ends)]
        room = 0.06 * max(float(np.ptp(ends)), 1e-6)
        x = axis(title, (ends.min() - room, ends.max() + room), zeroline=False, nticks=6)
        layout[f"xaxis{suffix(i)}"] = x | {"domain": domain}
        layout["shapes"].append(upright(right) | {"xref": f"x{suffix(i)}"})
        each = zip(names, value, lower, upper, strict=True)
        parts = (f"{name} {v:.2g} ({low:.2g} to {high:.2g})" for name, v, low, high in each)
        words.append(f"{title}: {'; '.join(parts)}.")
    return {"data": traces, "layout": layout, "words": " ".join(words)}


def _intervals(values: np.ndarray, rows: np.ndarray, colour: str) -> list[dict[str, Any]]:
    """Intervals as lines, and numbers as points, with both in words under the pointer."""
    value, lower, upper = values
    x = np.stack([lower, upper, np.full(len(rows), np.nan)], 1)
    bars = line(x, np.repeat(rows, 3), "", color=colour, width=2)
    bars |= {"hoverinfo": "skip", "hovertemplate": None, "showlegend": False}
    texts = [f"{number(v, 2)} ({number(a, 2)} to {number(b, 2)})" for v, a, b in values.T]
    points = line(value, rows, "") | {"mode": "markers", "marker": {"color": colour, "size": 8}}
    return [bars, points | {"text": texts, "hovertemplate": "%{text}<extra></extra>"}]


def near(check: Verdict, which: int) -> dict[str, Any] | None:
    """True parameters near x_o over draws of q, for the worst parameters and the worst pair."""
    bounds = check.bounds
    if bounds.near_truths is None or bounds.near_draws is None:
        return None
    both = [part[which] for part in (bounds.near_draws, bounds.near_truths)]
    both = [values[np.isfinite(values).all(1)] for values in both]
    if not len(both[1]):
        return None
    pair = worst_pair(check, which)
    single = check.worst_parameters(which)[: MOST_NEAR - bool(pair)]
    panels = [[j] for j in single] + [pair] * bool(pair)
    layout: dict[str, Any] = {"height": PANELS}
    traces: list[dict[str, Any]] = []
    edges = np.linspace(-END, END, BINS + 1)
    for i, chosen in enumerate(panels):
        axes = {"xaxis": f"x{suffix(i)}", "yaxis": f"y{suffix(i)}", "showlegend": i == 0}
        for values, (name, style) in zip(both, STYLES.items(), strict=True):
            points = values[:, chosen].clip(-END, END)  # what lies beyond is in the last bins
            if len(chosen) == 1:
                heights, _ = np.histogram(points, edges, density=True)
                trace = line(edges, np.append(heights, heights[-1]), name, **style, shape="hv")
            else:
                trace = _contours(points) | {"name": name, "line": style}
            traces.append(trace | axes)
        names = [brief(check.names[j], most) for j, most in zip(chosen, (18, 12), strict=False)]
        x = axis(f"{names[0]}, sd of q", (-END, END), nticks=5)
        y, left = axis("", None, nticks=5, rangemode="tozero", showticklabels=False), 0.01
        if len(chosen) == 2:
            y, left = axis(f"{names[1]}, sd of q", (-END, END), nticks=5), 0.07
        domain = [i / len(panels) + left, (i + 1) / len(panels) - 0.02]
        layout[f"xaxis{suffix(i)}"] = x | {"anchor": f"y{suffix(i)}", "domain": domain}
        layout[f"yaxis{suffix(i)}"] = y | {"anchor": f"x{suffix(i)}"}
    words = "True parameters near x_o over draws of q at the same x, in sd of q, for "
    words += f"{', '.join(readable(check.names[j]) for j in single)}."
    return {"data": traces, "layout": layout, "words": words}


def worst_pair(check: Verdict, which: int) -> list[int]:
    """The pair whose correlation is farthest from right, beyond its interval first; or none."""
    if len(check.names) < 2:
        return []
    value, lower, upper = check.bounds.table["correlation"][which]
    beyond = np.maximum(np.maximum(lower, -upper), 0)
    score = np.nan_to_num(beyond + 1e-3 * np.abs(value))  # (m, m)
    if not score.any():
        return sorted(check.worst_parameters(which)[:2])
    first, second = np.unravel_index(np.triu(score, 1).argmax(), score.shape)
    return [int(first), int(second)]


def _contours(points: np.ndarray) -> dict[str, Any]:
    """Lines that hold 50 and 90 % of points (s, 2)."""
    edges = np.linspace(-END, END, CELLS + 1)
    counts, _ = np.histogramdd(points, [edges, edges])
    density = scipy.ndimage.gaussian_filter(counts, len(points) ** (-1 / 6) / (2 * END / CELLS))
    density /= density.max()
    falling = np.sort(density.ravel())[::-1]
    share = np.cumsum(falling) / falling.sum()
    inner, outer = (float(falling[np.searchsorted(share, held)]) for held in (0.5, 0.9))
    levels = {"start": outer, "end": inner, "size": max(inner - outer, 1e-6)}
    centres = rounded((np.arange(CELLS) + 0.5) / CELLS * 2 * END - END, 3)
    z = [rounded(row.round(3), 3) for row in density.T]
    contours = {"contours": {"coloring": "none", **levels}, "showscale": False}
    return {"type": "contour", "x": centres, "y": centres, "z": z, "hoverinfo": "skip", **contours}

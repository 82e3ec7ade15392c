"""How far off q is near x_o: its intervals, and the true parameters near x_o over draws of q."""

from typing import Any

import numpy as np
import scipy.ndimage

from ..printing import number, readable
from ..verdict import REJECTED, Verdict
from .traces import Figure, Trace, axis, brief, line, rounded, suffix, upright

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


def forest(check: Verdict, which: int) -> Figure:
    """Means, widths and coverage with simultaneous intervals; wrong ones are marked by a cross."""
    some = sorted(check.worst_parameters(which)[:MOST_ROWS])
    names = [readable(check.names[j]) for j in some]
    rows = np.arange(len(some), dtype=float)
    ticks = {"tickvals": rows.tolist(), "ticktext": [brief(name) for name in names]}
    span = len(some) - 0.4, -0.6
    layout: dict[str, Any] = {"height": AROUND + ROW * len(some), "shapes": []}
    layout["yaxis"] = axis("", span, showgrid=False, zeroline=False, **ticks)
    traces: list[Trace] = []
    words = []
    for i, (kind, title, right, domain) in enumerate(COLUMNS):
        value, lower, upper = values = _values(check, which, kind)[:, some]
        wrong = (check.verdicts[which] == REJECTED) & ((lower > right) | (upper < right))
        for chosen, colour, symbol, name in (
            (wrong, "@curve", "x", "wrong"),
            (~wrong, "@ink", "circle", "95 % interval, all rows together"),
        ):
            if chosen.any():
                marker = {"color": colour, "size": 8, "symbol": symbol}
                both = _intervals(values[:, chosen], rows[chosen], name, marker)
                both[1]["showlegend"] = i == 0 or name == "wrong"
                traces += [trace | {"xaxis": f"x{suffix(i)}"} for trace in both]
        tolerated = {
            "bias": (-check.tolerance, check.tolerance),
            "width": (1 / (1 + check.tolerance), 1 + check.tolerance),
        }
        ends = [right, *lower, *upper, *tolerated.get(kind, ())]
        x = axis(title, _span(np.array(ends)), zeroline=False, nticks=6)
        layout[f"xaxis{suffix(i)}"] = x | {"domain": domain}
        layout["shapes"].append(upright(right) | {"xref": f"x{suffix(i)}"})
        each = zip(names, value, lower, upper, strict=True)
        words.append(
            f"{title}: " + "; ".join(f"{n} {v:.2g} ({a:.2g} to {b:.2g})" for n, v, a, b in each)
        )
    return Figure(tuple(traces), layout, f"{'. '.join(words)}.")


def _values(check: Verdict, which: int, kind: str) -> np.ndarray:
    """Numbers of a kind and their ends, (3, m); of coverage that of 90 % intervals, in percent."""
    values = [getattr(check.bounds, kind + end)[which] for end in ("", "_lower", "_upper")]
    table = np.array(values, float)
    return 100 * table[..., 1] if kind == "coverage" else table


def _intervals(
    values: np.ndarray, rows: np.ndarray, name: str, marker: dict[str, Any]
) -> tuple[Trace, Trace]:
    """Intervals as lines, and numbers as points, with both in words under the pointer."""
    value, lower, upper = values
    x = np.stack([lower, upper, np.full(len(rows), np.nan)], 1)
    bars = line(x, np.repeat(rows, 3), "", color=marker["color"], width=2)
    bars |= {"hoverinfo": "skip", "hovertemplate": None, "showlegend": False}
    texts = [f"{number(v, 2)} ({number(a, 2)} to {number(b, 2)})" for v, a, b in values.T]
    points = line(value, rows, name) | {"mode": "markers", "marker": marker}
    return bars, points | {"text": texts, "hovertemplate": "%{text}<extra></extra>"}


def _span(ends: np.ndarray) -> tuple[float, float]:
    """The range of an axis on which all finite ends have room."""
    ends = ends[np.isfinite(ends)]
    room = 0.06 * max(float(np.ptp(ends)), 1e-6)
    return float(ends.min() - room), float(ends.max() + room)


def near(check: Verdict, which: int) -> Figure | None:
    """True parameters near x_o over draws of q, for the worst parameters and the worst pair."""
    bounds = check.bounds
    if bounds.near_truths is None or bounds.near_draws is None:
        return None
    both = [
        values[np.isfinite(values).all(1)]
        for values in (bounds.near_draws[which], bounds.near_truths[which])
    ]
    if not len(both[1]):
        return None
    pair = worst_pair(check, which)
    single = check.worst_parameters(which)[: MOST_NEAR - bool(pair)]
    panels = [[j] for j in single] + [pair] * bool(pair)
    layout: dict[str, Any] = {"height": PANELS}
    traces: list[Trace] = []
    for i, chosen in enumerate(panels):
        draw = _histograms if len(chosen) == 1 else _contours
        axes = {"xaxis": f"x{suffix(i)}", "yaxis": f"y{suffix(i)}", "showlegend": i == 0}
        traces += [trace | axes for trace in draw([values[:, chosen] for values in both])]
        layout |= _axes([check.names[j] for j in chosen], i, len(panels))
    names = ", ".join(readable(check.names[j]) for j in single)
    return Figure(
        tuple(traces),
        layout,
        f"True parameters near x_o over draws of q at the same x, in sd of q, for {names}.",
    )


def worst_pair(check: Verdict, which: int) -> list[int]:
    """The pair whose correlation is farthest from right, beyond its interval first; or none."""
    if len(check.names) < 2:
        return []
    b = check.bounds
    lower, upper = b.correlation_lower[which], b.correlation_upper[which]
    beyond = np.maximum(np.maximum(lower, -upper), 0)
    score = np.nan_to_num(beyond + 1e-3 * np.abs(b.correlation[which]))
    if not score.any():
        return sorted(check.worst_parameters(which)[:2])
    first, second = np.unravel_index(np.triu(score, 1).argmax(), score.shape)
    return [int(first), int(second)]


def _axes(names: list[str], panel: int, count: int) -> dict[str, Any]:
    """The axes of one of the panels, that of one parameter or of two."""
    x = axis(f"{brief(names[0], 18)}, sd of q", (-END, END), nticks=5)
    if len(names) == 2:
        y, left = axis(f"{brief(names[1], 12)}, sd of q", (-END, END), nticks=5), 0.07
    else:
        y, left = axis("", None, nticks=5, rangemode="tozero", showticklabels=False), 0.01
    x |= {"anchor": f"y{suffix(panel)}"}
    x |= {"domain": [panel / count + left, (panel + 1) / count - 0.02]}
    y |= {"anchor": f"x{suffix(panel)}"}
    return {f"xaxis{suffix(panel)}": x, f"yaxis{suffix(panel)}": y}


def _histograms(both: list[np.ndarray]) -> list[Trace]:
    """Outlines of two histograms; what lies beyond the ends is in the last bins."""
    edges = np.linspace(-END, END, BINS + 1)
    heights = [np.histogram(values.clip(-END, END), edges, density=True)[0] for values in both]
    return [
        line(edges, np.append(each, each[-1]), name, **style, shape="hv")
        for each, (name, style) in zip(heights, STYLES.items(), strict=True)
    ]


def _contours(both: list[np.ndarray]) -> list[Trace]:
    """Lines that hold 50 and 90 % of two clouds of points (s, 2)."""
    edges = np.linspace(-END, END, CELLS + 1)
    centres = rounded((np.arange(CELLS) + 0.5) / CELLS * 2 * END - END, 3)
    traces = []
    for values, (name, style) in zip(both, STYLES.items(), strict=True):
        counts, _ = np.histogramdd(values.clip(-END, END), [edges, edges])
        width = len(values) ** (-1 / 6) / (2 * END / CELLS)
        density = scipy.ndimage.gaussian_filter(counts, width)
        density /= density.max()
        falling = np.sort(density.ravel())[::-1]
        share = np.cumsum(falling) / falling.sum()
        inner, outer = (float(falling[np.searchsorted(share, held)]) for held in (0.5, 0.9))
        levels = {"start": outer, "end": inner, "size": max(inner - outer, 1e-6)}
        traces.append(
            {
                "type": "contour",
                "x": centres,
                "y": centres,
                "z": [rounded(row.round(3), 3) for row in density.T],
                "contours": {"coloring": "none", **levels},
                "line": style,
                "name": name,
                "showscale": False,
                "hoverinfo": "skip",
            }
        )
    return traces

"""Figures that answer: intervals of means, widths and coverage, and the true parameters behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.ndimage

from ..names import readable
from ..printing import number as two_digits
from .traces import Figure, Trace, axis, line, points, upright
from .words import brief, rounded

if TYPE_CHECKING:
    from ..verdict import Verdict

# Parameters with a row in the forest; parameters whose true values are drawn.
MOST_ROWS, MOST_NEAR = 10, 3
# Pixels of a row and of what stands around the rows; the height of the picture.
ROW, AROUND, PICTURE = 30, 110, 300
# What each column shows, its title, what is right, and where it is drawn.
COLUMNS = (
    ("bias", "mean of q − true, in sd of q", 0.0, (0.0, 0.32)),
    ("width", "sd of q over the true one", 1.0, (0.35, 0.67)),
    ("coverage", "90 % interval holds, in %", 90.0, (0.7, 1.0)),
)
# Bins of a histogram, cells of a contour along each axis, and where both end, in sd of q.
BINS, CELLS, END = 25, 24, 4.0
# Shares of the mass that contours hold.
SHARES = (0.5, 0.9)
STYLES: dict[str, dict[str, Any]] = {
    "draws of q": {"color": "@ink", "width": 1.2},
    "true parameters near x_o": {"color": "@curve", "width": 2.2},
}


def forest(check: Verdict, which: int) -> Figure:
    """Means, widths and coverage with simultaneous intervals; wrong rows are marked by a cross."""
    chosen = sorted(check.worst_parameters(which)[:MOST_ROWS])
    names = [readable(check.names[j]) for j in chosen]
    rows = np.arange(len(chosen), dtype=float)
    ends = len(chosen) - 0.4, -0.6
    layout: dict[str, Any] = {"height": AROUND + ROW * len(chosen), "shapes": []}
    ticks = {"tickvals": rows.tolist(), "ticktext": [brief(name) for name in names]}
    layout["yaxis"] = axis("", ends, showgrid=False, zeroline=False, **ticks)
    traces: list[Trace] = []
    rejected = check.verdicts[which] == "rejected"
    words = []
    for i, (kind, title, right, domain) in enumerate(COLUMNS):
        value, lower, upper = (_numbers(check, which, kind, end)[chosen] for end in ENDS)
        wrong = rejected & ((lower > right) | (upper < right))
        suffix = str(i + 1) if i else ""
        for some, colour, symbol, name in (
            (wrong, "@curve", "x", "wrong"),
            (~wrong, "@ink", "circle", "95 % interval, all rows together"),
        ):
            if some.any():
                drawn = _row_traces(value[some], lower[some], upper[some], rows[some], colour)
                drawn[1] |= {
                    "name": name,
                    "marker": {"color": colour, "size": 8, "symbol": symbol},
                }
                drawn[1]["showlegend"] = i == 0 or name == "wrong"
                traces += [trace | {"xaxis": f"x{suffix}"} for trace in drawn]
        span = _span(lower, upper, right, check.tolerance if kind != "coverage" else None)
        layout[f"xaxis{suffix}"] = axis(title, span, zeroline=False, nticks=6) | {"domain": domain}
        shape = upright(right)
        layout["shapes"].append(shape | {"xref": f"x{suffix}"})
        each = zip(names, value, lower, upper, strict=True)
        words.append(
            f"{title}: " + "; ".join(f"{n} {v:.2g} ({a:.2g} to {b:.2g})" for n, v, a, b in each)
        )
    return Figure(tuple(traces), layout, f"{'. '.join(words)}.")


ENDS = ("", "_lower", "_upper")


def _numbers(check: Verdict, which: int, kind: str, end: str) -> np.ndarray:
    values = np.asarray(getattr(check.bounds, kind + end)[which], float)
    return 100 * values[:, 1] if kind == "coverage" else values


def _row_traces(
    value: np.ndarray, lower: np.ndarray, upper: np.ndarray, rows: np.ndarray, colour: str
) -> list[Trace]:
    """Intervals as lines, and values as points with what is said of them under the pointer."""
    x = np.stack([lower, upper, np.full(len(rows), np.nan)], 1)
    sticks = line(x, np.repeat(rows, 3), "", color=colour, width=2)
    sticks |= {"hoverinfo": "skip", "hovertemplate": None, "showlegend": False}
    texts = [
        f"{two_digits(v, 2)} ({two_digits(a, 2)} to {two_digits(b, 2)})"
        for v, a, b in zip(value, lower, upper, strict=True)
    ]
    dots = points(value, rows, "") | {"text": texts, "hovertemplate": "%{text}<extra></extra>"}
    return [sticks, dots]


def _span(
    lower: np.ndarray, upper: np.ndarray, right: float, tolerance: float | None
) -> tuple[float, float]:
    """Where all intervals and what is right have room, and the tolerance if it is not far."""
    ends = np.concatenate([[right], lower, upper])
    if tolerance is not None:
        ends = np.concatenate(
            [ends, [-tolerance, tolerance] if right == 0 else [1 / (1 + tolerance), 1 + tolerance]]
        )
    ends = ends[np.isfinite(ends)]
    room = 0.06 * max(float(np.ptp(ends)), 1e-6)
    return float(ends.min() - room), float(ends.max() + room)


def near(check: Verdict, which: int) -> Figure | None:
    """True parameters near x_o over draws of q, for the worst parameters and the worst pair."""
    bounds = check.bounds
    if bounds.near_truths is None or bounds.near_draws is None:
        return None
    both = [
        part[np.isfinite(part).all(1)]
        for part in (bounds.near_draws[which], bounds.near_truths[which])
    ]
    if not len(both[1]):
        return None
    pair = worst_pair(check, which)
    single = check.worst_parameters(which)[: MOST_NEAR - (pair is not None)]
    panels = [_histograms([part[:, j] for part in both]) for j in single]
    titles = [(check.names[j], "") for j in single]
    if pair is not None:
        panels.append(_contours([part[:, pair] for part in both]))
        titles.append((check.names[pair[0]], check.names[pair[1]]))
    layout: dict[str, Any] = {"height": PICTURE}
    traces: list[Trace] = []
    for i, (panel, title) in enumerate(zip(panels, titles, strict=True)):
        suffix = str(i + 1) if i else ""
        traces += [
            t | {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "showlegend": i == 0} for t in panel
        ]
        layout |= _axes(suffix, title, i, len(panels))
    names = ", ".join(readable(check.names[j]) for j in single)
    return Figure(
        tuple(traces),
        layout,
        f"True parameters near x_o over draws of q at the same x, in sd of q, for {names}.",
    )


def worst_pair(check: Verdict, which: int) -> list[int] | None:
    """The pair whose correlation is farthest from right, beyond its interval first."""
    if len(check.names) < 2:
        return None
    b = check.bounds
    lower, upper = b.correlation_lower[which], b.correlation_upper[which]
    beyond = np.maximum(np.maximum(lower, -upper), 0)
    score = np.nan_to_num(beyond + 1e-3 * np.abs(b.correlation[which]))
    if not score.any():
        return sorted(check.worst_parameters(which)[:2])
    first, second = np.unravel_index(np.triu(score, 1).argmax(), score.shape)
    return [int(first), int(second)]


def _axes(suffix: str, title: tuple[str, str], at: int, count: int) -> dict[str, Any]:
    """The axes of one panel."""
    name, other = brief(title[0], 18), brief(title[1], 12)
    x = axis(f"{name}, sd of q", (-END, END), nticks=5)
    y = axis(f"{other}, sd of q" if other else "", (-END, END) if other else None, nticks=5)
    y |= {} if other else {"rangemode": "tozero", "showticklabels": False}
    left = at / count + (0.07 if other else 0.01)
    x |= {"anchor": f"y{suffix}", "domain": [left, (at + 1) / count - 0.02]}
    return {f"xaxis{suffix}": x, f"yaxis{suffix}": y | {"anchor": f"x{suffix}"}}


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

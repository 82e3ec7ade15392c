"""What the classifier finds at x_o: the PP-plot, and the pair plot coloured by probability."""

from typing import Any

import numpy as np

from ..plots._numbers import mirrored
from ..printing import probability, readable
from ..verdict import Verdict
from .traces import DASHED, axis, brief, decimals, line, null_band, percent, rounded, suffix

# Draws and parameters of a pair plot, and points in all of its panels together, at most; draws in
# those of all observations together, at most, but so many in each.
MOST_DRAWS, MOST_PARAMETERS, MOST_POINTS = 600, 4, 6000
MOST_STORED, FEWEST_POINTS = 10_000, 100
# Bins of marginal distributions, pixels of a panel, and letters of a name beside it.
BINS, PANEL, LETTERS = 24, 110, 14
# What is beside a point under the pointer.
POINT = "%{x:.3~g}, %{y:.3~g}<br>P(truth) = %{marker.color:.3f}<extra></extra>"


def pp(check: Verdict, which: int) -> dict[str, Any]:
    """The PP-plot of the classifier at one observation."""
    curve = mirrored(check.classified[which].pp_curve(check.alpha))
    levels = np.repeat(curve.levels, 2)[:-1]
    both = (curve.envelope_lower, curve.envelope_upper), (curve.lower, curve.upper)
    whole, each = ([np.repeat(end, 2)[1:] for end in ends] for ends in both)
    bands = [null_band(levels, whole, curve.alpha)]
    bands.append(null_band(levels, each, curve.alpha, "each level", "@band"))
    ideal = line([0, 0.5, 0.5, 1], [0, 0, 1, 1], "if q = p", **DASHED)
    style = {"color": "@curve", "width": 2, "shape": "vh"}
    draws = line(curve.levels, curve.ecdf, "draws of q at x_o", **style)
    x = axis("probability of class 1 (the truth)", (0, 1))
    y = axis("share of draws below", (0, 1.01))
    return {
        # Both bands have the same abscissa, which is stored once.
        "data": [*(band | {"x": 0} for band in bands), ideal, draws],
        "columns": [bands[0]["x"]],
        "layout": {"xaxis": x, "yaxis": y, "height": 300},
        "words": "PP-plot: the distribution of class probabilities at the draws of q. The curve "
        f"as a whole has p = {probability(float(curve.pvalue))}.",
    }


def colour_range(check: Verdict) -> float:
    """The largest distance of a probability from 1/2 at any observation, rounded up."""
    far = float(np.abs(check.classified.probabilities - 0.5).max())
    return min(0.5, max(0.05, float(np.ceil(20 * far) / 20)))


def pairs(check: Verdict, which: int) -> dict[str, Any]:
    """A triangle of panels: distributions of the worst parameters, and below them the draws."""
    result = check.classified
    some = sorted(check.worst_parameters(which)[:MOST_PARAMETERS])
    names = [check.names[j] for j in some]
    theta = (result.draws if result.theta is None else result.theta)[which][:, some]  # (s, m)
    d, m, chosen = result.probabilities[which], len(some), chosen_draws(check)
    # The same colours in all figures, with 1/2 in the middle.
    half = colour_range(check)
    scale: dict[str, Any] = {"colorscale": [[0, "@much"], [0.5, "@middle"], [1, "@little"]]}
    scale |= {"cmin": 0.5 - half, "cmax": 0.5 + half, "showscale": False}
    layout: dict[str, Any] = {"height": 90 + PANEL * max(2, m), "coloraxis": scale}
    traces = []
    for row, column in [(i, j) for i in range(m) for j in (i, *range(i))]:
        if row == column:
            edges = np.linspace(theta[:, row].min(), theta[:, row].max() + 1e-12, BINS + 1)
            density, _ = np.histogram(theta[:, row], edges, density=True)
            style = {"color": "@ink", "width": 1.2, "shape": "hv"}
            trace = line(edges, np.append(density, density[-1]), "q", **style)
            trace["showlegend"] = False
        else:
            # Here x, y and colours are columns of the figure.
            marker = {"color": m, "coloraxis": "coloraxis", "size": 4}
            trace = {"type": "scatter", "mode": "markers", "x": column, "y": row, "marker": marker}
            trace["hovertemplate"] = POINT
        panel = suffix(row * m + column)
        traces.append(trace | {"xaxis": f"x{panel}", "yaxis": f"y{panel}"})
        layout |= _panel(names, row, column)
    words = (
        f"Pair plot of {len(chosen)} draws of q in {', '.join(map(readable, names))}. By the "
        f"classifier, q has too much mass at {percent((d < 0.5).mean())} of its draws and too "
        f"little at {percent((d > 0.5).mean())}; probabilities of being a truth run from "
        f"{decimals(float(d.min()))} to {decimals(float(d.max()))}."
    )
    columns = [*(rounded(column) for column in theta[chosen].T), rounded(d[chosen], 3)]
    return {"data": traces, "layout": layout, "words": words, "columns": columns}


def chosen_draws(check: Verdict) -> np.ndarray:
    """Which draws are points of the pair plot: evenly spaced ones, of which there are not many."""
    o, s, m = check.classified.draws.shape
    m = min(m, MOST_PARAMETERS)
    stored = max(FEWEST_POINTS, MOST_STORED // o)
    most = min(s, MOST_DRAWS, stored, MOST_POINTS // max(1, m * (m - 1) // 2))
    return np.unique(np.linspace(0, s - 1, most).round().astype(int))


def _panel(names: list[str], row: int, column: int) -> dict[str, Any]:
    """The axes of one panel, with names and numbers at the foot and on the left alone."""
    m, panel = len(names), suffix(row * len(names) + column)
    gap = 0.06 / m
    foot, left = row == m - 1, column == 0 and row > 0
    x = axis(brief(names[column], LETTERS) if foot else "", nticks=4, showticklabels=foot)
    y = axis(brief(names[row], LETTERS) if left else "", nticks=4, showticklabels=left)
    x |= {"anchor": f"y{panel}", "domain": [column / m + gap, (column + 1) / m - gap]}
    y |= {"anchor": f"x{panel}", "domain": [1 - (row + 1) / m + gap, 1 - row / m - gap]}
    # Panels of one column share their abscissa, and those of one row their ordinate.
    if row != column:
        x["matches"] = f"x{suffix(column * m + column)}"
    if 0 < column < row:
        y["matches"] = f"y{suffix(row * m)}"
    return {f"xaxis{panel}": x, f"yaxis{panel}": y}

"""The pair plot: draws of q, coloured by the probability of being a true parameter."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from ..names import readable
from .traces import Figure, Trace, axis, line
from .words import brief, number, rounded, share

if TYPE_CHECKING:
    from ..local.lc2st import LC2STResult

# Draws and parameters of a pair plot, and points in all of its panels together, at most; draws in
# those of all observations together, at most, but so many in each.
MOST_DRAWS, MOST_PARAMETERS, MOST_POINTS = 600, 4, 6000
MOST_STORED, FEWEST_DRAWN = 10_000, 100
# Bins of marginal distributions, and the least range of probabilities around 1/2.
BINS, LEAST_RANGE = 24, 0.05
# Pixels of a panel, and letters of a name beside it.
PANEL, LETTERS = 110, 14


@dataclass(frozen=True, eq=False)
class PairPlot:
    """Draws of q at o observations with their probabilities, and names of the parameters.

    Of many parameters the worst are shown.
    """

    result: LC2STResult
    names: tuple[str, ...]

    @cached_property
    def colour_range(self) -> float:
        """The largest distance of a probability from 1/2 at any observation, rounded up."""
        far = float(np.abs(self.result.probabilities - 0.5).max())
        return min(0.5, max(LEAST_RANGE, float(np.ceil(20 * far) / 20)))

    @cached_property
    def shown(self) -> np.ndarray:
        """Which draws are shown: evenly spaced ones, at most so many."""
        o, s, m = self.result.draws.shape
        m = min(m, MOST_PARAMETERS)
        stored = max(FEWEST_DRAWN, MOST_STORED // o)
        most = min(s, MOST_DRAWS, stored, MOST_POINTS // max(1, m * (m - 1) // 2))
        return np.unique(np.linspace(0, s - 1, most).round().astype(int))

    def figure(self, which: int, worst: list[int]) -> Figure:
        """A triangle of panels: marginal distributions, and below them the draws."""
        theta = self.result.draws if self.result.theta is None else self.result.theta
        some, d = sorted(worst[:MOST_PARAMETERS]), self.result.probabilities[which]
        columns, m = theta[which][:, some].T, len(some)
        names = tuple(self.names[j] for j in some)
        traces: list[Trace] = []
        layout: dict[str, Any] = {"height": 90 + PANEL * max(2, m), "coloraxis": self._scale}
        for row, column in enumerate(columns):
            traces.append(_marginal(column, _suffix(row * m + row)))
            traces += [_draws(across, row, m) for across in range(row)]
            for across in range(row + 1):
                layout |= _panel(names, row, across)
        dots = tuple(rounded(column[self.shown]) for column in columns)
        return Figure(
            tuple(traces), layout, self._words(d, names), (*dots, rounded(d[self.shown], 3))
        )

    def _words(self, d: np.ndarray, names: tuple[str, ...]) -> str:
        known = ", ".join(map(readable, names))
        return (
            f"Pair plot of {len(self.shown)} draws of q in {known}. By the classifier, "
            f" q has too much mass at {share((d < 0.5).mean())} of its draws and too "
            f"little at {share((d > 0.5).mean())}; probabilities of being a truth run from "
            f"{number(float(d.min()))} to {number(float(d.max()))}."
        )

    @property
    def _scale(self) -> dict[str, Any]:
        """The same colours in all figures, with 1/2 in the middle."""
        colours = [[0, "@much"], [0.5, "@middle"], [1, "@little"]]
        ends = {"cmin": 0.5 - self.colour_range, "cmax": 0.5 + self.colour_range}
        return {"colorscale": colours, **ends, "showscale": False}


def _marginal(column: np.ndarray, suffix: str) -> Trace:
    """The distribution of a parameter (s,) under q."""
    edges = np.linspace(column.min(), column.max() + 1e-12, BINS + 1)
    density, _ = np.histogram(column, edges, density=True)
    drawn = line(edges, np.append(density, density[-1]), "q", color="@ink", width=1.2, shape="hv")
    return drawn | {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}", "showlegend": False}


def _suffix(at: int) -> str:
    """The number of a panel, as Plotly writes it in the names of axes."""
    return str(at + 1) if at else ""


def _draws(across: int, up: int, m: int) -> Trace:
    """One panel of draws; x, y and colours are columns of the figure."""
    suffix = _suffix(up * m + across)
    return {
        "type": "scatter",
        "mode": "markers",
        "x": across,
        "y": up,
        "xaxis": f"x{suffix}",
        "yaxis": f"y{suffix}",
        "marker": {"color": m, "coloraxis": "coloraxis", "size": 4},
        "hovertemplate": "%{x:.3~g}, %{y:.3~g}<br>P(truth) = %{marker.color:.3f}<extra></extra>",
    }


def _panel(names: tuple[str, ...], row: int, column: int) -> dict[str, Any]:
    """The axes of one panel, with names and numbers at the foot and on the left alone."""
    m, suffix = len(names), _suffix(row * len(names) + column)
    gap = 0.06 / m
    foot, left = row == m - 1, column == 0 and row > 0
    x = axis(brief(names[column], LETTERS) if foot else "", nticks=4)
    y = axis(brief(names[row], LETTERS) if left else "", nticks=4)
    x |= {"anchor": f"y{suffix}", "domain": [column / m + gap, (column + 1) / m - gap]}
    y |= {"anchor": f"x{suffix}", "domain": [1 - (row + 1) / m + gap, 1 - row / m - gap]}
    # Panels of one column share their abscissa, and those of one row their ordinate.
    if row != column:
        x["matches"] = f"x{_suffix(column * m + column)}"
    if 0 < column < row:
        y["matches"] = f"y{_suffix(row * m)}"
    ends = {f"xaxis{suffix}": (x, foot), f"yaxis{suffix}": (y, left)}
    return {name: given | {"showticklabels": outer} for name, (given, outer) in ends.items()}

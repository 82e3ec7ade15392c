"""Traces: figures as plain values that the page's own code hands to Plotly.

A figure is drawn by nothing but its numbers. Colours are named by what they stand for, as in
``@curve``, and become those of the light or the dark scheme when the page is looked at. Names are
:func:`~assay.report.words.literal`; templates of hover labels hold none.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .words import literal, rounded

__all__ = [
    "COLOURS",
    "HEIGHT",
    "Figure",
    "axis",
    "band",
    "farthest",
    "level",
    "line",
    "named",
    "points",
    "upright",
]

# Six curves by colour, and twice as many by line style as well.
COLOURS = ("@curve", "@blue", "@green", "@pink", "@sky", "@amber")
DASHES = ("solid", "dash")
MOST_CURVES = 12
# The height of a figure, in pixels.
HEIGHT = 300

Trace = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A figure, its words for those who do not see it, and numbers that its traces share.

    Args:
        data: Traces; where x or y is a whole number, it is that of a column.
        layout: Axes, height and shapes.
        words: What it shows, in words and numbers.
        columns: Numbers that several traces draw.
    """

    data: tuple[Trace, ...]
    layout: dict[str, Any]
    words: str
    columns: tuple[list[float | None], ...] = field(default=())

    @property
    def plain(self) -> dict[str, Any]:
        """The figure as JSON can hold it."""
        parts = {"data": list(self.data), "layout": self.layout, "words": self.words}
        return parts | ({"columns": list(self.columns)} if self.columns else {})


def axis(title: str, span: Sequence[float] | None = None, **more: Any) -> dict[str, Any]:
    """An axis with its title, and its two ends where they are known."""
    ends = {} if span is None else {"range": [float(end) for end in span]}
    return {"title": {"text": title}, **ends, **more}


def line(x: np.ndarray, y: np.ndarray, name: str, **style: Any) -> Trace:
    """A curve; its name is shown beside the value under the pointer."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": rounded(x),
        "y": rounded(y),
        "name": name,
        "line": style,
        "hovertemplate": "%{y:.3~g} at %{x:.3~g}<extra>%{fullData.name}</extra>",
    }


def named(
    x: np.ndarray, lines: np.ndarray, names: Sequence[str], ideal: np.ndarray
) -> list[Trace]:
    """Curves (j, g), each with a colour; of many, those farthest from the ideal (g,)."""
    chosen = farthest(lines, ideal)
    others = [j for j in range(len(lines)) if j not in chosen]
    grey = [
        line(x, lines[j], literal(names[j]), color="@band", width=0.8) | {"showlegend": False}
        for j in others
    ]
    return grey + [
        line(
            x,
            lines[j],
            literal(names[j]),
            color=COLOURS[i % len(COLOURS)],
            dash=DASHES[i // len(COLOURS) % len(DASHES)],
            width=2,
        )
        for i, j in enumerate(chosen)
    ]


def farthest(lines: np.ndarray, ideal: np.ndarray, most: int = MOST_CURVES) -> list[int]:
    """The curves (j, g) that lie farthest from the ideal (g,), at most so many, in order."""
    far = np.abs(lines - ideal).max(1)
    return sorted(int(j) for j in np.argsort(-far, kind="stable")[:most])


def band(
    x: np.ndarray, lower: np.ndarray, upper: np.ndarray, name: str, colour: str, **more: Any
) -> Trace:
    """The area between two curves."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": rounded(np.concatenate([x, x[::-1]])),
        "y": rounded(np.concatenate([upper, lower[::-1]])),
        "name": name,
        "fill": "toself",
        "fillcolor": colour,
        "line": {"width": 0},
        "hoverinfo": "skip",
        **more,
    }


def points(x: np.ndarray, y: np.ndarray, name: str, **marker: Any) -> Trace:
    """Points, each with its value under the pointer."""
    return line(x, y, name) | {"mode": "markers", "marker": marker, "line": {}}


def level(y: float, colour: str = "@ink", dash: str = "dash") -> dict[str, Any]:
    """A line across the whole figure."""
    ends = {"x0": 0, "x1": 1, "xref": "paper", "y0": y, "y1": y}
    return {"type": "line", **ends, "line": {"color": colour, "width": 1, "dash": dash}}


def upright(x: float, colour: str = "@ink", dash: str = "dash") -> dict[str, Any]:
    """A line from the foot of a figure to its head."""
    ends = {"x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper"}
    return {"type": "line", **ends, "line": {"color": colour, "width": 1, "dash": dash}}

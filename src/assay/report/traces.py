"""Traces: figures as plain values that the page's own code hands to Plotly.

A figure is drawn by nothing but its numbers. Colours are named by what they stand for, as in
``@curve``, and become those of the light or the dark scheme when the page is looked at. Names are
:func:`~assay.report.words.literal`; templates of hover labels hold none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..plots._numbers import farthest
from .words import literal, rounded, share

# Six curves by colour, and twice as many by line style as well.
COLOURS = ("@curve", "@blue", "@green", "@pink", "@sky", "@amber")
DASHES = ("solid", "dash")
# The height of a figure, in pixels.
HEIGHT = 300
# How what is right is drawn.
DASHED: dict[str, Any] = {"color": "@ink", "width": 1, "dash": "dash"}

Trace = dict[str, Any]


@dataclass(frozen=True)
class Figure:
    """A figure, its words for those who do not see it, and numbers that its traces share.

    These are its columns; where x or y of a trace is a whole number, it is that of a column. The
    layout holds axes, height and shapes.
    """

    data: tuple[Trace, ...]
    layout: dict[str, Any]
    words: str
    columns: tuple[list[float | None], ...] = ()

    @property
    def plain(self) -> dict[str, Any]:
        """The figure as JSON can hold it."""
        parts = {"data": list(self.data), "layout": self.layout, "words": self.words}
        return parts | ({"columns": list(self.columns)} if self.columns else {})


def layout(x: dict[str, Any], y: dict[str, Any], *shapes: Trace, **more: Any) -> dict[str, Any]:
    """Two axes and the lines across them, in the height of most figures."""
    lines = {"shapes": list(shapes)} if shapes else {}
    return {"xaxis": x, "yaxis": y, **lines, "height": HEIGHT, **more}


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


def ideal(x: Sequence[float], y: Sequence[float], name: str = "if q = p") -> Trace:
    """The curve that would be there if all were right."""
    return line(np.array(x), np.array(y), name) | {"line": DASHED}


def named(
    x: np.ndarray, lines: np.ndarray, names: Sequence[str], right: np.ndarray
) -> list[Trace]:
    """Curves (j, g), each with a colour; of many, those farthest from what is right (g,)."""
    chosen = farthest(lines, right, 12)
    grey = {"color": "@band", "width": 0.8}
    rest = (j for j in range(len(lines)) if j not in chosen)
    others = [line(x, lines[j], literal(names[j]), **grey) | {"showlegend": False} for j in rest]
    styles = [{"color": colour, "dash": dash} for dash in DASHES for colour in COLOURS]
    pairs = zip(chosen, styles, strict=False)
    return others + [line(x, lines[j], literal(names[j]), **one, width=2) for j, one in pairs]


def null_band(
    x: np.ndarray,
    ends: tuple[np.ndarray, np.ndarray],
    alpha: float,
    held: str = "whole curve",
    colour: str = "@envelope",
) -> Trace:
    """The area between two curves (g,), which holds something of a curve if q is right."""
    lower, upper = ends
    return {
        "type": "scatter",
        "mode": "lines",
        "x": rounded(np.concatenate([x, x[::-1]])),
        "y": rounded(np.concatenate([upper, lower[::-1]])),
        "name": f"{share(1 - alpha)} null, {held}",
        "fill": "toself",
        "fillcolor": colour,
        "line": {"width": 0},
        "hoverinfo": "skip",
    }


def points(x: np.ndarray, y: np.ndarray, name: str, **marker: Any) -> Trace:
    """Points, each with its value under the pointer."""
    return line(x, y, name) | {"mode": "markers", "marker": marker, "line": {}}


def error_bars(told: np.ndarray, colour: str) -> dict[str, Any]:
    """Bars around values between the lower and upper ends of intervals, (3, g) together."""
    value, lower, upper = told
    ends = {"array": rounded(upper - value), "arrayminus": rounded(value - lower)}
    return {"type": "data", "symmetric": False, **ends, "color": colour, "thickness": 2}


def level(y: float, **style: Any) -> Trace:
    """A line across the whole figure, thin and dashed if no style is given."""
    ends = {"x0": 0, "x1": 1, "xref": "paper", "y0": y, "y1": y}
    return {"type": "line", **ends, "line": style or DASHED}


def upright(x: float, **style: Any) -> Trace:
    """A line from the foot of a figure to its head, thin and dashed if no style is given."""
    ends = {"x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper"}
    return {"type": "line", **ends, "line": style or DASHED}

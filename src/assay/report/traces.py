"""Figures as plain values, which the script of the page hands to Plotly.

A figure has data, which are traces; a layout; words for those who do not see it; and columns,
numbers that traces share: where x, y or colours are a whole number, it is that of a column.
Colours are named by their role, as in ``@curve``; in the browser they become light or dark.
"""

import math
import re
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from ..plots._numbers import farthest
from ..printing import number, readable, shorten

# Six curves by colour, and twice as many by line style as well.
COLOURS = ("@curve", "@blue", "@green", "@pink", "@sky", "@amber")
STYLES = [{"color": colour, "dash": dash} for dash in ("solid", "dash") for colour in COLOURS]
# How the value that a right q would have is drawn.
DASHED: dict[str, Any] = {"color": "@ink", "width": 1, "dash": "dash"}


def literal(name: str) -> str:
    """A name as it is read, with TeX as Unicode, for Plotly, which reads tags and entities."""
    blank = r"[\s\x00-\x1f\x7f\u202a-\u202e\u2066-\u2069]+"
    return escape(re.sub(blank, " ", readable(name)), quote=False)


def brief(name: str, most: int = 16) -> str:
    """A name beside a figure, of which both ends are kept where it is long."""
    return literal(shorten(readable(name), most))


def rounded(values: np.ndarray, digits: int = 4) -> list[float | None]:
    """Numbers with as many digits as can be seen; None where there is none."""
    short = (float(f"{value:.{digits}g}") for value in np.asarray(values, float).ravel())
    return [value if math.isfinite(value) else None for value in short]


def decimals(value: float) -> str:
    """A number with three decimals, or as many digits, and a minus as long as a plus."""
    text = f"{value:.3f}" if abs(value) < 10 else number(value)
    return text.replace("-0.000", "0.000").replace("-", "\u2212")


def percent(share: float) -> str:
    """A share in percent, with three digits."""
    return f"{100 * share:.3g} %"


def suffix(panel: int) -> str:
    """The number of a panel, as Plotly writes it in the names of its axes."""
    return str(panel + 1) if panel else ""


def axis(title: str, span: Sequence[float] | None = None, **more: Any) -> dict[str, Any]:
    """An axis with its title, and its two ends where they are known."""
    ends = {} if span is None else {"range": [float(end) for end in span]}
    return {"title": {"text": title}, **ends, **more}


def line(x: Any, y: Any, name: str, **style: Any) -> dict[str, Any]:
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


def curves(
    x: np.ndarray, lines: np.ndarray, names: Sequence[str], right: np.ndarray
) -> list[dict[str, Any]]:
    """Curves (j, g), each with a colour; of many, those farthest from what is right (g,)."""
    chosen = farthest(lines, right, len(STYLES))
    named = [line(x, own, literal(name)) for own, name in zip(lines, names, strict=True)]
    grey = {"line": {"color": "@band", "width": 0.8}, "showlegend": False}
    others = [trace | grey for j, trace in enumerate(named) if j not in chosen]
    pairs = zip(chosen, STYLES, strict=False)
    return others + [named[j] | {"line": style | {"width": 2}} for j, style in pairs]


def null_band(
    x: np.ndarray, ends: Any, alpha: float, words: str = "whole curve", colour: str = "@envelope"
) -> dict[str, Any]:
    """The area between two curves (2, g), which holds the words if q is right."""
    lower, upper = ends
    shape = {"fill": "toself", "fillcolor": colour, "line": {"width": 0}, "hoverinfo": "skip"}
    return {
        "type": "scatter",
        "mode": "lines",
        "x": rounded(np.concatenate([x, x[::-1]])),
        "y": rounded(np.concatenate([upper, lower[::-1]])),
        "name": f"{percent(1 - alpha)} null, {words}",
        **shape,
    }


def upright(x: float, **style: Any) -> dict[str, Any]:
    """A line from the foot of a figure to its head, thin and dashed if no style is given."""
    ends = {"x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper"}
    return {"type": "line", **ends, "line": style or DASHED}

"""Figures as plain values, which the script of the page hands to Plotly.

Colours are named by their role, as in ``@curve``, and become those of the light or the dark scheme
in the browser. Plotly reads tags and entities in names: `literal` names are shown as they are.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np

from ..plots._numbers import farthest
from ..printing import number, readable, shorten

# Six curves by colour, and twice as many by line style as well.
COLOURS = ("@curve", "@blue", "@green", "@pink", "@sky", "@amber")
DASHES = ("solid", "dash")
# The height of a figure, in pixels.
HEIGHT = 300
# How the value that a right q would have is drawn.
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


def literal(name: str) -> str:
    """A name that Plotly shows as it is read, though it reads tags and entities itself.

    TeX becomes Unicode: MathJax, which would typeset it, is not in the page.

    Example:
        >>> literal("<b>x</b> & y")
        '&lt;b&gt;x&lt;/b&gt; &amp; y'
    """
    name = readable(name)
    return escape(re.sub(r"[\s\x00-\x1f\x7f\u202a-\u202e\u2066-\u2069]+", " ", name), quote=False)


def brief(name: str, most: int = 16) -> str:
    r"""A name beside a figure, of which both ends are kept where it is long.

    Example:
        >>> brief("amplitude of mode 12"), brief(r"$\log_{10} M$")
        ('amplitude…de 12', 'log₁₀ M')
    """
    return literal(shorten(readable(name), most))


def rounded(values: np.ndarray, digits: int = 4) -> list[float | None]:
    """Numbers with as many digits as can be seen; None where there is none.

    Example:
        >>> rounded(np.array([0.123456, 1e4, np.nan]), 3)
        [0.123, 10000.0, None]
    """
    short = (float(f"{value:.{digits}g}") for value in np.asarray(values, float).ravel())
    return [value if math.isfinite(value) else None for value in short]


def decimals(value: float) -> str:
    """A number with three decimals, or as many digits, and a minus as long as a plus.

    Example:
        >>> decimals(-0.12345), decimals(12345.0)
        ('−0.123', '12345')
    """
    text = f"{value:.3f}" if abs(value) < 10 else number(value)
    return text.replace("-0.000", "0.000").replace("-", "\u2212")


def percent(share: float) -> str:
    """A share in percent, with three digits."""
    return f"{100 * share:.3g} %"


def suffix(panel: int) -> str:
    """The number of a panel, as Plotly writes it in the names of its axes."""
    return str(panel + 1) if panel else ""


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


def ideal(x: Sequence[float], y: Sequence[float]) -> Trace:
    """The curve of a q that is right."""
    return line(np.array(x), np.array(y), "if q = p", **DASHED)


def curves(
    x: np.ndarray, lines: np.ndarray, names: Sequence[str], right: np.ndarray
) -> list[Trace]:
    """Curves (j, g), each with a colour; of many, those farthest from what is right (g,)."""
    styles = [{"color": colour, "dash": dash} for dash in DASHES for colour in COLOURS]
    chosen = farthest(lines, right, len(styles))
    grey = {"color": "@band", "width": 0.8}
    others = [
        line(x, lines[j], literal(names[j]), **grey) | {"showlegend": False}
        for j in range(len(lines))
        if j not in chosen
    ]
    pairs = zip(chosen, styles, strict=False)
    return others + [line(x, lines[j], literal(names[j]), **one, width=2) for j, one in pairs]


def null_band(
    x: np.ndarray,
    lower: np.ndarray,
    upper: np.ndarray,
    alpha: float,
    words: str = "whole curve",
    colour: str = "@envelope",
) -> Trace:
    """The area between two curves (g,), which holds the words if q is right."""
    return {
        "type": "scatter",
        "mode": "lines",
        "x": rounded(np.concatenate([x, x[::-1]])),
        "y": rounded(np.concatenate([upper, lower[::-1]])),
        "name": f"{percent(1 - alpha)} null, {words}",
        "fill": "toself",
        "fillcolor": colour,
        "line": {"width": 0},
        "hoverinfo": "skip",
    }


def upright(x: float, **style: Any) -> Trace:
    """A line from the foot of a figure to its head, thin and dashed if no style is given."""
    ends = {"x0": x, "x1": x, "y0": 0, "y1": 1, "yref": "paper"}
    return {"type": "line", **ends, "line": style or DASHED}

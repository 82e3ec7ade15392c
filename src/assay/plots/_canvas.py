r"""What all pictures share: one column's width, a palette that every eye can read, plain words.

Colours are those of Okabe and Ito 2008, *Color Universal Design*, and greys that print; where more
than one curve is drawn, line styles tell them apart as well. Names in LaTeX such as
``$\theta_1$`` are typeset by matplotlib; what it cannot typeset is shown as it is written.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.mathtext import MathTextParser

from .._support.inputs import check_kind, printable
from ._shapes import farthest

# The width of one column of a journal, in inches, and the sizes of words in it, in points.
WIDTH = 3.4
LABEL, SMALL = 8, 7
# The height of one line of a legend, in inches, and the letters of a name, at most.
LINE, LETTERS = 0.15, 22

CURVE, BAND, ENVELOPE, INK = "#D55E00", "#9a9a9a", "#d9d9d9", "#333333"
GREEN = "#009E73"
COLOURS = (CURVE, "#0072B2", GREEN, "#CC79A7", "#56B4E9", "#E69F00")
STYLES = ("-", "--", ":", "-.")
# What every picture of a classifier shows: class 1 is the truth, class 0 is q.
CLASS_1 = "probability of class 1 (truth)"
# Curves that are told apart where there are more than colours.
FEW_CURVES = 4


def axes(ax: Axes | None, height: float, lines: int = 0) -> Axes:
    """The axes given, or else new ones of one column's width.

    A new figure has a height in inches, and is higher by the lines of the legend above it.
    """
    if ax is not None:
        check_kind("ax", ax, "matplotlib's Axes", Axes)
        return ax
    new = plt.subplots(figsize=(WIDTH, height + LINE * lines), layout="constrained")[1]
    new.locator_params(nbins=6)
    return small(new)


def listed(ax: Any) -> list[Any]:
    """Axes one after the other, however they are given."""
    return list(ax) if isinstance(ax, list | tuple) else list(np.ravel(ax))


def panels(ax: Any, count: int, height: float, across: int) -> np.ndarray:
    """So many axes (count,): those given, or else new ones, some of them across.

    A row of new ones has a height in inches; two have one column's width, more have two.
    """
    if ax is not None:
        given = listed(ax)
        if len(given) != count:
            raise ValueError(f"ax: expected {count} axes, one for each panel; got {len(given)}.")
        for each in given:
            check_kind("ax", each, "matplotlib's Axes", Axes)
        return np.array(given, dtype=object)
    across = min(across, count)
    rows, width = -(-count // across), WIDTH if across <= 2 else 2 * WIDTH + 0.2
    size = (width, height * rows)
    grid = plt.subplots(rows, across, figsize=size, layout="constrained", squeeze=False)[1]
    for spare in grid.flat[count:]:
        spare.remove()
    return np.array([small(one) for one in grid.flat[:count]], dtype=object)


def small(ax: Axes) -> Axes:
    """The same axes with words of the sizes of a column."""
    ax.tick_params(labelsize=SMALL)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_fontsize(LABEL)
    return ax


def legend(ax: Axes, ncols: int = 2, title: str = "", **options: Any) -> Axes:
    """Puts the legend above the axes, where it hides nothing, and a title above that."""
    shape = {"handlelength": 1.6, "columnspacing": 1.2, "borderaxespad": 0.3}
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
    drawn = ax.legend(fontsize=SMALL, frameon=False, ncols=ncols, **(shape | place | options))
    if title:
        height = 72 * drawn.get_window_extent().height / ax.figure.dpi
        ax.set_title(title, fontsize=LABEL, pad=height + 5)
    return ax


def smallest(adjusted: np.ndarray, names: Sequence[str]) -> str:
    """The p-value of one curve, or the smallest of several (j,) with the name of its curve."""
    j = int(np.argmin(adjusted))
    if len(names) == 1:
        return f"p = {adjusted[j]:.3g}"
    return f"smallest corrected p = {adjusted[j]:.3g} ({named(names[j], 16)})"


def smallest_of(pvalue: np.ndarray) -> str:
    """The smallest of p-values (o,) at observations that are drawn, and their number."""
    return f"smallest p = {pvalue.min():.3g}, of {len(pvalue)}"


def diagonal(ax: Axes, label: str) -> None:
    """Draws where curves would lie if all were right."""
    ax.plot([0, 1], [0, 1], color=INK, lw=0.8, ls="--", label=label)


def square(ax: Axes, across: str, upwards: str, title: str) -> Axes:
    """Makes axes of shares, from 0 to 1 both ways, with their names, a legend and a title."""
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel=across, ylabel=upwards)
    return legend(ax, title=title)


def open_corner(ax: Axes) -> None:
    """Leaves out the lines above the axes and to their right."""
    ax.spines[["top", "right"]].set_visible(False)


def style(j: int) -> dict[str, Any]:
    """Colour and line style of the j-th curve."""
    return {"color": COLOURS[j], "ls": STYLES[j % len(STYLES)]}


def told_apart(lines: np.ndarray, ideal: np.ndarray) -> list[int]:
    """The curves (j, g) with a name and a colour: all of few, of many the farthest from ideal."""
    return farthest(lines, ideal, len(lines) if len(lines) <= len(COLOURS) else FEW_CURVES)


def curves(
    ax: Axes, grid: np.ndarray, lines: np.ndarray, names: Sequence[str], ideal: np.ndarray
) -> None:
    """Draws curves (j, g) over a grid (g,), each with a colour and a name of its own.

    Of more than six, the four farthest from the ideal (g,) have one, and the others share a grey.
    """
    coloured = told_apart(lines, ideal)
    others = [j for j in range(len(lines)) if j not in coloured]
    for i, j in enumerate(others):
        label = None if i else f"{len(others)} nearer to the ideal"
        ax.plot(grid, lines[j], color=BAND, lw=0.6, label=label)
    for i, j in enumerate(coloured):
        ax.plot(grid, lines[j], lw=1.4, label=named(names[j]), **style(i))


def rows_of(names: Sequence[str], more: int) -> int:
    """Lines of a legend in two columns with so many names, and some more, beyond the first."""
    entries = len(names) if len(names) <= len(COLOURS) else FEW_CURVES + 1
    return max(0, -(-(entries + more) // 2) - 1)


@cache
def is_math(name: str) -> bool:
    r"""Whether matplotlib can typeset a name as mathematics.

    Example:
        >>> is_math(r"$\theta_1$"), is_math("5 $"), is_math(r"$\nonsense$")
        (True, False, False)
    """
    if not name.count("$") or name.count("$") % 2:
        return False
    try:
        MathTextParser("path").parse(name.replace("\n", " "))
    except ValueError:
        return False
    return True


def named(name: str, letters: int = LETTERS) -> str:
    """A name that can be drawn: mathematics or plain, of at most so many letters.

    Example:
        >>> named("the conductance of sodium", 16)
        'the conductance…'
        >>> len(named("5 $"))  # the dollar is escaped
        4
    """
    return escaped(clipped(str(name), letters))


def escaped(name: str) -> str:
    """A name whose dollars are drawn where they are no mathematics."""
    name = printable(name)
    shown = name if is_math(name) else name.replace("$", r"\$")
    # Legends leave out what begins with an underscore.
    return f" {shown}" if shown.startswith("_") else shown


def clipped(name: str, letters: int) -> str:
    """A name of at most so many letters as they are drawn, with an ellipsis for the others."""
    drawn = re.sub(r"[${}_^]", "", re.sub(r"\\[A-Za-z]+", "x", name)) if is_math(name) else name
    if len(drawn) <= letters:
        return name
    start = name[: letters - 1]
    # Mathematics stays whole, or is left out.
    start = start[: start.rindex("$")] if is_math(name) and start.count("$") % 2 else start
    return f"{start.rstrip()}…"


def percent(alpha: float) -> str:
    """What is left of the whole, in words.

    Example:
        >>> percent(0.05)
        '95 %'
    """
    return f"{100 * (1 - alpha):g} %"


def threshold(null: np.ndarray, alpha: float) -> np.ndarray:
    """What a statistic must exceed to be rejected at level alpha, with shape (...).

    It is the k-th largest of H nulls (..., H), where k = floor(alpha (H + 1)): a statistic above
    it has a p-value of at most alpha, and no other has. With too few nulls to reject anything it
    is the largest.

    Example:
        >>> float(threshold(np.arange(99.0), 0.05))
        94.0
    """
    rank = max(1, int(alpha * (1 + null.shape[-1]) + 1e-9))
    return np.asarray(np.sort(null, axis=-1)[..., -rank])


def only(result: Any) -> Any:
    """The result at its only observation; many are refused."""
    if not result.many:
        return result
    if len(result) > 1:
        raise ValueError(
            f"result: expected one observation; got {len(result)}. Choose one by its number, such "
            "as result[0]."
        )
    return result[0]

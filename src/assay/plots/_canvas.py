"""Axes of one column's width, and what several pictures have in common: curves and legends."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from .._support.inputs import check_kind
from ._numbers import farthest
from ._style import BAND, COLOURS, LABEL, SMALL, STYLES, WIDTH, display_name

# The height of one line of a legend, in inches.
LINE = 0.15
# Curves with a colour of their own where there are more curves than colours.
FEW_CURVES = 4


def axes(ax: Axes | None, height: float, lines: int = 0) -> Axes:
    """The axes given, or new ones of one column's width.

    A new figure has a height in inches, and is higher by the lines of the legend above it.
    """
    if ax is not None:
        check_kind("ax", ax, "matplotlib's Axes", Axes)
        return ax
    new = plt.subplots(figsize=(WIDTH, height + LINE * lines), layout="constrained")[1]
    new.locator_params(nbins=6)
    return small(new)


def panels(ax: Any, count: int, height: float, across: int) -> np.ndarray:
    """The axes (count,) given, or new ones, so many beside each other.

    A row of new ones has a height in inches; two have one column's width, more have two.
    """
    if ax is not None:
        given = np.asarray(ax, dtype=object).ravel()
        if len(given) != count:
            raise ValueError(f"ax: expected {count} axes, one for each panel; got {len(given)}.")
        for each in given:
            check_kind("ax", each, "matplotlib's Axes", Axes)
        return given
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


def open_corner(ax: Axes) -> None:
    """Removes the lines above the axes and to their right."""
    ax.spines[["top", "right"]].set_visible(False)


def legend(ax: Axes, ncols: int = 2, title: str = "", **options: Any) -> Axes:
    """Puts the legend above the axes, where it hides nothing, and a title above that."""
    shape = {"handlelength": 1.6, "columnspacing": 1.2, "borderaxespad": 0.3}
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
    above = ax.legend(fontsize=SMALL, frameon=False, ncols=ncols, **(shape | place | options))
    if title:
        height = 72 * above.get_window_extent().height / ax.figure.dpi
        ax.set_title(title, fontsize=LABEL, pad=height + 5)
    return ax


def legend_lines(names: Sequence[str], more: int) -> int:
    """Lines of a legend in two columns, beyond the first, for named curves and more entries."""
    entries = len(names) if len(names) <= len(COLOURS) else FEW_CURVES + 1
    return max(0, -(-(entries + more) // 2) - 1)


def square(ax: Axes, across: str, upwards: str, title: str) -> Axes:
    """Finishes axes of shares, from 0 to 1 both ways: their labels, a legend and a title."""
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel=across, ylabel=upwards)
    return legend(ax, title=title)


def curve_styles(lines: np.ndarray, ideal: np.ndarray) -> dict[int, dict[str, Any]]:
    """Colour and line style of curves (j, g): all of few, of many the farthest from the ideal."""
    few = len(lines) <= len(COLOURS)
    chosen = farthest(lines, ideal, len(lines) if few else FEW_CURVES)
    return {j: {"color": COLOURS[i], "ls": STYLES[i % len(STYLES)]} for i, j in enumerate(chosen)}


def curves(
    ax: Axes, grid: np.ndarray, lines: np.ndarray, names: Sequence[str], ideal: np.ndarray
) -> None:
    """Draws curves (j, g) over a grid (g,), each with a colour and a name of its own.

    Of more than six, the four farthest from the ideal (g,) have one, and the others share a grey.
    """
    styles = curve_styles(lines, ideal)
    others = [j for j in range(len(lines)) if j not in styles]
    for i, j in enumerate(others):
        label = None if i else f"{len(others)} nearer to the ideal"
        ax.plot(grid, lines[j], color=BAND, lw=0.6, label=label)
    for j, style in styles.items():
        ax.plot(grid, lines[j], lw=1.4, label=display_name(names[j]), **style)

"""Axes of one column's width, and what several pictures have in common: curves and legends."""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from .._support.inputs import check_kind
from ._numbers import farthest
from ._style import BAND, COLOURS, ENVELOPE, LABEL, SMALL, STYLES, WIDTH, display_name

# The height of one line of a legend beyond the first, in inches.
LINE = 0.15
# Curves with a colour of their own where there are more curves than colours, and with intervals.
FEW_CURVES, MOST_INTERVALS = 4, 3


def axes(ax: Axes | None, height: float, entries: int = 0, names: Sequence[str] = ()) -> Axes:
    """The axes given, or new ones as wide as a column, below a legend of entries and of curves."""
    if ax is not None:
        check_kind("ax", ax, "matplotlib's Axes", Axes)
        return ax
    entries += len(names) if len(names) <= len(COLOURS) else FEW_CURVES + 1
    size = (WIDTH, height + LINE * max(0, -(-entries // 2) - 1))
    new = plt.subplots(figsize=size, layout="constrained")[1]
    new.locator_params(nbins=6)
    return small(new)


def panels(ax: Any, count: int, height: float, across: int) -> np.ndarray:
    """The axes (count,) given, or new ones, so many beside each other in rows of that height."""
    if ax is not None:
        given = np.asarray(ax, dtype=object).ravel()
        if len(given) != count:
            raise ValueError(f"ax: expected {count} axes, one for each panel; got {len(given)}.")
        for each in given:
            check_kind("ax", each, "matplotlib's Axes", Axes)
        return given
    across = min(across, count)
    rows = -(-count // across)
    size = (WIDTH if across <= 2 else 2 * WIDTH + 0.2, height * rows)
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
    """The axes, with a legend above them, where it hides nothing, and a title above that."""
    shape = {"handlelength": 1.6, "columnspacing": 1.2, "borderaxespad": 0.3}
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
    above = ax.legend(fontsize=SMALL, frameon=False, ncols=ncols, **(shape | place | options))
    if title:
        height = 72 * above.get_window_extent().height / ax.figure.dpi
        ax.set_title(title, fontsize=LABEL, pad=height + 5)
    return ax


def null_bands(
    ax: Axes, grid: np.ndarray, alpha: float, whole: Any, each: Any = None, **options: Any
) -> None:
    """Draws the ends (2, g) of the band that holds a whole curve, and those at each level."""
    for ends, words, colour in ((whole, "whole curve", ENVELOPE), (each, "each level", BAND)):
        if ends is not None:
            label = f"{100 * (1 - alpha):g} % null, {words}"
            ax.fill_between(grid, *ends, color=colour, lw=0, label=label, **options)


def curves(
    ax: Axes,
    grid: np.ndarray,
    lines: np.ndarray,
    names: Sequence[str],
    ideal: np.ndarray,
    intervals: tuple[np.ndarray, np.ndarray, str] | None = None,
) -> None:
    """Draws curves (j, g) over a grid (g,), each with a colour and a name of its own.

    Of more than six, the four farthest from the ideal (g,) have one, and the others share a grey.
    The farthest three have their pointwise intervals: lower and upper ends (j, g), and a name.
    """
    some = farthest(lines, ideal, len(lines) if len(lines) <= len(COLOURS) else FEW_CURVES)
    if intervals is not None:
        lower, upper, words = intervals
        chosen = farthest(lines, ideal, MOST_INTERVALS)
        words += ", each level" if len(chosen) == len(lines) else ", farthest curves"
        for j in chosen:
            style: dict[str, Any] = {"color": COLOURS[some.index(j)], "alpha": 0.2, "lw": 0}
            style |= {"label": words if j == chosen[0] else None}
            ax.fill_between(grid, lower[j], upper[j], **style)
    others = [j for j in range(len(lines)) if j not in some]
    for j in others:
        label = f"{len(others)} nearer to the ideal" if j == others[0] else None
        ax.plot(grid, lines[j], color=BAND, lw=0.6, label=label)
    for i, j in enumerate(some):
        style = {"color": COLOURS[i], "ls": STYLES[i % len(STYLES)], "lw": 1.4}
        ax.plot(grid, lines[j], label=display_name(names[j]), **style)


def smallest_pvalue(adjusted: np.ndarray, names: Sequence[str]) -> str:
    """The p-value of one curve, or the smallest of several (j,) with the name of its curve."""
    j = int(np.argmin(adjusted))
    if len(names) == 1:
        return f"p = {adjusted[j]:.3g}"
    return f"smallest corrected p = {adjusted[j]:.3g} ({display_name(names[j], 16)})"

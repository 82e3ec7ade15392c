"""What all pictures share: one column's width, a palette that every eye can read, plain words.

Colours are those of Okabe and Ito 2008, *Color Universal Design*, and greys that print; where more
than one curve is drawn, line styles tell them apart as well.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from ._shapes import MOST_CURVES, farthest

# The width of one column of a journal, in inches, and the sizes of words in it, in points.
WIDTH = 3.4
LABEL, SMALL = 8, 7
# The height of one line of a legend, in inches.
LINE = 0.15

CURVE, BAND, ENVELOPE, INK = "#D55E00", "#9a9a9a", "#d9d9d9", "#333333"
GREEN = "#009E73"
COLOURS = (CURVE, "#0072B2", GREEN, "#CC79A7", "#56B4E9", "#E69F00")
STYLES = ("-", "--", ":", "-.")


def axes(ax: Axes | None, height: float, lines: int = 0) -> Axes:
    """The axes given, or else new ones of one column's width.

    A new figure has a height in inches, and is higher by the lines of the legend above it.
    """
    if ax is not None:
        return ax
    new = plt.subplots(figsize=(WIDTH, height + LINE * lines), layout="constrained")[1]
    new.tick_params(labelsize=SMALL)
    new.locator_params(nbins=6)
    for axis in (new.xaxis, new.yaxis):
        axis.label.set_fontsize(LABEL)
    return new


def legend(ax: Axes, ncols: int = 2, **options: Any) -> Axes:
    """Puts the legend above the axes, where it hides nothing, and returns these."""
    shape = {"handlelength": 1.6, "columnspacing": 1.2, "borderaxespad": 0.3}
    place = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0)}
    ax.legend(fontsize=SMALL, frameon=False, ncols=ncols, **(shape | place | options))
    return ax


def diagonal(ax: Axes, label: str) -> None:
    """Draws where curves would lie if all were right."""
    ax.plot([0, 1], [0, 1], color=INK, lw=0.8, ls="--", label=label)


def square(ax: Axes, across: str, upwards: str) -> Axes:
    """Makes axes of shares, from 0 to 1 both ways, with their names and a legend."""
    ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel=across, ylabel=upwards)
    return legend(ax)


def open_corner(ax: Axes) -> None:
    """Leaves out the lines above the axes and to their right."""
    ax.spines[["top", "right"]].set_visible(False)


def style(j: int) -> dict[str, Any]:
    """Colour and line style of the j-th curve."""
    turn, colour = divmod(j, len(COLOURS))
    return {"color": COLOURS[colour], "ls": STYLES[turn % len(STYLES)]}


def curves(
    ax: Axes, grid: np.ndarray, lines: np.ndarray, names: Sequence[str], ideal: np.ndarray
) -> None:
    """Draws curves (j, g) over a grid (g,), each with a colour and a name of its own.

    Of more than twelve, those farthest from the ideal (g,) have one, and the others share a grey.
    """
    named = farthest(lines, ideal)
    others = [j for j in range(len(lines)) if j not in named]
    for i, j in enumerate(others):
        label = None if i else f"{len(others)} nearer to the ideal"
        ax.plot(grid, lines[j], color=BAND, lw=0.6, label=label)
    for i, j in enumerate(named):
        ax.plot(grid, lines[j], lw=1.4, label=plain(names[j]), **style(i))


def rows_of(names: Sequence[str], more: int) -> int:
    """Lines of a legend in two columns with so many names, and some more, beyond the second."""
    entries = min(len(names), MOST_CURVES) + (len(names) > MOST_CURVES) + more
    return max(0, -(-entries // 2) - 2)


def plain(name: str) -> str:
    """A name that is shown as it is written: no mathematics, and none left out of legends.

    Example:
        >>> len(plain("$x_1$"))  # two dollars are escaped
        7
    """
    # Legends leave out what begins with an underscore.
    shown = str(name).replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown


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


def check_level(alpha: float) -> None:
    """Refuses what is no level of a test."""
    if not 0 < alpha < 1:
        raise ValueError(f"alpha: expected a number between 0 and 1; got {alpha}.")


def only_one(array: np.ndarray, axis: int) -> None:
    """Refuses many observations: an array that has `axis` axes for one has one more for many."""
    if array.ndim != axis:
        raise ValueError(
            f"result: expected one observation; got {len(array)}. "
            "Call the test with one x_o, without a leading axis."
        )

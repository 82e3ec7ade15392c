r"""The pair plot of draws of q, coloured by the class probability (Figure 4 of the paper).

For the Bayes classifier the probability of class 1, of true parameters, is :math:`d = p / (p + q)`
at x_o: above 1/2 q has too little mass, below 1/2 too much. Bars and squares have the colour of
the mean of d over the draws in them, and are as large as there are draws.
"""

import math
import re
from collections.abc import Sequence
from itertools import combinations_with_replacement, product
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import scipy.ndimage
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.ticker import MaxNLocator

from .._support.inputs import as_tensors, check_finite, check_kind, check_names
from ..local.lc2st import LC2STResult
from ._canvas import axes
from ._numbers import one_observation
from ._style import CLASS_1, COLOURS, CURVE, SMALL, WIDTH, clip, display_name, is_math

# From vermilion, too much of q as in the paper, over grey to blue: every eye can see both sides.
SCALE = ("#6e2f00", CURVE, "#d4d4d4", COLOURS[1], "#003a5c")
MASS = LinearSegmentedColormap.from_list("mass", SCALE)
TOO_MUCH, TOO_LITTLE = "q has too much\nmass here", "q has too little\nmass here"
# The quantiles of draws or marks at which axes end; reference draws from which on there are
# contours; parameters that are drawn, at most.
INSIDE, CONTOURED, MOST_PARAMETERS = (0.005, 0.995), 100, 12
# Inches: the head with the colour bar, numbers at an axis, a line of a name, a letter, a digit.
HEAD, NUMBERS, ROW, LETTER, DIGIT = 0.75, 0.3, 0.12, 0.057, 0.055
# Words of a name, with what they end in, and with mathematics between them.
WORD, MATH = r"[^\s_./-]*[\s_./-]?", r"\$[^$]*\$|[^\s_./$-]*[\s_./-]?"
# How marks are drawn.
LINE: dict[str, Any] = {"color": "black", "lw": 0.9}
DOTS: dict[str, Any] = {"color": "black", "ls": "", "marker": "o", "ms": 2, "mew": 0}
STAR: dict[str, Any] = {**DOTS, "marker": "*", "ms": 9, "mec": "white", "mew": 0.7}


def pairs(
    result: LC2STResult,
    ax: Axes | None = None,
    marks: Any = None,
    names: Sequence[str] | None = None,
) -> np.ndarray:
    """Draws where q has too much and too little mass at one observation.

    Where squares or bars are grey, q is about right, or the classifier blind. Draws beyond the
    outermost bins are counted in them. Latents are drawn where the result has no parameters; of
    more than 12 parameters those on which the classifier's probabilities depend most. Marks are
    the true parameters (m,), or reference draws (r, m) of the true posterior. The panels fill
    ``ax``, which is itself switched off; new axes have two columns' width for five parameters and
    more. Returns the axes of the panels (m, m), with None above the diagonal.
    """
    check_kind("result", result, "that of a local test such as lc2st", "probabilities", "draws")
    result = one_observation(result)
    theta, kind = (result.draws, "latent") if result.theta is None else (result.theta, "theta")
    m, d = theta.shape[1], result.probabilities  # (s,), of draws (s, m)
    given = tuple(f"{kind}[{j}]" for j in range(m)) if names is None else names
    names, marked = check_names("names", given, m), np.empty((0, m))
    if marks is not None:
        rows = as_tensors({"marks": marks})["marks"]
        if rows.ndim not in (1, 2) or rows.shape[-1] != m:
            raise ValueError(
                f"marks: expected true parameters with shape ({m},) or reference draws with shape "
                f"(r, {m}); got {tuple(rows.shape)}."
            )
        check_finite("marks", rows)
        marked = rows.reshape(-1, m).double().cpu().numpy()
    if m > MOST_PARAMETERS:
        # Those whose values or squares vary most with d.
        z = (theta - theta.mean(0)) / np.maximum(theta.std(0), 1e-300)
        dependence = np.abs([(d - d.mean()) @ part for part in (z, z**2 - 1)]).max(0)
        some = np.sort(np.argsort(-dependence, kind="stable")[:MOST_PARAMETERS])
        theta, marked, names = theta[:, some], marked[:, some], [names[j] for j in some]
    columns = np.asarray(theta.T, float)
    edges = [_edges(column) for column in columns]
    cells: dict[tuple[int, ...], Any] = {}  # counts and mean d of panels, by row and column
    for j, i in combinations_with_replacement(range(len(edges)), 2):
        both = [i, j] if i > j else [j]
        cells[i, j] = _mean_probabilities(d, columns[both], [edges[k] for k in both])
    scale = _colour_scale([cell for (i, j), cell in cells.items() if i > j] or [cells[0, 0]])
    host, grid = _panels(ax, names, edges, marked)
    for (i, j), (counts, means) in cells.items():
        colours = MASS(scale(means))
        if i > j:
            _squares(grid[i, j], edges[i], edges[j], counts, colours)
        else:
            shape: dict[str, Any] = {"align": "edge", "color": colours, "lw": 0}
            grid[j, j].bar(edges[j][:-1], counts, np.diff(edges[j]), **shape)
            grid[j, j].set_ylim(0, 1.08 * counts.max())
    if len(marked):
        _mark(host, grid, edges, marked, len(d))
    _colour_bar(host, scale, f"p = {float(result.pvalue):.3g}")
    return grid


def _edges(column: np.ndarray) -> np.ndarray:
    """Edges (b + 1,) of 6 to 24 equal bins that hold nearly all draws (s,) of a parameter."""
    low, high = np.quantile(column, INSIDE)
    low, high = (low, high) if low < high else (column.min(), column.max())
    half = 0.0 if low < high else 0.05 * max(abs(low), 1.0)
    b = int(np.clip(round(2 * len(column) ** (1 / 3)), 6, 24))
    return np.linspace(low - half, high + half, b + 1)


def _ends(edges: np.ndarray, marked: np.ndarray) -> tuple[float, float]:
    """Where all bins and nearly all marks (r,) end."""
    ends = np.quantile(marked, INSIDE) if len(marked) else edges[[0, -1]]
    return float(min(edges[0], ends[0])), float(max(edges[-1], ends[1]))


def _mean_probabilities(
    d: np.ndarray, columns: np.ndarray, edges: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Counts of draws (1, s) or (2, s) in bins, and their mean d (s,); 1/2 if there is none."""
    inside = [column.clip(own[0], own[-1]) for column, own in zip(columns, edges, strict=True)]
    counts, sums = (np.histogramdd(inside, edges, weights=w)[0] for w in (None, d - 0.5))
    return counts, 0.5 + sums / np.maximum(counts, 1)


def _colour_scale(cells: list[tuple[np.ndarray, np.ndarray]]) -> Normalize:
    """A range of colours, symmetric around 1/2, that holds the cells of 99 % of the draws."""
    counts = np.concatenate([counts.ravel() for counts, _ in cells])
    distances = np.concatenate([np.abs(means - 0.5).ravel() for _, means in cells])
    order = distances.argsort()
    share = counts[order].cumsum() / counts.sum()
    half = np.clip(distances[order][np.searchsorted(share, 0.99)], 0.001, 0.5)
    # The next larger number that is easily read.
    steps = 10.0 ** np.floor(np.log10(half)) * np.array([1, 1.5, 2, 3, 4, 5, 6, 8, 10])
    half = min(0.5, steps[steps >= half * (1 - 1e-9)][0])
    return Normalize(0.5 - half, 0.5 + half)


def _panels(
    ax: Axes | None, names: Sequence[str], edges: list[np.ndarray], marked: np.ndarray
) -> tuple[Axes, np.ndarray]:
    """Axes that are switched off, and in them panels with names, for all bins and most marks."""
    m = len(names)
    if ax is None:
        width = WIDTH if m <= 4 else 2 * WIDTH + 0.2
        size = (width, 2.6 if m == 1 else width + HEAD - 0.1)
        ax = plt.figure(figsize=size).add_axes((0.0, 0.0, 1.0, 1.0))
    host = axes(ax, 0)
    host.set_axis_off()
    width, height = np.divide(host.get_window_extent().size, host.figure.dpi)
    letters = max(4, int((min(width, height) - 1) / m / LETTER))
    labels = [_wrap(clip(name, 3 * letters), letters) for name in names]
    foot = NUMBERS + ROW * max(label.count("\n") + 1 for label in labels) + 0.04
    labels = [display_name(label, len(label)) for label in labels]
    left = foot if m > 1 else 0.1
    w, h = (width - left - 0.08) / m / width, (height - HEAD - foot) / m / height
    panel_width, panel_height = 0.92 * w * width, 0.92 * h * height
    legible = min(panel_width, panel_height) >= 0.45
    ends = [_ends(own, column) for own, column in zip(edges, marked.T, strict=True)]
    ranges = [(a - 0.04 * (b - a), b + 0.04 * (b - a)) for a, b in ends]
    numbers = [_ticks(*own, panel_width) for own in ranges]
    grid = np.full((m, m), None, dtype=object)
    for j, i in combinations_with_replacement(range(m), 2):
        corner = (left / width + j * w, foot / height + (m - 1 - i) * h)
        panel = grid[i, j] = host.inset_axes((*corner, 0.92 * w, 0.92 * h))
        ticks: dict[str, Any] = {"labelsize": SMALL - 1, "length": 2, "pad": 1.5}
        ticks |= {"labelbottom": i == m - 1 and legible, "labelleft": j == 0 and legible}
        panel.set(xlim=ranges[j], xticks=numbers[j])
        panel.tick_params(**ticks)
        if i == j:
            panel.set_yticks([])
            panel.spines[["left", "top", "right"]].set_visible(False)
        else:
            panel.set_ylim(*ranges[i])
            panel.locator_params(axis="y", nbins=3)
        if i == m - 1:
            panel.set_xlabel(labels[j], fontsize=SMALL)
        if i > j == 0:
            panel.set_ylabel(labels[i], fontsize=SMALL)
            panel.yaxis.set_label_coords(-NUMBERS / panel_width, 0.5)
    return host, grid


def _wrap(name: str, letters: int) -> str:
    """A name in lines of at most so many letters, broken behind words but not in mathematics."""
    lines, math = [""], is_math(name)
    for word in re.findall(MATH if math else WORD, name):
        size = len(word) if math and "$" in word else letters
        for piece in (word[i : i + size] for i in range(0, len(word), size)):
            fits = not lines[-1] or len(lines[-1] + piece.rstrip()) <= letters
            lines = [*lines[:-1], lines[-1] + piece] if fits else [*lines, piece]
    return "\n".join(lines)


def _ticks(low: float, high: float, width: float) -> np.ndarray:
    """Numbers of an axis: the most, of round ones, that neither touch nor leave their panel."""
    best = np.array([])
    for count, start, step in product((3, 5, 2, 1), (0, 1), (1, 2)):
        locator = MaxNLocator(count, steps=[1, 2, 2.5, 5, 10], min_n_ticks=1)
        ticks = np.array(locator.tick_values(low, high))[start::step]
        # All have as many digits as the longest.
        size = DIGIT * max(len(f"{v:g}") for v in ticks.round(12))
        at = width * (ticks - low) / (high - low)
        inside = (at >= size / 2) & (at <= width - size / 2)
        apart = np.diff(at[inside]).min(initial=np.inf) >= size + DIGIT
        if apart and inside.sum() > len(best):
            best = ticks[inside]
    return best if len(best) else ticks[[np.abs(at - width / 2).argmin()]]


def _squares(
    panel: Axes, up: np.ndarray, across: np.ndarray, counts: np.ndarray, colours: np.ndarray
) -> None:
    """Draws a square in each bin (b, b) with draws, as large as there are draws in it."""
    i, j = np.nonzero(counts)
    side = np.clip(np.sqrt(counts[i, j] / np.quantile(counts[i, j], 0.95)), 0.3, 1)
    size = np.array([across[1] - across[0], up[1] - up[0]])
    centres = np.stack([across[j], up[i]], 1) + 0.5 * size
    corners = 0.5 * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    squares = centres[:, None] + side[:, None, None] * size * corners
    panel.add_collection(PolyCollection(squares, facecolors=colours[i, j], lw=0))


def _mark(
    host: Axes, grid: np.ndarray, edges: list[np.ndarray], marked: np.ndarray, s: int
) -> None:
    """Draws true parameters (1, m) or reference draws (r, m) over s draws of q, with a legend."""
    r, m = marked.shape
    label, style = ("true parameters", STAR) if r == 1 else ("reference draws", DOTS)
    if r >= CONTOURED and m > 1:
        label = "reference, 50 and 90 %"
    for j, i in combinations_with_replacement(range(m), 2):
        panel, x, y = grid[i, j], marked[:, j], marked[:, i]
        if i > j and r >= CONTOURED:
            # With empty bins at all ends, so that contours close.
            _contours(panel, x, y, [_wider(edges[j], x, 2), _wider(edges[i], y, 2)])
        elif i > j:
            panel.plot(x, y, **style)
        elif r == 1:
            panel.axvline(x[0], **LINE)
        else:
            # A histogram as if there were as many of them as draws of q, in bins of theirs.
            counts, wider = np.histogram(x, _wider(edges[j], x))
            heights = counts * s / r * (edges[j][1] - edges[j][0]) / (wider[1] - wider[0])
            panel.stairs(heights, wider, **LINE)
            panel.set_ylim(0, max(panel.get_ylim()[1], 1.08 * heights.max()))
    shape: dict[str, Any] = {"fontsize": SMALL, "frameon": False, "borderaxespad": 0.1}
    height = host.get_window_extent().height / host.figure.dpi
    shape |= {"loc": "upper right", "bbox_to_anchor": (1.0, 1 - HEAD / height)}
    style = LINE if m == 1 or r >= CONTOURED else style
    host.legend(handles=host.plot([], [], label=label, **style), **shape)


def _wider(edges: np.ndarray, marked: np.ndarray, more: int = 0) -> np.ndarray:
    """Edges of these bins, of others that nearly all marks (r,) need, and some more."""
    (low, high), size = _ends(edges, marked), float(edges[1] - edges[0])
    size *= math.ceil((high - low) / size / 500)  # where they are too many, all are larger
    below = math.ceil((edges[0] - low) / size) + more
    above = math.ceil((high - edges[0]) / size - 1e-9) + more
    return np.asarray(edges[0] + size * np.arange(-below, above + 1))


def _contours(panel: Axes, x: np.ndarray, y: np.ndarray, edges: list[np.ndarray]) -> None:
    """Draws contours that hold 50 and 90 % of reference draws, whose coordinates are (r,)."""
    counts, _, _ = np.histogram2d(x, y, edges)
    density = scipy.ndimage.gaussian_filter(counts.T, 1.0, mode="constant")
    falling = np.sort(density, axis=None)[::-1]
    held = np.searchsorted(falling.cumsum() / falling.sum(), [0.9, 0.5])
    centres = [0.5 * (own[1:] + own[:-1]) for own in edges]
    style: dict[str, Any] = {"colors": "black", "linewidths": LINE["lw"]}
    panel.contour(*centres, density, levels=np.unique(falling[held]), **style)


def _colour_bar(host: Axes, scale: Normalize, title: str) -> None:
    """Draws the scale of all panels, with what its ends mean, and a title above it."""
    width, height = np.divide(host.get_window_extent().size, host.figure.dpi)
    long = min(2.4, width - 2 * 0.96)  # beside the words
    left, low = 0.5 * (width - long) / width, 1 - 0.46 / height
    inner = host.inset_axes((left, low, long / width, 0.1 / height))
    colours = ScalarMappable(scale, MASS)
    ends = "neither" if scale.vmax == 1 else "both"
    bar = host.figure.colorbar(colours, cax=inner, orientation="horizontal", extend=ends)
    ticks = [float(v) for v in np.linspace(*colours.get_clim(), 3)]
    bar.set_ticks(ticks, labels=[f"{tick:.4g}" for tick in ticks])
    bar.outline.set_visible(False)
    inner.tick_params(labelsize=SMALL - 1, length=2, pad=1.5)
    inner.set_title(f"{title}\n{CLASS_1}", fontsize=SMALL, pad=2.5)
    words: dict[str, Any] = {"fontsize": SMALL, "va": "center", "transform": host.transAxes}
    gap, middle = 0.1 / width, low + 0.05 / height
    host.text(left - gap, middle, TOO_MUCH, ha="right", color=MASS(0.2), **words)
    host.text(1 - left + gap, middle, TOO_LITTLE, ha="left", color=MASS(0.8), **words)

r"""The pair plot of draws of q, coloured by the class probability (Figure 4 of the paper).

At an observation x_o the probability of class 1, of true parameters, is :math:`d = p / (p + q)`
for the Bayes classifier: above 1/2 q has too little mass, below 1/2 too much. Every bar and every
square has the colour of the mean of d over the draws in it, on one scale for all panels, symmetric
around 1/2; bars are as high and squares as large as there are draws.
"""

import math
import re
from collections.abc import Sequence
from itertools import combinations, combinations_with_replacement, product
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
from ._style import CLASS_1, COLOURS, CURVE, SMALL, WIDTH, clip, escape, is_math

# From vermilion, too much of q as in the paper, over grey to blue: every eye can see both sides,
# and what lies at 1/2 too.
SCALE = ("#6e2f00", CURVE, "#d4d4d4", COLOURS[1], "#003a5c")
MASS = LinearSegmentedColormap.from_list("mass", SCALE)
TOO_MUCH, TOO_LITTLE = "q has too much\nmass here", "q has too little\nmass here"
# The largest half range of the colours; the quantiles of draws or marks at which axes end.
MOST, INSIDE = 0.5, (0.005, 0.995)
# Reference draws from which on there are contours; parameters that are drawn, at most.
FEW, MOST_PARAMETERS = 100, 12
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

    One panel for each parameter, on the diagonal, and for each pair, below it. The few draws
    beyond the outermost bins are counted in them. Where squares or bars are grey, q is about
    right, or the classifier blind. Latents are drawn where the result has no parameters. Of more
    than 12 parameters those are drawn on which the classifier's probabilities depend most.

    The panels fill ``ax``, which is itself switched off; new axes have two columns' width for five
    parameters and more. Marks are the true parameters (m,), or reference draws (r, m) of the true
    posterior. Returns the axes of the panels (m, m), with None above the diagonal.

    Example:
        >>> theta, noise, q = torch.randn(3, 200, 2, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> test = assay.lc2st(assay.Calibration(theta, x, x / 2 + q), assay.Ridge())
        >>> result = test(assay.Draws([0.0, 0.0], 1.1 * q))
        >>> pairs(result, marks=[0.1, -0.2], names=("mass", "spin")).shape
        (2, 2)
    """
    check_kind("result", result, "that of a local test such as lc2st", "probabilities", "draws")
    result = one_observation(result)
    theta, kind = (result.draws, "latent") if result.theta is None else (result.theta, "theta")
    m, d = theta.shape[1], result.probabilities
    given = tuple(f"{kind}[{j}]" for j in range(m)) if names is None else names
    names, marked = check_names("names", given, m), _marks(marks, m)
    if m > MOST_PARAMETERS:
        some = _most_dependent(theta, d)
        theta, marked, names = theta[:, some], marked[:, some], [names[j] for j in some]
    columns = np.asarray(theta.T, float)
    edges = [_edges(column) for column in columns]
    alone = [_mean_probabilities(d, columns[[j]], e) for j, e in enumerate(edges)]
    below = [(i, j) for j, i in combinations(range(len(edges)), 2)]
    paired = [_mean_probabilities(d, columns[[i, j]], edges[i], edges[j]) for i, j in below]
    scale = _colour_scale(paired or alone)
    host, grid = _panels(ax, names)
    for (i, j), (counts, means) in zip(below, paired, strict=True):
        _squares(grid[i, j], edges[i], edges[j], counts, MASS(scale(means)))
    for panel, own, (counts, means) in zip(np.diag(grid), edges, alone, strict=True):
        panel.bar(_centres(own), counts, own[1] - own[0], color=MASS(scale(means)), lw=0)
        panel.set_ylim(0, 1.08 * counts.max())
    _set_ranges(grid, edges, marked)
    if len(marked):
        _mark(host, grid, edges, marked, len(d))
    _colour_bar(host, scale, f"p = {float(result.pvalue):.3g}")
    return grid


def _marks(marks: Any, m: int) -> np.ndarray:
    """Marks with shape (r, m); none if None."""
    if marks is None:
        return np.empty((0, m))
    given = as_tensors({"marks": marks})["marks"]
    if given.ndim not in (1, 2) or given.shape[-1] != m:
        raise ValueError(
            f"marks: expected true parameters with shape ({m},) or reference draws with shape "
            f"(r, {m}); got {tuple(given.shape)}."
        )
    check_finite("marks", given)
    return np.asarray(given.reshape(-1, m).double().cpu().numpy())


def _most_dependent(theta: np.ndarray, d: np.ndarray) -> np.ndarray:
    """The parameters of draws (s, m) whose values or squares vary most with d (s,)."""
    z = (theta - theta.mean(0)) / np.maximum(theta.std(0), 1e-300)
    dependence = np.abs([(d - d.mean()) @ part for part in (z, z**2 - 1)]).max(0)
    return np.sort(np.argsort(-dependence, kind="stable")[:MOST_PARAMETERS])


def _edges(column: np.ndarray) -> np.ndarray:
    """Edges (b + 1,) of 6 to 24 equal bins that hold nearly all draws (s,) of a parameter."""
    low, high = np.quantile(column, INSIDE)
    low, high = (low, high) if low < high else (column.min(), column.max())
    half = 0.0 if low < high else 0.05 * max(abs(low), 1.0)
    b = int(np.clip(round(2 * len(column) ** (1 / 3)), 6, 24))
    return np.linspace(low - half, high + half, b + 1)


def _centres(edges: np.ndarray) -> np.ndarray:
    return 0.5 * (edges[1:] + edges[:-1])


def _ends(edges: np.ndarray, marked: np.ndarray) -> tuple[float, float]:
    """Where all bins and nearly all marks (r,) end."""
    ends = np.quantile(marked, INSIDE) if len(marked) else edges[[0, -1]]
    return float(min(edges[0], ends[0])), float(max(edges[-1], ends[1]))


def _mean_probabilities(
    d: np.ndarray, columns: np.ndarray, *edges: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Counts of draws (1, s) or (2, s) in their bins, and their mean d; 1/2 where there are none.

    Draws beyond the outermost bins count in these.
    """
    shape = tuple(len(each) - 1 for each in edges)
    bins = [np.searchsorted(e, c, "right") - 1 for e, c in zip(edges, columns, strict=True)]
    which = np.ravel_multi_index(bins, shape, mode="clip")
    counts = np.bincount(which, minlength=math.prod(shape))
    means = 0.5 + np.bincount(which, d - 0.5, minlength=math.prod(shape)) / np.maximum(counts, 1)
    return counts.reshape(shape), means.reshape(shape)


def _colour_scale(cells: list[tuple[np.ndarray, np.ndarray]]) -> Normalize:
    """A range of colours, symmetric around 1/2, that holds the cells of 99 % of the draws."""
    counts = np.concatenate([counts.ravel() for counts, _ in cells])
    distances = np.concatenate([np.abs(means - 0.5).ravel() for _, means in cells])
    order = distances.argsort()
    share = counts[order].cumsum() / counts.sum()
    half = min(max(float(distances[order][np.searchsorted(share, 0.99)]), 0.001), MOST)
    # The next larger number that is easily read.
    decade, steps = 10.0 ** math.floor(math.log10(half)), (1, 1.5, 2, 3, 4, 5, 6, 8, 10)
    half = min(MOST, next(s * decade for s in steps if s * decade >= half * (1 - 1e-9)))
    return Normalize(0.5 - half, 0.5 + half)


def _inches(ax: Axes) -> tuple[float, float]:
    """Width and height of axes."""
    box = ax.get_window_extent()
    return float(box.width / ax.figure.dpi), float(box.height / ax.figure.dpi)


def _panels(ax: Axes | None, names: Sequence[str]) -> tuple[Axes, np.ndarray]:
    """Axes that are switched off, and in them those on and below the diagonal, with names."""
    m = len(names)
    if ax is None:
        width = WIDTH if m <= 4 else 2 * WIDTH + 0.2
        height = 2.6 if m == 1 else width + HEAD - 0.1
        ax = plt.figure(figsize=(width, height)).add_axes((0.0, 0.0, 1.0, 1.0))
    host = axes(ax, 0)
    host.set_axis_off()
    width, height = _inches(host)
    letters = max(4, int((min(width, height) - 1) / m / LETTER))
    labels = [_wrap(clip(name, 3 * letters), letters) for name in names]
    room = NUMBERS + ROW * max(label.count("\n") + 1 for label in labels) + 0.04
    left = room if m > 1 else 0.1
    w, h = (width - left - 0.08) / m / width, (height - HEAD - room) / m / height
    grid = np.full((m, m), None, dtype=object)
    for j, i in combinations_with_replacement(range(m), 2):
        corner = (left / width + j * w, room / height + (m - 1 - i) * h)
        grid[i, j] = host.inset_axes((*corner, 0.92 * w, 0.92 * h))
    for j, label in enumerate(labels):
        grid[-1, j].set_xlabel(escape(label), fontsize=SMALL)
        if j:
            grid[j, 0].set_ylabel(escape(label), fontsize=SMALL)
            grid[j, 0].yaxis.set_label_coords(-NUMBERS / _inches(grid[j, 0])[0], 0.5)
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


def _squares(
    panel: Axes, up: np.ndarray, across: np.ndarray, counts: np.ndarray, colours: np.ndarray
) -> None:
    """Draws a square in each bin (b, b) with draws, as large as there are draws in it."""
    i, j = np.nonzero(counts)
    side = np.clip(np.sqrt(counts[i, j] / np.quantile(counts[i, j], 0.95)), 0.3, 1)
    corners = 0.5 * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    sizes = side[:, None, None] * np.array([across[1] - across[0], up[1] - up[0]])
    centres = np.stack([_centres(across)[j], _centres(up)[i]], 1)
    squares = centres[:, None] + sizes * corners
    panel.add_collection(PolyCollection(squares, facecolors=colours[i, j], lw=0))


def _set_ranges(grid: np.ndarray, edges: list[np.ndarray], marked: np.ndarray) -> None:
    """Sets ranges that hold all bins and nearly all marks, with numbers at outer axes alone."""
    ranges = []
    for own, column in zip(edges, marked.T, strict=True):
        low, high = _ends(own, column)
        margin = 0.04 * (high - low)
        ranges.append((low - margin, high + margin))
    m, legible = len(grid), min(_inches(grid[-1, 0])) >= 0.45
    ticks = [_ticks(*ranges[j], _inches(grid[-1, j])[0]) for j in range(m)]
    for j, i in combinations_with_replacement(range(m), 2):
        panel = grid[i, j]
        panel.set_xlim(*ranges[j])
        panel.set_xticks(ticks[j])
        panel.tick_params(labelsize=SMALL - 1, length=2, pad=1.5)
        panel.tick_params(labelbottom=i == m - 1 and legible)
        if i == j:
            panel.set_yticks([])
            panel.spines[["left", "top", "right"]].set_visible(False)
        else:
            panel.set_ylim(*ranges[i])
            panel.locator_params(axis="y", nbins=3)
            panel.tick_params(labelleft=j == 0 and legible)


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


def _mark(
    host: Axes, grid: np.ndarray, edges: list[np.ndarray], marked: np.ndarray, s: int
) -> None:
    """Draws true parameters (1, m) or reference draws (r, m) over s draws of q, with a legend."""
    r, m = marked.shape
    for j, panel in enumerate(np.diag(grid)):
        if r == 1:
            panel.axvline(marked[0, j], **LINE)
        else:
            _outline(panel, edges[j], marked[:, j], s)
    for j, i in combinations(range(m), 2):
        if r < FEW:
            grid[i, j].plot(marked[:, j], marked[:, i], **(STAR if r == 1 else DOTS))
        else:
            _contours(grid[i, j], edges[i], edges[j], marked[:, i], marked[:, j])
    label = "reference draws" if m == 1 or r < FEW else "reference, 50 and 90 %"
    label = "true parameters" if r == 1 else label
    style = LINE if m == 1 or r >= FEW else STAR if r == 1 else DOTS
    (handle,) = host.plot([], [], label=label, **style)
    place: dict[str, Any] = {"bbox_to_anchor": (1.0, 1 - HEAD / _inches(host)[1])}
    shape: dict[str, Any] = {"fontsize": SMALL, "frameon": False, "borderaxespad": 0.1}
    host.legend(handles=[handle], loc="upper right", **place, **shape)


def _outline(panel: Axes, edges: np.ndarray, marked: np.ndarray, s: int) -> None:
    """Draws a histogram of reference draws (r,) over that of q, as if there were s of them."""
    counts, wider = np.histogram(marked, _wider(edges, marked))
    heights = counts * s / len(marked) * (edges[1] - edges[0]) / (wider[1] - wider[0])
    panel.stairs(heights, wider, **LINE)
    panel.set_ylim(0, max(panel.get_ylim()[1], 1.08 * heights.max()))


def _contours(
    panel: Axes, up: np.ndarray, across: np.ndarray, y: np.ndarray, x: np.ndarray
) -> None:
    """Draws contours that hold 50 and 90 % of reference draws, whose coordinates are (r,)."""
    # An empty bin at every end, so that contours close.
    up, across = _wider(up, y, 2), _wider(across, x, 2)
    counts, _, _ = np.histogram2d(y, x, [up, across])
    density = scipy.ndimage.gaussian_filter(counts, 1.0, mode="constant")
    falling = np.sort(density, axis=None)[::-1]
    held = np.searchsorted(falling.cumsum() / falling.sum(), [0.9, 0.5])
    style: dict[str, Any] = {"colors": "black", "linewidths": LINE["lw"]}
    levels = np.unique(falling[held])
    panel.contour(_centres(across), _centres(up), density, levels=levels, **style)


def _wider(edges: np.ndarray, marked: np.ndarray, more: int = 0) -> np.ndarray:
    """Edges of these bins, of others that nearly all marks (r,) need, and some more.

    Where marks need more than 500 bins, all are larger by a whole number.
    """
    (low, high), size = _ends(edges, marked), float(edges[1] - edges[0])
    size *= math.ceil((high - low) / size / 500)
    below = math.ceil((edges[0] - low) / size) + more
    above = math.ceil((high - edges[0]) / size - 1e-9) + more
    return np.asarray(edges[0] + size * np.arange(-below, above + 1))


def _colour_bar(host: Axes, scale: Normalize, title: str) -> None:
    """Draws the scale of all panels, with what its ends mean, and a title above it."""
    width, height = _inches(host)
    long = min(2.4, width - 2 * 0.96)  # beside the words
    left, low = 0.5 * (width - long) / width, 1 - 0.46 / height
    inner = host.inset_axes((left, low, long / width, 0.1 / height))
    ends = "neither" if scale.vmax == 0.5 + MOST else "both"
    colours = ScalarMappable(scale, MASS)
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

r"""The pair plot of draws of q, coloured by the class probability (Figure 4 of the paper).

At an observation x_o the probability of class 1 (the truth) is :math:`d = p / (p + q)` for the
Bayes classifier: above 1/2 q has too little mass, below 1/2 too much. Every bar and every square
has the colour of the mean of d over the draws in it, on one scale for all panels, symmetric around
1/2; bars are as high and squares as large as there are draws.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import scipy.ndimage
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.colors import LinearSegmentedColormap, Normalize
from matplotlib.ticker import MaxNLocator

from .._support.inputs import as_tensors, check_finite, check_kind, check_names
from ._canvas import CLASS_1, COLOURS, CURVE, SMALL, WIDTH, axes, clipped, escaped, is_math, only

if TYPE_CHECKING:
    from ..local.lc2st import LC2STResult

# From vermilion, too much of q as in the paper, over grey to blue: both sides are seen by every
# eye, and what lies at 1/2 too.
SCALE = ("#6e2f00", CURVE, "#d4d4d4", COLOURS[1], "#003a5c")
MASS = LinearSegmentedColormap.from_list("mass", SCALE)
TOO_MUCH, TOO_LITTLE = "q has too much\nmass here", "q has too little\nmass here"
# Half ranges of the colour scale: steps within a decade, the least one, and the largest.
STEPS, LEAST, MOST = (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0), 0.001, 0.5
# The share of draws whose colours the scale holds, and of draws that lie inside the bins.
HELD, INSIDE = 0.99, (0.005, 0.995)
# Bins of a panel at least and at most, and the side of the smallest square in that of its bin.
FEWEST_BINS, MOST_BINS, SMALLEST = 6, 24, 0.3
# Reference draws from which on there are contours, and the bins of them, at most, but for a few.
FEW, FARTHEST = 100, 500
# Parameters up to which the panels fit into one column, and their size without which no numbers.
COLUMN, LEGIBLE = 4, 0.45
# Inches: the head with the colour bar, its words, numbers at an axis, and a line of a name.
HEAD, WORDS, NUMBERS, ROW = 0.75, 0.96, 0.3, 0.12
# The width of a letter of a name and of a number, in inches, and the gap between panels, as a
# share of them.
LETTER, NUMBER, GAP = 0.057, 0.055, 0.08
# Words of a name, with what they end in, and with mathematics between them.
WORD, MATH = r"[^\s_./-]*[\s_./-]?", r"\$[^$]*\$|[^\s_./$-]*[\s_./-]?"
# Parameters that are drawn, at most.
MOST_PARAMETERS = 12
# Lines of a name, at most.
LINES = 3
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
    than 12 parameters those are drawn in which the classifier tells draws apart best.

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
    result = only(result)
    theta, kind = (result.draws, "latent") if result.theta is None else (result.theta, "theta")
    m = theta.shape[1]
    names, marked = _names(names, kind, m), _marks(marks, m)
    if m > MOST_PARAMETERS:
        some = _told_apart(theta, result.probabilities)
        theta, marked, m = theta[:, some], marked[:, some], len(some)
        names = tuple(names[j] for j in some)
    bins = [_Bins.of(column) for column in theta.T]
    scale = _scale(bins, result.probabilities)
    host = _host(ax, m)
    grid = _panels(host, names)
    for j, i in _pairs(m):
        _squares(grid[i, j], (bins[j], bins[i]), result.probabilities, scale)
    for j, panel in enumerate(np.diag(grid)):
        _bars(panel, bins[j], result.probabilities, scale)
    limits = [_limits(b, column) for b, column in zip(bins, marked.T, strict=True)]
    _frame(grid, limits)
    _mark(host, grid, bins, marked)
    _colour_bar(host, scale, f"p = {float(result.pvalue):.3g}")
    return grid


def _told_apart(theta: np.ndarray, d: np.ndarray) -> np.ndarray:
    """The parameters of draws (s, m) whose place or distance varies most with d (s,)."""
    z = (theta - theta.mean(0)) / np.maximum(theta.std(0), 1e-300)
    seen = np.abs([(d - d.mean()) @ part for part in (z, z**2 - 1)]).max(0)
    return np.sort(np.argsort(-seen, kind="stable")[:MOST_PARAMETERS])


@dataclass(frozen=True, eq=False)
class _Bins:
    """Draws of one parameter in b bins: their edges (b + 1,), and the bin of each draw (s,)."""

    edges: np.ndarray
    which: np.ndarray

    @classmethod
    def of(cls, column: np.ndarray) -> _Bins:
        """Bins of equal size that hold nearly all draws (s,); the others join the outermost."""
        column = np.asarray(column, float)
        low, high = np.quantile(column, INSIDE)
        low, high = (low, high) if low < high else (column.min(), column.max())
        half = 0.0 if low < high else 0.05 * max(abs(low), 1.0)
        b = int(np.clip(round(2 * len(column) ** (1 / 3)), FEWEST_BINS, MOST_BINS))
        edges = np.linspace(low - half, high + half, b + 1)
        return cls(edges, np.clip(np.searchsorted(edges, column, "right") - 1, 0, b - 1))

    def __len__(self) -> int:
        return len(self.edges) - 1

    @property
    def centres(self) -> np.ndarray:
        """The middle of each bin, with shape (b,)."""
        return np.asarray(0.5 * (self.edges[1:] + self.edges[:-1]))

    @property
    def size(self) -> float:
        """The size of every bin."""
        return float(self.edges[1] - self.edges[0])


def _means(which: np.ndarray, size: int, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Counts (size,) of draws in bins, and their mean probabilities; 1/2 where there are none."""
    counts = np.bincount(which, minlength=size)
    sums = np.bincount(which, d - 0.5, minlength=size)
    return counts, 0.5 + sums / np.maximum(counts, 1)


def _means2(bins: tuple[_Bins, _Bins], d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The same for pairs of bins, across and up, with shape (b_up, b_across)."""
    across, up = bins
    shape = len(up), len(across)
    counts, means = _means(up.which * len(across) + across.which, math.prod(shape), d)
    return counts.reshape(shape), means.reshape(shape)


def _pairs(m: int) -> list[tuple[int, int]]:
    """Pairs of parameters, across and up."""
    return [(j, i) for i in range(m) for j in range(i)]


def _scale(bins: list[_Bins], d: np.ndarray) -> Normalize:
    """The range of colours, symmetric around 1/2, that holds nearly all draws by their bins."""
    if len(bins) == 1:
        means = [_means(bins[0].which, len(bins[0]), d)]
    else:
        means = [_means2((bins[j], bins[i]), d) for j, i in _pairs(len(bins))]
    far = np.concatenate([np.abs(mean - 0.5).ravel() for _, mean in means])
    counts = np.concatenate([count.ravel() for count, _ in means])
    order = far.argsort()
    share = counts[order].cumsum() / counts.sum()
    half = _rounded(float(far[order][np.searchsorted(share, HELD)]))
    return Normalize(0.5 - half, 0.5 + half)


def _rounded(half: float) -> float:
    """The next larger number that is easily read."""
    half = min(max(half, LEAST), MOST)
    decade = 10.0 ** math.floor(math.log10(half))
    return min(MOST, decade * next(s for s in STEPS if s * decade >= half * (1 - 1e-9)))


def _host(ax: Axes | None, m: int) -> Axes:
    """The axes that hold all panels, switched off."""
    if ax is None:
        width = WIDTH if m <= COLUMN else 2 * WIDTH + 0.2
        height = 2.6 if m == 1 else width + HEAD - 0.1
        ax = plt.figure(figsize=(width, height)).add_axes((0.0, 0.0, 1.0, 1.0))
    ax = axes(ax, 0)
    ax.set_axis_off()
    return ax


def _inches(ax: Axes) -> tuple[float, float]:
    """Width and height of axes."""
    box = ax.get_window_extent()
    return float(box.width / ax.figure.dpi), float(box.height / ax.figure.dpi)


def _panels(host: Axes, names: Sequence[str]) -> np.ndarray:
    """Axes on and below the diagonal, with names and room for them."""
    m, (width, height) = len(names), _inches(host)
    letters = max(4, int((min(width, height) - 1) / m / LETTER))
    wrapped = [_wrapped(clipped(name, LINES * letters), letters) for name in names]
    lines = max(name.count("\n") + 1 for name in wrapped)
    room = NUMBERS + ROW * lines + 0.04
    left = room if m > 1 else 0.1
    w, h = (width - left - 0.08) / m / width, (height - HEAD - room) / m / height
    grid = np.full((m, m), None, dtype=object)
    for i in range(m):
        for j in range(i + 1):
            corner = (left / width + j * w, room / height + (m - 1 - i) * h)
            grid[i, j] = host.inset_axes((*corner, (1 - GAP) * w, (1 - GAP) * h))
    for j, name in enumerate(wrapped):
        grid[-1, j].set_xlabel(escaped(name), fontsize=SMALL)
        if j:
            grid[j, 0].set_ylabel(escaped(name), fontsize=SMALL)
            grid[j, 0].yaxis.set_label_coords(-NUMBERS / _inches(grid[j, 0])[0], 0.5)
    return grid


def _wrapped(name: str, letters: int) -> str:
    """A name in lines of at most so many letters, broken behind a word where there is one.

    Mathematics is not broken.
    """
    lines, math = [""], is_math(name)
    for word in re.findall(MATH if math else WORD, name):
        size = len(word) if math and "$" in word else letters
        for piece in (word[i : i + size] for i in range(0, len(word), size)):
            fits = not lines[-1] or len(lines[-1] + piece.rstrip()) <= letters
            lines = [*lines[:-1], lines[-1] + piece] if fits else [*lines, piece]
    return "\n".join(lines)


def _bars(ax: Axes, bins: _Bins, d: np.ndarray, scale: Normalize) -> None:
    """A histogram; each bar has the colour of its draws."""
    counts, mean = _means(bins.which, len(bins), d)
    ax.bar(bins.centres, counts, bins.size, color=MASS(scale(mean)), lw=0)
    ax.set_ylim(0, 1.08 * counts.max())


def _squares(ax: Axes, bins: tuple[_Bins, _Bins], d: np.ndarray, scale: Normalize) -> None:
    """A square in each bin, as large as it has draws, with the colour of these."""
    counts, mean = _means2(bins, d)
    up, across = np.nonzero(counts)
    filled = counts[up, across]
    side = np.clip(np.sqrt(filled / np.quantile(filled, 0.95)), SMALLEST, 1)
    corners = 0.5 * np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]])
    sizes = np.array([bins[0].size, bins[1].size])
    middle = np.stack([bins[0].centres[across], bins[1].centres[up]], 1)
    shapes = middle[:, None] + side[:, None, None] * sizes * corners
    ax.add_collection(PolyCollection(shapes, facecolors=MASS(scale(mean[up, across])), lw=0))


def _limits(bins: _Bins, marked: np.ndarray) -> tuple[float, float]:
    """The range of an axis: all bins, and nearly all marks (r,)."""
    ends = np.quantile(marked, INSIDE) if len(marked) else bins.edges[[0, -1]]
    low, high = min(bins.edges[0], ends[0]), max(bins.edges[-1], ends[1])
    margin = 0.04 * (high - low)
    return float(low - margin), float(high + margin)


def _ticks(low: float, high: float, width: float) -> np.ndarray:
    """Numbers of an axis: the most, of round ones, that neither touch nor leave their panel."""
    best = np.array([])
    for count, start, step in product((3, 5, 2, 1), (0, 1), (1, 2)):
        locator = MaxNLocator(count, steps=[1, 2, 2.5, 5, 10], min_n_ticks=1)
        ticks = np.array(locator.tick_values(low, high))[start::step]
        # All have as many digits as the longest.
        size = NUMBER * max(len(f"{v:g}") for v in ticks.round(12))
        at = width * (ticks - low) / (high - low)
        inside = (at >= size / 2) & (at <= width - size / 2)
        apart = np.diff(at[inside]).min(initial=np.inf) >= size + NUMBER
        if apart and inside.sum() > len(best):
            best = ticks[inside]
    return best if len(best) else ticks[[np.abs(at - width / 2).argmin()]]


def _frame(grid: np.ndarray, limits: list[tuple[float, float]]) -> None:
    """Limits, and numbers at the left and at the bottom alone."""
    m, small = len(grid), min(_inches(grid[-1, 0])) < LEGIBLE
    ticks = [_ticks(*limits[j], _inches(grid[-1, j])[0]) for j in range(m)]
    for i in range(m):
        for j in range(i + 1):
            ax = grid[i, j]
            ax.set_xlim(*limits[j])
            ax.set_xticks(ticks[j])
            ax.tick_params(labelsize=SMALL - 1, length=2, pad=1.5)
            ax.tick_params(labelbottom=i == m - 1 and not small)
            if i == j:
                ax.set_yticks([])
                ax.spines[["left", "top", "right"]].set_visible(False)
            else:
                ax.set_ylim(*limits[i])
                ax.locator_params(axis="y", nbins=3)
                ax.tick_params(labelleft=j == 0 and not small)


def _mark(host: Axes, grid: np.ndarray, bins: list[_Bins], marked: np.ndarray) -> None:
    """Draws the true parameters (1, m) or reference draws (r, m), if there are any."""
    if not len(marked):
        return
    draw, draw2 = (_line, _star) if len(marked) == 1 else (_outline, _contours)
    for j, panel in enumerate(np.diag(grid)):
        draw(panel, bins[j], marked[:, j])
    for j, i in _pairs(len(bins)):
        draw2(grid[i, j], (bins[j], bins[i]), marked[:, [j, i]])
    (handle,) = host.plot([], [], **_key(len(marked), len(bins)))
    top = 1 - HEAD / _inches(host)[1]
    place: dict[str, Any] = {"loc": "upper right", "bbox_to_anchor": (1.0, top)}
    host.legend(handles=[handle], fontsize=SMALL, frameon=False, borderaxespad=0.1, **place)


def _key(r: int, m: int) -> dict[str, Any]:
    """How r marks of m parameters are drawn, and what they are."""
    if r == 1:
        return (LINE if m == 1 else STAR) | {"label": "true parameters"}
    if m == 1 or r < FEW:
        return (LINE if m == 1 else DOTS) | {"label": "reference draws"}
    return LINE | {"label": "reference, 50 and 90 %"}


def _line(ax: Axes, bins: _Bins, marked: np.ndarray) -> None:
    """A true parameter (1,)."""
    ax.axvline(marked[0], **LINE)


def _star(ax: Axes, bins: tuple[_Bins, _Bins], marked: np.ndarray) -> None:
    """Two true parameters (1, 2)."""
    ax.plot(*marked.T, **STAR)


def _contours(ax: Axes, bins: tuple[_Bins, _Bins], marked: np.ndarray) -> None:
    """Contours that hold 50 and 90 % of reference draws (r, 2), or dots where there are few."""
    if len(marked) < FEW:
        ax.plot(*marked.T, **DOTS)
        return
    # An empty bin at every end, so that contours close.
    edges = [_wider(b, column, 2) for b, column in zip(bins, marked.T, strict=True)]
    counts, _, _ = np.histogram2d(marked[:, 0], marked[:, 1], edges)
    density = scipy.ndimage.gaussian_filter(counts, 1.0, mode="constant")
    falling = np.sort(density, axis=None)[::-1]
    held = np.searchsorted(falling.cumsum() / falling.sum(), [0.9, 0.5])
    middle = [0.5 * (e[1:] + e[:-1]) for e in edges]
    levels = np.unique(falling[held])
    ax.contour(*middle, density.T, levels=levels, colors="black", linewidths=LINE["lw"])


def _outline(ax: Axes, bins: _Bins, marked: np.ndarray) -> None:
    """A histogram of reference draws (r,) over that of q, as if there were as many."""
    counts, edges = np.histogram(marked, _wider(bins, marked))
    heights = counts * len(bins.which) / len(marked) * bins.size / (edges[1] - edges[0])
    ax.stairs(heights, edges, **LINE)
    ax.set_ylim(0, max(ax.get_ylim()[1], 1.08 * heights.max()))


def _wider(bins: _Bins, marked: np.ndarray, more: int = 0) -> np.ndarray:
    """Edges of the same bins, of as many others as nearly all marks (r,) need, and some more.

    Where marks lie very far from q, bins are larger by a whole number.
    """
    ends = np.quantile(marked, INSIDE)
    low, high = min(bins.edges[0], ends[0]), max(bins.edges[-1], ends[1])
    size = bins.size * math.ceil((high - low) / bins.size / FARTHEST)
    below = math.ceil((bins.edges[0] - low) / size) + more
    above = math.ceil((high - bins.edges[0]) / size - 1e-9) + more
    return np.asarray(bins.edges[0] + size * np.arange(-below, above + 1))


def _colour_bar(host: Axes, scale: Normalize, title: str) -> None:
    """The scale of all panels, with what its ends mean, and a title above it."""
    width, height = _inches(host)
    long = min(2.4, width - 2 * WORDS)
    left, low = 0.5 * (width - long) / width, 1 - 0.46 / height
    cax = host.inset_axes((left, low, long / width, 0.1 / height))
    ends = "neither" if scale.vmax == 0.5 + MOST else "both"
    colours = ScalarMappable(scale, MASS)
    bar = host.figure.colorbar(colours, cax=cax, orientation="horizontal", extend=ends)
    ticks = [float(v) for v in np.linspace(*colours.get_clim(), 3)]
    bar.set_ticks(ticks, labels=[f"{tick:.4g}" for tick in ticks])
    bar.outline.set_visible(False)
    cax.tick_params(labelsize=SMALL - 1, length=2, pad=1.5)
    cax.set_title(f"{title}\n{CLASS_1}", fontsize=SMALL, pad=2.5)
    words: dict[str, Any] = {"fontsize": SMALL, "va": "center", "transform": host.transAxes}
    gap, middle = 0.1 / width, low + 0.05 / height
    host.text(left - gap, middle, TOO_MUCH, ha="right", color=MASS(0.2), **words)
    host.text(1 - left + gap, middle, TOO_LITTLE, ha="left", color=MASS(0.8), **words)


def _names(names: Sequence[str] | None, kind: str, m: int) -> tuple[str, ...]:
    """The names given, one for each parameter, or numbers."""
    if names is None:
        return tuple(f"{kind}[{j}]" for j in range(m))
    return check_names("names", names, m)


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

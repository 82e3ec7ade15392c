"""What a check found: how far off q is near x_o, where x_o lies, and both in one figure."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from .._support.inputs import check_kind, check_number
from ..answers.rows import Bounds
from ..results import position
from ..verdict import OUTSIDE, Verdict
from ._canvas import axes, legend, panels, small
from ._numbers import COMPONENTS, components
from ._results import null_histogram, pp
from ._style import BAND, COLOURS, CURVE, DASHED, ENVELOPE, INK, LABEL, SMALL, WIDTH, display_name

# Letters of a name; parameters that have a row, a panel, or a row of correlations, at most.
LETTERS, MOST_ROWS, MOST_NEAR, MOST_CORRELATED = 16, 40, 3, 24
# Numbers on an axis of widths, by how far it reaches, and how far it reaches at most.
WIDTHS: dict[float, tuple[float, ...]] = {1.12: (0.9, 1, 1.1), 1.3: (0.8, 1, 1.25)}
WIDTHS |= {2: (0.5, 0.7, 1, 1.4, 2), 2.6: (0.5, 1, 2), 4: (0.25, 0.5, 1, 2, 4), 6.5: (0.25, 1, 4)}
WIDTHS |= {10: (0.1, 0.3, 1, 3, 10), 20: (0.1, 1, 10), 100: (0.01, 0.1, 1, 10, 100)}
WIDEST = 150.0
DIFFERENCES = LinearSegmentedColormap.from_list("differences", (COLOURS[1], "#f4f4f4", CURVE))
# Colour and marker of each verdict: shapes distinguish them as well as colours.
VERDICT_STYLES = {"passed": (COLOURS[2], "o"), "inconclusive": ("#5a5a5a", "^")}
VERDICT_STYLES |= {"outside": (INK, "s"), "rejected": (CURVE, "X")}


def forest(
    result: Bounds, ax: Any = None, which: int | str = 0, tolerance: float | None = 0.5
) -> np.ndarray:
    """Draws the intervals of means and widths at one observation, in two panels.

    Intervals that miss the dashed line are wrong and coloured; between the dotted lines q is right
    within the tolerance. Of more than 40 parameters those farthest off are drawn. ``ax`` is a pair
    of axes, or None for new ones; the pair is returned.
    """
    i, order = _worst(result, which)
    some = np.sort(order[:MOST_ROWS])
    bias, width = pair = panels(ax, 2, 0.95 + 0.19 * len(some), 2)
    biases, widths = (result.table[kind][i][:, some] for kind in ("bias", "width"))  # (3, j)
    reach = 1.06 * np.exp(np.nanmax(np.abs(np.log(widths)), initial=0.0))
    reach = float(np.clip(reach, min(WIDTHS), WIDEST))
    wrong = _intervals(bias, biases, 0.0)
    wrong |= _intervals(width, np.clip(widths, 1 / reach, reach), 1.0)
    if tolerance is not None:
        factor = 1 + check_number("tolerance", tolerance)
        ends = ((bias, -tolerance), (bias, tolerance), (width, 1 / factor), (width, factor))
        for panel, end in ends:
            panel.axvline(end, color=INK, lw=0.6, ls=":", zorder=1)
    bias.locator_params(axis="x", nbins=4)
    bias.set_yticks(range(len(some)), [display_name(result.names[j], LETTERS) for j in some])
    bias.set_xlabel("mean of q − true, in sd\n← low     high →")
    ticks = WIDTHS[max(least for least in WIDTHS if least <= reach)]
    words = "sd of q / true sd\n← narrow     wide →"
    width.set(xscale="log", xlim=(1 / reach, reach), xlabel=words)
    width.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    width.set_xticks([], minor=True)
    width.set_yticks(range(len(some)), [])
    # A title may be wider than its panel, where a legend would make the panel narrow.
    words, colour = ("● wrong; 95 %", CURVE) if wrong else ("95 %", INK)
    bias.set_title(f"{words} for all rows together", loc="left", color=colour, fontsize=SMALL)
    return pair


def _worst(result: Bounds, which: int | str) -> tuple[int, np.ndarray]:
    """The number of an observation, and all parameters: those of wrong rows, then by size."""
    check_kind("result", result, "bounds", "bias", "near_truths")
    i = position([str(i) for i in range(len(result))], which)
    biases, widths = result.table["bias"][i, 1:], result.table["width"][i, 1:]  # (2, m)
    size = np.nan_to_num(np.abs([*biases / 0.5, *np.log(widths) / np.log(1.5)])).max(0)
    wrong = list(enumerate(result.wrong[i]))
    first = {name: row_number for row_number, row in reversed(wrong) for name in row.parameters}
    return i, np.lexsort((-size, [first.get(name, len(wrong)) for name in result.names]))


def _intervals(panel: Axes, values: np.ndarray, right: float) -> bool:
    """Draws numbers and their ends (3, j) in rows, and returns whether any of them is wrong."""
    rows, (value, lower, upper) = np.arange(values.shape[1]), values
    wrong = (lower > right) | (upper < right)
    colours = np.where(wrong, CURVE, INK).tolist()
    panel.hlines(rows, lower, upper, colors=colours, lw=1.4)
    panel.scatter(value, rows, s=16, c=colours, zorder=3)
    panel.axvline(right, zorder=1, **DASHED)
    panel.set_ylim(len(rows) - 0.4, -0.6)
    panel.tick_params(axis="y", length=0)
    panel.spines[["top", "right", "left"]].set_visible(False)
    return bool(wrong.any())


def near(result: Bounds, ax: Any = None, which: int | str = 0) -> np.ndarray:
    """Draws true parameters near x_o over draws of q at the same x, in q's own scale.

    If q is right, both have the same shape; outlines to the left mean that q is too high, narrower
    ones that it is too wide. ``ax`` holds axes for as many parameters, those farthest off first.
    """
    i, order = _worst(result, which)
    if result.near_truths is None or result.near_draws is None:
        raise ValueError(
            "result: expected bounds near x_o; got those at x_o itself, where there are no true "
            "parameters."
        )
    count = min(MOST_NEAR, len(order)) if ax is None else np.asarray(ax, object).size
    some = order[: max(1, count)]
    chosen = panels(ax, len(some), 2.2, MOST_NEAR)
    edges = np.linspace(-4, 4, 26)  # in sd of q
    grey: dict[str, Any] = {"label": "draws of q", "fill": True, "color": ENVELOPE}
    outline = {"label": "true parameters near x_o", "color": CURVE, "lw": 1.2}
    for panel, j in zip(chosen, some, strict=True):
        for values, style in ((result.near_draws[i], grey), (result.near_truths[i], outline)):
            # What lies beyond counts in the outermost bins.
            finite = values[np.isfinite(values[:, j]), j].clip(edges[0], edges[-1])
            panel.stairs(np.histogram(finite, edges)[0] / max(1, len(finite)), edges, **style)
        panel.axvline(0, **DASHED)
        panel.set(xlim=(edges[0], edges[-1]), ylim=(0, None))
        panel.locator_params(nbins=5)
        panel.set_xlabel(f"{display_name(result.names[j])}\n(value − mean) / sd of q")
        panel.spines[["top", "right"]].set_visible(False)
    chosen[0].set_ylabel("share in each bin")
    legend(chosen[0], 1)
    return chosen


def correlations(result: Bounds, ax: Axes | None = None, which: int | str = 0) -> Axes:
    """Draws how much too high the correlations of q are near x_o; wrong ones are framed."""
    i, order = _worst(result, which)
    if len(order) < 2:
        raise ValueError(f"result: expected two or more parameters; got {len(order)}.")
    some = np.sort(order[:MOST_CORRELATED])
    value, lower, upper = result.table["correlation"][i][:, some[:, None], some]  # (j, j) each
    ax = axes(ax, 1.5 + 0.23 * len(some))
    below = np.tril(np.ones(value.shape, bool), -1)
    table = np.where(below, value, np.nan)[1:, :-1]
    most = max(0.1, float(np.nanmax(np.abs(table), initial=0)))
    image = ax.imshow(table, cmap=DIFFERENCES, vmin=-most, vmax=most, aspect="auto")
    for j, k in np.argwhere(below & ((lower > 0) | (upper < 0))):
        frame: dict[str, Any] = {"fill": False, "ec": INK, "lw": 1.4, "clip_on": False}
        ax.add_patch(Rectangle((k - 0.5, j - 1.5), 1, 1, **frame))
    names = [display_name(result.names[j], LETTERS) for j in some]
    ax.set_xticks(range(len(some) - 1), names[:-1], rotation=90 if len(some) > 3 else 0)
    ax.set_yticks(range(len(some) - 1), names[1:])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(image, ax=ax)
    bar.set_label("correlation of q − true one", fontsize=LABEL)
    bar.ax.tick_params(labelsize=SMALL)
    return ax


def surroundings(check: Verdict, ax: Axes | None = None) -> Axes:
    """Draws where the observations lie among the simulated ones, with their verdicts.

    Coordinates are the entries of x, or its first two principal components where there are more.
    Where q was tested at simulated observations, crosses are rejected there.
    """
    check_kind("check", check, "what assay.check found", "surroundings", "verdicts")
    around = check.surroundings
    if around is None:
        raise ValueError("check: expected simulated observations around x_o; got none.")
    s, o = len(around.x), len(check)
    x = np.concatenate([around.x.reshape(s, -1), check.test.x.reshape(o, -1)], dtype=float)
    x = np.nan_to_num(x)  # (s + o, d)
    ax = axes(ax, 3.2 if x.shape[1] > 1 else 1.9)
    if x.shape[1] == 1:
        # Simulations are spread upwards, so that those at about the same x do not hide each other.
        spread = np.append(0.618 * np.arange(s) % 1 - 0.5, np.zeros(o))
        x = np.column_stack([x, spread])
        ax.set(xlabel="x[0]", ylim=(-0.7, 0.7), yticks=[])
    else:
        x, titles = (x, ("x[0]", "x[1]")) if x.shape[1] == 2 else (components(x), COMPONENTS)
        ax.set(xlabel=titles[0], ylabel=titles[1])

    def scatter(points: np.ndarray, **style: Any) -> None:
        ax.scatter(points[:, 0], points[:, 1], **style)

    simulated, is_near, p = x[:s], around.near.any(0), around.pvalue
    scatter(simulated[~is_near], s=5, c=ENVELOPE, label="simulated")
    scatter(simulated[is_near], s=5, c=BAND, label="near x_o")
    scatter(simulated[p <= check.alpha], s=22, lw=0.9, marker="x", c=CURVE)
    scatter(simulated[p > check.alpha], s=22, lw=0.9, ec=COLOURS[2], fc="none")
    for word, (colour, marker) in VERDICT_STYLES.items():
        if word in check.verdicts:
            own = x[s:][np.array(check.verdicts) == word]
            scatter(own, s=40, ec="white", lw=0.6, c=colour, marker=marker, label=word)
    ax.spines[["top", "right"]].set_visible(False)
    return legend(ax, 3, handletextpad=0.1)


def summary(check: Verdict, which: int | str = 0) -> Figure:
    """Draws what :func:`assay.check` found at one observation, by its number or label.

    Intervals of means and widths; true parameters near x_o over draws of q; the null of the test,
    and a classifier's probabilities or the surroundings, which are all where x_o is outside.
    """
    check_kind("check", check, "what assay.check found", "labels", "verdicts", "bounds")
    i = position(check.labels, which)
    title = f"{display_name(check.labels[i], 60)}: {check.verdicts[i]}"
    if check.verdicts[i] == OUTSIDE:
        figure = plt.figure(figsize=(WIDTH, 3.4), layout="constrained")
        figure.suptitle(title, fontsize=LABEL + 1)
        surroundings(check, small(figure.add_subplot()))
        return figure
    m, found = len(check.names), check.classified
    heights = [1.1 + 0.19 * min(MOST_ROWS, m), 2.3, 2.4 if found is None else 3.6]
    figure = plt.figure(figsize=(2 * WIDTH + 0.2, sum(heights)), layout="constrained")
    figure.suptitle(title, fontsize=LABEL + 1)
    grid = figure.add_gridspec(3, 1, height_ratios=heights)
    above, middle, below = (
        [small(ax) for ax in figure.add_subfigure(grid[row]).subplots(1, n, squeeze=False)[0]]
        for row, n in enumerate((2, min(3, m), 2))
    )
    forest(check.bounds, above, i, check.tolerance)
    near(check.bounds, middle, i)
    null_histogram(check.test[i], below[0], check.alpha)
    if found is None:
        surroundings(check, below[1])
    else:
        pp(found[i] if found.many else found, below[1], check.alpha)
    return figure

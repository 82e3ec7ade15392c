"""How far off q is near x_o: intervals of means and widths, and the true parameters behind."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from .._support.inputs import check_kind, check_number
from ..answers.rows import Bounds
from ..results import position
from ._canvas import axes, legend, open_corner, panels
from ._style import COLOURS, CURVE, DASHED, ENVELOPE, INK, LABEL, SMALL, display_name

# Letters of a name; parameters that have a row, or a panel, at most.
LETTERS, MOST_ROWS, MOST_PANELS = 16, 40, 3
# Numbers on an axis of widths, by how far it reaches, and how far it reaches at most.
WIDTHS: dict[float, tuple[float, ...]] = {
    1.12: (0.9, 1, 1.1),
    1.3: (0.8, 1, 1.25),
    2: (0.5, 0.7, 1, 1.4, 2),
    2.6: (0.5, 1, 2),
    4: (0.25, 0.5, 1, 2, 4),
    6.5: (0.25, 1, 4),
    10: (0.1, 0.3, 1, 3, 10),
    20: (0.1, 1, 10),
    100: (0.01, 0.1, 1, 10, 100),
}
FARTHEST = 150.0
DIFFERENCES = LinearSegmentedColormap.from_list("differences", (COLOURS[1], "#f4f4f4", CURVE))


def forest(
    result: Bounds, ax: Any = None, which: int | str = 0, tolerance: float | None = 0.5
) -> np.ndarray:
    """Draws the intervals of means and widths at one observation, in two panels.

    Intervals that miss the dashed line are wrong and coloured. Where all lie between the dotted
    lines, q is right within the tolerance. Of more than 40 parameters those farthest off are
    drawn. ``ax`` is a pair of axes, or None for new ones; the pair is returned.
    """
    i = _observation(result, which)
    some = np.sort(worst_parameters(result, i)[:MOST_ROWS])
    bias, width = pair = panels(ax, 2, 0.95 + 0.19 * len(some), 2)
    biases, widths = (_with_ends(result, kind, i)[:, some] for kind in ("bias", "width"))
    reach = 1.06 * np.exp(np.nanmax(np.abs(np.log(widths)), initial=0.0))
    reach = float(np.clip(reach, min(WIDTHS), FARTHEST))
    wrong = _intervals(bias, biases, 0.0)
    wrong |= _intervals(width, np.clip(widths, 1 / reach, reach), 1.0)
    if tolerance is not None:
        factor = 1 + check_number("tolerance", tolerance)
        for panel, ends in ((bias, (-tolerance, tolerance)), (width, (1 / factor, factor))):
            for end in ends:
                panel.axvline(end, color=INK, lw=0.6, ls=":", zorder=1)
    bias.locator_params(axis="x", nbins=4)
    bias.set_yticks(range(len(some)), [display_name(result.names[j], LETTERS) for j in some])
    bias.set_xlabel("mean of q − true, in sd\n← low     high →")
    ticks = WIDTHS[max(least for least in WIDTHS if least <= reach)]
    width.set(xscale="log", xlim=(1 / reach, reach))
    width.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    width.set_xticks([], minor=True)
    width.set_xlabel("sd of q / true sd\n← narrow     wide →")
    width.set_yticks(range(len(some)), [])
    # A title may be wider than its panel, where a legend would make the panel narrow.
    words, colour = ("● wrong; 95 %", CURVE) if wrong else ("95 %", INK)
    bias.set_title(f"{words} for all rows together", loc="left", color=colour, fontsize=SMALL)
    return pair


def _observation(result: Bounds, which: int | str) -> int:
    check_kind("result", result, "bounds", "bias", "near_truths")
    return position([str(i) for i in range(len(result))], which)


def _with_ends(result: Bounds, kind: str, i: int) -> np.ndarray:
    """Numbers of a kind with the ends of their intervals, (3, m) or (3, m, m)."""
    return np.stack([getattr(result, kind + end)[i] for end in ("", "_lower", "_upper")])


def worst_parameters(result: Bounds, which: int) -> np.ndarray:
    """All parameters: those of wrong rows, the worst first, then the others by their size."""
    biases = np.stack([result.bias_lower[which], result.bias_upper[which]])
    widths = np.log([result.width_lower[which], result.width_upper[which]])
    size = np.nan_to_num(np.abs([*biases / 0.5, *widths / np.log(1.5)])).max(0)
    wrong = list(enumerate(result.wrong[which]))
    first = {name: i for i, row in reversed(wrong) for name in row.parameters}
    return np.lexsort((-size, [first.get(name, len(wrong)) for name in result.names]))


def _intervals(panel: Axes, values: np.ndarray, right: float) -> bool:
    """Draws numbers and their ends (3, j) in rows, and returns whether any of them is wrong."""
    value, lower, upper = values
    rows, wrong = np.arange(len(value)), (lower > right) | (upper < right)
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

    If q is right near x_o, outlines and greys have the same shape; outlines to the left mean that
    q is too high, narrower ones that it is too wide. ``ax`` holds one axes for each parameter that
    is drawn, those farthest off first; three are drawn in new axes if None.
    """
    i = _observation(result, which)
    if result.near_truths is None or result.near_draws is None:
        raise ValueError(
            "result: expected bounds near x_o; got those at x_o itself, where there are no true "
            "parameters."
        )
    count = min(MOST_PANELS, len(result.names)) if ax is None else np.asarray(ax, object).size
    some = worst_parameters(result, i)[: max(1, count)]
    chosen = panels(ax, len(some), 2.2, MOST_PANELS)
    edges = np.linspace(-4, 4, 26)  # in sd of q
    for panel, j in zip(chosen, some, strict=True):
        draws, true = (
            _shares(values[i][:, j], edges) for values in (result.near_draws, result.near_truths)
        )
        panel.stairs(draws, edges, fill=True, color=ENVELOPE, label="draws of q")
        panel.stairs(true, edges, color=CURVE, lw=1.2, label="true parameters near x_o")
        panel.axvline(0, **DASHED)
        panel.set(xlim=(edges[0], edges[-1]), ylim=(0, None))
        panel.locator_params(nbins=5)
        panel.set_xlabel(f"{display_name(result.names[j])}\n(value − mean) / sd of q")
        open_corner(panel)
    chosen[0].set_ylabel("share in each bin")
    legend(chosen[0], 1)
    return chosen


def _shares(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The share of finite values (t,) in each bin; those beyond count in the outermost bins."""
    finite = values[np.isfinite(values)].clip(edges[0], edges[-1])
    return np.histogram(finite, edges)[0] / max(1, len(finite))


def correlations(result: Bounds, ax: Axes | None = None, which: int | str = 0) -> Axes:
    """Draws how much too high the correlations of q are near x_o; wrong ones are framed."""
    i = _observation(result, which)
    if len(result.names) < 2:
        raise ValueError(f"result: expected two or more parameters; got {len(result.names)}.")
    some = np.sort(worst_parameters(result, i)[:24])
    value, lower, upper = _with_ends(result, "correlation", i)[:, some[:, None], some]
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

"""How far off q is near x_o: intervals of means and widths, and the true parameters behind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes

from .._support.inputs import check_kind, check_number
from ..results import position
from ._canvas import CURVE, ENVELOPE, INK, LABEL, SMALL, axes, legend, listed, named, panels
from ._shapes import near_shares

if TYPE_CHECKING:
    from ..answers.rows import Bounds

# The letters of a name beside an interval, rows, and parameters whose true values are drawn.
LETTERS, MOST_ROWS, MOST_NEAR = 16, 40, 3
# Numbers on an axis of widths, by how far it reaches.
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


def forest(
    result: Bounds, ax: Any = None, which: int | str = 0, tolerance: float | None = 0.5
) -> np.ndarray:
    """Draws the intervals of means and widths at one observation, in two panels.

    Intervals that miss the dashed line are wrong and coloured. Where all lie between the dotted
    lines, q is right within the tolerance. Of more than 40 parameters those farthest off are
    drawn. ``ax`` is a pair of axes, or None for new ones; the pair is returned.
    """
    check_kind("result", result, "bounds", "bias", "width")
    i = position(tuple(map(str, range(len(result)))), which)
    some = worst_parameters(result, i)[:MOST_ROWS]
    some = np.sort(some)
    rows = np.arange(len(some))
    bias, width = pair = panels(ax, 2, 0.95 + 0.19 * len(rows), 2)
    biases, widths = (_parts(result, kind, i, some) for kind in ("bias", "width"))
    reach = float(
        np.clip(1.06 * np.exp(np.nanmax(np.abs(np.log(widths)), initial=0.0)), 1.12, FARTHEST)
    )
    widths = np.clip(widths, 1 / reach, reach)
    wrong = _intervals(bias, rows, biases, 0.0) + _intervals(width, rows, widths, 1.0)
    bias.locator_params(axis="x", nbins=4)
    bias.set_yticks(rows, [named(result.names[j], LETTERS) for j in some])
    bias.set_xlabel("mean of q − true, in sd\n← low     high →")
    ticks = WIDTHS[max(least for least in WIDTHS if least <= reach)]
    width.set(xscale="log", xlim=(1 / reach, reach))
    width.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    width.set_xticks([], minor=True)
    width.set_xlabel("sd of q / true sd\n← narrow     wide →")
    width.set_yticks(rows, [])
    ends: list[tuple[float, float]] = []
    if tolerance is not None:
        tolerance = check_number("tolerance", tolerance)
        ends = [(-tolerance, tolerance), (1 / (1 + tolerance), 1 + tolerance)]
    for panel, limits in zip(pair, ends, strict=False):
        for end in limits:
            panel.axvline(end, color=INK, lw=0.6, ls=":", zorder=1)
    for panel in pair:
        panel.set_ylim(len(rows) - 0.4, -0.6)
        panel.tick_params(axis="y", length=0)
        panel.spines[["top", "right", "left"]].set_visible(False)
    # A title may be wider than its panel, where a legend would make the panel narrow.
    words, colour = ("● wrong; 95 %", CURVE) if any(wrong) else ("95 %", INK)
    bias.set_title(f"{words} for all rows together", loc="left", color=colour, fontsize=SMALL)
    return pair


def worst_parameters(result: Bounds, which: int) -> np.ndarray:
    """The parameters, those that may be farthest off first."""
    ends = [result.bias_lower[which], result.bias_upper[which]]
    widths = np.log([result.width_lower[which], result.width_upper[which]])
    sizes = np.abs(np.concatenate([np.stack(ends) / 0.5, widths / np.log(1.5)]))
    wrong = [row.parameters for row in result.wrong[which]]
    named_wrong = {
        name: len(wrong) - i for i, names in reversed(list(enumerate(wrong))) for name in names
    }
    sizes = np.nan_to_num(sizes).max(0)
    sizes += 1e3 * np.array([named_wrong.get(name, 0) for name in result.names])
    return np.argsort(-sizes, kind="stable")


def _parts(result: Bounds, kind: str, which: int, some: np.ndarray) -> np.ndarray:
    """Numbers and their ends (3, j) of some parameters."""
    return np.stack([getattr(result, kind + end)[which, some] for end in ("", "_lower", "_upper")])


def _intervals(ax: Axes, rows: np.ndarray, parts: np.ndarray, right: float) -> list[bool]:
    """Draws numbers and their ends (3, j), and returns which of them are wrong."""
    value, lower, upper = parts
    wrong = (lower > right) | (upper < right)
    colours = [CURVE if each else INK for each in wrong]
    ax.hlines(rows, lower, upper, colors=colours, lw=1.4)
    ax.scatter(value, rows, s=16, c=colours, zorder=3)
    ax.axvline(right, color=INK, lw=0.8, ls="--", zorder=1)
    return wrong.tolist()


def near(result: Bounds, ax: Any = None, which: int | str = 0) -> np.ndarray:
    """Draws true parameters near x_o over draws of q at the same x, in q's own scale.

    If q is right near x_o, outlines and greys have the same shape; outlines to the left mean that
    q is too high, narrower ones that it is too wide. ``ax`` holds one axes for each parameter that
    is drawn, those farthest off first; three are drawn in new axes if None.
    """
    check_kind("result", result, "bounds", "bias", "near_truths")
    i = position(tuple(map(str, range(len(result)))), which)
    if result.near_truths is None or result.near_draws is None:
        raise ValueError(
            "result: expected bounds near x_o; got those at x_o itself, where there are no true "
            "parameters."
        )
    count = min(MOST_NEAR, len(result.names)) if ax is None else max(1, len(listed(ax)))
    chosen = worst_parameters(result, i)[:count]
    drawn = panels(ax, len(chosen), 2.2, MOST_NEAR)
    edges, draws, truths = near_shares(
        result.near_truths[i], result.near_draws[i], chosen.tolist()
    )
    label = "true parameters near x_o"
    for panel, j, q, truth in zip(drawn, chosen, draws, truths, strict=True):
        panel.stairs(q, edges, fill=True, color=ENVELOPE, label="draws of q")
        panel.stairs(truth, edges, color=CURVE, lw=1.2, label=label)
        panel.axvline(0, color=INK, lw=0.8, ls="--")
        panel.set(xlim=(edges[0], edges[-1]), ylim=(0, None))
        panel.locator_params(nbins=5)
        panel.set_xlabel(f"{named(result.names[j])}\n(value − mean) / sd of q")
        panel.spines[["top", "right"]].set_visible(False)
    drawn[0].set_ylabel("share in each bin")
    legend(drawn[0], 1)
    return drawn


def correlations(result: Bounds, ax: Axes | None = None, which: int | str = 0) -> Axes:
    """Draws how much too high the correlations of q are near x_o; wrong ones are framed."""
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Rectangle

    check_kind("result", result, "bounds", "bias", "correlation")
    i = position(tuple(map(str, range(len(result)))), which)
    m = len(result.names)
    if m < 2:
        raise ValueError(f"result: expected two or more parameters; got {m}.")
    some = np.sort(worst_parameters(result, i)[:24])
    value, lower, upper = (
        getattr(result, f"correlation{end}")[i][np.ix_(some, some)]
        for end in ("", "_lower", "_upper")
    )
    ax = axes(ax, 1.5 + 0.23 * len(some))
    table = np.where(np.tril(np.ones_like(value), -1) > 0, value, np.nan)
    most = max(0.1, float(np.nanmax(np.abs(table), initial=0)))
    scale = LinearSegmentedColormap.from_list("errors", ("#0072B2", "#f4f4f4", CURVE))
    image = ax.imshow(table[1:, :-1], cmap=scale, vmin=-most, vmax=most, aspect="auto")
    for j, k in zip(*np.tril_indices(len(some), -1), strict=True):
        if lower[j, k] > 0 or upper[j, k] < 0:
            ax.add_patch(
                Rectangle((k - 0.5, j - 1.5), 1, 1, fill=False, ec=INK, lw=1.4, clip_on=False)
            )
    names = [named(result.names[j], LETTERS) for j in some]
    ax.set_xticks(range(len(some) - 1), names[:-1], rotation=90 if len(some) > 3 else 0)
    ax.set_yticks(range(len(some) - 1), names[1:])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(image, ax=ax)
    bar.set_label("correlation of q − true one", fontsize=LABEL)
    bar.ax.tick_params(labelsize=SMALL)
    return ax

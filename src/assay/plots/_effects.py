"""What is wrong near x_o and at x_o: bias, width and correlation."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from .._core import check_kind
from ..interpret.effects import Effects
from ..interpret.effects import effects as read
from ..results import LocalResult
from ._canvas import (
    COLOURS,
    CURVE,
    ENVELOPE,
    INK,
    LABEL,
    SMALL,
    axes,
    legend,
    listed,
    named,
    only,
    panels,
    smallest,
    style,
)
from ._shapes import near_shares

if TYPE_CHECKING:
    from ..diagnostics.local.local_effects import Sizes
    from ..diagnostics.local.moments import MomentsResult
    from ..interpret.density_ratio import Estimate
    from ..results import LC2STResult

    Told = Effects | MomentsResult | LC2STResult

# The thickness of a null band, and the letters of a name beside it.
THICK, LETTERS = 0.6, 16
# Numbers on an axis of widths, by how far it reaches, and how far that is at most.
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
# Parameters with a row, and with a row and a column of correlations, at most.
MOST_ROWS, MOST_CORRELATED = 40, 24
# Numbers that are drawn, with their nulls.
NULLS = ("value", "lower", "upper", "null_lower", "null_upper")
# What effects say besides, of which this picture shows nothing.
BESIDE = ("at", "at_lower", "at_upper", "varies", "pvalue")


def effects(result: Told, ax: Any = None) -> np.ndarray:
    """Draws bias and width at one observation, in two panels: stated bands over null bands.

    Of effects, or of what :func:`assay.moments` or :func:`assay.lc2st` found. What is wrong by
    more than noise is coloured; of more than 40 parameters the worst are drawn. ``ax`` is a pair
    of axes, for bias and for width, or None for new ones; the pair that was drawn in is returned.
    """
    result = _told(result)
    some = drawn_of(result)
    rows = np.arange(len(some))
    bias, width = pair = panels(ax, 2, 0.95 + 0.19 * len(rows), 2)
    _draw_estimates(bias, rows, _some(result.bias, some))
    bias.axvline(0, color=INK, lw=0.8, ls="--", zorder=1)
    bias.locator_params(axis="x", nbins=4)
    bias.set_yticks(rows, [named(result.names[j], LETTERS) for j in some])
    bias.set_xlabel("bias (sd of q)\n← low     high →")
    dispersion = _some(result.dispersion, some)
    reach = _reach(*(getattr(dispersion, name) for name in NULLS))
    _draw_estimates(width, rows, _within(dispersion, reach))
    width.axvline(1, color=INK, lw=0.8, ls="--", zorder=1)
    _ratios(width, "x", reach)
    width.set(xlabel="sd of q / true sd\n← narrow     wide →")
    width.set_yticks(rows, [])
    for panel, handle in zip(pair, _effect_handles(), strict=True):
        panel.set_ylim(len(rows) - 0.4, -0.6)
        panel.tick_params(axis="y", length=0)
        panel.spines[["top", "right", "left"]].set_visible(False)
        legend(panel, handles=[handle])
    return pair


def drawn_of(told: Effects, most: int = MOST_ROWS) -> np.ndarray:
    """The parameters that are drawn: all of few, and of many the worst, in their order."""
    return np.sort(told.worst[:most])


def _some(estimate: Estimate, rows: np.ndarray) -> Estimate:
    """Numbers near x_o of some parameters; what is not drawn is left out."""
    blank: dict[str, Any] = dict.fromkeys(BESIDE)
    return replace(estimate, **blank)[rows]


def _reach(*parts: np.ndarray) -> float:
    """How far an axis of widths goes on either side of one: as far as all that is drawn."""
    ends = np.concatenate([np.ravel(part) for part in parts])
    ends = ends[np.isfinite(ends) & (ends > 0)]
    return float(
        np.clip(1.06 * np.exp(np.abs(np.log(ends)).max(initial=0.0)), min(WIDTHS), FARTHEST)
    )


def _ratios(ax: Axes, axis: str, reach: float) -> None:
    """Makes an axis, x or y, one of widths: logarithmic, with few numbers."""
    ticks = WIDTHS[max(least for least in WIDTHS if least <= reach)]
    own = getattr(ax, f"{axis}axis")
    ax.set(**{f"{axis}scale": "log", f"{axis}lim": (1 / reach, reach)})
    own.set_ticks(ticks, labels=[f"{tick:g}" for tick in ticks])
    own.set_ticks([], minor=True)


def _within(estimate: Estimate, reach: float) -> Estimate:
    """The same with numbers beyond the ends of an axis at its edge."""
    parts = {name: getattr(estimate, name) for name in NULLS}
    return replace(estimate, **{name: _inside(part, reach) for name, part in parts.items()})


def _inside(part: np.ndarray, reach: float) -> np.ndarray:
    """Numbers beyond the ends of an axis at its edge."""
    return np.where(np.isfinite(part), np.clip(part, 1 / reach, reach), part)


def _draw_estimates(ax: Axes, rows: np.ndarray, estimate: Estimate) -> None:
    """Null bands as bars, stated bands as lines and estimates as points."""
    width = estimate.null_upper - estimate.null_lower
    ax.barh(rows, width, THICK, estimate.null_lower, color=ENVELOPE, lw=0)
    colours = [CURVE if wrong else INK for wrong in estimate.wrong]
    # What is not identifiable has no interval that could be drawn.
    lower, upper = (np.where(np.isfinite(e), e, np.nan) for e in (estimate.lower, estimate.upper))
    ax.hlines(rows, lower, upper, colors=colours, lw=1.4)
    ax.scatter(estimate.value, rows, s=16, c=colours, zorder=3)


def _effect_handles() -> tuple[Patch, Line2D]:
    shape: dict[str, Any] = {"marker": "o", "markersize": 4, "lw": 1.4, "color": CURVE}
    return (
        Patch(color=ENVELOPE, lw=0, label="95 % of the null"),
        Line2D([], [], label="beyond noise", **shape),
    )


# Parameters that are drawn against shares, and, in a heat map, with numbers, at most.
MOST, NUMBERED = 6, 6
# Parameters whose truths near x_o are drawn.
MOST_NEAR = 3
# From too low over right to too high.
ERRORS = LinearSegmentedColormap.from_list("errors", (COLOURS[1], "#f4f4f4", CURVE))


def shares(result: Told, ax: Any = None) -> np.ndarray:
    """Draws bias and width against the share of simulations near x_o, and at x_o, extrapolated.

    Of the six worst parameters, the worst first, with 95 % intervals; at x_o marks are open. An
    error that grows towards x_o is larger there than around it. ``ax`` is a pair of axes, for
    bias and for width, or None for new ones; the pair that was drawn in is returned.

    Example:
        >>> z, x = torch.randn(2, 2000, 2, generator=torch.Generator().manual_seed(0))
        >>> slope = assay.Calibration.from_base(z - x, x)  # q is x too high
        >>> bias, width = shares(assay.moments(slope)(assay.Draws([1.0, -1.0])))
        >>> width.get_xlabel()
        'simulations near x_o (% of all)'
    """
    told = _told(result)
    sizes, worst = _sizes(told), told.worst[:MOST]
    bias, width = pair = panels(ax, 2, 1.75 + 0.07 * len(worst), 1)
    shifts = _towards(told.bias, sizes.bias)
    widths = _towards(told.dispersion, sizes.dispersion)
    reach = _reach(widths[..., worst])
    wide = _inside(widths, reach)
    for i, j in enumerate(worst):
        aside = (i - (len(worst) - 1) / 2) / 30
        label = named(told.names[j], LETTERS)
        _draw_shares(bias, shifts, j, aside, **style(i), label=label)
        _draw_shares(width, wide, j, aside, **style(i))
    ticks = ["x_o", *(f"{100 * share:.2g}" for share in sizes.near)]
    for panel, right, words in ((bias, 0, "bias (sd of q)"), (width, 1, "sd of q / true sd")):
        panel.axhline(right, color=INK, lw=0.8, ls="--", zorder=1)
        panel.set(ylabel=words, xlim=(-0.15, len(sizes.near) + 0.15))
        panel.set_xticks(range(len(ticks)), ticks)
        panel.spines[["top", "right"]].set_visible(False)
    _ratios(width, "y", reach)
    width.set_xlabel("simulations near x_o (% of all)")
    p = np.min([_pvalues(told.bias), _pvalues(told.dispersion)], 0)
    legend(bias, title=smallest(p, told.names))
    return pair


def _towards(estimate: Estimate, near: np.ndarray) -> np.ndarray:
    """Numbers and ends of their intervals at x_o, and near it at each share, (3, 1 + c, m)."""
    there = (estimate.at, estimate.at_lower, estimate.at_upper)
    blank = np.full(near.shape[2], np.nan)
    at = np.stack([blank if part is None else part for part in there])
    return np.concatenate([at[:, None], near], 1)


def _pvalues(estimate: Estimate) -> np.ndarray:
    """P-values (j,) of claims."""
    assert estimate.pvalue is not None
    return estimate.pvalue


def _draw_shares(ax: Axes, kind: np.ndarray, j: int, aside: float, **line: Any) -> None:
    """Draws one parameter at x_o, and near it at each share, all a little aside."""
    value, lower, upper = kind[..., j]
    across = np.arange(len(value)) + aside
    ax.vlines(across, lower, upper, colors=line["color"], lw=1.2)
    ax.plot(across, value, lw=0.8, **line)
    faces = ["white", *[line["color"]] * (len(value) - 1)]
    ax.scatter(across, value, s=14, c=faces, ec=line["color"], zorder=3)


def near(result: Told, ax: Any = None) -> np.ndarray:
    """Draws where truths near x_o lie in q's own scale, over draws of q at the same x.

    If q is right near x_o, outlines and greys have the same shape; outlines to the left mean that
    q is too high, narrower ones that it is too wide. ``ax`` holds one axes for each parameter that
    is drawn, the worst ones; the worst three are drawn in new axes if None.
    """
    told = _told(result)
    _sizes(told)
    count = min(MOST_NEAR, len(told.names)) if ax is None else max(1, len(listed(ax)))
    worst = told.worst[:count]
    drawn = panels(ax, len(worst), 2.2, MOST_NEAR)
    edges, draws, truths = near_shares(told, worst.tolist())
    assert told.truths is not None
    label = f"{int(np.isfinite(told.truths).all(1).sum())} truths near x_o"
    for panel, j, q, truth in zip(drawn, worst, draws, truths, strict=True):
        panel.stairs(q, edges, fill=True, color=ENVELOPE, label="draws of q")
        panel.stairs(truth, edges, color=CURVE, lw=1.2, label=label)
        panel.axvline(0, color=INK, lw=0.8, ls="--")
        panel.set(xlim=(edges[0], edges[-1]), ylim=(0, None), ylabel="share in each bin")
        panel.set_xlabel(f"{named(told.names[j])}\n(value − mean) / sd of q")
        panel.spines[["top", "right"]].set_visible(False)
        legend(panel, 1)
    return drawn


def correlations(result: Told, ax: Axes | None = None) -> Axes:
    """Draws how much too high the correlations of q are, near x_o, as a heat map.

    Pairs that are wrong by more than noise have a frame. What is not known is left white. Of more
    than 24 parameters the worst are drawn.
    """
    told = _told(result)
    _sizes(told)
    estimate, m = told.correlation, len(told.names)
    if m < 2 or estimate is None:
        raise ValueError(f"result: expected two or more parameters; got {m}.")
    p = _pvalues(estimate)
    first = [ends[p.argmin()] for ends in np.triu_indices(m, 1)]
    both = ", ".join(named(told.names[j], 10) for j in first)
    some = drawn_of(told, MOST_CORRELATED)
    among = np.all([np.isin(ends, some) for ends in np.triu_indices(m, 1)], 0)
    estimate, m = estimate[among], len(some)
    names = [named(told.names[j], LETTERS) for j in some]
    table = np.full((m, m), np.nan)
    table[np.triu_indices(m, 1)[::-1]] = estimate.value
    ax = axes(ax, 1.5 + 0.23 * m)
    most = max(0.1, float(np.nanmax(np.abs(table), initial=0)))
    image = ax.imshow(table[1:, :-1], cmap=ERRORS, vmin=-most, vmax=most, aspect="auto")
    for (i, j), wrong in zip(combinations(range(m), 2), estimate.wrong, strict=True):
        if wrong:
            ax.add_patch(Rectangle((i - 0.5, j - 1.5), 1, 1, fill=False, ec=INK, lw=1.4))
        if m <= NUMBERED and np.isfinite(table[j, i]):
            number = f"{table[j, i]:+.2f}".replace("-", "−")
            ax.text(i, j - 1, number, ha="center", va="center", fontsize=SMALL)
    ax.set_xticks(range(m - 1), names[:-1], rotation=90 if m > 3 else 0)
    ax.set_yticks(range(m - 1), names[1:])
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    bar = ax.figure.colorbar(image, ax=ax)
    bar.set_label("correlation of q − true one", fontsize=LABEL)
    bar.ax.tick_params(labelsize=SMALL)
    if estimate.wrong.any():
        ax.set_xlabel("framed: wrong by more than noise", fontsize=SMALL)
    ax.set_title(f"smallest corrected p = {p.min():.3g} ({both})", fontsize=LABEL)
    return ax


def _told(result: Told) -> Effects:
    """Effects at the only observation."""
    if isinstance(result, Effects):
        made = result
    else:
        check_kind("result", result, "effects, or what moments or lc2st found", LocalResult)
        made = read(only(result))
    one: Effects = only(made)
    return one


def _sizes(told: Effects) -> Sizes:
    """Numbers near x_o at every share."""
    if told.sizes is None:
        raise ValueError(
            "result: expected effects from truths near x_o, such as effects(moments(calibration)"
            "(x_o)); got those of a density ratio."
        )
    return told.sizes

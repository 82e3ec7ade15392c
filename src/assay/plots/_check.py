"""What a check found: where x_o lies among the simulations, and one figure for a paper."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .._support.inputs import check_kind
from ..results import position
from ..verdict import OUTSIDE, Verdict
from ._bounds import MOST_ROWS, forest, near
from ._canvas import axes, legend, open_corner, small
from ._local import null_histogram, pp
from ._numbers import COMPONENTS, components
from ._style import BAND, CURVE, ENVELOPE, GREEN, INK, LABEL, WIDTH, display_name

# Colour and marker of each verdict: shapes distinguish them as well as colours.
VERDICT_STYLES = {
    "passed": (GREEN, "o"),
    "inconclusive": ("#5a5a5a", "^"),
    "outside": (INK, "s"),
    "rejected": (CURVE, "X"),
}
# Points at which q was tested, and those of the observations.
TESTED, OWN = {"s": 22, "lw": 0.9}, {"s": 40, "ec": "white", "lw": 0.6}


def surroundings(check: Verdict, ax: Axes | None = None) -> Axes:
    """Draws where the observations lie among the simulated ones, with their verdicts.

    Coordinates are the entries of x where there are at most two, or else its first two principal
    components. Where q was tested at simulated observations, crosses are rejected there.
    """
    check_kind("check", check, "what assay.check found", "surroundings", "verdicts")
    around = check.surroundings
    if around is None:
        raise ValueError("check: expected simulated observations around x_o; got none.")
    s, own = len(around.x), check.test.x.reshape(len(check), -1)
    x = np.nan_to_num(np.concatenate([around.x.reshape(s, -1), own]).astype(float))
    d = x.shape[1]
    ax = axes(ax, 3.2 if d > 1 else 1.9)
    if d > 1:
        at, titles = (x, ("x[0]", "x[1]")) if d == 2 else (components(x), COMPONENTS)
        ax.set(xlabel=titles[0], ylabel=titles[1])
    else:
        # Simulations are spread upwards, so that those at about the same x do not hide each other.
        spread = 0.618 * np.arange(len(x)) % 1 - 0.5
        spread[s:] = 0
        at = np.column_stack([x, spread])
        ax.set(xlabel="x[0]", ylim=(-0.7, 0.7), yticks=[])
    simulated, own = at[:s], at[s:]
    is_near = around.near.any(0)
    points: list[tuple[np.ndarray, dict[str, Any]]] = [
        (simulated[~is_near], {"s": 5, "c": ENVELOPE, "label": "simulated"}),
        (simulated[is_near], {"s": 5, "c": BAND, "label": "near x_o"}),
        (simulated[around.pvalue <= check.alpha], {"marker": "x", "c": CURVE, **TESTED}),
        (simulated[around.pvalue > check.alpha], {"ec": GREEN, "fc": "none", **TESTED}),
    ]
    for word, (colour, marker) in VERDICT_STYLES.items():
        if word in check.verdicts:
            style = {"c": colour, "marker": marker, "label": word, **OWN}
            points.append((own[np.array(check.verdicts) == word], style))
    for place, shape in points:
        ax.scatter(*place.T, **shape)
    open_corner(ax)
    return legend(ax, 3, handletextpad=0.1)


def summary(check: Verdict, which: int | str = 0) -> Figure:
    """Draws what :func:`assay.check` found at one observation, by its number or label.

    The first row has the intervals of means and widths, the second the true parameters near x_o
    over draws of q, the third the null of the test and a classifier's probabilities, if there are
    any. Of an observation that is outside, it only shows where it lies among the simulations.
    """
    check_kind("check", check, "what assay.check found", "labels", "verdicts", "bounds")
    i = position(check.labels, which)
    if check.verdicts[i] == OUTSIDE:
        figure, ax = plt.subplots(figsize=(WIDTH, 3.4), layout="constrained")
        surroundings(check, small(ax))
    else:
        figure = _three_rows(check, i)
    title = f"{display_name(check.labels[i], 60)}: {check.verdicts[i]}"
    figure.suptitle(title, fontsize=LABEL + 1)
    return figure


def _three_rows(check: Verdict, i: int) -> Figure:
    """Bounds; true parameters near x_o; the test and, if there is one, the classifier."""
    rows, found = min(MOST_ROWS, len(check.names)), check.classified
    heights = [1.1 + 0.19 * rows, 2.3, 2.4 if found is None else 3.6]
    figure = plt.figure(figsize=(2 * WIDTH + 0.2, sum(heights)), layout="constrained")
    grid = figure.add_gridspec(3, 1, height_ratios=heights)
    columns = (2, min(3, len(check.names)), 2)
    above, middle, below = (
        [small(ax) for ax in figure.add_subfigure(grid[row]).subplots(1, n, squeeze=False)[0]]
        for row, n in enumerate(columns)
    )
    forest(check.bounds, above, i, check.tolerance)
    near(check.bounds, middle, i)
    null_histogram(check.test[i], below[0], check.alpha)
    if found is None:
        surroundings(check, below[1])
    else:
        pp(found[i] if found.many else found, below[1], check.alpha)
    return figure

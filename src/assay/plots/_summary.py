"""One figure for a paper: what a check found at one observation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from .._support.inputs import check_kind
from ..results import position
from ._bounds import forest, near
from ._canvas import LABEL, WIDTH, named, small
from ._context import surroundings
from ._local import null_histogram, pp

if TYPE_CHECKING:
    from ..verdict import Verdict


def summary(check: Verdict, which: int | str = 0) -> Figure:
    """Draws what :func:`assay.check` found at one observation, by its number or label.

    Above, the intervals of means and widths; below, the true parameters near x_o over draws of q,
    the null of the test, and a classifier's probabilities where there are any. Of an observation
    that is outside, of which nothing is said, it shows where it lies among the simulations.
    """
    check_kind("check", check, "what assay.check found", "labels", "verdicts", "bounds")
    i = position(check.labels, which)
    title = f"{named(check.labels[i], 60)}: {check.verdicts[i]}"
    if check.verdicts[i] == "outside":
        figure, ax = plt.subplots(figsize=(WIDTH, 3.4), layout="constrained")
        surroundings(check, small(ax))
        figure.suptitle(title, fontsize=LABEL + 1)
        return figure
    rows = min(40, len(check.names))
    heights = [1.1 + 0.19 * rows, 2.3, 2.4 if check.classified is None else 3.6]
    figure = plt.figure(figsize=(2 * WIDTH + 0.2, sum(heights)), layout="constrained")
    parts = figure.add_gridspec(3, 1, height_ratios=heights)
    above, middle, below = (figure.add_subfigure(parts[i]) for i in range(3))
    forest(check.bounds, [small(ax) for ax in above.subplots(1, 2)], i, check.tolerance)
    panels = middle.subplots(1, min(3, len(check.names)), squeeze=False)[0]
    near(check.bounds, [small(ax) for ax in panels], i)
    tests = below.subplots(1, 2)
    null_histogram(check.test[i], small(tests[0]), check.alpha)
    if check.classified is None:
        surroundings(check, small(tests[1]))
    else:
        found = check.classified
        pp(found[i] if found.many else found, small(tests[1]), check.alpha)
    figure.suptitle(title, fontsize=LABEL + 1)
    return figure

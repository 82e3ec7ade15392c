"""One figure for a paper: what a check found at one observation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure

from .._core import check_kind
from ..interpret.trust import OUTSIDE
from ..results import position
from ._canvas import COLOURS, LABEL, WIDTH, legend, named, small
from ._effects import drawn_of, effects
from ._interpret import log_ticks
from ._local import null_histogram, pp

if TYPE_CHECKING:
    from ..interpret.verdict import Verdict

# Marks of the kinds of error whose detectable size is drawn.
MARKS = {"shift": "o", "too wide": ">", "too narrow": "<"}
# The largest size on the axis; what is larger, or never detected, stands there.
LARGEST = 5.0


def summary(check: Verdict, which: int | str = 0) -> Figure:
    """Draws what :func:`assay.check` found at one observation, by its number or label.

    Above, the null of the test that decides and, where a classifier was run, the distribution of
    its probabilities; below, bias, width and the smallest errors that would have been detected,
    for every parameter, or the worst 40. Of an observation outside the simulated ones, where
    nothing can be said, there is no lower row. Returns the figure, of two columns' width.
    """
    check_kind("check", check, "what assay.check found", "labels", "verdicts", "local")
    i = position(check.labels, which)
    heights = [2.2 if check.classifier is None else 3.4]
    if check.verdicts[i] != OUTSIDE:
        heights.append(1.1 + 0.19 * len(drawn_of(check.effects[i])))
    figure = plt.figure(figsize=(2 * WIDTH + 0.2, sum(heights)), layout="constrained")
    parts = figure.add_gridspec(len(heights), 1, height_ratios=heights)
    for part, draw in zip(range(len(heights)), (_tests, _errors), strict=False):
        draw(check, i, figure.add_subfigure(parts[part]))
    many = f", corrected p = {check.local.adjusted[i]:.3g}" if len(check.labels) > 1 else ""
    title = f"{named(check.labels[i], 60)}: {check.verdicts[i]}{many}"
    figure.suptitle(title, fontsize=LABEL + 1)
    return figure


def _tests(check: Verdict, which: int, part: SubFigure) -> None:
    """The null of the test that decides, and the probabilities of the classifier."""
    panels = part.subplots(1, 1 if check.classifier is None else 2, squeeze=False)[0]
    null_histogram(check.local[which], small(panels[0]), check.alpha)
    if check.classifier is not None:
        pp(check.classifier[which], small(panels[1]), check.alpha)


def _errors(check: Verdict, which: int, part: SubFigure) -> None:
    """Effects, and what would have been detected."""
    bias, width, size = (small(ax) for ax in part.subplots(1, 3))
    effects(check.effects[which], (bias, width))
    _detectable(check, which, size)


def _detectable(check: Verdict, which: int, ax: Axes) -> None:
    """Draws the smallest error of each kind and parameter that would have been detected."""
    some, drawn = drawn_of(check.effects[which]), []
    m = len(some)
    for (kind, marker), colour in zip(MARKS.items(), COLOURS, strict=False):
        curves = [curve for curve in check.detectable.curves if curve.error.kind == kind]
        sizes = np.minimum([float(curves[j].mde[which]) for j in some], LARGEST)
        shape: dict[str, Any] = {"marker": marker, "color": colour, "ls": "", "ms": 4}
        ax.plot(sizes, np.arange(m), label=kind, clip_on=False, **shape)
        drawn.append(sizes)
    ax.set(xscale="log", xlim=(0.7 * np.min(drawn), LARGEST), ylim=(m - 0.4, -0.6))
    log_ticks(ax, *ax.get_xlim())
    numbers = [text.get_text() for text in ax.get_xticklabels()]
    ax.set_xticks(ax.get_xticks(), [*numbers[:-1], f"≥ {LARGEST:g}"])
    target = f"size detected with probability {check.detectable.target:g}"
    ax.set_xlabel(f"{target}\n(shift: sd of q; width: ratio of sd − 1)")
    ax.set_yticks(np.arange(m), [])
    ax.tick_params(axis="y", length=0)
    ax.spines[["top", "right", "left"]].set_visible(False)
    legend(ax, 3, handletextpad=0.1)

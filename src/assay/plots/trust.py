"""The trust map as a picture, in one or two coordinates."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from ..trust import REJECTED, TRUSTED, UNTESTED, TrustMap
from .canvas import BAND, CURVE, GREEN, STEP, axes, legend

__all__ = ["trust_map"]

# Shapes tell them apart as well as colours.
STYLES = {
    TRUSTED: ("trusted", GREEN, "o"),
    UNTESTED: ("untested", BAND, "^"),
    REJECTED: ("rejected", CURVE, "X"),
}


def trust_map(found: TrustMap, ax: Axes | None = None, coordinates: Any = None) -> Axes:
    """Draws where q is rejected, trusted and untested.

    Args:
        found: What :func:`assay.trust_map` found.
        ax: Where to draw; new axes of one column's width if None.
        coordinates: One or two numbers for each observation, with shape (o,), (o, 1) or (o, 2),
            such as some parameters or entries of x; the first two principal components of x by
            default. With one number, the p-value is drawn against it.

    Returns:
        The axes.
    """
    names = ("coordinate 1", "coordinate 2")
    if coordinates is None:
        coordinates, names = _components(found.x)
    table = np.asarray(coordinates, float)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2 or len(table) != len(found.x) or table.shape[1] not in (1, 2):
        raise ValueError(
            f"coordinates: expected one or two numbers for each of {len(found.x)} observations; "
            f"got shape {table.shape}."
        )
    ax = axes(ax, 3.2)
    single = table.shape[1] == 1
    height = found.pvalue if single else table[:, 1]
    for verdict, (label, colour, marker) in STYLES.items():
        some = found.verdicts == verdict
        ax.scatter(
            table[some, 0], height[some], s=26, c=colour, marker=marker, lw=0.4, label=label
        )
    if single:
        ax.axhline(found.alpha, color=STEP, lw=0.8, ls="--")
        ax.set(ylim=(-0.02, 1.02))
    ax.set_xlabel(names[0])
    ax.set_ylabel("p-value" if single else names[1])
    legend(ax, 3, handletextpad=0.2)
    return ax


def _components(x: np.ndarray) -> tuple[np.ndarray, tuple[str, str]]:
    """The entries of x where there are at most two, or else their first principal components."""
    table = x.reshape(len(x), -1).astype(float)
    if table.shape[1] <= 2:
        return table, ("x[0]", "x[1]")
    spread = table.std(0)
    table = (table - table.mean(0)) / np.where(spread > 0, spread, 1)
    _, _, axes = np.linalg.svd(table, full_matrices=False)
    # An eigenvector's sign is arbitrary: its largest entry is made positive.
    signs = np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])
    projected = table @ (axes * signs[:, None])[:2].T
    return projected, ("first principal component of x", "second principal component of x")

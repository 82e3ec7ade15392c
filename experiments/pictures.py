"""Pictures: how every figure is kept, and the pair plots of Figure 4."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure, SubFigure

from assay._support.files import atomic_write
from assay.plots._style import INK

__all__ = ["colour_bar", "save", "triangle"]

# Limits of colours in all panels of a figure; bins, and how far beyond the prior they go.
LIMITS, BINS, MARGIN = Normalize(0.2, 0.8), 20, 0.08


def save(figure: Figure, path: Path, dpi: int = 150) -> None:
    """Keeps a figure as an image, and beside it as a vector drawing; then it is closed.

    Each file appears whole or not at all. Neither says when it was drawn, so that the same figure
    is the same file.

    Args:
        figure: The figure.
        path: The image, a PNG; the drawing is a PDF of the same name.
        dpi: Dots to an inch of the image.
    """
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=dpi, metadata={"Software": None})
    undated = {"CreationDate": None, "Creator": None}
    with mpl.rc_context({"pdf.fonttype": 42}), atomic_write(path.with_suffix(".pdf")) as file:
        figure.savefig(file, format="pdf", metadata=undated)
    plt.close(figure)


def triangle(
    part: SubFigure,
    theta: np.ndarray,
    d: np.ndarray,
    truth: Sequence[float] | np.ndarray,
    prior: np.ndarray,
    names: Sequence[str],
) -> Any:
    """Means of P(class 1) in bins of one parameter, and of two; returns what a bar needs.

    Args:
        part: Where.
        theta: Draws of q, (s, m).
        d: P(class 1) there, (s,).
        truth: The true parameters, (m,).
        prior: Edges of the prior, (m, 2), which are dashed.
        names: The names of parameters.
    """
    m = theta.shape[1]
    axes: Any = part.subplots(m, m, gridspec_kw={"wspace": 0.06, "hspace": 0.06})
    edges = [_edges(column, *ends) for column, ends in zip(theta.T, prior, strict=True)]
    for i in range(m):
        for j in range(m):
            ax = axes[i, j]
            ax.set_visible(j <= i)
            if j < i:
                mesh = _squares(ax, (theta[:, j], theta[:, i]), (edges[j], edges[i]), d)
                ax.plot(truth[j], truth[i], "o", ms=3, mfc="none", color=INK)
                for end in prior[i]:
                    ax.axhline(end, color=INK, lw=0.6, ls="--")
            elif j == i:
                _bars(ax, theta[:, j], edges[j], d)
                ax.axvline(truth[j], color=INK, lw=0.8)
            for end in prior[j]:
                ax.axvline(end, color=INK, lw=0.6, ls="--")
            ax.set_xlim(edges[j][0], edges[j][-1])
            ax.tick_params(labelsize=5, length=2)
            if i < m - 1:
                ax.set_xticklabels([])
            else:
                ax.set_xlabel(names[j], fontsize=7)
            if j or not i:
                ax.set_yticks([])
            else:
                ax.set_ylabel(names[i], fontsize=7)
    return mesh


def _edges(column: np.ndarray, low: float, high: float) -> np.ndarray:
    """Bins over nearly all draws, and over no more than the prior and a margin."""
    margin = MARGIN * (high - low)
    first, last = np.quantile(column, (0.005, 0.995))
    first = np.clip(first, low - margin, high)
    return np.linspace(first, np.clip(last, first + margin, high + margin), BINS + 1)


def _squares(ax: Axes, at: Any, edges: Any, d: np.ndarray) -> Any:
    """Means in squares that hold a draw."""
    x, y = at
    counts, sums = (np.histogram2d(x, y, edges, weights=w)[0] for w in (None, d))
    means = np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)
    ax.set_ylim(edges[1][0], edges[1][-1])
    ax.set_facecolor("#d9d9d9")
    return ax.pcolormesh(*edges, means.T, cmap="RdBu", norm=LIMITS, rasterized=True)


def _bars(ax: Axes, column: np.ndarray, edges: np.ndarray, d: np.ndarray) -> None:
    """Counts, coloured by means."""
    counts, sums = (np.histogram(column, edges, weights=w)[0] for w in (None, d))
    means = np.divide(sums, counts, out=np.full(len(sums), 0.5), where=counts > 0)
    colours = plt.get_cmap("RdBu")(LIMITS(means))
    ax.bar(edges[:-1], counts, np.diff(edges), align="edge", color=colours, ec="#999999", lw=0.2)


def colour_bar(part: SubFigure, mesh: Any) -> None:
    """What colours mean, in a line of its own."""
    bar = part.colorbar(mesh, cax=part.add_axes((0.3, 0.62, 0.4, 0.2)), orientation="horizontal")
    bar.set_label("P(class 1): red where q has too much mass, blue where too little", size=8)
    bar.ax.tick_params(labelsize=7)

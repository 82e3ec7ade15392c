"""Pairs of a calibration as they are: how truths lie among the draws of q at their x.

Nothing is tested here. Truths are measured in q's own scale, (truth - mean of q) / sd of q, where
mean and sd are those of the draws of q at the same x.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._support.inputs import check_kind, check_names
from ._canvas import BAND, CURVE, ENVELOPE, INK, SMALL, named, open_corner, panels

if TYPE_CHECKING:
    from ..data.calibration import Calibration

# Pairs that are drawn, and new panels, at most.
MOST_PAIRS, MOST_PANELS = 300, 24
# The share of draws in an interval.
HELD = 0.9
# Draws of q at each x, at least, that have a deviation.
FEWEST = 3
# How far a z-score is drawn, at least and at most.
NEAREST, FARTHEST = 3.0, 8.0


def recovery(
    calibration: Calibration, ax: Any = None, names: Sequence[str] | None = None
) -> np.ndarray:
    """Draws the mean of q and its central 90 % interval against the truth, for every parameter.

    Above each panel stand the correlation r of means and truths, and the root mean square error
    (RMSE) of means, in units of the parameter, over all pairs; at most 300 pairs are drawn. A q
    that is right need not recover anything: where x says little, means stay near that of the
    prior. ``ax`` holds one axes for each parameter; if None, new ones are made for the first 24.
    """
    theta, theta_q = _arrays(calibration, 1)
    some = _some(len(theta))
    grid = _grid(calibration, ax, names)
    for j, (panel, name) in enumerate(grid):
        truth, mean = theta[:, j], theta_q[:, :, j].mean(1)
        ends = np.quantile(theta_q[some, :, j], [(1 - HELD) / 2, (1 + HELD) / 2], axis=1)
        panel.vlines(truth[some], *ends, color=BAND, lw=0.5, alpha=0.6, zorder=1)
        panel.scatter(truth[some], mean[some], s=5, color=CURVE, lw=0, zorder=2)
        panel.axline((float(truth.mean()),) * 2, slope=1, color=INK, lw=0.8, ls="--", zorder=3)
        error = float(np.sqrt(np.mean((mean - truth) ** 2)))
        panel.set_title(f"{name}\nr = {_correlation(truth, mean):.2f}, RMSE = {error:.2g}")
        panel.set(xlabel="true value (own units)", ylabel="mean of q, 90 % interval")
    return _finished(grid)


def contraction(
    calibration: Calibration, ax: Any = None, names: Sequence[str] | None = None
) -> np.ndarray:
    """Draws the z-score of truths against the contraction of q, for every parameter.

    The contraction, 1 - var(q) / var(prior), is one where x tells all and zero where it tells
    nothing; the variance of the prior is that of all truths. If q is right, about 95 % of z-scores
    lie in the band, some more outside where there are few draws of q. What lies beyond the axes is
    drawn at their edge. ``ax`` holds one axes for each parameter; if None, new ones are made for
    the first 24.
    """
    theta, theta_q = _arrays(calibration, FEWEST)
    some = _some(len(theta))
    z = _over(theta - theta_q.mean(1), theta_q.std(1, ddof=1))
    shrunk = 1 - _over(theta_q.var(1, ddof=1), theta.var(0, ddof=1))
    far = _far(z)
    grid = _grid(calibration, ax, names)
    for j, (panel, name) in enumerate(grid):
        low = float(np.clip(np.quantile(shrunk[:, j], 0.01), -1, 0)) - 0.05
        panel.axhspan(-2, 2, color=ENVELOPE, lw=0)
        panel.axhline(0, color=INK, lw=0.8, ls="--")
        across, up = np.clip(shrunk[some, j], low, 1.05), np.clip(z[some, j], -far, far)
        panel.scatter(across, up, s=6, color=CURVE, lw=0, alpha=0.7, clip_on=False, zorder=3)
        panel.set_title(f"{name}\nmedian contraction {np.median(shrunk[:, j]):.2f}")
        panel.set(xlim=(low, 1.05), ylim=(-far, far))
        panel.set(xlabel="1 − var(q) / var(prior)", ylabel="z-score (sd of q)")
    return _finished(grid)


def _arrays(calibration: Calibration, fewest: int) -> tuple[np.ndarray, np.ndarray]:
    """Truths (n, m) and draws of q (n, k, m), of which there are enough."""
    check_kind("calibration", calibration, "a Calibration", "theta_q", "members")
    members = calibration.members.double().cpu().numpy()
    k = members.shape[1] - 1
    if k < fewest:
        raise ValueError(f"theta_q: expected at least {fewest} draws of q at each x; got {k}.")
    return members[:, 0], members[:, 1:]


def _over(off: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Distances in a scale; beyond all axes where that is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.nan_to_num(off / spread, posinf=FARTHEST, neginf=-FARTHEST))


def _far(z: np.ndarray) -> float:
    """How far an axis of z-scores goes, both ways."""
    return float(np.clip(1.05 * np.quantile(np.abs(z), 0.99), NEAREST, FARTHEST))


def _some(n: int) -> np.ndarray:
    """Pairs that are drawn."""
    return np.unique(np.linspace(0, n - 1, min(n, MOST_PAIRS)).astype(int))


def _labels(calibration: Calibration, names: Sequence[str] | None) -> list[str]:
    """Names of the parameters, as they are drawn."""
    given = tuple(f"theta[{j}]" for j in range(calibration.m)) if names is None else names
    return [named(name) for name in check_names("names", given, calibration.m)]


def _grid(calibration: Calibration, ax: Any, names: Sequence[str] | None) -> list[tuple[Any, str]]:
    """A panel with its name for each parameter, or for the first of many."""
    labels = _labels(calibration, names)
    shown = labels if ax is not None else labels[:MOST_PANELS]
    return list(zip(panels(ax, len(shown), 2.1, 3), shown, strict=True))


def _finished(grid: list[tuple[Any, str]]) -> np.ndarray:
    """The panels, with small words and a few numbers."""
    for panel, _ in grid:
        panel.title.set_fontsize(SMALL)
        panel.locator_params(nbins=5)
        open_corner(panel)
    return np.array([panel for panel, _ in grid], dtype=object)


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    """The correlation of two columns (n,); NaN where one does not vary."""
    a, b = a - a.mean(), b - b.mean()
    size = float(np.sqrt((a @ a) * (b @ b)))
    return float(a @ b) / size if size > 0 else float("nan")

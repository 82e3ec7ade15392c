"""What pictures of matplotlib and figures of the report share: plain numbers, nothing drawn."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ..results import PPCurve

if TYPE_CHECKING:
    from collections.abc import Sequence

# Curves that are told apart in one picture; the others are drawn in one grey.
MOST_CURVES = 12
# Bins of truths near x_o, and where they end, in sd of q.
BINS, END = 25, 4.0
# Names of what :func:`components` returns.
COMPONENTS = ("first principal component of x", "second principal component of x")


def farthest(lines: np.ndarray, ideal: np.ndarray, most: int = MOST_CURVES) -> list[int]:
    """The curves (j, g) that lie farthest from the ideal (g,), at most so many, in their order."""
    far = np.abs(lines - ideal).max(1)
    return sorted(int(j) for j in np.argsort(-far, kind="stable")[:most])


def near_shares(
    truths: np.ndarray, draws: np.ndarray, which: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Draws of q and true parameters (t, m) in bins of q's own scale, for some parameters (j,).

    Edges (b + 1,), and the shares (j, b) of draws and of true parameters between them; what lies
    beyond is counted in the outermost bins.
    """
    edges = np.linspace(-END, END, BINS + 1)

    def shares(part: np.ndarray) -> np.ndarray:
        columns = (part[np.isfinite(part[:, j]), j].clip(-END, END) for j in which)
        return np.stack([np.histogram(c, edges)[0] / max(1, len(c)) for c in columns])

    return edges, shares(draws), shares(truths)


def closed(curve: np.ndarray) -> np.ndarray:
    """A curve (g,) with its known ends, at which it is 0 and 1."""
    return np.concatenate([[0.0], curve, [1.0]])


def mirrored(curve: PPCurve) -> PPCurve:
    """The curve of P(class 1), the truth, from that of P(class 0).

    Its values are shares of draws strictly below the levels, so that steps go down to the left.

    Example:
        >>> level, share = np.array([0.0, 0.5, 1.0]), np.array([0.0, 0.2, 1.0])
        >>> curve = PPCurve(level, *[share] * 5, np.array(1.0), 0.05)
        >>> mirrored(curve).ecdf.round(1).tolist()
        [0.0, 0.8, 1.0]
    """
    ends = {"lower": "upper", "upper": "lower"}
    ends |= {f"envelope_{a}": f"envelope_{b}" for a, b in ends.items()}
    flipped = {a: 1 - getattr(curve, b)[..., ::-1] for a, b in (ends | {"ecdf": "ecdf"}).items()}
    return replace(curve, levels=1 - curve.levels[::-1], **flipped)


def null_bands(curve: PPCurve) -> tuple[tuple[np.ndarray, np.ndarray, str], ...]:
    """Both ends of each null band and what it holds, in words; the wider one first."""
    return (
        (curve.envelope_lower, curve.envelope_upper, "whole curve"),
        (curve.lower, curve.upper, "each level"),
    )


def bin_count(null: np.ndarray) -> int:
    """Bins of a histogram of nulls (H,).

    A null without any spread, as of a classifier that learns nothing, is a single bar.
    """
    return min(30, max(5, round(1.5 * len(null) ** 0.5))) if np.ptp(null) > 0 else 1


def components(x: np.ndarray) -> np.ndarray:
    """The first two principal components of standardised entries (n, d), with shape (n, 2).

    Of one point there is only one.

    Example:
        >>> components(np.array([[0.0, 1, 2], [1, 3, 4], [2, 5, 6]]))[:, 0].round(2).tolist()
        [-2.12, 0.0, 2.12]
    """
    spread = x.std(0)
    table = (x - x.mean(0)) / np.where(spread > 0, spread, 1)
    directions = np.linalg.svd(table, full_matrices=False)[2][:2]
    # A direction's sign is arbitrary: its largest entry is made positive.
    largest = np.abs(directions).argmax(1)
    signs = np.sign(directions[np.arange(len(directions)), largest])
    return np.asarray(table @ (directions * signs[:, None]).T)

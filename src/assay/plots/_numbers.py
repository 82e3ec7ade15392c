"""What pictures compute, the report some of it too: plain numbers, without matplotlib."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ..results import PPCurve

# Names of what `components` returns.
COMPONENTS = ("first principal component of x", "second principal component of x")


def farthest(curves: np.ndarray, ideal: np.ndarray, most: int) -> list[int]:
    """Indices, in order, of the curves (j, g) that lie farthest from the ideal (g,)."""
    distances = np.abs(curves - ideal).max(1)
    return sorted(int(j) for j in np.argsort(-distances, kind="stable")[:most])


def mirrored(curve: PPCurve) -> PPCurve:
    """The curve of P(class 1), with shares strictly below the levels, from that of P(class 0)."""
    ends = {"lower": "upper", "upper": "lower"}
    ends |= {f"envelope_{a}": f"envelope_{b}" for a, b in ends.items()}
    flipped = {a: 1 - getattr(curve, b)[..., ::-1] for a, b in (ends | {"ecdf": "ecdf"}).items()}
    return replace(curve, levels=1 - curve.levels[::-1], **flipped)


def bin_count(null: np.ndarray) -> int:
    """How many bins a histogram of null statistics (H,) has; one if they are all equal."""
    return min(30, max(5, round(1.5 * len(null) ** 0.5))) if np.ptp(null) > 0 else 1


def components(x: np.ndarray) -> np.ndarray:
    """The first two principal components (n, 2) of standardised entries (n, d); one if n is 1."""
    sd = x.std(0)
    scaled = (x - x.mean(0)) / np.where(sd > 0, sd, 1)
    directions = np.linalg.svd(scaled, full_matrices=False)[2][:2]
    # A direction's sign is arbitrary: its largest entry is made positive.
    largest = np.abs(directions).argmax(1)
    signs = np.sign(directions[np.arange(len(directions)), largest])
    return np.asarray(scaled @ (directions * signs[:, None]).T)


def critical_value(null: np.ndarray, alpha: float) -> np.ndarray:
    """What a statistic must exceed to be rejected at level alpha, (...), from nulls (..., H)."""
    # The k-th largest with k = floor(alpha (H + 1)); the largest where nothing can be rejected.
    rank = max(1, int(alpha * (1 + null.shape[-1]) + 1e-9))
    return np.asarray(np.sort(null, axis=-1)[..., -rank])


def one_observation(result: Any) -> Any:
    """The result at its only observation; many are refused."""
    if result.many and len(result) > 1:
        raise ValueError(
            f"result: expected one observation; got {len(result)}. Choose one by its number, such "
            "as result[0]."
        )
    return result[0] if result.many else result

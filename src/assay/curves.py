r"""Local PP-curves: how the class probabilities at x_o are distributed (Algorithm 5).

The empirical distribution function of the class-0 probabilities :math:`1 - d(\theta_i, x_o)` over
draws of q is a step at 1/2 if q is right and the classifier perfect; the nulls say how far from
that step chance leads. Mass right of 1/2 marks draws in regions where q has too much mass, mass
left of it regions where q has too little.
"""

from dataclasses import dataclass

import numpy as np

from .results import LocalResult, pvalue

__all__ = ["PPCurve", "envelope", "pp_curve"]

# Densest at 1/2, where the curves of a nearly blind classifier rise within a hair's breadth.
LEVELS = 0.5 + 0.5 * np.linspace(-1, 1, 201) * np.abs(np.linspace(-1, 1, 201))


@dataclass(frozen=True, eq=False)
class PPCurve:
    """A PP-curve with its null bands; fields have shape (g,), or (o, g) for o observations.

    Args:
        levels: The grid of levels, with shape (g,); it contains 1/2.
        ecdf: The share of draws whose class-0 probability is at most the level.
        lower: Lower end of the pointwise band.
        upper: Upper end of the pointwise band.
        envelope_lower: Lower end of the simultaneous band.
        envelope_upper: Upper end of the simultaneous band.
        pvalue: The p-value of the whole curve, with shape () or (o,): the curve leaves the
            simultaneous band somewhere if and only if it is at most `alpha`.
        alpha: One minus the coverage of the bands under the null.
    """

    levels: np.ndarray
    ecdf: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    envelope_lower: np.ndarray
    envelope_upper: np.ndarray
    pvalue: np.ndarray
    alpha: float


def pp_curve(result: LocalResult, alpha: float = 0.05) -> PPCurve:
    r"""The local PP-curve of a result, with pointwise and simultaneous null bands.

    The simultaneous band is a global envelope: all H + 1 curves are measured by their largest
    excursion from the pointwise mean, in units of the distance of the pointwise quantiles on that
    side. Data and nulls enter alike, so the band is exact under the null.

    Args:
        result: What a local test found.
        alpha: One minus the coverage of the bands.

    References:
        Linhart et al. 2023, Algorithm 5; Myllymäki et al. 2017, *Global envelope tests for spatial
        processes*, for the directional-quantile envelope.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha: expected a number between 0 and 1; got {alpha}.")
    if result.null_probabilities is None:
        raise ValueError(
            f"result: expected one whose nulls were fitted, such as that of lc2st; got one of "
            f"{result.settings['test']}, which has no null curves."
        )
    many = result.probabilities.ndim == 2
    data = result.probabilities if many else result.probabilities[None]
    null = result.null_probabilities if many else result.null_probabilities[None]
    pairs = zip(data, null, strict=True)
    curves = [envelope(_ecdf(np.concatenate([d[None], h])), alpha) for d, h in pairs]
    fields = {name: np.stack([curve[name] for curve in curves]) for name in curves[0]}
    return PPCurve(LEVELS, **{k: v if many else v[0] for k, v in fields.items()}, alpha=alpha)


def _ecdf(probabilities: np.ndarray) -> np.ndarray:
    """Distribution functions (h, g) of class-0 probabilities, from class-1 ones (h, s)."""
    # 1 - d <= level, in the rounding of the probabilities themselves.
    class0 = np.sort(1 - probabilities, axis=1)
    levels = LEVELS.astype(class0.dtype)
    below = np.stack([np.searchsorted(row, levels, side="right") for row in class0])
    return np.asarray(below / probabilities.shape[1])


def envelope(curves: np.ndarray, alpha: float) -> dict[str, np.ndarray]:
    """Curve, bands and p-value from the curves (H + 1, g) of the data, first, and the nulls.

    Args:
        curves: The curves, between 0 and 1.
        alpha: One minus the coverage of the bands.
    """
    lower, upper = np.quantile(curves[1:], [alpha / 2, 1 - alpha / 2], axis=0)
    low, high = np.quantile(curves, [alpha / 2, 1 - alpha / 2], axis=0)
    centre = curves.mean(0)
    # Where no null moves, a curve must move by a visible amount to count.
    below = np.maximum(centre - low, 1e-3)
    above = np.maximum(high - centre, 1e-3)
    moves = curves - centre
    excursions = np.maximum(moves / above, -moves / below).max(1)
    # With the k-th smallest of H + 1 as the edge, exactly the alpha largest lie beyond it.
    count = len(excursions)
    edge = np.sort(excursions)[max(0, count - 1 - int(alpha * count + 1e-9))]
    return {
        "ecdf": curves[0],
        "lower": lower,
        "upper": upper,
        "envelope_lower": np.clip(centre - edge * below, 0, 1),
        "envelope_upper": np.clip(centre + edge * above, 0, 1),
        "pvalue": pvalue(excursions[0], excursions[1:]),
    }

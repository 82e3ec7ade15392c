r"""Local PP-curves: how the class probabilities at x_o are distributed (Algorithm 5).

The empirical distribution function of the class-0 probabilities :math:`1 - d(\theta_i, x_o)` over
draws of q is a step at 1/2 if q is right and the classifier perfect; the nulls say how far from
that step chance leads. Mass right of 1/2 marks draws in regions where q has too much mass, mass
left of it regions where q has too little.
"""

import numpy as np

from .._core import check_kind, check_share, own_terms
from ..results import LC2STResult, PPCurve, envelope

# Densest at 1/2, where the curves of a nearly blind classifier rise within a hair's breadth.
GRID = 0.5 + 0.5 * np.linspace(-1, 1, 201) * np.abs(np.linspace(-1, 1, 201))


@own_terms()
def pp_curve(result: LC2STResult, alpha: float = 0.05) -> PPCurve:
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
    check_kind("result", result, "what lc2st found", LC2STResult)
    alpha = check_share("alpha", alpha)
    if result.null_probabilities is None:
        raise ValueError(
            f"result: expected one whose nulls were fitted, such as that of lc2st; got one of "
            f"{result.settings['test']}, which has no null curves."
        )
    many = result.probabilities.ndim == 2
    data = result.probabilities if many else result.probabilities[None]
    null = result.null_probabilities if many else result.null_probabilities[None]
    pairs = zip(data, null.astype(data.dtype), strict=True)
    curves = [envelope(_ecdf(np.concatenate([d[None], h])), alpha) for d, h in pairs]
    fields = {name: np.stack([curve[name] for curve in curves]) for name in curves[0]}
    return PPCurve(GRID, **{k: v if many else v[0] for k, v in fields.items()}, alpha=alpha)


def _ecdf(probabilities: np.ndarray) -> np.ndarray:
    """Distribution functions (h, g) of class-0 probabilities, from class-1 ones (h, s)."""
    # 1 - d <= level, in the rounding of the probabilities themselves.
    class0 = np.sort(1 - probabilities, axis=1)
    levels = GRID.astype(class0.dtype)
    below = np.stack([np.searchsorted(row, levels, side="right") for row in class0])
    return np.asarray(below / probabilities.shape[1])

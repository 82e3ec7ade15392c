r"""Local multi-PIT: conditional PITs of every coordinate, and their independence, near x_o.

For a flow with base N(0, I), q is right at x if and only if the conditional PITs
:math:`u_j = \Phi(z_j)` are independent uniforms given x. The simulations near x_o estimate their
distribution there, column by column: a curve above the diagonal means true parameters below those
of q, so q is too high; a curve that is steep in the middle means that q is too wide. Dependence
shows in the local correlations :math:`\rho_{ij}` of normal scores :math:`\Phi^{-1}(u_i)` and
:math:`\Phi^{-1}(u_j)`; their statistic is :math:`S = \sum_{i < j} \rho_{ij}^2`. Without a flow,
the k draws of q take its place: see :meth:`assay.local.levels.Levels.pit`.

Reference: Linhart, Gramfort and Rodrigues 2022, *Validation Diagnostics for SBI algorithms based
on Normalizing Flows*, arXiv 2211.09602.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import full_precision
from .._support.random import Seed
from ..data.calibration import Calibration
from ..neighbourhood import Nearest
from ..results import combined, pvalue
from .levels import ALPHAS, LevelResult, Levels, LevelTest

# Levels nearer to 0 or 1 are moved to it: the normal scores of 0 and 1 are infinite.
NEAREST = 1e-6
# The variance of scores is near one if q is right, but zero where all levels are equal.
LEAST_VARIANCE = 0.1


@full_precision()
def lpit(
    calibration: Calibration | Levels,
    near: float | Nearest | None = None,
    null: int | None = None,
    alphas: Any = ALPHAS,
    seed: Seed = 0,
) -> "LPIT":
    """Prepares a test of local conditional PITs.

    Args:
        calibration: Latents of a flow with base N(0, I), or pairs with k draws of q at each x; or
            the PITs themselves.
        near: What is near x_o: a share of the simulations, or :class:`assay.Nearest`.
        null: The number of null copies; 999 by default.
        alphas: The levels at which curves are compared with the diagonal.
        seed: An int or a generator. The same seed gives the same test.

    Returns:
        A test that can be asked at any observation.

    Example:
        >>> z, x = torch.randn(2, 500, 2, generator=torch.Generator().manual_seed(0))
        >>> high = Calibration.from_base(z - torch.tensor([0.5, 0.0]), x)
        >>> result = lpit(high)(torch.zeros(2))
        >>> result.area.sign  # q is too high in the first coordinate
        array([1, 0])
    """
    levels = calibration if isinstance(calibration, Levels) else Levels.pit(calibration, seed)
    return LPIT.of(levels, near, null, alphas, seed)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LPITResult(LevelResult):
    """What a test of local PITs found; see :class:`LevelResult` for its other fields.

    Args:
        curve_statistic: The statistic of all curves together, with shape () or (o,).
        null_curve_statistic: Its values for the null copies, with shape (H,) or (o, H).
        independence: The statistic of all correlations, with shape () or (o,); zero where there
            is but one column.
        null_independence: Its values for the null copies, with shape (H,) or (o, H).
        correlation: Local correlations of normal scores, with shape (j, j) or (o, j, j).
    """

    curve_statistic: np.ndarray
    null_curve_statistic: np.ndarray
    independence: np.ndarray
    null_independence: np.ndarray
    correlation: np.ndarray

    @property
    def pvalue_curves(self) -> np.ndarray:
        """The p-value of all curves together, with shape () or (o,)."""
        return pvalue(self.curve_statistic, self.null_curve_statistic)

    @property
    def pvalue_independence(self) -> np.ndarray:
        """The p-value of all correlations together, with shape () or (o,)."""
        return pvalue(self.independence, self.null_independence)

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        if self.pvalue.ndim:
            return self._many
        wrong = [self._error(j) for j in range(len(self.names)) if self.pvalues[j] <= 0.05]
        parts = wrong[:6] or ["no curve leaves the diagonal by itself"]
        if len(self.names) > 1:
            p = float(self.pvalue_independence)
            word = "a" if p <= 0.05 else "no"
            parts.append(f"{word} dependence of coordinates shows (p = {p:.3g})")
        if len(wrong) > 6:
            parts.append("...")
        return f"Near x_o, at 0.05 each: {'; '.join(parts)} {self._end}."

    def _error(self, j: int) -> str:
        """What a curve that leaves the diagonal says of q."""
        words = [
            {1: "too high", -1: "too low", 0: ""}[int(self.area.sign[j])],
            {1: "too wide", -1: "too narrow", 0: ""}[int(self.width.sign[j])],
        ]
        error = " and ".join(word for word in words if word) or "of another shape"
        return f"q is {error} in {self.names[j]} (p = {self.pvalues[j]:.3g})"

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        own = {"p curves": self.pvalue_curves, "p indep.": self.pvalue_independence}
        return super()._columns | own


@dataclass(frozen=True, eq=False, repr=False)
class LPIT(LevelTest):
    """A test of local PITs; see :class:`LevelTest` for its fields."""

    TEST = "local PIT"

    @full_precision()
    def __call__(self, draws: Any) -> LPITResult:
        """Tests q at one observation or many; draws of q there are not needed."""
        observation = self._observe(draws)
        curves = self.curves(observation.features)
        of_curves = combined(self.statistics(curves))
        correlations = self.correlations(observation.features)
        independence = np.square(np.triu(correlations, 1)).sum((-1, -2))
        both = combined(np.stack([of_curves, independence]))
        fields = self._fields(
            observation,
            curves,
            both if correlations.shape[-1] > 1 else of_curves,
            curve_statistic=of_curves[:, 0],
            null_curve_statistic=of_curves[:, 1:],
            independence=independence[:, 0],
            null_independence=independence[:, 1:],
            correlation=correlations[:, 0],
        )
        return LPITResult(**fields)

    def correlations(self, x_o: Tensor) -> np.ndarray:
        r"""Correlations (o, H + 1, j, j) of normal scores in all versions near x_o.

        :math:`\rho_{ij} = \sum_n w_n (s_{ni} - \bar s_i)(s_{nj} - \bar s_j) / \sqrt{v_i v_j}`,
        with weights that add up to one.
        """
        rows, weights = self._near_rows(x_o)

        def correlate(h: int) -> Tensor:
            u = self.version(h, rows).double().clamp(NEAREST, 1 - NEAREST)
            scores = torch.special.ndtri(u.mT.contiguous())
            j = len(scores)
            i, k = torch.triu_indices(j, j, device=u.device)
            sums = (torch.cat([scores, scores[i] * scores[k]]) @ weights).mT
            mean, second = sums[:, :j], sums.new_zeros(len(sums), j, j)
            second[:, i, k] = second[:, k, i] = sums[:, j:]
            covariance = second - mean[:, :, None] * mean[:, None]
            spread = covariance.diagonal(dim1=1, dim2=2).clamp_min(LEAST_VARIANCE).sqrt()
            return covariance / (spread[:, :, None] * spread[:, None])

        return self._of_versions(correlate).swapaxes(0, 1).cpu().numpy()

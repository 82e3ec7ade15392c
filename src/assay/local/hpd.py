r"""Local coverage of highest-density regions: do they hold the true parameter as often as q says?

The HPD level u of a true parameter is the mass of q where its density is higher than there.
Regions of mass :math:`\alpha` hold the true parameter with probability

.. math:: r(\alpha, x) = P(u \le \alpha \mid x),

which the simulations near x_o estimate there. Above the diagonal q is conservative, too wide;
below it is overconfident. An HPD level is a single number, so the test is blind to errors that
move mass between regions of equal density.

Reference: Zhao, Dalmasso, Izbicki and Lee 2021, *Diagnostics for Conditional Density Models and
Bayesian Inference Algorithms*; as a baseline, Linhart et al. 2023.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .._support.inputs import check_kind, full_precision
from .._support.random import Seed
from ..average.ranks import Quantity
from ..data.calibration import Calibration
from ..neighbourhood import Nearest
from ..results import combined
from .levels import ALPHAS, LevelResult, Levels, LevelTest

WORDS = {
    1: "q is too wide there",
    -1: "q is too narrow there",
    0: "which is neither too wide nor too narrow beyond chance",
}


@full_precision()
def lhpd(
    calibration: Calibration | Levels,
    log_q: Quantity | None = None,
    near: float | Nearest | None = None,
    null: int | None = None,
    alphas: Any = ALPHAS,
    seed: Seed = 0,
) -> "LHPD":
    """Prepares a test of local coverage of highest-density regions.

    Args:
        calibration: Pairs with k draws of q at each x; or the HPD levels themselves.
        log_q: The log-density of q: a function of matching rows theta (b, m) and x (b, ...), or
            its :class:`~assay.average.ranks.Values`. Not needed beside levels.
        near: What is near x_o: a share of the simulations, or :class:`assay.Nearest`.
        null: The number of null copies; 999 by default.
        alphas: The levels at which coverage is compared.
        seed: An int or a generator. The same seed gives the same test.

    Returns:
        A test that can be asked at any observation.

    Example:
        >>> theta, noise = torch.randn(2, 500, 1, generator=torch.Generator().manual_seed(0))
        >>> z = torch.randn(500, 50, 1, generator=torch.Generator().manual_seed(1))
        >>> x = theta + noise
        >>> wide = Calibration(theta, x, x[:, None] / 2 + z)
        >>> test = lhpd(wide, lambda theta, x: -((theta - x / 2) ** 2).sum(1) / 2)
        >>> result = test(torch.zeros(1))
        >>> float(result.pvalue), int(result.area.sign[0])  # above the diagonal: too wide
        (0.001, 1)
    """
    check_kind("calibration", calibration, "a Calibration or Levels", "x", "embed")
    if not isinstance(calibration, Levels):
        if log_q is None:
            raise ValueError(
                "log_q: expected the log-density of q as a function of theta (b, m) and x "
                "(b, ...), or its Values; got None. HPD levels that were saved go in as "
                "Levels(u, x)."
            )
        return LHPD.of(Levels.hpd(calibration, log_q, seed), near, null, alphas, seed)
    if log_q is not None:
        raise ValueError("log_q: expected none beside levels, which are all the test needs.")
    if calibration.u.shape[1] != 1:
        raise ValueError(
            f"calibration: expected HPD levels with shape (n,); got {calibration.u.shape[1]} "
            "columns. Conditional PITs are for lpit."
        )
    return LHPD.of(calibration, near, null, alphas, seed)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LHPDResult(LevelResult):
    """What a test of local coverage found; see :class:`LevelResult` for its fields."""

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        if self.pvalue.ndim:
            return self._many
        i, area, bands = int(np.abs(self.alphas - 0.9).argmin()), self.area, self.bands()
        low, high = bands.lower[0, i], bands.upper[0, i]
        return (
            f"Near x_o the {self.alphas[i]:.0%} region of q holds the true parameter with "
            f"probability {self.curves[0, i]:.2f} (if q is right, {low:.2f} to {high:.2f}); the "
            f"signed area of the curve is {area.value[0]:+.3f} (if q is right, "
            f"{area.lower[0]:+.3f} to {area.upper[0]:+.3f}): {WORDS[int(area.sign[0])]} "
            f"{self._end}."
        )

    @property
    def _columns(self) -> dict[str, np.ndarray]:
        return {**super()._columns, "area": self.area.value[..., 0]}


@dataclass(frozen=True, eq=False, repr=False)
class LHPD(LevelTest):
    """A test of local coverage; see :class:`LevelTest` for its fields."""

    TEST = "local HPD coverage"

    @full_precision()
    def __call__(self, draws: Any) -> LHPDResult:
        """Tests q at one observation or many; draws of q there are not needed."""
        observation = self._observe(draws)
        curves = self.curves(observation.features)
        total = combined(self.statistics(curves))
        return LHPDResult(**self._fields(observation, curves, total))

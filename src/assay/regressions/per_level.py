r"""Levels regressed on x by a classifier for each level, as published.

For every level :math:`\alpha` on the grid a classifier predicts :math:`1\{u \le \alpha\}` from x,
for the data and, afresh, for every null copy. Fits of neighbouring levels know nothing of each
other, so curves need not rise. Kept for reproduction: a test of g levels costs (H + 1) g fits.

The published grid is 11 levels from 0 to just below the largest level seen, so it differs between
copies; here it is one and the same for all, and ends at which everything or nothing lies below are
left out, since they add nothing to the statistic.

References: Zhao, Dalmasso, Izbicki and Lee 2021, *Diagnostics for Conditional Density Models and
Bayesian Inference Algorithms*; Linhart et al. 2023 for the network.
"""

from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.neural_network import MLPClassifier
from torch import Tensor

from ..classifiers.sklearn import Estimators, Sklearn
from ..copies import Copies, Rows
from ..levels import LevelCopies
from ..nulls import GLOBAL
from ..results import Weak

__all__ = ["LevelEstimators", "PerLevel"]


def _published() -> MLPClassifier:
    """The network of the published experiments: one hidden layer of a hundred units."""
    return MLPClassifier(alpha=0, max_iter=25_000)


@dataclass(frozen=True)
class PerLevel:
    """A scikit-learn classifier for each level and each copy.

    Args:
        estimator: An instance with ``predict_proba``; it is cloned, never fitted itself. It sees x
            unscaled; put a scaler into a pipeline if it needs one. Where its `random_state` is
            None it is fixed, to the same number for every fit.
        executor: Runs the fits; one after the other if None. Does not change results.

    Example:
        >>> from sklearn.linear_model import LogisticRegression
        >>> PerLevel(LogisticRegression())
        PerLevel(estimator=LogisticRegression())
    """

    estimator: BaseEstimator = field(default_factory=_published)
    executor: Executor | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        _ = self._classifier

    @property
    def nulls(self) -> int:
        """A number of null copies that is sensible for its cost."""
        return 99

    def fit(self, copies: LevelCopies, alphas: np.ndarray, seed: int) -> "LevelEstimators":
        """Fits one clone for each copy, column and level at which both classes are present."""
        labelled = _Labelled(copies, alphas)
        shares, both = labelled.shares, labelled.both
        fits = (
            self._classifier.fit(cast(Copies, labelled), seed) if len(both) else Estimators((), 1)
        )
        return LevelEstimators(fits, shares, both)

    @property
    def _classifier(self) -> Sklearn:
        return Sklearn(self.estimator, self.executor)


@dataclass(frozen=True, eq=False)
class LevelEstimators:
    """Fitted estimators.

    Args:
        fits: The estimators of those (copy, column, level) at which both classes were present.
        shares: The shares of levels below each alpha, with shape (H + 1, j, g).
        both: The places of the estimators in the flattened shares.
    """

    fits: Estimators
    shares: np.ndarray
    both: np.ndarray

    @property
    def family(self) -> Weak:
        """How p-values at many observations are adjusted: they share their nulls."""
        return Weak()

    def hypothesis(self, x_o: Tensor) -> str:
        """What a small p-value at observations (o, d) speaks against."""
        return GLOBAL

    def __call__(self, x_o: Tensor) -> np.ndarray:
        """Estimates of r, with shape (1, o, H + 1, j, g), at observations (o, d)."""
        curves = np.repeat(self.shares.reshape(1, -1), len(x_o), 0)
        if len(self.both):
            found = self.fits(x_o.new_empty(len(x_o), 1, 0), x_o)
            curves[:, self.both] = found[..., 0].cpu().numpy()
        return curves.reshape(1, len(x_o), *self.shares.shape)


@dataclass(frozen=True, eq=False)
class _Labelled:
    """Labels 1{u <= alpha} of x, one table for each copy, column and level."""

    copies: LevelCopies
    alphas: np.ndarray
    odds: int = 1

    def __len__(self) -> int:
        return len(self.both)

    def labels(self, h: int) -> Tensor:
        """Whether levels are at most alpha, with shape (n, j, g), in copy h."""
        u = self.copies(h, torch.arange(len(self.copies.levels), device=self._x.device))
        return u[..., None] <= torch.as_tensor(self.alphas).to(u)

    @cached_property
    def shares(self) -> np.ndarray:
        """The shares of levels below each alpha, with shape (H + 1, j, g)."""
        each = [self.labels(h).double().mean(0) for h in range(len(self.copies))]
        return np.asarray(torch.stack(each).cpu().numpy())

    @cached_property
    def both(self) -> np.ndarray:
        """The places at which there are two classes to tell apart."""
        return np.flatnonzero((self.shares > 0) & (self.shares < 1))

    def rows(self, copy: int) -> Rows:
        """The table of one fit; there is no theta."""
        h, j, g = np.unravel_index(self.both[copy], self.shares.shape)
        return Rows(self._x[:, :0], self._x, self.labels(int(h))[:, int(j), int(g)])

    @property
    def _x(self) -> Tensor:
        return self.copies.levels.calibration.features

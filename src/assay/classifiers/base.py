"""What a classifier and its scores are: the contract between nulls, classifiers and tests.

A classifier of one's own implements ``fit``; everything else has a default.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import check_kind
from ..neighbourhood import RobustScale
from ..nulls import Copies, GlobalNull

# Statistics (o, H + 1) of scores (o, H + 1, s).
Statistics = Callable[[Tensor], np.ndarray]


class Scores(ABC):
    """A fitted classifier: H + 1 functions of (theta, x), the first fitted to the data."""

    # Whether the scores consist of several views, whose statistics a test combines.
    several: ClassVar[bool] = False

    @abstractmethod
    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities (o, H + 1, s) at theta (o, s, m) and features of x (o, d)."""

    def statistics(self, statistic: Statistics, theta: Tensor, x: Tensor) -> list[np.ndarray]:
        """Statistics (o, H + 1) of every view.

        A view may go beyond 0 and 1, as least squares do: a statistic gets it as it is, since far
        beyond is further evidence.
        """
        return [statistic(self(theta, x))]


class Classifier(ABC):
    """A recipe that turns copies into scores.

    It must be a deterministic function of a copy and the seed, the same for every copy;
    preprocessing may depend on members and x, but not on labels.

    Example:
        A classifier of one's own, least squares on products of one theta and one x:

        >>> def features(theta, x):
        ...     return torch.cat([torch.ones_like(x), theta, x, theta * x], -1)
        >>> class Products(Classifier):
        ...     def fit(self, copies, seed):
        ...         tables = [copies.rows(h) for h in range(len(copies))]
        ...         return Fitted(torch.stack([self.solve(*table) for table in tables]))
        ...
        ...     def solve(self, theta, x, labels):
        ...         return torch.linalg.lstsq(features(theta, x), labels.float()).solution
        >>> class Fitted(Scores):
        ...     def __init__(self, weights):
        ...         self.weights = weights  # (H + 1, 4)
        ...
        ...     def __call__(self, theta, x):
        ...         x = x[:, None].expand(*theta.shape[:2], -1)
        ...         scores = torch.einsum("osi,hi->ohs", features(theta, x), self.weights)
        ...         return scores.clamp(0, 1)
        >>> theta, noise, z = torch.randn(3, 300, 1, generator=torch.Generator().manual_seed(0))
        >>> calibration = assay.Calibration(theta, theta + noise, z)
        >>> test = assay.lc2st(calibration, Products(), null=99)
        >>> result = test(assay.Draws([2.0], z))
        >>> bool(result.pvalue <= 0.05)  # the prior is no posterior
        True
    """

    # The null it is made for; None leaves it to the test.
    null: ClassVar[GlobalNull | None] = None

    @abstractmethod
    def fit(self, copies: Copies, seed: int) -> Scores:
        """Fits all copies."""

    def refit(self, data: Scores, copies: Copies, near: Tensor, seed: int) -> Scores:
        """Fits copies that differ from the data near x_o only, as near (n,) says."""
        return Joined(data, self.fit(copies[1:], seed))


def as_classifier(classifier: Any, default: Classifier) -> Classifier:
    """A classifier as it is, the default one if None, or refuses."""
    classifier = default if classifier is None else classifier
    check_kind("classifier", classifier, "a classifier such as MLP()", Classifier)
    return classifier  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class Joined(Scores):
    """Scores of some copies, and behind them those of others but for the first few."""

    first: Scores
    second: Scores
    skip: int = 0  # copies of the second that are left out

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities (o, H + 1, s) at theta (o, s, m) and x (o, d)."""
        return torch.cat([self.first(theta, x), self.second(theta, x)[:, self.skip :]], 1)


# Members beyond this many scales are moved to it, so that one wild latent cannot end training.
FARTHEST = 10.0


@dataclass(frozen=True, eq=False)
class Scaling:
    """Location and scale of members, each (m,), and the scale of features of x."""

    location: Tensor
    scale: Tensor
    robust: RobustScale

    @classmethod
    def fit(cls, copies: Copies) -> Self:
        """The scaling of a data set, the same for all its copies."""
        x = copies.x
        # Without x, as in a test of two samples, there are no quartiles to find.
        return cls(*copies.scaling, RobustScale.fit(x) if x.shape[1] else RobustScale(x[0], x[0]))

    @property
    def width(self) -> int:
        """The number of inputs, m + d."""
        return len(self.location) + len(self.robust.median)

    def theta(self, theta: Tensor) -> Tensor:
        """Members (..., m) on the common scale, in single precision."""
        scaled = (theta - self.location) / self.scale
        return scaled.clamp(-FARTHEST, FARTHEST).float()

    def x(self, x: Tensor) -> Tensor:
        """Features (..., d) on the common scale, in single precision."""
        return self.robust(x).float()

"""What a classifier and its scores are: the contract between nulls, classifiers and tests."""

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

# Members beyond this many scales are moved to it, so that one wild latent cannot end training.
FARTHEST = 10.0
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
        """Statistics (o, H + 1) of every view, which may go beyond 0 and 1 as least squares do."""
        return [statistic(self(theta, x))]


class Classifier(ABC):
    """A recipe that turns copies into scores; all but ``fit`` has a default.

    It must be a deterministic function of a copy and the seed, the same for every copy;
    preprocessing may depend on members and x, but not on labels.

    Example:
        A classifier of one's own, by the correlation of one theta and one x:

        >>> class Correlation(Classifier):
        ...     def fit(self, copies, seed):
        ...         tables = [copies.rows(h) for h in range(len(copies))]
        ...         return Line([(t * x)[y].mean() - (t * x)[~y].mean() for t, x, y in tables])
        >>> class Line(Scores):
        ...     def __init__(self, slopes):
        ...         self.slopes = torch.stack(slopes)[:, None]  # (H + 1, 1)
        ...     def __call__(self, theta, x):
        ...         return (self.slopes * (theta * x[:, None]).mT).sigmoid()
        >>> theta, noise, z = torch.randn(3, 300, 1, generator=torch.Generator().manual_seed(0))
        >>> test = assay.lc2st(assay.Calibration(theta, theta + noise, z), Correlation(), null=99)
        >>> bool(test(assay.Draws([2.0], z)).pvalue <= 0.05)  # the prior is no posterior
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

    def theta(self, theta: Tensor) -> Tensor:
        """Members (..., m) on the common scale, in single precision."""
        scaled = (theta - self.location) / self.scale
        return scaled.clamp(-FARTHEST, FARTHEST).float()

    def x(self, x: Tensor) -> Tensor:
        """Features (..., d) on the common scale, in single precision."""
        return self.robust(x).float()

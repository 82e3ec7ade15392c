"""What a local test is: asked at an observation, it answers with a result and its null.

This is the contract that power and the trust map need.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from torch import Tensor

from ...results import LocalResult
from ...samples.calibration import Calibration, Observation


class ClosedForm(ABC):
    """A test of other truths in the sets near (b,), with nulls (o, p) that are made once."""

    near: Tensor
    null: np.ndarray
    nulls: int  # how many of them a p-value is made of
    hypothesis: str

    @abstractmethod
    def statistic(self, truth: Tensor, others: Tensor | None) -> np.ndarray:
        """Statistics (o,) of truths (b, m) among the others of their sets (b, k, m)."""

    def statistics(self, truths: Iterable[Tensor], others: Tensor | None) -> list[np.ndarray]:
        """The same for several truths of the same sets."""
        return [self.statistic(truth, others) for truth in truths]


# Members (b, r, m) of some sets (b,), each moved to where it is as a truth if q has an error.
Move = Callable[[Tensor, Tensor], Tensor]


class Planted(ABC):
    """A test of errors that are planted near x_o, in many repetitions at once."""

    nulls: int  # how many of them a p-value is made of
    repetitions: int
    hypothesis: str

    @abstractmethod
    def pvalues(self, moves: Sequence[Move], extent: int) -> np.ndarray:
        """P-values (n, o) in n repetitions, at o observations.

        Each move is made in an equal part of the sets of one size of the neighbourhood.
        """


class LocalTest(ABC):
    """A local test; call it with :class:`assay.Draws`, or x_o alone where no draws are needed.

    It has the calibration that it was made of, a recipe of null copies, and the seed of these.
    """

    calibration: Calibration
    null: Any
    seed: int

    @property
    @abstractmethod
    def settings(self) -> dict[str, Any]:
        """The settings and versions that made this test, as plain values."""

    @abstractmethod
    def __call__(self, draws: Any) -> LocalResult:
        """Tests q at one observation or many."""

    def decided(self, draws: Any) -> LocalResult:
        """The same, where nothing but statistics and p-values is asked for."""
        return self(draws)

    @abstractmethod
    def refit_on(self, calibration: Calibration) -> Self:
        """The same recipe on another calibration."""

    @property
    def poolable(self) -> bool:
        """Whether null statistics of several data sets may be pooled."""
        return False

    def with_nulls(self, n: int) -> Self:
        """The same recipe with n null copies; nothing is fitted yet."""
        return replace(self, null=replace(self.null, n=n))  # type: ignore[type-var]

    def with_seed(self, seed: int) -> Self:
        """The same recipe with another seed; nothing is fitted yet."""
        return replace(self, seed=seed)  # type: ignore[type-var]

    def planted(self, observation: Observation) -> Planted | None:
        """The test of errors that are planted near observations, if there is a quick way to it."""
        return None

    def closed_form(self, observation: Observation, nulls: int) -> ClosedForm | None:
        """The test of other truths at the same x, with so many nulls or more, if there is one."""
        return None

"""What a local test is: asked at an observation, it answers with a result and its null.

This is the contract that power and the trust map need.
"""

from abc import ABC, abstractmethod
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

    def closed_form(self, observation: Observation, nulls: int) -> ClosedForm | None:
        """The test of other truths at the same x, with so many nulls or more, if there is one."""
        return None

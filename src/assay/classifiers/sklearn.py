"""Any scikit-learn classifier, cloned and fitted once for each copy."""

from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import check_executor, check_kind
from .._support.random import seed_of, stream
from .._support.work import progress, run_jobs
from ..nulls import Copies
from .base import Classifier, Scores

if TYPE_CHECKING:  # its import takes a second, which only those who use it wait for
    from sklearn.base import BaseEstimator


@dataclass(frozen=True)
class Sklearn(Classifier):
    """A scikit-learn classifier or pipeline with ``predict_proba``.

    It is given the columns of theta (or latents) and of x side by side, unscaled. Where its
    `random_state` is None it is fixed, to the same number for every copy.

    Args:
        estimator: An instance; it is cloned, never fitted itself.
        executor: Runs the fits, for instance a :class:`concurrent.futures.ProcessPoolExecutor`;
            one after the other if None. Does not change results.
    """

    estimator: "BaseEstimator"
    executor: Executor | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        expected = "an instance of a scikit-learn classifier with predict_proba"
        check_kind("estimator", self.estimator, expected, "predict_proba", "get_params")
        check_executor(self.executor)

    def fit(self, copies: Copies, seed: int) -> "Estimators":
        """Fits one clone for each copy."""
        from sklearn.base import clone

        given = self.estimator.get_params()
        weights = {k: v for k, v in given.items() if k.endswith(("class_weight", "priors"))}
        if copies.odds != 1 and any(value is not None for value in weights.values()):
            raise ValueError(
                f"estimator: expected no class weights with {copies.odds:g} draws of q for each "
                "true parameter, nor priors, since probabilities are brought to even odds here; "
                f"got {weights}."
            )
        state = seed_of(stream(seed, "random_state")) % 2**31
        free = [k for k, v in given.items() if v is None and k.split("__")[-1] == "random_state"]
        estimator = clone(self.estimator).set_params(**dict.fromkeys(free, state))
        copy_rows = (copies.rows(h) for h in range(len(copies)))
        jobs = ((estimator, _table(t, x), y.long().cpu().numpy()) for t, x, y in copy_rows)
        fits = run_jobs(self.executor, _fit, jobs)
        fitted = dict(progress(fits, "training", total=len(copies), unit="fit"))
        return Estimators(tuple(fitted[h] for h in range(len(copies))), copies.odds)


@dataclass(frozen=True, eq=False)
class Estimators(Scores):
    """Fitted estimators, one for each copy."""

    estimators: tuple[Any, ...]
    odds: float  # training rows of class 0 for each of class 1

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities (o, H + 1, s) at theta (o, s, m) and x (o, d)."""
        o, s, _ = theta.shape
        rows = _table(theta.flatten(0, 1), x.repeat_interleave(s, 0))
        # A copy of the rows for each: some estimators change what they are given.
        d = np.stack([fit.predict_proba(rows.copy())[:, 1] for fit in self.estimators])
        # From the odds of the training rows to even odds.
        even = self.odds * d / (self.odds * d + 1 - d)
        return torch.from_numpy(even).reshape(-1, o, s).swapaxes(0, 1).to(theta)


def _table(theta: Tensor, x: Tensor) -> np.ndarray:
    return torch.cat([theta, x], 1).double().cpu().numpy()


def _fit(job: tuple["BaseEstimator", np.ndarray, np.ndarray]) -> "BaseEstimator":
    from sklearn.base import clone

    estimator, table, labels = job
    # In memory of its own: rounding may depend on where arrays begin.
    return clone(estimator).fit(table.copy(), labels.copy())

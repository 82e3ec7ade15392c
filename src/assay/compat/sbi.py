r"""sbi's ``LC2ST`` and ``LC2ST_NF`` (Linhart et al. 2023), trained here: one import is changed.

    from assay.compat.sbi import LC2ST, LC2ST_NF  # in place of sbi.diagnostics

The classes inherit constructors, states, errors and warnings of sbi 0.27 or later. Different are:

- **Networks** of the default classifier have sbi's widths, but all nulls are trained in one stack
  (:class:`assay.MLP`), with weight decay in place of early stopping. Other classifiers, and other
  keywords than `hidden_layer_sizes` and `random_state`, are fitted by sbi, one for each null.
- **Nulls** exchange the two parameters of a pair (:class:`assay.Exchange`), and not all rows; in
  latent space draws of the base (:class:`assay.KnownBase`) replace `posterior_samples`.
- **P-values** are exact, :math:`(1 + \#\{T_h \ge T\}) / (1 + H)`, never zero, and a test rejects
  at :math:`p \le \alpha`. Fewer than 19 nulls never reject at 0.05.
- **Randomness** is `seed` or the `random_state` of the classifier alone, the same for data and
  nulls: ``train_on_observed_data`` with a seed belongs before ``train_under_null_hypothesis``.
"""

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Self, cast

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import extra
from .._support.random import isolated, seed_of, stream
from .._support.work import progress, without_progress
from ..classifiers.mlp import MLP, Networks
from ..data.calibration import Calibration
from ..nulls import Copies, Exchange, KnownBase

with extra("sbi", least="0.27"):
    from sbi.diagnostics import lc2st as theirs
    from sbi.diagnostics.lc2st import LC2STScores, LC2STState

__all__ = ["LC2ST", "LC2ST_NF", "LC2STScores", "LC2STState"]

# Classifiers that a stack of networks replaces, and keywords that both of them have.
NETWORKS = (theirs.MLPClassifier, theirs.NeuralNetBinaryClassifier)
WIDTHS = ("hidden_layer_sizes", "module__hidden_layer_sizes")
SHARED = {*WIDTHS, "random_state"}


@dataclass(frozen=True, eq=False)
class Network:
    """One network of a stack, used as scikit-learn's classifiers are."""

    stack: Networks
    m: int  # how many of the columns are parameters

    def predict_proba(self, rows: Any) -> np.ndarray:
        """Probabilities (s, 2) of a draw of q and of a true parameter, at rows (s, m + d)."""
        table = torch.as_tensor(rows, device=self.stack.weights.device)
        d = self.stack.at_rows(table[:, : self.m], table[:, self.m :])[0].double().cpu().numpy()
        return np.stack([1 - d, d], 1)


class LC2ST(theirs.LC2ST):  # type: ignore[misc]
    """The local classifier two-sample test as sbi has it; the module lists differences.

    Example:
        >>> theta, noise, z = torch.randn(3, 200, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> test = LC2ST(theta, x, x / 2 + 0.2 * z, num_trials_null=19)  # 0.2 in place of 0.7
        >>> test = test.train_on_observed_data().train_under_null_hypothesis()
        >>> test.p_value(0.5 + 0.2 * z, torch.ones(1))
        0.05
    """

    trained_clfs_null: dict[int, list[Any]] | None
    _state: Any

    def train_under_null_hypothesis(self, verbosity: int = 1) -> Self:
        """Trains all nulls, in one stack where the classifier is the default network."""
        if self.trained_clfs_null is not None:
            raise ValueError(
                "Classifiers under the null hypothesis are already trained. Make a new instance, "
                "or set `trained_clfs_null` to None."
            )
        if not self.permutation and self.null_distribution is None:
            raise ValueError("permutation=False needs a null_distribution; got None.")
        self.trained_clfs_null = dict(enumerate(self._fit(slice(1, None), verbosity)))
        with_data = self._state in (LC2STState.OBSERVED_TRAINED, LC2STState.READY)
        self._state = LC2STState.READY if with_data else LC2STState.NULL_TRAINED
        return self

    def p_value(self, theta_o: Tensor, x_o: Tensor) -> float:
        """The exact p-value at x_o (d,) or (1, d), with draws of the posterior there (s, m)."""
        if self.state is not LC2STState.READY:
            return float(super().p_value(theta_o, x_o))  # refuses, with what has not been trained
        observed = self.get_statistic_on_observed_data(theta_o=theta_o, x_o=x_o)
        null = self.get_statistics_under_null_hypothesis(theta_o=theta_o, x_o=x_o).scores
        return float((1 + np.sum(null >= observed)) / (1 + len(null)))

    def reject_test(self, theta_o: Tensor, x_o: Tensor, alpha: float = 0.05) -> bool:
        """Whether the posterior is rejected at x_o: whether the p-value is alpha or less."""
        return bool(self.p_value(theta_o=theta_o, x_o=x_o) <= alpha)

    def _get_classifier_kwargs(self, given: dict[str, Any] | None, ndim: int) -> dict[str, Any]:
        # Called by the constructor, which alone knows what was given.
        self._stacked = self.clf_class in NETWORKS and {*(given or ())} <= SHARED
        return cast(dict[str, Any], super()._get_classifier_kwargs(given, ndim))

    def _train(self, *data: Tensor, verbosity: int = 0) -> list[Any]:
        return self._fit(slice(1), verbosity)[0]

    def _copies(self) -> Copies:
        gpu = self.clf_class is theirs.NeuralNetBinaryClassifier
        device, n = self.device if gpu else self.x_q.device, self.num_trials_null
        if self.permutation or self.null_distribution is None:
            pairs = Calibration(self.theta_q, self.x_q, self.theta_p).to(device).sorted()
            return Exchange(n).copies(pairs, self.seed)
        latents = Calibration.from_base(self.theta_q, self.x_q, self.null_distribution)
        return KnownBase(n).copies(latents.to(device).sorted(), self.seed)

    def _fit(self, which: slice, verbosity: int) -> list[list[Any]]:
        """Classifiers of some copies, the first of which is the data; one for each fold."""
        state = self.clf_kwargs.get("random_state")
        copies, seed = self._copies()[which], seed_of(self.seed if state is None else state)
        with nullcontext() if verbosity > 0 else without_progress():
            if not self._stacked:
                several = progress(range(len(copies)), "training", unit="copy")
                return [self._fit_as_sbi(*copies.rows(h), seed) for h in several]
            parts = [copies]
            if self.num_folds > 1:
                split = theirs.KFold(self.num_folds, shuffle=True, random_state=self.seed).split
                parts = [copies.subset(torch.from_numpy(rest)) for rest, _ in split(copies.x)]
            widths = next(self.clf_kwargs[name] for name in WIDTHS if name in self.clf_kwargs)
            folds = []
            for part in parts:
                stack = MLP(widths, members=self.num_ensemble).fit(part, seed)
                weights, m = stack.weights.split(1, 1), self.theta_q.shape[1]
                folds.append([Network(replace(stack, weights=w), m) for w in weights])
            return [list(copy) for copy in zip(*folds, strict=True)]

    def _fit_as_sbi(self, theta: Tensor, x: Tensor, true: Tensor, seed: int) -> list[Any]:
        with isolated(stream(seed, "fit")):
            return list(super()._train(theta[~true], theta[true], x[~true], x[true], verbosity=0))


class LC2ST_NF(theirs.LC2ST_NF, LC2ST):  # type: ignore[misc]
    """The same in the latent space of a flow, as sbi has it; x_o alone is asked for.

    Example:
        >>> theta, noise, z = torch.randn(3, 200, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> base = torch.distributions.MultivariateNormal(torch.zeros(1), torch.eye(1))
        >>> flow = {"flow_base_dist": base, "flow_inverse_transform": lambda t, x: 5 * (t - x / 2)}
        >>> test = LC2ST_NF(theta, x, x / 2 + 0.2 * z, num_trials_null=19, **flow)
        >>> test.train_on_observed_data().train_under_null_hypothesis().reject_test(torch.ones(1))
        True
    """

    @wraps(theirs.LC2ST_NF.__init__)  # type: ignore[misc]
    def __init__(self, *given: Any, **options: Any) -> None:
        with isolated(stream(0, "at x_o", str(options.get("seed", 1)))):
            super().__init__(*given, **options)

r"""sbi's ``LC2ST`` and ``LC2ST_NF``, trained here: a script changes one import.

    from assay.compat.sbi import LC2ST, LC2ST_NF  # in place of sbi.diagnostics

The classes inherit constructors, states, errors and warnings of sbi 0.27 or later. Different are:

- **Networks** of the default classifier have sbi's widths and scaled inputs, but all nulls are
  trained in one stack (:class:`assay.MLP`), with weight decay in place of early stopping. With
  keywords other than `hidden_layer_sizes` and `random_state`, and for any other classifier, sbi
  fits one for each null.
- **Nulls** exchange the two parameters of a pair (:class:`assay.Exchange`), where sbi permutes all
  rows and so takes them from their x. In latent space all draws are those of the base
  (:class:`assay.KnownBase`): `posterior_samples` are kept, and not used.
- **P-values** are exact, :math:`(1 + \#\{T_h \ge T\}) / (1 + H)`, never zero, and a test rejects
  at :math:`p \le \alpha`. Fewer than 19 nulls never reject at 0.05.
- **Randomness** is `seed` alone, or the `random_state` of the classifier. No global generator is
  changed. P-values are exact if data and nulls have the same one: another seed for
  ``train_on_observed_data`` belongs before ``train_under_null_hypothesis``.

Reference: Linhart, Gramfort and Rodrigues 2023, *L-C2ST: Local Diagnostics for Posterior
Approximations in Simulation-Based Inference*.
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
from ..nulls import BaseCopies, Exchange, KnownBase, LabelCopies

with extra("sbi", least="0.27"):
    from sbi.diagnostics import lc2st as theirs
    from sbi.diagnostics.lc2st import LC2STScores, LC2STState

__all__ = ["LC2ST", "LC2ST_NF", "LC2STScores", "LC2STState"]

Sets = LabelCopies | BaseCopies
# Classifiers that a stack of networks replaces, and keywords that both of them have.
NETWORKS = (theirs.MLPClassifier, theirs.NeuralNetBinaryClassifier)
WIDTHS = ("hidden_layer_sizes", "module__hidden_layer_sizes")
SHARED = {*WIDTHS, "random_state"}
# The state that follows when nulls are trained.
AFTER_NULLS = {
    LC2STState.INITIALIZED: LC2STState.NULL_TRAINED,
    LC2STState.OBSERVED_TRAINED: LC2STState.READY,
}


@dataclass(frozen=True, eq=False)
class Network:
    """One network of a stack, used as scikit-learn's classifiers are."""

    stack: Networks
    m: int  # how many of the columns are parameters

    def predict_proba(self, rows: Any) -> np.ndarray:
        """Probabilities (s, 2) of a draw of q and of a true parameter, at rows (s, m + d)."""
        table = torch.as_tensor(rows, device=self.stack.weights.device)
        scores = self.stack.at_rows(table[:, : self.m], table[:, self.m :])[0]
        probabilities = scores.double().cpu().numpy()
        return np.stack([1 - probabilities, probabilities], 1)


class LC2ST(theirs.LC2ST):  # type: ignore[misc]
    """The local classifier two-sample test as sbi has it; the module lists differences.

    Example:
        >>> theta, noise, z = torch.randn(3, 200, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> test = LC2ST(theta, x, x / 2 + 0.2 * z, num_trials_null=19)  # 0.2 in place of 0.7
        >>> test = test.train_on_observed_data().train_under_null_hypothesis()
        >>> x_o = torch.ones(1)
        >>> test.p_value(x_o / 2 + 0.2 * z, x_o)
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
        self.trained_clfs_null = dict(enumerate(self._fits(slice(1, None), verbosity)))
        self._state = AFTER_NULLS.get(self._state, self._state)
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
        """Keywords of the classifier; finds out, too, whether a stack of networks replaces it."""
        self._stacked = self.clf_class in NETWORKS and {*(given or ())} <= SHARED
        return cast(dict[str, Any], super()._get_classifier_kwargs(given, ndim))

    def _train(self, *data: Tensor, verbosity: int = 0) -> list[Any]:
        """The classifiers of the data, one for each fold."""
        return self._fits(slice(1), verbosity)[0]

    def _fits(self, which: slice, verbosity: int) -> list[list[Any]]:
        """Classifiers of some copies, the first of which is the data; one for each fold."""
        copies = self._copies()[which]
        with nullcontext() if verbosity > 0 else without_progress():
            if self._stacked:
                stacks = [self._stack(part) for part in self._folds(copies)]
                return [list(folds) for folds in zip(*stacks, strict=True)]
            several = progress(range(len(copies)), "training", unit="copy")
            return [self._fit_alone(*copies.rows(h)) for h in several]

    def _copies(self) -> Sets:
        """The data and its nulls: exchanges of pairs, or draws of the base."""
        base, n, x = self.null_distribution, self.num_trials_null, self.x_q
        gpu = self.clf_class is theirs.NeuralNetBinaryClassifier
        device = self.device if gpu else x.device
        if self.permutation or base is None:
            pairs = Calibration(self.theta_q, x, self.theta_p).to(device).sorted()
            return Exchange(n).copies(pairs, self.seed)
        latents = Calibration.from_base(self.theta_q, x, base).to(device).sorted()
        return KnownBase(n).copies(latents, self.seed)

    def _folds(self, copies: Sets) -> list[Sets]:
        """The same copies without each of the folds; all of them if there is one fold."""
        if self.num_folds == 1:
            return [copies]
        folds = theirs.KFold(self.num_folds, shuffle=True, random_state=self.seed)
        return [copies.subset(torch.from_numpy(kept)) for kept, _ in folds.split(copies.x)]

    def _stack(self, copies: Sets) -> list[Network]:
        """Networks of all copies, trained together."""
        widths = next(self.clf_kwargs[name] for name in WIDTHS if name in self.clf_kwargs)
        stack = MLP(widths, members=self.num_ensemble).fit(copies, self._classifier_seed)
        parts = stack.weights.split(1, 1)
        return [Network(replace(stack, weights=part), self.theta_q.shape[1]) for part in parts]

    def _fit_alone(self, theta: Tensor, x: Tensor, true: Tensor) -> list[Any]:
        """Any other classifiers of one copy, as sbi fits them, from the same random numbers."""
        with isolated(stream(self._classifier_seed, "fit")):
            rows = theta[~true], theta[true], x[~true], x[true]
            return list(super()._train(*rows, verbosity=0))

    @property
    def _classifier_seed(self) -> int:
        state = self.clf_kwargs.get("random_state")
        return seed_of(self.seed if state is None else state)


class LC2ST_NF(theirs.LC2ST_NF, LC2ST):  # type: ignore[misc]
    """The same in the latent space of a flow, as sbi has it; x_o alone is asked for.

    Example:
        >>> theta, noise, z = torch.randn(3, 200, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> base = torch.distributions.MultivariateNormal(torch.zeros(1), torch.eye(1))
        >>> flow = {"flow_base_dist": base, "flow_inverse_transform": lambda t, x: 5 * (t - x / 2)}
        >>> test = LC2ST_NF(theta, x, x / 2 + 0.2 * z, num_trials_null=19, **flow)
        >>> test = test.train_on_observed_data().train_under_null_hypothesis()
        >>> test.reject_test(torch.ones(1))
        True
    """

    @wraps(theirs.LC2ST_NF.__init__)  # type: ignore[misc]
    def __init__(self, *given: Any, **options: Any) -> None:
        with isolated(stream(0, "at x_o", str(options.get("seed", 1)))):
            super().__init__(*given, **options)

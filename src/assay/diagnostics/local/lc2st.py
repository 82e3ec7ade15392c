r"""The local classifier two-sample test, in parameter space and in latent space.

A classifier is trained to tell draws :math:`(\theta, x)` of the joint (class 1) from
:math:`(\theta_q, x)` with :math:`\theta_q \sim q(\cdot \mid x)` (class 0). Its Bayes-optimal
probability is

.. math:: d^*(\theta, x) = \frac{p(\theta \mid x)}{p(\theta \mid x) + q(\theta \mid x)},

which is 1/2 for every theta if and only if q is right at x. Evaluated at draws of q at an
observation x_o it tells how far q is from the truth there, without any draw of the truth there.
For a normalizing flow the same is done with the latents :math:`T^{-1}(\theta; x)` and the base.

Reference: Linhart, Gramfort and Rodrigues 2023, *L-C2ST: Local Diagnostics for Posterior
Approximations in Simulation-Based Inference*, Algorithms 1 to 4.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from ..._core import Seed, as_null, check_function, own_terms, said, seed_of
from ...classifiers.base import Classifier, Joined, Scores, as_classifier
from ...classifiers.mlp import MLP
from ...nulls.copies import Copies
from ...nulls.exchange import (
    GlobalNull,
    KnownBase,
    LocalExchange,
    Null,
    Sequential,
    global_null,
)
from ...results import GlobalMaxT, Holm, LC2STResult, combined, reached, settings_of
from ...samples.calibration import (
    Calibration,
    Draws,
    Latents,
    Observation,
    ObservedDraws,
    check_calibration,
)
from .base import LocalTest

# Copies that are fitted together where they end when they are enough.
TOGETHER = 20
# A function of class probabilities (..., s) at draws of q, with values (...).
Statistic = Callable[[np.ndarray], np.ndarray]


def mse0(probabilities: np.ndarray) -> np.ndarray:
    r"""The statistic of the paper, :math:`\frac{1}{s} \sum_i (d_i - \frac{1}{2})^2`.

    Zero if and only if q is right at x_o, for the Bayes classifier and s to infinity (Linhart et
    al. 2023, Theorem 3).

    Args:
        probabilities: Class probabilities at draws of q, with shape (..., s).

    Example:
        >>> float(mse0(np.array([0.5, 0.75])))
        0.03125
    """
    d = np.asarray(probabilities, dtype=np.float64)
    return np.asarray(np.mean((d - 0.5) ** 2, axis=-1))


@own_terms()
def lc2st(
    calibration: Calibration,
    classifier: Classifier | None = None,
    null: int | Null | None = None,
    statistic: Statistic = mse0,
    seed: Seed = 0,
) -> "LC2ST":
    """Trains a local test: the data and all its nulls together.

    Args:
        calibration: Pairs of the joint with draws of q, or latents.
        classifier: The classifier; an :class:`assay.MLP` by default.
        null: How null copies are made, or their number; by default what the classifier is made
            for: :class:`assay.Exchange` for parameters and :class:`assay.KnownBase` for latents.
            :class:`assay.Sequential` makes no more of them than one observation needs.
        statistic: A function of class probabilities (..., s) with values (...).
        seed: An int or a generator. The same seed gives the same test.

    Returns:
        A test that can be asked at any observation.

    Example:
        >>> theta, noise, z = torch.randn(3, 200, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> calibration = Calibration(theta, x, x / 2 + 0.2 * z)  # 0.2 in place of 0.7
        >>> test = lc2st(calibration, MLP(epochs=5), null=19)
        >>> x_o = torch.ones(1)
        >>> float(test(Draws(x_o, x_o / 2 + 0.2 * z)).pvalue)
        0.05
    """
    check_calibration(calibration)
    calibration = calibration.sorted()
    # One that is chosen for the calibration is chosen now, for all of its fits.
    classifier = as_classifier(classifier, MLP()).choose(calibration)
    null = as_null(null, global_null(calibration, classifier.null), Null)
    if null.where is not None and len(null.where.shares) > 1 and not classifier.several_sizes:
        raise ValueError(
            "share: expected a single one, since several sizes need a classifier in closed form "
            f"such as Ridge(); got {null.where.shares} with {classifier!r}."
        )
    check_function("statistic", statistic, "a function such as mse0")
    seed = seed_of(seed)
    copies = _copies(calibration, classifier, null, seed)
    # Nulls that depend on x_o are fitted when it is known.
    later = null.where is not None or isinstance(null, Sequential)
    scores = classifier.fit(copies[:1] if later else copies, seed)
    if isinstance(null, Sequential) and scores.several:
        raise ValueError(
            "null: expected all copies at once, such as Exchange(999), since the statistics of "
            f"{classifier!r} are combined over them, at no cost; got {null!r}."
        )
    return LC2ST(calibration, classifier, null, statistic, seed, scores, (seed, null.n))


def _copies(calibration: Calibration, classifier: Classifier, null: Null, seed: int) -> Copies:
    """The data, and its null copies, which differ everywhere."""
    default = global_null(calibration, classifier.null)
    made = null.like(default) if isinstance(null, LocalExchange) else cast(GlobalNull, null)
    return made.copies(calibration, seed)


@dataclass(frozen=True, eq=False)
class LC2ST(LocalTest):
    """A trained local test; call it with :class:`assay.Draws`.

    The recipe of :func:`lc2st`, and the scores of data and nulls, or of the data alone under a
    local null, fitted with the seed and the number of nulls that `fitted_as` tells.
    """

    calibration: Calibration
    classifier: Classifier
    null: Null
    statistic: Statistic
    seed: int
    scores: Scores
    fitted_as: tuple[int, int]

    @own_terms()
    def __call__(self, draws: Any) -> LC2STResult:
        """Tests q at one observation or many, with draws of q there; x_o alone for latents."""
        if self.fitted_as != (self.seed, self.null.n):
            raise ValueError(
                "test: expected one that was fitted with its seed and number of nulls; got a "
                "changed recipe. Use test.refit_on(calibration) first."
            )
        observed = self.calibration.observe(Draws.of(draws), self.seed)
        statistics, probabilities = self._scored(observed)
        shaped, observation = observed.observation.shaped, observed.observation
        theta = None if observed.theta is None else shaped(observed.theta.cpu().numpy())
        return LC2STResult(
            statistic=shaped(statistics[:, 0]),
            null=shaped(statistics[:, 1:]),
            probabilities=shaped(probabilities[:, 0]),
            null_probabilities=shaped(probabilities[:, 1:]),
            x=shaped(observation.x.cpu().numpy()),
            draws=shaped(observed.draws.cpu().numpy()),
            theta=theta,
            **self._claim(observation),
            adjustment=GlobalMaxT() if self.null.where is None else Holm(),
            support=self.calibration.support(observation),
        )

    def refit_on(self, calibration: Calibration) -> "LC2ST":
        """The same recipe on another calibration; nulls that do not depend on it are kept.

        Nulls of a known base are those of x, the base, the classifier and the seed: where these
        are the same, as for several flows of one task, the data alone are fitted.
        """
        check_calibration(calibration)
        calibration = calibration.sorted()
        if not self._same_nulls(calibration):
            return lc2st(calibration, self.classifier, self.null, self.statistic, self.seed)
        data = _copies(calibration, self.classifier, self.null, self.seed)[:1]
        scores = _WithNulls(self.classifier.fit(data, self.seed), self.scores)
        return replace(self, calibration=calibration, scores=scores)

    def _same_nulls(self, calibration: Calibration) -> bool:
        """Whether the fitted nulls are those of another calibration as well."""
        ours = self.calibration
        return (
            isinstance(self.null, KnownBase)
            and self.fitted_as == (self.seed, self.null.n)
            and isinstance(calibration, Latents)
            and calibration.base == ours.base
            and torch.equal(calibration.features.to(ours.features), ours.features)
            # Where x is constant, nulls are those of the members.
            and calibration.own_seed(self.seed) == ours.own_seed(self.seed)
        )

    @property
    def poolable(self) -> bool:
        """Whether a statistic is that of one classifier, and not combined over the copies."""
        return not (self.scores.several or isinstance(self.null, Sequential))

    def _claim(self, observation: Observation) -> dict[str, Any]:
        """The hypothesis and the settings; a local null says how much of x is near."""
        where = self.null.where
        if where is None:
            return {"hypothesis": self.null.hypothesis, "settings": self.settings}
        share = where.share_used(self.calibration.features, observation.features)
        settings = self.settings | {"scope": where.scope(share)}
        return {"hypothesis": where.hypothesis(share), "settings": settings}

    def _scored(self, observed: ObservedDraws) -> tuple[np.ndarray, np.ndarray]:
        """Statistics (o, H + 1) and probabilities (o, H + 1, s), one observation at a time."""
        if isinstance(self.null, Sequential):
            return self._stopped(observed.draws, observed.observation.features, self.null)
        each = zip(observed.draws, observed.observation.features, strict=True)
        scored = [self._scored_at(draws[None], features[None]) for draws, features in each]
        statistics, probabilities = zip(*scored, strict=True)
        return np.concatenate(statistics), np.concatenate(probabilities)

    def _scored_at(self, draws: Tensor, features: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Statistics (1, H + 1) and probabilities (1, H + 1, s) at one observation."""
        scores = self._scores_at(features)
        probabilities = self._checked(scores(draws, features), draws)
        if not ((probabilities >= 0) & (probabilities <= 1)).all():
            raise ValueError(
                "classifier: expected probabilities between 0 and 1; got "
                f"{np.min(probabilities)} to {np.max(probabilities)}."
            )
        if not scores.several:
            return self._statistics(probabilities), probabilities

        def statistic(view: Tensor) -> np.ndarray:
            return self._statistics(self._checked(view, draws))

        return combined(np.stack(scores.statistics(statistic, draws, features))), probabilities

    def _stopped(
        self, draws: Tensor, features: Tensor, null: Sequential
    ) -> tuple[np.ndarray, np.ndarray]:
        """Statistics (1, L) and probabilities (1, L, s), with as many copies as are enough."""
        if len(features) > 1:
            raise ValueError(
                f"x_o: expected one observation with {null!r}, which ends when that has enough; "
                f"got {len(features)}. Use Exchange(n) or KnownBase(n), whose copies serve all."
            )
        copies, probabilities = _copies(self.calibration, self.classifier, null, self.seed), []
        for start in range(0, null.n + 1, TOGETHER):
            some = copies[max(1, start) : start + TOGETHER]
            fitted = self.classifier.fit(some, self.seed)
            scores = fitted if start else Joined(self.scores, fitted)
            count = len(some) + (start == 0)
            probabilities.append(self._checked(scores(draws, features), draws, count))
            every = np.concatenate(probabilities, 1)
            statistics = self._statistics(every)
            kept = null.kept(reached(statistics[:, 0], statistics[:, 1:])[0])
            if kept is not None:
                return statistics[:, : kept + 1], every[:, : kept + 1]
        return statistics, every

    def _scores_at(self, features: Tensor) -> Scores:
        """The scores of data and nulls at one observation with features (1, d)."""
        if self.null.where is None:
            return self.scores
        near = self.null.where.inside(self.calibration.features, features)[0]
        copies = _copies(self.calibration, self.classifier, self.null, self.seed)
        return self.classifier.refit(self.scores, copies.inside(near[-1]), near, self.seed)

    def _checked(self, scores: Tensor, draws: Tensor, copies: int | None = None) -> np.ndarray:
        """Scores (1, H + 1, s), or of so many copies, which any classifier must give."""
        expected = 1, copies or self.null.n + 1, draws.shape[1]
        if scores.shape != expected:
            raise ValueError(
                f"classifier: expected scores that give probabilities with shape {expected} at "
                f"one observation; got {tuple(scores.shape)}."
            )
        return scores.cpu().numpy()

    def _statistics(self, probabilities: np.ndarray) -> np.ndarray:
        """Statistics (o, H + 1), which any function of probabilities must give."""
        try:
            values = np.asarray(self.statistic(probabilities.copy()))
        except Exception as error:
            raise ValueError(
                f"statistic: expected a function of probabilities (..., s); got {said(error)}."
            ) from error
        if values.shape != probabilities.shape[:2]:
            raise ValueError(
                "statistic: expected a function that maps probabilities (..., s) to (...); got "
                f"{values.shape} from {probabilities.shape}."
            )
        if values.dtype.kind not in "fiub":
            raise TypeError(f"statistic: expected real numbers; got {values.dtype}.")
        if not np.isfinite(values).all():
            raise ValueError(
                "statistic: expected finite numbers; got NaN or infinity. Clip probabilities to "
                "between 0 and 1, which those of least squares may leave, before logarithms."
            )
        return values

    @property
    def settings(self) -> dict[str, Any]:
        """The settings and versions that made this test, as plain values."""
        test = "ℓ-C2ST" if self.calibration.base is None else "ℓ-C2ST-NF"
        recipe = {"classifier": self.classifier, "null": self.null, "scope": self.null.scope}
        name = getattr(self.statistic, "__name__", repr(self.statistic))
        own = {"statistic": name, "combined": self.scores.several, "seed": self.seed}
        return settings_of(test, self.calibration, **recipe, **own)

    def __repr__(self) -> str:
        return f"LC2ST({self.calibration!r}, {self.classifier!r}, {self.null!r}, seed={self.seed})"


@dataclass(frozen=True, eq=False)
class _WithNulls(Scores):
    """Scores of new data, before the nulls of scores that were fitted to others."""

    data: Scores
    fitted: Scores

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities (o, H + 1, s) at theta (o, s, m) and x (o, d)."""
        return torch.cat([self.data(theta, x), self.fitted(theta, x)[:, 1:]], 1)

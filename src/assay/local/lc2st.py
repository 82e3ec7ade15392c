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

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import as_null, check_function, check_share, error_line, full_precision
from .._support.random import Seed, seed_of
from ..classifiers.base import Classifier, Scores, as_classifier
from ..classifiers.mlp import MLP
from ..data.calibration import (
    Calibration,
    Draws,
    Latents,
    ObservedDraws,
    check_calibration,
)
from ..nulls import (
    Copies,
    GlobalNull,
    KnownBase,
    LocalExchange,
    Null,
    global_null,
)
from ..results import (
    Adjustment,
    GlobalMaxT,
    Holm,
    LocalResult,
    PPCurve,
    combined,
    envelope,
    number,
    probability,
    settings_of,
)
from .quality import Quality, held_out

# Levels of PP-curves: densest at 1/2, where the curves of a nearly blind classifier rise.
PP_LEVELS = 0.5 + 0.5 * np.linspace(-1, 1, 201) * np.abs(np.linspace(-1, 1, 201))
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


@full_precision()
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
    classifier = as_classifier(classifier, MLP())
    null = as_null(null, global_null(calibration, classifier.null), Null)
    check_function("statistic", statistic, "a function such as mse0")
    seed = seed_of(seed)
    copies = _copies(calibration, classifier, null, seed)
    # Nulls that depend on x_o are fitted when it is known.
    later = null.where is not None
    scores = classifier.fit(copies[:1] if later else copies, seed)
    return LC2ST(calibration, classifier, null, statistic, seed, scores, (seed, null.n))


def _copies(calibration: Calibration, classifier: Classifier, null: Null, seed: int) -> Copies:
    """The data, and its null copies, which differ everywhere."""
    default = global_null(calibration, classifier.null)
    made = null.like(default) if isinstance(null, LocalExchange) else cast(GlobalNull, null)
    return made.copies(calibration, seed)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LC2STResult(LocalResult):
    """What a local test with a classifier found at one observation, or at o of them.

    Args:
        probabilities: P(class 1 = truth) at the draws, with shape (s,) or (o, s).
        null_probabilities: The same for the null copies, with shape (H, s) or (o, H, s); None
            where nulls are not fitted.
        draws: The draws of q that were scored, latents in latent space, with shape (s, m) or
            (o, s, m).
        theta: The same draws in parameter units; None where no flow was given to tell.
    """

    probabilities: np.ndarray
    null_probabilities: np.ndarray | None
    draws: np.ndarray
    theta: np.ndarray | None
    adjustment: Adjustment = GlobalMaxT()

    def pp_curve(self, alpha: float = 0.05) -> PPCurve:
        """The distribution of the class-0 probabilities at x_o, with null bands (Algorithm 5).

        It is a step at 1/2 if q is right and the classifier perfect. Draws right of 1/2 lie where
        q has too much mass, draws left of it where q has too little. The simultaneous band is a
        global envelope of all H + 1 curves, data and nulls alike, so that it is exact.

        Args:
            alpha: One minus the coverage of the bands.

        References:
            Linhart et al. 2023, Algorithm 5; Myllymäki et al. 2017, *Global envelope tests for
            spatial processes*, for the directional-quantile envelope.
        """
        alpha = check_share("alpha", alpha)
        assert self.null_probabilities is not None
        data = self.probabilities if self.many else self.probabilities[None]
        null = self.null_probabilities if self.many else self.null_probabilities[None]
        pairs = zip(data, null.astype(data.dtype), strict=True)
        curves = [envelope(_class0_shares(np.concatenate([d[None], h])), alpha) for d, h in pairs]
        fields = {name: np.stack([curve[name] for curve in curves]) for name in curves[0]}
        shaped = {k: v if self.many else v[0] for k, v in fields.items()}
        return PPCurve(PP_LEVELS, **shaped, alpha=alpha)

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        h, scope = self.null.shape[-1], self.settings["scope"]
        test = f"{self.settings['test']}, {self.settings['n']} calibration pairs"
        if self.pvalue.size == 1:
            return (
                f"If q were the true posterior {scope}, a statistic at least as large as that at "
                f"x_o would occur with probability {self._likely} ({test}).{self._warning}"
            )
        level = math.floor(0.05 * (h + 1) + 1e-9) / (h + 1)
        return (
            f"{self._counted}, where about {number(level * self.pvalue.size)} would be if q were "
            f"the true posterior {scope} ({test}, {h} null copies). {self._adjusted_by}"
        )

    @property
    def _likely(self) -> str:
        """The only p-value, with what it could be at least or what is uncertain."""
        h = self.null.shape[-1]
        p, error = (float(np.ravel(value)[0]) for value in (self.pvalue, self.pvalue_error))
        if p <= (1 + 1e-9) / (1 + h):
            return f"{probability(p)}, the smallest possible with {h} null copies"
        return f"{probability(p)} ± {probability(error)}, from {h} null copies"


@dataclass(frozen=True, eq=False)
class LC2ST:
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

    @full_precision()
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
            hypothesis=self.null.hypothesis,
            settings=self.settings,
            adjustment=GlobalMaxT() if self.null.where is None else Holm(),
        )

    def quality(self, folds: int = 5) -> "Quality":
        """What the classifier is worth on sets that it has not seen, each held out once.

        It is trained again for each fold, without null copies. This is reported and never a gate:
        to test only if a classifier looks good would spoil the p-value.
        """
        return held_out(self.calibration, self.classifier, self.seed, folds)

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

    def _scored(self, observed: ObservedDraws) -> tuple[np.ndarray, np.ndarray]:
        """Statistics (o, H + 1) and probabilities (o, H + 1, s), one observation at a time."""
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

    def _scores_at(self, features: Tensor) -> Scores:
        """The scores of data and nulls at one observation with features (1, d)."""
        if self.null.where is None:
            return self.scores
        where = self.calibration.nearest(self.null.where)
        near = where.inside(self.calibration.features, features)[0]
        copies = _copies(self.calibration, self.classifier, self.null, self.seed)
        return self.classifier.refit(self.scores, copies.inside(near), near, self.seed)

    def _checked(self, scores: Tensor, draws: Tensor) -> np.ndarray:
        """Scores (1, H + 1, s), which any classifier must give."""
        expected = 1, self.null.n + 1, draws.shape[1]
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
                "statistic: expected a function of probabilities (..., s); got "
                f"{error_line(error)}."
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


def _class0_shares(probabilities: np.ndarray) -> np.ndarray:
    """Distribution functions (h, g) of class-0 probabilities, from class-1 ones (h, s)."""
    # 1 - d <= level, in the rounding of the probabilities themselves.
    class0 = np.sort(1 - probabilities, axis=1)
    levels = PP_LEVELS.astype(class0.dtype)
    below = np.stack([np.searchsorted(row, levels, side="right") for row in class0])
    return np.asarray(below / probabilities.shape[1])

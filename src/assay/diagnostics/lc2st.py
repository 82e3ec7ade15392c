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

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from ..classifiers.mlp import MLP
from ..copies import Classifier, Scores, views
from ..door import check_kind
from ..health import Health, health
from ..nulls import Exchange, KnownBase, Null
from ..randomness import Seed, seed_of
from ..results import LocalResult, combined
from ..samples import Calibration, Draws, Observed, Place
from ..statistics import Statistic, mse0
from ..version import versions

__all__ = ["LC2ST", "lc2st"]


def lc2st(
    calibration: Calibration,
    classifier: Classifier | None = None,
    null: Null | None = None,
    statistic: Statistic = mse0,
    seed: Seed = 0,
) -> "LC2ST":
    """Trains a local test: the data and all its nulls together.

    Args:
        calibration: Pairs of the joint with draws of q, or latents.
        classifier: The classifier; an :class:`assay.MLP` by default.
        null: How null copies are made; by default what the classifier is made for, or else
            :class:`assay.Exchange` for parameters and :class:`assay.KnownBase` for latents.
        statistic: A function of class probabilities, see :mod:`assay.statistics`.
        seed: An int or a generator. The same seed gives the same test.

    Returns:
        A test that can be asked at any observation.

    Example:
        >>> theta, noise, z = torch.randn(3, 200, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> calibration = Calibration(theta, x, x / 2 + 0.7 * z)
        >>> test = lc2st(calibration, MLP(epochs=2), Exchange(19))
        >>> x_o = torch.ones(1)
        >>> result = test(Draws(x_o, x_o / 2 + 0.7 * z))
        >>> bool(0 < result.pvalue <= 1)
        True
    """
    check_kind("calibration", calibration, "a Calibration", "theta_q", "features")
    classifier = MLP() if classifier is None else classifier
    check_kind("classifier", classifier, "a classifier such as MLP()", "fit")
    calibration = calibration.sorted()
    # One that is chosen for the calibration is chosen now, for all of its fits.
    choose = getattr(classifier, "choose", None)
    classifier = classifier if choose is None else choose(calibration)
    if null is None:
        default = Exchange() if calibration.base is None else KnownBase()
        null = getattr(classifier, "null", default)
    check_kind("null", null, "a null such as Exchange(99)", "train", "n")
    if not callable(statistic):
        raise TypeError(f"statistic: expected a function such as mse0; got {statistic!r}.")
    seed = seed_of(seed)
    scores = null.train(calibration, classifier, seed)
    return LC2ST(calibration, classifier, null, statistic, seed, scores)


@dataclass(frozen=True, eq=False)
class LC2ST:
    """A trained local test; call it with :class:`assay.Draws`.

    Args:
        calibration: What it was trained on.
        classifier: The recipe of its scores.
        null: How its null copies were made.
        statistic: The function of class probabilities it compares.
        seed: The seed it was trained with.
        scores: The fitted classifier of data and nulls.
    """

    calibration: Calibration
    classifier: Classifier
    null: Null
    statistic: Statistic
    seed: int
    scores: Scores

    def __call__(self, draws: Draws) -> LocalResult:
        """Tests q at one observation or many.

        Args:
            draws: The observation x_o and draws of q there.
        """
        check_kind("draws", draws, "Draws(x_o, theta_o)", "x", "theta")
        observed = self.calibration.observe(draws, self.seed)
        statistics, probabilities = self._scored(observed)
        axis = 0 if observed.place.single else slice(None)
        theta = None if observed.theta is None else observed.theta.cpu().numpy()[axis]
        return LocalResult(
            statistic=statistics[axis, ..., 0],
            null=statistics[axis, ..., 1:],
            probabilities=probabilities[axis, ..., 0, :],
            null_probabilities=probabilities[axis, ..., 1:, :],
            x=observed.place.x.cpu().numpy()[axis],
            draws=observed.draws.cpu().numpy()[axis],
            theta=theta,
            **self._said(observed.place),
            family=self.null.family,
            surroundings=self.calibration.surroundings(observed.place),
        )

    def again(self, calibration: Calibration) -> "LC2ST":
        """The same recipe on another calibration.

        Args:
            calibration: The calibration.
        """
        return lc2st(calibration, self.classifier, self.null, self.statistic, self.seed)

    def _said(self, place: Place) -> dict[str, Any]:
        """The hypothesis and the settings; a local null says how far its neighbourhood reaches."""
        where = getattr(self.null, "where", None)
        if where is None:
            return {"hypothesis": self.null.hypothesis, "settings": self.settings}
        share = where.reach(self.calibration.features, place.features)
        settings = self.settings | {"scope": where.scope(share)}
        return {"hypothesis": where.hypothesis(share), "settings": settings}

    def _scored(self, observed: Observed) -> tuple[np.ndarray, np.ndarray]:
        """Statistics (o, H + 1) and probabilities (o, H + 1, s), one observation at a time."""
        each = zip(observed.draws, observed.place.features, strict=True)
        found = [self._scored_at(draws[None], features[None]) for draws, features in each]
        statistics, probabilities = zip(*found, strict=True)
        return np.concatenate(statistics), np.concatenate(probabilities)

    def _scored_at(self, draws: Tensor, features: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Statistics (1, H + 1) and probabilities (1, H + 1, s) at one observation."""
        # Nulls that depend on x_o are fitted now.
        fit = getattr(self.scores, "at", None)
        scores: Scores = self.scores if fit is None else fit(features[0])
        probabilities = self._checked(scores(draws, features), draws)
        if not ((probabilities >= 0) & (probabilities <= 1)).all():
            raise ValueError(
                "classifier: expected probabilities between 0 and 1; got "
                f"{np.min(probabilities)} to {np.max(probabilities)}."
            )
        statistics = self._each(scores, probabilities, draws, features)
        return combined(np.stack(statistics)), probabilities

    def _each(
        self, scores: Scores, probabilities: np.ndarray, draws: Tensor, features: Tensor
    ) -> list[np.ndarray]:
        """Statistics (1, H + 1) of each of the classifiers that scores consist of."""

        def statistic(view: Tensor) -> np.ndarray:
            return self._statistics(self._checked(view, draws))

        several = getattr(scores, "statistics", None)
        if several is not None:
            return list(several(statistic, draws, features))
        if not hasattr(scores, "views"):
            return [self._statistics(probabilities)]
        return [statistic(view) for view in views(scores, draws, features)]

    def _checked(self, scores: Tensor, draws: Tensor) -> np.ndarray:
        """Scores (1, H + 1, s), which a classifier of whatever origin must give."""
        expected = 1, self.null.n + 1, draws.shape[1]
        if scores.shape != expected:
            raise ValueError(
                f"classifier: expected scores that give probabilities with shape {expected} at "
                f"one observation; got {tuple(scores.shape)}."
            )
        return scores.cpu().numpy()

    def _statistics(self, probabilities: np.ndarray) -> np.ndarray:
        """Statistics (o, H + 1), which a function of whatever origin must give."""
        found = np.asarray(self.statistic(probabilities))
        if found.shape != probabilities.shape[:2]:
            raise ValueError(
                "statistic: expected a function that maps probabilities (..., s) to (...); got "
                f"{found.shape} from {probabilities.shape}."
            )
        if not np.isfinite(found).all():
            raise ValueError(
                "statistic: expected finite numbers; got NaN or infinity. Clip probabilities to "
                "between 0 and 1, which those of least squares may leave, before logarithms."
            )
        return found

    @cached_property
    def health(self) -> Health:
        """Whether the classifier's probabilities can be believed, on pairs it has not seen.

        It is trained a few times when this is first asked; see :mod:`assay.health`.
        """
        return health(self.calibration, self.classifier, self.null, seed=self.seed)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings and versions that made this test, as plain values."""
        return {
            "test": "ℓ-C2ST" if self.calibration.base is None else "ℓ-C2ST-NF",
            **self.calibration.summary,
            "classifier": repr(self.classifier),
            "null": repr(self.null),
            "scope": self.null.scope,
            "statistic": getattr(self.statistic, "__name__", repr(self.statistic)),
            "combined": hasattr(self.scores, "views"),
            "seed": self.seed,
            **versions(),
        }

    def __repr__(self) -> str:
        return f"LC2ST({self.calibration!r}, {self.classifier!r}, {self.null!r}, seed={self.seed})"

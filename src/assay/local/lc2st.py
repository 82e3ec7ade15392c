r"""The local classifier two-sample test, in parameter space and in latent space.

A classifier is trained to distinguish draws :math:`(\theta, x)` of the joint (class 1) from
:math:`(\theta_q, x)` with :math:`\theta_q \sim q(\cdot \mid x)` (class 0). Its Bayes-optimal
probability is

.. math:: d^*(\theta, x) = \frac{p(\theta \mid x)}{p(\theta \mid x) + q(\theta \mid x)},

which is 1/2 for every theta if and only if q is right at x. At draws of q at an observation x_o it
measures how far q is from the true posterior there, without any draw of the true posterior. For a
normalizing flow the same is done with the latents :math:`T^{-1}(\theta; x)` and the base.

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

from .._support.inputs import (
    as_null,
    check_count,
    check_function,
    check_share,
    cpu,
    error_line,
    full_precision,
)
from .._support.random import Seed, seed_of, stream
from ..classifiers.base import Classifier, Joined, Scores, as_classifier
from ..classifiers.mlp import MLP
from ..data.calibration import Calibration, Latents
from ..data.draw import Draws
from ..data.guards import check_calibration
from ..nulls import (
    Copies,
    Exchange,
    GlobalNull,
    KnownBase,
    LabelCopies,
    LocalExchange,
    Null,
    global_null,
)
from ..printing import number, probability
from ..results import (
    Adjustment,
    Frozen,
    GlobalMaxT,
    Holm,
    LocalResult,
    PPCurve,
    clopper_pearson,
    combined,
    envelope,
    settings_of,
)

# Levels of PP-curves: densest at 1/2, where the curves of a nearly blind classifier rise.
PP_LEVELS = 0.5 + 0.5 * np.linspace(-1, 1, 201) * np.abs(np.linspace(-1, 1, 201))
# Bins of a reliability curve, the least probability in a logarithm, and sets scored at a time.
BINS, LEAST, BLOCK = 10, 1e-6, 4096
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
    # Null copies that depend on x_o are fitted when it is known.
    scores = classifier.fit(copies if null.where is None else copies[:1], seed)
    return LC2ST(calibration, classifier, null, statistic, seed, scores, (seed, null.n))


def _copies(calibration: Calibration, classifier: Classifier, null: Null, seed: int) -> Copies:
    """The data, and its null copies, which differ everywhere."""
    default = global_null(calibration, classifier.null)
    if isinstance(null, LocalExchange):
        return replace(default, n=null.n).copies(calibration, seed)
    return cast(GlobalNull, null).copies(calibration, seed)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LC2STResult(LocalResult):
    """What a local test with a classifier found at one observation, or at o of them.

    Args:
        probabilities: P(class 1 = true parameter) at the draws, with shape (s,) or (o, s).
        null_probabilities: The same for the null copies, with shape (H, s) or (o, H, s); None
            where nulls are not fitted.
        draws: The draws of q that were scored, latents in latent space, with shape (s, m) or
            (o, s, m).
        theta: The same draws in parameter units; None where no flow is known.
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
        data, null = self.probabilities, self.null_probabilities.astype(self.probabilities.dtype)
        # 1 - d <= level, in the rounding of the probabilities themselves.
        class0 = np.sort(1 - np.concatenate([data[..., None, :], null], -2))
        levels = PP_LEVELS.astype(data.dtype)
        below = np.apply_along_axis(np.searchsorted, -1, class0, levels, side="right")
        shares = below / data.shape[-1]
        if not self.many:
            return PPCurve(PP_LEVELS, **envelope(shares, alpha), alpha=alpha)
        curves = [envelope(each, alpha) for each in shares]
        fields = {name: np.stack([curve[name] for curve in curves]) for name in curves[0]}
        return PPCurve(PP_LEVELS, **fields, alpha=alpha)

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        h, scope = self.null.shape[-1], self.settings["scope"]
        test = f"{self.settings['test']}, {self.settings['n']} calibration pairs"
        if self.pvalue.size == 1:
            p, error = (np.ravel(value)[0] for value in (self.pvalue, self.pvalue_error))
            certainty = f" ± {probability(error)}, from {h} null copies"
            if p <= (1 + 1e-9) / (1 + h):
                certainty = f", the smallest possible with {h} null copies"
            return (
                f"If q were the true posterior {scope}, a statistic at least as large as that at "
                f"x_o would occur with probability {probability(p)}{certainty} ({test})."
                f"{self._warning}"
            )
        level = math.floor(0.05 * (h + 1) + 1e-9) / (h + 1)
        return (
            f"{self._counted}, where about {number(level * self.pvalue.size)} would be if q were "
            f"the true posterior {scope} ({test}, {h} null copies). {self._adjusted_by}"
        )


@dataclass(frozen=True, eq=False)
class Quality(Frozen):
    """What a classifier is worth: probabilities of class 1 at sets that were held out.

    A classifier that has learned nothing has AUC 1/2 and log-loss log 2, as it should where q is
    right. Among samples with probability d, a share d should be true parameters (reliability).

    Args:
        truths: At true parameters, with shape (n,).
        draws: At one draw of q at the same x, with shape (n,).
    """

    truths: np.ndarray
    draws: np.ndarray

    @property
    def auc(self) -> float:
        """The chance that a true parameter scores above a draw of q at any x."""
        order = np.sort(self.draws)
        below = np.searchsorted(order, self.truths) + np.searchsorted(order, self.truths, "right")
        return float(below.mean() / (2 * len(order)))

    @property
    def log_loss(self) -> float:
        """The mean log-loss; log 2 = 0.693 for a classifier that has learned nothing."""
        return float(self._losses.mean())

    @property
    def learned(self) -> bool:
        """Whether it has learned something, by two standard errors of its log-loss."""
        losses = self._losses
        return bool(math.log(2) - losses.mean() > 2 * losses.std() / math.sqrt(len(losses)))

    @property
    def _losses(self) -> np.ndarray:
        """The log-loss (n,) at each x, over both classes."""
        truths, draws = np.maximum(self.truths, LEAST), np.minimum(self.draws, 1 - LEAST)
        return -(np.log(truths) + np.log1p(-draws)) / 2

    def reliability(self) -> np.ndarray:
        """Predicted and observed shares of true parameters in bins, with 95 % intervals, (4, b).

        Niculescu-Mizil and Caruana 2005, *Predicting Good Probabilities with Supervised Learning*.
        """
        d = np.concatenate([self.truths, self.draws])
        truth = np.repeat([1.0, 0.0], len(self.truths))
        parts = np.array_split(d.argsort(kind="stable"), BINS)
        predicted, observed = (np.array([v[part].mean() for part in parts]) for v in (d, truth))
        ends = clopper_pearson(observed, np.array([len(part) for part in parts]))
        return np.stack([predicted, observed, *ends])

    def __repr__(self) -> str:
        return f"held out: AUC {self.auc:.3f}, log-loss {self.log_loss:.3f} (nothing: 0.693)"


@dataclass(frozen=True, eq=False)
class LC2ST:
    """A trained local test; call it with :class:`assay.Draws`.

    The recipe of :func:`lc2st`, and the scores of data and nulls, or of the data alone under a
    local null, fitted with the seed and the number of nulls in `fitted_as`.
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
        shaped = observed.shaped
        each = zip(observed.draws.split(1), observed.features.split(1), strict=True)
        results = zip(*(self._at(draws, features) for draws, features in each), strict=True)
        statistics, probabilities = (np.concatenate(part) for part in results)
        theta = None if observed.theta is None else shaped(observed.theta.cpu().numpy())
        return LC2STResult(
            statistic=shaped(statistics[:, 0]),
            null=shaped(statistics[:, 1:]),
            probabilities=shaped(probabilities[:, 0]),
            null_probabilities=shaped(probabilities[:, 1:]),
            x=shaped(observed.x.cpu().numpy()),
            draws=shaped(observed.draws.cpu().numpy()),
            theta=theta,
            hypothesis=self.null.hypothesis,
            settings=self.settings,
            adjustment=GlobalMaxT() if self.null.where is None else Holm(),
        )

    def quality(self, folds: int = 5) -> Quality:
        """What the classifier is worth on sets that it was not trained on, each held out once.

        It is trained again for each fold, without null copies. This is reported and never a gate:
        to test only if a classifier looks good would spoil the p-value.
        """
        order = cpu.randperm(len(self.calibration), generator=stream(self.seed, "folds"))
        parts = order.chunk(check_count("folds", folds, least=2))
        truths, draws = [], []
        for i, part in enumerate(parts):
            rest = torch.cat([*parts[:i], *parts[i + 1 :]])
            scores = self.classifier.fit(self._sets(rest), self.seed)
            held = self._sets(part)
            blocks = zip(held.members.split(BLOCK), held.x.split(BLOCK), strict=True)
            probabilities = torch.cat([scores(theta, x)[:, 0] for theta, x in blocks]).cpu()
            labels = held.labels[0].cpu()
            truths.append(probabilities[labels])
            first_draw = (~labels).byte().argmax(1, keepdim=True)
            draws.append(probabilities.gather(1, first_draw)[:, 0])
        return Quality(torch.cat(truths).numpy(), torch.cat(draws).numpy())

    def _sets(self, rows: Tensor) -> LabelCopies:
        """The sets of some pairs, without null copies."""
        return Exchange(1).copies(self.calibration.subset(rows.sort().values), self.seed)[:1]

    def refit_on(self, calibration: Calibration) -> "LC2ST":
        """The same recipe on another calibration; nulls that do not depend on it are kept.

        Nulls of a known base are those of x, the base, the classifier and the seed: where these
        are the same, as for several flows of one task, the data alone are fitted.
        """
        check_calibration(calibration)
        calibration, ours = calibration.sorted(), self.calibration
        kept = (
            isinstance(self.null, KnownBase)
            and self.fitted_as == (self.seed, self.null.n)
            and isinstance(calibration, Latents)
            and calibration.base == ours.base
            and torch.equal(calibration.features.to(ours.features), ours.features)
            # Where x is constant, nulls are those of the members.
            and calibration.own_seed(self.seed) == ours.own_seed(self.seed)
        )
        if not kept:
            return lc2st(calibration, self.classifier, self.null, self.statistic, self.seed)
        data = _copies(calibration, self.classifier, self.null, self.seed)[:1]
        scores = Joined(self.classifier.fit(data, self.seed), self.scores, skip=1)
        return replace(self, calibration=calibration, scores=scores)

    def _at(self, draws: Tensor, features: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Statistics (1, H + 1) and probabilities (1, H + 1, s) at one observation."""
        scores = self.scores
        if self.null.where is not None:
            where = self.calibration.nearest(self.null.where)
            near = where.inside(self.calibration.features, features)[0]
            copies = _copies(self.calibration, self.classifier, self.null, self.seed).inside(near)
            scores = self.classifier.refit(scores, copies, near, self.seed)
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
        """The settings and versions of this test, as plain values."""
        return settings_of(
            "ℓ-C2ST" if self.calibration.base is None else "ℓ-C2ST-NF",
            self.calibration,
            classifier=self.classifier,
            null=self.null,
            scope=self.null.scope,
            statistic=getattr(self.statistic, "__name__", repr(self.statistic)),
            combined=self.scores.several,
            seed=self.seed,
        )

    def __repr__(self) -> str:
        return f"LC2ST({self.calibration!r}, {self.classifier!r}, {self.null!r}, seed={self.seed})"

r"""The local classifier two-sample test, in parameter space and in latent space.

A classifier is trained to distinguish draws :math:`(\theta, x)` of the joint (class 1) from
:math:`(\theta_q, x)` with :math:`\theta_q \sim q(\cdot \mid x)` (class 0). The Bayes classifier,
:math:`d^* = p(\theta \mid x) / (p(\theta \mid x) + q(\theta \mid x))`, is 1/2 for every theta if
and only if q is right at x. At draws of q at x_o it says how far q is from the truth there, which
is not drawn from. With a normalizing flow, latents and the base take the place of theta and q.

Reference: Linhart, Gramfort and Rodrigues 2023, *L-C2ST: Local Diagnostics for Posterior
Approximations in Simulation-Based Inference*, Algorithms 1 to 4.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import (
    as_null,
    check_count,
    check_function,
    check_share,
    cpu,
    full_precision,
)
from .._support.random import Seed, call_user_code, seed_of, stream
from ..classifiers.base import Classifier, Joined, Scores, as_classifier
from ..classifiers.mlp import MLP
from ..data.calibration import Calibration, Draws
from ..data.guards import check_calibration
from ..nulls import Exchange, KnownBase, Null, global_null
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
BINS, LEAST = 10, 1e-6  # of a reliability curve; the least probability in a logarithm
BLOCK = 4096  # sets that are scored at a time


def mse0(probabilities: np.ndarray) -> np.ndarray:
    r"""The statistic of the paper, :math:`\frac{1}{s} \sum_i (d_i - \frac{1}{2})^2` over (..., s).

    For the Bayes classifier its limit is zero if and only if q is right at x_o (Linhart et al.
    2023, Theorem 3).

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
    statistic: Callable[[np.ndarray], np.ndarray] = mse0,
    seed: Seed = 0,
) -> "LC2ST":
    """Trains a local test, data and nulls together, which is called with :class:`assay.Draws`.

    Args:
        calibration: Pairs of the joint with draws of q, or latents.
        classifier: The classifier; an :class:`assay.MLP` by default.
        null: How null copies are made, or their number; by default what the classifier is made
            for: :class:`assay.Exchange` for parameters and :class:`assay.KnownBase` for latents.
        statistic: A function of class probabilities (..., s) with values (...).
        seed: An int or a generator. The same seed gives the same test.

    Example:
        >>> theta, noise, z = torch.randn(3, 200, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> narrow = Calibration(theta, x, x / 2 + 0.2 * z)  # 0.2 in place of 0.7
        >>> test = lc2st(narrow, MLP(epochs=5), null=19)
        >>> float(test(Draws([1.0], 0.5 + 0.2 * z)).pvalue)
        0.05
    """
    check_calibration(calibration)
    calibration = calibration.sorted()
    classifier = as_classifier(classifier, MLP())
    default = global_null(calibration, classifier.null)
    null = as_null(null, default, Null)
    check_function("statistic", statistic, "a function such as mse0")
    seed = seed_of(seed)
    local = null.where is not None  # null copies depend on x_o, and are fitted when it is known
    copies = default.copies(calibration, seed)[:1] if local else null.copies(calibration, seed)
    return LC2ST(calibration, classifier, null, statistic, seed, classifier.fit(copies, seed))


def check_probabilities(scores: Tensor, shape: tuple[int, ...]) -> np.ndarray:
    """Probabilities of an expected shape, or refuses what a classifier gave."""
    found = scores.cpu().numpy()
    if found.shape != shape:
        got = f"probabilities with shape {shape}; got {found.shape}"
        raise ValueError(f"classifier: expected scores that give {got}.")
    if not ((found >= 0) & (found <= 1)).all():
        got = f"{np.min(found)} to {np.max(found)}"
        raise ValueError(f"classifier: expected probabilities between 0 and 1; got {got}.")
    return found


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class LC2STResult(LocalResult):
    """What a local test with a classifier found at one observation, or at o of them."""

    probabilities: np.ndarray  #: P(class 1 = true parameter) at the draws, (s,) or (o, s)
    null_probabilities: np.ndarray | None  #: the same for null copies, (H, s) or (o, H, s)
    draws: np.ndarray  #: those of q that were scored, or latents, (s, m) or (o, s, m)
    theta: np.ndarray | None  #: the same draws in parameter units, where a flow is known
    adjustment: Adjustment = GlobalMaxT()

    def pp_curve(self, alpha: float = 0.05) -> PPCurve:
        """Class-0 probabilities at x_o as a curve, with null bands of coverage 1 - alpha.

        Algorithm 5: a step at 1/2 if q is right and the classifier perfect. Draws right of 1/2 lie
        where q has too much mass, left of it where it has too little. The simultaneous band is an
        exact envelope (Myllymäki et al. 2017, *Global envelope tests for spatial processes*).
        """
        alpha = check_share("alpha", alpha)
        data, dtype = self.probabilities, self.probabilities.dtype
        # 1 - d <= level, in the rounding of the probabilities themselves.
        null = np.asarray(self.null_probabilities, dtype)
        class0 = np.sort(1 - np.concatenate([data[..., None, :], null], -2))
        below = np.apply_along_axis(np.searchsorted, -1, class0, PP_LEVELS.astype(dtype), "right")
        shares = below / data.shape[-1]  # (H + 1, g) or (o, H + 1, g)
        curves = [envelope(each, alpha) for each in shares.reshape(-1, *shares.shape[-2:])]
        fields = {name: np.stack([curve[name] for curve in curves]) for name in curves[0]}
        return PPCurve(PP_LEVELS, **fields if self.many else curves[0], alpha=alpha)

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        h, scope = self.null.shape[-1], self.settings["scope"]
        test = f"{self.settings['test']}, {self.settings['n']} calibration pairs"
        if self.pvalue.size > 1:
            level = math.floor(0.05 * (h + 1) + 1e-9) / (h + 1)
            return (
                f"{self._counted}, where about {number(level * self.pvalue.size)} would be if q "
                f"were the true posterior {scope} ({test}, {h} null copies). {self._adjusted_by}"
            )
        p, error = self.pvalue.item(), self.pvalue_error.item()
        certainty = f" ± {probability(error)}, from {h} null copies"
        if p <= (1 + 1e-9) / (1 + h):
            certainty = f", the smallest possible with {h} null copies"
        return (
            f"If q were the true posterior {scope}, a statistic at least as large as that at x_o "
            f"would occur with probability {probability(p)}{certainty} ({test}).{self._warning}"
        )


@dataclass(frozen=True, eq=False)
class Quality(Frozen):
    """What a classifier is worth: probabilities of class 1 at sets that were held out.

    A classifier that has learned nothing has AUC 1/2 and log-loss log 2, as it should where q is
    right. Among samples with probability d, a share d should be true parameters: reliability, see
    Niculescu-Mizil and Caruana 2005, *Predicting Good Probabilities with Supervised Learning*.
    """

    truths: np.ndarray  #: at true parameters, (n,)
    draws: np.ndarray  #: at one draw of q at the same x, (n,)

    @property
    def auc(self) -> float:
        """The chance that a true parameter scores above a draw of q at any x."""
        order = np.sort(self.draws)
        below = np.searchsorted(order, self.truths) + np.searchsorted(order, self.truths, "right")
        return float(below.mean() / (2 * len(order)))

    @property
    def log_loss(self) -> float:
        """The mean log-loss; log 2 = 0.693 for a classifier that has learned nothing."""
        truths, draws = np.maximum(self.truths, LEAST), np.minimum(self.draws, 1 - LEAST)
        return float(-(np.log(truths) + np.log1p(-draws)).mean() / 2)

    def reliability(self) -> np.ndarray:
        """Predicted and observed shares of true parameters in bins, with 95 % ends, (4, b)."""
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
    """A trained local test, see :func:`lc2st`; call it with :class:`assay.Draws`."""

    calibration: Calibration
    classifier: Classifier
    null: Null
    statistic: Callable[[np.ndarray], np.ndarray] = field(repr=False)
    seed: int
    scores: Scores = field(repr=False)  # of data and nulls; of the data if the null is local

    @full_precision()
    def __call__(self, draws: Any) -> LC2STResult:
        """Tests q at one observation or many, with draws of q there; x_o alone for latents."""
        observed = self.calibration.observe(Draws.of(draws), self.seed)
        observation, shaped = observed.observation, observed.observation.shaped
        each = zip(observed.draws.split(1), observation.features.split(1), strict=True)
        found = [self._at(draws, features) for draws, features in each]
        statistics, probabilities = (np.concatenate(part) for part in zip(*found, strict=True))
        test = "ℓ-C2ST" if self.calibration.base is None else "ℓ-C2ST-NF"
        name = getattr(self.statistic, "__name__", repr(self.statistic))
        own = {"classifier": self.classifier, "null": self.null, "scope": self.null.scope}
        own |= {"statistic": name, "combined": self.scores.several, "seed": self.seed}
        return LC2STResult(
            statistic=shaped(statistics[:, 0]),
            null=shaped(statistics[:, 1:]),
            probabilities=shaped(probabilities[:, 0]),
            null_probabilities=shaped(probabilities[:, 1:]),
            x=shaped(observation.x.cpu().numpy()),
            draws=shaped(observed.draws.cpu().numpy()),
            theta=None if observed.theta is None else shaped(observed.theta.cpu().numpy()),
            hypothesis=self.null.hypothesis,
            settings=settings_of(test, self.calibration, **own),
            adjustment=GlobalMaxT() if self.null.where is None else Holm(),
        )

    def quality(self, folds: int = 5) -> Quality:
        """What the classifier is worth on held-out sets, where it is trained again for each fold.

        This is reported and never a gate: to test only if it looks good would spoil the p-value.
        """
        order = cpu.randperm(len(self.calibration), generator=stream(self.seed, "folds"))
        truths, draws = [], []
        for part in order.chunk(check_count("folds", folds, least=2)):
            train, held = (
                Exchange(1).copies(self.calibration.subset(rows.sort().values), self.seed)[:1]
                for rows in (order[~torch.isin(order, part)], part)
            )
            scores = self.classifier.fit(train, self.seed)
            blocks = zip(held.members.split(BLOCK), held.x.split(BLOCK), strict=True)
            probabilities = torch.cat([scores(theta, x)[:, 0] for theta, x in blocks]).cpu()
            labels = held.labels[0].cpu()  # (b, r)
            truths.append(probabilities[labels])
            draws.append(probabilities.gather(1, (~labels).byte().argmax(1, keepdim=True))[:, 0])
        return Quality(torch.cat(truths).numpy(), torch.cat(draws).numpy())

    def refit_on(self, calibration: Calibration) -> "LC2ST":
        """The same recipe on another calibration; nulls are kept where they are the same.

        Those of a known base are: they depend on x, the base, the classifier and the seed alone.
        """
        check_calibration(calibration)
        calibration, ours = calibration.sorted(), self.calibration
        if not (
            isinstance(self.null, KnownBase)
            and calibration.base == ours.base
            and torch.equal(calibration.features.to(ours.features), ours.features)
            # Where x is constant, nulls are those of the members.
            and calibration.own_seed(self.seed) == ours.own_seed(self.seed)
        ):
            return lc2st(calibration, self.classifier, self.null, self.statistic, self.seed)
        data = self.null.copies(calibration, self.seed)[:1]
        scores = Joined(self.classifier.fit(data, self.seed), self.scores, skip=1)
        return replace(self, calibration=calibration, scores=scores)

    def _at(self, draws: Tensor, features: Tensor) -> tuple[np.ndarray, np.ndarray]:
        """Statistics (1, H + 1) and probabilities (1, H + 1, s) at one observation."""
        scores, pairs, where = self.scores, self.calibration, self.null.where
        if where is not None:
            near = pairs.nearest(where).inside(pairs.features, features)[0]
            null = replace(global_null(pairs, self.classifier.null), n=self.null.n)
            copies = null.copies(pairs, self.seed).inside(near)
            scores = self.classifier.refit(scores, copies, near, self.seed)
        found = scores(draws, features)
        probabilities = check_probabilities(found, (1, self.null.n + 1, draws.shape[1]))
        if not scores.several:
            return self._statistics(found), probabilities
        views = scores.statistics(self._statistics, draws, features)
        return combined(np.stack(views)), probabilities

    def _statistics(self, scores: Tensor) -> np.ndarray:
        """Statistics (1, H + 1) of scores (1, H + 1, s)."""
        values = call_user_code("statistic", self.statistic, scores.cpu().numpy().copy()).numpy()
        if values.shape != scores.shape[:2]:
            raise ValueError(
                "statistic: expected a function that maps probabilities (..., s) to (...); got "
                f"{values.shape} from {tuple(scores.shape)}."
            )
        if not np.isfinite(values).all():
            raise ValueError(
                "statistic: expected finite numbers; got NaN or infinity. Clip probabilities to "
                "between 0 and 1, which those of least squares may leave, before logarithms."
            )
        return values

r"""Health of a classifier: whether its probabilities can be believed, on pairs it has not seen.

A test is exact whatever its classifier; its power and the sizes of effects that are read from
:math:`d` are not. Calibration sets are held out in turn, and with both classes weighing the same

* the log-loss is below log 2 for a classifier that has learned something, and is log 2 for one
  that knows nothing, as it should be where q is right; likewise the Brier score and 1/4;
* the area under the ROC curve (AUC) is the chance that a truth scores above a draw of q;
* of members with probability d a share d should be truths (reliability);
* :math:`E_q[d / (1 - d)] = \int p(\theta \mid x) \, d\theta = 1` for the Bayes classifier;
* from x alone nothing can be told, since both classes have the same x: the AUC must be 1/2;
* training again with another seed should give the same logits.

All of this is reported and never a gate: to test only if a classifier looks good, or to choose
the classifier by it and test on the same pairs, would spoil the p-value.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.optimize
import scipy.special
import torch
from torch import Tensor

from .._core import Seed, as_null, check_count, cpu, own_terms, seed_of, stream
from ..classifiers.base import Classifier, as_classifier
from ..classifiers.mlp import MLP
from ..diagnostics.c2st import auc as area
from ..nulls.copies import Copies
from ..nulls.exchange import Exchange, GlobalNull, LabelCopies, LocalExchange, Null, global_null
from ..results import Readable, clopper_pearson, versions, wrapped
from ..samples.calibration import FEWEST_ROWS, Calibration, check_calibration

# Probabilities are kept this far from 0 and 1, where a log-loss would be infinite.
NARROWEST = 1e-6
# Held-out sets that are scored at a time.
SETS = 2**12
# Bins of the reliability diagram, and draws of labels that tell what perfect calibration gives.
BINS, PERFECT = 10, 200
# Thresholds of a ROC curve.
THRESHOLDS = 201


class Mean(NamedTuple):
    """A mean over held-out sets, with its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.3f} ± {self.error:.3f}"


class Reliability(NamedTuple):
    """A reliability diagram, over b bins of members with similar probabilities.

    Args:
        members, truths: The number of members in a bin, and of truths among them, with shape (b,).
        predicted, observed: Shares of truths, both classes weighing the same.
        lower, upper: Limits of a 95 % binomial interval of the observed share.
    """

    members: np.ndarray
    truths: np.ndarray
    predicted: np.ndarray
    observed: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


class Roc(NamedTuple):
    """A ROC curve: shares of draws of q and of truths above a threshold that falls."""

    draws: np.ndarray
    truths: np.ndarray


@own_terms()
def health(
    calibration: Calibration,
    classifier: Classifier | None = None,
    null: int | Null | None = None,
    folds: int = 5,
    seed: Seed = 0,
) -> "Health":
    """Judges a classifier on calibration sets that it has not seen, each held out once.

    It costs a fit of the data for each fold and two more; no null copy is fitted.

    Args:
        calibration: Pairs of the joint with draws of q, or latents.
        classifier: The classifier; an :class:`assay.MLP` by default.
        null: The null of the test, which says what the data are trained against; as in
            :func:`assay.lc2st` by default.
        folds: The number of folds; a set is in one of them with all its members.
        seed: An int or a generator. The same seed gives the same figures.

    Example:
        >>> from assay.classifiers import QDA
        >>> theta, noise, z = torch.randn(3, 2000, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> report = health(Calibration(theta, x, x / 2 + 1.4 * z), QDA())  # 1.4 in place of 0.7
        >>> report.log_loss.value < math.log(2)
        True
        >>> report.agreement  # nothing is left to chance
        (1.0, 0.0)
    """
    check_calibration(calibration)
    classifier = as_classifier(classifier, MLP())
    seed, calibration = seed_of(seed), calibration.sorted()
    made = _global(null, calibration, classifier)
    parts = _parts(len(calibration), check_count("folds", folds, least=2), seed)
    halves = [_halves(calibration, made, part, seed) for part in parts]
    judged = [_judged(*half, classifier, seed) for half in halves]
    probabilities, truths = (np.concatenate(each) for each in zip(*judged, strict=True))
    reseeded, _ = _judged(*halves[0], classifier, seed_of(stream(seed, "another seed")))
    by_x = x_alone(Exchange(1).copies(calibration, seed), classifier, parts[0], seed)
    perfect = _perfect(_Bins.of(probabilities), seed)
    own = {"classifier": repr(classifier), "trained as": repr(made), "folds": folds, "seed": seed}
    settings = {**calibration.summary, **own, **versions()}
    return Health(probabilities, truths, reseeded, *by_x, perfect, settings)


@dataclass(frozen=True, eq=False, repr=False)
class Health(Readable):
    """What a classifier does on sets it has not seen.

    Args:
        probabilities: P(class 1 = truth) at the r members of n held-out sets, with shape (n, r),
            fold after fold.
        truths: Who is the truth, with shape (n, r): one in each set.
        reseeded: Probabilities (e, r) in the first fold, after training with another seed.
        x_probabilities, x_truths: The same of a classifier that was trained on members shuffled
            over all sets, so that x alone could tell anything, with shape (e, r).
        perfect: Calibration errors of labels drawn by the probabilities, with shape (s,).
        settings: The settings and versions that made it.
    """

    probabilities: np.ndarray
    truths: np.ndarray
    reseeded: np.ndarray
    x_probabilities: np.ndarray
    x_truths: np.ndarray
    perfect: np.ndarray
    settings: Mapping[str, Any]
    heading: ClassVar[str] = "held out"
    labels: ClassVar[tuple[str, ...]] = (
        *("log-loss", "Brier score", "AUC", "AUC from x alone", "E_q[d / (1 - d)]"),
        *("over-confidence", "calibration error", "agreement of seeds"),
    )

    @property
    def log_loss(self) -> Mean:
        r"""The loss :math:`-\frac{1}{2} (\log d + E_q \log (1 - d_q))`; knowing nothing, log 2."""
        return self._mean(-np.log(self.probabilities), -np.log1p(-self.probabilities))

    @property
    def brier(self) -> Mean:
        """The mean squared error of the probabilities; knowing nothing, 1/4."""
        return self._mean((1 - self.probabilities) ** 2, self.probabilities**2)

    @property
    def auc(self) -> Mean:
        """The chance that a truth scores above a draw of q; knowing nothing, 1/2.

        Its error is that of DeLong, DeLong and Clarke-Pearson 1988, *Comparing the Areas under
        Two or More Correlated Receiver Operating Characteristic Curves*.
        """
        return _auc(self.probabilities, self.truths)

    @property
    def auc_x(self) -> Mean:
        """The same from x alone; it must be 1/2, within its error."""
        return _auc(self.x_probabilities, self.x_truths)

    @property
    def ratio(self) -> Mean:
        r"""The mean of :math:`d / (1 - d)` over draws of q; for the Bayes classifier, one."""
        _, d_q = _split(self.probabilities, self.truths)
        return _estimate((d_q / (1 - d_q)).mean(1))

    @property
    def overconfidence(self) -> Mean:
        """The accuracy that the probabilities claim, less the one they reach."""
        d = self.probabilities
        claimed, right = np.maximum(d, 1 - d), 0.5 + 0.5 * np.sign(d - 0.5)
        return self._mean(claimed - right, claimed - (1 - right))

    @cached_property
    def exponent(self) -> float:
        """The power of d / (1 - d) with the smallest held-out log-loss, between 0 and 2.

        Below one the classifier claims more than it knows; zero is to know nothing. One over it is
        the temperature of Guo et al. 2017, *On Calibration of Modern Neural Networks*.
        """
        logits = scipy.special.logit(self.probabilities.clip(1e-6, 1 - 1e-6))
        truths, draws = _split(logits, self.truths)

        def loss(power: float) -> float:
            wrong = np.logaddexp(0, -power * truths).mean() + np.logaddexp(0, power * draws).mean()
            return float(wrong)

        return float(scipy.optimize.minimize_scalar(loss, bounds=(0, 2), method="bounded").x)

    @property
    def calibration_error(self) -> float:
        """The mean distance between predicted and observed shares; see :attr:`perfect`."""
        bins = _Bins.of(self.probabilities)
        return float(bins.errors(bins.counted(self.truths)))

    @property
    def reliability(self) -> Reliability:
        """Predicted and observed shares of truths, over bins of equally many members.

        Niculescu-Mizil and Caruana 2005, *Predicting Good Probabilities with Supervised Learning*.
        """
        bins = _Bins.of(self.probabilities)
        return bins.reliability(bins.counted(self.truths))

    @property
    def roc(self) -> Roc:
        """The ROC curve."""
        return _roc(self.probabilities, self.truths)

    @property
    def roc_x(self) -> Roc:
        """The ROC curve from x alone."""
        return _roc(self.x_probabilities, self.x_truths)

    @property
    def agreement(self) -> tuple[float, float]:
        """Correlation and root mean square difference of logits over two seeds."""
        both = self.probabilities[: len(self.reseeded)], self.reseeded
        ours, theirs = (scipy.special.logit(d).ravel() for d in both)
        difference = float(np.sqrt(np.mean((ours - theirs) ** 2)))
        if not difference:
            return 1.0, 0.0
        if not (np.ptp(ours) and np.ptp(theirs)):
            return 0.0, difference
        return float(np.corrcoef(ours, theirs)[0, 1]), difference

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each measure: its value, its standard error, and its ideal.

        The ideal of the first three is that of a classifier that knows nothing, of the others
        that of one that can be believed.
        """
        error = Mean(self.calibration_error, float(self.perfect.std()))
        rows = (
            *((self.log_loss, math.log(2)), (self.brier, 0.25), (self.auc, 0.5)),
            *((self.auc_x, 0.5), (self.ratio, 1.0), (self.overconfidence, 0.0)),
            *((error, float(self.perfect.mean())), (Mean(self.agreement[0], math.nan), 1.0)),
        )
        return [{"value": v, "error": e, "ideal": ideal} for (v, e), ideal in rows]

    @property
    def sentence(self) -> str:
        """A few words to quote."""
        correlation, _ = self.agreement
        return (
            f"Held-out log-loss {self.log_loss}, log 2 = {math.log(2):.3f}: {self._learned}. "
            f"{self._believed}. AUC from x alone {self.auc_x} ({self._blind}). Two training seeds "
            f"agree (correlation of logits {correlation:.2f})."
        )

    @property
    def _last(self) -> tuple[str, ...]:
        return (self.sentence,)

    def __repr__(self) -> str:
        lines = [f"{self.heading:<20}{'value':>9}{'± error':>9}{'ideal':>9}"]
        for name, row in zip(self.labels, self.table, strict=True):
            numbers = ("" if math.isnan(v) else f"{v:.3f}" for v in row.values())
            lines.append(f"{name:<20}" + "".join(f"{number:>9}" for number in numbers))
        return "\n".join([*lines, wrapped(self.sentence)])

    @property
    def learned(self) -> bool:
        """Whether it knows more than nothing, by two standard errors of its log-loss."""
        return self._gain > 2

    @property
    def _gain(self) -> float:
        """What it gains on knowing nothing, in standard errors of its log-loss."""
        return (math.log(2) - self.log_loss.value) / max(self.log_loss.error, 1e-12)

    @property
    def _learned(self) -> str:
        if self.learned:
            return "it has learned something"
        if self._gain < -2:
            return "worse than knowing nothing, it has learned noise"
        return "it has learned nothing that shows, as expected where q is right"

    @property
    def _believed(self) -> str:
        value, error = self.overconfidence
        if abs(value) > 2 * error and round(abs(value), 3):
            direction = "over" if value > 0 else "under"
            return f"Its probabilities are {direction}-confident by {abs(value):.3f} ± {error:.3f}"
        if self.calibration_error > np.quantile(self.perfect, 0.95):
            return (
                f"Its probabilities are off by {self.calibration_error:.3f}, where noise alone "
                f"would give {self.perfect.mean():.3f}"
            )
        return "Its probabilities agree with the truths, within noise"

    @property
    def _blind(self) -> str:
        value, error = self.auc_x
        far = abs(value - 0.5) / max(error, 1e-9)
        said = f"{far:.1f} standard errors from 0.5"
        return f"{said}: the classes differ in x" if far > 4 else said

    def _mean(self, at_truths: np.ndarray, at_draws: np.ndarray) -> Mean:
        """The mean of values (n, r) of truths and of others (n, r) of draws, at even odds."""
        truths = _split(at_truths, self.truths)[0]
        return _estimate(0.5 * (truths + _split(at_draws, self.truths)[1].mean(1)))


def x_alone(
    copies: LabelCopies, classifier: Classifier, part: tuple[Tensor, Tensor], seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Held-out probabilities of a classifier to which only x can tell anything.

    Members are shuffled over all sets, and so know neither their x nor their class. Where both
    classes have the same x, as in every calibration, nothing is left to learn. A part is sets to
    train on and e sets to judge on, for which probabilities and truths (e, r) come out.
    """
    n, r, _ = copies.members.shape
    order = cpu.randperm(n * r, generator=stream(seed, "shuffled")).to(copies.x.device)
    shuffled = copies.members.flatten(0, 1)[order].unflatten(0, (n, r))
    copies = replace(copies[:1], members=shuffled)
    trained, held = (copies.subset(rows.to(copies.x.device)) for rows in part)
    return _judged(trained, held, classifier, seed)


def _global(
    null: int | Null | None, calibration: Calibration, classifier: Classifier
) -> GlobalNull:
    """The null whose first copy is the data as the test sees them."""
    default = global_null(calibration, classifier.null)
    if isinstance(null, LocalExchange):
        return null.like(default)
    return as_null(null, default, GlobalNull)


def _parts(n: int, folds: int, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Sets to train on and sets to judge on, each in the order of the calibration."""
    if n < folds * FEWEST_ROWS:
        raise ValueError(
            f"calibration: expected at least {folds * FEWEST_ROWS} pairs, {FEWEST_ROWS} for each "
            f"of {folds} folds; got {n}."
        )
    order = cpu.randperm(n, generator=stream(seed, "folds"))
    held = [fold.sort().values for fold in order.tensor_split(folds)]
    others = (torch.cat([*held[:i], *held[i + 1 :]]).sort().values for i in range(folds))
    return list(zip(others, held, strict=True))


def _halves(
    calibration: Calibration, null: GlobalNull, part: tuple[Tensor, Tensor], seed: int
) -> tuple[Copies, Copies]:
    """The data to train on, as the test sees them, and those to judge on."""
    trained, held = (calibration.subset(rows) for rows in part)
    # A known base gives one draw a set; in judging, several tell more.
    judge = null if calibration.base is None else Exchange(1)
    return null.copies(trained, seed)[:1], judge.copies(held, seed)[:1]


def _judged(
    trained: Copies, held: Copies, classifier: Classifier, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (e, r) of all members that were held out, and who is the truth (e, r)."""
    scores, pieces = classifier.fit(trained, seed), []
    for rows in torch.arange(len(held.x), device=held.x.device).split(SETS):
        members, labels = held.batch(rows, 0)
        d = scores(members[0], held.x[rows])
        if d.shape != (len(rows), 1, members.shape[2]):
            raise ValueError(
                "classifier: expected scores that give probabilities with shape "
                f"{(len(rows), 1, members.shape[2])}; got {tuple(d.shape)}."
            )
        pieces.append((d[:, 0].double().cpu(), labels[0].cpu()))
    probabilities, truths = (torch.cat(each).numpy() for each in zip(*pieces, strict=True))
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ValueError(
            "classifier: expected probabilities between 0 and 1; got "
            f"{probabilities.min()} to {probabilities.max()}."
        )
    return probabilities.clip(NARROWEST, 1 - NARROWEST), truths


def _split(values: np.ndarray, truths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values of truths (n,) and of draws (n, k), from those of all members (n, r)."""
    return values[truths], values[~truths].reshape(len(values), -1)


def _estimate(values: np.ndarray) -> Mean:
    return Mean(float(values.mean()), float(values.std(ddof=1) / math.sqrt(len(values))))


def _auc(probabilities: np.ndarray, truths: np.ndarray) -> Mean:
    """The AUC, with the error of DeLong et al. for sets whose members depend on each other."""
    d, d_q = _split(probabilities, truths)
    above = _share(d_q.ravel(), d) + (1 - _share(d, d_q).mean(1))
    return Mean(float(area(d, d_q.ravel())), _estimate(above).error)


def _share(of: np.ndarray, below: np.ndarray) -> np.ndarray:
    """The share of some numbers that lies below others, ties by half."""
    ordered = np.sort(of)
    sides = (np.searchsorted(ordered, below, side) for side in ("left", "right"))
    return np.asarray(sum(sides) / (2 * len(of)))


def _roc(probabilities: np.ndarray, truths: np.ndarray) -> Roc:
    levels = np.quantile(probabilities, np.linspace(1, 0, THRESHOLDS))
    parts = [np.sort(part, axis=None) for part in _split(probabilities, truths)]
    below = (np.searchsorted(part, levels, "right") / len(part) for part in parts)
    d, d_q = (np.concatenate([[0], 1 - share, [1]]) for share in below)
    return Roc(d_q, d)


class _Bins(NamedTuple):
    """Members (n, r) in bins: which, how many (b,), and the predicted share of truths (b,)."""

    which: np.ndarray
    members: np.ndarray
    predicted: np.ndarray

    @classmethod
    def of(cls, probabilities: np.ndarray) -> "_Bins":
        """Bins of about equally many members."""
        k = probabilities.shape[1] - 1
        inner = np.quantile(probabilities, np.linspace(0, 1, BINS + 1)[1:-1])
        used, which = np.unique(np.searchsorted(inner, probabilities), return_inverse=True)
        which = which.reshape(probabilities.shape)
        members = np.bincount(which.ravel(), minlength=len(used))
        # The chance of any member to be the truth, which is one of k + 1.
        chances = probabilities / (probabilities + k * (1 - probabilities))
        return cls(which, members, np.bincount(which.ravel(), chances.ravel()) / members)

    def counted(self, truths: np.ndarray) -> np.ndarray:
        """The number of truths in each bin (b,), from who is the truth (n, r)."""
        return np.bincount(self.which[truths], minlength=len(self.members))

    def reliability(self, truths: np.ndarray) -> Reliability:
        """The reliability diagram of so many truths in each bin (b,)."""
        limits = clopper_pearson(truths / self.members, self.members)
        shares = (self.predicted, truths / self.members, *limits)
        return Reliability(self.members, truths, *(self._even(share) for share in shares))

    def errors(self, truths: np.ndarray) -> np.ndarray:
        """The calibration errors (...) of so many truths in each bin (..., b)."""
        gaps = np.abs(self._even(truths / self.members) - self._even(self.predicted))
        return np.asarray(gaps @ self.members / self.members.sum())

    def _even(self, share: np.ndarray) -> np.ndarray:
        """A share of truths among k draws for each, at even odds."""
        k = self.which.shape[1] - 1
        return np.asarray(k * share / (k * share + 1 - share))


def _perfect(bins: _Bins, seed: int) -> np.ndarray:
    """Calibration errors (s,) of labels that are drawn with the chances that were predicted."""
    chances = torch.from_numpy(bins.predicted).expand(PERFECT, -1)
    members = torch.from_numpy(bins.members).to(chances).expand(PERFECT, -1)
    drawn = torch.binomial(members, chances, generator=stream(seed, "perfect"))
    return bins.errors(drawn.numpy())

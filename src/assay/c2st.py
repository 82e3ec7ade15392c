r"""The classifier two-sample test, where draws of both distributions exist.

A classifier is trained to tell draws of p (class 1), the true distribution, from draws of q (class
0), and is tested on held-out draws. For the Bayes classifier :math:`d^* = p / (p + q)` the
accuracy is :math:`\frac{1}{2} + \frac{1}{2} TV(p, q)`, and 1/2 if and only if q is right.

Rows are brought into random sets of one row of the smaller sample and k of the other, whose
members are exchangeable if q is right. A null copy chooses another member of each set to be the
one, in training and held-out sets together, and the classifier is fitted again. P-values are exact
for independent rows; draws of a Markov chain must be thinned. The statistic that decides,
:data:`DECISIVE`, was chosen before any data; the smallest of several p-values is no p-value.

References: Lopez-Paz and Oquab 2017, *Revisiting Classifier Two-Sample Tests*; Kim, Lee and Lei
2019, *Global and Local Two-Sample Tests via Regression*; Linhart et al. 2023, section 2.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from ._support.inputs import as_null, as_tensors, check_finite, check_kind, cpu, full_precision
from ._support.random import Seed, mix_seed, seed_of, stream
from .classifiers.base import Classifier, as_classifier
from .classifiers.mlp import MLP
from .data.calibration import Calibration
from .local.lc2st import mse0
from .nulls import Exchange, LabelCopies
from .results import Result, versions

# A function of class-1 probabilities at rows of p (..., s1) and of q (..., s0), large where they
# differ; both samples have the same weight, whatever their sizes.
TwoSample = Callable[[np.ndarray, np.ndarray], np.ndarray]
DECISIVE = "mse"
FEWEST_ROWS = 10
# Probabilities whose statistics are computed at a time.
ROOM = 2**22


def acc0(probabilities: np.ndarray) -> np.ndarray:
    """The share of class-1 probabilities (..., s) at draws of q below 1/2; 1/2 counts half."""
    d = np.asarray(probabilities, float)
    return np.asarray(np.mean(0.5 - 0.5 * np.sign(d - 0.5), axis=-1))


def accuracy(at_p: np.ndarray, at_q: np.ndarray) -> np.ndarray:
    """The share of rows that are classified correctly, with the same weight for both classes.

    Example:
        >>> float(accuracy(np.array([0.9, 0.4]), np.array([0.1, 0.2, 0.3, 0.4])))
        0.75
    """
    return np.asarray(0.5 * (acc0(1 - np.asarray(at_p, float)) + acc0(at_q)))


def mse(at_p: np.ndarray, at_q: np.ndarray) -> np.ndarray:
    r"""The regression statistic, :math:`(d - \frac{1}{2})^2` on average over both classes.

    Its limit is :math:`\frac{1}{2} \int (d - \frac{1}{2})^2 (p + q) \le \frac{1}{4}`, as in the
    proof of Theorem 2 of Linhart et al. 2023 and in their code; the formula in their text is twice
    as large.
    """
    return np.asarray(0.5 * (mse0(at_p) + mse0(at_q)))


def auc(at_p: np.ndarray, at_q: np.ndarray) -> np.ndarray:
    r"""The area under the ROC curve, :math:`P(d > d_q) + \frac{1}{2} P(d = d_q)`, from ranks.

    Example:
        >>> float(auc(np.array([0.9, 0.4]), np.array([0.1, 0.4])))
        0.875
    """
    from scipy.stats import rankdata  # scipy.stats costs half a second

    s1, s0 = at_p.shape[-1], at_q.shape[-1]
    ranks = rankdata(np.concatenate([at_p, at_q], -1), axis=-1)[..., :s1]
    return np.asarray((ranks.mean(-1) - (s1 + 1) / 2) / s0)


def confidence(at_p: np.ndarray, at_q: np.ndarray) -> np.ndarray:
    r"""The mean of :math:`\max(d, 1 - d)` over both classes: the accuracy that is claimed."""
    sides = (np.asarray(d, float) for d in (at_p, at_q))
    return np.asarray(0.5 * sum(np.mean(np.maximum(d, 1 - d), axis=-1) for d in sides))


STATISTICS: dict[str, TwoSample] = {
    "accuracy": accuracy,
    "mse": mse,
    "auc": auc,
    "confidence": confidence,
    "acc0": lambda at_p, at_q: acc0(at_q),
    "mse0": lambda at_p, at_q: mse0(at_q),
}


@full_precision()
def c2st(
    p: Any,
    q: Any,
    classifier: Classifier | None = None,
    null: int | Exchange | None = None,
    evaluation: Any = None,
    seed: Seed = 0,
) -> "C2STResult":
    r"""Tests whether two samples have the same distribution, and how different they are.

    Where there are more draws of q than of p, a set consists of one draw of p and
    :math:`k = \lfloor n_q / n_p \rfloor` of q, and the other way round where there are fewer;
    rows that remain are left out at random. The order of rows does not matter, except for
    samples with repeated rows, which must come in random order.

    Args:
        p: Draws of the true distribution, with shape (n_p, m).
        q: Draws of the approximation, with shape (n_q, m).
        classifier: The classifier; an :class:`assay.MLP` by default.
        null: How often the labels are exchanged: :class:`assay.Exchange` or a number; 999 by
            default for a classifier in closed form and 99 for others, of which every fold trains
            all copies.
        evaluation: A splitter of scikit-learn: ``KFold(5)`` by default, in which every set is
            held out once, or ``ShuffleSplit(1)``.
        seed: An int or a generator. The same seed gives the same result.

    Returns:
        Six statistics of the held-out probabilities, with their nulls and p-values.

    Example:
        >>> p, q = torch.randn(2, 500, 2, generator=torch.Generator().manual_seed(0))
        >>> result = c2st(p, 0.7 * q, assay.Ridge(), Exchange(99))
        >>> float(result["mse"].pvalue)
        0.01
        >>> tails = np.linalg.norm(result.theta, axis=1) > 2
        >>> bool(result.probabilities[tails].mean() > 0.5)  # where q is too narrow
        True
    """
    from sklearn.model_selection import KFold  # takes a second to import

    classifier = as_classifier(classifier, MLP())
    exchange = cast(Exchange, as_null(null, classifier.null or Exchange(99), Exchange))
    evaluation = KFold(5) if evaluation is None else evaluation
    check_kind("evaluation", evaluation, "a splitter such as KFold(5)", "split")
    p, q = _samples(p, q)
    seed = seed_of(seed)
    copies = _random_sets(p, q, exchange, seed)
    probabilities, held = _held_out(copies, classifier, evaluation, seed)
    labels = copies.labels.cpu()[:, held].numpy()
    statistics = _statistics(probabilities, labels)
    return C2STResult(
        statistic=statistics[:, 0],
        null=statistics[:, 1:],
        probabilities=probabilities[0].ravel(),
        truth=labels[0].ravel(),
        theta=copies.members[held.to(p.device)].flatten(0, 1).cpu().numpy(),
        names=tuple(STATISTICS),
        hypothesis="p and q have the same distribution",
        settings={
            "test": "C2ST",
            **{"m": p.shape[1], "n_p": len(p), "n_q": len(q), "sets": len(copies.x)},
            "used_p": len(copies.x) * copies.truths,
            "used_q": len(copies.x) * (copies.size - copies.truths),
            "classifier": repr(classifier),
            "null": repr(exchange),
            "evaluation": repr(evaluation),
            "held_out": len(held),
            "decisive": DECISIVE,
            "device": str(p.device),
            "seed": seed,
            **versions(),
        },
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class C2STResult(Result):
    r"""What a two-sample test found, on held-out rows; ``result["auc"]`` is one statistic alone.

    The j = 6 statistics, large if q is wrong, with d the probability of class 1 (p):

    * ``accuracy``: how often rows are classified correctly, both classes alike; d = 1/2 counts
      half. It forgets how far d is from 1/2: under cross-validation it is less powerful than
      ``mse`` (45 and 74 rejections in 100 runs of N(0, I) against N(0, 0.9 I), 2000 rows each).
    * ``mse``: :math:`(d - \frac{1}{2})^2` on average over both classes alike, at most 1/4. It is
      the same in all copies if samples have one size and d does not depend on training labels.
    * ``auc``: how often d is larger at a draw of p than at one of q; equal ones count half.
    * ``confidence``: :math:`\max(d, 1 - d)` on average over both classes alike.
    * ``acc0``: the accuracy at draws of q alone. It is no valid summary: it can be 1/2 or less
      however wrong q is (Figure 1 of the paper).
    * ``mse0``: :math:`(d - \frac{1}{2})^2` at draws of q alone, as in a local test.

    Args:
        probabilities: P(class 1 = p) of the held-out rows, with shape (e,).
        truth: Whether a held-out row is one of p, with shape (e,).
        theta: The held-out rows, with shape (e, m).
        names: The names of the statistics.
    """

    probabilities: np.ndarray
    truth: np.ndarray
    theta: np.ndarray
    names: tuple[str, ...]
    heading: ClassVar[str] = "C2ST"

    def _row(self, i: int) -> "C2STResult":
        statistic, null = np.atleast_1d(self.statistic)[i], np.atleast_2d(self.null)[i]
        return replace(self, statistic=statistic, null=null, names=(self.names[i],))

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the statistics."""
        return self.names

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        name = self.names[0] if len(self.names) == 1 else DECISIVE
        one, settings = self[name], self.settings
        right = accuracy(self.probabilities[self.truth], self.probabilities[~self.truth])
        return (
            f"A classifier tells q from p in {100 * right:.0f} % of cases (50 % if they were the "
            f"same); a value of {name} at least as large would then occur with probability "
            f"{one.pvalue:.3g} ± {one.pvalue_error:.2g} ({settings['used_p']} draws of p, "
            f"{settings['used_q']} draws of q, {self.null.shape[-1]} nulls)."
        )


def _samples(p: Any, q: Any) -> tuple[Tensor, Tensor]:
    """Both samples, with shape (n_p, m) and (n_q, m)."""
    samples = as_tensors({"p": p, "q": q})
    for name, array in samples.items():
        if array.ndim != 2:
            raise ValueError(
                f"{name}: expected shape (n, m); got {tuple(array.shape)}. For a single parameter "
                f"use {name}.reshape(-1, 1)."
            )
        if len(array) < FEWEST_ROWS:
            raise ValueError(
                f"{name}: expected at least {FEWEST_ROWS} rows; got {len(array)}. A classifier "
                "begins to learn something from a hundred."
            )
        check_finite(name, array, "Leave them out, if that is harmless.")
    p, q = samples.values()
    if p.shape[1] != q.shape[1]:
        raise ValueError(f"q: expected {p.shape[1]} column(s), as p has; got {q.shape[1]}.")
    # Samples with repeated rows are discrete, and may well consist of the same values.
    discrete = _repeats(p) or _repeats(q)
    if not discrete and _repeats(torch.cat([p, q])) == min(len(p), len(q)):
        raise ValueError(
            "q: expected draws of its own; got the rows of p. Two independent samples are needed, "
            "neither of which contains the other."
        )
    return p, q


def _sorted(array: Tensor) -> Tensor:
    """The same rows in an order that does not depend on the one given."""
    order = np.lexsort(array.cpu().numpy().T[::-1])
    return array[torch.from_numpy(order).to(array.device)]


def _repeats(array: Tensor) -> int:
    """How many rows repeat another one."""
    ordered = _sorted(array)
    return int((ordered[1:] == ordered[:-1]).all(1).sum())


def _random_sets(p: Tensor, q: Tensor, null: Exchange, seed: int) -> LabelCopies:
    """Random sets of one row of the smaller sample and k of the other, and their null copies."""
    seed = _mixed(_sorted(torch.cat([p, q])).cpu().numpy(), seed)
    p, q = (_shuffled(rows, seed, name) for name, rows in (("p", p), ("q", q)))
    k = max(len(p), len(q)) // min(len(p), len(q))
    one, others = (q, p) if k > 1 and len(p) > len(q) else (p, q)
    n = min(len(p), len(q))
    others = others[: n * k].unflatten(0, (n, k))
    # Sets are all alike: the constant x only takes the place of one.
    copies = null.copies(Calibration(one[:n], p.new_zeros(n, 1), others), seed)
    return replace(copies, x=p.new_empty(n, 0), truths=1 if one is p else k)


def _mixed(pool: np.ndarray, seed: int) -> int:
    """A seed that depends on the sorted rows of both samples together, but not on their units.

    With one and the same seed, two data sets then have independent sets and nulls. Ranks of a
    single column are all alike; which of its neighbouring gaps is the larger is not.
    """
    ranks = np.stack([np.unique(column, return_inverse=True)[1] for column in pool.T])
    content = ranks.tobytes() if len(ranks) > 1 else (np.diff(pool[:, 0], 2) > 0).tobytes()
    return mix_seed(seed, content)


def _shuffled(rows: Tensor, seed: int, name: str) -> Tensor:
    """Rows in random order, whatever order they come in, unless rows repeat.

    Data sets with repeated rows differ too little in their values: theirs come in random order.
    """
    order = cpu.randperm(len(rows), generator=stream(seed, "sets", name)).to(rows.device)
    return (rows if _repeats(rows) else _sorted(rows))[order]


def _held_out(
    copies: LabelCopies, classifier: Classifier, evaluation: Any, seed: int
) -> tuple[np.ndarray, Tensor]:
    """Class-1 probabilities (H + 1, e, r) of e held-out sets by classifiers fitted to others."""
    sets, parts = len(copies.x), []
    try:
        folds = list(evaluation.split(np.empty((sets, 0))))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"evaluation: expected one that splits {sets} sets; got {evaluation!r}: {error}"
        ) from error
    for train, held in ([torch.from_numpy(rows) for rows in fold] for fold in folds):
        scores = classifier.fit(copies.subset(train.to(copies.x.device)), seed)
        members = copies.members[held.to(copies.x.device)]
        probabilities = scores(members.flatten(0, 1)[None], copies.x[:1])
        _check_probabilities(probabilities, (1, len(copies), members.shape[:2].numel()))
        parts.append(probabilities[0].cpu().reshape(len(copies), *members.shape[:2]).numpy())
    return np.concatenate(parts, 1), torch.cat([torch.from_numpy(held) for _, held in folds])


def _check_probabilities(found: Tensor, shape: tuple[int, ...]) -> None:
    if found.shape != shape:
        raise ValueError(
            f"classifier: expected scores that give probabilities with shape {shape}; got "
            f"{tuple(found.shape)}."
        )
    if not ((found >= 0) & (found <= 1)).all():
        raise ValueError(
            f"classifier: expected probabilities between 0 and 1; got {float(found.min())} to "
            f"{float(found.max())}."
        )


def _statistics(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Statistics (j, H + 1) of probabilities and labels (H + 1, e, r), some copies at a time."""
    copies, parts = len(labels), []
    for some in np.array_split(np.arange(copies), min(copies, math.ceil(labels.size / ROOM))):
        d, of_p = probabilities[some], labels[some]
        # All sets of all copies have the same number of rows of p.
        sides = d[of_p].reshape(len(some), -1), d[~of_p].reshape(len(some), -1)
        parts.append(np.stack([statistic(*sides) for statistic in STATISTICS.values()]))
    return np.concatenate(parts, 1)

r"""The oracle: a classifier two-sample test between truth and q, where draws of both exist.

A classifier is trained to tell draws p of the truth (class 1) from draws of q (class 0) and is
judged on draws that it has not seen. With the Bayes classifier :math:`d^* = p / (p + q)` its
accuracy is :math:`\frac{1}{2} + \frac{1}{2} TV(p, q)`, and it is 1/2 if and only if q is right.

Rows are brought into random sets of one row of the rarer class and k of the other. If q is right,
the members of a set are exchangeable, so a null copy chooses anew who stands alone in each set;
training labels and held-out labels are exchanged together, and everything is fitted again. All
statistics are one and the same function of the labels, for the data and its nulls, and every
p-value is exact for rows that are independent; draws of a Markov chain must be thinned.

The p-value that counts was chosen before the data were seen: it is that of :data:`DECISIVE`. The
others are for those who have chosen another; the smallest of them is no p-value.

References: Lopez-Paz and Oquab 2017, *Revisiting Classifier Two-Sample Tests*; Kim, Lee and Lei
2019, *Global and Local Two-Sample Tests via Regression*; Linhart et al. 2023, section 2 and
Figure 1.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, cast

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

# A function of class probabilities at truths (..., s1) and at draws of q (..., s0), large where
# they differ; both samples have the same weight, whatever their sizes.
TwoSample = Callable[[np.ndarray, np.ndarray], np.ndarray]
DECISIVE = "mse"
FEWEST_ROWS = 10
# Probabilities whose statistics are computed at a time.
ROOM = 2**22


def acc0(probabilities: np.ndarray) -> np.ndarray:
    r"""The one-class accuracy :math:`\frac{1}{s} \sum_i 1\{d_i < \frac{1}{2}\}`; 1/2 counts half.

    Not sufficient: it can be 1/2, or below, for a q that is wrong (Figure 1 of the paper).
    """
    d = np.asarray(probabilities, float)
    return np.asarray(np.mean(0.5 - 0.5 * np.sign(d - 0.5), axis=-1))


def accuracy(truths: np.ndarray, draws: np.ndarray) -> np.ndarray:
    r"""The share of rows that are classified correctly, with the same weight for both classes.

    .. math:: \tfrac{1}{2} P(d > \tfrac{1}{2} \mid \text{class } 1)
        + \tfrac{1}{2} P(d < \tfrac{1}{2} \mid \text{class } 0)

    For the Bayes classifier it is 1/2 + TV / 2, with the total variation between truth and q. A
    probability of exactly 1/2 counts half, as if a coin were thrown (Lopez-Paz and Oquab 2017).

    Example:
        >>> float(accuracy(np.array([0.9, 0.4]), np.array([0.1, 0.2, 0.3, 0.4])))
        0.75
    """
    return np.asarray(0.5 * (acc0(1 - np.asarray(truths, float)) + acc0(draws)))


def mse(truths: np.ndarray, draws: np.ndarray) -> np.ndarray:
    r"""The regression statistic, :math:`(d - \frac{1}{2})^2` on average over both classes.

    .. math:: \frac{1}{2} \Big( \frac{1}{s_1} \sum_i (d(\theta_i) - \tfrac{1}{2})^2
        + \frac{1}{s_0} \sum_j (d(\theta_{q, j}) - \tfrac{1}{2})^2 \Big) \le \frac{1}{4},

    whose limit is :math:`\frac{1}{2} \int (d - \frac{1}{2})^2 (p + q)`, as in the proof of
    Theorem 2 of the paper and in its authors' code; the formula in the paper's text is the sum of
    both means, which is twice as large (Kim, Lee and Lei 2019; Linhart et al. 2023).
    """
    return np.asarray(0.5 * (mse0(truths) + mse0(draws)))


def auc(truths: np.ndarray, draws: np.ndarray) -> np.ndarray:
    r"""The area under the ROC curve, :math:`P(d > d_q) + \frac{1}{2} P(d = d_q)`, from ranks.

    It is the statistic of Mann and Whitney, over the product of the sample sizes.

    Example:
        >>> float(auc(np.array([0.9, 0.4]), np.array([0.1, 0.4])))
        0.875
    """
    above, below = np.sort(truths, -1), np.sort(draws, -1)
    shape, s0 = above.shape[:-1], below.shape[-1]
    pairs = zip(*(a.reshape(-1, a.shape[-1]) for a in (above, below)), strict=True)
    return np.asarray(np.reshape([_rank(a, b) for a, b in pairs], shape) / s0)


def confidence(truths: np.ndarray, draws: np.ndarray) -> np.ndarray:
    r"""The mean of :math:`\max(d, 1 - d)` over both classes.

    For the Bayes classifier it is its accuracy; for others, what they believe theirs to be.
    """
    sides = (np.asarray(d, float) for d in (truths, draws))
    means = [np.mean(np.maximum(d, 1 - d), axis=-1) for d in sides]
    return np.asarray(0.5 * (means[0] + means[1]))


def _rank(values: np.ndarray, among: np.ndarray) -> float:
    """The mean number of sorted values `among` below one of `values`; equal ones count half."""
    sides = (np.searchsorted(among, values, side) for side in ("left", "right"))
    return float(np.mean([side.mean() for side in sides]))


STATISTICS: dict[str, TwoSample] = {
    "accuracy": accuracy,
    "mse": mse,
    "auc": auc,
    "confidence": confidence,
    "acc0": lambda truths, draws: acc0(draws),
    "mse0": lambda truths, draws: mse0(draws),
}


class Splitter(Protocol):
    """Which sets a classifier is trained on, and which it is judged on, as in scikit-learn."""

    def split(self, X: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:  # noqa: N803
        """Sets to train on and sets to judge on, in turn; sets come in random order."""


@full_precision()
def c2st(
    p: Any,
    q: Any,
    classifier: Classifier | None = None,
    null: int | Exchange | None = None,
    evaluation: Splitter | None = None,
    seed: Seed = 0,
) -> "C2STResult":
    r"""Tests whether two samples have the same distribution, and how well they are told apart.

    Where there are more draws of q than truths, a set consists of one truth and
    :math:`k = \lfloor n_q / n_p \rfloor` draws, and the other way round where there are fewer;
    rows that are left over are left out at random. The order of rows does not matter, except for
    samples with repeated rows, which must come in random order.

    Args:
        p: Draws of the truth, with shape (n_p, m).
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
    classifier = as_classifier(classifier, MLP())
    exchange = cast(Exchange, as_null(null, classifier.null or Exchange(99), Exchange))
    if evaluation is None:
        from sklearn.model_selection import KFold  # takes a second to import

        evaluation = KFold(5)
    check_kind("evaluation", evaluation, "a splitter such as KFold(5)", "split")
    truths, draws = _checked(p, q)
    seed = seed_of(seed)
    copies = _sets(truths, draws, exchange, _mixed(truths, draws, seed))
    settings = {
        "test": "C2ST",
        **_sizes(truths, draws, copies),
        "classifier": repr(classifier),
        "null": repr(exchange),
        "evaluation": repr(evaluation),
        "decisive": DECISIVE,
        "device": str(truths.device),
        "seed": seed,
        **versions(),
    }
    parts = _parts(evaluation, len(copies.x))
    judged = [_judged(copies, classifier, part, seed) for part in parts]
    held = torch.cat([held for _, held in parts])
    return _result(copies, held, torch.cat(judged, 1), settings)


def _parts(evaluation: Splitter, sets: int) -> list[tuple[Tensor, Tensor]]:
    """Sets to train on and sets to judge on, in turn."""
    try:
        parts = list(evaluation.split(np.empty((sets, 0))))
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"evaluation: expected one that splits {sets} sets; got {evaluation!r}: {error}"
        ) from error
    return [(torch.from_numpy(train), torch.from_numpy(held)) for train, held in parts]


def _sizes(truths: Tensor, draws: Tensor, copies: LabelCopies) -> dict[str, int]:
    """How many rows were given, and how many of them are used."""
    sets = len(copies.x)
    return {
        **{"m": truths.shape[1], "n_p": len(truths), "n_q": len(draws), "sets": sets},
        **{"used_p": sets * copies.truths, "used_q": sets * (copies.size - copies.truths)},
    }


def _result(
    copies: LabelCopies, held: Tensor, probabilities: Tensor, settings: dict[str, Any]
) -> "C2STResult":
    """The result of probabilities (H + 1, e, r) at held-out sets (e,)."""
    labels = copies.labels.cpu()[:, held].numpy()
    statistics = _statistics(probabilities.numpy(), labels)
    return C2STResult(
        statistic=statistics[:, 0],
        null=statistics[:, 1:],
        probabilities=probabilities[0].flatten().numpy(),
        truth=labels[0].flatten(),
        theta=copies.members[held.to(copies.x.device)].flatten(0, 1).cpu().numpy(),
        names=tuple(STATISTICS),
        hypothesis="p and q have the same distribution",
        settings=settings | {"held_out": len(held)},
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class C2STResult(Result):
    r"""What a two-sample test found, on held-out rows; ``result["auc"]`` is one statistic alone.

    The j = 6 statistics, large if q is wrong, with d the probability of class 1 (the truth):

    * ``accuracy``: how often truths and draws are told apart, both classes alike
      (:func:`~assay.c2st.accuracy`). It forgets how far d is from 1/2, and is less
      powerful than ``mse`` under cross-validation: with QDA, 2000 rows of N(0, I) and 2000 of N(0,
      0.9 I) it rejected in 45 of 100 runs, ``mse`` in 74. Where many more rows are held out than
      trained on it is the other way round (99 and 73 with 2000 to train on and 10 000 held out).
    * ``mse``: :math:`(d - \frac{1}{2})^2` on average over both classes alike, at most 1/4
      (:func:`~assay.c2st.mse`). With as many truths as draws it depends on the
      training labels alone, and a classifier must have learned from them to be tested by it.
    * ``auc``: how often d is larger at a truth than at a draw of q
      (:func:`~assay.c2st.auc`).
    * ``confidence``: :math:`\max(d, 1 - d)` on average over both classes alike.
    * ``acc0``: the accuracy at draws of q alone. It is no valid summary: it can be 1/2 or less
      however wrong q is, and is here to show that (Figure 1 of the paper).
    * ``mse0``: :math:`(d - \frac{1}{2})^2` at draws of q alone, as a local test sees it.

    In a null copy the draws of q are those that play q there.

    Args:
        probabilities: P(class 1 = truth) of the held-out rows, with shape (e,).
        truth: Whether a held-out row is a truth, with shape (e,).
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
        one = self[name]
        right = accuracy(self.probabilities[self.truth], self.probabilities[~self.truth])
        given = self.settings
        return (
            f"A classifier tells q from the truth in {100 * right:.0f} % of cases (50 % if they "
            f"were the same); a value of {name} at least as large would then occur with "
            f"probability {one.pvalue:.3g} ± {one.pvalue_error:.2g} ({given['used_p']} truths, "
            f"{given['used_q']} draws of q, {self.null.shape[-1]} nulls)."
        )


def _checked(p: Any, q: Any) -> tuple[Tensor, Tensor]:
    """Both samples, with shape (n_p, m) and (n_q, m)."""
    truths, draws = as_tensors({"p": p, "q": q}).values()
    for name, array in (("p", truths), ("q", draws)):
        if array.ndim != 2:
            raise ValueError(
                f"{name}: expected shape (n, m); got {tuple(array.shape)}. For a single parameter "
                f"use {name}.reshape(-1, 1)."
            )
        if len(array) < FEWEST_ROWS:
            raise ValueError(
                f"{name}: expected at least {FEWEST_ROWS} rows; got {len(array)}. A classifier "
                "begins to see something near a hundred."
            )
        check_finite(name, array, "Leave them out, if that is harmless.")
    if truths.shape[1] != draws.shape[1]:
        raise ValueError(
            f"q: expected {truths.shape[1]} column(s), as p has; got {draws.shape[1]}."
        )
    _check_apart(truths.cpu().numpy(), draws.cpu().numpy())
    return truths, draws


def _check_apart(truths: np.ndarray, draws: np.ndarray) -> None:
    """Refuses samples of which one contains the other, as continuous ones never do."""
    pool = np.concatenate([truths, draws])
    order = np.lexsort(pool.T)
    equal = (pool[order][1:] == pool[order][:-1]).all(1)
    sample = order >= len(truths)
    # Samples with repeated rows are discrete, and may well consist of the same values.
    if (equal & (sample[1:] == sample[:-1])).any():
        return
    if equal.sum() == min(len(truths), len(draws)):
        raise ValueError(
            "q: expected draws of its own; got the rows of p. Two independent samples are needed, "
            "neither of which contains the other."
        )


def _sorted(array: Tensor) -> Tensor:
    """The same rows in an order that does not depend on the one given."""
    order = np.lexsort(array.cpu().numpy().T[::-1])
    return array[torch.from_numpy(order).to(array.device)]


def _mixed(truths: Tensor, draws: Tensor, seed: int) -> int:
    """A seed that depends on the rows of both samples together, whoever plays the truth.

    With one and the same seed, two data sets then still meet independent sets and nulls. Ranks do
    not depend on units; those of a single column say nothing, but which of its neighbouring gaps
    is the larger does.
    """
    pool = _sorted(torch.cat([truths, draws])).cpu().numpy()
    ranks = np.stack([np.unique(column, return_inverse=True)[1] for column in pool.T])
    content = ranks.tobytes() if len(ranks) > 1 else (np.diff(pool[:, 0], 2) > 0).tobytes()
    return mix_seed(seed, content)


def _sets(truths: Tensor, draws: Tensor, null: Exchange, seed: int) -> LabelCopies:
    """Random sets of one row of the rarer class and k of the other, and their null copies."""
    p, q = (_shuffled(a, seed, name) for name, a in (("p", truths), ("q", draws)))
    alone, others = (p, q) if len(p) <= len(q) else (q, p)
    n, k = len(alone), len(others) // len(alone)
    if k == 1:
        alone, others = p[:n], q[:n]
    others = others[: n * k].unflatten(0, (n, k))
    # Sets are all alike: the constant x only takes the place of one.
    copies = null.copies(Calibration(alone, alone.new_zeros(n, 1), others), seed)
    copies = replace(copies, x=alone.new_empty(n, 0))
    return copies if k == 1 or alone is p else replace(copies, truths=k)


def _shuffled(array: Tensor, seed: int, name: str) -> Tensor:
    """Rows in random order, whatever order they come in, unless rows repeat.

    Repeated rows tell one data set from another so little that chance must come from their order.
    """
    order = cpu.randperm(len(array), generator=stream(seed, "sets", name)).to(array.device)
    ordered = _sorted(array)
    repeated = bool((ordered[1:] == ordered[:-1]).all(1).any())
    return (array if repeated else ordered)[order]


def _judged(
    copies: LabelCopies, classifier: Classifier, part: tuple[Tensor, Tensor], seed: int
) -> Tensor:
    """Class-1 probabilities (H + 1, b, r) of b held-out sets, by classifiers fitted to others."""
    train, held = (rows.to(copies.x.device) for rows in part)
    scores = classifier.fit(copies.subset(train), seed)
    rows = copies.members[held].flatten(0, 1)
    probabilities = scores(rows[None], copies.x[:1])
    expected = 1, len(copies), len(rows)
    if probabilities.shape != expected:
        raise ValueError(
            f"classifier: expected scores that give probabilities with shape {expected}; got "
            f"{tuple(probabilities.shape)}."
        )
    if not ((probabilities >= 0) & (probabilities <= 1)).all():
        raise ValueError(
            "classifier: expected probabilities between 0 and 1; got "
            f"{float(probabilities.min())} to {float(probabilities.max())}."
        )
    return probabilities[0].cpu().reshape(len(copies), len(held), copies.size)


def _statistics(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Statistics (j, H + 1) of probabilities and labels (H + 1, b, r), some copies at a time."""
    copies = len(labels)
    pieces = math.ceil(probabilities.size / ROOM)
    parts = []
    for some in np.array_split(np.arange(copies), min(copies, pieces)):
        d, truth = probabilities[some], labels[some]
        # All sets of all copies have the same number of truths.
        sides = d[truth].reshape(len(some), -1), d[~truth].reshape(len(some), -1)
        parts.append(np.stack([statistic(*sides) for statistic in STATISTICS.values()]))
    return np.concatenate(parts, 1)

r"""The classifier two-sample test, where draws of both distributions exist.

A classifier is trained to tell draws of p (class 1), the true distribution, from draws of q (class
0), and is tested on held-out draws. For the Bayes classifier :math:`d^* = p / (p + q)` the
accuracy is :math:`\frac{1}{2} + \frac{1}{2} TV(p, q)`, and 1/2 if and only if q is right.

Rows are brought into random sets of one row of the smaller sample and k of the other, whose
members are exchangeable if q is right. A null copy chooses another member of each set to be the
one, in training and held-out sets together, and the classifier is fitted again.

References: Lopez-Paz and Oquab 2017, *Revisiting Classifier Two-Sample Tests*; Kim, Lee and Lei
2019, *Global and Local Two-Sample Tests via Regression*; Linhart et al. 2023, section 2.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np
import torch
from torch import Tensor

from ._support.inputs import as_null, as_tensors, check_finite, check_kind, cpu, full_precision
from ._support.random import Seed, mix_seed, seed_of, stream
from .classifiers.base import Classifier, as_classifier
from .classifiers.mlp import MLP
from .data.calibration import FEWEST_ROWS, Calibration
from .local.lc2st import check_probabilities
from .nulls import Exchange, LabelCopies
from .results import Result, versions

STATISTICS = ("accuracy", "mse", "auc", "confidence", "acc0", "mse0")
DECISIVE = "mse"  # chosen before any data: the smallest of several p-values is no p-value


def statistics(at_p: np.ndarray, at_q: np.ndarray) -> np.ndarray:
    """The six statistics (6,) of class-1 probabilities at rows of p (s1,) and of q (s0,)."""
    from scipy.stats import rankdata  # scipy.stats costs half a second

    d1, d0 = at_p.astype(float), at_q.astype(float)
    accuracy1, accuracy0 = ((1 + np.sign(d).mean()) / 2 for d in (d1 - 0.5, 0.5 - d0))
    mse1, mse0 = (((d - 0.5) ** 2).mean() for d in (d1, d0))
    confidence1, confidence0 = (np.maximum(d, 1 - d).mean() for d in (d1, d0))
    ranks = rankdata(np.concatenate([d1, d0]))[: len(d1)]
    auc = (ranks.mean() - (len(d1) + 1) / 2) / len(d0)
    both = np.array([accuracy1 + accuracy0, mse1 + mse0, 2 * auc, confidence1 + confidence0]) / 2
    return np.array([*both, accuracy0, mse0])


@full_precision()
def c2st(
    p: Any,
    q: Any,
    classifier: Classifier | None = None,
    null: int | Exchange | None = None,
    evaluation: Any = None,
    seed: Seed = 0,
) -> "C2STResult":
    """Tests whether two samples have the same distribution, by six statistics on held-out rows.

    Rows that remain when all sets have equally many are left out at random. P-values are exact for
    independent rows: thin a Markov chain. The order of rows does not matter, unless some are
    repeated: then it must be random.

    Args:
        p: Draws of the true distribution, with shape (n_p, m).
        q: Draws of the approximation, with shape (n_q, m).
        classifier: The classifier; an :class:`assay.MLP` by default.
        null: How often the labels are exchanged: :class:`assay.Exchange` or a number; by default
            999 times for a classifier in closed form, and 99 for others.
        evaluation: A splitter of scikit-learn: ``KFold(5)`` by default, in which every set is
            held out once, or ``ShuffleSplit(1)``.
        seed: An int or a generator. The same seed gives the same result.

    Example:
        >>> p, q = torch.randn(2, 500, 2, generator=torch.Generator().manual_seed(0))
        >>> result = c2st(p, 0.7 * q, assay.Ridge(), Exchange(99))
        >>> float(result["mse"].pvalue)
        0.01
    """
    from sklearn.model_selection import KFold  # takes a second to import

    classifier = as_classifier(classifier, MLP())
    exchange = cast(Exchange, as_null(null, classifier.null or Exchange(99), Exchange))
    evaluation = KFold(5) if evaluation is None else evaluation
    check_kind("evaluation", evaluation, "a splitter such as KFold(5)", "split")
    p, q = _samples(p, q)
    seed = seed_of(seed)
    copies = _random_sets(p, q, exchange, seed)
    d, held = _held_out(copies, classifier, evaluation, seed)  # (H + 1, e, r) and (e,)
    labels = copies.labels[:, held].cpu().numpy()
    each = zip(d, labels, strict=True)
    table = np.stack([statistics(one[of_p], one[~of_p]) for one, of_p in each], 1)  # (6, H + 1)
    sets, used_p = len(copies.x), len(copies.x) * copies.truths
    settings = {"test": "C2ST", "m": p.shape[1], "n_p": len(p), "n_q": len(q), "sets": sets}
    settings |= {"used_p": used_p, "used_q": sets * copies.size - used_p}
    settings |= {"classifier": repr(classifier), "null": repr(exchange)}
    settings |= {"evaluation": repr(evaluation), "held_out": len(held), "decisive": DECISIVE}
    settings |= {"device": str(p.device), "seed": seed, **versions()}
    return C2STResult(
        statistic=table[:, 0],
        null=table[:, 1:],
        probabilities=d[0].ravel(),
        truth=labels[0].ravel(),
        theta=copies.members[held].flatten(0, 1).cpu().numpy(),
        names=STATISTICS,
        hypothesis="p and q have the same distribution",
        settings=settings,
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class C2STResult(Result):
    r"""What a two-sample test found, on held-out rows; ``result["auc"]`` is one statistic alone.

    The j = 6 statistics, large if q is wrong, with d the probability of class 1 (p):

    * ``accuracy``: how often rows are classified correctly, both classes alike; d = 1/2 counts
      half. Less powerful than ``mse``: 45 and 74 rejections of N(0, 0.9 I) in 100, of 2000 rows.
    * ``mse``: :math:`(d - \frac{1}{2})^2` on average over both classes alike; twice that in the
      text of Linhart et al. 2023, but not in their code. It is the same in all copies if samples
      have one size and d does not depend on training labels.
    * ``auc``: how often d is larger at a draw of p than at one of q; equal ones count half.
    * ``confidence``: :math:`\max(d, 1 - d)` on average over both classes alike.
    * ``acc0``, ``mse0``: accuracy and mse at draws of q alone. The first is no valid summary: it
      can be 1/2 or less however wrong q is (Figure 1 of the paper).
    """

    probabilities: np.ndarray  #: P(class 1 = p) of the held-out rows, (e,)
    truth: np.ndarray  #: whether a held-out row is one of p, (e,)
    theta: np.ndarray  #: the held-out rows, (e, m)
    names: tuple[str, ...]  #: the names of the statistics
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
        right = statistics(self.probabilities[self.truth], self.probabilities[~self.truth])[0]
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
            remedy = f"For a single parameter use {name}.reshape(-1, 1)."
            raise ValueError(f"{name}: expected shape (n, m); got {tuple(array.shape)}. {remedy}")
        n, why = len(array), "A classifier begins to learn something from a hundred."
        if n < FEWEST_ROWS:
            raise ValueError(f"{name}: expected at least {FEWEST_ROWS} rows; got {n}. {why}")
        check_finite(name, array, "Leave them out, if that is harmless.")
    p, q = samples.values()
    if p.shape[1] != q.shape[1]:
        raise ValueError(f"q: expected {p.shape[1]} column(s), as p has; got {q.shape[1]}.")
    different = [len(np.unique(rows.cpu().numpy(), axis=0)) for rows in (p, q, torch.cat([p, q]))]
    # Samples with repeated rows are discrete, and may well consist of the same values.
    if different == [len(p), len(q), max(len(p), len(q))]:
        why = "Two independent samples are needed, neither of which contains the other."
        raise ValueError(f"q: expected draws of its own; got the rows of p. {why}")
    return p, q


def _random_sets(p: Tensor, q: Tensor, null: Exchange, seed: int) -> LabelCopies:
    """Random sets of one row of the smaller sample and k of the other, and their null copies."""
    # The seed depends on the order of all rows in each column, whatever their units. Ranks of a
    # single column are all alike; which of its neighbouring gaps is the larger is not.
    pool = torch.cat([p, q]).cpu().numpy()
    pool = pool[np.lexsort(pool.T[::-1])]
    ranks = np.stack([np.unique(column, return_inverse=True)[1] for column in pool.T])
    seed = mix_seed(seed, ranks if len(ranks) > 1 else np.diff(pool[:, 0], 2) > 0)
    shuffled = []
    for name, rows in (("p", p), ("q", q)):
        order = cpu.randperm(len(rows), generator=stream(seed, "sets", name)).to(rows.device)
        # Samples with repeated rows come in random order: they differ too little in their values.
        ordered = torch.from_numpy(np.unique(rows.cpu().numpy(), axis=0)).to(rows.device)
        shuffled.append((ordered if len(ordered) == len(rows) else rows)[order])
    p, q = shuffled
    n, k = min(len(p), len(q)), max(len(p), len(q)) // min(len(p), len(q))
    one, others = (q, p) if len(p) >= 2 * n else (p, q)
    # Sets are all alike: the constant x only takes the place of one.
    pairs = Calibration(one[:n], p.new_zeros(n, 1), others[: n * k].unflatten(0, (n, k)))
    return replace(null.copies(pairs, seed), x=p.new_empty(n, 0), truths=1 if one is p else k)


def _held_out(
    copies: LabelCopies, classifier: Classifier, evaluation: Any, seed: int
) -> tuple[np.ndarray, Tensor]:
    """Class-1 probabilities (H + 1, e, r) of e held-out sets by classifiers fitted to others."""
    x, n = copies.x, len(copies.x)
    probabilities, rows = [], []
    try:
        folds = list(evaluation.split(np.empty((n, 0))))
    except (TypeError, ValueError) as error:
        got = f"{evaluation!r}: {error}"
        raise ValueError(f"evaluation: expected one that splits {n} sets; got {got}") from error
    for fold in folds:
        train, held = (torch.from_numpy(sets).to(x.device) for sets in fold)
        members = copies.members[held]  # (b, r, m)
        scores = classifier.fit(copies.subset(train), seed)
        expected = 1, len(copies), members.shape[:2].numel()
        found = check_probabilities(scores(members.flatten(0, 1)[None], x[:1]), expected)
        probabilities.append(found.reshape(-1, *members.shape[:2]))
        rows.append(held)
    return np.concatenate(probabilities, 1), torch.cat(rows)

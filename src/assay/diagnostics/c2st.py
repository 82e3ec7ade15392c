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

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from ..classifiers.mlp import MLP
from ..copies import Classifier, Relabelled
from ..door import as_tensors, check_count, check_finite, check_kind
from ..nulls import Exchange
from ..randomness import Seed, seed_of, stream
from ..results import Tested
from ..samples import Calibration
from ..statistics import TwoSample, acc0, accuracy, auc, confidence, mse, mse0
from ..version import versions

__all__ = ["C2STResult", "Evaluation", "Folds", "HeldOut", "c2st"]

STATISTICS: dict[str, TwoSample] = {
    "accuracy": accuracy,
    "mse": mse,
    "auc": auc,
    "confidence": confidence,
    "acc0": lambda truths, draws: acc0(draws),
    "mse0": lambda truths, draws: mse0(draws),
}
DECISIVE = "mse"
FEWEST_ROWS = 10
# Probabilities whose statistics are computed at a time.
ROOM = 2**22


class Evaluation(Protocol):
    """Which sets a classifier is trained on, and which it is judged on."""

    def parts(self, sets: int) -> list[tuple[Tensor, Tensor]]:
        """Sets to train on and sets to judge on, in turn; sets come in random order."""


@dataclass(frozen=True)
class Folds:
    """Cross-validation: every set is held out once.

    Args:
        n: The number of folds; one classifier is trained for each.
    """

    n: int = 5

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_count("n", self.n, least=2))

    def parts(self, sets: int) -> list[tuple[Tensor, Tensor]]:
        """Sets to train on and sets to judge on, for each fold."""
        if self.n > sets:
            raise ValueError(
                f"evaluation: expected at most as many folds as there are sets; got {self.n} "
                f"folds for {sets} sets."
            )
        folds = torch.arange(sets).tensor_split(self.n)
        others = (torch.cat([*folds[:i], *folds[i + 1 :]]) for i in range(self.n))
        return list(zip(others, folds, strict=True))


@dataclass(frozen=True)
class HeldOut:
    """One part is trained on, the other judged on.

    Args:
        share: The share of sets that is held out.
    """

    share: float = 0.5

    def __post_init__(self) -> None:
        number = isinstance(self.share, int | float) and not isinstance(self.share, bool)
        if not number or not 0 < self.share < 1:
            raise ValueError(f"share: expected a number between 0 and 1; got {self.share!r}.")

    def parts(self, sets: int) -> list[tuple[Tensor, Tensor]]:
        """Sets to train on and sets to judge on, once."""
        held = min(sets - 1, max(1, round(self.share * sets)))
        return [(torch.arange(sets - held), torch.arange(sets - held, sets))]


def c2st(
    p: Any,
    q: Any,
    classifier: Classifier | None = None,
    null: Exchange | None = None,
    evaluation: Evaluation | None = None,
    seed: Seed = 0,
) -> "C2STResult":
    r"""Tests whether two samples have the same distribution, and how well they are told apart.

    Where there are more draws of q than truths, a set consists of one truth and
    :math:`k = \lfloor n_q / n_p \rfloor` draws, and the other way round where there are fewer;
    rows that are left over are left out at random. The order of rows does not matter, but for
    samples with repeated rows, which must come in random order.

    Args:
        p: Draws of the truth, with shape (n_p, m).
        q: Draws of the approximation, with shape (n_q, m).
        classifier: The classifier; an :class:`assay.MLP` by default.
        null: How often the labels are exchanged; by default what the classifier is made for, or
            else :class:`assay.Exchange` with 99, since every fold trains all copies.
        evaluation: :class:`Folds` with 5 by default, or :class:`HeldOut`.
        seed: An int or a generator. The same seed gives the same result.

    Returns:
        Six statistics of the held-out probabilities, with their nulls and p-values.

    Example:
        >>> from assay.classifiers import QDA
        >>> p, q = torch.randn(2, 500, 2, generator=torch.Generator().manual_seed(0))
        >>> result = c2st(p, 0.7 * q, QDA(), Exchange(99))
        >>> float(result["mse"].pvalue)
        0.01
        >>> tails = np.linalg.norm(result.theta, axis=1) > 2
        >>> bool(result.probabilities[tails].mean() > 0.5)  # where q is too narrow
        True
    """
    classifier = MLP() if classifier is None else classifier
    check_kind("classifier", classifier, "a classifier such as MLP()", "fit")
    null = getattr(classifier, "null", Exchange(99)) if null is None else null
    if not isinstance(null, Exchange):
        raise TypeError(f"null: expected Exchange(n), which is exact here; got {null!r}.")
    evaluation = Folds() if evaluation is None else evaluation
    check_kind("evaluation", evaluation, "an evaluation such as Folds(5)", "parts")
    truths, draws = _checked(p, q)
    seed = seed_of(seed)
    copies = _sets(truths, draws, null, _mixed(truths, draws, seed))
    settings = {
        "test": "C2ST",
        **_sizes(truths, draws, copies),
        "classifier": repr(classifier),
        "null": repr(null),
        "evaluation": repr(evaluation),
        "decisive": DECISIVE,
        "device": str(truths.device),
        "seed": seed,
        **versions(),
    }
    parts = evaluation.parts(len(copies.x))
    judged = [_judged(copies, classifier, part, seed) for part in parts]
    held = torch.cat([held for _, held in parts])
    return _result(copies, held, torch.cat(judged, 1), settings)


def _sizes(truths: Tensor, draws: Tensor, copies: Relabelled) -> dict[str, int]:
    """How many rows were given, and how many of them are used."""
    sets = len(copies.x)
    return {
        **{"m": truths.shape[1], "n_p": len(truths), "n_q": len(draws), "sets": sets},
        **{"used_p": sets * copies.truths, "used_q": sets * (copies.size - copies.truths)},
    }


def _result(
    copies: Relabelled, held: Tensor, probabilities: Tensor, settings: dict[str, Any]
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


@dataclass(frozen=True, eq=False, repr=False)
class C2STResult(Tested):
    r"""What a two-sample test found, on held-out rows; ``result["auc"]`` is one statistic alone.

    The j = 6 statistics, large if q is wrong, with d the probability of class 1 (the truth):

    * ``accuracy``: how often truths and draws are told apart, both classes alike
      (:func:`~assay.statistics.accuracy`). It forgets how far d is from 1/2, and is less powerful
      than ``mse`` under cross-validation: with QDA, 2000 rows of N(0, I) and 2000 of N(0, 0.9 I)
      it rejected in 45 of 100 runs, ``mse`` in 74. Where many more rows are held out than trained
      on it is the other way round (99 and 73 with 2000 to train on and 10 000 held out).
    * ``mse``: :math:`(d - \frac{1}{2})^2` on average over both classes alike, at most 1/4
      (:func:`~assay.statistics.mse`). With as many truths as draws it depends on the training
      labels alone, and a classifier must have learned from them to be tested by it.
    * ``auc``: how often d is larger at a truth than at a draw of q
      (:func:`~assay.statistics.auc`).
    * ``confidence``: :math:`\max(d, 1 - d)` on average over both classes alike.
    * ``acc0``: the accuracy at draws of q alone. It is no valid summary: it can be 1/2 or less
      however wrong q is, and is here to show that (Figure 1 of the paper).
    * ``mse0``: :math:`(d - \frac{1}{2})^2` at draws of q alone, as a local test sees it.

    In a null copy the draws of q are those that play q there.

    Args:
        statistic: The statistics, with shape (j,); () for one alone.
        null: Their values for the null copies, with shape (j, H); (H,) for one alone.
        probabilities: P(class 1 = truth) of the held-out rows, with shape (e,).
        truth: Whether a held-out row is a truth, with shape (e,).
        theta: The held-out rows, with shape (e, m).
        names: The names of the statistics.
        hypothesis: What a small p-value speaks against.
        settings: The settings and versions that made it.
    """

    statistic: np.ndarray
    null: np.ndarray
    probabilities: np.ndarray
    truth: np.ndarray
    theta: np.ndarray
    names: tuple[str, ...]
    hypothesis: str
    settings: Mapping[str, Any]

    def __getitem__(self, name: str) -> "C2STResult":
        """The result for one statistic alone."""
        if name not in self.names:
            raise KeyError(f"{name!r}: expected one of {', '.join(self.names)}.")
        i = self.names.index(name)
        null = np.atleast_2d(self.null)[i]
        return replace(self, statistic=np.atleast_1d(self.statistic)[i], null=null, names=(name,))

    @property
    def labels(self) -> tuple[str, tuple[str, ...]]:
        """What the rows of the table are, and their names."""
        return "C2ST", self.names

    @property
    def table(self) -> list[dict[str, float]]:
        """One row for each statistic: its value, 95 % quantile of the null, p-value, error."""
        columns = {name: np.atleast_1d(values) for name, values in self._columns.items()}
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, map(float, row), strict=True)) for row in rows]

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        name = self.names[0] if len(self.names) == 1 else DECISIVE
        one = self[name]
        right = accuracy(self.probabilities[self.truth], self.probabilities[~self.truth])
        given = self.settings
        return (
            f"A classifier tells q from the truth in {100 * right:.0f} % of cases (50 % if they "
            f"were the same); a value of {name} as large would then be seen with probability "
            f"{one.pvalue:.3g} ± {one.pvalue_error:.2g} ({given['used_p']} truths, "
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
    _check_apart(*(_table(array) for array in (truths, draws)))
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


def _table(array: Tensor) -> np.ndarray:
    return array.cpu().numpy()


def _sorted(array: Tensor) -> Tensor:
    """The same rows in an order that does not depend on the one given."""
    order = np.lexsort(_table(array).T[::-1])
    return array[torch.from_numpy(order).to(array.device)]


def _mixed(truths: Tensor, draws: Tensor, seed: int) -> int:
    """A seed that depends on the rows of both samples together, whoever plays the truth.

    With one and the same seed, two data sets then still meet independent sets and nulls. Ranks do
    not depend on units; those of a single column say nothing, but which of its neighbouring gaps
    is the larger does.
    """
    pool = _table(_sorted(torch.cat([truths, draws])))
    ranks = np.stack([np.unique(column, return_inverse=True)[1] for column in pool.T])
    content = ranks.tobytes() if len(ranks) > 1 else (np.diff(pool[:, 0], 2) > 0).tobytes()
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return (seed ^ int.from_bytes(digest, "big")) % 2**62


def _sets(truths: Tensor, draws: Tensor, null: Exchange, seed: int) -> Relabelled:
    """Random sets of one row of the rarer class and k of the other, and their null copies."""
    p, q = (_shuffled(a, seed, name) for name, a in (("p", truths), ("q", draws)))
    alone, others = (p, q) if len(p) <= len(q) else (q, p)
    n, k = len(alone), len(others) // len(alone)
    others = others[: n * k].unflatten(0, (n, k))
    # Sets are all alike: the constant x only takes the place of one.
    copies = null.copies(Calibration(alone, alone.new_zeros(n, 1), others), seed)
    copies = replace(copies, x=alone.new_empty(n, 0))
    if alone is p:
        return copies
    relabel = copies.relabel
    return replace(copies, relabel=lambda h, j: ~relabel(h, j), truths=k)


def _shuffled(array: Tensor, seed: int, name: str) -> Tensor:
    """Rows in random order; whatever order they come in, unless rows repeat.

    Repeated rows tell one data set from another so little that chance must come from their order.
    """
    order = torch.randperm(len(array), generator=stream(seed, "sets", name)).to(array.device)
    ordered = _sorted(array)
    repeated = bool((ordered[1:] == ordered[:-1]).all(1).any())
    return (array if repeated else ordered)[order]


def _judged(
    copies: Relabelled, classifier: Classifier, part: tuple[Tensor, Tensor], seed: int
) -> Tensor:
    """Class-1 probabilities (H + 1, b, r) of b held-out sets, by classifiers fitted to others."""
    train, held = (rows.to(copies.x.device) for rows in part)
    scores = classifier.fit(copies.subset(train), seed)
    rows = copies.members[held].flatten(0, 1)
    found = scores(rows[None], copies.x[:1])
    expected = 1, len(copies), len(rows)
    if found.shape != expected:
        raise ValueError(
            f"classifier: expected scores that give probabilities with shape {expected}; got "
            f"{tuple(found.shape)}."
        )
    if not ((found >= 0) & (found <= 1)).all():
        raise ValueError(
            "classifier: expected probabilities between 0 and 1; got "
            f"{float(found.min())} to {float(found.max())}."
        )
    return found[0].cpu().reshape(len(copies), len(held), copies.size)


def _statistics(probabilities: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Statistics (j, H + 1) of probabilities and labels (H + 1, b, r), some copies at a time."""
    copies = len(labels)
    pieces = math.ceil(probabilities.size / ROOM)
    found = []
    for some in np.array_split(np.arange(copies), min(copies, pieces)):
        d, truth = probabilities[some], labels[some]
        # All sets of all copies have the same number of truths.
        sides = d[truth].reshape(len(some), -1), d[~truth].reshape(len(some), -1)
        found.append(np.stack([statistic(*sides) for statistic in STATISTICS.values()]))
    return np.concatenate(found, 1)

r"""Discriminative calibration: how far q is from the truth, on average over x, from below.

A classifier is trained on one part of the calibration. On the other part it is asked which of the
k + 1 members at each x is the truth, and answers with the probabilities

.. math:: \pi_j = \frac{e^{g(\theta_j, x)}}{\sum_i e^{g(\theta_i, x)}}, \qquad
    g = \log \frac{d}{1 - d} \approx \log \frac{p(\theta \mid x)}{q(\theta \mid x)} .

Whatever the classifier, the mean of :math:`\log (k + 1) \pi_{truth}` is at most a divergence
between truth and q that grows to :math:`E_x KL(p \| q)` with k, and the binary log-score plus
log 2 is at most the Jensen-Shannon divergence. Both are zero for a classifier that knows nothing.

The p-values need no null training: if q is right at almost every x, members of a held-out set are
exchangeable given the classifier. One is of the log-score, the other of the ranks of the truths
among the scores of their sets (split conformal). They test q at all x together, as SBC does with
a quantity that was learned; they say nothing about one x_o.

References: Yao and Domke 2023, *Discriminative Calibration: Check Bayesian Computation from
Simulations and Flexible Classifier*; Hu and Lei 2024, *A Two-Sample Conditional Distribution Test
Using Conformal Prediction and Weighted Rank Sum*; Bansal, Chen and Scott 2025, *Conformal C2ST*.
"""

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import scipy.special
import torch
from torch import Tensor

from ..._core import Seed, as_null, own_terms, seed_of
from ...classifiers.base import Classifier, Scores, as_classifier
from ...classifiers.mlp import MLP
from ...nulls.exchange import Exchange, LabelCopies
from ...results import Result, settings_of
from ...samples.calibration import Calibration, check_calibration
from ...samples.neighbourhoods import EVERYWHERE

HYPOTHESIS = f"q(theta | x) = p(theta | x) {EVERYWHERE}"
# Probabilities are kept this far from 0 and 1, where a log-score would be infinite.
NARROWEST = 1e-6
# Held-out sets that are scored at a time.
SETS = 2**12


@own_terms()
def divergence(
    calibration: Calibration,
    classifier: Classifier | None = None,
    null: int | Exchange | None = None,
    share: float = 0.5,
    seed: Seed = 0,
) -> "DivergenceResult":
    """Bounds the divergence of q from the truth, over all x, from below.

    Args:
        calibration: Pairs of the joint with k draws of q, or latents.
        classifier: The classifier; an :class:`assay.MLP` by default.
        null: How the held-out members are exchanged, or how often; :class:`assay.Exchange` with
            999 by default.
        share: The share of pairs to train on.
        seed: An int or a generator. The same seed gives the same result.

    Example:
        >>> theta, noise = torch.randn(2, 400, 1, generator=torch.Generator().manual_seed(0))
        >>> z = torch.randn(400, 8, 1, generator=torch.Generator().manual_seed(1))
        >>> calibration = Calibration(theta, theta + noise, z)
        >>> result = divergence(calibration, MLP(epochs=10))
        >>> bool(result.pvalue.max() <= 0.05)  # the prior is no posterior
        True
        >>> bool(result.kl > 0)  # the truth is 0.35 nats
        True
    """
    check_calibration(calibration)
    classifier = as_classifier(classifier, MLP())
    null = as_null(null, Exchange(999), Exchange)
    seed = seed_of(seed)
    trained, held = calibration.sorted().split(share, seed)
    scores = classifier.fit(Exchange(1).copies(trained, seed)[:1], seed)
    copies = null.copies(held.sorted(), seed)
    d = _probabilities(scores, copies)
    log_score, ranks = _log_scores(d), _ranks(d)
    sets = [torch.arange(len(d), device=copies.x.device)]
    means = [copies.turns.sums(values, sets)[0].cpu() / len(d) for values in (log_score, ranks)]
    statistics, truth = torch.stack(means), copies.turns.truth
    kl, js = _estimate(picked(log_score, truth)), _estimate(_binary(d, truth))
    sizes = {"trained": len(trained), "held": len(held), "members": d.shape[1]}
    made = {"classifier": classifier, "null": null, "seed": seed}
    settings = settings_of("discriminative calibration", calibration, **sizes, **made)
    return DivergenceResult(
        statistic=statistics[:, 0].numpy(),
        null=statistics[:, 1:].numpy(),
        kl=kl[0],
        kl_error=kl[1],
        js=js[0],
        js_error=js[1],
        hypothesis=HYPOTHESIS,
        settings=settings,
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class DivergenceResult(Result):
    """What discriminative calibration found, on held-out pairs.

    The statistics are the mean log-score and the mean rank of the truths.

    Args:
        kl, kl_error: A lower bound, in expectation, of the divergence that grows to the mean of
            KL(p || q) over x with the number of draws, in nats, at most log(k + 1); its error.
        js, js_error: The same of the Jensen-Shannon divergence, at most log 2.
    """

    kl: np.ndarray
    kl_error: np.ndarray
    js: np.ndarray
    js_error: np.ndarray
    heading: ClassVar[str] = "statistic"

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the two statistics."""
        return ("log-score", "rank")[: np.size(self.statistic)]

    def _row(self, i: int) -> "DivergenceResult":
        return replace(self, statistic=self.statistic[i : i + 1], null=self.null[i : i + 1])

    @property
    def lower(self) -> float:
        """A lower limit of the divergence behind `kl` that holds with a confidence of 95 %."""
        return float(max(0.0, self.kl - scipy.special.ndtri(0.95) * self.kl_error))

    @property
    def sentence(self) -> str:
        """One sentence to quote."""
        members, held = self.settings["members"], f"On {self.settings['held']} held-out pairs"
        if not self.lower:
            return (
                f"{held}, the truth among {members} members is found no better than by guessing."
            )
        return (
            f"{held}, choosing the truth among {members} members gains {self.kl:.3f} ± "
            f"{self.kl_error:.3f} nats over guessing: with a confidence of 95 %, q is at least "
            f"{self.lower:.3f} nats away from the truth, on average over x (at most "
            f"{math.log(members):.2f} could show)."
        )


def gains(scores: Scores, copies: LabelCopies) -> Tensor:
    """What the first copy of scores gains over guessing (n, r) if a member were the truth."""
    return _log_scores(_probabilities(scores, copies))


def _probabilities(scores: Scores, copies: LabelCopies) -> Tensor:
    """Class-1 probabilities (n, r) of all members, in double precision."""
    parts = zip(copies.members.split(SETS), copies.x.split(SETS), strict=True)
    probabilities = torch.cat([scores(members, x)[:, 0] for members, x in parts]).double().cpu()
    if not probabilities.isfinite().all():
        raise ValueError("classifier: expected finite probabilities; got NaN or infinity.")
    return probabilities.clamp(NARROWEST, 1 - NARROWEST)


def _log_scores(d: Tensor) -> Tensor:
    """The gain (n, r) over guessing if a member were the truth, from probabilities (n, r)."""
    g = d.logit()
    return g - g.logsumexp(1, keepdim=True) + math.log(d.shape[1])


def _ranks(d: Tensor) -> Tensor:
    """The share (n, r) of the other members with smaller probabilities, ties by half."""
    ordered = d.sort(1).values
    below, to = (torch.searchsorted(ordered, d, right=right) for right in (False, True))
    return (below + to - 1).double() / (2 * (d.shape[1] - 1))


def _binary(d: Tensor, truth: Tensor) -> Tensor:
    """The binary log-score (n,) at even odds plus log 2."""
    log_q = torch.log1p(-d)
    others = (log_q.sum(1) - picked(log_q, truth)) / (d.shape[1] - 1)
    return (picked(d.log(), truth) + others) / 2 + math.log(2)


def picked(values: Tensor, truth: Tensor) -> Tensor:
    """The values (n,) of the members that play the truth."""
    return values.gather(1, truth.cpu()[:, None])[:, 0]


def _estimate(values: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The mean of independent values, and its standard error."""
    return values.mean().numpy(), (values.std() / math.sqrt(len(values))).numpy()

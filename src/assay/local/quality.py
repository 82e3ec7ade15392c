r"""What a classifier is worth: its probabilities at sets that it was not trained on.

Calibration sets are held out in turn, with all their members, and both classes weigh the same. The
area under the ROC curve (AUC) is the chance that a true parameter scores above a draw of q; a
classifier that has learned nothing has AUC 1/2 and log-loss log 2, as it should where q is right.
Among samples with probability d, a share d should be true parameters (reliability).
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from .._support.inputs import check_count, cpu
from .._support.random import stream
from ..classifiers.base import Classifier
from ..data.calibration import Calibration
from ..nulls import Exchange
from ..results import Frozen, clopper_pearson

# Bins of a reliability curve, the least probability in a logarithm, and sets scored at a time.
BINS, LEAST, BLOCK = 10, 1e-6, 4096


@dataclass(frozen=True, eq=False)
class Quality(Frozen):
    """Probabilities of class 1 at sets that were held out.

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


def held_out(
    calibration: Calibration, classifier: Classifier, seed: int, folds: int = 5
) -> Quality:
    """Trains a classifier once for each fold, without null copies, and scores that fold."""
    order = cpu.randperm(len(calibration), generator=stream(seed, "folds"))
    parts = order.chunk(check_count("folds", folds, least=2))
    truths, draws = [], []
    for i, part in enumerate(parts):
        rest = torch.cat([*parts[:i], *parts[i + 1 :]])
        training = Exchange(1).copies(calibration.subset(rest.sort().values), seed)[:1]
        scores = classifier.fit(training, seed)
        held = Exchange(1).copies(calibration.subset(part.sort().values), seed)[:1]
        blocks = zip(held.members.split(BLOCK), held.x.split(BLOCK), strict=True)
        probabilities = torch.cat([scores(theta, x)[:, 0] for theta, x in blocks]).cpu()
        labels = held.labels[0].cpu()
        truths.append(probabilities[labels])
        # The first member that is a draw of q.
        draw = (~labels).byte().argmax(1)
        draws.append(probabilities[cpu.arange(len(labels)), draw])
    return Quality(torch.cat(truths).numpy(), torch.cat(draws).numpy())

r"""The region test: a score from one half of the calibration, asked of the other half near x_o.

A classifier is trained on one part of the calibration. In every held-out set near x_o it says how
likely each of the k + 1 members is to be the truth; the statistic is the sum of what it gains over
guessing,

.. math:: T(x_o) = \sum_{n \text{ near } x_o} \log \frac{(k + 1) \, e^{g(\theta_n, x_n)}}
    {\sum_j e^{g(\theta_{n,j}, x_n)}}, \qquad g = \log \frac{d}{1 - d} .

If q is right throughout the neighbourhood, the members of its sets are exchangeable given the
score, so that the p-value is exact for the neighbourhood, and nothing is refitted: a thousand
exchanges are sums. The statistics of many observations share their exchanges and depend on nothing
but their own neighbourhoods, so that the step-down over them controls the family-wise error
whichever of their hypotheses are true. The price is the half of the data that trains the score;
:class:`assay.LocalExchange` pays it in refits instead.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..classifiers.mlp import MLP
from ..copies import Classifier, Scores
from ..door import check_kind
from ..neighbourhoods import Nearest
from ..nulls import Exchange
from ..randomness import Seed, seed_of
from ..results import LocalResult, Strong, combined
from ..samples import Calibration, Draws, Place
from ..version import versions
from .divergence import gains, picked

__all__ = ["Region", "region"]


def region(
    calibration: Calibration,
    classifier: Classifier | None = None,
    where: Nearest | None = None,
    null: Exchange | None = None,
    seed: Seed = 0,
) -> "Region":
    """Trains a score on one half of a calibration; the other half tests it near x_o.

    Args:
        calibration: Pairs of the joint with draws of q, or latents.
        classifier: The classifier; an :class:`assay.MLP` by default.
        where: What is near x_o, at one size or several that are tested together.
        null: How held-out members are exchanged; :class:`assay.Exchange` with 999 by default.
        seed: An int or a generator. The same seed gives the same test.

    Example:
        >>> theta, noise = torch.randn(2, 1000, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> z = torch.randn(1000, 4, 1, generator=torch.Generator().manual_seed(1))
        >>> test = region(Calibration(theta, x, x[:, None] / 2 + 0.3 * z), MLP(epochs=10))
        >>> float(test(Draws([0.0], 0.3 * z[:, 0])).pvalue)  # 0.3 in place of 0.7
        0.001
    """
    check_kind("calibration", calibration, "a Calibration", "theta_q", "features")
    classifier = MLP() if classifier is None else classifier
    check_kind("classifier", classifier, "a classifier such as MLP()", "fit")
    where = Nearest() if where is None else where
    check_kind("where", where, "a neighbourhood such as Nearest()", "inside", "shares")
    null = Exchange(999) if null is None else null
    if not isinstance(null, Exchange):
        raise TypeError(f"null: expected Exchange(n); got {null!r}.")
    seed = seed_of(seed)
    trained, held = calibration.sorted().split(0.5, seed)
    choose = getattr(classifier, "choose", None)
    classifier = classifier if choose is None else choose(trained)
    scores = classifier.fit(Exchange(1).copies(trained, seed)[:1], seed)
    return Region(held.sorted(), classifier, where, null, seed, scores, trained)


@dataclass(frozen=True, eq=False)
class Region:
    """A region test; call it with :class:`assay.Draws`.

    Args:
        calibration: The held-out part of the calibration.
        classifier: The recipe of the score.
        where: What is near x_o.
        null: How held-out members are exchanged.
        seed: The seed of all of it.
        scores: The score, fitted on the other part.
        trained: The other part.
    """

    calibration: Calibration
    classifier: Classifier
    where: Nearest
    null: Exchange
    seed: int
    scores: Scores
    trained: Calibration

    def __call__(self, draws: Draws) -> LocalResult:
        """Tests q at one observation or many.

        Args:
            draws: The observation x_o and draws of q there.
        """
        check_kind("draws", draws, "Draws(x_o, theta_o)", "x", "theta")
        observed = self.calibration.observe(draws, self.seed)
        place = observed.place
        axis = 0 if place.single else slice(None)
        found = self._statistics(place)
        share = self.where.reach(self.calibration.features, place.features)
        pairs = zip(observed.draws, place.features, strict=True)
        probabilities = torch.cat([self.scores(at[None], x[None])[:, 0] for at, x in pairs])
        return LocalResult(
            statistic=found[axis, ..., 0],
            null=found[axis, ..., 1:],
            probabilities=probabilities.cpu().numpy()[axis],
            null_probabilities=None,
            x=place.x.cpu().numpy()[axis],
            draws=observed.draws.cpu().numpy()[axis],
            theta=None if observed.theta is None else observed.theta.cpu().numpy()[axis],
            hypothesis=self.where.hypothesis(share),
            settings=self.settings | {"scope": self.where.scope(share)},
            family=Strong(),
            surroundings=self.calibration.surroundings(place),
        )

    @property
    def whole(self) -> Calibration:
        """Both parts of the calibration together."""
        held, trained = self.calibration, self.trained
        theta, x = torch.cat([held.theta, trained.theta]), torch.cat([held.x, trained.x])
        theta_q = held.theta_q
        if theta_q is not None and trained.theta_q is not None:
            theta_q = torch.cat([theta_q, trained.theta_q])
        return replace(held, theta=theta, x=x, theta_q=theta_q).sorted()

    def again(self, calibration: Calibration) -> "Region":
        """The same recipe on another calibration, of which one half trains a new score.

        Args:
            calibration: The calibration.
        """
        return region(calibration, self.classifier, self.where, self.null, self.seed)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings and versions that made this test, as plain values."""
        return {
            "test": "region",
            **self.calibration.summary,
            "classifier": repr(self.classifier),
            "where": repr(self.where),
            "null": repr(self.null),
            "scope": self.where.scope(max(self.where.shares)),
            "seed": self.seed,
            **versions(),
        }

    def __repr__(self) -> str:
        return f"Region({self.calibration!r}, {self.classifier!r}, {self.where!r}, {self.null!r})"

    def _statistics(self, place: Place) -> np.ndarray:
        """Statistics (o, H + 1), the sizes combined over the same exchanges."""
        near = self.where.inside(self.calibration.features, place.features)
        rows = near.flatten(0, 1).any(0).nonzero().flatten()
        copies = self.null.copies(self.calibration, self.seed)
        values = gains(self.scores, copies.subset(rows))
        weights = near[..., rows].double().cpu()
        sums = [self._summed(values, copies.relabelled(h)[rows], weights) for h in copies.which]
        table = torch.stack(sums, -1).numpy()
        return np.concatenate([combined(each[:, None]) for each in table])

    def _summed(self, values: Tensor, labels: Tensor, weights: Tensor) -> Tensor:
        """Sums (o, c) of the gains (n, r) of those who play the truth, near observations."""
        found: Tensor = weights @ picked(values, labels.byte().argmax(1))
        return found

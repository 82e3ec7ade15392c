r"""The region test: a score from one half of the calibration, asked of the other half near x_o.

A classifier is trained on one part of the calibration. In every held-out set near x_o it says how
likely each of the k + 1 members is to be the truth; the statistic is the sum of what it gains over
guessing,

.. math:: T(x_o) = \sum_{n \text{ near } x_o} \log \frac{(k + 1) \, e^{g(\theta_n, x_n)}}
    {\sum_j e^{g(\theta_{n,j}, x_n)}}, \qquad g = \log \frac{d}{1 - d} .

If q is right throughout the neighbourhood, the members of its sets are exchangeable given the
score, so that the p-value is exact for the neighbourhood, and nothing is refitted: a thousand
exchanges are sums. The statistics of many observations share their exchanges and depend on nothing
but their own neighbourhoods, so that the step-down over them keeps the probability of any false
rejection at the level, whichever of their hypotheses are true. The price is the half of the data
that trains the score; :class:`assay.LocalExchange` pays it in refits instead.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ..._core import Seed, as_null, check_kind, own_terms, seed_of
from ...classifiers.base import Classifier, Scores, as_classifier
from ...classifiers.mlp import MLP
from ...nulls.exchange import Exchange
from ...results import LC2STResult, MaxT, combined, settings_of
from ...samples.calibration import Calibration, Draws, Observation, check_calibration
from ...samples.neighbourhoods import Nearest
from ..average.divergence import gains
from .base import LocalTest


@own_terms()
def region(
    calibration: Calibration,
    classifier: Classifier | None = None,
    where: Nearest | None = None,
    null: int | Exchange | None = None,
    seed: Seed = 0,
) -> "Region":
    """Trains a score on one half of a calibration; the other half tests it near x_o.

    Args:
        calibration: Pairs of the joint with draws of q, or latents.
        classifier: The classifier; an :class:`assay.MLP` by default.
        where: What is near x_o, at one size or several that are tested together.
        null: How held-out members are exchanged, or how often; :class:`assay.Exchange` with 999
            by default.
        seed: An int or a generator. The same seed gives the same test.

    Example:
        >>> theta, noise = torch.randn(2, 1000, 1, generator=torch.Generator().manual_seed(0))
        >>> x = theta + noise
        >>> z = torch.randn(1000, 4, 1, generator=torch.Generator().manual_seed(1))
        >>> test = region(Calibration(theta, x, x[:, None] / 2 + 0.3 * z), MLP(epochs=10))
        >>> float(test(Draws([0.0], 0.3 * z[:, 0])).pvalue)  # 0.3 in place of 0.7
        0.001
    """
    check_calibration(calibration)
    classifier = as_classifier(classifier, MLP())
    where = Nearest() if where is None else where
    check_kind("where", where, "a neighbourhood such as Nearest()", Nearest)
    null = as_null(null, Exchange(999), Exchange)
    seed = seed_of(seed)
    trained, held = calibration.sorted().split(0.5, seed)
    classifier = classifier.choose(trained)
    scores = classifier.fit(Exchange(1).copies(trained, seed)[:1], seed)
    return Region(calibration.sorted(), classifier, where, null, seed, scores, held.sorted())


@dataclass(frozen=True, eq=False)
class Region(LocalTest):
    """A region test; call it with :class:`assay.Draws`.

    The recipe of :func:`region`, the scores that were fitted on one part of the calibration, and
    the other part, `held`.
    """

    calibration: Calibration
    classifier: Classifier
    where: Nearest
    null: Exchange
    seed: int
    scores: Scores
    held: Calibration

    @own_terms()
    def __call__(self, draws: Any) -> LC2STResult:
        """Tests q at one observation or many, with draws of q there."""
        observed = self.held.observe(Draws.of(draws), self.seed)
        observation, shaped = observed.observation, observed.observation.shaped
        statistics = self._statistics(observation)
        share = self.where.share_used(self.held.features, observation.features)
        pairs = zip(observed.draws, observation.features, strict=True)
        probabilities = torch.cat([self.scores(at[None], x[None])[:, 0] for at, x in pairs])
        return LC2STResult(
            statistic=shaped(statistics[:, 0]),
            null=shaped(statistics[:, 1:]),
            probabilities=shaped(probabilities.cpu().numpy()),
            null_probabilities=None,
            x=shaped(observation.x.cpu().numpy()),
            draws=shaped(observed.draws.cpu().numpy()),
            theta=None if observed.theta is None else shaped(observed.theta.cpu().numpy()),
            hypothesis=self.where.hypothesis(share),
            settings=self.settings | {"scope": self.where.scope(share)},
            adjustment=MaxT(),
            support=self.held.support(observation),
        )

    def refit_on(self, calibration: Calibration) -> "Region":
        """The same recipe on another calibration, of which one half trains a new score."""
        return region(calibration, self.classifier, self.where, self.null, self.seed)

    @property
    def settings(self) -> dict[str, Any]:
        """The settings and versions that made this test, as plain values."""
        scope = self.where.scope(max(self.where.shares))
        recipe = {"classifier": self.classifier, "where": self.where, "null": self.null}
        return settings_of("region", self.held, **recipe, scope=scope, seed=self.seed)

    def __repr__(self) -> str:
        return f"Region({self.held!r}, {self.classifier!r}, {self.where!r}, {self.null!r})"

    def _statistics(self, observation: Observation) -> np.ndarray:
        """Statistics (o, H + 1), the sizes combined over the same exchanges."""
        near = self.where.inside(self.held.features, observation.features)
        rows = near.flatten(0, 1).any(0).nonzero().flatten()
        copies = self.null.copies(self.held, self.seed).subset(rows)
        parts = [inside.nonzero().flatten() for inside in near[..., rows].flatten(0, 1)]
        table = copies.turns.sums(gains(self.scores, copies), parts).cpu().numpy()
        return np.concatenate(
            [combined(each[:, None]) for each in table.reshape(*near.shape[:2], -1)]
        )

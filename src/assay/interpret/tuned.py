r"""Tuned: a classifier that is chosen by what it would see, without a look at the labels.

Which classifier sees most depends on the data, and to choose it by its p-value would spoil that
p-value. Errors of known sizes are planted instead (:mod:`assay.interpret.errors`), everywhere in
x, and every candidate is asked at held-out x of the calibration how often it would see them: with
planted and null statistics T and :math:`T_h` on the cube-root scale, on which they are nearly
normal,

.. math:: \pi = \Phi\Big(\frac{T - \overline{T_h}}{\operatorname{sd} T_h} - \Phi^{-1}(0.95)\Big)

on average over x, errors, sizes and repetitions. The candidate with the largest is taken.
"""

import math
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import scipy.stats
from torch import Tensor

from .._core import check_count, check_kind, check_number, cpu, progress, stream, without_progress
from ..classifiers.base import Classifier, Scores
from ..diagnostics.local.lc2st import lc2st
from ..nulls.copies import Copies
from ..nulls.exchange import GlobalNull, global_null
from ..samples.calibration import Calibration, Draws, Latents, check_calibration
from .errors import Error, Planter, Shift, Wide, checked_errors

# Observations at which candidates are asked, as a share of all sets and at most.
HELD, MOST_HELD = 0.2, 50
# Base draws at each of them, in latent space.
DRAWS = 200


@dataclass(frozen=True)
class Tuned(Classifier):
    """The one of several classifiers that would see planted errors best.

    The choice is a function of x, of the members of every set in an order of their own and of
    `seed`; it is the same whoever plays the truth, so that the classifier that is fitted is one
    and the same function of the labels for the data and for all of its nulls, and p-values stay
    exact. In latent space it is a function of x and the base alone.

    Args:
        candidates: The classifiers.
        errors: Errors to plant.
        sizes: Their sizes, in standard deviations of q or as parts of its width.
        repetitions: Planted data sets for each error and size.
        nulls: Null copies that they are compared with.
        seed: The seed of all of this; the seed of the test has no say.
        powers: What each candidate would see; None as long as nothing is chosen.

    Example:
        >>> from assay.classifiers.features import Joint
        >>> theta, noise, z = torch.randn(3, 200, 1, generator=torch.Generator().manual_seed(0))
        >>> calibration = Calibration(theta, theta + noise, (theta + noise) / 2 + 0.7 * z)
        >>> blind = assay.MLP((4,), epochs=1, rate=1e-6)
        >>> test = assay.lc2st(calibration, Tuned((blind, assay.Ridge(Joint(16))), repetitions=1))
        >>> type(test.classifier.chosen).__name__
        'Ridge'
    """

    candidates: tuple[Classifier, ...]
    errors: tuple[Error, ...] = (Shift(), Wide())
    sizes: tuple[float, ...] = (0.15, 0.3, 0.6)
    repetitions: int = 2
    nulls: int = 39
    seed: int = 0
    powers: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        given = (
            self.candidates if isinstance(self.candidates, tuple | list) else (self.candidates,)
        )
        if not given:
            raise ValueError("candidates: expected at least one classifier; got none.")
        for candidate in given:
            check_kind("candidates", candidate, "classifiers such as MLP()", "fit", "choose")
        sizes = self.sizes if isinstance(self.sizes, tuple | list) else (self.sizes,)
        if not sizes:
            raise ValueError("sizes: expected at least one; got none.")
        checked = {
            "candidates": tuple(given),
            "errors": checked_errors(self.errors),
            "sizes": tuple(check_number("sizes", size) for size in sizes),
            "repetitions": check_count("repetitions", self.repetitions),
            "nulls": check_count("nulls", self.nulls, 2),
            "seed": check_count("seed", self.seed, 0, math.inf),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        if self.powers is None:
            return f"Tuned({list(self.candidates)!r})"
        powers = ", ".join(f"{power:.2f}" for power in self.powers)
        return f"Tuned({self.chosen!r}, chosen among {len(self.candidates)} by power [{powers}])"

    @property
    def chosen(self) -> Classifier:
        """The candidate that would see most; the first of several."""
        if self.powers is None:
            raise ValueError("chosen: expected a choice; got none yet. Use choose(calibration).")
        return self.candidates[int(np.argmax(self.powers))]

    @property
    def several_sizes(self) -> bool:  # type: ignore[override]
        """Whether the chosen candidate tests several sizes of a neighbourhood together."""
        return self._likely.several_sizes

    @property
    def _likely(self) -> Classifier:
        """The chosen candidate; the first one as long as nothing is chosen."""
        return self.candidates[0] if self.powers is None else self.chosen

    @property
    def null(self) -> GlobalNull | None:  # type: ignore[override]
        """The null that the chosen candidate is made for."""
        return self._likely.null

    def refit(self, data: Scores, copies: Copies, near: Tensor, seed: int) -> Scores:
        """Fits copies that differ from the data near x_o only, as the chosen candidate does."""
        return self.chosen.refit(data, copies, near, seed)

    def choose(self, calibration: Calibration) -> "Tuned":
        """The same with a choice for a calibration; who is the truth in it makes no difference."""
        check_calibration(calibration)
        if self.powers is not None:
            return self
        planter = Planter.pooled(calibration.sorted(), self.seed)
        held = max(1, min(MOST_HELD, round(HELD * len(planter.calibration))))
        order = cpu.randperm(len(planter.calibration), generator=stream(self.seed, "held"))
        draws, rest = planter.draws(order[:held], DRAWS), planter.subset(order[held:])
        bar = progress(self.candidates, "choosing", unit="classifier")
        return replace(self, powers=tuple(self._power(each, rest, draws) for each in bar))

    def fit(self, copies: Copies, seed: int) -> Scores:
        """Fits the chosen candidate to all copies; chooses first where that was not done."""
        if self.powers is not None:
            return self.chosen.fit(copies, seed)
        members = copies.rows(0).theta.unflatten(0, (len(copies.x), copies.size))
        if copies.base is None:
            calibration = Calibration(members[:, 0], copies.x, members[:, 1:])
        else:
            calibration = Latents(members[:, -1], copies.x, base=copies.base)
        return self.choose(calibration).chosen.fit(copies, seed)

    def _power(self, candidate: Classifier, planter: Planter, draws: Draws) -> float:
        """What a candidate sees on average of all errors."""
        null = replace(global_null(planter.calibration, candidate.null), n=self.nulls)
        powers = []
        for planted in product(self.errors, self.sizes, range(self.repetitions)):
            with without_progress():
                test = lc2st(planter.plant(*planted), candidate, null, seed=self.seed)
                result = test(draws)
            powers.append(_seen(result.statistic, result.null))
        return float(np.mean(powers))


def _seen(statistic: np.ndarray, null: np.ndarray) -> float:
    """Mean over observations of the power of statistics (o,), by their nulls (o, H)."""
    planted, copies = np.cbrt(statistic), np.cbrt(null)
    # A classifier that learns nothing has nulls without any spread, and sees nothing.
    spread = np.maximum(copies.std(-1), 1e-9 * np.abs(copies).max(-1) + 1e-300)
    scores = (planted - copies.mean(-1)) / spread
    return float(scipy.stats.norm.cdf(scores - scipy.stats.norm.ppf(0.95)).mean())

r"""Tuned: a classifier that is chosen by what it would see, without a look at the labels.

Which classifier sees most depends on the data, and to choose it by its p-value would spoil that
p-value. Errors of known sizes are planted instead (:mod:`assay.planted`), everywhere in x, and
every candidate is asked at held-out x of the calibration how often it would see them: with planted
and null statistics T and :math:`T_h` on the cube-root scale, on which they are nearly normal,

.. math:: \pi = \Phi\Big(\frac{T - \overline{T_h}}{\operatorname{sd} T_h} - \Phi^{-1}(0.95)\Big)

on average over x, errors, sizes and repetitions. The candidate with the largest is taken.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.stats
import torch
from torch import Tensor
from tqdm import tqdm

from .copies import Classifier, Copies, Scores
from .diagnostics.lc2st import lc2st
from .door import check_count, check_kind, check_number
from .nulls import Exchange, KnownBase
from .planted import Declared, Error, Shift, Wide, checked_errors, ordered, without_bars
from .randomness import stream
from .samples import Calibration, Draws

__all__ = ["Tuned"]

# Observations at which candidates are asked, as a share of all sets and at most.
HELD, MOST_HELD = 0.2, 50
# Base draws at each of them, in latent space.
DRAWS = 200


@dataclass(frozen=True)
class Tuned:
    """The one of several classifiers that would see planted errors best.

    The choice is a function of x, of the members of every set in an order of their own and of
    `seed`; it is the same whoever plays the truth, so that the classifier that is fitted is one
    and the same function of the labels for the data and for all of its nulls, and p-values stay
    exact. In latent space it is a function of x and the base alone.

    Args:
        candidates: The classifiers.
        errors: Errors to plant.
        sizes: Their sizes, in standard deviations of q or as parts of its width.
        n: Planted data sets for each error and size.
        nulls: Null copies that they are compared with.
        seed: The seed of all of this; the seed of the test has no say.
        powers: What each candidate would see; None as long as nothing is chosen.

    Example:
        >>> from assay.classifiers.maps import Joint
        >>> theta, noise, z = torch.randn(3, 200, 1, generator=torch.Generator().manual_seed(0))
        >>> calibration = Calibration(theta, theta + noise, (theta + noise) / 2 + 0.7 * z)
        >>> blind = assay.MLP((4,), epochs=1, rate=1e-6)
        >>> test = assay.lc2st(calibration, Tuned((blind, assay.Ridge(Joint(16))), n=1))
        >>> type(test.classifier.chosen).__name__
        'Ridge'
    """

    candidates: tuple[Classifier, ...]
    errors: tuple[Error, ...] = (Shift(), Wide())
    sizes: tuple[float, ...] = (0.15, 0.3, 0.6)
    n: int = 2
    nulls: int = 39
    seed: int = 0
    powers: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        given = self.candidates if isinstance(self.candidates, Sequence) else (self.candidates,)
        if not given:
            raise ValueError("candidates: expected at least one classifier; got none.")
        for candidate in given:
            check_kind("candidates", candidate, "classifiers such as MLP()", "fit")
        sizes = self.sizes if isinstance(self.sizes, Sequence) else (self.sizes,)
        if not sizes:
            raise ValueError("sizes: expected at least one; got none.")
        checked = {
            "candidates": tuple(given),
            "errors": checked_errors(self.errors),
            "sizes": tuple(check_number("sizes", size) for size in sizes),
            "n": check_count("n", self.n),
            "nulls": check_count("nulls", self.nulls, 2),
            "seed": check_count("seed", self.seed, 0),
        }
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        if self.powers is None:
            return f"Tuned({list(self.candidates)!r})"
        found = ", ".join(f"{power:.2f}" for power in self.powers)
        return f"Tuned({self.chosen!r}, chosen among {len(self.candidates)} by power [{found}])"

    @property
    def chosen(self) -> Classifier:
        """The candidate that would see most; the first of several."""
        if self.powers is None:
            raise ValueError("chosen: expected a choice; got none yet. Use choose(calibration).")
        return self.candidates[int(np.argmax(self.powers))]

    @property
    def null(self) -> Any:
        """The null that the chosen candidate, or else the first that asks for one, is made for."""
        asked = self.candidates if self.powers is None else (self.chosen,)
        return next((c.null for c in asked if hasattr(c, "null")), None) or _missing("null")

    @property
    def refit(self) -> Any:
        """How the chosen candidate is fitted near an observation, where it knows a quick way."""
        if self.powers is None:
            _missing("refit")
        return self.chosen.refit  # type: ignore[attr-defined]

    def choose(self, calibration: Calibration) -> "Tuned":
        """The same with a choice for a calibration.

        Args:
            calibration: The calibration; who is the truth in it makes no difference.
        """
        check_kind("calibration", calibration, "a Calibration", "theta_q", "features")
        return self._with(Declared.pooled(calibration.sorted(), self.seed))

    def fit(self, copies: Copies, seed: int) -> Scores:
        """Fits the chosen candidate to all copies; chooses first where that was not done."""
        if self.powers is not None:
            return self.chosen.fit(copies, seed)
        members: Tensor | None = None
        if copies.base is None:
            sets = len(copies.x), copies.size
            members = ordered(copies.rows(0).theta.unflatten(0, sets))
        declared = Declared(copies.x, members, copies.base, self.seed)
        return self._with(declared).chosen.fit(copies, seed)

    def _with(self, declared: Declared) -> "Tuned":
        if self.powers is not None:
            return self
        held = max(1, min(MOST_HELD, round(HELD * len(declared.x))))
        order = torch.randperm(len(declared.x), generator=stream(self.seed, "held"))
        there, rest = declared.subset(order[:held]), declared.subset(order[held:])
        draws = Draws(there.x, there.members, n=DRAWS)
        bar = tqdm(self.candidates, "choosing", unit="classifier", disable=None, leave=None)
        found = [self._power(candidate, rest, draws) for candidate in bar]
        return replace(self, powers=tuple(found))

    def _power(self, candidate: Classifier, declared: Declared, draws: Draws) -> float:
        """What a candidate sees on average of all errors."""
        default = Exchange() if declared.base is None else KnownBase()
        null = replace(getattr(candidate, "null", default), n=self.nulls)
        powers = []
        for error in self.errors:
            for size in self.sizes:
                for repetition in range(self.n):
                    planted = declared.plant(error, size, repetition)
                    with without_bars():
                        result = lc2st(planted, candidate, null, seed=self.seed)(draws)
                    powers.append(_seen(result.statistic, result.null))
        return float(np.mean(powers))


def _seen(statistic: np.ndarray, null: np.ndarray) -> float:
    """Mean over observations of the power of statistics (o,), by their nulls (o, H)."""
    planted, copies = np.cbrt(statistic), np.cbrt(null)
    # A classifier that learns nothing has nulls without any spread, and sees nothing.
    spread = np.maximum(copies.std(-1), 1e-9 * np.abs(copies).max(-1) + 1e-300)
    scores = (planted - copies.mean(-1)) / spread
    return float(scipy.stats.norm.cdf(scores - scipy.stats.norm.ppf(0.95)).mean())


def _missing(name: str) -> Any:
    raise AttributeError(f"{name}: none of the candidates has one")

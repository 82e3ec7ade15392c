r"""Nulls: how the data could have looked if q were right.

Under the **global null** q = p at almost every x. :class:`Exchange` and :class:`KnownBase` are
exact for it: with :math:`T_0, \dots, T_H` one and the same function of the data and of H null
copies, :math:`p = (1 + \#\{T_h \ge T_0\}) / (1 + H)` is at most :math:`\alpha` with probability
at most :math:`\alpha`, for every sample size and classifier, over the data and the draws of the
nulls; the latter change with x as well as with the seed. :class:`Exchange` asks that the k draws
at an x are exchangeable with each other, as independent ones are and neighbours in a Markov chain
are not. Evaluated at x_o the nulls say whether the error of q shows *there*; a classifier smooths
errors from elsewhere into x_o, so a rejection is evidence against q as seen through x_o.

:class:`LocalExchange` is exact for the **local null**, q = p throughout a neighbourhood of x_o.

A null is a value with ``train(calibration, classifier, seed)``, which returns the
:class:`~assay.copies.Scores` of data and nulls. One that depends on x_o returns scores that train
when they are asked.
"""

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from .bases import Base
from .copies import BLOCK, Classifier, Copies, Redrawn, Relabelled, Scores
from .door import check_count
from .neighbourhoods import Distance, Nearest
from .randomness import Seed, seed_of, stream
from .results import Family, Separate, Weak
from .samples import Calibration

__all__ = [
    "Exchange",
    "FittedNull",
    "FreePermutation",
    "GlobalNull",
    "KnownBase",
    "LocalExchange",
    "Null",
]

# Sets whose members have a say in the seeds of nulls.
MIXED = 200
# Base draws at each x that are exchanged with a truth in latent space.
BASE_DRAWS = 4

EVERYWHERE = "at almost every x"
GLOBAL = f"q(theta | x) = p(theta | x) {EVERYWHERE}, seen through x_o"


class Null(Protocol):
    """How null copies are made, and which hypothesis they stand for."""

    @property
    def n(self) -> int:
        """The number of null copies H."""

    @property
    def hypothesis(self) -> str:
        """What a small p-value speaks against."""

    @property
    def scope(self) -> str:
        """Where q is right under the hypothesis."""

    @property
    def family(self) -> Family:
        """How p-values at many observations are adjusted for their number."""

    def train(self, calibration: Calibration, classifier: Classifier, seed: int) -> Scores:
        """Fits the data, first, and its null copies."""


class GlobalNull(ABC):
    """A null that stands for q = p at almost every x, and is fitted once for all x_o."""

    n: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_count("n", self.n))

    @property
    def hypothesis(self) -> str:
        """What a small p-value speaks against."""
        return GLOBAL

    @property
    def scope(self) -> str:
        """Where q is right under the hypothesis."""
        return EVERYWHERE

    @property
    def family(self) -> Family:
        """How p-values at many observations are adjusted for their number."""
        return Weak()

    @abstractmethod
    def copies(self, calibration: Calibration, seed: int) -> Copies:
        """The data, and n null copies of it."""

    def train(self, calibration: Calibration, classifier: Classifier, seed: int) -> Scores:
        """Fits the data, first, and its null copies."""
        return classifier.fit(self.copies(calibration, seed), seed)


@dataclass(frozen=True)
class Exchange(GlobalNull):
    """The truth and the k draws of q at the same x are exchangeable if q is right.

    A copy chooses which of the k + 1 plays the truth, uniformly and independently at every x. The
    observations stay with their sets, so both classes keep the same x, as in the data. In latent
    space the draws of q are draws of the base, four at each x.

    Args:
        n: The number of null copies.

    Example:
        >>> Exchange(99)
        Exchange(n=99)
    """

    n: int = 199

    def copies(self, calibration: Calibration, seed: int) -> Relabelled:
        """The data, and n exchanges of it."""
        members, data = _members(calibration, seed)
        r = data.shape[1]
        seed = _mixed(calibration, members, seed)

        def relabel(h: int, j: int) -> Tensor:
            block = data[j * BLOCK : (j + 1) * BLOCK]
            if h == 0:
                return block
            generator = stream(seed, "null", h, j)
            return torch.randint(r, (len(block), 1), generator=generator) == torch.arange(r)

        return Relabelled(
            members, calibration.features, relabel, range(self.n + 1), calibration.base
        )


@dataclass(frozen=True)
class FreePermutation(GlobalNull):
    """The labels of all rows are permuted freely, as in Algorithm 1 of the paper.

    This breaks the pairing: in a copy the classes no longer share the same x, so null classifiers
    can learn chance imbalances of x that the data cannot have. It was conservative wherever it was
    measured, the more so the more dimensions x has. Kept for reproduction.

    Args:
        n: The number of null copies.
    """

    n: int = 199

    def copies(self, calibration: Calibration, seed: int) -> Relabelled:
        """The data, and n permutations of its labels."""
        members, data = _members(calibration, seed)
        seed = _mixed(calibration, members, seed)

        def relabel(h: int, j: int) -> Tensor:
            some = slice(j * BLOCK, (j + 1) * BLOCK)
            if h == 0:
                return data[some]
            order = torch.randperm(data.numel(), generator=stream(seed, "null", h))
            return data.flatten()[order].reshape(data.shape)[some]

        return Relabelled(
            members, calibration.features, relabel, range(self.n + 1), calibration.base
        )


@dataclass(frozen=True)
class KnownBase(GlobalNull):
    """In latent space the truths are draws of the base if q is right.

    A copy replaces the latents of the truths by base draws; class 0 is the base itself, with fresh
    draws in every epoch. These are Algorithms 3 and 4 of the paper with two repairs: data and
    nulls are treated by the same function, and no null is evaluated on its own training draws.

    The null copies know x but neither q nor the data, so they can be fitted once, saved, and
    reused for every flow of the same task: see :meth:`fit`.

    Args:
        n: The number of null copies.
    """

    n: int = 199

    def copies(self, calibration: Calibration, seed: int) -> Redrawn:
        """The data, and n copies whose truths are base draws."""
        if calibration.base is None:
            raise ValueError(
                "null: expected a calibration in latent space for KnownBase; got parameters. "
                "Use calibration.to_latent(flow), or the null Exchange(n)."
            )
        base, z, x = calibration.base, calibration.theta, calibration.features
        return Redrawn(z, x, base, calibration.mix(seed), range(self.n + 1))

    def fit(
        self, calibration: Calibration, classifier: Classifier, seed: Seed = 0
    ) -> "FittedNull":
        """Fits the null copies alone, for every flow of a task with these observations.

        Args:
            calibration: Any latent calibration of the task; only its x and base are used.
            classifier: The classifier of the tests to come.
            seed: The seed of the tests to come.
        """
        seed, calibration = seed_of(seed), calibration.sorted()
        copies = self.copies(calibration, seed)
        scores = classifier.fit(copies[1:], seed)
        return FittedNull(self, classifier, seed, calibration.features, copies.base, scores)


@dataclass(frozen=True, eq=False)
class FittedNull:
    """Null copies that are fitted already; a test that takes it fits the data alone.

    The result is that of a test that fits everything together, bit for bit.

    Args:
        null: How the copies were made.
        classifier: The classifier they were fitted with.
        seed: The seed they were fitted with.
        x: Features of the observations, with shape (n, d).
        base: The base distribution.
        scores: The fitted copies.
    """

    null: KnownBase
    classifier: Classifier
    seed: int
    x: Tensor
    base: Base
    scores: Scores

    @property
    def n(self) -> int:
        """The number of null copies."""
        return self.null.n

    @property
    def hypothesis(self) -> str:
        """What a small p-value speaks against."""
        return self.null.hypothesis

    @property
    def scope(self) -> str:
        """Where q is right under the hypothesis."""
        return self.null.scope

    @property
    def family(self) -> Family:
        """How p-values at many observations are adjusted for their number."""
        return self.null.family

    def __repr__(self) -> str:
        return f"FittedNull({self.null!r}, {self.classifier!r}, seed={self.seed})"

    def train(self, calibration: Calibration, classifier: Classifier, seed: int) -> Scores:
        """Fits the data and puts the fitted nulls behind it."""
        given = {
            "classifier": (classifier, self.classifier),
            "seed": (seed, self.seed),
            "base": (calibration.base, self.base),
        }
        for name, (got, expected) in given.items():
            if got != expected and (name != "classifier" or repr(got) != repr(expected)):
                raise ValueError(
                    f"{name}: expected {expected!r}, with which the null was fitted; got {got!r}."
                )
        x = self.x.to(calibration.features)
        if x.shape != calibration.features.shape or not torch.equal(x, calibration.features):
            raise ValueError(
                "calibration: expected the observations x with which the null was fitted, row by "
                "row; got others. A null can be reused for other flows, not for other x."
            )
        return Joined(classifier.fit(self.null.copies(calibration, seed)[:1], seed), self.scores)


@dataclass(frozen=True)
class LocalExchange:
    """Exchanges the sets near x_o only; all others keep the truth they have.

    If q is right throughout the neighbourhood, the sets in it are exchangeable given the rest of
    the data, so that the p-value is exact for the neighbourhood however wrong q is elsewhere:
    what a classifier smooths into x_o from outside is in the data and in the nulls alike. The
    classifier is fitted to all sets, with null copies of its own for every observation; only the
    data's fit is shared. In latent space the truths near x_o are replaced by base draws.

    Several sizes are tested together by a classifier in closed form, such as :class:`assay.Ridge`:
    what the sets of each size add to the statistic is combined over the same exchanges, those of
    the largest, to which the hypothesis then belongs.

    Args:
        n: The number of null copies.
        share: The share of calibration points that are near x_o, or several of them.
        distance: What near means.

    Example:
        >>> LocalExchange(99).hypothesis
        'q(theta | x) = p(theta | x) throughout the nearest 5% of x around x_o'
    """

    n: int = 199
    share: float | tuple[float, ...] = 0.05
    distance: Distance = Distance()

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_count("n", self.n))
        try:
            shares = self.where.shares
        except ValueError as error:
            raise ValueError(f"share: {str(error).partition(': ')[2]}") from error
        object.__setattr__(self, "share", shares[0] if len(shares) == 1 else shares)

    @property
    def where(self) -> Nearest:
        """The neighbourhood, at one size or several."""
        return Nearest(self.share, self.distance)  # type: ignore[arg-type]

    @property
    def hypothesis(self) -> str:
        """What a small p-value speaks against."""
        return self.where.hypothesis(max(self.where.shares))

    @property
    def scope(self) -> str:
        """Where q is right under the hypothesis."""
        return self.where.scope(max(self.where.shares))

    @property
    def family(self) -> Family:
        """How p-values at many observations are adjusted for their number."""
        return Separate()

    def like(self, calibration: Calibration, default: Any = None) -> "Exchange | KnownBase":
        """The global null whose copies it uses near x_o."""
        if default is None:
            default = Exchange() if calibration.base is None else KnownBase()
        found: Exchange | KnownBase = replace(default, n=self.n)
        return found

    def train(self, calibration: Calibration, classifier: Classifier, seed: int) -> "LocalScores":
        """Fits the data; null copies are fitted where they are asked for."""
        if len(self.where.shares) > 1 and not hasattr(classifier, "refit"):
            raise ValueError(
                "share: expected a single one, since several sizes need a classifier in closed "
                f"form such as Ridge(); got {self.share} with {classifier!r}."
            )
        copies = self._copies(calibration, classifier, seed)
        return LocalScores(self, calibration, classifier, seed, classifier.fit(copies[:1], seed))

    def fit(self, trained: "LocalScores", x: Tensor) -> Scores:
        """Fits the null copies at one observation, with features (d,)."""
        near = self.where.inside(trained.calibration.features, x[None])[0]
        copies = self._copies(trained.calibration, trained.classifier, trained.seed)
        copies = copies.inside(near[-1])
        refit = getattr(trained.classifier, "refit", None)
        if refit is None:
            return Joined(trained.data, trained.classifier.fit(copies[1:], trained.seed))
        scores: Scores = refit(trained.data, copies, near)
        return scores

    def _copies(self, calibration: Calibration, classifier: Classifier, seed: int) -> Copies:
        """The data, and n copies of it that differ everywhere."""
        null = self.like(calibration, getattr(classifier, "null", None))
        return null.copies(calibration, seed)


@dataclass(frozen=True, eq=False)
class LocalScores:
    """The data's fit; null copies are fitted when an observation is known.

    Args:
        null: How copies are made.
        calibration: What they are made of.
        classifier: The classifier.
        seed: The seed of copies and fits.
        data: The data's fit.
    """

    null: LocalExchange
    calibration: Calibration
    classifier: Classifier
    seed: int
    data: Scores

    def at(self, x: Tensor) -> Scores:
        """The fitted copies, the data first, at one observation with features (d,)."""
        return self.null.fit(self, x)

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities (o, H + 1, s) at theta (o, s, m) and x (o, d)."""
        each = zip(theta, x, strict=True)
        return torch.cat([self.at(there)(draws[None], there[None]) for draws, there in each])


@dataclass(frozen=True, eq=False)
class Joined:
    """Scores of two groups of copies, one behind the other."""

    first: Scores
    second: Scores

    def __call__(self, theta: Tensor, x: Tensor) -> Tensor:
        """Class-1 probabilities (o, H + 1, s) at theta (o, s, m) and x (o, d)."""
        return torch.cat([self.first(theta, x), self.second(theta, x)], 1)


def _members(calibration: Calibration, seed: int) -> tuple[Tensor, Tensor]:
    """The truth and the draws of q at the same x (n, k + 1, m), and who is the truth (n, k + 1).

    The truth stands at a random place of its set, as it does in a null copy: otherwise a
    classifier that minds the order of rows would treat the data and its nulls differently.
    """
    theta, theta_q = calibration.theta, calibration.theta_q
    if calibration.base is not None:
        generator = stream(calibration.mix(seed), "base")
        draws = calibration.base.sample(BASE_DRAWS * len(theta), generator)
        theta_q = draws.to(theta).unflatten(0, (len(theta), BASE_DRAWS))
    assert theta_q is not None
    members = torch.cat([theta[:, None], theta_q], 1)
    n, r, m = members.shape
    places = torch.rand(n, r, generator=stream(calibration.mix(seed), "places")).argsort(1)
    index = places.to(members.device)[..., None].expand(-1, -1, m)
    return members.gather(1, index), places == 0


def _mixed(calibration: Calibration, members: Tensor, seed: int) -> int:
    """A seed that depends on x and on the members of the first sets, whoever plays the truth.

    Ranks do not depend on units; members are sorted, so that their places do not matter.
    """
    some = members[:MIXED].sort(1).values.flatten(0, 1).cpu().numpy()
    ranks = some.argsort(0, kind="stable")
    digest = hashlib.blake2b(ranks.tobytes(), digest_size=8).digest()
    return (calibration.mix(seed) ^ int.from_bytes(digest, "big")) % 2**62

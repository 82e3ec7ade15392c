r"""Where a test looks: weights of the calibration points around an observation.

A weight function depends on x alone, never on parameters, so it cannot spoil exactness. Weights of
one size have unit Euclidean norm: a weighted sum of independent features with mean zero and unit
variance has mean zero and unit variance again.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from .door import as_tensors, check_count, check_finite, check_number
from .randomness import stream
from .results import Family, Strong, Weak
from .scaling import Robust

__all__ = ["Distance", "Nearest", "Regressed", "Smooth", "Where"]

FEWEST = 10


@dataclass(frozen=True)
class Distance:
    """Distances between observations whose features are brought to a common scale.

    Args:
        function: Turns features (n, d) into what distances are taken in (n, e), for instance the
            means and scales of q at these x, or a summary network; features themselves if None.

    Example:
        >>> x = torch.tensor([[0.0], [1.0], [2.0], [9.0]])
        >>> Distance()(x, x[:1]).argsort(1)
        tensor([[0, 1, 2, 3]])
    """

    function: Callable[[Tensor], Any] | None = None

    def __post_init__(self) -> None:
        if self.function is not None and not callable(self.function):
            raise TypeError(f"function: expected a function of features; got {self.function!r}.")

    def __call__(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Distances (o, n) between features x (n, d) and observations (o, d)."""
        x, x_o = self._represented(x), self._represented(x_o)
        robust = Robust.fit(x)
        # Products of matrices would lose the distances of near points, and let ties fall apart.
        mode = "donot_use_mm_for_euclid_dist"
        return torch.cdist(robust(x_o), robust(x), compute_mode=mode)

    def _represented(self, x: Tensor) -> Tensor:
        if self.function is None:
            return x
        with torch.no_grad():
            found = as_tensors({"function": self.function(x)})["function"].to(x)
        if found.ndim != 2 or len(found) != len(x):
            raise ValueError(
                f"function: expected one that maps features ({len(x)}, d) to ({len(x)}, e); got "
                f"{tuple(found.shape)}."
            )
        check_finite("function", found)
        return found


class Where(Protocol):
    """How calibration points are weighted around an observation, at c sizes."""

    @property
    def shares(self) -> tuple[float, ...]:
        """The sizes, as shares of the calibration points."""

    def hypothesis(self, share: float) -> str:
        """What a small p-value speaks against, where points up to this share have weight."""

    @property
    def family(self) -> Family:
        """How p-values at many observations are adjusted for their number."""

    def weights(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Weights (o, c, n) of features x (n, d) around observations (o, d), of unit norm."""


@dataclass(frozen=True)
class Nearest:
    """The calibration points nearest to x_o, all with the same weight; the rest with none.

    Points at the same distance are all in or all out, so where x has ties there may be more.

    Args:
        shares: Shares of the calibration points, tested together.
        distance: What near means.

    Example:
        >>> x = torch.arange(100.0)[:, None]
        >>> Nearest((0.2,)).weights(x, x[:1]).nonzero()[:, 2].max()
        tensor(19)
    """

    shares: tuple[float, ...] = (0.05, 0.1, 0.2)
    distance: Distance = Distance()

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", _checked(self.shares))
        if not callable(self.distance):
            raise TypeError(f"distance: expected one such as Distance(); got {self.distance!r}.")

    def hypothesis(self, share: float) -> str:
        """What a small p-value speaks against, where points up to this share have weight."""
        return f"q(theta | x) = p(theta | x) {self.scope(share)} around x_o"

    def scope(self, share: float) -> str:
        """Where q is right under the hypothesis."""
        return f"throughout the nearest {share:.0%} of x"

    @property
    def family(self) -> Family:
        """How p-values at many observations are adjusted: they share their nulls."""
        return Strong()

    def weights(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Weights (o, c, n) of features x (n, d) around observations (o, d), of unit norm."""
        return torch.nn.functional.normalize(self.inside(x, x_o).to(x), dim=2)

    def reach(self, x: Tensor, x_o: Tensor) -> float:
        """The share of features x (n, d) that is near any of the observations (o, d), at most.

        It is larger than the share asked for where ten points are more, or where x has ties.
        """
        return float(self.inside(x, x_o)[:, -1].double().mean(1).max())

    def inside(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Whether features x (n, d) are near observations (o, d), with shape (o, c, n)."""
        distances = self.distance(x, x_o)
        ordered = distances.sort(1).values
        limits = torch.stack([ordered[:, k - 1] for k in _sizes(self.shares, len(x))], 1)
        return distances[:, None] <= limits[..., None]


@dataclass(frozen=True)
class Smooth:
    """All calibration points, weighted by a Gaussian kernel around x_o.

    Args:
        shares: The length scales, each as the share of points within one of them.
    """

    shares: tuple[float, ...] = (0.05, 0.1, 0.2)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shares", _checked(self.shares))

    def hypothesis(self, share: float) -> str:
        """What a small p-value speaks against, whatever the share: all points have weight."""
        return "q(theta | x) = p(theta | x) at almost every x, seen through x_o"

    @property
    def family(self) -> Family:
        """How p-values at many observations are adjusted: they share their nulls."""
        return Weak()

    def weights(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Weights (o, c, n) of features x (n, d) around observations (o, d), of unit norm."""
        distances = Distance()(x, x_o)
        ordered = distances.sort(1).values
        lengths = torch.stack([ordered[:, k - 1] for k in _sizes(self.shares, len(x))], 1)
        # Where many points coincide with x_o the length scale is zero: they alone count then.
        lengths = lengths.clamp_min(torch.finfo(x.dtype).tiny ** 0.5)
        weights = (-0.5 * (distances[:, None] / lengths[..., None]) ** 2).exp()
        return torch.nn.functional.normalize(weights, dim=2)


@dataclass(frozen=True)
class Regressed:
    r"""All calibration points, with the weights that ridge regression on features of x gives them.

    With centred features :math:`\phi` of all n points in the rows of :math:`\Phi`, the prediction
    at x_o of whatever is regressed on x is its sum with weights

    .. math:: w = \frac1n + \Phi (\Phi^\top \Phi + n \lambda I)^{-1} \phi(x_o),

    which add up to one, since the intercept is not penalised; some may be negative. Features are
    random Fourier features of x on a common scale, and its columns themselves.

    Args:
        penalties: The penalties :math:`\lambda`, tested together.
        n: The number of random features.
        reach: The typical length of their frequencies.

    Example:
        >>> x = torch.randn(100, 2, generator=torch.Generator().manual_seed(0))
        >>> Regressed((0.1,)).weights(x, x[:1]).norm(dim=2).round(decimals=3)
        tensor([[1.]])
    """

    penalties: tuple[float, ...] = (0.003, 0.03, 0.3)
    n: int = 128
    reach: float = 1.0

    def __post_init__(self) -> None:
        given = np.atleast_1d(np.asarray(self.penalties, dtype=object)).tolist()
        penalties = tuple(sorted(check_number("penalties", penalty) for penalty in given))
        if not penalties:
            raise ValueError("penalties: expected at least one number above 0; got none.")
        object.__setattr__(self, "penalties", penalties)
        check_count("n", self.n)
        check_number("reach", self.reach)

    def hypothesis(self, share: float) -> str:
        """What a small p-value speaks against, whatever the share: all points have weight."""
        return "q(theta | x) = p(theta | x) at almost every x, seen through x_o"

    @property
    def family(self) -> Family:
        """How p-values at many observations are adjusted: they share their nulls."""
        return Weak()

    def weights(self, x: Tensor, x_o: Tensor) -> Tensor:
        """Weights (o, c, n) of features x (n, d) around observations (o, d), of unit norm."""
        robust = Robust.fit(x)
        table, there = (self._features(robust(part).double()) for part in (x, x_o))
        mean = table.mean(0)
        table, there = table - mean, there - mean
        values, vectors = torch.linalg.eigh(table.mT @ table / len(x))
        penalties = torch.tensor(self.penalties).to(values)
        shrunk = 1 / (values.clamp_min(0) + penalties[:, None])
        slopes = ((there @ vectors)[:, None] * shrunk) @ vectors.mT
        weights = 1 + slopes @ table.mT
        return torch.nn.functional.normalize(weights, dim=2).to(x)

    def _features(self, x: Tensor) -> Tensor:
        """Features (n, p) of x (n, d) on a common scale."""
        d = x.shape[1]
        generator = stream(0, "regressed", self.n, d)
        frequencies = torch.randn(d, self.n, generator=generator) * self.reach / d**0.5
        phases = 2 * torch.pi * torch.rand(self.n, generator=generator)
        waves = torch.cos(x @ frequencies.to(x) + phases.to(x)) * (2 / self.n) ** 0.5
        return torch.cat([waves, x / d**0.5], 1)


def _checked(shares: tuple[float, ...] | float) -> tuple[float, ...]:
    given = np.atleast_1d(np.asarray(shares, dtype=object)).tolist()
    numbers = [check_number("shares", share) for share in given]
    if not numbers or max(numbers) > 1:
        raise ValueError(f"shares: expected numbers above 0 and up to 1; got {given}.")
    return tuple(sorted(numbers))


def _sizes(shares: tuple[float, ...], n: int) -> list[int]:
    return [min(n, max(FEWEST, round(share * n))) for share in shares]

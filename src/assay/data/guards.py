r"""Are the draws of q independent: from one x to another, and within a set?

**From x to x.** A sampler with one random key for all x gives every set the same noise,
:math:`\theta_q = T(\epsilon; x)`. Nothing then averages out over x, and any q is rejected. It
shows in two ways, and neither sign has a law that depends on q:

- *Places.* The j-th draw is high at every x alike, by its mean rank over sets (Friedman 1937).
  Draws that were sorted have such an order too, a smooth one: only a rough one counts, by von
  Neumann's ratio (1941).
- *Spacings.* Two sets of the same noise have the same spacings but for a factor, in whatever
  order they come. Those of independent draws are nearly exponential for any density (Rényi 1953),
  so that their logarithms differ by much more. Pairs of x next to each other in the order given,
  or near in x, are compared.

Sets of fewer than four draws cannot show it: a single draw is a function of x both for one key at
every x and for a q without width. Nor can noise that is turned about by x in every parameter.

**Within a set.** Neighbours in a Markov chain resemble each other more than the truth, so that
truths look too wide. Chains of 16 draws that are exact at each step, with a correlation of 0.2,
0.5 and 0.8 from one draw to the next, raise the level of :func:`assay.moments` from 0.05 to 0.09,
0.66 and 1 with 1000 pairs; of 64 draws to 0.05, 0.14 and 0.96.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.special
import torch
from torch import Tensor

from .._support.inputs import cpu
from .._support.random import stream

# Draws at each x, and sets, from which on anything can be said.
FEWEST_DRAWS, FEWEST_SETS = 4, 20
# Numbers that are looked at, and sets that are paired.
ROOM, PAIRED = 2**18, 400
# The chance that right draws are refused, for each parameter and sign.
REFUSAL = 1e-7
# The least ratio of von Neumann of a rough order: independent numbers have 2, sorted ones 0, or
# 0.6 where there are four.
ROUGH = 0.7
# The variance of logarithms of spacings below which two sets are alike, and a bound on its chance
# for independent draws: it was at most 0.1 for every density and lattice that was tried.
ALIKE, CHANCE = 0.1, 0.25
# Lags at which draws are compared, standard errors of what is told, and the least that is told.
LAGS, ERRORS, LEAST = 8, 7.0, 0.05


# Distances (a, b) of features of x (b, d) to others (a, d).
Distances = Callable[[Tensor, Tensor], Tensor]


def check_noise(theta_q: Tensor, x: Tensor, distance: Distances = torch.cdist) -> None:
    """Refuses draws (n, k, m) at features of x (n, d) that share their noise."""
    if theta_q.shape[1] < FEWEST_DRAWS:
        return
    sets = _some(theta_q)
    _check_places(sets)
    half = min(PAIRED, len(sets)) // 2
    apart = distance(x[:half], x[half : 2 * half]).cpu()
    _check_spacings(sets[: 2 * half], apart)


def _some(theta_q: Tensor) -> Tensor:
    """The first sets, as many as are needed, with shape (c, m, k) in double precision."""
    most = max(100, ROOM // theta_q[0].numel())
    return theta_q[:most].cpu().double().mT


def _refused(seen: str) -> ValueError:
    return ValueError(
        f"theta_q: expected draws of q with noise of their own at every x; got {seen}. With the "
        "same noise at every x any q is rejected. Mend the sampler: a fresh random key for every "
        "x, or one call for all x. If draws were put into an order, shuffle them at each x."
    )


def _check_places(sets: Tensor) -> None:
    """Refuses sets (c, m, k) whose places have the same rough order at every x."""
    c, _, k = sets.shape
    means = _ranks(sets).mean(0) - (k - 1) / 2
    square = means.square().sum(1)
    p = scipy.special.chdtrc(k - 1, 12 * c / (k * (k + 1)) * square.numpy())
    rough = means.diff().square().sum(1) > ROUGH * square
    p = np.where(rough.numpy(), p, 1.0)
    if p.min() < REFUSAL / len(p):
        raise _refused(
            f"draws whose order in theta[{p.argmin()}] is alike at every x (Friedman p = "
            f"{p.min():.1g})"
        )


def _ranks(sets: Tensor) -> Tensor:
    """Ranks of draws in their sets (c, m, k), ties broken by chance."""
    order = cpu.rand(sets.shape, generator=stream(0, "places")).argsort()
    ranks = sets.gather(2, order).argsort(stable=True).argsort()
    return torch.empty_like(ranks).scatter_(2, order, ranks).double()


def _check_spacings(sets: Tensor, apart: Tensor) -> None:
    """Refuses sets (2 h, m, k) that are alike but for their scale.

    Distances (h, h) in x are those of the second half to the first.
    """
    spacings, half = sets.sort().values.diff(), len(apart)
    adjacent = cpu.arange(half) * 2
    for first, second in ((adjacent, adjacent + 1), _nearest(apart)):
        counts = _alike(spacings[first], spacings[second]).sum(0)
        most = int(counts.max())
        p = scipy.special.bdtrc(most - 1, half, CHANCE) if most else 1.0
        if p < REFUSAL / sets.shape[1]:
            raise _refused(
                f"the same draws of theta[{int(counts.argmax())}], up to location and scale, in "
                f"{most} of {half} pairs of x"
            )


def _nearest(apart: Tensor) -> tuple[Tensor, Tensor]:
    """Disjoint pairs of rows (h,) that are near each other, by distances (h, h)."""
    left, partners = apart.clone(), []
    for row in left:
        partners.append(int(row.argmin()))
        left[:, partners[-1]] = math.inf
    return cpu.tensor(partners, dtype=torch.int64), len(apart) + cpu.arange(len(apart))


def _alike(first: Tensor, second: Tensor) -> Tensor:
    """Whether spacings (h, m, k - 1) are the same but for a factor, with shape (h, m)."""
    # Where both are ties there is nothing to compare; a tie in one of them is a difference.
    told = (first > 0) | (second > 0)
    tiny = torch.finfo(first.dtype).tiny
    apart = first.clamp_min(tiny).log() - second.clamp_min(tiny).log()
    count = told.sum(2)
    mean = (apart * told).sum(2) / count.clamp_min(1)
    variance = ((apart - mean[..., None]).square() * told).sum(2) / (count - 1).clamp_min(1)
    return (variance < ALIKE) & (count >= max(2, first.shape[2] // 2))


@dataclass(frozen=True)
class Autocorrelation:
    """How much draws resemble those a lag before them, and how many of k are effective."""

    parameter: int
    lag: int
    correlation: float
    effective: float
    k: int

    @property
    def thin(self) -> int:
        """Of how many draws one is kept, so that a correlation of 0.05 is left."""
        return self.lag * max(2, math.ceil(math.log(0.05) / math.log(self.correlation)))

    @property
    def words(self) -> str:
        """What was seen, and what to do."""
        return (
            f"Draws of q at the same x are correlated, as those of a Markov chain: by "
            f"{self.correlation:.2f} at lag {self.lag} in theta[{self.parameter}]. Of {self.k} "
            f"draws about {self.effective:.1f} are effective, and tests reject a right q too "
            f"often. Keep every {self.thin}th draw of longer chains; shuffle draws that were put "
            "into an order."
        )


def autocorrelation(theta_q: Tensor) -> Autocorrelation | None:
    """The largest correlation of draws (n, k, m) with those before them; None if there is none.

    Exchangeable draws have a correlation of -1 / (k - 1) at every lag, whatever q is. Draws that
    were sorted say nothing.

    Example:
        >>> noise = torch.randn(500, 17, 1, generator=torch.Generator().manual_seed(0))
        >>> autocorrelation(noise[:, 1:] + noise[:, :-1]).lag
        1
    """
    k = theta_q.shape[1]
    if k < FEWEST_DRAWS or len(theta_q) < FEWEST_SETS:
        return None
    sets = _some(theta_q)
    each = [_correlated(sets, lag) for lag in range(1, 1 + min(LAGS, k // 2))]
    told, size = (torch.stack(parts) for parts in zip(*each, strict=True))
    told = torch.where(told > ERRORS, size, 0.0)
    lag, parameter = divmod(int(told.argmax()), told.shape[1])
    if told.max() < LEAST or _sorted(sets):
        return None
    rho, effective = _solved(float(told.max()), lag + 1, k)
    return Autocorrelation(parameter, lag + 1, rho, effective, k)


def _correlated(sets: Tensor, lag: int) -> tuple[Tensor, Tensor]:
    """Correlations of draws with those a lag before, less what exchangeable ones have.

    Their mean over sets (c, m, k) in standard errors, and that of all sets together, (m,) each.
    """
    c, _, k = sets.shape
    centred = sets - sets.mean(2, keepdim=True)
    products = (centred[..., lag:] * centred[..., :-lag]).mean(2)
    variance = centred.square().mean(2)
    excess = torch.where(variance > 0, products / variance + 1 / (k - 1), 0.0)
    told = math.sqrt(c) * excess.mean(0) / excess.std(0)
    return told, products.sum(0) / variance.sum(0) + 1 / (k - 1)


def _sorted(sets: Tensor) -> bool:
    """Whether most sets (c, m, k) rise or fall from draw to draw in some parameter."""
    steps = sets.diff()
    monotone = (steps >= 0).all(2) | (steps <= 0).all(2)
    return bool((monotone & (steps != 0).any(2)).double().mean(0).max() > 0.5)


def _solved(excess: float, lag: int, k: int) -> tuple[float, float]:
    """Correlation and effective number of k draws of a first-order chain at steps of a lag.

    With a variance v of the mean of a set, centred draws have the correlation (rho - v) / (1 - v).
    """
    rho = np.linspace(0, 0.99, 400)
    steps = np.arange(1, -(-k // lag))
    v = (1 + 2 * rho[:, None] ** steps @ (1 - lag * steps / k)) / k
    seen = (rho - v) / (1 - v) + 1 / (k - 1)
    found = float(np.interp(excess, np.maximum.accumulate(seen), rho))
    return found, float(1 / np.interp(found, rho, v))

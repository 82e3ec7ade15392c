r"""Input that would break a promise is refused: its shapes, and draws that are not independent.

**From x to x.** A sampler with one random key for all x gives every set the same noise,
:math:`\theta_q = T(\epsilon; x)`. Nothing then averages out over x, and any q is rejected. Two
signs of it have a null that does not depend on q:

- *Places.* The j-th draw is high at every x alike, by its mean rank over sets (Friedman 1937).
  Sorted draws have such an order too, a smooth one: only a rough one counts, by von Neumann's
  ratio (1941).
- *Spacings.* Two sets of the same noise have the same spacings up to a factor. Those of
  independent draws are nearly exponential for any density (Rényi 1953), so that their logarithms
  differ by much more. Sets at x next to each other, in the order given or near in x, are compared.

Sets of fewer than four draws cannot reveal it, nor can noise that x rotates in every parameter.

**Within a set.** Neighbours in a Markov chain resemble each other more than the true parameter, so
that true parameters look too wide, and tests reject a right q too often.
"""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.special
import torch
from torch import Tensor

from .._support.inputs import as_tensors, check_finite, check_kind, cpu
from .._support.random import stream

# The fewest pairs of a calibration.
FEWEST_ROWS = 10
# Draws at each x, and sets, from which on dependence can be found.
FEWEST_DRAWS, FEWEST_SETS = 4, 20
# Numbers that are checked, and sets that are paired.
ROOM, PAIRED = 2**18, 400
# The chance that right draws are refused, for each parameter and sign.
REFUSAL = 1e-7
# The least ratio of von Neumann of a rough order: independent numbers have 2, sorted ones 0, or
# 0.6 where there are four.
ROUGH = 0.7
# The variance of logarithms of spacings below which two sets are alike, and a bound on its chance
# for independent draws: it was at most 0.1 for every density and lattice that was tried.
ALIKE, CHANCE = 0.1, 0.25
# Lags at which draws are compared, and the least correlation that counts, also in standard errors.
LAGS, ERRORS, LEAST = 8, 7.0, 0.05

# Distances (a, b) of features of x (b, d) to others (a, d).
Distances = Callable[[Tensor, Tensor], Tensor]


def check_shapes(arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    """Refuses arrays that make no calibration; draws are returned with shape (n, k, m)."""
    theta, x, theta_q = arrays["theta"], arrays["x"], arrays.get("theta_q")
    if theta.ndim != 2:
        raise ValueError(
            f"theta: expected shape (n, m); got {tuple(theta.shape)}. "
            "For a single parameter use theta.reshape(-1, 1)."
        )
    n, m = theta.shape
    if n < FEWEST_ROWS:
        raise ValueError(
            f"theta: expected at least {FEWEST_ROWS} rows; got {n}. "
            "A local test begins to find errors near a thousand."
        )
    if x.ndim < 2 or len(x) != n:
        hint = " For a single number at each use x.reshape(-1, 1)." if x.shape == (n,) else ""
        raise ValueError(
            f"x: expected shape ({n}, ...), one row for each of the {n} parameter vectors; got "
            f"{tuple(x.shape)}.{hint}"
        )
    if theta_q is None:
        return arrays
    theta_q = theta_q[:, None] if theta_q.ndim == 2 else theta_q
    if theta_q.ndim != 3 or len(theta_q) != n or theta_q.shape[2] != m:
        got = tuple(arrays["theta_q"].shape)
        first = len(got) == 3 and n in got[1:]
        hint = " Samples-first draws need theta_q.swapaxes(0, 1)." if first else ""
        raise ValueError(f"theta_q: expected shape ({n}, {m}) or ({n}, k, {m}); got {got}.{hint}")
    return arrays | {"theta_q": theta_q}


def check_weights(theta: Tensor, weights: Any, plain_draws: Any) -> dict[str, Tensor]:
    """What comes with parameters (n, m) of a proposal, as tensors, or refuses."""
    (n, m), kept = theta.shape, {}
    for name, given in {"weights": weights, "plain_draws": plain_draws}.items():
        if given is None:
            continue
        tensor = as_tensors({name: given})[name].to(theta)
        shape = tuple(tensor.shape)
        expected, fits = f"({n},)", shape == (n,)
        if name == "plain_draws":
            expected, fits = f"({n}, k, {m})", shape == (n, *shape[1:2], m)
        if not fits:
            raise ValueError(f"{name}: expected shape {expected}; got {shape}.")
        check_finite(name, tensor)
        if name == "weights" and not ((tensor >= 0).all() and tensor.any()):
            raise ValueError("weights: expected prior over proposal, above 0; got others.")
        kept[name] = tensor
    return kept


def check_fresh(theta: Tensor, x_o: Tensor, theta_q: Tensor, x: Tensor) -> None:
    """Refuses draws (o, s, m) that a test is trained on: its null would be unlike the data there.

    Observations are compared by their features, (o, d) and (n, d).
    """
    for features, draws in zip(x_o, theta, strict=True):
        own = theta_q[(x == features).all(1)].flatten(0, 1)
        if len(own) and bool((draws[:, None] == own[None]).all(2).any(1).all()):
            raise ValueError(
                "theta_o: expected fresh draws of q at x_o; got the calibration's own theta_q "
                "there, on which the test was trained. Draw again."
            )


def check_rows(rows: Any, n: int) -> Tensor:
    """Whole numbers, a slice or a mask over n rows, as whole numbers; or refuses."""
    try:
        given = np.arange(n)[rows] if isinstance(rows, slice) else np.asarray(rows)
        mask = given.dtype.kind == "b" and given.shape == (n,)
        if given.ndim != 1 or not (mask or given.dtype.kind in "iu"):
            raise IndexError(f"{given.dtype} of shape {given.shape}")
        return torch.from_numpy(np.arange(n)[given])
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(
            f"rows: expected whole numbers, a slice or a mask over {n} rows; got {error}."
        ) from error


class Sealed:
    """Remembers what its tensors hold when it is sealed, and refuses use after a change."""

    def seal(self) -> None:
        """Remembers what the tensors hold now."""
        vars(self)["_sealed"] = self._fingerprints()

    def check_whole(self) -> None:
        """Refuses an object whose arrays were written after they were checked."""
        if self._fingerprints() != vars(self)["_sealed"]:
            raise ValueError(
                "calibration: expected arrays as they were checked; got some that were changed "
                "in place. Make a new Calibration of changed copies, such as theta.clone()."
            )

    def _fingerprints(self) -> list[int]:
        """Numbers that change when tensors are written.

        On the CPU a checksum of their memory, each part of it once: torch does not count what is
        written through NumPy, which shares it. Elsewhere torch counts all.
        """
        sums, counts = {}, []
        for array in vars(self).values():
            if not isinstance(array, Tensor):
                continue
            storage = array.untyped_storage()
            if array.device.type != "cpu":
                counts += [] if array.is_inference() else [array._version]
            elif storage.data_ptr() not in sums:
                memory: Any = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage)
                sums[storage.data_ptr()] = zlib.crc32(memory.numpy())
        return [*sums.values(), *counts]

    def __getstate__(self) -> dict[str, Any]:
        self.check_whole()
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.seal()


def check_calibration(calibration: Any) -> None:
    """Refuses what is no calibration, and one that was changed."""
    check_kind("calibration", calibration, "a Calibration", Sealed)
    calibration.check_whole()


def check_noise(theta_q: Tensor, x: Tensor, distance: Distances = torch.cdist) -> None:
    """Refuses draws (n, k, m) at features of x (n, d) that share their noise."""
    if theta_q.shape[1] < FEWEST_DRAWS:
        return
    sets = _first_sets(theta_q)
    _check_places(sets)
    half = min(PAIRED, len(sets)) // 2
    apart = distance(x[:half], x[half : 2 * half]).cpu()
    _check_spacings(sets[: 2 * half], apart)


def _first_sets(theta_q: Tensor) -> Tensor:
    """The first sets, as many as are needed, with shape (c, m, k) in double precision."""
    most = max(100, ROOM // theta_q[0].numel())
    return theta_q[:most].cpu().double().mT


def _shared_noise(found: str) -> ValueError:
    return ValueError(
        f"theta_q: expected draws of q with noise of their own at every x; got {found}. With the "
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
        raise _shared_noise(
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
            raise _shared_noise(
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
    """Whether spacings (h, m, k - 1) are the same up to a factor, with shape (h, m)."""
    # Where both are ties there is nothing to compare; a tie in one of them is a difference.
    compared = (first > 0) | (second > 0)
    tiny = torch.finfo(first.dtype).tiny
    ratios = first.clamp_min(tiny).log() - second.clamp_min(tiny).log()
    count = compared.sum(2)
    mean = (ratios * compared).sum(2) / count.clamp_min(1)
    squares = ((ratios - mean[..., None]).square() * compared).sum(2)
    variance = squares / (count - 1).clamp_min(1)
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
        """What was found, and what to do."""
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
    sets = _first_sets(theta_q)
    each = [_correlations(sets, lag) for lag in range(1, 1 + min(LAGS, k // 2))]
    errors, excess = (torch.stack(parts) for parts in zip(*each, strict=True))
    excess = torch.where(errors > ERRORS, excess, 0.0)
    lag, parameter = divmod(int(excess.argmax()), excess.shape[1])
    if excess.max() < LEAST or _sorted(sets):
        return None
    rho, effective = _first_order_chain(float(excess.max()), lag + 1, k)
    return Autocorrelation(parameter, lag + 1, rho, effective, k)


def _correlations(sets: Tensor, lag: int) -> tuple[Tensor, Tensor]:
    """Correlations of draws with those a lag before, less those of exchangeable draws, (m,).

    Their mean over sets (c, m, k) in standard errors, and that of all sets together.
    """
    c, _, k = sets.shape
    centred = sets - sets.mean(2, keepdim=True)
    products = (centred[..., lag:] * centred[..., :-lag]).mean(2)
    variance = centred.square().mean(2)
    excess = torch.where(variance > 0, products / variance + 1 / (k - 1), 0.0)
    errors = math.sqrt(c) * excess.mean(0) / excess.std(0)
    return errors, products.sum(0) / variance.sum(0) + 1 / (k - 1)


def _sorted(sets: Tensor) -> bool:
    """Whether most sets (c, m, k) rise or fall from draw to draw in some parameter."""
    steps = sets.diff()
    monotone = (steps >= 0).all(2) | (steps <= 0).all(2)
    return bool((monotone & (steps != 0).any(2)).double().mean(0).max() > 0.5)


def _first_order_chain(excess: float, lag: int, k: int) -> tuple[float, float]:
    """Correlation and effective number of k draws of a first-order chain at steps of a lag.

    With a variance v of the mean of a set, centred draws have the correlation (rho - v) / (1 - v).
    """
    rho = np.linspace(0, 0.99, 400)
    steps = np.arange(1, -(-k // lag))
    v = (1 + 2 * rho[:, None] ** steps @ (1 - lag * steps / k)) / k
    expected = (rho - v) / (1 - v) + 1 / (k - 1)
    correlation = float(np.interp(excess, np.maximum.accumulate(expected), rho))
    return correlation, float(1 / np.interp(correlation, rho, v))

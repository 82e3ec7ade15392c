r"""Input that would break a promise is refused: its shapes, and draws that are not independent.

**From x to x.** With one random key for all x, every set has the same noise, and any q is
rejected. Two signs of it have a null that does not depend on q. *Places*: the j-th draw is high at
every x alike, by its mean rank (Friedman 1937); sorted draws have an order too, but a smooth one,
by von Neumann's ratio (1941). *Spacings*: those of two sets with the same noise differ by a factor
alone; for independent draws they are nearly exponential whatever the density (Rényi 1953), and
their logarithms differ by more. Noise that x rotates in every parameter is not found.

**Within a set.** Neighbours in a Markov chain resemble each other more than the true parameter, so
that tests reject a right q too often.
"""

import math
import zlib
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.special
import torch
from torch import Tensor

from .._support.inputs import as_tensors, check_finite, check_function, check_kind, cpu
from .._support.random import call_user_code, stream
from .tables import Layout

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
TINY = torch.finfo(torch.float64).tiny  # in place of a spacing of zero
# Lags at which draws are compared, and the least correlation that counts, also in standard errors.
LAGS, ERRORS, LEAST = 8, 7.0, 0.05


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
    got = tuple(theta_q.shape)
    theta_q = theta_q[:, None] if theta_q.ndim == 2 else theta_q
    if theta_q.ndim != 3 or len(theta_q) != n or theta_q.shape[2] != m:
        first = len(got) == 3 and n in got[1:]
        hint = " Samples-first draws need theta_q.swapaxes(0, 1)." if first else ""
        raise ValueError(f"theta_q: expected shape ({n}, {m}) or ({n}, k, {m}); got {got}.{hint}")
    return arrays | {"theta_q": theta_q}


def check_weights(theta: Tensor, weights: Any, plain_draws: Any) -> dict[str, Tensor]:
    """What comes with parameters (n, m) of a proposal, as tensors, or refuses."""
    (n, m), kept = theta.shape, {}
    shapes = {"weights": f"({n},)", "plain_draws": f"({n}, k, {m})"}
    for name, given in {"weights": weights, "plain_draws": plain_draws}.items():
        if given is not None:
            kept[name] = tensor = as_tensors({name: given})[name].to(theta)
            shape = tuple(tensor.shape)
            if shape != ((n,) if name == "weights" else (n, *shape[1:2], m)):
                raise ValueError(f"{name}: expected shape {shapes[name]}; got {shape}.")
            check_finite(name, tensor)
    if weights is not None and not ((kept["weights"] >= 0).all() and kept["weights"].any()):
        raise ValueError("weights: expected prior over proposal, above 0; got others.")
    return kept


def check_rows(rows: Any, n: int) -> Tensor:
    """Whole numbers, a slice or a mask over n rows, as whole numbers; or refuses."""
    try:
        chosen = np.arange(n)[rows if isinstance(rows, slice) else np.asarray(rows)]
        if chosen.ndim != 1:
            raise IndexError(f"shape {np.shape(rows)}")
        return torch.from_numpy(chosen.copy())
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(
            f"rows: expected whole numbers, a slice or a mask over {n} rows; got {error}."
        ) from error


def features_of(x: Tensor, embed: Any, layout: Layout | None = None) -> Tensor:
    """Embeds or flattens observations (n, ...) to (n, d)."""
    if embed is None:
        return x.flatten(1)
    check_function("embed", embed, "a function of x")
    unpack = layout.unpack if layout is not None and layout.packed else Tensor.clone
    try:
        found = [call_user_code("embed(x)", embed, unpack(part)) for part in (x, x[:1])]
    except ValueError:
        if x.dtype == torch.float32:
            raise
        return features_of(x.float(), embed, layout)  # some networks take no other precision
    features, alone = (each.to(x.device) for each in found)
    if features.ndim != 2 or len(features) != len(x):
        raise ValueError(
            f"embed: expected features with shape ({len(x)}, d); got {tuple(features.shape)}."
        )
    check_finite("embed(x)", features)
    spread = float(features.std(correction=0))
    if not torch.allclose(features[:1], alone, rtol=1e-2, atol=1e-2 * spread):
        raise ValueError(
            "embed: expected the same features for the same x, alone or among others; got other "
            "ones. Switch dropout and batch normalisation off with network.eval()."
        )
    return features


class Sealed:
    """Remembers what its tensors hold when it is made, and refuses use after a change."""

    def check_whole(self) -> None:
        """Refuses an object whose arrays were written after they were checked."""
        if self._fingerprints() != vars(self)["_sealed"]:
            raise ValueError(
                "calibration: expected arrays as they were checked; got some that were changed "
                "in place. Make a new Calibration of changed copies, such as theta.clone()."
            )

    def _fingerprints(self) -> list[int]:
        """Numbers that change when tensors are written: checksums, or torch's own counts.

        On the CPU torch does not count what is written through NumPy, which shares the memory.
        """
        tensors = [each for each in vars(self).values() if isinstance(each, Tensor)]
        memory = {(t.data_ptr(), t.shape, t.stride()): t for t in tensors if t.is_cpu}
        counts = [t._version for t in tensors if not (t.is_cpu or t.is_inference())]
        return [*(zlib.crc32(t.contiguous().numpy().data) for t in memory.values()), *counts]

    def __getstate__(self) -> dict[str, Any]:
        self.check_whole()
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        vars(self)["_sealed"] = self._fingerprints()


def check_calibration(calibration: Any) -> None:
    """Refuses what is no calibration, and one that was changed."""
    check_kind("calibration", calibration, "a Calibration", Sealed)
    calibration.check_whole()


def check_noise(
    theta_q: Tensor, x: Tensor, distance: Callable[[Tensor, Tensor], Tensor] = torch.cdist
) -> None:
    """Refuses draws (n, k, m) at features of x (n, d) that share their noise."""
    if theta_q.shape[1] < FEWEST_DRAWS:
        return
    sets = _first_sets(theta_q)
    half = min(PAIRED, len(sets)) // 2
    found = _same_places(sets) or _same_spacings(
        sets[: 2 * half], distance(x[:half], x[half : 2 * half]).cpu()
    )
    if found:
        raise ValueError(
            f"theta_q: expected draws of q with noise of their own at every x; got {found}. With "
            "the same noise at every x any q is rejected. Mend the sampler: a fresh random key "
            "for every x, or one call for all x. If draws were put into an order, shuffle them at "
            "each x."
        )


def _first_sets(theta_q: Tensor) -> Tensor:
    """The first sets, as many as are needed, with shape (c, m, k) in double precision."""
    most = max(100, ROOM // theta_q[0].numel())
    return theta_q[:most].cpu().double().mT


def _same_places(sets: Tensor) -> str:
    """Which parameter of sets (c, m, k) has the same rough order of draws at every x, if any."""
    c, _, k = sets.shape
    # Ranks of draws in their sets, ties broken by chance.
    order = cpu.rand(sets.shape, generator=stream(0, "places")).argsort()
    ranks = sets.gather(2, order).argsort(stable=True).argsort()
    ranks = torch.empty_like(ranks).scatter_(2, order, ranks).double()
    means = ranks.mean(0) - (k - 1) / 2
    square = means.square().sum(1)
    p = scipy.special.chdtrc(k - 1, 12 * c / (k * (k + 1)) * square.numpy())
    rough = means.diff().square().sum(1) > ROUGH * square
    p = np.where(rough.numpy(), p, 1.0)
    if p.min() >= REFUSAL / len(p):
        return ""
    alike = f"draws whose order in theta[{p.argmin()}] is alike at every x"
    return f"{alike} (Friedman p = {p.min():.1g})"


def _same_spacings(sets: Tensor, apart: Tensor) -> str:
    """Which parameter of sets (2 h, m, k) is the same in pairs of them, but for scale, if any.

    Paired are neighbours in the order given, and neighbours in x by distances (h, h) of the second
    half to the first.
    """
    spacings, half = sets.sort().values.diff(), len(apart)  # (2 h, m, k - 1)
    places, left = cpu.arange(half), apart.clone()
    partners = places.clone()
    for i, distances in enumerate(left):
        partners[i] = distances.argmin()
        left[:, partners[i]] = math.inf
    for first, second in ((2 * places, 2 * places + 1), (partners, half + places)):
        # Where both are ties there is nothing to compare; a tie in one of them is a difference.
        one, other = spacings[first], spacings[second]
        ratios = one.clamp_min(TINY).log() - other.clamp_min(TINY).log()
        ratios = torch.where((one > 0) | (other > 0), ratios, torch.nan)
        count = (~ratios.isnan()).sum(2)
        squares = (ratios - ratios.nanmean(2, keepdim=True)).square().nansum(2)
        alike = squares / (count - 1).clamp_min(1) < ALIKE
        counts = (alike & (count >= max(2, spacings.shape[2] // 2))).sum(0)
        most = int(counts.max())
        p = scipy.special.bdtrc(most - 1, half, CHANCE) if most else 1.0
        if p < REFUSAL / sets.shape[1]:
            same = f"the same draws of theta[{int(counts.argmax())}], up to location and scale"
            return f"{same}, in {most} of {half} pairs of x"
    return ""


def autocorrelation(theta_q: Tensor) -> str:
    """What to say of draws (n, k, m) that resemble those before them; nothing if they do not.

    Exchangeable draws have a correlation of -1 / (k - 1) at every lag, whatever q is. Draws that
    were sorted say nothing.
    """
    k = theta_q.shape[1]
    if k < FEWEST_DRAWS or len(theta_q) < FEWEST_SETS:
        return ""
    sets = _first_sets(theta_q)  # (c, m, k)
    centred = sets - sets.mean(2, keepdim=True)
    variance = centred.square().mean(2)
    each = []
    for lag in range(1, 1 + min(LAGS, k // 2)):
        products = (centred[..., lag:] * centred[..., :-lag]).mean(2)
        excess = torch.where(variance > 0, products / variance + 1 / (k - 1), 0.0)
        errors = math.sqrt(len(sets)) * excess.mean(0) / excess.std(0)
        whole = products.sum(0) / variance.sum(0) + 1 / (k - 1)
        each.append(torch.where(errors > ERRORS, whole, 0.0))
    largest, place = torch.cat(each).max(0)  # over lags and parameters
    steps = sets.diff()
    in_order = ((steps >= 0).all(2) | (steps <= 0).all(2)) & (steps != 0).any(2)
    if largest < LEAST or in_order.double().mean(0).max() > 0.5:
        return ""
    lag, parameter = divmod(int(place), theta_q.shape[2])
    correlation, effective = _first_order_chain(float(largest), lag + 1, k)
    # Of how many draws one is kept, so that a correlation of 0.05 is left.
    thin = (lag + 1) * max(2, math.ceil(math.log(0.05) / math.log(correlation)))
    return (
        f"Draws of q at the same x are correlated, as those of a Markov chain: by "
        f"{correlation:.2f} at lag {lag + 1} in theta[{parameter}]. Of {k} draws about "
        f"{effective:.1f} are effective, and tests reject a right q too often. Keep every "
        f"{thin}th draw of longer chains; shuffle draws that were put into an order."
    )


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

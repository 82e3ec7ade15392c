r"""Ranks of the true parameter among the k draws of q at the same x.

For a quantity :math:`f(\theta, x)` the rank

.. math:: r = \#\{j : f(\theta_{q,j}, x) < f(\theta, x)\}

is uniform on 0..k if q is right, whatever f, since the true parameter and the draws are then
exchangeable; ties are broken by chance. SBC ranks parameters, expected coverage the density of q,
TARP the distance to a point. The level :math:`u = (r + V) / (k + 1)` with V uniform on [0, 1] is
exactly uniform for every k.

References: Talts et al. 2018, *Validating Bayesian Inference Algorithms with Simulation-Based
Calibration*; Modrák et al. 2023, *Simulation-Based Calibration Checking for Bayesian Computation:
The Choice of Test Quantities Shapes Sensitivity*.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import as_tensors, check_finite, check_function, check_names, cpu
from .._support.random import call_user_code, mix_seed, stream
from ..data.calibration import Calibration, has_order, tied_ranks

# Rows on which a quantity is evaluated at a time, and draws that are compared at a time.
ROWS, PIECE = 2**17, 2**17
# Features of x, among those that vary, by which rows are ordered.
COLUMNS = 4
# Sets and draws on which densities are compared with the draws they should belong to.
SETS, DRAWS, FEWEST_DRAWS, FAR = 200, 100, 20, 6


@dataclass(frozen=True, eq=False)
class Values:
    """Values of a quantity that were computed already, row by row as in the calibration.

    Args:
        truth: At the true parameters, with shape (n,).
        draws: At the draws of q, with shape (n, k).
    """

    truth: Any
    draws: Any

    def __post_init__(self) -> None:
        truth, draws = as_tensors({"truth": self.truth, "draws": self.draws}).values()
        if truth.ndim != 1 or draws.ndim != 2 or len(draws) != len(truth):
            raise ValueError(
                "values: expected truth with shape (n,) and draws with shape (n, k); got "
                f"{tuple(truth.shape)} and {tuple(draws.shape)}."
            )
        vars(self).update(truth=truth, draws=draws)


# A function of matching rows theta (b, m) and x (b, ...) with values (b,), or its values.
Quantity = Callable[[Tensor, Tensor], Any] | Values
# The values of a quantity at true parameters (n,) and at draws of q (n, k).
MemberValues = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class RowStream:
    """Randomness that belongs to observations, not to rows: reordering rows changes nothing.

    Rows are ordered by the first few features of x that vary; those that tie stay in the order
    given. The order (n,) is that of x, and the seed depends on it too. With one and the same seed
    two data sets then still meet independent nulls; ranks do not depend on x, so it may choose
    them.
    """

    order: np.ndarray
    seed: int

    @classmethod
    def of(cls, calibration: Calibration, seed: int) -> "RowStream":
        """The randomness that belongs to the observations of a calibration.

        Example:
            >>> theta = torch.arange(60.0).reshape(20, 3)
            >>> RowStream.of(Calibration(theta, -theta, theta), 0).order[:3]
            array([19, 18, 17])
        """
        features = calibration.features
        varies = (features != features[:1]).any(0).nonzero().flatten()[:COLUMNS]
        columns = features[:, varies if len(varies) else slice(1)].cpu().numpy()
        order = np.lexsort(columns.T[::-1])
        if not has_order(tied_ranks(columns)):
            return cls(order, calibration.members_seed(seed))
        rows = columns[order]
        # Once sorted, a single feature has no order; which of two neighbouring gaps is larger is
        # taken in its place.
        if rows.shape[1] == 1:
            return cls(order, mix_seed(seed, np.diff(rows.astype(float), 2, axis=0) > 0))
        return cls(order, mix_seed(seed, np.argsort(rows[:, 1:], 0, kind="stable")))

    def uniform(self, *key: int | str, width: tuple[int, ...] = ()) -> Tensor:
        """Uniform numbers (n, *width) in double precision, a row for each observation."""
        shape, generator = (len(self.order), *width), stream(self.seed, *key)
        numbers = cpu.rand(shape, generator=generator, dtype=torch.double)
        return numbers[torch.from_numpy(self.order.argsort())]


def rank(calibration: Calibration, values: Mapping[str, MemberValues], seed: int) -> np.ndarray:
    """Ranks (n, j) of the true parameters in every quantity, from 0 to k.

    The seed breaks ties, which fall alike whatever the order of rows.

    Example:
        >>> theta_q = torch.arange(40.0).reshape(10, 4, 1)
        >>> calibration = Calibration(theta_q[:, 1] + 0.5, theta_q[:, 0], theta_q)
        >>> rank(calibration, evaluate(calibration), 0)[:3, 0]
        array([2, 2, 2])
    """
    counts = []
    for rows in pieces(calibration):
        columns = [count_below(true[rows], draws[rows]).cpu() for true, draws in values.values()]
        counts.append(torch.stack(columns, 2))
    ranks, ties = torch.cat(counts, 1).numpy()
    if not ties.any():
        return ranks
    chance = RowStream.of(calibration, seed)
    for j, name in enumerate(values):
        if (ties[:, j] == calibration.k).all():
            raise ValueError(
                f"{name}: expected a quantity that varies among the draws of q; got a constant "
                "at every x."
            )
        if ties[:, j].any():
            share = chance.uniform("ties", name).numpy()
            ranks[:, j] += (share * (ties[:, j] + 1)).astype(ranks.dtype)
    return ranks


def pieces(calibration: Calibration) -> Iterator[slice]:
    """Rows of pairs whose draws stay in the cache together."""
    rows = max(1, PIECE // (calibration.k or 1))
    return (slice(i, i + rows) for i in range(0, len(calibration), rows))


def count_below(true: Tensor, draws: Tensor) -> Tensor:
    """Numbers of draws (b, k) below the true values (b,), and of ties with them, (2, b)."""
    true = true[:, None]
    # Sums of signs are much faster than counts of comparisons. Ties make signs vanish, and a
    # difference of two infinities is NaN: then comparisons are counted.
    signs = torch.sub(true, draws).sign_()
    total = signs.sum(1)
    if signs.square_().sum() == signs.numel():
        below = (draws.shape[1] + total.long()) // 2
        return torch.stack([below, torch.zeros_like(below)])
    return torch.stack([(draws < true).sum(1), (draws == true).sum(1)])


def levels_of(ranks: np.ndarray, k: int, seed: int) -> np.ndarray:
    """Levels between 0 and 1 of ranks among k draws, exactly uniform if q is right."""
    chance = cpu.rand(ranks.shape, generator=stream(seed, "levels"), dtype=torch.double)
    return (ranks + chance.numpy()) / (k + 1)


def evaluate(
    calibration: Calibration, quantities: Mapping[str, Quantity] | None = None
) -> dict[str, MemberValues]:
    """Values of quantities, or of every parameter if None, at true parameters and draws.

    They may be infinite, not NaN.
    """
    draws = check_draws(calibration)
    if quantities is None:
        columns = zip(calibration.theta.unbind(1), draws.unbind(2), strict=True)
        return {f"theta[{j}]": column for j, column in enumerate(columns)}
    if not isinstance(quantities, Mapping) or not quantities:
        raise TypeError(
            "quantities: expected a mapping from names to functions of theta and x, or to Values; "
            f"got {quantities!r}."
        )
    names = check_names("quantities", list(quantities), len(quantities))
    found = {}
    for name, quantity in zip(names, quantities.values(), strict=True):
        if isinstance(quantity, Values):
            found[name] = quantity.truth, quantity.draws
        else:
            check_function(name, quantity, "a function of theta and x, or Values")
            found[name] = _apply(calibration, name, quantity)
        shape = tuple(found[name][1].shape)
        if shape != draws.shape[:2]:
            raise ValueError(
                f"{name}: expected values at {tuple(draws.shape[:2])} draws, as in the "
                f"calibration; got {shape}."
            )
        for part in found[name]:
            if part.isnan().any():
                known = part.nan_to_num(torch.nan, 0.0, 0.0)
                check_finite(name, known, "Infinity is allowed, NaN not.")
    return found


def _apply(calibration: Calibration, name: str, function: Callable[..., Any]) -> MemberValues:
    """Values of a function of matching rows, a few sets at a time."""
    theta_q = check_draws(calibration)
    r = theta_q.shape[1] + 1
    arrays = (calibration.theta[:, None], theta_q, calibration.x)
    parts = []
    for true, draws, x in zip(*(a.split(max(1, ROWS // r)) for a in arrays), strict=True):
        rows = torch.cat([true, draws], 1).flatten(0, 1)
        values = call_user_code(name, function, rows, x.repeat_interleave(r, 0)).to(rows.device)
        if values.shape != (len(rows),):
            raise ValueError(
                f"{name}: expected a function that maps theta (b, m) and x (b, ...) to (b,); got "
                f"{tuple(values.shape)} for b = {len(rows)}."
            )
        parts.append(values.unflatten(0, (len(true), r)))
    table = torch.cat(parts)
    return table[:, 0], table[:, 1:]


def check_draws(calibration: Calibration) -> Tensor:
    """The draws (n, k, m) of q; refuses latents, and a single draw at each x."""
    if calibration.theta_q is None:
        raise ValueError(
            "calibration: expected draws theta_q of q at each x; got latents. Ranks are taken "
            "among draws: use the calibration before to_latent(flow)."
        )
    if calibration.theta_q.shape[1] < 2:
        raise ValueError(
            "theta_q: expected at least 2 draws of q at each x, with shape (n, k, m); got 1. "
            "Ranks among a single draw say next to nothing; 100 draws are common."
        )
    return calibration.theta_q


def log_densities(calibration: Calibration, log_q: Quantity) -> MemberValues:
    r"""Log-densities of q at true parameters and draws, checked against the draws.

    They may lack a constant for each x. They cannot be those of another q: a draw of q has a
    positive density, and where draws of q are dense its density is high.
    """
    true, draws = evaluate(calibration, {"log_q": log_q})["log_q"]
    absent = int((draws == -torch.inf).sum())
    if absent:
        raise ValueError(
            f"log_q: expected the density of the q that made theta_q, which is positive at every "
            f"draw; got zero at {absent} of {draws.numel()}. Truncate both to the prior, or "
            "neither."
        )
    if (draws == torch.inf).any() or (true == torch.inf).any():
        raise ValueError("log_q: expected numbers below infinity; got infinity.")
    _check_own_density(check_draws(calibration), draws)
    return true, draws


def _check_own_density(theta_q: Tensor, log_q: Tensor) -> None:
    r"""Refuses densities (n, k) that do not rise where the draws (n, k, m) of q are dense.

    Within each whitened set, :math:`-m \log` of the distance to a near neighbour estimates
    :math:`\log q` up to a constant. Its slope in the densities given is one, less what the width
    of the neighbourhood takes away: right densities have 0.16 or more wherever neighbours see all
    m dimensions, those of other rows have none, and those of another x a small one, along numbers
    that vary too much. Where draws lie on a thin surface neighbours see fewer dimensions, and
    nothing is refused.
    """
    k, m = theta_q.shape[1:]
    if k < max(FEWEST_DRAWS, 2 * m):
        return
    draws = theta_q[:SETS, :DRAWS].double()
    near, far = _neighbour_distances(_whiten(draws))
    usable = (near > 0).all(1)
    dense, given = -m * far[usable].log(), log_q[:SETS, :DRAWS].double()[usable]
    dense, given = (part - part.mean(1, keepdim=True) for part in (dense, given))
    square, product = given.square().sum(1), (dense * given).sum(1)
    # The variance of log q is m / 2 for a Gaussian, and at most m if q is log-concave.
    excess = float(square.sum() / max(given.numel(), 1) / m)
    if excess < 0.05:
        return
    slope = float(product.sum() / square.sum())
    error = float((product - slope * square).norm() / square.sum())
    full = _dimension(near[usable], far[usable]) > 0.6 * _gaussian_dimension(draws.shape[1], m)
    if slope + 3 * error < (0.3 if excess > 1.5 else 0.12) and (full or excess > 50):
        raise ValueError(
            "log_q: expected the density of the q that made theta_q, high where its draws are "
            f"dense; got densities along which the draws' own density has slope {slope:.2f}, far "
            "from 1. Are rows in another order, or densities those of another x or q? If they are "
            'right, sbc(calibration, {"log_q": log_q}) ranks them without this check.'
        )


def _whiten(draws: Tensor) -> Tensor:
    """Sets of draws (s, k, m) with unit covariance."""
    centred = draws - draws.mean(1, keepdim=True)
    values, vectors = torch.linalg.eigh(centred.mT @ centred / draws.shape[1])
    floor = (1e-12 * values[:, -1:]).clamp_min(torch.finfo(draws.dtype).tiny)
    return centred @ vectors / values.maximum(floor).sqrt()[:, None]


def _neighbour_distances(draws: Tensor) -> tuple[Tensor, Tensor]:
    """Distances (s, k) of draws (s, k, m) to a near neighbour, and to one of twice its order."""
    ordered = torch.cdist(draws, draws).topk(FAR + 1, largest=False).values
    return ordered[..., FAR // 2], ordered[..., FAR]


def _dimension(near: Tensor, far: Tensor) -> float:
    """How many dimensions neighbours see: twice as many lie 2^(1/d) times as far."""
    return float(np.log(2) / (far / near).log().mean()) if len(near) else 0.0


@cache
def _gaussian_dimension(k: int, m: int) -> float:
    """How many dimensions neighbours see among k draws of a Gaussian."""
    noise = cpu.randn(50, k, m, generator=stream(0, "dimension"), dtype=torch.double)
    return _dimension(*_neighbour_distances(noise))

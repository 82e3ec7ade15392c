r"""Ranks: where the truth stands among the k draws of q at the same x.

For a test quantity :math:`f(\theta, x)` the rank

.. math:: r = \#\{j : f(\theta_{q,j}, x) < f(\theta, x)\}

is uniform on 0..k if q is right, whatever f, since truth and draws are exchangeable; ties are
broken by chance. SBC ranks parameters, expected coverage the density of q, TARP the distance to a
point: one engine under all of them. The level :math:`u = (r + V) / (k + 1)` with V uniform on
[0, 1] is exactly uniform for every k.

References: Talts et al. 2018, *Validating Bayesian Inference Algorithms with Simulation-Based
Calibration*; Modrák et al. 2023, *Simulation-Based Calibration Checking for Bayesian Computation:
The Choice of Test Quantities Shapes Sensitivity*.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import as_tensors, check_finite, check_function, check_names, cpu
from .._support.random import call_user_code, mix_seed, stream
from ..data.calibration import Calibration, has_order, tied_ranks

# Rows on which a quantity is evaluated at a time, and draws that are compared at a time.
ROWS, PIECE = 2**17, 2**17
# Features of x, among those that vary, by which rows are told apart.
COLUMNS = 4
# Sets and draws on which densities are compared with the draws they should belong to.
SETS, DRAWS, FEWEST_DRAWS, FAR = 200, 100, 20, 6


@dataclass(frozen=True, eq=False)
class Values:
    """Values of a quantity that were computed already, row by row as in the calibration.

    Args:
        truth: At the true parameters, with shape (n,).
        draws: At the draws of q, with shape (n, k).

    Example:
        >>> Values([0.1, 0.2], [[0.3, 0.0], [0.1, 0.4]]).draws.shape
        torch.Size([2, 2])
    """

    truth: Tensor
    draws: Tensor

    if TYPE_CHECKING:

        def __init__(self, truth: Any, draws: Any) -> None: ...

    def __post_init__(self) -> None:
        truth, draws = as_tensors({"truth": self.truth, "draws": self.draws}).values()
        if truth.ndim != 1 or draws.ndim != 2 or len(draws) != len(truth):
            raise ValueError(
                "values: expected truth with shape (n,) and draws with shape (n, k); got "
                f"{tuple(truth.shape)} and {tuple(draws.shape)}."
            )
        vars(self).update(truth=truth, draws=draws)


@dataclass(frozen=True, eq=False)
class RowStream:
    """Randomness that belongs to observations, not to rows: reordering rows changes nothing.

    Rows are told apart by the first few features of x that vary; those that tie stay in the order
    given. The order (n,) is that of x, and the seed depends on it too. With one and the same seed
    two data sets then still meet independent nulls; x has no say in ranks, so it may choose them.
    """

    order: np.ndarray
    seed: int

    @classmethod
    def of(cls, calibration: Calibration, seed: int) -> "RowStream":
        """The chance that belongs to the observations of a calibration.

        Example:
            >>> theta = torch.arange(60.0).reshape(20, 3)
            >>> RowStream.of(Calibration(theta, -theta, theta), 0).order[:3]
            array([19, 18, 17])
        """
        features = calibration.features
        varies = (features != features[:1]).any(0).nonzero().flatten()[:COLUMNS]
        # Where x is constant there is nothing to tell rows apart by.
        columns = features[:, varies if len(varies) else slice(1)].cpu().numpy()
        order = np.lexsort(columns.T[::-1])
        if not has_order(tied_ranks(columns)):
            return cls(order, calibration.members_seed(seed))
        rows = columns[order]
        # Once sorted, the order of a single feature says nothing: then it is which of its
        # neighbouring gaps is the larger.
        content = (
            np.diff(rows.astype(float), 2, axis=0) > 0
            if rows.shape[1] == 1
            else np.argsort(rows[:, 1:], 0, kind="stable")
        )
        return cls(order, mix_seed(seed, content))

    def uniform(self, *key: int | str, width: tuple[int, ...] = ()) -> Tensor:
        """Uniform numbers (n, *width) in double precision, a row for each observation."""
        shape, generator = (len(self.order), *width), stream(self.seed, *key)
        numbers = cpu.rand(shape, generator=generator, dtype=torch.double)
        return numbers[torch.from_numpy(self.order.argsort())]


# A function of matching rows theta (b, m) and x (b, ...) with values (b,), or its values.
Quantity = Callable[[Tensor, Tensor], Any] | Values


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks (n, j) of the truths, from 0 to k, among k draws of q, for j quantities with names."""

    ranks: np.ndarray
    k: int
    names: tuple[str, ...]

    def levels(self, seed: int) -> np.ndarray:
        """Levels (n, j) between 0 and 1, exactly uniform if q is right."""
        chance = cpu.rand(self.ranks.shape, generator=stream(seed, "levels"), dtype=torch.double)
        return np.asarray((self.ranks + chance.numpy()) / (self.k + 1))


def parameters(calibration: Calibration) -> dict[str, Quantity]:
    """Every parameter as a quantity of its own, to be ranked beside others."""
    check_draws(calibration)
    assert calibration.theta_q is not None
    theta, theta_q = calibration.theta, calibration.theta_q
    return {f"theta[{j}]": _views(theta[:, j], theta_q[..., j]) for j in range(calibration.m)}


def ranked(
    calibration: Calibration, quantities: Mapping[str, Quantity] | None, seed: int
) -> Ranks:
    """Ranks of the truths in every quantity; of every parameter, in one pass, if None.

    The seed breaks ties, which fall alike whatever the order of rows.

    Example:
        >>> theta_q = torch.arange(40.0).reshape(10, 4, 1)
        >>> calibration = Calibration(theta_q[:, 1] + 0.5, theta_q[:, 0], theta_q)
        >>> ranked(calibration, None, 0).ranks[:3, 0]
        array([2, 2, 2])
    """
    check_draws(calibration)
    assert calibration.theta_q is not None
    k = calibration.theta_q.shape[1]
    if quantities is None:
        names = tuple(f"theta[{j}]" for j in range(calibration.m))
        parts = [counted(calibration.theta, calibration.theta_q)]
    else:
        names = _names(quantities)
        given = zip(names, quantities.values(), strict=True)
        values = (evaluated(calibration, name, q) for name, q in given)
        parts = [counted(each.truth[:, None], each.draws[..., None]) for each in values]
    below, ties = (np.concatenate(part, 1) for part in zip(*parts, strict=True))
    return Ranks(below + _broken(calibration, names, ties, seed), k, names)


def pieces(calibration: Calibration) -> Iterator[slice]:
    """Rows of pairs whose draws stay in the cache together."""
    rows = max(1, PIECE // (calibration.k or 1))
    return (slice(i, i + rows) for i in range(0, len(calibration), rows))


def ranks_of(calibration: Calibration, name: str, counts: list[Tensor], seed: int) -> Ranks:
    """Ranks in a quantity for which :func:`count_below` has counted each of the :func:`pieces`."""
    below, ties = torch.cat(counts, 1)[..., None].cpu().numpy()
    broken = _broken(calibration, (name,), ties, seed)
    return Ranks(below + broken, calibration.members.shape[1] - 1, (name,))


def evaluated(calibration: Calibration, name: str, quantity: Quantity) -> Values:
    """The values of a quantity at truths and draws, row by row; they may be infinite, not NaN."""
    check_draws(calibration)
    n, k = len(calibration), calibration.k or 0
    if not isinstance(quantity, Values):
        check_function(name, quantity, "a function of theta and x, or Values")
        quantity = _applied(calibration, name, quantity)
    if quantity.draws.shape != (n, k):
        raise ValueError(
            f"{name}: expected values at ({n}, {k}) draws, as in the calibration; got "
            f"{tuple(quantity.draws.shape)}."
        )
    for part in (quantity.truth, quantity.draws):
        if part.isnan().any():
            known = part.nan_to_num(torch.nan, 0.0, 0.0)
            check_finite(name, known, "Infinity is allowed, NaN not.")
    return quantity


def log_densities(calibration: Calibration, log_q: Quantity) -> Values:
    r"""Log-densities of q at the truths and at the draws, checked against the draws.

    They may lack a constant for each x. They cannot be those of another q: a draw of q has a
    positive density, and where draws of q are dense its density is high.
    """
    densities = evaluated(calibration, "log_q", log_q)
    absent = int((densities.draws == -torch.inf).sum())
    if absent:
        raise ValueError(
            f"log_q: expected the density of the q that made theta_q, which is positive at every "
            f"draw; got zero at {absent} of {densities.draws.numel()}. Truncate both to the "
            "prior, or neither."
        )
    if (densities.draws == torch.inf).any() or (densities.truth == torch.inf).any():
        raise ValueError("log_q: expected numbers below infinity; got infinity.")
    _check_own_density(calibration, densities.draws)
    return densities


def check_draws(calibration: Calibration) -> None:
    """Refuses latents, and a single draw at each x."""
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


def counted(truth: Tensor, draws: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """How many draws (n, k, j) lie below the truth (n, j), and how many tie with it, (n, j) each.

    In one pass over the draws, in pieces that stay in the cache.
    """
    rows = max(1, PIECE // draws.shape[1])
    counts = []
    for here, those in zip(truth.split(rows), draws.split(rows), strict=True):
        columns = zip(here.unbind(1), those.unbind(2), strict=True)
        counts.append(torch.stack([count_below(*column) for column in columns], 2))
    below, ties = torch.cat(counts, 1).cpu().numpy()
    return below, ties


def count_below(truth: Tensor, draws: Tensor) -> Tensor:
    """Draws (b, k) below the truth (b,), and ties with it, with shape (2, b)."""
    truth = truth[:, None]
    # Sums of signs are much faster than counts of comparisons; a difference of two infinities
    # is NaN, and ties make signs vanish: comparisons then.
    signs = torch.sub(truth, draws).sign_()
    total = signs.sum(1)
    if signs.square_().sum() == signs.numel():
        below = (draws.shape[1] + total.long()) // 2
        return torch.stack([below, torch.zeros_like(below)])
    return torch.stack([(draws < truth).sum(1), (draws == truth).sum(1)])


def _broken(
    calibration: Calibration, names: tuple[str, ...], ties: np.ndarray, seed: int
) -> np.ndarray:
    """What chance adds to ranks (n, j) where draws tie with the truth."""
    added = np.zeros_like(ties)
    tied = ties.any(0)
    chance = RowStream.of(calibration, seed) if tied.any() else None
    for j in np.flatnonzero(tied):
        if (ties[:, j] == calibration.k).all():
            raise ValueError(
                f"{names[j]}: expected a quantity that varies among the draws of q; got a "
                "constant at every x."
            )
        assert chance is not None
        share = chance.uniform("ties", names[j]).numpy()
        added[:, j] = (share * (ties[:, j] + 1)).astype(ties.dtype)
    return added


def _names(quantities: Mapping[str, Quantity]) -> tuple[str, ...]:
    if not isinstance(quantities, Mapping) or not quantities:
        raise TypeError(
            "quantities: expected a mapping from names to functions of theta and x, or to Values; "
            f"got {quantities!r}."
        )
    return check_names("quantities", list(quantities), len(quantities))


def _views(truth: Tensor, draws: Tensor) -> Values:
    """Values that share memory with a calibration, which checked and copied them before."""
    values = object.__new__(Values)
    vars(values).update(truth=truth, draws=draws)
    return values


def _applied(calibration: Calibration, name: str, function: Callable[..., Any]) -> Values:
    """Evaluates a function of rows at truths and draws, step by step."""
    assert calibration.theta_q is not None
    r = calibration.theta_q.shape[1] + 1
    arrays = (calibration.theta[:, None], calibration.theta_q, calibration.x)
    parts = []
    for truth, draws, x in zip(*(a.split(max(1, ROWS // r)) for a in arrays), strict=True):
        rows = torch.cat([truth, draws], 1).flatten(0, 1)
        values = call_user_code(name, function, rows, x.repeat_interleave(r, 0)).to(rows.device)
        if values.shape != (len(rows),):
            raise ValueError(
                f"{name}: expected a function that maps theta (b, m) and x (b, ...) to (b,); got "
                f"{tuple(values.shape)} for b = {len(rows)}."
            )
        parts.append(values.unflatten(0, (len(truth), r)))
    table = torch.cat(parts)
    return _views(table[:, 0], table[:, 1:])


def _check_own_density(calibration: Calibration, log_q: Tensor) -> None:
    r"""Refuses densities (n, k) that do not rise where the draws they should belong to are dense.

    Within each whitened set, :math:`-m \log` of the distance to a near neighbour estimates
    :math:`\log q` up to a constant. Its slope in the densities given is one, less what the width
    of the neighbourhood takes away: right densities have 0.16 or more wherever neighbours see all
    m dimensions, those of other rows have none, and those of another x a small one, along numbers
    that vary too much. Where draws lie on a thin surface neighbours see fewer dimensions, and
    nothing is said.
    """
    assert calibration.theta_q is not None
    m, k = calibration.m, log_q.shape[1]
    if k < max(FEWEST_DRAWS, 2 * m):
        return
    near, far = _neighbours(_whitened(calibration.theta_q[:SETS, :DRAWS].double()))
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
    resolved = _dimension(near[usable], far[usable]) > 0.6 * _gaussian_dimension(near.shape[1], m)
    if slope + 3 * error < (0.3 if excess > 1.5 else 0.12) and (resolved or excess > 50):
        raise ValueError(
            "log_q: expected the density of the q that made theta_q, high where its draws are "
            f"dense; got densities along which the draws' own density has slope {slope:.2f}, far "
            "from 1. Are rows in another order, or densities those of another x or q? If they are "
            'right, sbc(calibration, {"log_q": log_q}) ranks them without this check.'
        )


def _whitened(draws: Tensor) -> Tensor:
    """Sets of draws (s, k, m) with unit covariance."""
    centred = draws - draws.mean(1, keepdim=True)
    values, vectors = torch.linalg.eigh(centred.mT @ centred / draws.shape[1])
    floor = (1e-12 * values[:, -1:]).clamp_min(torch.finfo(draws.dtype).tiny)
    white: Tensor = centred @ vectors / values.maximum(floor).sqrt()[:, None]
    return white


def _neighbours(draws: Tensor) -> tuple[Tensor, Tensor]:
    """Distances (s, k) of draws (s, k, m) to a near neighbour and to one twice as far in rank."""
    ordered = torch.cdist(draws, draws).topk(FAR + 1, largest=False).values
    return ordered[..., FAR // 2], ordered[..., FAR]


def _dimension(near: Tensor, far: Tensor) -> float:
    """How many dimensions neighbours see: twice as many lie 2^(1/d) times as far."""
    return float(np.log(2) / (far / near).log().mean()) if len(near) else 0.0


@cache
def _gaussian_dimension(k: int, m: int) -> float:
    """The same for as many draws of a Gaussian."""
    noise = cpu.randn(50, k, m, generator=stream(0, "dimension"), dtype=torch.double)
    return _dimension(*_neighbours(noise))

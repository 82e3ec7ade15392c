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

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .door import as_tensors, check_finite
from .randomness import isolated, stream
from .samples import Calibration

__all__ = ["Quantity", "Ranks", "Values", "evaluated", "log_densities", "parameters", "ranked"]

# Rows on which a quantity is evaluated at a time.
ROWS = 2**17
# Sets and draws on which densities are compared with the draws they should belong to.
SETS, DRAWS, NEIGHBOUR = 200, 100, 5


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
        object.__setattr__(self, "truth", truth)
        object.__setattr__(self, "draws", draws)


# A function of matching rows theta (b, m) and x (b, ...) with values (b,), or its values.
Quantity = Callable[[Tensor, Tensor], Any] | Values


@dataclass(frozen=True, eq=False)
class Ranks:
    """Ranks of the truths among draws of q, for j quantities.

    Args:
        ranks: The ranks, from 0 to k, with shape (n, j).
        k: The number of draws at each x.
        names: Names of the quantities.
    """

    ranks: np.ndarray
    k: int
    names: tuple[str, ...]

    def levels(self, seed: int) -> np.ndarray:
        """Levels (n, j) between 0 and 1, exactly uniform if q is right."""
        chance = torch.rand(self.ranks.shape, generator=stream(seed, "levels"), dtype=torch.double)
        return np.asarray((self.ranks + chance.numpy()) / (self.k + 1))


def parameters(calibration: Calibration) -> dict[str, Quantity]:
    """Every parameter as a quantity of its own."""

    def values(j: int) -> Values:
        assert calibration.theta_q is not None
        return Values(calibration.theta[:, j], calibration.theta_q[..., j])

    check_draws(calibration)
    return {f"theta[{j}]": values(j) for j in range(calibration.m)}


def ranked(calibration: Calibration, quantities: Mapping[str, Quantity], seed: int) -> Ranks:
    """Ranks of the truths in every quantity.

    Args:
        calibration: Pairs with at least two draws of q at each x.
        quantities: The quantities and their names.
        seed: Breaks ties.
    """
    check_draws(calibration)
    columns = []
    for name, quantity in quantities.items():
        found = evaluated(calibration, name, quantity)
        columns.append(_ranks(name, found, stream(seed, "ties", name)))
    assert calibration.k is not None
    return Ranks(np.stack(columns, 1), calibration.k, tuple(quantities))


def evaluated(calibration: Calibration, name: str, quantity: Quantity) -> Values:
    """The values of a quantity at the truths and at the draws, row by row.

    Values may be infinite, not NaN.

    Args:
        calibration: Pairs with draws of q.
        name: What to call the quantity in errors.
        quantity: A function, or its values.
    """
    check_draws(calibration)
    n, k = len(calibration), calibration.k or 0
    if not isinstance(quantity, Values):
        if not callable(quantity):
            raise TypeError(
                f"{name}: expected a function of theta and x, or Values; got {quantity!r}."
            )
        quantity = _applied(calibration, name, quantity)
    if quantity.draws.shape != (n, k):
        raise ValueError(
            f"{name}: expected values at ({n}, {k}) draws, as in the calibration; got "
            f"{tuple(quantity.draws.shape)}."
        )
    for part in (quantity.truth, quantity.draws):
        check_finite(name, part.nan_to_num(torch.nan, 0.0, 0.0), "Infinity is allowed, NaN not.")
    return quantity


def log_densities(calibration: Calibration, log_q: Quantity) -> Values:
    r"""Log-densities of q at the truths and at the draws, checked against the draws.

    They may lack a constant for each x. They cannot be those of another q: a draw of q has a
    positive density, and where draws of q are dense its density is high.

    Args:
        calibration: Pairs with draws of q.
        log_q: A function of matching rows theta (b, m) and x (b, ...), or its values.
    """
    found = evaluated(calibration, "log_q", log_q)
    absent = int((found.draws == -torch.inf).sum())
    if absent:
        raise ValueError(
            f"log_q: expected the density of the q that made theta_q, which is positive at every "
            f"draw; got zero at {absent} of {found.draws.numel()}. Truncate both to the prior, or "
            "neither."
        )
    if (found.draws == torch.inf).any() or (found.truth == torch.inf).any():
        raise ValueError("log_q: expected numbers below infinity; got infinity.")
    _check_own_density(calibration, found.draws)
    return found


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


def _applied(calibration: Calibration, name: str, function: Callable[..., Any]) -> Values:
    """Evaluates a function of rows at truths and draws, step by step."""
    assert calibration.theta_q is not None
    members = torch.cat([calibration.theta[:, None], calibration.theta_q], 1)
    r = members.shape[1]
    parts = []
    for sets, x in zip(
        members.split(max(1, ROWS // r)), calibration.x.split(max(1, ROWS // r)), strict=True
    ):
        with torch.no_grad(), isolated(stream(0, "quantity")):
            given = function(sets.flatten(0, 1), x.repeat_interleave(r, 0))
        values = as_tensors({name: given})[name].to(members.device)
        if values.shape != (len(sets) * r,):
            raise ValueError(
                f"{name}: expected a function that maps theta (b, m) and x (b, ...) to (b,); got "
                f"{tuple(values.shape)} for b = {len(sets) * r}."
            )
        parts.append(values.unflatten(0, (len(sets), r)))
    table = torch.cat(parts)
    return Values(table[:, 0], table[:, 1:])


def _ranks(name: str, values: Values, generator: torch.Generator) -> np.ndarray:
    """Ranks (n,), ties broken by chance."""
    truth, draws = values.truth[:, None], values.draws
    below = (draws < truth).sum(1).cpu()
    ties = (draws == truth).sum(1).cpu()
    if bool((ties == draws.shape[1]).all()):
        raise ValueError(
            f"{name}: expected a quantity that varies among the draws of q; got a constant at "
            "every x."
        )
    chance = torch.rand(len(ties), generator=generator, dtype=torch.double)
    return np.asarray((below + (chance * (ties + 1)).long()).numpy())


def _check_own_density(calibration: Calibration, log_q: Tensor) -> None:
    r"""Refuses densities (n, k) that do not rise where the draws they should belong to are dense.

    Within each set, :math:`-m \log` of the distance to a near neighbour estimates
    :math:`\log q` up to a constant; its slope in the densities given is one but for the width of
    the neighbourhood. Slopes far from that are of another q.
    """
    assert calibration.theta_q is not None
    k = log_q.shape[1]
    if k < 2 * NEIGHBOUR:
        return
    draws = calibration.theta_q[:SETS, :DRAWS].double()
    given = log_q[:SETS, :DRAWS].double()
    draws = draws - draws.mean(1, keepdim=True)
    spread = draws.std(1, keepdim=True)
    draws = draws / torch.where(spread > 0, spread, torch.ones_like(spread))
    distances = torch.cdist(draws, draws).kthvalue(NEIGHBOUR + 1, dim=2).values
    usable = (distances > 0).all(1)
    if not usable.any():
        return
    dense = -calibration.m * distances[usable].log()
    given = given[usable]
    dense, given = (part - part.mean(1, keepdim=True) for part in (dense, given))
    square = given.square().sum()
    if square < 0.05 * given.numel():
        return
    slope = (dense * given).sum() / square
    error = (dense - slope * given).std() / square.sqrt() * NEIGHBOUR**0.5
    if (slope < 2 * error < 0.2) or slope - 4 * error > 8:
        raise ValueError(
            "log_q: expected the density of the q that made theta_q, high where its draws are "
            f"dense; got densities along which the draws' own density has slope {slope:.2f}, far "
            "from 1. Are rows in another order, or densities those of another x or q?"
        )

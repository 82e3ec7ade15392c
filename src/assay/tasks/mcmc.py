r"""Draws of an unnormalised density, by many short chains that know nothing of each other.

Each chain is a random walk of Metropolis and gives one draw, its last state, so that draws are
independent and exchangeable, as tests of samples want them. Proposals are differences of two
states of a fixed archive, :math:`\theta' = \theta + \gamma (\zeta_a - \zeta_b) + \epsilon`, of
which a tenth have :math:`\gamma = 1` and can leap from mode to mode. The archive comes from a
pilot: chains of their own, which walk by each other's differences from where they start to the
target. It holds the states at their end, and some on the way, for chains that are still far. As it
stays fixed afterwards, each chain keeps the target whatever the pilot found; the pilot only
decides how fast it moves.

References: ter Braak 2006, *A Markov chain Monte Carlo version of the genetic algorithm
differential evolution*; ter Braak and Vrugt 2008, *Differential evolution Markov chain with
snooker updater and fewer chains*.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from ..door import check_count, check_finite

__all__ = ["Chains", "sample_mcmc"]

# The share of leaps with gamma = 1.
LEAPS = 0.1
# Other leaps are this many powers of ten shorter than the best for a normal target, at most.
SPAN = 0.5
# The noise that lets a chain reach every point, in deviations of the archive.
NOISE = 1e-3

# The share of leaps that are differences of the pilot's last states.
LAST = 0.5
# How often a start of no density is drawn again.
TRIES = 1000

LogDensity = Callable[[Tensor], Tensor]
Start = Callable[[int, torch.Generator], Tensor]


class Chains(NamedTuple):
    """The last states of independent chains.

    Args:
        theta: One state of each chain, with shape (n, m).
        acceptance: The share of proposals that were accepted.
        steps: The number of steps that each chain has made.
    """

    theta: Tensor
    acceptance: float
    steps: int


def sample_mcmc(
    log_density: LogDensity,
    start: Start,
    n: int,
    generator: torch.Generator,
    *,
    steps: int = 500,
    pilots: int = 200,
) -> Chains:
    """Runs n independent chains side by side, and returns the last state of each.

    Args:
        log_density: Takes points (k, m) and returns log-densities (k,) but for a constant, minus
            infinity where there is no mass.
        start: Takes a number k and a generator and returns starts (k, m), more dispersed than the
            target; the `sample` of a prior will do. A start of no density is drawn again. Between
            modes far apart and narrow, the shares of chains remain much as they started.
        n: The number of chains, and of draws.
        generator: The source of all noise, on the CPU.
        steps: The number of steps of each chain, and of each pilot before. For ten parameters, and
            starts five times as wide as the target, 500 are enough and 300 are not.
        pilots: The number of pilots; some twenty for each dimension are enough.

    Example:
        >>> def normal(theta):
        ...     return -0.5 * (theta - 3).square().sum(1)
        >>> def start(n, generator):
        ...     return 10 * torch.randn(n, 2, generator=generator)
        >>> chains = sample_mcmc(normal, start, 1000, torch.Generator().manual_seed(0))
        >>> chains.theta.mean(0).round(decimals=0), chains.steps
        (tensor([3., 3.]), 500)
    """
    n, steps = check_count("n", n), check_count("steps", steps)
    pilots = check_count("pilots", pilots, 10)
    archive = _pilot(log_density, start, pilots, steps, generator)
    theta, level = _starts(log_density, start, n, generator)
    accepted = theta.new_zeros(())
    for _ in range(steps):
        theta, level, moved = _step(log_density, theta, level, archive, generator)
        accepted += moved
    return Chains(theta, float(accepted) / steps, steps)


def _pilot(
    log_density: LogDensity, start: Start, n: int, steps: int, generator: torch.Generator
) -> Tensor:
    """States (s, n, m) of chains that use each other: after 0, 1, 2, 4, ... and all steps."""
    theta, level = _starts(log_density, start, n, generator)
    archive = [theta]
    for step in range(1, steps + 1):
        theta, level, _ = _step(log_density, theta, level, theta[None], generator)
        if step & (step - 1) == 0 or step == steps:
            archive.append(theta)
    return torch.stack(archive)


def _step(
    log_density: LogDensity,
    theta: Tensor,
    level: Tensor,
    archive: Tensor,
    generator: torch.Generator,
) -> tuple[Tensor, Tensor, Tensor]:
    """Chains (n, m) after a step, their log-densities (n,), and the share that moved."""
    proposed = theta + _leaps(archive, len(theta), generator)
    found = _evaluate(log_density, proposed)
    drop = torch.rand(len(theta), generator=generator).log().to(level)
    take = found - level > drop
    theta = torch.where(take[:, None], proposed, theta)
    return theta, torch.where(take, found, level), take.to(theta).mean()


def _leaps(archive: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Proposed moves (n, m): differences of two states in an archive (s, k, m), of all lengths."""
    ages, size, m = archive.shape
    last = torch.rand(n, generator=generator) < LAST
    age = torch.where(last, ages - 1, torch.randint(ages, (n,), generator=generator))
    first = torch.randint(size, (n,), generator=generator)
    second = (first + torch.randint(1, size, (n,), generator=generator)) % size
    shorter = 10 ** (-SPAN * torch.rand(n, 1, generator=generator))
    whole = torch.rand(n, 1, generator=generator) < LEAPS
    gamma = torch.where(whole, 1.0, 2.38 / math.sqrt(2 * m) * shorter).to(archive)
    noise = NOISE * torch.randn(n, m, generator=generator).to(archive)
    age, first, second = (index.to(archive.device) for index in (age, first, second))
    return gamma * (archive[age, first] - archive[age, second]) + noise * archive[-1].std(0)


def _starts(
    log_density: LogDensity, start: Start, n: int, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Starts (n, m) of positive density, and its logarithms (n,); others are drawn again."""
    theta = _drawn(start, n, generator)
    level = _evaluate(log_density, theta)
    for _ in range(TRIES):
        nowhere = (level == -torch.inf).nonzero().flatten()
        if not len(nowhere):
            return theta, level
        again = _drawn(start, len(nowhere), generator)
        theta, level = theta.clone(), level.clone()
        theta[nowhere], level[nowhere] = again, _evaluate(log_density, again)
    raise ValueError(
        f"start: expected points of positive density; got none for {len(nowhere)} of {n} chains "
        f"in {TRIES} tries."
    )


def _drawn(start: Start, n: int, generator: torch.Generator) -> Tensor:
    theta = start(n, generator)
    if theta.ndim != 2 or len(theta) != n:
        raise ValueError(f"start: expected shape ({n}, m); got {tuple(theta.shape)}.")
    check_finite("start", theta)
    return theta


def _evaluate(log_density: LogDensity, theta: Tensor) -> Tensor:
    with torch.no_grad():
        found = log_density(theta)
    if found.shape != theta.shape[:1]:
        raise ValueError(f"log_density: expected shape ({len(theta)},); got {tuple(found.shape)}.")
    wrong = found.isnan() | (found == torch.inf)
    if wrong.any():
        first = theta[wrong][0].tolist()
        raise ValueError(
            f"log_density: expected numbers or minus infinity; got {float(found[wrong][0])} at "
            f"{first}."
        )
    return found

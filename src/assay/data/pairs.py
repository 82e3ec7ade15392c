"""Pairs that a simulator makes for a check at x_o: some from the prior, the others around x_o.

A first part of the simulations has parameters of the prior. It tells where x_o lies among all
observations, and how q does on average. All others have parameters that are drawn around q at x_o
(:class:`~assay.data.proposal.Around`), where they tell most, and sets whose members are
exchangeable: tests are exact, since the proposal depends on x_o and on draws of q there alone.
"""

import os
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from .._support.inputs import (
    check_count,
    check_executor,
    check_finite,
    check_function,
    check_kind,
    check_path,
    cpu,
)
from .._support.random import Seed, seed_of, stream
from .calibration import Calibration, Draws
from .draw import PATIENT, Drawing, Drawn, draw_observed, drawn_at
from .posterior import Embed, Posterior, as_posterior
from .proposal import (
    RESERVE,
    Around,
    Density,
    NoCompanions,
    as_density,
    called,
    companions,
    prior_over_proposal,
)
from .simulator import Form, Runner, Simulated, form_of, resumed

# The share of simulations whose parameters are of the prior, and how many there are at least,
# where half of all are as many: they say whether x_o is like the simulations.
FIRST, FEWEST_FIRST = 0.2, 200
# The share of the others that is near x_o, where it is the only one, and at least.
MOST_NEAR, LEAST_NEAR = 0.8, 0.2
# Simulations of one draw of q at each x_o: a share of all, and how many there are at least, or
# none, and at most.
PREDICTIVE, LEAST, MOST = 0.1, 19, 199
# The fewest simulations, and draws of q at each x beyond the number of parameters.
FEWEST, ENOUGH = 50, 4


@dataclass(frozen=True, eq=False)
class Simulations:
    """A simulator and its prior, how many simulations are made, and where.

    Args:
        simulator: Takes parameters (b, m) and returns observations (b, ...), a row for each; or
            takes one vector (m,) and returns one observation. Whether it takes tensors or NumPy
            arrays is found out, too. Random numbers come from global generators.
        prior: A torch distribution over m parameters, or a
            :class:`~assay.data.proposal.Density`.
        n: How many simulations are made.
        executor: Any :class:`concurrent.futures.Executor`; simulations are made here if None.
            Threads take turns, since global generators are one for all of them.
        resume: A folder in which simulations are kept as they are made. The same call with the
            same folder makes only those that are missing.
    """

    simulator: Callable[[Any], Any]
    prior: Any
    n: int = 2000
    executor: Executor | None = None
    resume: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        check_function("simulator", self.simulator, "a function of parameters")
        check_executor(self.executor)
        if self.resume is not None:
            check_path(self.resume, "resume", "a folder, or None")
        object.__setattr__(self, "prior", as_density("prior", self.prior))
        object.__setattr__(self, "n", check_count("simulations", self.n, FEWEST))

    def runner(self, draw: Callable[[int, int], Tensor], x_o: Tensor, seed: int) -> Runner:
        """What runs the simulator, in a form that is found out or was kept."""
        find = partial(form_of, self.simulator, draw, x_o, seed)
        if self.resume is None:
            return Runner(self.simulator, find(), seed, self.executor)
        call = {"seed": seed, "simulations": self.n, "x_o": x_o.tolist()}
        form = resumed(self.resume, call, find)
        return Runner(self.simulator, form, seed, self.executor, Path(self.resume))


@dataclass(frozen=True, eq=False)
class Pairs:
    """Pairs that a simulator made for a check at x_o.

    Args:
        prior: Pairs whose parameters are of the prior, with draws of q.
        near: Pairs whose parameters are drawn around q at x_o, in exchangeable sets.
        draws: The observations (o, ...), with draws of q there.
        predicted: Simulations (o, n, ...) of one draw of q at each observation, and these draws
            (o, m).
        made: How many simulations of each kind were made.
        failed: How many of each failed.
        error: The first error; empty if failures were NaN or infinity.
        form: How the simulator was called.
    """

    prior: Calibration
    near: Calibration
    draws: Draws
    predicted: tuple[Tensor, Tensor]
    made: tuple[int, int, int]
    failed: tuple[int, int, int]
    error: str
    form: Form

    @property
    def around(self) -> bool:
        """Whether pairs around the observations decide; if not, those of the prior do."""
        return self.near is not self.prior

    @property
    def share(self) -> float | None:
        """What is near: a large share of what was drawn around one observation, less for many."""
        return None if not self.around else max(LEAST_NEAR, MOST_NEAR / len(self.draws.x))

    @property
    def sentence(self) -> str:
        """How the pairs were made."""
        o = len(self.draws.x)
        first, around, repeated = self.made
        more = f", {repeated} repeat a draw of q there" if repeated else ""
        made = (
            f"{first} simulations have parameters from the prior, {around} have parameters drawn "
            f"around q at {'x_o' if o == 1 else f'the {o} observations'}{more} "
            f"({self.form.words})."
        )
        if self.around:
            made += " Only the second decide."
        else:
            made += " Only the first decide: q at x_o is far from q at what it makes."
        return " ".join([made, *self._failures, *self._repetition])

    @property
    def _failures(self) -> list[str]:
        first = f"the first: {self.error}" if self.error else "NaN or infinity"
        said = (
            f"{sum(self.failed)} of them failed ({first}) and were left out: q is tested against "
            "the posterior given that a simulation succeeds. This is what a network learns if "
            "failed pairs are left out of its training. A posterior that comes from a likelihood "
            "is another one if failures depend on parameters."
        )
        return [said] if any(self.failed) else []

    @property
    def _repetition(self) -> list[str]:
        said = (
            "The simulator keeps a random generator of its own: the same seed does not give the "
            "same simulations, and processes that are copies of each other may repeat them."
        )
        return [] if self.form.repeats else [said]


def pairs_around(
    posterior: Any,
    x_o: Any,
    simulations: Simulations,
    *,
    k: int = 16,
    draws: int = 1000,
    embed: Embed | None = None,
    drawing: Drawing = PATIENT,
    seed: Seed = 0,
) -> Pairs:
    """Simulates pairs for a check at x_o, in two stages, and a draw of q at x_o.

    Args:
        posterior: An object with ``sample(x, n)``, or such a function.
        x_o: One observation or many, over which the simulations are then spread; or
            :class:`assay.Draws`.
        simulations: The simulator, its prior, and how many simulations are made.
        k: Draws of q in a set; more where there are many parameters.
        draws: Draws of q that are made at each x_o.
        embed: Turns observations into features, as in :class:`assay.Calibration`.
        drawing: How draws of q are made: time limits, failures and resumption.
        seed: An int or a generator. The same seed gives the same pairs.

    Example:
        >>> prior = torch.distributions.MultivariateNormal(torch.zeros(1), torch.eye(1))
        >>> source = Simulations(lambda theta: theta + torch.randn(theta.shape), prior, 100)
        >>> posterior = lambda x, n: x / 2 + 0.5**0.5 * torch.randn(n, 1)
        >>> pairs = pairs_around(posterior, [0.5], source)
        >>> pairs.near
        Calibration(n=50, m=1, k=16, x=(1,), space='parameters')
        >>> pairs.sentence
        '50 simulations have parameters from the prior, 50 have parameters drawn around q at ...'
    """
    check_kind("simulations", simulations, "Simulations(simulator, prior)", "simulator", "prior")
    source, seed = simulations, seed_of(seed)
    given = x_o if isinstance(x_o, Draws) else Draws(x_o, n=draws)
    check_finite("x_o", given.x)
    runner = source.runner(partial(_drawn, source.prior), given.x, seed)
    sampler = as_posterior(posterior, given.x.reshape(-1, *runner.form.shape))
    first = runner.run("prior", partial(_drawn, source.prior), _first(source.n))
    k = max(check_count("k", k), first.theta.shape[1] + ENOUGH)
    sets = partial(_sets, sampler, seed=seed, how=drawing)
    theta, x, drawn = sets(first, k, purpose="draws", label="simulation {} of the prior")
    wide = Calibration(theta[:, 0], x, theta[:, 1:], embed, remarks=drawn.left_out)
    many = _observed(sampler, wide, given, seed, drawing)
    proposal = Around(wide.observe(many, seed).draws, source.prior)
    made = _shared(source.n, len(many.x))
    second = replace(runner, form=first.form).run("around", partial(_drawn, proposal), made[1])
    purpose, label = "draws around x_o", "simulation {} around x_o"
    theta, x, drawn = sets(second, RESERVE * k, purpose=purpose, label=label)
    try:
        kept = companions(theta, source.prior, proposal, k, seed)
    except NoCompanions:  # q at x_o is far from q at what is simulated around it
        near = wide
    else:
        weights = prior_over_proposal(theta[:, 0], source.prior, proposal).to(theta)
        plain: Any = {"weights": weights, "plain_draws": theta[:, 1 : k + 1]}
        near = Calibration(theta[:, 0], x, kept, embed, remarks=drawn.remarks, **plain)
    ready = replace(runner, form=second.form)
    one = one_of(cast(Tensor, many.theta), seed).to(second.theta)
    each = range(len(one) if made[2] else 0)
    third = [ready.repeat(f"predictive-{i}", one[i], made[2] // len(one)) for i in each]
    fewest = min((len(part.x) for part in third), default=0)
    some = [part.x[:fewest] for part in third]
    predicted = torch.stack(some) if some else many.x[:, None][:, :0]
    failed = first.failed, second.failed, sum(part.failed for part in third)
    error = next((part.error for part in (first, second, *third) if part.error), "")
    return Pairs(wide, near, many, (predicted, one), made, failed, error, second.form)


def _drawn(density: Density, n: int, seed: int) -> Tensor:
    """Parameters (n, m) of a prior, or of a proposal."""
    theta = called("prior", density.sample, seed, n)
    if theta.ndim != 2 or len(theta) != n:
        raise ValueError(
            f"prior: expected draws with shape ({n}, m); got {tuple(theta.shape)}. Independent "
            "parameters need torch.distributions.Independent(marginals, 1)."
        )
    return theta


def _sets(
    sampler: Posterior, made: Simulated, n: int, seed: int, purpose: str, label: str, how: Drawing
) -> tuple[Tensor, Tensor, Drawn]:
    """The truth with n draws of q (b, 1 + n, m), and x (b, ...), where draws can be made."""
    drawn = drawn_at(sampler, made.x, n, seed, purpose, how, label.format)
    theta, x = made.theta[drawn.kept], made.x[drawn.kept]
    sets = torch.cat([theta[:, None], drawn.theta.to(theta)], 1)
    return sets, x, drawn


def _observed(
    sampler: Posterior, wide: Calibration, given: Draws, seed: int, how: Drawing
) -> Draws:
    """The observations with a leading axis, and draws of q there."""
    many = given.many(wide.observation(given))
    if many.theta is not None:
        return many
    return Draws(many.x, draw_observed(sampler, many.x, given.n, seed, how))


def _first(n: int) -> int:
    """How many of n simulations have parameters of the prior."""
    return max(round(FIRST * n), min(FEWEST_FIRST, n // 2))


def _shared(n: int, o: int) -> tuple[int, int, int]:
    """How many of n simulations are of the prior, around o observations, and of draws at them."""
    each = min(round(PREDICTIVE * n / o), MOST)
    first, repeated = _first(n), each * o if each >= LEAST else 0
    return first, n - first - repeated, repeated


def one_of(theta: Tensor, seed: int) -> Tensor:
    """One of the draws (o, s, m) at each observation, by chance, with shape (o, m)."""
    which = cpu.randint(theta.shape[1], (len(theta),), generator=stream(seed, "predictive"))
    return theta[cpu.arange(len(theta)), which]

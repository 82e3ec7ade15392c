r"""Bernoulli GLM: spikes of a neuron driven by white noise.

.. math:: \theta \sim N(0, P^{-1}), \qquad y_t \sim \text{Bernoulli}(\sigma(X_t \theta)),

for 100 time steps, a bias and a filter of nine weights. The raw observation is y; its summary
:math:`X^T y` is sufficient, so both tasks have the same posterior. That is log-concave: draws come
by rejection from a multivariate t distribution around its mode, exactly if the bound holds that an
optimiser found; what exceeds it is counted.

Reference: Lueckmann et al. 2021, *Benchmarking simulation-based inference*.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.optimize
import torch
from torch import Tensor
from torch.nn.functional import softplus

from assay._support.inputs import cpu

from .priors import Gaussian
from .task import Exact, Observations, Task, benchmark, rejection

STEPS, M = 100, 10
DEGREES, INFLATION = 10.0, 1.1
PILOTS, STARTS = 20_000, 5
MOST_PROPOSALS = 10**8


class BernoulliGLM(Task):
    """Ten weights and the ten sufficient statistics of 100 spikes."""

    name = "bernoulli_glm"
    parameters = ("bias", *(f"filter_{j}" for j in range(1, M)))
    d = M

    @property
    def prior(self) -> Gaussian:
        """A normal prior that wants a smooth filter."""
        return Gaussian(_precision())

    def _simulate(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        return self._summary(_spikes(theta, generator))

    def _summary(self, spikes: Tensor) -> Tensor:
        """What is observed of spikes (n, STEPS)."""
        return spikes @ _design().to(spikes)

    def _statistic(self, x: Tensor) -> Tensor:
        """The sufficient statistic (..., M) of observations (..., d)."""
        return x

    def _posterior(self, x: Tensor, n: int, generator: torch.Generator) -> Exact:
        target = _Target(self._statistic(x))
        proposal = _Proposal.around(target.mode, target.curvature(target.mode))
        bound, size = _bound(target, proposal, generator), max(4 * n, 1000)
        rounds = math.ceil(MOST_PROPOSALS / size)
        batches = (proposal.sample(size, generator) for _ in range(rounds))
        weighted = ((theta, _ratio(target, proposal, theta) - bound) for theta in batches)
        return rejection(x, n, generator, weighted)

    def _log_likelihood(self, theta: Tensor, x: Tensor) -> Tensor:
        """Of the spikes; for the summary, but for the number of spike trains that have it."""
        logits = theta @ _design().to(theta).mT
        return (theta * self._statistic(x)).sum(1) - softplus(logits).sum(1)


class BernoulliGLMRaw(BernoulliGLM):
    """Ten weights and 100 spikes."""

    name = "bernoulli_glm_raw"
    d = STEPS

    def _summary(self, spikes: Tensor) -> Tensor:
        return spikes

    def _statistic(self, x: Tensor) -> Tensor:
        return x @ _design().to(x)

    @property
    def observations(self) -> Observations:
        """The ten observations of the benchmark, which come with true parameters."""
        stored = benchmark()[BernoulliGLM.name]
        x = cpu.tensor(stored["observation_raw"], dtype=torch.float32)
        return Observations(x, cpu.tensor(stored["true_parameters"]))


@cache
def _design() -> Tensor:
    """One, and the stimulus at delays of 0 to 8 steps, with shape (STEPS, M)."""
    stimulus = np.random.RandomState(42).randn(STEPS).astype(np.float32).astype(np.float64)
    columns = [np.ones(STEPS)]
    columns += [np.concatenate([np.zeros(j), stimulus[: STEPS - j]]) for j in range(M - 1)]
    return torch.from_numpy(np.stack(columns, 1))


@cache
def _precision() -> Tensor:
    """The precision of the prior: second differences of the filter, and a bias apart."""
    size = M - 1
    difference = cpu.eye(size, dtype=torch.float64)
    difference -= torch.diag(cpu.ones(size - 1, dtype=torch.float64), -1)
    growing = (cpu.arange(size, dtype=torch.float64) / size).sqrt()
    factor = difference @ difference + torch.diag(growing)
    precision = cpu.zeros(M, M, dtype=torch.float64)
    precision[0, 0] = 0.5
    precision[1:, 1:] = factor.mT @ factor
    return precision


def _spikes(theta: Tensor, generator: torch.Generator) -> Tensor:
    """Spikes (n, STEPS) for weights (n, M), in the precision of theta."""
    chances = torch.sigmoid(theta @ _design().to(theta).mT)
    return (cpu.rand(chances.shape, generator=generator).to(theta) < chances).to(theta)


@dataclass(frozen=True, eq=False)
class _Target:
    """The posterior's log-density, up to a constant, given the sufficient statistic (M,)."""

    statistic: Tensor

    def log_density(self, theta: Tensor) -> Tensor:
        """Log-densities (n,) of weights (n, M)."""
        likelihood = theta @ self.statistic - softplus(theta @ _design().mT).sum(1)
        return likelihood - 0.5 * ((theta @ _precision()) * theta).sum(1)

    def slope(self, theta: Tensor) -> Tensor:
        """Its gradient (M,) at one point."""
        chance = torch.sigmoid(_design() @ theta)
        return self.statistic - _design().mT @ chance - _precision() @ theta

    def curvature(self, theta: Tensor) -> Tensor:
        """Minus its second derivatives (M, M) at one point."""
        chance = torch.sigmoid(_design() @ theta)
        return _design().mT @ ((chance * (1 - chance))[:, None] * _design()) + _precision()

    @property
    def mode(self) -> Tensor:
        """The point (M,) of the highest density, by Newton's method with halved steps."""
        theta = cpu.zeros(M, dtype=torch.float64)
        for _ in range(100):
            slope = self.slope(theta)
            step: Tensor = torch.linalg.solve(self.curvature(theta), slope)
            here = self.log_density(theta[None])
            while self.log_density((theta + step)[None]) < here and step.abs().max() > 1e-12:
                step = step / 2
            theta = theta + step
            if slope.abs().max() < 1e-9:
                break
        return theta


@dataclass(frozen=True, eq=False)
class _Proposal:
    """A multivariate t distribution: its centre (M,), and the lower factor of 1 / scale (M, M)."""

    centre: Tensor
    factor: Tensor

    @classmethod
    def around(cls, mode: Tensor, curvature: Tensor) -> "_Proposal":
        """Around a mode, a little wider than the curvature says."""
        return cls(mode, torch.linalg.cholesky(curvature / INFLATION**2))

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws with shape (n, M)."""
        normal = cpu.randn(M, n, generator=generator, dtype=torch.float64)
        gamma = cpu.randn(int(DEGREES), n, generator=generator, dtype=torch.float64)
        heavy = normal * (DEGREES / gamma.square().sum(0)).sqrt()
        moved: Tensor = torch.linalg.solve_triangular(self.factor.mT, heavy, upper=True)
        return self.centre + moved.mT

    def log_density(self, theta: Tensor) -> Tensor:
        """Log-densities (n,) of points (n, M), up to a constant."""
        square = ((theta - self.centre) @ self.factor).square().sum(1)
        return -0.5 * (DEGREES + M) * torch.log1p(square / DEGREES)

    def slope(self, theta: Tensor) -> Tensor:
        """The gradient (M,) at one point."""
        along = (theta - self.centre) @ self.factor
        return -(DEGREES + M) / (DEGREES + along @ along) * (self.factor @ along)


def _ratio(target: _Target, proposal: _Proposal, theta: Tensor) -> Tensor:
    """The log-ratios (n,) of target to proposal at weights (n, M)."""
    return target.log_density(theta) - proposal.log_density(theta)


def _bound(target: _Target, proposal: _Proposal, generator: torch.Generator) -> float:
    """The largest log-ratio of target to proposal, from the best of many pilots uphill."""
    pilots = proposal.sample(PILOTS, generator)

    def down(point: np.ndarray) -> tuple[float, np.ndarray]:
        theta = torch.from_numpy(point)
        slope = target.slope(theta) - proposal.slope(theta)
        return -float(_ratio(target, proposal, theta[None])), -slope.numpy()

    best: list[float] = [
        -scipy.optimize.minimize(down, start.numpy(), jac=True, method="L-BFGS-B").fun
        for start in pilots[_ratio(target, proposal, pilots).topk(STARTS).indices]
    ]
    # A little above, for what an optimiser leaves unfound.
    return max(best) + math.log1p(1e-6)

r"""Linear Gaussian models, whose posteriors are normal at every x.

.. math:: \theta \sim N(0, I_m), \qquad x \mid \theta \sim N(B \theta, R), \qquad
    \theta \mid x \sim N(K x, V).

They are their own exact flows: :math:`z = L^{-1}(\theta - K x)` with :math:`V = L L^T` is standard
normal.
"""

import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from assay._support.inputs import MOST_SQUARED, check_count, check_number, cpu
from assay._support.random import stream
from assay.data.posterior import StandardNormal

from .priors import Gaussian
from .task import Direct


class LinearGaussian(Direct):
    """A linear Gaussian model; a flow, too, and an exact one."""

    @property
    @abstractmethod
    def gain(self) -> Tensor:
        """The matrix K (m, d) from observations to posterior means, in double precision."""

    @property
    @abstractmethod
    def covariance(self) -> Tensor:
        """The posterior covariance V (m, m), the same at every x."""

    @property
    def prior(self) -> Gaussian:
        """Standard normal."""
        return Gaussian(cpu.eye(self.m, dtype=torch.float64))

    @property
    def base(self) -> StandardNormal:
        """The base of the exact flow."""
        return StandardNormal(self.m)

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, d) to latents (n, m)."""
        rest = theta.double() - x.double() @ self.gain.mT
        z: Tensor = torch.linalg.solve_triangular(self._factor, rest.mT, upper=False)
        return z.mT.to(theta.dtype)

    def sample(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (n, m) at one observation (d,), by the global generator, as flows do."""
        return self.posterior(x, n, torch.default_generator).theta

    def _draws(self, x: Tensor, k: int, generator: torch.Generator) -> Tensor:
        noise = cpu.randn(len(x), k, self.m, generator=generator, dtype=torch.float64)
        return (x @ self.gain.mT)[:, None] + noise @ self._factor.mT

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = x @ self.gain.mT
        return mean, self.covariance.diagonal().sqrt().expand_as(mean)

    @cached_property
    def _factor(self) -> Tensor:
        factor: Tensor = torch.linalg.cholesky(self.covariance)
        return factor


@dataclass(frozen=True, eq=False, repr=False)
class ConjugateGaussian(LinearGaussian):
    """A random linear map with unit noise, and observed numbers that tell nothing.

    Of so many parameters (size), with so many observed numbers that depend on them (seen) and so
    many that are noise alone (nuisance); and the standard deviation of the noise.

    Example:
        >>> ConjugateGaussian(3, 5, nuisance=2)
        ConjugateGaussian(m=3, d=7)
    """

    size: int = 3
    seen: int = 5
    nuisance: int = 0
    noise: float = 1.0

    name = "conjugate_gaussian"

    def __post_init__(self) -> None:
        for name, least in {"size": 1, "seen": 1, "nuisance": 0}.items():
            object.__setattr__(
                self, name, check_count(name, getattr(self, name), least, MOST_SQUARED)
            )
        object.__setattr__(self, "noise", check_number("noise", self.noise))

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        """The names of the parameters."""
        return tuple(f"theta_{j}" for j in range(1, self.size + 1))

    @property
    def d(self) -> int:  # type: ignore[override]
        """The length of an observation."""
        return self.seen + self.nuisance

    @cached_property
    def matrix(self) -> Tensor:
        """The map B (d, m), zero where nothing is seen."""
        generator = stream(0, "conjugate", self.size, self.seen)
        seen = cpu.randn(self.seen, self.size, generator=generator, dtype=torch.float64)
        return torch.cat([seen / math.sqrt(self.size), seen.new_zeros(self.nuisance, self.size)])

    @cached_property
    def covariance(self) -> Tensor:
        """The posterior covariance V (m, m), the same at every x."""
        told = self.matrix.mT @ self.matrix / self.noise**2
        covariance: Tensor = torch.linalg.inv(cpu.eye(self.size, dtype=torch.float64) + told)
        return covariance

    @cached_property
    def gain(self) -> Tensor:
        """The matrix K (m, d) from observations to posterior means, in double precision."""
        return self.covariance @ self.matrix.mT / self.noise**2

    def _simulate(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        noise = self.noise * cpu.randn(len(theta), self.d, generator=generator)
        return theta @ self.matrix.to(theta).mT + noise.to(theta)

    def _log_likelihood(self, theta: Tensor, x: Tensor) -> Tensor:
        square = ((x - theta @ self.matrix.mT) / self.noise).square().sum(1)
        return -0.5 * square - self.d * math.log(self.noise * math.sqrt(2 * math.pi))


@dataclass(frozen=True, eq=False, repr=False)
class StateSpace(LinearGaussian):
    r"""A damped, driven oscillator seen through noise, at d times.

    The state moves by :math:`s_{t+1} = F s_t + w_t` and is seen as :math:`x_t = s_{t,1} + v_t`;
    its start :math:`s_0` and a constant drive are the parameters. Likelihood and posterior come
    from a Kalman filter over the state and the parameters together, in time linear in d.
    """

    d: int = 200

    name = "state_space"
    parameters = ("position", "velocity", "drive")

    def __post_init__(self) -> None:
        object.__setattr__(self, "d", check_count("d", self.d, 1, MOST_SQUARED))

    PROCESS, NOISE = 0.1, 0.5
    ANGLE, DAMPING, DRIVE = 0.2, 0.98, 0.1

    @property
    def move(self) -> Tensor:
        """The matrix F (2, 2)."""
        c, s = math.cos(self.ANGLE), math.sin(self.ANGLE)
        return self.DAMPING * cpu.tensor([[c, s], [-s, c]], dtype=torch.float64)

    @cached_property
    def gain(self) -> Tensor:
        """The matrix K (m, d) from observations to posterior means, in double precision."""
        # The filter is linear in x: feed it with every unit vector at once.
        return self._filtered(cpu.eye(self.d, dtype=torch.float64))[0].mT

    @cached_property
    def covariance(self) -> Tensor:
        """The posterior covariance V (m, m), the same at every x."""
        return self._filtered(cpu.zeros(1, self.d, dtype=torch.float64))[1]

    def _filtered(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means (n, m) and covariance (m, m) of the parameters given observations (n, d)."""
        start, move, noise = self._model()
        mean, covariance = x.new_zeros(len(x), 5), start @ start.mT
        for t in range(self.d):
            mean, covariance = mean @ move.mT, move @ covariance @ move.mT + noise
            gain = covariance[:, 0] / (covariance[0, 0] + self.NOISE**2)
            mean = mean + (x[:, t] - mean[:, 0])[:, None] * gain
            covariance = covariance - torch.outer(gain, covariance[0])
        return mean[:, 2:], covariance[2:, 2:]

    def _model(self) -> tuple[Tensor, Tensor, Tensor]:
        """Start (5, 3), motion (5, 5) and noise (5, 5) of state and parameters together."""
        start, move = cpu.zeros(5, 3).double(), cpu.eye(5).double()
        start[:2, :2], start[2:] = cpu.eye(2), cpu.eye(3)
        move[:2, :2], move[0, 4] = self.move, self.DRIVE
        noise = cpu.zeros(5, 5).double()
        noise[:2, :2] = self.PROCESS**2 * cpu.eye(2)
        return start, move, noise

    def _simulate(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        state, drive, move = theta[:, :2].double(), theta[:, 2].double(), self.move
        noise = cpu.randn(self.d, len(theta), 3, generator=generator, dtype=torch.float64)
        seen = []
        for t in range(self.d):
            state = state @ move.mT + self.PROCESS * noise[t, :, :2]
            state[:, 0] += self.DRIVE * drive
            seen.append(state[:, 0] + self.NOISE * noise[t, :, 2])
        return torch.stack(seen, 1).to(theta)

    def _log_likelihood(self, theta: Tensor, x: Tensor) -> Tensor:
        """By the innovations of a Kalman filter, given the parameters."""
        mean, move = theta[:, :2], self.move
        covariance, total = cpu.zeros(2, 2).double(), cpu.zeros(len(theta)).double()
        for t in range(self.d):
            mean = mean @ move.mT
            mean[:, 0] += self.DRIVE * theta[:, 2]
            covariance = move @ covariance @ move.mT + self.PROCESS**2 * cpu.eye(2)
            variance = covariance[0, 0] + self.NOISE**2
            gain, surprise = covariance[:, 0] / variance, x[:, t] - mean[:, 0]
            total -= 0.5 * (surprise**2 / variance + (2 * math.pi * variance).log())
            mean = mean + surprise[:, None] * gain
            covariance = covariance - torch.outer(gain, covariance[0])
        return total

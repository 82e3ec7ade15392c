r"""Posteriors that are wrong by design, in a way that is known.

An error (:mod:`experiments.tasks.errors`) acts on draws of the true posterior in their standard
coordinates :math:`u = (\theta - \mu(x)) / \sigma(x)`, everywhere or in a region of x. It is a map
:math:`u' = g(u)`; the density of the wrong posterior is then

.. math:: q(\theta' \mid x) = p(\theta \mid x) / |\det g'|,

so that q / p is known wherever the likelihood is, without its normalising constant, and the total
variation distance is an average over draws.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from assay._support.inputs import (
    as_tensors,
    check_count,
    check_function,
    check_kind,
    check_number,
    cpu,
)
from assay._support.random import call_user_code, stream
from assay.data.calibration import Calibration
from assay.data.draw import Draws
from assay.data.posterior import StandardNormal

from .errors import Error
from .linear_gaussian import LinearGaussian
from .task import Task

# Draws by which an error is measured.
MEASURED = 20_000


class Moved(NamedTuple):
    """What an error does to the posterior at an observation.

    The mean of q less that of the truth, in standard deviations of the truth, (m,); the standard
    deviation of q over that of the truth, (m,); the total variation distance, between 0 and 1.
    """

    bias: Tensor
    dispersion: Tensor
    total_variation: float


@dataclass(frozen=True)
class Perturbed:
    """The true posterior of a task with an error, everywhere or in a region of x.

    Args:
        task: The task.
        error: The error, in a coordinate that is stated if it has one, such as ``Shift(0)``.
        size: How wrong q is, in the units of the error; zero if it is right.
        region: Takes observations (n, d) and says where the error applies, (n,); everywhere if
            None.

    Example:
        >>> from experiments.tasks.errors import Shift
        >>> from experiments.tasks import ConjugateGaussian
        >>> q = Perturbed(ConjugateGaussian(), Shift(0), 0.5, region=lambda x: x[:, 0] > 0)
        >>> round(q.moved(torch.ones(5)).total_variation, 2)
        0.28
        >>> q.moved(-torch.ones(5)).total_variation
        0.0
    """

    task: Task
    error: Error
    size: float
    region: Callable[[Tensor], Tensor] | None = None

    def __post_init__(self) -> None:
        check_number("size", self.size, strict=False)
        check_kind("task", self.task, "a Task such as ConjugateGaussian()", Task)
        check_kind("error", self.error, "one such as Shift(0)", Error)
        if self.region is not None:
            check_function("region", self.region, "a function of x, or None")
        # A coordinate that the task does not have is refused here, not at the first draw.
        self.error.distort(cpu.zeros(1, self.task.m), self.size)

    def draws(self, x: Any, k: int, generator: torch.Generator) -> Tensor:
        """Draws (n, k, m) at observations (n, d)."""
        x = self.task._checked("x", x, self.task.d)
        draws = self.task.draws(x, check_count("k", k), generator).double()
        wrong = self._wrong(x)
        if wrong.any():
            mean, deviation = (part[:, None] for part in self.task.moments(x[wrong]))
            u = ((draws[wrong] - mean) / deviation).flatten(0, 1)
            u = self.error.distort(u, self.size).unflatten(0, (-1, k))
            draws[wrong] = mean + deviation * u
        return draws.to(x.dtype)

    @property
    def base(self) -> StandardNormal:
        """The base of the exact flow, for a task that is one."""
        return self._flow.base

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, d) to latents (n, m), through the error."""
        mean, deviation = self.task.moments(x)
        undone = self.error.undo((theta.double() - mean) / deviation, self.size)
        right = torch.where(self._wrong(x)[:, None], mean + deviation * undone, theta.double())
        return self._flow.theta_to_base(right, x).to(theta.dtype)

    def sample(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (n, m) at one observation (d,), by the global generator, as flows do."""
        return self.draws(x[None], n, torch.default_generator)[0]

    @property
    def _flow(self) -> LinearGaussian:
        if not isinstance(self.task, LinearGaussian):
            expected = "expected one with latents, such as ConjugateGaussian"
            raise ValueError(f"task: {expected}; got {self.task!r}.")
        return self.task

    def calibration(self, n: int, k: int, generator: torch.Generator) -> Calibration:
        """Pairs of the task's joint with k draws of this posterior at each x."""
        theta, x = self.task.joint(n, generator)
        return Calibration(theta, x, self.draws(x, k, generator))

    def at(self, x: Any, n: int, generator: torch.Generator) -> Draws:
        """One observation (d,) with n draws there."""
        (x,) = as_tensors({"x": x}).values()
        return Draws(x, self.draws(x[None], n, generator)[0])

    def moved(self, x: Any, generator: torch.Generator | None = None) -> Moved:
        """What the error does at one observation (d,), by many draws, always the same if None."""
        (x,) = self.task._checked("x", as_tensors({"x": x})["x"][None], self.task.d)
        if not self._wrong(x[None])[0]:
            return Moved(cpu.zeros(self.task.m), cpu.ones(self.task.m), 0.0)
        generator = generator or stream(0, "moved")
        mean, deviation = (part[0] for part in self.task.moments(x[None]))
        right = self.task.posterior(x, MEASURED, generator).theta.double()
        u = (right - mean) / deviation
        wrong = self.error.distort(u, self.size)

        def log_density(u: Tensor) -> Tensor:
            return self.task.log_posterior(mean + deviation * u, x)

        # TV = E_q (1 - p / q)_+
        distance = (1 - self.error.ratio(wrong, self.size, log_density)).clamp_min(0).mean()
        bias = (wrong.mean(0) - u.mean(0)) / u.std(0)
        return Moved(bias.float(), (wrong.std(0) / u.std(0)).float(), float(distance))

    def _wrong(self, x: Tensor) -> Tensor:
        if self.region is None:
            return cpu.ones(len(x), dtype=torch.bool)
        return call_user_code("region", self.region, x).bool()

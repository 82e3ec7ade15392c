"""What a task is: a prior, a simulator, observations, and a posterior that is known."""

import json
from abc import ABC, abstractmethod
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from ..door import as_tensors, check_count, check_finite
from ..randomness import stream
from .priors import Prior

__all__ = ["Exact", "Observations", "Task", "benchmark"]


# Observations from which on progress is shown.
MANY = 1000
# Draws from which the moments of a posterior are taken.
MOMENT_DRAWS = 4000


class Exact(NamedTuple):
    """Draws of a posterior, with what the sampler knows of its own error.

    Args:
        theta: The draws, with shape (n, m).
        acceptance: The share of proposals that were accepted; one where none can be rejected.
        exceeded: Proposals whose weight exceeded the bound of a rejection sampler: with none, the
            draws are exact.
    """

    theta: Tensor
    acceptance: float = 1.0
    exceeded: int = 0


class Observations(NamedTuple):
    """The observations of a benchmark (o, d), and the parameters (o, m) that made them."""

    x: Tensor
    theta: Tensor


class Task(ABC):
    """A simulator with known answers.

    Attributes:
        name: The name by which :func:`assay.tasks.task` knows it.
        parameters: The names of its m parameters.
        d: The length of an observation.
    """

    name: ClassVar[str]
    parameters: tuple[str, ...]
    d: int

    @property
    @abstractmethod
    def prior(self) -> Prior:
        """The prior over parameters."""

    @abstractmethod
    def _simulate(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        """Observations (n, d) for parameters (n, m) of the prior's support."""

    @abstractmethod
    def _posterior(self, x: Tensor, n: int, generator: torch.Generator) -> Exact:
        """Draws n parameters at one observation (d,), in double precision."""

    @abstractmethod
    def _log_likelihood(self, theta: Tensor, x: Tensor) -> Tensor:
        """The logarithm of p(x | theta), (n,), for parameters (n, m) and observations (n, d)."""

    @property
    def m(self) -> int:
        """The number of parameters."""
        return len(self.parameters)

    def simulate(self, theta: Any, generator: torch.Generator) -> Tensor:
        """Simulates one observation for each row of parameters.

        Args:
            theta: Parameters in the support of the prior, with shape (n, m).
            generator: The source of all noise.

        Returns:
            Observations with shape (n, d).
        """
        theta = self._checked("theta", theta, self.m)
        outside = (~self.prior.inside(theta)).nonzero().flatten()
        if len(outside):
            raise ValueError(
                f"theta: expected parameters in the support of the prior, {self.prior}; got "
                f"{len(outside)} row(s) outside, the first being row {int(outside[0])}."
            )
        return self._simulate(theta, generator)

    def joint(self, n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Draws of the joint: parameters (n, m) of the prior and what they produce, (n, d)."""
        theta = self.prior.sample(check_count("n", n), generator)
        return theta, self._simulate(theta, generator)

    def posterior(self, x: Any, n: int, generator: torch.Generator) -> Exact:
        """Draws of the true posterior at one observation.

        Args:
            x: The observation, with shape (d,).
            n: The number of draws.
            generator: The source of all noise.
        """
        (x,) = as_tensors({"x": x}).values()
        if x.shape != (self.d,):
            raise ValueError(
                f"x: expected one observation of shape ({self.d},); got {tuple(x.shape)}."
            )
        check_finite("x", x[None])
        found = self._posterior(x.double(), check_count("n", n), generator)
        return found._replace(theta=found.theta.to(x.dtype))

    def draws(self, x: Any, k: int, generator: torch.Generator) -> Tensor:
        """Draws of the true posterior at many observations.

        Args:
            x: The observations, with shape (n, d).
            k: The number of draws at each.
            generator: The source of all noise.

        Returns:
            Draws with shape (n, k, m).
        """
        x = self._checked("x", x, self.d)
        found = self._draws(x.double(), check_count("k", k), generator)
        return found.to(x.dtype)

    def _draws(self, x: Tensor, k: int, generator: torch.Generator) -> Tensor:
        """One observation after the other; tasks that can do better do."""
        each = tqdm(x, "posteriors", disable=None if len(x) > MANY else True, leave=None)
        return torch.stack([self._posterior(row, k, generator).theta for row in each])

    def moments(self, x: Any) -> tuple[Tensor, Tensor]:
        """Means and standard deviations (n, m) of the true posterior at observations (n, d).

        From draws that depend on x alone, where they are not known in closed form: so they are
        functions of x, whoever asks.
        """
        x = self._checked("x", x, self.d)
        return self._moments(x.double())

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        each = tqdm(x, "moments", disable=None if len(x) > MANY else True, leave=None)
        found = []
        for row in each:
            seed = int.from_bytes(row.numpy().tobytes(), "big") % 2**62
            theta = self._posterior(row, MOMENT_DRAWS, stream(seed, "moments")).theta
            found.append(torch.stack([theta.mean(0), theta.std(0)]))
        mean, deviation = torch.stack(found, 1) if found else x.new_empty(2, 0, self.m)
        return mean, deviation

    def log_posterior(self, theta: Any, x: Any) -> Tensor:
        """The logarithm of prior times likelihood: the posterior's density but for a constant.

        Args:
            theta: Parameters, with shape (n, m).
            x: One observation (d,), or one for each row (n, d).
        """
        theta = self._checked("theta", theta, self.m).double()
        (x,) = as_tensors({"x": x}).values()
        x = self._checked("x", x.expand(len(theta), -1) if x.ndim == 1 else x, self.d).double()
        inside = self.prior.inside(theta)
        density = self.prior.log_prob(theta) + self._log_likelihood(theta, x)
        return torch.where(inside, density, -torch.inf)

    @property
    def observations(self) -> Observations:
        """The ten observations of the benchmark, which come with true parameters."""
        found = benchmark().get(self.name)
        if found is None:
            raise ValueError(
                f"task: expected one of the benchmark; got {self.name}, which is not."
            )
        return Observations(
            torch.tensor(found["observation"]), torch.tensor(found["true_parameters"])
        )

    def _checked(self, name: str, rows: Any, width: int) -> Tensor:
        (rows,) = as_tensors({name: rows}).values()
        if rows.ndim != 2 or rows.shape[1] != width:
            raise ValueError(f"{name}: expected shape (n, {width}); got {tuple(rows.shape)}.")
        check_finite(name, rows)
        checked: Tensor = rows
        return checked

    def __repr__(self) -> str:
        return f"{type(self).__name__}(m={self.m}, d={self.d})"


@cache
def benchmark() -> dict[str, dict[str, Any]]:
    """Observations, true parameters and seeds of the benchmark, by the names of tasks.

    From sbibm 1.1, (c) Lueckmann, Boelts, Greenberg, Goncalves and Macke, MIT licence.
    """
    text = files("assay.tasks").joinpath("benchmark_observations.json").read_text("utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found

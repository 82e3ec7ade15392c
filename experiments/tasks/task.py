"""What a task is: a prior, a simulator, observations, and a posterior that is known."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from tqdm import tqdm

from assay._support.inputs import as_tensors, check_count, check_finite, check_kind, cpu
from assay._support.random import stream

from .priors import Prior

# Observations from which on progress is shown.
MANY = 1000
# Draws from which the moments of a posterior are taken.
MOMENT_DRAWS = 4000


class Exact(NamedTuple):
    """Draws (n, m) of a posterior, with what the sampler knows of its own error.

    That is the share of proposals that were accepted, and how many had a weight that exceeded the
    bound of a rejection sampler: with none, the draws are exact.
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

    It has the name by which :func:`experiments.tasks.task` knows it, the names of its m
    parameters, and the length d of an observation.
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
        """Observations (n, d), one for each row of parameters (n, m) in the prior's support."""
        check_kind("generator", generator, "a torch.Generator", torch.Generator)
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
        check_kind("generator", generator, "a torch.Generator", torch.Generator)
        theta = self.prior.sample(check_count("n", n), generator)
        return theta, self._simulate(theta, generator)

    def posterior(self, x: Any, n: int, generator: torch.Generator) -> Exact:
        """Draws (n, m) of the true posterior at one observation (d,)."""
        check_kind("generator", generator, "a torch.Generator", torch.Generator)
        (x,) = as_tensors({"x": x}).values()
        if x.shape != (self.d,):
            raise ValueError(
                f"x: expected one observation of shape ({self.d},); got {tuple(x.shape)}."
            )
        check_finite("x", x[None])
        exact = self._posterior(x.double(), check_count("n", n), generator)
        return exact._replace(theta=exact.theta.to(x.dtype))

    def draws(self, x: Any, k: int, generator: torch.Generator) -> Tensor:
        """Draws (n, k, m) of the true posterior, k at each of n observations (n, d)."""
        check_kind("generator", generator, "a torch.Generator", torch.Generator)
        x = self._checked("x", x, self.d)
        return self._draws(x.double(), check_count("k", k), generator).to(x.dtype)

    def _draws(self, x: Tensor, k: int, generator: torch.Generator) -> Tensor:
        """One observation after the other; tasks that can do better do."""
        each = tqdm(x, "posteriors", disable=None if len(x) > MANY else True, leave=None)
        return torch.stack([self._posterior(row, k, generator).theta for row in each])

    def moments(self, x: Any) -> tuple[Tensor, Tensor]:
        """Means and standard deviations (n, m) of the true posterior at observations (n, d).

        From draws that depend on x alone, where they are not known in closed form: so they are
        functions of x, whoever asks.
        """
        return self._moments(self._checked("x", x, self.d).double())

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        each = tqdm(x, "moments", disable=None if len(x) > MANY else True, leave=None)
        moments = []
        for row in each:
            seed = int.from_bytes(row.numpy().tobytes(), "big") % 2**62
            theta = self._posterior(row, MOMENT_DRAWS, stream(seed, "moments")).theta
            moments.append(torch.stack([theta.mean(0), theta.std(0)]))
        mean, deviation = torch.stack(moments, 1) if moments else x.new_empty(2, 0, self.m)
        return mean, deviation

    def log_posterior(self, theta: Any, x: Any) -> Tensor:
        """The logarithm of prior times likelihood: the posterior's density up to a constant.

        With shape (n,), for parameters (n, m) and one observation (d,) or one for each row (n, d).
        """
        theta = self._checked("theta", theta, self.m).double()
        (x,) = as_tensors({"x": x}).values()
        x = self._checked("x", x.expand(len(theta), -1) if x.ndim == 1 else x, self.d).double()
        if len(x) != len(theta):
            raise ValueError(f"x: expected one or {len(theta)} observations; got {len(x)}.")
        density = self.prior.log_prob(theta) + self._log_likelihood(theta, x)
        return torch.where(self.prior.inside(theta), density, -torch.inf)

    @property
    def observations(self) -> Observations:
        """The ten observations of the benchmark, which come with true parameters."""
        stored = benchmark().get(self.name)
        if stored is None:
            words = f"task: expected one of the benchmark; got {self.name}, which is not."
            raise ValueError(words)
        fields = ("observation", "true_parameters")
        return Observations(*(cpu.tensor(stored[field]) for field in fields))

    def _checked(self, name: str, rows: Any, width: int) -> Tensor:
        given = as_tensors({name: rows})[name]
        if given.ndim != 2 or given.shape[1] != width:
            raise ValueError(f"{name}: expected shape (n, {width}); got {tuple(given.shape)}.")
        check_finite(name, given)
        return given

    def __repr__(self) -> str:
        return f"{type(self).__name__}(m={self.m}, d={self.d})"


class Direct(Task):
    """A task that draws at many observations at once, by the ``_draws`` of its own."""

    def _posterior(self, x: Tensor, n: int, generator: torch.Generator) -> Exact:
        return Exact(self._draws(x[None], n, generator)[0])


def rejection(
    x: Tensor, n: int, generator: torch.Generator, proposals: Iterable[tuple[Tensor, Tensor]]
) -> Exact:
    """The first n accepted proposals at one observation (d,).

    Proposals come in batches (b, m), with log-weights (b,) that are zero at their bound.
    """
    kept, accepted, proposed, exceeded = [], 0, 0, 0
    for theta, weight in proposals:
        u = cpu.rand(len(theta), generator=generator, dtype=torch.float64)
        kept.append(theta[u.log() < weight])
        accepted, proposed = accepted + len(kept[-1]), proposed + len(theta)
        exceeded += int((weight > 0).sum())
        if accepted >= n:
            return Exact(torch.cat(kept)[:n], accepted / proposed, exceeded)
    raise ValueError(
        f"x: expected an observation at which draws are accepted; got {x.tolist()}, where "
        f"{accepted} of {proposed} were."
    )


@cache
def benchmark() -> dict[str, dict[str, Any]]:
    """Observations, true parameters and seeds of the benchmark, by the names of tasks.

    From sbibm 1.1, (c) Lueckmann, Boelts, Greenberg, Goncalves and Macke, MIT licence.
    """
    text = files("experiments.tasks").joinpath("benchmark_observations.json").read_text("utf-8")
    stored: dict[str, dict[str, Any]] = json.loads(text)
    return stored

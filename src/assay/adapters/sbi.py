"""Posteriors of sbi: what its ``sample`` returns is q.

A direct posterior is **truncated**: draws of its network outside of the prior are left out. The
latents of the network are then those of another q. Truths and truncated draws can be compared in
them all the same, since they are coordinates like any others.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from sbi.inference.posteriors import (
    DirectPosterior,
    EnsemblePosterior,
    ImportanceSamplingPosterior,
    MCMCPosterior,
    VectorFieldPosterior,
    VIPosterior,
)
from sbi.inference.posteriors.base_posterior import NeuralPosterior
from sbi.neural_nets.estimators import ConditionalDensityEstimator, NFlowsFlow, ZukoFlow
from sbi.utils.sbiutils import within_support
from torch import Tensor

from .._support.inputs import cpu
from ..data.posterior import (
    Base,
    Coordinates,
    Embed,
    Flow,
    LogDensity,
    Posterior,
    StandardNormal,
    as_base,
)
from ..data.tables import Layout
from .networks import NetworkFlow, embedding, inputs
from .nflows import NFlow

# Markov chains at one x, at most, and observations at which they run together.
CHAINS, CHAINS_ROWS = 100, 25
# Observations and draws by which it is seen how much a network leaks.
LEAK_ROWS, LEAK_DRAWS = 100, 20
# A point outside of every prior that has bounds, in any of its parameters.
FAR = 1e8


class Estimator(NetworkFlow):
    """A density estimator of sbi, whose draws are not truncated to any prior."""

    def __init__(self, network: ConditionalDensityEstimator) -> None:
        self.network, self.m = network, network.input_shape.numel()

    @cached_property
    def _nflow(self) -> NFlow | None:
        return NFlow(self.network.net) if isinstance(self.network, NFlowsFlow) else None

    @property
    def base(self) -> Base:
        """The distribution of latents if q is right."""
        if self._nflow is not None:
            return self._nflow.base
        base = self.network.net.base()
        return as_base(base, base.event_shape.numel())

    @property
    def flow(self) -> Flow | None:
        """The flow itself; networks without an inverse are none."""
        if self._nflow is not None:
            return self if self._nflow.flow else None
        return self if isinstance(self.network, ZukoFlow) else None

    @property
    def embed(self) -> Embed | None:
        """The embedding net."""
        return embedding(self.network.embedding_net)

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, ...) to latents (n, m)."""
        if self._nflow is not None:
            return self._nflow.theta_to_base(theta, x)
        theta, x = inputs(self.network, theta, x)
        return self.network.inverse_transform(theta, x).reshape(theta.shape)  # type: ignore[no-any-return]

    def log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """The log-density (n,) of parameters (n, m) at observations (n, ...)."""
        theta, x = inputs(self.network, theta, x)
        return self.network.log_prob(theta[None], condition=x)[0]  # type: ignore[no-any-return]

    @torch.no_grad()
    def sample_batched(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (b, n, m) at each of b observations (b, ...)."""
        (given,) = inputs(self.network, x)
        return self.network.sample(torch.Size((n,)), condition=given).swapaxes(0, 1)  # type: ignore[no-any-return]


class VectorField(NetworkFlow):
    """Flow matching and score matching of sbi, by their ordinary differential equation."""

    def __init__(self, posterior: VectorFieldPosterior) -> None:
        self.network = posterior.vector_field_estimator
        self.m = self.network.input_shape.numel()
        self.ode = posterior.potential_fn.neural_ode

    @property
    def base(self) -> Base:
        """The distribution of latents if q is right."""
        return StandardNormal(self.m)

    @property
    def embed(self) -> Embed | None:
        """The embedding net."""
        return embedding(self.network.embedding_net)

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, ...) to latents (n, m)."""
        theta, x = inputs(self.network, theta, x)
        mean, scale = (part.flatten() for part in (self.network.mean_base, self.network.std_base))
        return (self.ode(x).transform(theta) - mean) / scale  # type: ignore[no-any-return]

    def log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """The log-density (n,) of parameters (n, m) at observations (n, ...)."""
        theta, x = inputs(self.network, theta, x)
        return self.ode(x).log_prob(theta)  # type: ignore[no-any-return]

    @torch.no_grad()
    def sample_batched(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (b, n, m) at each of b observations (b, ...)."""
        (given,) = inputs(self.network, x)
        return self.ode(given).sample(torch.Size((n,))).swapaxes(0, 1)  # type: ignore[no-any-return]


@dataclass(frozen=True, eq=False)
class SbiPosterior(Posterior):
    """Any posterior of sbi, by its own ``sample_batched``, or one x at a time.

    Args:
        posterior: The posterior.
        network: Its network before truncation, where there is one.
    """

    posterior: NeuralPosterior
    network: Estimator | VectorField | None = None

    def sample_batched(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (b, n, m) at each of b observations (b, ...)."""
        given, how = x.to(self.posterior._device, torch.float32), self._how(n)
        with warnings.catch_warnings():
            # Of memory, chains and acceptance; leakage is remarked.
            warnings.simplefilter("ignore")
            if self._batched:
                theta = self.posterior.sample_batched((n,), x=given, **how)
                return theta.reshape(n, len(x), -1).swapaxes(0, 1)  # type: ignore[no-any-return]
            each = [self.posterior.sample((n,), x=at[None], **how) for at in given]
        return torch.stack(each).reshape(len(x), n, -1)

    def _how(self, n: int) -> dict[str, Any]:
        # Draws with weights are none of q: they are resampled.
        weighted = isinstance(self.posterior, ImportanceSamplingPosterior)
        return {"show_progress_bars": False} | ({"method": "sir"} if weighted else {})

    @property
    def _batched(self) -> bool:
        """Whether sbi draws at many x in one call."""
        q = self.posterior
        # Before 0.27 vector fields were not composed.
        if isinstance(q, VectorFieldPosterior):
            return not getattr(q.vector_field_estimator, "compose_enabled", False)
        # Subclasses draw otherwise in sample, but not all of them in sample_batched: NPE-A
        # corrects its mixture in sample alone.
        return type(q) is DirectPosterior

    @property
    def rows(self) -> int:
        """Observations at which draws are made in one call."""
        return 100 if self._batched else 1

    @cached_property
    def truncated(self) -> bool:
        """Whether draws outside of the prior are left out, and the prior has an outside."""
        if self.network is None:
            return False
        corners = FAR * cpu.tensor([[-1.0], [1.0]]).expand(-1, self.network.m)
        return not bool(within_support(self.posterior.prior, corners).all())

    @property
    def flow(self) -> Flow | None:
        """The network's flow, if nothing is left out of its draws."""
        return None if self.network is None or self.truncated else self.network.flow

    @property
    def coordinates(self) -> Coordinates | None:
        """Latents of the network, if some of its draws are left out."""
        known = self.network is not None and self.network.flow is not None and self.truncated
        return self.network.theta_to_base if known and self.network else None

    @property
    def log_density(self) -> LogDensity | None:
        """That of the network: inside of the prior, truncation adds a constant for each x."""
        return None if self.network is None else self.network.log_density

    @property
    def embed(self) -> Embed | None:
        """The embedding net."""
        return None if self.network is None else self.network.embed

    def remarks(self, x: Tensor) -> tuple[str, ...]:
        """How much of the network lies outside of the prior."""
        if self.network is None or not self.truncated:
            return ()
        with torch.no_grad():
            theta = self.network.sample_batched(x[:LEAK_ROWS], LEAK_DRAWS).flatten(0, 1)
        outside = 1 - float(within_support(self.posterior.prior, theta).double().mean())
        return (
            f"q is truncated: about {100 * outside:.1f} % of the network's own draws lie outside "
            "of the prior, and sbi leaves them out.",
        )


@dataclass(frozen=True, eq=False)
class Chains(SbiPosterior):
    """Markov chains of sbi: a chain for each draw, so that draws are independent."""

    def _how(self, n: int) -> dict[str, Any]:
        if not self._batched:
            return {"show_progress_bars": False}
        # One step of each chain is kept, or the posterior's own thinning where chains are too few.
        thin = {"thin": 1} if n <= CHAINS else {}
        return {"show_progress_bars": False, "num_chains": min(n, CHAINS), **thin}

    @property
    def _batched(self) -> bool:
        return self.posterior.method == "slice_np_vectorized"  # type: ignore[no-any-return]

    @property
    def rows(self) -> int:
        """Observations at which chains run together."""
        return CHAINS_ROWS if self._batched else 1

    def remarks(self, x: Tensor) -> tuple[str, ...]:
        """How many chains there are."""
        return (
            f"Draws are those of Markov chains, a chain for each draw at x, after "
            f"{self.posterior.warmup_steps} steps of warm-up: q is what these chains give.",
        )


@dataclass(frozen=True, eq=False)
class Ensemble(Posterior):
    """An ensemble of sbi: every draw is of a member that is chosen for it, by the weights."""

    members: Sequence[Posterior]
    weights: Tensor

    def sample_batched(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (b, n, m) at each of b observations (b, ...)."""
        # sbi's own draws take as many of each member at every x: sets would not be independent.
        each = torch.stack([member.sample_batched(x, n) for member in self.members], 2)
        chosen = torch.multinomial(self.weights.cpu(), len(x) * n, replacement=True)
        index = chosen.to(each.device).reshape(len(x), n, 1, 1).expand(-1, -1, 1, each.shape[3])
        return each.gather(2, index)[:, :, 0]

    @property
    def rows(self) -> int:
        """Observations at which draws are made in one call."""
        return min(member.rows for member in self.members)

    @property
    def embed(self) -> Embed | None:
        """The embedding net of the first member."""
        return self.members[0].embed

    def remarks(self, x: Tensor) -> tuple[str, ...]:
        """What is to be said of any member."""
        said = (remark for member in self.members for remark in member.remarks(x))
        return tuple(dict.fromkeys(said))


def adapted(posterior: Any, x: Tensor, layout: Layout | None = None) -> Posterior | None:
    """A posterior or a density estimator of sbi."""
    if isinstance(posterior, ConditionalDensityEstimator):
        return Estimator(posterior)
    if isinstance(posterior, EnsemblePosterior):
        members = [adapted(member, x) for member in posterior.posteriors]
        return Ensemble([m for m in members if m is not None], posterior._weights)
    if isinstance(posterior, MCMCPosterior):
        return Chains(posterior)
    if isinstance(posterior, VIPosterior):
        return Estimator(_amortized(posterior))
    if isinstance(posterior, NeuralPosterior):
        return SbiPosterior(posterior, _network(posterior))
    return None


def _amortized(posterior: VIPosterior) -> ConditionalDensityEstimator:
    """The flow of a variational posterior, none of whose draws are left out; refuses one x."""
    if getattr(posterior, "_mode", None) == "amortized":
        return posterior._amortized_q
    raise TypeError(
        "posterior: expected one that can be drawn from at every x; got a VIPosterior of sbi, "
        "which is trained at a single one. Train it with posterior.train_amortized(theta, x), or "
        "give a function of x and n that trains it at x: lambda x, n: posterior.train(x[None], "
        "retrain_from_scratch=True).sample((n,), x=x[None])."
    )


def _network(posterior: NeuralPosterior) -> Estimator | VectorField | None:
    """The network whose draws sbi truncates, if it is known."""
    if type(posterior) is DirectPosterior:
        return Estimator(posterior.posterior_estimator)
    if isinstance(posterior, VectorFieldPosterior) and posterior.sample_with == "ode":
        return VectorField(posterior)
    return None

"""Posteriors of sbi: what its ``sample`` returns is q.

A direct posterior is **truncated**: draws of its network outside of the prior are left out. The
latents of the network are then those of another q. True parameters and truncated draws can be
compared in them all the same, since they are coordinates like any others.
"""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
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
from sbi.neural_nets.estimators import ConditionalDensityEstimator, NFlowsFlow
from sbi.neural_nets.estimators import ZukoFlow as SbiZukoFlow
from sbi.utils.sbiutils import within_support
from torch import Tensor

from .._support.inputs import cpu
from ..data.posterior import Posterior, StandardNormal
from ..data.tables import Layout
from .networks import NetworkPosterior
from .nflows import nflow
from .zuko import ZukoFlow

# Markov chains at one x, at most, and observations at which they run together.
CHAINS, CHAINS_ROWS = 100, 25
# Observations and draws from which the share of a network outside of the prior is estimated.
LEAK_ROWS, LEAK_DRAWS = 100, 20
# A point outside of every prior that has bounds, in any of its parameters.
FAR = 1e8


@dataclass(frozen=True, eq=False)
class SbiPosterior(Posterior):
    """Any posterior of sbi, by its own ``sample_batched``, or one x at a time.

    Args:
        posterior: The posterior.
        rows: Observations at which sbi draws in one call; 1 where it draws at one x alone.
        network: Its network before truncation, where there is one.
        truncated: Whether draws of the network outside of the prior are left out.
    """

    posterior: NeuralPosterior
    rows: int = 1
    network: Posterior | None = None
    truncated: bool = False

    def __post_init__(self) -> None:
        if self.network is None:
            return
        # Inside of the prior, truncation adds a constant to the log-density at each x.
        vars(self).update(log_density=self.network.log_density, embed=self.network.embed)
        if not self.truncated:
            vars(self)["flow"] = self.network.flow
        elif self.network.flow is not None:
            vars(self)["coordinates"] = self.network.flow.theta_to_base

    def sample_batched(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (b, n, m) at each of b observations (b, ...)."""
        x, options = x.to(self.posterior._device, torch.float32), self._options(n)
        with warnings.catch_warnings():
            # Of memory, chains and acceptance; leakage is one of the remarks.
            warnings.simplefilter("ignore")
            if self.rows > 1:
                theta = self.posterior.sample_batched((n,), x=x, **options)
                return theta.reshape(n, len(x), -1).swapaxes(0, 1)  # type: ignore[no-any-return]
            each = [self.posterior.sample((n,), x=row[None], **options) for row in x]
        return torch.stack(each).reshape(len(x), n, -1)

    def _options(self, n: int) -> dict[str, Any]:
        """Arguments of sbi's methods for n draws."""
        # Draws with weights are none of q: they are resampled.
        weighted = isinstance(self.posterior, ImportanceSamplingPosterior)
        return {"show_progress_bars": False} | ({"method": "sir"} if weighted else {})

    def remarks(self, x: Tensor) -> tuple[str, ...]:
        """How much of the network lies outside of the prior."""
        if self.network is None or not self.truncated:
            return ()
        theta = self.network.sample_batched(x[:LEAK_ROWS], LEAK_DRAWS).flatten(0, 1)
        outside = 1 - float(within_support(self.posterior.prior, theta).double().mean())
        return (
            f"q is truncated: about {100 * outside:.1f} % of the network's own draws lie outside "
            "of the prior, and sbi leaves them out.",
        )


@dataclass(frozen=True, eq=False)
class Chains(SbiPosterior):
    """Markov chains of sbi: a chain for each draw, so that draws are independent."""

    def _options(self, n: int) -> dict[str, Any]:
        # One step of each chain is kept, or the posterior's own thinning where chains are too few.
        thin = {"thin": 1} if n <= CHAINS else {}
        together = {"num_chains": min(n, CHAINS), **thin} if self.rows > 1 else {}
        return {"show_progress_bars": False, **together}

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

    def __post_init__(self) -> None:
        rows = min(member.rows for member in self.members)
        vars(self).update(rows=rows, embed=self.members[0].embed)

    def sample_batched(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (b, n, m) at each of b observations (b, ...)."""
        # sbi's own draws take as many of each member at every x: sets would not be independent.
        each = torch.stack([member.sample_batched(x, n) for member in self.members], 2)
        chosen = torch.multinomial(self.weights.cpu(), len(x) * n, replacement=True)
        index = chosen.to(each.device).reshape(len(x), n, 1, 1).expand(-1, -1, 1, each.shape[3])
        return each.gather(2, index)[:, :, 0]

    def remarks(self, x: Tensor) -> tuple[str, ...]:
        """The remarks of all members, each once."""
        return tuple(dict.fromkeys(r for member in self.members for r in member.remarks(x)))


def adapted(posterior: Any, x: Tensor, layout: Layout | None = None) -> Posterior | None:
    """A posterior or a density estimator of sbi."""
    if isinstance(posterior, ConditionalDensityEstimator):
        return _estimator(posterior)
    if isinstance(posterior, EnsemblePosterior):
        members = [adapted(member, x) for member in posterior.posteriors]
        return Ensemble([m for m in members if m is not None], posterior._weights)
    if isinstance(posterior, MCMCPosterior):
        return Chains(posterior, CHAINS_ROWS if posterior.method == "slice_np_vectorized" else 1)
    if isinstance(posterior, VIPosterior):
        return _amortized(posterior)
    if isinstance(posterior, VectorFieldPosterior):
        network = posterior.vector_field_estimator
        # Before 0.27 vector fields were not composed.
        rows = 1 if getattr(network, "compose_enabled", False) else 100
        q = _vector_field(posterior) if posterior.sample_with == "ode" else None
        return SbiPosterior(posterior, rows, q, q is not None and _has_outside(posterior, network))
    # Subclasses draw otherwise in sample, but not all of them in sample_batched: NPE-A corrects
    # its mixture in sample alone.
    if type(posterior) is DirectPosterior:
        network = posterior.posterior_estimator
        truncated = _has_outside(posterior, network)
        return SbiPosterior(posterior, 100, _estimator(network), truncated)
    return SbiPosterior(posterior) if isinstance(posterior, NeuralPosterior) else None


def _has_outside(posterior: NeuralPosterior, network: Any) -> bool:
    """Whether draws of a network may lie outside the prior."""
    corners = FAR * cpu.tensor([[-1.0], [1.0]]).expand(-1, network.input_shape.numel())
    return not bool(within_support(posterior.prior, corners).all())


def _estimator(network: ConditionalDensityEstimator) -> Posterior:
    """A density estimator, as the flow that it is if it is one."""
    if isinstance(network, NFlowsFlow):
        return nflow(network.net)
    if isinstance(network, SbiZukoFlow):
        return ZukoFlow(network.net, network.embedding_net)
    return NetworkPosterior(
        network,
        draw=lambda x, n: network.sample(torch.Size((n,)), condition=x).swapaxes(0, 1),
        log_prob=lambda theta, x: network.log_prob(theta[None], condition=x)[0],
        summary=network.embedding_net,
    )


def _vector_field(posterior: VectorFieldPosterior) -> Posterior:
    """Flow matching and score matching of sbi, by their ordinary differential equation."""
    network, at = posterior.vector_field_estimator, posterior.potential_fn.neural_ode
    mean, scale = network.mean_base.flatten(), network.std_base.flatten()
    return NetworkPosterior(
        network,
        draw=lambda x, n: at(x).sample(torch.Size((n,))).swapaxes(0, 1),
        log_prob=lambda theta, x: at(x).log_prob(theta),
        to_base=lambda theta, x: (at(x).transform(theta) - mean) / scale,
        base=StandardNormal(network.input_shape.numel()),
        summary=network.embedding_net,
    )


def _amortized(posterior: VIPosterior) -> Posterior:
    """The flow of a variational posterior, none of whose draws are left out; refuses one x."""
    if getattr(posterior, "_mode", None) == "amortized":
        return _estimator(posterior._amortized_q)
    raise TypeError(
        "posterior: expected one that can be drawn from at every x; got a VIPosterior of sbi, "
        "which is trained at a single one. Train it with posterior.train_amortized(theta, x), or "
        "give a function of x and n that trains it at x: lambda x, n: posterior.train(x[None], "
        "retrain_from_scratch=True).sample((n,), x=x[None])."
    )

r"""Neural likelihood and neural ratio estimation: posteriors by way of p(x | theta).

Neural likelihood estimation (NLE) trains a conditional flow of x given theta, with the loop of
:mod:`assay.tasks.training`. Neural ratio estimation (NRE) trains a classifier to tell pairs
:math:`(\theta, x)` of the joint from pairs of the marginals; its logit is
:math:`\log p(x \mid \theta) - \log p(x)`. Either is multiplied by the prior, and sampled by
:func:`assay.tasks.mcmc.sample_mcmc`: independent chains, of which only the last states are used.

References: Papamakarios, Sterratt and Murray 2019, *Sequential neural likelihood: fast
likelihood-free inference with autoregressive flows*; Hermans, Begy and Louppe 2020,
*Likelihood-free MCMC with amortized approximate ratio estimators*.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ..door import check_count
from ..randomness import isolated
from .mcmc import Chains, sample_mcmc
from .npe import MAF, Architecture, Trained, train_flow
from .priors import Prior
from .training import Options, Training, ZScore, checked_pairs, fit, given_or_global

__all__ = ["NLE", "NRE", "Ratio", "Unnormalised", "train_nle", "train_nre"]

# Draws of the prior among which each chain chooses its start.
CANDIDATES = 100


class Unnormalised(ABC):
    """A posterior known but for a constant: a prior and a likelihood, sampled by MCMC."""

    prior: Prior
    steps: int

    @abstractmethod
    def log_likelihood(self, theta: Tensor, x: Tensor) -> Tensor:
        """The logarithm of p(x | theta), (n,), but for a constant in theta.

        Args:
            theta: Parameters, with shape (n, m).
            x: Observations (n, d), or one (d,).
        """

    def log_prob(self, theta: Tensor, x: Tensor) -> Tensor:
        """The logarithm of prior times likelihood, (n,); minus infinity outside the prior.

        Args:
            theta: Parameters, with shape (n, m).
            x: Observations (n, d), or one (d,).
        """
        density = self.prior.log_prob(theta) + self.log_likelihood(theta, x)
        return torch.where(self.prior.inside(theta), density, -torch.inf)

    def sample(self, x: Tensor, n: int, generator: torch.Generator | None = None) -> Tensor:
        """Returns n independent draws (n, m) at one observation x, with shape (d,)."""
        return self.chains(x, n, generator).theta

    def chains(self, x: Tensor, n: int, generator: torch.Generator | None = None) -> Chains:
        """Returns n draws at one observation, with the acceptance rate.

        Args:
            x: The observation, with shape (d,).
            n: The number of draws, each of a chain of its own.
            generator: The source of all noise, on the CPU; torch's own if None.
        """

        def log_density(theta: Tensor) -> Tensor:
            return self.log_prob(theta, x)

        def start(k: int, generator: torch.Generator) -> Tensor:
            return self._starts(x, k, generator)

        chosen = given_or_global(generator)
        return sample_mcmc(log_density, start, n, chosen, steps=self.steps)

    def _starts(self, x: Tensor, n: int, generator: torch.Generator) -> Tensor:
        """A draw (n, m) for each chain out of draws of the prior, by their likelihoods.

        So modes begin with about their share of chains, and yet no two chains have anything in
        common.
        """
        theta = self.prior.sample(n * CANDIDATES, generator).to(x)
        weights = self.log_likelihood(theta, x).reshape(n, CANDIDATES)
        gumbel = -(-torch.rand(n, CANDIDATES, generator=generator).log()).log()
        best = (weights + gumbel.to(weights)).argmax(1)
        rows = torch.arange(n, device=theta.device)
        return theta.reshape(n, CANDIDATES, -1)[rows, best]


@dataclass(frozen=True, eq=False)
class NLE(Unnormalised):
    """A posterior by neural likelihood estimation.

    Args:
        flow: The flow of x given theta; its `log_prob` takes x first.
        prior: The prior.
        steps: The number of steps of a chain.
    """

    flow: Trained
    prior: Prior
    steps: int = 500

    @property
    def losses(self) -> tuple[float, ...]:
        """The validation loss of every epoch, in nats and in the units of x."""
        return self.flow.losses

    def log_likelihood(self, theta: Tensor, x: Tensor) -> Tensor:
        """The logarithm of p(x | theta), (n,), for parameters (n, m) and x (n, d) or (d,)."""
        return self.flow.log_prob(x.expand(len(theta), -1), theta)


@dataclass(frozen=True, eq=False)
class NRE(Unnormalised):
    """A posterior by neural ratio estimation.

    Args:
        ratio: What the classifier looks like.
        network: Its weights.
        theta_scale: The scale of parameters.
        x_scale: The scale of observations.
        prior: The prior.
        losses: The validation loss of every epoch: the cross-entropy of both classes together,
            2 log 2 for a classifier that knows nothing.
        steps: The number of steps of a chain.
    """

    ratio: "Ratio"
    network: nn.Module = field(repr=False)
    theta_scale: ZScore = field(repr=False)
    x_scale: ZScore = field(repr=False)
    prior: Prior
    losses: tuple[float, ...] = field(repr=False)
    steps: int = 500

    def log_likelihood(self, theta: Tensor, x: Tensor) -> Tensor:
        """The logarithm of p(x | theta) / p(x), (n,), for theta (n, m) and x (n, d) or (d,)."""
        x = x.expand(len(theta), -1)
        device = self.theta_scale.location.device
        scaled = self.theta_scale(theta.to(device)), self.x_scale(x.to(device))
        return _logits(self.network, *scaled).to(theta)


@dataclass(frozen=True)
class Ratio:
    """The classifier of a ratio: a multilayer perceptron of theta and x.

    Args:
        hidden: Widths of the hidden layers.
    """

    hidden: tuple[int, ...] = (64, 64, 64)

    def __post_init__(self) -> None:
        widths = tuple(check_count("hidden", width) for width in self.hidden)
        object.__setattr__(self, "hidden", widths)

    def build(self, m: int, d: int) -> nn.Module:
        """A network for m parameters and d observed numbers, with random weights."""
        widths = pairwise((m + d, *self.hidden))
        layers = [part for a, b in widths for part in (nn.Linear(a, b), nn.SiLU())]
        return nn.Sequential(*layers, nn.Linear((m + d, *self.hidden)[-1], 1))


def train_nle(
    theta: Any,
    x: Any,
    prior: Prior,
    architecture: Architecture = MAF(5),  # noqa: B008
    **options: Unpack[Options],
) -> NLE:
    """Trains a flow of observations given parameters.

    Args:
        theta: Parameters of the joint, with shape (n, m).
        x: What they produced, with shape (n, d); continuous, or there is no density.
        prior: The prior of the posterior. It may differ from the one `theta` was drawn from.
        architecture: What the flow looks like.
        options: The keywords of :func:`assay.tasks.npe.train`.
    """
    how = Training(**options)
    theta, x = checked_pairs(theta, x, how)
    return NLE(train_flow(x, theta, architecture, how, "x"), prior)


def train_nre(
    theta: Any,
    x: Any,
    prior: Prior,
    ratio: Ratio = Ratio(),  # noqa: B008
    **options: Unpack[Options],
) -> NRE:
    """Trains a classifier of pairs that belong together against pairs that do not.

    Args:
        theta: Parameters of the joint, with shape (n, m).
        x: What they produced, with shape (n, d).
        prior: The prior that `theta` was drawn from, up to which the ratio is known well.
        ratio: What the classifier looks like.
        options: The keywords of :func:`assay.tasks.npe.train`.
    """
    how = Training(**options)
    theta, x = checked_pairs(theta, x, how)
    theta_scale, x_scale = ZScore.of(theta), ZScore.of(x)
    with isolated(how.stream("network")):
        network = ratio.build(theta.shape[1], x.shape[1]).to(theta.device)

    def loss(theta: Tensor, x: Tensor) -> Tensor:
        # Rows come in random order, so that a neighbour is as good as any other.
        apart = _logits(network, theta.roll(1, 0), x)
        return softplus(-_logits(network, theta, x)) + softplus(apart)

    losses = fit(network, loss, (theta_scale(theta), x_scale(x)), how, f"{ratio} of theta and x")
    return NRE(ratio, network, theta_scale, x_scale, prior, losses)


def _logits(network: nn.Module, theta: Tensor, x: Tensor) -> Tensor:
    """Logits (n,) of scaled parameters (n, m) and observations (n, d)."""
    logits: Tensor = network(torch.cat([theta, x], 1))
    return logits[:, 0]

r"""A proposal around x_o in place of the prior, and draws of q with which tests stay exact.

With parameters from a proposal g, and :math:`w = g / \pi` for a prior :math:`\pi`, pairs have
density :math:`g(\theta) \, p(x \mid \theta) = w(\theta) \, p(\theta \mid x) \, p(x)`. If q = p at
x, the true parameter and draws of q, as a set, have density
:math:`p(x) \, w(a_j) \prod_i q(a_i \mid x)` where member j is the true parameter: **given the set,
that is member j with chance** :math:`w(a_j) / \sum_i w(a_i)`. Out of such a set
:func:`exchangeable` picks k + 1 members, each of which is the true parameter with the same chance,
so that every null that exchanges true parameters with draws of q is exact as it is.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution, MultivariateNormal

from .._support.inputs import as_tensors, check_finite, check_kind, check_number, cpu
from .._support.random import call_user_code, isolated, stream

# Draws of q at each x for each companion that a set keeps.
RESERVE = 4
# The share of companions that may be the true parameter itself before weights are refused.
DEGENERATE = 0.5
# Draws of the prior from which its covariance is taken, and rounds of rejection.
MOMENT_DRAWS, ROUNDS = 2000, 100
# The least share of a parameter's deviation that may be left, given the parameters before it.
SINGULAR = 1e-6


class Density(Protocol):
    """A distribution over parameters; its density need not be normalised."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws with shape (n, m)."""

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log-densities (n,) of parameters (n, m); minus infinity outside the support."""


@dataclass(frozen=True)
class Model:
    """A prior, and a simulator of parameters (n, m), which may ignore its generator."""

    prior: Any  # a torch distribution, or a Density
    simulate: Callable[[Tensor, torch.Generator], Any]


@dataclass(frozen=True, eq=False)
class Around:
    r"""A proposal around x_o: a wide normal around draws of q there, and some of the prior.

    .. math:: g(\theta) \propto \left[(1 - s) \, N(\theta; \mu, V) + s \, \pi(\theta) \right]
        1\{\pi(\theta) > 0\}, \qquad V^{-1} = (t^2 \Sigma)^{-1} + \Sigma_\pi^{-1}

    with mean and covariance of the draws, t times as wide, and the covariance of the prior, so
    that for a normal prior weights are even over the draws. The share s of the prior bounds them
    from below. For several observations, N is the mean of such normals.

    Args:
        theta: Draws of q at x_o, with shape (s, m), or at several of them, with shape (o, s, m).
        prior: The prior, a torch distribution or a :class:`Density`.
        times: How many times as wide as the draws the normal is.
        share: The share of the prior.

    Example:
        >>> prior = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
        >>> draws = 1.0 + 0.1 * torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
        >>> proposal = Around(draws, prior, share=0.0)
        >>> proposal.sample(1000, torch.Generator().manual_seed(0)).std(0).round(decimals=1)
        tensor([0.2000, 0.2000])
    """

    theta: Tensor
    prior: Any
    times: float = 2.0
    share: float = 0.1

    def __post_init__(self) -> None:
        theta = as_tensors({"theta": self.theta})["theta"]
        if theta.ndim not in (2, 3) or theta.shape[-2] <= theta.shape[-1]:
            raise ValueError(
                "theta: expected draws of q at x_o with shape (s, m) or (o, s, m), more of them "
                f"than parameters; got {tuple(theta.shape)}."
            )
        check_finite("theta", theta)
        vars(self).update(theta=theta.cpu(), prior=as_density("prior", self.prior))
        check_number("times", self.times)
        if check_number("share", self.share, strict=False) > 1:
            raise ValueError(f"share: expected a number between 0 and 1; got {self.share}.")
        _ = self.normals

    @cached_property
    def normals(self) -> MultivariateNormal:
        """The normal of each of the o observations, with mean (o, m)."""
        prior = _precision("prior", self.prior.sample(MOMENT_DRAWS, stream(0, "moments")))
        each = self.theta if self.theta.ndim == 3 else self.theta[None]
        windows = torch.stack([_precision("theta", draws) for draws in each]) / self.times**2
        return MultivariateNormal(each.double().mean(1), precision_matrix=windows + prior)

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws with shape (n, m)."""
        mean, factor = self.normals.loc, self.normals.scale_tril  # (o, m), (o, m, m)
        kept: list[Tensor] = []
        for _ in range(ROUNDS):
            noise = cpu.randn(n, mean.shape[1], 1, generator=generator).to(mean)
            prior = self.prior.sample(n, generator).to(mean)
            chosen = cpu.rand(n, 1, generator=generator) < self.share
            which = cpu.randint(len(mean), (n,), generator=generator)
            near = mean[which] + (factor[which] @ noise)[..., 0]
            theta = torch.where(chosen, prior, near).to(self.theta)
            kept.append(theta[log_density("prior", self.prior, theta) > -torch.inf])
            if sum(map(len, kept)) >= n:
                return torch.cat(kept)[:n]
        raise ValueError(
            "theta: expected draws of q at x_o in the support of the prior; got a normal around "
            f"them of which fewer than 1 in {ROUNDS} draws is there."
        )

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log-densities (n,) of parameters (n, m), up to a constant."""
        prior = log_density("prior", self.prior, theta)
        near = self.normals.log_prob(theta.double()[:, None])  # (n, o)
        near = near.logsumexp(1) - math.log(near.shape[1])
        shares = cpu.tensor([1 - self.share, self.share], dtype=torch.float64)
        both = (torch.stack([near, prior]) + shares.log()[:, None]).logsumexp(0)
        return torch.where(prior > -torch.inf, both, -torch.inf)

    def __repr__(self) -> str:
        return f"Around(theta={tuple(self.theta.shape)}, times={self.times}, share={self.share})"


class NoCompanions(ValueError):
    """The weights of a proposal leave nothing to exchange."""


def exchangeable(weights: Tensor, k: int, seed: int = 0) -> Tensor:
    r"""Picks k companions for each true parameter, with which it is exchangeable if q is right.

    The r members of a set, which are the true parameter with chances :math:`c_j \propto w_j`, are
    laid in random order on a circle, each on an arc of length :math:`(k + 1) \, c_j`. A uniform
    point of the true parameter's arc, moved on by 0, 1, ..., k, hits it and its companions
    (systematic sampling, Madow 1949; see Berrett, Wang, Barber and Samworth 2020). If q is right
    the point is uniform on the circle, and each of the k + 1 is the first one equally often.

    Weights (n, r) are logarithms of proposal over prior at members, true parameters first. The
    places of companions are returned, (n, k); one with a long arc can be hit more than once.

    Example:
        >>> exchangeable(torch.zeros(10, 4), 3)[0].sort().values  # all weigh the same
        tensor([1, 2, 3])
    """
    n, r = weights.shape
    order = cpu.rand(n, r, generator=stream(seed, "circle")).argsort(1)
    arcs = (k + 1) * weights.double().softmax(1).gather(1, order)
    ends = arcs.cumsum(1)
    truth = (order == 0).byte().argmax(1, keepdim=True)
    inside = cpu.rand(n, 1, generator=stream(seed, "point"), dtype=arcs.dtype)
    point = ends.gather(1, truth) - inside * arcs.gather(1, truth)
    moved = (point + cpu.arange(1, k + 1)) % (k + 1)
    # Rounding may leave a point beyond the last end.
    kept = order.gather(1, torch.searchsorted(ends, moved).clamp_max(r - 1))
    alone = float((kept == 0).double().mean())
    if alone > DEGENERATE:
        raise NoCompanions(
            "proposal: expected weights that several members of a set share; got sets in which "
            f"{alone:.0%} of the companions are the true parameter itself. Widen the proposal, or "
            "give it a larger share of the prior."
        )
    return kept


def companions(
    theta: Tensor, draws: Tensor, prior: Density, proposal: Density, k: int, seed: int
) -> dict[str, Tensor]:
    """What a calibration of parameters (n, m) of a proposal has, of draws of q (n, r, m)."""
    members = torch.cat([theta[:, None], draws], 1)
    weights = log_weights(members.flatten(0, 1), prior, proposal).unflatten(0, members.shape[:2])
    # Draws outside the prior's support get the mean weight of their set. If q is right there are
    # none; where it is not, they would never be picked without a weight.
    outside = weights.isnan()
    total = weights.masked_fill(outside, -torch.inf).logsumexp(1, keepdim=True)
    mean = total - (~outside).sum(1, keepdim=True).log()
    kept = exchangeable(torch.where(outside, mean, weights), k, seed)
    theta_q = members.gather(1, kept[..., None].expand(-1, -1, members.shape[2]))
    prior_over_proposal = (-weights[:, 0]).softmax(0) * len(theta)  # with mean one
    weighted = {"weights": prior_over_proposal.to(theta), "plain_draws": draws[:, :k]}
    return {"theta_q": theta_q, **weighted}


def log_weights(theta: Tensor, prior: Density, proposal: Density) -> Tensor:
    """Logarithms of proposal over prior (n,) at (n, m); NaN outside the prior's support."""
    below = log_density("prior", prior, theta)
    above = log_density("proposal", proposal, theta)
    return torch.where(below > -torch.inf, above - below, torch.nan)


def as_density(name: str, given: Any) -> Density:
    """Returns a distribution of any kind as a :class:`Density`."""
    if isinstance(given, Distribution):
        return _TorchDensity(given)
    expected = "a torch distribution, or an object with sample(n, generator) and log_prob(theta)"
    check_kind(name, given, expected, "sample", "log_prob")
    return given  # type: ignore[no-any-return]


def log_density(name: str, density: Density, theta: Tensor) -> Tensor:
    """Log-densities (n,) of parameters (n, m) in double precision; may be minus infinity."""
    densities = call_user_code(name, density.log_prob, theta).cpu().double()
    if densities.shape != theta.shape[:1]:
        raise ValueError(
            f"{name}: expected log-densities with shape ({len(theta)},) for parameters "
            f"{tuple(theta.shape)}; got {tuple(densities.shape)}. Independent parameters need "
            "torch.distributions.Independent(marginals, 1)."
        )
    bad = densities.isnan() | (densities == torch.inf)
    if bad.any():
        raise ValueError(
            f"{name}: expected log-densities that are finite, or minus infinity outside the "
            f"support; got NaN or infinity at {int(bad.sum())} of {len(bad)} parameters."
        )
    return densities


@dataclass(frozen=True, eq=False)
class _TorchDensity:
    """A torch distribution, which raises outside its support where it should say zero."""

    distribution: Distribution

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        with isolated(generator), torch.no_grad():
            return self.distribution.sample(torch.Size((n,))).cpu()

    def log_prob(self, theta: Tensor) -> Tensor:
        inside: Tensor = self.distribution.support.check(theta)  # type: ignore[union-attr]
        if inside.shape != theta.shape[:1]:
            # Several densities for a row; `log_density` refuses the shape.
            return inside.double()
        densities = theta.new_full(theta.shape[:1], -torch.inf)
        densities[inside] = self.distribution.log_prob(theta[inside]).to(densities)
        return densities


def _precision(name: str, theta: Tensor) -> Tensor:
    """The inverse covariance (m, m) of draws (n, m), in double precision."""
    covariance = torch.cov(theta.double().mT).reshape(theta.shape[1], -1)
    factor, singular = torch.linalg.cholesky_ex(covariance)
    left = factor.diagonal() / covariance.diagonal().sqrt()
    if singular or not left.min() > SINGULAR:
        raise ValueError(
            f"{name}: expected draws that vary in all directions; got a singular covariance."
        )
    return torch.cholesky_inverse(factor)

r"""Pairs from a proposal around an observation, in sets with which tests stay exact.

Parameters come from a proposal g near x_o in place of the prior :math:`\pi`, and then
:math:`x \sim p(x \mid \theta)`. With :math:`w = g / \pi` their joint density is

.. math:: g(\theta) \, p(x \mid \theta) = w(\theta) \, p(\theta \mid x) \, p(x),

so that given x the true parameter is a draw of :math:`p \, w`. If q = p at x, the true parameter
and draws of q, as a set, have density :math:`p(x) \, w(a_j) \prod_i q(a_i \mid x)` where member j
is the true parameter: **given the set, that is member j with chance**
:math:`w(a_j) / \sum_i w(a_i)`.

Out of such a set :func:`exchangeable` picks k + 1 members, each of which is the true parameter
with the same chance. Every null that exchanges true parameters with draws of q is then exact as it
is, for every diagnostic in parameter space. The members picked beside the true parameter look like
draws of :math:`q \, w`: a classifier learns p / q up to a factor that depends on x alone, and is
one if q = p.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.distributions import Distribution

from .._support.inputs import (
    WORD,
    as_tensors,
    check_count,
    check_finite,
    check_fits,
    check_function,
    check_kind,
    check_number,
    cpu,
    full_precision,
)
from .._support.random import Seed, call_user_code, isolated, seed_of, stream
from .calibration import Calibration
from .posterior import Embed

# Draws of q at each x for each companion that a set keeps.
RESERVE = 4
# The share of companions that may be the true parameter itself before weights are refused.
DEGENERATE = 0.5
# Draws of the prior from which its covariance is taken.
MOMENT_DRAWS = 2000
# The least share of a parameter's deviation that may be left, given the parameters before it.
SINGULAR = 1e-6
# Rounds of rejection before a proposal is refused.
ROUNDS = 100

# Draws of q (n, k, m) at observations (n, ...), for k and a generator.
Sample = Callable[[Tensor, int, torch.Generator], Any]


class Density(Protocol):
    """A distribution over parameters; its density need not be normalised."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws with shape (n, m)."""

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log-densities (n,) of parameters (n, m); minus infinity outside the support."""


@dataclass(frozen=True)
class Model:
    """A prior and a simulator.

    Args:
        prior: A torch distribution over m parameters, or a :class:`Density`.
        simulate: Takes parameters (n, m) and a generator and returns observations (n, ...). Code
            that reads torch's or NumPy's global generator may ignore the one it is given: the
            global ones are seeded meanwhile, and restored.
    """

    prior: Any
    simulate: Callable[[Tensor, torch.Generator], Any]


@dataclass(frozen=True, eq=False)
class Around:
    r"""A proposal around x_o: a wide normal around draws of q there, and some of the prior.

    .. math:: g(\theta) \propto \left[(1 - s) \, N(\theta; \mu, V) + s \, \pi(\theta) \right]
        1\{\pi(\theta) > 0\}, \qquad V^{-1} = (t^2 \Sigma)^{-1} + \Sigma_\pi^{-1}

    with mean and covariance of the draws, t times as wide, and the covariance of the prior. Around
    a normal prior the weight of the first part is a normal window of t times the draws' width:
    however little is known at x_o, weights are even over the draws and fall off from them. The
    share s of the prior bounds them from below. For several observations, N is the mean of such
    normals.

    Args:
        theta: Draws of q at x_o, with shape (s, m), or at several of them, with shape (o, s, m).
        prior: The prior, a torch distribution or a :class:`Density`.
        times: How many times as wide as the draws the window is.
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
        (theta,) = as_tensors({"theta": self.theta}).values()
        if theta.ndim not in (2, 3) or theta.shape[-2] <= theta.shape[-1]:
            raise ValueError(
                "theta: expected draws of q at x_o with shape (s, m) or (o, s, m), more of them "
                f"than parameters; got {tuple(theta.shape)}."
            )
        check_finite("theta", theta)
        object.__setattr__(self, "theta", theta.cpu())
        object.__setattr__(self, "prior", as_density("prior", self.prior))
        check_number("times", self.times)
        if check_number("share", self.share, strict=False) > 1:
            raise ValueError(f"share: expected a number between 0 and 1; got {self.share}.")
        _ = self._normal

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws with shape (n, m)."""
        kept: list[Tensor] = []
        for _ in range(ROUNDS):
            theta = self._mixture(n, generator)
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
        near = self._normal.log_prob(theta.double()[:, None])
        near = near.logsumexp(1) - math.log(near.shape[1])
        shares = cpu.tensor([1 - self.share, self.share], dtype=torch.float64)
        both = (torch.stack([near, prior]) + shares.log()[:, None]).logsumexp(0)
        return torch.where(prior > -torch.inf, both, -torch.inf)

    def __repr__(self) -> str:
        return f"Around(theta={tuple(self.theta.shape)}, times={self.times}, share={self.share})"

    @cached_property
    def _normal(self) -> torch.distributions.MultivariateNormal:
        """The normal of each of the o observations."""
        prior = _precision("prior", self.prior.sample(MOMENT_DRAWS, stream(0, "moments")))
        each = self.theta if self.theta.ndim == 3 else self.theta[None]
        windows = torch.stack([_precision("theta", draws) for draws in each]) / self.times**2
        mean = each.double().mean(1)
        return torch.distributions.MultivariateNormal(mean, precision_matrix=windows + prior)

    def _mixture(self, n: int, generator: torch.Generator) -> Tensor:
        """Draws (n, m) of the mixture, inside the prior's support or not."""
        mean, factor = self._normal.loc, self._normal.scale_tril
        noise = cpu.randn(n, mean.shape[1], 1, generator=generator).to(mean)
        prior = self.prior.sample(n, generator).to(mean)
        chosen = cpu.rand(n, 1, generator=generator) < self.share
        which = cpu.randint(len(mean), (n,), generator=generator)
        near = mean[which] + (factor[which] @ noise)[..., 0]
        return torch.where(chosen, prior, near).to(self.theta)


@full_precision()
def zoom(
    model: Any, sample: Sample, proposal: Any, n: int, k: int = 8, seed: Seed = 0
) -> Calibration:
    """Simulates a calibration around an observation, with sets whose members are exchangeable.

    It fits any test in parameter space, which is exact with :class:`assay.Exchange` if q is right
    at almost every x that the proposal leads to, and with :class:`assay.LocalExchange` if q is
    right near x_o. At each x, 4 k draws of q are made, of which a set keeps k.

    Args:
        model: A prior and a simulator: a :class:`Model`, or an object that has both.
        sample: Takes observations (n, ...), a number k and a generator, and returns draws of q,
            independent of each other, with shape (n, k, m). Code that reads a global generator
            may ignore the given one.
        proposal: What parameters are drawn from, such as :class:`Around`, a torch distribution or
            a :class:`Density`, in the support of the prior. It may depend on x_o and on draws of
            q there, but not on this calibration.
        n: The number of simulations.
        k: The number of draws of q in a set.
        seed: An int or a generator. The same seed gives the same calibration.

    Example:
        >>> def posterior(x, k, generator):  # of a standard normal with unit noise
        ...     return x[:, None] / 2 + 0.5**0.5 * torch.randn(len(x), k, 1, generator=generator)
        >>> def simulate(theta, generator):
        ...     return theta + torch.randn(theta.shape, generator=generator)
        >>> prior = torch.distributions.MultivariateNormal(torch.zeros(1), torch.eye(1))
        >>> x_o = torch.ones(1, 1)
        >>> theta_o = posterior(x_o, 500, torch.Generator())[0]
        >>> zoom(Model(prior, simulate), posterior, Around(theta_o, prior), 300)
        Calibration(n=300, m=1, k=8, x=(1,), space='parameters')
    """
    check_kind("model", model, "a Model(prior, simulate)", "prior", "simulate")
    check_function("sample", sample, "a function of (x, k, generator)")
    prior, proposal = as_density("prior", model.prior), as_density("proposal", proposal)
    n, k, seed = check_count("n", n), check_count("k", k), seed_of(seed)
    theta = call_seeded("proposal", proposal.sample, seed, n)
    _check_rows("proposal", theta, n)
    _check_support(theta, prior, proposal)
    x = call_seeded("simulate", model.simulate, seed, theta)
    _check_rows("simulate", x, n)
    check_fits("k", k, RESERVE * WORD * theta.numel())
    draws = call_seeded("sample", sample, seed, x, RESERVE * k).to(theta)
    expected = n, RESERVE * k, theta.shape[1]
    if draws.shape != expected:
        raise ValueError(f"sample: expected shape {expected}; got {tuple(draws.shape)}.")
    return exchangeable_pairs(theta, x, draws, prior, proposal, k, seed)


def exchangeable_pairs(
    theta: Tensor,
    x: Tensor,
    draws: Tensor,
    prior: Density,
    proposal: Density,
    k: int,
    seed: int,
    embed: Embed | None = None,
    remarks: tuple[str, ...] = (),
) -> Calibration:
    """Pairs (n, m) and (n, ...) of a proposal, with k of the draws of q (n, r, m) in each set."""
    members = torch.cat([theta[:, None], draws], 1)
    weights = _log_weights(members.flatten(0, 1), prior, proposal).unflatten(0, members.shape[:2])
    # Draws outside the prior's support get the mean weight of their set. If q is right there are
    # none; where it is not, they would never be picked without a weight.
    outside = weights.isnan()
    total = weights.masked_fill(outside, -torch.inf).logsumexp(1, keepdim=True)
    mean = total - (~outside).sum(1, keepdim=True).log()
    kept = exchangeable(torch.where(outside, mean, weights), k, seed)
    return Calibration(
        theta,
        x,
        members.gather(1, kept[..., None].expand(-1, -1, members.shape[2])),
        embed,
        remarks=remarks,
        weights=prior_over_proposal(theta, prior, proposal).to(theta),
        plain_draws=draws[:, :k],
    )


def prior_over_proposal(theta: Tensor, prior: Density, proposal: Density) -> Tensor:
    """Weights (n,) that turn parameters (n, m) of the proposal into those of the prior."""
    return (-_log_weights(theta, prior, proposal)).softmax(0) * len(theta)


class NoCompanions(ValueError):
    """The weights of a proposal leave nothing to exchange."""


def exchangeable(weights: Tensor, k: int, seed: int = 0) -> Tensor:
    r"""Picks k companions for each true parameter, with which it is exchangeable if q is right.

    The r members of a set, which are the true parameter with chances :math:`c_j \propto w_j`, are
    laid in random order on a circle, each on an arc of length :math:`(k + 1) \, c_j`. A uniform
    point of the true parameter's arc, moved on by 0, 1, ..., k, hits k + 1 members: the true
    parameter and its companions (systematic sampling, Madow 1949; for exchanges with unequal odds
    see Berrett, Wang, Barber and Samworth 2020).

    If q is right the arc of the true parameter is chosen in proportion to its length, so that the
    point is uniform on the circle. Given where the k + 1 points are, each is then the first one
    with the same chance, and each of the k + 1 members is the true parameter with this chance.

    Weights (n, r) are logarithms of proposal over prior at the members of n sets, true parameters
    first. The places of the companions are returned, with shape (n, k); a member whose arc is
    longer than one can be hit more than once.

    Example:
        >>> exchangeable(torch.zeros(10, 4), 3)[0].sort().values  # all weigh the same
        tensor([1, 2, 3])
    """
    (n, r), device = weights.shape, weights.device
    order = cpu.rand(n, r, generator=stream(seed, "circle")).argsort(1)
    arcs = (k + 1) * weights.cpu().double().softmax(1).gather(1, order)
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
    return kept.to(device)


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
        """Draws with shape (n, m)."""
        with isolated(generator), torch.no_grad():
            return self.distribution.sample(torch.Size((n,))).cpu()

    def log_prob(self, theta: Tensor) -> Tensor:
        """Log-densities (n,) of parameters (n, m); minus infinity outside the support."""
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
    factor, failed = torch.linalg.cholesky_ex(covariance)
    left = factor.diagonal() / covariance.diagonal().sqrt()
    if failed or not left.min() > SINGULAR:
        raise ValueError(
            f"{name}: expected draws that vary in all directions; got a singular covariance."
        )
    return torch.cholesky_inverse(factor)


def call_seeded(name: str, function: Callable[..., Any], seed: int, *given: Any) -> Tensor:
    """What a function returns, given a generator; the global ones are seeded during the call."""
    chance = stream(seed, name, "global")
    tensor = call_user_code(name, function, *given, stream(seed, name), generator=chance).cpu()
    check_finite(name, tensor)
    return tensor


def _check_rows(name: str, rows: Tensor, n: int) -> None:
    if rows.ndim < 2 or len(rows) != n:
        raise ValueError(f"{name}: expected shape ({n}, ...); got {tuple(rows.shape)}.")


def _log_weights(theta: Tensor, prior: Density, proposal: Density) -> Tensor:
    """Logarithms of proposal over prior (n,); NaN outside the prior's support."""
    below = log_density("prior", prior, theta)
    above = log_density("proposal", proposal, theta)
    return torch.where(below > -torch.inf, above - below, torch.nan)


def _check_support(theta: Tensor, prior: Density, proposal: Density) -> None:
    """Refuses draws of a proposal (n, m) where the prior's density, or its own, is zero."""
    weights = _log_weights(theta, prior, proposal)
    outside, unknown = int(weights.isnan().sum()), int((weights == -torch.inf).sum())
    if outside:
        raise ValueError(
            f"proposal: expected draws in the support of the prior; got {outside} of "
            f"{len(theta)} outside. Reject those, as Around does."
        )
    if unknown:
        raise ValueError(
            "proposal: expected a finite log_prob at its own draws; got minus infinity at "
            f"{unknown} of {len(theta)}."
        )

r"""What a posterior and a flow must offer, and the proof that a flow is one q.

A **posterior** gives draws of q at an observation. A **flow** maps latents to parameters,
:math:`\theta = T(z; x)` with z from a base :math:`u(z)`, and has an inverse besides. q is right at
x if and only if :math:`T^{-1}(\theta; x) \sim u` for :math:`\theta \sim p(\theta \mid x)`
(Linhart et al. 2023, Theorem 4). The base does not depend on x, on the flow or on the data, which
is why nulls in latent space can be drawn at will. The checks below make sure that the inverse, the
base and the samples speak of the same q.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from .._core import as_tensors, check_finite, check_kind, isolated, progress, stream


class Base(Protocol):
    """A distribution over R^m that can be drawn from with an explicit generator."""

    @property
    def dim(self) -> int:
        """The dimension m."""

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Returns n draws, with shape (n, m)."""


@dataclass(frozen=True)
class StandardNormal:
    """The base :math:`N(0, I_m)` of nearly every flow.

    Example:
        >>> StandardNormal(3).sample(5, torch.Generator().manual_seed(0)).shape
        torch.Size([5, 3])
    """

    dim: int

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Returns n draws, with shape (n, m)."""
        return torch.randn(n, self.dim, generator=generator)


@dataclass(frozen=True, eq=False)
class TorchBase:
    """Any other base, given as a :class:`torch.distributions.Distribution`."""

    distribution: Distribution

    @property
    def dim(self) -> int:
        """The dimension m."""
        return int(self.distribution.event_shape.numel())

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Returns n draws, with shape (n, m)."""
        with isolated(generator), torch.no_grad():
            return self.distribution.sample(torch.Size((n,))).reshape(n, -1).cpu()


def as_base(base: Any, dim: int) -> Base:
    """A base of this dimension; a standard normal is recognised by its density."""
    if isinstance(base, Distribution):
        foreign = TorchBase(base)
        base = StandardNormal(dim) if foreign.dim == dim and _is_standard(base) else foreign
    if not callable(getattr(base, "sample", None)) or not hasattr(base, "dim"):
        raise TypeError(
            "base: expected a torch.distributions.Distribution or an object with `dim` and "
            f"`sample(n, generator)`; got {type(base).__name__}."
        )
    if base.dim != dim:
        raise ValueError(
            f"base: expected dimension {dim}, that of theta; got {base.dim}. Independent normals "
            "need torch.distributions.Independent(base, 1)."
        )
    return base  # type: ignore[no-any-return]


def _is_standard(distribution: Distribution) -> bool:
    shape = distribution.event_shape
    z = torch.linspace(-2, 2, 7 * shape.numel()).reshape(7, *shape)
    expected = torch.distributions.Normal(0.0, 1.0).log_prob(z).flatten(1).sum(1)
    try:
        density = distribution.log_prob(z).detach().cpu()
    except (ValueError, NotImplementedError, RuntimeError):
        return False
    return density.shape == expected.shape and torch.allclose(density.to(expected), expected, 1e-4)


HANDFUL = 512
# Observations up to which drawing shows no progress.
FEW = 100
# The chance that a right flow is refused: about one in a million for each parameter; and that a
# check falls back to draws.
REFUSAL, FALLBACK = 1e-6, 1e-5
# Draws at one x whose mean is looked at.
TOGETHER = 16


class Posterior(Protocol):
    """A posterior approximation; a :class:`Flow` has an inverse besides."""

    def sample(self, x: Tensor, n: int) -> Any:
        """Returns n draws (n, m) at one observation x, with shape (...,)."""


@dataclass(frozen=True, eq=False)
class FunctionPosterior:
    """A function of x and n as a posterior."""

    function: Callable[[Tensor, int], Any]

    def sample(self, x: Tensor, n: int) -> Any:
        """Returns n draws (n, m) at one observation x, with shape (...,)."""
        return self.function(x, n)


def as_posterior(posterior: Any) -> Posterior:
    """A posterior as it is, a function as one, or refuses."""
    if not isinstance(posterior, type):
        if callable(getattr(posterior, "sample", None)):
            return posterior  # type: ignore[no-any-return]
        if callable(posterior):
            return FunctionPosterior(posterior)
    raise TypeError(
        "posterior: expected an object with sample(x, n), a function of x and n, or a "
        f"Calibration; got {type(posterior).__name__}."
    )


def is_flow(posterior: Any) -> bool:
    """Whether a posterior has an inverse and a base."""
    return hasattr(posterior, "theta_to_base") and hasattr(posterior, "base")


def draw_at(posterior: Posterior, x: Tensor, n: int, seed: int, purpose: str) -> Tensor:
    """Draws (b, n, m) of q at observations (b, ...), each with a stream named by the purpose."""
    silent = None if len(x) > FEW else True
    each = progress(x, f"drawing: {purpose}", silent=silent, unit="x")
    streams = (stream(seed, purpose, i) for i in range(len(x)))
    try:
        return torch.stack([flow_sample(posterior, at, n, next(streams)) for at in each])
    except TypeError as error:
        raise TypeError(
            f"posterior: expected sample(x, n), which takes one observation x, a tensor of shape "
            f"{tuple(x.shape[1:])}, and returns n draws (n, m); calling it so failed with: {error}"
        ) from error


class Flow(Protocol):
    """A conditional normalizing flow, one and the same q in its three members."""

    @property
    def base(self) -> Any:
        """The base distribution: a torch distribution over R^m, or a :class:`Base`."""

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Maps parameters (n, m) at observations (n, ...) to latents (n, m)."""

    def sample(self, x: Tensor, n: int) -> Tensor:
        """Returns n draws (n, m) at one observation x, with shape (...,)."""


class AnotherQ(ValueError):
    """The draws of a flow do not belong to its inverse and its base."""


_ANOTHER_Q = (
    "{name}: expected draws of this flow; their latents do not follow its base "
    "(Kolmogorov-Smirnov p = {p:.1g} in view {view}). They belong to another q: were they "
    "truncated to the prior, or drawn from another network? Test what you sample: keep to "
    "parameter space, or draw from the flow itself."
)
_NOT_INVERSE = (
    "flow: expected theta_to_base to map the flow's own samples to its base; it does not "
    "(Kolmogorov-Smirnov p = {p:.1g} in view {view}). Check the direction of the transform, "
    "the embedding of x, and whether sample() truncates to the prior."
)


def flow_to_base(flow: Flow, theta: Tensor, x: Tensor) -> Tensor:
    """Maps parameters (n, m) at observations (n, ...) to latents (n, m), and checks them."""
    with torch.no_grad():
        z = as_tensors({"flow.theta_to_base": flow.theta_to_base(theta, x)})["flow.theta_to_base"]
    if z.shape != theta.shape:
        raise ValueError(
            f"flow.theta_to_base: expected shape {tuple(theta.shape)}; got {tuple(z.shape)}."
        )
    check_finite("flow.theta_to_base(theta, x)", z)
    return z.to(theta)


def flow_sample(flow: Posterior, x: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Returns n draws (n, m) of a flow at one observation, and checks them."""
    with isolated(generator), torch.no_grad():
        theta = as_tensors({"flow.sample": flow.sample(x, n)})["flow.sample"]
    if theta.ndim != 2 or len(theta) != n:
        raise ValueError(
            f"flow.sample: expected n = {n} draws at one observation, with shape ({n}, m); "
            f"got {tuple(theta.shape)}."
        )
    check_finite("flow.sample(x, n)", theta)
    return theta.to(x)


def check_inverse(flow: Flow, base: Base, x: Tensor, generator: torch.Generator) -> None:
    """Refuses a flow whose inverse does not map a handful of its samples to its base."""
    sites = x[: min(len(x), 16)]
    each = HANDFUL // len(sites)
    theta = torch.cat([flow_sample(flow, site, each, generator) for site in sites])
    if theta.shape[1] != base.dim:
        raise ValueError(
            f"flow.sample: expected draws of {base.dim} parameters; got {theta.shape[1]}."
        )
    z = flow_to_base(flow, theta, sites.repeat_interleave(each, 0))
    _check_base(z, base, "flow", _NOT_INVERSE)


def check_own(z: Tensor, base: Base, name: str) -> None:
    """Refuses latents (n, m) of draws that a handful shows not to be the flow's."""
    _check_base(z[:HANDFUL], base, name, _ANOTHER_Q)


def check_flow(flow: Any) -> None:
    """Refuses what lacks a flow's members."""
    hint = " Zuko's flows are wrapped by assay.adapters.zuko.ZukoFlow."
    expected = "an object with base, theta_to_base(theta, x) and sample(x, n)."
    check_kind("flow", flow, expected + hint, "base", "theta_to_base", "sample")


def _check_base(z: Tensor, base: Base, name: str, message: str) -> None:
    """Refuses latents that are visibly not draws of the base."""
    from scipy.stats import ks_2samp  # costs half a second, and is needed for flows alone

    reference = _views(base.sample(100 * HANDFUL, stream(0, "reference", name)))
    for view, (own, expected) in enumerate(zip(_views(z.cpu()), reference, strict=True)):
        p = ks_2samp(own, expected, method="asymp").pvalue
        if p < REFUSAL:
            raise AnotherQ(message.format(name=name, p=p, view=view))


def check_sets(flow: Flow, base: Base, draws: Tensor, x: Tensor, groups: Tensor) -> None:
    """Refuses draws (c, s, m) at x (c, ...) whose latents in any group (g, c) are not the base's.

    Truncation need not show on average: groups are those near an observation, and what draws at
    the same x have in common counts as well. Of a base that is not normal nothing is told.
    """
    if not isinstance(base, StandardNormal):
        return
    z = flow_to_base(flow, draws.flatten(0, 1), x.repeat_interleave(draws.shape[1], 0))
    for group in groups.cpu():
        p = _normality(z.cpu().double().unflatten(0, draws.shape[:2])[group])
        if len(groups) * p < FALLBACK:
            raise AnotherQ(_NOT_INVERSE.format(p=p, view="of sets"))


def _normality(z: Tensor) -> float:
    """The p-value of latents (c, s, m) being N(0, I), by moments of their views and of sets."""
    from scipy.special import chdtr, chdtrc, ndtr

    directions = torch.randn(z.shape[2], 4, generator=stream(0, "projections")).to(z)
    beside = (z + z.roll(1, 2)) / math.sqrt(2) if z.shape[2] > 1 else z[..., :0]
    views = torch.cat([z, beside, z @ directions / directions.norm(dim=0)], 2)
    size = min(TOGETHER, views.shape[1])
    sums = views[:, : views.shape[1] // size * size].unflatten(1, (-1, size)).sum(2).flatten(0, 1)
    views = views.flatten(0, 1)
    means = views.sum(0) / math.sqrt(len(views))
    squares = (sums.square().sum(0) / size, len(sums)), (views.square().sum(0), len(views))
    tails = [ndtr(-means.abs().numpy())]
    tails += [tail(n, total.numpy()) for total, n in squares for tail in (chdtr, chdtrc)]
    return float(2 * views.shape[1] * len(tails) * np.min(tails))


def _views(z: Tensor) -> list[np.ndarray]:
    """Coordinates, products of neighbours and a few projections of latents (n, m)."""
    products = z * z.roll(1, 1) if z.shape[1] > 1 else z[:, :0]
    directions = torch.randn(z.shape[1], 4, generator=stream(0, "projections"))
    views = torch.cat([z.double(), products.double(), z.double() @ directions.double()], 1)
    return list(views.numpy().T)

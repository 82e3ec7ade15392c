r"""What a posterior and a flow must offer, and the proof that a flow is one q.

A **posterior** gives draws of q at an observation. A **flow** maps latents to parameters,
:math:`\theta = T(z; x)` with z from a base :math:`u(z)`, and also has an inverse. q is right at
x if and only if :math:`T^{-1}(\theta; x) \sim u` for :math:`\theta \sim p(\theta \mid x)`
(Linhart et al. 2023, Theorem 4). The base does not depend on x, on the flow or on the data, so
that the null in latent space is known. The checks below make sure that the inverse, the base and
the samples belong to the same q.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from .._support.inputs import check_finite, cpu
from .._support.random import call_user_code, isolated, stream

if TYPE_CHECKING:
    from .tables import Layout

# Draws by which a flow is checked, and x at which they are made.
HANDFUL, SITES = 512, 16
# Rows that are mapped to latents at a time.
ROWS = 2**13
# Seconds that a call may take.
LIMIT = 600.0
# The chance that a right flow is refused, for each view of its latents; and that a check with a
# right flow falls back to draws.
REFUSAL, FALLBACK = 1e-6, 1e-5
# Draws at one x whose mean is compared with that of the base.
TOGETHER = 16

# Latents (n, m) and log-densities (n,) of parameters (n, m) at observations (n, ...); features
# (n, d) of the latter.
Coordinates = Callable[[Tensor, Tensor], Tensor]
LogDensity = Callable[[Tensor, Tensor], Tensor]
Embed = Callable[[Tensor], Any]


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
        return cpu.randn(n, self.dim, generator=generator)


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
        base = TorchBase(base)
        if base.dim == dim and _is_standard(base.distribution):
            base = StandardNormal(dim)
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
    z = cpu.linspace(-2, 2, 7 * shape.numel()).reshape(7, *shape)
    expected = torch.distributions.Normal(0.0, 1.0).log_prob(z).flatten(1).sum(1)
    try:
        density = distribution.log_prob(z).detach().cpu()
    except (ValueError, NotImplementedError, RuntimeError):
        return False
    return density.shape == expected.shape and torch.allclose(density.to(expected), expected, 1e-4)


class Posterior(ABC):
    """A posterior approximation as every test takes it, whatever library it comes from.

    Only :meth:`sample_batched` must be there. Random numbers come from the global generators of
    torch, NumPy and Python, which are seeded before every call; a library with keys of its own
    takes them from :func:`fresh_key`. :func:`as_posterior` makes one of what users have.

    Example:
        >>> class Halved(Posterior):
        ...     def sample_batched(self, x, n):
        ...         return x[:, None] / 2 + torch.randn(len(x), n, x.shape[1])
        >>> Halved().sample(torch.zeros(2), 5).shape
        torch.Size([5, 2])
    """

    @abstractmethod
    def sample_batched(self, x: Tensor, n: int) -> Any:
        """Returns n draws (b, n, m) at each of b observations (b, ...)."""

    def sample(self, x: Tensor, n: int) -> Any:
        """Returns n draws (n, m) at one observation x, with shape (...,)."""
        return self.sample_batched(x[None], n)[0]

    @property
    def rows(self) -> int:
        """Observations at which draws are made in one call."""
        return 100

    @property
    def flow(self) -> "Flow | None":
        """The flow that makes the draws, where these are all of its draws: one and the same q."""
        return None

    @property
    def coordinates(self) -> Coordinates | None:
        """An invertible map of parameters at each x, in which draws are nearly standard normal.

        That of a flow some of whose draws are left out, such as those outside of the prior. Its
        base says nothing about q then, but true parameters can be compared with draws in it.
        """
        return None

    @property
    def log_density(self) -> LogDensity | None:
        """The log-density of q, if it is known, as :func:`assay.coverage` takes it.

        Of parameters (b, m) at observations (b, ...); a constant for each x may be missing.
        """
        return None

    @property
    def embed(self) -> Embed | None:
        """The summary network of the posterior, if it has one: observations to features (n, d)."""
        return None

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the parameters, if they are known."""
        return None

    def remarks(self, x: Tensor) -> tuple[str, ...]:
        """Sentences about draws at observations (b, ...), for the reader of a result."""
        return ()


def fresh_key() -> int:
    """A random number below 2^31 from the generator that is seeded before every call."""
    return int(cpu.randint(2**31, ()))


def as_posterior(posterior: Any, x: Tensor, layout: "Layout | None" = None) -> Posterior:
    """A posterior of what users have; functions are tried at some observations x (b, ...).

    Where the columns of x are those of a dict, functions are given dicts. An object may be that of
    a library that :mod:`assay.adapters` knows, or have ``sample_batched(x, n)`` or
    ``sample(x, n)``, and `theta_to_base` and `base` if it is a flow.

    Example:
        >>> as_posterior(lambda x, n: x + torch.randn(n, 2), torch.zeros(4, 2)).way.words
        'one x and n, to draws (n, m)'
    """
    if isinstance(posterior, Posterior):
        return posterior
    # Adapters import this module; it imports them by name, when a posterior is given.
    adapters: Any = import_module("assay.adapters")
    known = None if isinstance(posterior, type) else adapters.adapted(posterior, x, layout)
    if known is None:
        raise TypeError(
            "posterior: expected an object with sample(x, n), a function of x and n, or a "
            f"Calibration; got {type(posterior).__name__}."
        )
    return cast(Posterior, known)


def is_flow(posterior: Any) -> bool:
    """Whether a posterior has an inverse and a base."""
    return hasattr(posterior, "theta_to_base") and hasattr(posterior, "base")


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


def latents(coordinates: Coordinates, theta: Tensor, x: Tensor) -> Tensor:
    """Latents (n, m) of parameters (n, m) at observations (n, ...), some rows at a time."""
    name = "flow.theta_to_base"
    parts = zip(theta.split(ROWS), x.split(ROWS), strict=True)
    each = [call_user_code(name, coordinates, *part) for part in parts]
    if any(z.shape[1:] != theta.shape[1:] or z.ndim != 2 for z in each):
        got = tuple(each[0].shape)
        raise ValueError(f"{name}: expected shape {tuple(theta.shape)}; got {got}.")
    return torch.cat(each).to(theta)


def flow_to_base(flow: Flow, theta: Tensor, x: Tensor) -> Tensor:
    """Maps parameters (n, m) at observations (n, ...) to latents (n, m), and checks them."""
    z = latents(flow.theta_to_base, theta, x)
    check_finite("flow.theta_to_base(theta, x)", z)
    return z


def flow_sample(flow: Flow, x: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Returns n draws (n, m) of a flow at one observation, and checks them."""
    theta = call_user_code("flow.sample", flow.sample, x, n, generator=generator)
    if theta.ndim != 2 or len(theta) != n:
        raise ValueError(
            f"flow.sample: expected n = {n} draws at one observation, with shape ({n}, m); "
            f"got {tuple(theta.shape)}."
        )
    check_finite("flow.sample(x, n)", theta)
    return theta.to(x)


def check_inverse(flow: Flow, base: Base, x: Tensor, generator: torch.Generator) -> None:
    """Refuses a flow whose inverse does not map a handful of its samples to its base."""
    sites = x[:SITES]
    each = HANDFUL // len(sites)
    if isinstance(flow, Posterior):  # in one call
        theta = call_user_code("flow", flow.sample_batched, sites, each, generator=generator)
        check_finite("flow.sample_batched(x, n)", theta)
        theta = theta.flatten(0, 1).to(x)
    else:
        theta = torch.cat([flow_sample(flow, at, each, generator) for at in sites])
    if theta.shape[1] != base.dim:
        raise ValueError(
            f"flow.sample: expected draws of {base.dim} parameters; got {theta.shape[1]}."
        )
    z = flow_to_base(flow, theta, sites.repeat_interleave(each, 0))
    check_base(z, base, "flow", _NOT_INVERSE)


def check_base(z: Tensor, base: Base, name: str, message: str = _ANOTHER_Q) -> None:
    """Refuses latents (n, m) a handful of which are visibly not draws of the base."""
    from scipy.stats import ks_2samp  # costs half a second, and is needed for flows alone

    own = _views(z[:HANDFUL].cpu())
    reference = _views(base.sample(100 * HANDFUL, stream(0, "reference", name)))
    for view, both in enumerate(zip(own, reference, strict=True)):
        p = ks_2samp(*both, method="asymp").pvalue
        if p < REFUSAL:
            raise AnotherQ(message.format(name=name, p=p, view=view))


def _views(z: Tensor) -> list[np.ndarray]:
    """Coordinates, products of neighbours and a few projections of latents (n, m)."""
    products = z * z.roll(1, 1) if z.shape[1] > 1 else z[:, :0]
    directions = cpu.randn(z.shape[1], 4, generator=stream(0, "projections"))
    views = torch.cat([z.double(), products.double(), z.double() @ directions.double()], 1)
    return list(views.numpy().T)


def check_sets(flow: Flow, base: Base, draws: Tensor, x: Tensor, groups: Tensor) -> None:
    """Refuses draws (c, s, m) at x (c, ...) whose latents in some group (g, c) are not the base's.

    Truncation need not show on average over x: groups are those near an observation, and what
    draws at the same x have in common counts, too. Only a normal base is checked.
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

    directions = cpu.randn(z.shape[2], 4, generator=stream(0, "projections")).to(z)
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

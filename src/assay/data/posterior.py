r"""What a posterior and a flow must offer, and the proof that a flow is one q.

A **posterior** gives draws of q at an observation. A function of x, or an object that samples,
is called in one way after another until its draws have the right shape. A **flow** maps latents to
parameters, :math:`\theta = T(z; x)` with z from a base :math:`u(z)`, and also has an inverse. q is
right at x if and only if :math:`T^{-1}(\theta; x) \sim u` for :math:`\theta \sim p(\theta \mid x)`
(Linhart et al. 2023, Theorem 4), and u does not depend on x or on the flow, so that the null in
latent space is known. The checks below make sure that inverse, base and draws belong to one q.
"""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import product
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Distribution

from .._support.inputs import as_tensors, check_finite, check_kind, cpu, error_line
from .._support.random import call_user_code, isolated, stream
from .._support.work import time_limit
from .tables import Layout, Table, layout_of, named_table

# Draws by which a flow is checked, and x at which they are made.
HANDFUL, SITES = 512, 16
# Rows that are mapped to latents at a time, and seconds that a call may take.
ROWS, LIMIT = 2**13, 600.0
# The chance that a right flow is refused, for each view of its latents; and that a check with a
# right flow falls back to draws.
REFUSAL, FALLBACK = 1e-6, 1e-5
# Draws at one x whose mean is compared with that of the base.
TOGETHER = 16
# Observations, draws and times with which a function is tried.
TRIED_X, TRIED_DRAWS, TRIES = 3, 5, 3

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
    """The base :math:`N(0, I_m)` of nearly every flow."""

    dim: int

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Returns n draws, with shape (n, m)."""
        return cpu.randn(n, self.dim, generator=generator)


@dataclass(frozen=True, eq=False)
class TorchBase:
    """Any other base, given as a :class:`torch.distributions.Distribution`."""

    distribution: Distribution
    dim: int

    def sample(self, n: int, generator: torch.Generator) -> Tensor:
        """Returns n draws, with shape (n, m)."""
        with isolated(generator), torch.no_grad():
            return self.distribution.sample(torch.Size((n,))).reshape(n, -1).cpu()


def as_base(base: Any, dim: int) -> Base:
    """A base of this dimension; a standard normal is recognised by its density."""
    if isinstance(base, Distribution):
        other = TorchBase(base, base.event_shape.numel())
        base = StandardNormal(dim) if _is_standard(base, dim) else other
    kinds = "a torch.distributions.Distribution or an object with `dim` and `sample(n, generator)`"
    check_kind("base", base, kinds, "dim", "sample")
    if base.dim != dim:
        raise ValueError(
            f"base: expected dimension {dim}, that of theta; got {base.dim}. Independent normals "
            "need torch.distributions.Independent(base, 1)."
        )
    return base


def _is_standard(distribution: Distribution, dim: int) -> bool:
    z = cpu.linspace(-2, 2, 7 * dim).reshape(7, dim)
    expected = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(1)
    try:
        density = distribution.log_prob(z.reshape(7, *distribution.event_shape)).detach().cpu()
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

    # What else is known of q. Only the flow's own draws belong to it: it and its draws are one q.
    rows: int = 100  # observations at which draws are made in one call
    flow: "Flow | None" = None  # the flow that makes the draws, if none of them are left out
    # A map of parameters at x in which q is nearly normal: that of a flow some of whose draws are
    # left out, as those outside of the prior are.
    coordinates: Coordinates | None = None
    # The log-density (b,) of q at parameters (b, m) and x (b, ...), but for a factor of x.
    log_density: LogDensity | None = None
    embed: Embed | None = None  # the summary network: observations to features (n, d)
    names: tuple[str, ...] | None = None  # of the parameters

    def remarks(self, x: Tensor) -> tuple[str, ...]:
        """Sentences about draws at observations (b, ...), for the reader of a result."""
        return ()


def fresh_key() -> int:
    """A random number below 2^31 from the generator that is seeded before every call."""
    return int(cpu.randint(2**31, ()))


def as_posterior(posterior: Any, x: Tensor, layout: Layout | None = None) -> Posterior:
    """A posterior of what users have; functions are tried at some observations x (b, ...).

    Functions are given dicts where the columns of x are those of a dict. An object may be that of
    a library that :mod:`assay.adapters` knows, or have ``sample_batched(x, n)`` or
    ``sample(x, n)``, and `theta_to_base` and `base` if it is a flow.

    Example:
        >>> as_posterior(lambda x, n: x + torch.randn(n, 2), torch.zeros(4, 2)).way.words
        'one x and n, to draws (n, m)'
    """
    if isinstance(posterior, Posterior):
        return posterior
    function, flow = posterior, None
    if not inspect.isroutine(posterior) and not isinstance(posterior, type):
        # Adapters import this module; it imports them by name, for objects that may be theirs.
        known = import_module("assay.adapters").adapted(posterior, x, layout)
        if known is not None:
            return known
        methods = (getattr(posterior, name, None) for name in ("sample_batched", "sample"))
        function = next(filter(callable, methods), posterior)
        if all(hasattr(posterior, name) for name in ("theta_to_base", "base", "sample")):
            flow = posterior
    if not callable(function) or isinstance(posterior, type):
        raise TypeError(
            "posterior: expected an object with sample(x, n), a function of x and n, or a "
            f"Calibration; got {type(posterior).__name__}."
        )
    return _first_way(function, x, layout, flow)


def as_table(name: str, given: Any, axes: int = 1) -> Table:
    """An array of whatever holds numbers, with names where it has them (`data.tables`)."""
    if isinstance(given, Tensor | np.ndarray | list | tuple):
        return Table(given)
    return named_table(name, given, axes, stream(0, "chains", 0))


class Way(NamedTuple):
    """A way in which functions give draws."""

    words: str
    rows: int = 1  # at how many x the function is called at once
    samples_first: bool = False  # whether draws at many x come as (n, b, m)
    distribution: bool = False  # whether it is a function of x alone that returns a distribution


WAYS = (
    Way("one x and n, to draws (n, m)"),
    Way("many x and n, to draws (b, n, m)", 100),
    Way("many x and n, to draws (n, b, m)", 100, samples_first=True),
    Way("many x, to a batch of distributions", 100, samples_first=True, distribution=True),
    Way("one x, to a distribution", distribution=True),
)


@dataclass(frozen=True, eq=False)
class FunctionPosterior(Posterior):
    """A function as a posterior, called in a way that was found out."""

    function: Callable[..., Any]
    way: Way
    convert: Callable[[Tensor], Any] = Tensor.clone  # makes of x what the function is given
    flow: "Flow | None" = None  # the object whose method it is, if it has an inverse and a base
    names: tuple[str, ...] | None = None  # of the parameters, if draws have them
    repeats: bool = True  # whether the same seed gives the same draws

    def __post_init__(self) -> None:
        vars(self)["rows"] = self.way.rows

    def sample_batched(self, x: Tensor, n: int) -> Any:
        """Returns n draws (b, n, m) at each of b observations (b, ...)."""
        return self.table(x, n).array

    def table(self, x: Tensor, n: int) -> Table:
        """The same, with names if the function gives them."""
        alone, many, tables = self.way.distribution, self.way.rows > 1, []
        for some in [x] if many else x:
            given = self.convert(some)
            draws = draws_of(self.function(given), n) if alone else self.function(given, n)
            tables.append(as_table("posterior", draws, 2 if many else 1))
        layout = tables[0].layout if self.names is None else layout_of(self.names)
        if layout is not None:
            tables = [table.like(layout, "posterior", "its first draws") for table in tables]
        arrays = [as_tensors({"posterior": table.array})["posterior"] for table in tables]
        array = arrays[0] if many else torch.stack(arrays)
        return Table(array.swapaxes(0, 1) if self.way.samples_first else array, layout)

    def remarks(self, x: Tensor) -> tuple[str, ...]:
        """Whether draws can be made again."""
        own = "The posterior keeps a random generator of its own: the same seed does not give"
        return () if self.repeats else (f"{own} the same draws.",)


def draws_of(distribution: Any, n: int) -> Any:
    """Draws (n, ...) of a distribution of torch or numpyro, without importing either to look."""
    libraries = {kind.__module__.split(".")[0] for kind in type(distribution).__mro__}
    if "numpyro" in libraries:
        import jax

        # The key comes from the generator that is seeded before every call.
        return np.asarray(distribution.sample(jax.random.PRNGKey(fresh_key()), (n,)))
    if "torch" in libraries:
        with torch.no_grad():
            return distribution.sample(torch.Size((n,)))
    raise TypeError(
        "posterior: expected draws, or a distribution of torch or numpyro; got "
        f"{type(distribution).__name__}."
    )


def _first_way(
    function: Callable[..., Any], x: Tensor, layout: Layout | None, flow: "Flow | None"
) -> FunctionPosterior:
    """The function in the first way that works at some x, given as a tensor or an array."""
    converts: list[Callable[..., Any]]
    converts = [Tensor.clone, Tensor.float, lambda x: x.cpu().numpy().copy()]
    if layout is not None and layout.packed:
        converts = [lambda x, one=one: layout.unpack(one(x)) for one in converts]  # type: ignore[misc]
    problems: dict[str, str] = {}
    for convert, way, i in product(converts, WAYS, range(TRIES)):
        q, tables = FunctionPosterior(function, way, convert, flow), []
        some = x[(i + cpu.arange(min(way.rows, TRIED_X))) % len(x)]
        try:
            for _ in range(2):
                with time_limit(LIMIT), isolated(stream(0, "tried")):
                    tables.append(q.table(some, TRIED_DRAWS))
                shape = tuple(tables[-1].array.shape)
                if len(shape) != 3 or shape[:2] != (len(some), TRIED_DRAWS):
                    raise ValueError(f"shape {shape} at {len(some)} x with n = {TRIED_DRAWS}")
        except Exception as problem:
            problems.setdefault(way.words, error_line(problem))
        else:
            (first, named), (again, _) = tables
            repeats = torch.allclose(first, again, rtol=0, atol=0, equal_nan=True)
            return replace(q, names=named.names if named else None, repeats=repeats)
    raise TypeError(
        f"posterior: expected sample(x, n), which takes one observation x, a tensor of shape "
        f"{tuple(x.shape[1:])}, and returns n draws (n, m), or another function of x; calling it "
        "failed. " + " ".join(f"With {way}: {words}." for way, words in problems.items())
    )


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


def latents(coordinates: Coordinates, theta: Tensor, x: Tensor, *, finite: bool = True) -> Tensor:
    """Latents (n, m) of parameters (n, m) at observations (n, ...), some rows at a time."""
    name = "flow.theta_to_base"
    parts = zip(theta.split(ROWS), x.split(ROWS), strict=True)
    each = [call_user_code(name, coordinates, *part) for part in parts]
    if any(z.shape[1:] != theta.shape[1:] for z in each):
        got = tuple(each[0].shape)
        raise ValueError(f"{name}: expected shape {tuple(theta.shape)}; got {got}.")
    z = torch.cat(each).to(theta)
    if finite:
        check_finite(f"{name}(theta, x)", z)
    return z


def flow_sample(flow: Flow, x: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Returns n draws (b, n, m) of a flow at each of b observations, and checks them."""
    name, how = "flow.sample", {"generator": generator}
    if isinstance(flow, Posterior):  # in one call
        each = [*call_user_code(name, flow.sample_batched, x, n, **how)]
    else:
        each = [call_user_code(name, flow.sample, at, n, **how) for at in x]
    for theta in each:
        if theta.ndim != 2 or len(theta) != n:
            raise ValueError(
                f"{name}: expected n = {n} draws at one observation, with shape ({n}, m); got "
                f"{tuple(theta.shape)}."
            )
        check_finite(f"{name}(x, n)", theta)
    return torch.stack(each).to(x)


def check_inverse(flow: Flow, base: Base, x: Tensor, generator: torch.Generator) -> None:
    """Refuses a flow whose inverse does not map a handful of its samples to its base."""
    x = x[:SITES]
    theta = flow_sample(flow, x, HANDFUL // len(x), generator)
    if theta.shape[2] != base.dim:
        raise ValueError(
            f"flow.sample: expected draws of {base.dim} parameters; got {theta.shape[2]}."
        )
    x = x.repeat_interleave(theta.shape[1], 0)
    z = latents(flow.theta_to_base, theta.flatten(0, 1), x)
    check_base(z, base, "flow", _NOT_INVERSE)


def check_base(z: Tensor, base: Base, name: str, message: str = _ANOTHER_Q) -> None:
    """Refuses latents (n, m) a handful of which are visibly not draws of the base."""
    from scipy.stats import ks_2samp  # costs half a second, and is needed for flows alone

    reference = base.sample(100 * HANDFUL, stream(0, "reference", name))
    directions = cpu.randn(z.shape[1], 4, generator=stream(0, "projections")).double()
    views = []  # coordinates, products of neighbours and a few projections
    for some in (z[:HANDFUL].cpu(), reference):
        products = some * some.roll(1, 1) if z.shape[1] > 1 else some[:, :0]
        some = some.double()
        views.append(torch.cat([some, products.double(), some @ directions], 1).numpy().T)
    for view, both in enumerate(zip(*views, strict=True)):
        p = ks_2samp(*both, method="asymp").pvalue
        if p < REFUSAL:
            raise AnotherQ(message.format(name=name, p=p, view=view))


def check_sets(flow: Flow, base: Base, draws: Tensor, x: Tensor, groups: Tensor) -> None:
    """Refuses draws (c, s, m) at x (c, ...) whose latents in some group (g, c) are not the base's.

    Truncation need not show on average over x: groups are near an observation, and what draws at
    the same x have in common counts, too. Only a normal base is checked.
    """
    if not isinstance(base, StandardNormal):
        return
    x = x.repeat_interleave(draws.shape[1], 0)
    z = latents(flow.theta_to_base, draws.flatten(0, 1), x)
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

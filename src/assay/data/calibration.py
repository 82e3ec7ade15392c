r"""What a test looks at: calibration pairs with draws of q, and draws of q at an observation.

A calibration pair is a draw of the joint, :math:`\theta \sim p(\theta)`,
:math:`x \sim p(x \mid \theta)`, so that given x, theta is a draw of the true posterior. Beside it
are k draws :math:`\theta_q \sim q(\cdot \mid x)` of the approximation under test. The true
parameter and the draws at one x are its **set**; each of them is a **member**. In **latent space**
the true parameters are :math:`z = T^{-1}(\theta; x)` for a flow T, and q is the flow's base
distribution, which is known, so that no draws are stored (:class:`Latents`).

**Class roles**, as in the paper and everywhere in this library: class 0 is q, class 1 are true
parameters, and a class probability is :math:`d = P(\text{class } 1)`.
"""

import math
import warnings
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import (
    WORD,
    as_device,
    as_tensors,
    check_count,
    check_finite,
    check_fits,
    check_kind,
    check_names,
    cpu,
)
from .._support.random import Seed, mix_seed, seed_of, stream
from ..neighbourhood import FEW_FEATURES, Distance, DistanceForQ, Nearest, as_nearest
from . import guards
from .draw import PATIENT, Drawing, Draws, draw_pairs
from .posterior import (
    HANDFUL,
    Base,
    Embed,
    Flow,
    StandardNormal,
    as_base,
    as_table,
    check_base,
    check_inverse,
    flow_sample,
    latents,
)
from .tables import Layout, Table, named_draws

# Numbers of each set from which a seed is taken where x has no order.
COLUMNS = 4


@dataclass(frozen=True, eq=False)
class Observation:
    """Observations that were checked against those of a calibration."""

    x: Tensor  # as given, (o, ...)
    features: Tensor  # what a classifier is given of them, (o, d)
    single: bool  # whether one was given, without a leading axis

    def shaped(self, values: Any) -> Any:
        """Values with a leading axis of observations, without it where one was given."""
        return values[0] if self.single else values


@dataclass(frozen=True, eq=False)
class ObservedDraws(Observation):
    """The same, with draws of q that were checked, too."""

    draws: Tensor  # in the space of the calibration, (o, s, m)
    theta: Tensor | None  # the same in parameter units; None without a flow


@dataclass(frozen=True, eq=False, repr=False)
class Calibration(guards.Sealed):
    r"""Pairs of the joint, with k draws of q at every x.

    NumPy arrays, torch tensors, JAX arrays and nested lists are accepted; integers become
    floating point. So are data frames, xarray's data sets and dicts of arrays, matched by their
    names (:mod:`assay.data.tables`); as `theta_q` also a list of ArviZ's InferenceData, one for
    each x, of which 16 draws are taken at random. Device and precision follow what is given.
    Draws that share their noise from x to x are refused, and correlated ones cause a warning
    (:mod:`assay.data.guards`).

    Args:
        theta: The true parameters, with shape (n, m).
        x: The observations they produced, with shape (n, ...).
        theta_q: Draws of :math:`q(\cdot \mid x)`, with shape (n, m) or (n, k, m).
        embed: Turns observations (n, ...) into features (n, d), for images, series or sets, and
            may take x that is padded with NaN; without it, observations are flattened.

    Example:
        >>> theta, noise = torch.randn(2, 100, 3, generator=torch.Generator().manual_seed(0))
        >>> Calibration(theta, theta + noise, (theta + noise) / 2)
        Calibration(n=100, m=3, k=1, x=(3,), space='parameters')
    """

    theta: Tensor
    x: Tensor
    theta_q: Tensor | None
    embed: Embed | None = None
    _: KW_ONLY
    names: tuple[str, ...] | None = None  # of the parameters
    layout: Layout | None = None  # of the columns of x, if they have names
    remarks: tuple[str, ...] = ()  # sentences about the draws
    # If parameters are from a proposal: prior over proposal at theta, (n,), and draws of q
    # (n, k, m) that were not chosen to be exchangeable with theta.
    weights: Tensor | None = None
    plain_draws: Tensor | None = None
    # What is known of class 0 without draws; see :class:`Latents`.
    base: ClassVar[Base | None] = None
    flow: ClassVar[Flow | None] = None
    space: ClassVar[str] = "parameters"

    if TYPE_CHECKING:

        def __init__(
            self, theta: Any, x: Any, theta_q: Any, embed: Embed | None = None, **about: Any
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.theta_q is None:
            raise ValueError(
                "theta_q: expected draws of q with shape (n, m) or (n, k, m); got None. "
                "For latents of a flow use Calibration.from_base(z, x)."
            )
        theta, x = as_table("theta", self.theta), as_table("x", self.x)
        draws: Any = self.theta_q
        named = theta.layout
        if not isinstance(draws, Tensor | np.ndarray):
            table = named_draws(draws, theta.layout, partial(stream, 0, "chains"))
            draws, named = table.array, theta.layout or table.layout
        if named is not None and self.names is None:
            vars(self)["names"] = named.names
        vars(self)["layout"] = x.layout or self.layout
        if self.layout is not None:
            check_kind("layout", self.layout, "a Layout, or None", Layout)
        check_kind("remarks", self.remarks, "a tuple of words", tuple)
        for remark in self.remarks:
            check_kind("remarks", remark, "a tuple of words", str)
        self._keep({"theta": theta.array, "x": x.array, "theta_q": draws})
        guards.check_noise(self.theta_q, self.features, Distance())
        chain = guards.autocorrelation(self.theta_q)
        if chain:
            warnings.warn(f"theta_q: {chain}", stacklevel=3)

    def _keep(self, given: dict[str, Any]) -> None:
        """Checks arrays and keeps them as tensors."""
        arrays = guards.check_shapes(as_tensors(given))
        for name, array in arrays.items():
            if name != "x" or self.embed is None:
                remedy = "Calibration.drop_invalid(theta, x, theta_q) leaves them out."
                check_finite(name, array, remedy)
        vars(self).update(arrays)
        if self.names is not None:
            vars(self)["names"] = check_names("names", self.names, self.m)
        vars(self).update(guards.check_weights(self.theta, self.weights, self.plain_draws))
        self.__setstate__({"features": self.features})

    @classmethod
    def of(
        cls,
        posterior: Any,
        theta: Any,
        x: Any,
        k: int = 16,
        *,
        embed: Embed | None = None,
        drawing: Drawing | None = None,
        seed: Seed = 0,
    ) -> "Calibration":
        """Pairs with draws of q that are made here, in batches and with progress.

        Args:
            posterior: A posterior of a library that :mod:`assay.adapters` knows, an object with
                ``sample(x, n)``, or a function.
            theta: The true parameters, with shape (n, m).
            x: The observations they produced, with shape (n, ...).
            k: Draws of q at each x.
            embed: As in :class:`Calibration`. Without it, observations that are no vectors are
                embedded by the posterior's own summary network.
            drawing: How draws are made: time limits, failures and resumption.
            seed: An int or a generator. The same seed gives the same draws.

        Example:
            >>> theta, noise = torch.randn(2, 100, 3, generator=torch.Generator().manual_seed(0))
            >>> Calibration.of(lambda x, n: x / 2 + torch.randn(n, 3), theta, theta + noise, k=8)
            Calibration(n=100, m=3, k=8, x=(3,), space='parameters')
        """
        drawing = PATIENT if drawing is None else drawing
        check_kind("drawing", drawing, "a Drawing(), or None", Drawing)
        k, seed = check_count("k", k), seed_of(seed)
        return Calibration(**draw_pairs(posterior, theta, x, k, embed, drawing, seed)[1])

    @classmethod
    def from_base(
        cls, z: Any, x: Any, base: Any = None, *, embed: Embed | None = None
    ) -> "Latents":
        r"""Latents of true parameters, transformed already.

        Args:
            z: The latents :math:`T^{-1}(\theta; x)`, with shape (n, m).
            x: The observations, with shape (n, ...).
            base: The base distribution; a standard normal by default.
            embed: As in :class:`Calibration`.

        Example:
            >>> z, x = torch.randn(2, 100, 3, generator=torch.Generator().manual_seed(0))
            >>> Calibration.from_base(z, x)
            Calibration(n=100, m=3, k=None, x=(3,), space='latent')
        """
        table = as_table("x", x)
        z, x = as_tensors({"z": z, "x": table.array}).values()
        if z.ndim != 2:
            raise ValueError(f"z: expected shape (n, m); got {tuple(z.shape)}.")
        base = StandardNormal(z.shape[1]) if base is None else base
        return Latents(z, x, embed=embed, base=base, layout=table.layout)

    @classmethod
    def drop_invalid(
        cls, theta: Any, x: Any, theta_q: Any, embed: Embed | None = None
    ) -> "Calibration":
        """Builds a calibration from the rows in which everything is finite.

        Whether dropping is harmless is for the user to judge: if simulations fail more often for
        some parameters than for others, the calibration is conditioned on success.
        """
        arrays = guards.check_shapes(as_tensors({"theta": theta, "x": x, "theta_q": theta_q}))
        finite = {name: array.isfinite().flatten(1).all(1) for name, array in arrays.items()}
        keep = torch.stack(list(finite.values())).all(0)
        if not keep.any():
            bad = ", ".join(name for name, rows in finite.items() if not rows.any())
            raise ValueError(f"{bad}: expected rows that are finite; got none.")
        return cls(**{name: array[keep] for name, array in arrays.items()}, embed=embed)

    def __len__(self) -> int:
        return len(self.theta)

    def __repr__(self) -> str:
        sizes = f"n={len(self)}, m={self.m}, k={self.k}, x={tuple(self.x.shape[1:])}"
        return f"Calibration({sizes}, space={self.space!r})"

    @property
    def m(self) -> int:
        """The number of parameters."""
        return self.theta.shape[1]

    @property
    def k(self) -> int | None:
        """The number of draws of q at each x; None in latent space, where q is the base."""
        return None if self.theta_q is None else self.theta_q.shape[1]

    @property
    def members(self) -> Tensor:
        """The sets (n, k + 1, m): at each x the true parameter, first, and the draws of q."""
        if self.theta_q is None:
            raise ValueError(
                "calibration: expected draws theta_q of q at each x; got latents. Ranks are taken "
                "among draws: use the calibration before to_latent(flow)."
            )
        return torch.cat([self.theta[:, None], self.theta_q], 1)

    def sets(self, k: int, generator: torch.Generator) -> Tensor:
        """The sets (n, r, m), true parameters first; in latent space with k draws of the base."""
        return self.members

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters, or of latent directions where no names were given."""
        kind = "theta" if self.base is None or self.flow is not None else "latent"
        return self.names or tuple(f"{kind}[{j}]" for j in range(self.m))

    @property
    def summary(self) -> dict[str, Any]:
        """Sizes, space and device, as plain values."""
        sizes = {"n": len(self), "m": self.m, "k": self.k, "d": self.features.shape[1]}
        return {**sizes, "space": self.space, "device": str(self.theta.device)}

    @cached_property
    def features(self) -> Tensor:
        """What a classifier is given of x, with shape (n, d)."""
        return guards.features_of(self.x, self.embed, self.layout)

    @cached_property
    def _ranks(self) -> np.ndarray:
        """Ranks of the features in their columns, ties alike, with shape (n, d)."""
        return tied_ranks(self.features.cpu().numpy())

    @cached_property
    def order(self) -> np.ndarray:
        """The order (n,) of :meth:`sorted`: where x has ties, chance decides between them."""
        chance = cpu.randperm(len(self), generator=stream(0, "ties")).numpy()
        return chance[np.lexsort(self._ranks[chance].T[::-1])]

    def sorted(self) -> Self:
        """The same pairs in an order that x alone decides, not the one given or parameters."""
        return self.subset(self.order)

    def own_seed(self, seed: int) -> int:
        """A seed that also depends on x, which no null changes; on members if x has few values.

        It depends on ranks of features, for a single one on which neighbouring gap is the larger:
        once rows are sorted, its ranks say nothing.
        """
        if not has_order(self._ranks):
            return self.members_seed(seed)
        if self._ranks.shape[1] > 1:
            return mix_seed(seed, self._ranks)
        features = np.sort(self.features.cpu().numpy(), axis=0)
        return mix_seed(seed, np.diff(features, 2, axis=0) > 0)

    def members_seed(self, seed: int) -> int:
        """A seed that also depends on members, but not on which of them is the true parameter."""
        members = self.theta[:, None] if self.theta_q is None else self.members
        table = members.sort(1).values.flatten(1)[:, :COLUMNS].double().cpu().numpy()
        table = table[np.lexsort(table.T[::-1])]
        gaps = np.diff(table, 2, axis=0) > 0
        return mix_seed(seed, gaps if table.shape[1] == 1 else table.argsort(0))

    def subset(self, rows: Any) -> Self:
        """The calibration of some rows: indices, a slice or a mask over the n rows."""
        rows = guards.check_rows(rows, len(self))
        most = int(rows.bincount().max()) if len(rows) else 1
        if most > 1:
            raise ValueError(
                f"rows: expected each row once, since pairs are independent; got one {most} times."
            )
        return self._map(lambda array: array[rows.to(array.device)])

    def to(self, device: str | torch.device) -> Self:
        """The same calibration on another device such as ``"cuda"``, where tests then train."""
        device = as_device(device)
        return self._map(lambda array: array.to(device))

    def _map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """The same with parts of its arrays, or on another device; their noise is not checked."""
        other = object.__new__(type(self))
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        mapped = {k: function(v) for k, v in parts.items() if isinstance(v, Tensor)}
        vars(other).update(parts | mapped)
        other._keep({k: v for k, v in mapped.items() if k in ("theta", "x", "theta_q")})
        return other

    def with_members(self, theta: Tensor, theta_q: Tensor | None) -> Self:
        """The same x with other true parameters (n, m) and draws (n, k, m), unchecked."""
        other = object.__new__(type(self))
        other.__setstate__(vars(self) | {"theta": theta, "theta_q": theta_q})
        return other

    def to_latent(self, flow: Flow, seed: Seed = 0) -> "Latents":
        r"""The same pairs in the base space of a flow, :math:`z = T^{-1}(\theta; x)`.

        The flow's inverse must map a handful of its own draws, which the seed chooses, and of
        `theta_q` to its base: draws that were truncated to the prior belong to another q.
        """
        if self.theta_q is None:
            raise ValueError("calibration: expected parameters; got latents already.")
        hint = "Zuko's flows are wrapped by assay.adapters.zuko.ZukoFlow."
        expected = f"an object with base, theta_to_base(theta, x) and sample(x, n). {hint}"
        check_kind("flow", flow, expected, "base", "theta_to_base", "sample")
        base, seed = as_base(flow.base, self.m), seed_of(seed)
        rows = cpu.randperm(len(self), generator=stream(seed, "handful"))
        check_inverse(flow, base, self.x[rows], stream(seed, "flow"))
        rows, to_base = rows[:HANDFUL], flow.theta_to_base
        check_base(latents(to_base, self.theta_q[rows, 0], self.x[rows]), base, "theta_q")
        z = latents(to_base, self.theta, self.x)
        about: Any = {"names": self.names, "layout": self.layout, "embed": self.embed}
        return Latents(z, self.x, base=base, flow=flow, **about)

    def nearest(self, near: Any = None) -> Nearest:
        """What is near x_o: in x for up to four features or for latents; else, near for q."""
        chosen = as_nearest(near)
        if chosen.distance is not None:
            return chosen
        if self.features.shape[1] <= FEW_FEATURES or self.theta_q is None:
            return replace(chosen, distance=Distance())
        return replace(chosen, distance=DistanceForQ.fit(self.features, self.members))

    def observation(self, draws: Draws) -> Observation:
        """Checks one observation or many, whatever draws come with them."""
        self.check_whole()
        draws, shape = Draws.of(draws), self.x.shape[1:]
        x = draws.x
        if draws.layout is not None and self.layout is not None:
            x = Table(x, draws.layout).like(self.layout, "x_o", "x").array
        single = x.shape == shape
        if not single and x.shape[1:] != shape:
            raise ValueError(
                f"x_o: expected shape {tuple(shape)} for one observation or (o, "
                f"{', '.join(map(str, shape))}) for many, as in the calibration; "
                f"got {tuple(x.shape)}."
            )
        x = x[None] if single else x
        x_o = x.to(self.x)
        if self.embed is None:
            check_finite("x_o", x)
            check_finite("x_o", x_o, f"It is beyond the range of {x_o.dtype}: give a wider one.")
        return Observation(x_o, guards.features_of(x_o, self.embed, self.layout), single)

    def observe(self, draws: Draws, seed: int = 0) -> ObservedDraws:
        """Checks draws, or in latent space makes them with the seed if there are none."""
        draws = Draws.of(draws)
        observation = self.observation(draws)
        theta = draws.parameters(len(observation.x), self.theta, self.names)
        assert self.theta_q is not None
        for features, fresh in zip(observation.features, theta, strict=True):
            own = self.theta_q[(self.features == features).all(1)].flatten(0, 1)
            # A test is trained on its own draws: its null would be unlike the data there.
            if len(own) and bool((fresh[:, None] == own[None]).all(2).any(1).all()):
                raise ValueError(
                    "theta_o: expected fresh draws of q at x_o; got the calibration's own theta_q "
                    "there, on which the test was trained. Draw again."
                )
        return ObservedDraws(**vars(observation), draws=theta, theta=theta)


@dataclass(frozen=True, eq=False, repr=False)
class Latents(Calibration):
    r"""Pairs of the joint in the base space of a flow, where class 0 is its base.

    :meth:`Calibration.to_latent` and :meth:`Calibration.from_base` return them. `theta` holds the
    latents :math:`z = T^{-1}(\theta; x)` (n, m) of the true parameters; `theta_q` is None, since
    draws of the base are made where they are needed; `flow` is None if latents came without it.
    """

    theta_q: None = None
    embed: Embed | None = None
    base: Base = field(kw_only=True)  # type: ignore[misc]
    flow: Flow | None = field(default=None, kw_only=True)  # type: ignore[misc]
    space: ClassVar[str] = "latent"

    def __post_init__(self) -> None:
        self._keep({"theta": self.theta, "x": self.x})
        vars(self)["base"] = as_base(self.base, self.m)

    def sets(self, k: int, generator: torch.Generator) -> Tensor:
        """The sets (n, k + 1, m): latents of true parameters first, then k draws of the base."""
        draws = self.base.sample(k * len(self), generator).to(self.theta)
        return torch.cat([self.theta[:, None], draws.unflatten(0, (len(self), k))], 1)

    def observe(self, draws: Draws, seed: int = 0) -> ObservedDraws:
        """Checks draws, or makes them, and brings them into latent space."""
        draws = Draws.of(draws)
        observation = self.observation(draws)
        x, n = observation.x, draws.n
        check_fits("n", n, len(x) * WORD * self.m)
        if self.flow is None:
            if draws.theta is not None:
                raise ValueError(
                    "draws: expected no theta, since this calibration holds latents without their "
                    "flow; use Draws(x_o), which evaluates on base draws, or "
                    "calibration.to_latent(flow)."
                )
            z = self.base.sample(n, stream(seed, "evaluation")).to(self.theta)
            return ObservedDraws(**vars(observation), draws=z.expand(len(x), -1, -1), theta=None)
        if draws.theta is not None:
            theta = draws.parameters(len(x), self.theta, self.names)
        else:
            flow, chance = self.flow, partial(stream, seed, "evaluation")
            each = enumerate(x.split(1))
            theta = torch.cat([flow_sample(flow, x_i, n, chance(i)) for i, x_i in each])
        z = latents(self.flow.theta_to_base, theta.flatten(0, 1), x.repeat_interleave(n, 0))
        if draws.theta is not None:
            order = cpu.randperm(len(z), generator=stream(seed, "handful"))
            check_base(z[order], self.base, "theta_o")
        return ObservedDraws(**vars(observation), draws=z.reshape(theta.shape), theta=theta)


def tied_ranks(columns: np.ndarray) -> np.ndarray:
    """Ranks (n, c) in each column, ties alike."""
    return np.stack([np.unique(column, return_inverse=True)[1] for column in columns.T], 1)


def has_order(ranks: np.ndarray) -> bool:
    """Whether rows may have more than n / 2 values, from ranks (n, c) with ties alike."""
    return 2 * math.prod(int(last) + 1 for last in ranks.max(0)) > len(ranks)

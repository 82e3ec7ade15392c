r"""What a test looks at: calibration pairs with draws of q, and draws of q at an observation.

A calibration pair is a draw of the joint, :math:`\theta \sim p(\theta)`,
:math:`x \sim p(x \mid \theta)`, so that given x, theta is a draw of the true posterior. Beside it
are k draws :math:`\theta_q \sim q(\cdot \mid x)` of the approximation under test. The true
parameter and the draws at one x are its **set**; each of them is a **member**.

**Class roles**, as in the paper and everywhere in this library: class 0 is q, class 1 are true
parameters, and a class probability is :math:`d = P(\text{class } 1)`.

In **latent space** the true parameters are :math:`z = T^{-1}(\theta; x)` for a flow T, and class 0
is the flow's base distribution, which is known, so that no draws are stored (:class:`Latents`).
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
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
    check_share,
    cpu,
)
from .._support.random import Seed, mix_seed, seed_of, stream
from ..neighbourhood import FEW_FEATURES, Distance, DistanceForQ, Nearest, as_nearest
from .draw import PATIENT, Drawing, draw_pairs
from .guards import (
    FEWEST_ROWS,
    Sealed,
    autocorrelation,
    check_fresh,
    check_noise,
    check_rows,
    check_shapes,
    check_weights,
)
from .observed import Draws, Observation, ObservedDraws, features_of, has_order, tied_ranks
from .posterior import (
    HANDFUL,
    Base,
    Embed,
    Flow,
    StandardNormal,
    as_base,
    check_base,
    check_inverse,
    flow_sample,
    flow_to_base,
)
from .tables import Layout, as_draws_table, as_table

__all__ = [
    "FEWEST_ROWS",
    "Calibration",
    "Draws",
    "Latents",
    "Observation",
    "ObservedDraws",
    "features_of",
    "has_order",
    "tied_ranks",
]

# Numbers of each set from which a seed is taken where x has no order.
COLUMNS = 4


@dataclass(frozen=True, eq=False, repr=False)
class Calibration(Sealed):
    r"""Pairs of the joint, with k draws of q at every x.

    Args:
        theta: The true parameters, with shape (n, m).
        x: The observations they produced, with shape (n, ...).
        theta_q: Draws of :math:`q(\cdot \mid x)`, with shape (n, m) or (n, k, m).
        embed: Turns observations (n, ...) into features (n, d), for images, series or sets, and
            may take x that is padded with NaN; without it, observations are flattened.

    NumPy arrays, torch tensors, JAX arrays and nested lists are accepted; integers become
    floating point. So are data frames, xarray's data sets and dicts of arrays, matched by their
    names (:mod:`assay.data.tables`); as `theta_q` also a list of ArviZ's InferenceData, one for
    each x, of which 16 draws are taken at random. Device and precision follow what is given.

    Draws that share their noise from x to x are refused, and correlated ones cause a warning
    (:mod:`assay.data.guards`).

    Example:
        >>> theta, noise = torch.randn(2, 100, 3, generator=torch.Generator().manual_seed(0))
        >>> Calibration(theta, theta + noise, (theta + noise) / 2)
        Calibration(n=100, m=3, k=1, x=(3,), space='parameters')
    """

    theta: Tensor
    x: Tensor
    theta_q: Tensor | None
    embed: Embed | None = None
    # Names of parameters; the columns of x, if they have names; sentences about the draws.
    names: tuple[str, ...] | None = field(default=None, kw_only=True)
    layout: Layout | None = field(default=None, kw_only=True)
    remarks: tuple[str, ...] = field(default=(), kw_only=True)
    # If parameters are from a proposal: prior over proposal at theta, (n,), and draws of q
    # (n, k, m) that were not chosen to be exchangeable with theta.
    weights: Tensor | None = field(default=None, kw_only=True)
    plain_draws: Tensor | None = field(default=None, kw_only=True)
    # What is known of class 0 without draws; see :class:`Latents`.
    base: ClassVar[Base | None] = None
    flow: ClassVar[Flow | None] = None
    space: ClassVar[str] = "parameters"

    if TYPE_CHECKING:
        # Arrays of any library come in; tensors are what is kept. What goes with them is above.
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
        draws = as_draws_table(self.theta_q, theta.layout)
        named = theta.layout or draws.layout
        if named is not None and self.names is None:
            vars(self)["names"] = named.names
        if x.layout is not None:
            vars(self)["layout"] = x.layout
        if self.layout is not None:
            check_kind("layout", self.layout, "a Layout, or None", Layout)
        check_kind("remarks", self.remarks, "a tuple of words", tuple)
        for remark in self.remarks:
            check_kind("remarks", remark, "a tuple of words", str)
        draws = draws.like(theta.layout, "theta_q", "theta")
        self._keep({"theta": theta.array, "x": x.array, "theta_q": draws.array})
        check_noise(self.theta_q, self.features, Distance())
        chain = autocorrelation(self.theta_q)
        if chain is not None:
            warnings.warn(f"theta_q: {chain.words}", stacklevel=3)

    def _keep(self, given: dict[str, Any]) -> None:
        """Checks arrays and keeps them as tensors."""
        arrays = check_shapes(as_tensors(given))
        remedy = "Calibration.drop_invalid(theta, x, theta_q) leaves them out."
        for name, array in arrays.items():
            if name != "x" or self.embed is None:
                check_finite(name, array, remedy)
        vars(self).update(arrays)
        if self.names is not None:
            vars(self)["names"] = check_names("names", self.names, self.m)
        vars(self).update(check_weights(self.theta, self.weights, self.plain_draws))
        _ = self.features
        self.seal()

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

        Example:
            >>> theta = torch.arange(60.0).reshape(20, 3)
            >>> theta[4, 1] = torch.nan
            >>> len(Calibration.drop_invalid(theta, theta, theta))
            19
        """
        arrays = check_shapes(as_tensors({"theta": theta, "x": x, "theta_q": theta_q}))
        finite = {name: array.isfinite().flatten(1).all(1) for name, array in arrays.items()}
        keep = torch.stack(list(finite.values())).all(0)
        if not keep.any():
            bad = ", ".join(name for name, rows in finite.items() if not rows.any())
            raise ValueError(f"{bad}: expected rows that are finite; got none.")
        theta, x, theta_q = (array[keep] for array in arrays.values())
        return cls(theta, x, theta_q, embed)

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

    def sorted(self) -> Self:
        """The same pairs in an order that x alone decides, so that none given to them matters.

        Where x has ties, chance decides between them, not the order given: that may depend on
        parameters.
        """
        return self.subset(self.order)

    @cached_property
    def order(self) -> np.ndarray:
        """The order (n,) of :meth:`sorted`."""
        chance = cpu.randperm(len(self), generator=stream(0, "ties")).numpy()
        return chance[np.lexsort(self._ranks[chance].T[::-1])]

    def own_seed(self, seed: int) -> int:
        """A seed that also depends on the order of the observations in each of their features.

        The order of a single feature says nothing once rows are sorted; then it is which of its
        neighbouring gaps is the larger. x is what no null changes, so it may choose them, and
        ranks do not depend on units. Where x is constant, or has few values, the seed is
        :meth:`members_seed`.
        """
        content = self._ranks
        if not has_order(content):
            return self.members_seed(seed)
        if content.shape[1] == 1:
            gaps = np.diff(np.sort(self.features.cpu().numpy(), axis=0), axis=0)
            content = np.diff(gaps, axis=0) > 0
        return mix_seed(seed, content)

    def members_seed(self, seed: int) -> int:
        """A seed that also depends on members, but not on which of them is the true parameter.

        It depends on the order of some of their numbers, with rows sorted by the first of these;
        for a single number, on which of its neighbouring gaps is the larger.
        """
        members = self.theta[:, None] if self.theta_q is None else self.members
        table = members.sort(1).values.flatten(1)[:, :COLUMNS].double().cpu().numpy()
        table = table[np.lexsort(table.T[::-1])]
        single = table.shape[1] == 1
        return mix_seed(seed, np.diff(table, 2, axis=0) > 0 if single else table.argsort(0))

    @cached_property
    def _ranks(self) -> np.ndarray:
        """Ranks of the features in their columns, ties alike, with shape (n, d)."""
        return tied_ranks(self.features.cpu().numpy())

    @property
    def summary(self) -> dict[str, Any]:
        """Sizes, space and device, as plain values."""
        sizes = {"n": len(self), "m": self.m, "k": self.k, "d": self.features.shape[1]}
        return {**sizes, "space": self.space, "device": str(self.theta.device)}

    @cached_property
    def features(self) -> Tensor:
        """What a classifier is given of x, with shape (n, d)."""
        return features_of(self.x, self.embed, self.layout)

    def to_latent(self, flow: Flow, seed: Seed = 0) -> "Latents":
        r"""The same pairs in the base space of a flow, :math:`z = T^{-1}(\theta; x)`.

        The flow's own inverse must map a handful of its draws to its base. So must it the
        calibration's `theta_q`: draws that were truncated to the prior, or tempered, belong to
        another q than the flow's inverse, and mixing the two would test neither. The seed chooses
        the handful.
        """
        hint = "Zuko's flows are wrapped by assay.adapters.zuko.ZukoFlow."
        expected = f"an object with base, theta_to_base(theta, x) and sample(x, n). {hint}"
        check_kind("flow", flow, expected, "base", "theta_to_base", "sample")
        base, seed = as_base(flow.base, self.m), seed_of(seed)
        rows = cpu.randperm(len(self), generator=stream(seed, "handful"))
        check_inverse(flow, base, self.x[rows], stream(seed, "flow"))
        draws, some = self.members[:, 1], rows[:HANDFUL]
        check_base(flow_to_base(flow, draws[some], self.x[some]), base, "theta_q")
        z = flow_to_base(flow, self.theta, self.x)
        named: Any = {"names": self.names, "layout": self.layout}
        return Latents(z, self.x, embed=self.embed, base=base, flow=flow, **named)

    def subset(self, rows: Any) -> Self:
        """The calibration of some rows: indices, a slice or a mask over the n rows."""
        rows = check_rows(rows, len(self))
        most = int(torch.bincount(rows).max()) if len(rows) else 1
        if most > 1:
            raise ValueError(
                f"rows: expected each row once, since pairs are independent; got one {most} times."
            )
        rows = rows.to(self.theta.device)
        return self._map(lambda array: array[rows])

    def split(self, share: float = 0.5, seed: Seed = 0) -> tuple[Self, Self]:
        """Two disjoint random parts, the first with this share of the rows."""
        check_share("share", share)
        order = cpu.randperm(len(self), generator=stream(seed_of(seed), "split"))
        cut = round(share * len(self))
        return self.subset(order[:cut]), self.subset(order[cut:])

    def with_members(self, theta: Tensor, theta_q: Tensor | None) -> Self:
        """The same observations with other true parameters (n, m) and draws (n, k, m), unchecked.

        Features are taken over, so that an embedding is not run again.
        """
        other = object.__new__(type(self))
        other.__setstate__(vars(self) | {"theta": theta, "theta_q": theta_q})
        return other

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

    def observation(self, draws: Draws) -> Observation:
        """Checks one observation or many, whatever draws come with them."""
        self.check_whole()
        return Observation.of(Draws.of(draws), self.x, self.embed, self.layout)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters, or of latent directions where no names were given."""
        kind = "theta" if self.base is None or self.flow is not None else "latent"
        return self.names or tuple(f"{kind}[{j}]" for j in range(self.m))

    def nearest(self, near: Any = None) -> Nearest:
        """What is near x_o: by a share, or by :class:`assay.Nearest`, with a distance that fits.

        With up to four features, near is meant in x; with more, near for q. Nearness for latents,
        which say nothing about q, is meant in x.
        """
        chosen = as_nearest(near)
        if chosen.distance is not None:
            return chosen
        if self.features.shape[1] <= FEW_FEATURES or self.theta_q is None:
            return replace(chosen, distance=Distance())
        return replace(chosen, distance=DistanceForQ.fit(self.features, self.members))

    def observe(self, draws: Draws, seed: int = 0) -> ObservedDraws:
        """Checks draws at one observation or many, and brings them into this space.

        In latent space, draws are made with the seed where none are given.
        """
        draws = Draws.of(draws)
        observation = self.observation(draws)
        theta = draws.parameters(len(observation.x), self.theta, self.names)
        assert self.theta_q is not None
        check_fresh(theta, observation.features, self.theta_q, self.features)
        return ObservedDraws(observation, theta, theta)


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

    def to_latent(self, flow: Flow, seed: Seed = 0) -> "Latents":
        """Refuses: these are latents already."""
        raise ValueError("calibration: expected parameters; got latents already.")

    def observe(self, draws: Draws, seed: int = 0) -> ObservedDraws:
        """Checks draws, or makes them, and brings them into latent space."""
        draws = Draws.of(draws)
        observation = self.observation(draws)
        count = len(observation.x)
        check_fits("n", draws.n, count * WORD * self.m)
        if self.flow is None:
            if draws.theta is not None:
                raise ValueError(
                    "draws: expected no theta, since this calibration holds latents without their "
                    "flow; use Draws(x_o), which evaluates on base draws, or "
                    "calibration.to_latent(flow)."
                )
            base = self.base.sample(draws.n, stream(seed, "evaluation")).to(self.theta)
            return ObservedDraws(observation, base.expand(count, -1, -1), None)
        if draws.theta is not None:
            theta = draws.parameters(count, self.theta, self.names)
        else:
            streams = [stream(seed, "evaluation", i) for i in range(count)]
            each = zip(observation.x, streams, strict=True)
            theta = torch.stack([flow_sample(self.flow, x, draws.n, own) for x, own in each])
        x = observation.x.repeat_interleave(draws.n, 0)
        z = flow_to_base(self.flow, theta.flatten(0, 1), x)
        if draws.theta is not None:
            order = cpu.randperm(len(z), generator=stream(seed, "handful"))
            check_base(z[order], self.base, "theta_o")
        return ObservedDraws(observation, z.reshape(theta.shape), theta)

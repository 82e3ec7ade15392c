r"""What a test looks at: calibration pairs with draws of q, and draws of q at an observation.

A calibration pair is a draw of the joint, :math:`\theta \sim p(\theta)`,
:math:`x \sim p(x \mid \theta)`, so that given x, theta is a draw of the true posterior. Beside it
stand k draws :math:`\theta_q \sim q(\cdot \mid x)` of the approximation under test. The truth and
the draws at one x are its **set**; each of them is a **member**.

**Class roles**, as in the paper and everywhere in this library: class 0 is q, class 1 is the
truth, and a class probability is :math:`d = P(\text{class } 1)`.

In **latent space** the truths are :math:`z = T^{-1}(\theta; x)` for a flow T, and class 0 is the
flow's base distribution, which is known and needs no draws to be stored (:class:`Latents`).
"""

import math
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
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
    check_function,
    check_kind,
    check_names,
    check_share,
    cpu,
)
from .._support.random import Seed, call_user_code, mix_seed, seed_of, stream
from ..neighbourhood import FEW_FEATURES, Distance, DistanceForQ, Nearest, as_nearest
from .guards import autocorrelation, check_noise
from .posterior import (
    HANDFUL,
    Base,
    Embed,
    Flow,
    Posterior,
    StandardNormal,
    as_base,
    as_posterior,
    check_flow,
    check_inverse,
    check_own,
    flow_sample,
    flow_to_base,
)
from .tables import EACH, Layout, Table, as_observed, as_table, has_chains, layout_of, of_each

if TYPE_CHECKING:
    from .draw import Drawing, Drawn

FEWEST_ROWS = 10
# Numbers of a set by which sets are told apart where x does not.
COLUMNS = 4


@dataclass(frozen=True, eq=False, repr=False)
class Calibration:
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

    Draws that share their noise from x to x are refused, and correlated ones are warned of
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
    # Names of parameters; the columns of x, if they have names; what is to be said of the draws.
    names: tuple[str, ...] | None = field(default=None, kw_only=True)
    layout: Layout | None = field(default=None, kw_only=True)
    remarks: tuple[str, ...] = field(default=(), kw_only=True)
    # Of pairs whose parameters are of a proposal: prior over proposal at theta, (n,), and draws of
    # q (n, k, m) that were not chosen to be exchangeable with theta.
    weights: Tensor | None = field(default=None, kw_only=True)
    plain_draws: Tensor | None = field(default=None, kw_only=True)
    # What is known of class 0 beside draws; see :class:`Latents`.
    base: ClassVar[Base | None] = None
    flow: ClassVar[Flow | None] = None
    space: ClassVar[str] = "parameters"

    if TYPE_CHECKING:
        # Arrays of any library come in; tensors are what is kept.
        def __init__(
            self,
            theta: Any,
            x: Any,
            theta_q: Any,
            embed: Embed | None = None,
            *,
            names: tuple[str, ...] | None = None,
            layout: Layout | None = None,
            remarks: tuple[str, ...] = (),
            weights: Any = None,
            plain_draws: Any = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        if self.theta_q is None:
            raise ValueError(
                "theta_q: expected draws of q with shape (n, m) or (n, k, m); got None. "
                "For latents of a flow use Calibration.from_base(z, x)."
            )
        theta, x, draws = self._tables()
        self._keep({"theta": theta.array, "x": x.array, "theta_q": draws.array})
        check_noise(self.theta_q, self.features, Distance())
        chain = autocorrelation(self.theta_q)
        if chain is not None:
            warnings.warn(f"theta_q: {chain.words}", stacklevel=3)

    def _tables(self) -> tuple[Table, Table, Table]:
        """Parameters, observations and draws as arrays, whose names are kept."""
        theta, x = as_table("theta", self.theta), as_table("x", self.x)
        draws = _draws_table(self.theta_q, theta.layout)
        named = theta.layout or draws.layout
        if named is not None and self.names is None:
            object.__setattr__(self, "names", named.names)
        if x.layout is not None:
            object.__setattr__(self, "layout", x.layout)
        if self.layout is not None:
            check_kind("layout", self.layout, "a Layout, or None", Layout)
        check_kind("remarks", self.remarks, "a tuple of words", tuple)
        for remark in self.remarks:
            check_kind("remarks", remark, "a tuple of words", str)
        return theta, x, draws.like(theta.layout, "theta_q", "theta")

    def _keep(self, given: dict[str, Any]) -> None:
        """Checks arrays and keeps them as tensors."""
        remedy = "Calibration.drop_invalid(theta, x, theta_q) leaves them out."
        for name, array in _shaped(as_tensors(given)).items():
            if name != "x" or self.embed is None:
                check_finite(name, array, remedy)
            object.__setattr__(self, name, array)
        if self.names is not None:
            object.__setattr__(self, "names", check_names("names", self.names, self.m))
        self._keep_proposal()
        _ = self.features
        self._seal()

    def _keep_proposal(self) -> None:
        """Checks what comes with parameters of a proposal, and keeps it as tensors."""
        given = {"weights": self.weights, "plain_draws": self.plain_draws}
        for name, array in given.items():
            if array is None:
                continue
            tensor = as_tensors({name: array})[name].to(self.theta)
            n, m = self.theta.shape
            shape = tuple(tensor.shape)
            fits = shape == (n,) if name == "weights" else shape == (n, *shape[1:2], m)
            if not fits:
                expected = f"({n},)" if name == "weights" else f"({n}, k, {m})"
                raise ValueError(f"{name}: expected shape {expected}; got {tuple(tensor.shape)}.")
            check_finite(name, tensor)
            if name == "weights" and not ((tensor >= 0).all() and tensor.any()):
                raise ValueError("weights: expected prior over proposal, above 0; got others.")
            object.__setattr__(self, name, tensor)

    def _seal(self) -> None:
        """Remembers what arrays hold, or how often they were written, which torch counts."""
        vars(self)["_written"] = self._writes()

    def _writes(self) -> list[int]:
        arrays = (self.theta, self.x, self.theta_q, self.features, self.weights, self.plain_draws)
        return marks([array for array in arrays if array is not None])

    def check_whole(self) -> None:
        """Refuses one whose arrays were written after they were checked."""
        if self._writes() != vars(self)["_written"]:
            raise ValueError(
                "calibration: expected arrays as they were checked; got some that were changed "
                "in place. Make a new Calibration of changed copies, such as theta.clone()."
            )

    def __getstate__(self) -> dict[str, Any]:
        self.check_whole()
        return vars(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._seal()

    @classmethod
    def of(
        cls,
        posterior: Any,
        theta: Any,
        x: Any,
        k: int = 16,
        *,
        embed: Embed | None = None,
        drawing: "Drawing | None" = None,
        seed: Seed = 0,
    ) -> "Calibration":
        """Pairs with draws of q that are made here, in batches and with progress.

        Args:
            posterior: A posterior of a library that :mod:`assay.adapters` knows, an object with
                ``sample(x, n)``, or a function.
            theta: The true parameters, with shape (n, m).
            x: The observations they produced, with shape (n, ...).
            k: Draws of q at each x.
            embed: As in :class:`Calibration`. Without it, the posterior's own summary network is
                taken for observations that are no vectors.
            drawing: How draws are made: time limits, failures and resumption.
            seed: An int or a generator. The same seed gives the same draws.

        Example:
            >>> theta, noise = torch.randn(2, 100, 3, generator=torch.Generator().manual_seed(0))
            >>> Calibration.of(lambda x, n: x / 2 + torch.randn(n, 3), theta, theta + noise, k=8)
            Calibration(n=100, m=3, k=8, x=(3,), space='parameters')
        """
        from .draw import PATIENT, drawn_at  # makes draws, where all else here takes them

        pairs = Joint.of(theta, x, embed)
        sampler = as_posterior(posterior, pairs.x, pairs.layout)
        pairs, k = pairs.named_by(sampler), check_count("k", k)
        how = PATIENT if drawing is None else drawing
        check_kind("drawing", how, "a Drawing(), or None", type(PATIENT))
        made = drawn_at(sampler, pairs.x, k, seed_of(seed), "draws", how)
        return pairs.with_draws(made, pairs.features_by(sampler, embed))

    @classmethod
    def from_base(
        cls, z: Any, x: Any, base: Any = None, *, embed: Embed | None = None
    ) -> "Latents":
        r"""Latents of the truths that were transformed already.

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
        arrays = _shaped(as_tensors({"theta": theta, "x": x, "theta_q": theta_q}))
        keep = torch.stack([a.isfinite().flatten(1).all(1) for a in arrays.values()]).all(0)
        if not keep.any():
            bad = [name for name, a in arrays.items() if not a.isfinite().flatten(1).all(1).any()]
            raise ValueError(f"{', '.join(bad)}: expected rows that are finite; got none.")
        theta, x, theta_q = (array[keep] for array in arrays.values())
        return cls(theta, x, theta_q, embed)

    def __len__(self) -> int:
        return len(self.theta)

    def __repr__(self) -> str:
        return (
            f"Calibration(n={len(self)}, m={self.m}, k={self.k}, "
            f"x={tuple(self.x.shape[1:])}, space={self.space!r})"
        )

    @property
    def m(self) -> int:
        """The number of parameters."""
        return self.theta.shape[1]

    @property
    def k(self) -> int | None:
        """The number of draws of q at each x; None in latent space, where q is the base."""
        return None if self.theta_q is None else self.theta_q.shape[1]

    @property
    def named(self) -> bool:
        """Whether errors can be told in parameters, rather than in latent directions."""
        return True

    @property
    def members(self) -> Tensor:
        """The sets (n, k + 1, m): at each x the truth, first, and the draws of q."""
        if self.theta_q is None:
            raise ValueError(
                "calibration: expected draws theta_q of q at each x; got latents. Ranks are taken "
                "among draws: use the calibration before to_latent(flow)."
            )
        return torch.cat([self.theta[:, None], self.theta_q], 1)

    def sets(self, k: int, generator: torch.Generator) -> Tensor:
        """The sets (n, r, m), the truth first; in latent space, k base draws take q's part."""
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
        ranks do not depend on units. Where x is constant, or has few values, members choose,
        whoever plays the truth.
        """
        content = self._ranks
        if not has_order(content):
            return self.members_seed(seed)
        if content.shape[1] == 1:
            gaps = np.diff(np.sort(self.features.cpu().numpy(), axis=0), axis=0)
            content = np.diff(gaps, axis=0) > 0
        return mix_seed(seed, content)

    def members_seed(self, seed: int) -> int:
        """A seed that also depends on members, but not on who of them plays the truth.

        By the order of some of their numbers, rows being sorted by the first of these; of a single
        one, by which of its neighbouring gaps is the larger.
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
        """What a classifier sees of x, with shape (n, d)."""
        return features_of(self.x, self.embed, self.layout)

    def to_latent(self, flow: Flow, seed: Seed = 0) -> "Latents":
        r"""The same pairs in the base space of a flow, :math:`z = T^{-1}(\theta; x)`.

        The flow is first asked for a handful of draws, which its own inverse must map back to its
        base. So must the calibration's `theta_q`: draws that were truncated to the prior, or
        tempered, belong to another q than the flow's inverse, and mixing the two would test
        neither. The seed chooses the handful.
        """
        check_flow(flow)
        base = as_base(flow.base, self.m)
        rows = cpu.randperm(len(self), generator=stream(seed_of(seed), "handful"))
        check_inverse(flow, base, self.x[rows], stream(seed_of(seed), "flow"))
        draws, some = self.members[:, 1], rows[:HANDFUL]
        check_own(flow_to_base(flow, draws[some], self.x[some]), base, "theta_q")
        z = flow_to_base(flow, self.theta, self.x)
        named = partial(Latents, names=self.names, layout=self.layout)
        return named(z, self.x, embed=self.embed, base=base, flow=flow)

    def subset(self, rows: Any) -> Self:
        """The calibration of some rows: indices, a slice or a mask over the n rows."""
        rows = _places(rows, len(self))
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
        """The same observations with other truths (n, m) and draws (n, k, m); nothing is checked.

        Features are taken over, so that an embedding is not run again.
        """
        made = object.__new__(type(self))
        vars(made).update(vars(self) | {"theta": theta, "theta_q": theta_q})
        made._seal()
        return made

    def to(self, device: str | torch.device) -> Self:
        """The same calibration on another device such as ``"cuda"``, where tests then train."""
        device = as_device(device)
        return self._map(lambda array: array.to(device))

    def _map(self, function: Callable[[Tensor], Tensor]) -> Self:
        """The same with parts of its arrays, or on another device; draws are not judged again."""
        made = object.__new__(type(self))
        parts = {f.name: getattr(self, f.name) for f in fields(self)}
        mapped = {k: function(v) for k, v in parts.items() if isinstance(v, Tensor)}
        vars(made).update(parts | mapped)
        made._keep({k: v for k, v in mapped.items() if k in ("theta", "x", "theta_q")})
        return made

    def observation(self, draws: "Draws") -> "Observation":
        """Checks one observation or many, whatever draws come with them."""
        self.check_whole()
        shape, draws = self.x.shape[1:], Draws.of(draws)
        x = Table(draws.x, draws.layout).like(self.layout, "x_o", "x").array
        single = x.shape == shape
        if not single and x.shape[1:] != shape:
            raise ValueError(
                f"x_o: expected shape {tuple(shape)} for one observation or (o, "
                f"{', '.join(map(str, shape))}) for many, as in the calibration; "
                f"got {tuple(x.shape)}."
            )
        given, x = (part[None] if single else part for part in (x, x.to(self.x)))
        if self.embed is None:
            check_finite("x_o", given)
            check_finite("x_o", x, f"It is beyond the range of {x.dtype}: give a wider one.")
        return Observation(x, features_of(x, self.embed, self.layout), single)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters, or of latent directions where no names were given."""
        kind = "theta" if self.named else "latent"
        return self.names or tuple(f"{kind}[{j}]" for j in range(self.m))

    def nearest(self, near: Any = None) -> Nearest:
        """What is near x_o: by a share, or by :class:`assay.Nearest`, with a distance that fits.

        With up to four features, near is meant in x; with more, near for q. Nearness for latents,
        which say nothing of q, is meant in x.
        """
        chosen = as_nearest(near)
        if chosen.distance is not None:
            return chosen
        few = self.features.shape[1] <= FEW_FEATURES or self.theta_q is None
        by_q = None if few else DistanceForQ.fit(self.features, self.members)
        return replace(chosen, distance=by_q or Distance())

    def observe(self, draws: "Draws", seed: int = 0) -> "ObservedDraws":
        """Checks draws at one observation or many, and brings them into this space.

        In latent space, draws are made with the seed where none are given.
        """
        draws = Draws.of(draws)
        observation = self.observation(draws)
        theta = self._parameters(draws, len(observation.x))
        self._check_fresh(observation, theta)
        return ObservedDraws(observation, theta, theta)

    def _parameters(self, draws: "Draws", observations: int) -> Tensor:
        """Draws (o, s, m) at so many observations."""
        if draws.theta is None:
            raise ValueError(
                "draws: expected Draws(x_o, theta_o) with draws of q at x_o; got no theta."
            )
        own, given = (layout_of(names) for names in (self.names, draws.names))
        table = Table(draws.theta, given).like(own, "theta_o", "theta")
        theta: Tensor = table.array.to(self.theta)
        theta = theta[None] if theta.ndim == 2 else theta
        if len(theta) != observations or theta.shape[2] != self.m:
            raise ValueError(
                f"theta_o: expected shape ({observations}, s, {self.m}) for {observations} "
                f"observation(s) of {self.m} parameter(s); got {tuple(draws.theta.shape)}."
            )
        check_finite("theta_o", theta.flatten(0, 1), f"It is beyond the range of {theta.dtype}.")
        return theta

    def _check_fresh(self, observation: "Observation", theta: Tensor) -> None:
        """Refuses draws that a test was trained on: nulls would not be like the data there."""
        assert self.theta_q is not None
        for features, draws in zip(observation.features, theta, strict=True):
            same = (self.features == features).all(1)
            own = self.theta_q[same].flatten(0, 1)
            if len(own) and bool((draws[:, None] == own[None]).all(2).any(1).all()):
                raise ValueError(
                    "theta_o: expected fresh draws of q at x_o; got the calibration's own theta_q "
                    "there, on which the test was trained. Draw again."
                )


@dataclass(frozen=True, eq=False, repr=False)
class Latents(Calibration):
    r"""Pairs of the joint in the base space of a flow, whose base takes the part of q.

    Made by :meth:`Calibration.to_latent` and :meth:`Calibration.from_base`. `theta` holds the
    latents :math:`z = T^{-1}(\theta; x)` (n, m) of the truths; `theta_q` is None, since draws of
    the base are made where they are needed, and so is `flow` where latents came without it.
    """

    theta_q: None = None
    embed: Embed | None = None
    base: Base = field(kw_only=True)  # type: ignore[misc]
    flow: Flow | None = field(default=None, kw_only=True)  # type: ignore[misc]
    space: ClassVar[str] = "latent"

    def __post_init__(self) -> None:
        self._keep({"theta": self.theta, "x": self.x})
        object.__setattr__(self, "base", as_base(self.base, self.theta.shape[1]))

    @property
    def named(self) -> bool:
        """Whether errors can be told in parameters, rather than in latent directions."""
        return self.flow is not None

    def sets(self, k: int, generator: torch.Generator) -> Tensor:
        """The sets (n, k + 1, m), the truth first and k base draws."""
        draws = self.base.sample(k * len(self), generator).to(self.theta)
        return torch.cat([self.theta[:, None], draws.unflatten(0, (len(self), k))], 1)

    def to_latent(self, flow: Flow, seed: Seed = 0) -> "Latents":
        """Refuses: these are latents already."""
        raise ValueError("calibration: expected parameters; got latents already.")

    def observe(self, draws: "Draws", seed: int = 0) -> "ObservedDraws":
        """Checks draws, or makes them, and brings them into latent space."""
        draws = Draws.of(draws)
        observation = self.observation(draws)
        count = len(observation.x)
        check_fits("n", draws.n, count * WORD * self.m)
        if self.flow is None:
            return ObservedDraws(observation, self._base_draws(draws, count, seed), None)
        if draws.theta is not None:
            theta = self._parameters(draws, count)
        else:
            streams = (stream(seed, "evaluation", i) for i in range(count))
            each = [flow_sample(self.flow, x, draws.n, next(streams)) for x in observation.x]
            theta = torch.stack(each)
        x = observation.x.repeat_interleave(draws.n, 0)
        z = flow_to_base(self.flow, theta.flatten(0, 1), x)
        if draws.theta is not None:
            order = cpu.randperm(len(z), generator=stream(seed, "handful"))
            check_own(z[order], self.base, "theta_o")
        return ObservedDraws(observation, z.reshape(theta.shape), theta)

    def _base_draws(self, draws: "Draws", observations: int, seed: int) -> Tensor:
        if draws.theta is not None:
            raise ValueError(
                "draws: expected no theta, since this calibration holds latents without their "
                "flow; use Draws(x_o), which evaluates on base draws, or "
                "calibration.to_latent(flow)."
            )
        base = self.base.sample(draws.n, stream(seed, "evaluation")).to(self.theta)
        return base.expand(observations, -1, -1)


@dataclass(frozen=True, eq=False)
class Draws:
    r"""An observation with draws of q there; the two travel together.

    Args:
        x: One observation, with shape (...,), or many, with shape (o, ...).
        theta: Draws of :math:`q(\cdot \mid x)`, with shape (s, m) or (o, s, m). Not needed in
            latent space, where the test makes its own.
        n: The number of draws per observation that a test in latent space makes; that of theta
            where it is given.

    Example:
        >>> Draws([0.5, 1.0], torch.zeros(100, 2))
        Draws(x=(2,), theta=(100, 2))
    """

    x: Tensor
    theta: Tensor | None = None
    n: int = 1000
    # The columns of x, if they have names; names of parameters.
    layout: Layout | None = field(default=None, kw_only=True)
    names: tuple[str, ...] | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:

        def __init__(
            self,
            x: Any,
            theta: Any = None,
            n: int = 1000,
            *,
            layout: Layout | None = None,
            names: tuple[str, ...] | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "n", check_count("n", self.n))
        if self.layout is not None:
            check_kind("layout", self.layout, "a Layout, or None", Layout)
        tables = {"x": as_observed(self.x, self.layout)}
        if self.theta is not None:
            tables["theta"] = as_table("theta", self.theta)
        given = {"x_o" if name == "x" else name: t.array for name, t in tables.items()}
        for name, array in as_tensors(given).items():
            object.__setattr__(self, "x" if name == "x_o" else name, array)
        object.__setattr__(self, "layout", tables["x"].layout or self.layout)
        if self.theta is not None:
            self._keep_theta(tables["theta"].layout)

    def _keep_theta(self, layout: Layout | None) -> None:
        """Checks draws, which say how many they are, and names of their columns."""
        assert self.theta is not None
        check_finite("theta", self.theta)
        if self.theta.ndim not in (2, 3):
            raise ValueError(
                f"theta: expected shape (s, m) or (o, s, m); got {tuple(self.theta.shape)}."
            )
        object.__setattr__(self, "n", self.theta.shape[-2])
        names = self.names if layout is None else layout.names
        if names is not None:
            names = check_names("names", names, self.theta.shape[-1])
        object.__setattr__(self, "names", names)

    @classmethod
    def of(cls, given: Any) -> "Draws":
        """Draws as they are, or a bare observation x_o without any."""
        return given if isinstance(given, cls) else cls(given)

    def many(self, observation: "Observation") -> "Draws":
        """The same with a leading axis of observations."""
        theta = self.theta
        theta = theta if theta is None or theta.ndim == 3 else theta[None]
        return Draws(observation.x, theta, self.n, names=self.names)

    def subset(self, rows: Any) -> "Draws":
        """The same at some of many observations."""
        rows = _places(rows, len(self.x)).to(self.x.device)
        theta = None if self.theta is None else self.theta[rows]
        return Draws(self.x[rows], theta, self.n, names=self.names)

    def __repr__(self) -> str:
        theta = self.n if self.theta is None else tuple(self.theta.shape)
        return f"Draws(x={tuple(self.x.shape)}, theta={theta})"


@dataclass(frozen=True, eq=False)
class Observation:
    """Observations that were checked against a calibration."""

    x: Tensor  # as given, (o, ...)
    features: Tensor  # what a classifier sees of them, (o, d)
    single: bool  # whether one was given, without a leading axis

    def shaped(self, values: Any) -> Any:
        """Values with a leading axis of observations, without it where one was given."""
        return values[0] if self.single else values

    def parts(self, most: int) -> "list[Observation]":
        """The same observations, at most so many at a time."""
        pairs = zip(self.x.split(most), self.features.split(most), strict=True)
        return [Observation(x, features, self.single) for x, features in pairs]


@dataclass(frozen=True, eq=False)
class ObservedDraws:
    """Draws that were checked against a calibration, at o observations."""

    observation: Observation
    draws: Tensor  # in the space of the calibration, (o, s, m)
    theta: Tensor | None  # the same in parameter units; None where no flow can tell


def _places(rows: Any, n: int) -> Tensor:
    """Whole numbers, a slice or a mask over n rows, as places; or refuses."""
    try:
        given = np.arange(n)[rows] if isinstance(rows, slice) else np.asarray(rows)
        mask = given.dtype.kind == "b" and given.shape == (n,)
        if given.ndim != 1 or not (mask or given.dtype.kind in "iu"):
            raise IndexError(f"{given.dtype} of shape {given.shape}")
        return torch.from_numpy(np.arange(n)[given])
    except (IndexError, TypeError, ValueError) as error:
        raise ValueError(
            f"rows: expected whole numbers, a slice or a mask over {n} rows; got {error}."
        ) from error


def marks(arrays: Sequence[Tensor]) -> list[int]:
    """Numbers that change when arrays are written.

    On the CPU a checksum of their memory, each part of it once: torch does not count what is
    written through NumPy, which shares it. Elsewhere torch counts all.
    """
    here = {a.untyped_storage().data_ptr(): a for a in arrays if a.device.type == "cpu"}
    sums = [zlib.crc32(_memory(array)) for array in here.values()]
    there = (a for a in arrays if a.device.type != "cpu" and not a.is_inference())
    return sums + [array._version for array in there]


def _memory(array: Tensor) -> memoryview:
    """All bytes of the memory that holds an array."""
    own: Any = torch.empty(0, dtype=torch.uint8, device="cpu")
    return memoryview(own.set_(array.untyped_storage()).numpy())


def check_calibration(calibration: Any) -> None:
    """Refuses what is no calibration."""
    check_kind("calibration", calibration, "a Calibration", Calibration)
    calibration.check_whole()


def _shaped(arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    """Checks the shapes of a calibration; `theta_q` leaves with shape (n, k, m)."""
    theta, x, theta_q = arrays["theta"], arrays["x"], arrays.get("theta_q")
    if theta.ndim != 2:
        raise ValueError(
            f"theta: expected shape (n, m); got {tuple(theta.shape)}. "
            "For a single parameter use theta.reshape(-1, 1)."
        )
    n, m = theta.shape
    if n < FEWEST_ROWS:
        raise ValueError(
            f"theta: expected at least {FEWEST_ROWS} rows; got {n}. "
            "A local test begins to see something near a thousand."
        )
    if x.ndim < 2 or len(x) != n:
        hint = " For a single number at each use x.reshape(-1, 1)." if x.shape == (n,) else ""
        raise ValueError(
            f"x: expected shape ({n}, ...), one row for each of the {n} parameter vectors; got "
            f"{tuple(x.shape)}.{hint}"
        )
    if theta_q is None:
        return arrays
    theta_q = theta_q[:, None] if theta_q.ndim == 2 else theta_q
    if theta_q.ndim != 3 or len(theta_q) != n or theta_q.shape[2] != m:
        got = tuple(arrays["theta_q"].shape)
        first = len(got) == 3 and n in got[1:]
        hint = " Samples-first draws need theta_q.swapaxes(0, 1)." if first else ""
        raise ValueError(f"theta_q: expected shape ({n}, {m}) or ({n}, k, {m}); got {got}.{hint}")
    return arrays | {"theta_q": theta_q}


def tied_ranks(columns: np.ndarray) -> np.ndarray:
    """Ranks (n, c) in each column, ties alike."""
    return np.stack([np.unique(column, return_inverse=True)[1] for column in columns.T], 1)


def has_order(ranks: np.ndarray) -> bool:
    """Whether rows may have more than n / 2 values, from ranks (n, c) with ties alike."""
    return 2 * math.prod(int(last) + 1 for last in ranks.max(0)) > len(ranks)


def _draws_table(theta_q: Any, layout: Layout | None) -> Table:
    """Draws (n, m) or (n, k, m); those of a dict have the axes that give the names of theta."""
    if has_chains(theta_q):
        return of_each(theta_q, EACH)
    if not isinstance(theta_q, Mapping) or not theta_q:
        return as_table("theta_q", theta_q)
    least = min(np.ndim(array) for array in theta_q.values())
    tables = [as_table("theta_q", theta_q, axes) for axes in (1, 2) if axes <= least]
    fits = [t for t in tables if layout and t.layout and set(t.layout.names) == set(layout.names)]
    return (fits or tables[::-1] or [as_table("theta_q", theta_q)])[0]


@dataclass(frozen=True, eq=False)
class Joint:
    """Pairs of the joint before there are draws: theta (n, m) and x (n, ...), with their names."""

    theta: Tensor
    x: Tensor
    names: tuple[str, ...] | None = None
    layout: Layout | None = None

    @classmethod
    def of(cls, theta: Any, x: Any, embed: Embed | None = None) -> "Joint":
        """Checks pairs, or refuses; x may hold NaN where an embedding reads it."""
        tables = {"theta": as_table("theta", theta), "x": as_table("x", x)}
        named, layout = (table.layout for table in tables.values())
        arrays = as_tensors({name: table.array for name, table in tables.items()})
        theta, x = _shaped(arrays).values()
        check_finite("theta", theta, "Leave these pairs out.")
        if embed is None:
            check_finite("x", x, "Leave these pairs out; x padded with NaN needs embed=.")
        return cls(theta, x, named.names if named else None, layout)

    def named_by(self, posterior: Posterior) -> "Joint":
        """The same with parameters in the order of the posterior's, where both have names."""
        if posterior.names is None:
            return self
        own = Table(self.theta, layout_of(self.names))
        theta = own.like(layout_of(posterior.names), "theta", "the posterior").array
        return replace(self, theta=theta, names=posterior.names)

    def features_by(self, posterior: Posterior, embed: Embed | None) -> Embed | None:
        """What turns x into features: what is given, or the posterior's for what is no vector."""
        vectors = self.x.ndim == 2 and not (self.layout and self.layout.packed)
        return embed if embed is not None or vectors else posterior.embed

    def with_draws(self, drawn: "Drawn", embed: Embed | None) -> Calibration:
        """The pairs at whose x there are draws."""
        theta, x = self.theta[drawn.kept], self.x[drawn.kept]
        said = {"names": self.names, "layout": self.layout, "remarks": drawn.remarks}
        return Calibration(theta, x, drawn.theta, embed, **said)  # type: ignore[arg-type]


def features_of(x: Tensor, embed: Embed | None, layout: Layout | None = None) -> Tensor:
    """Embeds or flattens observations (n, ...) to (n, d)."""
    if embed is None:
        return x.flatten(1)
    check_function("embed", embed, "a function of x")
    unpack = layout.unpack if layout is not None and layout.packed else None
    features, alone = (_embedded(embed, part, unpack) for part in (x, x[:1]))
    if features.ndim != 2 or len(features) != len(x):
        raise ValueError(
            f"embed: expected features with shape ({len(x)}, d); got {tuple(features.shape)}."
        )
    check_finite("embed(x)", features)
    spread = float(features.std(correction=0))
    if not torch.allclose(features[:1], alone, rtol=1e-2, atol=1e-2 * spread):
        raise ValueError(
            "embed: expected the same features for the same x, alone or among others; got other "
            "ones. Switch dropout and batch normalisation off with network.eval()."
        )
    return features


def _embedded(embed: Embed, x: Tensor, unpack: Callable[[Tensor], Any] | None) -> Tensor:
    """Applies an embedding without gradients and without moving a global generator.

    Networks in single precision are given x in single precision, where theirs does not do.
    """
    try:
        return call_user_code("embed(x)", embed, unpack(x) if unpack else x).to(x.device)
    except ValueError:
        if x.dtype == torch.float32:
            raise
        return _embedded(embed, x.float(), unpack)

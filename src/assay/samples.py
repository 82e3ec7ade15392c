r"""What a test looks at: calibration pairs with draws of q, and draws of q at an observation.

A calibration pair is a draw of the joint, :math:`\theta \sim p(\theta)`,
:math:`x \sim p(x \mid \theta)`, so that given x, theta is a draw of the true posterior. Beside it
stand k draws :math:`\theta_q \sim q(\cdot \mid x)` of the approximation under test.

**Class roles**, as in the paper and everywhere in this library: class 0 is q, class 1 is the
truth, and a class probability is :math:`d = P(\text{class } 1)`.

In **latent space** the truths are :math:`z = T^{-1}(\theta; x)` for a flow T, and class 0 is the
flow's base distribution, which is known and needs no draws to be stored.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .bases import Base, StandardNormal, as_base
from .door import as_device, as_tensors, check_count, check_finite
from .flows import HANDFUL, Flow, check_flow, check_inverse, check_own, flow_sample, flow_to_base
from .randomness import Seed, isolated, seed_of, stream
from .surroundings import Surroundings, surroundings

__all__ = ["Calibration", "Draws", "Embed", "Observed", "Place"]

Embed = Callable[[Tensor], Any]

FEWEST_ROWS = 10


@dataclass(frozen=True, eq=False)
class Calibration:
    r"""Pairs of the joint, with k draws of q at every x.

    Args:
        theta: The true parameters, with shape (n, m).
        x: The observations they produced, with shape (n, ...).
        theta_q: Draws of :math:`q(\cdot \mid x)`, with shape (n, m) or (n, k, m).
        embed: Turns observations (n, ...) into features (n, d), for images, series or sets;
            without it, observations are flattened.

    NumPy arrays, torch tensors, JAX arrays and nested lists are accepted; integers become
    floating point. Device and precision follow what is given.

    Example:
        >>> theta, noise = torch.randn(2, 100, 3, generator=torch.Generator().manual_seed(0))
        >>> Calibration(theta, theta + noise, (theta + noise) / 2)
        Calibration(n=100, m=3, k=1, x=(3,), space='parameters')
    """

    theta: Tensor
    x: Tensor
    theta_q: Tensor | None
    embed: Embed | None = None
    base: Base | None = field(default=None, kw_only=True)
    flow: Flow | None = field(default=None, kw_only=True)

    if TYPE_CHECKING:
        # Arrays of any library come in; tensors are what is kept.
        def __init__(
            self,
            theta: Any,
            x: Any,
            theta_q: Any,
            embed: Embed | None = None,
            *,
            base: Any = None,
            flow: Flow | None = None,
        ) -> None: ...

    def __post_init__(self) -> None:
        given = {"theta": self.theta, "x": self.x, "theta_q": self.theta_q}
        arrays = as_tensors({k: v for k, v in given.items() if v is not None})
        if "theta_q" not in arrays and self.base is None:
            raise ValueError(
                "theta_q: expected draws of q with shape (n, m) or (n, k, m); got None. "
                "For latents of a flow use Calibration.from_base(z, x)."
            )
        arrays = _shaped(arrays)
        for name, array in arrays.items():
            check_finite(
                name, array, "Calibration.drop_invalid(theta, x, theta_q) leaves them out."
            )
            object.__setattr__(self, name, array)
        if self.base is not None:
            object.__setattr__(self, "base", as_base(self.base, self.theta.shape[1]))
        _ = self.features

    @classmethod
    def from_base(
        cls, z: Any, x: Any, base: Any = None, *, embed: Embed | None = None
    ) -> "Calibration":
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
        z, x = as_tensors({"z": z, "x": x}).values()
        if z.ndim != 2:
            raise ValueError(f"z: expected shape (n, m); got {tuple(z.shape)}.")
        return cls(z, x, None, embed, base=base or StandardNormal(z.shape[1]))

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
    def space(self) -> str:
        """Either ``'parameters'`` or ``'latent'``."""
        return "parameters" if self.base is None else "latent"

    def sorted(self) -> "Calibration":
        """The same pairs in an order that x alone decides, so that none given to them matters.

        Where x has ties, chance decides between them, not the order given: that may depend on
        parameters.
        """
        return self.subset(self.order)

    @cached_property
    def order(self) -> np.ndarray:
        """The order (n,) of :meth:`sorted`."""
        chance = torch.randperm(len(self), generator=stream(0, "ties")).numpy()
        return chance[np.lexsort(self._ranks[chance].T[::-1])]

    def mix(self, seed: int) -> int:
        """A seed that also depends on the order of the observations in each of their features.

        The order of a single feature says nothing once rows are sorted; then it is which of its
        neighbouring gaps is the larger.

        With one and the same seed, two data sets then still meet independent nulls; x is what no
        null changes, so it may choose them, and ranks do not depend on units.
        """
        content = self._ranks
        if content.shape[1] == 1:
            gaps = np.diff(np.sort(self.features.cpu().numpy(), axis=0), axis=0)
            content = np.diff(gaps, axis=0) > 0
        digest = hashlib.blake2b(content.tobytes(), digest_size=8).digest()
        return (seed ^ int.from_bytes(digest, "big")) % 2**62

    @cached_property
    def _ranks(self) -> np.ndarray:
        """Ranks of the features in their columns, ties alike, with shape (n, d)."""
        columns = self.features.cpu().numpy().T
        return np.stack([np.unique(c, return_inverse=True)[1] for c in columns], 1)

    @property
    def summary(self) -> dict[str, Any]:
        """Sizes, space and device, as plain values."""
        return {
            "n": len(self),
            "m": self.m,
            "k": self.k,
            "d": self.features.shape[1],
            "space": self.space,
            "device": str(self.theta.device),
        }

    @cached_property
    def features(self) -> Tensor:
        """What a classifier sees of x, with shape (n, d)."""
        return _features(self.x, self.embed)

    def to_latent(self, flow: Flow, seed: Seed = 0) -> "Calibration":
        r"""The same pairs in the base space of a flow, :math:`z = T^{-1}(\theta; x)`.

        The flow is first asked for a handful of draws, which its own inverse must map back to its
        base. So must the calibration's `theta_q`, if any: draws that were truncated to the prior,
        or tempered, belong to another q than the flow's inverse, and mixing the two would test
        neither.

        Args:
            flow: The flow.
            seed: Chooses the handful that is checked.
        """
        if self.base is not None:
            raise ValueError("calibration: expected parameters; got latents already.")
        check_flow(flow)
        base = as_base(flow.base, self.m)
        rows = torch.randperm(len(self), generator=stream(seed_of(seed), "handful"))
        check_inverse(flow, base, self.x[rows], stream(seed_of(seed), "flow"))
        if self.theta_q is not None:
            some = rows[:HANDFUL]
            check_own(flow_to_base(flow, self.theta_q[some, 0], self.x[some]), base, "theta_q")
        z = flow_to_base(flow, self.theta, self.x)
        return Calibration(z, self.x, None, self.embed, base=base, flow=flow)

    def subset(self, rows: Any) -> "Calibration":
        """The calibration of some rows.

        Args:
            rows: Indices or a boolean mask over the n rows.
        """
        rows = np.arange(len(self))[rows] if isinstance(rows, slice) else np.asarray(rows)
        if rows.ndim != 1 or (rows.dtype.kind not in "iu" and rows.shape != (len(self),)):
            raise ValueError(
                f"rows: expected whole numbers or a mask of length {len(self)}; got {rows.dtype} "
                f"of shape {rows.shape}."
            )
        try:
            rows = torch.as_tensor(np.arange(len(self))[rows], device=self.theta.device)
        except IndexError as error:
            raise ValueError(f"rows: expected rows of {len(self)}; got {error}.") from error
        theta_q = None if self.theta_q is None else self.theta_q[rows]
        return replace(self, theta=self.theta[rows], x=self.x[rows], theta_q=theta_q)

    def split(self, share: float = 0.5, seed: Seed = 0) -> tuple["Calibration", "Calibration"]:
        """Two disjoint random parts.

        Args:
            share: The share of rows in the first part.
            seed: Chooses the rows.
        """
        if not isinstance(share, int | float) or not 0 < share < 1:
            raise ValueError(f"share: expected a number between 0 and 1; got {share!r}.")
        order = torch.randperm(len(self), generator=stream(seed_of(seed), "split"))
        cut = round(share * len(self))
        return self.subset(order[:cut]), self.subset(order[cut:])

    def to(self, device: str | torch.device) -> "Calibration":
        """The same calibration on another device, where tests will then train.

        Args:
            device: For instance ``"cpu"`` or ``"cuda"``.
        """
        device = as_device(device)
        theta_q = None if self.theta_q is None else self.theta_q.to(device)
        return replace(self, theta=self.theta.to(device), x=self.x.to(device), theta_q=theta_q)

    def place(self, draws: "Draws") -> "Place":
        """Checks observations against this calibration, whatever draws come with them.

        Args:
            draws: One observation or many.
        """
        shape = self.x.shape[1:]
        x = draws.x.to(self.x)
        single = x.shape == shape
        if not single and x.shape[1:] != shape:
            raise ValueError(
                f"x_o: expected shape {tuple(shape)} for one observation or (o, "
                f"{', '.join(map(str, shape))}) for many, as in the calibration; "
                f"got {tuple(x.shape)}."
            )
        x = x[None] if single else x
        check_finite("x_o", x, f"It is beyond the range of {x.dtype}: give a wider one.")
        return Place(x, _features(x, self.embed), single)

    def surroundings(self, place: "Place") -> Surroundings:
        """How this calibration surrounds observations.

        Args:
            place: The observations.
        """
        found = surroundings(self.features, place.features)
        return found[0] if place.single else found

    def observe(self, draws: "Draws", seed: int = 0) -> "Observed":
        """Checks draws against this calibration and brings them into its space.

        Args:
            draws: One observation or many.
            seed: Makes the base draws where `draws` holds no parameters.
        """
        return _observe(self, draws, seed)


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

    if TYPE_CHECKING:

        def __init__(self, x: Any, theta: Any = None, n: int = 1000) -> None: ...

    def __post_init__(self) -> None:
        given = {"x": self.x, "theta": self.theta}
        arrays = as_tensors({k: v for k, v in given.items() if v is not None})
        for name, array in arrays.items():
            check_finite(name, array)
            object.__setattr__(self, name, array)
        if self.theta is not None:
            if self.theta.ndim not in (2, 3):
                raise ValueError(
                    f"theta: expected shape (s, m) or (o, s, m); got {tuple(self.theta.shape)}."
                )
            object.__setattr__(self, "n", self.theta.shape[-2])
        object.__setattr__(self, "n", check_count("n", self.n))

    def __repr__(self) -> str:
        theta = self.n if self.theta is None else tuple(self.theta.shape)
        return f"Draws(x={tuple(self.x.shape)}, theta={theta})"


@dataclass(frozen=True, eq=False)
class Place:
    """Observations that were checked against a calibration.

    Args:
        x: The observations as given, with shape (o, ...).
        features: What a classifier sees of them, with shape (o, d).
        single: Whether one observation was given without a leading axis.
    """

    x: Tensor
    features: Tensor
    single: bool


@dataclass(frozen=True, eq=False)
class Observed:
    """Draws that were checked against a calibration, at o observations.

    Args:
        place: The observations.
        draws: Draws of q in the space of the calibration, with shape (o, s, m).
        theta: The same in parameter units, or None where no flow can tell.
    """

    place: Place
    draws: Tensor
    theta: Tensor | None


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
    if theta_q.ndim == 2:
        theta_q = theta_q[:, None]
    if theta_q.ndim != 3 or len(theta_q) != n or theta_q.shape[2] != m:
        got = tuple(arrays["theta_q"].shape)
        first = len(got) == 3 and n in got[1:]
        hint = " Samples-first draws need theta_q.swapaxes(0, 1)." if first else ""
        raise ValueError(f"theta_q: expected shape ({n}, {m}) or ({n}, k, {m}); got {got}.{hint}")
    return arrays | {"theta_q": theta_q}


def _features(x: Tensor, embed: Embed | None) -> Tensor:
    """Embeds or flattens observations (n, ...) to (n, d)."""
    if embed is None:
        return x.flatten(1)
    features, again = (
        as_tensors({"embed(x)": _quietly(embed, part)})["embed(x)"].to(x.device)
        for part in (x, x[:1])
    )
    if features.ndim != 2 or len(features) != len(x):
        raise ValueError(
            f"embed: expected features with shape ({len(x)}, d); got {tuple(features.shape)}."
        )
    check_finite("embed(x)", features)
    if not torch.allclose(features[:1], again, rtol=1e-2, atol=1e-2 * float(features.std())):
        raise ValueError(
            "embed: expected the same features for the same x, alone or among others; got other "
            "ones. Switch dropout and batch normalisation off with network.eval()."
        )
    return features


def _quietly(embed: Embed, x: Tensor) -> Any:
    """Applies an embedding without gradients and without moving a global generator."""
    with torch.no_grad(), isolated(stream(0, "embed")):
        return embed(x)


def _observe(calibration: Calibration, draws: Draws, seed: int) -> Observed:
    place = calibration.place(draws)
    count = len(place.x)
    if calibration.base is None:
        theta = _parameters(calibration, draws, count)
        _check_fresh(calibration, place, theta)
        return Observed(place, theta, theta)
    flow = calibration.flow
    if flow is None and draws.theta is not None:
        raise ValueError(
            "draws: expected no theta, since this calibration holds latents without their flow; "
            "use Draws(x_o), which evaluates on base draws, or calibration.to_latent(flow)."
        )
    if flow is None:
        base = calibration.base.sample(draws.n, stream(seed, "evaluation")).to(calibration.theta)
        return Observed(place, base.expand(count, -1, -1), None)
    if draws.theta is not None:
        theta = _parameters(calibration, draws, count)
    else:
        streams = (stream(seed, "evaluation", i) for i in range(count))
        pairs = zip(place.x, streams, strict=True)
        theta = torch.stack([flow_sample(flow, x, draws.n, stream) for x, stream in pairs])
    sites = place.x.repeat_interleave(draws.n, 0)
    z = flow_to_base(flow, theta.flatten(0, 1), sites)
    if draws.theta is not None:
        order = torch.randperm(len(z), generator=stream(seed, "handful"))
        check_own(z[order], calibration.base, "theta_o")
    return Observed(place, z.reshape(theta.shape), theta)


def _parameters(calibration: Calibration, draws: Draws, observations: int) -> Tensor:
    if draws.theta is None:
        raise ValueError(
            "draws: expected Draws(x_o, theta_o) with draws of q at x_o; got no theta."
        )
    theta = draws.theta.to(calibration.theta)
    theta = theta[None] if theta.ndim == 2 else theta
    if len(theta) != observations or theta.shape[2] != calibration.m:
        raise ValueError(
            f"theta_o: expected shape ({observations}, s, {calibration.m}) for {observations} "
            f"observation(s) of {calibration.m} parameter(s); got {tuple(draws.theta.shape)}."
        )
    check_finite("theta_o", theta.flatten(0, 1), f"It is beyond the range of {theta.dtype}.")
    return theta


def _check_fresh(calibration: Calibration, place: Place, theta: Tensor) -> None:
    """Refuses draws that a test was trained on: nulls would not be like the data there."""
    assert calibration.theta_q is not None
    for features, draws in zip(place.features, theta, strict=True):
        same = (calibration.features == features).all(1)
        seen = calibration.theta_q[same].flatten(0, 1)
        if len(seen) and bool((draws[:, None] == seen[None]).all(2).any(1).all()):
            raise ValueError(
                "theta_o: expected fresh draws of q at x_o; got the calibration's own theta_q "
                "there, on which the test was trained. Draw again."
            )

"""Observations that are tested, with draws of q there, and features of observations."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import (
    as_tensors,
    check_count,
    check_finite,
    check_function,
    check_kind,
    check_names,
)
from .._support.random import call_user_code
from .guards import check_rows
from .posterior import Embed
from .tables import Layout, Table, as_observed, as_table, layout_of


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
        vars(self)["n"] = check_count("n", self.n)
        if self.layout is not None:
            check_kind("layout", self.layout, "a Layout, or None", Layout)
        x, theta = as_observed(self.x, self.layout), as_table("theta", self.theta)
        given = {"x_o": x.array} | ({} if self.theta is None else {"theta": theta.array})
        arrays = as_tensors(given)
        vars(self).update(x=arrays["x_o"], layout=x.layout or self.layout)
        if self.theta is None:
            return
        check_finite("theta", arrays["theta"])
        shape = tuple(arrays["theta"].shape)
        if len(shape) not in (2, 3):
            raise ValueError(f"theta: expected shape (s, m) or (o, s, m); got {shape}.")
        names = self.names if theta.layout is None else theta.layout.names
        if names is not None:
            names = check_names("names", names, shape[-1])
        vars(self).update(theta=arrays["theta"], n=shape[-2], names=names)

    @classmethod
    def of(cls, given: Any) -> "Draws":
        """Draws as they are, or a bare observation x_o without any."""
        return given if isinstance(given, cls) else cls(given)

    def parameters(self, o: int, like: Tensor, names: tuple[str, ...] | None) -> Tensor:
        """Draws (o, s, m) at o observations as parameters (n, m) are, with these names."""
        if self.theta is None:
            raise ValueError(
                "draws: expected Draws(x_o, theta_o) with draws of q at x_o; got no theta."
            )
        table = Table(self.theta, layout_of(self.names)).like(layout_of(names), "theta_o", "theta")
        theta: Tensor = table.array.to(like)
        theta, m = theta[None] if theta.ndim == 2 else theta, like.shape[1]
        if len(theta) != o or theta.shape[2] != m:
            raise ValueError(
                f"theta_o: expected shape ({o}, s, {m}) for {o} observation(s) of {m} "
                f"parameter(s); got {tuple(self.theta.shape)}."
            )
        check_finite("theta_o", theta.flatten(0, 1), f"It is beyond the range of {theta.dtype}.")
        return theta

    def many(self, observation: "Observation") -> "Draws":
        """The same with a leading axis of observations."""
        theta = self.theta
        theta = theta if theta is None or theta.ndim == 3 else theta[None]
        return Draws(observation.x, theta, self.n, names=self.names)

    def subset(self, rows: Any) -> "Draws":
        """The same at some of many observations."""
        rows = check_rows(rows, len(self.x)).to(self.x.device)
        theta = None if self.theta is None else self.theta[rows]
        return Draws(self.x[rows], theta, self.n, names=self.names)

    def __repr__(self) -> str:
        theta = self.n if self.theta is None else tuple(self.theta.shape)
        return f"Draws(x={tuple(self.x.shape)}, theta={theta})"


@dataclass(frozen=True, eq=False)
class Observation:
    """Observations that were checked against those of a calibration."""

    x: Tensor  # as given, (o, ...)
    features: Tensor  # what a classifier is given of them, (o, d)
    single: bool  # whether one was given, without a leading axis

    @classmethod
    def of(
        cls, draws: Draws, x: Tensor, embed: Embed | None, layout: Layout | None
    ) -> "Observation":
        """Observations like those of a calibration (n, ...), or refuses."""
        shape, given = x.shape[1:], Table(draws.x, draws.layout).like(layout, "x_o", "x").array
        single = given.shape == shape
        if not single and given.shape[1:] != shape:
            raise ValueError(
                f"x_o: expected shape {tuple(shape)} for one observation or (o, "
                f"{', '.join(map(str, shape))}) for many, as in the calibration; "
                f"got {tuple(given.shape)}."
            )
        given = given[None] if single else given
        x_o = given.to(x)
        if embed is None:
            check_finite("x_o", given)
            check_finite("x_o", x_o, f"It is beyond the range of {x_o.dtype}: give a wider one.")
        return cls(x_o, features_of(x_o, embed, layout), single)

    def shaped(self, values: Any) -> Any:
        """Values with a leading axis of observations, without it where one was given."""
        return values[0] if self.single else values


@dataclass(frozen=True, eq=False)
class ObservedDraws:
    """Draws that were checked against a calibration, at o observations."""

    observation: Observation
    draws: Tensor  # in the space of the calibration, (o, s, m)
    theta: Tensor | None  # the same in parameter units; None without a flow


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


def tied_ranks(columns: np.ndarray) -> np.ndarray:
    """Ranks (n, c) in each column, ties alike."""
    return np.stack([np.unique(column, return_inverse=True)[1] for column in columns.T], 1)


def has_order(ranks: np.ndarray) -> bool:
    """Whether rows may have more than n / 2 values, from ranks (n, c) with ties alike."""
    return 2 * math.prod(int(last) + 1 for last in ranks.max(0)) > len(ranks)

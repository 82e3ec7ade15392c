"""Functions of x, and objects with ``sample(x, n)``: how one is called is tried out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import as_tensors, cpu, error_line
from .._support.parallel import time_limit
from .._support.random import isolated, stream
from ..data.posterior import LIMIT, Flow, Posterior, is_flow
from ..data.tables import Layout, Table, as_table
from . import draws_of

OWN_GENERATOR = (
    "The posterior keeps a random generator of its own: the same seed does not give the same "
    "draws."
)


@dataclass(frozen=True, eq=False)
class FunctionPosterior(Posterior):
    """A function as a posterior, called in a way that was found out.

    Args:
        function: Of one x or many, and of n; or of x alone, then it returns a distribution.
        way: How it is called.
        reads: What it is given in place of x.
        owner: The flow whose method it is, if it has an inverse and a base.
        layout: Names of the parameters, if draws have them, as those of a dict.
        repeats: Whether the same seed gives the same draws.
    """

    function: Callable[..., Any]
    way: "Way"
    reads: Callable[[Tensor], Any] = Tensor.clone
    owner: Flow | None = None
    layout: Layout | None = None
    repeats: bool = True

    def sample_batched(self, x: Tensor, n: int) -> Any:
        """Returns n draws (b, n, m) at each of b observations (b, ...)."""
        return self.drawn(x, n).like(self.layout, "posterior", "its other draws").array

    def drawn(self, x: Tensor, n: int) -> Table:
        """The same, with names if the function gives them."""
        return self.way.draws(lambda *given: self.function(self.reads(given[0]), *given[1:]), x, n)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the parameters, if the function gives them."""
        return None if self.layout is None else self.layout.names

    @property
    def rows(self) -> int:
        """Observations at which draws are made in one call."""
        return self.way.rows

    @property
    def flow(self) -> Flow | None:
        """The flow whose method it is."""
        return self.owner

    def remarks(self, x: Tensor) -> tuple[str, ...]:
        """Whether draws can be made again."""
        return () if self.repeats else (OWN_GENERATOR,)


Called = Callable[..., Any]


@dataclass(frozen=True)
class Way:
    """A way in which functions give draws: how it is called, so many x at a time, and in words."""

    draws: Callable[[Called, Tensor, int], Table]
    rows: int
    words: str


def _one(function: Called, x: Tensor, n: int) -> Table:
    tables = [_table(function(at, n), 1) for at in x]
    same = (table.like(tables[0].layout, "posterior", "its first draws") for table in tables)
    return Table(torch.stack([table.array for table in same]), tables[0].layout)


def _many(function: Called, x: Tensor, n: int) -> Table:
    return _table(function(x, n), 2)


def _samples_first(function: Called, x: Tensor, n: int) -> Table:
    table = _table(function(x, n), 2)
    return Table(table.array.swapaxes(0, 1), table.layout)


def _law(function: Called, x: Tensor, n: int) -> Table:
    return _one(lambda at, n: draws_of(function(at), n), x, n)


def _laws(function: Called, x: Tensor, n: int) -> Table:
    return _samples_first(lambda x, n: draws_of(function(x), n), x, n)


def _table(given: Any, axes: int) -> Table:
    """Draws with so many axes before those of parameters, and their names if they have any."""
    table = as_table("posterior", given, axes)
    return Table(as_tensors({"posterior": table.array})["posterior"], table.layout)


WAYS = (
    Way(_one, 1, "one x and n, to draws (n, m)"),
    Way(_many, 100, "many x and n, to draws (b, n, m)"),
    Way(_samples_first, 100, "many x and n, to draws (n, b, m)"),
    Way(_laws, 100, "many x, to a batch of distributions"),
    Way(_law, 1, "one x, to a distribution"),
)
# Observations, draws and times with which a function is tried.
TRIED_X, TRIED_DRAWS, TRIES = 3, 5, 3


def adapted(posterior: Any, x: Tensor, layout: Layout | None = None) -> Posterior | None:
    """A method of an object that samples, or a function, in the first way that works at some x."""
    owner = cast(Flow, posterior) if is_flow(posterior) else None
    for name in ("sample_batched", "sample"):
        if callable(getattr(posterior, name, None)):
            return _tried(getattr(posterior, name), x, layout, owner)
    return _tried(posterior, x, layout, None) if callable(posterior) else None


def _tried(
    function: Called, x: Tensor, layout: Layout | None, owner: Flow | None
) -> FunctionPosterior:
    """The function in the first way that works at some x."""
    problems: dict[str, str] = {}
    for reads, way, i in product(_readings(layout), WAYS, range(TRIES)):
        q = FunctionPosterior(function, way, reads, owner)
        at = x[(i + cpu.arange(min(way.rows, TRIED_X))) % len(x)]
        try:
            first, again = (_trial(q, at) for _ in range(2))
        except Exception as problem:
            problems.setdefault(way.words, error_line(problem))
        else:
            exact: dict[str, Any] = {"rtol": 0, "atol": 0, "equal_nan": True}
            repeats = torch.allclose(first.array, again.array, **exact)
            return replace(q, layout=first.layout, repeats=repeats)
    raise TypeError(
        f"posterior: expected sample(x, n), which takes one observation x, a tensor of shape "
        f"{tuple(x.shape[1:])}, and returns n draws (n, m), or another function of x; calling it "
        "failed. " + " ".join(f"With {way}: {words}." for way, words in problems.items())
    )


def _readings(layout: Layout | None) -> list[Callable[[Tensor], Any]]:
    """What functions may be given in place of x, until something works."""
    kinds: list[Callable[[Tensor], Any]] = [Tensor.clone, Tensor.float, _as_numpy]
    if layout is None or not layout.packed:
        return kinds
    return [lambda x, kind=kind: layout.unpack(kind(x)) for kind in kinds]  # type: ignore[misc]


def _as_numpy(x: Tensor) -> np.ndarray:
    return x.cpu().numpy().copy()


def _trial(q: FunctionPosterior, x: Tensor) -> Table:
    with time_limit(LIMIT), isolated(stream(0, "tried")):
        drawn = q.drawn(x, TRIED_DRAWS)
    shape = drawn.array.shape
    if len(shape) != 3 or shape[:2] != (len(x), TRIED_DRAWS):
        raise ValueError(f"shape {tuple(shape)} at {len(x)} x with n = {TRIED_DRAWS}")
    return drawn

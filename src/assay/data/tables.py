"""Tables with names: data frames, xarray's data sets and dicts of arrays.

Columns of two tables are matched by their names, never by their places. Variables of a dict, or of
a data set, may have any shape; they are put side by side in one array, with names such as
``beta[0]``.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .._support.inputs import as_tensors, cpu
from .._support.random import stream

# Draws that are taken from chains: at x_o, at most, and at each x.
MOST, EACH = 1000, 16


@dataclass(frozen=True)
class Layout:
    """Variables, each with its shape, side by side in the last axis of an array.

    Args:
        variables: Their names and shapes; () for a single number.
        packed: Whether they came as separate arrays, which functions of x are given again.

    Example:
        >>> Layout((("mu", ()), ("beta", (2,)))).names
        ('mu', 'beta[0]', 'beta[1]')
    """

    variables: tuple[tuple[str, tuple[int, ...]], ...]
    packed: bool = False

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"names: expected a different one for each column; got {self.names}.")

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each column."""
        return tuple(
            name + (f"[{', '.join(map(str, index))}]" if math.prod(shape) > 1 else "")
            for name, shape in self.variables
            for index in np.ndindex(shape)
        )

    def unpack(self, array: Any) -> dict[str, Any]:
        """Arrays (..., shape) of each variable from columns (..., d)."""
        parts, start = {}, 0
        for name, shape in self.variables:
            stop = start + math.prod(shape)
            parts[name] = array[..., start:stop].reshape((*array.shape[:-1], *shape))
            start = stop
        return parts


def layout_of(names: Iterable[Any] | None) -> Layout | None:
    """Single numbers with these names, if there are any."""
    return None if names is None else Layout(tuple((str(name), ()) for name in names))


@dataclass(frozen=True, eq=False)
class Table:
    """An array, and the layout of its last axis if it has names."""

    array: Any
    layout: Layout | None = None

    def like(self, other: "Layout | None", name: str, of: str) -> "Table":
        """The same in the order of another table, where both have names, which must be equal."""
        if self.layout is None or other is None:
            return Table(self.array, other)
        own = self.layout.names
        if set(own) != set(other.names):
            raise ValueError(
                f"{name}: expected columns {list(other.names)}, as in {of}; got {list(own)}. "
                "Columns are matched by name."
            )
        return Table(self.array[..., [own.index(each) for each in other.names]], other)


def as_table(name: str, given: Any, axes: int = 1) -> Table:
    """An array of whatever holds numbers, with names where it has them.

    Given are a data frame, a series, a data set, a dict of arrays, with so many leading axes, or
    an array; messages begin with the name.

    Example:
        >>> table = as_table("theta", {"mu": np.zeros(5), "beta": np.ones((5, 2))})
        >>> table.array.shape, table.layout.names
        (torch.Size([5, 3]), ('mu', 'beta[0]', 'beta[1]'))
    """
    library = _library(given)
    if _has_chains(given):
        return _from_chains(given, MOST)
    if library == "pandas":
        names = given.columns if given.ndim == 2 else given.index
        return Table(given.to_numpy(), layout_of(names))
    if library == "xarray" and isinstance(given, Mapping):
        given = {str(key): given[key].values for key in given}
    elif library == "xarray":
        last = given.dims[-1] if given.ndim > 1 else None
        names = given.coords[last].values if last in given.coords else None
        return Table(given.values, layout_of(names))
    return _packed(name, given, axes) if isinstance(given, Mapping) else Table(given)


def as_draws_table(theta_q: Any, layout: Layout | None) -> Table:
    """Draws (n, m) or (n, k, m); a dict has as many leading axes as make its names those of theta.

    A list holds an InferenceData or a DataTree for each x; as many draws are taken from each.
    """
    if isinstance(theta_q, list | tuple) and theta_q and _has_chains(theta_q[0]):
        tables = [_from_chains(each, EACH, place) for place, each in enumerate(theta_q)]
        first = tables[0].layout
        arrays = [table.like(first, "theta_q", "the first of them").array for table in tables]
        if len({len(array) for array in arrays}) > 1:
            raise ValueError(
                f"theta_q: expected at least {EACH} draws at every x; got fewer at some."
            )
        return Table(torch.stack(arrays), first)
    if not isinstance(theta_q, Mapping) or not theta_q:
        return as_table("theta_q", theta_q)
    least = min(np.ndim(array) for array in theta_q.values())
    tables = [as_table("theta_q", theta_q, axes) for axes in (1, 2) if axes <= least]
    fits = [t for t in tables if layout and t.layout and set(t.layout.names) == set(layout.names)]
    return (fits or tables[::-1] or [as_table("theta_q", theta_q)])[0]


def as_observed(given: Any, layout: Layout | None) -> Table:
    """One observation or many; arrays of a dict have the axes that the layout of x leaves over."""
    if not isinstance(given, Mapping):
        return as_table("x_o", given)
    shapes = () if layout is None else layout.variables
    over = [np.ndim(given[name]) - len(shape) for name, shape in shapes if name in given]
    return as_table("x_o", given, max([0, *over]))


def _has_chains(given: Any) -> bool:
    """Whether this is a sampler's InferenceData or DataTree."""
    library = _library(given)
    return library == "arviz" or (library == "xarray" and "posterior" in dir(given))


def _from_chains(given: Any, n: int, place: int = 0) -> Table:
    """At most n draws (n, m) of the posterior group, at random from all chains: without an order.

    The place of x among others chooses which.
    """
    group = given["posterior"]
    arrays = {str(name): group[name].values for name in group.data_vars}
    joined = {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}
    table = _packed("theta", joined, 1)
    order = cpu.randperm(len(table.array), generator=stream(0, "chains", place))
    return Table(table.array[order[:n]], table.layout)


def _library(given: Any) -> str:
    modules = {kind.__module__.split(".")[0] for kind in type(given).__mro__}
    return next((known for known in ("arviz", "pandas", "xarray") if known in modules), "")


def _packed(name: str, given: Mapping[Any, Any], axes: int) -> Table:
    if not given:
        raise ValueError(f"{name}: expected arrays by name; got an empty dict.")
    arrays = as_tensors({f"{name}[{str(key)!r}]": array for key, array in given.items()})
    heads = {array.shape[:axes] for array in arrays.values()}
    if len(heads) > 1 or any(len(head) < axes for head in heads):
        shapes = {key: tuple(array.shape) for key, array in arrays.items()}
        raise ValueError(f"{name}: expected arrays with as many rows each; got {shapes}.")
    events = [tuple(array.shape[axes:]) for array in arrays.values()]
    layout = Layout(tuple(zip(map(str, given), events, strict=True)), packed=True)
    (head,) = heads
    columns = [array.reshape(*head, -1) for array in arrays.values()]
    return Table(torch.cat(columns, -1), layout)

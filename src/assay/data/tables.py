"""Tables with names: data frames, xarray's data sets, dicts of arrays and ArviZ's draws.

Columns of two tables are matched by their names, never by their places. Variables of a dict, or of
a data set, may have any shape; they are put side by side in one array, with names such as
``beta[0]``.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from .._support.inputs import as_tensors, cpu

# Draws that are taken from chains: at x_o, at most, and at each x.
MOST, EACH = 1000, 16


@dataclass(frozen=True)
class Layout:
    """Variables, each with its shape, side by side in the last axis of an array."""

    variables: tuple[tuple[str, tuple[int, ...]], ...]  # names and shapes; () for a single number
    packed: bool = False  # whether they came as separate arrays, which functions of x get again

    def __post_init__(self) -> None:
        if len(set(self.names)) < len(self.names):
            raise ValueError(f"names: expected a different one for each column; got {self.names}.")

    @property
    def names(self) -> tuple[str, ...]:
        """A name for each column, such as ``mu`` or ``beta[0, 1]``."""
        return tuple(
            f"{name}[{', '.join(map(str, index))}]" if math.prod(shape) > 1 else name
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


class Table(NamedTuple):
    """An array, and the layout of its last axis if it has names."""

    array: Any
    layout: Layout | None = None

    def like(self, other: Layout | None, name: str, of: str) -> "Table":
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


def layout_of(names: Iterable[Any] | None) -> Layout | None:
    """Single numbers with these names, if there are any."""
    return None if names is None else Layout(tuple((str(name), ()) for name in names))


def leading_axes(given: Mapping[str, Any], layout: Layout | None) -> int:
    """How many axes arrays by name have before those of the layout."""
    shapes = () if layout is None else layout.variables
    over = [np.ndim(given[name]) - len(shape) for name, shape in shapes if name in given]
    return max([0, *over])


def named_table(name: str, given: Any, axes: int, generator: torch.Generator) -> Table:
    """The array of a frame, a series, a data set, a dict or chains, with names of its columns.

    Arrays of a dict have so many axes before their own; the generator chooses draws of chains.
    """
    library = _library(given)
    if library == "arviz":
        return _draws_of_chains(given, MOST, generator)
    if library == "pandas":
        names = given.columns if given.ndim == 2 else given.index
        return Table(given.to_numpy(), layout_of(names))
    if isinstance(given, Mapping):
        arrays = {key: given[key].values for key in given} if library == "xarray" else given
        return _packed(name, arrays, axes)
    if library == "xarray":
        last = given.dims[-1] if given.ndim > 1 else None
        names = given.coords[last].values if last in given.coords else None
        return Table(given.values, layout_of(names))
    return Table(given)


def named_draws(
    theta_q: Any, layout: Layout | None, generator_at: Callable[[int], torch.Generator]
) -> Table:
    """Draws (n, m) or (n, k, m), in the order of the layout of theta.

    A dict has as many leading axes as make its names those of theta. A list holds an InferenceData
    or a DataTree for each x; as many draws of each are taken, with the generator of that x.
    """
    if isinstance(theta_q, list | tuple) and theta_q and _library(theta_q[0]) == "arviz":
        tables = [_draws_of_chains(each, EACH, generator_at(i)) for i, each in enumerate(theta_q)]
        first = tables[0].layout
        arrays = [table.like(first, "theta_q", "the first of them").array for table in tables]
        if len({len(array) for array in arrays}) > 1:
            raise ValueError(
                f"theta_q: expected at least {EACH} draws at every x; got fewer at some."
            )
        table = Table(torch.stack(arrays), first)
    else:
        ndims = map(np.ndim, theta_q.values()) if isinstance(theta_q, Mapping) else ()
        axes = (1, 2) if min(ndims, default=1) >= 2 else (1,)
        tables = [named_table("theta_q", theta_q, count, generator_at(0)) for count in axes]
        own = tables[0].layout
        fits = layout is not None and own is not None and set(own.names) == set(layout.names)
        table = tables[0 if fits else -1]
    return table if layout is None else table.like(layout, "theta_q", "theta")


def _library(given: Any) -> str:
    """The library of a table; arviz for any sampler's InferenceData or DataTree."""
    libraries = {kind.__module__.split(".")[0] for kind in type(given).__mro__}
    if "xarray" in libraries and "posterior" in dir(given):
        return "arviz"
    return next((known for known in ("arviz", "pandas", "xarray") if known in libraries), "")


def _draws_of_chains(given: Any, n: int, generator: torch.Generator) -> Table:
    """At most n draws (n, m) of the posterior group, at random from all chains."""
    group = given["posterior"]
    arrays = {name: group[name].values for name in group.data_vars}
    joined = {name: array.reshape(-1, *array.shape[2:]) for name, array in arrays.items()}
    draws, layout = _packed("theta", joined, 1)
    return Table(draws[cpu.randperm(len(draws), generator=generator)[:n]], layout)


def _packed(name: str, given: Mapping[Any, Any], axes: int) -> Table:
    """Arrays by name, each with so many axes before those of the variable, in one."""
    if not given:
        raise ValueError(f"{name}: expected arrays by name; got an empty dict.")
    arrays = as_tensors({f"{name}[{str(key)!r}]": array for key, array in given.items()})
    shapes = {key: tuple(array.shape) for key, array in arrays.items()}
    (head, *others) = {shape[:axes] for shape in shapes.values()}
    if others or len(head) < axes:
        raise ValueError(f"{name}: expected arrays with as many rows each; got {shapes}.")
    columns = torch.cat([array.reshape(*head, -1) for array in arrays.values()], -1)
    ends = [shape[axes:] for shape in shapes.values()]
    return Table(columns, Layout(tuple(zip(map(str, given), ends, strict=True)), packed=True))

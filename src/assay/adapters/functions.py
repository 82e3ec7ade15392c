"""Functions of x, and objects with ``sample(x, n)``: how one is called is tried out."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from .._support.inputs import as_tensors, cpu, error_line
from .._support.random import isolated, stream
from .._support.work import time_limit
from ..data.posterior import LIMIT, Flow, Posterior, fresh_key, is_flow
from ..data.tables import Layout, Table, as_table

OWN_GENERATOR = (
    "The posterior keeps a random generator of its own: the same seed does not give the same "
    "draws."
)


@dataclass(frozen=True)
class Way:
    """A way in which functions give draws.

    Args:
        words: The way in words.
        rows: At how many x the function is called at once.
        samples_first: Whether draws at many x come as (n, b, m).
        distribution: Whether it is a function of x alone, which returns a distribution.
    """

    words: str
    rows: int = 1
    samples_first: bool = False
    distribution: bool = False


WAYS = (
    Way("one x and n, to draws (n, m)"),
    Way("many x and n, to draws (b, n, m)", 100),
    Way("many x and n, to draws (n, b, m)", 100, samples_first=True),
    Way("many x, to a batch of distributions", 100, samples_first=True, distribution=True),
    Way("one x, to a distribution", distribution=True),
)
# Observations, draws and times with which a function is tried.
TRIED_X, TRIED_DRAWS, TRIES = 3, 5, 3


@dataclass(frozen=True, eq=False)
class FunctionPosterior(Posterior):
    """A function as a posterior, called in a way that was found out.

    Args:
        function: Of one x or many, and of n; or of x alone, then it returns a distribution.
        way: How it is called.
        convert: Makes of x what it is given.
        flow: The object whose method it is, if it has an inverse and a base.
        layout: Names of the parameters, if draws have them, as those of a dict.
        repeats: Whether the same seed gives the same draws.
    """

    function: Callable[..., Any]
    way: Way
    convert: Callable[[Tensor], Any] = Tensor.clone
    flow: Flow | None = None
    layout: Layout | None = None
    repeats: bool = True

    def sample_batched(self, x: Tensor, n: int) -> Any:
        """Returns n draws (b, n, m) at each of b observations (b, ...)."""
        return self.table(x, n).like(self.layout, "posterior", "its other draws").array

    def table(self, x: Tensor, n: int) -> Table:
        """The same, with names if the function gives them."""
        if self.way.rows > 1:
            draws = self._call(x, n, 2)
            array = draws.array.swapaxes(0, 1) if self.way.samples_first else draws.array
            return Table(array, draws.layout)
        each = [self._call(row, n, 1) for row in x]
        layout = each[0].layout
        arrays = [draws.like(layout, "posterior", "its first draws").array for draws in each]
        return Table(torch.stack(arrays), layout)

    def _call(self, x: Tensor, n: int, axes: int) -> Table:
        """What the function returns, which has so many axes before those of parameters."""
        given = self.convert(x)
        alone = self.way.distribution
        draws = draws_of(self.function(given), n) if alone else self.function(given, n)
        table = as_table("posterior", draws, axes)
        return Table(as_tensors({"posterior": table.array})["posterior"], table.layout)

    @property
    def names(self) -> tuple[str, ...] | None:
        """Names of the parameters, if the function gives them."""
        return None if self.layout is None else self.layout.names

    @property
    def rows(self) -> int:
        """Observations at which draws are made in one call."""
        return self.way.rows

    def remarks(self, x: Tensor) -> tuple[str, ...]:
        """Whether draws can be made again."""
        return () if self.repeats else (OWN_GENERATOR,)


def draws_of(distribution: Any, n: int) -> Any:
    """Draws (n, ...) of a distribution of torch or numpyro, without importing either to look.

    Example:
        >>> draws_of(torch.distributions.Normal(torch.zeros(3), 1.0), 5).shape
        torch.Size([5, 3])
    """
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


def adapted(posterior: Any, x: Tensor, layout: Layout | None = None) -> Posterior | None:
    """A method of an object that samples, or a function, in the first way that works at some x."""
    for name in ("sample_batched", "sample"):
        if callable(getattr(posterior, name, None)):
            flow = cast(Flow, posterior) if is_flow(posterior) else None
            return _first_way(getattr(posterior, name), x, layout, flow)
    return _first_way(posterior, x, layout) if callable(posterior) else None


def _first_way(
    function: Callable[..., Any], x: Tensor, layout: Layout | None, flow: Flow | None = None
) -> FunctionPosterior:
    """The function in the first way that works at some x, given as a tensor or an array."""
    converts: list[Callable[[Tensor], Any]]
    converts = [Tensor.clone, Tensor.float, lambda x: x.cpu().numpy().copy()]
    if layout is not None and layout.packed:
        converts = [lambda x, one=one: layout.unpack(one(x)) for one in converts]  # type: ignore[misc]
    problems: dict[str, str] = {}
    for convert, way, i in product(converts, WAYS, range(TRIES)):
        q = FunctionPosterior(function, way, convert, flow)
        some = x[(i + cpu.arange(min(way.rows, TRIED_X))) % len(x)]
        try:
            first, again = (_trial(q, some) for _ in range(2))
        except Exception as problem:
            problems.setdefault(way.words, error_line(problem))
        else:
            repeats = torch.allclose(first.array, again.array, rtol=0, atol=0, equal_nan=True)
            return replace(q, layout=first.layout, repeats=repeats)
    raise TypeError(
        f"posterior: expected sample(x, n), which takes one observation x, a tensor of shape "
        f"{tuple(x.shape[1:])}, and returns n draws (n, m), or another function of x; calling it "
        "failed. " + " ".join(f"With {way}: {words}." for way, words in problems.items())
    )


def _trial(q: FunctionPosterior, x: Tensor) -> Table:
    """Some draws at some x, of the expected shape."""
    with time_limit(LIMIT), isolated(stream(0, "tried")):
        table = q.table(x, TRIED_DRAWS)
    shape = table.array.shape
    if len(shape) != 3 or shape[:2] != (len(x), TRIED_DRAWS):
        raise ValueError(f"shape {tuple(shape)} at {len(x)} x with n = {TRIED_DRAWS}")
    return table

"""Adapters: the only code that knows foreign libraries, each imported on demand.

A posterior of another library comes in; a :class:`~assay.data.posterior.Posterior` comes out.
It is recognised by the modules in which its class and the classes above it are defined, so that no
library is imported to find out. What no library made is a function of x
(:mod:`assay.adapters.functions`). An adapter is a module with a function ``adapted(posterior, x,
layout)``; it imports ``samples`` and its own library. :mod:`assay.adapters.arviz` goes the other
way: draws come in, and ArviZ's InferenceData comes out.
"""

from importlib import import_module
from types import ModuleType
from typing import Any

# The first name of the module of a class, and the adapter that knows it.
POSTERIORS = {
    "sbi": "sbi",
    "zuko": "zuko",
    "lampe": "lampe",
    "nflows": "nflows",
    "bayesflow": "bayesflow",
    "flowjax": "flowjax",
}
# The same for distributions, which functions of x return.
DISTRIBUTIONS = {"numpyro": "numpyro", "torch": "torch_distributions"}


def adapted(posterior: Any, x: Any, layout: Any = None) -> Any:
    """What an adapter makes of a posterior; None if none knows it, and it is no function either.

    Observations x (b, ...) are those at which draws are made, with the layout of their columns.
    """
    own, functions = _adapter(posterior, POSTERIORS), import_module(f"{__name__}.functions")
    known = None if own is None else own.adapted(posterior, x, layout)
    return functions.adapted(posterior, x, layout) if known is None else known


def draws_of(distribution: Any, n: int) -> Any:
    """Draws (n, ...) of a distribution that an adapter knows."""
    adapter = _adapter(distribution, DISTRIBUTIONS)
    if adapter is None:
        raise TypeError(
            "posterior: expected draws, or a distribution of torch or numpyro; got "
            f"{type(distribution).__name__}."
        )
    return adapter.draws(distribution, n)


def _adapter(value: Any, known: dict[str, str]) -> ModuleType | None:
    """The adapter that knows the class of a value, or one that it is made from."""
    modules = (kind.__module__.split(".")[0] for kind in type(value).__mro__)
    name = next((known[module] for module in modules if module in known), None)
    return None if name is None else import_module(f"{__name__}.{name}")


def __getattr__(name: str) -> ModuleType:
    """Imports an adapter, and with it its library, when it is first asked for."""
    if name in {*POSTERIORS.values(), *DISTRIBUTIONS.values(), "arviz", "functions"}:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

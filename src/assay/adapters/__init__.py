"""Adapters: the only code that knows foreign libraries, each imported on demand.

A posterior of another library comes in; a :class:`~assay.data.posterior.Posterior` comes out.
It is recognised by the modules in which its class and the classes above it are defined, so that no
library is imported to find out. An adapter is a module with a function ``adapted(posterior, x,
layout)``; it imports ``data`` and its own library. :mod:`assay.adapters.arviz` goes the other
way: draws come in, and ArviZ's InferenceData comes out.
"""

from importlib import import_module
from types import ModuleType
from typing import Any

# Libraries, each with an adapter of its name.
POSTERIORS = ("sbi", "zuko", "lampe", "nflows", "bayesflow", "flowjax")


def adapted(posterior: Any, x: Any, layout: Any = None) -> Any:
    """What an adapter makes of a posterior; None if none knows it.

    Observations x (b, ...) are those at which draws are made, with the layout of their columns.
    """
    modules = [kind.__module__.split(".")[0] for kind in type(posterior).__mro__]
    name = next((module for module in modules if module in POSTERIORS), None)
    return None if name is None else _adapter(name).adapted(posterior, x, layout)


def _adapter(name: str) -> ModuleType:
    return import_module(f"{__name__}.{name}")


def __getattr__(name: str) -> ModuleType:
    """Imports an adapter, and with it its library, when it is first asked for."""
    if name in {*POSTERIORS, "arviz"}:
        return _adapter(name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

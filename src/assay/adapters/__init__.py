"""Adapters: the only code that knows foreign libraries, each imported on demand.

A posterior of another library comes in; one that fulfils
:class:`~assay.samples.posterior.Posterior`, or :class:`~assay.samples.posterior.Flow` where it has
an inverse, comes out. An adapter imports ``samples`` and its own library.
"""

from importlib import import_module
from types import ModuleType


def __getattr__(name: str) -> ModuleType:
    """Imports an adapter, and with it its library, when it is first asked for."""
    if name in ("zuko",):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

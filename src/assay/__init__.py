"""Local diagnostics of posterior approximations in simulation-based inference."""

from importlib import import_module
from types import ModuleType

from . import statistics as statistics
from .classifiers.mlp import MLP as MLP
from .classifiers.ridge import Ridge as Ridge
from .classifiers.sklearn import Sklearn as Sklearn
from .curves import pp_curve as pp_curve
from .diagnostics.lc2st import lc2st as lc2st
from .diagnostics.moments import moments as moments
from .io import load as load
from .io import save as save
from .nulls import Exchange as Exchange
from .nulls import FreePermutation as FreePermutation
from .nulls import KnownBase as KnownBase
from .samples import Calibration as Calibration
from .samples import Draws as Draws
from .version import __version__ as __version__


def __getattr__(name: str) -> ModuleType:
    """Imports what needs optional packages when it is first asked for."""
    if name in ("adapters", "plots"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

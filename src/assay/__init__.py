"""Local diagnostics of posterior approximations in simulation-based inference."""

from importlib import import_module
from types import ModuleType

from . import statistics as statistics
from . import zoom as zoom
from .check import Suite as Suite
from .check import check as check
from .classifiers.mlp import MLP as MLP
from .classifiers.ridge import Ridge as Ridge
from .classifiers.sklearn import Sklearn as Sklearn
from .curves import pp_curve as pp_curve
from .diagnostics.c2st import c2st as c2st
from .diagnostics.coverage import coverage as coverage
from .diagnostics.divergence import divergence as divergence
from .diagnostics.lc2st import lc2st as lc2st
from .diagnostics.lhpd import lhpd as lhpd
from .diagnostics.lpit import lpit as lpit
from .diagnostics.moments import moments as moments
from .diagnostics.region import region as region
from .diagnostics.sbc import sbc as sbc
from .diagnostics.tarp import tarp as tarp
from .effects import effects as effects
from .io import load as load
from .io import save as save
from .nulls import Exchange as Exchange
from .nulls import FreePermutation as FreePermutation
from .nulls import KnownBase as KnownBase
from .nulls import LocalExchange as LocalExchange
from .power import power as power
from .samples import Calibration as Calibration
from .samples import Draws as Draws
from .trust import trust_map as trust_map
from .tuned import Tuned as Tuned
from .version import __version__ as __version__


def __getattr__(name: str) -> ModuleType:
    """Imports what needs optional packages when it is first asked for."""
    if name in ("adapters", "plots"):
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

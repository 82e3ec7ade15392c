"""Local diagnostics of posterior approximations in simulation-based inference.

Names are imported when they are first asked for, so that ``import assay`` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Every public name, and the module that holds it; a module of that name where it says none.
_NAMES = {
    "Suite": "suite",
    "check": "suite",
    "Calibration": "samples.calibration",
    "Draws": "samples.calibration",
    "Drawing": "samples.drawing",
    "zoom": "samples.proposal",
    "Distance": "samples.neighbourhoods",
    "Nearest": "samples.neighbourhoods",
    "Smooth": "samples.neighbourhoods",
    "Exchange": "nulls.exchange",
    "FreePermutation": "nulls.exchange",
    "KnownBase": "nulls.exchange",
    "LocalExchange": "nulls.exchange",
    "Sequential": "nulls.exchange",
    "MLP": "classifiers.mlp",
    "Ridge": "classifiers.ridge",
    "Sklearn": "classifiers.sklearn",
    "lc2st": "diagnostics.local.lc2st",
    "score": "diagnostics.local.score",
    "moments": "diagnostics.local.moments",
    "region": "diagnostics.local.region",
    "lhpd": "diagnostics.local.lhpd",
    "lpit": "diagnostics.local.lpit",
    "posterior_sbc": "diagnostics.local.posterior_sbc",
    "sbc": "diagnostics.average.sbc",
    "coverage": "diagnostics.average.coverage",
    "tarp": "diagnostics.average.coverage",
    "divergence": "diagnostics.average.divergence",
    "c2st": "diagnostics.c2st",
    "effects": "interpret.effects",
    "health": "interpret.health",
    "power": "interpret.power",
    "pp_curve": "interpret.pp",
    "predictive": "interpret.predictive",
    "trust_map": "interpret.trust",
    "Tuned": "interpret.tuned",
    "load": "io",
    "save": "io",
    "adapters": "",
    "plots": "",
    "tasks": "",
}

__all__ = ["__version__", *_NAMES]  # noqa: PLE0604

if TYPE_CHECKING:
    from . import adapters as adapters
    from . import plots as plots
    from . import tasks as tasks
    from .classifiers.mlp import MLP as MLP
    from .classifiers.ridge import Ridge as Ridge
    from .classifiers.sklearn import Sklearn as Sklearn
    from .diagnostics.average.coverage import coverage as coverage
    from .diagnostics.average.coverage import tarp as tarp
    from .diagnostics.average.divergence import divergence as divergence
    from .diagnostics.average.sbc import sbc as sbc
    from .diagnostics.c2st import c2st as c2st
    from .diagnostics.local.lc2st import lc2st as lc2st
    from .diagnostics.local.lhpd import lhpd as lhpd
    from .diagnostics.local.lpit import lpit as lpit
    from .diagnostics.local.moments import moments as moments
    from .diagnostics.local.posterior_sbc import posterior_sbc as posterior_sbc
    from .diagnostics.local.region import region as region
    from .diagnostics.local.score import score as score
    from .interpret.effects import effects as effects
    from .interpret.health import health as health
    from .interpret.power import power as power
    from .interpret.pp import pp_curve as pp_curve
    from .interpret.predictive import predictive as predictive
    from .interpret.trust import trust_map as trust_map
    from .interpret.tuned import Tuned as Tuned
    from .io import load as load
    from .io import save as save
    from .nulls.exchange import Exchange as Exchange
    from .nulls.exchange import FreePermutation as FreePermutation
    from .nulls.exchange import KnownBase as KnownBase
    from .nulls.exchange import LocalExchange as LocalExchange
    from .nulls.exchange import Sequential as Sequential
    from .samples.calibration import Calibration as Calibration
    from .samples.calibration import Draws as Draws
    from .samples.drawing import Drawing as Drawing
    from .samples.neighbourhoods import Distance as Distance
    from .samples.neighbourhoods import Nearest as Nearest
    from .samples.neighbourhoods import Smooth as Smooth
    from .samples.proposal import zoom as zoom
    from .suite import Suite as Suite
    from .suite import check as check


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_NAMES[name] or name}")
    globals()[name] = value = getattr(module, name) if _NAMES[name] else module
    return value


def __dir__() -> list[str]:
    return list(__all__)

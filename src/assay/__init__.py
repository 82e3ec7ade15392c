"""Local diagnostics of posterior approximations in simulation-based inference.

Names are imported when they are first asked for, so that ``import assay`` costs nothing.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

# Every public name, and the module that holds it; a module of that name where it says none.
_NAMES = {
    "check": "check",
    "Calibration": "data.calibration",
    "Draws": "data.draw",
    "Drawing": "data.draw",
    "zoom": "data.simulate",
    "Distance": "neighbourhood",
    "Nearest": "neighbourhood",
    "Exchange": "nulls",
    "FreePermutation": "nulls",
    "KnownBase": "nulls",
    "LocalExchange": "nulls",
    "MLP": "classifiers.mlp",
    "Ridge": "classifiers.ridge",
    "Sklearn": "classifiers.sklearn",
    "score": "local.score",
    "lc2st": "local.lc2st",
    "lhpd": "local.levels",
    "lpit": "local.levels",
    "sbc": "average.sbc",
    "coverage": "average.coverage",
    "tarp": "average.coverage",
    "c2st": "c2st",
    "typical": "answers.typical",
    "bounds": "answers.bounds",
    "predictive": "answers.predictive",
    "load": "io",
    "save": "io",
    "adapters": "",
    "plots": "",
}

__all__ = ["__version__", *_NAMES]  # noqa: PLE0604

if TYPE_CHECKING:
    from . import adapters as adapters
    from . import plots as plots
    from .answers.bounds import bounds as bounds
    from .answers.predictive import predictive as predictive
    from .answers.typical import typical as typical
    from .average.coverage import coverage as coverage
    from .average.coverage import tarp as tarp
    from .average.sbc import sbc as sbc
    from .c2st import c2st as c2st
    from .check import check as check
    from .classifiers.mlp import MLP as MLP
    from .classifiers.ridge import Ridge as Ridge
    from .classifiers.sklearn import Sklearn as Sklearn
    from .data.calibration import Calibration as Calibration
    from .data.draw import Drawing as Drawing
    from .data.draw import Draws as Draws
    from .data.simulate import zoom as zoom
    from .io import load as load
    from .io import save as save
    from .local.lc2st import lc2st as lc2st
    from .local.levels import lhpd as lhpd
    from .local.levels import lpit as lpit
    from .local.score import score as score
    from .neighbourhood import Distance as Distance
    from .neighbourhood import Nearest as Nearest
    from .nulls import Exchange as Exchange
    from .nulls import FreePermutation as FreePermutation
    from .nulls import KnownBase as KnownBase
    from .nulls import LocalExchange as LocalExchange


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{_NAMES[name] or name}")
    globals()[name] = value = getattr(module, name) if _NAMES[name] else module
    return value


def __dir__() -> list[str]:
    return list(__all__)


class _Package(ModuleType):
    """This package: importing a module does not hide the function of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (isinstance(value, ModuleType) and _NAMES.get(name)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package

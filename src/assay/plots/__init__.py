"""Pictures of results: a result goes in, ``Axes`` come out; nothing is trained or sampled here.

Every function takes the result, or the calibration, that it draws, then the axes to draw in,
``ax``, then what may differ; it returns the axes. New ones of one column's width are made if
``ax`` is None. ``alpha`` is the level whose threshold is drawn, or one minus the coverage of bands
and intervals, for each curve. Only :func:`summary` makes and returns a whole figure, of a check.

A class probability is that of class 1, the truth, in all pictures.

Names are imported when they are first asked for, so that matplotlib is needed by pictures alone.
Imports ``_core``, ``samples``, ``results`` and ``interpret``.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._core import extra

__all__ = ["coverage", "rank_difference", "rank_ecdf", "rank_histogram"]
__all__ += [
    "correlations",
    "effects",
    "near",
    "power",
    "reliability",
    "roc",
    "shares",
    "trust_map",
]
__all__ += ["levels", "null_histogram", "pp", "predictive", "pvalues", "sweep", "pairs"]
__all__ += ["contraction", "recovery", "summary"]

_MODULES = {
    "_average": ("coverage", "rank_difference", "rank_ecdf", "rank_histogram"),
    "_effects": ("correlations", "effects", "near", "shares"),
    "_interpret": ("power", "reliability", "roc", "trust_map"),
    "_local": ("levels", "null_histogram", "pp", "predictive", "pvalues", "sweep"),
    "_pairs": ("pairs",),
    "_recovery": ("contraction", "recovery"),
    "_summary": ("summary",),
}
_NAMES = {name: module for module, names in _MODULES.items() for name in names}

if TYPE_CHECKING:
    from ._average import coverage, rank_difference, rank_ecdf, rank_histogram
    from ._effects import correlations, effects, near, shares
    from ._interpret import power, reliability, roc, trust_map
    from ._local import levels, null_histogram, pp, predictive, pvalues, sweep
    from ._pairs import pairs
    from ._recovery import contraction, recovery
    from ._summary import summary


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with extra("plots"):
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)

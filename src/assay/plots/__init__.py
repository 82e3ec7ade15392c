"""Pictures of results: a result goes in, ``Axes`` come out; nothing is trained or sampled here.

Every function takes the result, or the calibration, that it draws, then the axes to draw in,
``ax``, then what may differ; it returns the axes. New ones of one column's width are made if
``ax`` is None. ``alpha`` is the level whose threshold is drawn, or one minus the coverage of bands
and intervals, for each curve. Only :func:`summary` makes and returns a whole figure, of a check.

In all pictures a class probability is that of class 1, of true parameters. Names are imported when
they are first used: only pictures need matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._support.inputs import extra

_MODULES = {
    "_average": "coverage rank_difference rank_ecdf rank_histogram recovery contraction",
    "_bounds": "correlations forest near",
    "_check": "summary surroundings",
    "_local": "levels null_histogram pp predictive pvalues reliability roc sweep",
    "_pairs": "pairs",
}
_NAMES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = list(_NAMES)  # noqa: PLE0605

if TYPE_CHECKING:
    from ._average import contraction as contraction
    from ._average import coverage as coverage
    from ._average import rank_difference as rank_difference
    from ._average import rank_ecdf as rank_ecdf
    from ._average import rank_histogram as rank_histogram
    from ._average import recovery as recovery
    from ._bounds import correlations as correlations
    from ._bounds import forest as forest
    from ._bounds import near as near
    from ._check import summary as summary
    from ._check import surroundings as surroundings
    from ._local import levels as levels
    from ._local import null_histogram as null_histogram
    from ._local import pp as pp
    from ._local import predictive as predictive
    from ._local import pvalues as pvalues
    from ._local import reliability as reliability
    from ._local import roc as roc
    from ._local import sweep as sweep
    from ._pairs import pairs as pairs


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with extra("plots"):
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)

"""Pictures of results: a result goes in, ``Axes`` come out; nothing is trained or sampled here.

Every function takes the result, or the calibration, that it draws, then the axes to draw in,
``ax``, then what may differ; it returns the axes, new ones of one column's width if ``ax`` is
None. Only :func:`summary` makes a whole figure, of a check. ``alpha`` is the level whose threshold
is drawn, or one minus the coverage of bands and intervals, for each curve. Class probabilities are
those of class 1, of true parameters. Names are imported when used: only they need matplotlib.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from .._support.inputs import extra

_MODULES = {
    "_check": "correlations forest near summary surroundings",
    "_pairs": "pairs",
    "_results": "coverage rank_difference rank_ecdf rank_histogram recovery contraction levels "
    "null_histogram pp predictive pvalues reliability roc sweep",
}
_NAMES = {name: module for module, names in _MODULES.items() for name in names.split()}
__all__ = list(_NAMES)  # noqa: PLE0605

if TYPE_CHECKING:
    from ._check import *  # noqa: F403
    from ._pairs import *  # noqa: F403
    from ._results import *  # noqa: F403


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with extra("plots"):
        return getattr(import_module(f"{__name__}.{_NAMES[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)

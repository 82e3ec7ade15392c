"""The figures and tables of the paper, each beside what this library makes of the same data."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .runs import Experiment

    EXPERIMENTS: tuple[Experiment, ...]

__all__ = ["EXPERIMENTS"]  # noqa: F822

# Modules, each with an experiment of its name. They are imported when they are asked for: others
# of this package are used where what they need is absent.
NAMES = (
    *("fig1", "fig2", "fig3", "fig4", "fig6", "table1", "table2", "beyond"),
    *("samples", "latents", "why", "exceptions", "retrained", "hpd"),
)


def __getattr__(name: str) -> Any:
    if name != "EXPERIMENTS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return tuple(getattr(import_module(f".{one}", __name__), one.upper()) for one in NAMES)

"""How the distribution of levels at x_o is found from levels at other x."""

from .linear import Linear as Linear
from .monotone import Monotone as Monotone
from .per_level import PerLevel as PerLevel

__all__ = ["Linear", "Monotone", "PerLevel"]

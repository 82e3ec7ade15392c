"""The figures and tables of the paper, each beside what this library makes of the same data."""

from .beyond import BEYOND
from .fig1 import FIG1
from .fig2 import FIG2

__all__ = ["EXPERIMENTS"]

EXPERIMENTS = (FIG1, FIG2, BEYOND)

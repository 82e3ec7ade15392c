"""The figures and tables of the paper, each beside what this library makes of the same data."""

from .fig2 import FIG2

__all__ = ["EXPERIMENTS"]

EXPERIMENTS = (FIG2,)

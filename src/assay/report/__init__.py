"""The report: what a check found, as one HTML file that works without a network."""

from .page import write as write

__all__ = ["write"]

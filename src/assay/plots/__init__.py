"""Pictures of results: a result goes in, ``Axes`` come out; nothing is trained or sampled here."""

from .pp import pp as pp

__all__ = ["pp"]

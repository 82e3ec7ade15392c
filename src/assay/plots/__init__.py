"""Pictures of results: a result goes in, ``Axes`` come out; nothing is trained or sampled here."""

from .c2st import null_histogram as null_histogram
from .coverage import coverage as coverage
from .effects import effects as effects
from .health import reliability as reliability
from .health import roc as roc
from .levels import levels as levels
from .observations import pvalues as pvalues
from .observations import sweep as sweep
from .pairs import pairs as pairs
from .power import power as power
from .pp import pp as pp
from .ranks import rank_difference as rank_difference
from .ranks import rank_ecdf as rank_ecdf
from .ranks import rank_histogram as rank_histogram
from .trust import trust_map as trust_map

__all__ = [
    "coverage",
    "effects",
    "levels",
    "null_histogram",
    "pairs",
    "power",
    "pp",
    "pvalues",
    "rank_difference",
    "rank_ecdf",
    "rank_histogram",
    "reliability",
    "roc",
    "sweep",
    "trust_map",
]

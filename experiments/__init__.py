"""The figures and tables of the paper, each beside what this library makes of the same data."""

from .beyond import BEYOND
from .exceptions import EXCEPTIONS
from .fig1 import FIG1
from .fig2 import FIG2
from .fig3 import FIG3
from .fig4 import FIG4
from .fig6 import FIG6
from .hpd import HPD
from .latents import LATENTS
from .retrained import RETRAINED
from .samples import SAMPLES
from .table1 import TABLE1
from .table2 import TABLE2
from .why import WHY

__all__ = ["EXPERIMENTS"]

EXPERIMENTS = (
    FIG1,
    FIG2,
    FIG3,
    FIG4,
    FIG6,
    TABLE1,
    TABLE2,
    BEYOND,
    SAMPLES,
    LATENTS,
    WHY,
    EXCEPTIONS,
    RETRAINED,
    HPD,
)

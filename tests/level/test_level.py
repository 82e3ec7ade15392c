"""P(p <= alpha) <= alpha of every p-value and band, where q is right, at fixed seeds.

Every day all designs take turns: a count of rejections, each with probability at most alpha, is at
most binomial in law. Limits are exact binomial ones, which all comparisons of this file together
keep with probability 0.999. Where nothing is tied, exact p-values must not be far below either.
"""

import numpy as np
import pytest
import scipy.stats

from .designs import DESIGNS
from .rejections import ALPHAS, REJECTIONS

# At most so many numbers of each kind, two levels, and two sides of each.
BEYOND = 0.001 / (len(REJECTIONS) * 6 * len(ALPHAS) * 2)


def repeated(rejection, design, seeds):
    """Rejections (r, levels) by name, at one design."""
    found = [rejection.call(DESIGNS[design], seed) for seed in seeds]
    return {name: np.array([each[name] for each in found]) for name in found[0]}


def designs(rejection):
    return [name for name in DESIGNS if name not in rejection.without]


def check(table, beyond, *, equal=False):
    """Rejections (r, levels) are no more than their levels allow, and no fewer where equal."""
    repetitions, counts = len(table), table.sum(0)
    for count, alpha in zip(counts, ALPHAS, strict=False):
        law = scipy.stats.binom(repetitions, alpha)
        assert count <= law.isf(beyond), f"{count} of {repetitions} at {alpha}"
        assert not equal or count >= law.ppf(beyond), f"{count} of {repetitions} at {alpha}"


@pytest.mark.parametrize("kind", REJECTIONS)
def test_level(kind):
    """Over all designs together; equality over those without ties."""
    rejection = REJECTIONS[kind]
    each = rejection.repetitions // len(designs(rejection))
    # Data of no two designs begin with the same random numbers.
    found = {
        design: repeated(rejection, design, range(i * each, (i + 1) * each))
        for i, design in enumerate(designs(rejection))
    }
    smooth = [design for design in found if not DESIGNS[design].few]
    for name in found[smooth[0]]:
        check(np.concatenate([tables[name] for tables in found.values()]), BEYOND)
        if name in rejection.equal:
            tables = np.concatenate([found[design][name] for design in smooth])
            check(tables, BEYOND, equal=True)


SLOW = [(kind, design) for kind, one in REJECTIONS.items() for design in designs(one)]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "design"), SLOW)
def test_level_of_many(kind, design):
    """As many repetitions at each design by itself as over all of them together every day."""
    rejection, few = REJECTIONS[kind], DESIGNS[design].few
    first = 10**4 * (1 + list(DESIGNS).index(design))
    found = repeated(rejection, design, range(first, first + rejection.repetitions))
    for name, table in found.items():
        check(table, BEYOND / len(DESIGNS), equal=name in rejection.equal and not few)

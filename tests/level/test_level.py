"""P(p <= alpha) <= alpha of every p-value and band, where q is right, at fixed seeds.

Every day all designs take turns: a count of rejections, each with probability at most alpha, is at
most binomial in law. Limits are exact binomial ones, which all comparisons of this file together
keep with probability 0.999. What is told without ties must not be far below its level either.
"""

import numpy as np
import pytest
import scipy.stats

from .asked import ALPHAS, ASKED
from .designs import DESIGNS

# At most so many numbers of each kind, two levels, and two sides of each.
BEYOND = 0.001 / (len(ASKED) * 6 * len(ALPHAS) * 2)


def rejected(asked, name, seeds):
    """Rejections (r, levels) by name, at one design."""
    found = [asked.call(DESIGNS[name], seed) for seed in seeds]
    return {claim: np.array([each[claim] for each in found]) for claim in found[0]}


def designs(asked):
    return [name for name in DESIGNS if name not in asked.without]


def check(table, beyond, *, equal=False):
    """Rejections (r, levels) are no more than their levels allow, and no fewer where equal."""
    repetitions, counts = len(table), table.sum(0)
    for count, alpha in zip(counts, ALPHAS, strict=False):
        law = scipy.stats.binom(repetitions, alpha)
        assert count <= law.isf(beyond), f"{count} of {repetitions} at {alpha}"
        assert not equal or count >= law.ppf(beyond), f"{count} of {repetitions} at {alpha}"


@pytest.mark.parametrize("name", ASKED)
def test_level(name):
    """Over all designs together; equality over those without ties."""
    asked = ASKED[name]
    names = designs(asked)
    each = asked.repetitions // len(names)
    # Data of no two designs begin with the same random numbers.
    seeds = {name: range(i * each, (i + 1) * each) for i, name in enumerate(names)}
    found = {name: rejected(asked, name, seeds[name]) for name in names}
    for claim in found[names[0]]:
        check(np.concatenate([found[name][claim] for name in names]), BEYOND)
    smooth = [name for name in names if not DESIGNS[name].few]
    for claim in asked.equal:
        check(np.concatenate([found[name][claim] for name in smooth]), BEYOND, equal=True)


SLOW = [(name, design) for name, asked in ASKED.items() for design in designs(asked)]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "design"), SLOW)
def test_level_of_many(name, design):
    """As many repetitions at each design by itself as over all of them together every day."""
    asked, few = ASKED[name], DESIGNS[design].few
    first = 10**4 * (1 + list(DESIGNS).index(design))
    found = rejected(asked, design, range(first, first + asked.repetitions))
    for claim, table in found.items():
        check(table, BEYOND / len(DESIGNS), equal=claim in asked.equal and not few)

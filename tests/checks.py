"""Checks with given verdicts, made of numbers without sampling or training."""

from dataclasses import replace

import numpy as np

from assay.answers.typical import Typical
from tests.plots import cases

# P-values of the test and of x_o, and how wrong q is: for the four verdicts, and for one that is
# rejected with bounds within the tolerance.
WITHIN = "rejected, but within"
VERDICTS = {**cases.VERDICTS, WITHIN: (0.005, 0.6, 0.2)}
FEATURE = "x[1] = 6 lies where no simulation does"
# Parameters up to which the parts beside the answers have as many.
MOST = 10


def bounds(m, sizes, names):
    """Bounds whose intervals are as wide for 40 parameters as for two."""
    found = cases.bounds(m, sizes, names)
    narrow = {
        "bias": cases.interval(found.bias, 0.2),
        "width": np.exp(cases.interval(np.log(found.width), 0.2)),
    }
    return replace(found, table={**found.table, **narrow})


def made(words=("rejected",), m=2, names=None, *, classifier=False, **changes):
    """What a check found at observations with these verdicts."""
    o = len(words)
    pvalues, own, sizes = np.array([VERDICTS[word] for word in words]).T
    few = None if names is None else names[:MOST]
    found = cases.check(("passed",) * o, min(m, MOST), classifier, few)
    typical = Typical(own, (FEATURE,) * o, 600, own <= 0.01)
    limits = bounds(m, sizes, names).without(typical.outside)
    parts = {
        "names": limits.names,
        "labels": ("x_o",) if o == 1 else found.labels,
        # So small that they stay what they are when they are corrected.
        "test": cases.scores(pvalues / o),
        "typical": typical,
        "bounds": limits,
    }
    return replace(found, **parts | changes)

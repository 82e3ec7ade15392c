"""Every public call with every kind of bad or odd value: a clear error, or the right answer.

A part of the cases is run every day; ``make test-slow`` and ``make fuzz`` run all of them.
"""

import zlib

import pytest

import assay

from .calls import CALLS, cases
from .outcome import BAD, outcome_of

CASES = cases()
EVERY = 12


def every_day(name):
    quick = not CASES[name].call.slow or CASES[name].expected == "refused"
    return quick and zlib.crc32(name.encode()) % EVERY == 0


EVERY_DAY = {name for name in CASES if every_day(name)}
ALL = [pytest.param(name, marks=() if name in EVERY_DAY else pytest.mark.slow) for name in CASES]


@pytest.mark.parametrize("name", ALL)
def test_clear_or_right(name):
    outcome = outcome_of(CASES[name])
    assert outcome.kind not in BAD, outcome.words


def test_every_day_there_is_some_of_every_call():
    assert len(EVERY_DAY) > len(CASES) / EVERY / 2
    calls = {CASES[name].call.name for name in EVERY_DAY}
    assert len(calls) > 0.9 * len(CALLS)


def test_every_public_name_is_called():
    called = {call.name.partition(".")[0].partition(" ")[0] for call in CALLS}
    assert not set(assay.__all__) - called - {"__version__", "adapters"}
    drawn = {call.name.removeprefix("plots.") for call in CALLS}
    assert not set(assay.plots.__all__) - drawn

"""Every public call with every kind of bad or odd value: a clear error, or the right answer.

A sixth of the cases is run every day; ``make test-slow`` and ``make fuzz`` run all of them.
"""

import zlib

import pytest

import assay

from .calls import cases
from .judge import BAD, judged

CASES = cases()
EVERY_DAY = {name for name in CASES if zlib.crc32(name.encode()) % 6 == 0}


def marked(name):
    return pytest.param(name, marks=() if name in EVERY_DAY else pytest.mark.slow)


@pytest.mark.parametrize("name", [marked(name) for name in CASES])
def test_clear_or_right(name):
    found = judged(CASES[name])
    assert found.verdict not in BAD, found.words


def test_there_are_many():
    assert len(EVERY_DAY) >= 1500


def test_every_public_name_is_called():
    called = {case.call.name.partition(".")[0].partition(" ")[0] for case in CASES.values()}
    assert not set(assay.__all__) - called - {"__version__", "adapters"}

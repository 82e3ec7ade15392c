"""Every public call with every kind of bad or odd value: a clear error, or the right answer."""

import pytest

from .calls import cases
from .judge import BAD, judged

CASES = cases()


@pytest.mark.parametrize("name", CASES)
def test_clear_or_right(name):
    found = judged(CASES[name])
    assert found.verdict not in BAD, found.words


def test_there_are_many():
    assert len(CASES) >= 1500

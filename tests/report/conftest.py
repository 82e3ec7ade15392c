"""Checks with every verdict, whose names look like markup; made of numbers, without sampling."""

from dataclasses import replace

import pytest

from tests.checks import WITHIN, made

# As given, and as they are read: TeX as Unicode.
NAMES = ("<script>alert(1)</script>", r"$\theta$", 'a & "b"')
READ = (NAMES[0], "θ", NAMES[2])
LABELS = ("<b>x</b>", "</script><script>alert(2)</script>", "far: %{x} & away", "4. last", "mid")
WORDS = ("inconclusive", "passed", "outside", "rejected", WITHIN)
OUTSIDE, REJECTED = WORDS.index("outside"), WORDS.index("rejected")


@pytest.fixture(scope="session")
def check():
    settings = {"n": 1000, "draws": 16, "date": "2030-01-01 12:00", "call": "assay check <a>"}
    parts = {"labels": LABELS, "settings": settings, "remarks": ("A remark.",)}
    found = made(WORDS, 3, NAMES, classifier=True, **parts)
    over_all_x = {key: replace(getattr(found, key), names=NAMES) for key in ("sbc", "coverage")}
    return replace(found, **over_all_x)


@pytest.fixture(scope="session")
def bare():
    """The answers and nothing beside them."""
    return made(("passed",), 2, sbc=None, coverage=None, tarp=None)

"""Checks with every verdict, whose names look like markup; made of numbers, without sampling."""

from dataclasses import replace

import pytest

from tests.checks import WITHIN, made

# As given, and as they are read: TeX as Unicode.
NAMES = ("<script>alert(1)</script>", r"$\theta$", 'a & "b"')
READ = (NAMES[0], "θ", NAMES[2])
LABELS = ("<b>x</b>", "</script><script>alert(2)</script>", "far: %{x} & away", "4. last", "mid")
WORDS = ("inconclusive", "passed", "outside", "rejected", WITHIN)


def named(found, names):
    """The same with names in all parts."""
    return replace(
        found,
        sbc=replace(found.sbc, names=names),
        coverage=replace(found.coverage, names=names),
    )


@pytest.fixture(scope="session")
def check():
    settings = {"n": 1000, "draws": 16, "date": "2030-01-01 12:00", "call": "assay check <a>"}
    found = made(
        WORDS, 3, NAMES, classifier=True, labels=LABELS, settings=settings, remarks=("A remark.",)
    )
    return named(found, NAMES)


@pytest.fixture(scope="session")
def bare():
    """The answers and nothing beside them."""
    return made(("passed",), 2, sbc=None, coverage=None, tarp=None)

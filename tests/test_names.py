"""Identifiers in the sources are plain words."""

import ast
import re
from pathlib import Path

import pytest

import assay

SOURCES = Path(assay.__file__).parent
# Words of no identifier: participles and metaphors that do not say what a thing is.
WORDS = set(
    "told said shown seen drawn judged landed foreign ripples stand standing planted".split()
)


def forbidden(source):
    """Names of functions, classes, arguments, attributes and variables with a word of these."""
    fields = ("name", "arg", "attr", "id", "asname")
    nodes = ast.walk(ast.parse(source))
    values = {getattr(node, field, None) for node in nodes for field in fields}
    names = [value for value in values if isinstance(value, str)]
    words = {name: re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name) for name in names}
    return {name for name in names if {word.lower() for word in words[name]} & WORDS}


def test_words_are_found_in_identifiers_alone():
    source = (
        "def _seen(x): f = lambda drawn: 0\nclass ToldApart: x.said_so = f(shown=1)\n"
        "for NOT_SEEN in x: from a import b as standing\n"
        "withdrawn = unseen = understand = 'seen'  # seen"
    )
    found = {"_seen", "drawn", "ToldApart", "said_so", "shown", "NOT_SEEN", "standing"}
    assert forbidden(source) == found


@pytest.mark.parametrize(
    "path",
    [pytest.param(p, id=str(p.relative_to(SOURCES))) for p in sorted(SOURCES.rglob("*.py"))],
)
def test_identifiers_say_what_a_thing_is(path):
    assert forbidden(path.read_text("utf-8")) == set()

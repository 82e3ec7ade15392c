"""Verdicts in colour, where there is someone to see them."""

import re

import pytest

from assay.cli import terminal
from assay.cli.terminal import echo, marked

TABLE = """\
Of 3 observations: 1 rejected, 1 passed.

monday     rejected  0.01
tuesday    passed    0.50
friday     inconclusive  0.50"""


@pytest.fixture
def on_terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr(terminal, "_is_terminal", lambda: True)


def test_on_a_terminal(on_terminal, capsys):
    """Nothing is lost, and nothing moves."""
    echo(TABLE, colours=True)
    coloured = capsys.readouterr().out.rstrip("\n")
    for part in ("\x1b[31m✗ rejected\x1b[0m", "\x1b[32m✓ passed\x1b[0m", "\x1b[33m? inconclusive"):
        assert part in coloured
    assert re.sub("[✗✓?]", " ", re.sub(r"\x1b\[\d+m", "", coloured)) == TABLE
    echo(TABLE)
    assert capsys.readouterr().out.rstrip("\n") == TABLE


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_not_where_nobody_wants_it(on_terminal, capsys, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    echo(TABLE, colours=True)
    assert capsys.readouterr().out.rstrip("\n") == TABLE


def test_not_in_a_pipe(capsys):
    echo(TABLE, colours=True)
    assert capsys.readouterr().out.rstrip("\n") == TABLE


def test_words_of_sentences_stay_as_they_are():
    text = "a: outside. It is.\nIt lies outside the rejected ones.\n\na   outside"
    first, sentence, _, row = marked(text).splitlines()
    assert first == "a: \x1b[90m\x1b[1moutside\x1b[0m. It is."
    assert sentence == "It lies outside the rejected ones."
    assert "○ outside" in row

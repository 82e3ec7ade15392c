"""Text on a terminal: verdicts with a colour and a symbol, where there is someone to see them."""

import os
import re
import sys
from typing import TextIO

import typer

# The symbol and the colour of each verdict.
MARKS = {
    "rejected": ("✗", "red"),
    "passed": ("✓", "green"),
    "inconclusive": ("?", "yellow"),
    "outside": ("○", "bright_black"),
}
WORDS = "|".join(MARKS)


def say(text: str) -> None:
    """Prints; with colours where the output is a terminal and nobody objects."""
    text = _printable(text)
    _print(marked(text) if colourful() else text, sys.stdout)


def echo(text: str, *, err: bool = False) -> None:
    """Prints as it is, to the terminal or to where errors are printed."""
    _print(_printable(text), sys.stderr if err else sys.stdout)


def _printable(text: str) -> str:
    from .._support.inputs import printable  # with torch, which --help does without

    return printable(text)


def _print(text: str, stream: TextIO | None) -> None:
    """Prints in whatever encoding there is; nothing where nobody reads, or reads any more."""
    if stream is None:
        return
    known = text.encode(stream.encoding, "backslashreplace").decode(stream.encoding)
    try:
        stream.write(f"{known}\n")
        stream.flush()
    except BrokenPipeError:
        # What is left to be printed, by Python itself, goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def colourful() -> bool:
    """Whether colours are welcome, see https://no-color.org."""
    unwanted = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return _is_terminal() and not unwanted


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def marked(text: str) -> str:
    r"""Text with the verdicts of its first line and of its tables in colour.

    In a table the symbol takes the place of the blanks before the word, so that nothing moves.

    Example:
        >>> marked("x_o: passed. Near it.\n\nx_o   passed  0.5")
        'x_o: \x1b[32m\x1b[1mpassed\x1b[0m. Near it.\n\nx_o \x1b[32m✓ passed\x1b[0m  0.5'
    """
    first, newline, rest = text.partition("\n")
    first = re.sub(rf"(?<= )({WORDS})(?=[,. ]|$)", lambda m: _styled(m[1], m[1], bold=True), first)
    # Two blanks on both sides are between columns; sentences have single ones.
    rest = re.sub(rf"(?m)(?<=\S)(\s*)  ({WORDS})(?=  |$)", _cell, rest)
    return f"{first}{newline}{rest}"


def _cell(match: re.Match[str]) -> str:
    blanks, word = match.groups()
    return blanks + _styled(word, f"{MARKS[word][0]} {word}")


def _styled(word: str, text: str, *, bold: bool = False) -> str:
    return typer.style(text, fg=MARKS[word][1], bold=bold or None)

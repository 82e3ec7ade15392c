"""Text on a terminal: verdicts with a colour and a symbol, where there is someone to see them."""

import os
import re
import sys

import typer

# The symbol and the colour of each verdict.
MARKS = {
    "rejected": ("✗", "red"),
    "passed": ("✓", "green"),
    "inconclusive": ("?", "yellow"),
    "outside": ("○", "bright_black"),
}
WORDS = "|".join(MARKS)


def echo(text: str, *, err: bool = False, colours: bool = False) -> None:
    """Prints in whatever encoding there is; nothing where nobody reads, or reads any more.

    Verdicts get colours, if asked for, where the output is a terminal and nobody objects.
    """
    from .._support.inputs import printable  # with torch, which --help does without

    stream = sys.stderr if err else sys.stdout
    if stream is None:
        return
    text = printable(text)
    # See https://no-color.org.
    unwanted = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if colours and _is_terminal() and not unwanted:
        text = marked(text)
    known = text.encode(stream.encoding, "backslashreplace").decode(stream.encoding)
    try:
        stream.write(f"{known}\n")
        stream.flush()
    except BrokenPipeError:
        # What is left to be printed, by Python itself, goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def marked(text: str) -> str:
    r"""Text with the verdicts of its first line and of its tables in colour.

    In a table the symbol takes the place of the blanks before the word, so that nothing moves.

    Example:
        >>> marked("x_o: passed. Near it.\n\nx_o   passed  0.5")
        'x_o: \x1b[32m\x1b[1mpassed\x1b[0m. Near it.\n\nx_o \x1b[32m✓ passed\x1b[0m  0.5'
    """

    def word(match: re.Match[str]) -> str:
        return typer.style(match[1], fg=MARKS[match[1]][1], bold=True)

    def cell(match: re.Match[str]) -> str:
        symbol, colour = MARKS[match[2]]
        return match[1] + typer.style(f"{symbol} {match[2]}", fg=colour)

    first, newline, rest = text.partition("\n")
    first = re.sub(rf"(?<= )({WORDS})(?=[,. ]|$)", word, first)
    # Two blanks on both sides are between columns; sentences have single ones.
    rest = re.sub(rf"(?m)(?<=\S)(\s*)  ({WORDS})(?=  |$)", cell, rest)
    return f"{first}{newline}{rest}"

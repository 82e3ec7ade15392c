r"""The look of all pictures: a palette that every eye can read, sizes of words, names as text.

Colours are those of Okabe and Ito 2008, *Color Universal Design*, and greys that print. Names in
LaTeX such as ``$\theta_1$`` are typeset; what matplotlib cannot typeset is drawn as it is written.
"""

import re
from functools import cache
from typing import Any

from matplotlib.mathtext import MathTextParser

from .._support.inputs import printable

# The width of one column of a journal, in inches, and the sizes of words in it, in points.
WIDTH, LABEL, SMALL = 3.4, 8, 7
CURVE, GREEN, BAND, ENVELOPE, INK = "#D55E00", "#009E73", "#9a9a9a", "#d9d9d9", "#333333"
COLOURS = (CURVE, "#0072B2", GREEN, "#CC79A7", "#56B4E9", "#E69F00")
STYLES = ("-", "--", ":", "-.")
# How the value that a right q would have is drawn, and axes of shares.
DASHED: dict[str, Any] = {"color": INK, "lw": 0.8, "ls": "--"}
SHARES: dict[str, Any] = {"xlim": (0, 1), "ylim": (0, 1), "aspect": "equal"}
# What every picture of a classifier has on an axis: class 1 are true parameters, class 0 is q.
CLASS_1 = "probability of class 1 (truth)"


@cache
def is_math(name: str) -> bool:
    """Whether matplotlib can typeset a name as mathematics."""
    if not name.count("$") or name.count("$") % 2:
        return False
    try:
        MathTextParser("path").parse(name.replace("\n", " "))
    except ValueError:
        return False
    return True


def display_name(name: str, letters: int = 22) -> str:
    """A name that matplotlib can draw, mathematics or plain, of at most so many letters."""
    name = printable(clip(str(name), letters))
    text = name if is_math(name) else name.replace("$", r"\$")
    # Legends leave out what begins with an underscore.
    return f" {text}" if text.startswith("_") else text


def clip(name: str, letters: int) -> str:
    """A name of at most so many letters as they are drawn, with an ellipsis for the others."""
    text = re.sub(r"[${}_^]", "", re.sub(r"\\[A-Za-z]+", "x", name)) if is_math(name) else name
    if len(text) <= letters:
        return name
    start = name[: letters - 1]
    if is_math(name) and start.count("$") % 2:  # mathematics stays whole, or is left out
        start = start[: start.rindex("$")]
    return f"{start.rstrip()}…"

r"""The look of all pictures: a palette that every eye can read, sizes of words, names as text.

Colours are those of Okabe and Ito 2008, *Color Universal Design*, and greys that print. Names in
LaTeX such as ``$\theta_1$`` are typeset by matplotlib; what it cannot typeset is shown as it is
written.
"""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from matplotlib.mathtext import MathTextParser

from .._support.inputs import printable

# The width of one column of a journal, in inches, and the sizes of words in it, in points.
WIDTH, LABEL, SMALL = 3.4, 8, 7
CURVE, BAND, ENVELOPE, INK = "#D55E00", "#9a9a9a", "#d9d9d9", "#333333"
GREEN = "#009E73"
COLOURS = (CURVE, "#0072B2", GREEN, "#CC79A7", "#56B4E9", "#E69F00")
STYLES = ("-", "--", ":", "-.")
# How the value that a right q would have is drawn.
DASHED: dict[str, Any] = {"color": INK, "lw": 0.8, "ls": "--"}
# What every picture of a classifier shows: class 1 are true parameters, class 0 is q.
CLASS_1 = "probability of class 1 (truth)"


def smallest_pvalue(adjusted: np.ndarray, names: Sequence[str]) -> str:
    """The p-value of one curve, or the smallest of several (j,) with the name of its curve."""
    j = int(np.argmin(adjusted))
    if len(names) == 1:
        return f"p = {adjusted[j]:.3g}"
    return f"smallest corrected p = {adjusted[j]:.3g} ({display_name(names[j], 16)})"


def percent(alpha: float) -> str:
    """The coverage 1 - alpha in percent."""
    return f"{100 * (1 - alpha):g} %"


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
    return escape(clip(str(name), letters))


def escape(name: str) -> str:
    """A name whose dollars are drawn as such unless they enclose mathematics."""
    name = printable(name)
    text = name if is_math(name) else name.replace("$", r"\$")
    # Legends leave out what begins with an underscore.
    return f" {text}" if text.startswith("_") else text


def clip(name: str, letters: int) -> str:
    """A name of at most so many letters as they are drawn, with an ellipsis for the others."""
    text = re.sub(r"[${}_^]", "", re.sub(r"\\[A-Za-z]+", "x", name)) if is_math(name) else name
    if len(text) <= letters:
        return name
    start = name[: letters - 1]
    # Mathematics stays whole, or is left out.
    start = start[: start.rindex("$")] if is_math(name) and start.count("$") % 2 else start
    return f"{start.rstrip()}…"

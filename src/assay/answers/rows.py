"""Rows: the numbers of bounds one by one, each with its interval and a sentence."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ..names import readable
from ..printing import number
from ..results import LEVELS

# The size of an error of each kind that counts as one, when rows are put in order.
UNITS = {"bias": 0.5, "width": math.log(1.5), "slope": 0.5, "skewness": 0.25, "tails": 0.25}
UNITS |= {"correlation": 0.5, "coverage": 0.2, "region_coverage": 0.2}
# Words for numbers below and above what is right; low and high for other kinds.
SIDES = {"width": ("narrow", "wide"), "skewness": ("right", "left"), "tails": ("light", "heavy")}
SENTENCES = {
    "bias": "q's mean of {of} is {value} sd too {side} ({ends})",
    "width": "q is {value} times too {side} in {of} ({ends})",
    "slope": "the error of q's mean of {of} changes with x: by {value} sd for one standard "
    "deviation of x near x_o ({ends})",
    "skewness": "the true {of} is more skewed to the {side} than q",
    "tails": "q's tails in {of} are too {side} for its middle",
    "correlation": "q's correlation of {of} is too {side} by {value} ({ends})",
    "coverage": "q's {right} % interval of {of} holds {value} % of the true parameters ({ends} %)",
    "region_coverage": "q's {right} % region holds {value} % of the true parameters ({ends} %)",
}


@dataclass(frozen=True)
class Row:
    """One number about q near x_o, with its simultaneous interval.

    Args:
        kind: bias, width, slope, skewness, tails, correlation, coverage or region_coverage.
        parameters: Names of the parameters that it is about; none for a region of all.
        value, lower, upper: The number and its interval.
        right: What the number is if q is right.
        size: How far the interval is from what is right, where half a standard deviation, or a
            width that is wrong by half, is one. Zero if the interval holds what is right.
        sentence: What is wrong, or within which limits q is right.
    """

    kind: str
    parameters: tuple[str, ...]
    value: float
    lower: float
    upper: float
    right: float
    size: float
    sentence: str

    @property
    def wrong(self) -> bool:
        """Whether the interval excludes what is right."""
        return self.size > 0


def rows_of(table: Mapping[str, np.ndarray], names: Sequence[str]) -> list[Row]:
    """The rows of one observation, the worst first, without numbers that are not known.

    Args:
        table: By kind, the numbers and the lower and upper ends of their intervals, (3, ...).
        names: Names of the parameters.
    """
    rows = []
    for kind, numbers in table.items():
        known = np.isfinite(numbers).all(0)
        if kind == "correlation":
            known = np.triu(known, 1)  # each pair once
        for place in np.argwhere(known).tolist():
            rows.append(_row(kind, names, place, [float(part[tuple(place)]) for part in numbers]))
    # Coverage follows from means, widths and shapes.
    return sorted(rows, key=lambda row: ("coverage" in row.kind, -row.size))


def _row(kind: str, names: Sequence[str], place: list[int], numbers: list[float]) -> Row:
    """The row of one number and its ends, at a place in an array such as (m, 3)."""
    about = {"correlation": place, "region_coverage": []}.get(kind, place[:1])
    parameters = tuple(names[j] for j in about)
    right = LEVELS[place[-1]] if "coverage" in kind else float(kind == "width")
    _, lower, upper = np.log(numbers) if kind == "width" else np.subtract(numbers, right)
    size = float(max(lower, -upper, 0)) / UNITS[kind]
    value, lower, upper = numbers
    side = SIDES.get(kind, ("low", "high"))[value >= right]
    # The side is in words: so numbers are positive, and factors above one.
    if kind == "width" and value < 1:
        value, lower, upper = 1 / value, 1 / upper, 1 / lower
    elif value < 0:
        value, lower, upper = -value, -upper, -lower
    words = [
        f"{100 * part:.0f}" if "coverage" in kind else number(part, 2)
        for part in (value, lower, upper)
    ]
    sentence = SENTENCES[kind].format(
        of=" and ".join(map(readable, parameters)),
        value=words[0],
        ends=f"{words[1]} to {words[2]}",
        side=side,
        right=f"{100 * right:g}",
    )
    sentence = sentence if size else f"not clearly wrong: {sentence}"
    value, lower, upper = numbers
    return Row(kind, parameters, value, lower, upper, right, size, sentence)

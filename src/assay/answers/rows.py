"""Rows: the numbers of bounds one by one, each with its interval and a sentence."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from ..names import readable
from ..results import number

if TYPE_CHECKING:
    from .bounds import Interval

# The size of an error of each kind that counts as one, when rows are put in order.
UNITS = {"bias": 0.5, "width": math.log(1.5), "slope": 0.5, "skewness": 0.25, "tails": 0.25}
UNITS |= {"correlation": 0.5, "coverage": 0.2, "region_coverage": 0.2}
LEVELS = ("50 %", "90 %", "95 %")


@dataclass(frozen=True)
class Row:
    """One number about q near x_o, with its simultaneous interval.

    Args:
        kind: bias, width, slope, skewness, tails, correlation, coverage or region_coverage.
        parameters: Names of the parameters that it is about.
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


def rows_of(table: Mapping[str, "Interval"], names: Sequence[str]) -> list[Row]:
    """The rows of one observation, the worst first; numbers that cannot be told are left out."""
    each = (row for kind, numbers in table.items() for row in _rows(kind, numbers, names))
    # Coverage follows from means, widths and shapes.
    return sorted(each, key=lambda row: ("coverage" in row.kind, -row.size))


def _rows(kind: str, numbers: "Interval", names: Sequence[str]) -> Iterator[Row]:
    for where in _places(kind, numbers.value.shape):
        value, lower, upper = (
            float(part[where]) for part in (numbers.value, numbers.lower, numbers.upper)
        )
        if not all(map(math.isfinite, (value, lower, upper))):
            continue
        right = _right(kind, where)
        concerned = tuple(names[j] for j in _concerned(kind, where))
        size = _size(kind, lower, upper, right)
        sentence = SENTENCES[kind](list(map(readable, concerned)), (value, lower, upper), where)
        if not size:
            sentence = f"not clearly wrong: {sentence}"
        yield Row(kind, concerned, value, lower, upper, right, size, sentence)


def _places(kind: str, shape: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if kind == "correlation":
        yield from combinations(range(shape[0]), 2)
    else:
        yield from np.ndindex(*shape)


def _concerned(kind: str, where: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of the parameters that a row is about; all of them for a region."""
    if kind == "region_coverage":
        return ()
    return where if kind == "correlation" else where[:1]


def _right(kind: str, where: tuple[int, ...]) -> float:
    if kind.endswith("coverage"):
        return (0.5, 0.9, 0.95)[where[-1]]
    return float(kind == "width")


def _size(kind: str, lower: float, upper: float, right: float) -> float:
    if kind == "width":
        lower, upper, right = math.log(lower), math.log(upper), 0.0
    return max(lower - right, right - upper, 0.0) / UNITS[kind]


# Sentences of rows that are wrong, from a number and its ends.

Ends = tuple[float, float, float]


def _between(lower: float, upper: float) -> str:
    return f"({number(lower, 2)} to {number(upper, 2)})"


def _flipped(ends: Ends) -> Ends:
    """The same the other way round, so that sizes are positive."""
    value, lower, upper = ends
    return (value, lower, upper) if value >= 0 else (-value, -upper, -lower)


def _bias(names: Sequence[str], ends: Ends, where: tuple[int, ...]) -> str:
    side = "high" if ends[0] >= 0 else "low"
    value, lower, upper = _flipped(ends)
    return f"q's mean of {names[0]} is {number(value, 2)} sd too {side} {_between(lower, upper)}"


def _width(names: Sequence[str], ends: Ends, where: tuple[int, ...]) -> str:
    value, lower, upper = ends
    side = "wide"
    if value < 1:
        side, value, lower, upper = "narrow", 1 / value, 1 / upper, 1 / lower
    return f"q is {number(value, 2)} times too {side} in {names[0]} {_between(lower, upper)}"


def _slope(names: Sequence[str], ends: Ends, where: tuple[int, ...]) -> str:
    value, lower, upper = _flipped(ends)
    return (
        f"the error of q's mean of {names[0]} changes with x: by {number(value, 2)} sd for one "
        f"standard deviation of x near x_o {_between(lower, upper)}"
    )


def _skewness(names: Sequence[str], ends: Ends, where: tuple[int, ...]) -> str:
    side = "right" if ends[0] < 0 else "left"
    return f"the true {names[0]} is more skewed to the {side} than q"


def _tails(names: Sequence[str], ends: Ends, where: tuple[int, ...]) -> str:
    side = "light" if ends[0] < 0 else "heavy"
    return f"q's tails in {names[0]} are too {side} for its middle"


def _correlation(names: Sequence[str], ends: Ends, where: tuple[int, ...]) -> str:
    side = "high" if ends[0] >= 0 else "low"
    value, lower, upper = _flipped(ends)
    pair = " and ".join(names)
    return (
        f"q's correlation of {pair} is too {side} by {number(value, 2)} {_between(lower, upper)}"
    )


def _coverage(names: Sequence[str], ends: Ends, where: tuple[int, ...]) -> str:
    value, lower, upper = (100 * end for end in ends)
    what = f"interval of {names[0]}" if names else "region"
    return (
        f"q's {LEVELS[where[-1]]} {what} holds {value:.0f} % of the true parameters "
        f"({lower:.0f} to {upper:.0f} %)"
    )


SENTENCES = {"bias": _bias, "width": _width, "slope": _slope, "skewness": _skewness}
SENTENCES |= {"tails": _tails, "correlation": _correlation}
SENTENCES |= {"coverage": _coverage, "region_coverage": _coverage}

"""What bounds are made of: numbers about q with intervals, and rows of them with sentences."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from .._support.inputs import check_number
from ..neighbourhood import Nearest
from ..printing import number, readable
from ..results import LEVELS, Frozen, read_only

# By kind, numbers about q and the lower and upper ends of their intervals.
Table = dict[str, np.ndarray]

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

SETTLED = 0.6  # half-widths over the tolerance with which a q that is right most likely passes
MOST_PRINTED, MOST_ROWS = 10, 4  # observations, and rows of each


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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Bounds(Frozen):
    """How far off q can be near o observations, for m parameters.

    The numbers are arrays, as `bias`, each with its ends, as `bias_lower` and `bias_upper`; what
    cannot be known is NaN. They hold for q on average over the neighbourhood of x_o.

    - `bias`: q's mean less that of the true parameters, in standard deviations of q, (o, m).
    - `width`: q's standard deviation over that of the true parameters, (o, m).
    - `slope`: change of the bias for one sd of the leading coordinates of x near x_o, (o, m, c).
    - `skewness`, `tails`: (Q95 + Q5 - 2 Q50) / (Q95 - Q5) and log (Q95 - Q5) / (Q75 - Q25) of q,
      less those of the true parameters, (o, m).
    - `correlation`: q's correlation of two parameters less the true one, (o, m, m).
    - `coverage`, `region_coverage`: shares of true parameters in q's central 50, 90 and 95 %
      intervals, (o, m, 3), and in its ellipsoids, (o, 3).

    Args:
        names: Names of the parameters.
        table: By kind, the numbers and the lower and upper ends of their intervals, (o, 3, ...).
        near: How many simulations of equal weight those near each observation are worth, (o,).
        expected_width: Half-widths of intervals of log widths if q is right, by its draws, (o, m).
        n, draws: The number of simulations, and of draws of q at each x.
        share: The share that is near; None if it depends on n.
        at: Bias and width at x_o itself. There each interval holds by itself.
        near_truths, near_draws: Some true parameters near x_o, (o, t, m), and some draws of q at
            the same x, (o, s, m), in standard deviations of q around its mean there.
    """

    names: tuple[str, ...]
    table: Mapping[str, np.ndarray]
    near: np.ndarray
    expected_width: np.ndarray
    n: int
    draws: int
    share: float | None
    at: "Bounds | None" = None
    near_truths: np.ndarray | None = None
    near_draws: np.ndarray | None = None

    def __post_init__(self) -> None:
        table = {kind: read_only(numbers) for kind, numbers in self.table.items()}
        object.__setattr__(self, "table", table)
        super().__post_init__()

    def __getattr__(self, name: str) -> np.ndarray:
        for part, end in enumerate(("", "_lower", "_upper")):
            numbers = vars(self).get("table", {}).get(name.removesuffix(end))
            if name.endswith(end) and numbers is not None:
                return numbers[:, part]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __len__(self) -> int:
        return len(self.near)

    def __repr__(self) -> str:
        """The worst rows at each observation, a line each."""
        lines = [f"Bounds(o={len(self)}, m={len(self.names)}, n={self.n}, draws={self.draws})"]
        for i, rows in enumerate(self.rows[:MOST_PRINTED]):
            lines += [f"x_o[{i}]: {row.sentence}" for row in rows[:MOST_ROWS]]
        if len(self) > MOST_PRINTED:
            lines.append(f"... and {len(self) - MOST_PRINTED} more observations")
        return "\n".join(lines)

    @cached_property
    def rows(self) -> tuple[tuple[Row, ...], ...]:
        """All rows at each observation, the worst first, without those that cannot be known."""
        tables = ({kind: part[i] for kind, part in self.table.items()} for i in range(len(self)))
        return tuple(tuple(rows_of(table, self.names)) for table in tables)

    @cached_property
    def wrong(self) -> tuple[tuple[Row, ...], ...]:
        """The rows that are wrong at each observation, the worst first."""
        return tuple(tuple(row for row in rows if row.wrong) for rows in self.rows)

    def within(self, tolerance: float = 0.5) -> np.ndarray:
        """Whether all means and widths are right within a tolerance, (o,).

        A mean within so many standard deviations of q, a width within a factor of one and so much.
        Never with one draw of q at each x, from which errors of widths appear smaller.
        """
        tolerance = check_number("tolerance", tolerance)
        bias = np.maximum(-self.bias_lower, self.bias_upper)
        log_width = np.maximum(-np.log(self.width_lower), np.log(self.width_upper))
        # What is not known is NaN, which is within no tolerance.
        right = (bias <= tolerance) & (log_width <= math.log1p(tolerance))
        return np.asarray(right.all(1) & (self.draws > 1))

    def pairs_for(self, tolerance: float = 0.5) -> np.ndarray:
        """About how many simulations settle whether q is right within the tolerance, (o,).

        Intervals are then so narrow that they lie within the tolerance if q is right, most likely.
        """
        tolerance = check_number("tolerance", tolerance)
        of_bias = (self.bias_upper - self.bias_lower) / 2
        of_width = np.log(self.width_upper / self.width_lower) / 2
        of_width = np.maximum(of_width, self.expected_width)
        # Half-widths over the tolerance go with one over the root of the pairs that are near.
        largest = np.maximum(of_bias / tolerance, of_width / math.log1p(tolerance)).max(1)
        times = np.square(largest / SETTLED)
        return Nearest(self.share).simulations_for(self.n, np.maximum(1, times))

    def without(self, which: np.ndarray) -> "Bounds":
        """The same with NaN at some observations (o,), of which nothing is said."""

        def hidden(part: Any) -> Any:
            shape = (-1, *[1] * (np.ndim(part) - 1))
            return None if part is None else np.where(which.reshape(shape), np.nan, part)

        return replace(
            self,
            table={kind: hidden(numbers) for kind, numbers in self.table.items()},
            at=None if self.at is None else self.at.without(which),
            near_truths=hidden(self.near_truths),
            near_draws=hidden(self.near_draws),
        )

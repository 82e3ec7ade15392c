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

# The size of an error of each kind that counts as one, when rows are put in order.
UNITS = {"bias": 0.5, "width": math.log(1.5), "slope": 0.5, "skewness": 0.25, "tails": 0.25}
UNITS |= {"correlation": 0.5, "coverage": 0.2, "region_coverage": 0.2}
# Words for numbers below and above what is right; low and high for other kinds.
SIDES = {"width": ("narrow", "wide"), "skewness": ("right", "left"), "tails": ("light", "heavy")}
SENTENCES = {
    "bias": "q's mean of {of} is {} sd too {side} ({} to {})",
    "width": "q is {} times too {side} in {of} ({} to {})",
    "slope": "the error of q's mean of {of} changes with x: by {} sd for one standard deviation "
    "of x near x_o ({} to {})",
    "skewness": "the true {of} is more skewed to the {side} than q",
    "tails": "q's tails in {of} are too {side} for its middle",
    "correlation": "q's correlation of {of} is too {side} by {} ({} to {})",
    "coverage": "q's {right} % interval of {of} holds {} % of the true parameters ({} to {} %)",
    "region_coverage": "q's {right} % region holds {} % of the true parameters ({} to {} %)",
}
SETTLED = 0.6  # half-widths over the tolerance with which a q that is right most likely passes
MOST_PRINTED, MOST_ROWS = 10, 4  # observations, and rows of each


@dataclass(frozen=True)
class Row:
    """One number about q near x_o, with its simultaneous interval.

    Args:
        kind: bias, width, slope, skewness, tails, correlation, coverage or region_coverage.
        parameters: Names of the parameters that it is about; none for a region of all.
        value, lower, upper, right: The number, its interval, and what it is if q is right.
        size: How far the interval is from what is right, where half a standard deviation, or a
            width that is wrong by half, is one; zero if it holds what is right.
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


def rows_of(table: Mapping[str, np.ndarray], names: Sequence[str]) -> tuple[Row, ...]:
    """The rows of one observation, the worst first, without numbers that are not known."""
    rows = []
    for kind, numbers in table.items():  # with the ends of their intervals, (3, ...)
        known, share = np.isfinite(numbers).all(0), "coverage" in kind
        if kind == "correlation":
            known = np.triu(known, 1)  # each pair once
        about = {"correlation": 2, "region_coverage": 0}.get(kind, 1)
        for place, one in zip(np.argwhere(known), numbers[:, known].T.tolist(), strict=True):
            parameters = tuple(names[j] for j in place[:about])
            right = LEVELS[place[-1]] if share else float(kind == "width")
            value, lower, upper = positive = one
            low, high = (math.log(v) if kind == "width" else v - right for v in (lower, upper))
            size = max(low, -high, 0.0) / UNITS[kind]
            # The side is in words: so numbers are positive, and factors above one.
            if value < right and not share:
                positive = [1 / v if kind == "width" else -v for v in (value, upper, lower)]
            texts = (f"{100 * v:.0f}" if share else number(v, 2) for v in positive)
            words = {"of": " and ".join(map(readable, parameters)), "right": f"{100 * right:g}"}
            words["side"] = SIDES.get(kind, ("low", "high"))[value >= right]
            sentence = SENTENCES[kind].format(*texts, **words)
            sentence = sentence if size else f"not clearly wrong: {sentence}"
            rows.append(Row(kind, parameters, value, lower, upper, right, size, sentence))
    # Coverage follows from means, widths and shapes.
    return tuple(sorted(rows, key=lambda row: ("coverage" in row.kind, -row.size)))


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Bounds(Frozen):
    """How far off q can be near o observations on average, for m parameters.

    Numbers have ends of intervals, as `bias_lower` and `bias_upper`. What is not known is NaN.

    - `bias`, `width`: q's mean less the true one in sd of q, and q's sd over the true one, (o, m).
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
        return tuple(rows_of(table, self.names) for table in tables)

    @cached_property
    def wrong(self) -> tuple[tuple[Row, ...], ...]:
        """The rows that are wrong at each observation, the worst first."""
        return tuple(tuple(row for row in rows if row.wrong) for rows in self.rows)

    @cached_property
    def farthest(self) -> tuple[np.ndarray, np.ndarray]:
        """How far off means and widths may be, both (o, m), the latter as factors above one."""
        bias = np.maximum(-self.bias_lower, self.bias_upper)
        return bias, np.maximum(1 / self.width_lower, self.width_upper)

    def within(self, tolerance: float = 0.5) -> np.ndarray:
        """Whether means are right within so many sd of q, widths by a factor of 1 + so much, (o,).

        Never with one draw of q at each x, from which errors of widths appear smaller.
        """
        tolerance = check_number("tolerance", tolerance)
        bias, factor = self.farthest  # what is not known is NaN, which is within no tolerance
        right = (bias <= tolerance) & (factor <= 1 + tolerance)
        return np.asarray(right.all(1) & (self.draws > 1))

    def pairs_for(self, tolerance: float = 0.5) -> np.ndarray:
        """With about how many simulations q most likely passes at a tolerance, if right, (o,)."""
        tolerance = check_number("tolerance", tolerance)
        of_bias = (self.bias_upper - self.bias_lower) / 2
        of_width = np.maximum(np.log(self.width_upper / self.width_lower) / 2, self.expected_width)
        # Half-widths over the tolerance go with one over the root of the pairs that are near.
        largest = np.maximum(of_bias / tolerance, of_width / math.log1p(tolerance)).max(1)
        times = np.square(largest / SETTLED)
        return Nearest(self.share).simulations_for(self.n, np.maximum(1, times))

    def without(self, which: np.ndarray) -> "Bounds":
        """The same with NaN at some observations (o,), of which nothing is said."""

        def hide(part: Any) -> Any:
            return None if part is None else np.where(which, np.nan, part.T).T

        table = {kind: hide(part) for kind, part in self.table.items()}
        at = None if self.at is None else self.at.without(which)
        truths, draws = hide(self.near_truths), hide(self.near_draws)
        return replace(self, table=table, at=at, near_truths=truths, near_draws=draws)

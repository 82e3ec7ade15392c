"""Rows: one number with its interval, its size as an error, and its sentence."""

import math

import numpy as np
import pytest

from assay.answers.rows import rows_of

NAMES = ("mu", r"$\sigma_1$")


def only(kind, value, lower, upper, where=(0,), m=2):
    """The only row of a table in which one number of a kind is known."""
    shape = {"correlation": (m, m), "slope": (m, 2), "coverage": (m, 3)}
    parts = []
    for number in (value, lower, upper):
        part = np.full({"region_coverage": (3,)}.get(kind, shape.get(kind, (m,))), np.nan)
        part[where] = number
        parts.append(part)
    (row,) = rows_of({kind: np.array(parts)}, NAMES)
    return row


# The kind, the number, whose ends are 0.1 away, and its place in the table.
CASES = {
    "bias 0.4 0": "q's mean of mu is 0.40 sd too high (0.30 to 0.50)",
    "bias -0.4 1": "q's mean of σ₁ is 0.40 sd too low (0.30 to 0.50)",
    "width 1.5 0": "q is 1.5 times too wide in mu (1.4 to 1.6)",
    "width 0.5 0": "q is 2.0 times too narrow in mu (1.7 to 2.5)",
    "slope -0.4 0 1": "the error of q's mean of mu changes with x: by 0.40 sd for one standard "
    "deviation of x near x_o (0.30 to 0.50)",
    "skewness -0.4 0": "the true mu is more skewed to the right than q",
    "skewness 0.4 1": "the true σ₁ is more skewed to the left than q",
    "tails -0.4 0": "q's tails in mu are too light for its middle",
    "tails 0.4 1": "q's tails in σ₁ are too heavy for its middle",
    "correlation 0.5 0 1": "q's correlation of mu and σ₁ is too high by 0.50 (0.40 to 0.60)",
    "correlation -0.5 0 1": "q's correlation of mu and σ₁ is too low by 0.50 (0.40 to 0.60)",
    "coverage 0.7 1 1": "q's 90 % interval of σ₁ holds 70 % of the true parameters (60 to 80 %)",
    "region_coverage 0.8 0": "q's 50 % region holds 80 % of the true parameters (70 to 90 %)",
}


@pytest.mark.parametrize("case", CASES)
def test_sentences(case):
    kind, value, *where = case.split()
    value, where = float(value), tuple(map(int, where))
    row = only(kind, value, value - 0.1, value + 0.1, where)
    assert row.wrong
    assert row.sentence == CASES[case]
    assert (row.value, row.lower, row.upper) == (value, value - 0.1, value + 0.1)
    right = only(kind, row.right, row.right - 0.1, row.right + 0.1, where)
    assert (right.wrong, right.size) == (False, 0)
    assert right.sentence.startswith("not clearly wrong: ")


@pytest.mark.parametrize(
    ("kind", "ends", "where", "size"),
    [
        # Half a standard deviation, a width that is wrong by half, a correlation by a half: one.
        ("bias", (0.9, 0.5, 1.3), (0,), 1),
        ("bias", (-0.9, -1.3, -0.25), (0,), 0.5),
        ("slope", (0.9, 0.5, 1.3), (0, 0), 1),
        ("width", (2, 1.5, 3), (0,), 1),
        ("width", (0.5, 0.3, 1 / 1.5), (0,), 1),
        ("correlation", (0.7, 0.5, 0.9), (0, 1), 1),
        ("skewness", (0.5, 0.25, 0.8), (0,), 1),
        ("tails", (-0.5, -0.8, -0.25), (0,), 1),
        ("coverage", (0.6, 0.5, 0.7), (0, 1), 1),
        ("region_coverage", (0.8, 0.7, 0.9), (0,), 1),
        # The interval holds what is right, or ends there.
        ("bias", (0.5, 0, 1), (0,), 0),
        ("width", (1.5, 0.9, 2), (0,), 0),
    ],
)
def test_sizes(kind, ends, where, size):
    row = only(kind, *ends, where)
    assert row.size == pytest.approx(size)
    assert row.wrong == (size > 0)


def test_worst_first_and_coverage_last():
    table = {
        "bias": np.array([[0.3, -1.4], [0.1, -1.6], [0.5, -1.2]]),
        "width": np.array([[1.6, 1.0], [1.5, 0.9], [1.7, 1.1]]),
        "coverage": np.array([np.full((2, 3), v) for v in (0.05, 0.0, 0.1)]),
    }
    rows = rows_of(table, NAMES)
    assert [(row.kind, row.parameters[0]) for row in rows[:4]] == [
        ("bias", NAMES[1]),
        ("width", "mu"),
        ("bias", "mu"),
        ("width", NAMES[1]),
    ]
    assert [row.kind for row in rows[4:]] == ["coverage"] * 6
    for part in (rows[:4], rows[4:]):
        sizes = [row.size for row in part]
        assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("missing", range(3))
@pytest.mark.parametrize("unknown", [math.nan, math.inf])
def test_what_is_not_known_has_no_row(missing, unknown):
    parts = np.array([[0.4, 0.4], [0.3, 0.3], [0.5, 0.5]])
    parts[missing, 0] = unknown
    (row,) = rows_of({"bias": np.array(parts)}, NAMES)
    assert row.parameters == NAMES[1:]


def test_each_pair_has_one_correlation():
    parts = np.zeros((3, 3, 3)) + np.array([0, -0.1, 0.1])[:, None, None]
    rows = rows_of({"correlation": np.array(parts)}, "abc")
    assert sorted(row.parameters for row in rows) == [("a", "b"), ("a", "c"), ("b", "c")]

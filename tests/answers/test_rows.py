"""Rows: one number with its interval, its size as an error, and its sentence."""

import math

import numpy as np
import pytest

from assay.answers.rows import rows_of

NAMES = ("mu", r"$\sigma_1$")
SHAPES = {"correlation": (2, 2), "slope": (2, 2), "coverage": (2, 3), "region_coverage": (3,)}


def only(kind, value, lower, upper, place):
    """The only row of a table in which one number of a kind is known."""
    table = np.full((3, *SHAPES.get(kind, (2,))), np.nan)
    table[(slice(None), *place)] = value, lower, upper
    (row,) = rows_of({kind: table}, NAMES)
    return row


# The kind, a number whose ends are 0.1 away, the size of the error, which is one for half a
# standard deviation and for a width that is wrong by half, and the place in the table.
CASES = {
    "bias 0.4 0.6 0": "q's mean of mu is 0.40 sd too high (0.30 to 0.50)",
    "bias -0.4 0.6 1": "q's mean of σ₁ is 0.40 sd too low (0.30 to 0.50)",
    "width 1.6 1.0 0": "q is 1.6 times too wide in mu (1.5 to 1.7)",
    "width 0.5 1.26 0": "q is 2.0 times too narrow in mu (1.7 to 2.5)",
    "slope -0.4 0.6 0 1": "the error of q's mean of mu changes with x: by 0.40 sd for one "
    "standard deviation of x near x_o (0.30 to 0.50)",
    "skewness -0.4 1.2 0": "the true mu is more skewed to the right than q",
    "skewness 0.4 1.2 1": "the true σ₁ is more skewed to the left than q",
    "tails -0.4 1.2 0": "q's tails in mu are too light for its middle",
    "tails 0.4 1.2 1": "q's tails in σ₁ are too heavy for its middle",
    "correlation 0.5 0.8 0 1": "q's correlation of mu and σ₁ is too high by 0.50 (0.40 to 0.60)",
    "correlation -0.5 0.8 0 1": "q's correlation of mu and σ₁ is too low by 0.50 (0.40 to 0.60)",
    "coverage 0.7 0.5 1 1": "q's 90 % interval of σ₁ holds 70 % of the true parameters "
    "(60 to 80 %)",
    "region_coverage 0.8 1.0 0": "q's 50 % region holds 80 % of the true parameters (70 to 90 %)",
}


@pytest.mark.parametrize("case", CASES)
def test_sizes_and_sentences(case):
    kind, value, size, *place = case.split()
    value, place = float(value), tuple(map(int, place))
    row = only(kind, value, value - 0.1, value + 0.1, place)
    assert (row.wrong, row.sentence) == (True, CASES[case])
    assert row.size == pytest.approx(float(size), abs=0.005)
    assert (row.value, row.lower, row.upper) == (value, value - 0.1, value + 0.1)
    for lower in (row.right, row.right - 0.1):  # the interval ends at what is right, or holds it
        right = only(kind, lower + 0.1, lower, lower + 0.2, place)
        assert (right.wrong, right.size) == (False, 0)
        assert right.sentence.startswith("not clearly wrong: ")


def test_worst_first_and_coverage_last():
    table = {
        "bias": np.array([[0.3, -1.4], [0.1, -1.6], [0.5, -1.2]]),
        "width": np.array([[1.6, 1.0], [1.5, 0.9], [1.7, 1.1]]),
        "coverage": np.array([np.full((2, 3), v) for v in (0.05, 0.0, 0.1)]),
    }
    rows = rows_of(table, "ab")
    found = [f"{row.kind} {row.parameters[0]}" for row in rows[:4]]
    assert found == ["bias b", "width a", "bias a", "width b"]
    assert [row.kind for row in rows[4:]] == ["coverage"] * 6
    sizes = [row.size for row in rows[4:]]
    assert sizes == sorted(sizes, reverse=True)


@pytest.mark.parametrize("missing", range(3))
@pytest.mark.parametrize("unknown", [math.nan, math.inf])
def test_what_is_not_known_has_no_row(missing, unknown):
    parts = np.array([[0.4, 0.4], [0.3, 0.3], [0.5, 0.5]])
    parts[missing, 0] = unknown
    (row,) = rows_of({"bias": parts}, NAMES)
    assert row.parameters == NAMES[1:]


def test_each_pair_has_one_correlation():
    parts = np.zeros((3, 3, 3)) + np.array([0, -0.1, 0.1])[:, None, None]
    rows = rows_of({"correlation": parts}, "abc")
    assert sorted(row.parameters for row in rows) == [("a", "b"), ("a", "c"), ("b", "c")]

import numpy as np
import pytest

from assay.report.words import between, literal, number, probability, rounded


@pytest.mark.parametrize(
    ("p", "shown"),
    [(0.635, "0.635"), (0.05, "0.050"), (0.005, "0.005"), (0.001, "0.001"), (1.0, "1")],
)
def test_pvalues_have_three_decimals(p, shown):
    assert probability(p) == shown


def test_a_pvalue_is_never_shown_as_zero():
    grid = 1 / (1 + np.arange(1, 10**5, 997))
    assert all(float(probability(p)) > 0 for p in grid)
    assert all(abs(float(probability(p)) / p - 1) < 0.06 for p in grid)


def test_numbers_have_a_minus_and_no_tails():
    assert number(-0.12345) == "−0.123"
    assert number(1.05) == "1.050"
    assert number(-1e-12) == "0.000"
    assert number(float("nan")) == "–"
    assert between(-1, 2) == "−1.000 to 2.000"


def test_rounding_keeps_what_is_seen():
    values = np.random.default_rng(0).normal(size=100)
    assert np.allclose(rounded(values), values, rtol=1e-3)
    assert rounded(np.array([np.inf, np.nan])) == [None, None]


def test_names_are_literal():
    assert literal("<b>x</b>\n& $y$") == "&lt;b&gt;x&lt;/b&gt; &amp; $y$"
    assert "<" not in literal("<br><sub>")

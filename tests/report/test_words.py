import numpy as np

from assay.report.words import between, brief, literal, number, rounded


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


def test_long_names_are_cut():
    assert brief("a < b") == "a &lt; b"
    assert brief("a & b of many letters 12", 9) == "a &amp; b… 12"

import sys
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import assay
from assay.printing import laid_out, number, probability, rows_of, wrapped
from tests.conftest import Gaussian


@pytest.fixture
def terminal(monkeypatch):
    """Sets how many letters fit in a line."""
    return lambda width: monkeypatch.setenv("COLUMNS", str(width))


class TestLaidOut:
    head = ("x_o", "a first", "second")
    rows = (("one", "1.00", "22"), ("two", "–", "333"))

    def test_a_table_that_fits(self, terminal):
        terminal(80)
        assert laid_out(self.head, self.rows) == [
            "x_o  a first  second",
            "one     1.00      22",
            "two        –     333",
        ]

    def test_headings_are_folded_first(self, terminal):
        terminal(40)
        lines = laid_out(("x_o", "of many words", "and of many more"), [("a" * 12, "1", "2")])
        assert lines[1].split() == ["x_o", "words", "many", "more"]
        assert max(map(len, lines)) <= 40

    def test_long_labels_are_cut(self, terminal):
        terminal(40)
        lines = laid_out(self.head, [("a" * 60, "1", "2"), ("b" * 60, "1", "2")])
        assert len(lines) == 4
        assert all("…" in line for line in lines[2:])
        assert max(map(len, lines)) <= 40

    def test_few_rows_are_turned(self, terminal):
        terminal(60)
        head = ["x_o", *(f"column_{i}" for i in range(12))]
        lines = laid_out(head, [["0", *"abcdefghijkl"]])
        assert len(lines) == 13
        assert [line.split()[1] for line in lines] == ["0", *"abcdefghijkl"]

    def test_wide_tables_are_broken(self, terminal):
        terminal(60)
        head = ["x_o", *(f"column_{i}" for i in range(12))]
        lines = laid_out(head, [[str(i), *"abcdefghijkl"] for i in range(14)])
        assert max(map(len, lines)) <= 60
        assert sum(line.startswith("x_o") for line in lines) == 3
        for name in head[1:]:
            assert sum(name in line.split() for line in lines) == 1

    def test_labels_that_would_be_alike_are_not_cut(self, terminal):
        terminal(40)
        labels = ["the same beginning a", "the same beginning b"]
        lines = laid_out(["x_o", *["number"] * 3], [[label, *"123"] for label in labels])
        for label in labels:
            assert any(label in line for line in lines)


def test_sentences_are_wrapped(terminal):
    terminal(40)
    text = "Of all, the region of 90 % covers 35 % with p = 0.5 there, and no more."
    lines = wrapped(text, "  ")
    assert all(len(line) <= 40 for line in lines.splitlines())
    assert not any(line.lstrip()[0] in "%=" for line in lines.splitlines())
    assert lines.splitlines()[1].startswith("  ")
    terminal(500)
    assert max(map(len, wrapped("word " * 100).splitlines())) <= 100


@pytest.mark.parametrize(
    ("p", "shown"),
    [
        *[(0.635, "0.635"), (0.005, "0.005"), (0.0123, "0.012"), (1.0, "1"), (0.05, "0.050")],
        *[(0.00012, "0.00012"), (2.7e-304, "< 0.000001"), (0.0, "< 0.000001"), (np.nan, "–")],
    ],
)
def test_probabilities(p, shown):
    assert probability(p) == shown
    assert "e" not in shown


@pytest.fixture(scope="module")
def kinds():
    """Results of many kinds, some of them with many columns."""

    def sets(m, n=300, k=12):
        return Gaussian(width=1.2, m=m).calibration(n, k=k)

    def log_q(theta, x):
        return -(theta - x / 2).square().sum(1)

    two, none = sets(2), torch.zeros
    test, linear = assay.score(two, null=39), assay.lc2st(two, assay.Ridge(), 39)
    return {
        "SBC of 20": assay.sbc(sets(20), null=99),
        "coverage of 8": assay.coverage(sets(8), null=99),
        "TARP": assay.tarp(two, null=99),
        "score": test(none(2)),
        "score at 4": test(none(4, 2)),
        "C2ST": assay.c2st(two.theta, two.theta_q[:, 0], assay.Ridge(), 39),
        "local C2ST at 4": linear(assay.Draws(none(4, 2), none(4, 50, 2))),
        "PIT of 8": assay.lpit(sets(8), null=39)(none(8)),
        "HPD": assay.lhpd(two, log_q, null=39)(none(2)),
    }


@pytest.mark.parametrize("width", [50, 80, 120])
def test_nothing_is_wider_than_the_terminal(kinds, terminal, width):
    terminal(width)
    for name, found in kinds.items():
        assert max(map(len, repr(found).splitlines())) <= width, f"{name}\n{found!r}"
        assert "\x1b" not in repr(found)
        assert " ".join(found.sentence.split()) in " ".join(repr(found).split())


def test_eighty_columns_where_the_terminal_is_unknown(kinds, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr(sys, "__stdout__", None)
    assert max(len(line) for found in kinds.values() for line in repr(found).splitlines()) <= 80


def test_notebooks_show_every_kind(kinds):
    for name, found in kinds.items():
        page = ElementTree.fromstring(found._repr_html_())
        assert page.find("table") is not None, name
        assert "<script" not in found._repr_html_()


def test_rows_of_columns():
    assert rows_of({"a": np.array([1, 2]), "b": np.array([True, False])}) == [
        {"a": 1.0, "b": 1.0},
        {"a": 2.0, "b": 0.0},
    ]
    assert rows_of({"a": np.array(3.0), "b": 4}) == [{"a": 3.0, "b": 4.0}]
    with pytest.raises(ValueError, match="shorter|longer"):
        rows_of({"a": np.zeros(2), "b": np.zeros(3)})


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *((0.0, "0"), (1.0, "1.00"), (-0.12345, "-0.123"), (12345.6, "12346"), (1e-4, "0.000100")),
        *((1e-5, "1.00e-05"), (1e6, "1.00e+06"), (999.9, "1000"), (np.inf, "inf")),
        (np.nan, "nan"),
    ],
)
def test_numbers(value, text):
    assert number(value) == text

import sys
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

import assay
from assay.printing import (
    html_table,
    laid_out,
    number,
    probability,
    readable,
    rows_of,
    shorten,
    text_table,
    wrapped,
)
from tests.conftest import Gaussian


@pytest.fixture
def terminal(monkeypatch):
    """Sets how many letters fit in a line."""
    return lambda width: monkeypatch.setenv("COLUMNS", str(width))


class TestLaidOut:
    head = ("x_o", "a first", "second")
    wide = ("x_o", *(f"column_{i}" for i in range(12)))

    def test_a_table_that_fits(self, terminal):
        terminal(80)
        assert laid_out(self.head, [("one", "1.00", "22"), ("two", "–", "333")]) == [
            "x_o  a first  second",
            "one     1.00      22",
            "two        –     333",
        ]

    def test_headings_are_folded_first(self, terminal):
        terminal(40)
        lines = laid_out(("x_o", "of many words", "and of many more"), [("a" * 12, "1", "2")])
        assert lines[1].split() == ["x_o", "words", "many", "more"]
        assert max(map(len, lines)) <= 40

    def test_long_labels_are_cut_as_long_as_they_differ(self, terminal):
        terminal(40)
        lines = laid_out(self.head, [("a" * 60, "1", "2"), ("b" * 60, "1", "2")])
        assert len(lines) == 4
        assert all("…" in line for line in lines[2:])
        assert max(map(len, lines)) <= 40
        labels = ["the same beginning a", "the same beginning b"]
        lines = laid_out(["x_o", *["number"] * 3], [[label, *"123"] for label in labels])
        assert all(label in "\n".join(lines) for label in labels)

    def test_few_rows_are_turned_and_wide_tables_broken(self, terminal):
        terminal(60)
        lines = laid_out(self.wide, [["0", *"abcdefghijkl"]])
        assert [line.split()[1] for line in lines] == ["0", *"abcdefghijkl"]
        lines = laid_out(self.wide, [[str(i), *"abcdefghijkl"] for i in range(14)])
        assert max(map(len, lines)) <= 60
        assert sum(line.startswith("x_o") for line in lines) == 3
        for name in self.wide[1:]:
            assert sum(name in line.split() for line in lines) == 1

    def test_words_of_the_last_column_are_clipped(self, terminal):
        terminal(40)
        lines = laid_out(["", " a", "why"], [["x", " b", "word " * 20]], 2, clip_last=True)
        assert lines == ["    a  why", "x   b  word word word word word word wo…"]


def test_tables_as_text_and_html():
    rows = rows_of({"price": np.array([0.5, 1234.5]), "p": [0.5, np.nan], "n": (True, 4)})
    assert text_table("fruit", ("apple", "<pear>"), rows) == [
        "fruit   price      p  n",
        "apple   0.500  0.500  1",
        "<pear>   1234      –  4",
    ]
    page = html_table("fruit", ("apple", "<pear>"), rows, "<cheap>", "A & b.")
    assert page.startswith('<div class="assay"><style>')
    assert page.split("</style>")[1] == (
        "<table><caption>&lt;cheap&gt;</caption>"
        "<thead><tr><th>fruit</th><th>price</th><th>p</th><th>n</th></tr></thead><tbody>"
        "<tr><td>apple</td><td>0.500</td><td>0.500</td><td>1</td></tr>"
        "<tr><td>&lt;pear&gt;</td><td>1234</td><td>–</td><td>4</td></tr>"
        "</tbody></table><p>A &amp; b.</p></div>"
    )
    many = html_table("x", [str(i) for i in range(100)], rows * 50, "", "")
    assert many.count("<tr>") == 61
    assert "... and 40 more" in many
    assert rows_of({"a": np.array(3.0), "b": 4}) == [{"a": 3.0, "b": 4.0}]
    with pytest.raises(ValueError, match="shorter|longer"):
        rows_of({"a": np.zeros(2), "b": np.zeros(3)})


def test_sentences_are_wrapped(terminal):
    terminal(40)
    text = "Of all, the region of 90 % covers 35 % with p = 0.5 there, and no more."
    first, *others = wrapped(text, "  ").splitlines()
    assert all(len(line) <= 40 for line in (first, *others))
    assert all(line.startswith("  ") and line[2] not in "%=" for line in others)
    terminal(500)
    assert max(map(len, wrapped("word " * 100).splitlines())) <= 100


@pytest.mark.parametrize(
    ("p", "text"),
    [
        *[(0.635, "0.635"), (0.005, "0.005"), (0.0123, "0.012"), (1.0, "1"), (0.05, "0.050")],
        *[(0.00012, "0.00012"), (2.7e-304, "< 0.000001"), (0.0, "< 0.000001"), (np.nan, "–")],
    ],
)
def test_probabilities(p, text):
    assert probability(p) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(0.0, "0"), (1.0, "1.00"), (-0.12345, "-0.123"), (12345.6, "12346"), (999.9, "1000")],
        *[(1e-4, "0.000100"), (1e-5, "1.00e-05"), (1e6, "1.00e+06"), (np.inf, "inf")],
    ],
)
def test_numbers(value, text):
    assert number(value) == text


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


@pytest.mark.parametrize("width", [50, 80, 120, None])
def test_nothing_is_wider_than_the_terminal(kinds, terminal, width, monkeypatch):
    """Which is taken for one of 80 where it is unknown."""
    terminal(width)
    if width is None:
        monkeypatch.delenv("COLUMNS")
        monkeypatch.setattr(sys, "__stdout__", None)
    for name, found in kinds.items():
        assert max(map(len, repr(found).splitlines())) <= (width or 80), f"{name}\n{found!r}"
        assert "\x1b" not in repr(found)
        assert " ".join(found.sentence.split()) in " ".join(repr(found).split())
        page = found._repr_html_()
        assert ElementTree.fromstring(page).find("table") is not None
        assert "<script" not in page


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("plain_1", "plain_1"),
        (r"$\alpha$", "α"),
        (r"rate $\lambda^{2}$ / s", "rate λ² / s"),
        (r"$x_{\mathrm{obs}}$", "x_obs"),
        (r"$\sigma_{8,z}$", "σ_8,z"),
        (r"$\dot{M}_{\mathrm{wind}} / (M_\odot\,\mathrm{yr}^{-1})$", "Ṁ_wind / (M_⊙ yr⁻¹)"),
        (r"$\Omega_{\mathrm{m}}$, $\alpha_{\mathrm{a} \to b}$", "Ωₘ, α_a → b"),
        (r"$\hat{\theta}_1$ and $\langle v^2 \rangle$", "θ̂₁ and ⟨ v² ⟩"),
        ("a $ of b", "a $ of b"),
        ("$$", "$$"),
    ],
)
def test_tex_is_read_as_people_do(name, read):
    assert readable(name) == read
    assert shorten(read, 40) == read
    assert shorten("amplitude of mode 12", 16) == "amplitude…de 12"

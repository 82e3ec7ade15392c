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


def test_headings_are_folded_and_words_clipped(terminal):
    head, row = ("x_o", "of many words", "and of many more"), ["a" * 12, "1", "22"]
    terminal(80)
    assert laid_out(head, [row])[1] == "aaaaaaaaaaaa              1                22"
    terminal(40)
    assert laid_out(head, [row]) == [
        "              of many     and of",
        "x_o             words  many more",
        "aaaaaaaaaaaa        1         22",
    ]
    lines = laid_out(["", " a", "why"], [["x", " b", "word " * 20]], 2, clip_last=True)
    assert lines == ["    a  why", "x   b  word word word word word word wo…"]


def test_labels_are_cut_as_long_as_they_differ(terminal):
    terminal(40)
    head = ["x_o", *["number"] * 3]
    lines = laid_out(head, [["a" * 60, *"123"], ["b" * 60, *"123"]])
    assert [line.count("…") for line in lines] == [0, 1, 1]
    labels = ["the same beginning a", "the same beginning b"]
    text = "\n".join(laid_out(head, [[label, *"123"] for label in labels]))
    assert all(label in text for label in labels)


def test_few_rows_are_turned_and_wide_tables_broken(terminal):
    terminal(60)
    head = ("x_o", *(f"column_{i}" for i in range(12)))
    lines = laid_out(head, [["0", *"abcdefghijkl"]])
    assert [line.split()[1] for line in lines] == ["0", *"abcdefghijkl"]
    lines = laid_out(head, [[str(i), *"abcdefghijkl"] for i in range(14)])
    assert sum(line.startswith("x_o") for line in lines) == 3
    assert all(sum(name in line.split() for line in lines) == 1 for name in head[1:])


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
    assert (many.count("<tr>"), many.count("... and 40 more")) == (61, 1)
    assert rows_of({"a": np.array(3.0), "b": 4}) == [{"a": 3.0, "b": 4.0}]


def test_sentences_are_wrapped(terminal):
    terminal(40)
    text = "Of all, the region of 90 % covers 35 % with p = 0.5 there, and no more."
    first, *others = wrapped(text, "  ").splitlines()
    assert all(len(line) <= 40 for line in (first, *others))
    assert all(line.startswith("  ") and line[2] not in "%=" for line in others)
    terminal(500)
    assert max(map(len, wrapped("word " * 100).splitlines())) <= 100


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        *[(probability, 0.635, "0.635"), (probability, 0.05, "0.050"), (probability, 1.0, "1")],
        *[(probability, 0.0123, "0.012"), (probability, 0.005, "0.005")],
        *[(probability, 0.00012, "0.00012"), (probability, 0.0, "< 0.000001")],
        *[(number, 0.0, "0"), (number, 1.0, "1.00"), (number, -0.12345, "-0.123")],
        *[(number, 12345.6, "12346"), (number, 999.9, "1000"), (number, np.inf, "inf")],
        *[(number, 1e-4, "0.000100"), (number, 1e-5, "1.00e-05"), (number, 1e6, "1.00e+06")],
    ],
)
def test_numbers(form, value, text):
    assert form(value) == text


@pytest.fixture(scope="module")
def kinds():
    """Results of many kinds, some of them with many columns."""
    two, eight = (Gaussian(width=1.2, m=m).calibration(300, k=12) for m in (2, 8))
    four = Gaussian().draws(torch.zeros(4, 2), 50)
    return [
        assay.sbc(Gaussian(m=20).calibration(300, k=12), null=99),
        assay.coverage(eight, null=99),
        assay.score(two, null=39)(torch.zeros(4, 2)),
        assay.c2st(two.theta, two.theta_q[:, 0], assay.Ridge(), 39),
        assay.lc2st(two, assay.Ridge(), 39)(four),
        assay.lpit(eight, null=39)(torch.zeros(8)),
        assay.lhpd(two, lambda theta, x: -(theta - x / 2).square().sum(1), null=39)(four),
    ]


@pytest.mark.parametrize("width", [50, 80, 120, None])
def test_nothing_is_wider_than_the_terminal(kinds, terminal, width, monkeypatch):
    """Which is taken for one of 80 where it is unknown."""
    terminal(width)
    if width is None:
        monkeypatch.delenv("COLUMNS")
        monkeypatch.setattr(sys, "__stdout__", None)
    for found in kinds:
        assert max(map(len, repr(found).splitlines())) <= (width or 80)
        assert " ".join(found.sentence.split()) in " ".join(repr(found).split())
        assert ElementTree.fromstring(found._repr_html_()).find("table") is not None


@pytest.mark.parametrize(
    ("name", "read"),
    [
        (r"rate $\lambda^{2}$ / s", "rate λ² / s"),
        (r"$\sigma_{8,z}$", "σ_8,z"),
        (r"$\dot{M}_{\mathrm{wind}} / (M_\odot\,\mathrm{yr}^{-1})$", "Ṁ_wind / (M_⊙ yr⁻¹)"),
        (r"$\Omega_{\mathrm{m}}$, $\alpha_{\mathrm{a} \to b}$", "Ωₘ, α_a → b"),
        (r"$\hat{\theta}_1$ and $\langle v^2 \rangle$", "θ̂₁ and ⟨ v² ⟩"),
        ("a_1 $ of b", "a_1 $ of b"),
        ("$$", "$$"),
    ],
)
def test_tex_is_read_as_people_do(name, read):
    assert readable(name) == read
    assert shorten("amplitude of mode 12", 16) == "amplitude…de 12"

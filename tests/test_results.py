import sys
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, ClassVar
from xml.etree import ElementTree

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.stats import binom

import assay
from assay.local.lc2st import LC2STResult
from assay.results import (
    Frozen,
    GlobalMaxT,
    Holm,
    MaxT,
    Readable,
    Rowed,
    chosen,
    clopper_pearson,
    combined,
    envelope,
    false_discovery,
    holm,
    laid_out,
    number,
    position,
    probability,
    pvalue,
    rows_of,
    step_down,
    wrapped,
)
from tests.conftest import Gaussian


def result(statistic, null, s=4):
    statistic, null = np.asarray(statistic, float), np.asarray(null, float)
    many = statistic.shape
    h = null.shape[-1]
    return LC2STResult(
        statistic=statistic,
        null=null,
        probabilities=np.full((*many, s), 0.5),
        null_probabilities=np.full((*many, h, s), 0.5),
        x=np.zeros((*many, 2)),
        draws=np.zeros((*many, s, 2)),
        theta=None,
        hypothesis="q = p",
        settings={"test": "ℓ-C2ST", "n": 100, "scope": "at almost every x"},
    )


class TestPvalue:
    @pytest.mark.parametrize(
        ("statistic", "null", "p"),
        [
            (1e9, np.zeros(99), 0.01),
            (0.0, np.ones(99), 1.0),
            (0.1 + 0.2, np.array([0.3] * 9), 1.0),
        ],
        ids=["never zero", "never more than one", "ties within rounding"],
    )
    def test_counts(self, statistic, null, p):
        assert pvalue(statistic, null) == p

    def test_shapes(self):
        null = np.random.default_rng(0).normal(size=(5, 99))
        np.testing.assert_array_equal(pvalue(np.zeros(5), null), (1 + (null >= 0).sum(1)) / 100)

    @pytest.mark.parametrize(
        ("statistic", "null"), [(np.nan, [1.0]), (1.0, [np.nan]), (1.0, [np.inf])]
    )
    def test_numbers_that_are_none(self, statistic, null):
        with pytest.raises(ValueError, match="statistic: expected finite numbers"):
            pvalue(np.array(statistic), np.array(null))

    def test_its_error_is_that_of_a_share(self):
        one = result(1.0, np.arange(99) / 50)
        assert one.pvalue_error == pytest.approx(np.sqrt(one.pvalue * (1 - one.pvalue) / 100))


def test_against_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=20), rng.normal(0.4, size=20)
    known = scipy.stats.permutation_test(
        (a, b), lambda a, b: np.mean(b) - np.mean(a), n_resamples=199, rng=1, alternative="greater"
    )
    assert pvalue(known.statistic, known.null_distribution) == pytest.approx(known.pvalue)


def test_table_and_sentence_of_one():
    text = repr(result(2.0, np.zeros(99)))
    assert text.splitlines()[0].split() == "x_o statistic null 95 % p ± error".split()
    assert text.splitlines()[1].split()[:4] == ["0", "2", "0", "0.010"]
    assert "H0: q = p." in text
    least = "with probability 0.010, the smallest possible with 99 null copies (ℓ-C2ST, 100 cal"
    assert least in " ".join(text.split())
    assert "± 0.050, from 99 null copies (ℓ-C2ST" in result(2.0, np.arange(99) / 25).sentence


def test_table_and_sentence_of_many():
    text = repr(result(np.ones(30), np.zeros((30, 99))))
    assert "... and 10 more" in text
    assert "At 30 of 30 observations the p-value is at most 0.05" in text


def test_html_escapes():
    page = result(2.0, np.zeros(9))._repr_html_()
    assert "<caption>H0: q = p.</caption>" in page
    assert "<td>0.100</td>" in page
    hostile = LC2STResult(**{**vars(result(2.0, np.zeros(9))), "hypothesis": "<script>"})
    assert "<script>" not in hostile._repr_html_()
    assert "&lt;script&gt;" in hostile._repr_html_()


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


class TestCombined:
    def test_one_stays_what_it_is(self):
        statistics = np.random.default_rng(0).random((1, 3, 20))
        np.testing.assert_array_equal(combined(statistics), statistics[0])

    def test_every_copy_is_treated_alike_and_scales_do_not_matter(self):
        rng = np.random.default_rng(0)
        statistics, order = rng.random((3, 2, 20)), rng.permutation(20)
        shuffled, scales = statistics[..., order], np.array([1.0, 1e-6, 1e3])[:, None, None]
        np.testing.assert_allclose(combined(statistics)[:, order], combined(shuffled), rtol=1e-9)
        np.testing.assert_allclose(combined(statistics), combined(statistics * scales), rtol=1e-6)

    def test_what_two_half_show_is_found(self):
        statistics = np.random.default_rng(0).random((2, 1, 100))
        statistics[:, :, 0] = np.sort(statistics[:, :, 1:])[:, :, -8]
        assert pvalue(combined(statistics)[:, 0], combined(statistics)[:, 1:]) < 0.05

    def test_constants_tell_nothing(self):
        statistics = np.stack([np.ones((1, 20)), np.random.default_rng(0).random((1, 20))])
        assert (combined(statistics).argsort() == statistics[1].argsort()).all()


def test_step_down_controls_the_family_wise_error_whichever_are_true():
    """1000 repetitions, 50 statistics that depend on each other, half of them shifted."""
    rng = np.random.default_rng(0)
    loading = rng.normal(size=(50, 20)) / np.sqrt(20)
    wrong, seen = 0, 0
    for _ in range(1000):
        scores = loading @ rng.normal(size=(20, 100)) + 0.5 * rng.normal(size=(50, 100))
        scores[25:, 0] += 5
        found = step_down(scores[:, 0], scores[:, 1:])
        wrong += (found[:25] <= 0.05).any()
        seen += (found[25:] <= 0.05).mean()
    assert wrong <= binom.ppf(0.999, 1000, 0.05)
    assert seen > 800


def test_step_down_is_monotone_in_the_pvalues_and_above_them():
    rng = np.random.default_rng(1)
    statistic, null = rng.chisquare(3, 8), rng.chisquare(3, (8, 199))
    found = step_down(statistic, null)
    assert (found >= pvalue(statistic, null) - 1e-12).all()
    assert (found <= 1).all()


@pytest.mark.parametrize("shape", [(7,), (), (2, 3)])
def test_false_discovery_rates_are_those_of_scipy(shape):
    p = np.random.default_rng(0).random(shape)
    expected = scipy.stats.false_discovery_control(np.ravel(p)).reshape(shape)
    np.testing.assert_array_equal(false_discovery(p), expected)
    many = result([3.0, 0.1], np.ones((2, 9)))
    np.testing.assert_allclose(many.fdr, [0.2, 1.0])


class TestAdjustment:
    """How p-values at many observations are adjusted for their number, and what is said of it."""

    statistic = np.array([9.0, 1.0, 4.0])
    null = np.random.default_rng(0).chisquare(2, (3, 99))

    @pytest.mark.parametrize("adjustment", [MaxT(), GlobalMaxT(), Holm()], ids=repr)
    def test_a_result_is_adjusted_by_its_own(self, adjustment):
        many = replace(result(self.statistic, self.null), adjustment=adjustment)
        expected = step_down(self.statistic, self.null)
        if isinstance(adjustment, Holm):
            expected = holm(pvalue(self.statistic, self.null))
        np.testing.assert_array_equal(many.adjusted, expected)
        assert [row["adjusted"] for row in many.table] == many.adjusted.tolist()
        assert f"Corrected by {adjustment.words}." in many.sentence
        one = many[0]
        assert one.adjusted == one.pvalue
        assert "adjusted" not in one.table[0]

    def test_they_say_when_errors_are_controlled(self):
        for adjustment in (MaxT(), Holm()):
            assert "whichever of the local hypotheses are true" in adjustment.words
        assert "if q is right at almost every x" in GlobalMaxT().words
        assert MaxT().words != Holm().words

    @pytest.mark.parametrize(("nulls", "warned"), [(58, True), (59, False)])
    def test_too_few_nulls_for_holm(self, nulls, warned):
        """Three observations and a level of 0.05 ask for 59."""
        many = replace(result(self.statistic, self.null[:, :nulls]), adjustment=Holm())
        assert ("cannot be below 0.0508: take 59." in many.sentence) == warned


class TestRows:
    def test_by_number_and_by_name(self):
        many = result([3.0, 0.1, 0.2], np.arange(27.0).reshape(3, 9))
        assert len(many) == 3
        assert many.labels == ("0", "1", "2")
        for i in range(3):
            for which in (i, i - 3, str(i)):
                row = many[which]
                assert row.statistic == many.statistic[i]
                np.testing.assert_array_equal(row.null, many.null[i])
                assert row.pvalue == many.pvalue[i]
                assert row.probabilities.shape == (4,)
                assert not row.many

    def test_one_is_its_own_only_row(self):
        one = result(3.0, np.ones(9))
        assert len(one) == 1
        assert one[0] is one[-1] is one["0"] is one
        with pytest.raises(AttributeError):
            one.statistic = 0

    @pytest.mark.parametrize(
        ("which", "kind", "message"),
        [
            (3, IndexError, "expected one of 3 rows; got 3"),
            (-4, IndexError, "expected one of 3 rows; got -4"),
            ("x", KeyError, "expected one of 0, 1, 2; got 'x'"),
            (1.0, TypeError, "which: expected the number or the name of a row; got float"),
            (True, TypeError, "which: expected the number or the name of a row; got bool"),
        ],
    )
    def test_a_row_that_is_not_there(self, which, kind, message):
        with pytest.raises(kind, match=message):
            result(np.zeros(3), np.ones((3, 9)))[which]

    def test_positions(self):
        assert [position(("a", "b"), which) for which in (0, 1, -1, "b")] == [0, 1, 1, 1]


@dataclass(frozen=True)
class Part(Rowed):
    values: np.ndarray
    edges: np.ndarray
    name: str
    shared: ClassVar[tuple[str, ...]] = ("edges",)


def test_rows_of_parts():
    part = Part(np.arange(6).reshape(3, 2), np.arange(3), "part")
    row = part[1]
    assert row.values.tolist() == [2, 3]
    assert row.edges.tolist() == [0, 1, 2]
    assert row.name == "part"

    @dataclass(frozen=True)
    class Whole:
        part: Any
        number: np.ndarray

    some = chosen(Whole(part, np.arange(3.0)), 2)
    assert some.part.values.tolist() == [4, 5]
    assert some.number == 2
    assert chosen(Whole(part, np.arange(3.0)), 2, ("part",)).part is part


def test_arrays_of_ones_own_that_cannot_be_written():
    @dataclass(frozen=True)
    class Held(Frozen):
        values: np.ndarray

    values = np.zeros(3)
    held = Held(values)
    values[0] = 5
    assert held.values[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        held.values[0] = 1


@dataclass(frozen=True, eq=False, repr=False)
class Shopping(Readable):
    """Something that can be read, and is no result of a test."""

    labels: tuple[str, ...]
    prices: tuple[float, ...]
    settings: dict
    hypothesis: str = "it is cheap"
    heading: ClassVar[str] = "fruit"

    @property
    def table(self):
        return rows_of({"price": np.array(self.prices), "weight": 2 * np.array(self.prices)})

    @property
    def sentence(self):
        return "Fruit & more."


class TestReadable:
    fruit = Shopping(("apple", "<pear>"), (0.5, 1234.5), {})

    def test_table(self):
        head, apple, pear, *last = repr(self.fruit).splitlines()
        assert head.split() == ["fruit", "price", "weight"]
        assert apple.split() == ["apple", "0.500", "1"]
        assert pear.split() == ["<pear>", "1234", "2469"]
        assert len({len(head), len(apple), len(pear)}) == 1
        assert last == ["H0: it is cheap.", "Fruit & more."]
        assert len(self.fruit) == 2

    def test_html(self):
        page = self.fruit._repr_html_()
        assert page.startswith('<div class="assay"><style>')
        assert page.split("</style>")[1] == (
            "<table><caption>H0: it is cheap.</caption>"
            "<thead><tr><th>fruit</th><th>price</th><th>weight</th></tr></thead><tbody>"
            "<tr><td>apple</td><td>0.500</td><td>1</td></tr>"
            "<tr><td>&lt;pear&gt;</td><td>1234</td><td>2469</td></tr>"
            "</tbody></table><p>Fruit &amp; more.</p></div>"
        )

    def test_many_rows_in_a_notebook_are_counted(self):
        many = Shopping(tuple(f"x{i}" for i in range(100)), (0.5,) * 100, {})
        assert many._repr_html_().count("<tr>") == 61
        assert "... and 40 more" in many._repr_html_()

    expected: ClassVar = [
        {"fruit": "apple", "price": 0.5, "weight": 1.0},
        {"fruit": "<pear>", "price": 1234.5, "weight": 2469.0},
    ]

    def test_a_frame_without_pandas(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "pandas", None)
        assert self.fruit.to_frame() == self.expected
        many = result([3.0, 0.1], np.ones((2, 9)))
        rows = many.to_frame()
        assert [row["x_o"] for row in rows] == ["0", "1"]
        assert [row["p-value"] for row in rows] == many.pvalue.tolist()
        assert list(rows[0]) == ["x_o", *many.table[0]]

    def test_a_frame_with_pandas(self, monkeypatch):
        """A stand-in, whose frames hold the rows that they were made of."""
        pandas = ModuleType("pandas")
        monkeypatch.setitem(sys.modules, "pandas", pandas)
        # One that is broken is not hidden.
        with pytest.raises(ImportError, match="DataFrame"):
            self.fruit.to_frame()
        pandas.DataFrame = lambda rows: ("a frame", rows)
        assert self.fruit.to_frame() == ("a frame", self.expected)


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


class TestClopperPearson:
    @pytest.mark.parametrize("n", [1, 10, 200])
    def test_against_scipy(self, n):
        counts = np.unique(np.linspace(0, n, 11).astype(int))
        found = clopper_pearson(counts / n, n, 0.1)
        for i, count in enumerate(counts):
            exact = scipy.stats.binomtest(int(count), n).proportion_ci(0.9, "exact")
            assert found[:, i] == pytest.approx((exact.low, exact.high), abs=1e-9)

    def test_between_counts(self):
        """The ends rise with the share, and hold it."""
        share = np.linspace(0, 1, 101)
        lower, upper = clopper_pearson(share, 7)
        assert (np.diff(lower) >= 0).all()
        assert (np.diff(upper) >= 0).all()
        assert ((lower <= share) & (share <= upper)).all()

    def test_numbers_of_pairs_may_differ(self):
        n = np.array([5, 50])
        found = clopper_pearson(np.full(2, 0.4), n)
        for i in range(2):
            np.testing.assert_allclose(found[:, i], clopper_pearson(np.array(0.4), int(n[i])))


class TestEnvelope:
    def test_it_is_left_where_it_is_rejected(self):
        """1000 sets of forty exchangeable curves at 0.1: exact, and said by p-value and band."""
        rng = np.random.default_rng(0)
        left = 0
        for _ in range(1000):
            curves = 0.5 + 0.02 * rng.normal(size=(40, 1)) + 0.03 * rng.normal(size=(40, 9))
            found = envelope(curves, 0.1)
            out = (found["ecdf"] < found["envelope_lower"] - 1e-9) | (
                found["ecdf"] > found["envelope_upper"] + 1e-9
            )
            assert out.any() == (found["pvalue"] <= 0.1)
            left += out.any()
        low, high = binom.interval(0.999, 1000, 0.1)
        assert low <= left <= high

    def test_the_first_curve_is_that_of_the_data(self):
        curves = np.full((20, 3), 0.5)
        curves[0] = [0.5, 0.9, 0.5]
        found = envelope(curves, 0.05)
        np.testing.assert_array_equal(found["ecdf"], curves[0])
        assert found["pvalue"] == 0.05
        np.testing.assert_allclose(found["lower"], 0.5)
        np.testing.assert_allclose(found["upper"], 0.5)
        assert found["envelope_upper"][1] < 0.9

import sys
from dataclasses import dataclass, replace
from types import ModuleType
from typing import ClassVar

import numpy as np
import pytest
import scipy.stats
from scipy.stats import binom

from assay.local.lc2st import LC2STResult
from assay.results import (
    Frozen,
    GlobalMaxT,
    Holm,
    MaxT,
    Result,
    Rowed,
    clopper_pearson,
    combined,
    envelope,
    false_discovery,
    holm,
    position,
    pvalue,
    step_down,
)


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
    inner: Rowed | None = None
    shared: ClassVar[tuple[str, ...]] = ("edges",)


def test_rows_of_parts():
    inner = Part(np.arange(6).reshape(3, 2), np.arange(3), "inner")
    row = Part(np.arange(3.0), np.arange(3), "whole", inner)[1]
    assert (row.values, row.name) == (1, "whole")
    assert row.inner.values.tolist() == [2, 3]
    assert row.edges.tolist() == row.inner.edges.tolist() == [0, 1, 2]


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


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Shopping(Result):
    """A result with a table of its own."""

    names: tuple[str, ...]
    heading: ClassVar[str] = "fruit"

    @property
    def labels(self):
        return self.names

    @property
    def _columns(self):
        return {"price": self.statistic, "weight": 2 * self.statistic}

    @property
    def sentence(self):
        return "Fruit & more."

    def _row(self, i):
        return shopping(self.names[i : i + 1], self.statistic[i : i + 1])


def shopping(names, prices):
    prices = np.array(prices)
    return Shopping(
        statistic=prices, null=prices, hypothesis="it is <cheap>", settings={}, names=names
    )


class TestTables:
    fruit = shopping(("apple", "<pear>"), (0.5, 1234.5))

    def test_table(self):
        head, apple, pear, *last = repr(self.fruit).splitlines()
        assert head.split() == ["fruit", "price", "weight"]
        assert apple.split() == ["apple", "0.500", "1"]
        assert pear.split() == ["<pear>", "1234", "2469"]
        assert len({len(head), len(apple), len(pear)}) == 1
        assert last == ["H0: it is <cheap>.", "Fruit & more."]
        assert len(self.fruit) == 2

    def test_html(self):
        page = self.fruit._repr_html_()
        assert page.startswith('<div class="assay"><style>')
        assert page.split("</style>")[1] == (
            "<table><caption>H0: it is &lt;cheap&gt;.</caption>"
            "<thead><tr><th>fruit</th><th>price</th><th>weight</th></tr></thead><tbody>"
            "<tr><td>apple</td><td>0.500</td><td>1</td></tr>"
            "<tr><td>&lt;pear&gt;</td><td>1234</td><td>2469</td></tr>"
            "</tbody></table><p>Fruit &amp; more.</p></div>"
        )

    def test_many_rows_in_a_notebook_are_counted(self):
        many = shopping(tuple(f"x{i}" for i in range(100)), (0.5,) * 100)
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

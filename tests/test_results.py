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
    clopper_pearson,
    combined,
    envelope,
    holm,
    position,
    pvalue,
    step_down,
)


def result(statistic, null, s=4):
    statistic, null = np.asarray(statistic, float), np.asarray(null, float)
    many, h = statistic.shape, null.shape[-1]
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
            (np.zeros(2), np.array([[-1.0, 1.0, 2.0], [-1.0, -1.0, -1.0]]), [0.75, 0.25]),
        ],
        ids=["never zero", "never more than one", "ties within rounding", "shapes"],
    )
    def test_counts(self, statistic, null, p):
        np.testing.assert_array_equal(pvalue(statistic, null), p)

    @pytest.mark.parametrize(("statistic", "null"), [(np.nan, 1.0), (1.0, np.nan), (1.0, np.inf)])
    def test_numbers_that_are_none(self, statistic, null):
        with pytest.raises(ValueError, match="statistic: expected finite numbers"):
            pvalue(np.array(statistic), np.array([null]))

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


def test_tables_and_sentences():
    text = repr(result(2.0, np.zeros(99)))
    assert text.splitlines()[0].split() == "x_o statistic null 95 % p ± error".split()
    assert text.splitlines()[1].split()[:4] == ["0", "2", "0", "0.010"]
    assert "H0: q = p." in text
    least = "with probability 0.010, the smallest possible with 99 null copies (ℓ-C2ST, 100 cal"
    assert least in " ".join(text.split())
    assert "± 0.050, from 99 null copies (ℓ-C2ST" in result(2.0, np.arange(99) / 25).sentence
    many = repr(result(np.ones(30), np.zeros((30, 99))))
    assert "... and 10 more" in many
    assert "At 30 of 30 observations the p-value is at most 0.05" in many
    page = replace(result(2.0, np.zeros(99)), hypothesis="<q> = p")._repr_html_()
    assert "<caption>H0: &lt;q&gt; = p.</caption>" in page
    assert "<tr><td>0</td><td>2</td><td>0</td><td>0.010</td>" in page


class TestCombined:
    def test_every_copy_is_treated_alike_and_scales_do_not_matter(self):
        rng = np.random.default_rng(0)
        statistics, order = rng.random((3, 2, 20)), rng.permutation(20)
        shuffled, scales = statistics[..., order], np.array([1.0, 1e-6, 1e3])[:, None, None]
        np.testing.assert_allclose(combined(statistics)[:, order], combined(shuffled), rtol=1e-9)
        np.testing.assert_allclose(combined(statistics), combined(statistics * scales), rtol=1e-6)
        np.testing.assert_array_equal(combined(statistics[:1]), statistics[0])

    def test_what_two_half_show_is_found_and_constants_tell_nothing(self):
        statistics = np.random.default_rng(0).random((2, 1, 100))
        statistics[:, :, 0] = np.sort(statistics[:, :, 1:])[:, :, -8]
        assert pvalue(combined(statistics)[:, 0], combined(statistics)[:, 1:]) < 0.05
        statistics[0] = 1
        assert (combined(statistics).argsort() == statistics[1].argsort()).all()


def test_step_down_controls_the_family_wise_error_whichever_are_true():
    """1000 repetitions, 50 statistics that depend on each other, half of them shifted."""
    rng = np.random.default_rng(0)
    loading = rng.normal(size=(50, 20)) / np.sqrt(20)
    wrong, power = 0, 0
    for _ in range(1000):
        scores = loading @ rng.normal(size=(20, 100)) + 0.5 * rng.normal(size=(50, 100))
        scores[25:, 0] += 5
        found = step_down(scores[:, 0], scores[:, 1:])
        assert (pvalue(scores[:, 0], scores[:, 1:]) - 1e-12 <= found).all()
        assert (found <= 1).all()
        wrong += (found[:25] <= 0.05).any()
        power += (found[25:] <= 0.05).mean()
    assert wrong <= binom.ppf(0.999, 1000, 0.05)
    assert power > 800


def test_false_discovery_rates_are_those_of_scipy():
    many = result([3.0, 0.1, 0.5], np.random.default_rng(0).random((3, 99)))
    np.testing.assert_array_equal(many.fdr, scipy.stats.false_discovery_control(many.pvalue))
    assert many[0].fdr == many[0].pvalue


class TestAdjustment:
    """How p-values at many observations are adjusted for their number, and how that is said."""

    statistic = np.array([9.0, 1.0, 4.0])
    null = np.random.default_rng(0).chisquare(2, (3, 99))

    @pytest.mark.parametrize(
        ("adjustment", "when"),
        [
            (MaxT(), "whichever of the local hypotheses are true"),
            (GlobalMaxT(), "if q is right at almost every x"),
            (Holm(), "whichever of the local hypotheses are true"),
        ],
        ids=repr,
    )
    def test_a_result_is_adjusted_by_its_own(self, adjustment, when):
        many = replace(result(self.statistic, self.null), adjustment=adjustment)
        expected = step_down(self.statistic, self.null)
        if isinstance(adjustment, Holm):
            expected = holm(pvalue(self.statistic, self.null))
        np.testing.assert_array_equal(many.adjusted, expected)
        assert [row["adjusted"] for row in many.table] == many.adjusted.tolist()
        assert adjustment.words.endswith(when)
        assert f"Corrected by {adjustment.words}." in many.sentence
        assert many[0].adjusted == many[0].pvalue
        assert "adjusted" not in many[0].table[0]

    @pytest.mark.parametrize(("nulls", "warned"), [(58, True), (59, False)])
    def test_too_few_nulls_for_holm(self, nulls, warned):
        """Three observations and a level of 0.05 ask for 59."""
        many = replace(result(self.statistic, self.null[:, :nulls]), adjustment=Holm())
        assert ("cannot be below 0.0508: take 59." in many.sentence) == warned


def test_rows_by_number_and_by_name():
    many = result([3.0, 0.1, 0.2], np.arange(27.0).reshape(3, 9))
    assert (len(many), many.labels) == (3, ("0", "1", "2"))
    for which, i in ((0, 0), (-1, 2), ("1", 1)):
        row = many[which]
        assert (row.statistic, row.null.tolist()) == (many.statistic[i], many.null[i].tolist())
        assert (row.many, row.probabilities.shape) == (False, (4,))
    one = result(3.0, np.ones(9))
    assert len(one) == 1
    assert one[0] is one[-1] is one["0"] is one


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
def test_a_row_that_is_not_there(which, kind, message):
    with pytest.raises(kind, match=message):
        position(("0", "1", "2"), which)


@dataclass(frozen=True)
class Part(Frozen):
    values: np.ndarray
    edges: np.ndarray
    inner: Frozen | None = None
    shared: ClassVar[tuple[str, ...]] = ("edges",)


def test_rows_of_parts_and_arrays_that_cannot_be_written():
    values = np.arange(6).reshape(3, 2)
    whole = Part(np.arange(3.0), np.arange(3), Part(values, np.arange(3)))
    values[1] = 9
    row = whole._take(1)
    assert row.values == 1
    assert row.inner.values.tolist() == [2, 3]
    assert row.edges.tolist() == row.inner.edges.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="read-only"):
        whole.values[0] = 1
    with pytest.raises(AttributeError):
        whole.values = 0


def test_frames(monkeypatch):
    """Rows without pandas; with it a stand-in, whose frames hold the rows they are made of."""
    many = result([3.0, 0.1], np.ones((2, 9)))
    rows = [{"x_o": label, **row} for label, row in zip("01", many.table, strict=True)]
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert many.to_frame() == rows
    pandas = ModuleType("pandas")
    monkeypatch.setitem(sys.modules, "pandas", pandas)
    # One that is broken is not hidden.
    with pytest.raises(ImportError, match="DataFrame"):
        many.to_frame()
    pandas.DataFrame = lambda rows: ("a frame", rows)
    assert many.to_frame() == ("a frame", rows)


class TestClopperPearson:
    @pytest.mark.parametrize("n", [1, 10, 200])
    def test_against_scipy(self, n):
        counts = np.unique(np.linspace(0, n, 11).astype(int))
        found = clopper_pearson(counts / n, n, 0.1)
        for i, count in enumerate(counts):
            exact = scipy.stats.binomtest(int(count), n).proportion_ci(0.9, "exact")
            assert found[:, i] == pytest.approx((exact.low, exact.high), abs=1e-9)

    def test_between_counts(self):
        """The ends rise with the share, and hold it; n may differ."""
        share = np.linspace(0, 1, 101)
        lower, upper = clopper_pearson(share, 7)
        assert (np.diff(lower) >= 0).all()
        assert (np.diff(upper) >= 0).all()
        assert ((lower <= share) & (share <= upper)).all()
        found = clopper_pearson(np.full(2, 0.4), np.array([5, 50]))
        np.testing.assert_allclose(found[:, 1], clopper_pearson(np.array(0.4), 50))


class TestEnvelope:
    def test_it_is_left_where_it_is_rejected(self):
        """1000 sets of forty exchangeable curves at 0.1: exact, and said by p-value and band."""
        rng = np.random.default_rng(0)
        left = 0
        for _ in range(1000):
            curves = 0.5 + 0.02 * rng.normal(size=(40, 1)) + 0.03 * rng.normal(size=(40, 9))
            found = envelope(curves, 0.1)
            low, high = found["envelope_lower"] - 1e-9, found["envelope_upper"] + 1e-9
            out = ((found["ecdf"] < low) | (found["ecdf"] > high)).any()
            assert out == (found["pvalue"] <= 0.1)
            left += out
        low, high = binom.interval(0.999, 1000, 0.1)
        assert low <= left <= high

    def test_the_first_curve_is_that_of_the_data(self):
        curves = np.full((20, 3), 0.5)
        curves[0] = [0.5, 0.9, 0.5]
        found = envelope(curves, 0.05)
        np.testing.assert_array_equal(found["ecdf"], curves[0])
        assert found["pvalue"] == 0.05
        np.testing.assert_allclose([found["lower"], found["upper"]], 0.5)
        assert found["envelope_upper"][1] < 0.9

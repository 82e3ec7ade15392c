import sys
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
import scipy.stats
from scipy.stats import binom

from assay.results import (
    Frozen,
    GlobalMaxT,
    Holm,
    LocalResult,
    MaxT,
    clopper_pearson,
    combined,
    envelope,
    holm,
    position,
    pvalue,
    step_down,
)


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class Found(LocalResult):
    @property
    def sentence(self):
        return f"{self._counted}. {self._adjusted_by}"


def result(statistic, null, adjustment=None):
    statistic, null = np.array(statistic, float), np.array(null, float)
    how = {"x": statistic, "settings": {}, "adjustment": adjustment or MaxT()}
    return Found(statistic=statistic, null=null, hypothesis="<q> = p", **how)


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
        found = result(statistic, null)
        expected = np.sqrt(found.pvalue * (1 - found.pvalue) / (1 + null.shape[-1]))
        np.testing.assert_allclose(found.pvalue_error, expected)

    @pytest.mark.parametrize(("statistic", "null"), [(np.nan, 1.0), (1.0, np.nan), (1.0, np.inf)])
    def test_numbers_that_are_none(self, statistic, null):
        with pytest.raises(ValueError, match="statistic: expected finite numbers"):
            pvalue(np.array(statistic), np.array([null]))


def test_against_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=20), rng.normal(0.4, size=20)
    known = scipy.stats.permutation_test(
        (a, b), lambda a, b: np.mean(b) - np.mean(a), n_resamples=199, rng=1, alternative="greater"
    )
    assert pvalue(known.statistic, known.null_distribution) == pytest.approx(known.pvalue)
    many = result([3.0, 0.1, 0.5], rng.random((3, 99)))
    np.testing.assert_array_equal(many.fdr, scipy.stats.false_discovery_control(many.pvalue))


def test_tables(monkeypatch):
    """As text, HTML and frames; with a module in the place of pandas, or none."""
    one, many = result(2.0, np.zeros(99)), result(np.ones(30), np.zeros((30, 99)))
    head, row, *words = repr(one).splitlines()
    assert head.split() == "x_o statistic null 95 % p ± error".split()
    assert row.split()[:4] == ["0", "2", "0", "0.010"]
    assert words[0] == "H0: <q> = p."
    assert "... and 10 more" in repr(many)
    assert "At 30 of 30 observations the p-value is at most 0.05" in repr(many)
    assert "<caption>H0: &lt;q&gt; = p.</caption>" in one._repr_html_()
    rows = [{"x_o": str(i), **row} for i, row in enumerate(many.table)]
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert many.to_frame() == rows
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=tuple))
    assert many.to_frame() == tuple(rows)


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
        wrong += (found[:25] <= 0.05).any()
        power += (found[25:] <= 0.05).mean()
    assert wrong <= binom.ppf(0.999, 1000, 0.05)
    assert power > 800


@pytest.mark.parametrize("adjustment", [MaxT(), GlobalMaxT(), Holm()], ids=repr)
def test_a_result_is_adjusted_by_its_own(adjustment):
    many = result([9.0, 1.0, 4.0], np.random.default_rng(0).chisquare(2, (3, 59)), adjustment)
    of_holm, of_max = isinstance(adjustment, Holm), isinstance(adjustment, GlobalMaxT)
    expected = holm(many.pvalue) if of_holm else step_down(many.statistic, many.null)
    np.testing.assert_array_equal(many.adjusted, expected)
    assert [row["adjusted"] for row in many.table] == many.adjusted.tolist()
    when = "if q is right at almost every x" if of_max else "whichever of the local hypotheses"
    assert when in adjustment.words
    assert f"Corrected by {adjustment.words}." in many.sentence
    assert many[0].adjusted == many[0].pvalue
    # Three observations and a level of 0.05 ask for 59 nulls.
    fewer = result(many.statistic, many.null[:, 1:], adjustment)
    warning = "cannot be below 0.0508: take 59."
    assert warning not in many.sentence
    assert (warning in fewer.sentence) == of_holm


def test_rows_by_number_and_by_name():
    many, one = result([3.0, 0.1, 0.2], np.arange(27.0).reshape(3, 9)), result(3.0, np.ones(9))
    assert (len(many), many.labels, len(one)) == (3, ("0", "1", "2"), 1)
    for which, i in ((0, 0), (-1, 2), ("1", 1)):
        row = many[which]
        assert (row.statistic, row.null.tolist()) == (many.statistic[i], many.null[i].tolist())
        assert not row.many
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

    @cached_property
    def total(self):
        return np.asarray(self.values.sum())


def test_rows_of_parts_and_arrays_that_cannot_be_written():
    values = np.arange(6).reshape(3, 2)
    whole = Part(np.arange(3.0), np.arange(3), Part(values, np.arange(3)))
    values[1] = 9
    assert whole.total == 3  # what is computed when it is asked for is no field
    row = whole._take(1)
    assert (row.values, row.inner.values.tolist()) == (1, [2, 3])
    assert row.edges.tolist() == row.inner.edges.tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="read-only"):
        whole.values[0] = 1


class TestClopperPearson:
    @pytest.mark.parametrize("n", [1, 10, 200])
    def test_against_scipy(self, n):
        counts = np.unique(np.linspace(0, n, 11).astype(int))
        found = clopper_pearson(counts / n, np.full(len(counts), n), 0.1)
        for i, count in enumerate(counts):
            exact = scipy.stats.binomtest(int(count), n).proportion_ci(0.9, "exact")
            assert found[:, i] == pytest.approx((exact.low, exact.high), abs=1e-9)

    def test_between_counts_the_ends_rise_with_the_share_and_hold_it(self):
        share = np.linspace(0, 1, 101)
        lower, upper = clopper_pearson(share, 7)
        assert (np.diff([lower, upper]) >= 0).all()
        assert ((lower <= share) & (share <= upper)).all()


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
        np.testing.assert_allclose([found["lower"], found["upper"]], 0.5)
        assert found["pvalue"] == 0.05

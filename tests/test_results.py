import numpy as np
import pytest
import scipy.stats
from scipy.stats import binom

from assay.results import LocalResult, adjusted, combined, pvalue, step_down


def result(statistic, null, s=4):
    statistic, null = np.asarray(statistic, float), np.asarray(null, float)
    many = statistic.shape
    h = null.shape[-1]
    return LocalResult(
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


def test_p_is_never_zero():
    assert pvalue(1e9, np.zeros(99)) == 0.01
    assert pvalue(0.0, np.ones(99)) == 1.0


def test_ties_count_within_rounding():
    assert pvalue(0.1 + 0.2, np.array([0.3] * 9)) == 1.0


def test_shapes():
    null = np.random.default_rng(0).normal(size=(5, 99))
    found = pvalue(np.zeros(5), null)
    np.testing.assert_array_equal(found, (1 + (null >= 0).sum(1)) / 100)


def test_against_scipy():
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=20), rng.normal(0.4, size=20)
    known = scipy.stats.permutation_test(
        (a, b), lambda a, b: np.mean(b) - np.mean(a), n_resamples=199, rng=1, alternative="greater"
    )
    assert pvalue(known.statistic, known.null_distribution) == pytest.approx(known.pvalue)


def test_the_error_of_p_is_that_of_a_share():
    one = result(1.0, np.arange(99) / 50)
    p = one.pvalue
    assert one.pvalue_error == pytest.approx(np.sqrt(p * (1 - p) / 100))


def test_table_and_sentence_of_one():
    text = repr(result(2.0, np.zeros(99)))
    assert "p-value" in text
    assert "0.0100" in text
    assert "H0: q = p." in text
    assert "with probability 0.0100 ± 0.00995 (ℓ-C2ST, 100 calibration pairs, 99 nulls)" in text


def test_table_and_sentence_of_many():
    text = repr(result(np.ones(30), np.zeros((30, 99))))
    assert "... and 10 more" in text
    assert "At 30 of 30 observations the p-value is at most 0.05" in text


def test_html_escapes():
    page = result(2.0, np.zeros(9))._repr_html_()
    assert page.startswith("<table>")
    assert "<td>0.100</td>" in page
    hostile = LocalResult(**{**vars(result(2.0, np.zeros(9))), "hypothesis": "<script>"})
    assert "<script>" not in hostile._repr_html_()


def test_results_are_frozen():
    with pytest.raises(AttributeError):
        result(1.0, np.zeros(9)).statistic = 0


class TestCombined:
    def test_one_stays_what_it_is(self):
        statistics = np.random.default_rng(0).random((1, 3, 20))
        np.testing.assert_array_equal(combined(statistics), statistics[0])

    def test_every_copy_is_treated_alike(self):
        rng = np.random.default_rng(0)
        statistics, order = rng.random((4, 2, 20)), rng.permutation(20)
        np.testing.assert_allclose(
            combined(statistics)[:, order], combined(statistics[..., order]), rtol=1e-10
        )

    def test_scales_do_not_matter(self):
        statistics = np.random.default_rng(0).random((3, 2, 20))
        scaled = statistics * np.array([1.0, 1e-6, 1e3])[:, None, None]
        np.testing.assert_allclose(combined(statistics), combined(scaled), rtol=1e-6)

    def test_what_two_half_see_is_seen(self):
        statistics = np.random.default_rng(0).random((2, 1, 100))
        statistics[:, :, 0] = np.sort(statistics[:, :, 1:])[:, :, -8]
        assert pvalue(combined(statistics)[:, 0], combined(statistics)[:, 1:]) < 0.05

    def test_constants_tell_nothing(self):
        statistics = np.stack([np.ones((1, 20)), np.random.default_rng(0).random((1, 20))])
        assert (combined(statistics).argsort() == statistics[1].argsort()).all()


@pytest.mark.parametrize(
    ("statistic", "null"), [(np.nan, [1.0]), (1.0, [np.nan]), (1.0, [np.inf])]
)
def test_numbers_that_are_none(statistic, null):
    with pytest.raises(ValueError, match="statistic: expected finite numbers"):
        pvalue(np.array(statistic), np.array(null))


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


def test_holm():
    np.testing.assert_allclose(adjusted(np.array([0.02, 0.01, 0.9])), [0.04, 0.03, 0.9])


def test_false_discovery_rates():
    many, one = result([3.0, 0.1], np.ones((2, 9))), result(3.0, np.ones(9))
    np.testing.assert_allclose(many.fdr, [0.2, 1.0])
    np.testing.assert_allclose(many.fdr_any, [0.3, 1.0])
    assert one.adjusted == one.pvalue == one.fdr == 0.1

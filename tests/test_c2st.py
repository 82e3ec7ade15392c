import math
import warnings
from importlib import import_module

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import sklearn.metrics
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from assay import MLP, Exchange, FreePermutation, Ridge, Sklearn, c2st
from assay._support.random import stream
from assay.c2st import (
    STATISTICS,
    acc0,
    accuracy,
    auc,
)
from assay.classifiers.base import Classifier
from assay.classifiers.features import Joint
from experiments.discriminant import LDA, QDA, Bayes
from tests.conftest import FunctionScores


def held_out(share):
    """One part is judged on, and not trained on."""
    return ShuffleSplit(1, test_size=share, random_state=0)


SMALL = MLP((16, 16), epochs=10, batch=64)
TINY = MLP((8,), epochs=3, batch=32)
FLAT = Ridge(Joint(16), penalties=0.1)
CLASSIFIERS = {
    "MLP": MLP((16, 16), epochs=40),
    "Ridge": FLAT,
    "Sklearn": Sklearn(LogisticRegression()),
    "QDA": QDA(),
    "LDA": LDA(),
}
# The statistics of a classifier that says 1/2 everywhere.
BLIND = {"accuracy": 0.5, "mse": 0, "auc": 0.5, "confidence": 0.5, "acc0": 0.5, "mse0": 0}


def samples(n_p, n_q, width=1.0, shift=0.0, m=2, seed=0):
    """Draws of N(0, I), the truth, and of N(shift, width^2 I) in place of it."""
    generator = stream(seed, "samples")
    p = torch.randn(n_p, m, generator=generator)
    return p, shift + width * torch.randn(n_q, m, generator=generator)


def normal(variance=1.0, mean=0.0):
    """The log-density of N(mean, variance I), of rows (b, m)."""
    return lambda v: (
        -((v - mean) ** 2).sum(1) / (2 * variance) - v.shape[1] / 2 * math.log(variance)
    )


def named(values):
    """One value for each statistic, by its name."""
    return dict(zip(STATISTICS, values, strict=True))


@pytest.mark.parametrize(
    "classifier", [SMALL, QDA(), Ridge(Joint(64))], ids=["MLP", "QDA", "Ridge"]
)
class TestTriple:
    """An exact, a conservative and an overconfident q, and the direction of the error."""

    def test_exact(self, classifier):
        result = c2st(*samples(400, 400), classifier, Exchange(39))
        assert (result.pvalue > 0.05).all()

    @pytest.mark.parametrize("width", [1.5, 0.65])
    def test_wrong(self, classifier, width):
        result = c2st(*samples(400, 400, width), classifier, Exchange(39))
        pvalues = named(result.pvalue)
        assert max(pvalues[name] for name in ("accuracy", "mse", "auc", "confidence")) == 1 / 40
        # In the tails of a q that is too wide a row is less likely to be true, and conversely.
        radius = np.linalg.norm(result.theta, axis=1)
        rank = scipy.stats.spearmanr(radius, result.probabilities).statistic
        assert rank * (1 if width < 1 else -1) > 0.5


@pytest.mark.parametrize("classifier", CLASSIFIERS.values(), ids=CLASSIFIERS)
class TestEveryClassifier:
    @pytest.mark.parametrize(("n_p", "n_q"), [(100, 100), (40, 130), (130, 40)])
    def test_a_gross_error(self, classifier, n_p, n_q):
        result = c2st(*samples(n_p, n_q, shift=2.0), classifier, Exchange(19))
        assert result["accuracy"].pvalue == 0.05
        assert result["accuracy"].statistic > 0.85
        assert result.probabilities[result.truth].mean() > 0.55
        assert result.probabilities[~result.truth].mean() < 0.45

    @pytest.mark.parametrize(("n_p", "n_q"), [(100, 420), (420, 100)])
    def test_even_odds(self, classifier, n_p, n_q):
        """Of rows that are four times as many, one that counted would say 0.2 or 0.8."""
        result = c2st(*samples(n_p, n_q), classifier, Exchange(1))
        assert result.probabilities.mean() == pytest.approx(0.5, abs=0.05)

    @pytest.mark.gpu
    @pytest.mark.parametrize(("n_p", "n_q"), [(200, 200), (100, 350), (350, 100)])
    def test_on_a_gpu(self, classifier, n_p, n_q):
        p, q = samples(n_p, n_q, width=1.3)
        here = c2st(p, q, classifier, Exchange(9))
        there = c2st(p.cuda(), q.cuda(), classifier, Exchange(9))
        np.testing.assert_array_equal(here.theta, there.theta)
        np.testing.assert_array_equal(here.truth, there.truth)
        np.testing.assert_allclose(here.statistic, there.statistic, atol=0.02)
        assert there.settings["device"] == "cuda:0"


@pytest.mark.parametrize(("n_p", "n_q"), [(100, 100), (100, 350), (350, 100)])
def test_held_out_rows_are_the_rows_given(n_p, n_q):
    p, q = samples(n_p, n_q)
    result = c2st(p, q, LDA(), Exchange(9))
    k = max(n_p, n_q) // min(n_p, n_q)
    used = {"used_p": 100 * (k if n_p > n_q else 1), "used_q": 100 * (k if n_q > n_p else 1)}
    assert {"n_p": n_p, "n_q": n_q, "sets": 100, "m": 2, **used}.items() <= result.settings.items()
    for rows, given in ((result.theta[result.truth], p), (result.theta[~result.truth], q)):
        assert {tuple(row) for row in rows} <= {tuple(row) for row in given.numpy()}
    counts = result.truth.sum(), (~result.truth).sum()
    assert counts == (used["used_p"], used["used_q"])
    assert len(np.unique(result.theta, axis=0)) == sum(counts)


def test_statistics_are_those_of_the_probabilities_shown():
    result = c2st(*samples(60, 130, width=1.4), QDA(), Exchange(9), held_out(0.5))
    d1, d0 = result.probabilities[result.truth], result.probabilities[~result.truth]
    assert (len(d1), len(d0)) == (30, 60)
    expected = {
        "accuracy": 0.5 * ((d1 > 0.5).mean() + (d0 < 0.5).mean()),
        "mse": 0.5 * (((d1 - 0.5) ** 2).mean() + ((d0 - 0.5) ** 2).mean()),
        "auc": scipy.stats.mannwhitneyu(d1, d0).statistic / (30 * 60),
        "confidence": 0.5 * (np.abs(d1 - 0.5).mean() + np.abs(d0 - 0.5).mean()) + 0.5,
        "acc0": (d0 < 0.5).mean(),
        "mse0": ((d0 - 0.5) ** 2).mean(),
    }
    assert result.names == tuple(expected)
    np.testing.assert_allclose(result.statistic, list(expected.values()), rtol=1e-5)


class Spy(Classifier):
    """A classifier that remembers which rows it was trained on, and knows nothing else."""

    def __init__(self):
        self.seen, self.asked = [], []

    def fit(self, copies, seed):
        self.seen.append({tuple(row) for row in copies.members.flatten(0, 1).tolist()})

        def scores(theta, x):
            self.asked.append({tuple(row) for row in theta[0].tolist()})
            return torch.full((1, len(copies), theta.shape[1]), 0.5)

        return FunctionScores(scores)


@pytest.mark.parametrize(("evaluation", "fits"), [(KFold(5), 5), (held_out(0.3), 1)])
def test_held_out_rows_are_never_trained_on(evaluation, fits):
    spy = Spy()
    result = c2st(*samples(50, 100), spy, Exchange(3), evaluation)
    assert len(spy.seen) == fits
    for seen, asked in zip(spy.seen, spy.asked, strict=True):
        assert not seen & asked
        assert len(seen | asked) == 150
    assert len(result.theta) == (150 if fits == 5 else 45)


def test_a_classifier_that_knows_nothing():
    result = c2st(*samples(50, 50), Spy(), Exchange(19))
    assert named(result.statistic) == BLIND
    assert (result.pvalue == 1).all()


class TestBayes:
    """The Bayes classifier, whose statistics are known."""

    @pytest.mark.parametrize(
        ("s", "shift"), [(0.1, 0), (0.5, 0), (0.9, 0), (1.5, 0), (1, 0.2), (1, 1.0), (1, 3.0)]
    )
    def test_closed_forms(self, s, shift):
        """q = N((shift, 0), I) and p = N(0, s I), of the squared radius or the first number.

        Widths are those of Figure 1 of the paper.
        """
        n, there = 100_000, torch.tensor([shift, 0.0])
        q, p = samples(n, n, math.sqrt(s))
        result = c2st(
            p, q + there, Bayes(normal(s), normal(mean=there)), Exchange(1), held_out(0.99)
        )
        law = scipy.stats.norm if shift else scipy.stats.expon
        laws = (law(), law(shift)) if shift else (law(scale=2 * s), law(scale=2))
        grid = np.linspace(-10 if shift else 0, 80, 200_001)
        truth, draws = (each.pdf(grid) for each in laws)
        d = np.divide(truth, truth + draws, out=np.full_like(grid, 0.5), where=draws > 1e-300)
        share = 0.5 + 0.25 * np.trapezoid(np.abs(truth - draws), grid)
        expected = {
            "accuracy": share,
            "confidence": share,
            "acc0": np.trapezoid(draws * (truth < draws), grid),
            "mse0": np.trapezoid(draws * (d - 0.5) ** 2, grid),
            "mse": np.trapezoid((truth + draws) / 2 * (d - 0.5) ** 2, grid),
        }
        if shift:
            expected["auc"] = scipy.stats.norm.cdf(shift / math.sqrt(2))
        found = named(result.statistic)
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, abs=4 * 0.5 / math.sqrt(n)), name

    def test_equal_densities(self):
        result = c2st(*samples(100, 100), Bayes(normal(), normal()), Exchange(1))
        assert named(result.statistic) == BLIND

    def test_what_can_be_tested(self):
        """It is no function of the labels, and so is a mean over equal classes."""
        p, q = samples(300, 300, width=0.7)
        result = c2st(p, q, Bayes(normal(), normal(0.49)), Exchange(99))
        pvalues = named(result.pvalue)
        assert pvalues["accuracy"] == pvalues["auc"] == 0.01
        assert pvalues["mse"] == pvalues["confidence"] == 1

    def test_quadratic_analysis_approaches_it(self):
        p, q = samples(20_000, 20_000, width=1.3, shift=0.2)
        bayes = c2st(p, q, Bayes(normal(), normal(1.69, 0.2)), Exchange(1))
        ours = c2st(p, q, QDA(), Exchange(1))
        np.testing.assert_allclose(ours.statistic, bayes.statistic, atol=0.01)


FOREST = Sklearn(make_pipeline(StandardScaler(), RandomForestClassifier(30)))
# The network of sbi's C2ST, for two columns.
THEIRS = MLPClassifier((20, 20), max_iter=1000, early_stopping=True, n_iter_no_change=50)
NETWORK = Sklearn(make_pipeline(StandardScaler(), THEIRS))


def accuracies(kind, classifier, shift, seeds):
    """Accuracies of sbi's C2ST, which scales its inputs by those of p, and ours, by seed."""
    peers = import_module("sbi.utils.metrics")
    given = {"classifier_kwargs": {"n_estimators": 30}} if kind == "rf" else {}
    p, q = samples(300, 300, shift=shift)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = [float(peers.c2st(p, q, i, classifier=kind, **given)) for i in range(seeds)]
    ours = [
        c2st(p, q, classifier, Exchange(1), seed=i)["accuracy"].statistic for i in range(seeds)
    ]
    return np.array(theirs), np.array(ours)


# The standard deviation of the difference between one run of theirs and one of ours, over twelve
# seeds each: folds and forests differ, the samples do not.
@pytest.mark.parametrize(("shift", "deviation"), [(0.0, 0.0226), (0.5, 0.0209), (3.0, 0.005)])
def test_against_sbi(shift, deviation):
    """The same forest on the same samples, two seeds each, within four standard errors."""
    theirs, ours = accuracies("rf", FOREST, shift, 2)
    assert ours.mean() == pytest.approx(theirs.mean(), abs=4 * deviation / math.sqrt(2))


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 0.5, 3.0])
@pytest.mark.parametrize(
    ("kind", "classifier"), [("rf", FOREST), ("mlp", NETWORK), ("mlp", MLP())]
)
def test_against_sbi_over_many_seeds(kind, classifier, shift):
    """Twelve seeds each; forest and network as theirs are alike, and ours tells as much."""
    theirs, ours = accuracies(kind, classifier, shift, 12)
    error = math.sqrt((theirs.var(ddof=1) + ours.var(ddof=1)) / 12)
    if isinstance(classifier, Sklearn):
        assert ours.mean() == pytest.approx(theirs.mean(), abs=4 * error)
    elif shift:
        assert ours.mean() > theirs.mean() - 2 * error


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(30, 30), (30, 95), (95, 30)])
def test_level_of_networks(sizes):
    """300 repetitions with one seed, within 99.9 % binomial intervals."""
    each = (samples(*sizes, seed=i) for i in range(300))
    found = np.stack([c2st(*pair, TINY, Exchange(19), KFold(2)).pvalue for pair in each])
    for alpha in (0.05, 0.2):
        low, high = scipy.stats.binom(300, alpha).interval(0.999)
        rejections = (found <= alpha + 1e-9).sum(0)
        assert (rejections <= high).all()
        assert low <= named(rejections)["mse"]


# Width, rows, what is held out, and statistics whose power is above a bound.
FIGURE_1 = {
    "at the blind spot": (0.5, 250, KFold(5), {"mse0": 0.9, "mse": 0.9}),
    # 2000 rows to train on, 10 000 to judge on. Published: 0.72, 0.78, 1.00, and 0.00 for Acc_0.
    "as published": (0.9, 12_000, held_out(10 / 12), {"mse0": 0.4, "mse": 0.4, "accuracy": 0.9}),
}


@pytest.mark.parametrize(
    "case", ["at the blind spot", pytest.param("as published", marks=pytest.mark.slow)]
)
def test_one_class_accuracy_misses_what_the_regression_finds(case):
    """100 runs of Figure 1 with QDA and 99 % intervals: power of Acc_0 is below 10 %.

    Acc_0 of the Bayes classifier is 1/2 exactly for s = 1/2.
    """
    s, n, evaluation, powers = FIGURE_1[case]
    pairs = (samples(n, n, math.sqrt(s), seed=i) for i in range(100))
    found = [c2st(p, q, QDA(), Exchange(39), evaluation).pvalue for q, p in pairs]
    counts = named((np.array(found) <= 0.05).sum(0).tolist())

    def interval(name):
        return scipy.stats.binomtest(counts[name], 100).proportion_ci(0.99)

    assert all(interval(name).low > least for name, least in powers.items())
    assert interval("acc0").high < 0.1


@pytest.mark.parametrize("classifier", [QDA(), TINY], ids=["QDA", "MLP"])
def test_the_order_of_rows_does_not_matter(classifier):
    p, q = samples(40, 90, width=1.3)
    first = c2st(p, q, classifier, Exchange(9))
    again = c2st(p.flip(0), q[torch.randperm(90)], classifier, Exchange(9))
    for name in ("null", "statistic", "theta"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))


@pytest.mark.parametrize("classifier", [QDA(), LDA(), FLAT], ids=["QDA", "LDA", "Ridge"])
@pytest.mark.parametrize("m", [1, 2])
def test_units_do_not_matter(classifier, m):
    p, q = (a.double() for a in samples(60, 60, width=1.3, m=m))
    first = c2st(p, q, classifier, Exchange(9))
    moved = c2st(1e3 * p + 7, 1e3 * q + 7, classifier, Exchange(9))
    np.testing.assert_allclose(first.statistic, moved.statistic, atol=1e-5)
    np.testing.assert_allclose(first.null, moved.null, atol=1e-5)


def test_the_same_seed_gives_the_same_result_and_no_generator_moves():
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, again, other = (c2st(*samples(40, 40), TINY, Exchange(5), seed=s) for s in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), states[0])
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])
    np.testing.assert_array_equal(first.null, again.null)
    assert not np.array_equal(first.null, other.null)


def test_arrays_and_numbers_of_copies():
    p, q = samples(40, 40)
    tensors = c2st(p, q, LDA(), Exchange(5))
    for given in ((p.numpy(), q.numpy(), LDA(), 5), (p.tolist(), q.tolist(), LDA(), Exchange(5))):
        np.testing.assert_allclose(c2st(*given).null, tensors.null, atol=1e-5)


def test_defaults():
    p, q = samples(20, 20)
    assert c2st(p, q, QDA()).null.shape == (6, 999)
    result = c2st(p, q)
    assert result.null.shape == (6, 99)
    assert result.settings["classifier"].startswith("MLP(")
    assert result.settings["evaluation"] == "KFold(n_splits=5, random_state=None, shuffle=False)"


def test_what_it_says():
    result = c2st(*samples(200, 430, shift=0.7), QDA(), Exchange(99))
    assert result.sentence.startswith("A classifier tells q from p in 7")
    assert "(50 % if they were the same)" in result.sentence
    assert "a value of mse at least as large" in result.sentence
    assert "(200 draws of p, 400 draws of q, 99 nulls)" in result.sentence
    assert [row["p-value"] for row in result.table] == result.pvalue.tolist()
    assert "accuracy" in repr(result)
    assert "H0: p and q have the same distribution." in repr(result)
    assert "<td>mse0</td>" in result._repr_html_()


def test_one_statistic_alone():
    result = c2st(*samples(60, 60), QDA(), Exchange(19))
    one = result["auc"]
    assert one.statistic.shape == one.pvalue.shape == ()
    assert one.null.shape == (19,)
    assert one.pvalue == result[2].pvalue == result.pvalue[2]
    assert "a value of auc at least as large" in one.sentence
    assert one["auc"].pvalue == one[0].pvalue == one.pvalue
    assert (len(result), len(one)) == (6, 1)
    assert (result.labels, one.labels) == (tuple(STATISTICS), ("auc",))
    with pytest.raises(KeyError, match="expected one of accuracy, mse, auc"):
        result["t"]


def nan(array):
    array = array.clone()
    array[3, 1] = torch.nan
    return array


P, Q = samples(40, 40)
BAD = {
    "one axis": ((P[:, 0], Q), r"p: expected shape \(n, m\); got \(40,\).*p.reshape\(-1, 1\)"),
    "three axes": ((P, Q[None]), r"q: expected shape \(n, m\); got \(1, 40, 2\)"),
    "other columns": ((P, Q[:, :1]), r"q: expected 2 column\(s\), as p has; got 1"),
    "NaN": ((P, nan(Q)), r"q: expected finite numbers; .* 1 of 40 rows, first at \[3\]"),
    "few rows": ((P[:5], Q), "p: expected at least 10 rows; got 5"),
    "the same": ((P, P), "q: expected draws of its own; got the rows of p"),
    "the same, shuffled": ((P, P.flip(0)), "q: expected draws of its own"),
    "a part of it": ((P, P[:20]), "q: expected draws of its own"),
    "words": ((P, [["a", "b"]] * 40), "q: expected an array of real numbers"),
}


@pytest.mark.parametrize(("given", "message"), BAD.values(), ids=BAD)
def test_bad_samples(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        c2st(*given)


class Wrong(Classifier):
    def __init__(self, answer):
        self.answer = answer

    def fit(self, copies, seed):
        return FunctionScores(lambda theta, x: self.answer(theta, len(copies)))


DUCK = type("Duck", (), {"fit": lambda self, copies, seed: None})()
SHORT = Wrong(lambda theta, c: torch.zeros(3))
LARGE = Wrong(lambda theta, c: torch.full((1, c, 16), 2.0))
BAD_PARTS = {
    "a class": ((LogisticRegression,), TypeError, "classifier: expected a classifier"),
    "a duck": ((DUCK,), TypeError, "classifier: expected a classifier .*got Duck"),
    "permutations": ((LDA(), FreePermutation(9)), TypeError, "null: expected .* such as Exchange"),
    "a class of nulls": ((LDA(), Exchange), TypeError, "null: expected .* such as Exchange"),
    "half a null": ((LDA(), 9.5), TypeError, "null: expected .* such as Exchange"),
    "a number of folds": ((LDA(), 9, 5), TypeError, "evaluation: expected a splitter such as KF"),
    "many folds": (
        (LDA(), 9, KFold(50)),
        ValueError,
        "evaluation: expected .* splits 40 sets",
    ),
    "a shape": ((SHORT, 3), ValueError, r"classifier: expected scores .* \(1, 4, 16\)"),
    "no probability": ((LARGE, 3), ValueError, "classifier: expected probabilities between 0 and"),
}


@pytest.mark.parametrize(("given", "kind", "message"), BAD_PARTS.values(), ids=BAD_PARTS)
def test_bad_parts(given, kind, message):
    with pytest.raises(kind, match=message):
        c2st(P, Q, *given)


def test_discrete_samples_may_consist_of_the_same_values():
    p, q = torch.arange(40.0)[:, None] % 2, torch.arange(60.0)[:, None] % 2
    assert (c2st(p, q, LDA(), Exchange(9)).pvalue > 0.05).all()


class TestStatistics:
    """One half counts half, in every statistic that compares."""

    def test_by_hand(self):
        d = np.array([[0.5, 0.5, 0.5, 0.5], [0.1, 0.4, 0.6, 0.9], [0.1, 0.4, 0.5, 0.9]])
        np.testing.assert_allclose(acc0(d), [0.5, 0.5, 0.625])
        truths, draws = np.array([0.9, 0.5, 0.2]), np.array([0.1, 0.5])
        assert accuracy(truths, draws) == pytest.approx((1.5 / 3 + 0.75) / 2)

    def test_auc_against_scikit_learn(self):
        d = np.random.default_rng(0).integers(20, size=(4, 50)) / 20
        expected = [sklearn.metrics.roc_auc_score(np.arange(50) < 20, row) for row in d]
        np.testing.assert_allclose(auc(d[:, :20], d[:, 20:]), expected)

    @pytest.mark.parametrize("name", STATISTICS)
    def test_axes(self, name):
        d = np.random.default_rng(0).uniform(size=(3, 5, 100)).astype(np.float32)
        found = STATISTICS[name](d[..., :30], d[..., 30:])
        assert found.shape == (3, 5)
        assert found.dtype == np.float64
        alone = STATISTICS[name](d[1, 2, :30], d[1, 2, 30:])
        assert found[1, 2] == pytest.approx(float(alone))

"""The classifier two-sample test: its verdicts, its statistics, and what it is fitted to."""

import math
import warnings

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold, ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from assay import MLP, Exchange, FreePermutation, Ridge, Sklearn, c2st
from assay._support.random import stream
from assay.c2st import STATISTICS, statistics
from assay.classifiers.features import Joint
from experiments.discriminant import LDA, QDA, Bayes
from tests.local.test_lc2st import Constant, Spy

SMALL = MLP((16, 16), epochs=10, batch=64)
TINY = MLP((8,), epochs=3, batch=32)
FLAT = Ridge(Joint(16), penalties=0.1)
CLASSIFIERS = [MLP((16, 16), epochs=40), FLAT, Sklearn(LogisticRegression()), QDA(), LDA()]
SPLIT = ShuffleSplit(1, test_size=0.5, random_state=0)


def samples(n_p, n_q, width=1.0, shift=0.0, m=2, seed=0):
    """Draws of N(0, I), the truth, and of N(shift, width^2 I) in place of it."""
    generator = stream(seed, "samples")
    p = torch.randn(n_p, m, generator=generator)
    return p, shift + width * torch.randn(n_q, m, generator=generator)


def normal(variance=1.0, mean=0.0):
    """The log-density of N(mean, variance I), of rows (b, 2)."""
    return lambda v: -((v - mean) ** 2).sum(1) / (2 * variance) - math.log(variance)


@pytest.mark.parametrize("classifier", [SMALL, QDA(), Ridge(Joint(64))], ids=repr)
@pytest.mark.parametrize("width", [1.0, 1.5, 0.65])
def test_an_exact_a_conservative_and_an_overconfident_q(classifier, width):
    result = c2st(*samples(400, 400, width), classifier, 39)
    assert (result.pvalue[:4] == 1 / 40).all() if width != 1 else (result.pvalue > 0.05).all()
    # In the tails of a q that is too wide a row is less likely to be true, and conversely.
    radius = np.linalg.norm(result.theta, axis=1)
    rank = scipy.stats.spearmanr(radius, result.probabilities).statistic
    assert width == 1 or rank * (1 if width < 1 else -1) > 0.5


@pytest.mark.parametrize("classifier", CLASSIFIERS, ids=repr)
@pytest.mark.parametrize(("n_p", "n_q"), [(100, 100), (100, 420), (420, 100)])
def test_a_gross_error_and_even_odds(classifier, n_p, n_q):
    """Of rows that are four times as many, one that counted would say 0.2 or 0.8."""
    result = c2st(*samples(n_p, n_q, shift=2.0), classifier, 19)
    assert (result.pvalue[0], result.statistic[0] > 0.85) == (0.05, True)
    assert result.probabilities[result.truth].mean() > 0.55
    assert result.probabilities[~result.truth].mean() < 0.45
    right = c2st(*samples(n_p, n_q), classifier, 1)
    assert right.probabilities.mean() == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("evaluation", [KFold(5), SPLIT])
@pytest.mark.parametrize(("n_p", "n_q"), [(100, 100), (100, 350), (350, 100)])
def test_held_out_rows_are_never_trained_on(n_p, n_q, evaluation):
    spy, (p, q) = Spy(), samples(n_p, n_q)
    result = c2st(p, q, spy, 3, evaluation)
    k = max(n_p, n_q) // min(n_p, n_q)
    used = {"used_p": 100 * (k if n_p > n_q else 1), "used_q": 100 * (k if n_q > n_p else 1)}
    assert {"n_p": n_p, "n_q": n_q, "sets": 100, "m": 2, **used}.items() <= result.settings.items()
    for trained, asked in zip(spy.trained, spy.asked, strict=True):
        assert not trained & asked
        assert len(trained | asked) == sum(used.values())
    for rows, given in ((result.theta[result.truth], p), (result.theta[~result.truth], q)):
        assert {tuple(row) for row in rows} <= {tuple(row) for row in given.numpy()}
    share = 0.5 if evaluation is SPLIT else 1
    assert len(np.unique(result.theta, axis=0)) == len(result.theta) == share * sum(used.values())


def test_statistics_are_those_of_the_probabilities():
    """One half counts half, in every statistic that compares."""
    result = c2st(*samples(60, 130, width=1.4), QDA(), 9, SPLIT)
    ties = np.random.default_rng(0).integers(11, size=90) / 10
    for d in (ties, result.probabilities):
        d1, d0 = d[result.truth], d[~result.truth]  # (30,) and (60,)
        far1, far0 = (np.abs(d - 0.5) for d in (d1, d0))
        right1, right0 = (np.heaviside(each, 0.5).mean() for each in (d1 - 0.5, 0.5 - d0))
        mse1, mse0 = (far1**2).mean(), (far0**2).mean()
        auc = sklearn.metrics.roc_auc_score(result.truth, d)
        both = (right1 + right0, mse1 + mse0, 2 * auc, far1.mean() + far0.mean() + 1)
        np.testing.assert_allclose(statistics(d1, d0), [*(b / 2 for b in both), right0, mse0])
    np.testing.assert_allclose(result.statistic, statistics(d1, d0))


def test_a_classifier_that_knows_nothing():
    blind = c2st(*samples(50, 50), Constant(0.5, 1, 20, 20), 19)
    assert blind.statistic.tolist() == [0.5, 0, 0.5, 0.5, 0.5, 0]
    assert (blind.pvalue == 1).all()


@pytest.mark.parametrize("shift", [0, 0.2, 1.0, 3.0])
def test_closed_forms_of_the_bayes_classifier(shift):
    """q = N((shift, 0), I); p = N(0, I), or N(0, I / 2) without a shift, where Acc_0 is 1/2."""
    n, s, there = 100_000, 1 if shift else 0.5, torch.tensor([shift, 0.0])
    q, p = samples(n, n, math.sqrt(s))
    bayes = Bayes(normal(s), normal(mean=there))
    found = dict(zip(STATISTICS, c2st(p, q + there, bayes, 1).statistic, strict=True))
    right, auc = scipy.stats.norm.cdf([shift / 2, shift / math.sqrt(2)])
    shifted = {"accuracy": right, "confidence": right, "acc0": right, "auc": auc}
    half = {"accuracy": 0.625, "confidence": 0.625, "acc0": 0.5}
    for name, value in (shifted if shift else half).items():
        assert found[name] == pytest.approx(value, abs=4 * 0.5 / math.sqrt(n)), name


def test_what_can_be_tested_with_the_bayes_classifier():
    """It is no function of the labels, and so is a mean over equal classes."""
    result = c2st(*samples(300, 300, width=0.7), Bayes(normal(), normal(0.49)), 99)
    assert result.pvalue[:4].tolist() == [0.01, 1, 0.01, 1]


# The standard deviation of the difference between one run of theirs and one of ours, over twelve
# seeds each: folds and forests differ, the samples do not.
@pytest.mark.parametrize(("shift", "deviation"), [(0.0, 0.0226), (0.5, 0.0209), (3.0, 0.005)])
def test_against_sbi(shift, deviation):
    """The same forest on the same samples, two seeds each, within four standard errors."""
    from sbi.utils.metrics import c2st as theirs

    p, q = samples(300, 300, shift=shift)
    forest = Sklearn(make_pipeline(StandardScaler(), RandomForestClassifier(30)))
    how = {"classifier": "rf", "classifier_kwargs": {"n_estimators": 30}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.mean([float(theirs(p, q, seed, **how)) for seed in range(2)])
    found = np.mean([c2st(p, q, forest, 1, seed=seed)["accuracy"].statistic for seed in range(2)])
    assert found == pytest.approx(expected, abs=4 * deviation / math.sqrt(2))


def test_the_order_of_rows_does_not_matter():
    p, q = samples(40, 90, width=1.3)
    first, other = (c2st(p, q, TINY, 9, seed=seed) for seed in (3, 4))
    arrays = p.flip(0).numpy(), q[q[:, 0].argsort()].numpy()
    again = c2st(*arrays, TINY, Exchange(9), seed=3)
    for name in ("null", "statistic", "theta"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert not np.array_equal(first.null, other.null)


@pytest.mark.parametrize("m", [1, 2])
def test_units_do_not_matter(m):
    p, q = (a.double() for a in samples(60, 60, width=1.3, m=m))
    first, moved = c2st(p, q, FLAT, 9), c2st(1e3 * p + 7, 1e3 * q + 7, FLAT, 9)
    np.testing.assert_allclose(first.statistic, moved.statistic, atol=1e-5)
    np.testing.assert_allclose(first.null, moved.null, atol=1e-5)


def test_defaults():
    p, q = samples(20, 20)
    closed, result = c2st(p, q, QDA()), c2st(p, q)
    assert (closed.null.shape, result.null.shape) == ((6, 999), (6, 99))
    assert result.settings["classifier"].startswith("MLP(")
    assert result.settings["evaluation"] == "KFold(n_splits=5, random_state=None, shuffle=False)"


def test_what_it_says():
    result = c2st(*samples(200, 430, shift=0.7), QDA(), 99)
    assert result.sentence.startswith("A classifier tells q from p in 7")
    assert "(200 draws of p, 400 draws of q, 99 nulls)" in result.sentence
    one = result["auc"]
    assert (one.statistic.shape, one.null.shape) == ((), (99,))
    assert one["auc"].pvalue == one[0].pvalue == one.pvalue == result[2].pvalue == result.pvalue[2]
    assert "a value of auc at least as large" in one.sentence
    with pytest.raises(KeyError, match="expected one of accuracy, mse, auc"):
        result["t"]


P, Q = samples(40, 40)
NAN = Q.clone()
NAN[3, 1] = torch.nan
BAD = {
    "one axis": ((P[:, 0], Q), r"p: expected shape \(n, m\); got \(40,\).*p.reshape\(-1, 1\)"),
    "other columns": ((P, Q[:, :1]), r"q: expected 2 column\(s\), as p has; got 1"),
    "NaN": ((P, NAN), r"q: expected finite numbers; .* 1 of 40 rows, first at \[3\]"),
    "few rows": ((P[:5], Q), "p: expected at least 10 rows; got 5"),
    "the same, shuffled": ((P, P.flip(0)), "q: expected draws of its own; got the rows of p"),
    "a class": ((P, Q, QDA), "classifier: expected a classifier .*got the class QDA"),
    "permutations": ((P, Q, LDA(), FreePermutation(9)), "null: expected .* such as Exchange"),
    "a number of folds": ((P, Q, LDA(), 9, 5), "evaluation: expected a splitter such as KF"),
    "many folds": ((P, Q, LDA(), 9, KFold(50)), "evaluation: expected .* splits 40 sets"),
    "a shape": ((P, Q, Constant(0.5, 3), 3), r"classifier: expected scores .* \(1, 4, 16\)"),
    "no probability": ((P, Q, Constant(2.0), 3), "classifier: expected probabilities between"),
}


@pytest.mark.parametrize(("given", "message"), BAD.values(), ids=BAD)
def test_bad_input(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        c2st(*given)


def test_discrete_samples_may_consist_of_the_same_values():
    p, q = torch.arange(40.0)[:, None] % 2, torch.arange(60.0)[:, None] % 2
    assert (c2st(p, q, LDA(), 9).pvalue > 0.05).all()

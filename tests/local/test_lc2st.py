"""The local classifier two-sample test: its verdicts, its recipe on other data, its quality."""

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from sklearn.metrics import log_loss, roc_auc_score

import assay
from assay import MLP, Draws, Exchange, FreePermutation, KnownBase, LocalExchange, Ridge, lc2st
from assay._support.random import stream
from assay.classifiers.base import Classifier
from assay.local.lc2st import Quality, mse0
from tests.conftest import FunctionScores

X_O = torch.tensor([0.5, -0.5])
SMALL = MLP((16, 16), epochs=10, batch=64)
TINY = MLP((8,), epochs=2, batch=32)
SPACES = ["parameters", "latents"]


def fitted(posterior, space, n=1000, classifier=SMALL, **settings):
    latent = space == "latents"
    calibration = posterior.latents(n) if latent else posterior.calibration(n)
    null = Exchange(99) if not latent or classifier == Ridge() else KnownBase(99)
    draws = Draws(X_O) if latent else posterior.draws(X_O)
    return lc2st(calibration, classifier, null, **settings)(draws)


@pytest.mark.parametrize("classifier", [SMALL, Ridge()], ids=["MLP", "Ridge"])
@pytest.mark.parametrize("space", SPACES)
@pytest.mark.parametrize("width", [1.0, 1.5, 0.6])
def test_an_exact_a_conservative_and_an_overconfident_q(gaussian, space, classifier, width):
    result = fitted(gaussian(width=width), space, classifier=classifier)
    assert result.pvalue > 0.05 if width == 1 else result.pvalue == 0.01
    # The outer draws of a q that is too wide are less likely to be true, and conversely.
    centre = X_O.numpy() / 2 if space == "parameters" else 0
    radius = np.linalg.norm(result.draws - centre, axis=1)
    correlation = scipy.stats.spearmanr(radius, result.probabilities).statistic
    assert width == 1 or correlation * (1 if width < 1 else -1) > 0.7


@pytest.mark.parametrize("space", SPACES)
def test_against_the_bayes_classifier(gaussian, space):
    """With many pairs the network nears d* = p / (p + q), which is known for Gaussians."""
    posterior = gaussian(width=1.3, shift=0.3)
    calibration, draws, null = posterior.calibration(20_000), posterior.draws(X_O), Exchange(1)
    if space == "latents":
        calibration, draws, null = calibration.to_latent(posterior), Draws(X_O), KnownBase(1)
    result = lc2st(calibration, null=null)(draws)
    exact = posterior.bayes(torch.tensor(result.theta), X_O).numpy()
    assert np.abs(result.probabilities - exact).mean() < 0.03
    assert result.statistic == pytest.approx(mse0(exact), rel=0.25)


def test_the_statistic_by_hand():
    d = np.array([[0.5, 0.5, 0.5, 0.5], [0.1, 0.4, 0.6, 0.9]])
    np.testing.assert_allclose(mse0(d), [0, (0.16 + 0.01 + 0.01 + 0.16) / 4], atol=1e-12)


def distance(d):
    return np.abs(d - 0.5).mean(-1)


def test_a_statistic_of_ones_own_and_what_a_result_says(gaussian):
    result = fitted(gaussian(width=1.5), "latents", statistic=distance)
    assert result.pvalue == 0.01
    assert result.statistic == pytest.approx(float(distance(result.probabilities)))
    assert result.hypothesis == "q(theta | x) = p(theta | x) at almost every x, tested at x_o"
    assert "at x_o would occur with probability 0.010, the smallest possible" in result.sentence
    expected = {"test": "ℓ-C2ST-NF", "n": 1000, "m": 2, "k": None, "d": 2, "seed": 0}
    expected |= {"statistic": "distance", "null": "KnownBase(n=99)", "combined": False}
    assert expected.items() <= result.settings.items()


@pytest.mark.parametrize("null", [Exchange(9), FreePermutation(9), KnownBase(9), LocalExchange(9)])
def test_one_observation_is_a_row_of_many(gaussian, null):
    latent = null == KnownBase(9)
    posterior, x_o = gaussian(width=1.2), torch.stack([X_O, -X_O, 2 * X_O])
    calibration = posterior.latents(60) if latent else posterior.calibration(60)
    test = lc2st(calibration, TINY, null)
    draws = Draws(x_o, n=30) if latent else posterior.draws(x_o, n=30)
    many, one = test(draws), test(Draws(x_o[1], None if latent else draws.theta[1], n=30))
    assert (many.statistic.shape, many.null.shape, many.x.shape) == ((3,), (3, 9), (3, 2))
    assert (one.statistic.shape, many.null_probabilities.shape) == ((), (3, 9, 30))
    np.testing.assert_array_equal(many.probabilities[1], one.probabilities)
    np.testing.assert_array_equal(many.null[1], one.null)
    curve, curves = one.pp_curve(0.2), many.pp_curve(0.2)
    for name in ("ecdf", "lower", "envelope_upper", "pvalue"):
        np.testing.assert_array_equal(getattr(curves, name)[1], getattr(curve, name))
    shares = [(1 - one.probabilities <= np.float32(c)).mean() for c in curve.levels[::50]]
    np.testing.assert_array_equal(curve.ecdf[::50], shares)
    assert "of 3 observations the p-value is at most 0.05" in many.sentence


@pytest.mark.parametrize("space", SPACES)
def test_the_same_seed_gives_the_same_result(gaussian, space):
    seeds = (5, 5, 6, *(torch.Generator().manual_seed(4) for _ in range(2)))
    five, again, six, *four = (fitted(gaussian(), space, 60, TINY, seed=seed) for seed in seeds)
    np.testing.assert_array_equal(five.null_probabilities, again.null_probabilities)
    np.testing.assert_array_equal(four[0].null, four[1].null)
    assert not np.array_equal(five.probabilities, six.probabilities)


def test_default_nulls_and_numbers_of_copies(gaussian):
    assert lc2st(gaussian().calibration(30), TINY).null == Exchange(199)
    assert lc2st(gaussian().latents(30), TINY).null == KnownBase(199)
    one, two = (lc2st(gaussian().latents(30), TINY, null) for null in (5, KnownBase(5)))
    assert repr(one) == repr(two)
    np.testing.assert_array_equal(one(X_O).null, two(Draws(X_O)).null)


class Constant(Classifier):
    """A classifier with scores of one value, of another shape if one is given."""

    def __init__(self, value, *shape):
        self.value, self.shape = value, shape

    def fit(self, copies, seed):
        def scores(theta, x):
            return torch.full(self.shape or (len(theta), len(copies), theta.shape[1]), self.value)

        return FunctionScores(scores)


def ask(c, classifier=TINY, statistic=mse0, theta=((0.0, 0.0),) * 500, x_o=X_O):
    return lc2st(c, classifier, 3, statistic)(Draws(x_o, theta))


BAD = {
    "calibration": (lambda c: lc2st(c.theta), "calibration: expected"),
    "a classifier": (lambda c: lc2st(c, Exchange(9)), "classifier: expected"),
    "a base": (lambda c: lc2st(c, TINY, KnownBase(3)), "null: expected .* in latent space"),
    "a name": (lambda c: lc2st(c, TINY, 3, "mse0"), "statistic: expected a function"),
    "folds": (lambda c: lc2st(c, TINY, 3).quality(1), "folds: expected at least 2"),
    "shape": (lambda c: ask(c, Constant(0.5, 1, 500, 4)), "classifier: expected .* with shape"),
    "nan": (lambda c: ask(c, Constant(torch.nan)), "classifier: expected .* between 0 and 1"),
    "too large": (lambda c: ask(c, Constant(1.5)), "between 0 and 1; got 1.5"),
    "a mean": (lambda c: ask(c, TINY, np.mean), "statistic: expected a function that maps"),
    "none": (lambda c: ask(c, TINY, lambda d: d[..., 0] * np.nan), "statistic: expected finite"),
    "an error": (lambda c: ask(c, TINY, lambda d: 1 / 0), "statistic: .*; got ZeroDivisionError"),
    "no draws": (lambda c: ask(c, theta=None), r"draws: expected Draws\(x_o, theta_o\)"),
    "training": (lambda c: ask(c, theta=c.theta_q[3], x_o=c.x[3]), "theta_o: expected fresh"),
    "huge": (lambda c: ask(c, theta=((1e300, 0.0),) * 9), "theta_o: .*beyond the range"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input(gaussian, call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(gaussian().calibration(60, k=4))


def test_nulls_of_a_known_base_are_those_of_x_the_base_and_the_seed(
    gaussian, monkeypatch, tmp_path
):
    """Another flow is fitted bit for bit as by a test that fits everything, for one fit."""
    counts, fit, latents = [], MLP.fit, gaussian().latents(60)

    def counted(classifier, copies, seed):
        counts.append(len(copies))
        return fit(classifier, copies, seed)

    monkeypatch.setattr(MLP, "fit", counted)
    assay.save(lc2st(latents, TINY, KnownBase(9), seed=3), tmp_path / "test")
    test = assay.load(tmp_path / "test")
    base = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(2), 3.0), 1)
    order = torch.randperm(60, generator=stream(0, "order"))
    for other, fits in (
        (gaussian(width=2.0).latents(60), 1),
        (gaussian(shift=1.0).latents(60).subset(order), 1),
        (gaussian().latents(60, seed=1), 10),
        (gaussian().latents(50), 10),
        (assay.Calibration.from_base(3 * latents.theta, latents.x, base), 10),
    ):
        again, there = test.refit_on(other), Draws(torch.ones(2), n=100)
        assert counts.pop() == fits
        test = again if fits == 1 else test
        one, two = again(there), lc2st(other, TINY, KnownBase(9), seed=3)(there)
        np.testing.assert_array_equal(one.probabilities, two.probabilities)
        np.testing.assert_array_equal(one.null_probabilities, two.null_probabilities)


class Spy(Classifier):
    """A classifier that remembers what it was trained on and asked for; it scores by theta."""

    def __init__(self):
        self.trained, self.asked = [], []

    def fit(self, copies, seed):
        self.trained.append({tuple(row) for row in copies.members.flatten(0, 1).tolist()})

        def scores(theta, x):
            self.asked.append({tuple(row) for row in theta.flatten(0, 1).tolist()})
            return theta[..., 0].sigmoid()[:, None].expand(-1, len(copies), -1)

        return FunctionScores(scores)


class TestQuality:
    @pytest.mark.parametrize("folds", [2, 5])
    def test_every_set_is_held_out_once_and_never_trained_on(self, gaussian, folds):
        calibration, spy = gaussian().calibration(60, k=3), Spy()
        found = lc2st(calibration, spy, 1).quality(folds)
        spy.trained.pop(0)  # with which the test itself was fitted
        assert len(spy.trained) == folds
        for trained, asked in zip(spy.trained, spy.asked, strict=True):
            assert not trained & asked
            assert len(trained | asked) == 60 * 4
        # The true parameters, each once, and one draw of q at the same x.
        given = calibration.theta[:, 0].sigmoid()
        np.testing.assert_allclose(np.sort(found.truths), given.sort().values)
        draws = torch.tensor(scipy.special.logit(found.draws.astype(float)))  # (60,)
        distances = (draws[:, None] - calibration.theta_q[..., 0].flatten()).abs()
        assert distances.min(1).values.max() < 1e-4

    def test_numbers_against_scikit_learn(self):
        rng = np.random.default_rng(0)
        found = Quality(truths=rng.beta(2, 1, 300).round(2), draws=rng.beta(1, 2, 300).round(2))
        labels, d = np.repeat([1, 0], 300), np.concatenate([found.truths, found.draws])
        assert found.auc == pytest.approx(roc_auc_score(labels, d))
        assert found.log_loss == pytest.approx(log_loss(labels, d.clip(1e-6, 1 - 1e-6)))
        assert f"AUC {found.auc:.3f}" in repr(found)

    def test_reliability_of_probabilities_that_are_right(self):
        """With densities 2 d of true parameters and 2 (1 - d) of draws, a share d are true."""
        rng = np.random.default_rng(0)
        found = Quality(truths=rng.beta(2, 1, 20_000), draws=rng.beta(1, 2, 20_000))
        predicted, observed, lower, upper = found.reliability()
        np.testing.assert_allclose(predicted, np.arange(0.05, 1, 0.1), atol=0.01)
        np.testing.assert_allclose(observed, predicted, atol=0.03)
        assert ((lower < observed) & (observed < upper)).all()

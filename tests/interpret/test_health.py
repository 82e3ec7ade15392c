import html
import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import scipy.stats
import sklearn.metrics
import torch
from sklearn.linear_model import LogisticRegression

import assay
from assay import MLP, Exchange, KnownBase, LocalExchange, Ridge, Sklearn, lc2st
from assay._core import stream
from assay.classifiers import LDA, QDA
from assay.classifiers.base import Classifier, Scores
from assay.classifiers.features import Joint
from assay.interpret.health import Health, _auc, _Bins, _perfect, health, x_alone
from assay.nulls.turns import Permuted

TINY = MLP((8,), epochs=2, batch=32)
CLOSED = Ridge((Joint(32),), penalties=(0.1,))


@dataclass(frozen=True)
class Given(Scores):
    """Scores by a function of members and observations."""

    function: object

    def __call__(self, theta, x):
        return self.function(theta, x)


@dataclass(frozen=True)
class Told(Classifier):
    """A classifier that is told the Bayes logits, and multiplies them."""

    posterior: object
    times: float = 1.0

    def fit(self, copies, seed):
        def scores(theta, x):
            d = self.posterior.bayes(theta, x[:, None])
            return torch.sigmoid(self.times * d.double().logit())[:, None]

        return Given(scores)


def judged(posterior, times=1.0, n=4000, k=3, **settings):
    return health(posterior.calibration(n, k=k), Told(posterior, times), **settings)


@pytest.fixture(scope="module")
def perfect():
    from tests.conftest import Gaussian

    return judged(Gaussian(width=1.5, shift=0.3))


class TestBayes:
    """The Bayes classifier is as good as can be, and looks like it."""

    def test_its_probabilities_can_be_believed(self, perfect):
        for found, ideal in ((perfect.ratio, 1.0), (perfect.overconfidence, 0.0)):
            assert abs(found.value - ideal) < 3.5 * found.error
        assert perfect.calibration_error < np.quantile(perfect.perfect, 0.99)
        assert "agree with the truths, within noise" in perfect.sentence
        inside = (perfect.reliability.lower <= perfect.reliability.predicted) & (
            perfect.reliability.predicted <= perfect.reliability.upper
        )
        assert inside.sum() >= 8

    def test_its_loss_is_the_smallest(self, gaussian, perfect):
        """From 400 000 draws of both classes, to three standard errors of the held-out one."""
        posterior = gaussian(width=1.5, shift=0.3)
        many = posterior.calibration(400_000, seed=9)
        truths, draws = (posterior.bayes(t, many.x) for t in (many.theta, many.theta_q[:, 0]))
        loss = -0.5 * (truths.log().mean() + (1 - draws).log().mean())
        assert perfect.log_loss.value == pytest.approx(float(loss), abs=3 * perfect.log_loss.error)
        assert perfect.log_loss.value < math.log(2) - 10 * perfect.log_loss.error
        assert "it has learned something" in perfect.sentence
        for times in (0.3, 3.0):
            assert judged(posterior, times).log_loss.value > perfect.log_loss.value

    def test_too_sure(self, gaussian):
        found = judged(gaussian(width=1.5, shift=0.3), 3.0)
        assert found.overconfidence.value > 5 * found.overconfidence.error
        assert "over-confident by" in found.sentence
        assert found.calibration_error > 2 * np.quantile(found.perfect, 0.99)
        assert found.ratio.value > 1.5

    def test_not_sure_enough(self, gaussian):
        found = judged(gaussian(width=1.5, shift=0.3), 0.3)
        assert found.overconfidence.value < -5 * found.overconfidence.error
        assert "under-confident by" in found.sentence
        outer = found.reliability.predicted > 0.55
        assert (found.reliability.observed[outer] > found.reliability.predicted[outer]).all()


def test_a_blind_classifier(gaussian):
    found = judged(gaussian(width=1.5), 0.0, n=100)
    assert found.log_loss == (math.log(2), 0.0)
    assert found.brier == (0.25, 0.0)
    assert found.auc == (0.5, 0.0)
    assert found.ratio == (1.0, 0.0)
    assert found.overconfidence == (0.0, 0.0)
    assert found.calibration_error == 0.0
    assert found.agreement == (1.0, 0.0)
    assert "it has learned nothing that shows" in found.sentence


CLASSIFIERS = {
    "MLP": TINY,
    "Ridge": CLOSED,
    "LDA": LDA(),
    "QDA": QDA(),
    "Sklearn": Sklearn(LogisticRegression()),
}


@pytest.mark.parametrize("space", ["parameters", "latent"])
@pytest.mark.parametrize("classifier", CLASSIFIERS.values(), ids=CLASSIFIERS)
def test_every_classifier_in_every_space(gaussian, classifier, space):
    posterior = gaussian(shift=0.7)
    latent = space == "latent"
    calibration = posterior.latents(600) if latent else posterior.calibration(600, k=3)
    found = health(calibration, classifier, folds=3)
    assert found.probabilities.shape == (600, 5 if latent else 4)
    assert (found.truths.sum(1) == 1).all()
    assert found.auc.value > 0.5 + 3 * found.auc.error
    assert abs(found.auc_x.value - 0.5) < 4 * found.auc_x.error
    correlation, difference = found.agreement
    exact = not isinstance(classifier, MLP)
    assert ((correlation, difference) == (1.0, 0.0)) == exact


class TestTriple:
    """A right q cannot be told from the truth; one too wide or too narrow can."""

    @pytest.mark.parametrize("latent", [False, True])
    @pytest.mark.parametrize(("width", "learned"), [(1.0, False), (1.5, True), (0.6, True)])
    def test_loss(self, gaussian, width, learned, latent):
        posterior = gaussian(width=width)
        calibration = posterior.latents(2000) if latent else posterior.calibration(2000, k=3)
        found = health(calibration, QDA())
        gain = (math.log(2) - found.log_loss.value) / found.log_loss.error
        assert (gain > 5) == learned
        assert abs(gain) > 5 or gain < 2

    def test_direction(self, gaussian):
        """Of a q that is too wide the inner members are the truths, and the other way round."""
        for width, sign in ((1.5, -1), (0.6, 1)):
            calibration = gaussian(width=width).calibration(2000)
            copies = Exchange(1).copies(calibration.sorted(), 0)[:1]
            scores = QDA().fit(copies, 0)
            d = scores(copies.members, copies.x)[:, 0].flatten()
            radius = (copies.members - copies.x[:, None] / 2).norm(dim=2).flatten()
            assert sign * scipy.stats.spearmanr(radius, d).statistic > 0.7


def test_against_scikit_learn(perfect):
    d, labels = perfect.probabilities.ravel(), perfect.truths.ravel()
    weights = np.where(labels, 1.0, 1 / 3)
    given = {"sample_weight": weights}
    assert perfect.log_loss.value == pytest.approx(sklearn.metrics.log_loss(labels, d, **given))
    brier = sklearn.metrics.brier_score_loss(labels, d, **given)
    assert perfect.brier.value == pytest.approx(brier)
    area = sklearn.metrics.roc_auc_score(labels, d, **given)
    assert perfect.auc.value == pytest.approx(area)
    draws, truths = perfect.roc
    assert sklearn.metrics.auc(draws, truths) == pytest.approx(area, abs=1e-3)


def sets(generator, n, k, shift=1.0):
    """Bayes probabilities (n, k + 1) of normal scores, and who is the truth (n, k + 1)."""
    scores = torch.randn(n, k + 1, generator=generator)
    scores[:, 0] += shift
    truths = np.zeros((n, k + 1), bool)
    truths[:, 0] = True
    return torch.sigmoid(shift * scores - shift**2 / 2).double().numpy(), truths


@pytest.mark.parametrize("k", [1, 4])
def test_standard_errors(k):
    """Over 500 data sets, standard errors are the standard deviations, to a tenth or so."""
    settings = {"reseeded": np.full((2, k + 1), 0.5), "perfect": np.zeros(3), "settings": {}}
    rows = {name: [] for name in ("log_loss", "brier", "auc", "ratio", "overconfidence")}
    for i in range(500):
        d, truths = sets(stream(i, "errors"), 200, k)
        found = Health(d, truths, x_probabilities=d, x_truths=truths, **settings)
        for name, values in rows.items():
            values.append(getattr(found, name))
    for name, values in rows.items():
        value, error = np.array(values).T
        assert error.mean() == pytest.approx(value.std(), rel=0.15), name


@pytest.mark.parametrize("k", [1, 4])
def test_noise_is_not_read_as_error(k):
    """1000 perfect classifiers: above the 95 % quantile of noise at most 7.5 % of the time.

    Sets have exactly one truth, which labels drawn alone need not have; with that the error is, if
    anything, smaller.
    """
    above = 0
    for i in range(1000):
        d, truths = sets(stream(i, "noise", k), 300, k)
        bins = _Bins.of(d)
        error = bins.errors(bins.counted(truths))
        above += error > np.quantile(_perfect(bins, i), 0.95)
    assert 10 <= above <= scipy.stats.binom(1000, 0.05).ppf(0.9995)


def test_x_alone_sees_classes_that_differ_in_x(gaussian):
    """All members of a set with positive x play the truth, those of the others q."""
    copies = Exchange(1).copies(gaussian().calibration(400, k=1), 0)
    leaky = replace(copies, who=Permuted((copies.x[:, :1] > 0).expand(-1, 2), 0))
    part = torch.arange(200), torch.arange(200, 400)
    d, truths = x_alone(leaky, LDA(), part, 0)
    assert sklearn.metrics.roc_auc_score(truths.ravel(), d.ravel()) > 0.9
    d, truths = x_alone(copies, LDA(), part, 0)
    assert abs(_auc(d, truths).value - 0.5) < 4 * _auc(d, truths).error


def test_no_set_is_judged_by_who_has_seen_it(gaussian):
    seen = []

    class Spy(Classifier):
        def fit(self, copies, seed):
            rows = copies.rows(0)
            known = {tuple(row) for row in torch.cat([rows.theta, rows.x], 1).tolist()}

            def scores(theta, x):
                table = torch.cat([theta, x[:, None].expand(-1, theta.shape[1], -1)], 2)
                found = [tuple(row) in known for row in table.flatten(0, 1).tolist()]
                seen.append((len(known), len(found), sum(found)))
                return torch.full((len(theta), 1, theta.shape[1]), 0.5)

            return Given(scores)

    health(gaussian().calibration(100, k=2), Spy())
    assert seen == [(240, 60, 0)] * 7


@pytest.mark.parametrize("latent", [False, True])
def test_order_and_seed(gaussian, latent):
    calibration = gaussian(width=1.4).latents(100) if latent else gaussian().calibration(100, k=2)
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    order = torch.randperm(100, generator=stream(0, "order"))
    first = health(calibration, TINY, seed=3)
    again, other = (health(calibration.subset(order), TINY, seed=seed) for seed in (3, 4))
    assert torch.equal(torch.get_rng_state(), states[0])
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])
    for name in ("probabilities", "truths", "reseeded", "x_probabilities", "perfect"):
        np.testing.assert_array_equal(getattr(first, name), getattr(again, name))
    assert not np.array_equal(first.probabilities, other.probabilities)


def test_a_change_of_units(gaussian):
    one = gaussian(width=1.4).calibration(200, k=2)
    other = assay.Calibration(3 + 100 * one.theta, one.x / 7, 3 + 100 * one.theta_q)
    first, second = (health(calibration, QDA()) for calibration in (one, other))
    np.testing.assert_allclose(first.probabilities, second.probabilities, atol=1e-3)


class TestNull:
    """The null says what the data are trained against; its copies are not fitted."""

    def test_that_of_a_test(self, gaussian):
        """What a test holds is enough, and gives the figures of the test's own parts."""
        calibration = gaussian(width=1.5).calibration(100, k=2)
        test = lc2st(calibration, TINY, Exchange(3), seed=5)
        found = health(test.calibration, test.classifier, test.null, seed=test.seed)
        expected = health(calibration, TINY, Exchange(3), seed=5)
        np.testing.assert_array_equal(found.probabilities, expected.probabilities)

    @pytest.mark.parametrize("latent", [False, True])
    def test_a_local_one_is_the_global_one_it_is_made_of(self, gaussian, latent):
        calibration = gaussian().latents(100) if latent else gaussian().calibration(100)
        found = health(calibration, TINY, LocalExchange(3, 0.5))
        plain = KnownBase(3) if latent else Exchange(3)
        assert found.settings["trained as"] == repr(plain)
        expected = health(calibration, TINY, plain)
        np.testing.assert_array_equal(found.reseeded, expected.reseeded)

    @pytest.mark.parametrize("latent", [False, True])
    def test_the_usual_one(self, gaussian, latent):
        calibration = gaussian().latents(60) if latent else gaussian().calibration(60)
        said = [health(calibration, c).settings["trained as"] for c in (TINY, CLOSED)]
        assert said == ["KnownBase(n=199)" if latent else "Exchange(n=199)", "Exchange(n=999)"]

    def test_a_number_of_copies(self, gaussian):
        """So many of the usual null, of which none but the data is looked at."""
        calibration = gaussian().calibration(60)
        found = health(calibration, TINY, 99)
        assert found.settings["trained as"] == "Exchange(n=99)"
        np.testing.assert_array_equal(
            found.probabilities, health(calibration, TINY, 19).probabilities
        )

    def test_without_null_copies(self, gaussian):
        fits = []

        class Counting(Classifier):
            def fit(self, copies, seed):
                fits.append(len(copies))
                return QDA().fit(copies, seed)

        health(gaussian().calibration(100), Counting(), Exchange(999))
        assert fits == [1] * 7


def test_a_result_to_print_and_to_keep(perfect, tmp_path):
    assert len(perfect.table) == len(perfect.labels) == len(perfect) == 8
    assert all(set(row) == {"value", "error", "ideal"} for row in perfect.table)
    text = repr(perfect)
    assert text.splitlines()[1].split()[:1] == ["log-loss"]
    assert " ".join(text.split()).endswith(" ".join(perfect.sentence.split()))
    with pytest.raises(ValueError, match="read-only"):
        perfect.probabilities[:] = 0
    assay.save(perfect, tmp_path / "health.npz")
    again = assay.load(tmp_path / "health.npz")
    assert repr(again) == text
    assert again.settings == perfect.settings
    page = perfect._repr_html_()
    assert "<table><thead><tr><th>held out</th><th>value</th>" in page
    assert f"<p>{html.escape(perfect.sentence)}</p>" in page.replace("\u00a0", " ")


class Wrong(Classifier):
    def __init__(self, value, extra=0):
        self.value, self.extra = value, extra

    def fit(self, copies, seed):
        def scores(theta, x):
            return torch.full((len(theta), 1, theta.shape[1] + self.extra), self.value)

        return Given(scores)


BAD = {
    "few pairs": (lambda c: health(c.subset(slice(40)), TINY), ValueError, "at least 50 pairs"),
    "one fold": (lambda c: health(c, TINY, folds=1), ValueError, "folds: expected at least 2"),
    "calibration": (lambda c: health(c.theta), TypeError, "calibration: expected"),
    "classifier": (lambda c: health(c, 3), TypeError, "classifier: expected"),
    "null": (lambda c: health(c, TINY, "99"), TypeError, "null: expected a number of copies"),
    "above one": (lambda c: health(c, Wrong(1.5)), ValueError, "between 0 and 1; got 1.5"),
    "nan": (lambda c: health(c, Wrong(math.nan)), ValueError, "between 0 and 1"),
    "shape": (lambda c: health(c, Wrong(0.5, 1)), ValueError, "probabilities with shape"),
}


@pytest.mark.parametrize(("call", "error", "message"), BAD.values(), ids=BAD)
def test_bad_input(gaussian, call, error, message):
    with pytest.raises(error, match=message):
        call(gaussian().calibration(100))


class TestExponent:
    def test_the_bayes_classifier_claims_what_it_knows(self, perfect):
        assert perfect.exponent == pytest.approx(1, abs=0.12)

    @pytest.mark.parametrize("times", [0.7, 2.5])
    def test_it_undoes_a_claim(self, gaussian, perfect, times):
        claimed = judged(gaussian(width=1.5, shift=0.3), times)
        assert claimed.exponent == pytest.approx(perfect.exponent / times, rel=0.02)

    def test_noise_is_worth_nothing(self, perfect):
        rng = np.random.default_rng(0)
        noise = rng.uniform(0.1, 0.9, perfect.probabilities.shape)
        assert replace(perfect, probabilities=noise).exponent < 0.1

from dataclasses import replace

import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch
from sklearn.metrics import log_loss, roc_auc_score

import assay
from assay import MLP, Exchange, FreePermutation, KnownBase, LocalExchange, Nearest, Ridge, lc2st
from assay._support.random import stream
from assay.c2st import acc0
from assay.classifiers.base import Classifier
from assay.local.lc2st import Quality, mse0
from assay.nulls import LabelCopies
from experiments.discriminant import QDA
from tests.conftest import FunctionScores

X_O = torch.tensor([0.5, -0.5])
SMALL = MLP((16, 16), epochs=10, batch=64)
TINY = MLP((8,), epochs=2, batch=32)


def fitted(posterior, space, n=1000, classifier=SMALL, **settings):
    calibration = posterior.calibration(n) if space == "parameters" else posterior.latents(n)
    exchange = space == "parameters" or classifier == Ridge()
    null = Exchange(99) if exchange else KnownBase(99)
    draws = posterior.draws(X_O) if space == "parameters" else assay.Draws(X_O)
    return lc2st(calibration, classifier, null, **settings)(draws)


SPACES = ["parameters", "latents"]


@pytest.mark.parametrize("classifier", [SMALL, Ridge()], ids=["MLP", "Ridge"])
@pytest.mark.parametrize("space", SPACES)
class TestTriple:
    """An exact, a conservative and an overconfident posterior, and the direction of the error."""

    def test_exact(self, gaussian, space, classifier):
        assert fitted(gaussian(), space, classifier=classifier).pvalue > 0.05

    def test_conservative(self, gaussian, space, classifier):
        result = fitted(gaussian(width=1.5), space, classifier=classifier)
        assert result.pvalue == 0.01
        # q is too wide: its outer draws are less likely to be true.
        assert self.correlation(result, space) < -0.7

    def test_overconfident(self, gaussian, space, classifier):
        result = fitted(gaussian(width=0.6), space, classifier=classifier)
        assert result.pvalue == 0.01
        # q is too narrow: its outer draws are more likely to be true.
        assert self.correlation(result, space) > 0.7

    def correlation(self, result, space):
        centre = X_O.numpy() / 2 if space == "parameters" else 0
        radius = np.linalg.norm(result.draws - centre, axis=1)
        return scipy.stats.spearmanr(radius, result.probabilities).statistic


@pytest.mark.parametrize("space", SPACES)
def test_against_the_bayes_classifier(gaussian, space):
    """With many pairs the network nears d* = p / (p + q), which is known for Gaussians."""
    posterior = gaussian(width=1.3, shift=0.3)
    n = 20_000
    if space == "parameters":
        calibration, draws = posterior.calibration(n), posterior.draws(X_O)
        test = lc2st(calibration, null=Exchange(1))
        theta = draws.theta
    else:
        latent = posterior.calibration(n).to_latent(posterior)
        test, draws = lc2st(latent, null=KnownBase(1)), assay.Draws(X_O)
        theta = torch.tensor(test(draws).theta)
    result = test(draws)
    exact = posterior.bayes(theta, X_O).numpy()
    assert np.abs(result.probabilities - exact).mean() < 0.03
    assert result.statistic == pytest.approx(mse0(exact), rel=0.25)


class Bayes(Classifier):
    """A classifier that knows the answer: d* for the data, 1/2 for the nulls."""

    def __init__(self, posterior):
        self.posterior = posterior

    def fit(self, copies, seed):
        def scores(theta, x):
            data = self.posterior.bayes(theta, x[:, None])
            return torch.stack([data] + [torch.full_like(data, 0.5)] * (len(copies) - 1), 1)

        return FunctionScores(scores)


def test_a_third_party_classifier_and_the_closed_form_statistic(gaussian):
    posterior = gaussian(width=1.5)
    test = lc2st(posterior.calibration(100), Bayes(posterior), Exchange(19))
    result = test(posterior.draws(X_O, n=200_000))
    # E_q (d* - 1/2)^2 by quadrature in r^2 / scale^2, which has a chi-square law with m = 2.
    r2 = np.linspace(0, 60, 200_001)
    ratio = 1.5**2 * np.exp(-0.5 * r2 * (1.5**2 - 1))
    expected = np.trapezoid((ratio / (1 + ratio) - 0.5) ** 2 * scipy.stats.chi2(2).pdf(r2), r2)
    assert result.statistic == pytest.approx(expected, rel=0.02)
    assert result.pvalue == 0.05


def distance(d):
    """The mean distance to 1/2, a statistic of one's own."""
    return np.abs(d - 0.5).mean(-1)


def test_the_statistic_by_hand():
    d = np.array([[0.5, 0.5, 0.5, 0.5], [0.1, 0.4, 0.6, 0.9]])
    np.testing.assert_allclose(mse0(d), [0, (0.16 + 0.01 + 0.01 + 0.16) / 4], atol=1e-12)
    many = np.random.default_rng(0).uniform(size=(3, 5, 100)).astype(np.float32)
    assert mse0(many).shape == (3, 5)
    assert mse0(many).dtype == np.float64


@pytest.mark.parametrize("statistic", [mse0, distance])
def test_statistics_that_see_a_wrong_width(gaussian, statistic):
    result = fitted(gaussian(width=1.5), "latents", statistic=statistic)
    assert result.pvalue == 0.01
    assert result.statistic == pytest.approx(float(statistic(result.probabilities)))
    assert result.settings["statistic"] == statistic.__name__


def test_one_class_accuracy_sees_a_shift(gaussian):
    result = fitted(gaussian(shift=1.0), "latents", n=2000, statistic=acc0)
    assert result.statistic > 0.6
    assert result.null.shape == (99,)
    assert result.null.min() < 0.5 < result.null.max()


@pytest.mark.parametrize(
    ("null", "latent"), [(Exchange(9), False), (FreePermutation(9), False), (KnownBase(9), True)]
)
def test_one_observation_is_a_row_of_many(gaussian, null, latent):
    posterior = gaussian(width=1.2)
    calibration = posterior.latents(60) if latent else posterior.calibration(60)
    test = lc2st(calibration, TINY, null)
    x_o = torch.stack([X_O, -X_O, 2 * X_O])
    draws = assay.Draws(x_o, n=30) if latent else posterior.draws(x_o, n=30)
    many = test(draws)
    one = test(assay.Draws(x_o[1], None if latent else draws.theta[1], n=30))
    assert many.statistic.shape == (3,)
    assert one.statistic.shape == ()
    assert many.null.shape == (3, 9)
    assert one.null.shape == (9,)
    assert many.null_probabilities.shape == (3, 9, 30)
    assert many.x.shape == (3, 2)
    np.testing.assert_array_equal(many.probabilities[1], one.probabilities)
    np.testing.assert_array_equal(many.null[1], one.null)
    assert many.pvalue[1] == one.pvalue


@pytest.mark.parametrize("space", SPACES)
def test_the_same_seed_gives_the_same_result_and_no_generator_moves(gaussian, space):
    states = torch.get_rng_state(), np.random.get_state()[1].copy()
    first, again = (fitted(gaussian(), space, n=60, seed=5) for _ in range(2))
    other = fitted(gaussian(), space, n=60, seed=6)
    assert torch.equal(torch.get_rng_state(), states[0])
    np.testing.assert_array_equal(np.random.get_state()[1], states[1])
    np.testing.assert_array_equal(first.null_probabilities, again.null_probabilities)
    assert not np.array_equal(first.probabilities, other.probabilities)


def test_a_generator_is_a_seed(gaussian):
    calibration, draws = gaussian().calibration(60), gaussian().draws(X_O)
    generators = [torch.Generator().manual_seed(4) for _ in range(2)]
    first, again = (lc2st(calibration, TINY, Exchange(3), seed=g)(draws) for g in generators)
    np.testing.assert_array_equal(first.null, again.null)


def test_several_draws_for_each_x_help(gaussian):
    """The same 300 pairs with 8 draws of q each see a bias that one draw each does not."""
    posterior = gaussian(shift=0.06)
    rejections = {1: 0, 8: 0}
    for k in rejections:
        for seed in range(20):
            test = lc2st(posterior.calibration(300, k=k, seed=seed), SMALL, Exchange(39))
            rejections[k] += test(posterior.draws(X_O)).pvalue <= 0.05
    assert rejections[8] > rejections[1]


def test_rows_of_a_result(gaussian):
    test = lc2st(gaussian().calibration(60), TINY, Exchange(9))
    many, one = test(gaussian().draws(torch.zeros(3, 2), n=30)), test(gaussian().draws(X_O))
    assert (len(many), many.labels, many.heading) == (3, ("0", "1", "2"), "x_o")
    assert many[1].statistic.shape == ()
    assert many[1].pvalue == many["1"].pvalue == many[-2].pvalue == many.pvalue[1]
    np.testing.assert_array_equal(many[1].null_probabilities, many.null_probabilities[1])
    assert (len(one), one.labels) == (1, ("0",))
    assert one[0] is one
    with pytest.raises(IndexError, match="result: expected one of 3 rows; got 3"):
        many[3]
    frame = many.to_frame()  # a list of dicts where pandas is not installed
    rows = frame if isinstance(frame, list) else frame.to_dict("records")
    assert [row["x_o"] for row in rows] == ["0", "1", "2"]
    np.testing.assert_allclose([row["p-value"] for row in rows], many.pvalue)


def test_defaults_by_space(gaussian):
    calibration = gaussian().calibration(30)
    assert lc2st(calibration, TINY).null == Exchange(199)
    assert lc2st(calibration.to_latent(gaussian()), TINY).null == KnownBase(199)


def test_settings_and_hypothesis_of_a_result(gaussian):
    result = lc2st(gaussian().calibration(60, k=2), TINY, Exchange(9))(gaussian().draws(X_O))
    assert result.hypothesis == "q(theta | x) = p(theta | x) at almost every x, tested at x_o"
    assert "at x_o would occur with probability" in result.sentence
    expected = {"test": "ℓ-C2ST", "n": 60, "m": 2, "k": 2, "d": 2, "statistic": "mse0", "seed": 0}
    assert expected.items() <= result.settings.items()
    assert result.settings["null"] == "Exchange(n=9)"
    assert {"assay", "torch", "numpy", "python"} <= set(result.settings)


def test_images_through_an_embedding(gaussian):
    calibration = gaussian(width=1.5).calibration(500)
    images = calibration.x[:, :, None].expand(-1, -1, 3)
    embedded = assay.Calibration(
        calibration.theta, images, calibration.theta_q, embed=lambda x: x.mean(2)
    )
    draws = gaussian(width=1.5).draws(X_O)
    plain = lc2st(calibration, SMALL, Exchange(19))(draws)
    there = assay.Draws(X_O[:, None].expand(-1, 3), draws.theta)
    result = lc2st(embedded, SMALL, Exchange(19))(there)
    np.testing.assert_allclose(result.probabilities, plain.probabilities, atol=1e-3)


def test_a_statistic_of_the_wrong_shape(gaussian):
    test = lc2st(gaussian().calibration(60), TINY, Exchange(3), statistic=np.mean)
    with pytest.raises(ValueError, match="statistic: expected a function that maps"):
        test(gaussian().draws(X_O))


def test_an_interrupt_midway_leaves_nothing_behind(gaussian, monkeypatch):
    calibration, draws = gaussian().calibration(60), gaussian().draws(X_O)
    expected = lc2st(calibration, TINY, Exchange(3))(draws)
    threads = torch.get_num_threads()
    calls = iter(range(100))

    def interrupted(copies, rows, epoch):
        if next(calls) == 1:
            raise KeyboardInterrupt
        return batch(copies, rows, epoch)

    batch = LabelCopies.batch
    monkeypatch.setattr(LabelCopies, "batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lc2st(calibration, TINY, Exchange(3))
    monkeypatch.undo()
    assert torch.get_num_threads() == threads
    again = lc2st(calibration, TINY, Exchange(3))(draws)
    np.testing.assert_array_equal(again.null, expected.null)


class Wrong(Classifier):
    """A classifier whose scores are not what they should be."""

    def __init__(self, scores):
        self.scores = scores

    def fit(self, copies, seed):
        return FunctionScores(
            lambda theta, x: self.scores(len(theta), len(copies), theta.shape[1])
        )


BAD_SCORES = {
    "another shape": (lambda o, h, s: torch.full((o, s, h), 0.5), "probabilities with shape"),
    "no nulls": (lambda o, h, s: torch.full((o, 1, s), 0.5), "probabilities with shape"),
    "nan": (lambda o, h, s: torch.full((o, h, s), torch.nan), "between 0 and 1"),
    "too large": (lambda o, h, s: torch.full((o, h, s), 1.5), "between 0 and 1; got 1.5"),
}


@pytest.mark.parametrize(("scores", "message"), BAD_SCORES.values(), ids=BAD_SCORES)
def test_bad_scores(gaussian, scores, message):
    test = lc2st(gaussian().calibration(60), Wrong(scores), Exchange(3))
    with pytest.raises(ValueError, match=f"classifier: expected .*{message}"):
        test(gaussian().draws(X_O))


def test_a_statistic_that_is_not_finite(gaussian):
    def wild(d):
        return np.log(d.mean(-1) * 0)

    test = lc2st(gaussian().calibration(60), TINY, Exchange(3), wild)
    with np.errstate(divide="ignore"), pytest.raises(ValueError, match="statistic: expected fin"):
        test(gaussian().draws(X_O))


BAD_ARGUMENTS = {
    "calibration": lambda c: lc2st(c.theta),
    "classifier": lambda c: lc2st(c, Exchange(9)),
    "a class": lambda c: lc2st(c, MLP),
    "null": lambda c: lc2st(c, TINY, 9.5),
    "a duck": lambda c: lc2st(c, type("Duck", (), {"fit": lambda *_: None})()),
    "a null class": lambda c: lc2st(c, TINY, Exchange),
    "statistic": lambda c: lc2st(c, TINY, Exchange(3), "mse0"),
    "draws": lambda c: lc2st(c, TINY, Exchange(3))("x_o"),
    "flow": lambda c: c.to_latent(object()),
}


@pytest.mark.parametrize("call", BAD_ARGUMENTS.values(), ids=BAD_ARGUMENTS)
def test_arguments_of_another_kind(gaussian, call):
    with pytest.raises(TypeError, match="expected .*; got"):
        call(gaussian().calibration(60))


def test_parameters_need_draws_at_x_o_and_latents_do_not(gaussian):
    with pytest.raises(ValueError, match=r"draws: expected Draws\(x_o, theta_o\)"):
        lc2st(gaussian().calibration(60), TINY, Exchange(3))(X_O)
    test = lc2st(gaussian().latents(60), TINY, KnownBase(3))
    np.testing.assert_array_equal(test(X_O).null, test(assay.Draws(X_O)).null)


@pytest.mark.parametrize("latent", [False, True])
def test_a_number_of_copies_is_as_good_as_a_null(gaussian, latent):
    calibration = gaussian().latents(60) if latent else gaussian().calibration(60)
    null = KnownBase(5) if latent else Exchange(5)
    draws = assay.Draws(X_O) if latent else gaussian().draws(X_O)
    one, two = (lc2st(calibration, TINY, given) for given in (5, null))
    assert one.null == two.null
    assert one.null.n == 5
    np.testing.assert_array_equal(one(draws).null, two(draws).null)


def test_results_cannot_be_written(gaussian):
    result = lc2st(gaussian().calibration(60), TINY, Exchange(3))(gaussian().draws(X_O))
    with pytest.raises(ValueError, match="read-only"):
        result.null[:] = 9


def test_draws_that_the_test_was_trained_on(gaussian):
    calibration = gaussian().calibration(50, k=4)
    test = lc2st(calibration, TINY, Exchange(9))
    with pytest.raises(ValueError, match="theta_o: expected fresh draws"):
        test(assay.Draws(calibration.x[3], calibration.theta_q[3]))


def test_draws_beyond_single_precision(gaussian):
    test = lc2st(gaussian().calibration(50), TINY, Exchange(9))
    theta = torch.full((5, 2), 1e300, dtype=torch.float64)
    with pytest.raises(ValueError, match="theta_o: .*beyond the range"):
        test(assay.Draws(X_O, theta))


def test_a_base_of_another_kind_is_the_same_over_threads():
    base = torch.distributions.Independent(
        torch.distributions.Uniform(torch.zeros(2), torch.ones(2)), 1
    )
    z, x = torch.rand(2, 200, 2, generator=torch.Generator().manual_seed(0))
    calibration = assay.Calibration.from_base(z, x, base)
    found = [lc2st(calibration, TINY, KnownBase(19))(assay.Draws(x[0])).null for _ in range(4)]
    for again in found[1:]:
        np.testing.assert_array_equal(found[0], again)


class TestKeptNulls:
    """Nulls of a known base are those of x, the base, the classifier and the seed."""

    X_O = assay.Draws(torch.ones(2), n=100)

    def same(self, one, two):
        for name in ("statistic", "null", "probabilities", "null_probabilities"):
            np.testing.assert_array_equal(
                getattr(one(self.X_O), name), getattr(two(self.X_O), name)
            )

    def fitted(self, monkeypatch):
        """The numbers of copies that are fitted from now on."""
        counts, fit = [], MLP.fit

        def counted(classifier, copies, seed):
            counts.append(len(copies))
            return fit(classifier, copies, seed)

        monkeypatch.setattr(MLP, "fit", counted)
        return counts

    def test_another_flow_of_the_same_task(self, gaussian, monkeypatch):
        """Bit for bit what a test that fits everything says, for the price of one fit."""
        test = lc2st(gaussian().latents(60), TINY, KnownBase(9), seed=3)
        wide, shifted = gaussian(width=2.0).latents(60), gaussian(shift=1.0).latents(60)
        counts = self.fitted(monkeypatch)
        kept = test.refit_on(wide)
        twice = kept.refit_on(shifted)
        assert counts == [1, 1]
        self.same(kept, lc2st(wide, TINY, KnownBase(9), seed=3))
        self.same(twice, lc2st(shifted, TINY, KnownBase(9), seed=3))
        assert kept.settings == lc2st(wide, TINY, KnownBase(9), seed=3).settings

    def test_the_order_of_rows_does_not_matter(self, gaussian, monkeypatch):
        test = lc2st(gaussian().latents(60), TINY, KnownBase(9))
        wide = gaussian(width=2.0).latents(60)
        counts = self.fitted(monkeypatch)
        order = torch.randperm(60, generator=stream(0, "order"))
        self.same(test.refit_on(wide), test.refit_on(wide.subset(order)))
        assert counts == [1, 1]

    def test_other_observations_are_fitted_anew(self, gaussian, monkeypatch):
        test = lc2st(gaussian().latents(60), TINY, KnownBase(9), seed=3)
        for other in (gaussian().latents(60, seed=1), gaussian().latents(50)):
            counts = self.fitted(monkeypatch)
            again = test.refit_on(other)
            assert counts == [10]
            self.same(again, lc2st(other, TINY, KnownBase(9), seed=3))
            assert not np.array_equal(again(self.X_O).null, test(self.X_O).null)
            monkeypatch.undo()

    def test_another_base_is_fitted_anew(self, gaussian, monkeypatch):
        latents = gaussian().latents(60)
        wide = torch.distributions.Independent(torch.distributions.Normal(torch.zeros(2), 3.0), 1)
        other = assay.Calibration.from_base(3 * latents.theta, latents.x, wide)
        test = lc2st(latents, TINY, KnownBase(9))
        counts = self.fitted(monkeypatch)
        again = test.refit_on(other)
        assert counts == [10]
        self.same(again, lc2st(other, TINY, KnownBase(9)))
        assert not np.array_equal(again(self.X_O).null, test(self.X_O).null)

    def test_another_seed_or_number_is_fitted_anew(self, gaussian):
        wide = gaussian(width=2.0).latents(60)
        test = lc2st(gaussian().latents(60), TINY, KnownBase(9))
        reseeded, fewer = replace(test, seed=4), replace(test, null=KnownBase(5))
        for changed in (reseeded, fewer):
            with pytest.raises(ValueError, match="got a changed recipe"):
                changed(self.X_O)
        self.same(reseeded.refit_on(wide), lc2st(wide, TINY, KnownBase(9), seed=4))
        self.same(fewer.refit_on(wide), lc2st(wide, TINY, KnownBase(5)))

    @pytest.mark.parametrize("null", [Exchange(5), LocalExchange(5, Nearest(0.5))])
    def test_nulls_that_depend_on_q_are_fitted_anew(self, gaussian, null):
        test = lc2st(gaussian().latents(60), TINY, null)
        wide = gaussian(width=2.0).latents(60)
        self.same(test.refit_on(wide), lc2st(wide, TINY, null))

    def test_parameters_need_another_null(self, gaussian):
        test = lc2st(gaussian().latents(60), TINY, KnownBase(9))
        with pytest.raises(ValueError, match="null: expected a calibration in latent space"):
            test.refit_on(gaussian().calibration(60))

    def test_of_a_test_that_was_saved(self, gaussian, tmp_path, monkeypatch):
        test = lc2st(gaussian().latents(60), TINY, KnownBase(9), seed=3)
        wide, other = gaussian(width=2.0).latents(60), gaussian().latents(60, seed=1)
        assay.save(test, tmp_path / "test")
        assay.save(test.refit_on(wide), tmp_path / "kept")
        loaded, kept = (assay.load(tmp_path / name) for name in ("test", "kept"))
        self.same(kept, test.refit_on(wide))
        counts = self.fitted(monkeypatch)
        self.same(loaded.refit_on(wide), test.refit_on(wide))
        self.same(kept.refit_on(gaussian().latents(60)), test)
        assert counts == [1, 1, 1]
        self.same(loaded.refit_on(other), lc2st(other, TINY, KnownBase(9), seed=3))


class Spy(Classifier):
    """A classifier that remembers what it was trained on and asked for; it scores by theta."""

    def __init__(self):
        self.trained, self.asked = [], []

    def fit(self, copies, seed):
        self.trained.append({tuple(row) for row in copies.members.flatten(0, 1).tolist()})

        def scores(theta, x):
            self.asked.append({tuple(row) for row in theta.flatten(0, 1).tolist()})
            return theta[..., 0].sigmoid()[:, None]

        return FunctionScores(scores)


class TestQuality:
    """Probabilities at sets that the classifier was not trained on."""

    @pytest.mark.parametrize("folds", [2, 5])
    def test_every_set_is_held_out_once_and_never_trained_on(self, gaussian, folds):
        calibration, spy = gaussian().calibration(60, k=3), Spy()
        found = assay.lc2st(calibration, spy, 1).quality(folds)
        spy.trained.pop(0)  # with which the test itself was fitted
        assert len(spy.trained) == folds
        for trained, asked in zip(spy.trained, spy.asked, strict=True):
            assert not trained & asked
            assert len(trained | asked) == 60 * 4
        assert len(set.union(*spy.asked)) == 60 * 4
        # The true parameters, each once, and one draw of q at the same x.
        given = calibration.theta[:, 0].sigmoid()
        np.testing.assert_allclose(np.sort(found.truths), given.sort().values)
        assert len(found.draws) == 60
        draws = torch.tensor(scipy.special.logit(found.draws.astype(float)))
        distances = (draws[:, None] - calibration.theta_q[..., 0].flatten()).abs()
        assert distances.min(1).values.max() < 1e-4

    def test_numbers_against_scikit_learn(self):
        rng = np.random.default_rng(0)
        found = Quality(truths=rng.beta(2, 1, 300).round(2), draws=rng.beta(1, 2, 300).round(2))
        labels, d = np.repeat([1, 0], 300), np.concatenate([found.truths, found.draws])
        assert found.auc == pytest.approx(roc_auc_score(labels, d))
        assert found.log_loss == pytest.approx(log_loss(labels, d.clip(1e-6, 1 - 1e-6)))
        assert found.learned

    def test_reliability_of_probabilities_that_are_right(self):
        """With densities 2 d of true parameters and 2 (1 - d) of draws, a share d are true."""
        rng = np.random.default_rng(0)
        found = Quality(truths=rng.beta(2, 1, 20_000), draws=rng.beta(1, 2, 20_000))
        predicted, observed, lower, upper = found.reliability()
        np.testing.assert_allclose(predicted, np.arange(0.05, 1, 0.1), atol=0.01)
        np.testing.assert_allclose(observed, predicted, atol=0.03)
        assert ((lower < observed) & (observed < upper)).all()

    def test_a_classifier_has_learned_where_q_is_wrong(self, gaussian):
        right, wrong = (
            assay.lc2st(gaussian(width=width).calibration(300), QDA(), 9).quality()
            for width in (1.0, 2.0)
        )
        assert not right.learned
        assert right.auc == pytest.approx(0.5, abs=0.1)
        assert wrong.learned
        assert wrong.auc > 0.6

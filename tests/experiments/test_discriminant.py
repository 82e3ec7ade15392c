from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)

import assay
from assay import Exchange, FreePermutation, KnownBase, Sklearn, lc2st
from experiments import discriminant
from experiments.discriminant import LDA, QDA, Bayes

X_O = torch.tensor([0.5, -0.5])
EVEN = {"priors": [0.5, 0.5]}
# The maximum-likelihood covariances of scikit-learn 1.9; older versions divide by n - 1.
PAIRS = {
    "QDA": (QDA(0.0), QuadraticDiscriminantAnalysis(**EVEN)),
    "LDA": (LDA(0.0), LinearDiscriminantAnalysis(**EVEN)),
}
each_pair = pytest.mark.parametrize(("ours", "theirs"), PAIRS.values(), ids=PAIRS)


def copies_of(posterior, space, k=1, n=80):
    if space == "base":
        return KnownBase(3).copies(posterior.latents(n), seed=1)
    null = FreePermutation(3) if space == "free" else Exchange(3)
    calibration = posterior.calibration(n, k=k)
    double = assay.Calibration(
        calibration.theta.double(), calibration.x.double(), calibration.theta_q.double()
    )
    return null.copies(double, seed=1)


def expected(estimator, copies, h, theta, x):
    rows, features, labels = copies.rows(h)
    estimator.fit(torch.cat([rows, features], 1).numpy(), labels.numpy())
    return estimator.predict_proba(torch.cat([theta, x], 1).numpy())[:, 1]


@each_pair
@pytest.mark.parametrize(("space", "k"), [("x", 1), ("x", 3), ("free", 1), ("base", 1)])
def test_against_scikit_learn(gaussian, ours, theirs, space, k):
    copies = copies_of(gaussian(width=1.5, shift=0.5), space, k)
    theta, x = (part[:20] for part in copies.rows(0)[:2])
    found = ours.fit(copies, 0)(theta[:, None], x)[..., 0].numpy()
    assert found.shape == (20, 4)
    for h in range(4):
        np.testing.assert_allclose(
            found[:, h],
            expected(theirs, copies, h, theta, x),
            atol=1e-6 if space == "base" else 1e-9,
        )


def test_shrinkage_is_that_of_scikit_learn_on_the_scale_of_the_pool(gaussian):
    copies = copies_of(gaussian(width=1.5), "x")
    rows, x, labels = copies.rows(0)
    v = torch.cat([rows, x], 1)
    location = torch.cat([copies.scaling[0], copies.x.mean(0)])
    scale = torch.cat([copies.scaling[1], copies.x.std(0)])
    scaled = ((v - location) / scale).numpy()
    theirs = QuadraticDiscriminantAnalysis(reg_param=0.3, **EVEN).fit(scaled, labels.numpy())
    found = QDA(0.3).fit(copies, 0)(rows[:, None], x)[:, 0, 0].numpy()
    np.testing.assert_allclose(found, theirs.predict_proba(scaled)[:, 1], atol=1e-9)


@each_pair
@pytest.mark.parametrize("room", [1, 50, 10_000])
def test_neither_chunks_nor_steps_change_anything(gaussian, monkeypatch, ours, theirs, room):
    copies = copies_of(gaussian(width=1.5), "x", k=2)
    theta, x = (part[:20] for part in copies.rows(0)[:2])
    whole = ours.fit(copies, 0)(theta[:, None], x)
    monkeypatch.setattr(discriminant, "ROOM", room)
    torch.testing.assert_close(ours.fit(copies, 0)(theta[:, None], x), whole, atol=1e-12, rtol=0)


@pytest.mark.parametrize("classifier", [QDA(), LDA()])
def test_units_do_not_matter(gaussian, classifier):
    calibration = gaussian(width=1.5, shift=0.3).calibration(100)
    a, b = torch.tensor([1e4, 1e-3]), torch.tensor([-3.0, 1.0])
    moved = assay.Calibration(
        calibration.theta * a + b, calibration.x * a - b, calibration.theta_q * a + b
    )
    first, second = (
        classifier.fit(Exchange(3).copies(c, 0), 0)(c.theta[:, None], c.features)
        for c in (calibration, moved)
    )
    torch.testing.assert_close(first, second, atol=1e-3, rtol=0)


@pytest.mark.parametrize("classifier", [QDA(), LDA()])
def test_singular_covariances(gaussian, classifier):
    """Fewer rows than columns, a repeated column and a constant one."""
    g = torch.Generator().manual_seed(0)
    members = torch.randn(12, 2, 30, generator=g)
    members[..., 1] = members[..., 0]
    members[..., 2] = 7.0
    calibration = assay.Calibration(members[:, 0], torch.zeros(12, 1), members[:, 1:])
    copies = replace(Exchange(1).copies(calibration, 0)[:1], x=torch.empty(12, 0))
    found = classifier.fit(copies, 0)(members, copies.x)
    assert ((found >= 0) & (found <= 1)).all()
    with pytest.raises(ValueError, match="shrinkage: expected one that makes all"):
        type(classifier)(0.0).fit(copies, 0)


@pytest.mark.parametrize("width", [1.5, 0.6])
@pytest.mark.parametrize("space", ["parameters", "base", "latents"])
def test_quadratic_local_test_sees_a_wrong_width(gaussian, width, space):
    posterior = gaussian(width=width)
    if space == "parameters":
        test = lc2st(posterior.calibration(1000), QDA(), Exchange(99))
        result = test(posterior.draws(X_O))
    else:
        null = KnownBase(99) if space == "base" else Exchange(99)
        result = lc2st(posterior.latents(1000), QDA(), null)(assay.Draws(X_O))
    assert result.pvalue == 0.01
    centre = X_O.numpy() / 2 if space == "parameters" else 0
    radius = np.linalg.norm(result.draws - centre, axis=1)
    # Outer draws of a q that is too wide are less likely to be true.
    rank = scipy.stats.spearmanr(radius, result.probabilities).statistic
    assert rank * (1 if width < 1 else -1) > 0.7


def test_linear_local_test_sees_a_shift_and_no_width(gaussian):
    shifted, wide, right = gaussian(shift=0.3), gaussian(width=1.5), gaussian()
    for posterior, low in ((shifted, True), (wide, False), (right, False)):
        test = lc2st(posterior.calibration(1000), LDA(), Exchange(99))
        assert (test(posterior.draws(X_O)).pvalue <= 0.05) == low


def test_local_results_are_those_of_a_loop_over_scikit_learn(gaussian):
    calibration, draws = gaussian(width=1.2).calibration(300), gaussian(width=1.2).draws(X_O)
    ours = lc2st(calibration, QDA(0.0), Exchange(19))(draws)
    theirs = lc2st(calibration, Sklearn(PAIRS["QDA"][1]), Exchange(19))(draws)
    np.testing.assert_allclose(ours.null, theirs.null, rtol=1e-3, atol=1e-7)
    assert ours.pvalue == theirs.pvalue


def test_by_default_copies_are_many(gaussian):
    assert lc2st(gaussian().calibration(30), QDA()).null == Exchange(999)


@pytest.mark.parametrize("value", [-0.1, 1.5, np.nan])
def test_shrinkage_is_a_share(value):
    with pytest.raises(ValueError, match="shrinkage: expected"):
        QDA(value)
    with pytest.raises(ValueError, match="shrinkage: expected"):
        LDA(value)


class TestBayes:
    def test_local(self, gaussian):
        """Densities of v = (theta, x) need no normalisation over x."""
        posterior = gaussian(width=1.5)

        def log_density(scale):
            def of(v):
                theta, x = v[:, :2], v[:, 2:]
                return torch.distributions.Normal(x / 2, scale).log_prob(theta).sum(1)

            return of

        bayes = Bayes(log_density(0.5**0.5), log_density(posterior.scale))
        draws = posterior.draws(X_O)
        result = lc2st(posterior.calibration(20), bayes, Exchange(3))(draws)
        np.testing.assert_allclose(
            result.probabilities, posterior.bayes(draws.theta, X_O).numpy(), atol=1e-6
        )
        np.testing.assert_array_equal(result.null, np.full(3, result.statistic))

    def test_supports_may_differ(self):
        def uniform(high):
            return lambda v: np.where(v[:, 0] < high, -np.log(high), -np.inf)

        scores = Bayes(uniform(1.0), uniform(2.0)).fit(range(2), 0)
        theta = torch.tensor([[[0.5], [1.5]]])
        torch.testing.assert_close(
            scores(theta, torch.empty(1, 0)), torch.tensor([[[2 / 3, 0.0]] * 2])
        )
        with pytest.raises(ValueError, match="minus infinity from both in 1 of 2 rows"):
            scores(theta + 1, torch.empty(1, 0))

    def test_densities_of_another_shape(self):
        scores = Bayes(lambda v: v, lambda v: v[:, 0]).fit(range(2), 0)
        with pytest.raises(
            ValueError, match=r"log_p: expected a function that maps rows \(3, 2\)"
        ):
            scores(torch.zeros(1, 3, 2), torch.empty(1, 0))

    def test_densities_that_are_nan(self):
        scores = Bayes(lambda v: v[:, 0], lambda v: v[:, 0] * np.nan).fit(range(2), 0)
        with pytest.raises(ValueError, match="log_q: expected finite numbers or minus infinity"):
            scores(torch.zeros(1, 3, 2), torch.empty(1, 0))

    def test_what_is_no_function(self):
        with pytest.raises(TypeError, match="log_q: expected a function"):
            Bayes(lambda v: v, 1.0)

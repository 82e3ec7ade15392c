import numpy as np
import pytest
import torch
from scipy.stats import binom

import assay
from assay._core import stream
from assay.classifiers.base import Classifier
from assay.samples.neighbourhoods import Nearest
from tests.conftest import FunctionScores

X = torch.tensor([[2.0, 0.0], [-2.0, 0.0]])


class Oracle(Classifier):
    """A score that knows where q is shifted: it is not trained."""

    def __init__(self, shift):
        self.shift = shift

    def fit(self, copies, seed):
        def scores(theta, x):
            bad = (x[:, :1] < 0).to(theta)[:, None]
            p, q = (
                torch.distributions.Normal(x[:, None] / 2 + self.shift * move, 0.5**0.5)
                .log_prob(theta)
                .sum(-1)
                for move in (0 * bad, bad)
            )
            return torch.sigmoid(p - q)[:, None]

        return FunctionScores(scores)


class Blurred(Oracle):
    """A score that takes q for shifted everywhere, so that it is not flat where q is right."""

    def fit(self, copies, seed):
        def scores(theta, x):
            p, q = (
                torch.distributions.Normal(x[:, None] / 2 + move, 0.5**0.5).log_prob(theta).sum(-1)
                for move in (0.0, self.shift)
            )
            return torch.sigmoid(p - q)[:, None]

        return FunctionScores(scores)


def half(gaussian, n, k=2, shift=0.0, seed=0):
    calibration = gaussian().calibration(n, k, seed)
    bad = (calibration.x[:, :1] < 0).to(calibration.theta)
    return assay.Calibration(
        calibration.theta, calibration.x, calibration.theta_q + shift * bad[:, None]
    )


def draws(x=X):
    return assay.Draws(x, torch.zeros(len(x), 5, 2))


@pytest.mark.parametrize("width", [0.5, 1.0, 2.0])
def test_exact_conservative_and_overconfident(gaussian, width):
    q = gaussian(width)
    result = assay.region(q.calibration(800, 4), assay.MLP(epochs=5))(q.draws(torch.zeros(2)))
    assert (result.pvalue <= 0.01) == (width != 1)
    assert result.null_probabilities is None
    with pytest.raises(ValueError, match="no null curves"):
        assay.pp_curve(result)


def test_latents(gaussian):
    result = assay.region(gaussian(1.6).latents(800), assay.MLP(epochs=5))(
        assay.Draws(torch.zeros(2))
    )
    assert result.pvalue <= 0.01


@pytest.mark.parametrize(
    ("repetitions", "count"), [(150, 10), pytest.param(1000, 50, marks=pytest.mark.slow)]
)
def test_level_and_family_wise_error(gaussian, repetitions, count):
    """Right at half of the observations, wrong at the others: strong control."""
    generator = stream(0, "places")
    places = 2 * torch.rand(count, 2, generator=generator) - 1 + torch.tensor([2.2, 0.0])
    right = count // 2
    places[right:, 0] *= -1
    raw, adjusted = [], []
    for i in range(repetitions):
        test = assay.region(
            half(gaussian, 500, 2, 1.0, i), Blurred(1.0), Nearest((0.04,)), assay.Exchange(99), i
        )
        result = test(draws(places))
        raw.append(result.pvalue)
        adjusted.append(result.adjusted)
    raw, adjusted = np.array(raw), np.array(adjusted)
    high = binom.ppf(0.999, repetitions, 0.05)
    assert (raw[:, :right] <= 0.05).sum(0).max() <= high + 2
    assert (adjusted[:, :right] <= 0.05).any(1).sum() <= high
    assert (adjusted[:, right:] <= 0.05).mean() > 0.5
    assert result.adjustment.words in result.sentence


@pytest.mark.slow
def test_p_is_uniform_for_a_score_that_is_not_flat(gaussian):
    class Wild(Classifier):
        def fit(self, copies, seed):
            return FunctionScores(lambda theta, x: torch.sigmoid(3 * theta.sin().sum(-1))[:, None])

    found = np.array(
        [
            assay.region(
                half(gaussian, 300, 2, 3.0, i), Wild(), Nearest((0.05, 0.1)), assay.Exchange(39), i
            )(draws(X[:1])).pvalue[0]
            for i in range(1000)
        ]
    )
    for alpha in (0.05, 0.25, 0.5, 0.75):
        low, high = binom.interval(0.999, 1000, alpha)
        assert low <= (found <= alpha).sum() <= high


def test_row_order_and_save(gaussian, tmp_path):
    calibration = half(gaussian, 200, 2, 1.0)
    order = torch.randperm(200, generator=stream(0, "order"))
    classifier = assay.MLP(hidden=(8,), epochs=2)
    one, two = (assay.region(c, classifier) for c in (calibration, calibration.subset(order)))
    np.testing.assert_allclose(one(draws()).null, two(draws()).null, rtol=1e-4)
    assay.save(one, tmp_path / "r.npz")
    np.testing.assert_allclose(
        assay.load(tmp_path / "r.npz")(draws()).statistic, one(draws()).statistic, rtol=1e-5
    )


def test_bad_input(gaussian):
    calibration = gaussian().calibration(50)
    for null in (assay.KnownBase(9), assay.LocalExchange(9), assay.Exchange):
        with pytest.raises(TypeError, match=r"null: expected .* null such as Exchange\(99\)"):
            assay.region(calibration, null=null)
    with pytest.raises(TypeError, match="where: expected"):
        assay.region(calibration, where=0.1)
    with pytest.raises(TypeError, match="classifier: expected a classifier such as"):
        assay.region(calibration, Nearest())


def test_a_score_of_one_half_and_a_test_of_the_other(gaussian):
    calibration = half(gaussian, 200, 2, 1.0).sorted()
    test = assay.region(calibration, Oracle(1.0), null=19)
    assert test.null == assay.Exchange(19)
    assert (len(test.held), len(test.calibration)) == (100, 200)
    assert torch.equal(test.calibration.x, calibration.x)
    assert torch.equal(test.calibration.theta_q, calibration.theta_q)
    default = assay.region(calibration, Oracle(1.0))
    assert default.null == assay.Exchange(999)


def test_gains_by_hand(gaussian):
    """The sum over held-out sets near x_o of what the score gains over guessing."""
    test = assay.region(half(gaussian, 200, 2, 1.0), Oracle(1.0), Nearest((0.2,)), 9)
    held = test.held
    scores = test.scores(held.members, held.features)[:, 0]
    gains = 3 * scores.logit().softmax(1)[:, 0]
    for x_o, found in zip(X, test(draws()).statistic, strict=True):
        near = Nearest((0.2,)).inside(held.features, x_o[None])[0, 0]
        assert found == pytest.approx(float(gains[near].log().sum()), rel=1e-3, abs=1e-4)

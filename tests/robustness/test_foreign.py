"""Code of others gets copies: what it does to them, then or later, changes nothing."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.naive_bayes import GaussianNB

import assay
from assay.diagnostics.average.coverage import ScaledEuclidean
from assay.samples.posterior import Posterior, StandardNormal
from assay.samples.proposal import Around, Model
from tests.conftest import Gaussian

from .judge import numbers

N, M, K = 60, 2, 5
Q = Gaussian()
SMALL = assay.MLP((4,), epochs=1)
PAIRS = Q.calibration(N, K)
X_O = torch.tensor([0.3, -0.2])
THERE = Q.draws(X_O, 40)


def spoilt(function):
    """The same function, which destroys what it was given once it has its answer."""

    def destructive(*given):
        found = function(*given)
        for each in given:
            if isinstance(each, torch.Tensor):
                each.fill_(1e6)
            elif isinstance(each, np.ndarray):
                each[...] = 1e6
            elif isinstance(each, dict):
                destructive_parts(each)
        return found

    return destructive


def destructive_parts(parts):
    for part in parts.values():
        part.fill_(1e6)


class Kept:
    """Returns one array of its own again and again, and overwrites it at the next call."""

    def __init__(self, function):
        self.function, self.room = function, None

    def __call__(self, *given):
        found = self.function(*given)
        if self.room is None or self.room.shape != found.shape:
            self.room = found.clone()
        self.room.copy_(found)
        return self.room


WAYS = {
    "in place": spoilt,
    "one array of its own": Kept,
    "float64": lambda function: lambda *given: function(*given).double(),
    "lists": lambda function: lambda *given: function(*given).tolist(),
    "NumPy": lambda function: lambda *given: function(*given).numpy(),
}
ROUNDED = {"float64", "lists"}


def embedded(x):
    return (2 * x).round()


def log_q(theta, x):
    return -(theta - x / 2).square().sum(-1)


def euclidean(theta, references):
    return (theta - references).norm(dim=-1)


def noisy(theta):
    return theta + torch.randn(theta.shape)


def updated(xs, n):
    return xs.sum(0) / 3 + torch.randn(n, M)


def latent(theta, x):
    return Q.theta_to_base(theta, x)


class Flow:
    base = StandardNormal(M)

    def __init__(self, made):
        self.sample, self.theta_to_base = made(Q.sample), made(latent)


class Batched(Posterior):
    def __init__(self, made):
        self.made = made(lambda x: Q.draw(x, 5, torch.default_generator))

    def sample_batched(self, x, n):
        return torch.cat([torch.as_tensor(self.made(x)) for _ in range(-(-n // 5))], 1)[:, :n]


class Prior:
    def __init__(self, made):
        normal = torch.distributions.MultivariateNormal(torch.zeros(M), torch.eye(M))
        self.log_prob, self.made = made(normal.log_prob), made(lambda n, g: noise(n, M, g))

    def sample(self, n, generator):
        return torch.as_tensor(self.made(n, generator), dtype=torch.float32)


def noise(n, m, generator):
    return torch.randn(n, m, generator=generator)


def calibrated(embed):
    return assay.Calibration(PAIRS.theta, PAIRS.x, PAIRS.theta_q, embed)


def zoomed(made):
    return assay.zoom(
        Model(Prior(made), made(lambda theta, g: theta + noise(*theta.shape, g))),
        made(lambda x, k, g: Q.draw(x, k, g)),
        Prior(made),
        20,
        4,
    )


# What is made of code in one of the ways above.
USES = {
    "an embedding": lambda made: assay.lc2st(calibrated(made(embedded)), SMALL, 9)(THERE),
    "a distance": lambda made: assay.score(
        PAIRS, assay.Nearest(distance=assay.Distance(made(embedded))), 9
    )(X_O),
    "a posterior": lambda made: assay.Calibration.of(made(Q.sample), PAIRS.theta, PAIRS.x, K),
    "a posterior of many x": lambda made: assay.Calibration.of(
        Batched(made), PAIRS.theta, PAIRS.x, K
    ),
    "a flow": lambda made: assay.lc2st(PAIRS.to_latent(Flow(made)), SMALL, 9)(X_O),
    "a quantity": lambda made: assay.sbc(PAIRS, {"log q": made(log_q)}, null=9),
    "a density": lambda made: assay.coverage(PAIRS, made(log_q), null=9),
    "a metric": lambda made: assay.tarp(PAIRS, metric=made(euclidean), null=9),
    "references": lambda made: assay.tarp(PAIRS, made(embedded), null=9),
    "a simulator": lambda made: assay.predictive(THERE.theta, made(noisy), X_O, 19),
    "a simulator and a posterior": lambda made: assay.posterior_sbc(
        made(updated), made(noisy), X_O, 20, 4, null=9
    ),
    "a prior": lambda made: Around(THERE.theta, Prior(made)).log_prob(THERE.theta),
    "a prior, a simulator and a posterior": zoomed,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("use", USES)
def test_the_same_answer(use, way):
    clean = USES[use](lambda function: function)
    before = [array.copy() for array in numbers(PAIRS)]
    found = USES[use](WAYS[way])
    for one, other in zip(numbers(found), numbers(clean), strict=True):
        assert np.allclose(one, other, rtol=1e-5) if way in ROUNDED else np.array_equal(one, other)
    for one, other in zip(numbers(PAIRS), before, strict=True):
        assert np.array_equal(one, other)


def test_an_observation_does_not_move():
    """Once, what a flow did to its x moved x_o, and a verdict was given elsewhere."""
    test = assay.moments(PAIRS.to_latent(Flow(spoilt)), null=19)
    found = test(assay.Draws(X_O))
    assert np.array_equal(found.x, X_O.numpy())
    clean = assay.moments(PAIRS.to_latent(Q), null=19)(assay.Draws(X_O))
    assert np.allclose(found.effects.bias.value, clean.effects.bias.value)


def test_a_statistic_in_place():
    def spoilt_mse(d):
        d -= 0.5
        return (d**2).mean(-1)

    found = assay.lc2st(PAIRS, SMALL, 9, spoilt_mse)(THERE)
    clean = assay.lc2st(PAIRS, SMALL, 9)(THERE)
    assert np.array_equal(found.null_probabilities, clean.null_probabilities)


class InPlace(ClassifierMixin, BaseEstimator):
    """Destroys its rows, when it is fitted and when it is asked."""

    def fit(self, rows, labels):
        self.own_ = GaussianNB().fit(rows, labels)
        self.classes_ = self.own_.classes_
        rows[...], labels[...] = 1e6, 0
        return self

    def predict_proba(self, rows):
        found = self.own_.predict_proba(rows)
        rows[...] = 1e6
        return found


def test_an_estimator_in_place():
    found, clean = (
        assay.lc2st(PAIRS, assay.Sklearn(kind()), 9)(THERE) for kind in (InPlace, GaussianNB)
    )
    assert np.array_equal(found.null_probabilities, clean.null_probabilities)


def test_whole_numbers_of_an_embedding():
    whole = calibrated(lambda x: embedded(x).long())
    assert whole.features.is_floating_point()
    assert torch.equal(whole.features.float(), calibrated(embedded).features)


def test_a_dict_of_x():
    x = {"a": PAIRS.x[:, :1], "b": PAIRS.x[:, 1:]}

    def joined(parts):
        return torch.cat([parts["a"], parts["b"]], 1)

    found = assay.Calibration(PAIRS.theta, x, PAIRS.theta_q, spoilt(joined))
    assert torch.equal(found.features, PAIRS.x)
    assert torch.equal(found.x, PAIRS.x)


def test_metrics_that_are_ours_need_no_copy():
    assert np.array_equal(
        assay.tarp(PAIRS, metric=ScaledEuclidean(), null=9).null, assay.tarp(PAIRS, null=9).null
    )

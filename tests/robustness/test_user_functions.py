"""Functions of users get copies: what they do to them, then or later, changes nothing."""

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.naive_bayes import GaussianNB

import assay
from assay.data.posterior import Posterior, StandardNormal
from assay.data.proposal import Around, Model

from .calls import SMALL, K, M, N, Q, calibration, draws, euclidean, log_q, simulate
from .outcome import numbers

PAIRS, X_O = calibration(), torch.tensor([0.3, -0.2])
THERE = Q.draws(X_O, 40)


def in_place(function):
    """The same function, which destroys what it was given once it has its answer."""

    def destroys(*given):
        answer = function(*given)
        for each in given:
            parts = each.values() if isinstance(each, dict) else [each]
            for part in parts:
                if isinstance(part, torch.Tensor):
                    part.fill_(1e6)
                elif isinstance(part, np.ndarray):
                    part[...] = 1e6
        return answer

    return destroys


class OneArray:
    """Returns one array of its own again and again, and overwrites it at the next call."""

    def __init__(self, function):
        self.function, self.kept = function, None

    def __call__(self, *given):
        answer = self.function(*given)
        if self.kept is None or self.kept.shape != answer.shape:
            self.kept = answer.clone()
        self.kept.copy_(answer)
        return self.kept


WAYS = {
    "in place": in_place,
    "one array of its own": OneArray,
    "float64": lambda function: lambda *given: function(*given).double(),
    "lists": lambda function: lambda *given: function(*given).tolist(),
    "NumPy": lambda function: lambda *given: function(*given).numpy(),
}
ROUNDED = {"float64", "lists"}


def rounded(x):
    return (2 * x).round()


def latent(theta, x):
    return Q.theta_to_base(theta, x)


def noise(n, m, generator):
    return torch.randn(n, m, generator=generator)


class Flow:
    base = StandardNormal(M)

    def __init__(self, change):
        self.sample, self.theta_to_base = change(Q.sample), change(latent)


class Batched(Posterior):
    def __init__(self, change):
        self.five = change(lambda x: Q.draw(x, 5, torch.default_generator))

    def sample_batched(self, x, n):
        return torch.cat([torch.as_tensor(self.five(x)) for _ in range(-(-n // 5))], 1)[:, :n]


class Prior:
    def __init__(self, change):
        normal = torch.distributions.MultivariateNormal(torch.zeros(M), torch.eye(M))
        self.log_prob, self.draw = change(normal.log_prob), change(lambda n, g: noise(n, M, g))

    def sample(self, n, generator):
        return torch.as_tensor(self.draw(n, generator), dtype=torch.float32)


def embedded(embed):
    return assay.Calibration(PAIRS.theta, PAIRS.x, PAIRS.theta_q, embed)


def zoomed(change):
    return assay.zoom(
        Model(Prior(change), change(lambda theta, g: theta + noise(*theta.shape, g))),
        change(lambda x, k, g: Q.draw(x, k, g)),
        Prior(change),
        20,
        4,
    )


# What is made of functions that are changed in one of the ways above.
USES = {
    "an embedding": lambda change: assay.bounds(embedded(change(rounded)), X_O),
    "an embedding of x": lambda change: assay.typical(PAIRS.x, X_O, change(rounded)),
    "a distance": lambda change: assay.bounds(
        PAIRS, X_O, assay.Nearest(distance=assay.Distance(change(rounded)))
    ),
    "a posterior": lambda change: assay.Calibration.of(change(Q.sample), PAIRS.theta, PAIRS.x, K),
    "a posterior of many x": lambda change: assay.Calibration.of(
        Batched(change), PAIRS.theta, PAIRS.x, K
    ),
    "a flow": lambda change: assay.lc2st(PAIRS.to_latent(Flow(change)), SMALL, 9)(X_O),
    "a quantity": lambda change: assay.sbc(PAIRS, {"log q": change(log_q)}, null=9),
    "a density": lambda change: assay.coverage(PAIRS, change(log_q), null=9),
    "a local density": lambda change: assay.lhpd(PAIRS, change(log_q), null=9)(X_O),
    "a metric": lambda change: assay.tarp(PAIRS, metric=change(euclidean), null=9),
    "references": lambda change: assay.tarp(PAIRS, change(rounded), null=9),
    "a simulator": lambda change: assay.predictive(THERE.theta, change(simulate), X_O, 19),
    "a prior": lambda change: Around(THERE.theta, Prior(change)).log_prob(THERE.theta),
    "a prior, a simulator and a posterior": zoomed,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("use", USES)
def test_the_same_answer(use, way):
    clean = USES[use](lambda function: function)
    before = [array.copy() for array in numbers(PAIRS)]
    found = USES[use](WAYS[way])
    for one, other in zip(numbers(found), numbers(clean), strict=True):
        if way in ROUNDED:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_array_equal(one, other)
    for one, other in zip(numbers(PAIRS), before, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.slow
@pytest.mark.parametrize("way", set(WAYS) - ROUNDED)
def test_the_same_check(way):
    def check(change):
        return assay.check(
            change(Q.sample),
            simulator=change(simulate),
            prior=Prior(change),
            x_o=X_O,
            embed=change(rounded),
            simulations=100,
            nulls=19,
            classifier=None,
        )

    pairs = zip(numbers(check(WAYS[way])), numbers(check(lambda f: f)), strict=True)
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


def test_an_observation_does_not_move():
    """What a flow does to its x must not move x_o."""
    test = assay.score(PAIRS.to_latent(Flow(in_place)), null=19)
    found, clean = test(assay.Draws(X_O)), assay.score(PAIRS.to_latent(Q), null=19)(X_O)
    assert np.array_equal(found.x, X_O.numpy())
    assert np.array_equal(found.null, clean.null)


def test_a_statistic_in_place():
    def changed(d):
        d -= 0.5
        return (d**2).mean(-1)

    found = assay.lc2st(PAIRS, SMALL, 9, changed)(draws())
    clean = assay.lc2st(PAIRS, SMALL, 9)(draws())
    assert np.array_equal(found.null_probabilities, clean.null_probabilities)


class InPlace(ClassifierMixin, BaseEstimator):
    """Destroys its rows, when it is fitted and when it predicts."""

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
    whole = embedded(lambda x: rounded(x).long())
    assert whole.features.is_floating_point()
    assert torch.equal(whole.features.float(), embedded(rounded).features)


def test_a_dict_of_x():
    x = {"a": PAIRS.x[:, :1], "b": PAIRS.x[:, 1:]}

    def joined(parts):
        return torch.cat([parts["a"], parts["b"]], 1)

    found = assay.Calibration(PAIRS.theta, x, PAIRS.theta_q, in_place(joined))
    assert len(found) == N
    assert torch.equal(found.features, PAIRS.x)
    assert torch.equal(found.x, PAIRS.x)

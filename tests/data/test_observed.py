"""Observations with draws of q there, and features of observations."""

import numpy as np
import pytest
import torch

from assay import Calibration, Draws
from assay.data.observed import features_of, has_order, tied_ranks

N = 40
THETA = np.random.default_rng(0).normal(size=(N, 2))
X = np.random.default_rng(1).normal(size=(N, 3))
Q = np.random.default_rng(2).normal(size=(N, 5, 2))


def test_images_are_embedded_or_flattened():
    images = np.random.default_rng(0).normal(size=(N, 4, 4))
    assert Calibration(THETA, images, Q).features.shape == (N, 16)
    embedded = Calibration(THETA, images, Q, embed=lambda x: x.mean(2))
    assert embedded.features.shape == (N, 4)
    assert embedded.x.shape == (N, 4, 4)
    observed = embedded.observe(Draws(images[:2], Q[2:4]))
    assert observed.observation.features.shape == (2, 4)


def test_an_embedding_that_is_not_a_function_of_x():
    state = torch.get_rng_state()
    with pytest.raises(ValueError, match="embed: expected the same features for the same x"):
        Calibration(THETA, X, Q, embed=lambda x: x + torch.randn(len(x), 3).sum())
    assert torch.equal(torch.get_rng_state(), state)


def test_observations_one_and_many():
    calibration = Calibration(THETA, X, Q)
    one = calibration.observe(Draws(X[0], Q[1]))
    many = calibration.observe(Draws(X[:3], Q[3:6]))
    assert one.observation.single
    assert not many.observation.single
    assert one.draws.shape == (1, 5, 2)
    assert many.draws.shape == (3, 5, 2)


def test_a_bare_observation_is_draws_without_any():
    draws = Draws(X[0], Q[0])
    assert Draws.of(draws) is draws
    bare = Draws.of(X[:3])
    assert bare.theta is None
    observation = Calibration(THETA, X, Q).observation(bare)
    assert observation.features.shape == (3, 3)
    assert not observation.single
    assert observation.shaped([4, 5, 6]) == [4, 5, 6]
    single = Calibration(THETA, X, Q).observation(Draws.of(X[0]))
    assert single.shaped([4]) == 4
    assert Draws.of(X[0]).many(single).x.shape == (1, 3)
    assert draws.many(single).theta.shape == (1, 5, 2)


@pytest.mark.parametrize(
    ("columns", "expected"),
    [([[1, 1, 2, 3]], True), ([[1, 1, 2, 2]], False), ([[1, 1, 2, 2]] * 2, True)],
)
def test_observations_with_few_values_have_no_order(columns, expected):
    ranks = tied_ranks(np.array(columns, float).T)
    assert ranks[:2, 0].tolist() == [0, 0]
    assert has_order(ranks) == expected


def test_features_of_a_network_in_single_precision():
    network = torch.nn.Linear(3, 2)
    features = features_of(torch.tensor(X), network)
    torch.testing.assert_close(features, network(torch.tensor(X).float()).detach())

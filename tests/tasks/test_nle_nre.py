"""On theta ~ N(0, I) and x = 100 + 10 (theta + e), e ~ N(0, I): theta | x ~ N(y / 2, I / 2)."""

import math

import numpy as np
import pytest
import torch

from assay.randomness import stream
from assay.tasks.nle_nre import Ratio, train_nle, train_nre
from assay.tasks.npe import MAF, SbiMAF
from assay.tasks.priors import Box, Gaussian

PRIOR = Gaussian(torch.eye(2, dtype=torch.float64))
SD = math.sqrt(0.5)


def joint(n, name="joint"):
    generator = stream(0, name)
    theta = torch.randn(n, 2, generator=generator)
    return theta, 100 + 10 * (theta + torch.randn(n, 2, generator=generator))


TRAIN = {
    "nle": lambda prior: train_nle(*joint(2000), prior, MAF(2, (32,)), rate=5e-3, epochs=20),
    "sbi": lambda prior: train_nle(*joint(2000), prior, SbiMAF(2, 32), rate=3e-3, epochs=40),
    "nre": lambda prior: train_nre(*joint(4000), prior, Ratio((32, 32)), rate=3e-3, epochs=40),
}


@pytest.fixture(scope="module", params=TRAIN)
def posterior(request):
    return TRAIN[request.param](PRIOR)


def test_it_recovers_the_posterior(posterior):
    """At ordinary x, means within 0.3 and deviations within 20 % of a posterior deviation."""
    for x in torch.tensor([[100.0, 110.0], [92.0, 97.0]]):
        chains = posterior.chains(x, 1000, stream(0, "draws"))
        assert chains.theta.shape == (1000, 2)
        assert 0.1 < chains.acceptance < 0.9
        assert ((chains.theta.mean(0) - (x - 100) / 20).abs() < 0.3 * SD).all()
        assert ((chains.theta.std(0) / SD - 1).abs() < 0.2).all()


def test_its_density_is_right_but_for_a_constant(posterior):
    x = torch.tensor([105.0, 95.0])
    centre = (x - 100) / 20
    theta = centre + SD * torch.randn(500, 2, generator=stream(0, "points"))
    exact = torch.distributions.Normal(centre, SD).log_prob(theta).sum(1)
    gap = posterior.log_prob(theta, x) - exact
    assert gap.std() < 0.3
    each = posterior.log_prob(theta, x.expand(500, -1))
    torch.testing.assert_close(each, posterior.log_prob(theta, x))


def test_draws_keep_to_the_prior():
    prior = Box((-0.2, -3.0), (3.0, 3.0))
    posterior = TRAIN["nle"](prior)
    theta = posterior.sample(torch.tensor([95.0, 100.0]), 200, stream(0, "draws"))
    assert prior.inside(theta).all()
    outside = torch.tensor([[-1.0, 0.0]])
    assert posterior.log_prob(outside, torch.tensor([95.0, 100.0])) == -torch.inf


def test_a_classifier_that_can_learn_nothing():
    """Theta and x are independent: the loss is 2 log 2, and the posterior is the prior."""
    theta, _ = joint(2000)
    _, x = joint(2000, "other")
    posterior = train_nre(theta, x, PRIOR, Ratio((16,)), patience=5)
    assert abs(min(posterior.losses) - 2 * math.log(2)) < 0.02
    draws = posterior.sample(x[0], 500, stream(0, "draws"))
    assert draws.mean(0).abs().max() < 0.25


@pytest.mark.parametrize("train", [train_nle, train_nre])
def test_one_seed_one_network_and_no_trace(train):
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    theta, x = joint(100)
    first, again, other = (train(theta, x, PRIOR, epochs=2, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()
    points = theta[:10], x[:10]
    assert first.losses == again.losses
    assert torch.equal(first.log_prob(*points), again.log_prob(*points))
    assert not torch.equal(first.log_prob(*points), other.log_prob(*points))


@pytest.mark.parametrize("train", [train_nle, train_nre])
def test_training_can_be_resumed(train, tmp_path):
    theta, x = joint(100)
    whole = train(theta, x, PRIOR, epochs=4)
    train(theta, x, PRIOR, epochs=2, checkpoint=tmp_path / "state")
    resumed = train(theta, x, PRIOR, epochs=4, checkpoint=tmp_path / "state")
    assert resumed.losses == whole.losses
    assert torch.equal(resumed.log_prob(theta, x), whole.log_prob(theta, x))


@pytest.mark.parametrize("train", [train_nle, train_nre])
def test_data_that_cannot_be(train):
    theta, x = joint(100)
    with pytest.raises(ValueError, match="x: expected theta"):
        train(theta, x[:50], PRIOR)
    with pytest.raises(ValueError, match="x: expected finite numbers"):
        train(theta, x + torch.nan, PRIOR)
    with pytest.raises(ValueError, match="theta: expected at least 20 rows"):
        train(theta[:10], x[:10], PRIOR)


def test_a_likelihood_needs_data_that_vary():
    theta, x = joint(50)
    x[:, 0] = 1.0
    with pytest.raises(ValueError, match="x: expected columns that vary"):
        train_nle(theta, x, PRIOR)


@pytest.mark.gpu
@pytest.mark.parametrize("train", [train_nle, train_nre])
def test_on_a_gpu(train):
    theta, x = joint(300)
    posterior = train(theta, x, PRIOR, epochs=2, device="cuda")
    assert posterior.sample(x[0].cuda(), 20, stream(0, "draws")).is_cuda
    assert posterior.sample(x[0], 20, stream(0, "draws")).shape == (20, 2)

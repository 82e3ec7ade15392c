import pytest
import scipy.stats
import torch

from assay.randomness import stream
from assay.tasks import two_moons


def test_the_simulator_moves_a_crescent():
    theta = torch.tensor([[0.3, -0.7]]).expand(20_000, 2)
    x = two_moons.simulate(theta, stream(0, "x"))
    centre = x + torch.tensor([0.4, 1.0]) / 2**0.5 - torch.tensor([0.25, 0.0])
    radius = centre.norm(dim=1)
    assert scipy.stats.kstest(radius.numpy(), "norm", (0.1, 0.01)).pvalue > 1e-3
    assert (centre[:, 0] >= 0).all()


def test_the_posterior_against_the_simulator():
    """Ranks of the true parameters among exact draws are uniform over 500 prior draws."""
    generator = stream(0, "sbc")
    theta = two_moons.prior(500, generator)
    x = two_moons.simulate(theta, generator)
    draws = torch.stack([two_moons.posterior(x_n, 99, generator) for x_n in x])
    ranks = (draws < theta[:, None]).sum(1)
    for j in range(2):
        counts = torch.bincount(ranks[:, j] // 10, minlength=10)
        assert scipy.stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_an_observation_that_cannot_be():
    with pytest.raises(ValueError, match="x: expected an observation that the prior can produce"):
        two_moons.posterior(torch.tensor([5.0, 5.0]), 10, stream(0, "x"))

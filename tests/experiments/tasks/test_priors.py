import torch

from assay._support.random import stream
from experiments.tasks.priors import Box, Gaussian


def test_a_box():
    box = Box((0.0, -2.0), (1.0, 2.0))
    theta = box.sample(20_000, stream(0, "box"))
    assert box.inside(theta).all()
    torch.testing.assert_close(theta.mean(0), torch.tensor([0.5, 0.0]), atol=0.03, rtol=0)
    assert not box.inside(torch.tensor([[0.5, 2.1]])).any()


def test_a_gaussian():
    precision = torch.tensor([[2.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    prior = Gaussian(precision)
    theta = prior.sample(100_000, stream(0, "gaussian")).double()
    torch.testing.assert_close(torch.cov(theta.T), torch.linalg.inv(precision), atol=0.02, rtol=0)
    peer = torch.distributions.MultivariateNormal(
        torch.zeros(2).double(), precision_matrix=precision
    )
    torch.testing.assert_close(prior.log_prob(theta[:9]), peer.log_prob(theta[:9]))

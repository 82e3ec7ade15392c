import pytest
import torch

from assay._support.random import stream
from experiments.tasks import GammaPoisson

TASK = GammaPoisson()


def test_moments_of_prior_and_simulator():
    theta, x = TASK.joint(50_000, stream(0, "moments"))
    assert theta.mean() == pytest.approx(2, rel=0.02)
    assert theta.var() == pytest.approx(2, rel=0.05)
    assert x.mean() == pytest.approx(2, rel=0.02)
    # Variance of the rate, and that of the count given it.
    assert x.var() == pytest.approx(4, rel=0.05)
    assert (x == x.round()).all()


def test_x_has_ties():
    _, x = TASK.joint(1000, stream(0, "ties"))
    assert len(x.unique(dim=0)) < 200


def test_the_log_posterior_is_that_of_torch_but_for_a_constant():
    x_o = torch.tensor([3.0, 0.0])
    theta = TASK.posterior(x_o, 50, stream(0, "density")).theta
    gamma = torch.distributions.Gamma(2 + x_o.double(), torch.tensor(2.0).double())
    difference = TASK.log_posterior(theta, x_o) - gamma.log_prob(theta.double()).sum(1)
    torch.testing.assert_close(difference, difference[:1].expand(50), atol=1e-6, rtol=0)

import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay._support.random import stream
from experiments.tasks import ConjugateGaussian, StateSpace

ALL = [ConjugateGaussian(), ConjugateGaussian(2, 3, nuisance=4, noise=0.5), StateSpace(d=30)]


def joint_covariance(task):
    """Of parameters and observations, from a linear map and what is left by noise."""
    n = 200_000
    theta, x = task.joint(n, stream(0, "joint"))
    return torch.cov(torch.cat([theta, x], 1).double().T)


@pytest.mark.parametrize("task", ALL, ids=repr)
def test_gain_and_covariance_are_those_of_the_joint(task):
    both, m = joint_covariance(task), task.m
    gain = torch.linalg.solve(both[m:, m:], both[m:, :m]).T
    torch.testing.assert_close(gain, task.gain, atol=0.03, rtol=0)
    left = both[:m, :m] - gain @ both[m:, :m]
    torch.testing.assert_close(left, task.covariance, atol=0.02, rtol=0)


@pytest.mark.parametrize("task", ALL, ids=repr)
def test_the_log_posterior_is_that_normal_but_for_a_constant(task):
    theta, x = task.joint(50, stream(0, "density"))
    theta, x_o = theta.double(), x[0].double()
    normal = torch.distributions.MultivariateNormal(task.gain @ x_o, task.covariance)
    difference = task.log_posterior(theta, x_o) - normal.log_prob(theta)
    torch.testing.assert_close(difference, difference[:1].expand(50), atol=1e-6, rtol=0)


@pytest.mark.parametrize("task", ALL, ids=repr)
def test_it_is_its_own_exact_flow(task):
    theta, x = task.joint(2000, stream(0, "flow"))
    calibration = assay.Calibration(theta, x, task.draws(x, 1, stream(1, "flow")))
    latent = calibration.to_latent(task)
    assert scipy.stats.kstest(latent.theta.flatten().numpy(), "norm").pvalue > 1e-3
    assert assay.score(latent)(x[:5]).adjusted.min() > 0.01


def test_long_observations():
    task = StateSpace(d=1000)
    _, x = task.joint(3, stream(0, "long"))
    found = task.posterior(x[0], 100, stream(0, "long"))
    assert found.theta.shape == (100, 3)
    assert np.isfinite(found.theta.numpy()).all()

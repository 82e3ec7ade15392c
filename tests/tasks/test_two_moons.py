import math

import pytest
import scipy.stats
import torch

from assay.randomness import stream
from assay.tasks import TwoMoons


def test_the_simulator_moves_a_crescent():
    theta = torch.tensor([[0.3, -0.7]]).expand(20_000, 2)
    x = TwoMoons().simulate(theta, stream(0, "x"))
    centre = x + torch.tensor([0.4, 1.0]) / 2**0.5 - torch.tensor([0.25, 0.0])
    radius = centre.norm(dim=1)
    assert scipy.stats.kstest(radius.numpy(), "norm", (0.1, 0.01)).pvalue > 1e-3
    assert (centre[:, 0] >= 0).all()


def test_the_likelihood_is_a_density():
    """It integrates to one over x: the Jacobian of polar coordinates is there."""
    side = torch.linspace(-0.2, 0.5, 701, dtype=torch.float64)
    x = torch.cartesian_prod(side, side - 0.15)
    theta = torch.zeros(len(x), 2, dtype=torch.float64)
    density = (TwoMoons().log_posterior(theta, x) + math.log(4)).exp()
    assert float(density.sum() * (side[1] - side[0]) ** 2) == pytest.approx(1, abs=0.01)


def test_both_moons_are_there():
    x_o = TwoMoons().observations.x[0]
    theta = TwoMoons().posterior(x_o, 4000, stream(0, "moons")).theta
    assert 0.45 < float((theta.sum(1) > 0).float().mean()) < 0.55


def test_an_observation_at_the_edge_of_the_prior():
    """Produced by the prior, where one proposal in two thousand is accepted."""
    x = [0.3774854242801666, -1.1384692192077637]
    found = TwoMoons().posterior(x, 8, torch.Generator().manual_seed(0))
    assert found.theta.shape == (8, 2)
    assert found.acceptance < 1e-2
    mean, deviation = TwoMoons().moments(torch.tensor([x]))
    assert mean.isfinite().all()
    assert (deviation > 0).all()

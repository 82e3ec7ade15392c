import math

import pytest
import scipy.stats
import torch

from assay._support.random import stream
from experiments.tasks import TwoMoons
from experiments.tasks.two_moons import _proposed, _radius


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


EDGES = [(0.3774854242801666, -1.1384692192077637), (0.3863869905471802, -0.3194848299026489)]


@pytest.mark.parametrize("x", EDGES)
def test_an_observation_at_the_edge_of_the_prior(x):
    """Produced by the prior, where one point of the crescent in thousands or millions is left."""
    found = TwoMoons().posterior(x, 8, torch.Generator().manual_seed(0))
    assert found.theta.shape == (8, 2)
    assert found.acceptance > 1e-3
    mean, deviation = TwoMoons().moments(torch.tensor([x]))
    assert mean.isfinite().all()
    assert (deviation > 0).all()


@pytest.mark.parametrize("x", [(0.36, -1.1), (-1.085, 0.0), (0.25, 1.5), (0.355, 0.2)])
def test_at_edges_draws_are_those_of_plain_rejection(x):
    """Edges, the corner and the tip of what the prior reaches."""
    x = torch.tensor(x, dtype=torch.double)
    chance = torch.Generator().manual_seed(0)
    theta, inside = _proposed(x[None], _radius((1, 2**20), chance), chance)
    plain = theta[0, inside[0]]
    assert 200 < len(plain) < 2**20
    found = TwoMoons().posterior(x, len(plain), chance).theta
    for j in range(2):
        assert scipy.stats.ks_2samp(found[:, j], plain[:, j]).pvalue > 0.001


def test_an_observation_out_of_reach():
    for x in ([1.0, 0.0], [0.0, 2.0], [-2.0, 0.0]):
        with pytest.raises(ValueError, match="expected an observation that the prior can"):
            TwoMoons().posterior(x, 8, torch.Generator())

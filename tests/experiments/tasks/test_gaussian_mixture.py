import math

import pytest
import scipy.stats
import torch

from assay._support.random import stream
from experiments.tasks import GaussianMixture

TASK = GaussianMixture()


def test_both_components_are_in_one_batch():
    """A component for every observation, not one for all: half the residuals are narrow."""
    theta = torch.zeros(20_000, 2)
    x = TASK.simulate(theta, stream(0, "batch")).double()
    assert float(x.var()) == pytest.approx(0.5 * (1 + 0.01), rel=0.05)
    wide = 2 * scipy.stats.norm.sf(0.5)
    assert float((x[:, 0].abs() > 0.5).double().mean()) == pytest.approx(0.5 * wide, abs=0.015)
    # The component is that of both coordinates.
    assert torch.corrcoef(x.abs().T)[0, 1] > 0.2


def test_the_evidence_is_the_integral_of_prior_and_likelihood():
    x_o = torch.tensor([9.8, 3.0], dtype=torch.float64)
    side = torch.linspace(-10, 10, 2001, dtype=torch.float64)
    near = [side[(side - x).abs() < 6] for x in x_o]
    theta = torch.cartesian_prod(*near)
    total = TASK.log_posterior(theta, x_o).exp().sum() * 0.01**2
    # The sum counts half of a cell too much along the edge.
    inside = [scipy.stats.norm(x_o, width) for width in (1.0, 0.1)]
    masses = [(law.cdf(10) - law.cdf(-10)).prod() for law in inside]
    assert math.log(float(total)) == pytest.approx(math.log(sum(masses) / 2 / 20**2), abs=0.02)


def test_weights_at_the_edge_are_those_of_the_masses_inside():
    x_o = torch.tensor([10.5, 0.0])
    theta = TASK.posterior(x_o, 5000, stream(0, "edge")).theta
    assert (theta.abs() <= 10).all()
    # The narrow component has no mass inside to speak of.
    assert theta[:, 1].std() == pytest.approx(1, abs=0.1)

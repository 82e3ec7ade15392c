import math

import torch

from assay._support.random import stream
from experiments.tasks import SLCP


def test_the_simulator_has_the_moments_of_a_normal():
    theta = torch.tensor([[0.5, -1.0, 1.2, -0.7, 0.6]])
    x = SLCP().simulate(theta.expand(50_000, -1), stream(0, "x")).double()
    points = x.reshape(-1, 2)
    a, b, rho = 1.2**2, 0.7**2, math.tanh(0.6)
    expected = torch.tensor([[a**2, rho * a * b], [rho * a * b, b**2]], dtype=torch.float64)
    torch.testing.assert_close(points.mean(0), theta[0, :2].double(), atol=0.02, rtol=0)
    torch.testing.assert_close(torch.cov(points.T), expected, atol=0.03, rtol=0.02)


def test_the_likelihood_is_that_of_torch():
    generator = stream(0, "likelihood")
    theta, x = SLCP().joint(20, generator)
    theta, x = theta.double(), x.double()
    a, b, rho = theta[:, 2] ** 2, theta[:, 3] ** 2, theta[:, 4].tanh()
    rows = [torch.stack([a**2 + 1e-6, rho * a * b], 1), torch.stack([rho * a * b, b**2 + 1e-6], 1)]
    normal = torch.distributions.MultivariateNormal(
        theta[:, None, :2], torch.stack(rows, 1)[:, None]
    )
    expected = normal.log_prob(x.reshape(-1, 4, 2)).sum(1) - 5 * math.log(6)
    torch.testing.assert_close(SLCP().log_posterior(theta, x), expected, rtol=1e-5, atol=1e-3)


def test_four_modes_of_the_same_weight():
    x_o = SLCP().observations.x[0]
    theta = SLCP().posterior(x_o, 4000, stream(0, "modes")).theta
    for sign in (theta[:, 2] > 0, theta[:, 3] > 0, (theta[:, 2] > 0) ^ (theta[:, 3] > 0)):
        assert 0.45 < float(sign.float().mean()) < 0.55


def test_the_sampler_knows_its_own_error():
    """Over ten observations hardly any proposal exceeds the bound, and enough are accepted."""
    generator = stream(0, "error")
    _, x = SLCP().joint(10, generator)
    found = [SLCP().posterior(x_n, 1000, generator) for x_n in x]
    assert sum(f.exceeded for f in found) <= 5
    assert min(f.acceptance for f in found) > 0.02

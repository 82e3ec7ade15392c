import pytest
import scipy.stats
import torch

from assay.randomness import stream
from assay.tasks.mcmc import sample_mcmc


def broad(m, width=10.0):
    return lambda n, generator: width * torch.randn(n, m, generator=generator)


def covariance(scales, rho=0.9):
    return (torch.eye(len(scales)) * (1 - rho) + rho) * scales * scales[:, None]


@pytest.mark.parametrize("m", [1, 2, 5])
def test_a_normal_target(m):
    """Scales from 0.1 to 10, correlations of 0.9, starts five times as wide."""
    scales = torch.logspace(-1, 1, m)
    target = torch.distributions.MultivariateNormal(scales, covariance(scales))
    chains = sample_mcmc(target.log_prob, broad(m, 5 * scales), 2000, stream(0, "normal", m))
    assert chains.theta.shape == (2000, m)
    assert chains.steps == 500
    assert 0.1 < chains.acceptance < 0.9
    factor = torch.linalg.cholesky(covariance(scales))
    white = torch.linalg.solve_triangular(factor, (chains.theta - target.mean).mT, upper=False)
    for j in range(m):
        assert scipy.stats.kstest(white[j].numpy(), "norm").pvalue > 1e-3
    assert scipy.stats.kstest(white.square().sum(0).numpy(), "chi2", (m,)).pvalue > 1e-3


def test_two_modes_of_unequal_mass():
    """A third and two thirds, sixteen deviations apart."""
    centres = torch.tensor([[-4.0, 0.0], [4.0, 1.0]])
    weights = torch.tensor([1 / 3, 2 / 3])

    def log_density(theta):
        parts = -0.5 * ((theta[:, None] - centres) / 0.5).square().sum(2)
        return torch.logsumexp(parts + weights.log(), 1)

    chains = sample_mcmc(log_density, broad(2), 3000, stream(0, "modes"))
    right = chains.theta[:, 0] > 0
    assert scipy.stats.binomtest(int(right.sum()), 3000, 2 / 3).pvalue > 1e-3
    for mode, centre in enumerate(centres):
        there = (chains.theta[right == bool(mode)] - centre) / 0.5
        for j in range(2):
            assert scipy.stats.kstest(there[:, j].numpy(), "norm").pvalue > 1e-3


def test_a_target_with_an_edge():
    def log_density(theta):
        inside = ((theta > 0) & (theta < 1)).all(1)
        return torch.where(inside, theta[:, 0].log(), -torch.inf)

    chains = sample_mcmc(log_density, broad(2, 0.5), 2000, stream(0, "edge"), steps=300)
    first, second = chains.theta.T.numpy()
    assert scipy.stats.kstest(first, "beta", (2, 1)).pvalue > 1e-3
    assert scipy.stats.kstest(second, "uniform").pvalue > 1e-3


def test_a_seed_is_enough():
    def log_density(theta):
        return -theta.square().sum(1)

    before = torch.get_rng_state()
    runs = [sample_mcmc(log_density, broad(2), 10, stream(0, "seed"), steps=20) for _ in range(2)]
    assert torch.equal(runs[0].theta, runs[1].theta)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("log_density", "start", "message"),
    [
        (lambda t: t[:, 0] * torch.nan, broad(2), "log_density: expected numbers or minus inf"),
        (lambda t: t[:, 0] * 0 + torch.inf, broad(2), "log_density: expected numbers or minus"),
        (lambda t: t, broad(2), r"log_density: expected shape \(200,\)"),
        (lambda t: t[:, 0], lambda n, g: torch.zeros(n), r"start: expected shape \(200, m\)"),
        (lambda t: t[:, 0], lambda n, g: torch.full((n, 2), torch.nan), "start: expected finite"),
        (lambda t: t[:, 0] - torch.inf, broad(2), "start: expected points of positive density"),
    ],
)
def test_what_cannot_be_sampled(log_density, start, message):
    with pytest.raises(ValueError, match=message):
        sample_mcmc(log_density, start, 10, stream(0, "wrong"), steps=5)


@pytest.mark.parametrize("given", [{"n": 0}, {"steps": 0}, {"pilots": 1}])
def test_counts(given):
    with pytest.raises(ValueError, match="expected at least"):
        sample_mcmc(
            lambda t: t[:, 0], broad(2), generator=stream(0, "counts"), **{"n": 5, **given}
        )

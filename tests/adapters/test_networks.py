"""Flows of nflows and lampe, and truncated posteriors in the coordinates of a flow."""

from functools import partial
from importlib import import_module

import pytest
import torch
import zuko

import assay
from assay._support.random import isolated, stream
from assay.data.draw import Sampler
from assay.data.posterior import Posterior, as_posterior, latents

THETA = torch.randn(200, 2, generator=stream(0, "theta"))
X = THETA + torch.randn(200, 2, generator=stream(0, "x"))
check = partial(assay.check, nulls=39, classifier=None)


def trained(network, loss):
    """The network after some steps down a loss of all pairs."""
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(20):
        optimizer.zero_grad()
        loss(THETA, X).backward()
        optimizer.step()
    return network


def nflow():
    flows = import_module("nflows.flows")
    from nflows.distributions import StandardNormal
    from nflows.transforms import MaskedAffineAutoregressiveTransform

    transform = MaskedAffineAutoregressiveTransform(2, 8, context_features=3)
    flow = flows.Flow(transform, StandardNormal([2]), torch.nn.Linear(2, 3))
    return trained(flow, lambda theta, x: -flow.log_prob(theta, context=x).mean())


def lampe_npe():
    lampe = import_module("lampe.inference")
    estimator = lampe.NPE(2, 2, transforms=2)
    return trained(estimator, lampe.NPELoss(estimator))


def lampe_fmpe():
    lampe = import_module("lampe.inference")
    estimator = lampe.FMPE(2, 2)
    return trained(estimator, lampe.FMPELoss(estimator))


def zuko_flow():
    flow = zuko.flows.NSF(2, 2, transforms=2, hidden_features=(8,))
    return trained(flow, lambda theta, x: -flow(x).log_prob(theta).mean())


@pytest.mark.parametrize("make", [nflow, lampe_npe, lampe_fmpe, zuko_flow])
def test_latents_of_own_draws_are_normal(make):
    """In double precision too, where the network is in single precision."""
    from scipy.stats import kstest

    with isolated(stream(0, "network")):
        q = as_posterior(make(), X)
    draws = Sampler(q).draw(X.double(), 8, "own").theta
    assert draws.dtype == torch.float64
    assert torch.equal(draws, Sampler(q).draw(X.double(), 8, "own").theta)
    z = latents(q.flow.theta_to_base, draws.flatten(0, 1), X.double().repeat_interleave(8, 0))
    assert min(kstest(column, "norm").pvalue for column in z.numpy().T) > 1e-4


@pytest.mark.parametrize("make", [nflow, lampe_npe, lampe_fmpe, zuko_flow])
def test_the_density_is_that_of_the_latents(make):
    """By the determinant of the inverse."""
    with isolated(stream(0, "network")):
        q = as_posterior(make(), X)
    theta, x = THETA[:5].double(), X[:5].double()
    for t, at, log_q in zip(theta, x, q.log_density(theta, x), strict=True):
        inverse = partial(lambda at, t: q.flow.theta_to_base(t[None], at[None])[0], at)
        z, slope = inverse(t), torch.autograd.functional.jacobian(inverse, t)
        expected = torch.distributions.Normal(0.0, 1.0).log_prob(z).sum() + slope.logdet()
        assert float(log_q) == pytest.approx(float(expected.detach()), abs=0.02)


@pytest.mark.parametrize("make", [nflow, lampe_npe, zuko_flow])
def test_in_one_line(make):
    with isolated(stream(0, "network")):
        found = check(make(), THETA, X, X[:1])
    assert found.settings["space"] == "latent"


def test_a_mixture_of_zuko():
    with isolated(stream(0, "network")):
        q = as_posterior(zuko.flows.GMM(2, 2), X)
    assert q.flow is None
    assert Sampler(q).draw(X, 4, "own").theta.shape == (200, 4, 2)


def test_a_ratio_estimator_of_lampe():
    lampe = import_module("lampe.inference")
    with pytest.raises(TypeError, match="lampe that can be sampled, NPE or FMPE; got NRE"):
        check(lampe.NRE(2, 2), THETA, X, X[0])


def test_a_ratio_estimator_of_lampe_by_markov_chains():
    """As the message says: a chain for each draw, started in the prior."""
    lampe = import_module("lampe.inference")
    with isolated(stream(0, "network")):
        ratio = lampe.NRE(2, 2, hidden_features=(8,))
    prior = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))

    def sample(x, n):
        def log_density(theta):
            return ratio(theta, x.expand(n, -1)) + prior.log_prob(theta)

        start = prior.sample((n,))
        with torch.no_grad():
            *_, theta = lampe.MetropolisHastings(start, log_f=log_density, sigma=0.5)(20)
        return theta

    found = check(sample, THETA, X, assay.Draws(X[:1], n=100), draws=8)
    assert found.settings["space"] == "parameters"
    assert found.remarks == ()


class Truncated(Posterior):
    """Exactly right for x = theta + noise with theta uniform in [-1, 1]^2; its flow is not."""

    scale = 0.5

    @property
    def coordinates(self):
        return lambda theta, x: (theta - x) / self.scale

    def sample_batched(self, x, n):
        ends = [torch.special.ndtr((end - x[:, None]).double() / self.scale) for end in (-1, 1)]
        level = ends[0] + torch.rand(len(x), n, 2).double() * (ends[1] - ends[0])
        return x[:, None] + self.scale * torch.special.ndtri(level).to(x)

    def pairs(self, seed, n=300):
        theta = 2 * torch.rand(n, 2, generator=stream(seed, "theta")) - 1
        return theta, theta + self.scale * torch.randn(n, 2, generator=stream(seed, "noise"))


class TestTruncated:
    X_O = torch.tensor([0.9, 0.0])

    def pvalue(self, seed, latent):
        """Of truncated draws in latent coordinates, or of latents as if nothing was left out."""
        q = Truncated()
        theta, x = q.pairs(seed)
        z = q.coordinates(theta, x)
        theta_q = Sampler(q, seed).draw(x, 8, "draws").theta
        z_q = q.coordinates(theta_q, x[:, None])
        calibration = assay.Calibration.from_base(z, x) if latent else assay.Calibration(z, x, z_q)
        return float(assay.score(calibration, null=39)(self.X_O).pvalue)

    def test_what_is_right_is_not_rejected(self):
        """At most two of ten at level 0.05, which fails once in a hundred times."""
        assert sum(self.pvalue(seed, latent=False) <= 0.05 for seed in range(10)) <= 2

    def test_raw_latents_test_another_q(self):
        assert self.pvalue(0, latent=True) <= 0.05

    def test_in_a_check(self):
        q = Truncated()
        found = check(q, *q.pairs(0), self.X_O)
        assert "in the latent coordinates of the network's flow" in found.remarks[-1]
        assert found.verdicts[0] != "rejected"
        assert found.names == ("theta[0]", "theta[1]")

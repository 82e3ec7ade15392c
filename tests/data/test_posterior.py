"""Bases, flows that are one q, and functions that are called as they can be."""

from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, Uniform

import assay
from assay._support.random import stream
from assay.data.posterior import (
    AnotherQ,
    StandardNormal,
    _normality,
    as_base,
    as_posterior,
    check_sets,
)

ZERO, ONE = torch.zeros(3), torch.ones(3)
WIDE = MultivariateNormal(ZERO, 2 * torch.eye(3))


def test_standard_normals_are_recognised():
    normal = Independent(Normal(ZERO, ONE), 1), MultivariateNormal(ZERO, torch.eye(3))
    for base in (*normal, StandardNormal(3)):
        assert as_base(base, 3) == StandardNormal(3)


@pytest.mark.parametrize(
    "base", [Independent(Normal(ONE, ONE), 1), WIDE, Independent(Uniform(ZERO, ONE), 1)]
)
def test_other_bases_keep_their_distribution_and_leave_the_global_generator(base):
    found, state = as_base(base, 3), torch.get_rng_state()
    draws = found.sample(4000, stream(0, "a"))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(draws, found.sample(4000, stream(0, "a")))
    assert torch.allclose(draws.mean(0), base.mean, atol=0.1)
    assert torch.allclose(draws.var(0), base.variance, atol=0.2)


def test_bad_bases():
    with pytest.raises(ValueError, match=r"base: expected dimension 3, .* got 1.*Independent\("):
        as_base(Normal(ZERO, 1.0), 3)
    with pytest.raises(TypeError, match="base: expected a torch.distributions.* got str"):
        as_base("normal", 3)


@dataclass(frozen=True)
class Flow:
    base: object
    theta_to_base: object
    sample: object


def inverse(change):
    """Makes of a flow one whose inverse is a function of it, of parameters and of x."""
    return lambda f: Flow(f.base, lambda theta, x: change(f, theta, x), f.sample)


def sample(change):
    return lambda f: Flow(f.base, f.theta_to_base, lambda x, n: change(f, x, n))


def truncated(flow, x, n):
    """Draws that a prior on [-0.3, 0.3]^2 would leave."""
    theta = flow.sample(0 * x, 200 * n)
    return theta[(theta.abs() < 0.3).all(1)][:n]


WRONG = "flow: expected theta_to_base to map the flow's own"
BAD_FLOWS = [
    (inverse(lambda f, theta, x: x / 2 + theta * f.scale), WRONG),
    (inverse(lambda f, theta, x: f.theta_to_base(theta, 0 * x)), WRONG),
    (inverse(lambda f, theta, x: f.theta_to_base(theta, x)[:, [0, 0]]), WRONG),
    (inverse(lambda f, theta, x: theta[:, :1]), "flow.theta_to_base: expected shape"),
    (inverse(lambda f, theta, x: theta * torch.nan), r"theta_to_base\(theta, x\): .* finite"),
    (sample(truncated), WRONG),
    (sample(lambda f, x, n: torch.zeros(2)), "flow.sample: expected n = 32"),
    (sample(lambda f, x, n: torch.zeros(n, 3)), "flow.sample: .* of 2 parameters; got 3"),
    (lambda f: type(f)(0.3), "theta_q: expected draws of this flow"),
]


@pytest.mark.parametrize(("make", "message"), BAD_FLOWS)
def test_bad_flows(gaussian, make, message):
    with pytest.raises(ValueError, match=message):
        gaussian().calibration(500).to_latent(make(gaussian()))


@pytest.mark.parametrize("width", [0.5, 1.0, 2.0])
def test_a_wrong_posterior_is_still_a_right_flow(gaussian, width):
    state = torch.get_rng_state()
    for seed in range(5):
        gaussian(width=width).calibration(100, seed=seed).to_latent(gaussian(width=width), seed)
    latent = gaussian().calibration(100).to_latent(gaussian())
    latent.observe(assay.Draws(torch.zeros(2)))
    with pytest.raises(ValueError, match="theta_o: expected draws of this flow"):
        latent.observe(assay.Draws(torch.zeros(2), torch.full((50, 2), 4.0)))
    assert torch.equal(torch.get_rng_state(), state)


X = torch.tensor([[0.0, 10.0], [20.0, 30.0], [40.0, 50.0], [60.0, 70.0]]).double()
NETWORK = torch.nn.Linear(2, 2)  # in single precision


class TestPosterior:
    def test_an_object_that_samples(self, gaussian):
        flow = gaussian()
        posterior = as_posterior(SimpleNamespace(sample=flow.sample), X)  # without an inverse
        assert posterior.flow is None
        assert as_posterior(flow, X).flow is flow
        assert as_posterior(posterior, X) is posterior

    @pytest.mark.parametrize(
        ("function", "words"),
        [
            (lambda x, n: x[:2] + torch.randn(n, 2), "one x and n, to draws (n, m)"),
            (lambda x, n: x[:, None, :2] + torch.randn(len(x), n, 2), "to draws (b, n, m)"),
            (lambda x, n: x[:, :2] + torch.randn(n, len(x), 2), "to draws (n, b, m)"),
            (lambda x: MultivariateNormal(x, torch.eye(2)), "many x, to a batch"),
            (lambda x: MultivariateNormal(x[0] + torch.zeros(2), torch.eye(2)), "one x, to a"),
            (lambda x, n: np.random.normal(x.astype(float), 1.0, (n, 2)), "one x and n"),
            (lambda x, n: NETWORK(x) + torch.randn(n, 2), "one x and n"),
        ],
    )
    def test_functions_are_called_as_they_can_be(self, function, words):
        posterior = as_posterior(function, X)
        assert words in posterior.way.words
        assert posterior.sample_batched(X, 6).shape == (4, 6, 2)
        assert posterior.sample(X[0], 6).shape == (6, 2)
        assert posterior.remarks(X) == ()

    def test_a_generator_of_its_own_is_remarked(self):
        generator = np.random.default_rng(0)
        posterior = as_posterior(lambda x, n: generator.normal(size=(n, 2)), X)
        assert "keeps a random generator of its own" in posterior.remarks(X)[0]

    @pytest.mark.parametrize("axes", [0, 1])
    def test_draws_by_name(self, axes):
        """A dict of draws, at one x or at many; theta is matched by name."""

        def sample(x, n):
            draws = x[..., None, :] / 2 + torch.randn(*x.shape[:axes], n, 2)
            return {"b": draws[..., 1], "a": draws[..., 0]}

        theta, x = {"a": torch.arange(40.0), "b": -torch.arange(40.0)}, X.repeat(10, 1)
        found = assay.Calibration.of(sample, theta, x, 3)
        assert (found.names, found.theta[:, 1].tolist()) == (("b", "a"), theta["a"].tolist())
        with pytest.raises(ValueError, match=r"theta: expected columns \['b', 'a'\]"):
            assay.Calibration.of(sample, {"a": theta["a"]}, x, 3)

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            *((each, "an object with sample.*; got") for each in (3, Flow, None, [1])),
            (lambda: 0, r".* one observation x, a tensor of shape \(2,\).*With .*TypeError"),
        ],
    )
    def test_what_is_none(self, given, message):
        with pytest.raises(TypeError, match=f"posterior: expected {message}"):
            as_posterior(given, X)


class TestSets:
    """All draws that a check has prove that its flow is one q."""

    X = torch.randn(500, 2, generator=stream(0, "x"))
    GROUPS = torch.stack([torch.ones(500).bool(), X[:, 0] > 1])

    def test_an_upper_tail_of_a_tenth_that_is_cut_off_where_x_is_large(self, gaussian):
        flow = gaussian()
        for seed in range(5):
            z = torch.randn(500, 16, 2, generator=stream(seed, "cut"))
            low = 0.9 * torch.rand(500, 16, generator=stream(seed, "low"))
            z[..., 0] = torch.where(self.X[:, :1] > 1, torch.special.ndtri(low), z[..., 0])
            draws = self.X[:, None] / 2 + flow.scale * z
            with pytest.raises(AnotherQ, match="flow: expected theta_to_base to map"):
                check_sets(flow, flow.base, draws, self.X, self.GROUPS)

    def test_a_right_flow_passes_and_another_base_is_left_alone(self, gaussian):
        flow = gaussian(width=2.0)
        for seed in range(20):
            draws = flow.draw(self.X, 16, stream(seed, "right"))
            check_sets(flow, flow.base, draws, self.X, self.GROUPS)
        check_sets(gaussian(), as_base(WIDE, 3), self.X[:, None], self.X, self.GROUPS)

    def test_its_chance_is_at_most_what_it_says(self):
        """400 repetitions."""
        p = [_normality(torch.randn(40, 20, 2, generator=stream(i, "p"))) for i in range(400)]
        assert sum(each < 0.05 for each in p) <= 32

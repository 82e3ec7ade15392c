from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, Uniform

import assay
from assay._support.random import stream
from assay.data.posterior import (
    AnotherQ,
    StandardNormal,
    TorchBase,
    _normality,
    as_base,
    as_posterior,
    check_sets,
    is_flow,
)
from assay.data.tables import Layout

STANDARD = {
    "independent": Independent(Normal(torch.zeros(3), torch.ones(3)), 1),
    "multivariate": MultivariateNormal(torch.zeros(3), torch.eye(3)),
    "own": StandardNormal(3),
}
OTHER = {
    "shifted": Independent(Normal(torch.ones(3), torch.ones(3)), 1),
    "wide": MultivariateNormal(torch.zeros(3), 2 * torch.eye(3)),
    "uniform": Independent(Uniform(torch.zeros(3), torch.ones(3), validate_args=False), 1),
}


@pytest.mark.parametrize("base", STANDARD.values(), ids=STANDARD.keys())
def test_standard_normals_are_recognised(base):
    assert as_base(base, 3) == StandardNormal(3)


@pytest.mark.parametrize("base", OTHER.values(), ids=OTHER.keys())
def test_other_bases_keep_their_distribution_and_leave_the_global_generator(base):
    found = as_base(base, 3)
    assert isinstance(found, TorchBase)
    state = torch.get_rng_state()
    draws = found.sample(4000, stream(0, "a"))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(draws, found.sample(4000, stream(0, "a")))
    assert torch.allclose(draws.mean(0), base.mean, atol=0.1)
    assert torch.allclose(draws.var(0), base.variance, atol=0.2)


def test_a_base_of_another_dimension_is_refused():
    with pytest.raises(ValueError, match="base: expected dimension 2, that of theta; got 3"):
        as_base(StandardNormal(3), 2)


def test_something_else_is_refused():
    with pytest.raises(TypeError, match="base: expected a torch.distributions.Distribution"):
        as_base("normal", 2)


@dataclass(frozen=True)
class Wrapped:
    """A right flow with one member replaced."""

    flow: object
    inverse: object = None
    sampler: object = None

    @property
    def base(self):
        return self.flow.base

    def theta_to_base(self, theta, x):
        return (self.inverse or self.flow.theta_to_base)(theta, x)

    def sample(self, x, n):
        return (self.sampler or self.flow.sample)(x, n)


def truncated(flow, x, n):
    """Draws that a prior on [-0.3, 0.3]^2 would leave."""
    theta = flow.sample(x, 200 * n)
    return theta[(theta.abs() < 0.3).all(1)][:n]


WRONG = {
    "forward in place of inverse": lambda f: Wrapped(f, lambda t, x: x / 2 + t * f.scale),
    "another x": lambda f: Wrapped(f, lambda t, x: f.theta_to_base(t, 0 * x)),
    "one latent twice": lambda f: Wrapped(f, lambda t, x: f.theta_to_base(t, x)[:, [0, 0]]),
    "truncated samples": lambda f: Wrapped(f, sampler=lambda x, n: truncated(f, 0 * x, n)),
}


@pytest.mark.parametrize("make", WRONG.values(), ids=WRONG.keys())
def test_a_flow_that_does_not_invert_its_samples(gaussian, make):
    flow = gaussian()
    with pytest.raises(ValueError, match="flow: expected theta_to_base to map the flow's own"):
        flow.calibration(200).to_latent(make(flow))


def test_draws_of_another_q_are_refused(gaussian):
    calibration = gaussian(width=0.3).calibration(500)
    with pytest.raises(ValueError, match="theta_q: expected draws of this flow"):
        calibration.to_latent(gaussian())


@pytest.mark.parametrize("width", [0.5, 1.0, 2.0])
def test_a_wrong_posterior_is_still_a_right_flow(gaussian, width):
    for seed in range(5):
        gaussian(width=width).calibration(100, seed=seed).to_latent(gaussian(width=width), seed)


SHAPES = {
    "inverse": (lambda f: Wrapped(f, lambda t, x: t[:, :1]), "flow.theta_to_base: expected shape"),
    "sample": (lambda f: Wrapped(f, sampler=lambda x, n: torch.zeros(2)), "flow.sample: expected"),
    "too many": (
        lambda f: Wrapped(f, sampler=lambda x, n: torch.zeros(n, 3)),
        "flow.sample: expected draws of 2 parameters; got 3",
    ),
    "nan": (
        lambda f: Wrapped(f, lambda t, x: t * torch.nan),
        r"flow.theta_to_base\(theta, x\): expected finite numbers",
    ),
}


@pytest.mark.parametrize(("make", "message"), SHAPES.values(), ids=SHAPES.keys())
def test_bad_members(gaussian, make, message):
    with pytest.raises(ValueError, match=message):
        gaussian().calibration(100).to_latent(make(gaussian()))


def test_the_global_generator_is_untouched(gaussian):
    state = torch.get_rng_state()
    latent = gaussian().calibration(100).to_latent(gaussian())
    latent.observe(assay.Draws(torch.zeros(2)))
    assert torch.equal(torch.get_rng_state(), state)


def test_draws_at_an_observation_must_be_the_flows(gaussian):
    latent = gaussian().calibration(100).to_latent(gaussian())
    with pytest.raises(ValueError, match="theta_o: expected draws of this flow"):
        latent.observe(assay.Draws(torch.zeros(2), torch.full((50, 2), 4.0)))


class Sampler:
    """A posterior without an inverse."""

    def sample(self, x, n):
        return x + torch.randn(n, len(x))


X = torch.tensor([[0.0, 10.0], [20.0, 30.0], [40.0, 50.0], [60.0, 70.0]])


class TestPosterior:
    def test_an_object_that_samples(self, gaussian):
        posterior, flow = as_posterior(Sampler(), X), gaussian()
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
        ],
    )
    def test_functions_are_called_as_they_can_be(self, function, words):
        posterior = as_posterior(function, X)
        assert words in posterior.way.words
        assert posterior.sample_batched(X, 6).shape == (4, 6, 2)
        assert posterior.sample(X[0], 6).shape == (6, 2)
        assert posterior.remarks(X) == ()

    def test_a_network_in_single_precision(self):
        network = torch.nn.Linear(2, 2)
        posterior = as_posterior(lambda x, n: network(x) + torch.randn(n, 2), X.double())
        assert posterior.sample(X[0].double(), 3).shape == (3, 2)

    def test_a_function_of_numpy_arrays(self):
        posterior = as_posterior(lambda x, n: np.random.normal(x, 1.0, (n, 2)), X)
        assert posterior.repeats
        assert posterior.sample(X[0], 3).shape == (3, 2)

    def test_a_generator_of_its_own_is_remarked(self):
        generator = np.random.default_rng(0)
        posterior = as_posterior(lambda x, n: generator.normal(size=(n, 2)), X)
        assert "keeps a random generator of its own" in posterior.remarks(X)[0]

    def test_a_function_of_dicts(self):
        layout = Layout((("a", ()), ("b", (1,))), packed=True)
        posterior = as_posterior(lambda x, n: x["a"] + x["b"] + torch.randn(n, 2), X, layout)
        assert posterior.sample(X[0], 3).shape == (3, 2)

    @pytest.mark.parametrize("axes", [0, 1])
    def test_draws_by_name(self, axes):
        """A dict of draws, at one x or at many; theta is matched by name."""

        def sample(x, n):
            draws = x[..., None, :] / 2 + torch.randn(*x.shape[:axes], n, 2)
            return {"b": draws[..., 1], "a": draws[..., 0]}

        theta = {"a": torch.arange(40.0), "b": -torch.arange(40.0)}
        found = assay.Calibration.of(
            sample, theta, torch.randn(40, 2, generator=stream(0, "x")), 3
        )
        assert found.names == ("b", "a")
        assert torch.equal(found.theta[:, 1], theta["a"])
        with pytest.raises(ValueError, match=r"theta: expected columns \['b', 'a'\]"):
            assay.Calibration.of(sample, {"a": theta["a"]}, found.x, 3)

    @pytest.mark.parametrize(
        ("given", "got"), [(3, "int"), (Sampler, "type"), (None, "NoneType"), ([1], "list")]
    )
    def test_what_is_none(self, given, got):
        message = rf"posterior: expected an object with sample\(x, n\), a function.*got {got}"
        with pytest.raises(TypeError, match=message):
            as_posterior(given, X)

    def test_a_flow_has_an_inverse_and_a_base(self, gaussian):
        assert is_flow(gaussian())
        assert not is_flow(Sampler())

    def test_a_function_of_something_else(self):
        with pytest.raises(
            TypeError, match=r"one observation x, a tensor of shape \(2,\).*TypeError"
        ):
            as_posterior(lambda: 0, X)


class TestSets:
    """All draws that a check has prove that its flow is one q."""

    X = torch.randn(500, 2, generator=stream(0, "x"))
    GROUPS = torch.stack([torch.ones(500).bool(), X[:, 0] > 1])

    def cut(self, flow, share, seed=0):
        """Draws (500, 16, 2) without the upper tail of the first parameter where x > 1."""
        generator = stream(seed, "cut")
        z = torch.randn(500, 16, 2, generator=generator)
        low = torch.rand(500, 16, generator=generator) * (1 - share)
        z[..., 0] = torch.where(self.X[:, :1] > 1, torch.special.ndtri(low), z[..., 0])
        return self.X[:, None] / 2 + flow.scale * z

    @pytest.mark.parametrize("share", [0.1, 0.5])
    def test_what_is_cut_off_at_some_x_is_seen(self, gaussian, share):
        flow = gaussian()
        for seed in range(5):
            with pytest.raises(AnotherQ, match="flow: expected theta_to_base to map"):
                check_sets(flow, flow.base, self.cut(flow, share, seed), self.X, self.GROUPS)

    def test_a_right_flow_passes(self, gaussian):
        for seed in range(20):
            flow = gaussian(width=2.0)
            draws = flow.draw(self.X, 16, stream(seed, "right"))
            check_sets(flow, flow.base, draws, self.X, self.GROUPS)

    def test_its_chance_is_at_most_what_it_says(self):
        """400 repetitions."""
        p = [_normality(torch.randn(40, 20, 2, generator=stream(i, "p"))) for i in range(400)]
        assert sum(each < 0.05 for each in p) <= 32

    def test_another_base_is_left_alone(self, gaussian):
        check_sets(gaussian(), TorchBase(OTHER["wide"]), self.X[:, None], self.X, self.GROUPS)

"""What holds for every task: its posterior against its simulator, and its errors."""

import json

import numpy as np
import pytest
import scipy.stats
import torch

from assay._support.random import stream
from experiments.tasks import BENCHMARK, TASKS, StateSpace, task
from experiments.tasks.task import Direct

SLOW = ["slcp", "bernoulli_glm", "bernoulli_glm_raw"]
KNOWN = sorted(set(TASKS) - {"jansen_rit"})
QUICK = sorted(set(KNOWN) - set(SLOW))
DRAWS = 99


def ranks(of, repetitions):
    """Ranks (n, m + 1) of true parameters, and of their log-density, among posterior draws."""
    generator = stream(0, "sbc", of.name)
    theta, x = of.joint(repetitions, generator)
    found = []
    for i in range(repetitions):
        draws = of.posterior(x[i], DRAWS, generator).theta
        below = (draws < theta[i]).sum(0)
        both = of.log_posterior(torch.cat([theta[i : i + 1], draws]), x[i])
        # float32 parameters at the edge of a density of double precision must not count.
        found.append(torch.cat([below, (both[1:] < both[0]).sum()[None]]))
    return torch.stack(found).numpy()


def uniform(column):
    return scipy.stats.chisquare(np.bincount(column // 10, minlength=10)).pvalue


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_posterior_against_simulator(name):
    """Simulation-based calibration over 1000 prior draws, each p-value above 0.001."""
    of = StateSpace(d=40) if name == "state_space" else task(name)
    found = ranks(of, 1000)
    for column in found.T:
        assert uniform(column) > 1e-3


@pytest.mark.parametrize("name", SLOW)
def test_posterior_against_simulator_in_short(name):
    """The same over 25 prior draws, by Kolmogorov and Smirnov's test."""
    found = (ranks(task(name), 25) + 0.5) / (DRAWS + 1)
    assert min(scipy.stats.kstest(column, "uniform").pvalue for column in found.T) > 1e-4


@pytest.mark.parametrize("name", KNOWN)
def test_shapes_names_and_dtypes(name):
    of, generator = task(name), stream(0, "shapes")
    theta, x = of.joint(7, generator)
    assert theta.shape == (7, of.m)
    assert x.shape == (7, of.d)
    assert len(set(of.parameters)) == of.m
    assert of.prior.inside(theta).all()
    assert torch.isfinite(of.prior.log_prob(theta)).all()
    found = of.posterior(x[0], 50, generator)
    assert found.theta.shape == (50, of.m)
    assert found.theta.dtype == torch.float32
    assert found.exceeded == 0
    if isinstance(of, Direct):
        assert found.acceptance == 1
    else:
        # One over the proposals that a draw costs: so few that samplers stay quick.
        assert 0.01 < found.acceptance <= 1
    assert torch.isfinite(of.log_posterior(found.theta, x[0])).all()
    assert of.draws(x[:2], 3, generator).shape == (2, 3, of.m)
    doubled = of.simulate(theta.double(), generator)
    assert doubled.dtype == torch.float64


@pytest.mark.parametrize("name", KNOWN)
def test_the_same_generator_gives_the_same_draws(name):
    of = task(name)
    (theta, x), (again, x_again) = (of.joint(3, stream(1, "same")) for _ in range(2))
    assert torch.equal(theta, again)
    assert torch.equal(x, x_again)
    first, second = (of.posterior(x[0], 20, stream(2, "same")).theta for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("name", KNOWN)
def test_moments_are_those_of_the_draws(name):
    of, generator = task(name), stream(0, "moments")
    _, x = of.joint(2, generator)
    mean, deviation = of.moments(x)
    for i in range(2):
        draws = of.posterior(x[i], 4000, generator).theta.double()
        error = deviation[i] / 4000**0.5
        assert ((draws.mean(0) - mean[i]).abs() < 6.5 * error).all()
        torch.testing.assert_close(draws.std(0), deviation[i], rtol=0.15, atol=0)
    torch.testing.assert_close(of.moments(x)[0], mean)


@pytest.mark.parametrize("kind", BENCHMARK)
def test_benchmark_observations(kind):
    """Ten of them, which their true parameters could have produced."""
    of = kind()
    x, theta = of.observations
    assert x.shape == (10, of.d)
    assert theta.shape == (10, of.m)
    assert of.prior.inside(theta).all()
    assert torch.isfinite(of.log_posterior(theta, x)).all()


def test_observations_of_a_task_outside_the_benchmark():
    with pytest.raises(ValueError, match="expected one of the benchmark; got state_space"):
        _ = task("state_space").observations


def test_the_file_of_observations_says_where_it_is_from():
    from experiments.tasks.task import benchmark

    assert "MIT" in benchmark()["_source"]
    assert json.dumps(benchmark())


class TestErrors:
    def test_an_unknown_name(self):
        with pytest.raises(
            ValueError, match="expected one of bernoulli_glm, .*two_moons; got 'x'"
        ):
            task("x")

    def test_parameters_outside_the_prior(self):
        theta = torch.tensor([[0.0, 0.0], [0.0, 1.5]])
        with pytest.raises(ValueError, match=r"theta: expected .* support .* row 1"):
            task("two_moons").simulate(theta, stream(0, "x"))

    @pytest.mark.parametrize("theta", [torch.zeros(3), torch.zeros(4, 3)])
    def test_the_wrong_number_of_parameters(self, theta):
        with pytest.raises(ValueError, match=r"theta: expected shape \(n, 2\)"):
            task("two_moons").simulate(theta, stream(0, "x"))

    def test_an_observation_of_the_wrong_length(self):
        with pytest.raises(ValueError, match=r"x: expected one observation of shape \(8,\)"):
            task("slcp").posterior(torch.zeros(7), 10, stream(0, "x"))

    def test_an_observation_with_nan(self):
        with pytest.raises(ValueError, match="x: "):
            task("two_moons").posterior(torch.tensor([torch.nan, 0.0]), 10, stream(0, "x"))

    def test_an_observation_that_cannot_be(self):
        with pytest.raises(ValueError, match="x: expected an observation that the prior can"):
            task("two_moons").posterior(torch.tensor([5.0, 5.0]), 10, stream(0, "x"))

    def test_counts_that_are_none(self):
        with pytest.raises(ValueError, match="x: expected counts"):
            task("gamma_poisson").posterior(torch.tensor([0.5, 1.0]), 10, stream(0, "x"))

    @pytest.mark.parametrize("n", [0, -1])
    def test_no_draws(self, n):
        with pytest.raises(ValueError, match="n: expected at least 1"):
            task("two_moons").joint(n, stream(0, "x"))

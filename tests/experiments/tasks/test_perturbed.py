import math

import pytest
import scipy.stats
import torch

import assay
from assay._support.random import stream
from experiments.tasks import ConjugateGaussian, GammaPoisson, Perturbed, TwoMoons
from experiments.tasks.errors import Narrow, Shift, Skew, Wide

X_O = torch.ones(5)
N = 20_000
ERRORS = [(Shift(0), 0.5), (Shift(1), 0.3), (Wide(), 0.2), (Narrow(), 0.4), (Skew(0), 0.3)]


@pytest.mark.parametrize(("error", "size"), ERRORS, ids=repr)
@pytest.mark.parametrize("task", [ConjugateGaussian(), GammaPoisson()], ids=repr)
def test_what_is_stated_is_what_is_measured(task, error, size):
    x_o = torch.ones(task.d)
    q = Perturbed(task, error, size)
    stated = q.moved(x_o)
    mean, deviation = (part[0] for part in task.moments(x_o[None]))
    draws = q.draws(x_o[None], N, stream(0, "draws"))[0].double()
    u = (draws - mean) / deviation
    error_of_mean = u.std(0) / N**0.5 + 1 / N**0.5
    assert ((u.mean(0) - stated.bias).abs() < 4.5 * error_of_mean).all()
    torch.testing.assert_close(u.std(0).float(), stated.dispersion, rtol=0.05, atol=0)
    # The oracle two-sample distance of a classifier cannot exceed the total variation.
    truth = ((task.posterior(x_o, N, stream(1, "draws")).theta - mean) / deviation).double()
    for j in range(task.m):
        distance = scipy.stats.ks_2samp(u[:, j], truth[:, j]).statistic
        assert distance <= stated.total_variation + 0.02


def test_the_total_variation_of_a_shifted_normal():
    task = ConjugateGaussian()
    moved = task.covariance[0, 0].sqrt() * torch.tensor([0.5, 0.0, 0.0], dtype=torch.float64)
    length = float((moved @ torch.linalg.solve(task.covariance, moved)).sqrt())
    expected = math.erf(length / 2 / math.sqrt(2))
    assert Perturbed(task, Shift(0), 0.5).moved(X_O).total_variation == pytest.approx(
        expected, abs=0.01
    )


def test_the_total_variation_of_a_widened_normal():
    """In one dimension both densities cross at +-a, a^2 = 2 log s / (1 - 1 / s^2)."""
    task, s = ConjugateGaussian(1, 2), 1.5
    a = math.sqrt(2 * math.log(s) / (1 - s**-2))
    normal = scipy.stats.norm
    expected = 2 * (normal.cdf(a) - normal.cdf(a / s))
    found = Perturbed(task, Wide(), s - 1).moved(torch.ones(2)).total_variation
    assert found == pytest.approx(expected, abs=0.01)


def test_a_region():
    q = Perturbed(ConjugateGaussian(), Shift(0), 2.0, region=lambda x: x[:, 0] > 0)
    assert q.moved(-X_O).total_variation == 0
    assert q.moved(X_O).total_variation > 0.5
    calibration = q.calibration(4000, 1, stream(0, "region"))
    mean, deviation = ConjugateGaussian().moments(calibration.x)
    u = ((calibration.theta_q[:, 0] - mean) / deviation)[:, 0]
    inside = calibration.x[:, 0] > 0
    assert u[inside].mean() == pytest.approx(2, abs=0.1)
    assert u[~inside].mean() == pytest.approx(0, abs=0.1)


def test_it_is_a_flow_where_its_task_is_one():
    q = Perturbed(ConjugateGaussian(), Wide(), 0.5)
    calibration = q.calibration(3000, 1, stream(0, "flow"))
    latent = calibration.to_latent(q)
    assert latent.theta.std() == pytest.approx(1 / 1.5, rel=0.05)
    assert assay.score(latent)(X_O).pvalue == 0.001


def test_no_flow():
    with pytest.raises(ValueError, match="task: expected one with latents"):
        _ = Perturbed(TwoMoons(), Shift(0), 1.0).base


@pytest.mark.parametrize("error", [Shift(0), Wide(), Narrow(), Skew(1)], ids=repr)
def test_latents_of_its_own_draws_are_those_of_the_base(error):
    q = Perturbed(ConjugateGaussian(), error, 0.5)
    draws = q.draws(X_O[None], N, stream(0, "own"))[0]
    latent = q.theta_to_base(draws, X_O.expand(N, -1))
    for j in range(q.task.m):
        assert scipy.stats.kstest(latent[:, j].numpy(), "norm").pvalue > 0.001


def test_draws_are_moved_as_the_size_says():
    """The draws of the task with the same generator, moved in its standard coordinates."""
    task, x = ConjugateGaussian(), torch.ones(1, 5)
    mean, deviation = (part[0] for part in task.moments(x))
    right = task.draws(x, 9, stream(0, "moved"))[0].double()
    expected = {
        Shift(0): right + deviation * torch.tensor([0.4, 0.0, 0.0]),
        Wide(): mean + 1.4 * (right - mean),
        Narrow(): mean + (right - mean) / 1.4,
    }
    for error, wrong in expected.items():
        found = Perturbed(task, error, 0.4).draws(x, 9, stream(0, "moved"))[0]
        torch.testing.assert_close(found, wrong.to(found))


def test_draws_stay_what_they_were():
    q = Perturbed(ConjugateGaussian(), Shift(0), 0.3)
    expected = [[0.66530484, 1.82151985, 0.39637804], [0.30303165, 0.45115986, 0.04351835]]
    found = q.draws(X_O[None], 2, stream(3, "d"))[0]
    torch.testing.assert_close(found, torch.tensor(expected))


@pytest.mark.parametrize(
    ("error", "size", "match"),
    [
        (Shift(0), -0.1, "size: expected a finite number of at least 0"),
        (Shift(3), 0.1, "along: expected one of 3 coordinate"),
        ("shift", 0.1, "error: expected one such as Shift"),
    ],
)
def test_bad_errors(error, size, match):
    with pytest.raises((TypeError, ValueError), match=match):
        Perturbed(ConjugateGaussian(), error, size)


def test_an_error_of_all_coordinates():
    moved = Perturbed(ConjugateGaussian(), Shift(), 0.5).moved(X_O)
    torch.testing.assert_close(moved.bias, torch.full((3,), 0.5), rtol=0, atol=0.02)
    torch.testing.assert_close(moved.dispersion, torch.ones(3))


def test_draws_where_nothing_is_wrong_there():
    model = ConjugateGaussian(2, 2)
    q = Perturbed(model, Shift(0), 1.0, region=lambda x: x[:, 0] > 100)
    x = torch.zeros(3, 2)
    right, same = (p.draws(x, 5, stream(0, "draws")) for p in (model, q))
    assert torch.equal(right, same)

import math

import pytest
import scipy.stats
import torch

import assay
from assay.randomness import stream
from assay.tasks import ConjugateGaussian, GammaPoisson, GaussianMixture, Perturbed, TwoMoons
from assay.tasks.perturbed import Drop, Leak, Rotate, Shift, Skew, Widen

X_O = torch.ones(5)
N = 20_000
ERRORS = [Shift(0.5), Shift(-0.3, 2), Widen(1.2), Widen(0.7), Skew(0.3), Rotate(0.5)]
ERRORS += [Drop(), Drop(1, -0.5), Leak(0.1)]


@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize("task", [ConjugateGaussian(), GammaPoisson()], ids=repr)
def test_what_is_stated_is_what_is_measured(task, error):
    if max(getattr(error, "along", 0), getattr(error, "second", 0)) >= task.m:
        error = type(error)(error.by, 1)
    x_o = torch.ones(task.d)
    q = Perturbed(task, error)
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
    assert Perturbed(task, Shift(0.5)).moved(X_O).total_variation == pytest.approx(
        expected, abs=0.01
    )


def test_the_total_variation_of_a_widened_normal():
    """In one dimension both densities cross at +-a, a^2 = 2 log s / (1 - 1 / s^2)."""
    task, s = ConjugateGaussian(1, 2), 1.5
    a = math.sqrt(2 * math.log(s) / (1 - s**-2))
    normal = scipy.stats.norm
    expected = 2 * (normal.cdf(a) - normal.cdf(a / s))
    found = Perturbed(task, Widen(s)).moved(torch.ones(2)).total_variation
    assert found == pytest.approx(expected, abs=0.01)


@pytest.mark.parametrize("task", [TwoMoons(), GaussianMixture()], ids=repr)
def test_a_lost_part_is_the_total_variation(task):
    x_o = task.observations.x[0]
    mean, _ = task.moments(x_o[None])
    truth = task.posterior(x_o, N, stream(0, "lost")).theta
    lost = float((truth[:, 0] < mean[0, 0]).float().mean())
    q = Perturbed(task, Drop())
    assert q.moved(x_o).total_variation == pytest.approx(lost, abs=0.02)
    assert (q.draws(x_o[None], 500, stream(0, "x"))[0, :, 0] >= mean[0, 0] - 1e-5).all()


def test_a_region():
    q = Perturbed(ConjugateGaussian(), Shift(2.0), region=lambda x: x[:, 0] > 0)
    assert q.moved(-X_O).total_variation == 0
    assert q.moved(X_O).total_variation > 0.5
    calibration = q.calibration(4000, 1, stream(0, "region"))
    mean, deviation = ConjugateGaussian().moments(calibration.x)
    u = ((calibration.theta_q[:, 0] - mean) / deviation)[:, 0]
    inside = calibration.x[:, 0] > 0
    assert u[inside].mean() == pytest.approx(2, abs=0.1)
    assert u[~inside].mean() == pytest.approx(0, abs=0.1)


def test_it_is_a_flow_where_its_task_is_one():
    q = Perturbed(ConjugateGaussian(), Widen(1.5))
    calibration = q.calibration(3000, 1, stream(0, "flow"))
    latent = calibration.to_latent(q)
    assert latent.theta.std() == pytest.approx(1 / 1.5, rel=0.05)
    assert assay.moments(latent)(assay.Draws(X_O)).pvalue == 0.005


def test_no_flow():
    theta, x = torch.zeros(3, 5), torch.zeros(3, 5)
    with pytest.raises(ValueError, match="error: expected one that moves draws"):
        Perturbed(ConjugateGaussian(), Drop()).theta_to_base(theta[:, :3], x)
    with pytest.raises(ValueError, match="task: expected one with latents"):
        _ = Perturbed(TwoMoons(), Shift(1.0)).base


@pytest.mark.parametrize("error", [lambda: Widen(0.0), lambda: Leak(1.5), lambda: Leak(0.0)])
def test_errors_that_mean_nothing(error):
    with pytest.raises(ValueError, match="times|share"):
        error()


def test_an_error_that_leaves_nothing():
    q = Perturbed(ConjugateGaussian(), Drop(0, below=50.0))
    with pytest.raises(ValueError, match="error: expected one that keeps some draws"):
        q.draws(X_O[None], 1, stream(0, "x"))


def test_draws_where_nothing_is_wrong_there():
    model = ConjugateGaussian(2, 2)
    q = Perturbed(model, Shift(1.0), region=lambda x: x[:, 0] > 100)
    x = torch.zeros(3, 2)
    right, same = (p.draws(x, 5, stream(0, "draws")) for p in (model, q))
    assert torch.equal(right, same)

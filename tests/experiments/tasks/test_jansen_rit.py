import math
import os
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import scipy.integrate
import scipy.linalg
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_score

from assay._support.random import stream
from experiments.tasks.jansen_rit import (
    JansenRit,
    Scheme,
    Series,
    Spectrum,
    _noise,
    covariance,
    propagator,
    signals,
)

BESIDE = Path(__file__).resolve().parents[3] / "shared" / "data" / "paper"
PAPER = Path(os.environ.get("ASSAY_PAPER_SAMPLES", BESIDE)) / "jrnmm.npz"
STEP = 1 / 1024
RATES = (100.0, 100.0, 50.0)


def parameters(n, seed=0):
    return JansenRit().prior.sample(n, stream(seed, "theta"))


def drift(rate):
    return np.array([[0.0, 1.0], [-(rate**2), -2 * rate]])


def integrated(rate, step):
    """The covariance of the linear equation after a step, by quadrature."""

    def spread(age):
        response = scipy.linalg.expm(drift(rate) * age)[:, 1]
        return np.outer(response, response)

    return scipy.integrate.quad_vec(spread, 0, step, epsabs=0, epsrel=1e-13)[0]


@pytest.mark.parametrize("rate", [50.0, 100.0])
@pytest.mark.parametrize("step", [STEP, 0.02])
def test_the_linear_equation_against_expm_and_quadrature(rate, step):
    exponential = scipy.linalg.expm(drift(rate) * step)
    np.testing.assert_allclose(propagator(rate, step), exponential, rtol=1e-11, atol=1e-15)
    np.testing.assert_allclose(covariance(rate, step), integrated(rate, step), rtol=1e-10)


def force(position, coupling, mean):
    """F(Q) (3,) as in the papers, for one row."""

    def sigmoid(potential):
        return 5 / (1 + math.exp(0.56 * (6 - potential)))

    first, second, third = position
    return np.array(
        [
            3.25 * 100 * sigmoid(second - third),
            3.25 * 100 * (mean + 0.8 * coupling * sigmoid(coupling * first)),
            22 * 50 * 0.25 * coupling * sigmoid(0.25 * coupling * first),
        ]
    )


def literal(theta, start, noise):
    """Outputs (t + 1,) of Strang splitting with two half kicks to a step, for one row.

    Start (3, 2) holds positions and momenta; noise (t, 3, 2) is standard.
    """
    coupling, mean, sigma, _ = theta
    means = [scipy.linalg.expm(drift(rate) * STEP) for rate in RATES]
    factors = [np.linalg.cholesky(integrated(rate, STEP)) for rate in RATES]
    state, found = np.array(start), [start[1, 0] - start[2, 0]]
    for drawn in noise:
        state[:, 1] += STEP / 2 * force(state[:, 0], coupling, mean)
        for k, strength in enumerate([0.01, sigma, 1.0]):
            state[k] = means[k] @ state[k] + strength * factors[k] @ drawn[k]
        state[:, 1] += STEP / 2 * force(state[:, 0], coupling, mean)
        found.append(state[1, 0] - state[2, 0])
    return np.array(found)


def merged(theta, start, noise):
    """Outputs (t + 1, n) of the module's scheme for start (3, 2, n) and noise (t, 3, 2, n)."""
    scheme = Scheme.of(theta)
    state = scheme.start(start)
    found = [scheme.output(state)]
    for drawn in noise.split(1):
        state = scheme.advance(state, drawn)
        found.append(scheme.output(state))
    return torch.stack(found)


def driven(n, steps):
    """Parameters (n, 4), a start (3, 2, n) and noise (steps, 3, 2, n), in double precision."""
    generator = stream(0, "driven")
    noise = torch.randn(steps + 1, 3, 2, n, generator=generator, dtype=torch.float64)
    return parameters(n).double(), noise[0], noise[1:]


def test_the_scheme_against_literal_half_kicks():
    theta, start, noise = driven(5, 600)
    found = merged(theta, start, noise)
    for i in range(5):
        expected = literal(theta[i].tolist(), start[..., i].numpy(), noise[..., i].numpy())
        np.testing.assert_allclose(found[:, i], expected, rtol=1e-10, atol=1e-10)


def test_steps_at_once_are_steps_one_by_one():
    theta, start, noise = driven(3, 8)
    scheme = Scheme.of(theta)
    state = scheme.advance(scheme.start(start), noise)
    assert torch.equal(scheme.output(state), merged(theta, start, noise)[-1])


def test_the_signal_is_what_the_scheme_puts_out():
    """1280 samples of the literal grid, eight steps apart, the first 256 dropped."""
    theta = parameters(2)
    first, *rest = islice(_noise(theta, stream(0, "x")), 1280)
    start, noise = first[0], torch.cat(rest)
    outputs = merged(theta.double(), start, noise)[::8][256:]
    expected = 10 ** (theta[:, 3].double() / 10) * (outputs - outputs.mean(0))
    torch.testing.assert_close(signals(theta, stream(0, "x")), expected.mT)


def test_the_spectrum_by_hand():
    series = signals(parameters(1), stream(0, "x"))
    angles = 2 * np.pi * np.outer(np.arange(33), np.arange(65)) / 65
    windows = np.stack([series[0].numpy()[32 * k : 32 * k + 65] for k in range(30)])
    power = (windows @ np.cos(angles).T) ** 2 + (windows @ np.sin(angles).T) ** 2
    np.testing.assert_allclose(Spectrum()(series)[0], np.log10(power.mean(0)), rtol=1e-9)


def test_a_gain_adds_its_fifth():
    theta = parameters(6).double()
    flat = theta.clone()
    flat[:, 3] = 0
    task = JansenRit()
    x, at_zero = (task.simulate(t, stream(0, "x")) for t in (theta, flat))
    torch.testing.assert_close(x, at_zero + theta[:, 3:] / 5, rtol=0, atol=1e-12)


def test_a_gain_multiplies_the_series():
    theta = parameters(3).double()
    flat = theta.clone()
    flat[:, 3] = 0
    task = JansenRit(Series())
    x, at_zero = (task.simulate(t, stream(0, "x")) for t in (theta, flat))
    torch.testing.assert_close(x, at_zero * 10 ** (theta[:, 3:] / 10), rtol=1e-13, atol=0)


@pytest.mark.parametrize(("summary", "d"), [(Spectrum(), 33), (Series(), 1024)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_shapes_and_types(summary, d, dtype):
    task = JansenRit(summary)
    x = task.simulate(parameters(3).to(dtype), stream(0, "x"))
    assert x.shape == (3, d)
    assert (task.m, task.d, x.dtype) == (4, d, dtype)
    assert x.isfinite().all()


def test_the_series_has_mean_zero_and_the_spectrum_is_its_own():
    theta = parameters(3)
    series = JansenRit(Series()).simulate(theta, stream(0, "x"))
    assert (series.mean(1).abs() < 1e-5 * series.std(1)).all()
    spectrum = JansenRit().simulate(theta, stream(0, "x"))
    torch.testing.assert_close(Spectrum()(series), spectrum, rtol=0, atol=1e-4)


def test_the_same_generator_gives_the_same():
    theta, task = parameters(3), JansenRit()
    x = task.simulate(theta, stream(0, "x"))
    assert torch.equal(task.simulate(theta, stream(0, "x")), x)
    assert not torch.isclose(task.simulate(theta, stream(1, "x")), x).any()
    torch.testing.assert_close(task.simulate(theta.double(), stream(0, "x")).float(), x)


def test_batches_have_streams_of_their_own(monkeypatch):
    monkeypatch.setattr("experiments.tasks.jansen_rit.BATCH", 2)
    task, theta = JansenRit(), parameters(1).expand(5, 4)
    x = task.simulate(theta, stream(0, "x"))
    assert len(torch.unique(x, dim=0)) == 5
    assert torch.equal(task.simulate(theta[:2], stream(0, "x")), x[:2])
    assert torch.equal(task.simulate(theta[:4], stream(0, "x")), x[:4])


def test_global_generators_and_threads_are_left_alone():
    before, threads = torch.random.get_rng_state(), torch.get_num_threads()
    JansenRit().joint(2, stream(0, "x"))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("summary", [Spectrum(), Series()])
def test_the_observations(summary):
    x, theta = JansenRit(summary).observations
    assert x.shape == (9, summary.d)
    assert theta[:, :3].unique(dim=0).tolist() == [[135, 220, 2000]]
    assert theta[:, 3].tolist() == list(range(-20, 21, 5))
    again = JansenRit(summary).observations
    assert torch.equal(again.x, x)


def test_the_observations_differ_in_noise():
    x, theta = JansenRit().observations
    noise = x - theta[:, 3:] / 5
    assert ((noise - noise.mean(0)).abs() < 1).all()
    assert (noise.std(0) > 0.02).all()


def test_parameters_outside_the_prior():
    with pytest.raises(ValueError, match="theta: expected parameters in the support of the prior"):
        JansenRit().simulate([[135.0, 220.0, 2000.0, 25.0]], stream(0, "x"))


def test_parameters_of_the_wrong_width():
    with pytest.raises(ValueError, match=r"theta: expected shape \(n, 4\); got \(1, 3\)"):
        JansenRit().simulate([[135.0, 220.0, 2000.0]], stream(0, "x"))


def test_no_posterior_is_known():
    task = JansenRit()
    x = torch.zeros(33)
    with pytest.raises(ValueError, match="task: expected one with a known posterior; got jansen"):
        task.posterior(x, 10, stream(0, "x"))
    with pytest.raises(ValueError, match="task: expected one with a known posterior; got jansen"):
        task.log_posterior(parameters(2), x)


@pytest.mark.parametrize("summary", ["spectrum", Spectrum])
def test_a_summary_that_is_none(summary):
    with pytest.raises(TypeError, match=r"summary: expected Spectrum\(\) or Series\(\); got"):
        JansenRit(summary)


@pytest.mark.gpu
def test_a_gpu_agrees_with_the_cpu():
    theta, start, noise = driven(5, 600)
    found = merged(theta.cuda(), start.cuda(), noise.cuda())
    torch.testing.assert_close(found.cpu(), merged(theta, start, noise), rtol=1e-9, atol=1e-9)
    theta = parameters(2000)
    x = JansenRit().simulate(theta.cuda(), stream(0, "x"))
    assert x.device.type == "cuda"
    difference = x.cpu() - JansenRit().simulate(theta, stream(0, "x"))
    assert scores(difference).abs().max() < 4.5


def scores(rows):
    """The mean (d,) of independent rows (n, d), in standard errors."""
    return rows.mean(0) / rows.std(0) * len(rows) ** 0.5


def authors():
    """Parameters (10000, 4) and features (10000, 33) that the authors of the paper saved."""
    if not PAPER.is_file():
        pytest.skip(f"the authors' samples are not in {PAPER.parent}")
    with np.load(PAPER) as archive:
        return torch.tensor(archive["theta_cal"]), torch.tensor(archive["x_cal"])


def disagreement(theta, x):
    """The largest of the scores (4, 2, 33) of features x (n, 33) against ours, at the same theta.

    Means and variances of all features, in four bands of C. The noise of x has the variance of
    ours where x is as far from one simulation as another simulation is.
    """
    first, second = (JansenRit().simulate(theta, stream(i, "x")) for i in range(2))
    apart = first - x
    rows = torch.stack([apart, apart.square() - (first - second).square()], 1)
    bands = torch.bucketize(theta[:, 0].contiguous(), torch.tensor([70.0, 130.0, 190.0]))
    return max(scores(rows[bands == band]).abs().max().item() for band in range(4))


def altered(theta, column, factor):
    """Parameters with one of them multiplied, where the prior allows it."""
    found = theta.clone()
    found[:, column] *= factor
    return torch.where(JansenRit().prior.inside(found)[:, None], found, theta)


@pytest.mark.slow
def test_the_authors_features_at_their_parameters():
    """264 scores, all below 4.5 but once in 500; three per cent of a parameter would be seen."""
    theta, x = authors()
    assert disagreement(theta, x) < 4.5
    for column in range(3):
        close = JansenRit().simulate(altered(theta, column, 1.03), stream(2, "x"))
        assert disagreement(theta, close) > 9


def accuracy(theta, x, ours):
    """Cross-validated accuracy of boosted trees: a random half of the rows has x, the rest ours.

    They see theta and features without the gain, which are as much as theta and x.
    """
    is_ours = torch.randperm(len(theta), generator=stream(0, "half")) >= len(theta) // 2
    features = torch.where(is_ours[:, None], ours, x) - theta[:, 3:] / 5
    trees = HistGradientBoostingClassifier(max_iter=50, random_state=0)
    return cross_val_score(trees, torch.cat([theta, features], 1), is_ours, cv=5).mean()


@pytest.mark.slow
def test_no_classifier_tells_the_authors_simulator_from_ours():
    """An accuracy of one half, with standard error 0.005 for 10 000 rows."""
    theta, x = authors()
    assert abs(accuracy(theta, x, JansenRit().simulate(theta, stream(0, "x"))) - 0.5) < 0.015
    off = JansenRit().simulate(altered(theta, 2, 0.9), stream(0, "x"))
    assert accuracy(theta, x, off) > 0.6

"""Draws that share their noise, draws of chains, and embeddings that are no function of x."""

import math
import re
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from assay import Calibration
from assay._support.random import stream
from assay.data.guards import autocorrelation, check_noise, features_of

N, K = 200, 16
X = torch.tensor(np.random.default_rng(1).normal(size=(40, 3)))
REFUSED = "theta_q: expected draws of q with noise of their own at every x; got "


def samples(kind, n=N, k=K, seed=0):
    """Observations (n, 2) and noise (n, k, 2): the same at all x, in blocks, or of its own."""
    generator = stream(seed, "independence")
    x, noise = (torch.randn(n, *size, 2, generator=generator) for size in ((), (k,)))
    size = {"one key": n, "blocks": 50, "own": 1}[kind]
    return x, noise[torch.arange(n) // size * size]


def affine(x, noise):
    return x[:, None] / 2 + (0.3 * x[:, :1, None]).exp() * noise


def chosen(x, noise, order):
    """Some of the noise at each x, whose places (n, k) begin an order."""
    return affine(x, noise).gather(1, order[..., None].expand(-1, -1, 2))


def truncated(x, noise):
    """The first quarter of the noise that lies below x, at x."""
    above = (noise[..., 0] >= 0.5 + x[:, :1]).byte().argsort(dim=1, stable=True)
    return chosen(x, noise, above[:, : noise.shape[1] // 4])


SAMPLERS = {
    "affine": affine,
    "skewed": lambda x, noise: (affine(x, noise) + 0.3 * x[:, None] * noise).sinh(),
    "shuffled": lambda x, noise: chosen(x, noise, torch.rand(noise.shape[:2]).argsort(1)),
    "by size": lambda x, noise: affine(x, noise).sort(1).values,
    "truncated": truncated,
}


@pytest.mark.parametrize("kind", ["one key", "blocks", "own"])
@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
def test_one_key_for_all_x_is_refused(sampler, kind):
    torch.manual_seed(0)
    for seed in range(5):
        x, noise = samples(kind, k=64 if sampler is truncated else K, seed=seed)
        with pytest.raises(ValueError, match=REFUSED) if kind != "own" else nullcontext():
            check_noise(sampler(x, noise), x)


@pytest.mark.parametrize("k", [1, 3, 4, 6, 100])
def test_fewer_than_four_draws_cannot_show_it(k):
    x, noise = samples("one key", k=k)
    with pytest.raises(ValueError, match=REFUSED) if k >= 4 else nullcontext():
        check_noise(affine(x, noise), x)


def right_draws(n, k, generator):
    """Independent draws of laws that are hard to tell from others: ties, tails, clusters."""
    u, v = torch.rand(2, n, k, 2, generator=generator, dtype=torch.double)
    yield torch.tan(math.pi * (u - 0.5))
    yield u**-10
    yield from ((u * count).floor() for count in (1, 2, 3, k, 3 * k, 100 * k))
    yield from ((u * count).floor() + 1e-9 * v for count in (2, k))
    yield (u < 0.02).double()
    yield u[..., :1].expand(-1, -1, 2)
    yield (u + 1e6).float()
    yield u.sort(1).values


@pytest.mark.parametrize(
    "repetitions", [3, pytest.param(400, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_right_draws_are_never_refused(repetitions):
    """Nor called correlated, whatever their law."""
    generator = stream(0, "right")
    for _ in range(repetitions):
        for n, k in ((20, 4), (100, 5), (400, 4), (400, 16)):
            x = torch.randn(n, 2, generator=generator).round(decimals=1)
            for theta_q in right_draws(n, k, generator):
                check_noise(theta_q, x)
                assert autocorrelation(theta_q) == ""


def test_a_calibration_refuses_it_but_not_in_its_parts():
    """A part that an x_o chooses need not look like the whole."""
    x, noise = samples("one key")
    order = r"draws whose order in theta\[\d\] is .* a fresh random key for every x"
    with pytest.raises(ValueError, match=REFUSED + order):
        Calibration(x, x, affine(x, noise))
    with pytest.raises(ValueError, match=REFUSED + r"the same draws of theta\[0\].* of 100"):
        Calibration(x, x, SAMPLERS["by size"](x, noise))
    x, noise = samples("own", n=2000)
    noise[-40:] = noise[-40]
    part = Calibration(x, x, affine(x, noise)).subset(slice(-40, None))
    with pytest.raises(ValueError, match=REFUSED):
        check_noise(part.theta_q, part.x)


def chain(rho, n=500, k=16, seed=0):
    """Chains (n, k, 2) that are stationary, N(0, 1) at each step."""
    noise = torch.randn(k, n, 2, generator=stream(seed, "chain"))
    draws = [noise[0]]
    for each in noise[1:]:
        draws.append(rho * draws[-1] + math.sqrt(1 - rho**2) * each)
    return torch.stack(draws, 1)


def numbers(draws):
    """Correlation, lag, k, effective draws and thinning, as the sentence has them."""
    form = r"by (\S+) at lag (\d+) .* Of (\d+) draws about (\S+) are effective.* every (\d+)th"
    return [float(number) for number in re.search(form, autocorrelation(draws)).groups()]


class TestAutocorrelation:
    @pytest.mark.parametrize("k", [16, 64])
    @pytest.mark.parametrize("rho", [0.2, 0.5, 0.8])
    def test_it_is_estimated(self, rho, k):
        draws = chain(rho, k=k)
        correlation, lag, count, effective, thin = numbers(draws)
        assert (lag, count) == (1, k)
        assert correlation == pytest.approx(rho, abs=0.05)
        # As many independent draws have a mean of the same variance.
        expected = k / (1 + 2 * sum((1 - t / k) * rho**t for t in range(1, k)))
        assert effective == pytest.approx(expected, rel=0.15)
        assert correlation**thin <= 0.05
        assert autocorrelation(draws[:, :: int(thin)]) == ""

    def test_units_do_not_matter(self):
        draws, units = chain(0.5), torch.logspace(-3, 3, 500, dtype=torch.double)
        assert numbers(1e4 + draws * units[:, None, None])[0] == pytest.approx(0.5, abs=0.1)
        assert numbers(1e30 * draws.double())[1] == 1

    def test_chains_that_take_turns(self):
        two = chain(0.7, n=1000).unflatten(0, (500, 2)).transpose(1, 2).flatten(1, 2)
        correlation, lag, _, _, thin = numbers(two)
        assert correlation == pytest.approx(0.7, abs=0.1)
        assert (lag, thin % 2) == (2, 0)

    def test_a_calibration_warns_but_none_of_its_parts(self):
        draws = chain(0.5)
        with pytest.warns(UserWarning, match=r"theta_q: Draws of q .* correlated.* theta\[\d\]"):
            calibration = Calibration(draws[:, 0], draws[:, 1], draws)
        assert calibration.subset(range(100)).k == 16


def test_features_of_a_network_in_single_precision():
    network = torch.nn.Linear(3, 2)
    torch.testing.assert_close(features_of(X, network), network(X.float()).detach())


@pytest.mark.parametrize(
    ("embed", "message"),
    [
        (lambda x: x + torch.randn(len(x), 3).sum(), "the same features for the same x"),
        (torch.mean, r"features with shape \(40, d\)"),
        (3, "a function of x; got int"),
    ],
)
def test_an_embedding_that_is_no_function_of_x(embed, message):
    state = torch.get_rng_state()
    with pytest.raises((TypeError, ValueError), match=f"embed: expected {message}"):
        features_of(X, embed)
    assert torch.equal(torch.get_rng_state(), state)

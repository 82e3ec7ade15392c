import math
from contextlib import nullcontext

import pytest
import torch

import assay
from assay import Calibration
from assay._support.random import stream
from assay.data.guards import autocorrelation, check_noise

N, K = 200, 16
REFUSED = "theta_q: expected draws of q with noise of their own at every x; got "


def samples(kind, n=N, k=K, seed=0):
    """Observations (n, 2) and noise (n, k, 2): the same at all x, in blocks, or of its own."""
    generator = stream(seed, "independence")
    x = torch.randn(n, 2, generator=generator)
    noise = torch.randn(n, k, 2, generator=generator)
    size = {"one key": n, "blocks": 50, "own": 1}[kind]
    return x, noise[torch.arange(n) // size * size]


def affine(x, noise):
    return x[:, None] / 2 + (0.3 * x[:, :1, None]).exp() * noise


def skewed(x, noise):
    return (affine(x, noise) + 0.3 * x[:, None] * noise).sinh()


def shuffled(x, noise):
    order = torch.rand(noise.shape[:2], generator=stream(1, "order")).argsort(1)
    return affine(x, noise).gather(1, order[..., None].expand_as(noise))


def by_size(x, noise):
    return affine(x, noise).sort(1).values


def truncated(x, noise):
    """The first quarter of the noise that lies below x, at x."""
    below = (noise[..., 0] < 0.5 + x[:, :1]).byte().argsort(dim=1, descending=True, stable=True)
    kept = below[:, : noise.shape[1] // 4, None].expand(-1, -1, 2)
    return affine(x, noise).gather(1, kept)


SAMPLERS = {f.__name__: f for f in (affine, skewed, shuffled, by_size, truncated)}


@pytest.mark.parametrize("kind", ["one key", "blocks"])
@pytest.mark.parametrize("sampler", SAMPLERS.values(), ids=SAMPLERS)
class TestOneKeyForAllX:
    def test_it_is_refused(self, sampler, kind):
        k = 64 if sampler is truncated else K
        for seed in range(5):
            x, noise = samples(kind, k=k, seed=seed)
            with pytest.raises(ValueError, match=REFUSED):
                check_noise(sampler(x, noise), x)

    def test_noise_of_their_own_is_not(self, sampler, kind):
        for seed in range(5):
            x, noise = samples("own", k=64 if sampler is truncated else K, seed=seed)
            check_noise(sampler(x, noise), x)


@pytest.mark.parametrize("k", [1, 3, 4, 6, 100])
def test_few_and_many_draws(k):
    """Fewer than four cannot show it: a single one may as well be that of a q without width."""
    x, noise = samples("one key", k=k)
    refused = pytest.raises(ValueError, match=REFUSED) if k >= 4 else nullcontext()
    with refused:
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
    """Nor said to be autocorrelated, whatever their law."""
    generator = stream(0, "right")
    for _ in range(repetitions):
        for n, k in ((20, 4), (100, 5), (400, 4), (400, 16)):
            x = torch.randn(n, 2, generator=generator).round(decimals=1)
            for theta_q in right_draws(n, k, generator):
                check_noise(theta_q, x)
                assert autocorrelation(theta_q) is None


class TestWhereItIsChecked:
    def test_a_calibration_is_refused(self):
        x, noise = samples("one key")
        order = r"draws whose order in theta\[\d\] is .* a fresh random key for every x"
        with pytest.raises(ValueError, match=REFUSED + order):
            Calibration(x, x, affine(x, noise))
        with pytest.raises(ValueError, match=REFUSED + r"the same draws of theta\[0\].* of 100"):
            Calibration(x, x, by_size(x, noise))

    def test_a_check_refuses_a_sampler_with_a_fixed_key(self):
        def sample(x, n):
            return x / 2 + torch.randn(n, 2, generator=torch.Generator().manual_seed(7))

        x, _ = samples("own")
        with pytest.raises(ValueError, match=REFUSED):
            assay.check(sample, x, x, x[0], classifier=None)

    def test_parts_are_not_checked_again(self):
        """A part that an x_o chooses need not look like the whole."""
        x, noise = samples("own", n=2000)
        noise[-40:] = noise[-40]
        calibration, part = Calibration(x, x, affine(x, noise)), slice(-40, None)
        with pytest.raises(ValueError, match=REFUSED):
            check_noise(calibration.theta_q[part], x[part])
        assert calibration.subset(part).theta_q.shape == (40, K, 2)


def chain(rho, n=500, k=16, seed=0):
    """Chains (n, k, 2) that are stationary, N(0, 1) at each step."""
    generator = stream(seed, "chain")
    noise = torch.randn(k, n, 2, generator=generator)
    draws = [noise[0]]
    for each in noise[1:]:
        draws.append(rho * draws[-1] + math.sqrt(1 - rho**2) * each)
    return torch.stack(draws, 1)


def effective(rho, k):
    """How many independent draws have a mean of the same variance."""
    return k / (1 + 2 * sum((1 - t / k) * rho**t for t in range(1, k)))


class TestAutocorrelation:
    @pytest.mark.parametrize("k", [16, 64])
    @pytest.mark.parametrize("rho", [0.2, 0.5, 0.8])
    def test_it_is_estimated(self, rho, k):
        found = autocorrelation(chain(rho, k=k))
        assert (found.lag, found.k) == (1, k)
        assert found.correlation == pytest.approx(rho, abs=0.05)
        assert found.effective == pytest.approx(effective(rho, k), rel=0.15)
        assert found.correlation**found.thin <= 0.05

    def test_units_do_not_matter(self):
        draws, units = chain(0.5), torch.logspace(-3, 3, 500, dtype=torch.double)
        found = autocorrelation(1e4 + draws * units[:, None, None])
        assert found.correlation == pytest.approx(0.5, abs=0.1)
        assert autocorrelation(1e30 * draws.double()).lag == 1

    def test_chains_that_take_turns(self):
        two = chain(0.7, n=1000).unflatten(0, (500, 2)).transpose(1, 2).flatten(1, 2)
        found = autocorrelation(two)
        assert found.lag == 2
        assert found.correlation == pytest.approx(0.7, abs=0.1)
        assert found.thin % 2 == 0

    def test_thinned_chains_pass(self):
        found = autocorrelation(chain(0.5, k=64))
        assert autocorrelation(chain(0.5, k=64)[:, :: found.thin]) is None

    def test_a_calibration_warns(self):
        draws = chain(0.5)
        message = (
            r"theta_q: .* by 0\.\d+ at lag 1 .* Of 16 draws about [56]\.\d .*Keep every [45]th"
        )
        with pytest.warns(UserWarning, match=message):
            calibration = Calibration(draws[:, 0], draws[:, 1], draws)
        assert calibration.subset(range(100)).k == 16

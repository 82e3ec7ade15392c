"""Global state of torch and NumPy has no say in results, and is as it was afterwards."""

from contextlib import contextmanager

import numpy as np
import pytest
import torch
from sklearn.naive_bayes import GaussianNB

import assay
from assay.classifiers.discriminant import LDA, QDA
from assay.interpret.errors import Shift

from .judge import numbers

N, M, K = 60, 2, 5
SMALL = assay.MLP((4,), epochs=1)
RANDOM = np.random.default_rng(0)
THETA = RANDOM.normal(size=(N, M)).astype("float32")
X = (THETA + RANDOM.normal(size=(N, M))).astype("float32")
THETA_Q = (X[:, None] / 2 + 0.7 * RANDOM.normal(size=(N, K, M))).astype("float32")
X_O = np.array([0.1, -0.2], dtype="float32")
THETA_O = (X_O / 2 + 0.7 * RANDOM.normal(size=(40, M))).astype("float32")


def pairs():
    return assay.Calibration(THETA, X, THETA_Q)


def latents():
    return assay.Calibration.from_base(2**0.5 * (THETA - X / 2), X)


def there():
    return assay.Draws(X_O, THETA_O)


def noisy(theta):
    return theta + torch.randn(theta.shape, dtype=theta.dtype, device=theta.device)


def sample(x, n):
    return x / 2 + 0.7 * torch.randn(n, M, dtype=x.dtype, device=x.device)


def updated(xs, n):
    return sample(xs.sum(0), n)


def log_q(theta, x):
    return -(theta - x / 2).square().sum(-1)


class Flow:
    base = assay.samples.posterior.StandardNormal(M)
    sample = staticmethod(sample)

    def theta_to_base(self, theta, x):
        return (theta - x / 2) / 0.7


def quick():
    return assay.Suite.quick(null=19, pairs=50, draws=50)


ENGINES = {
    "MLP": lambda: assay.lc2st(pairs(), SMALL, 9)(there()),
    "MLP of latents": lambda: assay.lc2st(latents(), SMALL, 9)(X_O),
    "Ridge": lambda: assay.lc2st(pairs(), assay.Ridge(), 9)(there()),
    "Sklearn": lambda: assay.lc2st(pairs(), assay.Sklearn(GaussianNB()), 9)(there()),
    "QDA": lambda: assay.lc2st(pairs(), QDA(), 9)(there()),
    "local": lambda: assay.lc2st(pairs(), LDA(), assay.LocalExchange(9, 0.5))(there()),
    "free": lambda: assay.lc2st(pairs(), SMALL, assay.FreePermutation(9))(there()),
    "moments": lambda: assay.moments(pairs(), null=9)(there()),
    "moments of latents": lambda: assay.moments(latents(), null=9)(X_O),
    "score": lambda: assay.score(pairs(), null=9)(there()),
    "score of latents": lambda: assay.score(latents(), null=9)(X_O),
    "score of a flow": lambda: assay.score(pairs().to_latent(Flow()), null=9)(X_O),
    "region": lambda: assay.region(pairs(), LDA(), null=9)(there()),
    "lhpd": lambda: assay.lhpd(pairs(), log_q, null=9)(X_O),
    "lpit": lambda: assay.lpit(pairs(), null=9)(X_O),
    "sbc": lambda: assay.sbc(pairs(), null=9),
    "coverage": lambda: assay.coverage(pairs(), log_q, null=9),
    "tarp": lambda: assay.tarp(pairs(), null=9),
    "divergence": lambda: assay.divergence(pairs(), SMALL, null=9),
    "c2st": lambda: assay.c2st(THETA, THETA_Q[:, 0], SMALL, null=3),
    "effects": lambda: assay.effects(assay.lc2st(pairs(), SMALL, 9)(there())),
    "effects near x_o": lambda: assay.effects(assay.moments(pairs(), null=39)(there())),
    "health": lambda: assay.health(pairs(), SMALL, 9, folds=2),
    "power": lambda: assay.power(assay.score(pairs(), null=19), there(), Shift(0), 8),
    "trust_map": lambda: assay.trust_map(assay.score(pairs(), null=19), X[:2], 0.5, (Shift(0),)),
    "predictive": lambda: assay.predictive(THETA_O, noisy, X_O, 19),
    "posterior_sbc": lambda: assay.posterior_sbc(updated, noisy, X_O, 20, 4, null=9),
    "Calibration.of": lambda: assay.Calibration.of(sample, THETA, X, K),
}
SLOW = {"check": lambda: assay.check(sample, THETA, X, X_O, quick())}


@contextmanager
def set_and_back(change, value, before):
    change(value)
    try:
        yield
    finally:
        change(before)


STATES = {
    "float64": lambda: set_and_back(torch.set_default_dtype, torch.float64, torch.float32),
    # A device that holds no numbers stands in for any other.
    "another device": lambda: set_and_back(torch.set_default_device, "meta", None),
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "inference mode": torch.inference_mode,
    "no gradients": torch.no_grad,
    "deterministic": lambda: set_and_back(torch.use_deterministic_algorithms, True, False),
    "NumPy raises": lambda: np.errstate(all="raise"),
}


def state():
    """All that is set for the whole process, or thread."""
    return {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "inference": torch.is_inference_mode_enabled(),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads": torch.get_num_threads(),
        "torch": torch.default_generator.get_state().tolist(),
        "numpy": np.random.get_state()[1].tolist(),  # noqa: NPY002
        "errors": np.geterr(),
    }


def answers(make):
    found = make()
    return [(array.dtype, array.shape, array.tobytes()) for array in numbers(found)]


def compared(make, how):
    clean = answers(make)
    assert clean
    with STATES[how]():
        before = state()
        assert answers(make) == clean
        assert state() == before


@pytest.mark.parametrize("how", STATES)
@pytest.mark.parametrize("name", ENGINES)
def test_the_same_bits(name, how):
    compared(ENGINES[name], how)


@pytest.mark.slow
@pytest.mark.parametrize("how", STATES)
def test_the_same_check(how):
    compared(SLOW["check"], how)


def test_made_in_inference_mode_and_used_outside():
    with torch.inference_mode():
        made = pairs()
    assert not made.theta.is_inference()
    found = assay.lc2st(made, SMALL, 9)(there())
    assert np.array_equal(found.null, ENGINES["MLP"]().null)

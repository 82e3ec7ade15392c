"""The same bits whatever the number of threads."""

import dataclasses

import numpy as np
import pytest
import torch

import assay

X_O = torch.tensor([[0.5, -0.5], [-1.0, 0.0]])
SMALL = assay.MLP(hidden=(16, 16), epochs=2)


def sets(posterior):
    return posterior.calibration(1500, k=6)


def few(posterior):
    return posterior.calibration(600, k=6)


def at(posterior):
    return posterior.draws(X_O)


def latents(posterior):
    return posterior.latents(1500)


TESTS = {
    "MLP": lambda q: assay.lc2st(sets(q), SMALL, assay.Exchange(19))(at(q)),
    "MLP of latents": lambda q: assay.lc2st(latents(q), SMALL, assay.KnownBase(19))(X_O),
    "LocalExchange": lambda q: assay.lc2st(sets(q), SMALL, assay.LocalExchange(9))(at(q)),
    "Ridge": lambda q: assay.lc2st(sets(q), assay.Ridge(), assay.Exchange(99))(at(q)),
    "local Ridge": lambda q: assay.lc2st(sets(q), assay.Ridge(), assay.LocalExchange(99))(at(q)),
    "moments": lambda q: assay.moments(sets(q), null=99)(at(q)),
    "moments of latents": lambda q: assay.moments(latents(q), null=99)(X_O),
    "moments, known base": lambda q: assay.moments(latents(q), null=assay.KnownBase(99))(X_O),
    "score": lambda q: assay.score(sets(q), null=99)(X_O),
    "score of latents": lambda q: assay.score(latents(q), null=99)(X_O),
    "region": lambda q: assay.region(sets(q), SMALL, null=99)(at(q)),
    "lpit": lambda q: assay.lpit(sets(q), null=99)(at(q)),
    "lhpd": lambda q: assay.lhpd(sets(q), log_q, null=99)(X_O),
    "sbc": lambda q: assay.sbc(sets(q), null=99),
    "coverage": lambda q: assay.coverage(sets(q), null=99),
    "tarp": lambda q: assay.tarp(sets(q), null=99),
}
SLOW = pytest.mark.slow
QUICK = assay.Suite.quick(null=39, pairs=200)
# What is made of tests.
MADE = {
    "effects": lambda q: assay.effects(assay.moments(few(q), null=19)(at(q))),
    "power": lambda q: assay.power(assay.moments(few(q), null=19), at(q), repetitions=8),
    "power of the score test": lambda q: assay.power(assay.score(few(q), null=19), at(q)),
    "check": lambda q: assay.check(few(q), x_o=at(q), suite=QUICK),
    "check of latents": lambda q: assay.check(q.latents(600), x_o=X_O, suite=QUICK),
}


def log_q(theta, x):
    return -(theta - x / 2).square().sum(1)


def over_threads(make, counts=(1, 2, 4, 16)):
    """What is made with some numbers of threads."""
    before, found = torch.get_num_threads(), []
    try:
        for threads in counts:
            torch.set_num_threads(threads)
            found.append(make())
    finally:
        torch.set_num_threads(before)
    return found


@pytest.mark.parametrize("name", TESTS)
def test_bits(gaussian, name):
    first, *others = over_threads(lambda: TESTS[name](gaussian(width=1.3)))
    for other in others:
        np.testing.assert_array_equal(first.statistic, other.statistic)
        np.testing.assert_array_equal(first.null, other.null)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=SLOW if "check of" in name else ()) for name in MADE]
)
def test_bits_of_what_is_made_of_tests(gaussian, name):
    first, *others = over_threads(lambda: numbers(MADE[name](gaussian(width=1.3))), (1, 2, 16))
    assert len(first) >= 5
    for other in others:
        assert first.keys() == other.keys()
        for key, value in first.items():
            np.testing.assert_array_equal(value, other[key], err_msg=key)


def numbers(found, path=""):
    """All arrays of a result, by their place in it; not those of how long it took."""
    if isinstance(found, np.ndarray):
        return {path: found}
    if isinstance(found, tuple | list):
        parts = {str(i): part for i, part in enumerate(found)}
    elif dataclasses.is_dataclass(found):
        parts = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
    else:
        return {}
    each = (numbers(part, f"{path}.{name}") for name, part in parts.items() if name != "settings")
    return {key: value for part in each for key, value in part.items()}

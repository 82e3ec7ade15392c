"""The same bits whatever the number of threads."""

import dataclasses
from collections.abc import Mapping

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
    "score": lambda q: assay.score(sets(q), null=99)(X_O),
    "score of latents": lambda q: assay.score(latents(q), null=99)(X_O),
    "lpit": lambda q: assay.lpit(sets(q), null=99)(at(q)),
    "lhpd": lambda q: assay.lhpd(sets(q), log_q, null=99)(X_O),
    "sbc": lambda q: assay.sbc(sets(q), null=99),
    "coverage": lambda q: assay.coverage(sets(q), null=99),
    "tarp": lambda q: assay.tarp(sets(q), null=99),
}
# What is no test by itself.
ANSWERS = {
    "bounds": lambda q: assay.bounds(few(q), X_O),
    "typical": lambda q: assay.typical(few(q).x, X_O),
    "check": lambda q: assay.check(few(q), x_o=at(q), nulls=39, classifier=SMALL),
    "check of latents": lambda q: assay.check(q.latents(600), x_o=X_O, classifier=None),
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


@pytest.mark.parametrize("name", ANSWERS)
def test_bits_of_answers(gaussian, name):
    first, *others = over_threads(lambda: numbers(ANSWERS[name](gaussian(width=1.3))), (1, 2, 16))
    assert len(first) >= 1
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
    elif isinstance(found, Mapping):
        parts = found
    elif dataclasses.is_dataclass(found):
        parts = {f.name: getattr(found, f.name) for f in dataclasses.fields(found)}
    else:
        return {}
    each = (numbers(part, f"{path}.{name}") for name, part in parts.items() if name != "settings")
    return {key: value for part in each for key, value in part.items()}

"""The same bits whatever the number of threads."""

from dataclasses import fields, is_dataclass

import numpy as np
import pytest
import torch

import assay
from tests.conftest import Gaussian

X_O = torch.tensor([[0.5, -0.5], [-1.0, 0.0]])
SMALL = assay.MLP(hidden=(16, 16), epochs=2)
Q = Gaussian(width=1.3)


def log_q(theta, x):
    return -(theta - x / 2).square().sum(1)


def sets(n=1500):
    return Q.calibration(n, k=6)


def lc2st(classifier, null):
    return assay.lc2st(sets(), classifier, null)(Q.draws(X_O))


ENGINES = {
    "MLP": lambda: lc2st(SMALL, assay.Exchange(19)),
    "MLP near x_o": lambda: lc2st(SMALL, assay.LocalExchange(9)),
    "MLP of latents": lambda: assay.lc2st(Q.latents(1500), SMALL, assay.KnownBase(19))(X_O),
    "Ridge": lambda: lc2st(assay.Ridge(), assay.Exchange(99)),
    "Ridge near x_o": lambda: lc2st(assay.Ridge(), assay.LocalExchange(99)),
    "score": lambda: assay.score(sets(), null=99)(X_O),
    "score of latents": lambda: assay.score(Q.latents(1500), null=99)(X_O),
    "lpit": lambda: assay.lpit(sets(), null=99)(X_O),
    "lhpd": lambda: assay.lhpd(sets(), log_q, null=99)(X_O),
    "sbc": lambda: assay.sbc(sets(), null=99),
    "coverage": lambda: assay.coverage(sets(), null=99),
    "tarp": lambda: assay.tarp(sets(), null=99),
    "bounds": lambda: assay.bounds(sets(600), X_O),
    "typical": lambda: assay.typical(sets(600).x, X_O),
    "check": lambda: assay.check(sets(600), x_o=Q.draws(X_O), nulls=39, classifier=SMALL),
    "check of latents": lambda: assay.check(Q.latents(600), x_o=X_O, classifier=None),
}


def numbers(found, path=""):
    """All arrays of a result, by their place in it; not those of how long it took."""
    if isinstance(found, np.ndarray):
        return {path: found}
    if is_dataclass(found):
        found = {f.name: getattr(found, f.name) for f in fields(found) if f.name != "settings"}
    elif isinstance(found, tuple | list):
        found = dict(enumerate(found))
    parts = found.items() if isinstance(found, dict) else ()
    return {k: array for name, v in parts for k, array in numbers(v, f"{path}.{name}").items()}


@pytest.mark.parametrize("name", ENGINES)
def test_bits(name):
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4, 16):
            torch.set_num_threads(threads)
            found.append(numbers(ENGINES[name]()))
    finally:
        torch.set_num_threads(before)
    assert len(found[0]) >= 1
    for other in found[1:]:
        assert found[0].keys() == other.keys()
        for key, value in found[0].items():
            slack = 1e-6 if key == ".null_probabilities" else 0  # which are for pictures alone
            np.testing.assert_allclose(value, other[key], 0, slack, err_msg=key)

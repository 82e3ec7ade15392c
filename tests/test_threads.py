"""The same bits whatever the number of threads."""

import numpy as np
import pytest
import torch

import assay

X_O = torch.tensor([[0.5, -0.5], [-1.0, 0.0]])
SMALL = assay.MLP(hidden=(16, 16), epochs=2)


def sets(posterior):
    return posterior.calibration(1500, k=6)


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
}


@pytest.mark.parametrize("name", TESTS)
def test_bits(gaussian, name):
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            found.append(TESTS[name](gaussian(width=1.3)))
    finally:
        torch.set_num_threads(before)
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].statistic, other.statistic)
        np.testing.assert_array_equal(found[0].null, other.null)

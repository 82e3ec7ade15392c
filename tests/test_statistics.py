import numpy as np
import pytest

from assay import statistics

D = np.array([[0.5, 0.5, 0.5, 0.5], [0.1, 0.4, 0.6, 0.9]])
EXPECTED = {
    "mse0": [0.0, (0.16 + 0.01 + 0.01 + 0.16) / 4],
    "acc0": [0.0, 0.5],
    "max0": [0.5, 0.75],
    "logit_variance": [0.0, (np.log(9) ** 2 + np.log(1.5) ** 2) / 2],
}


@pytest.mark.parametrize(("name", "expected"), EXPECTED.items())
def test_by_hand(name, expected):
    np.testing.assert_allclose(getattr(statistics, name)(D), expected, rtol=1e-6, atol=1e-12)


@pytest.mark.parametrize("name", EXPECTED)
def test_axes(name):
    d = np.random.default_rng(0).uniform(size=(3, 5, 100)).astype(np.float32)
    found = getattr(statistics, name)(d)
    assert found.shape == (3, 5)
    assert found.dtype == np.float64


def test_certainty_is_finite():
    assert np.isfinite(statistics.logit_variance(np.array([0.0, 0.5, 1.0])))

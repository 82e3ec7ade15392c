import numpy as np
import pytest
import sklearn.metrics

from assay import statistics

D = np.array([[0.5, 0.5, 0.5, 0.5], [0.1, 0.4, 0.6, 0.9]])
EXPECTED = {
    "mse0": [0.0, (0.16 + 0.01 + 0.01 + 0.16) / 4],
    "acc0": [0.5, 0.5],
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


class TestTwoSamples:
    TRUTHS, DRAWS = np.array([0.9, 0.5, 0.2]), np.array([0.1, 0.5])

    def test_by_hand(self):
        assert statistics.accuracy(self.TRUTHS, self.DRAWS) == pytest.approx((1.5 / 3 + 0.75) / 2)
        squares = (0.16 + 0 + 0.09) / 3, 0.16 / 2
        assert statistics.mse(self.TRUTHS, self.DRAWS) == pytest.approx(sum(squares) / 2)
        # Pairs in order: 3 of 3 above 0.1; one above 0.5, one equal to it.
        assert statistics.auc(self.TRUTHS, self.DRAWS) == pytest.approx(4.5 / 6)
        largest = (0.9 + 0.5 + 0.8) / 3, (0.9 + 0.5) / 2
        assert statistics.confidence(self.TRUTHS, self.DRAWS) == pytest.approx(sum(largest) / 2)

    def test_auc_against_scikit_learn(self):
        rng = np.random.default_rng(0)
        d = rng.integers(20, size=(4, 50)) / 20
        found = statistics.auc(d[:, :20], d[:, 20:])
        labels = np.arange(50) < 20
        expected = [sklearn.metrics.roc_auc_score(labels, row) for row in d]
        np.testing.assert_allclose(found, expected)

    @pytest.mark.parametrize("name", ["accuracy", "mse", "auc", "confidence"])
    def test_axes(self, name):
        d = np.random.default_rng(0).uniform(size=(3, 5, 100)).astype(np.float32)
        assert getattr(statistics, name)(d[..., :30], d[..., 30:]).shape == (3, 5)

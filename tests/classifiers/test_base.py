import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import assay
from assay import MLP, Exchange, FreePermutation, Ridge, Sklearn
from assay.classifiers.base import FARTHEST, Classifier, Joined, Scaling, Scores, as_classifier


def test_columns_of_any_unit_give_the_same_standardised_inputs(gaussian):
    calibration = gaussian(width=3.0, shift=2.0).calibration(500)
    pooled = torch.cat([calibration.theta, calibration.theta_q[:, 0]])
    first = Scaling.fit(Exchange(1).copies(calibration, 0))
    scaled = first.theta(pooled)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled.std(0), torch.ones(2), atol=1e-5, rtol=0)
    a, b = torch.tensor([1e3, 1e-1]), torch.tensor([5.0, -0.7])
    tables = (calibration.theta * a + b, calibration.x * a - b, calibration.theta_q * a + b)
    second = Scaling.fit(Exchange(1).copies(assay.Calibration(*tables), 0))
    torch.testing.assert_close(second.theta(pooled * a + b), scaled, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(second.x(tables[1]), first.x(calibration.x), atol=1e-3, rtol=1e-3)
    assert first.theta(torch.full((1, 2), 1e9)).max() == FARTHEST


class Constant(Scores):
    """Every copy has a score of its own, whatever theta and x are."""

    def __init__(self, values):
        self.values = torch.tensor(values)

    def __call__(self, theta, x):
        return self.values[:, None].expand(len(theta), -1, theta.shape[1])


class Counting(Classifier):
    """The score of a copy is its number; keeps what it was asked to fit."""

    def __init__(self):
        self.fitted = []

    def fit(self, copies, seed):
        self.fitted.append(list(copies.which))
        return Constant([h / 100 for h in copies.which])


def test_scores_are_a_single_view_and_are_joined_one_behind_the_other():
    scores, theta, x = Constant([0.1, 0.7]), torch.zeros(3, 5, 2), torch.zeros(3, 1)
    (found,) = scores.statistics(lambda view: view.mean(2).numpy(), theta, x)
    np.testing.assert_allclose(found, np.tile([0.1, 0.7], (3, 1)), rtol=1e-6)
    for skip, expected in ((0, [0.1, 0.7, 0.2, 0.3]), (1, [0.1, 0.7, 0.3])):
        joined = Joined(scores, Constant([0.2, 0.3]), skip)(theta, x)
        torch.testing.assert_close(joined[1, :, 2], torch.tensor(expected))
        assert joined.shape == (3, 4 - skip, 5)


def test_refits_leave_the_fit_of_the_data_alone(gaussian):
    """Copies that differ from the data near x_o only: the nulls alone are fitted."""
    classifier, calibration = Counting(), gaussian().calibration(50)
    test = assay.lc2st(calibration, classifier, assay.LocalExchange(3, assay.Nearest(0.5)))
    assert classifier.fitted == [[0]]
    result = test(gaussian().draws(torch.zeros(2, 2), n=4))
    assert classifier.fitted == [[0], [1, 2, 3], [1, 2, 3]]
    np.testing.assert_allclose(result.null_probabilities[0, :, 0], [0.01, 0.02, 0.03])


def test_a_test_uses_the_null_that_a_classifier_prefers(gaussian):
    own = type("Own", (Counting,), {"null": FreePermutation(7)})()
    assert assay.lc2st(gaussian().calibration(50), own).null == FreePermutation(7)
    assert assay.lc2st(gaussian().calibration(50), own, 5).null == FreePermutation(5)
    assert Ridge().null == Exchange(999)
    assert MLP().null is Sklearn(LogisticRegression()).null is Counting().null is None


def test_what_is_a_classifier():
    default, own = MLP(), Counting()
    assert as_classifier(None, default) is default
    assert as_classifier(own, default) is own
    for kind in (Scores, type("Idle", (Classifier,), {})):
        with pytest.raises(TypeError, match="abstract"):
            kind()
    for given, got in ((MLP, "the class MLP"), (Exchange(9), "Exchange"), ("mlp", "str")):
        with pytest.raises(TypeError, match=rf"classifier: expected .* MLP\(\); got {got}"):
            as_classifier(given, default)

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

import assay
from assay import MLP, Exchange, FreePermutation, Ridge, Sklearn
from assay.classifiers.base import FARTHEST, Classifier, Joined, Scaling, Scores, as_classifier


def scaling(calibration):
    return Scaling.fit(Exchange(1).copies(calibration, 0))


def test_members_are_standardised_together(gaussian):
    calibration = gaussian(width=3.0, shift=2.0).calibration(500)
    pooled = torch.cat([calibration.theta, calibration.theta_q[:, 0]])
    scaled = scaling(calibration).theta(pooled)
    torch.testing.assert_close(scaled.mean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(scaled.std(0), torch.ones(2), atol=1e-5, rtol=0)


def test_columns_of_any_unit_give_the_same_inputs(gaussian):
    calibration = gaussian().calibration(200)
    a, b = torch.tensor([1e3, 1e-1]), torch.tensor([5.0, -0.7])
    moved = assay.Calibration(
        calibration.theta * a + b, calibration.x * a - b, calibration.theta_q * a + b
    )
    first, second = scaling(calibration), scaling(moved)
    torch.testing.assert_close(
        first.theta(calibration.theta), second.theta(moved.theta), atol=1e-3, rtol=1e-3
    )
    torch.testing.assert_close(first.x(calibration.x), second.x(moved.x), atol=1e-3, rtol=1e-3)


def test_discrete_and_constant_columns(gaussian):
    theta = gaussian().calibration(200).theta
    x = torch.stack([torch.full((200,), 0.1), (torch.arange(200) % 10 == 0).float()], 1)
    found = scaling(assay.Calibration(theta, x, theta))
    assert found.robust.scale[0] == 1
    torch.testing.assert_close(found.robust.scale[1], x[:, 1].std())
    expected = torch.stack([x[:, 0] * 0, (x[:, 1] / x[:, 1].std()).asinh()], 1)
    torch.testing.assert_close(found.x(x), expected)


def test_wild_members_are_moved_in(gaussian):
    calibration = gaussian().calibration(200)
    assert scaling(calibration).theta(torch.full((1, 2), 1e9)).max() == FARTHEST


def test_many_rows(gaussian):
    """More than torch.quantile takes; x has variance two."""
    found = scaling(gaussian().calibration(250_000)).robust.scale
    torch.testing.assert_close(found, torch.full((2,), 2**0.5), atol=0.05, rtol=0)


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


class TestContract:
    def test_a_classifier_must_be_able_to_fit_and_scores_to_be_called(self):
        for kind in (Classifier, Scores, type("Idle", (Classifier,), {})):
            with pytest.raises(TypeError, match="abstract"):
                kind()

    def test_defaults(self):
        assert Counting().null is None
        assert not Constant([0.5]).several

    def test_scores_are_a_single_view_of_their_own(self):
        scores, theta, x = Constant([0.1, 0.7]), torch.zeros(3, 5, 2), torch.zeros(3, 1)
        (found,) = scores.statistics(lambda view: view.mean(2).numpy(), theta, x)
        np.testing.assert_allclose(found, np.tile([0.1, 0.7], (3, 1)), rtol=1e-6)

    def test_joined_scores_come_one_behind_the_other(self):
        theta, x = torch.zeros(2, 4, 1), torch.zeros(2, 1)
        joined = Joined(Constant([0.1]), Constant([0.2, 0.3]))(theta, x)
        torch.testing.assert_close(joined[1, :, 2], torch.tensor([0.1, 0.2, 0.3]))
        assert joined.shape == (2, 3, 4)
        behind = Joined(Constant([0.1]), Constant([0.2, 0.3]), skip=1)(theta, x)
        torch.testing.assert_close(behind[1, :, 2], torch.tensor([0.1, 0.3]))

    def test_refits_leave_the_fit_of_the_data_alone(self, gaussian):
        """Copies that differ from the data near x_o only: the nulls alone are fitted."""
        classifier = Counting()
        calibration = gaussian().calibration(50)
        test = assay.lc2st(calibration, classifier, assay.LocalExchange(3, assay.Nearest(0.5)))
        assert classifier.fitted == [[0]]
        result = test(gaussian().draws(torch.zeros(2, 2), n=4))
        assert classifier.fitted == [[0], [1, 2, 3], [1, 2, 3]]
        np.testing.assert_allclose(result.null_probabilities[0, :, 0], [0.01, 0.02, 0.03])

    def test_a_test_uses_the_null_that_a_classifier_prefers(self, gaussian):
        class Own(Counting):
            null = FreePermutation(7)

        assert assay.lc2st(gaussian().calibration(50), Own()).null == FreePermutation(7)
        assert assay.lc2st(gaussian().calibration(50), Own(), 5).null == FreePermutation(5)
        assert Ridge().null == Exchange(999)
        assert MLP().null is Sklearn(LogisticRegression()).null is None

    @pytest.mark.parametrize(
        ("given", "got"), [(MLP, "the class MLP"), (Exchange(9), "Exchange"), ("mlp", "str")]
    )
    def test_what_is_no_classifier(self, given, got):
        with pytest.raises(
            TypeError, match=rf"classifier: expected .* such as MLP\(\); got {got}"
        ):
            as_classifier(given, MLP())

    def test_the_default_and_what_is_one(self):
        default, own = MLP(), Counting()
        assert as_classifier(None, default) is default
        assert as_classifier(own, default) is own

"""What a classifier is worth: its probabilities at sets that it has not seen."""

import numpy as np
import pytest
import scipy.special
import torch
from experiments.discriminant import QDA
from sklearn.metrics import log_loss, roc_auc_score

import assay
from assay.classifiers.base import Classifier
from assay.local.quality import Quality, held_out
from tests.conftest import FunctionScores


class Spy(Classifier):
    """A classifier that remembers what it was trained on and asked for; it scores by theta."""

    def __init__(self):
        self.trained, self.asked = [], []

    def fit(self, copies, seed):
        assert len(copies) == 1
        self.trained.append({tuple(row) for row in copies.members.flatten(0, 1).tolist()})

        def scores(theta, x):
            self.asked.append({tuple(row) for row in theta.flatten(0, 1).tolist()})
            return theta[..., 0].sigmoid()[:, None]

        return FunctionScores(scores)


@pytest.mark.parametrize("folds", [2, 5])
def test_every_set_is_held_out_once_and_never_trained_on(gaussian, folds):
    calibration, spy = gaussian().calibration(60, k=3), Spy()
    found = held_out(calibration, spy, 0, folds)
    assert len(spy.trained) == folds
    for trained, asked in zip(spy.trained, spy.asked, strict=True):
        assert not trained & asked
        assert len(trained | asked) == 60 * 4
    assert len(set.union(*spy.asked)) == 60 * 4
    # The true parameters, each once, and one draw of q at the same x.
    given = calibration.theta[:, 0].sigmoid()
    np.testing.assert_allclose(np.sort(found.truths), given.sort().values)
    assert len(found.draws) == 60
    draws = torch.tensor(scipy.special.logit(found.draws.astype(float)))
    distances = (draws[:, None] - calibration.theta_q[..., 0].flatten()).abs()
    assert distances.min(1).values.max() < 1e-4


def test_numbers_against_scikit_learn():
    rng = np.random.default_rng(0)
    found = Quality(truths=rng.beta(2, 1, 300).round(2), draws=rng.beta(1, 2, 300).round(2))
    labels, d = np.repeat([1, 0], 300), np.concatenate([found.truths, found.draws])
    assert found.auc == pytest.approx(roc_auc_score(labels, d))
    assert found.log_loss == pytest.approx(log_loss(labels, d.clip(1e-6, 1 - 1e-6)))
    assert found.learned


def test_reliability_of_probabilities_that_are_right():
    """With densities 2 d of true parameters and 2 (1 - d) of draws, a share d are true."""
    rng = np.random.default_rng(0)
    found = Quality(truths=rng.beta(2, 1, 20_000), draws=rng.beta(1, 2, 20_000))
    predicted, observed, lower, upper = found.reliability()
    np.testing.assert_allclose(predicted, np.arange(0.05, 1, 0.1), atol=0.01)
    np.testing.assert_allclose(observed, predicted, atol=0.03)
    assert ((lower < observed) & (observed < upper)).all()


def test_a_classifier_has_learned_where_q_is_wrong(gaussian):
    right, wrong = (
        assay.lc2st(gaussian(width=width).calibration(300), QDA(), 9).quality()
        for width in (1.0, 2.0)
    )
    assert not right.learned
    assert right.auc == pytest.approx(0.5, abs=0.1)
    assert wrong.learned
    assert wrong.auc > 0.6

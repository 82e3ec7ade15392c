from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
import pytest
import torch
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures, StandardScaler

import assay
from assay import Exchange, KnownBase, Sklearn

ESTIMATORS = {
    "instance": QuadraticDiscriminantAnalysis(),
    "pipeline": make_pipeline(StandardScaler(), PolynomialFeatures(2), LogisticRegression()),
}


@pytest.mark.parametrize("estimator", ESTIMATORS.values(), ids=ESTIMATORS.keys())
def test_rejects_what_is_wrong_and_not_what_is_right(gaussian, estimator):
    draws = gaussian(width=2.0).draws(torch.ones(2))
    wrong = assay.lc2st(gaussian(width=2.0).calibration(400), Sklearn(estimator), Exchange(19))
    right = assay.lc2st(gaussian().calibration(400), Sklearn(estimator), Exchange(19))
    assert wrong(draws).pvalue == 0.05
    assert right(gaussian().draws(torch.ones(2))).pvalue > 0.05


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_executors_change_nothing(gaussian, pool):
    calibration, draws = gaussian(width=1.3).calibration(100), gaussian().draws(torch.ones(2))
    estimator = MLPClassifier((4,), max_iter=2000, tol=1e-2)
    serial = assay.lc2st(calibration, Sklearn(estimator), Exchange(4))(draws)
    with pool(2) as executor:
        spread = assay.lc2st(calibration, Sklearn(estimator, executor), Exchange(4))(draws)
    np.testing.assert_array_equal(serial.probabilities, spread.probabilities)
    np.testing.assert_array_equal(serial.null, spread.null)


def test_probabilities_are_at_even_odds(gaussian):
    """With k draws for each truth, an estimator that knows nothing must still say 1/2."""
    calibration = gaussian().calibration(300, k=4)
    test = assay.lc2st(calibration, Sklearn(LogisticRegression(C=1e-9)), Exchange(1))
    np.testing.assert_allclose(test(gaussian().draws(torch.ones(2))).probabilities, 0.5, atol=1e-3)


def test_in_latent_space(gaussian):
    test = assay.lc2st(
        gaussian(width=2.0).latents(400), Sklearn(ESTIMATORS["instance"]), KnownBase(19)
    )
    assert test(assay.Draws(torch.ones(2))).pvalue == 0.05


def test_a_given_random_state_is_kept(gaussian):
    calibration = gaussian().calibration(50)
    estimator = make_pipeline(StandardScaler(), MLPClassifier((3,), random_state=7, tol=0.1))
    test = assay.lc2st(calibration, Sklearn(estimator), Exchange(1))
    states = {fit.get_params()["mlpclassifier__random_state"] for fit in test.scores.estimators}
    assert states == {7}


def test_a_free_random_state_is_the_same_for_all_copies(gaussian):
    test = assay.lc2st(
        gaussian().calibration(50), Sklearn(MLPClassifier((3,), tol=0.1)), Exchange(2)
    )
    states = {fit.random_state for fit in test.scores.estimators}
    assert len(states) == 1
    assert None not in states


@pytest.mark.parametrize("estimator", [MLPClassifier, StandardScaler(), "mlp"])
def test_what_is_no_classifier(estimator):
    with pytest.raises(TypeError, match="estimator: expected an instance"):
        Sklearn(estimator)


def test_class_weights_with_several_draws(gaussian):
    balanced = Sklearn(LogisticRegression(class_weight="balanced"))
    with pytest.raises(ValueError, match="estimator: expected no class weights with 3 draws"):
        assay.lc2st(gaussian().calibration(50, k=3), balanced, Exchange(1))

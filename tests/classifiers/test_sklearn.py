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
from assay import Exchange, KnownBase, Sklearn, lc2st

QDA = QuadraticDiscriminantAnalysis()
PIPELINE = make_pipeline(StandardScaler(), PolynomialFeatures(2), LogisticRegression())
X_O = torch.ones(2)


@pytest.mark.parametrize("estimator", [QDA, PIPELINE], ids=["instance", "pipeline"])
@pytest.mark.parametrize("width", [2.0, 1.0])
def test_rejects_what_is_wrong_and_not_what_is_right(gaussian, estimator, width):
    posterior, recipe = gaussian(width=width), Sklearn(estimator)
    test = lc2st(posterior.calibration(400), recipe, Exchange(19))
    latent = lc2st(posterior.latents(400), recipe, KnownBase(19))
    found = test(posterior.draws(X_O)), latent(assay.Draws(X_O))
    assert [result.pvalue == 0.05 for result in found] == [width == 2] * 2


@pytest.mark.parametrize("pool", [ThreadPoolExecutor, ProcessPoolExecutor])
def test_executors_change_nothing(gaussian, pool):
    calibration, draws = gaussian(width=1.3).calibration(100), gaussian().draws(X_O)
    estimator = MLPClassifier((4,), max_iter=2000, tol=1e-2)
    serial = lc2st(calibration, Sklearn(estimator), Exchange(4))(draws)
    with pool(2) as executor:
        spread = lc2st(calibration, Sklearn(estimator, executor), Exchange(4))(draws)
    np.testing.assert_array_equal(serial.probabilities, spread.probabilities)
    np.testing.assert_array_equal(serial.null, spread.null)


def test_probabilities_are_at_even_odds(gaussian):
    """With k draws for each truth, an estimator that knows nothing must still say 1/2."""
    calibration = gaussian().calibration(300, k=4)
    test = lc2st(calibration, Sklearn(LogisticRegression(C=1e-9)), Exchange(1))
    np.testing.assert_allclose(test(gaussian().draws(X_O)).probabilities, 0.5, atol=1e-3)


@pytest.mark.parametrize("state", [7, None])
def test_a_random_state_is_kept_and_a_free_one_is_the_same_for_all_copies(gaussian, state):
    network = MLPClassifier((3,), random_state=state, tol=0.1)
    recipe = Sklearn(make_pipeline(StandardScaler(), network))
    fits = lc2st(gaussian().calibration(50), recipe, Exchange(2)).scores.estimators
    (found,) = {fit.get_params()["mlpclassifier__random_state"] for fit in fits}
    assert found == state or (state is None and found is not None)


@pytest.mark.parametrize("estimator", [MLPClassifier, StandardScaler(), "mlp"])
def test_what_is_no_classifier(estimator):
    with pytest.raises(TypeError, match="estimator: expected an instance"):
        Sklearn(estimator)


def test_class_weights_with_several_draws(gaussian):
    balanced = Sklearn(LogisticRegression(class_weight="balanced"))
    with pytest.raises(ValueError, match="estimator: expected no class weights with 3 draws"):
        lc2st(gaussian().calibration(50, k=3), balanced, Exchange(1))

import math

import numpy as np
import pytest
import torch

import assay
from assay._core import stream
from assay.classifiers.base import Classifier, Scores
from assay.diagnostics.average.divergence import divergence


class Oracle(Classifier, Scores):
    """The Bayes classifier of a Gaussian approximation, which trains nothing."""

    def __init__(self, q):
        self.q = q

    def fit(self, copies, seed):
        return self

    def __call__(self, theta, x):
        return self.q.bayes(theta, x[:, None])[:, None]


class Blind(Classifier, Scores):
    def fit(self, copies, seed):
        return self

    def __call__(self, theta, x):
        return torch.full((len(theta), 1, theta.shape[1]), 0.5)


def kl(q):
    """KL(p || q) between N(0, I / 2) and N(shift, width^2 I / 2)."""
    each = math.log(q.width) + (1 + 2 * q.shift**2) / (2 * q.width**2) - 0.5
    return q.m * each


@pytest.mark.parametrize("width", [0.7, 1.4])
def test_bound_of_bayes_classifier_reaches_the_divergence(gaussian, width):
    q = gaussian(width)
    result = divergence(q.calibration(6000, k=300), Oracle(q), share=0.01)
    assert abs(result.kl - kl(q)) < 4 * result.kl_error + 0.01
    assert result.lower < kl(q)
    assert (result.pvalue == 1 / 1000).all()


def test_bound_grows_with_draws_and_stays_below(gaussian):
    q = gaussian(0.6)
    few, many = (divergence(q.calibration(6000, k=k), Oracle(q), share=0.01).kl for k in (1, 30))
    assert 0 < few < many < kl(q) + 0.03
    assert few < math.log(2)


def test_jensen_shannon(gaussian):
    q = gaussian(1.5, m=1)
    result = divergence(q.calibration(20_000, k=8), Oracle(q), share=0.01)
    theta = torch.linspace(-8, 8, 4001, dtype=torch.double)[:, None]
    p, other = (
        torch.distributions.Normal(0.0, scale).log_prob(theta[:, 0]).exp()
        for scale in (math.sqrt(0.5), q.scale)
    )
    mean = (p + other) / 2
    js = sum(torch.trapezoid(f * (f / mean).log(), theta[:, 0]) / 2 for f in (p, other))
    assert abs(result.js - float(js)) < 4 * result.js_error


def test_blind_classifier_gains_nothing(gaussian):
    result = divergence(gaussian(2.0).calibration(200, k=3), Blind())
    assert result.kl == pytest.approx(0, abs=1e-12)
    assert result.js == pytest.approx(0, abs=1e-12)
    assert (result.pvalue == 1).all()
    assert result.lower == 0


@pytest.mark.parametrize("width", [1.0, 1.6, 0.6])
def test_trained_network_sees_errors_and_no_more(gaussian, width):
    result = divergence(gaussian(width).calibration(2000, k=8), assay.MLP(epochs=5), seed=1)
    wrong = width != 1
    assert (result.lower > 0) == wrong
    assert (result.pvalue <= 0.01).all() if wrong else (result.pvalue > 0.01).all()
    assert result.lower < kl(gaussian(width)) + 1e-3


def test_latents(gaussian):
    result = divergence(gaussian(1.6).latents(2000), assay.MLP(epochs=5))
    assert (result.pvalue <= 0.01).all()
    assert result.settings["members"] == 5
    assert "could show" in repr(result)


def test_row_order_and_units_do_not_matter(gaussian):
    calibration = gaussian(1.3).calibration(300, k=3)
    order = torch.randperm(300, generator=stream(0, "order"))
    other = assay.Calibration(
        100 * calibration.theta[order] + 7,
        calibration.x[order],
        100 * calibration.theta_q[order] + 7,
    )
    classifier = assay.MLP(epochs=2)
    one, two = (divergence(c, classifier, seed=3) for c in (calibration, other))
    np.testing.assert_allclose(one.statistic, two.statistic, rtol=1e-3, atol=1e-4)
    np.testing.assert_array_equal(one.kl.shape, ())


def test_one_of_two_statistics(gaussian):
    result = divergence(gaussian(1.6).calibration(200, k=3), assay.MLP(epochs=2), null=39)
    assert result.labels == ("log-score", "rank")
    for i, name in enumerate(result.labels):
        assert result[name].pvalue == result[i].pvalue == result.pvalue[i]
    assert result.null.shape == (2, 39)
    with pytest.raises(KeyError, match="expected one of log-score, rank; got 'ranks'"):
        result["ranks"]


def test_save(gaussian, tmp_path):
    result = divergence(gaussian().calibration(100, k=2), Blind())
    assay.save(result, tmp_path / "r.npz")
    again = assay.load(tmp_path / "r.npz")
    assert repr(again) == repr(result)


def test_bad_input(gaussian):
    calibration = gaussian().calibration(100)
    with pytest.raises(
        TypeError, match="null: expected a number of copies or .*Exchange.*; got FreePerm"
    ):
        divergence(calibration, Blind(), assay.FreePermutation(9))
    with pytest.raises(ValueError, match="share: expected"):
        divergence(calibration, Blind(), share=1.0)
    with pytest.raises(TypeError, match="classifier: expected"):
        divergence(calibration, assay.MLP)
    with pytest.raises(TypeError, match="calibration: expected"):
        divergence(torch.zeros(10, 2))

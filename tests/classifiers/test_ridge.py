from dataclasses import replace

import numpy as np
import pytest
import torch

import assay
from assay import MLP, Exchange, FreePermutation, KnownBase, LocalExchange, Nearest, Ridge, lc2st
from assay.classifiers.features import Conditional, Joint

X_O = torch.tensor([0.5, -0.5])
SMALL = Ridge(Joint(32), penalties=0.01)
each_space = pytest.mark.parametrize("space", ["parameters", "latents"])


def run(posterior, space="parameters", n=1000, nulls=99, x_o=X_O):
    latent = space == "latents"
    samples = posterior.latents(n) if latent else posterior.calibration(n)
    draws = assay.Draws(x_o) if latent else posterior.draws(x_o)
    return lc2st(samples, Ridge(), Exchange(nulls))(draws)


@pytest.mark.parametrize("bank", [Joint(32), Joint(32, frame=Conditional(4))])
@pytest.mark.parametrize(("k", "truths"), [(1, 1), (3, 1), (3, 3)])
def test_the_same_as_least_squares_by_hand(gaussian, monkeypatch, bank, k, truths):
    """One copy at a time, from one table of all features instead of sums over sixteen sets."""
    monkeypatch.setattr("assay.classifiers.ridge.BLOCK", 1)
    copies = Exchange(2).copies(gaussian(shift=0.5).calibration(300, k).sorted(), seed=0)
    copies = replace(copies, truths=truths)
    scores = Ridge(bank, penalties=0.01).fit(copies, seed=0)
    (surface,) = scores.surfaces
    theta, x = copies.members[:1, :1] + torch.arange(5.0)[:, None], copies.x[:1]
    table = surface.feature(copies.members, copies.x).double()
    covariance = torch.cov(table.flatten(0, 1).T, correction=0)
    penalty = 0.01 * covariance.trace() / 32 * torch.eye(32)
    features = surface.feature(theta, x)[0].double()
    for h, labels in enumerate(copies.labels):
        contrast = table[labels].mean(0) - table[~labels].mean(0)
        weights = torch.linalg.solve(covariance + penalty, contrast) / 4
        for view, mean in zip(
            scores.views(theta, x), (table.mean((0, 1)), features.mean(0)), strict=True
        ):
            expected = 0.5 + (features - mean) @ weights
            torch.testing.assert_close(view[0, h].double(), expected, atol=1e-4, rtol=1e-3)


@each_space
def test_against_the_bayes_classifier(gaussian, space):
    posterior = gaussian(width=1.2, shift=0.2)
    result = run(posterior, space, n=20_000, nulls=1)
    theta = torch.tensor(result.draws)
    theta = theta if space == "parameters" else X_O / 2 + posterior.shift + posterior.scale * theta
    bayes = posterior.bayes(theta, X_O).numpy()
    assert np.corrcoef(result.probabilities, bayes)[0, 1] > 0.9
    assert np.abs(result.probabilities - bayes).mean() < 0.05


@pytest.mark.parametrize(("k", "banks"), [(1, 6), (4, 9), (None, 3)])
def test_every_bank_and_penalty_is_a_view(gaussian, k, banks):
    calibration = gaussian().latents(50) if k is None else gaussian().calibration(50, k)
    scores = Ridge().fit(Exchange(1).copies(calibration, 0), 0)
    views = scores.views(torch.zeros(1, 500, 2), X_O[None])
    assert [view.shape for view in views] == [(1, 2, 500)] * 4 * banks


def test_probabilities_are_of_a_view_chosen_for_each_copy_on_its_own(gaussian):
    """The data show an error, so a view with little shrinkage; most nulls show next to nothing."""
    result = run(gaussian(width=1.5), nulls=49)
    assert result.probabilities.std() > 3 * result.null_probabilities.std(1).mean()


GROSS = [{"shift": 4.0}, {"shift": 8.0}, {"width": 0.01}, {"width": 0.03, "m": 5}]


@pytest.mark.parametrize("error", GROSS, ids=str)
def test_gross_errors_are_found(gaussian, error):
    """All draws of q are alike to the classifier, and all are wrong."""
    result = run(gaussian(**error), x_o=torch.full((error.get("m", 2),), 0.5))
    assert result.pvalue == 0.01
    assert result.probabilities.mean() < 0.35


@pytest.mark.parametrize("null", [Exchange(19), LocalExchange(19, Nearest(0.2))])
def test_neither_units_nor_the_order_of_rows_matter(gaussian, null):
    posterior = gaussian(shift=0.3)
    calibration, draws = posterior.calibration(300), posterior.draws(X_O)
    first = lc2st(calibration, SMALL, null)(draws)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    second = lc2st(calibration.subset(order), SMALL, null)(draws)
    np.testing.assert_array_equal(first.null, second.null)
    for units in (1e-12, 1e12):
        tables = units * calibration.theta, calibration.x / units, units * calibration.theta_q
        there = assay.Draws(draws.x / units, units * draws.theta)
        other = lc2st(assay.Calibration(*tables), SMALL, null)(there)
        np.testing.assert_allclose(first.null, other.null, rtol=1e-2, atol=1e-6)


def test_degenerate_samples(gaussian):
    """Twice the same parameter, and more features than rows; an x that says nothing; constants."""
    pairs, wrong = gaussian().calibration(100), gaussian(shift=1.0).calibration(500)
    twice = assay.Calibration(pairs.theta[:, [0, 0]], pairs.x, pairs.theta_q[:, :, [0, 0]])
    draws = gaussian().draws(X_O).theta[:, [0, 0]]
    assert 0.05 < lc2st(twice, Ridge(), Exchange(99))(assay.Draws(X_O, draws)).pvalue < 1
    ones = torch.ones(500, 2)
    blind = lc2st(assay.Calibration(wrong.theta, ones, wrong.theta_q), Ridge(), Exchange(99))
    assert blind(assay.Draws(ones[0], wrong.theta_q[:, 0] + 1e-3)).pvalue == 0.01
    with pytest.raises(ValueError, match="features: expected some that vary"):
        lc2st(assay.Calibration(ones, ones, ones[:, None]), SMALL, Exchange(9))


@pytest.mark.parametrize("null", [FreePermutation(9), KnownBase(9)])
def test_it_refuses_copies_of_other_nulls(gaussian, null):
    with pytest.raises(ValueError, match=r"null: expected Exchange\(n\).*closed form"):
        lc2st(gaussian().latents(50), SMALL, null)


@pytest.mark.parametrize(
    ("name", "value"),
    [("features", ()), ("features", MLP), ("penalties", ()), ("penalties", (0.1, -1.0))],
)
def test_settings_that_mean_nothing(name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        Ridge(**{name: value})


@each_space
def test_a_test_can_be_saved(gaussian, space, tmp_path):
    posterior, latent = gaussian(shift=0.3), space == "latents"
    samples = posterior.latents(200) if latent else posterior.calibration(200, k=5)
    test = lc2st(samples, Ridge(), Exchange(19))
    assay.save(test, tmp_path / "test.npz")
    again = assay.load(tmp_path / "test.npz")
    draws = assay.Draws(X_O) if latent else posterior.draws(X_O)
    np.testing.assert_array_equal(test(draws).null, again(draws).null)
    assert again.classifier == test.classifier

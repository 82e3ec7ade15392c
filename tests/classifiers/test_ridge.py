from dataclasses import replace

import numpy as np
import pytest
import torch

import assay
from assay import MLP, Exchange, FreePermutation, KnownBase, Ridge, lc2st
from assay.classifiers.base import Scaling
from assay.classifiers.features import Conditional, Joint
from assay.classifiers.ridge import _moments

X_O = torch.tensor([0.5, -0.5])
SMALL = Ridge(Joint(32), penalties=0.01)


def run(posterior, space, n=1000, classifier=None, nulls=99, seed=0, k=1):
    if space == "parameters":
        test = lc2st(
            posterior.calibration(n, k, seed), classifier or Ridge(), Exchange(nulls), seed=seed
        )
        return test(posterior.draws(X_O, seed=seed))
    test = lc2st(posterior.latents(n, seed), classifier or Ridge(), Exchange(nulls), seed=seed)
    return test(assay.Draws(X_O))


SPACES = ["parameters", "latents"]


def test_the_same_as_least_squares_by_hand(gaussian):
    """One copy at a time, by the normal equations of all rows."""
    calibration = gaussian(shift=0.5).calibration(300).sorted()
    copies = Exchange(1).copies(calibration, seed=0)
    scores = SMALL.fit(copies, seed=0)
    (surface,) = scores.surfaces
    x_o, theta = (
        calibration.x[:3],
        calibration.theta_q[:3].expand(-1, 5, -1) + torch.arange(5.0)[:, None],
    )
    _, found = scores.views(theta, x_o)
    tables = surface.feature(copies.members, copies.x)
    rows = (tables - tables.mean((0, 1))).flatten(0, 1).double()
    # Labels are fitted within sets: what both members of a set share carries no information.
    centred = (tables - tables.mean(1, keepdim=True)).flatten(0, 1).double()
    penalty = 0.01 * rows.square().sum(1).mean() / 32 * len(rows)
    for h in range(2):
        labels = copies.labels[h].flatten().double() - 0.5
        sums = centred.T @ labels
        weights = torch.linalg.solve(rows.T @ rows + penalty * torch.eye(32), sums).float()
        features = surface.feature(theta, x_o)
        expected = 0.5 + (features - features.mean(1, keepdim=True)) @ weights
        torch.testing.assert_close(found[:, h], expected, atol=1e-4, rtol=1e-3)


def test_moments_and_contrasts_are_those_of_all_rows(gaussian):
    """Streamed over more than one block, against one table of everything."""
    n = 10_000
    copies = Exchange(2).copies(gaussian().calibration(n, k=2), seed=1)
    for bank in (Joint(300), Joint(300, frame=Conditional(4))):
        feature = bank.fit(copies, Scaling.fit(copies))
        mean, covariance, contrasts = _moments(feature, copies)
        table = feature(copies.members, copies.x).double()
        expected = torch.cov(table.flatten(0, 1).T, correction=0)
        torch.testing.assert_close(covariance, expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(mean, table.mean((0, 1)), atol=1e-5, rtol=0)
        centred = table - table.mean(1, keepdim=True)
        sums = torch.einsum("cnr,nrp->cp", copies.labels.double(), centred)
        torch.testing.assert_close(contrasts, 1.5 * sums / n, atol=1e-5, rtol=1e-3)
        _, same, opposite = _moments(feature, replace(copies, truths=2))
        torch.testing.assert_close(opposite, -contrasts)
        torch.testing.assert_close(same, covariance)


@pytest.mark.parametrize("space", SPACES)
def test_against_the_bayes_classifier(gaussian, space):
    posterior = gaussian(width=1.2, shift=0.2)
    result = run(posterior, space, n=20_000, nulls=1)
    theta = torch.tensor(result.draws)
    theta = theta if space == "parameters" else X_O / 2 + posterior.shift + posterior.scale * theta
    bayes = posterior.bayes(theta, X_O).numpy()
    assert np.corrcoef(result.probabilities, bayes)[0, 1] > 0.9
    assert np.abs(result.probabilities - bayes).mean() < 0.05


def test_more_draws_at_each_x_find_more(gaussian):
    def found(k):
        return run(gaussian(shift=0.15), "parameters", 500, nulls=199, k=k)

    def score(result):
        return (result.statistic - result.null.mean()) / result.null.std()

    assert score(found(16)) > score(found(1))


@pytest.mark.parametrize(("k", "banks"), [(1, 6), (4, 9), (None, 3)])
def test_default_banks(gaussian, k, banks):
    calibration = gaussian().latents(50) if k is None else gaussian().calibration(50, k)
    assert len(lc2st(calibration, Ridge(), Exchange(1)).scores.surfaces) == banks


def test_every_bank_and_penalty_is_a_view(gaussian):
    posterior = gaussian(shift=1.0)
    test = lc2st(posterior.calibration(500), Ridge(), Exchange(49))
    observed = test.calibration.observe(posterior.draws(X_O))
    at = observed.draws, observed.features
    assert [view.shape for view in test.scores.views(*at)] == [(1, 50, 500)] * 24


def test_probabilities_are_of_a_view_chosen_for_each_copy_on_its_own(gaussian):
    """The data show an error, so a view with little shrinkage; most nulls show next to nothing."""
    result = run(gaussian(width=1.5), "parameters", nulls=49)
    assert result.probabilities.std() > 3 * result.null_probabilities.std(1).mean()


def test_it_refuses_copies_of_other_nulls(gaussian):
    for calibration, null in (
        (gaussian().calibration(50), FreePermutation(9)),
        (gaussian().latents(50), KnownBase(9)),
    ):
        with pytest.raises(ValueError, match=r"null: expected Exchange\(n\).*closed form"):
            lc2st(calibration, SMALL, null)


GROSS = [{"shift": 4.0}, {"shift": 8.0}, {"width": 0.01}, {"width": 0.03, "m": 5}]


@pytest.mark.parametrize("error", GROSS, ids=str)
def test_gross_errors_are_found(gaussian, error):
    """All draws of q are alike to the classifier, and all are wrong."""
    posterior = gaussian(**error)
    x_o = torch.full((posterior.m,), 0.5)
    test = lc2st(posterior.calibration(1000), Ridge(), Exchange(99))
    result = test(posterior.draws(x_o))
    assert result.pvalue == 0.01
    assert result.probabilities.mean() < 0.35


@pytest.mark.parametrize("units", [1e-12, 1e12])
def test_units_do_not_matter(gaussian, units):
    posterior = gaussian(shift=0.3)
    calibration, draws = posterior.calibration(300), posterior.draws(X_O)
    other = assay.Calibration(
        units * calibration.theta, calibration.x / units, units * calibration.theta_q
    )
    first = lc2st(calibration, SMALL, Exchange(19))(draws)
    second = lc2st(other, SMALL, Exchange(19))(assay.Draws(draws.x / units, units * draws.theta))
    np.testing.assert_allclose(first.null, second.null, rtol=1e-2)


def test_many_draws_at_each_x_need_little_memory(gaussian, monkeypatch):
    """Sums over sixteen sets at a time are those over all of them."""
    result = run(gaussian(), "parameters", 60, SMALL, 499, k=100)
    monkeypatch.setattr("assay.classifiers.ridge.BLOCK", 1)
    small = run(gaussian(), "parameters", 60, SMALL, 499, k=100)
    np.testing.assert_allclose(small.null, result.null, rtol=1e-3)
    assert small.pvalue == pytest.approx(result.pvalue, abs=0.01)
    assert result.pvalue > 0.05


def test_the_order_of_rows_does_not_matter(gaussian):
    calibration = gaussian(shift=0.2).calibration(200)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(1))
    draws = gaussian(shift=0.2).draws(X_O)
    first, second = (
        lc2st(c, SMALL, Exchange(19))(draws) for c in (calibration, calibration.subset(order))
    )
    np.testing.assert_array_equal(first.null, second.null)


@pytest.mark.parametrize("space", SPACES)
def test_its_own_null_is_the_default(gaussian, space):
    posterior = gaussian()
    calibration = posterior.calibration(50) if space == "parameters" else posterior.latents(50)
    assert lc2st(calibration, SMALL).null == Exchange(999)


def test_another_base(gaussian):
    """Class 0 need not be normal."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2000, 1, generator=generator)
    base = torch.distributions.Independent(
        torch.distributions.Uniform(torch.zeros(2), torch.ones(2)), 1
    )
    right = torch.rand(2000, 2, generator=generator)
    for z, wrong in ((right, False), (right**1.3, True)):
        calibration = assay.Calibration.from_base(z, x, base)
        result = lc2st(calibration, Ridge(), Exchange(99))(assay.Draws(torch.zeros(1)))
        assert (result.pvalue <= 0.02) == wrong


def test_singular_covariances(gaussian):
    """Twice the same parameter, and more features than rows: the penalty takes care of both."""
    theta, x, theta_q = (
        getattr(gaussian().calibration(100), k) for k in ("theta", "x", "theta_q")
    )
    twice = assay.Calibration(theta[:, [0, 0]], x, theta_q[:, :, [0, 0]])
    draws = gaussian().draws(X_O).theta[:, [0, 0]]
    result = lc2st(twice, Ridge(), Exchange(99))(assay.Draws(X_O, draws))
    assert np.isfinite(result.statistic)
    assert 0.05 < result.pvalue < 1


def test_an_x_without_information(gaussian):
    calibration = gaussian(shift=1.0).calibration(500)
    blind = assay.Calibration(calibration.theta, torch.ones(500, 2), calibration.theta_q)
    result = lc2st(blind, Ridge(), Exchange(99))(
        assay.Draws(torch.ones(2), calibration.theta_q[:, 0] + 1e-3)
    )
    assert result.pvalue == 0.01


def test_constant_features(gaussian):
    calibration = gaussian().calibration(50)
    flat = assay.Calibration(
        torch.ones(50, 2), torch.ones_like(calibration.x), torch.ones(50, 1, 2)
    )
    with pytest.raises(ValueError, match="features: expected some that vary"):
        lc2st(flat, SMALL, Exchange(9))


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"features": ()}, ValueError),
        ({"features": MLP}, TypeError),
        ({"penalties": ()}, ValueError),
        ({"penalties": 0.0}, ValueError),
        ({"penalties": (0.1, -1.0)}, ValueError),
        ({"penalties": "much"}, TypeError),
    ],
)
def test_settings_that_mean_nothing(settings, error):
    with pytest.raises(error, match=next(iter(settings))):
        Ridge(**settings)


@pytest.mark.parametrize("space", SPACES)
def test_a_test_can_be_saved(gaussian, space, tmp_path):
    posterior = gaussian(shift=0.3)
    calibration = (
        posterior.calibration(200, k=5) if space == "parameters" else posterior.latents(200)
    )
    test = lc2st(calibration, Ridge(), Exchange(19))
    assay.save(test, tmp_path / "test.npz")
    again = assay.load(tmp_path / "test.npz")
    draws = posterior.draws(X_O) if space == "parameters" else assay.Draws(X_O)
    np.testing.assert_array_equal(test(draws).null, again(draws).null)
    assert again.classifier == test.classifier

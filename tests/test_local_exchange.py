"""The null that makes a local claim true: exact near x_o, whatever happens elsewhere."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression

import assay
from assay.classifiers.frames import Conditional
from assay.classifiers.maps import Joint
from assay.neighbourhoods import Distance, Nearest
from assay.randomness import stream

SMALL = assay.Ridge((Joint(24), Joint(24, 2.0, frame=Conditional(16))), penalties=(0.01, 0.1))
X_O = torch.tensor([2.0, 0.0])


def half(gaussian, n, k=2, shift=0.0, seed=0):
    """Pairs whose q is right for x_1 > 0 and shifted elsewhere."""
    calibration = gaussian().calibration(n, k, seed)
    bad = (calibration.x[:, :1] < 0).to(calibration.theta)
    theta_q = calibration.theta_q + shift * bad[:, None]
    return assay.Calibration(calibration.theta, calibration.x, theta_q)


def draws(gaussian, x_o=X_O, seed=0):
    return gaussian().draws(x_o, 60, seed)


def copies_of(calibration, null, classifier=SMALL):
    trained = null.train(calibration, classifier, 0)
    near = null.where.inside(calibration.features, X_O[None])[0, 0]
    return null._copies(trained.calibration, classifier, 0), near


@pytest.mark.parametrize("latent", [False, True])
def test_copies_differ_from_the_data_near_x_o_only(gaussian, latent):
    calibration = gaussian().latents(200) if latent else gaussian().calibration(200, 3)
    null = assay.LocalExchange(4, 0.2)
    copies, near = copies_of(calibration.sorted(), null, assay.MLP(epochs=1))
    local = copies.inside(near)
    first, *others = (local.rows(h) for h in range(5))
    sets = near.repeat_interleave(len(first.theta) // 200)
    for rows in others:
        same = (rows.labels == first.labels) & (rows.theta == first.theta).all(1)
        assert same[~sets].all()
        assert not same[sets].all()
    everywhere = copies.rows(2)
    assert torch.equal(local.rows(2).labels[sets], everywhere.labels[sets])
    assert torch.equal(local.rows(2).theta[sets], everywhere.theta[sets])


def test_closed_form_refit_is_a_fit_of_everything(gaussian):
    calibration = half(gaussian, 300, 3, 0.5).sorted()
    null = assay.LocalExchange(9, 0.2)
    trained = null.train(calibration, SMALL, 0)
    copies, near = copies_of(calibration, null)
    whole = SMALL.fit(copies.inside(near), 0)
    quick = trained.at(X_O)
    there = draws(gaussian).theta[None]
    pairs = zip(whole.views(there, X_O[None]), quick.views(there, X_O[None]), strict=True)
    for one, two in pairs:
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)


def test_share_of_all_points_is_the_global_null(gaussian):
    calibration = half(gaussian, 300, 2, 0.5)
    there = draws(gaussian)
    local = assay.lc2st(calibration, SMALL, assay.LocalExchange(19, 1.0))(there)
    everywhere = assay.lc2st(calibration, SMALL, assay.Exchange(19))(there)
    np.testing.assert_allclose(local.statistic, everywhere.statistic, rtol=1e-2)
    np.testing.assert_allclose(local.null, everywhere.null, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    "classifier", [assay.MLP(hidden=(8,), epochs=2), assay.Sklearn(LogisticRegression())]
)
def test_any_classifier(gaussian, classifier):
    test = assay.lc2st(half(gaussian, 200), classifier, assay.LocalExchange(3, 0.2))
    result = test(assay.Draws(torch.stack([X_O, -X_O]), torch.zeros(2, 30, 2)))
    assert result.pvalue.shape == (2,)
    assert "nearest 20%" in result.hypothesis
    assert "nearest 20%" in result.sentence
    assert "Holm" in result.family.words
    single = test(assay.Draws(X_O, torch.zeros(30, 2)))
    np.testing.assert_allclose(single.null, result.null[0], rtol=1e-4, atol=1e-6)


def test_level_where_q_is_right_nearby_and_wrong_elsewhere(gaussian):
    """1000 repetitions with a large error on the other half; the global null leaks."""
    local, leaks, sizes = [], [], []
    for i in range(1000):
        calibration = half(gaussian, 120, 1, 2.0, i)
        there = draws(gaussian, torch.tensor([2.5, 0.0]), i)
        test = partial(assay.lc2st, calibration, SMALL, seed=i)
        local.append(test(assay.LocalExchange(19, 0.1))(there).pvalue)
        if i < 100:
            leaks.append(test(assay.Exchange(19))(there).pvalue)
            sizes.append(test(assay.LocalExchange(19, (0.05, 0.1)))(there).pvalue)
    for alpha in (0.05, 0.25, 0.5):
        low, high = binom.interval(0.999, 1000, alpha)
        assert low <= (np.array(local) <= alpha).sum() <= high
    assert np.mean(np.array(leaks) <= 0.05) > 0.3
    assert (np.array(sizes) <= 0.05).sum() <= binom.ppf(0.999, 100, 0.05)


@pytest.mark.parametrize("share", [0.1, (0.05, 0.1, 0.2)])
def test_power_where_q_is_wrong(gaussian, share):
    calibration = half(gaussian, 1500, 2, 1.0)
    result = assay.lc2st(calibration, SMALL, assay.LocalExchange(99, share))(draws(gaussian, -X_O))
    assert result.pvalue == 0.01


def test_moments_take_it(gaussian):
    calibration = half(gaussian, 600, 8, 1.0)
    null = assay.LocalExchange(99, 0.1)
    one = assay.moments(calibration, null=null)(assay.Draws(-X_O))
    two = assay.moments(calibration, Nearest((0.1,)), assay.Exchange(99))(assay.Draws(-X_O))
    assert one.pvalue == two.pvalue == 0.01
    with pytest.raises(ValueError, match="where: expected None"):
        assay.moments(calibration, Nearest((0.3,)), null)


def test_distance_in_another_representation(gaussian):
    calibration = gaussian().calibration(200)
    only_second = Distance(lambda x: x[:, 1:])
    near = Nearest((0.1,), only_second).inside(calibration.features, torch.zeros(1, 2))[0, 0]
    assert calibration.x[near, 1].abs().max() < 0.4
    assert calibration.x[near, 0].abs().max() > 1
    with pytest.raises(ValueError, match="function: expected one that maps"):
        Nearest((0.1,), Distance(lambda x: x[:3])).inside(calibration.features, torch.zeros(1, 2))


def test_the_hypothesis_says_how_far_the_neighbourhood_reaches(gaussian):
    """Ten points are the fewest, and ties in x are all in or all out."""
    few = assay.lc2st(half(gaussian, 60), SMALL, assay.LocalExchange(9, 0.05))(draws(gaussian))
    assert "nearest 17%" in few.hypothesis
    assert "nearest 17%" in few.sentence
    calibration = gaussian().calibration(200)
    tied = assay.Calibration(calibration.theta, calibration.x.sign(), calibration.theta_q)
    there = assay.Draws(torch.ones(2), torch.zeros(30, 2))
    share = (tied.x == 1).all(1).double().mean().item()
    for test in (
        assay.lc2st(tied, SMALL, assay.LocalExchange(9, 0.05)),
        assay.region(tied.subset(slice(0, 200)), SMALL, Nearest((0.05,))),
    ):
        found = int(test(there).hypothesis.split("nearest ")[1].split("%")[0])
        assert abs(found - 100 * share) < 12


def test_near_points_are_found_in_single_precision_and_however_many_are_asked():
    x = torch.cat([torch.randn(500, 2, generator=stream(i, "cluster")) * 1e-4 + i for i in (0, 2)])
    assert (Nearest((0.05,)).inside(x, x[:5]).sum(2) == 50).all()
    tied = torch.randint(3, (300, 7), generator=stream(0, "tied")).float()
    together = Nearest((0.1,)).inside(tied, tied[:40])
    alone = torch.cat([Nearest((0.1,)).inside(tied, o[None]) for o in tied[:40]])
    assert torch.equal(together, alone)


def test_too_few_nulls_for_many_observations_are_said(gaussian):
    places = assay.Draws(torch.randn(12, 2), torch.zeros(12, 30, 2))
    result = assay.lc2st(half(gaussian, 100), SMALL, assay.LocalExchange(19, 0.2))(places)
    assert "no adjusted p-value can be below 0.600: take 239" in result.sentence


def test_row_order_does_not_matter(gaussian):
    calibration = half(gaussian, 200, 2, 1.0)
    order = torch.randperm(200, generator=stream(0, "order"))
    null = assay.LocalExchange(9, 0.2)
    one, two = (
        assay.lc2st(c, SMALL, null)(draws(gaussian))
        for c in (calibration, calibration.subset(order))
    )
    np.testing.assert_allclose(one.null, two.null, rtol=1e-3, atol=1e-4)


def test_save(gaussian, tmp_path):
    test = assay.lc2st(half(gaussian, 100), SMALL, assay.LocalExchange(5, 0.2))
    assay.save(test, tmp_path / "t.npz")
    there = draws(gaussian)
    np.testing.assert_allclose(
        assay.load(tmp_path / "t.npz")(there).null, test(there).null, rtol=1e-5
    )


def test_bad_input(gaussian):
    with pytest.raises(ValueError, match="share: expected"):
        assay.LocalExchange(9, 1.5)
    with pytest.raises(TypeError, match="function: expected"):
        Distance("a")
    with pytest.raises(ValueError, match="n: expected at least 1"):
        assay.LocalExchange(0)
    with pytest.raises(TypeError, match="distance: expected"):
        assay.LocalExchange(9, 0.1, 3.0)
    with pytest.raises(ValueError, match="several sizes need a classifier in closed form"):
        assay.lc2st(half(gaussian, 100), assay.MLP(), assay.LocalExchange(9, (0.1, 0.2)))

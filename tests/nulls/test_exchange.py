from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression

import assay
from assay import MLP, Exchange, FreePermutation, KnownBase, LocalExchange, Ridge, lc2st
from assay._support.random import stream
from assay.classifiers.base import Scaling
from assay.classifiers.features import Conditional, Joint
from assay.neighbourhood import Nearest
from assay.nulls.exchange import LabelCopies, Null, global_null

N, K = 60, 3
NULLS = {"exchange": Exchange, "free": FreePermutation, "base": KnownBase}
SMALL = Ridge((Joint(24), Joint(24, 2.0, frame=Conditional(16))), penalties=(0.01, 0.1))
X_O = torch.tensor([2.0, 0.0])


@pytest.fixture
def copies(gaussian):
    return Exchange(7).copies(gaussian().calibration(N, k=K), seed=1)


@pytest.mark.parametrize("null", NULLS.values(), ids=NULLS.keys())
@pytest.mark.parametrize(("n", "error"), [(0, ValueError), (-3, ValueError), (2.5, TypeError)])
def test_the_number_of_nulls(null, n, error):
    with pytest.raises(error, match="n: expected"):
        null(n)


def test_exchange_picks_each_member_equally_often(gaussian):
    copies = Exchange(400).copies(gaussian().calibration(50, k=3), seed=0)
    counts = copies[1:].labels.sum((0, 1))
    assert counts.sum() == 400 * 50
    assert scipy.stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_exchange_keeps_sets_together_and_free_permutation_does_not(gaussian):
    calibration = gaussian().calibration(50, k=2)
    assert (Exchange(9).copies(calibration, 0).labels.sum(2) == 1).all()
    free = FreePermutation(9).copies(calibration, 0).labels
    assert (free[0].sum(1) == 1).all()
    assert (free[1:].sum(2) != 1).any()


def test_exchange_with_base_draws_in_latent_space(gaussian):
    calibration = gaussian(width=0.2).latents(2000)
    copies = Exchange(9).copies(calibration, 0)
    members, labels = copies.members, copies.labels
    assert members.shape == (2000, 5, 2)
    assert copies.base == calibration.base
    torch.testing.assert_close(members[labels[0]], calibration.theta)
    base = members[~labels[0]].flatten().numpy()
    assert scipy.stats.kstest(base, "norm").pvalue > 1e-3


@pytest.mark.parametrize("null", NULLS.values(), ids=NULLS.keys())
def test_the_same_seed_gives_the_same_copies(gaussian, null):
    calibration = gaussian().latents(50) if null is KnownBase else gaussian().calibration(50)
    first, again, other = (null(3).copies(calibration, seed).rows(2) for seed in (0, 0, 1))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_a_null_without_copies_is_none():
    with pytest.raises(TypeError, match="abstract"):
        type("Idle", (assay.nulls.exchange.GlobalNull,), {})(9)
    assert not isinstance(LocalExchange(9), assay.nulls.exchange.GlobalNull)
    assert isinstance(LocalExchange(9), Null)


def test_hypotheses():
    for null in (Exchange(9), FreePermutation(9), KnownBase(9)):
        assert null.where is None
        assert null.scope == "at almost every x"
        assert null.hypothesis == "q(theta | x) = p(theta | x) at almost every x, tested at x_o"
    local = LocalExchange(9, Nearest(0.3))
    assert local.scope == "throughout the nearest 30% of x around x_o"
    assert local.hypothesis == f"q(theta | x) = p(theta | x) {local.scope}"
    assert local.where == Nearest(0.3)
    assert LocalExchange(9).where == Nearest()
    assert local.like(KnownBase(5)) == KnownBase(9)


def test_the_truth_has_no_place_of_its_own(copies):
    places = copies.labels[0].sum(0)
    assert places.sum() == N
    assert (places > 3).all()


def test_scaling_ignores_roles(copies):
    assert isinstance(copies, LabelCopies)
    location, scale = copies.scaling
    torch.testing.assert_close(location, copies.members.flatten(0, 1).mean(0))
    assert torch.equal(scale, copies[3:4].scaling[1])


def test_scaling_far_from_zero(copies):
    far = replace(copies, members=copies.members + 1e6)
    location, scale = (part.double() for part in far.scaling)
    expected, unit = (part.double() for part in copies.scaling)
    torch.testing.assert_close(location - 1e6, expected, atol=0.07, rtol=0)
    torch.testing.assert_close(scale, unit, atol=0, rtol=1e-2)


def test_scaling_of_a_constant_parameter_is_one(gaussian):
    calibration = gaussian().calibration(N)
    copies = Exchange(1).copies(calibration, 0)
    copies = replace(copies, members=torch.full((N, 2, 2), 0.1))
    assert torch.equal(copies.scaling[1], torch.ones(2))


def test_sums_are_those_of_all_rows(gaussian):
    """Streamed over more than one block, against one table of everything."""
    n = 10_000
    copies = Exchange(2).copies(gaussian().calibration(n, k=2), seed=1)
    scaling = Scaling.fit(copies)
    features = [bank.fit(copies, scaling) for bank in (Joint(6), Joint(6, frame=Conditional(4)))]
    for feature, sums in zip(features, copies.sums(features), strict=True):
        table = feature(copies.members, copies.x).double()
        expected = torch.cov(table.flatten(0, 1).T, correction=0)
        torch.testing.assert_close(sums.covariance, expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(sums.mean, table.mean((0, 1)), atol=1e-5, rtol=0)
        centred = table - table.mean(1, keepdim=True)
        contrasts = 1.5 * torch.einsum("cnr,nrp->cp", copies.labels.double(), centred) / n
        torch.testing.assert_close(sums.contrasts, contrasts, atol=1e-5, rtol=1e-3)
        assert sums.rows == 3 * n


def turned(copies):
    """The same sets with the classes exchanged: all but one of a set play the truth."""
    return replace(copies, truths=copies.odds)


def test_a_subset_keeps_its_labels(copies):
    rows = torch.tensor([5, 50, 2])
    some = copies.subset(rows)
    assert torch.equal(some.members, copies.members[rows])
    assert torch.equal(some.x, copies.x[rows])
    assert torch.equal(some.labels, copies.labels[:, rows])
    assert torch.equal(some[2:4].labels, copies.labels[2:4, rows])
    assert torch.equal(copies[2:4].subset(rows).labels, copies.labels[2:4, rows])


def test_a_subset_of_several_blocks(gaussian):
    copies = Exchange(1).copies(gaussian().calibration(10_000), seed=1)
    rows = torch.arange(0, 10_000 - 5).flip(0)
    assert torch.equal(copies.subset(rows).labels, copies.labels[:, rows])


def test_sets_of_several_truths(copies):
    other = turned(copies)
    assert (copies.odds, other.odds) == (K, 1 / K)
    assert copies.size == other.size == K + 1
    assert torch.equal(other.labels, ~copies.labels)
    feature = Joint(6).fit(copies, Scaling.fit(copies))
    for sums, opposite in zip(copies.sums([feature]), other.sums([feature]), strict=True):
        torch.testing.assert_close(opposite.contrasts, -sums.contrasts)
        torch.testing.assert_close(opposite.covariance, sums.covariance)


def test_without_observations(gaussian):
    """No x at all, as in a test of two samples."""
    copies = Exchange(2).copies(gaussian().calibration(N, k=K), seed=1)
    copies = replace(copies, x=torch.empty(N, 0))
    scaling = Scaling.fit(copies)
    assert scaling.width == 2
    banks = Joint(6), Joint(6, frame=Conditional())
    for bank in banks:
        assert bank.fit(copies, scaling)(copies.members, copies.x).isfinite().all()
    for classifier in (MLP((8,), epochs=1), Ridge()):
        scores = classifier.fit(copies, 0)(copies.members[:1], copies.x[:1])
        assert scores.shape == (1, 3, K + 1)


# The null that makes a local claim true: exact near x_o, whatever happens elsewhere.
def half(gaussian, n, k=2, shift=0.0, seed=0):
    """Pairs whose q is right for x_1 > 0 and shifted elsewhere."""
    calibration = gaussian().calibration(n, k, seed)
    bad = (calibration.x[:, :1] < 0).to(calibration.theta)
    theta_q = calibration.theta_q + shift * bad[:, None]
    return assay.Calibration(calibration.theta, calibration.x, theta_q)


def draws(gaussian, x_o=X_O, seed=0):
    return gaussian().draws(x_o, 60, seed)


def local_copies(calibration, null, classifier=SMALL):
    """Copies that differ everywhere, and the sets near x_o."""
    near = null.where.inside(calibration.features, X_O[None])[0]
    return null.like(global_null(calibration, classifier.null)).copies(calibration, 0), near


@pytest.mark.parametrize("latent", [False, True])
def test_copies_differ_from_the_data_near_x_o_only(gaussian, latent):
    calibration = gaussian().latents(200) if latent else gaussian().calibration(200, 3)
    null = LocalExchange(4, Nearest(0.2))
    copies, near = local_copies(calibration.sorted(), null, assay.MLP(epochs=1))
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
    null = LocalExchange(9, Nearest(0.2))
    copies, near = local_copies(calibration, null)
    whole = SMALL.fit(copies.inside(near), 0)
    data = SMALL.fit(copies[:1], 0)
    quick = SMALL.refit(data, copies.inside(near), near, 0)
    there = draws(gaussian).theta[None]
    views = (scores.views(there, X_O[None]) for scores in (whole, quick.whole, quick.without))
    for one, two, without in zip(*views, strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)
        # Elsewhere, all copies are the data.
        torch.testing.assert_close(without, without[:, :1].expand_as(without))
        assert (without - two).abs().max() > 0.01


def test_share_of_all_points_is_the_global_null(gaussian):
    calibration = half(gaussian, 300, 2, 0.5)
    there = draws(gaussian)
    local = lc2st(calibration, SMALL, LocalExchange(19, Nearest(1.0)))(there)
    everywhere = lc2st(calibration, SMALL, assay.Exchange(19))(there)
    np.testing.assert_allclose(local.statistic, everywhere.statistic, rtol=1e-2)
    np.testing.assert_allclose(local.null, everywhere.null, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize(
    "classifier", [assay.MLP(hidden=(8,), epochs=2), assay.Sklearn(LogisticRegression())]
)
def test_any_classifier(gaussian, classifier):
    test = lc2st(half(gaussian, 200), classifier, LocalExchange(3, Nearest(0.2)))
    result = test(assay.Draws(torch.stack([X_O, -X_O]), torch.zeros(2, 30, 2)))
    assert result.pvalue.shape == (2,)
    assert "nearest 20%" in result.hypothesis
    assert "nearest 20%" in result.sentence
    assert "Holm" in result.adjustment.words
    single = test(assay.Draws(X_O, torch.zeros(30, 2)))
    np.testing.assert_allclose(single.null, result.null[0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("repetitions", [200, pytest.param(1000, marks=pytest.mark.slow)])
def test_level_where_q_is_right_nearby_and_wrong_elsewhere(gaussian, repetitions):
    """With a large error on the other half; 99.9 % binomial intervals; the global null leaks."""
    local, leaks = [], []
    for i in range(repetitions):
        calibration = half(gaussian, 120, 1, 2.0, i)
        there = draws(gaussian, torch.tensor([2.5, 0.0]), i)
        test = partial(lc2st, calibration, SMALL, seed=i)
        local.append(test(LocalExchange(19, Nearest(0.1)))(there).pvalue)
        if i < 50:
            leaks.append(test(assay.Exchange(19))(there).pvalue)
    for alpha in (0.05, 0.25, 0.5):
        low, high = binom.interval(0.999, repetitions, alpha)
        assert low <= (np.array(local) <= alpha).sum() <= high
    assert np.mean(np.array(leaks) <= 0.05) > 0.2


def test_power_where_q_is_wrong(gaussian):
    calibration = half(gaussian, 1500, 2, 1.0)
    result = lc2st(calibration, SMALL, LocalExchange(99, Nearest(0.1)))(draws(gaussian, -X_O))
    assert result.pvalue == 0.01


def test_too_few_nulls_for_many_observations_are_said(gaussian):
    places = assay.Draws(torch.randn(12, 2), torch.zeros(12, 30, 2))
    result = lc2st(half(gaussian, 100), SMALL, LocalExchange(19, Nearest(0.2)))(places)
    assert "cannot be below 0.600: take 239" in result.sentence


def test_row_order_does_not_matter_near_x_o(gaussian):
    calibration = half(gaussian, 200, 2, 1.0)
    order = torch.randperm(200, generator=stream(0, "order"))
    null = LocalExchange(9, Nearest(0.2))
    one, two = (
        lc2st(c, SMALL, null)(draws(gaussian)) for c in (calibration, calibration.subset(order))
    )
    np.testing.assert_allclose(one.null, two.null, rtol=1e-3, atol=1e-4)


def test_a_test_near_x_o_can_be_saved(gaussian, tmp_path):
    test = lc2st(half(gaussian, 100), SMALL, LocalExchange(5, Nearest(0.2)))
    assay.save(test, tmp_path / "t.npz")
    there = draws(gaussian)
    np.testing.assert_allclose(
        assay.load(tmp_path / "t.npz")(there).null, test(there).null, rtol=1e-5
    )


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: LocalExchange(0), ValueError, "n: expected at least 1"),
        (lambda: LocalExchange(9, 0.1), TypeError, "near: expected a neighbourhood such as"),
        (lambda: LocalExchange(9, Nearest), TypeError, "near: expected .*; got the class Nearest"),
    ],
)
def test_bad_local_exchanges(make, error, message):
    with pytest.raises(error, match=message):
        make()

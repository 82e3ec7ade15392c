from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression

import assay
from assay import MLP, Exchange, FreePermutation, KnownBase, LocalExchange, Nearest, Sklearn, lc2st
from assay._support.random import stream
from assay.classifiers.features import Conditional, Joint
from assay.nulls import FEWEST, MOST, Copies, GlobalNull, global_null

N, K, R, H = 60, 3, 5, 40
SMALL = assay.Ridge((Joint(24), Joint(24, 2.0, frame=Conditional(16))), penalties=(0.01, 0.1))
X_O = torch.tensor([2.0, 0.0])
NULLS = Exchange, FreePermutation, KnownBase


def copies_of(null, gaussian, seed=1):
    latent = null is KnownBase
    calibration = gaussian().latents(N) if latent else gaussian().calibration(N, k=K)
    return null(7).copies(calibration, seed)


def equal(first, second):
    return all(map(torch.equal, first, second))


class TestEveryNull:
    """What every null promises of its copies."""

    @pytest.fixture(params=NULLS)
    def null(self, request):
        return request.param

    @pytest.fixture
    def copies(self, gaussian, null):
        return copies_of(null, gaussian)

    def test_slices_and_rows_are_the_same_copies(self, copies):
        members, labels = whole = copies.batch(torch.arange(N), 0)
        assert (len(copies), len(copies[2:5]), copies.size) == (8, 3, labels.shape[2])
        for every, part in zip(whole, copies[2:5].batch(torch.arange(N), 0), strict=True):
            assert torch.equal(part, every if len(every) == 1 else every[2:5])
        for h in (0, 3):
            theta, x, truth = copies.rows(h)
            assert torch.equal(theta, members[h % len(members)].flatten(0, 1))
            assert torch.equal(truth, labels[h % len(labels)].flatten())
            assert (truth.sum(), len(truth)) == (N, N * (1 + copies.odds))
            assert torch.equal(x, copies.x.repeat_interleave(copies.size, 0))
            assert equal(copies[2:].rows(1), copies.rows(3))

    def test_copy_zero_is_the_data(self, gaussian, copies, null):
        theta, _, labels = copies.rows(0)
        if null is KnownBase:
            assert torch.equal(theta[labels], gaussian().latents(N).theta)
            return
        calibration = gaussian().calibration(N, k=K)
        assert torch.equal(theta[labels], calibration.theta)
        draws = theta[~labels].reshape(N, K, 2)
        assert torch.equal(draws.sort(1).values, calibration.theta_q.sort(1).values)

    def test_copies_inside_differ_from_the_data_there_only(self, copies):
        near = torch.arange(N) < 20
        sets = near.repeat_interleave(copies.size)
        data, inside, everywhere = copies.rows(0), copies.inside(near).rows(4), copies.rows(4)
        for part, one, other in zip(inside, data, everywhere, strict=True):
            assert torch.equal(part[~sets], one[~sets])
            assert torch.equal(part[sets], other[sets])
        assert not equal(inside, data)

    def test_a_subset_keeps_its_labels_and_draws(self, copies):
        rows, near = torch.tensor([5, 50, 2]), torch.arange(N) < 20
        some = copies.subset(rows)
        assert torch.equal(some.x, copies.x[rows])
        nearby = some.inside(near[rows]), copies.inside(near)
        for here, there in ((some, copies), (some[2:4], copies[2:4]), nearby):
            assert equal(here.batch(torch.arange(3), 1), there.batch(rows, 1))

    def test_the_same_seed_gives_the_same_copies(self, gaussian, null):
        first, again, other = (copies_of(null, gaussian, s).rows(2) for s in (0, 0, 1))
        assert equal(first, again)
        assert not equal(first, other)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KnownBase(0), "n: expected at least 1"),
        (lambda: LocalExchange(9, 0.1), "near: expected a neighbourhood such as .*; got float"),
        (lambda: type("Idle", (GlobalNull,), {})(9), "abstract"),
        (lambda: type("Half", (Copies,), {"__len__": len})(), "abstract"),
    ],
)
def test_what_is_no_null_and_no_copies(make, message):
    with pytest.raises((TypeError, ValueError), match=message):
        make()


def test_hypotheses():
    local = LocalExchange(9, Nearest(0.3))
    nearby = "throughout the nearest 30% of x around x_o"
    assert local.hypothesis == f"q(theta | x) = p(theta | x) {nearby}"
    everywhere = "q(theta | x) = p(theta | x) at almost every x, tested at x_o"
    assert {null(9).hypothesis for null in NULLS} == {everywhere}
    assert [null.where for null in (local, LocalExchange(9))] == [Nearest(0.3), Nearest()]


def test_the_usual_null(gaussian):
    latents = gaussian().latents(N)
    assert global_null(gaussian().calibration(N)) == Exchange(199)
    assert [global_null(latents), global_null(latents, Exchange(5))] == [KnownBase(), Exchange(5)]


class TestGroupShifts:
    """Sets in a group shift their labels together."""

    N = 700

    @pytest.fixture
    def copies(self, gaussian):
        return Exchange(H).copies(gaussian().calibration(self.N, k=R - 1), seed=1)

    @pytest.fixture
    def table(self):
        return torch.randn(self.N, R, 3, generator=stream(0, "table"), dtype=torch.double)

    def test_the_data_comes_first(self, copies):
        assert copies.labels.shape == (H + 1, self.N, R)
        assert torch.equal(copies.labels[0].byte().argmax(1), copies.truth)
        by = (copies.labels.byte().argmax(2) - copies.truth) % R
        assert torch.equal(by, copies.shifts[:, copies.group])

    @pytest.mark.parametrize(("n", "r", "g"), [(50, 17, 50), (9999, 17, FEWEST), (9999, 2, MOST)])
    def test_the_number_of_groups(self, gaussian, n, r, g):
        copies = Exchange(3).copies(gaussian().calibration(n, k=r - 1), 0)
        assert copies.shifts.shape == (4, g + 1)  # and one for sets that keep their labels
        assert copies.group.unique().numel() == g
        # As many sets in each as there can be.
        assert copies.group.bincount().max() - copies.group.bincount().min() <= 1

    @pytest.mark.parametrize("rows", [range(N), range(0, N, 7), range(10), range(0)])
    def test_sums_are_those_of_the_members_labelled_true(self, copies, table, rows):
        rows = torch.tensor(rows, dtype=torch.long)
        for some in (copies, copies[3:9], copies[1:9:2].inside(torch.arange(self.N) < 100)):
            part = some.subset(rows)
            expected = torch.einsum("hnr,nrp->hp", part.labels.double(), table[rows])
            torch.testing.assert_close(part.copy_sums(part.group_sums(table[rows])), expected)

    def test_equal_copies_have_equal_sums(self, copies, table):
        shifts = torch.cat([copies.shifts, copies.shifts[:1], copies.shifts[3:4]])
        same = replace(copies, shifts=shifts, which=range(H + 3))
        sums = same.copy_sums(same.group_sums(table))
        assert torch.equal(sums[[0, 3]], sums[-2:])

    @pytest.mark.parametrize("r", [2, 5])
    def test_level_with_few_groups(self, gaussian, r):
        """P-values of a heavy-tailed sum over 600 sets in groups, 2000 repetitions."""
        rejections, calibration = 0, gaussian().calibration(600, k=r - 1)
        for seed in range(2000):
            values = np.random.default_rng(seed).standard_t(2, (600, r))
            table = torch.tensor(values - values.mean(1, keepdims=True))[..., None]
            copies = Exchange(19).copies(calibration, seed)
            sums = copies.copy_sums(copies.group_sums(table))[:, 0].abs()
            rejections += bool((1 + (sums[1:] >= sums[0]).sum()) / 20 <= 0.05)
        low, high = binom.interval(0.999, 2000, 0.05)
        assert low <= rejections <= high


class TestExchange:
    @pytest.fixture
    def copies(self, gaussian):
        return copies_of(Exchange, gaussian)

    def test_each_member_is_chosen_equally_often(self, gaussian):
        """Over seeds, at each x, and in pairs of copies."""
        calibration = gaussian().calibration(20, k=R - 1)
        copies = (Exchange(2).copies(calibration, s) for s in range(2000))
        chosen = torch.stack([c.labels.byte().argmax(2) - c.truth for c in copies])[:, 1:] % R
        for copy in (0, 1):  # chosen members, counted from the true parameter, (2000, 2, 20)
            counts = torch.stack([(chosen[:, copy] == j).sum(0) for j in range(R)])
            assert scipy.stats.chisquare(counts.numpy()).pvalue.min() > 1e-5
        assert abs((chosen[:, 0] == chosen[:, 1]).float().mean() - 1 / R) < 0.01

    def test_it_keeps_sets_together_and_a_free_permutation_does_not(self, gaussian, copies):
        free = copies_of(FreePermutation, gaussian).labels
        assert [bool((labels.sum(1) == 1).all()) for labels in free] == [True] + [False] * 7
        assert (copies.labels.sum(2) == 1).all()

    def test_base_draws_in_latent_space(self, gaussian):
        calibration = gaussian(width=0.2).latents(2000)
        theta, _, labels = Exchange(9).copies(calibration, 0).rows(0)
        assert theta.shape == (2000 * 5, 2)
        torch.testing.assert_close(theta[labels], calibration.theta)
        assert scipy.stats.kstest(theta[~labels].flatten().numpy(), "norm").pvalue > 1e-3

    def test_the_true_parameter_has_no_place_of_its_own(self, copies):
        places = copies.labels[0].sum(0)
        assert places.sum() == N
        assert (places > 3).all()

    def test_scaling_ignores_labels(self, copies):
        torch.testing.assert_close(copies.scaling[0], copies.members.flatten(0, 1).mean(0))
        assert equal(copies.scaling, copies[3:4].scaling)

    def test_scaling_far_from_zero_and_of_a_constant_parameter(self, copies):
        far = replace(copies, members=copies.members + 1e6)
        location, scale = (part.double() for part in far.scaling)
        expected, unit = (part.double() for part in copies.scaling)
        torch.testing.assert_close(location - 1e6, expected, atol=0.07, rtol=0)
        torch.testing.assert_close(scale, unit, atol=0, rtol=1e-2)
        constant = replace(copies, members=torch.full_like(copies.members, 0.1))
        assert torch.equal(constant.scaling[1], torch.ones(2))

    def test_two_samples(self, copies):
        """No x at all, and several true parameters: the same sets with the classes exchanged."""
        other = replace(copies, truths=K, x=torch.empty(N, 0))
        assert (copies.odds, other.odds) == (K, 1 / K)
        assert torch.equal(other.labels, ~copies.labels)
        for classifier in (MLP((8,), epochs=1), assay.Ridge(), SMALL):
            scores = classifier.fit(other, 0)(other.members[:1], other.x[:1])
            assert scores.shape == (1, 8, K + 1)


class TestKnownBase:
    def test_it_draws_the_base(self, gaussian):
        copies = KnownBase(200).copies(gaussian(width=2.0).latents(100), seed=0)
        data, nulls = (part.flatten().numpy() for part in copies.class1.split([1, 200]))
        assert scipy.stats.kstest(nulls, "norm").pvalue > 1e-3
        assert scipy.stats.kstest(data, "norm").pvalue < 1e-3

    def test_class_0_is_fresh_in_every_epoch_and_shared_by_copies(self, gaussian):
        copies, rows = copies_of(KnownBase, gaussian), torch.arange(N)
        first, again, second = (copies.batch(rows, e)[0][:, :, 0] for e in (0, 0, 1))
        assert torch.equal(first, again)
        assert not torch.equal(first, second)
        assert torch.equal(first[0], first[5])

    def test_scaling_of_another_base(self, gaussian):
        normal = torch.distributions.Normal(torch.ones(2) * 5, 3.0)
        latents, base = gaussian().latents(N), torch.distributions.Independent(normal, 1)
        other = assay.Calibration.from_base(latents.theta, latents.x, base)
        for part, expected in zip(KnownBase(1).copies(other, 0).scaling, (5.0, 3.0), strict=True):
            torch.testing.assert_close(part, torch.full((2,), expected), atol=0.1, rtol=0)

    def test_null_copies_do_not_depend_on_q(self, gaussian):
        """The same x, base and seed: the same null copies for every flow."""
        first, second = (KnownBase(3).copies(gaussian(width=w).latents(N), 0) for w in (1, 2))
        assert torch.equal(first.class1[1:], second.class1[1:])
        assert not torch.equal(first.class1[0], second.class1[0])
        other = KnownBase(3).copies(gaussian().latents(N, seed=1), 0)
        assert not torch.equal(first.class1[1:], other.class1[1:])
        with pytest.raises(ValueError, match="null: expected a calibration in latent space"):
            KnownBase(9).copies(gaussian().calibration(N), 0)


def half(gaussian, n, k=2, shift=0.0, seed=0):
    """Pairs whose q is right for x_1 > 0 and shifted elsewhere."""
    calibration = gaussian().calibration(n, k, seed)
    bad = (calibration.x[:, :1] < 0).to(calibration.theta)
    theta_q = calibration.theta_q + shift * bad[:, None]
    return assay.Calibration(calibration.theta, calibration.x, theta_q)


class TestLocalExchange:
    """The null that makes a local claim true: exact near x_o, whatever happens elsewhere."""

    def test_closed_form_refit_is_a_fit_of_everything(self, gaussian):
        calibration = half(gaussian, 300, 3, 0.5).sorted()
        near = Nearest(0.2).inside(calibration.features, X_O[None])[0]
        copies = Exchange(9).copies(calibration, 0)
        whole = SMALL.fit(copies.inside(near), 0)
        quick = SMALL.refit(SMALL.fit(copies[:1], 0), copies.inside(near), near, 0)
        there = gaussian().draws(X_O, 60).theta[None]
        views = (scores.views(there, X_O[None]) for scores in (whole, quick, quick.without))
        for one, two, without in zip(*views, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)
            # Elsewhere, all copies are the data.
            torch.testing.assert_close(without, without[:, :1].expand_as(without))
            assert (without - two).abs().max() > 0.01

    @pytest.mark.parametrize("classifier", [MLP((8,), epochs=2), Sklearn(LogisticRegression())])
    def test_any_classifier(self, gaussian, classifier):
        test = lc2st(half(gaussian, 200), classifier, LocalExchange(3, Nearest(0.2)))
        result = test(assay.Draws(torch.stack([X_O, -X_O]), torch.zeros(2, 30, 2)))
        assert "nearest 20%" in result.hypothesis
        assert "Holm" in result.adjustment.words
        single = test(assay.Draws(X_O, torch.zeros(30, 2)))
        np.testing.assert_allclose(single.null, result.null[0], rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("repetitions", [200, pytest.param(1000, marks=pytest.mark.slow)])
    def test_level_where_q_is_right_nearby_and_wrong_elsewhere(self, gaussian, repetitions):
        """A large error on the other half; 99.9 % binomial intervals; the global null leaks."""
        local, leaks = [], []
        for i in range(repetitions):
            calibration = half(gaussian, 120, 1, 2.0, i)
            there = gaussian().draws(torch.tensor([2.5, 0.0]), 60, i)
            test = partial(lc2st, calibration, SMALL, seed=i)
            local.append(test(LocalExchange(19, Nearest(0.1)))(there).pvalue)
            if i < 50:
                leaks.append(test(Exchange(19))(there).pvalue)
        for alpha in (0.05, 0.25, 0.5):
            low, high = binom.interval(0.999, repetitions, alpha)
            assert low <= (np.array(local) <= alpha).sum() <= high
        assert np.mean(np.array(leaks) <= 0.05) > 0.2

    def test_power_where_q_is_wrong(self, gaussian):
        calibration = half(gaussian, 1500, 2, 1.0)
        test = lc2st(calibration, SMALL, LocalExchange(99, Nearest(0.1)))
        assert test(gaussian().draws(-X_O, 60)).pvalue == 0.01

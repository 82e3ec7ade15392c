from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.stats
import torch
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression

import assay
from assay import (
    MLP,
    Exchange,
    FreePermutation,
    KnownBase,
    LocalExchange,
    Nearest,
    Ridge,
    Sklearn,
    lc2st,
)
from assay._support.random import stream
from assay.classifiers.base import Scaling
from assay.classifiers.features import Conditional, Joint
from assay.nulls import (
    FEWEST,
    MOST,
    Copies,
    GlobalNull,
    GroupShifts,
    LabelTable,
    Null,
    global_null,
)

N, K, R, H = 60, 3, 5, 40
NULLS = {"exchange": Exchange, "free": FreePermutation, "base": KnownBase}
SMALL = Ridge((Joint(24), Joint(24, 2.0, frame=Conditional(16))), penalties=(0.01, 0.1))
X_O = torch.tensor([2.0, 0.0])
each_null = pytest.mark.parametrize("null", NULLS.values(), ids=NULLS.keys())


def copies_of(null, gaussian, n=7, seed=1):
    latent = null is KnownBase
    calibration = gaussian().latents(N) if latent else gaussian().calibration(N, k=K)
    return null(n).copies(calibration, seed)


@pytest.fixture
def copies(gaussian):
    return copies_of(Exchange, gaussian)


@each_null
class TestEveryNull:
    """What every null promises of its copies."""

    @pytest.mark.parametrize(("n", "error"), [(0, ValueError), (-3, ValueError), (2.5, TypeError)])
    def test_the_number_of_copies(self, null, n, error):
        with pytest.raises(error, match="n: expected"):
            null(n)

    def test_hypothesis(self, null):
        assert null(9).where is None
        assert null(9).scope == "at almost every x"
        expected = "q(theta | x) = p(theta | x) at almost every x, tested at x_o"
        assert null(9).hypothesis == expected

    def test_slices_are_the_same_copies(self, gaussian, null):
        copies = copies_of(null, gaussian)
        whole, some = (c.batch(torch.arange(N), 0) for c in (copies, copies[2:5]))
        assert (len(copies), len(copies[2:5]), copies.size) == (8, 3, whole[1].shape[2])
        for every, part in zip(whole, some, strict=True):
            assert torch.equal(part, every if len(every) == 1 else every[2:5])

    def test_rows_agree_with_batches(self, gaussian, null):
        copies = copies_of(null, gaussian)
        members, labels = copies.batch(torch.arange(N), 0)
        for h in (0, 3):
            theta, x, truth = copies.rows(h)
            assert torch.equal(theta, members[h % len(members)].flatten(0, 1))
            assert torch.equal(truth, labels[h % len(labels)].flatten())
            assert torch.equal(
                x.view(N, copies.size, -1), copies.x[:, None].expand(-1, copies.size, -1)
            )
            assert all(map(torch.equal, copies[2:].rows(1), copies.rows(3)))

    def test_every_copy_has_as_many_true_parameters_as_the_data(self, gaussian, null):
        copies = copies_of(null, gaussian)
        assert [int(copies.rows(h)[2].sum()) for h in range(8)] == [N] * 8
        assert len(copies.rows(0)[2]) == N * (1 + copies.odds)

    def test_copy_zero_is_the_data(self, gaussian, null):
        theta, _, labels = copies_of(null, gaussian).rows(0)
        if null is KnownBase:
            assert torch.equal(theta[labels], gaussian().latents(N).theta)
            return
        calibration = gaussian().calibration(N, k=K)
        assert torch.equal(theta[labels], calibration.theta)
        draws = theta[~labels].reshape(N, K, 2)
        assert torch.equal(draws.sort(1).values, calibration.theta_q.sort(1).values)

    def test_copies_inside_differ_from_the_data_there_only(self, gaussian, null):
        copies, near = copies_of(null, gaussian), torch.arange(N) < 20
        sets = near.repeat_interleave(copies.size)
        data, inside, everywhere = copies.rows(0), copies.inside(near).rows(4), copies.rows(4)
        for part, one, other in zip(inside, data, everywhere, strict=True):
            assert torch.equal(part[~sets], one[~sets])
            assert torch.equal(part[sets], other[sets])
        assert not all(map(torch.equal, inside, data))

    def test_a_subset_keeps_its_labels_and_draws(self, gaussian, null):
        copies, rows = copies_of(null, gaussian), torch.tensor([5, 50, 2])
        near = torch.arange(N) < 20
        some = copies.subset(rows)
        assert torch.equal(some.x, copies.x[rows])
        for here, there in (
            (some, copies),
            (some[2:4], copies[2:4]),
            (some.inside(near[rows]), copies.inside(near)),
        ):
            found, expected = here.batch(torch.arange(3), 1), there.batch(rows, 1)
            assert all(map(torch.equal, found, expected))

    def test_the_same_seed_gives_the_same_copies(self, gaussian, null):
        first, again, other = (copies_of(null, gaussian, 3, s).rows(2) for s in (0, 0, 1))
        assert all(map(torch.equal, first, again))
        assert not all(map(torch.equal, first, other))


def test_what_is_no_null_and_no_copies():
    with pytest.raises(TypeError, match="abstract"):
        type("Idle", (GlobalNull,), {})(9)
    with pytest.raises(TypeError, match="abstract"):
        type("Half", (Copies,), {"__len__": lambda self: 1})()
    assert not isinstance(LocalExchange(9), GlobalNull)
    assert isinstance(LocalExchange(9), Null)


def test_the_usual_null(gaussian):
    parameters, latents = gaussian().calibration(N), gaussian().latents(N)
    assert global_null(parameters) == Exchange(199)
    assert global_null(latents) == KnownBase(199)
    assert global_null(latents, Exchange(5)) == Exchange(5)


class TestGroupShifts:
    """Sets in a group shift their labels together."""

    N = 700

    @pytest.fixture
    def shifts(self):
        truth = torch.randint(R, (self.N,), generator=stream(0, "truth"))
        return GroupShifts.random(truth, R, H, seed=1)

    def test_the_data_comes_first(self, shifts):
        labels = shifts(range(H + 1))
        assert labels.shape == (H + 1, self.N, R)
        assert torch.equal(labels[0].byte().argmax(1), shifts.truth)
        assert (labels.sum(2) == 1).all()

    def test_every_member_is_labelled_true_equally_often(self):
        """Over seeds, at each x, and in pairs of copies."""
        truth = torch.zeros(20).long()
        copies = [GroupShifts.random(truth, R, 2, s)(range(1, 3)) for s in range(2000)]
        chosen = torch.stack(copies).byte().argmax(3)
        for copy in (0, 1):
            counts = torch.stack([(chosen[:, copy] == j).sum(0) for j in range(R)])
            assert scipy.stats.chisquare(counts.numpy()).pvalue.min() > 1e-5
        assert abs((chosen[:, 0] == chosen[:, 1]).float().mean() - 1 / R) < 0.01

    @pytest.mark.parametrize(
        ("n", "r", "g"), [(50, 17, 50), (10_000, 17, FEWEST), (10_000, 2, MOST)]
    )
    def test_the_number_of_groups(self, n, r, g):
        shifts = GroupShifts.random(torch.zeros(n).long(), r, 3, 0)
        assert shifts.shifts.shape == (4, g)
        assert shifts.group.unique().numel() == g
        # As many sets in each as there can be.
        assert shifts.group.bincount().max() - shifts.group.bincount().min() <= 1

    def test_sets_of_a_group_shift_together(self, shifts):
        by = (shifts(range(H + 1)).byte().argmax(2) - shifts.truth) % R
        assert torch.equal(by, shifts.shifts[:, shifts.group])

    @pytest.mark.parametrize("rows", [range(N), range(0, N, 7), range(10), range(0)])
    def test_sums_are_those_of_the_members_labelled_true(self, shifts, rows):
        rows = torch.tensor(rows, dtype=torch.long)
        table = torch.randn(self.N, R, 3, generator=stream(0, "table"), dtype=torch.double)[rows]
        some = shifts.subset(rows)
        for which in (range(H + 1), range(3, 9)):
            expected = torch.einsum("hnr,nrp->hp", some(which).double(), table)
            found = some.copy_sums(some.group_sums(table), which)
            torch.testing.assert_close(found, expected)

    def test_equal_copies_have_equal_sums(self, shifts):
        by = shifts.shifts
        same = replace(shifts, shifts=torch.cat([by, by[:1], by[3:4]]))
        table = torch.randn(self.N, R, 4, generator=stream(0, "table"))
        sums = same.copy_sums(same.group_sums(table), range(H + 3))
        assert torch.equal(sums[0], sums[-2])
        assert torch.equal(sums[3], sums[-1])

    @pytest.mark.parametrize("written_out", [False, True])
    def test_subsets_and_copies_inside(self, shifts, written_out):
        labels = LabelTable(shifts(range(H + 1))) if written_out else shifts
        rows, near = torch.tensor([5, 400, 3]), torch.arange(self.N) < 100
        which = range(1, 9, 2)
        assert torch.equal(labels.subset(rows)(which), labels(which)[:, rows])
        inside = labels.inside(near)(which)
        assert torch.equal(inside[:, near], labels(which)[:, near])
        assert (inside[:, ~near] == labels(range(1))[:, ~near]).all()

    def test_threads_change_nothing(self, shifts):
        table = torch.randn(self.N, R, 64, generator=stream(0, "table"))
        before, found = torch.get_num_threads(), []
        try:
            for threads in (1, 2, 4):
                torch.set_num_threads(threads)
                found.append(shifts.copy_sums(shifts.group_sums(table), range(H + 1)))
        finally:
            torch.set_num_threads(before)
        assert all(torch.equal(found[0], other) for other in found[1:])

    @pytest.mark.parametrize("r", [2, 5])
    def test_level_with_few_groups(self, r):
        """P-values of a heavy-tailed sum over 600 sets in groups, 2000 repetitions."""
        rejections, n = 0, 600
        for seed in range(2000):
            values = np.random.default_rng(seed).standard_t(2, (n, r))
            table = torch.tensor(values - values.mean(1, keepdims=True))[..., None]
            truth = torch.randint(r, (n,), generator=stream(seed, "truth"))
            shifts = GroupShifts.random(truth, r, 19, seed)
            sums = shifts.copy_sums(shifts.group_sums(table), range(20))[:, 0].abs()
            rejections += bool((1 + (sums[1:] >= sums[0]).sum()) / 20 <= 0.05)
        low, high = binom.interval(0.999, 2000, 0.05)
        assert low <= rejections <= high


class TestExchange:
    def test_each_member_is_chosen_equally_often(self, gaussian):
        copies = Exchange(400).copies(gaussian().calibration(50, k=3), seed=0)
        counts = copies[1:].labels.sum((0, 1))
        assert counts.sum() == 400 * 50
        assert scipy.stats.chisquare(counts.numpy()).pvalue > 1e-3

    def test_it_keeps_sets_together_and_a_free_permutation_does_not(self, gaussian):
        calibration = gaussian().calibration(50, k=2)
        assert (Exchange(9).copies(calibration, 0).labels.sum(2) == 1).all()
        free = FreePermutation(9).copies(calibration, 0).labels
        assert (free[0].sum(1) == 1).all()
        assert (free[1:].sum(2) != 1).any()

    def test_base_draws_in_latent_space(self, gaussian):
        calibration = gaussian(width=0.2).latents(2000)
        copies = Exchange(9).copies(calibration, 0)
        members, labels = copies.members, copies.labels
        assert members.shape == (2000, 5, 2)
        assert copies.base == calibration.base
        torch.testing.assert_close(members[labels[0]], calibration.theta)
        base = members[~labels[0]].flatten().numpy()
        assert scipy.stats.kstest(base, "norm").pvalue > 1e-3

    def test_the_true_parameter_has_no_place_of_its_own(self, copies):
        places = copies.labels[0].sum(0)
        assert places.sum() == N
        assert (places > 3).all()

    def test_scaling_ignores_labels(self, copies):
        location, scale = copies.scaling
        torch.testing.assert_close(location, copies.members.flatten(0, 1).mean(0))
        assert torch.equal(scale, copies[3:4].scaling[1])

    def test_scaling_far_from_zero(self, copies):
        far = replace(copies, members=copies.members + 1e6)
        location, scale = (part.double() for part in far.scaling)
        expected, unit = (part.double() for part in copies.scaling)
        torch.testing.assert_close(location - 1e6, expected, atol=0.07, rtol=0)
        torch.testing.assert_close(scale, unit, atol=0, rtol=1e-2)

    def test_scaling_of_a_constant_parameter_is_one(self, copies):
        constant = replace(copies, members=torch.full_like(copies.members, 0.1))
        assert torch.equal(constant.scaling[1], torch.ones(2))

    def test_sets_of_several_true_parameters(self, copies):
        """The same sets with the classes exchanged."""
        other = replace(copies, truths=K)
        assert (copies.odds, other.odds) == (K, 1 / K)
        assert copies.size == other.size == K + 1
        assert torch.equal(other.labels, ~copies.labels)

    def test_without_observations(self, copies):
        """No x at all, as in a test of two samples."""
        copies = replace(copies, x=torch.empty(N, 0))
        assert Scaling.fit(copies).width == 2
        for classifier in (MLP((8,), epochs=1), Ridge(), SMALL):
            scores = classifier.fit(copies, 0)(copies.members[:1], copies.x[:1])
            assert scores.shape == (1, 8, K + 1)


class TestKnownBase:
    def test_it_draws_the_base(self, gaussian):
        copies = KnownBase(200).copies(gaussian(width=2.0).latents(100), seed=0)
        z = copies.class1[1:].flatten().numpy()
        assert scipy.stats.kstest(z, "norm").pvalue > 1e-3
        assert scipy.stats.kstest(copies.class1[0].flatten().numpy(), "norm").pvalue < 1e-3

    def test_it_refuses_parameters(self, gaussian):
        with pytest.raises(ValueError, match="null: expected a calibration in latent space"):
            KnownBase(9).copies(gaussian().calibration(50), 0)

    def test_class_0_is_fresh_in_every_epoch_and_shared_by_copies(self, gaussian):
        copies, rows = copies_of(KnownBase, gaussian), torch.arange(N)
        first, again, second = (copies.batch(rows, e)[0][:, :, 0] for e in (0, 0, 1))
        assert torch.equal(first, again)
        assert not torch.equal(first, second)
        assert torch.equal(first[0], first[5])

    def test_scaling_of_another_base(self, gaussian):
        normal = torch.distributions.Normal(torch.ones(2) * 5, 3.0)
        latents = gaussian().latents(N)
        base = torch.distributions.Independent(normal, 1)
        other = assay.Calibration.from_base(latents.theta, latents.x, base)
        location, scale = KnownBase(1).copies(other, 0).scaling
        torch.testing.assert_close(location, torch.full((2,), 5.0), atol=0.1, rtol=0)
        torch.testing.assert_close(scale, torch.full((2,), 3.0), atol=0.1, rtol=0)

    def test_null_copies_do_not_depend_on_q(self, gaussian):
        """The same x, base and seed: the same null copies for every flow."""
        first, second = (KnownBase(3).copies(gaussian(width=w).latents(N), 0) for w in (1, 2))
        assert torch.equal(first.class1[1:], second.class1[1:])
        assert not torch.equal(first.class1[0], second.class1[0])
        other = KnownBase(3).copies(gaussian().latents(N, seed=1), 0)
        assert not torch.equal(first.class1[1:], other.class1[1:])


def half(gaussian, n, k=2, shift=0.0, seed=0):
    """Pairs whose q is right for x_1 > 0 and shifted elsewhere."""
    calibration = gaussian().calibration(n, k, seed)
    bad = (calibration.x[:, :1] < 0).to(calibration.theta)
    theta_q = calibration.theta_q + shift * bad[:, None]
    return assay.Calibration(calibration.theta, calibration.x, theta_q)


def draws(gaussian, x_o=X_O, seed=0):
    return gaussian().draws(x_o, 60, seed)


class TestLocalExchange:
    """The null that makes a local claim true: exact near x_o, whatever happens elsewhere."""

    def test_hypothesis(self):
        local = LocalExchange(9, Nearest(0.3))
        assert local.scope == "throughout the nearest 30% of x around x_o"
        assert local.hypothesis == f"q(theta | x) = p(theta | x) {local.scope}"
        assert local.where == Nearest(0.3)
        assert LocalExchange(9).where == Nearest()

    def test_closed_form_refit_is_a_fit_of_everything(self, gaussian):
        calibration = half(gaussian, 300, 3, 0.5).sorted()
        near = Nearest(0.2).inside(calibration.features, X_O[None])[0]
        copies = Exchange(9).copies(calibration, 0)
        whole = SMALL.fit(copies.inside(near), 0)
        quick = SMALL.refit(SMALL.fit(copies[:1], 0), copies.inside(near), near, 0)
        there = draws(gaussian).theta[None]
        views = (scores.views(there, X_O[None]) for scores in (whole, quick, quick.without))
        for one, two, without in zip(*views, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)
            # Elsewhere, all copies are the data.
            torch.testing.assert_close(without, without[:, :1].expand_as(without))
            assert (without - two).abs().max() > 0.01

    def test_share_of_all_points_is_the_global_null(self, gaussian):
        calibration = half(gaussian, 300, 2, 0.5)
        there = draws(gaussian)
        local = lc2st(calibration, SMALL, LocalExchange(19, Nearest(1.0)))(there)
        everywhere = lc2st(calibration, SMALL, Exchange(19))(there)
        np.testing.assert_allclose(local.statistic, everywhere.statistic, rtol=1e-2)
        np.testing.assert_allclose(local.null, everywhere.null, rtol=1e-2, atol=1e-2)

    @pytest.mark.parametrize(
        "classifier", [MLP(hidden=(8,), epochs=2), Sklearn(LogisticRegression())]
    )
    def test_any_classifier(self, gaussian, classifier):
        test = lc2st(half(gaussian, 200), classifier, LocalExchange(3, Nearest(0.2)))
        result = test(assay.Draws(torch.stack([X_O, -X_O]), torch.zeros(2, 30, 2)))
        assert result.pvalue.shape == (2,)
        assert "nearest 20%" in result.hypothesis
        assert "nearest 20%" in result.sentence
        assert "Holm" in result.adjustment.words
        single = test(assay.Draws(X_O, torch.zeros(30, 2)))
        np.testing.assert_allclose(single.null, result.null[0], rtol=1e-4, atol=1e-6)

    @pytest.mark.parametrize("repetitions", [200, pytest.param(1000, marks=pytest.mark.slow)])
    def test_level_where_q_is_right_nearby_and_wrong_elsewhere(self, gaussian, repetitions):
        """A large error on the other half; 99.9 % binomial intervals; the global null leaks."""
        local, leaks = [], []
        for i in range(repetitions):
            calibration = half(gaussian, 120, 1, 2.0, i)
            there = draws(gaussian, torch.tensor([2.5, 0.0]), i)
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
        assert test(draws(gaussian, -X_O)).pvalue == 0.01

    def test_too_few_nulls_for_many_observations(self, gaussian):
        places = assay.Draws(torch.randn(12, 2), torch.zeros(12, 30, 2))
        result = lc2st(half(gaussian, 100), SMALL, LocalExchange(19, Nearest(0.2)))(places)
        assert "cannot be below 0.600: take 239" in result.sentence

    def test_row_order_does_not_matter(self, gaussian):
        calibration = half(gaussian, 200, 2, 1.0)
        order = torch.randperm(200, generator=stream(0, "order"))
        test = partial(lc2st, classifier=SMALL, null=LocalExchange(9, Nearest(0.2)))
        one, two = (test(c)(draws(gaussian)) for c in (calibration, calibration.subset(order)))
        np.testing.assert_allclose(one.null, two.null, rtol=1e-3, atol=1e-4)

    def test_it_can_be_saved(self, gaussian, tmp_path):
        test = lc2st(half(gaussian, 100), SMALL, LocalExchange(5, Nearest(0.2)))
        assay.save(test, tmp_path / "t.npz")
        again, there = assay.load(tmp_path / "t.npz"), draws(gaussian)
        np.testing.assert_allclose(again(there).null, test(there).null, rtol=1e-5)

    @pytest.mark.parametrize(
        ("given", "error", "message"),
        [
            ((0,), ValueError, "n: expected at least 1"),
            ((9, 0.1), TypeError, "near: expected a neighbourhood such as"),
            ((9, Nearest), TypeError, "near: expected .*; got the class Nearest"),
        ],
    )
    def test_bad_arguments(self, given, error, message):
        with pytest.raises(error, match=message):
            LocalExchange(*given)

from dataclasses import replace

import pytest
import torch

from assay import MLP, Exchange, FreePermutation, KnownBase, Ridge
from assay.classifiers.features import Hermite
from assay.classifiers.frames import Conditional
from assay.classifiers.maps import Joint, Product
from assay.classifiers.scaling import Scaling
from assay.copies import BLOCK, Redrawn, Relabelled

N, K = 60, 3


@pytest.fixture
def cases(gaussian):
    parameters, latents = gaussian().calibration(N, k=K), gaussian().latents(N)
    return {
        "exchange": Exchange(7).copies(parameters, seed=1),
        "free": FreePermutation(7).copies(parameters, seed=1),
        "base": KnownBase(7).copies(latents, seed=1),
    }


NAMES = ["exchange", "free", "base"]


@pytest.mark.parametrize("name", NAMES)
def test_slices_are_the_same_copies(cases, name):
    copies = cases[name]
    rows = torch.arange(N)
    members, labels = copies.batch(rows, 0)
    some_members, some_labels = copies[2:5].batch(rows, 0)
    assert (len(copies), len(copies[2:5])) == (8, 3)

    def of(tensor, which):
        return tensor if len(tensor) == 1 else tensor[which]

    assert torch.equal(some_members, of(members, slice(2, 5)))
    assert torch.equal(some_labels, of(labels, slice(2, 5)))


@pytest.mark.parametrize("name", NAMES)
def test_rows_agree_with_batches(cases, name):
    copies = cases[name]
    members, labels = copies.batch(torch.arange(N), 0)
    for h in (0, 3):
        theta, x, truth = copies.rows(h)
        assert torch.equal(theta, members[h % len(members)].flatten(0, 1))
        assert torch.equal(truth, labels[h % len(labels)].flatten())
        assert torch.equal(x[:: members.shape[2]], copies.x)


@pytest.mark.parametrize("name", NAMES)
def test_every_copy_has_as_many_truths_as_the_data(cases, name):
    copies = cases[name]
    counts = [int(copies.rows(h).labels.sum()) for h in range(len(copies))]
    assert counts == [N] * 8
    assert len(copies.rows(0).labels) == N * (1 + copies.odds)


def test_copy_zero_is_the_data(cases, gaussian):
    calibration = gaussian().calibration(N, k=K)
    theta, _, labels = cases["exchange"].rows(0)
    assert torch.equal(theta[labels], calibration.theta)
    draws = theta[~labels].reshape(N, K, 2)
    assert torch.equal(draws.sort(1).values, calibration.theta_q.sort(1).values)
    theta, _, labels = cases["base"].rows(0)
    assert torch.equal(theta[labels], gaussian().latents(N).theta)


def test_the_truth_has_no_place_of_its_own(cases):
    places = cases["exchange"].labels[0].sum(0)
    assert places.sum() == N
    assert (places > 3).all()


def test_class_0_of_a_known_base_is_fresh_in_every_epoch_and_shared_by_copies(cases):
    copies = cases["base"]
    rows = torch.arange(N)
    first, again, second = (copies.batch(rows, e)[0][:, :, 0] for e in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
    assert torch.equal(first[0], first[5])


def test_scaling_ignores_roles(cases):
    copies = cases["exchange"]
    assert isinstance(copies, Relabelled)
    location, scale = copies.scaling
    torch.testing.assert_close(location, copies.members.flatten(0, 1).mean(0))
    assert torch.equal(scale, copies[3:4].scaling[1])


def test_scaling_of_a_constant_parameter_is_one(gaussian):
    calibration = gaussian().calibration(N)
    copies = Relabelled(torch.full((N, 2, 2), 0.1), calibration.x, lambda h, j: None, range(1))
    assert torch.equal(copies.scaling[1], torch.ones(2))


def test_scaling_of_another_base(gaussian):
    base = torch.distributions.Independent(torch.distributions.Normal(torch.ones(2) * 5, 3.0), 1)
    from assay.bases import as_base

    latents = gaussian().latents(N)
    copies = Redrawn(latents.theta, latents.features, as_base(base, 2), 0, range(2))
    torch.testing.assert_close(copies.scaling[0], torch.full((2,), 5.0), atol=0.1, rtol=0)
    torch.testing.assert_close(copies.scaling[1], torch.full((2,), 3.0), atol=0.1, rtol=0)


def test_sums_are_those_of_all_rows(gaussian):
    """Streamed over more than one block, against one table of everything."""
    n = BLOCK + 100
    copies = Exchange(2).copies(gaussian().calibration(n, k=2), seed=1)
    scaling = Scaling.fit(copies)
    features = [bank.fit(copies, scaling) for bank in (Joint(6), Product(Hermite(1), n=1))]
    for feature, sums in zip(features, copies.sums(features), strict=True):
        table = feature(copies.members, copies.x).double()
        expected = torch.cov(table.flatten(0, 1).T, correction=0)
        torch.testing.assert_close(sums.covariance, expected, atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(sums.mean, table.mean((0, 1)), atol=1e-5, rtol=0)
        centred = table - table.mean(1, keepdim=True)
        contrasts = 1.5 * torch.einsum("cnr,nrp->cp", copies.labels.double(), centred) / n
        torch.testing.assert_close(sums.contrasts, contrasts, atol=1e-5, rtol=1e-3)
        assert sums.rows == 3 * n


def test_blocks_of_labels_are_drawn_independently(gaussian):
    copies = Exchange(1).copies(gaussian().calibration(2 * BLOCK), seed=1)
    first, second = copies.relabel(1, 0), copies.relabel(1, 1)
    assert first.shape == second.shape == (BLOCK, 2)
    assert 0.45 < (first == second).float().mean() < 0.55


def turned(copies):
    """The same sets with the classes exchanged: all but one of a set play the truth."""
    return replace(copies, relabel=lambda h, j: ~copies.relabel(h, j), truths=copies.odds)


def test_a_subset_keeps_its_labels(cases):
    copies = cases["exchange"]
    rows = torch.tensor([5, 50, 2])
    some = copies.subset(rows)
    assert torch.equal(some.members, copies.members[rows])
    assert torch.equal(some.x, copies.x[rows])
    assert torch.equal(some.labels, copies.labels[:, rows])
    assert torch.equal(some[2:4].labels, copies.labels[2:4, rows])
    assert torch.equal(copies[2:4].subset(rows).labels, copies.labels[2:4, rows])


def test_a_subset_of_several_blocks(gaussian):
    copies = Exchange(1).copies(gaussian().calibration(2 * BLOCK), seed=1)
    rows = torch.arange(0, 2 * BLOCK - 5).flip(0)
    assert torch.equal(copies.subset(rows).labels, copies.labels[:, rows])


def test_sets_of_several_truths(cases):
    copies = cases["exchange"]
    other = turned(copies)
    assert (copies.odds, other.odds) == (K, 1 / K)
    assert copies.size == other.size == K + 1
    assert torch.equal(other.labels, ~copies.labels)
    feature = Joint(6).fit(copies, Scaling.fit(copies))
    for sums, opposite in zip(copies.sums([feature]), other.sums([feature]), strict=True):
        torch.testing.assert_close(opposite.contrasts, -sums.contrasts)
        torch.testing.assert_close(opposite.covariance, sums.covariance)


@pytest.mark.parametrize("name", NAMES)
def test_sizes_of_sets(cases, name):
    copies = cases[name]
    assert copies.size == copies.batch(torch.arange(2), 0)[1].shape[2]


def test_without_observations(gaussian):
    """No x at all, as in a test of two samples."""
    copies = Exchange(2).copies(gaussian().calibration(N, k=K), seed=1)
    copies = replace(copies, x=torch.empty(N, 0))
    scaling = Scaling.fit(copies)
    assert scaling.width == 2
    banks = Joint(6), Product(Hermite(1), n=1), Joint(6, frame=Conditional())
    for bank in banks:
        assert bank.fit(copies, scaling)(copies.members, copies.x).isfinite().all()
    for classifier in (MLP((8,), epochs=1), Ridge()):
        scores = classifier.fit(copies, 0)(copies.members[:1], copies.x[:1])
        assert scores.shape == (1, 3, K + 1)

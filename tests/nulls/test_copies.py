"""What every null promises of its copies."""

import pytest
import torch

from assay import Exchange, FreePermutation, KnownBase
from assay.nulls.copies import Copies, Rows

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


@pytest.mark.parametrize("name", NAMES)
def test_sizes_of_sets(cases, name):
    copies = cases[name]
    assert copies.size == copies.batch(torch.arange(2), 0)[1].shape[2]


@pytest.mark.parametrize("name", NAMES)
def test_copies_inside_differ_from_the_data_there_only(cases, name):
    copies, near = cases[name], torch.arange(N) < 20
    local = copies.inside(near)
    sets = near.repeat_interleave(copies.size)
    data, inside, everywhere = copies.rows(0), local.rows(4), copies.rows(4)
    for part, one, other in zip(inside, data, everywhere, strict=True):
        assert torch.equal(part[~sets], one[~sets])
        assert torch.equal(part[sets], other[sets])
    assert not all(torch.equal(*pair) for pair in zip(inside, data, strict=True))


def test_rows_of_sets():
    members = torch.arange(12.0).reshape(2, 3, 2)
    x = torch.tensor([[7.0], [8.0]])
    labels = torch.tensor([[True, False, False], [False, False, True]])
    theta, features, truth = Rows.of(members, x, labels)
    assert torch.equal(theta, torch.arange(12.0).reshape(6, 2))
    assert features[:, 0].tolist() == [7, 7, 7, 8, 8, 8]
    assert truth.nonzero().flatten().tolist() == [0, 5]


def test_copies_of_ones_own_must_be_whole():
    with pytest.raises(TypeError, match="abstract"):
        type("Half", (Copies,), {"__len__": lambda self: 1})()

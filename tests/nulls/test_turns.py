"""Turns of groups: who plays the truth, and sums over them."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

from assay._support.random import stream
from assay.nulls.turns import FEWEST, MOST, Permuted, Turns, turned_by

N, R, H = 700, 5, 40


@pytest.fixture
def turns():
    truth = torch.randint(R, (N,), generator=stream(0, "truth"))
    return Turns.of(truth, R, H, seed=1)


def test_the_data_comes_first(turns):
    assert torch.equal(turns.played(range(1))[0], turns.truth)
    assert turns.copies(range(3)).shape == (3, N, R)
    assert (turns.copies(range(H + 1)).sum(2) == 1).all()


def test_every_member_plays_the_truth_equally_often():
    """Over seeds, at each x, and in pairs of copies."""
    truth = torch.zeros(20).long()
    played = torch.stack([Turns.of(truth, R, 2, s).played(range(3)) for s in range(2000)])
    for copy in (1, 2):
        counts = torch.stack([(played[:, copy] == j).sum(0) for j in range(R)])
        assert scipy.stats.chisquare(counts.numpy()).pvalue.min() > 1e-5
    assert abs((played[:, 1] == played[:, 2]).float().mean() - 1 / R) < 0.01


@pytest.mark.parametrize(("n", "r", "g"), [(50, 17, 50), (10_000, 17, FEWEST), (10_000, 2, MOST)])
def test_the_number_of_groups(n, r, g):
    made = Turns.of(torch.zeros(n).long(), r, 3, 0)
    assert made.by.shape == (4, g)
    assert made.group.unique().numel() == g
    # As many sets in each as there can be.
    assert made.group.bincount().max() - made.group.bincount().min() <= 1


def test_sets_of_a_group_turn_together(turns):
    by = (turns.played(range(H + 1)) - turns.truth) % R
    for group in range(0, turns.by.shape[1], 50):
        same = by[:, turns.group == group]
        assert (same == same[:, :1]).all()


def test_sums_are_those_of_whoever_plays_the_truth(turns):
    table = torch.randn(N, R, 3, generator=stream(0, "table"), dtype=torch.double)
    parts = [torch.arange(N), torch.arange(0, N, 7), torch.arange(10), torch.arange(0)]
    weights = [torch.rand(len(part), generator=stream(1, "w")).double() for part in parts]
    labels = turns.copies(range(H + 1)).double()
    plain, weighed = turns.bags(parts), turns.bags(parts, weights)
    for i, (part, weight) in enumerate(zip(parts, weights, strict=True)):
        expected = torch.einsum("hnr,nrp->hp", labels[:, part], table[part])
        torch.testing.assert_close(turned_by(turns.by, plain.turned(table)[i]), expected)
        expected = torch.einsum("hnr,nrp,n->hp", labels[:, part], table[part], weight)
        torch.testing.assert_close(turned_by(turns.by, weighed.turned(table)[i]), expected)
    sums = turns.sums(table[..., 0], parts)
    expected = torch.einsum("hnr,nr->h", labels[:, parts[1]], table[parts[1], :, 0])
    torch.testing.assert_close(sums[1], expected)


def test_equal_copies_have_equal_sums(turns):
    same = replace(turns, by=torch.cat([turns.by, turns.by[:1], turns.by[3:4]]))
    table = torch.randn(N, R, 4, generator=stream(0, "table"))
    sums = turned_by(same.by, same.bags([torch.arange(N)]).turned(table)[0])
    assert torch.equal(sums[0], sums[-2])
    assert torch.equal(sums[3], sums[-1])


@pytest.mark.parametrize("kind", ["turns", "permuted"])
def test_subsets_and_copies_inside(turns, kind):
    labels = turns if kind == "turns" else Permuted(turns(0), 3)
    rows, near = torch.tensor([5, 400, 3]), torch.arange(N) < 100
    assert torch.equal(labels.subset(rows)(4), labels(4)[rows])
    inside = labels.inside(near)
    assert torch.equal(inside(4)[near], labels(4)[near])
    assert torch.equal(inside(4)[~near], labels(0)[~near])
    some = labels.subset(torch.arange(50, 150)).inside(torch.arange(100) < 20)
    assert torch.equal(some(2)[:20], labels(2)[50:70])
    assert torch.equal(some(2)[20:], labels(0)[70:150])
    assert torch.equal(labels.copies(range(2, 4))[1], labels(3))


def test_threads_change_nothing(turns):
    table = torch.randn(N, R, 64, generator=stream(0, "table"))
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 4):
            torch.set_num_threads(threads)
            found.append(turned_by(turns.by, turns.bags([torch.arange(N)]).turned(table)[0]))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(found[0], other) for other in found[1:])


@pytest.mark.parametrize("r", [2, 5])
def test_level_with_few_groups(r):
    """P-values of a heavy-tailed sum over 600 exchangeable sets in groups, 2000 repetitions."""
    rejections, n = 0, 600
    for seed in range(2000):
        values = np.random.default_rng(seed).standard_t(2, (n, r))
        table = torch.tensor(values - values.mean(1, keepdims=True))[..., None]
        truth = torch.randint(r, (n,), generator=stream(seed, "truth"))
        made = Turns.of(truth, r, 19, seed)
        sums = turned_by(made.by, made.bags([torch.arange(n)]).turned(table)[0])[:, 0].abs()
        rejections += bool((1 + (sums[1:] >= sums[0]).sum()) / 20 <= 0.05)
    low, high = scipy.stats.binom.interval(0.999, 2000, 0.05)
    assert low <= rejections <= high

"""Networks of many trials in one stack are scikit-learn's own, copy by copy."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.model_selection import train_test_split
from sklearn.utils import shuffle

from experiments import stacked
from experiments.networks import LEVELS, Batched, Network, Sklearn, two_layers
from experiments.stacked import Fit, Places, Plan, Rows, Stacked, Torch


def samples(n=200, copies=3, p=3, dtype=torch.double):
    """Rows (h, 2 n, p) in any order, and their classes, which differ by a shift."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(copies, 2 * n, p, generator=generator, dtype=dtype)
    orders = [torch.randperm(2 * n, generator=generator) for _ in range(copies)]
    labels = torch.stack([(order < n).long() for order in orders])
    inputs[..., 0] += 0.7 * labels
    return inputs, labels


@pytest.mark.parametrize("state", [0, 3])
@pytest.mark.parametrize(
    "network",
    [Network((20, 20), epochs=12), Network((20, 20), patience=5)],
    ids=["epochs", "patience"],
)
def test_all_copies_are_scikit_learns_own(network, state):
    """The same weights, held-out rows, batches and stops, so that probabilities agree."""
    inputs, labels = samples()
    at = inputs[0, :50]
    trained = Stacked(network, state).train(Rows.of(inputs, labels))
    original = Sklearn(network, state).fit(inputs, labels)
    assert trained.epochs.tolist() == [one.args[0].n_iter_ for one in original]
    for found, right in zip(trained.fitted, original, strict=True):
        torch.testing.assert_close(found(at), right(at), rtol=1e-9, atol=1e-12)


def test_in_single_precision():
    inputs, labels = samples(dtype=torch.float)
    network = Network((20, 20), patience=8)
    trained = Stacked(network).train(Rows.of(inputs, labels))
    original = Sklearn(network).fit(inputs, labels)
    assert trained.epochs.tolist() == [one.args[0].n_iter_ for one in original]
    at = inputs[0, :50]
    for found, right in zip(trained.fitted, original, strict=True):
        torch.testing.assert_close(found(at), right(at), rtol=0, atol=1e-4)


@pytest.mark.parametrize("counts", [(60, 60), (75, 45)])
def test_held_out_rows_and_orders_are_those_of_scikit_learn(counts):
    plan = Plan(two_layers(2), 3, counts, 5)
    chance = np.random.RandomState(5)
    for a, b in plan.shapes:
        fan = (a, b) if a > 1 else (plan.shapes[plan.shapes.index((a, b)) - 1][0], b)
        chance.uniform(-((6 / sum(fan)) ** 0.5), (6 / sum(fan)) ** 0.5, (a, b))
    before = chance.get_state()
    generator = torch.Generator().manual_seed(0)
    labels = torch.stack(
        [(torch.randperm(120, generator=generator) >= counts[0]).int() for _ in range(4)]
    )
    codes = 2 * torch.arange(120, dtype=torch.int32) + labels
    for known, held, truth in zip(*plan.split(codes), labels, strict=True):
        chance.set_state(before)
        parts = train_test_split(
            np.arange(120), test_size=0.1, random_state=chance, stratify=truth.numpy()
        )
        np.testing.assert_array_equal(known >> 1, parts[0])
        np.testing.assert_array_equal(held >> 1, parts[1])
        assert torch.equal(known & 1, truth[known >> 1])
    order = np.arange(108)
    for found in plan.orders(0, 3):
        order = shuffle(order, random_state=chance)
        np.testing.assert_array_equal(found, order)
    assert torch.equal(plan.orders(1, 3), plan.orders(0, 4)[1:3])


def test_copies_do_not_see_each_other(monkeypatch):
    """Each stops by itself, and is left out then: alone or among others, weights are the same."""
    inputs, labels = samples(n=60, copies=7)
    monkeypatch.setattr(stacked, "FEW", 2)
    network = Network((20, 20), patience=4)
    among = Stacked(network).train(Rows.of(inputs, labels))
    assert len(set(among.epochs.tolist())) > 2
    for i in (0, 3, 6):
        alone = Stacked(network).train(Rows.of(inputs[i : i + 1], labels[i : i + 1]))
        torch.testing.assert_close(among.flat[i : i + 1], alone.flat, rtol=1e-9, atol=1e-12)
        assert alone.epochs.tolist() == [among.epochs[i].item()]


def test_copies_are_split_where_memory_ends():
    inputs, labels = samples(n=60, copies=5)
    network = Network((20, 20), epochs=3)
    whole, split = (
        Stacked(network, engine=Torch(most)).train(Rows.of(inputs, labels)) for most in (10**9, 1)
    )
    torch.testing.assert_close(whole.flat, split.flat, rtol=1e-12, atol=1e-14)


def test_rows_are_shared():
    """A copy is a list of numbers; those of the right come twice."""
    left = torch.arange(8.0)[:, None]
    right = torch.arange(10.0, 16.0).reshape(3, 2)
    codes = torch.tensor([[0, 3, 4, 7], [7, 4, 3, 0]], dtype=torch.int32)
    rows = Rows(left, right, torch.tensor([0, 4]), torch.tensor([0, 1]), codes, 2)
    found = rows.at(torch.arange(2), codes)
    assert found[0].tolist() == [[0, 10, 11], [1, 12, 13], [2, 10, 11], [3, 12, 13]]
    assert found[1].tolist() == [[7, 14, 15], [6, 12, 13], [5, 14, 15], [4, 12, 13]]


def test_tables_are_as_good_as_rows():
    generator = torch.Generator().manual_seed(0)
    z, x = (torch.randn(80, k, generator=generator) for k in (2, 3))
    left = torch.cat([torch.randn(80, 2, generator=generator), z])
    orders = torch.stack([torch.randperm(160, generator=generator) for _ in range(3)])
    labels = (orders >= 80).int()
    none = torch.zeros(3, dtype=torch.long)
    rows = Rows(left, x, none, none, 2 * orders.int() + labels, 80)
    dense = torch.cat([left, torch.cat([x, x])], 1)[orders]
    network = Network((20, 20), epochs=5)
    one, other = Stacked(network).train(rows), Stacked(network).train(Rows.of(dense, labels))
    torch.testing.assert_close(one.flat, other.flat)


def test_what_is_asked():
    """At observations, over the draws of a table each: the mean squared distance to one half."""
    inputs, labels = samples(n=60)
    trained = Stacked(Network((20, 20), epochs=5)).train(Rows.of(inputs, labels))
    generator = torch.Generator().manual_seed(1)
    draws = torch.randn(40, 2, generator=generator, dtype=torch.double)
    x = torch.randn(2, 1, generator=generator, dtype=torch.double)
    at = torch.tensor([[0, 10], [20, 0], [10, 10]])
    for engine in (Torch(), Torch(1)):
        found = engine.ask(trained, Places(draws, x, at, 20))
        for copy, one in enumerate(trained.fitted):
            for place in range(2):
                start = int(at[copy, place])
                some = draws[start : start + 20]
                d = one(torch.cat([some, x[place].expand(20, -1)], 1))
                torch.testing.assert_close(found[copy, place], (d - 0.5).square().mean())


def test_what_it_is_not_made_for():
    inputs, labels = samples(n=20)
    with pytest.raises(ValueError, match="two layers that stop early"):
        Stacked(LEVELS).fit(inputs, labels)
    labels[1, labels[1].argmax()] = 0
    with pytest.raises(ValueError, match=r"as many of a class in each copy; got \[19, 20\]"):
        Fit.of(two_layers(2), Rows.of(inputs, labels))


def test_what_is_not_there_is_not_read():
    inputs, labels = samples(n=20)
    rows = Rows.of(inputs, labels)
    for other in (
        replace(rows, left=rows.left[:-1]),
        replace(rows, right=rows.right[:-1]),
        replace(rows, codes=rows.codes - 2),
        replace(rows, pairs=19),
    ):
        with pytest.raises(ValueError, match="expected rows of tables"):
            Fit.of(two_layers(2), other)
    draws, x = torch.zeros(9, 2), torch.zeros(1, 1)
    with pytest.raises(ValueError, match="expected 1 observations; got 2"):
        Places(draws, x, torch.zeros(3, 2).long(), 5)
    with pytest.raises(ValueError, match="within 9 draws; got 10"):
        Places(draws, x, torch.tensor([[0], [5]]), 5)


def test_it_stands_in_for_others():
    inputs, labels = samples(n=100)
    at = inputs[0, :20]
    pair = Stacked(two_layers(2)).fit(inputs, labels), Batched(two_layers(2)).fit(inputs, labels)
    for found, right in zip(*pair, strict=True):
        torch.testing.assert_close(found(at), right(at), rtol=1e-6, atol=1e-8)

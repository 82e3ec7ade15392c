"""Stacks of networks are scikit-learn's own, copy by copy."""

import math

import numpy as np
import pytest
import torch

from experiments.networks import (
    LEVELS,
    Batched,
    Network,
    Sklearn,
    _gradients,
    _logits,
    _Training,
    _views,
    two_layers,
)


def test_gradients_are_those_of_the_loss():
    generator = torch.Generator().manual_seed(0)
    shapes = ((3, 4), (1, 4), (4, 5), (1, 5), (5, 1), (1, 1))
    weights = [torch.randn(2, *s, generator=generator, dtype=torch.double) for s in shapes]
    inputs = torch.randn(2, 7, 3, generator=generator, dtype=torch.double)
    labels = (torch.rand(2, 7, generator=generator) > 0.5).double()
    for w in weights:
        w.requires_grad_(True)
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        _logits(weights, inputs), labels, reduction="none"
    ).mean()
    expected = torch.autograd.grad(2 * loss, weights)
    losses, each = _gradients(weights, inputs, labels)
    torch.testing.assert_close(losses.mean(), loss)
    for found, right in zip(each, expected, strict=True):
        torch.testing.assert_close(found, right)


def test_steps_are_those_of_adam():
    """With scikit-learn's place of epsilon, and its penalty of matrices over the rows."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(1, 40, 3, generator=generator, dtype=torch.double)
    labels = (torch.rand(1, 40, generator=generator) > 0.5).double()
    run = _Training.of(Network((6, 6)), inputs, np.random.RandomState(0))
    weights = [w.clone().requires_grad_(True) for w in _views(run.flat, run.shapes)]
    first, second = ([torch.zeros_like(w) for w in weights] for _ in range(2))
    for t, start in enumerate((0, 20, 0), 1):
        rows = torch.arange(start, start + 20)
        logits = _logits(weights, inputs[:, rows])
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels[:, rows])
        loss = loss + sum(1e-4 / 40 * w.square().sum() for w in weights[::2])
        rate = 1e-3 * math.sqrt(1 - 0.999**t) / (1 - 0.9**t)
        for i, g in enumerate(torch.autograd.grad(loss, weights)):
            first[i] = 0.9 * first[i] + 0.1 * g
            second[i] = 0.999 * second[i] + 0.001 * g**2
            with torch.no_grad():
                weights[i] -= rate * first[i] / (second[i].sqrt() + 1e-8)
        run.step(inputs[:, rows], labels[:, rows])
    for found, right in zip(_views(run.flat, run.shapes), weights, strict=True):
        torch.testing.assert_close(found, right.detach(), rtol=1e-5, atol=1e-7)


def samples(n=400, copies=3):
    """Rows (h, 2 n, 3) in any order, and their classes, which differ by a shift."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(copies, 2 * n, 3, generator=generator, dtype=torch.double)
    orders = [torch.randperm(2 * n, generator=generator) for _ in range(copies)]
    labels = torch.stack([(order < n).long() for order in orders])
    inputs[..., 0] += 0.7 * labels
    return inputs, labels


def test_first_weights_are_those_of_scikit_learn():
    inputs, labels = samples(copies=1)
    run = _Training.of(Network((6, 6)), inputs, np.random.RandomState(4))
    original = Network((6, 6), epochs=1).original(4).set_params(learning_rate_init=1e-300)
    with pytest.warns(match="reached"):
        fitted = original.fit(inputs[0].numpy(), labels[0].numpy())
    each = [w for pair in zip(fitted.coefs_, fitted.intercepts_, strict=True) for w in pair]
    for found, right in zip(_views(run.flat, run.shapes), each, strict=True):
        np.testing.assert_array_equal(found[0].numpy().reshape(right.shape), right)


@pytest.mark.parametrize("state", [0, 3])
@pytest.mark.parametrize(
    "network",
    [
        Network((20, 20), epochs=30),
        Network((20, 20), patience=5),
        Network((30,), penalty=0.0, epochs=40, patience=3, early=False),
    ],
    ids=["epochs", "patience", "loss"],
)
def test_all_copies_are_scikit_learns_own(network, state):
    """The same weights, held-out rows, batches and stops, so that probabilities agree."""
    inputs, labels = samples()
    at = inputs[0, :50]
    both = zip(
        Batched(network, state).fit(inputs, labels),
        Sklearn(network, state).fit(inputs, labels),
        strict=True,
    )
    for found, right in both:
        torch.testing.assert_close(found(at), right(at), rtol=1e-6, atol=1e-7)


def test_the_network_of_levels_stops_where_scikit_learns_does():
    """Trained to the end; copies have other classes, and as many of one or not."""
    inputs, _ = samples(n=100, copies=2)
    levels = torch.rand(2, 200, generator=torch.Generator().manual_seed(1))
    labels = (levels < torch.tensor([[0.3], [0.7]])).long()
    at = inputs[0, :50]
    found = [one(at) for one in Batched(LEVELS).fit(inputs, labels)]
    right = [one(at) for one in Sklearn(LEVELS).fit(inputs, labels)]
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    assert (found[0] - found[1]).abs().mean() > 0.2


def test_copies_do_not_see_each_other():
    """Each stops by itself: alone or among others, its weights are the same."""
    inputs, labels = samples()
    at = inputs[0, :50]
    among = Batched(two_layers(2)).fit(inputs, labels)[1](at)
    alone = Batched(two_layers(2)).fit(inputs[1:2], labels[1:2])[0](at)
    torch.testing.assert_close(among, alone, rtol=1e-3, atol=1e-4)

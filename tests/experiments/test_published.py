"""The batched re-creation agrees with scikit-learn's classifier."""

import math

import numpy as np
import pytest
import torch
from experiments.published import (
    Batched,
    Sklearn,
    _gradients,
    _logits,
    _Training,
    _views,
    c2st,
    lc2st,
    lc2st_nf,
    pvalue,
    together,
    trial_of_c2st,
    trial_of_lc2st,
    trial_of_lc2st_nf,
)


def pairs(n=400, shift=0.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    theta, noise, z = torch.randn(3, n, 2, generator=generator)
    x = theta + noise
    return theta, x, x / 2 + shift + 0.7 * z


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
    for found, right in zip(_gradients(weights, inputs, labels), expected, strict=True):
        torch.testing.assert_close(found, right)


def test_steps_are_those_of_adam():
    """With scikit-learn's place of epsilon, and its penalty of matrices over the rows."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(1, 40, 3, generator=generator, dtype=torch.double)
    labels = (torch.rand(1, 40, generator=generator) > 0.5).double()
    run = _Training.of(1, (3, 6, 6, 1), inputs, generator)
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
        run.step(inputs, labels, rows)
    for found, right in zip(_views(run.flat, run.shapes), weights, strict=True):
        torch.testing.assert_close(found, right.detach(), rtol=1e-5, atol=1e-7)


def test_copies_do_not_see_each_other():
    """Each stops by itself: alone or among others, its weights are the same."""
    theta, x, theta_q = pairs()
    rows = torch.cat([torch.cat([theta_q, x], 1), torch.cat([theta, x], 1)])
    orders = torch.stack(
        [torch.randperm(800, generator=torch.Generator().manual_seed(i)) for i in range(3)]
    )
    labels = (torch.arange(800) >= 400).long().expand(3, -1)
    at = rows[:50]
    among = Batched(20).fit(rows[orders], labels)[1](at)
    alone = Batched(20).fit(rows[orders][1:2], labels[1:2])[0](at)
    torch.testing.assert_close(among, alone, rtol=1e-3, atol=1e-4)


def test_trials_do_not_see_each_other():
    """Fitted in one stack or alone, a test finds the same."""
    samples = [pairs(shift=shift, seed=seed) for seed, shift in enumerate((0.0, 0.5))]
    there = torch.zeros(2, 2), torch.randn(2, 30, 2, generator=torch.Generator().manual_seed(9))
    both = together(Batched(20), [trial_of_lc2st(sample, there, 3) for sample in samples])
    for sample, (statistic, null) in zip(samples, both, strict=True):
        alone = lc2st(Batched(20), sample, there, 3)
        torch.testing.assert_close((statistic, null), alone, rtol=1e-3, atol=1e-5)
    assert not torch.allclose(both[0][0], both[1][0], rtol=1e-2)


@pytest.mark.slow
def test_agreement_with_scikit_learn(gaussian):
    """Over six random states, on which both depend more than on anything else.

    Means of the statistic within a third, of nulls within a factor of two and a half.
    """
    latents = gaussian(width=0.5).latents(1000)
    found = {
        kind: [
            [
                float(part.mean())
                for part in lc2st_nf(kind(20, state), sample, latents.x[:2], 5, 500)
            ]
            for state in range(6)
        ]
        for kind in (Batched, Sklearn)
        for sample in [(latents.theta, latents.x)]
    }
    ours, theirs = (np.mean(rows, axis=0) for rows in found.values())
    assert ours[0] == pytest.approx(theirs[0], rel=0.35)
    assert 0.4 < ours[1] / theirs[1] < 2.5


def test_the_oracle_sees_a_shift():
    generator = torch.Generator().manual_seed(0)
    q, p = torch.randn(2, 600, 2, generator=generator)
    mse, null, accuracy, null_accuracy = c2st(Batched(20), (q, p + 1.0), 300, 19)
    assert mse > null.max()
    assert accuracy > null_accuracy.max()
    assert 0.5 < accuracy < 0.95


@pytest.mark.parametrize("n", [50, 300])
def test_the_oracle_is_judged_on_draws_it_was_not_trained_on(n):
    """Whatever their number; d is 1 for draws of the posterior, and 0 for draws of q."""
    q, p = torch.zeros(400, 2), torch.ones(400, 2)
    p[n:] += 0.5
    trial = trial_of_c2st((q, p), n, 3)
    assert trial.inputs.shape == (4, 2 * n, 2)
    assert trial.inputs.max() == 1
    seen = []

    def fitted(at):
        seen.append(at)
        return at[:, 0].clamp(max=1)

    mse, null, accuracy, null_accuracy = trial.judge([fitted] * 4)
    assert {len(at) for at in seen} == {2 * (400 - n)}
    assert all(set(at.unique().tolist()) == {0, 1.5} for at in seen)
    assert (mse, accuracy) == (0.25, 1.0)
    torch.testing.assert_close(null, torch.full((3,), 0.25))
    assert ((null_accuracy > 0.3) & (null_accuracy < 0.7)).all()


def test_latents(gaussian):
    latents = gaussian(width=0.5).latents(1000)
    statistic, null = lc2st_nf(Batched(20), (latents.theta, latents.x), latents.x[:2], 9, 200)
    assert null.shape == (2, 9)
    assert (pvalue(statistic, null) <= 0.12).all()


def test_runs_share_base_draws_of_nulls_and_none_of_the_data(gaussian):
    """As in the authors' code: one luck of class 0 for all runs would be no rate over runs."""
    latents = gaussian(width=0.5).latents(100)
    pairs = latents.theta, latents.x
    one, other = (trial_of_lc2st_nf(pairs, latents.x[:2], 3, 50, run=run) for run in (0, 1))
    assert torch.equal(one.inputs[1:], other.inputs[1:])
    assert torch.equal(one.inputs[0, 100:], other.inputs[0, 100:])
    drawn = [trial.inputs[0, :100, : latents.m] for trial in (one, other)]
    assert (drawn[0] != drawn[1]).all()


def test_the_published_pvalue_may_be_zero():
    np.testing.assert_array_equal(
        pvalue(torch.tensor([3.0, 1.0]), torch.tensor([[1.0, 2.0], [1.0, 2.0]])), [0.0, 0.5]
    )

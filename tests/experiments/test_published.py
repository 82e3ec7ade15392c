"""Trials of the published tests: what is shuffled, permuted and drawn."""

import numpy as np
import pytest
import torch

from experiments.networks import Batched, two_layers
from experiments.published import (
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


def test_trials_do_not_see_each_other():
    """Fitted in one stack or alone, a test finds the same."""
    samples = [pairs(shift=shift, seed=seed) for seed, shift in enumerate((0.0, 0.5))]
    there = torch.zeros(2, 2), torch.randn(2, 30, 2, generator=torch.Generator().manual_seed(9))
    both = together(
        Batched(two_layers(2)), [trial_of_lc2st(sample, there, 3) for sample in samples]
    )
    for sample, (statistic, null) in zip(samples, both, strict=True):
        alone = lc2st(Batched(two_layers(2)), sample, there, 3)
        torch.testing.assert_close((statistic, null), alone, rtol=1e-3, atol=1e-5)
    assert not torch.allclose(both[0][0], both[1][0], rtol=1e-2)


def test_the_oracle_sees_a_shift():
    generator = torch.Generator().manual_seed(0)
    q, p = torch.randn(2, 600, 2, generator=generator)
    mse, null, accuracy, null_accuracy = c2st(Batched(two_layers(2)), (q, p + 1.0), 300, 19)
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
    statistic, null = lc2st_nf(
        Batched(two_layers(2)), (latents.theta, latents.x), latents.x[:2], 9, 200
    )
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


def test_each_copy_of_each_run_is_shuffled_in_its_own_way(gaussian):
    """Rows stay with their labels, and the data are the same whatever the order."""
    latents = gaussian(width=0.5).latents(60)
    pairs = latents.theta, latents.x
    one, other = (trial_of_lc2st_nf(pairs, latents.x[:2], 3, 50, run=run) for run in (0, 1))
    orders = torch.cat([one.shuffles, other.shuffles])
    assert len({tuple(order.tolist()) for order in orders}) == 8
    inputs, labels = one.rows
    for rows, truth, sorted_rows in zip(inputs, labels, one.inputs, strict=True):
        for label, part in enumerate(sorted_rows.split(60)):
            found = rows[truth == label]
            assert {tuple(r.tolist()) for r in found} == {tuple(r.tolist()) for r in part}


def test_the_published_pvalue_may_be_zero():
    np.testing.assert_array_equal(
        pvalue(torch.tensor([3.0, 1.0]), torch.tensor([[1.0, 2.0], [1.0, 2.0]])), [0.0, 0.5]
    )

from dataclasses import replace

import numpy as np
import pytest
import torch

import assay
from assay import MLP, Exchange, KnownBase, lc2st
from assay.classifiers.mlp import _initial, _Stack

SMALL = MLP((10, 7), epochs=3, batch=33)
X_O = torch.ones(2)


def close(first, second, **tolerance):
    for name in ("probabilities", "null_probabilities"):
        np.testing.assert_allclose(getattr(first, name), getattr(second, name), **tolerance)


@pytest.mark.parametrize("hidden", [(64, 64, 64), (10, 7), (1,)])
@pytest.mark.parametrize("null", [Exchange(12), KnownBase(12)])
def test_chunks_change_nothing_bit_for_bit(gaussian, hidden, null):
    latent, recipe = isinstance(null, KnownBase), replace(SMALL, hidden=hidden)
    samples = gaussian().latents(150) if latent else gaussian().calibration(150, k=2)
    draws = assay.Draws(X_O, n=41) if latent else gaussian().draws(X_O, n=41)
    whole = lc2st(samples, recipe, null)(draws)
    for chunk in (1, 2, 3, 5, 12, 13):
        cut = lc2st(samples, replace(recipe, chunk=chunk), null)(draws)
        close(cut, whole, rtol=0, atol=0)


def test_steps_against_torch():
    """The hand-written gradient and AdamW, beside torch's own."""
    recipe, widths, rows, odds = MLP(rate=0.01), (16, 32, 16, 1), 40, 3
    generator = torch.Generator().manual_seed(0)
    stack = _Stack(_initial((5, 20, 9, 1), widths, 0), widths, 3, rows)
    stack.flat += 0.1 * torch.randn(stack.flat.shape, generator=generator)
    theirs = [[torch.nn.Parameter(t.clone()) for t in layer] for layer in stack.layers]
    parameters = [t for layer in theirs for t in layer]
    optimizer = torch.optim.AdamW(parameters, weight_decay=recipe.decay)
    for step in recipe._schedule(30).split(1):
        inputs = torch.randn(3, rows, 16, generator=generator)
        labels = (torch.rand(3, rows, generator=generator) < 0.25).float()
        weights = torch.where(labels > 0, 1 + odds, (1 + odds) / odds) / (2 * rows)
        h = inputs
        for weight, bias in theirs[:-1]:
            h = (h @ weight + bias).relu()
        logits = (h @ theirs[-1][0] + theirs[-1][1])[..., 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits
        optimizer.zero_grad()
        loss(logits, labels, weight=weights, reduction="sum").backward()
        optimizer.param_groups[0]["lr"] = float(1 - step[0, 0]) / recipe.decay
        optimizer.step()
        stack.train(inputs, labels, weights, step)
        gradients = (t for layer in stack.gradients for t in layer)
        for gradient, parameter in zip(gradients, parameters, strict=True):
            torch.testing.assert_close(gradient, parameter.grad, rtol=1e-3, atol=1e-5)
    for layer, ours in zip(theirs, stack.layers, strict=True):
        torch.testing.assert_close(ours[0], layer[0].detach(), rtol=1e-3, atol=1e-4)


def test_one_cycle_of_rates():
    kept, _, _ = MLP(rate=0.01, decay=0.5)._schedule(100).T
    rates = (1 - kept) / 0.005  # of the peak
    assert rates.argmax() == 20
    np.testing.assert_allclose(rates[[0, 10, 20, 60, 99]], [0.04, 0.52, 1, 0.5, 0], atol=1e-2)


def test_neither_the_order_of_rows_nor_units_matter(gaussian):
    posterior = gaussian(width=1.5)
    calibration, draws = posterior.calibration(400), gaussian().draws(X_O)
    recipe, null = MLP(epochs=4, batch=64), Exchange(5)
    first = lc2st(calibration, recipe, null)(draws)
    order = torch.randperm(400, generator=torch.Generator().manual_seed(0))
    close(lc2st(calibration.subset(order), recipe, null)(draws), first, atol=1e-4)
    a, b = torch.tensor([100.0, 0.01]), torch.tensor([5.0, -0.07])
    tables = (calibration.theta * a + b, calibration.x * a - b, calibration.theta_q * a + b)
    there = assay.Draws(draws.x * a - b, draws.theta * a + b)
    close(lc2st(assay.Calibration(*tables), recipe, null)(there), first, atol=1e-2)


@pytest.mark.parametrize("epochs", [1, 2, 3, 5, 12])
def test_every_number_of_steps_can_be_trained(gaussian, epochs):
    test = lc2st(gaussian().calibration(10), MLP((4,), epochs=epochs), Exchange(1))
    assert np.isfinite(test(gaussian().draws(X_O)).probabilities).all()


def test_members_are_averaged(gaussian):
    copies = Exchange(3).copies(gaussian().calibration(100), 0)
    one, three = (replace(SMALL, members=k).fit(copies, 0) for k in (1, 3))
    assert three.weights.shape[:2] == (3, 4)
    assert torch.equal(three.weights[0], one.weights[0])
    parts = [replace(three, weights=weights) for weights in three.weights.split(1)]
    at = gaussian().draws(X_O).theta[None], X_O[None]
    torch.testing.assert_close(three(*at), torch.stack([part(*at) for part in parts]).mean(0))


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        *(("hidden", (), "at least one layer"), ("hidden", (0,), "at least 1; got 0")),
        *((name, 0, "at least 1; got 0") for name in ("epochs", "batch", "members", "chunk")),
        *(("rate", 0, "a finite number above 0"), ("decay", -1, "a finite number of at least 0")),
    ],
)
def test_bad_recipes(name, value, expected):
    with pytest.raises(ValueError, match=f"{name}: expected {expected}"):
        MLP(**{name: value})


def test_training_that_diverges_says_so(gaussian):
    with pytest.raises(ValueError, match="rate: expected one at which training converges"):
        lc2st(gaussian().calibration(100), MLP(rate=1e30, batch=20), Exchange(1))


@pytest.mark.gpu
def test_a_gpu_agrees_with_the_cpu(gaussian):
    calibration, draws = gaussian(width=1.4).calibration(1000), gaussian().draws(X_O)
    cpu = lc2st(calibration, null=Exchange(39))(draws)
    gpu = lc2st(calibration.to("cuda"), null=Exchange(39))(draws)
    np.testing.assert_allclose(gpu.probabilities, cpu.probabilities, atol=0.05)
    assert abs(gpu.pvalue - cpu.pvalue) < 0.2


def test_smaller_chunks_where_memory_runs_out(gaussian, monkeypatch):
    """As a GPU would run out of it with more than three copies at a time."""
    copies = Exchange(7).copies(gaussian().calibration(60), 0)
    recipe, train = MLP(hidden=(8,), epochs=1), MLP._train
    expected = recipe.fit(copies, 0).weights

    def full(recipe, scaling, bar, some, seed):
        if len(some) > 3:
            raise torch.cuda.OutOfMemoryError
        return train(recipe, scaling, bar, some, seed)

    monkeypatch.setattr(MLP, "_train", full)
    with pytest.warns(UserWarning, match="2 copies at a time"):
        found = replace(recipe, chunk=8).fit(copies, 0).weights
    assert torch.equal(found, expected)

from dataclasses import replace

import numpy as np
import pytest
import torch

import assay
from assay import MLP, Exchange, KnownBase
from assay._support.random import stream
from assay.classifiers import mlp
from assay.classifiers.mlp import _initial, _Stack

SMALL = {"hidden": (10, 7), "epochs": 3, "batch": 33}


def both(gaussian, n=150):
    yield gaussian().calibration(n, k=2), Exchange(12), gaussian().draws(torch.ones(2, 2), n=41)
    yield gaussian().latents(n), KnownBase(12), assay.Draws(torch.ones(2, 2), n=41)


@pytest.mark.parametrize("hidden", [(64, 64, 64), (10, 7), (1,)])
def test_chunks_change_nothing_bit_for_bit(gaussian, hidden):
    for calibration, null, draws in both(gaussian):
        whole = assay.lc2st(calibration, MLP(hidden, epochs=3, batch=33), null)(draws)
        for chunk in (1, 2, 3, 5, 12, 13):
            recipe = MLP(hidden, epochs=3, batch=33, chunk=chunk)
            cut = assay.lc2st(calibration, recipe, null)(draws)
            np.testing.assert_array_equal(cut.probabilities, whole.probabilities)
            np.testing.assert_array_equal(cut.null_probabilities, whole.null_probabilities)


def test_gradients_against_autograd():
    """The hand-written gradient of a stack, beside torch's own, copy by copy."""
    widths, rows, odds = (16, 32, 16, 1), 40, 3
    generator = torch.Generator().manual_seed(0)
    stack = _Stack(_initial((5, 20, 9, 1), widths, 0), widths, 3, rows)
    stack.flat += 0.1 * torch.randn(stack.flat.shape, generator=generator)
    inputs = torch.randn(3, rows, 16, generator=generator)
    labels = torch.rand(3, rows, generator=generator) < 0.25
    layers = [[t.clone().requires_grad_() for t in layer] for layer in stack.layers]
    h = inputs
    for weight, bias in layers[:-1]:
        h = (h @ weight + bias).relu()
    logits = (h @ layers[-1][0] + layers[-1][1])[..., 0]
    loss = torch.nn.functional.binary_cross_entropy_with_logits(
        logits, labels.float(), reduction="none"
    )
    share = 0.5 * (1 + odds) / rows
    (loss * torch.where(labels, share, share / odds)).sum().backward()
    weights = torch.where(labels, share, share / odds)
    stack.descend(inputs, labels.float(), weights)
    for expected, found in zip(layers, stack.gradients, strict=True):
        for a, b in zip(expected, found, strict=True):
            torch.testing.assert_close(b, a.grad)


def test_padding_stays_empty(gaussian):
    networks = MLP((5,), epochs=3, batch=32).fit(
        Exchange(2).copies(gaussian().calibration(100), 0), 0
    )
    weight = networks.weights[..., : 16 * 16].unflatten(-1, (16, 16))
    assert (weight[..., 4:, :] == 0).all()
    assert (weight[..., 5:] == 0).all()
    assert (weight[..., :4, :5] != 0).all()


def test_the_order_of_rows_does_not_matter(gaussian):
    calibration, draws = gaussian(width=1.5).calibration(300), gaussian().draws(torch.ones(2))
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0))
    recipe = MLP(batch=64, epochs=4)
    first = assay.lc2st(calibration, recipe, Exchange(9))(draws)
    second = assay.lc2st(calibration.subset(order), recipe, Exchange(9))(draws)
    np.testing.assert_allclose(first.probabilities, second.probabilities, atol=1e-4)
    np.testing.assert_allclose(first.null_probabilities, second.null_probabilities, atol=1e-4)


def test_units_do_not_matter(gaussian):
    calibration, draws = gaussian(width=1.5).calibration(400), gaussian().draws(torch.ones(2))
    a, b = torch.tensor([100.0, 0.01]), torch.tensor([5.0, -0.07])
    moved = assay.Calibration(
        calibration.theta * a + b, calibration.x * a - b, calibration.theta_q * a + b
    )
    there = assay.Draws(draws.x * a - b, draws.theta * a + b)
    recipe = MLP(epochs=4)
    first = assay.lc2st(calibration, recipe, Exchange(5))(draws)
    second = assay.lc2st(moved, recipe, Exchange(5))(there)
    np.testing.assert_allclose(first.probabilities, second.probabilities, atol=1e-2)
    np.testing.assert_allclose(first.null_probabilities, second.null_probabilities, atol=1e-2)


@pytest.mark.parametrize("epochs", range(1, 13))
def test_every_number_of_steps_can_be_trained(gaussian, epochs):
    test = assay.lc2st(gaussian().calibration(16), MLP((4,), epochs=epochs), Exchange(1))
    assert np.isfinite(test(gaussian().draws(torch.ones(2))).statistic)


def test_members_are_averaged(gaussian):
    calibration, draws = gaussian().calibration(100), gaussian().draws(torch.ones(2))
    one, three = (assay.lc2st(calibration, MLP(**SMALL, members=k), Exchange(3)) for k in (1, 3))
    assert three.scores.weights.shape[:2] == (3, 4)
    assert torch.equal(three.scores.weights[0], one.scores.weights[0])
    parts = [
        type(three.scores)(
            three.scores.weights[j : j + 1], three.scores.widths, three.scores.scaling
        )
        for j in range(3)
    ]
    observed = calibration.observe(draws)
    at = observed.draws, observed.features
    expected = torch.stack([part(*at) for part in parts]).mean(0)
    torch.testing.assert_close(three.scores(*at), expected)


def test_tiny_data_and_single_steps(gaussian):
    test = assay.lc2st(gaussian().calibration(10), MLP(epochs=1), Exchange(1))
    assert np.isfinite(test(gaussian().draws(torch.ones(2))).probabilities).all()


def test_double_precision_samples(gaussian):
    calibration = gaussian().calibration(100)
    double = assay.Calibration(
        *(t.double() for t in (calibration.theta, calibration.x, calibration.theta_q))
    )
    result = assay.lc2st(double, MLP(**SMALL), Exchange(3))(gaussian().draws(torch.ones(2)))
    assert np.isfinite(result.probabilities).all()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"hidden": ()}, "hidden: expected at least one layer"),
        ({"hidden": (0,)}, "hidden: expected at least 1; got 0"),
        ({"epochs": 0}, "epochs: expected at least 1; got 0"),
        ({"batch": -1}, "batch: expected at least 1; got -1"),
        ({"members": 0}, "members: expected at least 1"),
        ({"chunk": 0}, "chunk: expected at least 1"),
        ({"rate": float("nan")}, "rate: expected a finite number above 0; got nan"),
        ({"rate": 0}, "rate: expected a finite number above 0"),
        ({"decay": -1}, "decay: expected a finite number of at least 0"),
    ],
)
def test_bad_recipes(given, message):
    with pytest.raises(ValueError, match=message):
        MLP(**given)


def test_training_that_diverges_says_so(gaussian):
    with pytest.raises(ValueError, match="rate: expected one at which training converges"):
        assay.lc2st(gaussian().calibration(100), MLP(rate=1e30, batch=20), Exchange(1))


@pytest.mark.gpu
def test_a_gpu_agrees_with_the_cpu(gaussian):
    calibration, draws = gaussian(width=1.4).calibration(1000), gaussian().draws(torch.ones(2))
    cpu = assay.lc2st(calibration, null=Exchange(39))(draws)
    gpu = assay.lc2st(calibration.to("cuda"), null=Exchange(39))(draws)
    np.testing.assert_allclose(gpu.probabilities, cpu.probabilities, atol=0.05)
    assert abs(gpu.pvalue - cpu.pvalue) < 0.2


def test_smaller_chunks_where_memory_runs_out(gaussian, monkeypatch):
    """As a GPU would run out of it with more than three copies at a time."""
    copies = Exchange(7).copies(gaussian().calibration(60), 0)
    recipe, train = MLP(hidden=(8,), epochs=1), mlp._train
    expected = recipe.fit(copies, 0).weights

    def full(recipe, some, *given):
        if len(some) > 3:
            raise torch.cuda.OutOfMemoryError
        return train(recipe, some, *given)

    monkeypatch.setattr(mlp, "_train", full)
    with pytest.warns(UserWarning, match="2 copies at a time"):
        found = replace(recipe, chunk=8).fit(copies, 0).weights
    assert torch.equal(found, expected)


def test_steps_against_torch(gaussian):
    """A few steps beside those of torch.optim.AdamW, on the same slopes."""
    recipe = MLP(hidden=(8,), rate=0.05, decay=0.3)
    stack = _Stack(torch.randn(19, generator=stream(0, "w")), (1, 6, 1), 2, 4)
    theirs = torch.nn.Parameter(stack.flat.clone())
    optimizer = torch.optim.AdamW([theirs], weight_decay=recipe.decay)
    descent, generator = mlp._Descent(stack), stream(1, "slopes")
    scales = mlp._scales(recipe, 30)
    for scale, rate in zip(scales, mlp._cycle(30), strict=True):
        slope = torch.randn(stack.flat.shape, generator=generator)
        stack.descend = lambda *batch, slope=slope: stack.gradient.copy_(slope)
        descent(*torch.zeros(3, 2, 4), scale[None])
        theirs.grad, optimizer.param_groups[0]["lr"] = slope, recipe.rate * rate
        optimizer.step()
    torch.testing.assert_close(stack.flat, theirs.detach(), rtol=1e-4, atol=1e-5)

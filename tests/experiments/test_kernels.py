"""Kernels, on a processor: ``emulated.h`` lets the threads of a block take turns."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from experiments.kernels import Compiler, Kernels, nvcc
from experiments.networks import Network, Sklearn, two_layers
from experiments.stacked import Fit, Places, Rows, Stacked, Torch

from .test_stacked import samples

EMULATED = Path(__file__).with_name("emulated.h")
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    options = ("-O1", "-std=c++17", "-shared", "-fPIC", f'-DEMULATED="{EMULATED}"', "-x", "c++")
    return Kernels(Compiler(("g++", *options), tmp_path_factory.mktemp("kernels")))


def apart(found, right, at):
    pairs = zip(found, right, strict=True)
    return max(float((one(at) - other(at)).abs().max()) for one, other in pairs)


# Batches that end in the middle of a part, parts of a batch, and one batch that is all.
@needs_compiler
@pytest.mark.parametrize(
    ("m", "d", "n", "network"),
    [
        (2, 2, 60, Network((20, 20), patience=5)),
        (2, 0, 150, Network((20, 20), epochs=5)),
        (5, 8, 130, Network((50, 50), epochs=3)),
        (10, 10, 130, Network((100, 100), epochs=2)),
        (10, 100, 130, Network((100, 100), epochs=2)),
    ],
)
def test_networks_are_scikit_learns_own(kernels, m, d, n, network):
    inputs, labels = samples(n, 2, m + d, torch.float)
    trained = Stacked(network, engine=kernels).train(Rows.of(inputs, labels, m))
    original = Sklearn(network).fit(inputs, labels)
    assert trained.epochs.tolist() == [one.args[0].n_iter_ for one in original]
    assert apart(trained.fitted, original, inputs[0, :50]) < 1e-5


@needs_compiler
def test_no_barrier_is_missing(kernels, monkeypatch):
    """Whatever the turns of threads between barriers, bits are the same."""
    inputs, labels = samples(130, 2, 6, torch.float)
    rows, found = Rows.of(inputs, labels), []
    none = torch.empty(1, 0)
    places = Places(inputs[0, :30].contiguous(), none, torch.tensor([[0], [5]]), 25)
    for order in ("0", "1", "7"):
        monkeypatch.setenv("EMULATED_ORDER", order)
        trained = Stacked(Network((20, 20), epochs=3), engine=kernels).train(rows)
        found.append((trained.flat, kernels.ask(trained, places)))
    for others in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], others, strict=True))


@needs_compiler
def test_rows_of_tables_and_what_is_asked(kernels):
    """As operations of torch, with observations on the right."""
    generator = torch.Generator().manual_seed(0)
    left, x = torch.randn(240, 2, generator=generator), torch.randn(60, 2, generator=generator)
    orders = torch.stack([torch.randperm(120, generator=generator) for _ in range(3)])
    codes = (2 * orders + (orders >= 60)).int()
    starts = torch.tensor([0, 120, 60]), torch.tensor([0, 0, 0])
    rows = Rows(left, x, *starts, codes, 60)
    network = Network((20, 20), epochs=6)
    found, right = (Stacked(network, engine=e).train(rows) for e in (kernels, Torch()))
    torch.testing.assert_close(found.flat, right.flat, rtol=1e-4, atol=1e-5)
    at = torch.tensor([[0, 120], [7, 7], [0, 0]])
    places = Places(left, x[:2], at, 113)
    asked = kernels.ask(found, places)
    torch.testing.assert_close(asked, Torch().ask(found, places), rtol=1e-5, atol=1e-7)


@needs_compiler
def test_rounds_do_not_matter(kernels):
    inputs, labels = samples(60, 4, 4, torch.float)
    rows, network = Rows.of(inputs, labels), Network((20, 20), patience=4)
    one, other = (
        Stacked(network, engine=engine).train(rows)
        for engine in (kernels, replace(kernels, first=3, next=2))
    )
    assert torch.equal(one.flat, other.flat)
    assert torch.equal(one.epochs, other.epochs)


@needs_compiler
def test_it_can_be_ended_between_launches(kernels):
    def watch():
        if len(seen) == 2:
            raise TimeoutError
        seen.append(1)

    inputs, labels = samples(60, 2, 4, torch.float)
    fit, seen = Fit.of(two_layers(2), Rows.of(inputs, labels)), []
    with pytest.raises(TimeoutError):
        replace(kernels, watch=watch, first=1, next=1).train(fit)


@needs_compiler
def test_what_kernels_do_not_take(kernels, tmp_path):
    inputs, labels = samples(60, 2, 4)
    with pytest.raises(ValueError, match="single precision"):
        Stacked(two_layers(2), engine=kernels).fit(inputs, labels)
    with pytest.raises(RuntimeError, match="that threads can share"):
        Compiler(kernels.compiler.command, tmp_path).library(2, 2, 400)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_cuda_compiles_them(tmp_path):
    path = nvcc(tmp_path).library(10, 100, 100)
    assert path.stat().st_size > 10_000
    assert nvcc(tmp_path).library(10, 100, 100) == path
    assert [one.suffix for one in tmp_path.iterdir()] == [".so"]

import numpy as np
import pytest
import torch

from assay.randomness import isolated, seed_of, stream


def test_streams_differ_by_key_and_seed():
    keys = [(0, "null", 1), (0, "null", 2), (0, "order", 1), (1, "null", 1)]
    numbers = [torch.rand(4, generator=stream(*key)) for key in keys]
    assert all(not torch.equal(a, b) for i, a in enumerate(numbers) for b in numbers[:i])


def test_a_generator_gives_a_seed_and_moves_on():
    generator = torch.Generator().manual_seed(3)
    first, second = seed_of(generator), seed_of(generator)
    assert first != second
    assert first == seed_of(torch.Generator().manual_seed(3))


def test_isolated_leaves_global_generators_alone():
    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.rand(1), np.random.rand()
    torch.manual_seed(1)
    np.random.seed(1)
    with isolated(stream(0, "inside")):
        inside = torch.rand(3)
        np.random.rand(3)
    assert (torch.rand(1), np.random.rand()) == before
    with isolated(stream(0, "inside")):
        assert torch.equal(torch.rand(3), inside)


def test_isolated_restores_after_an_error():
    state = torch.get_rng_state()
    with pytest.raises(ZeroDivisionError), isolated(stream(0, "inside")):
        torch.rand(3) / (1 // 0)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True, None])
def test_bad_seeds(seed):
    with pytest.raises((TypeError, ValueError), match="seed: expected"):
        seed_of(seed)

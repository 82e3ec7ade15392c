import random

import numpy as np
import pytest
import torch

from assay._support.random import call_user_code, isolated, mix_seed, seed_of, stream


def test_streams_differ_by_key_and_seed():
    keys = [(0, "null", 1), (0, "null", 2), (0, "order", 1), (1, "null", 1)]
    numbers = [torch.rand(4, generator=stream(*key)) for key in keys]
    assert all(not torch.equal(a, b) for i, a in enumerate(numbers) for b in numbers[:i])
    assert torch.equal(numbers[0], torch.rand(4, generator=stream(*keys[0])))


def test_seeds():
    """A generator moves on; content gives other seeds, and other seeds stay other seeds."""
    generator = torch.Generator().manual_seed(3)
    first = seed_of(generator)
    assert first == seed_of(torch.Generator().manual_seed(3)) != seed_of(generator)
    content = np.arange(6)
    assert mix_seed(3, content) == mix_seed(3, content.tobytes()) != mix_seed(3, content[::-1])
    assert len({mix_seed(seed, content) for seed in range(1000)}) == 1000


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True, None])
def test_bad_seeds(seed):
    with pytest.raises((TypeError, ValueError), match="seed: expected"):
        seed_of(seed)


def test_isolated_leaves_global_generators_alone():
    """Also after an error."""

    def state():
        return torch.get_rng_state().tolist(), str(np.random.get_state()), random.getstate()

    def numbers():
        with isolated(stream(0, "inside")):
            return torch.rand(1), np.random.rand(), random.random()

    before = state()
    assert numbers() == numbers()
    with pytest.raises(ZeroDivisionError), isolated(stream(0, "inside")):
        torch.rand(3) / (1 // 0)
    assert state() == before


def test_code_of_the_user_gets_copies():
    x = torch.zeros(2)
    found = call_user_code("embed", lambda given: given["x"].add_(1).tolist(), {"x": x})
    assert (found.tolist(), x.tolist()) == ([1, 1], [0, 0])
    with pytest.raises(ValueError, match="embed: expected what can .*; got ZeroDivisionError: in"):
        call_user_code("embed", lambda given: 1 // 0, x)

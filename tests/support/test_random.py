import random

import numpy as np
import pytest
import torch

from assay._support.random import call_user_code, isolated, mix_seed, seed_of, stream


def test_a_seed_depends_on_content_too():
    """One to one in the seed: other seeds stay other seeds."""
    content = np.arange(6)
    mixed = mix_seed(3, content)
    assert mixed == mix_seed(3, content.tobytes()) == seed_of(mixed)
    assert len({3, mixed, mix_seed(3, content[::-1])}) == 3
    assert len({mix_seed(seed, content) for seed in range(1000)}) == 1000


def test_streams_differ_by_key_and_seed():
    keys = [(0, "null", 1), (0, "null", 2), (0, "order", 1), (1, "null", 1)]
    numbers = [torch.rand(4, generator=stream(*key)) for key in keys]
    assert all(not torch.equal(a, b) for i, a in enumerate(numbers) for b in numbers[:i])
    assert torch.equal(numbers[0], torch.rand(4, generator=stream(*keys[0])))


def test_a_generator_gives_a_seed_and_moves_on():
    generator = torch.Generator().manual_seed(3)
    first = seed_of(generator)
    assert first == seed_of(torch.Generator().manual_seed(3)) != seed_of(generator)


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True, None])
def test_bad_seeds(seed):
    with pytest.raises((TypeError, ValueError), match="seed: expected"):
        seed_of(seed)


def test_isolated_leaves_global_generators_alone():
    """Also after an error."""

    def numbers():
        return torch.rand(1), np.random.rand(), random.random()

    def inside():
        with isolated(stream(0, "inside")):
            return numbers()

    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(1)
    state = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()
    assert inside() == inside()
    with pytest.raises(ZeroDivisionError), isolated(stream(0, "inside")):
        torch.rand(3) / (1 // 0)
    assert torch.equal(torch.get_rng_state(), state[0])
    assert (np.random.get_state()[1].tolist(), random.getstate()) == state[1:]


def test_code_of_the_user_gets_copies():
    x = torch.zeros(2)
    found = call_user_code("embed", lambda given: given["x"].add_(1).tolist(), {"x": x})
    assert (found.tolist(), x.tolist()) == ([1, 1], [0, 0])
    with pytest.raises(ValueError, match="embed: expected what can .*; got ZeroDivisionError: in"):
        call_user_code("embed", lambda given: 1 // 0, x)

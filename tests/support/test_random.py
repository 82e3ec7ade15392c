import random

import numpy as np
import pytest
import torch

from assay._support.random import call_user_code, isolated, mix_seed, seed_of, stream


def test_a_seed_depends_on_content_too():
    content = np.arange(6)
    mixed = mix_seed(3, content)
    assert mixed == mix_seed(3, content.tobytes())
    assert mixed != mix_seed(4, content)
    assert mixed != mix_seed(3, content[::-1])
    assert mixed != 3
    assert 0 <= mix_seed(2**62 - 1, b"any") < 2**62
    assert seed_of(mixed) == mixed
    # Other seeds stay other seeds: the mix is one to one in the seed.
    assert len({mix_seed(seed, content) for seed in range(1000)}) == 1000


def test_streams_differ_by_key_and_seed():
    keys = [(0, "null", 1), (0, "null", 2), (0, "order", 1), (1, "null", 1)]
    numbers = [torch.rand(4, generator=stream(*key)) for key in keys]
    assert all(not torch.equal(a, b) for i, a in enumerate(numbers) for b in numbers[:i])


def test_a_generator_gives_a_seed_and_moves_on():
    generator = torch.Generator().manual_seed(3)
    first, second = seed_of(generator), seed_of(generator)
    assert first != second
    assert first == seed_of(torch.Generator().manual_seed(3))


@pytest.mark.parametrize("seed", [-1, 1.5, "a", True, None])
def test_bad_seeds(seed):
    with pytest.raises((TypeError, ValueError), match="seed: expected"):
        seed_of(seed)


def test_isolated_leaves_global_generators_alone():
    """Also after an error."""

    def numbers():
        return torch.rand(1), np.random.rand(), random.random()

    def seeded():
        torch.manual_seed(1)
        np.random.seed(1)
        random.seed(1)

    seeded()
    before = numbers()
    seeded()
    with isolated(stream(0, "inside")):
        inside = numbers()
    with pytest.raises(ZeroDivisionError), isolated(stream(0, "inside")):
        torch.rand(3) / (1 // 0)
    assert numbers() == before
    with isolated(stream(0, "inside")):
        assert numbers() == inside


def test_code_of_the_user_gets_copies():
    x = torch.zeros(2)
    found = call_user_code("embed", lambda given: given["x"].add_(1).tolist(), {"x": x})
    assert (found.tolist(), x.tolist()) == ([1, 1], [0, 0])
    with pytest.raises(ValueError, match="embed: expected what can .*; got ZeroDivisionError: in"):
        call_user_code("embed", lambda given: 1 // 0, x)

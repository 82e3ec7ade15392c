import numpy as np
import pytest
import torch

from assay._support.random import mix_seed, seed_of, stream


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

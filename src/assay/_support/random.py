"""Every random number comes from a stream whose key says what the numbers are for.

``stream(seed, "null", 17)`` is a :class:`torch.Generator` on the CPU, seeded by hashing the user's
seed together with the key. A stream does not depend on which other streams were read before it, so
results are the same however the work is split. No global generator is read or set.
"""

import hashlib
import zlib

import numpy as np
import torch

Seed = int | torch.Generator


def seed_of(seed: Seed) -> int:
    """Returns a non-negative integer seed; a generator is advanced by one draw."""
    if isinstance(seed, torch.Generator):
        return int(torch.randint(2**62, (), generator=seed, device=seed.device))
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seed: expected an int or a torch.Generator; got {type(seed).__name__}.")
    if seed < 0:
        raise ValueError(f"seed: expected a non-negative int; got {seed}.")
    return int(seed)


def stream(seed: int, *key: int | str) -> torch.Generator:
    """Returns the generator of the stream whose key says in words and numbers what it is for.

    Example:
        >>> a = torch.rand(3, generator=stream(0, "null", 1))
        >>> torch.equal(a, torch.rand(3, generator=stream(0, "null", 1)))
        True
        >>> torch.equal(a, torch.rand(3, generator=stream(0, "null", 2)))
        False
    """
    words = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in key]
    state = np.random.SeedSequence([seed, *words]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))


def mix_seed(seed: int, content: np.ndarray | bytes) -> int:
    """A seed that depends on some content as well.

    With one and the same seed, two data sets then still meet independent nulls. The content must
    be something that no null changes, such as the order of x.
    """
    data = content if isinstance(content, bytes) else content.tobytes()
    digest = hashlib.blake2b(data, digest_size=8).digest()
    return (seed ^ int.from_bytes(digest, "big")) % 2**62

r"""One seed, many independent streams, and a global state that nobody touches.

Every random number in the library comes from a :class:`torch.Generator` on the CPU, seeded by
hashing the user's seed together with a key that says what the numbers are for, e.g.
``stream(seed, "null", 17)`` for the seventeenth null copy. A stream does not depend on which
other streams were read before it, so results are the same however the work is split.
"""

import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

__all__ = ["Seed", "isolated", "seed_of", "stream"]

Seed = int | torch.Generator


def seed_of(seed: Seed) -> int:
    """Returns a non-negative integer seed; a generator is advanced by one draw.

    Args:
        seed: A non-negative integer or a generator.
    """
    if isinstance(seed, torch.Generator):
        return int(torch.randint(2**62, (), generator=seed, device=seed.device))
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seed: expected an int or a torch.Generator; got {type(seed).__name__}.")
    if seed < 0:
        raise ValueError(f"seed: expected a non-negative int; got {seed}.")
    return int(seed)


def stream(seed: int, *key: int | str) -> torch.Generator:
    """Returns the generator of the stream named by `key`.

    Args:
        seed: The user's seed.
        key: What the stream is for, as words and numbers.

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


# The global generators are one for all threads.
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def isolated(generator: torch.Generator) -> Iterator[None]:
    """Runs foreign code that reads the global generators, and restores them afterwards.

    Args:
        generator: Seeds the global state inside the block.
    """
    seed = int(torch.randint(2**31, (), generator=generator))
    with _ONE_AT_A_TIME, torch.random.fork_rng():
        numpy_state = np.random.get_state()  # noqa: NPY002
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        try:
            yield
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002

"""Every random number comes from a stream whose key says what the numbers are for.

Results are then the same however the work is split. Global generators are seeded while functions
of the user run, and restored afterwards; no others are read or changed.
"""

import hashlib
import random
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .inputs import as_tensors, error_line

Seed = int | torch.Generator

_LOCK = threading.RLock()  # the global generators are one for all threads


def seed_of(seed: Seed) -> int:
    """A seed that is a non-negative integer; a generator is advanced by one draw."""
    if isinstance(seed, torch.Generator):
        return int(torch.randint(2**62, (), generator=seed, device=seed.device))
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise TypeError(f"seed: expected an int or a torch.Generator; got {type(seed).__name__}.")
    if seed < 0:
        raise ValueError(f"seed: expected a non-negative int; got {seed}.")
    return int(seed)


def stream(seed: int, *key: int | str) -> torch.Generator:
    """A generator on the CPU for what a key says, such as ``stream(seed, "null", 17)``."""
    words = [zlib.crc32(part.encode()) if isinstance(part, str) else part for part in key]
    state = np.random.SeedSequence([seed, *words]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))


def mix_seed(seed: int, content: np.ndarray | bytes) -> int:
    """A seed that depends on content too, such as the order of x, which no null changes."""
    data = content if isinstance(content, bytes) else content.tobytes()
    digest = hashlib.blake2b(data, digest_size=8).digest()
    return (seed ^ int.from_bytes(digest, "big")) % 2**62


@contextmanager
def isolated(generator: torch.Generator) -> Iterator[None]:
    """Seeds the global generators, which a user's code reads, and restores them afterwards."""
    seed = int(torch.randint(2**31, (), generator=generator, device="cpu"))
    with _LOCK, torch.random.fork_rng():
        numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002
            random.setstate(python_state)


def call_user_code(
    name: str, function: Callable[..., Any], *given: Any, generator: torch.Generator | None = None
) -> Tensor:
    """What a function of the user returns for copies, which it may change, as a tensor.

    Global generators are seeded meanwhile, by the name if no generator is given.
    """
    with torch.no_grad(), isolated(stream(0, name) if generator is None else generator):
        try:
            found = function(*map(_copied, given))
        except Exception as error:
            words = "expected what can be called here"
            raise ValueError(f"{name}: {words}; got {error_line(error)}.") from error
    return as_tensors({name: found})[name]


def _copied(given: Any) -> Any:
    if isinstance(given, Mapping):
        return {name: _copied(part) for name, part in given.items()}
    return given.clone() if isinstance(given, Tensor) else given

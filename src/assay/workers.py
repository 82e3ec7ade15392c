"""Work spread over threads, one to a piece, rather than all threads to each small product."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["spread_over"]


@contextmanager
def spread_over(workers: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """A map over pieces of work, in order; while one thread waits for Python another computes.

    Args:
        workers: The number of threads; with one, the map is Python's own.

    Example:
        >>> with spread_over(2) as apply:
        ...     list(apply(abs, [-1, 2]))
        [1, 2]
    """
    if workers == 1:
        yield map
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    pool = ThreadPoolExecutor(workers)
    try:
        yield pool.map
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)

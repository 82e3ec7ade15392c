"""Work spread over threads, one to a piece, rather than all threads to each small product."""

import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["one_thread", "spread_over"]


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
    pool = ThreadPoolExecutor(workers)
    with one_thread():
        try:
            yield pool.map
        finally:
            pool.shutdown(cancel_futures=True)


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread to a product: small ones would wait for their threads, on busy cores for long."""
    _SINGLE.enter()
    try:
        yield
    finally:
        _SINGLE.leave()


class _Single:
    """One thread to a product as long as anybody spreads; the last one gives the others back."""

    def __init__(self) -> None:
        self.lock, self.users, self.before = threading.Lock(), 0, 1

    def enter(self) -> None:
        with self.lock:
            if not self.users:
                self.before = torch.get_num_threads()
                torch.set_num_threads(1)
            self.users += 1

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                torch.set_num_threads(self.before)


_SINGLE = _Single()

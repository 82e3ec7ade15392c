"""Work over threads and executors.

Each piece of work has one thread, rather than all threads for each small product.
"""

import itertools
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from .inputs import N, check_kind, error_line


def map_in_threads(work: Callable[[Any], N], items: Sequence[Any]) -> list[N]:
    """Values of a function at some items, over the threads there are, one to an item.

    The values have the same bits whatever the number of threads, if the caller runs in
    :func:`one_thread`.

    Example:
        >>> map_in_threads(abs, [-1, 2])
        [1, 2]
    """
    with spread_over(min(available_threads(), len(items))) as apply:
        return list(apply(work, items))


def available_threads() -> int:
    """Torch's number of threads, before anybody asked for one to a product."""
    return _SINGLE_THREAD.before if _SINGLE_THREAD.users else torch.get_num_threads()


@contextmanager
def spread_over(workers: int, each: int = 1) -> Iterator[Callable[..., Iterable[Any]]]:
    """A map over pieces of work, in order; while one thread waits for Python another computes.

    With more than one thread to each where pieces are few.

    Example:
        >>> with spread_over(2) as apply:
        ...     list(apply(abs, [-1, 2]))
        [1, 2]
    """
    if workers == 1:
        yield map
        return
    pool = ThreadPoolExecutor(workers)
    with one_thread(each):
        try:
            yield pool.map
        finally:
            pool.shutdown(cancel_futures=True)


# Jobs that wait at an executor, at most, and how often one is given to it whose worker dies.
IN_FLIGHT, TRIES = 64, 3


def run_jobs(
    executor: Executor | None, work: Callable[[Any], Any], jobs: Iterable[Any]
) -> Iterator[tuple[int, Any]]:
    """Numbers of jobs with what came of them, as they are done, by any executor.

    A job whose worker died is given to the executor again, and is run here if that does not help:
    nothing is lost. Other errors are those of the work. Without an executor all is run here.

    Example:
        >>> with ThreadPoolExecutor(2) as executor:
        ...     sorted(run_jobs(executor, abs, [-1, 2, -3]))
        [(0, 1), (1, 2), (2, 3)]
    """
    if executor is None:
        yield from ((i, work(job)) for i, job in enumerate(jobs))
        return
    todo, flying = enumerate(jobs), _Pending(executor, work)
    try:
        for i, job in itertools.islice(todo, IN_FLIGHT):
            flying.submit(i, job)
        while flying.jobs:
            for i, found in flying.finished():
                yield i, found
                for number, job in itertools.islice(todo, 1):
                    flying.submit(number, job)
    finally:
        for future in flying.jobs:
            future.cancel()


class _Pending:
    """Jobs that are at an executor."""

    def __init__(self, executor: Executor, work: Callable[[Any], Any]) -> None:
        self.executor, self.work = executor, work
        self.jobs: dict[Future[Any], tuple[int, Any, int]] = {}

    def submit(self, number: int, job: Any, tries: int = 1) -> None:
        """Gives one to the executor, or runs it here if that takes none any more."""
        try:
            future = self.executor.submit(self.work, job)
        except BrokenExecutor as error:
            future = self._here(job, error)
        except RuntimeError as error:
            raise ValueError(
                f"executor: expected one that takes work; got {error_line(error)}."
            ) from error
        check_kind("executor", future, "one that returns futures", "result", "cancel")
        self.jobs[future] = number, job, tries

    def finished(self) -> list[tuple[int, Any]]:
        """Those that are done, at least one if none is given again."""
        done, found = wait(self.jobs, return_when=FIRST_COMPLETED).done, []
        for future in done:
            number, job, tries = self.jobs.pop(future)
            try:
                found.append((number, future.result()))
            except (Exception, CancelledError) as error:
                if not _worker_died(error):
                    raise
                if tries < TRIES:
                    self.submit(number, job, tries + 1)
                else:
                    found.append((number, self._here(job, error).result()))
        return found

    def _here(self, job: Any, error: BaseException) -> Future[Any]:
        warnings.warn(f"a worker died ({error_line(error)}); its work is done here.", stacklevel=4)
        future: Future[Any] = Future()
        future.set_result(self.work(job))
        return future


def _worker_died(error: BaseException) -> bool:
    """Whether it tells of a worker, and not of the work."""
    lost = isinstance(error, BrokenExecutor | CancelledError)
    return lost or type(error).__module__.partition(".")[0] == "distributed"


@contextmanager
def one_thread(threads: int = 1) -> Iterator[None]:
    """One thread to a product: small ones would wait for their threads, on busy cores for long."""
    _SINGLE_THREAD.enter(threads)
    try:
        yield
    finally:
        _SINGLE_THREAD.leave()


class _SingleThread:
    """One thread to a product as long as anybody spreads; the last one gives the others back."""

    def __init__(self) -> None:
        self.lock, self.users, self.before = threading.Lock(), 0, 1
        self.limits: Any = None

    def enter(self, threads: int) -> None:
        with self.lock:
            if not self.users:
                self.before = torch.get_num_threads()
                self.limits = threadpool_limits(1, "blas")  # NumPy's threads
                torch.set_num_threads(threads)
            self.users += 1

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                self.limits.restore_original_limits()
                torch.set_num_threads(self.before)


_SINGLE_THREAD = _SingleThread()

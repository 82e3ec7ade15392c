"""Work over threads and executors, and within a time limit.

Each piece of work has one thread, rather than all threads for each small product.
"""

import itertools
import signal
import sys
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
from types import FrameType, SimpleNamespace
from typing import Any

import torch
from threadpoolctl import threadpool_limits

from .inputs import N, check_kind, error_line

# Jobs that wait at an executor, at most, and how often one is submitted whose worker dies.
IN_FLIGHT, TRIES = 64, 3


def map_in_threads(work: Callable[[Any], N], items: Sequence[Any]) -> list[N]:
    """Values of a function at some items, over the threads there are, one to an item.

    The values have the same bits whatever the number of threads, if the caller runs in
    :func:`one_thread`.
    """
    with spread_over(min(available_threads(), len(items))) as apply:
        return list(apply(work, items))


@contextmanager
def spread_over(workers: int, each: int = 1) -> Iterator[Callable[..., Iterable[Any]]]:
    """A map over pieces of work, in order; while one thread waits for Python another computes.

    With more than one thread to each where pieces are few.
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


# Who asks for few threads to a product, and what is restored when nobody does any more.
_LIMIT = SimpleNamespace(lock=threading.Lock(), users=0, before=1, blas=None)


@contextmanager
def one_thread(threads: int = 1) -> Iterator[None]:
    """One thread to a product: small ones would wait for their threads, on busy cores for long."""
    with _LIMIT.lock:
        if not _LIMIT.users:
            _LIMIT.before = torch.get_num_threads()
            _LIMIT.blas = threadpool_limits(1, "blas")  # NumPy's threads
            torch.set_num_threads(threads)
        _LIMIT.users += 1
    try:
        yield
    finally:
        with _LIMIT.lock:
            _LIMIT.users -= 1
            if not _LIMIT.users:
                _LIMIT.blas.restore_original_limits()
                torch.set_num_threads(_LIMIT.before)


def available_threads() -> int:
    """Torch's number of threads, before anybody asked for one to a product."""
    return _LIMIT.before if _LIMIT.users else torch.get_num_threads()


def run_jobs(
    executor: Executor | None, work: Callable[[Any], Any], jobs: Iterable[Any]
) -> Iterator[tuple[int, Any]]:
    """Numbers of jobs and their results, as they are done, by any executor.

    A job whose worker died is submitted again, and is run here if that does not help: nothing is
    lost. Other errors are those of the work. Without an executor all is run here.
    """
    if executor is None:
        yield from ((i, work(job)) for i, job in enumerate(jobs))
        return
    rest, pending = enumerate(jobs), dict[Future[Any], tuple[int, Any, int]]()
    try:
        while True:
            for number, job in itertools.islice(rest, IN_FLIGHT - len(pending)):
                pending[_submit(executor, work, job)] = number, job, 1
            if not pending:
                return
            for future in wait(pending, return_when=FIRST_COMPLETED).done:
                number, job, tries = pending.pop(future)
                error = _worker_error(future)
                if error is None:
                    yield number, future.result()
                elif tries < TRIES:
                    pending[_submit(executor, work, job)] = number, job, tries + 1
                else:
                    yield number, _run_here(work, job, error)
    finally:
        for future in pending:
            future.cancel()


def _submit(executor: Executor, work: Callable[[Any], Any], job: Any) -> Future[Any]:
    """A job's future; it is run here if the executor takes none any more."""
    try:
        future = executor.submit(work, job)
    except BrokenExecutor as error:
        future = Future()
        future.set_result(_run_here(work, job, error))
    except RuntimeError as error:
        raise ValueError(
            f"executor: expected one that takes work; got {error_line(error)}."
        ) from error
    check_kind("executor", future, "one that returns futures", "result", "cancel")
    return future


def _worker_error(future: Future[Any]) -> BaseException | None:
    """The error of a worker that died; errors of the work itself are raised."""
    try:
        future.result()
    except Exception as error:
        lost = isinstance(error, BrokenExecutor | CancelledError)
        if lost or type(error).__module__.partition(".")[0] == "distributed":
            return error
        raise
    return None


def _run_here(work: Callable[[Any], Any], job: Any, error: BaseException) -> Any:
    warnings.warn(f"a worker died ({error_line(error)}); its work is done here.", stacklevel=4)
    return work(job)


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Stops Python after so many seconds by a :class:`TimeoutError`, where that can be done."""
    if sys.platform == "win32" or threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no draws within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

"""Long work: over threads and executors, within a time limit, with progress.

Each piece of work has one thread, rather than all threads for each small product. Progress is a
bar on a terminal, and a line now and then in a log.
"""

import itertools
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
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
from contextvars import ContextVar
from types import FrameType, SimpleNamespace
from typing import Any, Self

import torch
from threadpoolctl import threadpool_limits
from tqdm import tqdm

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


# Progress.

_SILENT: ContextVar[bool] = ContextVar("silent", default=False)
_STAGES: ContextVar["Stages | None"] = ContextVar("stages", default=None)
# Seconds between two lines on work that goes on where there is no terminal.
PATIENCE = 30.0
# The share of a stage that a part of unknown weight is taken for.
SHARE_OF_A_STAGE = 0.8


def progress(
    items: Iterable[Any] | None = None, desc: str = "", *, silent: bool | None = None, **how: Any
) -> Any:
    """A :class:`tqdm.tqdm` bar on a terminal, which leaves nothing behind.

    In a pipe it is a line every 30 seconds, and nothing for what takes less; inside of
    :class:`Stages` it moves their bar. Without items it is moved by hand. Whether it is `silent`
    is left to the terminal if None.
    """
    silent, stages = True if _SILENT.get() else silent, _STAGES.get()
    if stages is not None and not silent:
        return _Part(items, how.get("total"), stages)
    if silent is None and (sys.stderr is None or not sys.stderr.isatty()):
        return _Lines(items, how.get("total"), desc)
    return tqdm(items, desc, disable=silent, leave=False, dynamic_ncols=True, **how)


@contextmanager
def without_progress() -> Iterator[None]:
    """Runs work many times over without a bar for each."""
    token = _SILENT.set(True)  # noqa: FBT003
    try:
        yield
    finally:
        _SILENT.reset(token)


class _Counted:
    """How much of some work is done, with the methods of a bar: by items, or by hand."""

    def __init__(self, items: Iterable[Any] | None, total: float | None) -> None:
        self.items, self.n = items, 0.0
        self.total = len(items) if total is None and isinstance(items, Sized) else total

    def __iter__(self) -> Iterator[Any]:
        with self:
            for item in () if self.items is None else self.items:
                yield item
                self.update()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def update(self, n: float = 1) -> None:
        self.n += n

    def close(self) -> None:
        pass


class _Lines(_Counted):
    """Progress as a whole line now and then, for logs."""

    def __init__(self, items: Iterable[Any] | None, total: float | None, desc: str) -> None:
        super().__init__(items, total)
        self.desc, self.start = desc, time.monotonic()
        self.last = self.start

    def set_description_str(self, desc: str) -> None:
        self.desc = desc

    def update(self, n: float = 1) -> None:
        super().update(n)
        now = time.monotonic()
        if now - self.last < PATIENCE:
            return
        self.last, elapsed = now, now - self.start
        words = tqdm.format_interval(elapsed)
        if self.total and self.n:
            left = tqdm.format_interval(elapsed * max(0.0, self.total / self.n - 1))
            words = f"{self.n / self.total:.0%}, {words}, about {left} left"
        elif self.n:
            words = f"{words}, {self.n:g} done"
        sys.stderr.write(f"{self.desc or 'working'}: {words}\n")
        sys.stderr.flush()


class Stages:
    """One bar for work in named stages; bars inside of it move it, and are not displayed.

    Args:
        desc: What is done.
        shares: The time that each stage takes, about, in any unit.
    """

    def __init__(self, desc: str, shares: Mapping[str, float]) -> None:
        self.desc, self.shares = desc, dict(shares)
        self.done, self.end, self.parts, self.busy = 0.0, 0.0, 0, False
        form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left"
        total = float(sum(self.shares.values()))
        # Shares are rough: the mean pace tells more than the last one.
        self.bar = progress(desc=desc, total=total, bar_format=form, smoothing=0, miniters=0)

    def __enter__(self) -> Self:
        self.token = _STAGES.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _STAGES.reset(self.token)
        self.bar.close()

    def enter(self, stage: str, parts: int = 1) -> None:
        """Ends the stage before; this one has so many bars, about alike, and perhaps more."""
        self.move(self.end)
        self.end += self.shares[stage]
        self.parts = parts
        self.bar.set_description_str(f"{self.desc}, {stage}")

    def move(self, to: float) -> None:
        """Moves the bar, never back."""
        step = max(0.0, to - self.done)
        self.done += step
        self.bar.update(step)


class _Part(_Counted):
    """A bar inside of stages, which moves theirs; one inside of another does nothing."""

    def __init__(self, items: Iterable[Any] | None, total: float | None, stages: Stages) -> None:
        super().__init__(items, total)
        self.stages, self.start, self.end, self.moves = stages, 0.0, 0.0, False

    def __enter__(self) -> Self:
        stages = self.stages
        if not stages.busy:
            share = 1 / stages.parts if stages.parts > 1 else SHARE_OF_A_STAGE
            stages.parts -= 1
            self.start, self.end = stages.done, stages.done + share * (stages.end - stages.done)
            self.moves = stages.busy = True
        return self

    def update(self, n: float = 1) -> None:
        super().update(n)
        if self.moves and self.total:
            share = min(1.0, self.n / self.total)
            self.stages.move(self.start + share * (self.end - self.start))

    def close(self) -> None:
        if self.moves:
            self.stages.move(self.end)
            self.moves = self.stages.busy = False

"""Long work: over threads and executors, within a time limit, with progress."""

import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent import futures
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import islice
from types import FrameType, SimpleNamespace
from typing import Any, Self

import torch
from threadpoolctl import threadpool_limits
from tqdm import tqdm

from .inputs import N, check_kind, error_line

IN_FLIGHT = 64  # jobs that wait at an executor, at most
TRIES = 3  # how often a job is submitted whose worker dies
PATIENCE = 30.0  # seconds between two lines on progress where there is no terminal
SHARE_OF_A_STAGE = 0.8  # of what is left of it, which one bar inside of it is taken for


def map_in_threads(work: Callable[[Any], N], items: Sequence[Any]) -> list[N]:
    """Values of a function at some items, over the threads there are, one to an item."""
    with spread_over(min(available_threads(), len(items))) as apply:
        return list(apply(work, items))


@contextmanager
def spread_over(workers: int, each: int = 1) -> Iterator[Callable[..., Iterable[Any]]]:
    """A map over pieces of work, in order, with some threads to each piece."""
    if workers == 1:
        yield map
        return
    pool = futures.ThreadPoolExecutor(workers)
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
    """Numbers of jobs and their results, as they are done, by any executor; here without one.

    A job whose worker died is submitted again, and is run here if that does not help.
    """
    if executor is None:
        yield from ((i, work(job)) for i, job in enumerate(jobs))
        return
    rest, pending = enumerate(jobs), dict[Future[Any], tuple[int, Any, int]]()
    try:
        while True:
            for number, job in islice(rest, IN_FLIGHT - len(pending)):
                pending[_submit(executor, work, job)] = number, job, 1
            if not pending:
                return
            for future in futures.wait(pending, return_when=futures.FIRST_COMPLETED).done:
                number, job, tries = pending.pop(future)
                try:
                    result = future.result()
                except Exception as error:
                    lost = isinstance(error, BrokenExecutor | futures.CancelledError)
                    if not lost and type(error).__module__.partition(".")[0] != "distributed":
                        raise
                    if tries < TRIES:
                        pending[_submit(executor, work, job)] = number, job, tries + 1
                        continue
                    words = f"a worker died ({error_line(error)}); its work is done here."
                    warnings.warn(words, stacklevel=2)
                    result = work(job)
                yield number, result
    finally:
        for future in pending:
            future.cancel()


def _submit(executor: Executor, work: Callable[[Any], Any], job: Any) -> Future[Any]:
    """A job's future, which has failed if the executor is broken."""
    try:
        future = executor.submit(work, job)
    except BrokenExecutor as error:
        future = Future()
        future.set_exception(error)
    except RuntimeError as error:
        words = "executor: expected one that takes work"
        raise ValueError(f"{words}; got {error_line(error)}.") from error
    check_kind("executor", future, "one that returns futures", "result", "cancel")
    return future


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


_SILENT: ContextVar[bool] = ContextVar("silent", default=False)
_STAGES: ContextVar["Stages | None"] = ContextVar("stages", default=None)


def progress(
    items: Iterable[Any] | None = None, desc: str = "", *, silent: bool | None = None, **how: Any
) -> Any:
    """A bar on a terminal, which leaves nothing behind, and a line every 30 seconds in a log.

    Inside of :class:`Stages` it moves theirs. Without items it is moved by hand.
    """
    silent = True if _SILENT.get() or sys.stderr is None else silent
    if (stages := _STAGES.get()) and not silent:
        return _Part(stages, items, how.get("total"))
    if silent is None and not sys.stderr.isatty():
        slow = {"mininterval": PATIENCE, "delay": PATIENCE, "miniters": 0, "smoothing": 0}
        return _Lines(items, desc or "working", leave=False, **how | slow)
    return tqdm(items, desc, disable=silent, leave=False, dynamic_ncols=True, **how)


@contextmanager
def without_progress() -> Iterator[None]:
    """Runs work many times over without a bar for each."""
    token = _SILENT.set(True)  # noqa: FBT003
    try:
        yield
    finally:
        _SILENT.reset(token)


class _Lines(tqdm):  # type: ignore[misc]
    """Progress as a whole line now and then, for logs."""

    monitor_interval = 0  # no thread that looks after it

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if msg is None:  # otherwise it is to be removed
            known = self.total and 0 < self.n <= self.total
            share = "{percentage:.0f}%, {elapsed}, about {remaining} left"
            self.bar_format = "{desc}: " + (share if known else "{elapsed}, {n:g} done")
            self.fp.write(f"{self}\n")
            self.fp.flush()

    def set_description_str(self, desc: str, *_: Any) -> None:
        self.desc = desc


class _Part(tqdm):  # type: ignore[misc]
    """A bar inside of stages, which moves theirs; one inside of another does nothing."""

    monitor_interval = 0

    def __init__(self, stages: "Stages", items: Iterable[Any] | None, total: float | None) -> None:
        self.stages = None if stages.busy else stages
        self.start, self.length = stages.done, SHARE_OF_A_STAGE * (stages.end - stages.done)
        stages.busy = True
        super().__init__(items, total=total, leave=False, mininterval=0, miniters=0)

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        if self.stages and self.total:
            self.stages.move(self.start + min(1.0, self.n / self.total) * self.length)

    def close(self) -> None:
        if self.stages:
            self.stages.move(self.start + self.length)
            self.stages.busy = False
        self.stages = None
        super().close()


class Stages:
    """One bar for work in named stages, with their shares of the time; bars inside move it."""

    def __init__(self, desc: str, shares: Mapping[str, float]) -> None:
        self.desc, self.shares = desc, shares
        self.done, self.end, self.busy = 0.0, 0.0, False
        form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left"
        # Shares are rough: the mean pace tells more than the last one.
        how: dict[str, Any] = {"bar_format": form, "smoothing": 0, "miniters": 0}
        self.bar = progress(desc=desc, total=float(sum(shares.values())), **how)

    def __enter__(self) -> Self:
        self.token = _STAGES.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _STAGES.reset(self.token)
        self.bar.close()

    def enter(self, stage: str) -> None:
        """Ends the stage before, and begins one."""
        self.move(self.end)
        self.end += self.shares[stage]
        self.bar.set_description_str(f"{self.desc}, {stage}")

    def move(self, to: float) -> None:
        """Moves the bar, never back."""
        step = max(0.0, to - self.done)
        self.done += step
        self.bar.update(step)

"""Functions of the user run on copies, with global generators seeded and restored."""

import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .inputs import as_tensors, cpu, error_line
from .random import stream

# The global generators are one for all threads.
_LOCK = threading.RLock()


@contextmanager
def isolated(generator: torch.Generator) -> Iterator[None]:
    """Seeds the global generators, which code of others reads, and restores them afterwards."""
    seed = int(cpu.randint(2**31, (), generator=generator))
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
    """What code of others makes of copies, which it may change: a tensor of our own.

    Global generators are seeded meanwhile, by the name if no generator is given.

    Example:
        >>> x = torch.zeros(2)
        >>> call_user_code("embed", lambda x: x.add_(1).tolist(), x), x
        (tensor([1., 1.], dtype=torch.float64), tensor([0., 0.]))
    """
    with torch.no_grad(), isolated(stream(0, name) if generator is None else generator):
        try:
            found = function(*map(_copied, given))
        except Exception as error:
            raise ValueError(
                f"{name}: expected what can be called here; got {error_line(error)}."
            ) from error
    return as_tensors({name: found})[name]


def _copied(given: Any) -> Any:
    """The same numbers in memory of their own."""
    if isinstance(given, Mapping):
        return {name: _copied(part) for name, part in given.items()}
    return given.clone() if isinstance(given, Tensor) else given


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Stops Python after so many seconds by a :class:`TimeoutError`, where that can be done.

    Example:
        >>> import time
        >>> with time_limit(0.01):
        ...     time.sleep(1)
        Traceback (most recent call last):
        ...
        TimeoutError: no draws within 0.01 s
    """
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

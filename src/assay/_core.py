r"""What everything stands on: checked input, named random streams, threads, and whole files.

**Input** of any library is brought to tensors, or refused: a message names the argument, says
what was expected and what came, and where it is not obvious, what to do.

**Randomness.** Every random number comes from a :class:`torch.Generator` on the CPU, seeded by
hashing the user's seed together with a key that says what the numbers are for, e.g.
``stream(seed, "null", 17)`` for the seventeenth null copy. A stream does not depend on which other
streams were read before it, so results are the same however the work is split. No global
generator is read or set.

**Threads.** Work is spread over threads, one to a piece, rather than all threads to each small
product.
"""

import errno
import hashlib
import itertools
import math
import os
import random
import re
import secrets
import signal
import stat
import sys
import threading
import time
import unicodedata
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, Sized
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    CancelledError,
    Executor,
    Future,
    ThreadPoolExecutor,
    wait,
)
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import replace
from functools import partial, reduce
from importlib.metadata import version
from numbers import Real
from pathlib import Path
from types import FrameType
from typing import IO, Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor
from tqdm import tqdm

if sys.platform != "win32":
    import fcntl

N = TypeVar("N")


class cpu:  # noqa: N801
    """Torch's own factories on the CPU, in single precision: they read no global default.

    Example:
        >>> cpu.zeros(2, dtype=torch.float64)
        tensor([0., 0.], dtype=torch.float64)
    """

    _numbers: ClassVar[dict[str, Any]] = {"dtype": torch.float32, "device": "cpu"}
    rand = staticmethod(partial(torch.rand, **_numbers))
    randn = staticmethod(partial(torch.randn, **_numbers))
    zeros = staticmethod(partial(torch.zeros, **_numbers))
    ones = staticmethod(partial(torch.ones, **_numbers))
    full = staticmethod(partial(torch.full, **_numbers))
    eye = staticmethod(partial(torch.eye, **_numbers))
    linspace = staticmethod(partial(torch.linspace, **_numbers))
    tensor = staticmethod(partial(torch.tensor, **_numbers))
    # Whole numbers.
    randint = staticmethod(partial(torch.randint, device="cpu"))
    randperm = staticmethod(partial(torch.randperm, device="cpu"))
    arange = staticmethod(partial(torch.arange, device="cpu"))
    triu_indices = staticmethod(partial(torch.triu_indices, device="cpu"))


@contextmanager
def own_terms() -> Iterator[None]:
    """Torch in full precision, and NumPy that raises nothing, whatever the caller switched on.

    Example:
        >>> with torch.autocast("cpu"), own_terms():
        ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
        torch.float32
    """
    with ExitStack() as stack:
        for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(torch.inference_mode(mode=False))
        heard: dict[str, Any] = {
            kind: "warn" if how == "raise" else how for kind, how in np.geterr().items()
        }
        stack.enter_context(np.errstate(**heard | {"under": "ignore"}))
        yield


@own_terms()
def as_tensors(given: dict[str, Any]) -> dict[str, Tensor]:
    """Brings arrays of any library to tensors of one floating type on one device."""
    arrays = {name: _tensor(name, array) for name, array in given.items()}
    devices = {array.device for array in arrays.values()}
    if len(devices) > 1:
        where = ", ".join(f"{name} on {array.device}" for name, array in arrays.items())
        raise ValueError(f"device: expected all arrays on one device; got {where}.")
    for name, array in arrays.items():
        if array.is_meta:
            raise TypeError(f"{name}: expected an array of real numbers; got a meta tensor.")
    dtypes = (array.dtype for array in arrays.values())
    dtype = reduce(torch.promote_types, dtypes, torch.float32)
    return {name: array.to(dtype) for name, array in arrays.items()}


def _tensor(name: str, given: Any) -> Tensor:
    if isinstance(given, Tensor):
        array = _from_torch(name, given)
    else:
        array = _from_numpy(name, given)
    if array.numel() == 0:
        raise ValueError(f"{name}: expected a non-empty array; got shape {tuple(array.shape)}.")
    return array


def _from_torch(name: str, given: Tensor) -> Tensor:
    """A copy: what was checked must not change under the caller's hands afterwards."""
    strange = given.is_complex() or given.layout != torch.strided or given.is_nested
    if strange or isinstance(given, torch.masked.MaskedTensor):
        raise TypeError(
            f"{name}: expected a dense array of real numbers; got {given.dtype}, {given.layout}, "
            f"{type(given).__name__} on {given.device}."
        )
    array = given.detach().dequantize() if given.is_quantized else given.detach().clone()
    if not array.is_floating_point():
        return array.to(torch.float64)
    # Eight bits are promoted to nothing.
    return array.float() if array.dtype.itemsize == 1 else array


def _from_numpy(name: str, given: Any) -> Tensor:
    rows = given if isinstance(given, list | tuple) else (given,)
    if any(np.ma.is_masked(row) for row in rows):
        raise ValueError(
            f"{name}: expected numbers; got an array with masked ones. Leave these rows out, or "
            "fill them."
        )
    try:
        array = np.asarray(given)
    except (ValueError, RuntimeError, TypeError) as error:
        ragged = "rows of different lengths. Pad them with NaN; x is then read by embed="
        words = ragged if "inhomogeneous" in str(error) else str(error).rstrip(".")
        raise TypeError(f"{name}: expected an array of numbers; got {words}.") from error
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected an array of real numbers; got {array.dtype}.")
    # Extended precision, foreign byte orders and negative strides are not for torch.
    single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    dtype = torch.float32 if single else torch.float64
    # In memory of torch, which is aligned, as the same bits of products ask for.
    own = torch.empty(array.shape, dtype=dtype, device="cpu")
    own.numpy()[...] = array
    return own


def check_finite(name: str, array: Tensor, remedy: str = "") -> None:
    """Refuses NaN and infinity, with their count and first rows."""
    bad = ~array.isfinite().reshape(len(array) if array.ndim else 1, -1).all(1)
    if bad.any():
        first = bad.nonzero().flatten()[:5].tolist()
        raise ValueError(
            f"{name}: expected finite numbers; got NaN or infinity in {int(bad.sum())} of "
            f"{len(bad)} rows, first at {first}. {remedy}".strip()
        )


def as_device(device: str | torch.device) -> torch.device:
    """Returns a device that is there."""
    there = ["cpu"] + ["cuda"] * torch.cuda.is_available()
    check_kind("device", device, f"one of {there}", str, torch.device)
    try:
        torch.empty(0, dtype=torch.float32, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device: expected one of {there}; got {str(device)!r}.") from error
    if torch.device(device).type == "meta":
        raise ValueError(f"device: expected one of {there}; got 'meta', which holds no numbers.")
    return torch.device(device)


# More than anybody makes of anything; and of what is taken only as far as it is there.
MOST, ALL = 10**7, 10**9
# Bytes of a number, at most.
WORD = 8
# More than anybody asks for where the square of it is made: units of a layer, features.
MOST_SQUARED = 10**4


def check_count(name: str, value: Any, least: int = 1, most: float = MOST) -> int:
    """Returns a whole number of at least `least` and at most `most`, or refuses."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected a whole number; got {shown(value)}.")
    if value < least:
        raise ValueError(f"{name}: expected at least {least}; got {value}.")
    if value > most:
        raise ValueError(f"{name}: expected at most {most}; got {value}.")
    return int(value)


def check_fits(name: str, count: int, each: int) -> None:
    """Refuses so many of what takes so many bytes each, where memory has no room for them."""
    most = memory() // max(1, each)
    if count > most:
        raise ValueError(
            f"{name}: expected at most {most}, for which there is memory here; got {count}."
        )


def memory() -> int:
    """The bytes of this machine; no end to them where it does not tell."""
    if sys.platform == "win32" or "SC_PHYS_PAGES" not in os.sysconf_names:
        return sys.maxsize
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_number(name: str, value: Any, *, least: float = 0.0, strict: bool = True) -> float:
    """Returns a finite number above `least`, or refuses."""
    real = _real(name, value)
    if not math.isfinite(real) or real < least or (strict and real == least):
        bound = "above" if strict else "of at least"
        raise ValueError(f"{name}: expected a finite number {bound} {least:g}; got {real}.")
    return real


def check_numbers(name: str, given: Any) -> list[float]:
    """Returns some numbers above 0, of one or of many, or refuses; none is fine."""
    check_count(f"numbers of {name}", np.size(np.asarray(given, dtype=object)), 0, MOST_SQUARED)
    return [check_number(name, one) for one in np.atleast_1d(np.asarray(given, dtype=object))]


def check_share(name: str, value: Any) -> float:
    """Returns a number between 0 and 1, both excluded, or refuses."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not 0 < value < 1:
        raise ValueError(f"{name}: expected a number between 0 and 1; got {value!r}.")
    return float(value)


def _real(name: str, value: Any) -> float:
    """A number of any library as Python's own; what is too large for it is infinite."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: expected a number; got {shown(value)}.")
    try:
        return float(value)
    except OverflowError:
        return math.inf


def as_null(null: Any, default: N, *kinds: type, hint: str = "Exchange(99)") -> N:
    """A null of the kinds as it is, the default one if None or in so many copies, or refuses.

    Example:
        >>> as_null(39, assay.Exchange(), assay.Exchange)
        Exchange(n=39)
    """
    if null is None:
        return default
    if isinstance(null, int | np.integer) and not isinstance(null, bool):
        return replace(default, n=check_count("null", null))  # type: ignore[type-var]
    check_kind("null", null, f"a number of copies or a null such as {hint}", *kinds)
    return null  # type: ignore[no-any-return]


def check_kind(name: str, value: Any, expected: str, *kinds: type | str) -> None:
    """Refuses what is of none of the kinds, or lacks a member; and a class for its instance."""
    classes = tuple(kind for kind in kinds if isinstance(kind, type))
    members = (kind for kind in kinds if isinstance(kind, str))
    lacks = any(not hasattr(value, member) for member in members)
    if isinstance(value, type) or lacks or (classes and not isinstance(value, classes)):
        raise TypeError(f"{name}: expected {expected}; got {shown(value)}.")


def check_function(name: str, value: Any, expected: str) -> None:
    """Refuses what cannot be called, and a class, which is called to make something else."""
    if not callable(value) or isinstance(value, type):
        raise TypeError(f"{name}: expected {expected}; got {shown(value)}.")


def check_executor(executor: Any) -> None:
    """Refuses what runs nothing; None is fine."""
    if executor is not None:
        check_kind("executor", executor, EXECUTOR, "submit")
        check_function("executor", executor.submit, EXECUTOR)


EXECUTOR = "a concurrent.futures.Executor, or None"


def check_path(path: Any, name: str = "path", expected: str = "the path of a file") -> Path:
    """A path, or refuses what can be none."""
    check_kind(name, path, expected, str, os.PathLike)
    given = os.fspath(path)
    if not given or isinstance(given, bytes) or "\0" in given:
        raise ValueError(f"{name}: expected {expected}; got {given!r}.")
    return Path(given)


def check_names(name: str, given: Any, count: int) -> tuple[str, ...]:
    r"""So many different names, each in one line, or refuses.

    Example:
        >>> check_names("names", ["mu", "a\nb"], 2)
        ('mu', 'a b')
    """
    each = (given,) if isinstance(given, str) else given
    unordered = isinstance(each, Set | Mapping)
    if not isinstance(each, Iterable) or unordered or isinstance(each, type | bytes | Tensor):
        raise TypeError(f"{name}: expected {count} names in order; got {shown(given)}.")
    words = ("" if one is None else str(one) for one in each)
    names = tuple(printable(" ".join(word.split())) for word in words)
    looks = {_look(one) for one in names}
    if len(names) != count or len(looks) < count or "" in looks:
        raise ValueError(f"{name}: expected {count} different names; got {names!r}.")
    return names


def _look(text: str) -> str:
    """What is seen of a text: accents however they are written, and nothing that is invisible."""
    seen = (letter for letter in text if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFC", "".join(seen)).strip()


def shown(value: Any) -> str:
    """The kind of a value that is not what it should be.

    Example:
        >>> shown("a"), shown(list)
        ('str', 'the class list')
    """
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def said(problem: BaseException) -> str:
    r"""An error in one line.

    Example:
        >>> said(ValueError("a\nb"))
        'ValueError: a b'
    """
    return " ".join(f"{type(problem).__name__}: {problem}".split())


# What moves a cursor, rings, or turns the text around it; not tabs and ends of lines.
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""A text that can be printed anywhere, and cannot steer a terminal.

    Example:
        >>> printable("a\x1b[2Jb")
        'a\ufffd[2Jb'
    """
    return CONTROL.sub("\ufffd", text)


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


_QUIET: ContextVar[bool] = ContextVar("quiet", default=False)
_WHOLE: ContextVar["Stages | None"] = ContextVar("whole", default=None)
# Seconds between two lines on work that goes on where there is no terminal.
PATIENCE = 30.0
# The share of a stage that a part of unknown weight is taken for.
MOST_OF_IT = 0.8


def progress(
    items: Iterable[Any] | None = None, desc: str = "", *, silent: bool | None = None, **how: Any
) -> Any:
    """A :class:`tqdm.tqdm` bar on a terminal, which leaves nothing behind.

    In a pipe it is a line every 30 seconds, and nothing for what takes less; inside of
    :class:`Stages` it moves their bar. Without items it is moved by hand. Whether it is `silent`
    is left to the terminal if None.
    """
    quiet, whole = True if _QUIET.get() else silent, _WHOLE.get()
    if whole is not None and not quiet:
        return _Part(items, how.get("total"), whole)
    if quiet is None and not _terminal():
        return _Lines(items, how.get("total"), desc)
    return tqdm(items, desc, disable=quiet, leave=False, dynamic_ncols=True, **how)


def _terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


class _Counted:
    """What is done of some work, by items or by hand, as of a bar."""

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
        """So much more is done."""
        self.n += n

    def close(self) -> None:
        """All is done."""


class _Lines(_Counted):
    """Progress as a whole line now and then, for logs."""

    def __init__(self, items: Iterable[Any] | None, total: float | None, desc: str) -> None:
        super().__init__(items, total)
        self.desc, self.start = desc, time.monotonic()
        self.said = self.start

    def set_description_str(self, desc: str) -> None:
        """Names what is done."""
        self.desc = desc

    def update(self, n: float = 1) -> None:
        """So much more is done; it is said if nothing was for long."""
        super().update(n)
        now = time.monotonic()
        if now - self.said >= PATIENCE:
            self.said = now
            sys.stderr.write(f"{self._line(now - self.start)}\n")
            sys.stderr.flush()

    def _line(self, elapsed: float) -> str:
        words, clock = f"{self.desc or 'working'}: ", tqdm.format_interval
        if not self.total or not self.n:
            return f"{words}{clock(elapsed)}" + (f", {self.n:g} done" if self.n else "")
        left = elapsed * max(0.0, self.total / self.n - 1)
        return f"{words}{self.n / self.total:.0%}, {clock(elapsed)}, about {clock(left)} left"


class Stages:
    """One bar for work in named stages; bars inside of it move it, and are not shown.

    Args:
        desc: What is done.
        shares: The time that each stage takes, about, in any unit.

    Example:
        >>> with Stages("checking", {"drawing": 1, "testing": 3}) as stages:
        ...     stages.enter("drawing")
        ...     stages.enter("testing")
        ...     stages.done
        1.0
    """

    def __init__(self, desc: str, shares: Mapping[str, float]) -> None:
        self.desc, self.shares = desc, dict(shares)
        self.done, self.end, self.parts, self.busy = 0.0, 0.0, 0, False
        form = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}, {remaining} left"
        total = float(sum(self.shares.values()))
        # Shares are rough: the mean pace tells more than the last one.
        self.bar = progress(desc=desc, total=total, bar_format=form, smoothing=0, miniters=0)

    def __enter__(self) -> Self:
        self.token = _WHOLE.set(self)
        return self

    def __exit__(self, *error: object) -> None:
        _WHOLE.reset(self.token)
        self.bar.close()

    def enter(self, stage: str, parts: int = 1) -> None:
        """Ends the stage before; this one has so many bars, about alike, and perhaps more."""
        self.move(self.end)
        self.end += self.shares[stage]
        self.parts = parts
        self.bar.set_description_str(f"{self.desc}, {stage}")

    def part(self) -> tuple[float, float]:
        """Where the next bar of the stage begins and ends."""
        share = 1 / self.parts if self.parts > 1 else MOST_OF_IT
        self.parts -= 1
        return self.done, self.done + share * (self.end - self.done)

    def move(self, to: float) -> None:
        """Moves the bar, never back."""
        step = max(0.0, to - self.done)
        self.done += step
        self.bar.update(step)


class _Part(_Counted):
    """A bar inside of stages, which moves theirs; one inside of another does nothing."""

    def __init__(self, items: Iterable[Any] | None, total: float | None, whole: Stages) -> None:
        super().__init__(items, total)
        self.whole, self.start, self.end, self.moves = whole, 0.0, 0.0, False

    def __enter__(self) -> Self:
        if not self.whole.busy:
            self.start, self.end = self.whole.part()
            self.moves = self.whole.busy = True
        return self

    def update(self, n: float = 1) -> None:
        """So much more is done."""
        super().update(n)
        if self.moves:
            share = min(1.0, self.n / self.total) if self.total else 0.0
            self.whole.move(self.start + share * (self.end - self.start))

    def close(self) -> None:
        """All is done."""
        if self.moves:
            self.whole.move(self.end)
            self.moves = self.whole.busy = False


@contextmanager
def extra(name: str, least: str = "") -> Iterator[None]:
    """Imports what an extra of this package brings; where it is missing, one line says so.

    So it does where the package is there, but older than the least version that has the names.

    Example:
        >>> with extra("plots"):
        ...     import matplotlib
    """
    try:
        yield
    except ImportError as error:
        package = (error.name or name).partition(".")[0]
        if package == __package__:
            raise
        needed = f"this needs {package}: pip install 'assay[{name}]'"
        if least and not isinstance(error, ModuleNotFoundError):
            needed = (
                f"this needs {package} {least} or later, and there is {version(package)}: "
                f"pip install '{package}>={least}'"
            )
        raise ImportError(needed, name=package) from error


@contextmanager
def without_progress() -> Iterator[None]:
    """Runs work many times over without a bar for each."""
    token = _QUIET.set(True)  # noqa: FBT003
    try:
        yield
    finally:
        _QUIET.reset(token)


# The global generators are one for all threads.
_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def isolated(generator: torch.Generator) -> Iterator[None]:
    """Seeds the global generators, which code of others reads, and restores them afterwards."""
    seed = int(cpu.randint(2**31, (), generator=generator))
    with _ONE_AT_A_TIME, torch.random.fork_rng():
        numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
        torch.manual_seed(seed)
        np.random.seed(seed)  # noqa: NPY002
        random.seed(seed)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)  # noqa: NPY002
            random.setstate(python_state)


def foreign(
    name: str, function: Callable[..., Any], *given: Any, generator: torch.Generator | None = None
) -> Tensor:
    """What code of others makes of copies, which it may change: a tensor of our own.

    Global generators are seeded meanwhile, by the name if no generator is given.

    Example:
        >>> x = torch.zeros(2)
        >>> foreign("embed", lambda x: x.add_(1).tolist(), x), x
        (tensor([1., 1.], dtype=torch.float64), tensor([0., 0.]))
    """
    with torch.no_grad(), isolated(stream(0, name) if generator is None else generator):
        try:
            found = function(*map(_copied, given))
        except Exception as error:
            raise ValueError(
                f"{name}: expected what can be called here; got {said(error)}."
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


def in_threads(work: Callable[[Any], N], items: Sequence[Any]) -> list[N]:
    """Values of a function at some items, over the threads there are, one to an item.

    The values have the same bits whatever the number of threads, if the caller runs in
    :func:`one_thread`.

    Example:
        >>> in_threads(abs, [-1, 2])
        [1, 2]
    """
    with spread_over(min(available_threads(), len(items))) as apply:
        return list(apply(work, items))


def available_threads() -> int:
    """Torch's number of threads, before anybody asked for one to a product."""
    return _SINGLE.before if _SINGLE.users else torch.get_num_threads()


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


def over(
    executor: Executor | None, work: Callable[[Any], Any], jobs: Iterable[Any]
) -> Iterator[tuple[int, Any]]:
    """Numbers of jobs with what came of them, as they are done, by any executor.

    A job whose worker died is given to the executor again, and is run here if that does not help:
    nothing is lost. Other errors are those of the work. Without an executor all is run here.

    Example:
        >>> with ThreadPoolExecutor(2) as executor:
        ...     sorted(over(executor, abs, [-1, 2, -3]))
        [(0, 1), (1, 2), (2, 3)]
    """
    if executor is None:
        yield from ((i, work(job)) for i, job in enumerate(jobs))
        return
    todo, flying = enumerate(jobs), _Flying(executor, work)
    try:
        for i, job in itertools.islice(todo, IN_FLIGHT):
            flying.submit(i, job)
        while flying.jobs:
            for i, found in flying.landed():
                yield i, found
                for number, job in itertools.islice(todo, 1):
                    flying.submit(number, job)
    finally:
        for future in flying.jobs:
            future.cancel()


class _Flying:
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
                f"executor: expected one that takes work; got {said(error)}."
            ) from error
        check_kind("executor", future, "one that returns futures", "result", "cancel")
        self.jobs[future] = number, job, tries

    def landed(self) -> list[tuple[int, Any]]:
        """Those that are done, at least one if none is given again."""
        done, found = wait(self.jobs, return_when=FIRST_COMPLETED).done, []
        for future in done:
            number, job, tries = self.jobs.pop(future)
            try:
                found.append((number, future.result()))
            except (Exception, CancelledError) as error:
                if not _died(error):
                    raise
                if tries < TRIES:
                    self.submit(number, job, tries + 1)
                else:
                    found.append((number, self._here(job, error).result()))
        return found

    def _here(self, job: Any, error: BaseException) -> Future[Any]:
        warnings.warn(f"a worker died ({said(error)}); its work is done here.", stacklevel=4)
        future: Future[Any] = Future()
        future.set_result(self.work(job))
        return future


def _died(error: BaseException) -> bool:
    """Whether it tells of a worker, and not of the work."""
    lost = isinstance(error, BrokenExecutor | CancelledError)
    return lost or type(error).__module__.partition(".")[0] == "distributed"


@contextmanager
def one_thread(threads: int = 1) -> Iterator[None]:
    """One thread to a product: small ones would wait for their threads, on busy cores for long."""
    _SINGLE.enter(threads)
    try:
        yield
    finally:
        _SINGLE.leave()


class _Single:
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


_SINGLE = _Single()


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Opens a file to write; it takes its place when all is written, and leaves none otherwise.

    What a link leads to is replaced, and the link stays; so do the modes of a file. A terminal, a
    device or a pipe is written to. What killed processes left of the same file is removed.

    Example:
        >>> path = Path(tempfile.mkdtemp()) / "a.txt"
        >>> with atomic_write(path) as file:
        ...     _ = file.write(b"all of it")
        >>> path.read_text()
        'all of it'
    """
    try:
        with _stream(path) or _replacing(Path(os.path.realpath(path))) as file:
            yield file
    except OSError as error:
        # Nobody knows the part by its name.
        if error.errno and (error.filename is None or str(error.filename).endswith(".part")):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise


def _stream(path: str | os.PathLike[str]) -> IO[bytes] | None:
    """What must not be replaced, opened: a device, a pipe, or the file that is printed to."""
    if not os.path.exists(path):
        return None
    there = os.stat(path)
    for number, stream in enumerate((sys.stdout, sys.stderr), 1):
        with suppress(OSError):
            if os.path.samestat(os.fstat(number), there):
                if stream is not None:
                    stream.flush()
                return os.fdopen(os.dup(number), "wb")
    if stat.S_ISCHR(there.st_mode) or stat.S_ISFIFO(there.st_mode):
        return open(path, "wb")
    if not stat.S_ISREG(there.st_mode):
        raise OSError(f"path: expected a file to write; {os.fspath(path)} is none.")
    return None


@contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """A part, which takes the place of a file."""
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    if mode is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    # Short, however long the name is, and found again.
    start = f".{zlib.crc32(os.fsencode(target.name)):08x}-"
    _sweep(target.parent.glob(f"{start}*.part"))
    part = target.with_name(f"{start}{secrets.token_hex(4)}.part")
    try:
        with _locked(part, 0o666 if mode is None else mode) as file:
            if mode is not None:
                os.chmod(part, mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if sys.platform == "win32":
                file.close()
            os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _locked(part: Path, mode: int) -> IO[bytes]:
    """A new file, locked as long as it is open: that tells it from one that was left."""
    while True:
        file = open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode))
        if sys.platform != "win32":
            with suppress(OSError):  # not every file system has locks
                fcntl.flock(file, fcntl.LOCK_EX)
        if part.exists():
            return file
        file.close()  # taken for one that was left, before it was locked


def _sweep(parts: Iterable[Path]) -> None:
    """Removes parts that nobody writes any more."""
    for part in parts if sys.platform != "win32" else ():
        with suppress(OSError), open(part, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another may have removed it since it was opened, and its writer begun anew.
            if os.path.samestat(os.fstat(file.fileno()), os.stat(part)):
                part.unlink()

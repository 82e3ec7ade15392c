"""Input of any library is brought to tensors, or refused.

A message names the argument, says what was expected and what came, and perhaps what to do.
"""

import math
import os
import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial, reduce
from importlib.metadata import version
from numbers import Real
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

N = TypeVar("N")

MOST = 10**7  # more than anybody makes of anything
MOST_SQUARED = 10**4  # of what has its square made: units of a layer, features
ALL = 10**9  # of what is taken only as far as it is there
WORD = 8  # bytes of a number, at most
# What moves a cursor, rings, or turns the text around it; not tabs and ends of lines.
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)

WHOLE = ("randint", "randperm", "arange", "triu_indices")


class _Factories:
    """Torch's own on the CPU, single precision for floating types: they read no global default."""

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        dtype = {} if name in WHOLE else {"dtype": torch.float32}
        return partial(getattr(torch, name), device="cpu", **dtype)


cpu = _Factories()


@contextmanager
def full_precision() -> Iterator[None]:
    """Torch in full precision, and NumPy that raises nothing, whatever the caller switched on."""
    loud: Any = {kind: "warn" for kind, how in np.geterr().items() if how == "raise"}
    with ExitStack() as stack:
        for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(np.errstate(**loud | {"under": "ignore"}))
        yield


@full_precision()
def as_tensors(given: dict[str, Any]) -> dict[str, Tensor]:
    """Copies of arrays of any library as tensors of one floating type on one device."""
    arrays = {
        name: _from_torch(name, array) if isinstance(array, Tensor) else _from_numpy(name, array)
        for name, array in given.items()
    }
    if len({array.device for array in arrays.values()}) > 1:
        where = ", ".join(f"{name} on {array.device}" for name, array in arrays.items())
        raise ValueError(f"device: expected all arrays on one device; got {where}.")
    for name, array in arrays.items():
        if array.is_meta:
            raise TypeError(f"{name}: expected an array of real numbers; got a meta tensor.")
        if array.numel() == 0:
            got = f"shape {tuple(array.shape)}"
            raise ValueError(f"{name}: expected a non-empty array; got {got}.")
    dtypes = (array.dtype for array in arrays.values())
    dtype = reduce(torch.promote_types, dtypes, torch.float32)
    return {name: array.to(dtype) for name, array in arrays.items()}


def _from_torch(name: str, given: Tensor) -> Tensor:
    """A copy: what was checked must not change under the caller's hands afterwards."""
    strange = given.is_complex() or given.layout != torch.strided or given.is_nested
    if strange or isinstance(given, torch.masked.MaskedTensor):
        got = f"{given.dtype}, {given.layout}, {type(given).__name__} on {given.device}"
        raise TypeError(f"{name}: expected a dense array of real numbers; got {got}.")
    array = given.detach().dequantize() if given.is_quantized else given.detach().clone()
    if not array.is_floating_point():
        return array.double()
    return array.float() if array.dtype.itemsize == 1 else array  # which is promoted to nothing


def _from_numpy(name: str, given: Any) -> Tensor:
    rows = given if isinstance(given, list | tuple) else (given,)
    if any(np.ma.is_masked(row) for row in rows):
        got = "an array with masked ones. Leave these rows out, or fill them"
        raise ValueError(f"{name}: expected numbers; got {got}.")
    try:
        array = np.asarray(given)
    except (ValueError, RuntimeError, TypeError) as error:
        ragged = "rows of different lengths. Pad them with NaN; x is then read by embed="
        words = ragged if "inhomogeneous" in str(error) else str(error).rstrip(".")
        raise TypeError(f"{name}: expected an array of numbers; got {words}.") from error
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected an array of real numbers; got {array.dtype}.")
    single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    # Torch reads neither extended precision, other byte orders nor negative strides. Its own
    # memory is aligned, on which the bits of products depend.
    dtype = torch.float32 if single else torch.float64
    own = torch.empty(array.shape, dtype=dtype, device="cpu")
    own.numpy()[...] = array
    return own


def check_finite(name: str, array: Tensor, remedy: str = "") -> None:
    """Refuses NaN and infinity, with their count and first rows."""
    bad = ~array.isfinite().reshape(len(array) if array.ndim else 1, -1).all(1)
    if bad.any():
        first = bad.nonzero().flatten()[:5].tolist()
        got = f"NaN or infinity in {int(bad.sum())} of {len(bad)} rows, first at {first}"
        raise ValueError(f"{name}: expected finite numbers; got {got}. {remedy}".strip())


def as_device(device: str | torch.device) -> torch.device:
    """A device that is there."""
    expected = f"one of {['cpu'] + ['cuda'] * torch.cuda.is_available()}"
    check_kind("device", device, expected, str, torch.device)
    try:
        torch.empty(0, dtype=torch.float32, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(f"device: expected {expected}; got {str(device)!r}.") from error
    if torch.device(device).type == "meta":
        raise ValueError(f"device: expected {expected}; got 'meta', which holds no numbers.")
    return torch.device(device)


def check_count(name: str, value: Any, least: int = 1, most: float = MOST) -> int:
    """A whole number of at least `least` and at most `most`, or refuses."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected a whole number; got {type_name(value)}.")
    if not least <= value <= most:
        bound = f"at least {least}" if value < least else f"at most {most}"
        raise ValueError(f"{name}: expected {bound}; got {value}.")
    return int(value)


def check_fits(name: str, count: int, each: int) -> None:
    """Refuses so many of what takes so many bytes each, where memory has no room for them."""
    most = memory() // max(1, each)
    if count > most:
        room = "for which there is memory here"
        raise ValueError(f"{name}: expected at most {most}, {room}; got {count}.")


def memory() -> int:
    """The bytes of this machine; no end to them where it does not tell."""
    if sys.platform == "win32" or "SC_PHYS_PAGES" not in os.sysconf_names:
        return sys.maxsize
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def check_number(name: str, value: Any, *, strict: bool = True) -> float:
    """A finite number above 0, or of at least 0 if not strict, or refuses."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: expected a number; got {type_name(value)}.")
    try:
        real = float(value)
    except OverflowError:
        real = math.inf
    if not math.isfinite(real) or real < 0 or (strict and real == 0):
        bound = "above 0" if strict else "of at least 0"
        raise ValueError(f"{name}: expected a finite number {bound}; got {real}.")
    return real


def check_numbers(name: str, given: Any) -> list[float]:
    """Some numbers above 0, of one or of many, or refuses; none is fine."""
    each = np.atleast_1d(np.asarray(given, dtype=object))
    check_count(f"numbers of {name}", each.size, 0, MOST_SQUARED)
    return [check_number(name, one) for one in each]


def check_share(name: str, value: Any, *, whole: bool = False) -> float:
    """A number between 0 and 1, both excluded but for a whole that may be, or refuses."""
    number = isinstance(value, Real) and not isinstance(value, bool)
    if not number or not (0 < value < 1 or (whole and value == 1)):
        raise ValueError(f"{name}: expected a number between 0 and 1; got {value!r}.")
    return float(value)


def as_null(null: Any, default: N, *kinds: type, hint: str = "Exchange(99)") -> N:
    """A null of the kinds as it is; the default one if None, or with a number of copies."""
    if null is None:
        return default
    if isinstance(null, int | np.integer) and not isinstance(null, bool):
        return replace(default, n=check_count("null", null))  # type: ignore[type-var]
    check_kind("null", null, f"a number of copies or a null such as {hint}", *kinds)
    return null  # type: ignore[no-any-return]


def check_kind(name: str, value: Any, expected: str, *kinds: type | str) -> None:
    """Refuses what is of none of the kinds, or lacks a member; and a class for its instance."""
    classes = tuple(kind for kind in kinds if isinstance(kind, type))
    lacks = any(isinstance(kind, str) and not hasattr(value, kind) for kind in kinds)
    if isinstance(value, type) or lacks or (classes and not isinstance(value, classes)):
        raise TypeError(f"{name}: expected {expected}; got {type_name(value)}.")


def check_function(name: str, value: Any, expected: str) -> None:
    """Refuses what cannot be called, and a class, which is called to make something else."""
    check_kind(name, value, expected, "__call__")


def check_executor(executor: Any) -> None:
    """Refuses what runs nothing; None is fine."""
    if executor is not None:
        expected = "a concurrent.futures.Executor, or None"
        check_kind("executor", executor, expected, "submit")
        check_function("executor", executor.submit, expected)


def check_path(path: Any, name: str = "path", expected: str = "the path of a file") -> Path:
    """A path, or refuses what can be none."""
    check_kind(name, path, expected, str, os.PathLike)
    given = os.fspath(path)
    if not given or isinstance(given, bytes) or "\0" in given:
        raise ValueError(f"{name}: expected {expected}; got {given!r}.")
    return Path(given)


def check_names(name: str, given: Any, count: int) -> tuple[str, ...]:
    """So many different names, each in one line, or refuses."""
    each = (given,) if isinstance(given, str) else given
    unordered = isinstance(each, Set | Mapping)
    if not isinstance(each, Iterable) or unordered or isinstance(each, type | bytes | Tensor):
        raise TypeError(f"{name}: expected {count} names in order; got {type_name(given)}.")
    words = ("" if one is None else str(one) for one in each)
    names = tuple(printable(" ".join(word.split())) for word in words)
    visible = set()  # names without invisible letters, and with accents written in one way
    for one in names:
        letters = "".join(letter for letter in one if unicodedata.category(letter) != "Cf")
        visible.add(unicodedata.normalize("NFC", letters).strip())
    if len(names) != count or len(visible) < count or "" in visible:
        raise ValueError(f"{name}: expected {count} different names; got {names!r}.")
    return names


def type_name(value: Any) -> str:
    """The type of a value, or the name of a class."""
    return f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__


def error_line(problem: BaseException) -> str:
    """An error in one line."""
    return " ".join(f"{type(problem).__name__}: {problem}".split())


def printable(text: str) -> str:
    """A text that can be printed anywhere, and cannot steer a terminal."""
    return CONTROL.sub("\ufffd", text)


@contextmanager
def extra(name: str, least: str = "") -> Iterator[None]:
    """Imports what an extra of this package brings; one line says where it is missing or old."""
    try:
        yield
    except ImportError as error:
        package = (error.name or name).partition(".")[0]
        if package == __name__.partition(".")[0]:
            raise
        needed = f"{package}: pip install 'assay[{name}]'"
        if least and not isinstance(error, ModuleNotFoundError):
            needed = f"{package} {least} or later, and there is {version(package)}"
            needed = f"{needed}: pip install '{package}>={least}'"
        raise ImportError(f"this needs {needed}", name=package) from error

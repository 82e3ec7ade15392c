"""Input of any library is brought to tensors, or refused.

A message names the argument, says what was expected and what came, and where it is not obvious,
what to do.
"""

import math
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial, reduce
from importlib.metadata import version
from numbers import Real
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

N = TypeVar("N")


# More than anybody makes of anything; and of what is taken only as far as it is there.
MOST, ALL = 10**7, 10**9
# More than anybody asks for where the square of it is made: units of a layer, features.
MOST_SQUARED = 10**4
# Bytes of a number, at most.
WORD = 8
# What moves a cursor, rings, or turns the text around it; not tabs and ends of lines.
CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
EXECUTOR = "a concurrent.futures.Executor, or None"


class cpu:  # noqa: N801
    """Torch's own factories on the CPU, in single precision: they read no global default."""

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
def full_precision() -> Iterator[None]:
    """Torch in full precision, and NumPy that raises nothing, whatever the caller switched on."""
    errors = np.geterr().items()
    warned: dict[str, Any] = {kind: "warn" if how == "raise" else how for kind, how in errors}
    with ExitStack() as stack:
        for device in ["cpu"] + ["cuda"] * torch.cuda.is_available():
            stack.enter_context(torch.autocast(device, enabled=False))
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(np.errstate(**warned | {"under": "ignore"}))
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
            raise ValueError(
                f"{name}: expected a non-empty array; got shape {tuple(array.shape)}."
            )
    dtypes = (array.dtype for array in arrays.values())
    dtype = reduce(torch.promote_types, dtypes, torch.float32)
    return {name: array.to(dtype) for name, array in arrays.items()}


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
    # Torch reads neither extended precision, other byte orders nor negative strides. Its own
    # memory is aligned, on which the bits of products depend.
    single = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    dtype = torch.float32 if single else torch.float64
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


def check_count(name: str, value: Any, least: int = 1, most: float = MOST) -> int:
    """Returns a whole number of at least `least` and at most `most`, or refuses."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected a whole number; got {type_name(value)}.")
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
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: expected a number; got {type_name(value)}.")
    try:
        real = float(value)
    except OverflowError:
        real = math.inf
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
    members = (kind for kind in kinds if isinstance(kind, str))
    lacks = any(not hasattr(value, member) for member in members)
    if isinstance(value, type) or lacks or (classes and not isinstance(value, classes)):
        raise TypeError(f"{name}: expected {expected}; got {type_name(value)}.")


def check_function(name: str, value: Any, expected: str) -> None:
    """Refuses what cannot be called, and a class, which is called to make something else."""
    if not callable(value) or isinstance(value, type):
        raise TypeError(f"{name}: expected {expected}; got {type_name(value)}.")


def check_executor(executor: Any) -> None:
    """Refuses what runs nothing; None is fine."""
    if executor is not None:
        check_kind("executor", executor, EXECUTOR, "submit")
        check_function("executor", executor.submit, EXECUTOR)


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
    visible = {_visible(one) for one in names}
    if len(names) != count or len(visible) < count or "" in visible:
        raise ValueError(f"{name}: expected {count} different names; got {names!r}.")
    return names


def _visible(text: str) -> str:
    """A text without what is invisible, and with accents written in one way."""
    letters = (letter for letter in text if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFC", "".join(letters)).strip()


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
        needed = f"this needs {package}: pip install 'assay[{name}]'"
        if least and not isinstance(error, ModuleNotFoundError):
            needed = (
                f"this needs {package} {least} or later, and there is {version(package)}: "
                f"pip install '{package}>={least}'"
            )
        raise ImportError(needed, name=package) from error

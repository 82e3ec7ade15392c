"""Calibrations, fitted tests and results to files and back: NumPy arrays and JSON, never pickle.

A file is an ``.npz`` archive: its arrays hold the numbers, and a JSON text named ``assay`` the
structure around them. Classes are dataclasses of this library, named by ``module:qualname``; no
other class is looked up. Functions of a user cannot be stored; they are given again to `load`.
"""

import hashlib
import json
import math
import os
import re
import types
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from . import __version__
from ._support.files import atomic_write
from ._support.inputs import check_path, memory, printable
from .results import Result

FORMAT = 4
# What a file cannot hold, and the argument of `load` that brings it back.
GIVEN_AGAIN = ("base", "embed", "flow", "function", "log_q", "statistic")
# What reading a file that is broken may raise.
UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, KeyError, IndexError, ValueError, OSError),
    *(RuntimeError, TypeError, MemoryError, OverflowError),
)
# Bytes that any file may hold, and how many times its size one may hold beyond them: only what is
# made to fill a memory shrinks by more. The text around them, in bytes, at most.
ROOM, TIMES, LONGEST = 2**26, 500, 2**25


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Saves a calibration, draws, a fitted test or a result to a file, usually called ``.npz``.

    It appears whole or not at all.

    Example:
        >>> path = Path(tempfile.mkdtemp()) / "draws.npz"
        >>> save(assay.Draws([0.5, 1.0], torch.zeros(100, 2)), path)
        >>> load(path)
        Draws(x=(2,), theta=(100, 2))
    """
    if not _is_ours(obj):
        expected = "a calibration, draws, a test or a result of assay"
        raise TypeError(f"obj: expected {expected}; got {type(obj).__name__}.")
    arrays: dict[str, np.ndarray] = {}
    content = _encode(obj, "", arrays)
    digests = {name: _digest(array) for name, array in arrays.items()}
    header = {"format": FORMAT, "version": __version__, "content": content, "digests": digests}
    arrays["assay"] = np.array(json.dumps({**header, "digest": _digest_of(content)}))
    target = check_path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path: expected a folder that exists; got {target.parent}.")
    with atomic_write(target) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
        # Arrays that shrink as those do that are refused are written as they are.
        size = sum(array.nbytes for array in arrays.values())
        if file.seekable() and size > max(ROOM, TIMES * file.tell()):
            file.seek(0)
            np.savez(file, **arrays)  # type: ignore[arg-type]


def load(path: str | os.PathLike[str], **given: Any) -> Any:
    """Loads what :func:`save` wrote; whatever is not as it was written is refused.

    Args:
        path: The file.
        given: What a file cannot hold, where it was made with it: `embed`, `flow`, a `base` other
            than the standard normal, a `statistic` that is not one of this library's, or the
            `function` of a :class:`~assay.neighbourhood.Distance`.
    """
    unknown = set(given) - set(GIVEN_AGAIN)
    if unknown:
        raise TypeError(f"load: expected among {GIVEN_AGAIN}; got {sorted(unknown)}.")
    file = check_path(path)
    if "flow" in given:
        given = {"base": given["flow"].base, **given}
    try:
        with npz(file) as contents:
            content, arrays = _read(contents, file)
        loaded = _decode(content, arrays, given)
        if not _is_ours(loaded):
            raise TypeError("it holds no object")
    except Exception as error:
        # The message is one of our own, or one of the system about the file.
        ours = isinstance(error, ValueError) and re.match("[^:]+: expected", str(error))
        if ours or getattr(error, "filename", None) is not None:
            raise
        got = f"{os.fspath(path)} ({line(error)})"
        raise _refusal("a file that assay.save wrote", got) from error
    return loaded


def _refusal(expected: str, got: str, at: str = "") -> ValueError:
    """What is wrong in a file, at a place in what it holds."""
    return ValueError(f"path: expected {expected}{at and f' as {at}'}; got {got}.")


def line(error: Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


@dataclass(frozen=True)
class Stored:
    """An array in a file, before it is read."""

    nbytes: int
    read: Callable[[], Any]
    names: tuple[str, ...] = ()  # of its columns, where they are known


Contents = Mapping[str, Stored]


@contextmanager
def npz(path: Path) -> Iterator[Contents]:
    """Arrays of an archive by name, none of which is read."""
    if path.exists() and not path.is_file():
        raise ValueError("it is no file")
    with zipfile.ZipFile(path) as archive:
        members = [info for info in archive.infolist() if info.filename.endswith(".npy")]
        if len({info.filename for info in members}) < len(members):
            raise ValueError("it holds two arrays of one name")
        yield {
            info.filename.removesuffix(".npy"): npy(partial(archive.open, info), info.file_size)
            for info in members
        }


def npy(opened: Callable[[], Any], size: int) -> Stored:
    """One array of NumPy's own format, whose header must agree with its size."""

    def read() -> Any:
        with opened() as file:
            return np.lib.format.read_array(file, allow_pickle=False)

    with opened() as file:
        version = 1 if np.lib.format.read_magic(file)[0] == 1 else 2
        shape, _, dtype = getattr(np.lib.format, f"read_array_header_{version}_0")(file)
        if dtype.hasobject:
            return Stored(0, read)  # which refuses them
        nbytes, there = math.prod(shape) * max(1, dtype.itemsize), size - file.tell()
        if nbytes > there or min(shape, default=0) < 0:
            raise ValueError(f"{there} bytes follow a header of an array {shape} of {dtype}")
    return Stored(nbytes, read)


def check_room(nbytes: int, path: Path) -> None:
    """Refuses arrays of a file that fill the memory of the machine, or that it cannot hold."""
    packed = path.stat().st_size if path.is_file() else nbytes
    if nbytes > max(ROOM, TIMES * packed):
        raise ValueError(f"its arrays need {nbytes:.2g} bytes, and it has {packed:.2g}")
    if nbytes > memory():
        raise ValueError(f"its arrays need {nbytes:.2g} bytes, and there are {memory():.2g}")


def _read(contents: Contents, path: Path) -> tuple[Any, dict[str, np.ndarray]]:
    """The structure and its arrays, if they are as they were written; no others are read."""
    if "assay" not in contents:
        raise ValueError("it has no array assay")
    if contents["assay"].nbytes > LONGEST:
        raise ValueError("its text is too long")
    header = json.loads(str(contents["assay"].read()))
    if header["format"] != FORMAT:
        version = printable(str(header.get("version")))[:20]
        got = f"{header['format']!r:.20}, written by assay {version}"
        raise _refusal(f"format {FORMAT}", f"{got}. Install a version that reads it")
    if _digest_of(header["content"]) != header["digest"]:
        raise ValueError("its text was changed after it was saved")
    wanted = {name: contents[name] for name in sorted(header["digests"])}
    check_room(sum(stored.nbytes for stored in wanted.values()), path)
    arrays = {name: stored.read() for name, stored in wanted.items()}
    for name, array in arrays.items():
        if _digest(array) != header["digests"][name]:
            raise ValueError(f"the array {name} was changed after it was saved")
    return header["content"], arrays


def _digest(array: np.ndarray) -> str:
    digest = hashlib.blake2b(f"{array.dtype.str} {array.shape} ".encode(), digest_size=12)
    digest.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _digest_of(tree: Any) -> str:
    return hashlib.blake2b(json.dumps(tree).encode(), digest_size=12).hexdigest()


def _is_ours(value: Any) -> bool:
    """Whether a value is an object of one of this library's dataclasses."""
    return is_dataclass(value) and type(value).__module__.split(".")[0] == __package__


def _encode(value: Any, key: str, arrays: dict[str, np.ndarray]) -> Any:
    """A JSON tree for a value; arrays are kept apart, by their place in the tree."""
    match value:
        case torch.Tensor():
            arrays[key] = value.cpu().numpy()
            return {"tensor": key}
        case np.ndarray() | np.generic():
            own = np.asarray(value)
            for name, other in arrays.items():  # results share some, which are stored once
                alike = (own.dtype, own.shape) == (other.dtype, other.shape)
                if alike and own.tobytes() == other.tobytes():
                    return {"array": name}
            arrays[key] = own
            return {"array": key}
        case dict():
            return {"dict": {k: _encode(v, f"{key}/{k}", arrays) for k, v in value.items()}}
        case tuple() | list():
            return {"tuple": [_encode(v, f"{key}/{i}", arrays) for i, v in enumerate(value)]}
        case types.FunctionType() if value.__module__.startswith(f"{__package__}."):
            return {"known": f"{value.__module__}:{value.__qualname__}"}
        case None | bool() | int() | float() | str():
            return value
    name, kind = key.rsplit("/", 1)[-1], type(value)
    try:
        if not _is_ours(value):
            raise TypeError(
                f"obj{key.replace('/', '.')}: expected something that can be saved without "
                f"pickle; got {kind.__name__}. Save its results instead."
            )
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
        tree = {k: _encode(part, f"{key}/{k}", arrays) for k, part in parts.items()}
        return {"class": f"{kind.__module__}:{kind.__qualname__}", "fields": tree}
    except TypeError:
        # What cannot be stored, or has a part that cannot, is given again as a whole.
        if name not in GIVEN_AGAIN:
            raise
    return {"given": name}


def _decode(tree: Any, arrays: dict[str, np.ndarray], given: dict[str, Any], at: str = "") -> Any:
    """A value from its tree, whose place in the whole is named where it is wrong."""
    if not isinstance(tree, dict):
        return printable(tree) if isinstance(tree, str) else tree
    content: Any
    kind, content = next(iter(tree.items()), ("nothing", ""))
    match kind, content:
        case "tensor", str():
            return torch.from_numpy(arrays[content])
        case "array", str():
            return arrays[content]
        case "dict", dict():
            return {k: _decode(v, arrays, given, f"{at}.{k}") for k, v in content.items()}
        case "tuple", list():
            return tuple(_decode(v, arrays, given, f"{at}[{i}]") for i, v in enumerate(content))
        case "known", str():
            return _find(content)
        case "given", str():
            if given.get(content) is None:
                raise ValueError(
                    f"{content}: expected the one this file was made with, as load(path, "
                    f"{content}=...); a file cannot hold it."
                )
            return given[content]
    cls = _find(content) if kind == "class" and isinstance(content, str) else None
    if not (isinstance(cls, type) and is_dataclass(cls)):
        raise _refusal("a class of assay", repr(content), at)
    parts = {k: _decode(v, arrays, given, f"{at}.{k}") for k, v in tree["fields"].items()}
    known = {f.name for f in fields(cls)}
    needed = {f.name for f in fields(cls) if f.default is f.default_factory is MISSING}
    wrong = sorted((set(parts) - known) | (needed - set(parts)))
    if wrong:
        expected = f"a {cls.__name__} of this version of assay"
        raise _refusal(expected, f"other fields, {', '.join(wrong)}", at)
    decoded = cls(**parts)
    if isinstance(decoded, Result):
        with np.errstate(all="ignore"):
            repr(decoded)  # which fails where arrays do not belong together
    return decoded


def _find(address: str) -> Any:
    """The class or function of this library at an address; nothing else is looked up."""
    module, _, name = address.partition(":")
    found = None
    if module.split(".")[0] == __package__ and "__main__" not in module:
        with suppress(ImportError, AttributeError, ValueError, SystemExit):
            found = getattr(import_module(module), name)
    if found is None or getattr(found, "__module__", "") != module:
        got = f"{address!r}. Install the version that wrote the file"
        raise _refusal("what this version of assay knows", got)
    return found

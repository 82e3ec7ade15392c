"""Calibrations, fitted tests and results to files and back: NumPy arrays and JSON, never pickle.

A file is an ``.npz`` archive: its arrays hold the numbers, and a JSON text named ``assay`` the
structure around them. Classes are dataclasses of this library, named by ``module:qualname``; no
other class is looked up. Functions of a user cannot be stored; an embedding or a flow must be
given again when a file that was made with one is loaded.
"""

import json
import os
import zipfile
from dataclasses import fields, is_dataclass
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import torch

from . import __version__
from ._core import atomic_write

FORMAT = 2
# What a file cannot hold, and the argument of `load` that brings it back.
GIVEN_AGAIN = ("base", "embed", "flow", "function", "log_q", "statistic")


def save(obj: Any, path: str | os.PathLike[str]) -> None:
    """Saves a calibration, draws, a fitted test or a result.

    The file appears whole or not at all.

    Args:
        obj: What to save.
        path: The file to write; the usual ending is ``.npz``.

    Example:
        >>> draws = assay.Draws([0.5, 1.0], torch.zeros(100, 2))
        >>> path = Path(tempfile.mkdtemp()) / "draws.npz"
        >>> save(draws, path)
        >>> load(path)
        Draws(x=(2,), theta=(100, 2))
    """
    if not _ours(obj):
        raise TypeError(
            "obj: expected a calibration, draws, a test or a result of assay; got "
            f"{type(obj).__name__}."
        )
    arrays: dict[str, np.ndarray] = {}
    header = {"format": FORMAT, "version": __version__, "content": _encode(obj, "", arrays)}
    arrays["assay"] = np.array(json.dumps(header))
    target = Path(path)
    if not target.parent.is_dir():
        raise FileNotFoundError(f"path: expected a folder that exists; got {target.parent}.")
    with atomic_write(target) as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]


def load(path: str | os.PathLike[str], **given: Any) -> Any:
    """Loads what :func:`save` wrote.

    Args:
        path: The file.
        given: What a file cannot hold, where it was made with it: `embed`, `flow`, a `base` other
            than the standard normal, a `statistic` that is not one of this library's, or the
            `function` of a :class:`~assay.samples.neighbourhoods.Distance`.
    """
    unknown = set(given) - set(GIVEN_AGAIN)
    if unknown:
        raise TypeError(f"load: expected among {GIVEN_AGAIN}; got {sorted(unknown)}.")
    try:
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        header = json.loads(str(arrays.pop("assay")))
        content, form = header["content"], header["format"]
    except (zipfile.BadZipFile, KeyError, ValueError, EOFError, TypeError) as error:
        raise ValueError(f"path: expected a file that assay.save wrote; got {path}.") from error
    if form != FORMAT:
        raise ValueError(
            f"path: expected format {FORMAT}; got {form}, written by assay "
            f"{header.get('version')}. Install a version that reads it."
        )
    if "flow" in given:
        given = {"base": given["flow"].base, **given}
    try:
        return _decode(content, arrays, given)
    except (AttributeError, IndexError, KeyError) as error:
        raise ValueError(f"path: expected a file that assay.save wrote; got {path}.") from error


def _ours(value: Any) -> bool:
    """Whether a value is an object of one of this library's dataclasses."""
    module = type(value).__module__
    return is_dataclass(value) and (module == __package__ or module.startswith(f"{__package__}."))


def _address(thing: Any) -> str:
    """Where a class or a function of this library stands."""
    return f"{thing.__module__}:{thing.__qualname__}"


def _found(address: str) -> Any:
    """The class or function of this library at an address; nothing else is looked up."""
    module, _, name = address.partition(":")
    try:
        if module.split(".")[0] != __package__ or "__main__" in module:
            raise ImportError(module)
        thing = getattr(import_module(module), name)
        if getattr(thing, "__module__", "") != module:
            raise ImportError(address)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"path: expected what this version of assay knows; got {address!r}. Install the "
            "version that wrote the file."
        ) from error
    return thing


def _encode(value: Any, key: str, arrays: dict[str, np.ndarray]) -> Any:
    """A JSON tree for a value; arrays are put aside under their place in the tree."""
    if isinstance(value, torch.Tensor):
        arrays[key] = value.cpu().numpy()
        return {"tensor": key}
    if isinstance(value, np.ndarray | np.generic):
        return {"array": _put_aside(np.asarray(value), key, arrays)}
    if _ours(value) and not isinstance(value, type):
        return _encode_fields(value, key, arrays)
    if isinstance(value, dict):
        return {"dict": {k: _encode(v, f"{key}/{k}", arrays) for k, v in value.items()}}
    if isinstance(value, tuple | list):
        return {"tuple": [_encode(v, f"{key}/{i}", arrays) for i, v in enumerate(value)]}
    if isinstance(value, FunctionType) and value.__module__.startswith(f"{__package__}."):
        return {"known": _address(value)}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    name = key.rsplit("/", 1)[-1]
    if name in GIVEN_AGAIN:
        return {"given": name}
    raise TypeError(
        f"obj{key.replace('/', '.')}: expected something that can be saved without pickle; got "
        f"{type(value).__name__}. Save its results instead."
    )


def _put_aside(array: np.ndarray, key: str, arrays: dict[str, np.ndarray]) -> str:
    """Where an array stands; results share some, which are stored once."""
    for name, other in arrays.items():
        alike = (array.dtype, array.shape) == (other.dtype, other.shape)
        if alike and array.tobytes() == other.tobytes():
            return name
    arrays[key] = array
    return key


def _encode_fields(value: Any, key: str, arrays: dict[str, np.ndarray]) -> Any:
    """The tree of an object, or its name where some of it must be given again as a whole."""
    parts = {f.name: getattr(value, f.name) for f in fields(value)}
    try:
        tree = {name: _encode(part, f"{key}/{name}", arrays) for name, part in parts.items()}
    except TypeError:
        name = key.rsplit("/", 1)[-1]
        if name not in GIVEN_AGAIN:
            raise
        return {"given": name}
    return {"class": _address(type(value)), "fields": tree}


def _decode(tree: Any, arrays: dict[str, np.ndarray], given: dict[str, Any]) -> Any:
    if not isinstance(tree, dict):
        return tree
    content: Any
    kind, content = next(iter(tree.items()), ("nothing", ""))
    match kind:
        case "tensor":
            return torch.from_numpy(arrays[content])
        case "array":
            return arrays[content]
        case "dict":
            return {k: _decode(v, arrays, given) for k, v in content.items()}
        case "tuple":
            return tuple(_decode(v, arrays, given) for v in content)
        case "known":
            return _found(content)
        case "given":
            return _given_again(content, given)
    made = _found(content) if kind == "class" else None
    if not (isinstance(made, type) and is_dataclass(made)):
        raise ValueError(f"path: expected a class of assay; got {content!r}.")
    return made(**{k: _decode(v, arrays, given) for k, v in tree["fields"].items()})


def _given_again(name: str, given: dict[str, Any]) -> Any:
    if given.get(name) is None:
        raise ValueError(
            f"{name}: expected the one this file was made with, as load(path, {name}=...); a file "
            "cannot hold it."
        )
    return given[name]

"""Files of named arrays, opened by their ending; nothing in them is ever run.

A file is opened, what is in it is told by name and size, and only what is asked for is read. Sizes
are compared with the file and with the machine's memory before anything is allocated.
"""

import bz2
import csv
import gzip
import math
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._support.inputs import extra
from ..io import ROOM, UNREADABLE, Contents, Stored, check_room, line, npy, npz

Opener = Callable[[Path], AbstractContextManager[Contents]]


def read_arrays(path: Path, known: Callable[[str], bool]) -> tuple[dict[str, Any], list[str]]:
    """The known arrays of a file or a folder, by name, and the names of those left alone.

    Example:
        >>> path = Path(tempfile.mkdtemp()) / "some.npz"
        >>> np.savez(path, theta=np.zeros((2, 3)), notes="anything")
        >>> read_arrays(path, lambda name: name == "theta")
        ({'theta': array([[0., 0., 0.],
               [0., 0., 0.]])}, ['notes'])
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected a file; there is none.")
    kind, opener = _kind(path)
    if not path.is_file() and not path.is_dir():
        raise ValueError(f"{path}: expected {kind}; it is no file.")
    try:
        with opener(path) as contents:
            wanted = {name: stored for name, stored in contents.items() if known(name)}
            check_room(sum(stored.nbytes for stored in wanted.values()), path)
            arrays = {name: stored.read() for name, stored in wanted.items()}
            return arrays, sorted(set(contents) - set(wanted))
    except UNREADABLE as error:
        why = "it holds objects, not numbers" if "pickle" in str(error) else line(error)
        raise ValueError(f"{path}: expected {kind}; it cannot be read ({why}).") from error


def _kind(path: Path) -> tuple[str, Opener]:
    """What a file should be, and what opens it."""
    if path.is_dir():
        zarr = any((path / name).exists() for name in (".zgroup", "zarr.json", ".zmetadata"))
        return ("a Zarr group", _zarr) if zarr else ("a folder of .npy files", _folder)
    ending = path.suffix.lower()
    if ending in (".bz2", ".gz"):
        ending = Path(path.stem).suffix.lower()
    return FORMATS.get(ending, FORMATS[".npz"])


def _library(name: str) -> Any:
    """A library that one format needs."""
    with extra("files"):
        return import_module(name)


@contextmanager
def _folder(path: Path) -> Iterator[Contents]:
    """Arrays by the names of their files."""
    files = sorted(path.glob("*.npy"))
    if not files:
        raise ValueError("there are none")
    yield {f.stem: npy(partial(f.open, "rb"), f.stat().st_size) for f in files}


@contextmanager
def _csv(path: Path) -> Iterator[Contents]:
    """A table with a header; columns such as theta.rate and theta.size make up theta."""
    opened = {".bz2": bz2.open, ".gz": gzip.open}.get(path.suffix.lower(), open)
    with opened(path, "rt", encoding="utf-8-sig", newline="") as file:
        header = [name.strip() for name in next(csv.reader(file), [])]
        if len(set(header)) < len(header):
            raise ValueError(f"a name stands twice above its columns: {', '.join(header)}")
        check_room(8 * path.stat().st_size, path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no rows
            table = np.loadtxt(
                _lines(file, path), delimiter=",", ndmin=2, quotechar='"', comments=None
            )
    if not table.size:
        raise ValueError("there are no rows below its header")
    if table.shape[1] != len(header):
        raise ValueError(f"{len(header)} names stand above {table.shape[1]} columns")
    yield columns(dict(zip(header, table.T, strict=True)))


def _lines(file: Any, path: Path) -> Iterator[str]:
    """Lines of a text, which may be packed, but not by too much."""
    read = 0
    while line := file.readline(ROOM):
        read += len(line)
        check_room(read, path)
        yield line


@contextmanager
def _parquet(path: Path) -> Iterator[Contents]:
    """A table; a column of lists is an array by itself."""
    file = _library("pyarrow.parquet").ParquetFile(path)
    check_room(8 * file.metadata.num_rows * file.metadata.num_columns, path)
    table = file.read()
    yield columns({name: _column(table.column(name)) for name in table.column_names})


def _column(column: Any) -> np.ndarray:
    numbers = "list" not in str(column.type)
    return np.asarray(column.to_numpy() if numbers else column.to_pylist())


# An array and a part of it: theta.rate, theta[rate], theta_1; theta_q.3.rate is one of many draws.
COLUMN = re.compile(r"(?P<array>.+?)(?:\.(?P<part>.+)|\[(?P<index>.+)\]|_(?P<number>\d+))$")


# What the names of the parts of an array stand under.
NAMES_OF = "names of "


def columns(table: Mapping[str, np.ndarray]) -> Contents:
    """Arrays that the columns (n,) of a table make up, by the names before their parts.

    Draws that are numbered, as in theta_q.0.rate, have an axis of their own. Names of the parts
    stand beside their array, so that parameters in another order are found out.

    Example:
        >>> some = columns({"theta.a": np.zeros(5), "theta.b": np.ones(5), "x_1": np.zeros(5)})
        >>> [(name, stored.read().shape) for name, stored in some.items()]
        [('theta', (5, 2)), ('x', (5, 1)), ('names of theta', (2,))]
    """
    parts: dict[str, list[str]] = {}
    arrays: dict[str, list[np.ndarray]] = {}
    for name, values in table.items():
        found = COLUMN.match(name)
        array = found["array"] if found else name
        part = "" if found is None else found["part"] or found["index"] or found["number"]
        parts.setdefault(array, []).append(part)
        arrays.setdefault(array, []).append(values)
    joined = {name: _joined(parts[name], some) for name, some in arrays.items()}
    named = {f"{NAMES_OF}{name}": _names(some, joined[name]) for name, some in parts.items()}
    joined |= {name: names for name, names in named.items() if len(names)}
    return {name: Stored(0, partial(np.asarray, array)) for name, array in joined.items()}


def _joined(parts: list[str], some: list[np.ndarray]) -> np.ndarray:
    """Columns (n,) as one array (n, m), or (n, k, m) where k draws are numbered."""
    if len(some) == 1 and some[0].ndim > 1:
        return some[0]
    draws = len({part.partition(".")[0] for part in parts}) if "." in parts[0] else 1
    array = np.stack(some, 1)
    if draws == 1:
        return array
    if array.shape[1] % draws:
        raise ValueError(f"{draws} draws are numbered in {array.shape[1]} columns")
    return array.reshape(len(array), draws, -1)


def _names(parts: list[str], array: np.ndarray) -> np.ndarray:
    """Names (m,) of the parts; none where they are numbers."""
    names = [part.rpartition(".")[2] for part in parts]
    if any(not name or name.isdigit() for name in names):
        return np.array([])
    own = names[: array.shape[-1]]
    if names != own * (len(names) // len(own)):
        raise ValueError(f"the draws have their columns in different orders, {', '.join(parts)}")
    return np.array(own)


@contextmanager
def _netcdf(path: Path) -> Iterator[Contents]:
    """Variables of a NetCDF-4 or HDF5 file; groups of InferenceData become arrays."""
    with _library("h5py").File(path, "r") as file:
        yield groups(dict(_datasets(file)))


@contextmanager
def _zarr(path: Path) -> Iterator[Contents]:
    group = _library("zarr").open_group(str(path), mode="r")
    yield groups({name: array for name, array in group.members(None) if hasattr(array, "dtype")})


def _datasets(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
    """Datasets that lie in the file itself, by their paths; no link is followed."""
    h5py = import_module("h5py")
    for name in group:
        if not isinstance(group.get(name, getlink=True), h5py.HardLink):
            continue
        item = group[name]
        if isinstance(item, h5py.Group):
            yield from _datasets(item, f"{before}{name}/")
        elif isinstance(item, h5py.Dataset) and not (item.external or item.is_virtual):
            yield f"{before}{name}", item


# Groups of InferenceData, whose variables (chain, draw, ...) or (...) make up an array.
GROUPS = {
    "posterior": "theta_o",
    "observed_data": "x_o",
    "prior": "theta",
    "prior_predictive": "x",
}


def groups(datasets: Mapping[str, Any]) -> Contents:
    """Arrays by name, and those that the groups of InferenceData make up."""
    alone = {name: data for name, data in datasets.items() if "/" not in name}
    found = {name: Stored(_size(data), partial(_text, data)) for name, data in alone.items()}
    for group, array in GROUPS.items():
        some = {
            name.partition("/")[2]: data
            for name, data in datasets.items()
            if name.startswith(f"{group}/") and not _coordinate(name, data)
        }
        if some and array not in found:
            nbytes = sum(map(_size, some.values()))
            found[array] = Stored(nbytes, partial(_flattened, some, group))
            if array.startswith("theta"):
                found[f"{NAMES_OF}{array}"] = Stored(0, partial(_variables, some))
    return found


def _size(data: Any) -> int:
    return int(math.prod(data.shape) * data.dtype.itemsize)


def _text(data: Any) -> Any:
    """An array as it is, or texts, which HDF5 keeps as bytes."""
    array = np.asarray(data[()])
    if array.dtype.kind != "O":
        return array
    texts = [t.decode() if isinstance(t, bytes) else str(t) for t in array.reshape(-1)]
    return np.array(texts).reshape(array.shape)


def _coordinate(name: str, data: Any) -> bool:
    """Whether a variable only numbers or names others."""
    last = name.split("/")[-1]
    named = getattr(data, "attrs", {}).get("CLASS", b"")
    return (
        named == b"DIMENSION_SCALE" or data.dtype.kind not in "fiub" or last in ("chain", "draw")
    )


def _variables(variables: Mapping[str, Any]) -> np.ndarray:
    """Names of parameters: those of variables (chain, draw), with numbers if there are axes."""
    names = []
    for name, data in variables.items():
        several = np.ndindex(data.shape[2:])
        names += [f"{name}{list(place)}" if place else name for place in several]
    return np.array(names)


def _flattened(variables: Mapping[str, Any], group: str) -> np.ndarray:
    """Variables side by side: (draws, m) of a posterior or a prior, (d,) of what was observed."""
    axes = 0 if group == "observed_data" else 2
    parts = [np.asarray(data[()]) for data in variables.values()]
    if len(parts) == 1 and group in ("observed_data", "prior_predictive"):
        return parts[0] if axes == 0 else parts[0].reshape(-1, *parts[0].shape[2:])
    lead = [-1] if axes == 0 else [math.prod(parts[0].shape[:2]), -1]
    return np.concatenate([part.reshape(lead) for part in parts], -1)


@contextmanager
def _torch(path: Path) -> Iterator[Contents]:
    """Tensors by name; the loader knows no other objects."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            check_room(sum(info.file_size for info in archive.infolist()), path)
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        if "weights_only" not in str(error) and "Unsupported" not in str(error):
            raise
        raise ValueError("it holds other objects than tensors, which would run code") from error
    yield tensors(saved)


def tensors(saved: Any) -> Contents:
    """Tensors of a dictionary, as arrays."""
    if not isinstance(saved, Mapping):
        raise ValueError(f"it holds a {type(saved).__name__}, not tensors by name")
    found = {}
    for name, value in saved.items():
        if isinstance(value, torch.Tensor):
            found[str(name)] = Stored(value.nbytes, partial(_numpy, value))
        elif isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
            found[str(name)] = Stored(0, partial(np.array, value))
    return found


def _slice(file: Any, name: str) -> np.ndarray:
    return _numpy(file.get_tensor(name))


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    """An array; NumPy does not know bfloat16."""
    tensor = tensor.detach()
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


@contextmanager
def _safetensors(path: Path) -> Iterator[Contents]:
    """Tensors by name; the library compares their sizes with the file."""
    library = _library("safetensors")
    try:
        with library.safe_open(path, framework="pt") as file:
            each = list(file.keys())
            yield {name: Stored(0, partial(_slice, file, name)) for name in each}
    except library.SafetensorError as error:
        raise ValueError(line(error)) from error


FORMATS: dict[str, tuple[str, Opener]] = {
    ".npz": ("a whole .npz archive of numbers, as numpy.savez writes it", npz),
    ".csv": ("a table of numbers with a header", _csv),
    ".parquet": ("a Parquet table", _parquet),
    ".nc": ("a NetCDF-4 file", _netcdf),
    ".h5": ("an HDF5 file", _netcdf),
    ".pt": ("a file of tensors by name, as torch.save({...}) writes it", _torch),
    ".pth": ("a file of tensors by name, as torch.save({...}) writes it", _torch),
    ".safetensors": ("a .safetensors file", _safetensors),
}

"""Files of named arrays, opened by their ending; nothing in them is ever run.

Arrays of a file are known by name and size when it is opened, and only those asked for are read.
Sizes are compared with the file and with the machine's memory before anything is allocated.
"""

import bz2
import csv
import gzip
import math
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch

from .._support.inputs import extra
from ..io import ROOM, UNREADABLE, Contents, Stored, check_room, line, npy, npz

# An array and a part of it: theta.rate, theta[rate], theta_1; theta_q.3.rate is one of many draws.
COLUMN = re.compile(r"(.+?)(?:\.(.+)|\[(.+)\]|_(\d+))$")
# Groups of InferenceData, whose variables (chain, draw, ...) or (...) make up an array.
GROUPS = {
    "posterior": "theta_o",
    "observed_data": "x_o",
    "prior": "theta",
    "prior_predictive": "x",
}


def read_arrays(
    path: Path, known: Callable[[str], bool]
) -> tuple[dict[str, Any], dict[str, tuple[str, ...]], list[str]]:
    """The known arrays of a file or a folder by name, names of their columns, and other arrays.

    Example:
        >>> path = Path(tempfile.mkdtemp()) / "some.npz"
        >>> np.savez(path, theta=np.zeros((2, 3)), notes="anything")
        >>> read_arrays(path, lambda name: name == "theta")
        ({'theta': array([[0., 0., 0.],
               [0., 0., 0.]])}, {}, ['notes'])
    """
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected a file; there is none.")
    if path.is_dir():
        zarr = any((path / name).exists() for name in (".zgroup", "zarr.json", ".zmetadata"))
        kind, opener = FORMATS["zarr" if zarr else "folder"]
    else:
        packed = path.suffix.lower() in (".bz2", ".gz")
        ending = (Path(path.stem) if packed else path).suffix.lower()
        kind, opener = FORMATS.get(ending, FORMATS[".npz"])
        if not path.is_file():
            raise ValueError(f"{path}: expected {kind}; it is no file.")
    try:
        with opener(path) as contents:
            wanted = {name: stored for name, stored in contents.items() if known(name)}
            check_room(sum(stored.nbytes for stored in wanted.values()), path)
            arrays = {name: stored.read() for name, stored in wanted.items()}
            names = {name: stored.names for name, stored in wanted.items() if stored.names}
            return arrays, names, sorted(set(contents) - set(wanted))
    except UNREADABLE as error:
        why = "it holds objects, not numbers" if "pickle" in str(error) else line(error)
        raise ValueError(f"{path}: expected {kind}; it cannot be read ({why}).") from error


def _library(name: str) -> Any:
    """A library that one format needs."""
    with extra("files"):
        return import_module(name)


@contextmanager
def _folder(path: Path) -> Iterator[Contents]:
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
            lines = _lines(file, path)
            table = np.loadtxt(lines, delimiter=",", ndmin=2, quotechar='"', comments=None)
    if not table.size:
        raise ValueError("there are no rows below its header")
    if table.shape[1] != len(header):
        raise ValueError(f"{len(header)} names stand above {table.shape[1]} columns")
    yield columns(dict(zip(header, table.T, strict=True)))


def _lines(file: Any, path: Path) -> Iterator[str]:
    """Lines of a text, which may be packed, but not by too much."""
    read = 0
    while text := file.readline(ROOM):
        read += len(text)
        check_room(read, path)
        yield text


@contextmanager
def _parquet(path: Path) -> Iterator[Contents]:
    """A table; a column of lists is an array by itself."""
    file = _library("pyarrow.parquet").ParquetFile(path)
    check_room(8 * file.metadata.num_rows * file.metadata.num_columns, path)
    table, arrays = file.read(), {}
    for name in table.column_names:
        column = table.column(name)
        values = column.to_pylist() if "list" in str(column.type) else column.to_numpy()
        arrays[name] = np.asarray(values)
    yield columns(arrays)


def columns(table: Mapping[str, np.ndarray]) -> Contents:
    """Arrays that the columns (n,) of a table make up, by the names before their parts.

    Draws that are numbered, as in theta_q.0.rate, have an axis of their own.

    Example:
        >>> some = columns({"theta.a": np.zeros(5), "theta.b": np.ones(5), "x_1": np.zeros(5)})
        >>> [(name, stored.read().shape, stored.names) for name, stored in some.items()]
        [('theta', (5, 2), ('a', 'b')), ('x', (5, 1), ())]
    """
    grouped: dict[str, dict[str, np.ndarray]] = {}
    for name, values in table.items():
        match = COLUMN.match(name)
        array, part = (match[1], match[match.lastindex or 1]) if match else (name, "")
        if part in grouped.setdefault(array, {}):
            raise ValueError(f"{array} has two columns {part}")
        grouped[array][part] = values
    found = {}
    for name, parts in grouped.items():
        first = next(iter(parts.values()))
        if len(parts) == 1 and first.ndim > 1:
            found[name] = Stored(0, partial(np.asarray, first))
            continue
        array = np.stack(list(parts.values()), 1)
        draws = {part.partition(".")[0] for part in parts} if "." in next(iter(parts)) else {""}
        if array.shape[1] % len(draws):
            raise ValueError(f"{len(draws)} draws are numbered in {array.shape[1]} columns")
        if len(draws) > 1:
            array = array.reshape(len(array), len(draws), -1)
        # Names of the m parts, which are those of each draw; none where they are numbers.
        names, m = [part.rpartition(".")[2] for part in parts], array.shape[-1]
        if any(not each or each.isdigit() for each in names):
            names = []
        elif names != names[:m] * len(draws):
            orders = ", ".join(parts)
            raise ValueError(f"the draws have their columns in different orders, {orders}")
        found[name] = Stored(0, partial(np.asarray, array), tuple(names[:m]))
    return found


@contextmanager
def _hdf5(path: Path) -> Iterator[Contents]:
    """Variables of a NetCDF-4 or HDF5 file; groups of InferenceData become arrays."""
    h5py = _library("h5py")

    def datasets(group: Any, before: str = "") -> Iterator[tuple[str, Any]]:
        """Datasets that lie in the file itself, by their paths; no link is followed."""
        for name in group:
            if not isinstance(group.get(name, getlink=True), h5py.HardLink):
                continue
            item = group[name]
            if isinstance(item, h5py.Group):
                yield from datasets(item, f"{before}{name}/")
            elif isinstance(item, h5py.Dataset) and not (item.external or item.is_virtual):
                yield f"{before}{name}", item

    with h5py.File(path, "r") as file:
        yield _groups(dict(datasets(file)))


@contextmanager
def _zarr(path: Path) -> Iterator[Contents]:
    group = _library("zarr").open_group(str(path), mode="r")
    yield _groups({name: item for name, item in group.members(None) if hasattr(item, "dtype")})


def _groups(datasets: Mapping[str, Any]) -> Contents:
    """Arrays by name, and those that the groups of InferenceData make up."""
    found, variables = {}, dict[str, dict[str, Any]]()
    for path, data in datasets.items():
        group, slash, name = path.partition("/")
        if not slash:
            found[path] = Stored(data.nbytes, partial(data.__getitem__, ()))
            continue
        # Some variables only number or name others.
        dimension = getattr(data, "attrs", {}).get("CLASS", b"") == b"DIMENSION_SCALE"
        numbered = path.split("/")[-1] in ("chain", "draw")
        if not (dimension or numbered or data.dtype.kind not in "fiub"):
            variables.setdefault(group, {})[name] = data
    for group, array in GROUPS.items():
        if group not in variables or array in found:
            continue
        names: list[str] = []
        for name, data in variables[group].items() if array.startswith("theta") else ():
            places = np.ndindex(data.shape[2:])
            names += [f"{name}{list(place)}" if place else name for place in places]
        nbytes = sum(data.nbytes for data in variables[group].values())
        found[array] = Stored(nbytes, partial(_joined, variables[group], group), tuple(names))
    return found


def _joined(variables: Mapping[str, Any], group: str) -> np.ndarray:
    """Variables side by side: (draws, m) of a posterior or a prior, (d,) of what was observed."""
    axes = 0 if group == "observed_data" else 2
    parts = [np.asarray(data[()]) for data in variables.values()]
    if len(parts) == 1 and group in ("observed_data", "prior_predictive"):
        return parts[0] if axes == 0 else parts[0].reshape(-1, *parts[0].shape[2:])
    lead = [math.prod(parts[0].shape[:2])] if axes else []
    return np.concatenate([part.reshape([*lead, -1]) for part in parts], -1)


@contextmanager
def _torch(path: Path) -> Iterator[Contents]:
    """Tensors and lists of texts by name; the loader knows no other objects."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            check_room(sum(info.file_size for info in archive.infolist()), path)
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        if "weights_only" not in str(error) and "Unsupported" not in str(error):
            raise
        raise ValueError("it holds other objects than tensors, which would run code") from error
    if not isinstance(saved, Mapping):
        raise ValueError(f"it holds a {type(saved).__name__}, not tensors by name")
    found = {}
    for name, value in saved.items():
        if isinstance(value, torch.Tensor):
            found[str(name)] = Stored(value.nbytes, partial(_numpy, value.detach))
        elif isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
            found[str(name)] = Stored(0, partial(np.array, value))
    yield found


@contextmanager
def _safetensors(path: Path) -> Iterator[Contents]:
    """Tensors by name; the library compares their sizes with the file."""
    library = _library("safetensors")
    try:
        with library.safe_open(path, framework="pt") as file:
            tensors = {name: partial(file.get_tensor, name) for name in file.keys()}  # noqa: SIM118
            yield {name: Stored(0, partial(_numpy, read)) for name, read in tensors.items()}
    except library.SafetensorError as error:
        raise ValueError(line(error)) from error


def _numpy(read: Callable[[], torch.Tensor]) -> np.ndarray:
    """A tensor as an array; NumPy does not know bfloat16."""
    array = read()
    return (array.float() if array.dtype is torch.bfloat16 else array).numpy()


# By the ending of a file, what it should be, and what opens it.
FORMATS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "folder": ("a folder of .npy files", _folder),
    "zarr": ("a Zarr group", _zarr),
    ".npz": ("a whole .npz archive of numbers, as numpy.savez writes it", npz),
    ".csv": ("a table of numbers with a header", _csv),
    ".parquet": ("a Parquet table", _parquet),
    ".nc": ("a NetCDF-4 file", _hdf5),
    ".h5": ("an HDF5 file", _hdf5),
    ".pt": ("a file of tensors by name, as torch.save({...}) writes it", _torch),
    ".pth": ("a file of tensors by name, as torch.save({...}) writes it", _torch),
    ".safetensors": ("a .safetensors file", _safetensors),
}

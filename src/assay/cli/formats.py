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
from contextlib import AbstractContextManager, contextmanager
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
    kind, opener = _format(path)
    if not path.is_file() and not path.is_dir():
        raise ValueError(f"{path}: expected {kind}; it is no file.")
    try:
        with opener(path) as contents:
            wanted = {name: stored for name, stored in contents.items() if known(name)}
            check_room(sum(stored.nbytes for stored in wanted.values()), path)
            arrays = {name: _numpy(stored.read()) for name, stored in wanted.items()}
            names = {name: stored.names for name, stored in wanted.items() if stored.names}
            return arrays, names, sorted(set(contents) - set(wanted))
    except UNREADABLE as error:
        why = "it holds objects, not numbers" if "pickle" in str(error) else line(error)
        raise ValueError(f"{path}: expected {kind}; it cannot be read ({why}).") from error


def _numpy(array: Any) -> Any:
    """Tensors as arrays; NumPy does not know bfloat16."""
    if not isinstance(array, torch.Tensor):
        return array
    return (array.float() if array.dtype is torch.bfloat16 else array).numpy()


def _format(path: Path) -> tuple[str, Callable[[Path], AbstractContextManager[Contents]]]:
    """What a file should be, and what opens it."""
    if path.is_dir():
        zarr = any((path / name).exists() for name in (".zgroup", "zarr.json", ".zmetadata"))
        return ("a Zarr group", _zarr) if zarr else ("a folder of .npy files", _folder)
    packed = path.suffix.lower() in (".bz2", ".gz")
    match (Path(path.stem) if packed else path).suffix.lower():
        case ".csv":
            return "a table of numbers with a header", _csv
        case ".parquet":
            return "a Parquet table", _parquet
        case ".nc":
            return "a NetCDF-4 file", _hdf5
        case ".h5":
            return "an HDF5 file", _hdf5
        case ".pt" | ".pth":
            return "a file of tensors by name, as torch.save({...}) writes it", _torch
        case ".safetensors":
            return "a .safetensors file", _safetensors
    return "a whole .npz archive of numbers, as numpy.savez writes it", npz


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
    table = file.read()
    each = {name: table.column(name) for name in table.column_names}
    lists = {name: "list" in str(column.type) for name, column in each.items()}
    yield columns(
        {n: np.asarray(c.to_pylist() if lists[n] else c.to_numpy()) for n, c in each.items()}
    )


def columns(table: Mapping[str, np.ndarray]) -> Contents:
    """Arrays that the columns (n,) of a table make up, by the names before their parts.

    Draws that are numbered, as in theta_q.0.rate, have an axis of their own.

    Example:
        >>> some = columns({"theta.a": np.zeros(5), "theta.b": np.ones(5), "x_1": np.zeros(5)})
        >>> [(name, stored.read().shape, stored.names) for name, stored in some.items()]
        [('theta', (5, 2), ('a', 'b')), ('x', (5, 1), ())]
    """
    grouped: dict[str, list[tuple[str, np.ndarray]]] = {}
    for name, values in table.items():
        match = COLUMN.match(name)
        array, part = (match[1], match[match.lastindex or 1]) if match else (name, "")
        grouped.setdefault(array, []).append((part, values))
    found = {}
    for name, pairs in grouped.items():
        parts, each = [part for part, _ in pairs], [values for _, values in pairs]
        array = _joined(parts, each)
        found[name] = Stored(0, partial(np.asarray, array), _names(parts, array.shape[-1]))
    return found


def _joined(parts: list[str], each: list[np.ndarray]) -> np.ndarray:
    """Columns (n,) as one array (n, m), or (n, k, m) where k draws are numbered."""
    if len(each) == 1 and each[0].ndim > 1:
        return each[0]
    draws = len({part.partition(".")[0] for part in parts}) if "." in parts[0] else 1
    if len(each) % draws:
        raise ValueError(f"{draws} draws are numbered in {len(each)} columns")
    array = np.stack(each, 1)
    return array if draws == 1 else array.reshape(len(array), draws, -1)


def _names(parts: list[str], m: int) -> tuple[str, ...]:
    """Names of the m parts, which are those of each draw; none where they are numbers."""
    names = [part.rpartition(".")[2] for part in parts]
    if any(not name or name.isdigit() for name in names):
        return ()
    if names != names[:m] * (len(names) // m):
        raise ValueError(f"the draws have their columns in different orders, {', '.join(parts)}")
    return tuple(names[:m])


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
    found = {
        name: Stored(data.nbytes, partial(data.__getitem__, ()))
        for name, data in datasets.items()
        if "/" not in name
    }
    for group, array in GROUPS.items():
        variables = {
            name.partition("/")[2]: data
            for name, data in datasets.items()
            if name.startswith(f"{group}/") and not _is_coordinate(name, data)
        }
        if variables and array not in found:
            nbytes = sum(data.nbytes for data in variables.values())
            names = _variable_names(variables) if array.startswith("theta") else ()
            found[array] = Stored(nbytes, partial(_flattened, variables, group), names)
    return found


def _is_coordinate(name: str, data: Any) -> bool:
    """Whether a variable only numbers or names others."""
    dimension = getattr(data, "attrs", {}).get("CLASS", b"") == b"DIMENSION_SCALE"
    numbered = name.split("/")[-1] in ("chain", "draw")
    return dimension or numbered or data.dtype.kind not in "fiub"


def _variable_names(variables: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of parameters: those of variables (chain, draw), with numbers if there are axes."""
    places = ((name, place) for name, v in variables.items() for place in np.ndindex(v.shape[2:]))
    return tuple(f"{name}{list(place)}" if place else name for name, place in places)


def _flattened(variables: Mapping[str, Any], group: str) -> np.ndarray:
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
            found[str(name)] = Stored(value.nbytes, value.detach)
        elif isinstance(value, list | tuple) and all(isinstance(v, str) for v in value):
            found[str(name)] = Stored(0, partial(np.array, value))
    yield found


@contextmanager
def _safetensors(path: Path) -> Iterator[Contents]:
    """Tensors by name; the library compares their sizes with the file."""
    library = _library("safetensors")
    try:
        with library.safe_open(path, framework="pt") as file:
            names = list(file.keys())
            yield {name: Stored(0, partial(file.get_tensor, name)) for name in names}
    except library.SafetensorError as error:
        raise ValueError(line(error)) from error

"""Kernels that train and ask networks on a GPU: ``kernels.cu``, compiled for one shape at a time.

The compiler is CUDA's; the library that it makes is called by :mod:`ctypes`, with addresses of
tensors. Another compiler may stand in for it: tests run the same kernels on a processor.
"""

import ctypes
import hashlib
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from .networks import TOLERANCE
from .stacked import Fit, Places, Trained

__all__ = ["Compiler", "Kernels", "nvcc"]

SOURCE = Path(__file__).with_name("kernels.cu")
# Epochs of a launch: between two of them nothing is seen of the work.
FIRST, NEXT = 56, 24


@dataclass(frozen=True)
class Compiler:
    """What makes a library of the kernels.

    Args:
        command: The call of it, but for shape, source and output.
        folder: Where libraries are kept.
    """

    command: tuple[str, ...]
    folder: Path

    def library(self, m: int, d: int, units: int) -> Path:
        """The library for rows of m and d numbers, compiled now if it is not there."""
        command = [*self.command, f"-DM={m}", f"-DD={d}", f"-DH={units}"]
        text = " ".join(command).encode() + SOURCE.read_bytes()
        made = hashlib.blake2b(text, digest_size=8).hexdigest()
        path = self.folder / f"kernels-{m}-{d}-{units}-{made}.so"
        if not path.exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(dir=self.folder) as part:
                whole = Path(part) / path.name
                command += [str(SOURCE), "-o", str(whole)]
                made_by = subprocess.run(command, capture_output=True, text=True, check=False)
                if made_by.returncode:
                    raise RuntimeError(f"{' '.join(command)}\n{made_by.stderr}")
                os.replace(whole, path)
        return path


def nvcc(folder: Path, *further: str, arch: str = "sm_90") -> Compiler:
    """CUDA's compiler, for one kind of GPU."""
    options = ("-O3", "-std=c++17", f"-arch={arch}", "--shared", "-Xcompiler", "-fPIC")
    return Compiler(("nvcc", *options, *further), folder)


class _Structure(ctypes.Structure):
    """What a kernel is given, as in ``kernels.cu``."""

    def __init__(self, **values: Tensor | float) -> None:
        # Tensors must live as long as their addresses are in use.
        self.tensors = [value for value in values.values() if isinstance(value, Tensor)]
        assert all(tensor.is_contiguous() for tensor in self.tensors)
        super().__init__(
            **{
                name: value.data_ptr() if isinstance(value, Tensor) else value
                for name, value in values.items()
            }
        )


def _members(pointers: str, **kinds: str) -> list[tuple[str, type]]:
    """Names and types: pointers first, then others."""
    named = {"double": ctypes.c_double, "int": ctypes.c_int, "float": ctypes.c_float}
    members: list[tuple[str, type]] = [(name, ctypes.c_void_p) for name in pointers.split()]
    for kind, names in kinds.items():
        members += [(name, named[kind]) for name in names.split()]
    return members


class _Training(_Structure):
    _fields_ = _members(
        "left right left_at right_at known held orders rates active weights first second best "
        "score stale ran done stream",
        double="tolerance",
        int="blocks pairs n_known n_held batch epochs patience",
        float="penalty",
    )


class _Asking(_Structure):
    _fields_ = _members("weights draws x at found stream", int="copies places count")


@dataclass(frozen=True)
class _Library:
    """A compiled library: its calls, and how it lays out weights."""

    code: ctypes.CDLL
    inputs: int
    units: int
    size: int

    @classmethod
    def opened(cls, path: Path) -> "_Library":
        """A library, ready to be called."""
        code = ctypes.CDLL(str(path))
        shape = (ctypes.c_int * 3)()
        code.shape(shape)
        found = cls(code, *shape)
        found._checked(code.prepare())
        return found

    def call(self, name: str, given: _Structure, device: torch.device) -> None:
        """Launches a kernel, between what this thread has queued before and what follows."""
        with _behind(device) as given.stream:
            self._checked(getattr(self.code, name)(ctypes.byref(given)))

    def _checked(self, error: int) -> None:
        if error:
            raise RuntimeError(f"a kernel could not be launched: CUDA's error {error}")

    def places(self, shapes: list[tuple[int, int]]) -> Tensor:
        """Where weights of a row, one layer after the other, lie in a padded row."""
        matrix = torch.arange(self.inputs * self.units).reshape(self.inputs, self.units)
        second = torch.arange(self.units * self.units).reshape(self.units, self.units)
        vector = torch.arange(self.units)
        parts, start = [], 0
        for table, (a, b) in zip(
            (matrix, vector[None], second, vector[None]), shapes, strict=False
        ):
            parts.append(start + table[:a, :b].flatten())
            start += table.numel()
        parts += [start + vector[: shapes[4][0]], torch.tensor([start + self.units])]
        return torch.cat(parts)


@cache
def _opened(compiler: Compiler, m: int, d: int, units: int) -> _Library:
    path = compiler.library(m, d, units)
    try:
        return _Library.opened(path)
    except OSError:
        # Compiled elsewhere, for other libraries of the system.
        path.unlink()
        return _Library.opened(compiler.library(m, d, units))


@dataclass(frozen=True)
class Kernels:
    """Kernels, in single precision.

    Args:
        compiler: What makes them.
        watch: Called between launches; what it raises ends training.
        first: Epochs of the first launch.
        next: Epochs of the others.
    """

    compiler: Compiler
    watch: Callable[[], None] = lambda: None
    first: int = FIRST
    next: int = NEXT

    def train(self, fit: Fit) -> Trained:
        """Trains all copies."""
        rows, device = fit.rows, fit.rows.left.device
        library = self._library(rows.left, rows.right, fit.plan.shapes)
        at = library.places(fit.plan.shapes).to(device)
        tables = _tables(fit, library.size, at)
        counts = _counts(fit)
        start = 0
        while start < fit.network.epochs:
            active = (tables["done"] == 0).nonzero().flatten().int()
            if not len(active):
                break
            self.watch()
            last = min(fit.network.epochs, start + (self.next if start else self.first))
            orders, rates = fit.plan.orders(start, last), fit.plan.rates(start, last)
            given = _Training(
                **tables,
                **counts,
                active=active,
                orders=orders.to(device),
                rates=rates.flatten().float().to(device),
                blocks=len(active),
                epochs=last - start,
            )
            library.call("train", given, device)
            start = last
        return Trained(tables["best"][:, at], fit.plan.shapes, tables["ran"].long())

    def ask(self, trained: Trained, places: Places) -> Tensor:
        """Mean squared distances of probabilities to 1/2, (h, o)."""
        device = trained.flat.device
        library = self._library(places.draws, places.x, trained.shapes)
        at = library.places(trained.shapes).to(device)
        weights = trained.flat.new_zeros(len(trained.flat), library.size)
        weights[:, at] = trained.flat
        found = weights.new_empty(places.at.shape)
        given = _Asking(
            weights=weights,
            draws=places.draws.contiguous(),
            x=places.x.contiguous(),
            at=places.at.contiguous(),
            found=found,
            copies=len(weights),
            places=len(places.x),
            count=places.count,
        )
        library.call("ask", given, device)
        return found

    def _library(self, left: Tensor, right: Tensor, shapes: list[tuple[int, int]]) -> _Library:
        if left.dtype != torch.float32:
            raise ValueError(f"rows: expected single precision; got {left.dtype}")
        return _opened(self.compiler, left.shape[1], right.shape[1], shapes[0][1])


def _tables(fit: Fit, size: int, at: Tensor) -> dict[str, Tensor]:
    """What is known of copies between launches, and what they are trained on."""
    rows, (known, held) = fit.rows, fit.split
    weights = rows.left.new_zeros(len(rows.codes), size)
    weights[:, at] = fit.plan.first.to(weights)
    numbers = torch.zeros(len(weights), dtype=torch.int32, device=weights.device)
    return {
        "left": rows.left.contiguous(),
        "right": rows.right.contiguous(),
        "left_at": rows.left_at.contiguous(),
        "right_at": rows.right_at.contiguous(),
        "known": known.contiguous(),
        "held": held.contiguous(),
        "weights": weights,
        "best": weights.clone(),
        "first": torch.zeros_like(weights),
        "second": torch.zeros_like(weights),
        "score": numbers - 1,
        **{name: numbers.clone() for name in ("stale", "ran", "done")},
    }


def _counts(fit: Fit) -> dict[str, float]:
    return {
        "tolerance": TOLERANCE,
        "pairs": fit.rows.pairs,
        "n_known": len(fit.plan.known),
        "n_held": len(fit.plan.held),
        "batch": fit.plan.batch,
        "patience": fit.network.patience,
        "penalty": fit.network.penalty,
    }


# Of each thread the queue of its kernels.
_OWN = threading.local()


@contextmanager
def _behind(device: torch.device) -> Iterator[int]:
    """A queue for blocks that take long: small operations of all threads go before them."""
    if device.type != "cuda":
        yield 0
        return
    if not hasattr(_OWN, "stream"):
        _OWN.stream = torch.cuda.Stream(device)
    here = torch.cuda.current_stream(device)
    _OWN.stream.wait_stream(here)
    yield int(_OWN.stream.cuda_stream)
    here.wait_stream(_OWN.stream)

"""The door: what comes in is brought to tensors here, or refused with a reason.

Every message names the argument, says what was expected and what came, and where it is not
obvious, what to do.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["as_device", "as_tensors", "check_count", "check_finite", "check_kind", "check_number"]


def as_tensors(given: dict[str, Any]) -> dict[str, Tensor]:
    """Brings arrays of any library to tensors of one floating type on one device."""
    arrays = {name: _tensor(name, array) for name, array in given.items()}
    devices = {array.device for array in arrays.values()}
    if len(devices) > 1:
        where = ", ".join(f"{name} on {array.device}" for name, array in arrays.items())
        raise ValueError(f"device: expected all arrays on one device; got {where}.")
    dtype = torch.float32
    for array in arrays.values():
        dtype = torch.promote_types(dtype, array.dtype)
    return {name: array.to(dtype) for name, array in arrays.items()}


def _tensor(name: str, given: Any) -> Tensor:
    array = given if isinstance(given, Tensor) else _from_numpy(name, given)
    if array.is_complex() or array.layout != torch.strided:
        raise TypeError(
            f"{name}: expected a dense array of real numbers; got {array.dtype}, {array.layout}."
        )
    if array.numel() == 0:
        raise ValueError(f"{name}: expected a non-empty array; got shape {tuple(array.shape)}.")
    # A copy: what was checked must not change under the caller's hands afterwards.
    array = array.detach().clone()
    return array if array.is_floating_point() else array.to(torch.float64)


def _from_numpy(name: str, given: Any) -> Tensor:
    try:
        array = np.asarray(given)
    except (ValueError, RuntimeError, TypeError) as error:
        raise TypeError(f"{name}: expected an array of numbers; got {error}.") from error
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected an array of real numbers; got {array.dtype}.")
    # Extended precision, foreign byte orders and negative strides are not for torch.
    known = np.float32 if array.dtype.itemsize <= 4 else np.float64
    dtype = known if array.dtype.kind == "f" else np.int64
    return torch.tensor(np.ascontiguousarray(array, dtype=dtype))


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
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        there = ["cpu"] + ["cuda"] * torch.cuda.is_available()
        raise ValueError(f"device: expected one of {there}; got {str(device)!r}.") from error
    return torch.device(device)


def check_count(name: str, value: Any, least: int = 1) -> int:
    """Returns a whole number of at least `least`, or refuses."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected a whole number; got {type(value).__name__}.")
    if value < least:
        raise ValueError(f"{name}: expected at least {least}; got {value}.")
    return int(value)


def check_number(name: str, value: Any, *, least: float = 0.0, strict: bool = True) -> float:
    """Returns a finite number above `least`, or refuses."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise TypeError(f"{name}: expected a number; got {type(value).__name__}.")
    if not math.isfinite(value) or value < least or (strict and value == least):
        bound = "above" if strict else "of at least"
        raise ValueError(f"{name}: expected a finite number {bound} {least:g}; got {value}.")
    return float(value)


def check_kind(name: str, value: Any, expected: str, *members: str) -> None:
    """Refuses an object that lacks what is asked of it, and a class in place of its instance."""
    if isinstance(value, type) or any(not hasattr(value, member) for member in members):
        got = f"the class {value.__name__}" if isinstance(value, type) else type(value).__name__
        raise TypeError(f"{name}: expected {expected}; got {got}.")

"""The door: what comes in is brought to tensors here, or refused with a reason.

Every message names the argument, says what was expected and what came, and where it is not
obvious, what to do.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

__all__ = ["as_device", "as_tensors", "check_count", "check_finite"]


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
    if array.is_complex():
        raise TypeError(f"{name}: expected an array of real numbers; got {array.dtype}.")
    if array.numel() == 0:
        raise ValueError(f"{name}: expected a non-empty array; got shape {tuple(array.shape)}.")
    # A copy: what was checked must not change under the caller's hands afterwards.
    array = array.detach().clone()
    return array if array.is_floating_point() else array.to(torch.float64)


def _from_numpy(name: str, given: Any) -> Tensor:
    try:
        array = np.asarray(given)
    except ValueError as error:
        raise TypeError(f"{name}: expected an array of numbers; got {error}.") from error
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name}: expected an array of real numbers; got {array.dtype}.")
    return torch.tensor(array)


def check_finite(name: str, array: Tensor) -> None:
    """Refuses NaN and infinity, with their count and first rows."""
    bad = ~array.isfinite().reshape(len(array) if array.ndim else 1, -1).all(1)
    if bad.any():
        first = bad.nonzero().flatten()[:5].tolist()
        raise ValueError(
            f"{name}: expected finite numbers; got NaN or infinity in {int(bad.sum())} of "
            f"{len(bad)} rows, first at {first}. Calibration.drop_invalid(theta, x, theta_q) "
            "leaves such rows out."
        )


def as_device(device: str | torch.device) -> torch.device:
    """Returns a device that is there."""
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        there = ["cpu"] + ["cuda"] * torch.cuda.is_available()
        raise ValueError(f"device: expected one of {there}; got {str(device)!r}.") from error
    return torch.device(device)


def check_count(name: str, value: int, least: int = 1) -> None:
    """Refuses what is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(f"{name}: expected a whole number; got {type(value).__name__}.")
    if value < least:
        raise ValueError(f"{name}: expected at least {least}; got {value}.")

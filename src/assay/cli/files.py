"""Files as people have them: NumPy archives with named arrays.

A **calibration** is an ``.npz`` with ``theta`` (n, m), ``x`` (n, ...) and ``theta_q`` (n, m) or
(n, k, m); or with latents ``z`` (n, m) and ``x``, for a flow with a standard normal base. It may
hold ``names``, those of the m parameters.

An **observation** is an ``.npz`` with ``x_o``, shaped as one row of x or with a leading axis for
many, and ``theta_o`` (s, m) or (o, s, m) where the calibration has draws. It may hold ``labels``,
and may be part of the calibration's file.

What :func:`assay.save` wrote is read as well. Other arrays are left alone.
"""

import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..io import load
from ..samples.calibration import Calibration, Draws

UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, OSError)


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a check needs, read from files."""

    calibration: Calibration
    draws: Draws  # with a leading axis of observations
    names: tuple[str, ...] | None  # of the parameters; None where the files have none
    labels: tuple[str, ...]  # of the observations


def read(calibration: Path, observations: Sequence[Path] = ()) -> Inputs:
    """Reads a calibration, and observations from files of their own or from the same one.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "calibration.npz"
        >>> z, x = np.random.default_rng(0).normal(size=(2, 100, 3))
        >>> np.savez(path, z=z, x=x, x_o=x[0], names=["a", "b", "c"])
        >>> read(path).calibration
        Calibration(n=100, m=3, k=None, x=(3,), space='latent')
    """
    arrays = _arrays(calibration)
    samples = _calibration(calibration, arrays)
    files = observations or ([calibration] if "x_o" in arrays else [])
    if not files:
        raise ValueError(
            f"{calibration}: expected an array x_o in it, or observations in files of their own; "
            "got neither."
        )
    observed = [_observed(path, samples) for path in files]
    labels = tuple(label for _, some in observed for label in some)
    if len(set(labels)) < len(labels):
        labels = tuple(f"{label} ({i})" for i, label in enumerate(labels))
    draws = _joined([draws for draws, _ in observed], files)
    return Inputs(samples, draws, _names(arrays), labels)


def _arrays(path: Path) -> dict[str, Any]:
    """The arrays of an archive by name; what assay.save wrote stands under 'assay'."""
    if not path.exists():
        raise FileNotFoundError(f"{path}: expected a file; there is none.")
    try:
        with path.open("rb") as file:
            archive = np.load(file, allow_pickle=False)
            if not hasattr(archive, "files"):
                raise ValueError("it holds a single array")
            return {name: archive[name] for name in archive.files}
    except UNREADABLE as error:
        why = "objects, or no archive at all" if "pickle" in str(error) else _line(error)
        raise ValueError(
            f"{path}: expected a whole .npz archive of numbers, as numpy.savez writes it; it "
            f"cannot be read ({why})."
        ) from error


def _line(error: Exception) -> str:
    """An error in one line."""
    return " ".join(str(error).split())[:200] or type(error).__name__


def _calibration(path: Path, arrays: dict[str, Any]) -> Calibration:
    if "assay" in arrays:
        saved = load(path)
        if not isinstance(saved, Calibration):
            raise ValueError(
                f"{path}: expected a Calibration; got a saved {type(saved).__name__}. "
                "Use assay show for results."
            )
        return saved
    wanted = ("z", "x") if "z" in arrays and "theta" not in arrays else ("theta", "x", "theta_q")
    _check_names(path, arrays, wanted, "or z and x for latents")
    try:
        parts = [arrays[name] for name in wanted]
        return Calibration.from_base(*parts) if len(parts) == 2 else Calibration(*parts)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {_line(error)}") from error


def _check_names(path: Path, arrays: dict[str, Any], wanted: Sequence[str], other: str) -> None:
    missing = [name for name in wanted if name not in arrays]
    if missing:
        raise ValueError(
            f"{path}: expected arrays {', '.join(wanted)} ({other}); {', '.join(missing)} missing "
            f"among {', '.join(sorted(arrays)) or 'none'}. `assay template` writes examples."
        )


def _observed(path: Path, calibration: Calibration) -> tuple[Draws, tuple[str, ...]]:
    """Observations of one file, with a leading axis, and their labels."""
    arrays = _arrays(path)
    if "assay" in arrays:
        draws = load(path)
        if not isinstance(draws, Draws):
            raise ValueError(f"{path}: expected Draws; got a saved {type(draws).__name__}.")
    else:
        latent = calibration.base is not None
        wanted = ("x_o",) if latent else ("x_o", "theta_o")
        _check_names(path, arrays, wanted, "x_o alone for latents")
        try:
            draws = Draws(arrays["x_o"], None if latent else arrays["theta_o"])
        except (TypeError, ValueError) as error:
            name, colon, rest = _line(error).partition(":")
            named = f"{name}_o" if name in ("x", "theta") else name
            raise ValueError(f"{path}: {named}{colon}{rest}") from error
    try:
        observation = calibration.observation(draws)
        draws = draws.many(observation) if observation.single else draws
        calibration.observe(draws)
    except ValueError as error:
        raise ValueError(f"{path}: {_line(error)}") from error
    return draws, _labels(path, arrays, len(draws.x))


def _labels(path: Path, arrays: dict[str, Any], count: int) -> tuple[str, ...]:
    if "labels" not in arrays:
        return (path.stem,) if count == 1 else tuple(f"{path.stem}[{i}]" for i in range(count))
    labels = tuple(str(label) for label in np.atleast_1d(arrays["labels"]))
    if len(labels) != count:
        raise ValueError(f"{path}: expected {count} labels, one for each x_o; got {len(labels)}.")
    return labels


def _names(arrays: dict[str, Any]) -> tuple[str, ...] | None:
    return tuple(str(n) for n in np.atleast_1d(arrays["names"])) if "names" in arrays else None


def _joined(parts: list[Draws], files: Sequence[Path]) -> Draws:
    """Observations of all files, one behind the other."""
    if len({draws.n for draws in parts}) > 1:
        counts = ", ".join(f"{path.name} {d.n}" for path, d in zip(files, parts, strict=True))
        raise ValueError(f"theta_o: expected as many draws at every x_o; got {counts}.")
    x = torch.cat([draws.x for draws in parts])
    thetas = [draws.theta for draws in parts if draws.theta is not None]
    return Draws(x, torch.cat(thetas) if thetas else None, parts[0].n)

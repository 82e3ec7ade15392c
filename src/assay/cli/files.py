"""What the arrays of a file are: a calibration, an observation, names and labels.

A **calibration** is a file with ``theta`` (n, m), ``x`` (n, ...) and ``theta_q`` (n, m) or (n, k,
m); or with latents ``z`` (n, m) and ``x``, for a flow with a standard normal base. It may hold
``names``, those of the m parameters.

An **observation** is a file with ``x_o``, shaped as one row of x or with a leading axis for many,
and ``theta_o`` (s, m) or (o, s, m) where the calibration has draws. It may hold ``labels``, and
may be part of the calibration's file.

Names of sbi and sbibm are understood as well (`ALIASES`), and so are sbi's draws (k, n, m). What
:func:`assay.save` wrote is read. Other arrays are left alone. :mod:`assay.cli.formats` says which
files there are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.calibration import Calibration, Draws
from ..io import line, load
from .formats import NAMES_OF, read_arrays

# What others call these arrays. Draws of the posterior are those at x_o where there is no x.
ALIASES = {
    "theta": ("thetas", "prior_samples", "parameters", "params", "parameter"),
    "x": ("xs", "data", "simulations", "simulated_data", "x_sim"),
    "theta_q": ("posterior_samples", "posterior_draws", "q_samples", "samples"),
    "z": ("latents",),
    "x_o": ("x_obs", "xo", "observation", "observations", "observed_data"),
    "theta_o": (),
}
AT_X_O = {"theta_q": "theta_o", "x": "x_o"}
KNOWN = {*ALIASES, *(a for others in ALIASES.values() for a in others), "names", "labels", "assay"}


@dataclass(frozen=True, eq=False)
class Inputs:
    """What a check needs, read from files."""

    calibration: Calibration
    draws: Draws  # with a leading axis of observations
    names: tuple[str, ...] | None  # of the parameters; None where the files have none
    labels: tuple[str, ...]  # of the observations
    found: str  # what was found in the files, in one line


@dataclass(frozen=True, eq=False)
class File:
    """The arrays of a file, by this library's names, and what is to be said of them."""

    path: Path
    arrays: dict[str, Any]
    called: dict[str, str] = field(default_factory=dict)  # other names that they have in the file
    left: Sequence[str] = ()

    @property
    def found(self) -> str:
        """What was found, in one line."""
        if "assay" in self.arrays:
            return f"{self.path.name}: what assay.save wrote"
        said = [self._said(name) for name in (*ALIASES, "names", "labels") if name in self.arrays]
        left = f"; left alone: {', '.join(self.left)}" if self.left else ""
        return f"{self.path.name}: {', '.join(said) or 'nothing known'}{left}"

    def _said(self, name: str) -> str:
        called = f"{self.called[name]} as " if name in self.called else ""
        return f"{called}{name} {tuple(np.shape(self.arrays[name]))}"


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
    file = _read(calibration)
    samples = _calibration(file)
    others = [_read(path, at_x_o=True) for path in observations]
    files = others or ([file] if "x_o" in file.arrays else [])
    if not files:
        raise ValueError(
            f"{calibration}: expected an array x_o in it, or observations in files of their own; "
            "got neither."
        )
    for one in files:
        _in_order(one, "theta_o", _names(file.arrays))
    observed = [_observed(one, samples) for one in files]
    labels = tuple(label for _, some in observed for label in some)
    if len(set(labels)) < len(labels):
        labels = tuple(f"{label} ({i})" for i, label in enumerate(labels))
    draws = _joined([draws for draws, _ in observed], [one.path for one in files])
    found = "found " + "; ".join(one.found for one in (file, *others))
    return Inputs(samples, draws, _names(file.arrays), labels, found)


def _read(path: Path, *, at_x_o: bool = False) -> File:
    """A file by this library's names; one of observations has draws at x_o alone."""
    arrays, left = read_arrays(path, lambda name: name.removeprefix(NAMES_OF) in KNOWN)
    called: dict[str, str] = {}
    for name, others in ALIASES.items():
        there = [other for other in others if other in arrays]
        if len(there) > 1 and name not in arrays:
            raise ValueError(f"{path}: expected one of {', '.join(there)} for {name}; got both.")
        if there and name not in arrays:
            called[name] = _moved(arrays, there[0], name)
    for name, there_too in AT_X_O.items() if at_x_o and "theta" not in arrays else ():
        if name in arrays and there_too not in arrays:
            called[there_too] = called.pop(name, _moved(arrays, name, there_too))
    if f"{NAMES_OF}theta" in arrays:
        arrays.setdefault("names", arrays[f"{NAMES_OF}theta"])
    left = [name for name in left if not name.startswith(NAMES_OF)]
    file = File(path, _reshaped(arrays), called, left)
    _in_order(file, "theta_q", _names(arrays))
    return file


def _moved(arrays: dict[str, Any], old: str, new: str) -> str:
    """Gives an array, and the names of its columns, another name; returns the old one."""
    for before in ("", NAMES_OF):
        if f"{before}{old}" in arrays:
            arrays[f"{before}{new}"] = arrays.pop(f"{before}{old}")
    return old


def _in_order(file: File, name: str, names: tuple[str, ...] | None) -> None:
    """Puts the parameters of draws into the order of their names, where both are known."""
    own = [str(n) for n in file.arrays.get(f"{NAMES_OF}{name}", ())]
    if not own or names is None or own == [*names]:
        return
    if sorted(own) != sorted(names):
        raise ValueError(
            f"{file.path}: expected {name} with parameters {', '.join(names)}; got "
            f"{', '.join(own)}."
        )
    file.arrays[name] = file.arrays[name][..., [own.index(n) for n in names]]


def _reshaped(arrays: dict[str, Any]) -> dict[str, Any]:
    """Draws as this library has them: with sets or observations first, and rows put together."""
    arrays |= _grouped(arrays, ("theta", "x"), "theta_q") | _grouped(arrays, ("x_o",), "theta_o")
    for name, beside, few in (("theta_q", "theta", len), ("theta_o", "x_o", lambda _: 1)):
        draws: Any = arrays.get(name)
        other: Any = arrays.get(beside)
        # sbi puts draws before observations.
        if np.ndim(draws) == 3 and np.ndim(other) and len(draws) != few(other) == draws.shape[1]:
            arrays[name] = draws.swapaxes(0, 1)
    return arrays


def _grouped(arrays: dict[str, Any], same: tuple[str, ...], name: str) -> dict[str, Any]:
    """Rows of a table that differ in their draw alone, as one with several draws."""
    parts = [arrays[n] for n in (*same, name) if n in arrays and np.ndim(arrays[n]) == 2]
    if len(parts) <= len(same) or len({len(part) for part in parts}) > 1:
        return {}
    *others, draws = parts
    new = np.any([(part[1:] != part[:-1]).any(1) for part in others], 0)
    starts = np.flatnonzero(np.concatenate([[True], new]))
    sizes = set(np.diff([*starts, len(draws)]).tolist())
    if sizes == {1} or len(sizes) > 1:
        return {}
    grouped = {n: part[starts] for n, part in zip(same, others, strict=True)}
    return grouped | {name: draws.reshape(len(starts), *sizes, -1)}


def _calibration(file: File) -> Calibration:
    path, arrays = file.path, file.arrays
    if "assay" in arrays:
        saved = load(path)
        if not isinstance(saved, Calibration):
            raise ValueError(
                f"{path}: expected a Calibration; got a saved {type(saved).__name__}. "
                "Use assay show for results."
            )
        return saved
    wanted = ("z", "x") if "z" in arrays and "theta" not in arrays else ("theta", "x", "theta_q")
    _check_names(file, wanted, "or z and x for latents")
    try:
        parts = [arrays[name] for name in wanted]
        return Calibration.from_base(*parts) if len(parts) == 2 else Calibration(*parts)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {line(error)}") from error


def _check_names(file: File, wanted: Sequence[str], other: str) -> None:
    missing = [name for name in wanted if name not in file.arrays]
    if missing:
        raise ValueError(
            f"{file.path}: expected arrays {', '.join(wanted)} ({other}); {', '.join(missing)} "
            f"missing; found {file.found}. `assay template` writes examples."
        )


def _observed(file: File, calibration: Calibration) -> tuple[Draws, tuple[str, ...]]:
    """Observations of one file, with a leading axis, and their labels."""
    path, arrays = file.path, file.arrays
    if "assay" in arrays:
        draws = load(path)
        if not isinstance(draws, Draws):
            raise ValueError(f"{path}: expected Draws; got a saved {type(draws).__name__}.")
    else:
        latent = calibration.base is not None
        wanted = ("x_o",) if latent else ("x_o", "theta_o")
        _check_names(file, wanted, "x_o alone for latents")
        try:
            draws = Draws(arrays["x_o"], None if latent else arrays["theta_o"])
        except (TypeError, ValueError) as error:
            name, colon, rest = line(error).partition(":")
            named = f"{name}_o" if name in ("x", "theta") else name
            raise ValueError(f"{path}: {named}{colon}{rest}") from error
    try:
        observation = calibration.observation(draws)
        draws = draws.many(observation) if len(observation.x) == 1 else draws
        calibration.observe(draws)
    except ValueError as error:
        raise ValueError(f"{path}: {line(error)}") from error
    return draws, _labels(path, arrays, len(draws.x))


def _labels(path: Path, arrays: dict[str, Any], count: int) -> tuple[str, ...]:
    if "labels" not in arrays:
        return (path.stem,) if count == 1 else tuple(f"{path.stem}[{i}]" for i in range(count))
    labels = _texts(arrays["labels"])
    if len(labels) != count:
        raise ValueError(f"{path}: expected {count} labels, one for each x_o; got {len(labels)}.")
    return labels


def _names(arrays: dict[str, Any]) -> tuple[str, ...] | None:
    return _texts(arrays["names"]) if "names" in arrays else None


def _texts(given: Any) -> tuple[str, ...]:
    """Words, which some writers keep as bytes."""
    each = np.atleast_1d(given)
    return tuple(t.decode(errors="replace") if isinstance(t, bytes) else str(t) for t in each)


def _joined(parts: list[Draws], files: Sequence[Path]) -> Draws:
    """Observations of all files, one behind the other."""
    if len({draws.n for draws in parts}) > 1:
        counts = ", ".join(f"{path.name} {d.n}" for path, d in zip(files, parts, strict=True))
        raise ValueError(f"theta_o: expected as many draws at every x_o; got {counts}.")
    x = torch.cat([draws.x for draws in parts])
    thetas = [draws.theta for draws in parts if draws.theta is not None]
    return Draws(x, torch.cat(thetas) if thetas else None, parts[0].n)

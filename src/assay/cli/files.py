"""What the arrays of a file are: a calibration, an observation, names and labels.

A **calibration** is a file with ``theta`` (n, m), ``x`` (n, ...) and ``theta_q`` (n, m) or (n, k,
m); or with latents ``z`` (n, m) and ``x``, for a flow with a standard normal base. It may hold
``names``, those of the m parameters. An **observation** is a file with ``x_o``, shaped as one row
of x or with a leading axis for many, and ``theta_o`` (s, m) or (o, s, m) where the calibration has
draws. It may hold ``labels``, and may be part of the calibration's file.

Names of sbi and sbibm are understood as well (`ALIASES`), and so are sbi's draws (k, n, m). What
:func:`assay.save` wrote is read. Other arrays are left alone. :mod:`assay.cli.formats` says which
files there are.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..data.calibration import Calibration
from ..data.draw import Draws
from ..io import line, load
from .formats import read_arrays

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


class File:
    """The arrays of a file, by this library's names; of observations, draws at x_o alone."""

    def __init__(self, path: Path, *, at_x_o: bool = False) -> None:
        self.path = path
        # Names of their columns, where these are known, and arrays that are left alone.
        self.arrays, self.columns, self.others = read_arrays(path, KNOWN.__contains__)
        self.aliases: dict[str, str] = {}  # the names that arrays have in the file
        for name, others in ALIASES.items():
            there = [other for other in others if other in self.arrays]
            if len(there) > 1 and name not in self.arrays:
                raise ValueError(
                    f"{path}: expected one of {', '.join(there)} for {name}; got both."
                )
            if there:
                self._rename(there[0], name)
        for name, new in AT_X_O.items() if at_x_o and "theta" not in self.arrays else ():
            if name in self.arrays:
                self._rename(name, new)
        if "theta" in self.columns:
            self.arrays.setdefault("names", np.array(self.columns["theta"]))
        self.names = _texts(self.arrays["names"]) if "names" in self.arrays else None
        shape_draws(self.arrays, "theta_q", ("theta", "x"))
        shape_draws(self.arrays, "theta_o", ("x_o",))
        self.sort_parameters("theta_q", self.names)

    def _rename(self, old: str, new: str) -> None:
        if new in self.arrays:
            return
        self.aliases[new] = self.aliases.pop(old, old)
        self.arrays[new] = self.arrays.pop(old)
        if old in self.columns:
            self.columns[new] = self.columns.pop(old)

    def sort_parameters(self, name: str, names: tuple[str, ...] | None) -> None:
        """Puts the parameters of draws into the order of their names, where both are known."""
        own = self.columns.get(name)
        if own is None or names is None or own == names:
            return
        if sorted(own) != sorted(names):
            raise ValueError(
                f"{self.path}: expected {name} with parameters {', '.join(names)}; got "
                f"{', '.join(own)}."
            )
        self.arrays[name] = self.arrays[name][..., [own.index(n) for n in names]]

    def __str__(self) -> str:
        """What was found, in one line."""
        if "assay" in self.arrays:
            return f"{self.path.name}: what assay.save wrote"
        known = [name for name in (*ALIASES, "names", "labels") if name in self.arrays]
        words = {name: f"{old} as {name}" for name, old in self.aliases.items()}
        each = [f"{words.get(name, name)} {np.shape(self.arrays[name])}" for name in known]
        others = f"; left alone: {', '.join(self.others)}" if self.others else ""
        return f"{self.path.name}: {', '.join(each) or 'nothing known'}{others}"

    def take(self, wanted: Sequence[str], other: str) -> list[Any]:
        """Some of the arrays, or refuses a file that lacks them."""
        missing = [name for name in wanted if name not in self.arrays]
        if missing:
            raise ValueError(
                f"{self.path}: expected arrays {', '.join(wanted)} ({other}); "
                f"{', '.join(missing)} missing; found {self}. `assay template` writes examples."
            )
        return [self.arrays[name] for name in wanted]


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
    file = File(calibration)
    pairs = _calibration(file)
    others = [File(path, at_x_o=True) for path in observations]
    files = others or ([file] if "x_o" in file.arrays else [])
    if not files:
        raise ValueError(
            f"{calibration}: expected an array x_o in it, or observations in files of their own; "
            "got neither."
        )
    for one in files:
        one.sort_parameters("theta_o", file.names)
    each = [_observed(one, pairs) for one in files]
    parts = (_labels(one, len(draws.x)) for one, draws in zip(files, each, strict=True))
    labels = tuple(label for part in parts for label in part)
    if len(set(labels)) < len(labels):
        labels = tuple(f"{label} ({i})" for i, label in enumerate(labels))
    if len({draws.n for draws in each}) > 1:
        counts = (f"{one.path.name} {d.n}" for one, d in zip(files, each, strict=True))
        raise ValueError(f"theta_o: expected as many draws at every x_o; got {', '.join(counts)}.")
    thetas = [draws.theta for draws in each if draws.theta is not None]
    x_o = torch.cat([draws.x for draws in each])
    draws = Draws(x_o, torch.cat(thetas) if thetas else None, each[0].n)
    found = "; ".join(map(str, (file, *others)))
    return Inputs(pairs, draws, file.names, labels, f"found {found}")


def shape_draws(arrays: dict[str, Any], name: str, beside: tuple[str, ...]) -> None:
    """Gives draws an axis of their own, behind that of simulations or observations."""
    parts = [arrays[n] for n in (*beside, name) if n in arrays and np.ndim(arrays[n]) == 2]
    if len(parts) > len(beside) and len({len(part) for part in parts}) == 1:
        # Rows of a table that differ in their draw alone are joined.
        *others, draws = parts
        new = np.any([(part[1:] != part[:-1]).any(1) for part in others], 0)
        starts = np.flatnonzero(np.concatenate([[True], new]))
        sizes = set(np.diff([*starts, len(draws)]).tolist())
        if len(sizes) == 1 and sizes != {1}:
            arrays |= {n: part[starts] for n, part in zip(beside, others, strict=True)}
            arrays[name] = draws.reshape(len(starts), *sizes, -1)
    draws, other = arrays.get(name, ()), arrays.get(beside[0], 0.0)
    if np.ndim(draws) == 3 and np.ndim(other):
        count = len(other) if name == "theta_q" else 1
        # sbi puts draws before observations.
        if len(draws) != count == draws.shape[1]:
            arrays[name] = draws.swapaxes(0, 1)


def _calibration(file: File) -> Calibration:
    if "assay" in file.arrays:
        saved = load(file.path)
        if not isinstance(saved, Calibration):
            raise ValueError(
                f"{file.path}: expected a Calibration; got a saved {type(saved).__name__}. "
                "Use assay show for results."
            )
        return saved
    latent = "z" in file.arrays and "theta" not in file.arrays
    wanted = ("z", "x") if latent else ("theta", "x", "theta_q")
    parts = file.take(wanted, "or z and x for latents")
    with _errors_name(file.path):
        return Calibration.from_base(*parts) if latent else Calibration(*parts)


def _observed(file: File, calibration: Calibration) -> Draws:
    """Observations of one file, with a leading axis."""
    if "assay" in file.arrays:
        draws = load(file.path)
        if not isinstance(draws, Draws):
            raise ValueError(f"{file.path}: expected Draws; got a saved {type(draws).__name__}.")
    else:
        latent = calibration.base is not None
        parts = file.take(("x_o",) if latent else ("x_o", "theta_o"), "x_o alone for latents")
        with _errors_name(file.path, {"x": "x_o", "theta": "theta_o"}):
            draws = Draws(*parts)
    with _errors_name(file.path):
        observation = calibration.observation(draws)
        draws = draws.many(observation.x) if len(observation.x) == 1 else draws
        calibration.observe(draws)
    return draws


@contextmanager
def _errors_name(path: Path, names: Mapping[str, str] | None = None) -> Iterator[None]:
    """Errors name the file, and its arrays as they are called there."""
    try:
        yield
    except (TypeError, ValueError) as error:
        name, colon, rest = line(error).partition(":")
        raise ValueError(f"{path}: {(names or {}).get(name, name)}{colon}{rest}") from error


def _labels(file: File, count: int) -> tuple[str, ...]:
    stem = file.path.stem
    if "labels" not in file.arrays:
        return (stem,) if count == 1 else tuple(f"{stem}[{i}]" for i in range(count))
    labels = _texts(file.arrays["labels"])
    if len(labels) != count:
        raise ValueError(
            f"{file.path}: expected {count} labels, one for each x_o; got {len(labels)}."
        )
    return labels


def _texts(given: Any) -> tuple[str, ...]:
    """Words, which some writers keep as bytes."""
    each = np.atleast_1d(given)
    return tuple(t.decode(errors="replace") if isinstance(t, bytes) else str(t) for t in each)

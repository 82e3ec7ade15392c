"""Work in chunks: what failed in them, and files that keep them, so that it can go on later."""

import zipfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from .._support.files import atomic_write


class Chunk(NamedTuple):
    """What was given (b, ...), what came of it (b, ...), NaN where it failed, and the first error.

    Of a simulator these are parameters and observations; of a posterior observations and draws.
    """

    given: np.ndarray
    made: np.ndarray
    error: str

    @property
    def failed(self) -> np.ndarray:
        """Which rows failed, (b,)."""
        return failed(self.made)

    def write(self, file: Path | None) -> None:
        """Keeps it in a file, or nowhere."""
        if file is not None:
            with atomic_write(file) as handle:
                np.savez(handle, given=self.given, made=self.made, error=np.array(self.error))

    @classmethod
    def read(cls, file: Path, given: np.ndarray, kept: str, of: str) -> "Chunk":
        """One that was kept, of what must be given (b, ...); words say what both of them are."""
        try:
            with open(file, "rb") as handle, np.load(handle, allow_pickle=False) as parts:
                chunk = cls(parts["given"], parts["made"], str(parts["error"]))
        except (zipfile.BadZipFile, KeyError, ValueError, EOFError, OSError) as problem:
            raise ValueError(
                f"resume: expected {kept} that were kept; {file} cannot be read. Delete it, and "
                "they are made again."
            ) from problem
        # Not to the last digit: draws of q may be rounded otherwise on another day.
        close = partial(np.allclose, rtol=1e-3, atol=1e-6, equal_nan=True)
        if chunk.given.shape != given.shape or not close(chunk.given, given):
            raise ValueError(
                f"resume: expected {kept} of the same {of}; got others in {file}. Was it made "
                "with another prior or posterior? Give another folder, or make the same call."
            )
        return chunk


def failed(made: np.ndarray) -> np.ndarray:
    """Which rows (n, ...) are not finite, (n,)."""
    return np.asarray(~np.isfinite(made).reshape(len(made), -1).all(1))


def existing_folder(folder: Path) -> Path:
    """A folder to keep files in, made where it is missing."""
    if folder.is_file():
        raise ValueError(f"resume: expected a folder; got the file {folder}.")
    folder.mkdir(parents=True, exist_ok=True)
    return folder

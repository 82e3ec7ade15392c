"""A file is replaced when all of it is written, and never left half done."""

import errno
import os
import secrets
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

if sys.platform != "win32":
    import fcntl


@contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Opens a file to write; it takes its place when all is written, and leaves none otherwise.

    Links and modes stay. A terminal, a device or a pipe is written to. What killed processes left
    of the same file is removed.
    """
    try:
        with _stream(path) or _replacing(Path(os.path.realpath(path))) as file:
            yield file
    except OSError as error:  # of a part, which nobody knows by its name
        if error.errno and (error.filename is None or str(error.filename).endswith(".part")):
            raise OSError(error.errno, error.strerror, os.fspath(path)) from error
        raise


def _stream(path: str | os.PathLike[str]) -> IO[bytes] | None:
    """What must not be replaced, opened: a device, a pipe, or the file that is printed to."""
    if not os.path.exists(path):
        return None
    there = os.stat(path)
    for number, stream in enumerate((sys.stdout, sys.stderr), 1):
        with suppress(OSError):
            if os.path.samestat(os.fstat(number), there):
                if stream is not None:
                    stream.flush()
                return os.fdopen(os.dup(number), "wb")
    if stat.S_ISCHR(there.st_mode) or stat.S_ISFIFO(there.st_mode):
        return open(path, "wb")
    if not stat.S_ISREG(there.st_mode):
        raise OSError(f"path: expected a file to write; {os.fspath(path)} is none.")
    return None


@contextmanager
def _replacing(target: Path) -> Iterator[IO[bytes]]:
    """A part, which takes the place of a file."""
    mode = stat.S_IMODE(target.stat().st_mode) if target.exists() else None
    if mode is not None and not os.access(target, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(target))
    start = f".{zlib.crc32(os.fsencode(target.name)):08x}-"  # short, however long the name is
    _sweep(target.parent.glob(f"{start}*.part"))
    part = target.with_name(f"{start}{secrets.token_hex(4)}.part")
    try:
        with _locked(part, 0o666 if mode is None else mode) as file:
            if mode is not None:
                os.chmod(part, mode)
            yield file
            file.flush()
            os.fsync(file.fileno())
            if sys.platform == "win32":
                file.close()
            os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _locked(part: Path, mode: int) -> IO[bytes]:
    """A new file, locked as long as it is open: that tells it from one that was left."""
    while True:
        file = open(part, "xb", opener=lambda name, flags: os.open(name, flags, mode))
        if sys.platform != "win32":
            with suppress(OSError):  # not every file system has locks
                fcntl.flock(file, fcntl.LOCK_EX)
        if part.exists():
            return file
        file.close()  # taken for one that was left, before it was locked


def _sweep(parts: Iterable[Path]) -> None:
    """Removes parts that nobody writes any more."""
    for part in parts if sys.platform != "win32" else ():
        with suppress(OSError), open(part, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another may have removed it since it was opened, and its writer begun anew.
            if os.path.samestat(os.fstat(file.fileno()), os.stat(part)):
                part.unlink()

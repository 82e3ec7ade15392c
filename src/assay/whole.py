"""Files that appear whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

__all__ = ["whole"]


@contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Opens a file to write; it takes its place when all is written, and leaves none otherwise.

    Args:
        path: The file, in a folder that exists.

    Example:
        >>> path = Path(tempfile.mkdtemp()) / "a.txt"
        >>> with whole(path) as file:
        ...     _ = file.write(b"all of it")
        >>> path.read_text()
        'all of it'
    """
    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
        # mkstemp makes files for their owner only; this one is a file like any other.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise

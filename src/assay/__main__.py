"""Runs the command line, as ``assay`` and as ``python -m assay``; Ctrl-C is quiet at any time."""

import os
import signal
import sys
from types import FrameType
from typing import NoReturn


def _interrupted(number: int, frame: FrameType | None) -> NoReturn:
    """Stops the work, and prints no errors that follow; another Ctrl-C ends it at once."""
    sys.unraisablehook = lambda *_: None
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    raise KeyboardInterrupt


def main() -> None:
    """Runs the command line."""
    # A process that is started in the background ignores interrupts, and keeps doing so.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupted)
    before = signal.getsignal(signal.SIGINT)
    try:
        from .cli import main as run

        run()
    finally:
        if signal.getsignal(signal.SIGINT) is not before:
            os._exit(130)
        signal.signal(signal.SIGINT, signal.SIG_IGN)


if __name__ == "__main__":
    main()

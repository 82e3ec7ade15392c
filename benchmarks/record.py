"""Where the figures of a record come from."""

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

from assay.results import versions


def origin() -> dict[str, Any]:
    """The commit, versions and the machine."""
    machine = {"platform": platform.platform(), "processors": os.cpu_count()}
    return {"commit": commit(), "versions": versions(), "machine": machine}


def commit() -> str:
    """The commit that is checked out; empty outside a repository."""
    git = [
        "git",
        "-C",
        str(Path(__file__).parent),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=40",
    ]
    try:
        return subprocess.run(git, capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        return ""

"""Where the figures of a record come from, and where it is kept."""

import json
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


def keep(name: str, seed: int, found: dict[str, Any]) -> None:
    """Writes a record into the folder that the variable ``ASSAY_RECORDS`` names, if it does."""
    folder = os.environ.get("ASSAY_RECORDS")
    if folder:
        record = {**origin(), "seed": seed, name: found}
        Path(folder, f"{name}.json").write_text(json.dumps(record, indent=1), encoding="utf-8")


def commit() -> str:
    """The commit that is checked out, or that ``ASSAY_COMMIT`` names where there is no git."""
    git = ["git", "-C", str(Path(__file__).parent)]
    words = ["describe", "--always", "--dirty", "--abbrev=40"]
    try:
        found = subprocess.run([*git, *words], capture_output=True, text=True).stdout.strip()
    except FileNotFoundError:
        found = ""
    return found or os.environ.get("ASSAY_COMMIT", "")

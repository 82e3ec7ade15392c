"""How long ``make reproduce`` takes at the small budget, killed once and resumed.

    python -m benchmarks.smoke [--kill 200] [--workers 2] [--name all]

The run is killed with all its workers after some seconds, and started again; lines that the first
had written must all be there at the end. Leaves ``results/paper/smoke.json``.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from assay._support.files import atomic_write

from .record import origin


def lines(folder: Path) -> set[str]:
    """All records of a run."""
    return {line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()}


def started(folder: Path, given: argparse.Namespace) -> "subprocess.Popen[bytes]":
    """The run, in a process group of its own."""
    words = [given.name, "--budget", given.budget, "--workers", str(given.workers)]
    return subprocess.Popen(
        [sys.executable, "-m", "experiments", *words, "--out", str(folder)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )


def measured(folder: Path, given: argparse.Namespace) -> dict[str, Any]:
    """Seconds of both parts, and how many jobs each did."""
    first = started(folder, given)
    time.sleep(given.kill)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    kept = lines(folder)
    begin = time.perf_counter()
    if started(folder, given).wait():
        raise SystemExit("the second run failed")
    rest = time.perf_counter() - begin
    every = lines(folder)
    # A last line may have been cut off by the kill, and is done again.
    whole = {line for line in kept if line.endswith("}")}
    if not whole <= every:
        raise SystemExit(f"{len(whole - every)} records were lost")
    counts = {"jobs": len(every), "kept": len(whole)}
    return {"workers": given.workers, **counts, "killed after": given.kill, "rest": round(rest)}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kill", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--name", default="all")
    parser.add_argument("--budget", default="smoke")
    parser.add_argument("--out", type=Path, default=Path("results/paper/smoke.json"))
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        record = {**origin(), "seed": 0, "results": [measured(Path(folder), given)]}
    with atomic_write(given.out) as file:
        file.write(f"{json.dumps(record, indent=1)}\n".encode())


if __name__ == "__main__":
    main()

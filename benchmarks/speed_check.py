"""How long a check takes beyond the posterior itself, beside the first edition.

    python -m benchmarks.speed_check [--observations 1 30 1000] [--pairs 2000] [--parameters 4]
        [--draws 16] [--rounds 3 3 1] [--most 100] [--out results/speed/check.json]

Both get the same pairs with draws of q, so that nothing is sampled, and train no classifier. The
first edition is run from the sources of its own commit, with the same packages. The two take
turns, so that both see the same noise of the machine; each check is made in a process of its own,
after a small one that is not counted, and its largest memory is that of this process. The first
edition takes two seconds for each observation, so that it is left out of more than `--most`.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path
from tarfile import open as open_tar
from typing import Any

import torch

import assay

from .data import Data, Size
from .record import origin

FIRST = "a17111989994481d07b323cb4014bf558623ec8f"
ROOT = Path(__file__).resolve().parents[1]
# Draws of q at each observation.
OBSERVED = 200


def sources(commit: str, folder: Path) -> Path:
    """The sources of a commit, in a folder from which they are imported."""
    git = ["git", "-C", str(ROOT), "archive", commit, "src"]
    packed = subprocess.run(git, capture_output=True, check=True).stdout
    with open_tar(fileobj=BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def check(data: Data, edition: str) -> None:
    """A check of either edition."""
    draws = assay.Draws(data.draws.x, data.draws.theta[:, :OBSERVED])
    options = {"classifier": None} if edition == "now" else {"suite": assay.Suite.quick()}
    assay.check(data.sets, x_o=draws, **options)


def one(size: Size, edition: str, expected: Path) -> dict[str, float]:
    """Seconds by the clock and of processors, and memory, of a check in this process."""
    if not Path(assay.__file__).is_relative_to(expected):
        raise SystemExit(f"expected assay of {expected}; got {assay.__file__}.")
    check(Data.of(size._replace(n=200, observations=1)), edition)
    data = Data.of(size)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, busy = time.perf_counter(), time.process_time()
    check(data, edition)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    took = {"seconds": time.perf_counter() - start, "processor": time.process_time() - busy}
    return {**took, "gb": most / 2**20, "gb before": before / 2**20}


def alone(size: Size, edition: str, folder: Path) -> dict[str, float]:
    """The same in a process of its own, with the sources of an edition."""
    words = ["--one", edition, "--sources", str(folder), "--observations", str(size.observations)]
    words += ["--pairs", str(size.n), "--parameters", str(size.m), "--draws", str(size.k)]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.speed_check", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{edition}: {done.stderr[-1000:]}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def compared(size: Size, folders: dict[str, Path], rounds: int) -> dict[str, Any]:
    """What each edition takes, in every round."""
    found: dict[str, dict[str, list[float]]] = {edition: {} for edition in folders}
    for _ in range(rounds):
        for edition, folder in folders.items():
            for key, value in alone(size, edition, folder).items():
                found[edition].setdefault(key, []).append(value)
    print(size.observations, json.dumps(found), flush=True)
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--observations", type=int, nargs="*", default=[1, 30, 1000])
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--parameters", type=int, default=4)
    parser.add_argument("--draws", type=int, default=16)
    parser.add_argument("--most", type=int, default=100, help="observations of the first edition")
    parser.add_argument("--rounds", type=int, nargs="*", default=[3, 3, 1], help="of each size")
    parser.add_argument("--out", type=Path, default=ROOT / "results" / "speed" / "check.json")
    parser.add_argument("--one", choices=("now", "first"), help=argparse.SUPPRESS)
    parser.add_argument("--sources", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    each = [
        Size(n=given.pairs, observations=o, m=given.parameters, k=given.draws)
        for o in given.observations
    ]
    if given.one:
        print(json.dumps(one(each[0], given.one, given.sources)))
        return
    sizes = {name: getattr(given, name) for name in ("pairs", "parameters", "draws", "rounds")}
    record = {**origin(), "first": FIRST, "threads_used": torch.get_num_threads(), "seed": 0}
    with tempfile.TemporaryDirectory() as name:
        folders = {"now": ROOT / "src", "first": sources(FIRST, Path(name))}
        now = {"now": folders["now"]}
        found = {
            str(size.observations): compared(
                size, folders if size.observations <= given.most else now, rounds
            )
            for size, rounds in zip(each, given.rounds, strict=True)
        }
    record |= {**sizes, "load": os.getloadavg()[0], "check": found}
    given.out.write_text(f"{json.dumps(record, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

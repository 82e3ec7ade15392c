"""Breaks a copy of the library in one place after another: some test must fail each time.

``python -m tests.mutants`` (``make mutants``); words in the arguments choose among mutations.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.record import keep

from .mutations import MUTATIONS, Mutation

SOURCES = Path("src/assay")


def run(folder: Path, tests: list[str]) -> subprocess.CompletedProcess:
    """Runs tests with the library in a folder."""
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *tests]
    path = os.pathsep.join([str(folder), "."])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def mutated(mutation: Mutation) -> str:
    """What became of a mutation: an empty text where it is caught."""
    source = (SOURCES / mutation.file).read_text()
    if source.count(mutation.text) != 1:
        return "its text is not found exactly once"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(SOURCES, folder / "assay", ignore=shutil.ignore_patterns("__pycache__"))
        text = source.replace(mutation.text, mutation.instead)
        (folder / "assay" / mutation.file).write_text(text)
        found = run(folder, [mutation.test])
    # Exit status 1 is a test that failed; others are tests that were not run.
    return "" if found.returncode == 1 else f"not caught by {mutation.test}\n{found.stdout[-800:]}"


def main(words: list[str]) -> int:
    """Prints what survives, and returns how many do."""
    chosen = [m for m in MUTATIONS if all(word in m.says for word in words)]
    whole = run(SOURCES.parent, sorted({m.test for m in chosen}))
    if whole.returncode:
        sys.stdout.write(f"{whole.stdout[-4000:]}\nTests fail without any mutation.\n")
        return 1
    survivors = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutation, said in zip(chosen, pool.map(mutated, chosen), strict=True):
            sys.stdout.write(f"{'SURVIVES' if said else 'caught'}: {mutation.says}. {said}\n")
            sys.stdout.flush()
            survivors += bool(said)
    keep("mutants", 0, {"mutations": len(chosen), "caught": len(chosen) - survivors})
    sys.stdout.write(f"{len(chosen) - survivors} of {len(chosen)} mutations are caught.\n")
    return min(survivors, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

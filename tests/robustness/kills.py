"""Kills at random moments of everything that writes: nothing is lost, and nothing is left.

``python -m tests.robustness.kills 300`` prints how often each writer was killed, by which signal,
and what was wrong afterwards. A writer writes two versions of a file in turns until it is killed.
The file must then be whole, one of the two versions; and once it was written again, there must be
nothing beside it.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from functools import cached_property, partial
from pathlib import Path

import numpy as np

import assay
from assay._support.files import atomic_write
from assay.cli import app
from assay.data.draw import Chunk
from benchmarks.record import keep
from experiments.runs import Context, Experiment, Records, conduct

from ..conftest import Gaussian

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
# Seconds within which a kill comes; writers are about as slow.
WITHIN = {"report": 0.6, "show": 0.8, "check": 4.0}
NAMES = ("save", "report", "show", "chunks", "experiments", "check")
JOBS = [{"n": n} for n in range(40)]


def experiment(version):
    def draw(found, path):
        with atomic_write(path) as file:
            file.write((f"{version} {found}" * 1000).encode())

    def run(job, context):
        return {"much": [job["n"]] * 1000}

    return Experiment("toy", "Lists.", lambda budget: JOBS, run, str, draw)


class Writers:
    """What writes files of a name in a folder, in one of two versions."""

    def __init__(self, folder):
        self.folder, self.sets = folder, folder / "sets.npz"
        self.kept = [Gaussian().calibration(200, k=8, seed=seed) for seed in (0, 1)]
        arrays = {n: getattr(self.kept[0], n).numpy() for n in ("theta", "x", "theta_q")}
        np.savez(self.sets, **arrays, x_o=np.zeros(2), theta_o=np.zeros((9, 2)))

    @cached_property
    def checks(self):
        """Checks of both versions, and files that keep them."""
        draws, quick = Gaussian().draws([[0.5, -0.5]], 50), {"nulls": 19, "classifier": None}
        found = [assay.check(one, x_o=draws, **quick) for one in self.kept]
        paths = [self.folder / f"check-{i}.npz" for i in (0, 1)]
        for check, path in zip(found, paths, strict=True):
            check.save(path)
        return list(zip(found, paths, strict=True))

    def save(self, folder, version):
        assay.save(self.kept[version], folder / "sets.npz")

    def report(self, folder, version):
        self.checks[version][0].report(folder / "report.html")

    def show(self, folder, version):
        paths = ["--report", folder / "report.html", "--json", folder / "check.json"]
        self._run("show", self.checks[version][1], *paths)

    def check(self, folder, version):
        paths = ["--save", folder / "check.npz", "--json", folder / "check.json"]
        self._run("check", self.sets, "--quick", "--nulls", 19, "--seed", version, *paths)

    def chunks(self, folder, version):
        for i in range(5):
            made = np.full((1000, 5), float(version))
            Chunk(made, made, "").write(folder / f"chunk-{i}.npz")

    def experiments(self, folder, version):
        conduct(experiment(version), "ci", Context(folder))
        # The next version does all jobs again.
        if version:
            (folder / "toy.jsonl").unlink(missing_ok=True)

    def _run(self, *words):
        code = app([str(word) for word in words], standalone_mode=False)
        if code:
            sys.exit(code)


def forked(work):
    """The number of a process that does some work, and ends with 0 if all went well."""
    # Nothing may be raised before the child is on its own.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS[2:])
    child = os.fork()
    if child:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS[2:])
        return child
    for stream in (1, 2):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS[2:])
        work()
    except BaseException:
        os._exit(1)
    os._exit(0)


def whole(path):
    """Whether a file is one that was written to its end."""
    data = path.read_bytes()
    match path.suffix:
        case ".npz":
            with np.load(path) as archive:
                return bool([archive[name] for name in archive.files])
        case ".html":
            return data.endswith(b"</html>")
        case ".json":
            return bool(json.loads(data))
        case ".jsonl":
            return len(Records(path).found) <= len(JOBS)
    return data.endswith(b"]")


def killed(writer, folder, sent, after):
    """Parts that a killed writer left, and what is wrong then and once it has written again."""

    def forever():
        for _ in range(10**9):
            for version in (0, 1):
                writer(version)

    signal.signal(signal.SIGINT, signal.default_int_handler)
    child = forked(forever)
    time.sleep(after)
    os.kill(child, sent)
    os.waitpid(child, 0)
    parts = len(list(folder.glob("*.part")))
    left = sorted(p for p in folder.iterdir() if p.suffix != ".part")
    problems = [f"torn {path.name}" for path in left if not whole(path)]
    again = forked(partial(writer, 0))
    if os.waitpid(again, 0)[1]:
        problems.append("cannot be written again")
    problems += [f"left {path.name}" for path in folder.glob(".*")]
    problems += [f"lost {path.name}" for path in left if not path.exists() or not whole(path)]
    return parts, problems


def kills(count, names=NAMES, seed=0):
    """How often writers were killed, how many parts they left, and what was wrong."""
    rng, done, wrong, swept = random.Random(seed), Counter(), [], 0
    with tempfile.TemporaryDirectory() as place:
        writers = Writers(Path(place))
        if {"report", "show"} & set(names):
            assert writers.checks
        for i in range(count):
            name = names[i % len(names)]
            sent = SIGNALS[i // len(names) % len(SIGNALS)]
            folder = Path(place) / f"{i}"
            folder.mkdir()
            writer = partial(getattr(writers, name), folder)
            # An old file is there in every other case.
            if i % 2:
                os.waitpid(forked(partial(writer, 0)), 0)
            after = rng.uniform(0, WITHIN.get(name, 0.1))
            parts, problems = killed(writer, folder, sent, after)
            swept, wrong = swept + parts, wrong + problems
            done[f"{name} {sent.name}"] += 1
    return {"kills": done, "parts that were left and removed": swept, "wrong": wrong}


def main():
    """Prints what came of so many kills."""
    warnings.simplefilter("error", UserWarning)
    count, *names = sys.argv[1:]
    found = kills(int(count), names=names or NAMES)
    keep("kills", 0, found)
    sys.stdout.write(f"{json.dumps(found, indent=1)}\n")
    sys.exit(bool(found["wrong"]))


if __name__ == "__main__":
    main()

"""How long tests take, and what they need: records behind docs/performance.md.

    python -m benchmarks.speed WHAT [--out FILE.json]

- **peer**: the network beside `sbi.diagnostics.LC2ST`, by turns in one run, with the share of the
  processor's peak that its training reaches; Ridge and the score test with 999 nulls.
- **threads**: all tests with 1, 2, 4, ... threads, each in a process of its own.
- **gpu**: all tests on a GPU, the first call apart.
- **sizes**: how time grows with pairs, nulls, observations, d, m and draws, with exponents.
- **memory**: the largest memory in use, each in a process of its own.

Data have the shape of SLCP: five parameters, eight numbers in x, 16 draws of q at each x (one for
the network). `benchmarks.speed_check` times a whole check.
"""

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import assay
from assay._support.random import stream
from assay._support.work import without_progress

from .data import Data, Size
from .record import commit, origin


def network(data: Data, nulls: int) -> Any:
    return assay.lc2st(data.pairs, assay.MLP(), assay.Exchange(nulls))


def network_of_latents(data: Data, nulls: int) -> Any:
    return assay.lc2st(data.latents, assay.MLP(), assay.KnownBase(nulls))


def local_network(data: Data, nulls: int) -> Any:
    if not data.pairs.x.is_cuda:
        few = assay.Draws(data.draws.x[:2], data.draws.theta[:2])
        return assay.lc2st(data.pairs, assay.MLP(), assay.LocalExchange(19))(few)
    return assay.lc2st(data.pairs, assay.MLP(), assay.LocalExchange(nulls))(data.draws)


def ridge(data: Data, nulls: int) -> Any:
    return assay.lc2st(data.pairs, assay.Ridge(), assay.Exchange(nulls))(data.draws)


def score(data: Data, nulls: int) -> Any:
    return assay.score(data.sets, null=nulls)(data.draws)


def score_of_latents(data: Data, nulls: int) -> Any:
    return assay.score(data.latents, null=nulls)(data.draws)


# Tests, and the nulls they are timed with.
TESTS: dict[str, tuple[Callable[[Data, int], Any], int]] = {
    "MLP": (network, 99),
    "MLP of latents": (network_of_latents, 99),
    "MLP, LocalExchange": (local_network, 99),
    "Ridge": (ridge, 999),
    "score": (score, 999),
    "score of latents": (score_of_latents, 999),
}


def seconds(run: Callable[..., Any], *given: Any) -> float:
    """How long it takes."""
    start = time.perf_counter()
    with without_progress():
        run(*given)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def best(rounds: int, run: Callable[..., Any], *given: Any) -> float:
    """The shortest of several times."""
    return min(seconds(run, *given) for _ in range(rounds))


def peak() -> float:
    """Products of matrices, in multiplications and additions per second."""
    a, b = torch.randn(2, 2048, 2048)
    a @ b
    return 2 * 2048**3 / best(5, torch.mm, a, b)


def work(recipe: assay.MLP, size: Size) -> float:
    """Multiplications and additions in products of one network's training, without padding."""
    widths = (size.m + size.d, *recipe.hidden, 1)
    layers = list(pairwise(widths))
    forward = sum(i * o for i, o in layers)
    # The slope in the inputs of the first layer is not needed.
    backward = 2 * forward - layers[0][0] * layers[0][1]
    return 2.0 * (forward + backward) * 2 * size.n * recipe.epochs


def peer(rounds: int) -> dict[str, Any]:
    """The network and the peer's by turns; then the closed forms."""
    from sbi.diagnostics.lc2st import LC2ST

    data, nulls = Data.of(Size()), 10
    own, theirs, top = [], [], []
    for _ in range(rounds):
        given = {"prior_samples": data.pairs.theta, "xs": data.pairs.x}
        test = LC2ST(**given, posterior_samples=data.pairs.theta_q[:, 0], num_trials_null=nulls)
        theirs.append(seconds(test.train_under_null_hypothesis, 0) / nulls)
        own.append(seconds(network, data, 99) / 100)
        top.append(peak())
        print(f"sbi {theirs[-1]:.2f} s, MLP {own[-1]:.3f} s a null", flush=True)
    rate = work(assay.MLP(), Size()) / statistics.median(own)
    closed = {name: best(3, run, data, n) for name, (run, n) in TESTS.items() if n > 99}
    return {
        "sbi": theirs,
        "MLP": own,
        "ratio": statistics.mean(theirs) / statistics.mean(own),
        "peak": top,
        "share of peak": rate / statistics.median(top),
        "closed": closed,
    }


def threads(most: int) -> dict[str, Any]:
    """Seconds of each test by threads, each number in a process of its own."""
    found: dict[str, dict[str, float]] = {}
    for count in [2**i for i in range(int(math.log2(most)) + 1)]:
        variables = os.environ | {"OMP_NUM_THREADS": str(count), "MKL_NUM_THREADS": str(count)}
        command = [sys.executable, "-m", "benchmarks.speed", "tests", "--rounds", "1"]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
        found[str(count)] = json.loads(done.stdout.splitlines()[-1])
        print(count, found[str(count)], flush=True)
    return found


def each_test(rounds: int, device: str = "cpu") -> dict[str, float]:
    """Seconds of each test; of local networks on a GPU at ten observations, elsewhere at two."""
    data, found = Data.of(Size(), device), {}
    for name, (run, nulls) in TESTS.items():
        found[name] = best(rounds, run, data, nulls)
        print(name, round(found[name], 3), file=sys.stderr, flush=True)
    return found


def gpu() -> dict[str, Any]:
    """Seconds on a GPU: first calls, later ones, and larger problems."""
    found: dict[str, Any] = {"device": torch.cuda.get_device_name()}
    data = Data.of(Size(), "cuda")
    found["first"] = seconds(network, data, 99)
    found["first of score"] = seconds(score, data, 999)
    print(found, flush=True)
    found["tests"] = each_test(3, "cuda")
    found["MLP, 999 nulls"] = best(3, network, data, 999)
    found["one observation"] = {}
    one = data._replace(draws=assay.Draws(data.draws.x[:1], data.draws.theta[:1]))
    for name in ("score", "score of latents", "Ridge"):
        run, nulls = TESTS[name]
        found["one observation"][name] = best(3, run, one, nulls)
    print(found, flush=True)
    large = Data.of(Size(n=100_000, k=1), "cuda")
    found["MLP, 10^5 pairs"] = best(2, network, large, 99)
    return found


AXES: dict[str, list[int]] = {
    "n": [1000, 3000, 10_000, 30_000],
    "nulls": [99, 299, 999],
    "observations": [1, 3, 10, 30],
    "d": [2, 8, 32],
    "m": [2, 5, 10],
    "k": [8, 16, 64],
}


# What a test does not depend on: the network is trained once, on one draw at each x.
FIXED = {"MLP": ("observations", "k"), "Ridge": ("k",)}


def sizes(rounds: int, only: str) -> dict[str, Any]:
    """Seconds along each axis, or one, with the exponent of a power law through them."""
    found: dict[str, Any] = {}
    for axis, values in AXES.items():
        if only not in ("", axis):
            continue
        found[axis] = {"values": values}
        for name in ("MLP", "Ridge", "score"):
            run, nulls = TESTS[name]
            if axis in FIXED.get(name, ()):
                continue
            took = []
            for value in values:
                size = Size()._replace(**{axis: value})
                data = Data.of(size)
                h = size.nulls if axis == "nulls" else nulls
                took.append(best(rounds, run, data, h))
            slope = np.polyfit(np.log(values), np.log(took), 1)[0]
            found[axis][name] = {"seconds": took, "exponent": float(slope)}
            print(axis, name, [round(t, 2) for t in took], round(float(slope), 2), flush=True)
    return found


def _load() -> dict[str, float]:
    """How many processes wanted the processors in the last minute, on average."""
    return {"load": os.getloadavg()[0]}


def _memory(case: str) -> None:
    """Prints seconds, and the largest memory in use in GB, of one case."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, used = time.perf_counter(), time.process_time()
    with without_progress():
        CASES[case]()
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    figures = {"seconds": time.perf_counter() - start, "gb": most / 2**20, "start": before / 2**20}
    print(json.dumps(figures | {"processor": time.process_time() - used, **_load()}))


def _million(kind: str) -> None:
    generator = stream(0, "memory")
    n, d, m = 1_000_000, 100, 5
    x = torch.randn(n, d, generator=generator)
    theta = x[:, :m] + torch.randn(n, m, generator=generator)
    x_o = torch.zeros(d)
    if kind == "ridge":
        q = x[:, :m] + torch.randn(n, m, generator=generator)
        test = assay.lc2st(assay.Calibration(theta, x, q), assay.Ridge(), assay.Exchange(99))
        test(assay.Draws(x_o, torch.randn(1000, m, generator=generator)))
    elif kind == "score":
        q = x[:, None, :m] + torch.randn(n, 4, m, generator=generator)
        assay.score(assay.Calibration(theta, x, q), null=99)(x_o)
    else:
        assay.score(assay.Calibration.from_base(theta - x[:, :m], x), null=99)(x_o)


def _kept(path: Path, shape: tuple[int, ...], seed: int) -> np.ndarray:
    """Normal numbers in a file, made some rows at a time, as an array that is read from it."""
    rng, step = np.random.default_rng(seed), 100_000
    file = np.lib.format.open_memmap(path, "w+", np.float32, shape)
    for start in range(0, shape[0], step):
        file[start : start + step] = rng.standard_normal(file[start : start + step].shape)
    file.flush()
    return np.load(path, mmap_mode="r")


def _from_files(kind: str) -> None:
    n, m, k = 10_000_000, 5, 4
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        theta, x = (_kept(folder / f"{i}.npy", (n, m), i) for i in range(2))
        calibration = assay.Calibration(theta, x, _kept(folder / "q.npy", (n, k, m), 2))
        (assay.sbc if kind == "sbc" else assay.coverage)(calibration)


CASES: dict[str, Callable[[], Any]] = {
    "Ridge, 10^6 pairs, d = 100": lambda: _million("ridge"),
    "score, 10^6 sets of 5, d = 100": lambda: _million("score"),
    "score of 10^6 latents, d = 100": lambda: _million("latents"),
    "sbc of 10^7 pairs in files, m = 5, k = 4": lambda: _from_files("sbc"),
    "coverage of 10^7 pairs in files, m = 5, k = 4": lambda: _from_files("coverage"),
}


def memory(only: str) -> dict[str, Any]:
    """Seconds and memory of each case, in a process of its own."""
    found = {}
    for case in CASES:
        if only in case:
            command = [sys.executable, "-m", "benchmarks.speed", "case", "--case", case]
            code = commit()  # what is run, whatever is checked out meanwhile
            done = subprocess.run(command, capture_output=True, text=True)
            failed = {"failed": done.stderr[-300:], "status": done.returncode}
            lines = done.stdout.splitlines() or [json.dumps(failed)]
            found[case] = json.loads(lines[-1]) | {"commit": code}
            print(case, found[case], flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = ["peer", "threads", "tests", "gpu", "sizes", "memory", "case"]
    parser.add_argument("what", choices=kinds)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--most", type=int, default=os.cpu_count())
    parser.add_argument("--case", default="")
    parser.add_argument("--out")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.what == "case":
        _memory(given.case)
        return
    if given.what == "tests":
        print(json.dumps(each_test(given.rounds)))
        return
    ways: dict[str, Callable[[], Any]] = {
        "peer": lambda: peer(given.rounds),
        "threads": lambda: threads(given.most),
        "gpu": gpu,
        "sizes": lambda: sizes(given.rounds, given.case),
        "memory": lambda: memory(given.case),
    }
    record = {**origin(), "threads_used": torch.get_num_threads(), "seed": 0}
    found = ways[given.what]()
    record |= _load()
    record[given.what] = found
    if given.what == "memory" and given.case and Path(given.out or "").is_file():
        # Some cases anew, each with its own commit; the record is as old as its oldest.
        record = json.loads(Path(given.out).read_text())
        record["memory"] |= found
    if given.out:
        Path(given.out).write_text(json.dumps(record, indent=1))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

"""Seconds of sbi's LC2ST and of the drop-in for it, on the same call, side by side in one run.

    python -m benchmarks.speed_compat [--pairs 1000] [--nulls 100] [--rounds 2]

The call is a script as people write it: make the test, train the data and the nulls, ask for one
p-value with 1000 draws. Both are sbi's default networks, on one thread. The two take turns, so
that both see the same noise of the machine. It leaves results/compat/speed.json.
"""

import argparse
import json
import os
import time
import warnings
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from sbi.diagnostics.lc2st import LC2ST as Peer
from torch import Tensor

from assay.compat.sbi import LC2ST

from .record import origin

RECORD = Path(__file__).parents[1] / "results" / "compat" / "speed.json"
SEED = 0
DRAWS = 1000


def right(n: int, m: int) -> tuple[Tensor, ...]:
    """Pairs of a conjugate Gaussian with draws of its posterior; an observation with draws."""
    generator = torch.Generator().manual_seed(SEED)
    theta, noise, z = torch.randn(3, n, m, generator=generator)
    x, x_o = theta + noise, torch.full((m,), 0.5)
    z_o = torch.randn(DRAWS, m, generator=generator)
    return theta, x, x / 2 + 0.5**0.5 * z, x_o / 2 + 0.5**0.5 * z_o, x_o


def seconds(kind: Any, samples: tuple[Tensor, ...], nulls: int) -> tuple[float, float]:
    """Seconds of one call, by the clock and of the processor."""
    *pairs, theta_o, x_o = samples
    start, busy = time.perf_counter(), time.process_time()
    test = kind(*pairs, num_trials_null=nulls)
    test.train_on_observed_data(verbosity=0).train_under_null_hypothesis(verbosity=0)
    test.p_value(theta_o=theta_o, x_o=x_o)
    return time.perf_counter() - start, time.process_time() - busy


def compared(run: argparse.Namespace, m: int) -> dict[str, Any]:
    """Seconds of both in every round, with m parameters."""
    samples = right(run.pairs, m)
    times: dict[str, list[tuple[float, float]]] = {"sbi": [], "assay": []}
    for _ in range(run.rounds):
        for name, kind in (("sbi", Peer), ("assay", LC2ST)):
            times[name].append(seconds(kind, samples, run.nulls))
    peer, own = (np.mean(each, 0) for each in times.values())
    ratio = dict(zip(("clock", "processor"), (peer / own).tolist(), strict=True))
    print(f"m = {m}: {times}, ratios of means {ratio}", flush=True)
    return {"parameters": m, "seconds": times, "ratio": ratio}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("pairs", 1000), ("nulls", 100), ("rounds", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    run = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    where = origin()
    seconds(LC2ST, right(100, 2), 2)  # what is imported when it is first used
    cases = [compared(run, m) for m in (2, 5)]
    load = os.getloadavg()[0]
    record = {**vars(run), "seed": SEED, "threads": 1, "load": load, **where, "cases": cases}
    record["versions"] |= {name: version(name) for name in ("sbi", "scikit-learn")}
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(f"{json.dumps(record, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

"""Simulations of the Jansen-Rit model per second, and the time that 60 000 of them take.

    python -m benchmarks.speed_jansen_rit [--n 6000] [--device cpu]

60 000 are what the paper needs: 50 000 to train its flow, and 10 000 for calibration. The time is
that of whole batches with their power spectra, after a batch that is not counted; it is
extrapolated where fewer are asked for.
"""

import argparse
import resource
import time

import torch

from assay._support.random import stream
from experiments.tasks.jansen_rit import JansenRit

PAPER = 60_000


def seconds(n: int, device: str) -> float:
    """Seconds for n simulations at parameters of the prior."""
    task = JansenRit()
    theta = task.prior.sample(n, stream(0, "speed")).to(device)
    start = time.perf_counter()
    task.simulate(theta, stream(0, "speed", "x")).cpu()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=6000)
    parser.add_argument("--device", default="cpu")
    run = parser.parse_args()
    seconds(1000, run.device)
    taken = seconds(run.n, run.device)
    rate = run.n / taken
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"Jansen-Rit, {run.device}, {torch.get_num_threads()} threads, {memory:.2f} GB in use")
    print(f"{run.n:>8} simulations{taken:>10.1f} s{rate:>10.0f} per second")
    if run.n != PAPER:
        print(f"{PAPER:>8} simulations{PAPER / rate:>10.1f} s, extrapolated")


if __name__ == "__main__":
    main()

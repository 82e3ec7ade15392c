"""Seconds per null of the closed-form tests, beside sbi's LC2ST, in one run.

    python benchmarks/speed_closed_form.py [--n 10000] [--peer-nulls 3] [--largest 1000000]

SLCP-shaped data (5 parameters, 8 observations); the peer trains one network for each null, with
its defaults, and takes turns with us. Then the cost of the closed-form tests from a thousand to a
million calibration pairs, with the largest memory in use, each in a process of its own.
"""

import argparse
import resource
import subprocess
import sys
import time

import numpy as np
import torch

import assay
from assay._core import stream

M, D, NULLS = 5, 8, 999


def data(n: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Draws of a joint shaped as SLCP, and of an approximation that is slightly off."""
    generator = stream(0, "speed")
    theta = torch.randn(n, M, generator=generator)
    noise = torch.randn(n, D, generator=generator)
    x = theta[:, [0, 1, 2, 3, 4, 0, 1, 2]] + noise
    theta_q = x[:, :M] / 2 + 0.8 * torch.randn(n, M, generator=generator)
    return theta, x, theta_q


def ridge(n: int, observations: int = 1) -> float:
    """Seconds for a test in closed form, its nulls and its answer at x_o."""
    theta, x, theta_q = data(n)
    calibration = assay.Calibration(theta, x, theta_q)
    draws = assay.Draws(x[:observations], theta_q[:1000].expand(observations, -1, -1))
    start = time.perf_counter()
    assay.lc2st(calibration, assay.Ridge(), assay.Exchange(NULLS))(draws)
    return time.perf_counter() - start


def moments(n: int, observations: int = 1) -> float:
    """Seconds for a moment test, its nulls and its answer at x_o."""
    theta, x, _ = data(n)
    calibration = assay.Calibration.from_base((theta - x[:, :M] / 2) / 0.7, x)
    start = time.perf_counter()
    assay.moments(calibration, null=assay.KnownBase(NULLS))(assay.Draws(x[:observations]))
    return time.perf_counter() - start


TESTS = {"Ridge": ridge, "moments": moments}


def peer(n: int, nulls: int) -> float:
    """Seconds for so many nulls of sbi's LC2ST, and none for its evaluation."""
    from sbi.diagnostics import LC2ST

    theta, x, theta_q = data(n)
    test = LC2ST(theta, x, theta_q, num_trials_null=nulls, permutation=True)
    start = time.perf_counter()
    test.train_under_null_hypothesis(verbosity=0)
    return time.perf_counter() - start


def alone(name: str, n: int) -> tuple[float, float]:
    """Seconds and gigabytes of a test in a process of its own; data and imports included."""
    command = [sys.executable, __file__, "--alone", name, "--n", str(n)]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return float(found[-2]), float(found[-1])


def side_by_side(n: int, peer_nulls: int, rounds: int = 3) -> None:
    ours: dict[str, list[float]] = {name: [] for name in TESTS}
    theirs = []
    ridge(1000), moments(1000)
    for _ in range(rounds):
        for name, test in TESTS.items():
            ours[name].append(test(n))
        theirs.append(peer(n, peer_nulls) / peer_nulls)
    print(f"N_cal = {n}, m = {M}, d = {D}, H = {NULLS}, median of {rounds} rounds")
    print(f"{'':10}{'seconds':>10}{'s / null':>12}{'sbi s / null':>14}{'ratio':>8}{'ten x_o':>10}")
    each = float(np.median(theirs))
    for name, seconds in ours.items():
        mine = float(np.median(seconds)) / NULLS
        ratio = each / mine
        print(
            f"{name:10}{np.median(seconds):>10.2f}{mine:>12.5f}{each:>14.2f}{ratio:>8.0f}"
            f"{TESTS[name](n, 10):>10.2f}"
        )


def growth(largest: int) -> None:
    print(f"\nCost in N_cal, H = {NULLS}: seconds, microseconds per pair, GB in use")
    for name in TESTS:
        for n in (10**e for e in range(3, 7)):
            if n <= largest:
                seconds, memory = alone(name, n)
                print(
                    f"{name:10}{n:>10}{seconds:>10.2f}{1e6 * seconds / n:>10.1f}{memory:>8.2f}",
                    flush=True,
                )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--peer-nulls", type=int, default=3)
    parser.add_argument("--largest", type=int, default=10**6)
    parser.add_argument("--alone", choices=TESTS, help=argparse.SUPPRESS)
    run = parser.parse_args()
    if run.alone:
        seconds = TESTS[run.alone](run.n)
        print(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
        return
    side_by_side(run.n, run.peer_nulls)
    growth(run.largest)


if __name__ == "__main__":
    main()

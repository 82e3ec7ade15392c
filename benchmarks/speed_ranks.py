"""CPU milliseconds for SBC and TARP, beside sbi's run_sbc and run_tarp, in one run.

    OMP_NUM_THREADS=1 python -m benchmarks.speed_ranks [--rounds 7]

CPU time, the least of several rounds, is about what one thread takes on a quiet machine.
The very same draws for both: sbi gets a posterior that hands over stored draws, so that no
sampling is timed. Ours includes p-values from 999 null copies, with a new seed in every round so
that no null is found in a cache; sbi's has none, and beside it stands sbi with the p-values of
check_uniformity_frequentist and check_tarp. The two take turns. "door" is what it takes to check
and copy the arrays once, as Calibration(theta, x, theta_q), for all diagnostics together.
"""

import argparse
import itertools
import time
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

import assay
from assay._support.random import stream


class Stored:
    """A posterior in sbi's manner that hands over stored draws (k, n, m)."""

    def __init__(self, draws: Tensor) -> None:
        self.draws = draws

    def sample_batched(self, shape: tuple[int], x: Tensor, **settings: object) -> Tensor:
        """The stored draws, whatever is asked."""
        return self.draws


def data(n: int, k: int, m: int) -> tuple[Tensor, Tensor, Tensor]:
    """Draws of a conjugate Gaussian joint, and of an approximation that is slightly off."""
    generator = stream(0, "speed")
    theta = torch.randn(n, m, generator=generator)
    x = theta + torch.randn(n, m, generator=generator)
    theta_q = x[:, None] / 2 + 0.8 * torch.randn(n, k, m, generator=generator)
    return theta, x, theta_q


def seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def side_by_side(n: int, k: int, m: int, rounds: int) -> dict[str, float]:
    from sbi.diagnostics.sbc import check_uniformity_frequentist, run_sbc
    from sbi.diagnostics.tarp import check_tarp, run_tarp

    theta, x, theta_q = data(n, k, m)
    posterior = Stored(theta_q.transpose(0, 1).contiguous())
    calibration = assay.Calibration(theta, x, theta_q)
    seeds = itertools.count()
    given = {"num_posterior_samples": k, "show_progress_bar": False}

    def ours() -> None:
        seed = next(seeds)
        assay.sbc(calibration, seed=seed)
        assay.tarp(calibration, seed=seed)

    def theirs() -> None:
        run_sbc(theta, x, posterior, **given)
        run_tarp(theta, x, posterior, **given)

    def theirs_tested() -> None:
        ranks, _ = run_sbc(theta, x, posterior, **given)
        check_uniformity_frequentist(ranks, k)
        check_tarp(*run_tarp(theta, x, posterior, **given))

    def door() -> None:
        assay.Calibration(theta, x, theta_q)

    calls = {"ours": ours, "sbi": theirs, "sbi + p": theirs_tested, "door": door}
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 1):
        for name, call in calls.items():
            found[name].append(seconds(call))
    # The first round warms up.
    return {name: 1e3 * float(np.min(times[1:])) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    warnings.simplefilter("ignore")
    threads = torch.get_num_threads()
    print(f"SBC and TARP, CPU milliseconds, least of {rounds} rounds, {threads} thread(s)")
    columns = ("ours", "sbi", "sbi + p", "door", "ratio", "ratio + p", "with door")
    print(f"{'n':>7}{'k':>6}{'m':>4}" + "".join(f"{name:>11}" for name in columns))
    for n, k, m in itertools.product((1000, 10_000), (100, 1000), (2, 5)):
        found = side_by_side(n, k, m, rounds)
        ours, door = found["ours"], found["door"]
        ratios = found["sbi"] / ours, found["sbi + p"] / ours, found["sbi"] / (ours + door)
        cells = [f"{value:>11.2f}" for value in found.values()]
        print(f"{n:>7}{k:>6}{m:>4}" + "".join(cells + [f"{r:>11.1f}" for r in ratios]), flush=True)


if __name__ == "__main__":
    main()

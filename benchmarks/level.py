"""The level of L-C2ST with every null, with an exact posterior and small classifiers.

    python -m benchmarks.level [--repetitions 1000] [--nulls 99]

The level of the test that decides in a check is in ``benchmarks.bars level``. Here, a conjugate
Gaussian: m = 3 parameters and d = 5 observed numbers, theta ~ N(0, I), x = A theta + noise. Every
repetition has calibration pairs, draws of q, an observation and a seed of its own. For each null:
rejection rates at four levels with their 99 % binomial intervals, and the p-value of a chi-square
test that the p-values are uniform on 1/(H+1), ..., 1. FreePermutation is shown beside the exact
nulls; it is conservative, and its p-values are not expected to be uniform.
"""

import argparse
import sys

import numpy as np
import scipy.stats
import torch
from tqdm import tqdm

import assay
from assay._support.random import stream
from assay.classifiers.features import Conditional, Joint
from assay.neighbourhood import Nearest

M, D, PAIRS, DRAWS = 3, 5, 200, 200
LEVELS = (0.01, 0.05, 0.1, 0.2)
NETWORK = assay.MLP(hidden=(16, 16), epochs=6, batch=64)
RIDGE = assay.Ridge((Joint(64), Joint(64, 2.0, frame=Conditional(32))), penalties=(0.01, 0.1))
NEAR = Nearest(0.2)
A = torch.randn(M, D, generator=torch.Generator().manual_seed(1)) / M**0.5
COVARIANCE = torch.linalg.inv(torch.eye(M) + A @ A.T)
FACTOR = torch.linalg.cholesky(COVARIANCE)


def posterior(x: torch.Tensor, k: int, generator: torch.Generator) -> torch.Tensor:
    """Exact draws (n, k, m) at observations (n, d)."""
    noise = torch.randn(len(x), k, M, generator=generator)
    return (x @ A.T @ COVARIANCE)[:, None] + noise @ FACTOR.T


def pvalues(index: int, nulls: int) -> dict[str, float]:
    """The p-value of each null in one repetition."""
    generator = stream(index, "level")
    theta = torch.randn(PAIRS + 1, M, generator=generator)
    x = theta @ A + torch.randn(PAIRS + 1, D, generator=generator)
    x, x_o = x[:-1], x[-1]
    calibration = assay.Calibration(theta[:-1], x, posterior(x, 1, generator))
    mean = x @ A.T @ COVARIANCE
    z = torch.linalg.solve_triangular(FACTOR, (theta[:-1] - mean).T, upper=False).T
    latents = assay.Calibration.from_base(z, x)
    there = assay.Draws(x_o, posterior(x_o[None], DRAWS, generator)[0])
    base = assay.Draws(x_o, n=DRAWS)
    cases = {
        "Exchange": (calibration, NETWORK, assay.Exchange(nulls), there),
        "KnownBase": (latents, NETWORK, assay.KnownBase(nulls), base),
        "FreePermutation": (calibration, NETWORK, assay.FreePermutation(nulls), there),
        "Ridge, Exchange": (calibration, RIDGE, assay.Exchange(nulls), there),
        "Ridge, LocalExchange": (
            calibration,
            RIDGE,
            assay.LocalExchange(nulls, NEAR),
            there,
        ),
        "Ridge, latents": (latents, RIDGE, assay.Exchange(nulls), base),
    }
    return {
        name: float(assay.lc2st(samples, classifier, null, seed=index)(draws).pvalue)
        for name, (samples, classifier, null, draws) in cases.items()
    }


def report(name: str, found: np.ndarray, nulls: int) -> bool:
    """Prints one null's figures; returns whether all are within their intervals."""
    counts = np.bincount(np.rint(found * (nulls + 1)).astype(int), minlength=nulls + 2)[1:]
    bins = counts.reshape(20, -1).sum(1) if (nulls + 1) % 20 == 0 else counts
    uniform = scipy.stats.chisquare(bins).pvalue
    row, good = "", uniform > 0.01
    for level in LEVELS:
        low, high = scipy.stats.binom(len(found), level).interval(0.99) / np.array(len(found))
        rate = np.mean(found <= level + 1e-12)
        good &= low <= rate <= high
        row += f"{rate:>8.3f} [{low:.3f}, {high:.3f}]"
    print(f"{name:22}{row}{uniform:>10.3f}")
    return bool(good)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=1000)
    parser.add_argument("--nulls", type=int, default=99)
    run = parser.parse_args()
    torch.set_num_threads(1)
    steps = tqdm(range(run.repetitions), desc="repetitions", disable=None)
    rows = [pvalues(i, run.nulls) for i in steps]
    print(f"{run.repetitions} repetitions, H = {run.nulls}, {PAIRS} pairs, m = {M}, d = {D}")
    print(f"{'':22}" + "".join(f"{f'at {a:g} [99 %]':>23}" for a in LEVELS) + f"{'uniform p':>10}")
    good = {name: report(name, np.array([r[name] for r in rows]), run.nulls) for name in rows[0]}
    if not all(held for name, held in good.items() if name != "FreePermutation"):
        sys.exit("level: an exact null left its interval")


if __name__ == "__main__":
    main()

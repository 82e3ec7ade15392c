"""The level of the closed-form tests, with an exact posterior, over thousands of repetitions.

    python benchmarks/level_closed_form.py [--repetitions 5000] [--nulls 99] [--workers 2]

The model and the figures are those of ``level.py``. The rows marked "elsewhere" have a q that is
right throughout the neighbourhood of x_o and off by one standard deviation everywhere else: the
neighbourhood forms must not see it.
"""

import argparse
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import torch
from level import COVARIANCE, DRAWS, FACTOR, LEVELS, PAIRS, A, D, M, posterior, report
from tqdm import tqdm

import assay
from assay._core import stream
from assay.classifiers.features import Conditional, Joint
from assay.samples.neighbourhoods import Nearest, Smooth

K = 8
RIDGE = assay.Ridge((Joint(64), Joint(64, 2.0, frame=Conditional(32))), penalties=(0.01, 0.1))


def pvalues(index: int, nulls: int) -> dict[str, float]:
    """The p-value of each form in one repetition."""
    generator = stream(index, "level, closed form")
    theta = torch.randn(PAIRS + 1, M, generator=generator)
    x = theta @ A + torch.randn(PAIRS + 1, D, generator=generator)
    theta, x, x_o = theta[:-1], x[:-1], x[-1]
    theta_q = posterior(x, K, generator)
    z = torch.linalg.solve_triangular(FACTOR, (theta - x @ A.T @ COVARIANCE).T, upper=False).T
    there = assay.Draws(x_o, posterior(x_o[None], DRAWS, generator)[0])
    far = (Nearest().weights(x, x_o[None])[0, -1] == 0).float()[:, None]
    pairs = assay.Calibration(theta, x, theta_q[:, :1])
    sets, latents = assay.Calibration(theta, x, theta_q), assay.Calibration.from_base(z, x)
    wrong_sets = assay.Calibration(theta + far, x, theta_q)
    wrong_latents = assay.Calibration.from_base(z + far, x)
    exchange, base = assay.Exchange(nulls), assay.KnownBase(nulls)

    def ridge(calibration: assay.Calibration, draws: assay.Draws) -> float:
        return float(assay.lc2st(calibration, RIDGE, exchange, seed=index)(draws).pvalue)

    def moments(calibration: assay.Calibration, where: Nearest | Smooth) -> float:
        null = base if calibration.base is not None else exchange
        test = assay.moments(calibration, where, null, seed=index)
        return float(test(assay.Draws(x_o)).pvalue)

    forms: dict[str, Callable[[], float]] = {
        "Ridge": partial(ridge, pairs, there),
        "Ridge, draws": partial(ridge, sets, there),
        "Ridge, latents": partial(ridge, latents, assay.Draws(x_o, n=DRAWS)),
        "nearest": partial(moments, latents, Nearest()),
        "smoothed": partial(moments, latents, Smooth()),
        "nearest, draws": partial(moments, sets, Nearest()),
        "smoothed, draws": partial(moments, sets, Smooth()),
        "elsewhere": partial(moments, wrong_latents, Nearest()),
        "elsewhere, draws": partial(moments, wrong_sets, Nearest()),
    }
    return {name: form() for name, form in forms.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=5000)
    parser.add_argument("--nulls", type=int, default=99)
    parser.add_argument("--workers", type=int, default=2)
    run = parser.parse_args()
    with ProcessPoolExecutor(
        run.workers, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        work = pool.map(partial(pvalues, nulls=run.nulls), range(run.repetitions), chunksize=10)
        rows = list(tqdm(work, "repetitions", total=run.repetitions, disable=None))
    print(f"{run.repetitions} repetitions, H = {run.nulls}, {PAIRS} pairs, m = {M}, d = {D}")
    print(f"{'':16}" + "".join(f"{f'at {a:g} [99 %]':>23}" for a in LEVELS) + f"{'uniform p':>10}")
    found = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    good = [report(name, p, run.nulls) for name, p in found.items()]
    if not all(good):
        sys.exit("level: a form left its interval")


if __name__ == "__main__":
    main()

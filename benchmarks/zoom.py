"""Zoom: level, power and leak of tests on calibrations around x_o, beside those of the prior.

    python benchmarks/zoom.py [--repetitions 200] [--level 2000] [--n 1000] [--workers 2]

A conjugate Gaussian with two parameters, four observed numbers and little noise. Every form has
the same number of simulations. **Power**: q is off by a quarter of a posterior standard deviation
where the posterior mean lies within three standard deviations of that at x_o, and right elsewhere.
**Leak**: the other way round, so that q is right near x_o; forms with a global null may reject,
the others as far as their neighbourhoods reach beyond three standard deviations.
**Level**: q is right everywhere; rejections at 0.05 and their 99 % binomial interval, and what
becomes of plain exchanges on draws of the proposal that were not weighted.
"""

import argparse
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

import numpy as np
import scipy.stats
import torch
from tqdm import tqdm

import assay
from assay._core import stream
from assay.classifiers import QDA
from assay.classifiers.features import Conditional, Joint
from assay.interpret.errors import Shift
from assay.samples.neighbourhoods import Nearest
from assay.samples.proposal import Around, zoom
from assay.tasks import ConjugateGaussian, Perturbed

TASK = ConjugateGaussian(2, 4, noise=0.25)
X_O = TASK.simulate(torch.tensor([[1.0, -0.5]]), stream(1, "x_o"))[0]
K, DRAWS, NULLS, NEAR, SHIFT = 4, 300, 99, 3.0, 0.25
RIDGE = assay.Ridge((Joint(64), Joint(64, frame=Conditional(32))), penalties=(0.01, 0.1))
MLP = assay.MLP((16, 16), epochs=15, batch=128)
# Shares that reach about equally far from x_o: see the distances that are printed.
FAR, CLOSE = 0.025, 0.25
PLACES = {"prior": FAR, "zoom": CLOSE}


def distance(x: torch.Tensor) -> torch.Tensor:
    """Distances (n,) of posterior means from that at x_o, in posterior standard deviations."""
    means = (x - X_O).double() @ TASK.gain.mT
    factor = torch.linalg.cholesky(TASK.covariance)
    return torch.linalg.solve_triangular(factor, means.mT, upper=False).norm(dim=0)


def near(x: torch.Tensor) -> torch.Tensor:
    """Whether observations (n, d) are near x_o."""
    return distance(x) < NEAR


def far(x: torch.Tensor) -> torch.Tensor:
    return ~near(x)


QS = {
    "power": Perturbed(TASK, Shift(0), SHIFT, near),
    "leak": Perturbed(TASK, Shift(0), SHIFT, far),
}


def calibrations(
    q: Perturbed, n: int, seed: int
) -> tuple[dict[str, assay.Calibration], assay.Draws]:
    """A calibration from the prior and one around x_o, and fresh draws of q at x_o."""
    right = not bool(q.region(X_O[None]))
    theta = TASK.posterior(X_O, DRAWS, stream(seed, "x_o")).theta
    draws = assay.Draws(X_O, theta) if right else q.at(X_O, DRAWS, stream(seed, "x_o"))
    proposal = Around(draws.theta, TASK.prior)
    found = {
        "prior": q.calibration(n, K, stream(seed, "prior")),
        "zoom": zoom(TASK, q.draws, proposal, n, K, seed),
    }
    return found, draws


def rejected(seed: int, kind: str, n: int) -> dict[tuple[str, str], bool]:
    """Whether each form rejects at 0.05, on calibrations from the prior and around x_o."""
    found, draws = calibrations(QS[kind], n, seed)
    everywhere = assay.Exchange(NULLS)
    verdicts = {}
    for place, calibration in found.items():
        share = PLACES[place]
        local = assay.LocalExchange(NULLS, share)
        forms: dict[str, Callable[[], object]] = {
            "Ridge, Exchange": lambda c=calibration: assay.lc2st(c, RIDGE, everywhere, seed=seed),
            "Ridge, LocalExchange": lambda c=calibration, h=local: assay.lc2st(
                c, RIDGE, h, seed=seed
            ),
            "MLP, Exchange": lambda c=calibration: assay.lc2st(
                c, MLP, assay.Exchange(19), seed=seed
            ),
            "moments": lambda c=calibration, s=share: assay.moments(
                c, Nearest((s,)), everywhere, seed=seed
            ),
        }
        for name, form in forms.items():
            verdicts[name, place] = bool(form()(draws).pvalue <= 0.05)
    return verdicts


def level(seed: int) -> dict[str, float]:
    """P-values with an exact q, weighted and not."""
    draws = assay.Draws(X_O, TASK.posterior(X_O, 100, stream(seed, "x_o")).theta)
    proposal = Around(draws.theta, TASK.prior)
    theta = proposal.sample(100, stream(seed, "theta"))
    x = TASK.simulate(theta, stream(seed, "x"))
    plain = assay.Calibration(theta, x, TASK.draws(x, 4, stream(seed, "q")))
    zoomed = zoom(TASK, TASK.draws, proposal, 100, 4, seed)
    small = assay.MLP((8,), epochs=2, batch=32)
    ridge = assay.Ridge((Joint(32),), penalties=(0.1,))
    tests = {
        "QDA": assay.lc2st(zoomed, QDA(), assay.Exchange(19), seed=seed),
        "MLP": assay.lc2st(zoomed, small, assay.Exchange(19), seed=seed),
        "Ridge": assay.lc2st(zoomed, ridge, assay.Exchange(19), seed=seed),
        "Ridge, LocalExchange": assay.lc2st(
            zoomed, ridge, assay.LocalExchange(19, 0.5), seed=seed
        ),
        "moments": assay.moments(zoomed, Nearest((0.5,)), assay.Exchange(19), seed=seed),
        "QDA, not weighted": assay.lc2st(plain, QDA(), assay.Exchange(19), seed=seed),
    }
    return {name: float(test(draws).pvalue) for name, test in tests.items()}


def spread(pool: ProcessPoolExecutor, work: Callable, repetitions: int, name: str) -> list:
    found = pool.map(work, range(repetitions), chunksize=5)
    return list(tqdm(found, name, total=repetitions, disable=None))


def radii(n: int) -> None:
    found, _ = calibrations(QS["power"], n, 0)
    for place, calibration in found.items():
        inside = Nearest((PLACES[place],)).inside(calibration.features, X_O[None])[0, 0]
        there = distance(calibration.x[inside])
        share = float(near(calibration.x).double().mean())
        beyond = float((there >= NEAR).double().mean())
        print(
            f"{place}: {int(inside.sum())} of {n} sets near x_o, median distance "
            f"{there.median():.1f} sd, {beyond:.0%} of them beyond "
            f"{NEAR:g} sd; {share:.0%} of all within"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--level", type=int, default=2000)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--workers", type=int, default=2)
    run = parser.parse_args()
    radii(run.n)
    with ProcessPoolExecutor(
        run.workers, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        for kind in QS:
            rows = spread(pool, partial(rejected, kind=kind, n=run.n), run.repetitions, kind)
            print(f"\n{kind}, {run.repetitions} repetitions{'prior':>12}{'zoom':>8}")
            for name in dict.fromkeys(name for name, _ in rows[0]):
                rates = (np.mean([row[name, place] for row in rows]) for place in PLACES)
                print(f"{name:24}" + "".join(f"{rate:>10.2f}" for rate in rates), flush=True)
        rows = spread(pool, level, run.level, "level")
    low, high = scipy.stats.binom(run.level, 0.05).interval(0.99) / np.array(run.level)
    print(f"\nlevel at 0.05, {run.level} repetitions, expected in [{low:.3f}, {high:.3f}]")
    for name in rows[0]:
        print(f"{name:24}{np.mean([row[name] <= 0.05 + 1e-9 for row in rows]):>10.3f}")


if __name__ == "__main__":
    main()

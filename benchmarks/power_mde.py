"""Are minimum detectable effects honest? A q that is wrong by just so much, on fresh data.

    python benchmarks/power_mde.py [--calibrations 8] [--repetitions 24] [--workers 2] [--speed]

x ~ N(0, 2 I_3), and q(theta | x) = N(x / 2, I / 2) is right at first, as in a conjugate Gaussian
model. For each test and each of several calibrations, `power` tells the effects that would be seen
with probability 0.8 at three observations, one of them far out. Then truths, observations and
draws are made anew, with truths for which the same q is too high by that effect in one parameter,
or too wide or too narrow by it, and the real test is run. Rates between 0.7 and 0.9 are what is
asked for; the interval is 99 % for the rate over all repetitions, taken as independent. With
--speed, ten observations at 10^4 pairs are timed instead.
"""

import argparse
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import scipy.stats
import torch
from tqdm import tqdm

import assay
from assay import Calibration, Draws, Exchange, KnownBase, LocalExchange, Ridge
from assay._core import stream
from assay.classifiers.features import Conditional, Joint
from assay.interpret.errors import Narrow, Shift, Wide
from assay.interpret.power import power

M, SD = 3, math.sqrt(0.5)
X_O = torch.tensor([[0.0, 0.0, 0.0], [1.0, -1.5, 0.5], [3.5, 3.5, 3.5]])
PLACES = ("centre", "typical", "far out")
RIDGE = Ridge((Joint(64), Joint(64, 2.0, frame=Conditional(32))), penalties=(0.01, 0.1))
ERRORS = (Shift(), Wide(), Narrow())
DRAWS = 200


class World:
    """Truths of which q = N(x / 2, I / 2) is wrong by an error; q is the same in all worlds."""

    def __init__(self, name: str = "", size: float = 0.0, along: int = 0) -> None:
        self.shift = torch.zeros(M)
        self.shift[along] = -size if name == "shift" else 0.0
        self.scale = {"too wide": 1 / (1 + size), "too narrow": 1 + size}.get(name, 1.0)

    def calibration(self, n: int, k: int | None, generator: torch.Generator) -> Calibration:
        """Pairs with k draws of q at each x, or latents."""
        x = math.sqrt(2) * torch.randn(n, M, generator=generator)
        z = self.shift + self.scale * torch.randn(n, M, generator=generator)
        if k is None:
            return Calibration.from_base(z, x)
        return Calibration(x / 2 + SD * z, x, draws(x, k, generator))


def draws(x: torch.Tensor, k: int, generator: torch.Generator) -> torch.Tensor:
    """Draws of q (n, k, m) at observations (n, m)."""
    return x[:, None] / 2 + SD * torch.randn(len(x), k, M, generator=generator)


def _moments(calibration: Calibration, seed: int) -> Any:
    null = Exchange(199) if calibration.base is None else KnownBase(199)
    return assay.moments(calibration, null=null, seed=seed)


def _lc2st(calibration: Calibration, seed: int, null: Any) -> Any:
    return assay.lc2st(calibration, RIDGE, null, seed=seed)


def _region(calibration: Calibration, seed: int) -> Any:
    return assay.region(calibration, RIDGE, null=Exchange(199), seed=seed)


# Pairs, draws at each x, and how the test is made of a calibration and a seed.
CASES: dict[str, tuple[int, int | None, Callable[[Calibration, int], Any]]] = {
    "moments, latents": (1000, None, _moments),
    "moments, 16 draws": (1000, 16, _moments),
    "moments, 6 draws": (1000, 6, _moments),
    "Ridge, Exchange": (500, 1, partial(_lc2st, null=Exchange(99))),
    "Ridge, Exchange, 4 draws": (500, 4, partial(_lc2st, null=Exchange(99))),
    "Ridge, LocalExchange": (500, 1, partial(_lc2st, null=LocalExchange(99, 0.3))),
    "region": (1000, 4, _region),
}


def fresh(case: str, world: World, generator: torch.Generator, seed: int) -> np.ndarray:
    """P-values at the observations, from data that nobody has seen."""
    n, k, make = CASES[case]
    test = make(world.calibration(n, k, generator), seed)
    there = Draws(X_O) if k is None else Draws(X_O, draws(X_O, DRAWS, generator))
    return np.asarray(test(there).pvalue)


def measured(job: tuple[str, int], repetitions: int) -> list[tuple[Any, ...]]:
    """Effects of one calibration, and whether they are seen on fresh data."""
    case, index = job
    n, k, make = CASES[case]
    generator = stream(index, "power_mde", case)
    test = make(World().calibration(n, k, generator), index)
    there = Draws(X_O) if k is None else Draws(X_O, draws(X_O, DRAWS, generator))
    start = time.perf_counter()
    result = power(test, there, ERRORS, seed=index)
    seconds = time.perf_counter() - start
    rows = []
    for curve, place in product(result.curves, range(len(X_O))):
        effect = float(curve.mde[place])
        detectable = []
        for i in range(repetitions if math.isfinite(effect) else 0):
            wrong = World(curve.error.name, effect, i % M)
            found = fresh(case, wrong, generator, 1000 * index + i)[place]
            detectable.append(bool(found <= 0.05 + 1e-9))
        rows.append((case, curve.error.name, PLACES[place], effect, detectable, seconds))
    return rows


def report(rows: list[tuple[Any, ...]]) -> None:
    head = f"{'test':26}{'error':12}{'x_o':9}{'effect':>8}{'spread':>8}{'seen':>7}{'99 %':>14}"
    print(f"{head}{'power s':>9}")
    for key in dict.fromkeys(row[:3] for row in rows):
        some = [row for row in rows if row[:3] == key]
        effects = np.array([row[3] for row in some])
        hits = np.concatenate([row[4] for row in some])
        if not len(hits):
            print(f"{key[0]:26}{key[1]:12}{key[2]:9}{'never detectable':>16}")
            continue
        test = scipy.stats.binomtest(int(hits.sum()), len(hits))
        low, high = test.proportion_ci(0.99)
        seconds = np.median([row[5] for row in some])
        print(
            f"{key[0]:26}{key[1]:12}{key[2]:9}{np.median(effects):>8.3f}{effects.std():>8.3f}"
            f"{hits.mean():>7.2f}{f'{low:.2f} to {high:.2f}':>14}{seconds:>9.1f}"
        )


def speed(n: int = 10_000, m: int = 5) -> None:
    """Seconds for ten observations, shift and scale together."""
    generator = stream(0, "speed")
    theta = torch.randn(n, m, generator=generator)
    x = theta + torch.randn(n, m, generator=generator)
    noise = torch.randn(n, 16, m, generator=generator)
    latents = Calibration.from_base((theta - x / 2) / SD, x)
    sets = Calibration(theta, x, x[:, None] / 2 + SD * noise)
    x_o = torch.randn(10, m, generator=generator) * math.sqrt(2)
    for name, calibration in (("moments, latents", latents), ("moments, 16 draws", sets)):
        test = _moments(calibration, 0)
        times = [(time.perf_counter(), time.process_time())]
        test(Draws(x_o))
        times.append((time.perf_counter(), time.process_time()))
        result = power(test, Draws(x_o))
        times.append((time.perf_counter(), time.process_time()))
        (wall, cpu), (power_wall, power_cpu) = np.diff(times, axis=0)
        print(
            f"{name}: N_cal = {n}, m = {m}, ten x_o, H = 199, {torch.get_num_threads()} threads: "
            f"test {wall:.1f} s ({cpu:.1f} s of processors), power {power_wall:.1f} s "
            f"({power_cpu:.1f} s of processors)"
        )
        print(result.sentence)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calibrations", type=int, default=8)
    parser.add_argument("--repetitions", type=int, default=24)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--speed", action="store_true", help="the speed alone")
    run = parser.parse_args()
    if run.speed:
        speed()
        return
    jobs = list(product(run.cases, range(run.calibrations)))
    with ProcessPoolExecutor(
        run.workers, initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        work = pool.map(partial(measured, repetitions=run.repetitions), jobs)
        rows = [row for rows in tqdm(work, total=len(jobs), disable=None) for row in rows]
    report(rows)


if __name__ == "__main__":
    main()

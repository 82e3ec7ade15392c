"""Seconds per null of local HPD coverage: in closed form, by one network, and as published.

    python benchmarks/speed_lhpd.py [--n 10000] [--nulls 999] [--refits 1] [--rounds 3]

Data of the size of SLCP (8 observations). A null as published is eleven scikit-learn networks, one
for each level, fitted to uniform levels; all take turns. In closed form a test is prepared and
asked at one observation, and at ten, by weights of the nearest points and by ridge regression.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch

import assay
from assay.levels import Levels
from assay.neighbourhoods import Nearest, Regressed
from assay.randomness import stream
from assay.regressions import Linear, Monotone, PerLevel
from assay.regressions.regression import Regression

D = 8
# The published grid has eleven levels, of which the first and the last say next to nothing.
PUBLISHED = (0.001, *(0.1 * i for i in range(1, 10)), 0.999)


def levels(n: int) -> Levels:
    """Levels of a q that is right, at observations with the heavy tails of SLCP."""
    generator = stream(0, "speed")
    x = torch.randn(n, D, generator=generator) * torch.randn(n, 1, generator=generator).exp()
    return Levels(torch.rand(n, generator=generator), x)


def seconds(n: int, regression: Regression, nulls: int, observations: int = 1) -> float:
    """Seconds for a test, its nulls and its answer at x_o."""
    given = levels(n)
    start = time.perf_counter()
    test = assay.lhpd(given, None, regression, nulls, PUBLISHED)
    test(assay.Draws(given.x[:observations]))
    return time.perf_counter() - start


def refit(n: int, nulls: int) -> float:
    """Seconds for a null as published, the fit of the data left out."""
    copies = levels(n).copies(nulls, 0)
    regression = PerLevel()
    start = time.perf_counter()
    regression.fit(copies, np.array(PUBLISHED), 0)
    return (time.perf_counter() - start) / (nulls + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--nulls", type=int, default=999)
    parser.add_argument("--network-nulls", type=int, default=99)
    parser.add_argument("--refits", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    run = parser.parse_args()
    forms: dict[str, Callable[[], float]] = {
        "nearest": lambda: seconds(run.n, Linear(Nearest()), run.nulls) / run.nulls,
        "nearest, ten x_o": lambda: seconds(run.n, Linear(Nearest()), run.nulls, 10) / run.nulls,
        "regressed": lambda: seconds(run.n, Linear(Regressed()), run.nulls) / run.nulls,
        "monotone": lambda: seconds(run.n, Monotone(), run.network_nulls) / run.network_nulls,
        "published": lambda: refit(run.n, run.refits),
    }
    seconds(1000, Linear(), 99)
    found: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(run.rounds):
        for name, form in forms.items():
            found[name].append(form())
    each = {name: float(np.median(values)) for name, values in found.items()}
    print(f"N_cal = {run.n}, d = {D}, H = {run.nulls} in closed form and {run.network_nulls} for")
    print(f"the network, {len(PUBLISHED)} levels, median of {run.rounds} rounds taking turns")
    print(f"{'':20}{'s / null':>12}{'published / this':>20}")
    for name, value in each.items():
        print(f"{name:20}{value:>12.6f}{each['published'] / value:>20.0f}")


if __name__ == "__main__":
    main()

"""Seconds per null of local HPD coverage: in closed form, and as published.

    PYTHONPATH=. python benchmarks/speed_lhpd.py [--n 10000] [--nulls 999] [--refits 1]
        [--rounds 3]

Data of the size of SLCP (8 observations). A null as published is eleven scikit-learn networks, one
for each level, fitted to uniform levels; all take turns. In closed form a test is prepared and
asked at one observation, and at ten, by weights of the nearest points.
"""

import argparse
import time
from collections.abc import Callable

import numpy as np
import torch
from experiments.local_hpd import curves, nulls
from experiments.networks import LEVELS, Sklearn

import assay
from assay._core import stream
from assay.diagnostics.local.levels import Levels
from assay.samples.neighbourhoods import Nearest

D = 8
# The published grid has eleven levels, of which the first and the last say next to nothing.
PUBLISHED = (0.001, *(0.1 * i for i in range(1, 10)), 0.999)


def levels(n: int) -> Levels:
    """Levels of a q that is right, at observations with the heavy tails of SLCP."""
    generator = stream(0, "speed")
    x = torch.randn(n, D, generator=generator) * torch.randn(n, 1, generator=generator).exp()
    return Levels(torch.rand(n, generator=generator), x)


def ours(n: int, null: int, observations: int = 1) -> float:
    """Seconds for a null: a test, its nulls and its answer at x_o, over their number."""
    given = levels(n)
    start = time.perf_counter()
    test = assay.lhpd(given, where=Nearest(), null=null, alphas=PUBLISHED)
    test(assay.Draws(given.x[:observations]))
    return (time.perf_counter() - start) / null


def published(n: int, refits: int) -> float:
    """Seconds for a null as published, the fit of the data left out."""
    x = levels(n).x.numpy()
    start = time.perf_counter()
    for u in nulls(n, refits, 0):
        curves([u], x, x[:1], [PUBLISHED], Sklearn(LEVELS))
    return (time.perf_counter() - start) / refits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--nulls", type=int, default=999)
    parser.add_argument("--refits", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    run = parser.parse_args()
    forms: dict[str, Callable[[], float]] = {
        "nearest": lambda: ours(run.n, run.nulls),
        "nearest, ten x_o": lambda: ours(run.n, run.nulls, 10),
        "published": lambda: published(run.n, run.refits),
    }
    ours(1000, 99)
    found: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(run.rounds):
        for name, form in forms.items():
            found[name].append(form())
    each = {name: float(np.median(values)) for name, values in found.items()}
    print(f"N_cal = {run.n}, d = {D}, H = {run.nulls} in closed form, {len(PUBLISHED)} levels,")
    print(f"median of {run.rounds} rounds taking turns")
    print(f"{'':20}{'s / null':>12}{'published / this':>20}")
    for name, value in each.items():
        print(f"{name:20}{value:>12.6f}{each['published'] / value:>20.0f}")


if __name__ == "__main__":
    main()

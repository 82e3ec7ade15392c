"""Which networks find errors at least cost: power at x_o over widths, depth, epochs and batches.

    python -m benchmarks.power_mlp [--repetitions 4] [--workers 8]
        [--device cuda] [--half chosen] [--out power_mlp.json]

x has eight numbers, theta given x is normal around a curved mean with a scale that depends on x,
and q has an error of one kind. What is told is how far the statistic of the data stands above its
nulls, in their standard deviations, mean over ten observations, and how often it is above all but
5 % of them. Designs are chosen and held by turns.

The half "leak" is a conjugate Gaussian whose q is right for positive x_1, and too high by 0.3
standard deviations elsewhere: how often it is rejected at x_1 = 2 and 1, where it is right.
"""

import argparse
import itertools
import json
import math
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

import assay
from assay._support.random import stream
from assay._support.work import without_progress

from .record import origin

D, NULLS, OBSERVATIONS, DRAWS = 8, 39, 10, 1000


class Error(NamedTuple):
    """How q is wrong: its standard coordinates u (..., m) at x (..., 1, d)."""

    name: str
    move: Callable[[Tensor, Tensor], Tensor]


def _one(u: Tensor, moved: Tensor) -> Tensor:
    return torch.cat([moved, u[..., 1:]], -1)


ERRORS = (
    Error("one shifted", lambda u, x: _one(u, u[..., :1] + 0.5)),
    Error("one shifted, oscillating", lambda u, x: _one(u, u[..., :1] + (2 * x[..., :1]).sin())),
    Error("one too wide", lambda u, x: _one(u, 1.6 * u[..., :1])),
    Error("all too wide", lambda u, x: 1.3 * u),
    Error("one too narrow", lambda u, x: _one(u, 0.6 * u[..., :1])),
    Error("correlated", lambda u, x: _one(u, 0.7 * u[..., :1] + 0.71 * u[..., 1:2])),
    Error("curved", lambda u, x: _one(u, u[..., :1] + 0.6 * (u[..., 1:2].square() - 1))),
    Error("too wide where x is large", lambda u, x: u * (1 + 0.5 * (x[..., :1] > 0.5))),
)


class Design(NamedTuple):
    """An error, the number of parameters, and of pairs."""

    error: int
    m: int
    n: int

    def __str__(self) -> str:
        return f"{ERRORS[self.error].name}, m = {self.m}, n = {self.n}"

    def draw(self, x: Tensor, k: int, generator: torch.Generator, *, wrong: bool) -> Tensor:
        """Draws (n, k, m) at x (n, d)."""
        u = torch.randn(len(x), k, self.m, generator=generator)
        there = x[:, None].expand(-1, k, -1)
        u = ERRORS[self.error].move(u, there) if wrong else u
        which = [j % D for j in range(self.m)]
        mean, scale = there[..., which].sin() + 0.3 * there[..., which], (0.4 * there[..., 1:2])
        return mean + scale.exp() * u


DESIGNS = tuple(
    Design(error, m, n) for n in (1000, 10_000) for m in (2, 5, 10) for error in range(len(ERRORS))
)
# By turns over errors, and the other way round at the next m.
HALVES = {
    "chosen": tuple(d for d in DESIGNS if (d.error + d.m // 3 + d.n // 10_000) % 2 == 0),
    "held": tuple(d for d in DESIGNS if (d.error + d.m // 3 + d.n // 10_000) % 2),
}
RECIPES = {
    "64-64-64, 20 epochs": assay.MLP(hidden=(64, 64, 64), epochs=20),
    "64-64-64, 10 epochs": assay.MLP(hidden=(64, 64, 64), epochs=10),
    "64-64, 20 epochs": assay.MLP(hidden=(64, 64), epochs=20),
    "64-64, 10 epochs": assay.MLP(hidden=(64, 64), epochs=10),
    "32-32, 20 epochs": assay.MLP(hidden=(32, 32), epochs=20),
    "32-32, 10 epochs": assay.MLP(hidden=(32, 32), epochs=10),
    "32-32-32, 20 epochs": assay.MLP(hidden=(32, 32, 32), epochs=20),
    "16-16, 20 epochs": assay.MLP(hidden=(16, 16), epochs=20),
    "128, 20 epochs": assay.MLP(hidden=(128,), epochs=20),
    "64-64, 20 epochs, batch 128": assay.MLP(hidden=(64, 64), epochs=20, batch=128),
    "32-32, 20 epochs, rate 0.01": assay.MLP(hidden=(32, 32), epochs=20, rate=1e-2),
    "64-64, 20 epochs, decay 1": assay.MLP(hidden=(64, 64), epochs=20, decay=1.0),
}


def run(job: tuple[Design, str, int], device: str) -> dict[str, Any]:
    """One repetition of one recipe on one design."""
    design, recipe, seed = job
    torch.set_num_threads(1)
    generator = stream(seed, "power", design.error, design.m, design.n)
    x = torch.randn(design.n, D, generator=generator)
    theta = design.draw(x, 1, generator, wrong=False)[:, 0]
    calibration = assay.Calibration(theta, x, design.draw(x, 1, generator, wrong=True)[:, 0])
    x_o = 0.7 * torch.randn(OBSERVATIONS, D, generator=generator)
    draws = assay.Draws(x_o, design.draw(x_o, DRAWS, generator, wrong=True))
    start = time.perf_counter()
    with without_progress():
        test = assay.lc2st(
            calibration.to(device), RECIPES[recipe], assay.Exchange(NULLS), seed=seed
        )
        found = test(draws)
    seconds = time.perf_counter() - start
    null = np.log(found.null)
    z = (np.log(found.statistic) - null.mean(1)) / null.std(1)
    return {
        "design": str(design),
        "recipe": recipe,
        "seed": seed,
        "z": float(z.mean()),
        "rejected": float(np.mean(found.pvalue <= 0.05)),
        "seconds": seconds,
    }


def leaked(job: tuple[str, int], device: str) -> dict[str, Any]:
    """One repetition of one recipe where q is right at x_o, and wrong elsewhere."""
    recipe, seed = job
    torch.set_num_threads(1)
    generator = stream(seed, "leak")
    theta, noise, z = torch.randn(3, 10_000, 2, generator=generator)
    x = theta + noise
    q = x / 2 + math.sqrt(0.5) * (z + 0.3 * (x[:, :1] < 0))
    x_o = torch.tensor([[2.0, 0.0], [1.0, 0.0]])
    there = torch.randn(2, DRAWS, 2, generator=generator)
    draws = assay.Draws(x_o, x_o[:, None] / 2 + math.sqrt(0.5) * there)
    calibration = assay.Calibration(theta, x, q).to(device)
    with without_progress():
        test = assay.lc2st(calibration, RECIPES[recipe], assay.Exchange(NULLS), seed=seed)
        found = test(draws)
    rejected = (found.pvalue <= 0.05).tolist()
    return {"recipe": recipe, "seed": seed, "at 2": rejected[0], "at 1": rejected[1]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=4)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--half", default="chosen", choices=[*HALVES, "leak"])
    parser.add_argument("--recipes", default=",,".join(RECIPES))
    parser.add_argument("--seconds", type=float, default=500)
    parser.add_argument("--out", default="power_mlp.json")
    given = parser.parse_args()
    end = time.monotonic() + given.seconds
    recipes = given.recipes.split(",,")
    seeds, work = range(given.repetitions), leaked if given.half == "leak" else run
    designs = HALVES.get(given.half, ())
    jobs: list[Any] = [(d, r, s) for s, d, r in itertools.product(seeds, designs, recipes)]
    jobs = jobs or [(r, s) for s, r in itertools.product(seeds, recipes)]
    rows: list[dict[str, Any]] = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(given.workers, context) as pool:
        for row in pool.map(partial(work, device=given.device), jobs):
            rows.append(row)
            if time.monotonic() > end:
                pool.shutdown(wait=False, cancel_futures=True)
                break
    record = {**origin(), "seed": 0, "half": given.half, "rows": rows}
    Path(given.out).write_text(json.dumps(record))
    if given.half == "leak":
        for recipe in recipes:
            some = [r for r in rows if r["recipe"] == recipe]
            print(recipe, len(some), *(np.mean([r[k] for r in some]) for k in ("at 2", "at 1")))
        return
    for n in (1000, 10_000):
        print(f"{given.half}, n = {n}: recipe, mean z, rejected, seconds, repetitions")
        for recipe in recipes:
            some = [r for r in rows if r["recipe"] == recipe and r["design"].endswith(f" {n}")]
            if some:
                z, rejected, took = (
                    np.mean([r[k] for r in some]) for k in ("z", "rejected", "seconds")
                )
                print(f"{recipe:32}{z:8.2f}{rejected:8.3f}{took:8.2f}{len(some):6}")


if __name__ == "__main__":
    main()

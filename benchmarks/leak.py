"""Leak and power, side by side: q right on one half of x-space and biased on the other.

    PYTHONPATH=. python benchmarks/leak.py [--repetitions 500] [--mlp 100] [--published 0]
        [--stacked 0] [--workers 2] [--task gaussian] [--pairs 2000] [--by 0.3] [--only Local]
        [--device cpu] [--store leak.jsonl]

q is the exact posterior where an observed number is positive, and shifted by a part of a posterior
standard deviation along one parameter where it is not. At observations whose whole neighbourhood
is on the right half, a rejection is a leak: an honest local test makes them in 5 % of cases. Deep
inside the other half it is power. The last column is the area under the curve of p-values as a
score for "q is wrong here". Tests with networks run in fewer repetitions; "published" is the
recipe of the paper in scikit-learn, with free permutations and p = #/H; "published, one stack" the
same recipe with all copies trained together. With --store, every repetition is kept in a file as
soon as it is done, and none is run twice.
"""

import argparse
import json
import multiprocessing
import re
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from experiments import published as recipe
from scipy.stats import binom
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score
from sklearn.neural_network import MLPClassifier
from tqdm import tqdm

import assay
from assay._core import stream
from assay.interpret.errors import Shift
from assay.samples.neighbourhoods import Nearest, Smooth
from assay.tasks import task
from assay.tasks.linear_gaussian import ConjugateGaussian
from assay.tasks.perturbed import Perturbed

K, DRAWS, NULLS, FEW = 8, 300, 99, 39
# The number of x that decides, observations right and wrong, and the shares that are near them.
SETTINGS = {
    "gaussian": (ConjugateGaussian(3, 5), 0, ((3.0, 0, 0, 0, 0), (-2.4, 0, 0, 0, 0))),
    "two_moons": (task("two_moons"), 1, ((-0.4, 0.8), (-0.4, -0.8))),
}

Pvalues = Callable[[], np.ndarray]


def wrong(x: torch.Tensor, column: int) -> torch.Tensor:
    return x[:, column] < 0


def data(name: str, pairs: int, by: float, index: int) -> tuple[assay.Calibration, assay.Draws]:
    """A calibration with k draws of q, and draws of q at a right and at a wrong observation."""
    model, column, observations = SETTINGS[name]
    q = Perturbed(model, Shift(0), by, partial(wrong, column=column))
    generator = stream(index, "leak", name)
    theta, x = model.joint(pairs, generator)
    x_o = torch.tensor(observations, dtype=x.dtype)
    calibration = assay.Calibration(theta, x, q.draws(x, K, generator))
    near = Nearest((0.05,)).inside(calibration.features, x_o.to(calibration.features))[:, 0]
    bad = wrong(x, column)
    if bad[near[0]].any() or not bad[near[1]].all():
        raise RuntimeError("a neighbourhood is not on one side")
    return calibration, assay.Draws(x_o, q.draws(x_o, DRAWS, generator))


def closed_forms(
    calibration: assay.Calibration, draws: assay.Draws, seed: int
) -> dict[str, Pvalues]:
    """P-values (2,) of tests in closed form, at a right and a wrong observation."""
    few = first(calibration, 4)
    near = Nearest((0.05,))
    tests = {
        "Ridge, Exchange": lambda: assay.lc2st(
            few, assay.Ridge(), assay.Exchange(NULLS), seed=seed
        ),
        "Ridge, LocalExchange 5 %": lambda: assay.lc2st(
            few, assay.Ridge(), assay.LocalExchange(NULLS), seed=seed
        ),
        "Ridge, region 5 %": lambda: assay.region(few, assay.Ridge(), near, seed=seed),
        "moments, Smooth": lambda: assay.moments(calibration, Smooth(), seed=seed),
        "moments, LocalExchange 5 %": lambda: assay.moments(
            calibration, null=assay.LocalExchange(NULLS), seed=seed
        ),
        "lpit, nearest 5 %": lambda: assay.lpit(calibration, where=near, null=NULLS, seed=seed),
    }
    return asked(tests, draws)


def networks(calibration: assay.Calibration, draws: assay.Draws, seed: int) -> dict[str, Pvalues]:
    pairs = first(calibration, 1)
    tests = {
        "MLP, Exchange": lambda: assay.lc2st(pairs, null=assay.Exchange(FEW), seed=seed),
        "MLP, LocalExchange 5 %": lambda: assay.lc2st(
            pairs, null=assay.LocalExchange(FEW), seed=seed
        ),
        "MLP, region 5 %": lambda: assay.region(
            first(calibration, 4), where=Nearest((0.05,)), seed=seed
        ),
    }
    return asked(tests, draws)


def published(calibration: assay.Calibration, draws: assay.Draws, seed: int) -> dict[str, Pvalues]:
    pairs = first(calibration, 1)
    width = 10 * pairs.m
    estimator = MLPClassifier(
        (width, width), max_iter=1000, early_stopping=True, n_iter_no_change=50
    )

    def pvalue() -> np.ndarray:
        null = assay.FreePermutation(100)
        result = assay.lc2st(pairs, assay.Sklearn(estimator), null, seed=seed)(draws)
        return (result.null > result.statistic[:, None]).mean(1)

    return {"published": pvalue}


def stacked(calibration: assay.Calibration, draws: assay.Draws, seed: int) -> dict[str, Pvalues]:
    def pvalue() -> np.ndarray:
        pairs = first(calibration, 1)
        there = torch.as_tensor(draws.x), torch.as_tensor(draws.theta)
        sample = pairs.theta, pairs.x, pairs.theta_q[:, 0]
        return recipe.pvalue(*recipe.lc2st(recipe.Batched(10 * pairs.m), sample, there)).numpy()

    return {"published, one stack": pvalue}


def first(calibration: assay.Calibration, k: int) -> assay.Calibration:
    """The same pairs with the first k draws."""
    return assay.Calibration(calibration.theta, calibration.x, calibration.theta_q[:, :k])


def asked(tests: dict[str, Callable[[], Callable]], draws: assay.Draws) -> dict[str, Pvalues]:
    return {name: lambda test=test: test()(draws).pvalue for name, test in tests.items()}


GROUPS = {
    "closed form": closed_forms,
    "networks": networks,
    "published": published,
    "stacked": stacked,
}


def one(
    job: tuple[str, str, int, float, int], only: str = "", device: str = "cpu"
) -> dict[str, np.ndarray]:
    """The p-values of a group of tests in one repetition."""
    group, name, pairs, by, index = job
    calibration, draws = data(name, pairs, by, index)
    calibration = calibration.to(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        tests = GROUPS[group](calibration, draws, index)
        return {name: test() for name, test in tests.items() if re.search(only, name)}


def report(found: list[dict[str, np.ndarray]]) -> None:
    # Kept repetitions may have had other tests.
    for name in dict.fromkeys(name for row in found for name in row):
        p = np.array([row[name] for row in found if name in row])
        leak, power = (p <= 0.05).mean(0)
        low, high = binom.interval(0.99, len(p), 0.05)
        inside = low <= (p[:, 0] <= 0.05).sum() <= high
        truth = np.repeat([[0, 1]], len(p), 0).ravel()
        area = roc_auc_score(truth, -p.ravel())
        print(
            f"  {name:28}{len(p):>6}{leak:>9.3f} {'' if inside else '*':1}{power:>9.3f}"
            f"{area:>8.3f}",
            flush=True,
        )


class Store:
    """Repetitions that were done, by job, in a file of one line each; in memory without a file."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.done: dict[tuple[Any, ...], dict[str, np.ndarray]] = {}
        for line in path.read_text().splitlines() if path is not None and path.exists() else ():
            job, found = json.loads(line)
            self.add(tuple(job), {name: np.array(p) for name, p in found.items()}, keep=False)

    def add(
        self, job: tuple[Any, ...], found: dict[str, np.ndarray], *, keep: bool = True
    ) -> None:
        """Keeps what a job found."""
        self.done[job] = self.done.get(job, {}) | found
        if keep and self.path is not None:
            with self.path.open("a") as file:
                plain = {name: np.asarray(p).tolist() for name, p in found.items()}
                file.write(json.dumps([job, plain]) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=500)
    parser.add_argument("--mlp", type=int, default=100)
    parser.add_argument("--published", type=int, default=0)
    parser.add_argument("--stacked", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--task", nargs="*", default=list(SETTINGS))
    parser.add_argument("--pairs", type=int, nargs="*", default=[2000, 10_000])
    parser.add_argument("--by", type=float, nargs="*", default=[0.3, 0.6])
    parser.add_argument("--only", default="", help="a pattern of tests to run")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--store", type=Path, help="a file of repetitions that were done")
    run = parser.parse_args()
    wanted = (run.repetitions, run.mlp, run.published, run.stacked)
    counts = dict(zip(GROUPS, wanted, strict=True))
    store = Store(run.store)
    print("leak: * outside the 99 % binomial interval of 0.05")
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(run.workers, spawn, torch.set_num_threads, (1,)) as pool:
        for name, pairs, by in product(run.task, run.pairs, run.by):
            print(f"{name}, {pairs} pairs, {by} sd")
            print(f"{'':30}{'runs':>6}{'leak':>9}{'power':>10}{'AUC':>8}", flush=True)
            for group, count in counts.items():
                jobs = [(group, name, pairs, by, index) for index in range(count)]
                todo = [job for job in jobs if job not in store.done]
                run_one = partial(one, only=run.only, device=run.device)
                work = tqdm(pool.map(run_one, todo), group, total=len(todo), disable=None)
                for job, found in zip(todo, work, strict=True):
                    store.add(job, found)
                if jobs:
                    report([store.done[job] for job in jobs])


if __name__ == "__main__":
    main()

"""How true the verdict is: the level of its test in ugly designs, and what it says it detects.

    python -m benchmarks.verdict level [--repetitions 2000] [--workers 16] [--out file.json]
    python -m benchmarks.verdict detectable [--repetitions 60] [--workers 16] [--out file.json]
    python -m benchmarks.verdict exact [--repetitions 1000] [--workers 16] [--out file.json]
    python -m benchmarks.verdict one [--repetitions 48] [--workers 16] [--out file.json]
    python -m benchmarks.verdict features [--repetitions 48] [--workers 16] [--out file.json]
    python -m benchmarks.verdict samples [--workers 16] [--out file.json]

**Level.** Truths and draws of q come from the same law given x, whatever its shape: the rate of
p-values up to 0.05 must lie in its 99 % binomial interval around 0.05, or below. In "leak" q is
off by ten standard deviations outside the nearest part of x.

**Detectable.** On one data set the size of error is measured that the test detects with
probability 0.8, in one parameter; then errors of this size are planted in the nearest 20 % of x of
fresh data sets, and the test is run whole. The rate of rejections should be 0.8.

**Exact.** :func:`assay.check` where q is right: how often anything is said to be wrong.

**One.** :func:`assay.check` where one of 15 parameters, or one pair of them, is wrong at every x
(1000 pairs, 20 draws).

**Features.** :func:`assay.check` where two of 100 features of x tell of the parameters, with q
wrong where the first is above one, or with the prior for q.

**Samples.** :func:`assay.check` on samples of the paper's authors, in disjoint parts.
"""

import argparse
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
import torch
from torch import Tensor
from tqdm import tqdm

import assay
from assay._core import stream
from assay.diagnostics.local.score import SHARES
from assay.interpret.errors import Error, Narrow, Shift, Wide
from assay.samples.neighbourhoods import Nearest

from .paper_samples import Case, require
from .record import origin

LEVEL, NULLS = 0.05, 39
QUICK = assay.Suite.quick()
KINDS: dict[str, type[Error]] = {"shift": Shift, "too wide": Wide, "too narrow": Narrow}
# Numbers of parameters, and the parameters that are looked at.
PARAMETERS = {2: (0, 1), 5: (0, 2, 4), 10: (0, 4, 9), 20: (0, 9, 19)}
# Fresh data sets for each one on which sizes are measured.
FRESH = 10

Law = Callable[[Tensor, int, torch.Generator], Tensor]


class Ugly(NamedTuple):
    """A design: n sets of k draws, d features of x, and the law of members (n, r, m) given x."""

    law: Law
    n: int = 200
    k: int = 8
    d: int = 2
    space: str = "draws"
    leak: float = 0.0
    right: float = 0.35  # the nearest part of x in which q is right all the same


def normal(x: Tensor, r: int, g: torch.Generator) -> Tensor:
    return x[:, None, :2] + torch.randn(len(x), r, 2, generator=g)


def rounded(x: Tensor, r: int, g: torch.Generator) -> Tensor:
    return normal(x, r, g).round()


def poisson(x: Tensor, r: int, g: torch.Generator) -> Tensor:
    rate = 0.5 * x[:, None, :1].exp().clamp(max=20).expand(-1, r, 2)
    return torch.poisson(rate, generator=g)


def coin(x: Tensor, r: int, g: torch.Generator) -> Tensor:
    chance = torch.sigmoid(x[:, None, :2]).expand(-1, r, -1)
    return torch.bernoulli(chance, generator=g)


def cauchy(x: Tensor, r: int, g: torch.Generator) -> Tensor:
    return x[:, None, :2] + torch.empty(len(x), r, 2).cauchy_(generator=g)


def collinear(x: Tensor, r: int, g: torch.Generator) -> Tensor:
    first = normal(x, r, g)[..., :1]
    return torch.cat([first, 2 * first, first + 1e-6], 2)


def bounded(x: Tensor, r: int, g: torch.Generator) -> Tensor:
    return normal(x, r, g).clamp(-1, 1)


def five(x: Tensor, r: int, g: torch.Generator) -> Tensor:
    return x[:, None, :1] + torch.randn(len(x), r, 5, generator=g)


def far_away(x: Tensor, r: int, g: torch.Generator) -> Tensor:
    return normal(x, r, g) + 1e6


DESIGNS = {
    "normal": Ugly(normal),
    "ties": Ugly(rounded),
    "Poisson": Ugly(poisson),
    "coins": Ugly(coin),
    "Cauchy": Ugly(cauchy),
    "bounded": Ugly(bounded),
    "collinear": Ugly(collinear),
    "n = 20": Ugly(normal, n=20),
    "d = 100": Ugly(normal, d=100),
    "one draw, m = 5": Ugly(five, k=1),
    "latents, n = 60": Ugly(normal, n=60, space="latents"),
    "offset 1e6": Ugly(far_away),
    "leak": Ugly(normal, leak=10.0),
    "leak, d = 100": Ugly(normal, d=100, leak=10.0, right=0.7),
}


def level(job: tuple[str, int]) -> float:
    """The p-value of one repetition."""
    name, seed = job
    design, g = DESIGNS[name], stream(seed, "level", name)
    x, x_o = torch.randn(design.n, design.d, generator=g), torch.randn(design.d, generator=g)
    members = design.law(x, design.k + 1, g)
    if design.space == "latents":
        z = members[:, 0] - x[:, :2]
        return float(
            assay.score(assay.Calibration.from_base(z, x), null=NULLS, seed=seed)(x_o).pvalue
        )
    given = assay.Calibration(members[:, 0], x, members[:, 1:])
    # What is near does not change with the errors that are made elsewhere.
    where = Nearest(SHARES, given.distance)
    if design.leak:
        far = ~replace(where, shares=(design.right,)).inside(given.features, x_o[None])[0, 0]
        given = replace(given, theta=given.theta + design.leak * far[:, None])
    return float(assay.score(given, where, NULLS, seed)(x_o).pvalue)


def levels(run: argparse.Namespace) -> Iterator[dict[str, Any]]:
    names = [name for name in DESIGNS if run.only in name]
    jobs = [(name, seed) for name in names for seed in range(run.repetitions)]
    found = np.array(list(mapped(level, jobs, run.workers))).reshape(len(names), -1)
    low, high = scipy.stats.binom.interval(0.99, run.repetitions, LEVEL)
    for name, pvalues in zip(names, found, strict=True):
        count = int((pvalues <= LEVEL + 1e-9).sum())
        rate = {"design": name, "rejected": count / run.repetitions}
        interval = [low / run.repetitions, high / run.repetitions]
        print(f"{name:20}{rate['rejected']:8.4f}   99 %: {interval[0]:.4f} to {interval[1]:.4f}")
        yield {**rate, "interval": interval, "held": bool(count <= high)}


class Planting(NamedTuple):
    """A parameter of m whose error is planted, and the seed of the data sets."""

    m: int
    along: int
    kind: str
    seed: int


def exact(m: int, seed: int) -> tuple[assay.Calibration, Tensor]:
    """A calibration of an exact q with correlated parameters, and an observation."""
    g = stream(seed, "exact", m)
    x, x_o = torch.randn(1000, 2, generator=g), 0.7 * torch.randn(2, generator=g)
    factor = torch.linalg.cholesky(0.5 * torch.eye(m) + 0.5)
    members = torch.randn(1000, max(16, m + 4) + 1, m, generator=g) @ factor.mT
    members = members + x[:, None, :1]
    return assay.Calibration(members[:, 0], x, members[:, 1:]), x_o


def detected(job: Planting) -> tuple[float, int]:
    """The size that is said to be detected, and in how many of ten data sets it is."""
    error = KINDS[job.kind](job.along)
    calibration, x_o = exact(job.m, job.seed)
    size = float(assay.power(assay.score(calibration), x_o, error).curves[0].mde)
    if not math.isfinite(size):
        return size, 0
    return size, sum(found(job, error, size, i) for i in range(1, FRESH + 1))


def found(job: Planting, error: Error, size: float, which: int) -> bool:
    """Whether an error of this size is found in a fresh data set."""
    given, x_o = exact(job.m, 1000 * (job.seed + 1) + which)
    near = Nearest((0.2,)).inside(given.features, x_o[None])[0, 0]
    # The true mean is known here: x, and the deviation is one.
    u = given.theta - given.x[:, :1]
    moved = error.apply(u, size, torch.Generator())
    theta = torch.where(near[:, None], given.x[:, :1] + moved, given.theta)
    return bool(assay.score(replace(given, theta=theta), seed=which)(x_o).pvalue <= LEVEL)


def detectables(run: argparse.Namespace) -> Iterator[dict[str, Any]]:
    cases = [(m, j, kind) for (m, js), kind in product(PARAMETERS.items(), KINDS) for j in js]
    seeds = range(-(-run.repetitions // FRESH))
    jobs = [Planting(*case, seed) for case in cases for seed in seeds]
    done = mapped(detected, jobs, run.workers)
    for m, along, kind in cases:
        sizes, hits = zip(*(next(done) for _ in seeds), strict=True)
        rate = sum(hits) / (FRESH * len(seeds))
        print(f"m = {m:3}  parameter {along:3}  {kind:12} size {np.mean(sizes):.3f}  {rate:.3f}")
        case = {"m": m, "parameter": along, "kind": kind}
        yield {**case, "sizes": [round(s, 4) for s in sizes], "found": rate}


class Right(NamedTuple):
    """A design in which q is right: m parameters, n pairs with k draws, and o observations."""

    m: int
    n: int
    k: int
    o: int
    space: str = "draws"
    shape: str = "normal"


RIGHT = (
    Right(2, 500, 16, 1),
    Right(5, 500, 16, 3),
    Right(3, 500, 16, 1, "latents"),
    Right(2, 1000, 16, 5, "latents"),
    Right(2, 500, 16, 1, shape="skewed"),
    Right(10, 500, 20, 1),
    Right(2, 200, 8, 2, shape="discrete"),
    Right(1, 1000, 30, 4, shape="heavy"),
)


def of_shape(shape: str, size: tuple[int, ...], g: torch.Generator) -> Tensor:
    """Draws of a law with mean about zero."""
    z = torch.randn(size, generator=g)
    match shape:
        case "skewed":
            return (0.5 * z).exp() - 1.1
        case "discrete":
            return torch.poisson(torch.full(size, 1.5), generator=g)
        case "heavy":
            return z / torch.randn((*size, 3), generator=g).square().mean(-1).sqrt()
    return z


def said_wrong(job: tuple[int, int]) -> dict[str, bool]:
    """What a check says to be wrong where q is right."""
    which, seed = job
    design, g = RIGHT[which], stream(seed, "right", which)
    m, n, k, o = design[:4]
    x, x_o = torch.randn(n, 2, generator=g), torch.randn(o, 2, generator=g)
    if design.space == "latents":
        z = torch.randn(n, m, generator=g)
        found = assay.check(assay.Calibration.from_base(z, x), x_o=x_o, suite=QUICK, seed=seed)
    else:
        made = x[:, None, :1] + of_shape(design.shape, (n, k + 1, m), g)
        there = x_o[:, None, :1] + of_shape(design.shape, (o, 200, m), g)
        given, draws = assay.Calibration(made[:, 0], x, made[:, 1:]), assay.Draws(x_o, there)
        found = assay.check(given, x_o=draws, suite=QUICK, seed=seed)
    said = " ".join(repr(found).split()).replace("do not reject", "")
    return {
        "at an observation": bool(found.rejected.any()),
        "over all x": bool(re.search(r"rejects? q", said)),
        "effects": bool(found.effects.wrong.any()),
        "passed everywhere": found.verdicts.count("passed") == o,
    }


def exacts(run: argparse.Namespace) -> Iterator[dict[str, Any]]:
    each = -(-run.repetitions // len(RIGHT))
    seeds = range(run.seed, run.seed + each)
    done = mapped(said_wrong, list(product(range(len(RIGHT)), seeds)), run.workers)
    every: list[dict[str, bool]] = []
    for design in RIGHT:
        found = [next(done) for _ in range(each)]
        every += found
        yield _counts(str(design), found)
    yield _counts("all", every)


def _counts(name: str, found: list[dict[str, bool]]) -> dict[str, Any]:
    kinds = ("at an observation", "over all x", "effects")
    anything = sum(any(one[kind] for kind in kinds) for one in found)
    rates = {kind: sum(one[kind] for one in found) / len(found) for kind in found[0]}
    interval = scipy.stats.binomtest(anything, len(found)).proportion_ci(0.95)
    row = {"design": name, "data sets": len(found), "anything": anything / len(found), **rates}
    print(row, flush=True)
    return {**row, "interval": [interval.low, interval.high]}


ONE = {
    "none": 0.0,
    "width x 1.8": 1.8,
    "width x 1.4": 1.4,
    "width x 0.6": 0.6,
    "shift 0.3 sd": 0.3,
    "correlation 0.4": 0.4,
}


def one_of_15(job: tuple[str, int]) -> bool:
    """Whether a check rejects q at x_o, where q is wrong in the last parameter or pair."""
    name, seed = job
    g = stream(seed, "one of 15", name)
    x = torch.randn(1000, 2, generator=g)
    noise = torch.randn(1000, 21, 15, generator=g)
    drawn, size = noise[:, 1:], ONE[name]
    if name.startswith("width"):
        drawn[..., -1] *= size
    elif name.startswith("shift"):
        drawn[..., -1] += size
    elif size:
        drawn[..., -1] = size * drawn[..., -2] + math.sqrt(1 - size**2) * drawn[..., -1]
    members = noise + x[:, None, :1]
    x_o = torch.randn(2, generator=g)
    there = x_o[0] + torch.randn(200, 15, generator=g)
    given = assay.Calibration(members[:, 0], x, members[:, 1:])
    found = assay.check(given, x_o=assay.Draws(x_o, there), suite=QUICK, seed=seed)
    return bool(found.rejected[0])


FEATURES = ("none", "shift 1 sd", "shift 0.7 sd", "width x 0.6", "prior")


def of_100(job: tuple[str, int]) -> bool:
    """Whether a check rejects q at x_1 = 1.5, where two of 100 features tell anything."""
    name, seed = job
    g = stream(seed, "features", name)
    x = torch.randn(2000, 100, generator=g)
    x_o = torch.randn(100, generator=g)
    x_o[:2] = torch.tensor([1.5, 0.0])
    noise = torch.randn(2000, 17, 2, generator=g)
    mean = x[:, None, :2]
    if name == "prior":
        truth = mean[:, 0] + noise[:, 0]
        drawn = torch.randn(2000, 16, 2, generator=g) + noise[:, 1:]
    else:
        wrong, drawn = (x[:, :1] > 1)[:, None], noise[:, 1:]
        if name.startswith("shift"):
            drawn = drawn + float(name.split()[1]) * wrong
        elif name.startswith("width"):
            drawn = torch.where(wrong, 0.6 * drawn, drawn)
        truth, drawn = mean[:, 0] + noise[:, 0], mean + drawn
    there = x_o[:2] + torch.randn(200, 2, generator=g)
    draws = assay.Draws(x_o, there)
    found = assay.check(assay.Calibration(truth, x, drawn), x_o=draws, suite=QUICK, seed=seed)
    return bool(found.rejected[0])


def rates(function: Callable[[Any], bool], names: Iterable[str], run: Any) -> Iterator[Any]:
    """How often a check rejects in each of some designs."""
    seeds, names = range(run.repetitions), list(names)
    done = mapped(function, list(product(names, seeds)), run.workers)
    for name in names:
        rate = sum(next(done) for _ in seeds) / len(seeds)
        print(f"{name:20}{rate:8.3f}", flush=True)
        yield {"design": name, "repetitions": len(seeds), "rejected": rate}


class Part(NamedTuple):
    """A disjoint part of the authors' samples: the first n pairs for part 0, and so on."""

    space: str
    n: int
    task: str
    n_train: int
    part: int


def of_samples(job: Part) -> float:
    """The share of ten observations at which a check has a p-value of at most 0.05."""
    case = Case(job.task, job.n_train)
    given, draws = case.sets(10_000) if job.space == "draws" else case.latents(10_000)
    given = given.subset(slice(job.part * job.n, (job.part + 1) * job.n))
    if given.theta_q is not None:
        given = replace(given, theta_q=given.theta_q[:, :16])
        draws = assay.Draws(draws.x, draws.theta[:, :1000])
    found = assay.check(given, x_o=draws, suite=QUICK, seed=job.part)
    return float((found.pvalue <= LEVEL + 1e-9).mean())


def samples(run: argparse.Namespace) -> Iterator[dict[str, Any]]:
    require()
    kinds = (("draws", 2000), ("draws", 5000), ("latents", 2000))
    cases = list(product(("slcp", "two_moons"), (1000, 10_000, 100_000)))
    parts = [
        [Part(*kind, *c, i) for c in cases for i in range(10_000 // kind[1])] for kind in kinds
    ]
    done = mapped(of_samples, [job for jobs in parts for job in jobs], run.workers)
    for kind, jobs in zip(kinds, parts, strict=True):
        found = [next(done) for _ in jobs]
        print(f"{kind[0]:10}{kind[1]:6}   mean {np.mean(found):.3f}", flush=True)
        yield {"space": kind[0], "pairs": kind[1], "mean": float(np.mean(found))}
        for job, rate in zip(jobs, found, strict=True):
            yield {**job._asdict(), "rejected": rate}


def mapped(function: Callable[[Any], Any], jobs: list[Any], workers: int) -> Iterator[Any]:
    with ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        yield from tqdm(pool.map(function, jobs, chunksize=2), total=len(jobs), disable=None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    studies: dict[str, Callable[[argparse.Namespace], Iterator[dict[str, Any]]]] = {
        "level": levels,
        "detectable": detectables,
        "exact": exacts,
        "one": lambda run: rates(one_of_15, ONE, run),
        "features": lambda run: rates(of_100, FEATURES, run),
        "samples": samples,
    }
    parser.add_argument("study", choices=studies)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0, help="that of the first data set of exact")
    parser.add_argument("--only", default="", help="a part of the names of designs of level")
    parser.add_argument("--out", type=Path, help="a file for the record")
    run = parser.parse_args()
    rows = list(studies[run.study](run))
    how = {"study": run.study, "repetitions": run.repetitions, "seed": run.seed, "nulls": NULLS}
    if run.out is not None:
        run.out.write_text(json.dumps({**origin(), **how, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

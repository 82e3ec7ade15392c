"""How many simulations a check needs: pairs around x_o against pairs from the prior.

    python -m benchmarks.simulator [--repetitions 200] [--level 1000] [--workers 2] [--seed 0]
        [--designs gaussian linear mixture state_space] [--out simulator.json]

Posteriors that are known, with an error near x_o: q is too high by 0.3 standard deviations
in one parameter where its mean lies within two (in root mean square over parameters) of that at
x_o, and right elsewhere. **Power**: how often the test that decides in ``assay.check`` rejects q
at 0.05, for more and more simulations. "zoom" counts all that ``simulations`` counts, those from
the prior too; "prior" are as many pairs from the prior, with as many draws of q; "flow" the same
in latent space, where q is a flow. **Everywhere**: the same for an error at all x, where pairs far
from x_o are as good as others. In the state space x says little of the parameters, so that many of
the prior's are near anyway. **Level**: q is right, and simulations succeed, or fail in 5 % of
cases.
"""

import argparse
import json
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.stats
import torch
from torch import Tensor
from tqdm import tqdm

import assay
from assay._support.random import seed_of, stream
from assay.data.prepare import prepare
from assay.data.simulate import Simulations
from assay.neighbourhood import Nearest
from experiments.tasks import ConjugateGaussian, GaussianMixture, Perturbed, StateSpace, Task
from experiments.tasks.errors import Shift

from .record import origin

K, NULLS = 16, 99
SHIFT, NEAR, TARGET, ENOUGH = 0.3, 2.0, 0.8, 0.9
# Simulations that are tried, until power is enough.
SIZES = [125 * 2**i for i in range(10)]
DESIGNS = ["gaussian", "linear", "mixture", "state_space"]


class Mixture(GaussianMixture):
    """With moments in closed form, which hold away from the edges of the prior."""

    def _moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x, torch.full_like(x, (1.01 / 2) ** 0.5)


@dataclass(frozen=True)
class Design:
    """A task, and an observation that its prior makes."""

    task: Task
    x_o: Tensor

    def near(self, x: Tensor) -> Tensor:
        """Whether posterior means at observations (n, d) are near that at x_o."""
        mean, scale = self.task.moments(self.x_o[None])
        apart = (self.task.moments(x)[0] - mean) / scale
        return apart.square().mean(1).sqrt() < NEAR

    def q(self, error: str) -> Perturbed:
        """The posterior with an error: none, near x_o or everywhere."""
        size = 0.0 if error == "none" else SHIFT
        return Perturbed(self.task, Shift(0), size, self.near if error == "near" else None)

    def simulate(self, theta: Tensor) -> Tensor:
        """The task's own simulator, by the global generator."""
        return self.task._simulate(theta, torch.default_generator)

    def failing(self, theta: Tensor) -> Tensor:
        """The same with NaN in 5 % of cases."""
        x = self.simulate(theta)
        x[torch.rand(len(x)) < 0.05] = torch.nan
        return x


@cache
def design(name: str) -> Design:
    kinds = {
        "gaussian": ConjugateGaussian(2, 4, noise=0.25),
        "linear": ConjugateGaussian(3, 6, noise=0.15),
        "mixture": Mixture(),
        "state_space": StateSpace(50),
    }
    task = kinds[name]
    theta = torch.tensor([[1.0, -0.5, 0.5]])[:, : task.m]
    return Design(task, task.simulate(theta, stream(1, "x_o"))[0])


# What the deciding test looks at, and what is near x_o.
Given = tuple[assay.Calibration, Nearest | None]


def zoom(made: Design, q: Perturbed, n: int, seed: int, simulate: Any = None) -> Given:
    source = Simulations(simulate or made.simulate, made.task.prior, n)
    found = prepare(q.sample, None, None, made.x_o, source, draws=K, seed=seed)
    return found.test_pairs, found.near


def prior(made: Design, q: Perturbed, n: int, seed: int) -> Given:
    return q.calibration(n, K, stream(seed, "prior")), None


def flow(made: Design, q: Perturbed, n: int, seed: int) -> Given:
    theta, x = made.task.joint(n, stream(seed, "prior"))
    return assay.Calibration.from_base(q.theta_to_base(theta, x), x), None


WAYS: dict[str, Callable[..., Given]] = {"zoom": zoom, "prior": prior, "flow": flow}


def rejected(job: tuple[str, str, str, int, int]) -> bool:
    """Whether the test that decides rejects q."""
    name, error, way, n, seed = job
    made = design(name)
    seed = seed_of(stream(seed, name, error, way, n))
    if way == "failing":
        given = zoom(made, made.q(error), n, seed, made.failing)
    else:
        given = WAYS[way](made, made.q(error), n, seed)
    pairs, near = given
    return bool(assay.score(pairs, near, NULLS, seed)(made.x_o).pvalue <= 0.05 + 1e-9)


@dataclass(frozen=True)
class Bench:
    """Repetitions over worker processes."""

    pool: ProcessPoolExecutor
    seed: int

    def rate(self, name: str, error: str, way: str, n: int, repetitions: int) -> float:
        """The share of repetitions that reject."""
        first = self.seed * 1_000_000
        jobs = [(name, error, way, n, first + i) for i in range(repetitions)]
        found = self.pool.map(rejected, jobs, chunksize=max(1, repetitions // 40))
        words = f"{name}, {error}, {way}, {n}"
        return float(np.mean(list(tqdm(found, words, total=repetitions, disable=None))))

    def curve(self, name: str, error: str, way: str, repetitions: int) -> dict[str, Any]:
        """Power for more and more simulations, and how many are needed."""
        powers: dict[int, float] = {}
        for n in SIZES:
            powers[n] = self.rate(name, error, way, n, repetitions)
            if powers[n] >= ENOUGH:
                break
        row = {"design": name, "error": error, "way": way, "power": powers}
        return {**row, "repetitions": repetitions, "needed": needed(powers)}

    def level(self, name: str, way: str, n: int, repetitions: int) -> dict[str, Any]:
        """Rejections of a q that is right, with the interval that holds 99 % of them."""
        low, high = scipy.stats.binom(repetitions, 0.05).interval(0.99)
        rate = self.rate(name, "none", way, n, repetitions)
        inside = bool(low <= round(rate * repetitions) <= high)
        interval = [float(low) / repetitions, float(high) / repetitions]
        row = {"design": name, "way": way, "n": n, "repetitions": repetitions}
        return {**row, "level": rate, "interval": interval, "inside": inside}


def needed(powers: dict[int, float]) -> float | None:
    """Simulations for the power that is asked for, by lines over log n; None if it is not met."""
    sizes, rates = list(powers), np.maximum.accumulate(list(powers.values()))
    if rates[-1] < TARGET:
        return None
    return float(np.exp(np.interp(TARGET, rates, np.log(sizes))))


def show(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        powers = "  ".join(f"{n}: {p:.2f}" for n, p in row["power"].items())
        many = "more" if row["needed"] is None else f"{row['needed']:.0f}"
        print(f"{row['design']:12} {row['error']:11} {row['way']:6} {many:>6}   {powers}")


def ratios(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Simulations that zoom needs over those from the prior; at most, where these never do."""
    each = {(row["design"], row["error"], row["way"]): row for row in rows}
    found = {}
    for (name, error, way), row in each.items():
        if way == "zoom" and row["needed"] is not None:
            other = each[name, error, "prior"]
            found[f"{name}, {error}"] = row["needed"] / (other["needed"] or max(other["power"]))
    return found


def made_with(run: argparse.Namespace) -> dict[str, Any]:
    arguments = {k: str(v) if isinstance(v, Path) else v for k, v in vars(run).items()}
    return {**origin(), "seed": run.seed, "arguments": arguments, "draws": K, "nulls": NULLS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=200)
    parser.add_argument("--level", type=int, default=1000)
    parser.add_argument("--n", type=int, default=500, help="simulations for the level")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--designs", nargs="*", default=DESIGNS)
    parser.add_argument("--errors", nargs="*", default=["near", "everywhere"])
    parser.add_argument("--out", type=Path)
    run = parser.parse_args()
    with ProcessPoolExecutor(run.workers, None, torch.set_num_threads, (1,)) as pool:
        bench, power, level = Bench(pool, run.seed), [], []
        for name, error in ((d, e) for d in run.designs for e in run.errors):
            ways = [w for w in WAYS if w != "flow" or name != "mixture"]
            power += [bench.curve(name, error, way, run.repetitions) for way in ways]
            show(power[-len(ways) :])
        for name in run.designs if run.level else []:
            for way in ("zoom", "failing"):
                level.append(bench.level(name, way, run.n, run.level))
                print(level[-1], flush=True)
    print("zoom over prior:", {k: round(v, 3) for k, v in ratios(power).items()})
    if run.out is not None:
        found = {"power": power, "ratios": ratios(power), "level": level}
        record = {"benchmark": "simulator", **made_with(run), **found}
        run.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

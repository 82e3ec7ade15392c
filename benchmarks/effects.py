"""Effects: do their bands hold the truth, and does reweighting bring q nearer to it?

    PYTHONPATH=. python benchmarks/effects.py bands [--repetitions 200] [--nulls 39]
        [--workers 16] [--only ...]
    PYTHONPATH=. python benchmarks/effects.py reweighted [--device cuda] [--task slcp ...]
        [--observations 10]

`bands`: errors of known size are planted everywhere, and for every kind of number the share of
repetitions is printed in which the stated band holds the true value, for the worst of the numbers
of its kind (parameters and levels) and on average over them. Moments look at latents or at draws;
the ratio is that of the default network.

`reweighted`: a flow is trained on few simulations of each benchmark task and tested in latent
space; the accuracy of a classifier between draws of the true posterior and draws of q, or of the
reweighted posterior, is printed side by side wherever more than 10 % of the draws are left. They
are drawn from so many that hardly any is repeated. An accuracy of 0.5 is that of the truth.
"""

import argparse
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from experiments.flows import NSF, Training, train
from sklearn.model_selection import KFold

import assay
from assay._core import stream
from assay.interpret.effects import Effects
from assay.interpret.errors import Error, Narrow, Shift, Skew, Wide
from assay.results import LEVELS
from assay.tasks import BENCHMARK, ConjugateGaussian, GammaPoisson, Perturbed, task
from assay.tasks.task import Task

KINDS = ("bias", "dispersion", "intervals", "region", "total_variation")
TRUTH, DRAWS = 400_000, 2000


@dataclass(frozen=True)
class Design:
    """A task with an error of known size."""

    task: Task
    error: Error
    size: float
    x: tuple[float, ...]

    @property
    def q(self) -> Perturbed:
        """The posterior under test."""
        return Perturbed(self.task, self.error, self.size)


GAUSSIAN, HERE = ConjugateGaussian(3, 5), (0.3,) * 5
DESIGNS = {
    "gaussian exact": Design(GAUSSIAN, Shift(0), 0.0, HERE),
    "gaussian shift 0.5": Design(GAUSSIAN, Shift(0), 0.5, HERE),
    "gaussian width 1.4": Design(GAUSSIAN, Wide(), 0.4, HERE),
    "gaussian width 0.7": Design(GAUSSIAN, Narrow(), 1 / 0.7 - 1, HERE),
    "gaussian skew 0.3": Design(GAUSSIAN, Skew(0), 0.3, HERE),
    "counts shift 0.4": Design(GammaPoisson(), Shift(0), 0.4, (2.0, 2.0)),
    "counts width 1.3": Design(GammaPoisson(), Wide(), 0.3, (2.0, 2.0)),
}


def moments_latent(design: Design, seed: int, pairs: int, nulls: int) -> Effects:
    generator = stream(seed, "moments latent")
    latent = design.q.calibration(pairs, 1, generator).to_latent(design.q)
    test = assay.moments(latent, null=assay.KnownBase(1), seed=seed)
    return assay.effects(test(assay.Draws(torch.tensor(design.x), n=DRAWS)))


def moments_draws(design: Design, seed: int, pairs: int, nulls: int, k: int = 16) -> Effects:
    generator = stream(seed, "moments draws", k)
    calibration = design.q.calibration(pairs, k, generator)
    test = assay.moments(calibration, null=assay.Exchange(1), seed=seed)
    return assay.effects(test(assay.Draws(torch.tensor(design.x))))


def moments_more(design: Design, seed: int, pairs: int, nulls: int) -> Effects:
    return moments_draws(design, seed, pairs, nulls, k=32)


def ratio_parameters(design: Design, seed: int, pairs: int, nulls: int) -> Effects:
    generator = stream(seed, "ratio")
    calibration = design.q.calibration(pairs, 1, generator)
    test = assay.lc2st(calibration, null=assay.Exchange(nulls), seed=seed)
    return assay.effects(test(design.q.at(torch.tensor(design.x), DRAWS, generator)))


def ratio_latent(design: Design, seed: int, pairs: int, nulls: int) -> Effects:
    generator = stream(seed, "ratio latent")
    latent = design.q.calibration(pairs, 1, generator).to_latent(design.q)
    test = assay.lc2st(latent, null=assay.KnownBase(nulls), seed=seed)
    return assay.effects(test(assay.Draws(torch.tensor(design.x), n=DRAWS)))


METHODS: dict[str, Callable[..., Effects]] = {
    "moments, latents": moments_latent,
    "moments, k = 16": moments_draws,
    "moments, k = 32": moments_more,
    "ratio, parameters": ratio_parameters,
    "ratio, latents": ratio_latent,
}


@cache
def truth(name: str, *, latent: bool) -> dict[str, np.ndarray]:
    """True effects of a design, from many draws; regions are ellipsoids, or balls of latents."""
    q, x = DESIGNS[name].q, torch.tensor(DESIGNS[name].x)
    generator = stream(0, "truth", name)
    right = q.task.posterior(x, TRUTH, generator).theta.double()
    wrong = q.draws(x[None], TRUTH, generator)[0].double()
    levels = torch.tensor(LEVELS, dtype=torch.double)
    edges = ((1 + sign * levels) / 2 for sign in (-1, 1))
    lower, upper = (torch.from_numpy(np.quantile(wrong.numpy(), e.numpy(), axis=0)) for e in edges)
    inside = ((right[:, None] >= lower) & (right[:, None] <= upper)).double().mean(0).mT
    there, own = (_distances(q, part, wrong, x, latent=latent) for part in (right, wrong))
    radii = torch.from_numpy(np.quantile(own.numpy(), LEVELS))
    found = {
        "bias": (wrong.mean(0) - right.mean(0)) / wrong.std(0),
        "dispersion": wrong.std(0) / right.std(0),
        "intervals": inside,
        "region": (there[:, None] <= radii).double().mean(0),
        "total_variation": torch.tensor(q.moved(x).total_variation),
    }
    return {k: v.numpy() for k, v in found.items()}


def _distances(
    q: Perturbed, rows: torch.Tensor, own: torch.Tensor, x: torch.Tensor, *, latent: bool
) -> torch.Tensor:
    if latent:
        return q.theta_to_base(rows, x.expand(len(rows), -1)).square().sum(1)
    factor = torch.linalg.cholesky(own.mT.cov())
    white = torch.linalg.solve_triangular(factor, (rows - own.mean(0)).mT, upper=False)
    return white.square().sum(0)


def held(job: tuple[str, str, int, int, int]) -> dict[str, np.ndarray]:
    """Whether the bands of one repetition hold the truth, number by number."""
    name, method, seed, pairs, nulls = job
    found = METHODS[method](DESIGNS[name], seed, pairs, nulls)
    true = truth(name, latent="latents" in method)
    bands = {kind: getattr(found, kind) for kind in KINDS}
    return {
        kind: (band.lower <= true[kind]) & (true[kind] <= band.upper)
        for kind, band in bands.items()
        if band is not None
    } | {"wrong": np.array(found.wrong)}


def single() -> None:
    """One thread to a process, and a process to a core."""
    torch.set_num_threads(1)


def bands(run: argparse.Namespace) -> None:
    print(f"Shares of {run.repetitions} repetitions in which bands hold the truth: worst (mean)")
    print(f"{'':40}" + "".join(f"{kind[:12]:>14}" for kind in KINDS) + f"{'said wrong':>12}")
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(run.workers, context, initializer=single) as pool:
        for name, design in DESIGNS.items():
            for method in METHODS:
                known = isinstance(design.task, ConjugateGaussian)
                chosen = not run.only or any(word in f"{name} {method}" for word in run.only)
                if not chosen or ("latents" in method and not known):
                    continue
                start = time.perf_counter()
                seeds = range(run.repetitions)
                jobs = [(name, method, seed, run.pairs, run.nulls) for seed in seeds]
                found = list(pool.map(held, jobs, chunksize=max(1, run.repetitions // 100)))
                _print_shares(f"{name}, {method}", found, time.perf_counter() - start)


def _print_shares(label: str, found: list[dict[str, np.ndarray]], seconds: float) -> None:
    cells = ""
    for kind in KINDS:
        if kind not in found[0]:
            cells += f"{'-':>14}"
            continue
        shares = np.mean([one[kind] for one in found], axis=0)
        cells += f"{np.min(shares):>7.2f} ({np.mean(shares):.2f})".rjust(14)
    wrong = np.mean([one["wrong"] for one in found])
    print(f"{label:40}{cells}{wrong:>12.2f}   {seconds:.0f} s", flush=True)


def reweighted(run: argparse.Namespace) -> None:
    print("Accuracy between the true posterior and q, or the reweighted q, where ESS > 10 %")
    print(f"{'':28}{'x_o':>5}{'ESS':>8}{'k-hat':>8}{'q':>9}{'reweighted':>12}")
    for name in run.task or [kind.name for kind in BENCHMARK]:
        start = time.perf_counter()
        found = compared(task(name), run)
        better = sum(after < before for before, after in found)
        means = np.mean(found, axis=0) if found else (np.nan, np.nan)
        print(
            f"{name:28}{'mean':>5}{'':16}{means[0]:>9.3f}{means[1]:>12.3f}   nearer at {better} "
            f"of {len(found)}, {time.perf_counter() - start:.0f} s",
            flush=True,
        )


def compared(of: Task, run: argparse.Namespace) -> list[tuple[float, float]]:
    """Accuracies before and after reweighting, at the observations where enough draws are left."""
    generator = stream(0, "reweighted", of.name)
    how = Training(epochs=run.epochs)
    flow = train(*of.joint(run.train, generator), NSF(3), how, run.device)
    theta, x = (part.to(run.device) for part in of.joint(run.pairs, generator))
    latent = assay.Calibration(flow.theta_to_base(theta, x), x, None, base=flow.base, flow=flow)
    # A ratio that is to correct q is worth more training than one that is to reject it; what it
    # then claims too much is taken back by its exponent.
    test = assay.lc2st(latent, assay.MLP(epochs=60, members=4), assay.KnownBase(run.nulls))
    found = []
    for i, x_o in enumerate(of.observations.x[: run.observations]):
        result = test(assay.Draws(x_o.to(run.device), n=10 * run.draws))
        effects = assay.effects(result, exponent=test.health.exponent)
        assert effects.ess is not None
        assert effects.theta is not None
        if effects.ess.value > 0.1:
            exact = of.posterior(x_o, run.draws, generator).theta
            before = accuracy(exact, effects.theta[: run.draws], run.device)
            after = accuracy(exact, effects.reweighted(run.draws).theta, run.device)
            found.append((before, after))
            print(
                f"{of.name:28}{i:>5}{effects.ess.value:>8.2f}{effects.khat:>8.2f}{before:>9.3f}"
                f"{after:>12.3f}",
                flush=True,
            )
    return found


def accuracy(exact: torch.Tensor, draws: np.ndarray, device: str) -> float:
    """How often a network tells draws from those of the true posterior, cross-validated."""
    both = exact.to(device), torch.from_numpy(draws.copy()).to(device)
    return float(
        assay.c2st(*both, null=assay.Exchange(1), evaluation=KFold(5))["accuracy"].statistic
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(required=True)
    first = parts.add_parser("bands")
    first.add_argument("--repetitions", type=int, default=200)
    first.add_argument("--pairs", type=int, default=10_000)
    first.add_argument("--nulls", type=int, default=39)
    first.add_argument("--workers", type=int, default=1)
    first.add_argument("--only", nargs="*", help="words of designs or methods")
    first.set_defaults(part=bands)
    second = parts.add_parser("reweighted")
    second.add_argument("--task", nargs="*", choices=[kind.name for kind in BENCHMARK])
    second.add_argument("--train", type=int, default=5000)
    second.add_argument("--epochs", type=int, default=200)
    second.add_argument("--pairs", type=int, default=10_000)
    second.add_argument("--nulls", type=int, default=19)
    second.add_argument("--draws", type=int, default=4000)
    second.add_argument("--observations", type=int, default=10)
    second.add_argument("--device", default="cpu")
    second.set_defaults(part=reweighted)
    run = parser.parse_args()
    run.part(run)


if __name__ == "__main__":
    main()

"""Effects: are claims as rare as they should be, do intervals hold, does reweighting help?

    python -m benchmarks.effects claims [--repetitions 1000] [--workers 16]
        [--only ...] [--record claims.json]
    python -m benchmarks.effects at [--repetitions 500] [--workers 16]
        [--only ...] [--record at.json]
    python -m benchmarks.effects bands [--repetitions 200] [--nulls 39]
        [--workers 16] [--only ...]
    python -m benchmarks.effects reweighted [--device cuda] [--task slcp ...]
        [--observations 10]

`claims`: q is right, in designs with ties, counts, heavy tails, bounds, few pairs, many features
and more; the share of repetitions is printed in which any error is named. It must be at most the
level, 0.05. Then errors are planted: the share in which one of their kind is named, and the share
in which one of another kind, or of a parameter that is right, is.

`at`: the error of q varies with x; the shares of repetitions are printed in which intervals at x_o
hold the true bias, width, correlation and coverage of the 90 % region, with half of the width
of the first, and how often the average over the neighbourhood does.

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
import json
import multiprocessing
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import scipy.stats
import torch
from sklearn.model_selection import KFold
from torch import Tensor

import assay
from assay._core import stream
from assay.diagnostics.local.local_effects import Kind, local_effects
from assay.interpret.effects import Effects, effects_of
from assay.interpret.errors import Error, Narrow, Shift, Skew, Wide
from assay.results import LEVELS
from assay.samples.calibration import Latents
from assay.samples.posterior import StandardNormal
from assay.tasks import BENCHMARK, ConjugateGaussian, GammaPoisson, Perturbed, task
from assay.tasks.task import Task

from .record import origin

KINDS = ("bias", "dispersion", "intervals", "region", "total_variation")
TRUTH, DRAWS = 400_000, 2000
CLAIMED = ("bias", "dispersion", "correlation", "region")


@dataclass(frozen=True)
class Right:
    """A q that is right: truth and draws come from one function of noise (n, k + 1, m) and x."""

    draw: Callable[[Tensor, Tensor, torch.Generator], Tensor]
    n: int = 300
    k: int = 16
    m: int = 2
    d: int = 2
    features: Callable[[Tensor], Tensor] = lambda x: x
    latent: bool = False

    def calibration(self, seed: int) -> assay.Calibration:
        """Pairs with draws, or latents."""
        generator = stream(seed, "right")
        x = self.features(torch.randn(self.n, self.d, generator=generator))
        if self.latent:
            return assay.Calibration.from_base(torch.randn(self.n, self.m, generator=generator), x)
        noise = torch.randn(self.n, self.k + 1, self.m, generator=generator)
        members = self.draw(noise, x[:, None], generator)
        return assay.Calibration(members[:, 0], x, members[:, 1:])


def normal(z: Tensor, x: Tensor, generator: torch.Generator) -> Tensor:
    return z


def located(z: Tensor, x: Tensor, generator: torch.Generator) -> Tensor:
    return z + x[..., :1]


@dataclass(frozen=True)
class Counts:
    """Poisson draws."""

    rate: float

    def __call__(self, z: Tensor, x: Tensor, generator: torch.Generator) -> Tensor:
        """Counts of one rate."""
        return torch.poisson(torch.full(z.shape, self.rate), generator=generator)


RIGHT = {
    "normal": Right(located),
    "normal, n = 20": Right(located, n=20),
    "normal, n = 60": Right(located, n=60),
    "normal, n = 10 000": Right(located, n=10_000),
    "latents": Right(normal, latent=True),
    "latents, n = 60": Right(normal, n=60, latent=True),
    "Poisson(0.5)": Right(Counts(0.5)),
    "Poisson(0.5), n = 60": Right(Counts(0.5), n=60),
    "Poisson(0.5), n = 10 000": Right(Counts(0.5), n=10_000),
    "Poisson(0.05)": Right(Counts(0.05)),
    "two values": Right(lambda z, x, g: (z > 0.5).float()),
    "rounded": Right(lambda z, x, g: (2 * z).round()),
    "Cauchy": Right(lambda z, x, g: torch.tan(3.14 * torch.special.ndtr(z) - 1.57)),
    "Cauchy, n = 60": Right(lambda z, x, g: torch.tan(3.14 * torch.special.ndtr(z) - 1.57), n=60),
    "lognormal": Right(lambda z, x, g: (3 * z).exp()),
    "bounded": Right(lambda z, x, g: torch.special.ndtr(3 * z)),
    "one constant": Right(lambda z, x, g: z * torch.tensor([1.0, 0.0])),
    "collinear": Right(lambda z, x, g: z[..., :1] + 1e-6 * z),
    "d = 100": Right(located, d=100),
    "x with ties": Right(located, features=torch.round),
    "x constant": Right(normal, features=torch.zeros_like),
    "scale moves with x": Right(lambda z, x, g: z * (2 * x[..., :1]).exp()),
    "three draws": Right(normal, k=3),
    "m = 20": Right(normal, m=20, k=24),
}
# Errors of the truth in the second of three parameters, or its pair with the third.
WRONG = {
    "shift 0.5": (lambda z: z + torch.tensor([0.0, 0.5, 0.0]), "bias", 1),
    "q 1.5 times too wide": (lambda z: z / torch.tensor([1.0, 1.5, 1.0]), "dispersion", 1),
    "q 0.6 times too narrow": (lambda z: z / torch.tensor([1.0, 0.6, 1.0]), "dispersion", 1),
    "q 0.2 times too narrow": (lambda z: z / torch.tensor([1.0, 0.2, 1.0]), "dispersion", 1),
    "correlation 0.5": (
        lambda z: z @ torch.tensor([[1, 0, 0], [0, 1, 0.5], [0, 0, 0.75**0.5]]),
        "correlation",
        2,
    ),
}


def named(calibration: assay.Calibration, seed: int) -> Effects:
    """What is said at x = (1/2, ..., 1/2)."""
    found = local_effects(calibration, torch.full(calibration.x.shape[1:], 0.5), seed=seed)
    return effects_of(found, None, None, 0.05, "", {})


def falsely(job: tuple[str, int]) -> dict[str, float]:
    """Whether anything is named where q is right."""
    name, seed = job
    found = named(RIGHT[name].calibration(seed), seed)
    return {"any": float(found.wrong)}


def rightly(job: tuple[str, int]) -> dict[str, float]:
    """Whether what is wrong is named, and anything else."""
    name, seed = job
    change, kind, which = WRONG[name]
    right = Right(normal, n=1000, m=3).calibration(seed)
    wrong = assay.Calibration(change(right.theta), right.x, right.theta_q)
    found = named(wrong, seed)
    flags = {each: np.array(getattr(found, each).wrong) for each in CLAIMED[:3]}
    hit = bool(flags[kind][which])
    flags[kind][which] = False
    return {"named": float(hit), "else": float(any(v.any() for v in flags.values()))}


@dataclass(frozen=True)
class Curve:
    """q(theta | x) = N(x / 2 + s b, s^2 w^2 I), s^2 = 1 / 2; b and w are functions of x_1.

    The true posterior of theta ~ N(0, I) and x = theta + N(0, I) has b = 0 and w = 1.
    """

    bias: Callable[[Tensor], Tensor] = torch.zeros_like
    width: Callable[[Tensor], Tensor] = torch.ones_like
    m: int = 2
    n: int = 1000
    kind: str = "draws"

    @property
    def base(self) -> StandardNormal:
        """That of the flow."""
        return StandardNormal(self.m)

    def moments(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and scale of q."""
        scale = 0.5**0.5 * self.width(x[..., :1])
        return x / 2 + scale * self.bias(x[..., :1]), scale

    def theta_to_base(self, theta: Tensor, x: Tensor) -> Tensor:
        """Latents of parameters."""
        mean, scale = self.moments(x)
        return (theta - mean) / scale

    def sample(self, x: Tensor, n: int) -> Tensor:
        """Draws at one x."""
        mean, scale = self.moments(x)
        return mean + scale * torch.randn(n, self.m)

    def calibration(self, seed: int) -> assay.Calibration:
        """Pairs with draws, or latents, with or without their flow."""
        generator = stream(seed, "curve")
        theta, noise = torch.randn(2, self.n, self.m, generator=generator)
        x = theta + noise
        if self.kind == "draws":
            mean, scale = self.moments(x[:, None])
            draws = torch.randn(self.n, 16, self.m, generator=generator)
            return assay.Calibration(theta, x, mean + scale * draws)
        flow = self if self.kind == "flow" else None
        return Latents(self.theta_to_base(theta, x), x, base=self.base, flow=flow)

    def true(self, x: Tensor) -> dict[str, float]:
        """What is wrong with q at one x."""
        bias, width = (float(part(x[:1])) for part in (self.bias, self.width))
        radius = width**2 * scipy.stats.chi2.ppf(0.9, self.m)
        region = scipy.stats.ncx2.cdf(radius, self.m, max(self.m * (width * bias) ** 2, 1e-9))
        return {"bias": bias, "dispersion": width, "correlation": 0.0, "region": float(region)}


BIASES = {
    "constant": lambda x: 0.5 + 0 * x,
    "slope": lambda x: 0.8 * x,
    "oscillating": lambda x: 1.3 * torch.sin(2 * x),
    "oscillating fast": lambda x: 1.3 * torch.sin(4 * x),
}
WIDTHS = {
    "width 0.7": lambda x: 0.7 + 0 * x,
    "width, slope": lambda x: (0.3 * x).exp(),
    "width, oscillating": lambda x: (0.5 * torch.sin(2 * x)).exp(),
}
SETTINGS: dict[str, dict] = {
    "draws": {},
    "draws, m = d = 1": {"m": 1},
    "draws, m = d = 5, n = 5000": {"m": 5, "n": 5000},
    "latents": {"kind": "latents"},
    "flow": {"kind": "flow"},
}
PLACES = (0.4, 1.5)


def curves() -> dict[str, Curve]:
    each = {f"bias, {name}": {"bias": curve} for name, curve in BIASES.items()}
    each |= {name: {"width": curve} for name, curve in WIDTHS.items()}
    return {f"{n}; {k}": Curve(**v, **s) for n, v in each.items() for k, s in SETTINGS.items()}


def held_at(job: tuple[str, int]) -> dict[str, float]:
    """Shares of intervals at x_o, and near it, that hold the truth at x_o, over two places."""
    name, seed = job
    q, rows = curves()[name], []
    for place in PLACES:
        x_o = torch.zeros(q.m)
        x_o[0] = place
        found, true = local_effects(q.calibration(seed), x_o, seed=seed, copies=1), q.true(x_o)
        some = {k: v for k, v in true.items() if getattr(found, k).at.size}
        row = {kind: _held(getattr(found, kind), value, kind) for kind, value in some.items()}
        near = found.bias if name.startswith("bias") else found.dispersion
        value = true["bias" if name.startswith("bias") else "dispersion"]
        row["near"] = float(((near.lower[-1] <= value) & (value <= near.upper[-1])).mean())
        row["± bias"] = float(np.median(found.bias.at_upper - found.bias.at_lower)) / 2
        rows.append(row)
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def _held(kind: Kind, value: float, name: str) -> float:
    lower, upper = kind.at_lower, kind.at_upper
    if name == "region":
        lower, upper = lower[1], upper[1]
    return float(np.mean((lower <= value) & (value <= upper)))


def study(run: argparse.Namespace, studies: dict[str, tuple[Callable, list[str]]]) -> None:
    """Repeats each design, prints means with binomial intervals, and writes a record."""
    record: dict = {**origin(), "seed": 0, "repetitions": run.repetitions, "designs": {}}
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(run.workers, context, initializer=single) as pool:
        for title, (function, names) in studies.items():
            print(f"{title}, {run.repetitions} repetitions")
            for name in names:
                if run.only and not any(word in name for word in run.only):
                    continue
                start = time.perf_counter()
                jobs = [(name, seed) for seed in range(run.repetitions)]
                chunk = max(1, run.repetitions // (4 * run.workers))
                found = list(pool.map(function, jobs, chunksize=chunk))
                means = {k: float(np.mean([one[k] for one in found])) for k in found[0]}
                record["designs"][name] = means
                cells = "  ".join(f"{k} {v:.3f}" for k, v in means.items())
                print(f"{name:52}{cells}   {time.perf_counter() - start:.0f} s", flush=True)
    if run.record is not None:
        Path(run.record).write_text(json.dumps(record, indent=1) + "\n")


def claims(run: argparse.Namespace) -> None:
    studies = {"q is right: any claim": (falsely, list(RIGHT))}
    study(run, studies | {"Planted errors, n = 1000": (rightly, list(WRONG))})


def at(run: argparse.Namespace) -> None:
    study(run, {"Intervals at x_o that hold the truth": (held_at, list(curves()))})


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
    from experiments.flows import NSF, Training, train  # what trains flows is not needed elsewhere

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
    for name, function, repetitions in (("claims", claims, 1000), ("at", at, 500)):
        part = parts.add_parser(name)
        part.add_argument("--repetitions", type=int, default=repetitions)
        part.add_argument("--workers", type=int, default=1)
        part.add_argument("--only", nargs="*", help="words of designs")
        part.add_argument("--record", help="the file that is written")
        part.set_defaults(part=function)
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

"""Beyond the paper: level, leak, power against the true distance, pairs needed, and bounds.

All on a conjugate Gaussian model of three parameters and five observed numbers, whose posterior is
exact, with errors of known size. Each job is one data set and all tests on it, at one observation.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import scipy.stats
import torch
from torch import Tensor

import assay
from assay._support.random import stream
from assay.neighbourhood import Nearest

from .discriminant import QDA
from .pictures import save
from .runs import Context, Experiment, Job
from .tasks import ConjugateGaussian, Perturbed
from .tasks.errors import Shift, Wide

__all__ = ["BEYOND", "needed"]

MODEL = ConjugateGaussian(3, 5)
X_O, FAR = (0.3,) * 5, (3.0, 0.0, 0.0, 0.0, 0.0)
BEHIND = -1.0
LEVELS = (0.01, 0.05, 0.1, 0.2)
NEAR = Nearest(0.2)
# Numbers of the first parameter whose bounds are compared with the truth.
BOUNDED = ("bias", "width")
BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {"runs": 2, "cal": (150,), "sizes": (0.0, 0.6), "nulls": 19, "methods": ("score-NF",)},
    "smoke": {
        "runs": 6,
        "cal": (300, 1000),
        "sizes": (0.0, 0.2, 0.4, 0.8),
        "nulls": 39,
        "methods": ("L-C2ST-NF", "Ridge-NF", "score-NF", "LocalExchange-NF", "oracle"),
    },
    "paper": {
        "runs": 200,
        "cal": (200, 500, 1000, 2000, 5000, 10_000),
        "sizes": (0.0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6, 0.8),
        "nulls": 99,
        "methods": ("L-C2ST-NF", "Ridge-NF", "score-NF", "LocalExchange-NF", "oracle"),
    },
}


def jobs(budget: str) -> list[Job]:
    """Shifts of all sizes at one number of pairs, one shift at all numbers, and a leak."""
    given = BUDGETS[budget]
    most, some = max(given["cal"]), given["sizes"][len(given["sizes"]) // 2]
    cells = [("shift", size, most) for size in given["sizes"]]
    cells += [("wide", size, most) for size in given["sizes"] if size]
    cells += [("shift", some, n) for n in given["cal"]]
    cells += [("half", given["sizes"][-1], n) for n in given["cal"]]
    return [
        {
            "error": error,
            "size": size,
            "cal": n,
            "run": run,
            "nulls": given["nulls"],
            "method": method,
        }
        for error, size, n in dict.fromkeys(cells)
        for run in range(given["runs"])
        for method in given["methods"]
    ]


def _wrong(x: Tensor) -> Tensor:
    """Where q errs by half: far enough from ``FAR`` that no neighbour of it is there."""
    return x[:, 0] < BEHIND


def _posterior(job: Job) -> Perturbed:
    error = Wide() if job["error"] == "wide" else Shift(0)
    return Perturbed(MODEL, error, job["size"], _wrong if job["error"] == "half" else None)


def run(job: Job, context: Context) -> dict[str, Any]:
    """A p-value at one observation, and what is true there."""
    q, x_o = _posterior(job), torch.tensor(FAR if job["error"] == "half" else X_O)
    generator = stream(job["run"], "beyond", job["error"], round(1000 * job["size"]), job["cal"])
    theta, x = MODEL.joint(job["cal"], generator)
    latents = assay.Calibration.from_base(q.theta_to_base(theta, x), x).to(context.device)
    true = q.moved(x_o)
    found = METHODS[job["method"]](latents, x_o, q, job)
    width = float(true.dispersion[0])
    truth = {"bias": float(true.bias[0]) / width, "width": width}
    return {**found, "distance": float(true.total_variation), **truth}


Result = dict[str, Any]


def _tested(test: Any, x_o: Tensor) -> Result:
    return {"pvalue": float(test(assay.Draws(x_o)).pvalue)}


def _network(latents: assay.Calibration, x_o: Tensor, q: Perturbed, job: Job) -> Result:
    null = assay.KnownBase(job["nulls"])
    return _tested(assay.lc2st(latents, null=null, seed=job["run"]), x_o)


def _ridge(null: Any, latents: assay.Calibration, x_o: Tensor, q: Perturbed, job: Job) -> Result:
    test = assay.lc2st(latents, assay.Ridge(), null(job["nulls"]), seed=job["run"])
    return _tested(test, x_o)


def _score(latents: assay.Calibration, x_o: Tensor, q: Perturbed, job: Job) -> Result:
    """The test that decides, and bounds of what it rejects."""
    found = _tested(assay.score(latents, NEAR, job["nulls"], job["run"]), x_o)
    limits = assay.bounds(latents, x_o, NEAR, job["run"])
    for kind in BOUNDED:
        each = (getattr(limits, f"{kind}{end}")[0, 0] for end in ("", "_lower", "_upper"))
        found[f"bounds of {kind}"] = [float(v) for v in each]
    return found


def _oracle(latents: assay.Calibration, x_o: Tensor, q: Perturbed, job: Job) -> Result:
    """As many draws of the true posterior as there are pairs, against as many of q."""
    generator = stream(job["run"], "oracle", job["error"], round(1000 * job["size"]), job["cal"])
    exact = MODEL.posterior(x_o, job["cal"], generator).theta
    drawn = q.draws(x_o[None], job["cal"], generator)[0]
    null = assay.Exchange(job["nulls"])
    return {"pvalue": float(assay.c2st(exact, drawn, QDA(), null, seed=job["run"])["mse"].pvalue)}


METHODS: dict[str, Callable[[assay.Calibration, Tensor, Perturbed, Job], Result]] = {
    "L-C2ST-NF": _network,
    "Ridge-NF": partial(_ridge, assay.Exchange),
    "score-NF": _score,
    "LocalExchange-NF": partial(_ridge, partial(assay.LocalExchange, near=NEAR)),
    "oracle": _oracle,
}


def _rate(rows: list[dict[str, Any]], alpha: float = 0.05) -> float:
    return float(np.mean([row["pvalue"] <= alpha + 1e-9 for row in rows])) if rows else math.nan


def _rows(found: list[dict[str, Any]], **chosen: Any) -> list[dict[str, Any]]:
    return [row for row in found if all(row[k] == v for k, v in chosen.items())]


def needed(pairs: list[int], rates: list[float], target: float = 0.8) -> float:
    """The number of pairs at which a rate reaches the target, between two of them by logarithms.

    Infinite where it does not, and the first where it does there already.
    """
    for i, rate in enumerate(rates):
        if rate >= target:
            if not i:
                return float(pairs[0])
            part = (target - rates[i - 1]) / (rate - rates[i - 1])
            low, high = math.log(pairs[i - 1]), math.log(pairs[i])
            return math.exp(low + part * (high - low))
    return math.inf


def table(found: list[dict[str, Any]]) -> str:
    """Level, leak, pairs needed, and how often bounds of bias and width hold the truth."""
    methods = list(dict.fromkeys(row["method"] for row in found))
    sizes = sorted({row["size"] for row in found if row["error"] == "shift"})
    pairs = sorted({row["cal"] for row in found})
    some = sizes[len(sizes) // 2]
    runs = len({row["run"] for row in found})
    low, high = (v / runs for v in scipy.stats.binom.interval(0.99, runs, 0.05))
    lines = [
        f"{runs} runs each; 99 % of exact tests reject between {low:.3f} and {high:.3f} at 0.05",
        f"{'':20}" + "".join(f"level {level:<6g}" for level in LEVELS) + f"{'leak':>8}",
    ]
    for method in methods:
        right = _rows(found, method=method, error="shift", size=0.0, cal=pairs[-1])
        levels = "".join(f"{_rate(right, level):<12.3f}" for level in LEVELS)
        leak = _rate(_rows(found, method=method, error="half", cal=pairs[-1]))
        lines.append(f"{method:20}{levels}{leak:>8.3f}")
    lines.append(f"pairs for power 0.8 against a shift of {some:g} sd")
    for method in methods:
        each = [_rate(_rows(found, method=method, error="shift", size=some, cal=n)) for n in pairs]
        lines.append(f"{method:20}{needed(pairs, each):>8.0f}  ({', '.join(map(str, each))})")
    for kind in BOUNDED:
        rows = [row for row in found if f"bounds of {kind}" in row]
        ends = [(row[kind], *row[f"bounds of {kind}"][1:]) for row in rows]
        held = [lower <= true <= upper for true, lower, upper in ends]
        lines.append(f"bounds of {kind} hold the truth: {np.mean(held):.3f} of {len(held)}")
    return "\n".join(lines)


COLOURS = {
    "oracle": "#333333",
    "L-C2ST-NF": "#0072B2",
    "Ridge-NF": "#56B4E9",
    "score-NF": "#009E73",
    "LocalExchange-NF": "#4d9221",
}


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Power against total variation, power against pairs, and bounds of the bias."""
    figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.1), layout="constrained")
    most = max(row["cal"] for row in found)
    sizes = sorted({row["size"] for row in found if row["error"] == "shift"})
    for method in dict.fromkeys(row["method"] for row in found):
        mine = _rows(found, method=method)
        for error, style in (("shift", "o-"), ("wide", "s--")):
            label = method if error == "shift" else None
            axes[0].plot(
                *_against(_rows(mine, error=error, cal=most)), style, **_look(method, label)
            )
        some = _rows(mine, error="shift", size=sizes[len(sizes) // 2])
        pairs = sorted({row["cal"] for row in some})
        rates = [_rate(_rows(some, cal=n)) for n in pairs]
        axes[1].plot(pairs, rates, "o-", **_look(method, method))
    _bounds(axes[2], [r for r in found if "bounds of bias" in r and r["error"] == "shift"])
    axes[0].set(xlabel="total variation between q and the truth", ylabel="rejection rate at 0.05")
    axes[1].set(xlabel="calibration pairs", xscale="log", ylim=(-0.03, 1.03))
    axes[1].axhline(0.8, color="#333333", lw=0.8, ls=":")
    axes[0].legend(fontsize=7, frameon=False, title="shift (wide dashed)", title_fontsize=7)
    save(figure, path)


def _look(method: str, label: str | None) -> dict[str, Any]:
    return {"color": COLOURS[method], "ms": 3.5, "lw": 1.2, "label": label}


def _against(rows: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    distances = sorted({row["distance"] for row in rows})
    return distances, [_rate(_rows(rows, distance=d)) for d in distances]


def _bounds(ax: Any, rows: list[dict[str, Any]]) -> None:
    true = [row["bias"] for row in rows]
    each = [row["bounds of bias"] for row in rows]
    value, lower, upper = np.array(each).reshape(-1, 3).T
    ax.vlines(true, lower, upper, color=COLOURS["score-NF"], lw=0.7, alpha=0.4)
    ax.plot(true, value, "o", color=COLOURS["score-NF"], ms=2, alpha=0.6)
    ends = (0, max(true, default=1.0))
    ax.plot(ends, ends, color="#333333", lw=0.8, ls="--")
    ax.set(xlabel="true bias, in sd of q", ylabel="bias and its bounds near x_o")


BEYOND = Experiment(
    name="beyond",
    about="Level, leak, power, pairs needed and bounds where all is known.",
    jobs=jobs,
    run=run,
    table=table,
    draw=draw,
    partial=True,
)

"""Why numbers differ: the permutation, and mass of q outside the prior, each changed alone.

The permutation: the published test in parameters with its own null, free permutations of all rows,
and with one in which only the members of a pair change places; the same network, the same data.

Mass outside: flows are not truncated to the prior, the true posterior is. What an oracle could
gain from that alone is the difference between the MSE of the Bayes classifier for q and for q
truncated to the prior, whose densities are known.
"""

from itertools import product
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from .fig2 import ALPHA, rates, told
from .limit import log_ratio, mse
from .material import Recipe, Setting, flow, train_flows
from .methods import published_lc2st
from .pictures import save
from .runs import Context, Experiment, Job

__all__ = ["NULLS", "OUTSIDE", "PERMUTATION", "WHY", "means"]

PERMUTATION, OUTSIDE = "permutation", "outside"
# Nulls of the published test, by whether permutations are free.
NULLS = {"all rows": True, "within pairs": False}
BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {
        "tasks": ("two_moons",),
        "bounded": ("two_moons",),
        "cal": (100,),
        "fixed": 200,
        "train": (200,),
        "runs": 1,
        "nulls": 9,
        "draws": 50,
        "epochs": 5,
    },
    "smoke": {
        "tasks": ("two_moons",),
        "bounded": ("two_moons", "slcp"),
        "cal": (500,),
        "fixed": 1000,
        "train": (100, 1000),
        "runs": 2,
        "nulls": 39,
        "draws": 500,
        "epochs": 200,
    },
    "paper": {
        "tasks": ("two_moons", "slcp"),
        # Tasks whose prior has an edge.
        "bounded": ("slcp", "two_moons", "gaussian_mixture", "gaussian_linear_uniform"),
        "cal": (500, 1000, 2000),
        "fixed": 1000,
        "train": (100, 1000, 10_000, 100_000),
        "runs": 5,
        "nulls": 100,
        "draws": 10_000,
        "epochs": 10_000,
    },
}


def jobs(budget: str) -> list[Job]:
    """One job for each null, size and truth of the hypothesis, and one for each flow."""
    given = BUDGETS[budget]
    rest = {key: given[key] for key in ("nulls", "draws", "epochs")}
    cells = product(given["tasks"], given["cal"], (False, True), NULLS)
    return [
        {"question": PERMUTATION, "task": task, "train": given["fixed"], "cal": cal}
        | {"right": right, "null": null, "runs": given["runs"], **rest}
        for task, cal, right, null in cells
    ] + [
        {"question": OUTSIDE, "task": task, "train": train, "cal": given["draws"], **rest}
        for task, train in product(given["bounded"], given["train"])
    ]


def run(job: Job, context: Context) -> dict[str, Any]:
    """P-values of a null, or what lies outside."""
    return {PERMUTATION: _permuted, OUTSIDE: _outside}[job["question"]](job, context)


def _settings(job: Job, context: Context, runs: int, *, right: bool) -> list[Setting]:
    recipe = Recipe.of(job)
    trained = flow(recipe, context)
    return [Setting(recipe, trained, job["cal"], i, job["draws"], right) for i in range(runs)]


def _permuted(job: Job, context: Context) -> dict[str, Any]:
    """Statistics and p-values at the observations, in all runs."""
    settings = _settings(job, context, job["runs"], right=job["right"])
    found = published_lc2st(settings, job["nulls"], free=NULLS[job["null"]])
    return {"each": [{"run": i, **one} for i, one in enumerate(found)]}


def _outside(job: Job, context: Context) -> dict[str, Any]:
    """At each observation: the share of q outside, and the Bayes MSE of q and of q truncated."""
    (setting,) = _settings(job, context, 1, right=False)
    n, prior = job["cal"], setting.task.prior
    found: dict[str, list[float]] = {"share": [], "mse": [], "truncated": []}
    for x, q, p in zip(setting.x_o, setting.q(n), setting.exact(n), strict=True):
        of_q, of_p = (log_ratio(setting, draws, x) for draws in (q, p))
        inside = prior.inside(q.cpu())
        found["share"].append(1 - float(inside.double().mean()))
        found["mse"].append(mse(of_q, of_p))
        # Where nothing is inside there is nothing to truncate to.
        found["truncated"].append(mse(of_q[inside] if inside.any() else of_q, of_p))
    return {key: [float(f"{v:.6g}") for v in values] for key, values in found.items()}


def means(row: dict[str, Any]) -> tuple[float, float, float]:
    """Over the observations: the share outside, the Bayes MSE, and that of q truncated."""
    share, whole, truncated = (float(np.mean(row[k])) for k in ("share", "mse", "truncated"))
    return share, whole, truncated


def table(found: list[dict[str, Any]]) -> str:
    """Rates of both nulls, and what lies outside the prior."""
    lines = [f"L-C2ST as published but for the null, rejected at {ALPHA}"]
    permuted, outside = (
        [row for row in found if row["question"] == q] for q in (PERMUTATION, OUTSIDE)
    )
    for task, cal, right in dict.fromkeys((r["task"], r["cal"], r["right"]) for r in permuted):
        lines.append(f"{task}, N_cal {cal}, {'level' if right else 'power'}")
        cell = {"task": task, "cal": cal, "right": right}
        lines += [f"  {name:14}{told(*rates(permuted, **cell, null=name))}" for name in NULLS]
    lines.append(f"{'Bayes MSE':44}{'outside':>9}{'as is':>9}{'truncated':>11}")
    for row in outside:
        share, whole, truncated = means(row)
        name = f"  {row['task']}, N_train {row['train']}"
        lines.append(f"{name:44}{share:>9.3f}{whole:>9.4f}{truncated:>11.4f}")
    return "\n".join(lines)


LOOKS: dict[str, dict[str, Any]] = {
    "all rows": {"color": "#D55E00", "ls": "--", "mfc": "none"},
    "within pairs": {"color": "#0072B2"},
}


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Power and level of both nulls on each task, and the oracle's statistic with and without."""
    permuted, outside = (
        [row for row in found if row["question"] == q] for q in (PERMUTATION, OUTSIDE)
    )
    tasks, bounded = (list(dict.fromkeys(r["task"] for r in some)) for some in (permuted, outside))
    count = len(tasks) + len(bounded)
    figure, axes = plt.subplots(
        1, count, figsize=(2.6 * count, 2.9), layout="constrained", squeeze=False
    )
    for ax, task in zip(axes[0], tasks, strict=False):
        _nulls(ax, [row for row in permuted if row["task"] == task])
        ax.set_title(f"{task.replace('_', ' ')}\nL-C2ST as published, two nulls", fontsize=8)
    for ax, task in zip(axes[0, len(tasks) :], bounded, strict=True):
        _edges(ax, [row for row in outside if row["task"] == task])
        ax.set_title(f"{task.replace('_', ' ')}\nBayes classifier", fontsize=8)
    for ax in axes[0]:
        ax.tick_params(labelsize=7)
        ax.legend(fontsize=6.5, frameon=False)
    save(figure, path)


def _nulls(ax: Any, found: list[dict[str, Any]]) -> None:
    """Power with dots, and level with crosses, of both nulls."""
    at = sorted({row["cal"] for row in found})
    for (name, look), right in product(LOOKS.items(), (False, True)):
        each = [rates(found, cal=n, right=right, null=name)[0] for n in at]
        kind, marker = ("level", "x") if right else ("power", "o")
        ax.plot(at, each, marker=marker, ms=4, lw=1, label=f"{kind}, {name}", **look)
    ax.axhline(ALPHA, color="#333333", lw=0.8, ls=":")
    ax.set(xscale="log", ylim=(-0.03, 1.03), xlabel="N_cal", ylabel="rejection rate")
    ax.set_xticks(at, [f"{n:g}" for n in at])
    ax.minorticks_off()


def _edges(ax: Any, found: list[dict[str, Any]]) -> None:
    """The MSE against N_train, of q and of q truncated to the prior."""
    at = [row["train"] for row in found]
    _, whole, truncated = zip(*map(means, found), strict=True)
    for values, name, look in zip(
        (whole, truncated), ("q", "q, truncated"), LOOKS.values(), strict=True
    ):
        ax.plot(at, values, marker="o", ms=4, lw=1, label=name, **look)
    ax.set(xscale="log", ylim=(0, None), xlabel="N_train", ylabel="MSE")


WHY = Experiment(
    name="why",
    about="What the published permutation, and mass outside the prior, do by themselves.",
    jobs=jobs,
    run=run,
    table=table,
    draw=draw,
    prepare=train_flows,
    partial=True,
)

"""Local HPD as published, in every cell of two tasks: eleven networks for each copy.

Nulls depend on x alone: all flows and both truths of a run are judged by the same ones, and have
the same x. A level is the share of 100 draws of q with a higher density than the truth, in place
of 1000. On Bernoulli GLM a network needs ten times as many epochs as on Two Moons, and on other
tasks more (:mod:`experiments.table1`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from torch import Tensor

import assay
from assay._support.random import stream

from .authors import printed_rate
from .fig2 import ALPHA, FIXED_CAL, FIXED_TRAIN, N_CAL, N_TRAIN, cells_of, rates, told
from .flows import Flow
from .local_hpd import nulls, published_statistics
from .material import Recipe, flow
from .pictures import save
from .runs import Context, Experiment, Job
from .tasks import task

__all__ = ["HPD", "METHOD", "printed"]

METHOD = "published local HPD"
BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {"tasks": ("two_moons",), "cal": (60,), "train": (200,), "runs": 1, "nulls": 2}
    | {"draws": 5, "epochs": 2},
    "smoke": {"tasks": ("two_moons",), "cal": (100, 500), "train": (1000,), "runs": 1}
    | {"nulls": 19, "draws": 50, "epochs": 200},
    "paper": {"tasks": ("two_moons", "bernoulli_glm"), "cal": N_CAL, "train": N_TRAIN, "runs": 3}
    | {"nulls": 100, "draws": 100, "epochs": 10_000},
}


def jobs(budget: str) -> list[Job]:
    """One job for each task, size and run, the cheapest first."""
    given = BUDGETS[budget]
    rest = {key: given[key] for key in ("nulls", "draws", "epochs")}
    most = max(given["cal"])
    return [
        {"task": name, "cal": cal, "run": run, "trains": trains, **rest}
        for name in given["tasks"]
        for run in range(given["runs"])
        for cal in given["cal"]
        for trains in [list(given["train"]) if cal == most else [_fixed(given["train"])]]
    ]


def _fixed(trained: tuple[int, ...]) -> int:
    return FIXED_TRAIN if FIXED_TRAIN in trained else trained[0]


def run(job: Job, context: Context) -> dict[str, Any]:
    """Statistics and p-values at the observations, for every flow, and where q is right."""
    there = task(job["task"])
    key = ("local HPD", job["task"], job["cal"])
    theta, x = there.joint(job["cal"], stream(job["run"], *key))
    tested = []
    for train in job["trains"]:
        trained = flow(Recipe(job["task"], train, job["epochs"], "SbiNSF"), context)
        for right, truths in _truths(trained, theta, x, job, train):
            tested.append((train, right, _levels(trained, truths, x, job)))
    uniform = nulls(len(x), job["nulls"], job["run"])
    u = [*(levels for *_, levels in tested), *uniform]
    found = published_statistics(u, x.numpy(), there.observations.x.numpy())
    null = found[len(tested) :]
    each = [
        {"train": train, "right": right, **_plain(mine, (null > mine).mean(0))}
        for (train, right, _), mine in zip(tested, found, strict=False)
    ]
    return {"each": [{"method": METHOD, **one} for one in each]}


def _truths(
    q: Flow, theta: Tensor, x: Tensor, job: Job, train: int
) -> Iterator[tuple[bool, Tensor]]:
    """Truths (n, m) where q is wrong; and, of one flow, those of q itself."""
    yield False, theta
    if train == _fixed(tuple(job["trains"])):
        yield True, q.sample_each(x, 1, stream(job["run"], "truths", job["cal"]))[:, 0]


def _levels(q: Flow, theta: Tensor, x: Tensor, job: Job) -> Any:
    """HPD levels (n,)."""
    drawn = q.sample_each(x, job["draws"], stream(job["run"], "draws", job["cal"]))
    levels = assay.lhpd(assay.Calibration(theta, x, drawn), q.log_prob).levels
    return levels.theta[:, 0].double().numpy()


def _plain(statistic: Any, pvalue: Any) -> dict[str, list[float]]:
    return {
        "statistic": [float(f"{v:.6g}") for v in statistic],
        "pvalue": [float(v) for v in pvalue],
    }


def printed(cell: dict[str, Any]) -> float | None:
    """The printed power of a cell; None where q is right, since printed levels are of one null."""
    return None if cell["right"] else printed_rate({**cell, "method": "local HPD"})


def table(found: list[dict[str, Any]]) -> str:
    """Rates of all cells, beside the printed ones."""
    lines = []
    for cell in cells_of(found):
        known = printed(cell)
        beside = "" if known is None else f"   printed {known:.3f}"
        kind = "level" if cell["right"] else "power"
        where = f"{cell['task']}, N_train {cell['train']}, N_cal {cell['cal']}, {kind} at {ALPHA}"
        lines.append(f"{where:66}{told(*rates(found, **cell))}{beside}")
    return "\n".join(lines)


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Power against N_cal and N_train, and level against N_cal, with print, by task."""
    tasks = list(dict.fromkeys(row["task"] for row in found))
    size = (7.4, 2.2 * len(tasks) + 0.2)
    figure, axes = plt.subplots(
        len(tasks), 3, figsize=size, layout="constrained", sharey=True, squeeze=False
    )
    for line, name in zip(axes, tasks, strict=True):
        _row(line, [row for row in found if row["task"] == name])
        line[0].set_ylabel(name.replace("_", " "))
    axes[0, 0].legend(frameon=False)
    save(figure, path)


def _row(axes: Any, found: list[dict[str, Any]]) -> None:
    """The three panels of a task."""
    every = cells_of(found)
    panels = {
        "power": ("cal", [c for c in every if not c["right"] and c["train"] == FIXED_TRAIN]),
        "power ": ("train", [c for c in every if not c["right"] and c["cal"] == FIXED_CAL]),
        "level": ("cal", [c for c in every if c["right"]]),
    }
    for ax, (name, (along, some)) in zip(axes, panels.items(), strict=True):
        some = sorted(some, key=lambda cell: cell[along])
        at = [cell[along] for cell in some]
        mine = [rates(found, **cell)[0] for cell in some]
        ax.plot(at, mine, "o--", color="#0072B2", mfc="white", label="rerun")
        if name != "level":
            known = [printed(cell) for cell in some]
            ax.plot(
                at,
                [np.nan if p is None else p for p in known],
                "x:",
                color="#D55E00",
                label="printed",
            )
        else:
            ax.axhline(ALPHA, color="#333333", lw=0.8, ls=":")
        ax.set_xscale("log")
        ax.set(xlabel=f"$N_{{{along}}}$", title=name.strip(), ylim=(-0.05, 1.05))


HPD = Experiment(
    name="hpd",
    about="Local HPD as published, in every cell of two tasks.",
    jobs=jobs,
    run=run,
    table=table,
    draw=draw,
    partial=True,
)

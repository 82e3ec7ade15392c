"""The informative cells of Figures 2 and 5 on several flows of the paper's kind.

The networks are those that sbi builds for the paper (couplings and LU layers), trained with the
settings of the benchmark, each on other simulations. A cell is informative if its printed power is
between 0.05 and 0.95: only there can a difference show. Draws of q at the observations are the
same in all runs, as in the authors' code. The paper has fifty runs on one flow; here are few runs
on several, so that what rates owe to the flow is known, too. On two tasks truths are also draws of
q itself, so that q is right and rates are levels. Gaussian Mixture, whose printed rates are of a
faulty simulator, is run with the right one, and stands alone.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.lines import Line2D
from torch import Tensor

from assay._support.random import stream

from .authors import ASIDE, ORACLE, absent, informative, printed_rate
from .fig2 import (
    FIXED_CAL,
    FIXED_TRAIN,
    N_CAL,
    N_TRAIN,
    TASKS,
    beside,
    cells_of,
    per_flow,
    rates,
    told,
)
from .material import Recipe, Setting, flow, train_flows
from .methods import STACKED, several
from .pictures import save
from .runs import Context, Experiment, Job

__all__ = ["RETRAINED"]

KIND = "SbiNSF"
# Flows by the number of pairs, and runs on each.
FLOWS = {100: 8, 500: 8, 1000: 8, 2000: 5, 5000: 3, 10_000: 3}
RUNS = 2
# Flows of oracles, with one run on each, and the pairs up to which they are run: an oracle has
# classifiers of its own at each observation.
ORACLES, CHEAP = 5, 500
# Where levels are looked at, pairs of these cells and of those of Gaussian Mixture, and flows.
RIGHT, FEW, LEVELS = ("two_moons", "slcp"), (100, 500, 1000, 2000), 5
BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {"flows": 1, "runs": 1, "nulls": 9, "draws": 50, "epochs": 3, "cells": 1, "others": 1},
    "smoke": {"flows": 3, "runs": 1, "nulls": 39, "draws": 500, "epochs": 200, "cells": 3}
    | {"others": 2},
    "paper": {
        "flows": 8,
        "runs": RUNS,
        "nulls": 100,
        "draws": 10_000,
        "epochs": 10_000,
        "cells": None,
        "others": None,
    },
}


def cells() -> list[Job]:
    """Informative cells in which q is wrong, the cheapest first."""
    sizes = [(FIXED_TRAIN, cal) for cal in N_CAL] + [(train, FIXED_CAL) for train in N_TRAIN]
    every = [
        {"task": task, "train": train, "cal": cal, "right": False, "method": method}
        for train, cal in dict.fromkeys(sizes)
        for task in TASKS
        for method in STACKED
        if method != ORACLE or cal <= CHEAP
    ]
    return [cell for cell in every if informative(printed_rate(cell))]


def others() -> list[Job]:
    """Cells in which q is right, and those of Gaussian Mixture."""
    return [
        {"task": task, "train": FIXED_TRAIN, "cal": cal, "right": task != ASIDE, "method": method}
        for cal in FEW
        for task in (*RIGHT, ASIDE)
        for method in STACKED
        if method != ORACLE
    ]


def jobs(budget: str) -> list[Job]:
    """One job for each cell and flow, with all runs on it; first flows of all cells come first."""
    given = BUDGETS[budget]
    rest = {key: given[key] for key in ("nulls", "draws", "epochs")}
    return [
        {**cell, "kind": KIND, "draw": draw, "first": draw * runs, "runs": runs, **rest}
        for draw in range(given["flows"])
        for cell in (*cells()[: given["cells"]], *others()[: given["others"]])
        for most, runs in [_size(cell, given["runs"])]
        if draw < most
    ]


def _size(cell: Job, runs: int) -> tuple[int, int]:
    """The most flows of a cell, and the runs on each."""
    if cell["method"] == ORACLE:
        return ORACLES, 1
    few = cell["right"] or cell["task"] == ASIDE
    return LEVELS if few else FLOWS[cell["cal"]], runs


@dataclass(frozen=True, eq=False)
class Fixed(Setting):
    """A run whose draws at the observations are those of all runs."""

    @cached_property
    def theta_o(self) -> Tensor:
        """Draws of q at the observations, (o, s, m)."""
        generator = stream(0, self.recipe.task, self.recipe.train, "observations")
        return self.flow.sample_each(self.x_o, self.draws, generator)


def run(job: Job, context: Context) -> dict[str, Any]:
    """Statistics and p-values at the observations, in some runs."""
    recipe = Recipe.of(job)
    trained = flow(recipe, context)
    numbers = range(job["first"], job["first"] + job["runs"])
    settings = [
        Fixed(recipe, trained, job["cal"], number, job["draws"], job["right"])
        for number in numbers
    ]
    found = several(job["method"], settings, job["nulls"])
    return {"each": [{"run": n, **one} for n, one in zip(numbers, found, strict=True)]}


def table(found: list[dict[str, Any]]) -> str:
    """Rates of each cell over all flows and on each, beside the printed ones."""
    lines = []
    for cell in cells_of(found):
        flows = " ".join(f"{each.mean():.2f}" for each in per_flow(found, **cell))
        whole = f"{told(*rates(found, **cell))}{beside(found, cell)}"
        lines.append(f"{_label(cell):52}{whole}   by flow: {flows}")
    return "\n".join(lines)


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Rates of all flows, their mean and the printed one, cell by cell, where q is wrong."""
    every = cells_of([row for row in found if not row["right"] and row["task"] != ASIDE])
    figure, ax = plt.subplots(figsize=(7.4, 0.2 * len(every) + 1.1), layout="constrained")
    for i, cell in enumerate(every):
        flows = [each.mean() for each in per_flow(found, **cell)]
        printed = printed_rate(cell)
        # Flows with one rate are drawn side by side.
        place = [flows[:j].count(rate) for j, rate in enumerate(flows)]
        at = [rate + 0.006 * k for rate, k in zip(flows, place, strict=True)]
        ax.plot(at, [i] * len(at), "o", color="#0072B2", ms=3.5, mfc="white", alpha=0.8)
        ax.plot(np.mean(flows), i, "|", color="#0072B2", ms=11, mew=2)
        ax.plot(np.nan if printed is None else printed, i, "x", color="#D55E00", ms=6, mew=1.6)
    ax.set_yticks(range(len(every)), [_label(cell) for cell in every], fontsize=7)
    ax.set_ylim(len(every) - 0.4, -0.6)
    ax.grid(axis="y", color="#eeeeee", lw=0.8)
    ax.set_axisbelow(True)
    ax.set(xlabel="power, cells by test, task, $N_{train}$ and $N_{cal}$", xlim=(-0.03, 1.06))
    figure.legend(handles=_handles(), loc="outside upper center", ncols=3, frameon=False)
    save(figure, path)


def _handles() -> list[Line2D]:
    looks: dict[str, dict[str, Any]] = {
        "one flow": {"marker": "o", "color": "#0072B2", "mfc": "white", "ms": 3.5},
        "mean of flows": {"marker": "|", "color": "#0072B2", "ms": 11, "mew": 2},
        "printed": {"marker": "x", "color": "#D55E00", "ms": 6, "mew": 1.6},
    }
    return [Line2D([], [], ls="", label=name, **look) for name, look in looks.items()]


def _label(cell: dict[str, Any]) -> str:
    method, task = cell["method"].removeprefix("published "), cell["task"].replace("_", " ")
    right = ", q right" if cell["right"] else ""
    return f"{method}, {task}, {cell['train']}, {cell['cal']}{right}"


RETRAINED = Experiment(
    name="retrained",
    about="Informative cells of Figures 2 and 5, and levels, on flows of the paper's kind.",
    jobs=jobs,
    run=run,
    table=table,
    draw=draw,
    prepare=train_flows,
    partial=True,
    absent=absent,
)

"""The informative cells of Figures 2 and 5 on several flows of the paper's kind.

The networks are those that sbi builds for the paper (couplings and LU layers), trained with the
settings of the benchmark, each on other simulations. A cell is informative if its printed power is
between 0.05 and 0.95: only there can a difference show. Draws of q at the observations are the
same in all runs, as in the authors' code. The paper has fifty runs on one flow; here are few runs
on several, so that what rates owe to the flow is known, too.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from torch import Tensor

from assay._core import stream

from .authors import ORACLE, absent, informative, printed_rate
from .fig2 import (
    ASIDE,
    FIXED_CAL,
    FIXED_TRAIN,
    N_CAL,
    N_TRAIN,
    TASKS,
    beside,
    cells_of,
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
BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {"flows": 1, "runs": 1, "nulls": 9, "draws": 50, "epochs": 3, "cells": 1},
    "smoke": {"flows": 3, "runs": 1, "nulls": 39, "draws": 500, "epochs": 200, "cells": 3},
    "paper": {
        "flows": 8,
        "runs": RUNS,
        "nulls": 100,
        "draws": 10_000,
        "epochs": 10_000,
        "cells": None,
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
        if task != ASIDE and (method != ORACLE or cal <= CHEAP)
    ]
    return [cell for cell in every if informative(printed_rate(cell))]


def jobs(budget: str) -> list[Job]:
    """One job for each cell and flow, with all runs on it; first flows of all cells come first."""
    given = BUDGETS[budget]
    rest = {key: given[key] for key in ("nulls", "draws", "epochs")}
    return [
        {**cell, "kind": KIND, "draw": draw, "first": draw * runs, "runs": runs, **rest}
        for draw in range(given["flows"])
        for cell in cells()[: given["cells"]]
        for most, runs in [_size(cell, given["runs"])]
        if draw < most
    ]


def _size(cell: Job, runs: int) -> tuple[int, int]:
    """The most flows of a cell, and the runs on each."""
    return (ORACLES, 1) if cell["method"] == ORACLE else (FLOWS[cell["cal"]], runs)


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
    settings = [Fixed(recipe, trained, job["cal"], number, job["draws"]) for number in numbers]
    found = several(job["method"], settings, job["nulls"])
    return {"each": [{"run": n, **one} for n, one in zip(numbers, found, strict=True)]}


def table(found: list[dict[str, Any]]) -> str:
    """Rates of each cell and draw, beside the printed ones."""
    lines = []
    for number in dict.fromkeys(row["draw"] for row in found):
        some = [row for row in found if row["draw"] == number]
        for cell in cells_of(some):
            where = f"{_label(cell)}, flow {number}"
            lines.append(f"{where:60}{told(*rates(some, **cell))}{beside(some, cell)}")
    return "\n".join(lines)


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Rates of both flows beside the printed one, cell by cell."""
    every = cells_of(found)
    figure, ax = plt.subplots(figsize=(7.4, 0.24 * len(every) + 1), layout="constrained")
    for i, cell in enumerate(every):
        for number, marker in enumerate("os"):
            rate, low, high, runs = rates(found, **cell, draw=number)
            if runs:
                at = i + 0.15 * (2 * number - 1)
                ax.plot([low, high], [at, at], color="#0072B2", lw=0.8)
                ax.plot(rate, at, marker, color="#0072B2", mfc="white", ms=4)
        ax.plot(printed_rate(cell) or np.nan, i, "x", color="#D55E00", ms=5)
    ax.set_yticks(range(len(every)), [_label(cell) for cell in every], fontsize=6)
    ax.invert_yaxis()
    ax.set(xlabel="power; crosses: printed; circles and squares: two flows", xlim=(-0.03, 1.03))
    save(figure, path)


def _label(cell: dict[str, Any]) -> str:
    method, task = cell["method"].removeprefix("published "), cell["task"].replace("_", " ")
    return f"{method}, {task}, {cell['train']}, {cell['cal']}"


RETRAINED = Experiment(
    name="retrained",
    about="Informative cells of Figures 2 and 5 on two flows of the paper's kind.",
    jobs=jobs,
    run=run,
    table=table,
    draw=draw,
    prepare=train_flows,
    partial=True,
    absent=absent,
)

"""The informative cells of Figures 2 and 5 on flows of the paper's kind, trained twice.

The networks are those that sbi builds for the paper (couplings and LU layers), trained with the
settings of the benchmark, on two draws of the simulations. A cell is informative if its printed
power is between 0.05 and 0.95: only there can a difference show. Draws of q at the observations
are the same in all runs, as in the authors' code, but 2000 in place of 10 000. What differs
between the two flows tells how much of a printed rate is owed to the one that the authors had.
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
# Runs by the number of pairs.
RUNS = {100: 10, 500: 10, 1000: 10, 2000: 5, 5000: 5, 10_000: 5}
# Pairs from which on a job is one run, and those up to which oracles are run: an oracle has
# classifiers of its own at each observation.
DEAR, CHEAP = 5000, 500
BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {"flows": 1, "runs": 1, "nulls": 9, "draws": 50, "epochs": 3, "cells": 1},
    "smoke": {"flows": 1, "runs": 3, "nulls": 39, "draws": 500, "epochs": 200, "cells": 3},
    "paper": {
        "flows": 2,
        "runs": 10,
        "nulls": 100,
        "draws": 2000,
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
    """One job for each cell and draw of its flow, with all runs, or one run where it is dear."""
    given = BUDGETS[budget]
    rest = {key: given[key] for key in ("nulls", "draws", "epochs")}
    return [
        {**cell, "kind": KIND, "draw": draw, "first": first, "runs": size, **rest}
        for draw in range(given["flows"])
        for cell in cells()[: given["cells"]]
        for runs in [min(given["runs"], RUNS[cell["cal"]])]
        for size in [1 if cell["cal"] >= DEAR else runs]
        for first in range(0, runs, size)
    ]


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

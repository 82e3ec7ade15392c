"""The tests on the authors' own samples, of which a copy may lie beside the project.

Their flows of Two Moons and SLCP with 10 000 calibration pairs each, latents, and draws at the ten
observations. All pairs make one run, the very one behind the first column of Figure 2; parts of
them that do not overlap are runs with fewer pairs, at N_train = 1000. Where the published tests
need more runs than there are parts, pairs are shuffled and dealt again. Statistics of the whole
are put beside the authors', and rates beside theirs over fifty runs.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

import assay
from assay._support.random import stream

from . import published
from .authors import PAIRS, TRAINED, absent, arrays, printed_statistic
from .fig2 import ALPHA, beside, curves, handles, rate, rates, told
from .methods import METHODS, STACKED, Found, several
from .networks import Sklearn, two_layers
from .pictures import save
from .runs import Context, Experiment, Job
from .tasks import task
from .tasks.task import Task

__all__ = ["SAMPLES", "Theirs"]

TASKS = ("two_moons", "slcp")
ALL, FIXED = 10_000, 1000
# Methods that need several draws of q at each x, which are there from N_train = 1000 on.
SEVERAL = ("Ridge", "score", "LocalExchange")
LOCALS = tuple(
    name for name in METHODS if "C2ST" not in name.replace("L-C2ST", "") and name != "local HPD"
)
SKLEARN = "published L-C2ST-NF, scikit-learn"
BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {"tasks": ("two_moons",), "train": (), "cal": {200: 1}, "nulls": 19, "draws": 100},
    "smoke": {"tasks": TASKS, "train": (10_000,), "cal": {500: 2}, "nulls": 39, "draws": 500},
    "paper": {
        "tasks": TASKS,
        "train": TRAINED,
        # With 200 pairs there is nothing in print, but that is where power of ours grows.
        "cal": {100: 20, 200: 20, 500: 20, 1000: 10, 2000: 5, 5000: 2},
        # Of tests as published, which vary more from run to run.
        "again": {100: 50, 500: 40, 1000: 30, 2000: 25, 5000: 4},
        "nulls": 100,
        "draws": 10_000,
    },
}


@dataclass(frozen=True, eq=False)
class Theirs:
    """A part of the authors' calibration pairs, as a setting of the methods.

    Args:
        name: The task.
        train: The number of simulations that the flow was trained on.
        pairs: The number of pairs.
        run: Which of the parts of that size.
        draws: Base draws at which classifiers are evaluated.
        device: Where tests are run.
    """

    name: str
    train: int
    pairs: int
    run: int
    draws: int
    device: str = "cpu"

    @property
    def task(self) -> Task:
        """The task."""
        return task(self.name)

    @property
    def seed(self) -> int:
        """A seed that depends on the run alone."""
        return self.run

    @cached_property
    def arrays(self) -> dict[str, Tensor]:
        """All that was kept of this flow."""
        return arrays(f"{self.name}_npe_{self.train}.npz")

    def _part(self, rows: Tensor) -> Tensor:
        """Parts do not overlap; where they are used up, all rows are shuffled and dealt anew."""
        dealt, part = divmod(self.run, len(rows) // self.pairs)
        order = torch.arange(len(rows))
        if dealt:
            order = torch.randperm(len(rows), generator=stream(dealt, "parts"))
        return rows[order[part * self.pairs : (part + 1) * self.pairs]]

    def sets(self, k: int) -> assay.Calibration:
        """The pairs with k draws of q at each x."""
        drawn = self.arrays["q_samples_cal"][:, None]
        if k > 1:
            drawn = arrays(f"{self.name}_npe_{self.train}_draws.npz")["q_draws_cal"][:, :k]
        theta, x = self.arrays["theta_cal"], self.arrays["x_cal"]
        found = assay.Calibration(self._part(theta), self._part(x), self._part(drawn))
        return found.to(self.device)

    @cached_property
    def latents(self) -> assay.Calibration:
        """The pairs in the base space of the flow."""
        parts = (self._part(self.arrays[key]) for key in ("z_cal", "x_cal"))
        return assay.Calibration.from_base(*parts).to(self.device)

    @property
    def x_o(self) -> Tensor:
        """The ten observations of the benchmark."""
        return self.arrays["x_obs"]

    @property
    def theta_o(self) -> Tensor:
        """A thousand draws of q at each of them."""
        return self.arrays["theta_q_obs_eval"]

    @property
    def there(self) -> assay.Draws:
        """The observations with draws of q."""
        return assay.Draws(self.x_o, self.theta_o)


def jobs(budget: str) -> list[Job]:
    """One job for each method, flow and size, with all its runs."""
    given = BUDGETS[budget]
    cells = [(train, ALL, 1) for train in given["train"]]
    cells += [(FIXED, cal, runs) for cal, runs in given["cal"].items()]
    return [
        {
            "task": name,
            "train": train,
            "cal": cal,
            "right": False,
            "runs": given.get("again", {}).get(cal, runs) if method in STACKED else runs,
            "method": method,
            "nulls": given["nulls"],
            "draws": given["draws"],
        }
        for name in given["tasks"]
        for train, cal, runs in cells
        for method in (*LOCALS, SKLEARN)
        if (train >= FIXED or method not in SEVERAL) and (method != SKLEARN or cal == ALL)
        if method not in STACKED or cal in (*given.get("again", given["cal"]), ALL)
    ]


def run(job: Job, context: Context) -> dict[str, Any]:
    """Statistics and p-values of one method in all runs."""
    settings: list[Any] = [
        Theirs(job["task"], job["train"], job["cal"], i, job["draws"], context.device)
        for i in range(job["runs"])
    ]
    if job["method"] == SKLEARN:
        found = [_original(settings[0])]
    else:
        found = several(job["method"], settings, job["nulls"])
    return {"each": [{"run": i, **one} for i, one in enumerate(found)]}


def _original(setting: Theirs) -> Found:
    """The statistic of scikit-learn's network, which is too slow for nulls."""
    latents = setting.latents.to("cpu")
    trial = published.trial_of_lc2st_nf((latents.theta, latents.x), setting.x_o, 1, setting.draws)
    fitted = Sklearn(two_layers(latents.m)).fit(*(rows[:1] for rows in trial.rows))
    statistic, _ = trial.judge(fitted)
    return {"statistic": [float(f"{v:.6g}") for v in statistic], "pvalue": []}


def table(found: list[dict[str, Any]]) -> str:
    """Rates beside the printed ones, and statistics of the whole beside the authors'."""
    lines = []
    for name, train, cal in dict.fromkeys((r["task"], r["train"], r["cal"]) for r in found):
        here = [r for r in found if (r["task"], r["train"], r["cal"]) == (name, train, cal)]
        lines.append(f"{name}, N_train {train}, N_cal {cal}, power at {ALPHA}")
        for method in dict.fromkeys(row["method"] for row in here):
            rows = [row for row in here if row["method"] == method]
            lines.append(f"  {method:36}{_rate(rows)}{_statistic(rows)}")
    return "\n".join(lines)


def _rate(rows: list[dict[str, Any]]) -> str:
    if not rows[0]["pvalue"]:
        return f"{'':60}"
    cell = {key: rows[0][key] for key in ("task", "train", "cal", "right", "method")}
    return f"{told(*rates(rows))}{beside(rows, cell)}".ljust(60)


def _statistic(rows: list[dict[str, Any]]) -> str:
    theirs = printed_statistic(rows[0])
    if theirs is None:
        return ""
    ours = np.mean([row["statistic"] for row in rows])
    return f"statistic {ours:.4f}, theirs {theirs:.4f}"


# Tests of the picture; the last decides in ``assay.check``.
SHOWN = ("L-C2ST", "L-C2ST-NF", "score-NF")


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Rates against N_cal at N_train = 1000, and against N_train with all pairs."""
    names = list(dict.fromkeys(row["task"] for row in found))
    figure, axes = plt.subplots(
        len(names), 2, figsize=(7.4, 2.2 * len(names) + 0.6), layout="constrained", squeeze=False
    )
    for line, name in zip(axes, names, strict=True):
        here = [row for row in found if row["task"] == name and row["pvalue"]]
        mine = [row for row in here if row["train"] == FIXED]
        in_print = [row for row in mine if row["cal"] in PAIRS]
        curves(line[0], in_print or mine, "cal", rate, SHOWN)
        curves(line[1], [row for row in here if row["cal"] == ALL], "train", rate, SHOWN)
        line[0].set_ylabel(f"{name.replace('_', ' ')}\npower", fontsize=8)
        for ax in line:
            ax.set_ylim(-0.05, 1.05)
    for ax, name, said in zip(axes[-1], ("cal", "train"), ("train", "cal"), strict=True):
        fixed = FIXED if name == "cal" else ALL
        ax.set_xlabel(f"$N_{{{name}}}$, with $N_{{{said}}}$ = {fixed}", fontsize=8)
    figure.legend(
        handles=handles(SHOWN), loc="outside upper center", ncols=6, fontsize=8, frameon=False
    )
    save(figure, path)


SAMPLES = Experiment(
    name="samples",
    about="All local tests on the authors' own samples, where a copy of them is at hand.",
    jobs=jobs,
    run=run,
    table=table,
    draw=draw,
    partial=True,
    absent=absent,
)

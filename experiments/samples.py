"""The tests on the authors' own samples, of which a copy may lie beside the project.

Their flows of Two Moons and SLCP with 10 000 calibration pairs each, latents, and draws at the ten
observations. All pairs make one run, the very one behind the first column of Figure 2; parts of
them that do not overlap are runs with fewer pairs, at N_train = 1000. Statistics of the whole are
put beside the authors', and rates beside theirs over fifty runs.
"""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from torch import Tensor

import assay
from assay.tasks import task
from assay.tasks.task import Task

from . import authors, published
from .authors import TRAINED, absent, arrays, printed_statistic
from .fig2 import ALPHA, COLOURS, beside, rates, told
from .methods import METHODS, Found, several
from .pictures import save
from .runs import Context, Experiment, Job

__all__ = ["SAMPLES", "Theirs"]

TASKS = ("two_moons", "slcp")
ALL, FIXED = 10_000, 1000
# Methods that need several draws of q at each x, which are there from N_train = 1000 on.
SEVERAL = ("Ridge", "moments", "check", "score", "smoothed", "LocalExchange")
LOCALS = tuple(
    name for name in METHODS if "C2ST" not in name.replace("L-C2ST", "") and name != "local HPD"
)
SKLEARN = "published L-C2ST-NF, scikit-learn"
BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {"tasks": ("two_moons",), "train": (), "cal": {200: 2}, "nulls": 19, "draws": 100},
    "smoke": {"tasks": TASKS, "train": (10_000,), "cal": {500: 2}, "nulls": 39, "draws": 500},
    "paper": {
        "tasks": TASKS,
        "train": TRAINED,
        "cal": {100: 20, 500: 20, 1000: 10, 2000: 5, 5000: 2},
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
        return rows[self.run * self.pairs : (self.run + 1) * self.pairs]

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
            "runs": runs,
            "method": method,
            "nulls": given["nulls"],
            "draws": given["draws"],
        }
        for name in given["tasks"]
        for train, cal, runs in cells
        for method in (*LOCALS, SKLEARN)
        if (train >= FIXED or method not in SEVERAL) and (method != SKLEARN or cal == ALL)
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
    fitted = published.Sklearn(10 * latents.m).fit(trial.inputs[:1], trial.labels[:1])
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


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Rates against N_cal at N_train = 1000, and against N_train with all pairs."""
    names = list(dict.fromkeys(row["task"] for row in found))
    figure, axes = plt.subplots(
        len(names), 2, figsize=(8, 2.8 * len(names)), layout="constrained", squeeze=False
    )
    for line, name in zip(axes, names, strict=True):
        here = [row for row in found if row["task"] == name and row["pvalue"]]
        _curves(line[0], [row for row in here if row["train"] == FIXED], "cal")
        _curves(line[1], [row for row in here if row["cal"] == ALL], "train")
        line[0].set_ylabel(f"{name.replace('_', ' ')}\nrejection rate")
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    save(figure, path)


def _curves(ax: Any, found: list[dict[str, Any]], along: str) -> None:
    """Ours as lines, as published dashed, and printed rates as crosses."""
    for method in dict.fromkeys(row["method"] for row in found):
        mine = [row for row in found if row["method"] == method]
        at = sorted({row[along] for row in mine})
        colour = COLOURS[method.removeprefix("published ")]
        style = "--" if method.startswith("published") else "-"
        means = [rates(mine, **{along: n})[0] for n in at]
        ax.plot(at, means, style, marker="o", ms=3, lw=1.2, color=colour, label=method)
        if method.startswith("published"):
            cells = [next(row for row in mine if row[along] == n) for n in at]
            theirs = [(n, authors.printed_rate(c)) for n, c in zip(at, cells, strict=True)]
            shown = [(n, rate) for n, rate in theirs if rate is not None]
            if shown:
                label = f"{method.removeprefix('published ')}, printed"
                ax.plot(*zip(*shown, strict=True), "x", ms=6, color=colour, label=label)
    ax.set(xscale="log", ylim=(-0.03, 1.03), xlabel=f"N_{along}")


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

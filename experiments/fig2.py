"""Figures 2 and 5: statistic and power against N_train, power and level against N_cal."""

import json
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import scipy.stats
from matplotlib.lines import Line2D

from .authors import (
    ASIDE,
    Difference,
    difference,
    difference_over_flows,
    printed_rate,
    printed_statistic,
)
from .limit import tested
from .material import Recipe, Setting, flow, train_flows
from .methods import METHODS, ORACLES, STACKED, several
from .pictures import save
from .runs import Context, Experiment, Job
from .tasks import BENCHMARK

__all__ = [
    "FIG2",
    "LIMIT",
    "agreed",
    "beside",
    "cells_of",
    "compared",
    "curves",
    "handles",
    "per_flow",
    "per_run",
    "rate",
    "rates",
    "relative",
    "told",
]

TASKS = tuple(kind.name for kind in BENCHMARK)
N_TRAIN, N_CAL = (100, 1000, 10_000, 100_000), (100, 500, 1000, 2000, 5000, 10_000)
FIXED_TRAIN, FIXED_CAL = 1000, 10_000
ALPHA = 0.05
# The Bayes classifier, which there is where q is wrong.
LIMIT = "Bayes"
# Runs in one job, and the most pairs in one stack of networks as published.
BLOCK, MOST = 5, 50_000
BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {
        "tasks": ("two_moons",),
        "train": (300,),
        "cal": (150,),
        "fixed": (300, 150),
        "runs": 1,
        "nulls": 19,
        "draws": 100,
        "epochs": 10,
        "methods": ("L-C2ST-NF", "score-NF", "score"),
    },
    "smoke": {
        "tasks": ("two_moons", "slcp"),
        "train": (100, 1000),
        "cal": (200, 1000),
        "fixed": (1000, 1000),
        "runs": 1,
        "nulls": 39,
        "draws": 500,
        "epochs": 200,
        "methods": (*METHODS, LIMIT),
    },
    "paper": {
        "tasks": TASKS,
        "train": N_TRAIN,
        "cal": N_CAL,
        "fixed": (FIXED_TRAIN, FIXED_CAL),
        "runs": 50,
        "nulls": 100,
        "draws": 10_000,
        "epochs": 10_000,
        "methods": (*METHODS, LIMIT),
    },
}


def jobs(budget: str) -> list[Job]:
    """One job for each block of runs, method, flow and calibration size; q is right in some.

    First blocks of all come first, so that a run which is stopped has looked at everything.
    """
    given = BUDGETS[budget]
    train, cal = given["fixed"]
    cells = [(n, cal, False) for n in given["train"]]
    cells += [(train, n, right) for n, right in product(given["cal"], (False, True))]
    return [
        {
            "task": task,
            "train": n_train,
            "cal": n_cal,
            "right": right,
            "first": first,
            "runs": min(size, given["runs"] - first),
            "method": method,
            "nulls": given["nulls"],
            "draws": given["draws"],
            "epochs": given["epochs"],
        }
        for block in range(given["runs"])
        for task in given["tasks"]
        for n_train, n_cal, right in dict.fromkeys(cells)
        for method in given["methods"]
        if not (right and method == LIMIT)
        for size in [_block(method, n_cal)]
        for first in [block * size]
        if first < given["runs"]
    ]


def _block(method: str, n_cal: int) -> int:
    """Runs in one job; an oracle has as many classifiers as there are observations."""
    if method in (*ORACLES, LIMIT) or (method in STACKED and BLOCK * n_cal > MOST):
        return 1
    return BLOCK


def run(job: Job, context: Context) -> dict[str, Any]:
    """Statistics and p-values of one method at the observations, in all runs of a block."""
    recipe = Recipe.of(job)
    trained = flow(recipe, context)
    numbers = range(job["first"], job["first"] + job["runs"])
    settings = [
        Setting(recipe, trained, job["cal"], number, job["draws"], job["right"])
        for number in numbers
    ]
    if job["method"] == LIMIT:
        found = [tested(setting) for setting in settings]
    else:
        found = several(job["method"], settings, job["nulls"])
    return {"each": [{"run": n, **one} for n, one in zip(numbers, found, strict=True)]}


def _chosen(found: list[dict[str, Any]], **chosen: Any) -> list[dict[str, Any]]:
    return [row for row in found if all(row[k] == v for k, v in chosen.items())]


def cells_of(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The cells in which there are runs, by method, each once."""
    names = ("task", "train", "cal", "right", "method")
    each = dict.fromkeys(tuple(row[name] for name in names) for row in found)
    return [dict(zip(names, values, strict=True)) for values in each]


def per_run(found: list[dict[str, Any]], **chosen: Any) -> np.ndarray:
    """The rejection rates of all runs with some parameters."""
    some = _chosen(found, **chosen)
    return np.array([np.mean(np.array(row["pvalue"]) <= ALPHA + 1e-9) for row in some])


def per_flow(found: list[dict[str, Any]], **chosen: Any) -> list[np.ndarray]:
    """The rejection rates of runs, by the flow that they were made on; empty if flows are one."""
    some = _chosen(found, **chosen)
    flows = sorted({row["draw"] for row in some if "draw" in row})
    return [per_run(some, draw=flow) for flow in flows]


def compared(found: list[dict[str, Any]], cell: dict[str, Any]) -> Difference | None:
    """How far a cell is from print, over runs or over flows; None if it is not judged."""
    printed = printed_rate(cell)
    if printed is None:
        return None
    flows = per_flow(found, **cell)
    if flows:
        return difference_over_flows(cell["method"], flows, printed)
    return difference(cell["method"], per_run(found, **cell), printed)


def agreed(found: list[dict[str, Any]], cell: dict[str, Any]) -> bool | None:
    """Whether a cell agrees with print; None if it is not judged."""
    judged = compared(found, cell)
    return None if judged is None else judged.agrees


def rates(found: list[dict[str, Any]], **chosen: Any) -> tuple[float, float, float, int]:
    """The rejection rate, its 95 % interval over runs, and their number.

    The observations of a run share its calibration, so that the interval is that of means over
    runs. With fewer than three, or where all are alike, it is Clopper and Pearson's for as many
    tests as there are runs; of an oracle, which has data of its own at each, as observations.
    """
    each = per_run(found, **chosen)
    runs = len(each)
    if not runs:
        return np.nan, np.nan, np.nan, 0
    mean = float(each.mean())
    if runs < 3 or not each.std():
        some = _chosen(found, **chosen)
        alone = all(row.get("method") in (*ORACLES, LIMIT) for row in some)
        tests = sum(len(row["pvalue"]) for row in some) if alone else runs
        low, high = scipy.stats.binomtest(round(mean * tests), tests).proportion_ci()
        return mean, min(mean, float(low)), max(mean, float(high)), runs
    half = scipy.stats.t.ppf(0.975, runs - 1) * scipy.stats.sem(each)
    return mean, max(0.0, float(mean - half)), min(1.0, float(mean + half)), runs


def table(found: list[dict[str, Any]]) -> str:
    """Rejection rates of all methods, by task, N_train and N_cal; and power over the oracle's."""
    lines = []
    cells = dict.fromkeys((r["task"], r["train"], r["cal"], r["right"]) for r in found)
    methods = list(dict.fromkeys(row["method"] for row in found))
    for task, train, cal, right in cells:
        kind = "level" if right else "power"
        lines.append(f"{task}, N_train {train}, N_cal {cal}, {kind} at {ALPHA}")
        for method in methods:
            chosen = {"task": task, "train": train, "cal": cal, "right": right, "method": method}
            found_here = rates(found, **chosen)
            if found_here[-1]:
                lines.append(f"  {method:24}{told(*found_here)}{beside(found, chosen)}")
    return "\n".join([*lines, *_relative(found)])


def told(rate: float, low: float, high: float, runs: int) -> str:
    """A rate with its interval and the number of runs."""
    return f"{rate:>7.3f}  [{low:.3f}, {high:.3f}]  {runs:>2} run{'s' * (runs != 1)}"


def beside(found: list[dict[str, Any]], cell: dict[str, Any]) -> str:
    """The printed rate of a cell, and whether ours differs from it; empty where there is none.

    Printed levels are of other data (permuted rows, or base draws for truths), and local HPD of
    ours is another test: these are not judged.
    """
    printed = printed_rate(cell)
    if printed is None:
        return ""
    judged = cell["method"].startswith("published") and not cell["right"]
    same = agreed(found, cell) if judged else None
    return f"   printed {printed:.3f}{', differs' if same is False else ''}"


def relative(found: list[dict[str, Any]]) -> list[tuple[str, float, str, float]]:
    """Mean power over tasks and N_train with all pairs, and over that of the oracle.

    Only of methods that have been everywhere; with the numbers of runs in a cell.
    """
    most = max(row["cal"] for row in found)
    some = [r for r in found if r["cal"] == most and not r["right"] and r["task"] != ASIDE]
    cells = sorted({(r["task"], r["train"]) for r in some})
    power: dict[str, tuple[float, str]] = {}
    for method in (LIMIT, *METHODS):
        each = [per_run(some, method=method, task=task, train=train) for task, train in cells]
        runs = sorted({len(one) for one in each})
        if cells and runs[0]:
            shown = "–".join(map(str, dict.fromkeys((runs[0], runs[-1]))))
            power[method] = float(np.mean([one.mean() for one in each])), shown
    best = max((power[m][0] for m in ORACLES if m in power), default=np.nan)
    return [(method, mean, shown, mean / best) for method, (mean, shown) in power.items()]


def _relative(found: list[dict[str, Any]]) -> list[str]:
    most = max(row["cal"] for row in found)
    return [f"mean power at N_cal {most}, and over the oracle's"] + [
        f"  {method:24}{mean:>7.3f}{over:>8.2f}" for method, mean, _, over in relative(found)
    ]


# Three colours for three tests, and a look for each column: printed, rerun, and ours.
THREE = ("C2ST", "L-C2ST", "L-C2ST-NF")
STYLES: dict[str, dict[str, Any]] = {
    "printed": {"ls": ":", "marker": "x", "ms": 4.5, "lw": 0.9},
    "rerun": {"ls": "--", "marker": "o", "mfc": "white", "ms": 3.5, "lw": 1.0},
    "ours": {"ls": "-", "marker": "o", "ms": 3, "lw": 1.2},
}
# Reruns on flows of sbi, of which there are several in a cell.
SEVERAL: dict[str, Any] = {"ls": "none", "marker": "s", "mfc": "white", "ms": 4, "lw": 1.0}
COLOURS = {
    LIMIT: "#999999",
    "C2ST": "#333333",
    "L-C2ST": "#D55E00",
    "L-C2ST-NF": "#0072B2",
    "Ridge": "#E69F00",
    "Ridge-NF": "#56B4E9",
    "score": "#332288",
    "score-NF": "#44AA99",
    "LocalExchange": "#8c6bb1",
    "LocalExchange-NF": "#4d9221",
    "local HPD": "#bcbd22",
}


SHOWN = ("statistic", "power", "power", "level")


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """A row for each task: statistic and power against N_train, power and level against N_cal.

    Reruns on flows of sbi, where their results lie beside, stand in place of those on zuko's.
    """
    found = [*found, *_on_several_flows(path.with_name("retrained.json"))]
    tasks = list(dict.fromkeys(row["task"] for row in found))
    size = (7.4, 1.5 * len(tasks) + 1.0)
    figure, axes = plt.subplots(
        len(tasks), 4, figsize=size, layout="constrained", sharex="col", squeeze=False
    )
    cal = max(row["cal"] for row in found)
    train = min((row["train"] for row in found if row["right"]), default=found[0]["train"])
    for line, task in zip(axes, tasks, strict=True):
        _row(line, [row for row in found if row["task"] == task], cal, train)
        line[0].set_ylabel(f"{task.replace('_', ' ')}\nstatistic", fontsize=7)
        for ax, name in zip(line[1:], SHOWN[1:], strict=True):
            ax.set_ylabel(name, fontsize=7)
    sizes = (f"$N_{{cal}}$ = {cal}",) * 2 + (f"$N_{{train}}$ = {train}",) * 2
    for ax, name, size_shown in zip(axes[0], SHOWN, sizes, strict=True):
        ax.set_title(f"{name}\n{size_shown}", fontsize=8)
    for ax, name in zip(axes[-1], ("train", "train", "cal", "cal"), strict=True):
        ax.set_xlabel(f"$N_{{{name}}}$", fontsize=8)
    *known, again, ours = handles()
    again.set_label("rerun, zuko's flow")
    several = Line2D([], [], color="#666666", label="rerun, sbi's flows", **SEVERAL)
    figure.legend(
        handles=[*known, again, several, ours],
        loc="outside upper center",
        ncols=7,
        fontsize=7,
        frameon=False,
        columnspacing=1.0,
        handletextpad=0.4,
    )
    save(figure, path)


def _on_several_flows(path: Path) -> list[dict[str, Any]]:
    """What was found on flows of sbi; nothing where they were not run."""
    if not path.exists():
        return []
    return list(json.loads(path.read_text(encoding="utf-8"))["results"])


def handles(names: Sequence[str] = THREE) -> list[Line2D]:
    """Three colours, and three looks."""
    colours = [Line2D([], [], color=COLOURS[name], lw=4, label=name) for name in names]
    return colours + [
        Line2D([], [], color="#666666", label=name, **look) for name, look in STYLES.items()
    ]


def _row(axes: Any, found: list[dict[str, Any]], cal: int, train: int) -> None:
    """The four panels of a task, along N_train with cal pairs and along N_cal."""
    wrong = [r for r in found if not r["right"]]
    along_train, along_cal = (
        [r for r in wrong if r[key] == value] for key, value in (("cal", cal), ("train", train))
    )
    panels: list[tuple[Any, list[dict[str, Any]], str, Values]] = [
        (axes[0], along_train, "train", _statistic),
        (axes[1], along_train, "train", rate),
        (axes[2], along_cal, "cal", rate),
        (axes[3], [r for r in found if r["right"]], "cal", _level),
    ]
    for ax, rows, along, value in panels:
        curves(ax, rows, along, value)
    for ax in axes[1:3]:
        ax.set_ylim(-0.05, 1.05)
    axes[0].set_ylim(0, None)
    axes[3].set_ylim(-0.02, 0.42)
    axes[3].axhline(ALPHA, color="#333333", lw=0.8, ls=":")
    for ax, rows, *_ in panels:
        if not rows:
            ax.text(0.5, 0.5, "not run", transform=ax.transAxes, ha="center", fontsize=8)


# A value and the ends of its interval.
Values = Callable[[list[dict[str, Any]]], tuple[float, float, float]]


def _statistic(rows: list[dict[str, Any]]) -> tuple[float, float, float]:
    mean = float(np.mean([row["statistic"] for row in rows]))
    return mean, mean, mean


def rate(rows: list[dict[str, Any]]) -> tuple[float, float, float]:
    """The rejection rate and its 95 % interval, over flows where there are several, or over runs.

    None is shown where there are fewer than three, or all are alike.
    """
    flows = per_flow(rows)
    each = np.array([one.mean() for one in flows]) if flows else per_run(rows)
    mean = float(each.mean())
    if len(each) < 3 or not each.std():
        return mean, mean, mean
    half = float(scipy.stats.t.ppf(0.975, len(each) - 1) * scipy.stats.sem(each))
    return mean, max(0.0, mean - half), min(1.0, mean + half)


def _level(rows: list[dict[str, Any]]) -> tuple[float, float, float]:
    """The rejection rate alone: curves of levels lie on each other."""
    return (rate(rows)[0],) * 3


def curves(
    ax: Any,
    found: list[dict[str, Any]],
    along: str,
    value: Values,
    names: Sequence[str] = THREE,
) -> None:
    """Curves of the three tests; a cell that is missing breaks the line."""
    at = N_TRAIN if along == "train" else N_CAL
    at = at if {r[along] for r in found} <= set(at) else tuple(sorted({r[along] for r in found}))
    for name in names:
        again = [r for r in found if r["method"] == f"published {name}"]
        # Statistics are those of one flow.
        several = [r for r in again if "draw" in r and value is not _statistic]
        covered = {r[along] for r in several}
        alone = [r for r in again if "draw" not in r and r[along] not in covered]
        ours = [r for r in found if r["method"] == name]
        for some, look in ((alone, STYLES["rerun"]), (several, SEVERAL), (ours, STYLES["ours"])):
            _curve(ax, at, [[r for r in some if r[along] == n] for n in at], value, name, look)
        if found:
            cells = [{**found[0], "method": f"published {name}", along: n} for n in at]
            theirs = [_printed(cell, value) for cell in cells]
            ax.plot(at, theirs, color=COLOURS[name], **STYLES["printed"])
    ax.set_xscale("log")
    ax.set_xticks([n for n in at if np.log10(n) % 1 == 0] or at)
    ax.tick_params(labelsize=7)
    ax.minorticks_off()


def _curve(
    ax: Any,
    at: Sequence[int],
    each: list[list[dict[str, Any]]],
    value: Values,
    name: str,
    look: dict[str, Any],
) -> None:
    """Values with their intervals; what is missing is left out."""
    shown = np.array([value(rows) if rows else (np.nan,) * 3 for rows in each]).T
    ax.plot(at, shown[0], color=COLOURS[name], **look)
    ax.vlines(at, shown[1], shown[2], color=COLOURS[name], lw=0.7, alpha=0.6)


def _printed(cell: dict[str, Any], value: Values) -> float:
    """The authors' mean statistic or rate in a cell, where it is at hand."""
    found = printed_statistic(cell) if value is _statistic else printed_rate(cell)
    return np.nan if found is None else found


FIG2 = Experiment(
    name="fig2",
    about="Statistic, power and level of all tests on the benchmark (Figures 2 and 5).",
    jobs=jobs,
    run=run,
    table=table,
    draw=draw,
    prepare=train_flows,
    partial=True,
)

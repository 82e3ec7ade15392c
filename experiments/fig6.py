r"""Figure 6 and Table 3: local statistics against those of oracles, observation by observation.

Both at the ten observations of the benchmark and at others that are drawn from the joint, where
the true posterior is known. Correlations have their signs: the paper prints p-values of the
Pearson test alone, of which a significant one may belong to a negative correlation.

There are three oracles: C2ST as published, ours, and what both estimate, the mean of
:math:`(d - 1/2)^2` over both classes for the Bayes classifier :math:`d = p / (p + q)`.

No test is made, so that there is but one null copy, which is thrown away.
"""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import scipy.stats
import torch
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from torch import Tensor

from assay._support.files import atomic_write
from assay._support.random import stream

from .authors import published_numbers
from .jansen_rit import file_name
from .limit import bayes
from .material import Recipe, Setting, flow, train_flows
from .methods import METHODS
from .networks import Batched, two_layers
from .pictures import save
from .published import together, trial_of_c2st
from .runs import Context, Experiment, Job
from .tasks import BENCHMARK, task
from .tasks.task import Task

__all__ = ["FIG6", "Elsewhere", "alike", "correlation", "stacked"]

TASKS = tuple(kind.name for kind in BENCHMARK)
TRAINED = (100, 1000, 10_000, 100_000)
ORACLES = ("published C2ST", "C2ST", "Bayes")
LOCALS = ("published L-C2ST", "published L-C2ST-NF", "L-C2ST", "L-C2ST-NF")
BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {
        "tasks": ("two_moons",),
        "train": (200,),
        "places": {"benchmark": 3, "joint": 5},
        "oracles": ORACLES,
        "cal": 60,
        "draws": 50,
        "epochs": 5,
    },
    "smoke": {
        "tasks": ("two_moons", "slcp"),
        "train": (100, 1000),
        "places": {"benchmark": 10, "joint": 30},
        "oracles": ORACLES,
        "cal": 500,
        "draws": 500,
        "epochs": 100,
    },
    "paper": {
        "tasks": TASKS,
        "train": TRAINED,
        "places": {"benchmark": 10, "joint": 100},
        # Ours would be fitted eleven hundred times; what it estimates is there.
        "oracles": ("published C2ST", "Bayes"),
        "cal": 10_000,
        "draws": 10_000,
        "epochs": 10_000,
    },
}


def _benchmark(of: Task, count: int) -> Tensor:
    return of.observations.x[:count]


def _joint(of: Task, count: int) -> Tensor:
    return of.joint(count, stream(0, of.name, "places"))[1]


PLACES: dict[str, Callable[[Task, int], Tensor]] = {"benchmark": _benchmark, "joint": _joint}


@dataclass(frozen=True, eq=False)
class Elsewhere(Setting):
    """A setting at observations of any kind.

    Args:
        places: Kinds of observations, and the number of each.
        folder: Where draws of the true posterior are kept.
    """

    places: dict[str, int] = field(kw_only=True)
    folder: Path = field(kw_only=True)

    @property
    def x_o(self) -> Tensor:
        """The observations, which do not depend on the flow."""
        return torch.cat([PLACES[kind](self.task, n) for kind, n in self.places.items()])

    def exact(self, n: int) -> list[Tensor]:
        """Draws (n, m) of the true posterior at every observation, for any flow the same."""
        each = (
            _posteriors(self.recipe.task, kind, count, n, self.folder)
            for kind, count in self.places.items()
        )
        return list(torch.from_numpy(np.concatenate(list(each))))


def _posteriors(
    name: str, kind: str, count: int, n: int, folder: Path, executor: Executor | None = None
) -> np.ndarray:
    """Draws (o, n, m) of true posteriors, kept in a file whose name says nothing."""
    path = folder / f"{file_name('posterior', [name, kind, count, n])}.npz"
    if not path.exists():
        run = map if executor is None else executor.map
        drawn = list(run(partial(_exact, name, kind, count, n), range(count)))
        with atomic_write(path) as file:
            np.savez(file, theta=np.stack(drawn))
    return np.asarray(np.load(path)["theta"])


def prepare(todo: list[Job], context: Context, executor: Executor | None = None) -> None:
    """Trains the flows, and draws from the true posteriors, which may take minutes."""
    train_flows(todo, context, executor)
    # As many draws to train oracles as to judge them.
    wanted = (
        (job["task"], kind, count, 2 * job["cal"])
        for job in todo
        for kind, count in job["observations"].items()
    )
    for one in dict.fromkeys(wanted):
        _posteriors(*one, context.folder, executor)


def _exact(name: str, kind: str, count: int, n: int, i: int) -> np.ndarray:
    of = task(name)
    x = PLACES[kind](of, count)[i]
    return np.asarray(of.posterior(x, n, stream(i, name, kind, "posterior")).theta)


def stacked(setting: Setting) -> list[float]:
    """The published oracle at all observations, whose classifiers are trained in one stack."""
    n, device = setting.pairs, setting.device
    pairs = zip(setting.q(2 * n), setting.exact(2 * n), strict=True)
    trials = [
        trial_of_c2st((wrong.to(device), right.to(device)), n, 0, (setting.run, o))
        for o, (wrong, right) in enumerate(pairs)
    ]
    found = together(Batched(two_layers(setting.task.m)), trials)
    return [float(f"{mse:.6g}") for mse, *_ in found]


STATISTICS: dict[str, Callable[[Setting], list[float]]] = {
    "published C2ST": stacked,
    "Bayes": bayes,
}


def _statistics(name: str, setting: Setting) -> list[float]:
    """Statistics of a method at the observations."""
    if name in STATISTICS:
        return STATISTICS[name](setting)
    return METHODS[name](setting, 1)["statistic"]


def correlation(one: list[float], other: list[float]) -> dict[str, float | int | None]:
    """Pearson's and Spearman's correlation with signs and p-values; None where one is constant."""
    names = ("pearson_r", "pearson_p", "spearman_r", "spearman_p")
    found: dict[str, float | int | None] = dict.fromkeys(names)
    if min(len(set(one)), len(set(other))) > 1:
        both = scipy.stats.pearsonr(one, other), scipy.stats.spearmanr(one, other)
        values = [v for test in both for v in (test.statistic, test.pvalue)]
        found.update(zip(names, (float(f"{v:.6g}") for v in values), strict=True))
    return {**found, "n": len(one)}


def jobs(budget: str) -> list[Job]:
    """One job for each flow."""
    given = BUDGETS[budget]
    return [
        {
            "task": name,
            "observations": given["places"],
            "train": train,
            "oracles": list(given["oracles"]),
            "cal": given["cal"],
            "draws": given["draws"],
            "epochs": given["epochs"],
            "run": 0,
        }
        for name in given["tasks"]
        for train in given["train"]
    ]


def run(job: Job, context: Context) -> dict[str, Any]:
    """Statistics of all methods at the observations, and correlations with those of oracles."""
    recipe = Recipe.of(job)
    places: dict[str, int] = job["observations"]
    sizes = job["cal"], job["run"], job["draws"]
    trained = flow(recipe, context)
    setting = Elsewhere(recipe, trained, *sizes, places=places, folder=context.folder)
    found = {name: _statistics(name, setting) for name in (*job["oracles"], *LOCALS)}
    rows, first = [], 0
    for kind, count in places.items():
        part = slice(first, first + count)
        here = {name: values[part] for name, values in found.items()}
        rows.append(
            {"places": kind, "count": count, "statistic": here, **_correlations(here, job)}
        )
        first += count
    return {"each": rows}


def _correlations(statistic: dict[str, list[float]], job: Job) -> dict[str, Any]:
    return {
        "correlation": [
            {"method": name, "oracle": oracle, **correlation(statistic[oracle], statistic[name])}
            for name in LOCALS
            for oracle in job["oracles"]
        ]
    }


# How the authors' numbers are called.
THEIRS = {"published L-C2ST": "lc2st", "published L-C2ST-NF": "lc2st_nf"}
KINDS = {"benchmark": "task", "joint": "empirical"}


def printed(row: dict[str, Any], method: str) -> dict[str, Any]:
    """The authors' correlation in a cell, and the p-value that Table 3 prints; empty without."""
    numbers, train = published_numbers(), row["train"]
    if method not in THEIRS or not numbers or train not in TRAINED:
        return {}
    scatter = numbers["scatter"][row["task"]][KINDS[row["places"]]][THEIRS[method]]
    table3 = numbers["table3_printed"][row["task"]][TRAINED.index(train)]
    column = list(THEIRS).index(method)
    cell = scatter.get(str(train), {})
    shown = {"table3": table3[column]} if row["places"] == "joint" else {}
    return {k: cell[k] for k in ("pearson_r", "pearson_p", "n_obs") if k in cell} | shown


def alike(row: dict[str, Any], method: str, theirs: dict[str, Any]) -> bool:
    """Whether correlations with the published oracle differ by less than their 95 % interval.

    Fisher's transform has a standard deviation of nearly 1 / sqrt(n - 3) (Fisher 1921, *On the
    probable error of a coefficient of correlation*).
    """
    (mine,) = (
        c for c in row["correlation"] if (c["method"], c["oracle"]) == (method, "published C2ST")
    )
    if mine["pearson_r"] is None:
        return False
    far = abs(math.atanh(mine["pearson_r"]) - math.atanh(theirs["pearson_r"]))
    return far <= 1.96 * math.sqrt(1 / (mine["n"] - 3) + 1 / (theirs["n_obs"] - 3))


def table(found: list[dict[str, Any]]) -> str:
    """Correlations of every method with all oracles, beside the authors'."""
    oracles = found[0]["oracles"]
    lines = [
        f"{'correlations with':24}"
        + "".join(f"{f'{oracle} MSE':>27}" for oracle in oracles)
        + f"{'their r':>10}{'n':>5}{'p':>10}{'Table 3':>9}",
        f"{'':24}" + f"{'r':>8}{'p':>11}{'rank r':>8}" * len(oracles),
    ]
    for row in found:
        lines.append(
            f"{row['task']}, N_train {row['train']}, "
            f"{row['count']} observations of the {row['places']}"
        )
        lines += [f"  {method:22}{_cells(row, method)}" for method in LOCALS]
    return "\n".join([*lines, *_signs(found)])


def _cells(row: dict[str, Any], method: str) -> str:
    theirs = printed(row, method)
    text = "".join(
        f"{_shown(c['pearson_r'], '+.2f'):>8}{_shown(c['pearson_p'], '.2g'):>11}"
        f"{_shown(c['spearman_r'], '+.2f'):>8}"
        for c in row["correlation"]
        if c["method"] == method
    )
    if not theirs:
        return text.rstrip()
    return (
        f"{text}{_shown(theirs.get('pearson_r'), '+.2f'):>10}{_shown(theirs.get('n_obs'), 'd'):>5}"
        f"{_shown(theirs.get('pearson_p'), '.2g'):>10}{theirs.get('table3', ''):>9}".rstrip()
    )


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _signs(found: list[dict[str, Any]]) -> Iterator[str]:
    """How often correlations are significant, and of which sign, over all cells."""
    cells: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for row in found:
        for c in row["correlation"]:
            some = cells.setdefault((c["method"], c["oracle"], row["places"]), [])
            if c["pearson_r"] is not None:
                some.append(c)
    yield "significant at 0.05 over tasks and N_train, positive and negative, and mean r"
    for (method, oracle, places), some in cells.items():
        signs = [math.copysign(1, c["pearson_r"]) for c in some if c["pearson_p"] <= 0.05]
        mean = np.mean([c["pearson_r"] for c in some]) if some else math.nan
        yield (
            f"  {method:22}with {oracle:16}{places:11}{signs.count(1):>4} +{signs.count(-1):>4} -"
            f" of {len(some):<4}{mean:>+6.2f}"
        )


COLOURS = {"L-C2ST": "#D55E00", "L-C2ST-NF": "#0072B2"}
# What a column is drawn against, and the file it goes to.
COLUMNS = {"published ": ("published C2ST", ""), "": ("Bayes", "_ours")}


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """A row for each task, a column for each N_train: as published, and ours in a second file."""
    for prefix, (oracle, ending) in COLUMNS.items():
        _grid(found, path.with_name(f"{path.stem}{ending}{path.suffix}"), prefix, oracle)


def _grid(found: list[dict[str, Any]], path: Path, prefix: str, oracle: str) -> None:
    tasks, trains = (list(dict.fromkeys(row[k] for row in found)) for k in ("task", "train"))
    size = (max(3.6, 1.75 * len(trains) + 0.4), 1.75 * len(tasks) + 0.8)
    figure, axes = plt.subplots(
        len(tasks), len(trains), figsize=size, layout="constrained", squeeze=False
    )
    for line, name in zip(axes, tasks, strict=True):
        for ax, train in zip(line, trains, strict=True):
            here = [row for row in found if row["task"] == name and row["train"] == train]
            # An interrupted run has not been everywhere.
            ax.set_visible(bool(here))
            if here:
                _panel(ax, here, prefix, oracle)
        line[0].set_ylabel(f"{name.replace('_', ' ')}\nlocal statistic", fontsize=7)
    for ax, train in zip(axes[0], trains, strict=True):
        ax.set_title(f"$N_{{train}}$ = {train}", fontsize=8)
    for ax in axes[-1]:
        ax.set_xlabel(f"MSE of {oracle}", fontsize=7)
    figure.legend(
        handles=_handles(), loc="outside upper center", ncols=4, fontsize=8, frameon=False
    )
    save(figure, path)


def _handles() -> list[Line2D]:
    """Colours of methods, and markers of observations."""
    colours = [Line2D([], [], color=c, lw=4, label=name) for name, c in COLOURS.items()]
    markers = [
        Line2D([], [], ls="", label=f"$x_o$ of the {kind}", **_marker(kind, "#333333"))
        for kind in PLACES
    ]
    return [*colours, *markers]


def _panel(ax: Axes, rows: list[dict[str, Any]], prefix: str, oracle: str) -> None:
    """Observations of the joint as dots, with their r, and those of the benchmark as rings."""
    top = 0.0
    for row in rows:
        x = row["statistic"][oracle]
        for name, colour in COLOURS.items():
            y = row["statistic"][f"{prefix}{name}"]
            ax.plot(x, y, ls="", **_marker(row["places"], colour))
            top = max(top, *x, *y)
    ax.plot([0, top], [0, top], color="#333333", lw=0.7, ls=":", zorder=0)
    # One scale for both axes, so that the diagonal is where the two agree.
    ax.set(xlim=(-0.04 * top, 1.06 * top), ylim=(-0.04 * top, 1.06 * top))
    ax.set_box_aspect(1)
    ax.tick_params(labelsize=6)
    ax.locator_params(nbins=4)
    _annotate(ax, rows, prefix, oracle)


def _marker(places: str, colour: str) -> dict[str, Any]:
    forms = {
        "benchmark": {"mec": colour, "mfc": "none", "ms": 4.5, "mew": 0.8},
        "joint": {"color": colour, "ms": 2.6, "alpha": 0.6, "mew": 0},
    }
    return {"marker": "o", **forms[places]}


def _annotate(ax: Axes, rows: list[dict[str, Any]], prefix: str, oracle: str) -> None:
    shown = {
        c["method"]: c["pearson_r"]
        for row in rows
        if row["places"] == "joint"
        for c in row["correlation"]
        if c["oracle"] == oracle
    }
    for i, (name, colour) in enumerate(COLOURS.items()):
        text = f"r = {_shown(shown.get(f'{prefix}{name}'), '+.2f')}"
        place = (0.04, 0.97 - 0.11 * i)
        ax.text(*place, text, transform=ax.transAxes, fontsize=6, va="top", color=colour)


FIG6 = Experiment(
    name="fig6",
    about="Correlation of local statistics with the oracle's, with signs (Figure 6, Table 3).",
    jobs=jobs,
    run=run,
    table=table,
    draw=draw,
    prepare=prepare,
    partial=True,
)

"""Why some rates differ from printed ones, asked of the authors' own samples.

The random state: in the paper every network has the same one, in all runs, and with it the same
first weights and the same numbers of either class in each batch, so that a rate over runs is that
of one state. Here the same runs are made with two others.

The network: here all copies are trained in one stack, in which rounding differs. In some cells
the same runs are made with scikit-learn's own networks, one after the other.

The null of the oracle: in the paper it is made once, from the first data of a cell, and judges all
its runs. Here the same runs are judged by a null of their own, and by that of the first.
"""

from functools import partial
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import Tensor

from . import published
from .authors import absent
from .fig2 import ALPHA, rates, told
from .methods import published_lc2st, published_lc2st_nf
from .networks import Batched, Sklearn, two_layers
from .pictures import save
from .runs import Context, Experiment, Job
from .samples import FIXED, Theirs

__all__ = ["EXCEPTIONS", "ONCE", "ORIGINAL", "STATE"]

STATE, ONCE, ORIGINAL = "state", "once", "scikit-learn"
TESTS = {"published L-C2ST": published_lc2st, "published L-C2ST-NF": published_lc2st_nf}
# Of the oracle a thousand draws at each observation were kept.
KEPT = 1000
BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {
        "states": 2,
        "cells": {("two_moons", 200): 2},
        "original": {("two_moons", 100): 1},
        "oracle": (),
        "nulls": 9,
        "draws": 50,
    },
    "smoke": {
        "states": 2,
        "cells": {("two_moons", 500): 3},
        "original": {},
        "oracle": (("two_moons", 100),),
        "nulls": 39,
        "draws": 500,
    },
    "paper": {
        "states": 2,
        "cells": {("two_moons", 1000): 10, ("slcp", 1000): 10},
        "original": {("two_moons", 1000): 10},
        "oracle": (("two_moons", 100), ("slcp", 100), ("two_moons", 500)),
        "nulls": 100,
        "draws": 10_000,
    },
}


def jobs(budget: str) -> list[Job]:
    """One job for each cell, test and start; for each cell of the oracle, and of scikit-learn."""
    given = BUDGETS[budget]
    rest = {"train": FIXED, "right": False, "nulls": given["nulls"], "draws": given["draws"]}
    oracle = [
        {"question": ONCE, "task": task, "cal": cal, "runs": KEPT // cal, **rest}
        for task, cal in given["oracle"]
    ]
    original = [
        {"question": ORIGINAL, "task": task, "cal": cal, "runs": runs} | {"method": method, **rest}
        for (task, cal), runs in given["original"].items()
        for method in TESTS
    ]
    return [*oracle, *original] + [
        {"question": STATE, "task": task, "cal": cal, "runs": runs}
        | {"method": method, "state": state, **rest}
        for (task, cal), runs in given["cells"].items()
        for method in TESTS
        for state in range(1, 1 + given["states"])
    ]


def run(job: Job, context: Context) -> dict[str, Any]:
    """P-values in all runs of a cell."""
    settings: list[Any] = [
        Theirs(job["task"], job["train"], job["cal"], i, job["draws"], context.device)
        for i in range(job["runs"])
    ]
    if job["question"] == ONCE:
        return {"each": _oracle(settings, job["nulls"])}
    make = Sklearn if job["question"] == ORIGINAL else partial(Batched, state=job["state"])
    found = TESTS[job["method"]](settings, job["nulls"], make=make)
    return {"each": [{"run": i, **one} for i, one in enumerate(found)]}


def _oracle(settings: list[Theirs], nulls: int) -> list[dict[str, Any]]:
    """The published oracle at all observations, with the null of each run and of the first."""
    first, n = settings[0].arrays, settings[0].pairs
    q, exact, *judged = (
        first[key]
        for key in (
            "theta_q_obs_cal",
            "ref_theta_obs_cal",
            "theta_q_obs_eval",
            "ref_theta_obs_eval",
        )
    )
    trials = []
    for setting in settings:
        part = slice(setting.run * n, (setting.run + 1) * n)
        for o in range(len(q)):
            samples = (q[o, part], judged[0][o]), (exact[o, part], judged[1][o])
            both = torch.cat(samples[0]), torch.cat(samples[1])
            trials.append(published.trial_of_c2st(both, n, nulls, (setting.run, o)))
    found = published.together(Batched(two_layers(q.shape[2])), trials)
    mse, null = (torch.stack([f[i] for f in found]).unflatten(0, (-1, len(q))) for i in (0, 1))
    return [
        {"run": i, "null": name, "statistic": mse[i].tolist(), "pvalue": _p(mse[i], chosen)}
        for name, own in (("its own", True), ("of the first", False))
        for i in range(len(settings))
        for chosen in [null[i] if own else null[0]]
    ]


def _p(statistic: Tensor, null: Tensor) -> list[float]:
    return [float(v) for v in published.pvalue(statistic, null)]


def table(found: list[dict[str, Any]]) -> str:
    """Rates by start, and by null."""
    lines = []
    for key in dict.fromkeys(map(_cell, found)):
        some = [row for row in found if _cell(row) == key]
        lines.append(f"{' '.join(map(str, key)):60}{told(*rates(some))}")
    return "\n".join(lines)


def _cell(row: dict[str, Any]) -> tuple[Any, ...]:
    names = ("question", "task", "cal", "method", "state", "null")
    return tuple(row[name] for name in names if name in row)


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Rates of all starts in each cell."""
    some = [row for row in found if row["question"] == STATE]
    cells = list(dict.fromkeys((r["task"], r["cal"], r["method"]) for r in some))
    figure, ax = plt.subplots(figsize=(7, 0.5 * len(cells) + 1), layout="constrained")
    for i, (task, cal, method) in enumerate(cells):
        here = [r for r in some if (r["task"], r["cal"], r["method"]) == (task, cal, method)]
        means = [rates(here, state=state)[0] for state in sorted({r["state"] for r in here})]
        ax.plot(means, np.full(len(means), i), "o", color="#0072B2", alpha=0.7)
    names = [f"{m.removeprefix('published ')}, {t.replace('_', ' ')}, {n}" for t, n, m in cells]
    ax.set_yticks(range(len(cells)), names)
    ax.axvline(ALPHA, color="#333333", lw=0.8, ls=":")
    ax.set(xlabel="rejection rate, one dot for each start", xlim=(-0.03, 1.03))
    save(figure, path)


EXCEPTIONS = Experiment(
    name="exceptions",
    about="Why some rates differ from printed ones, on the authors' own samples.",
    jobs=jobs,
    run=run,
    table=table,
    draw=draw,
    partial=True,
    absent=absent,
)

"""Table 2: the tasks, and on each the local test with the most power, from results of Figure 2.

Power is the mean rejection rate over all pairs of N_train and N_cal in which q is wrong; a pair at
which some test was not run is left out for all. Beside it stands the level of the same test, its
rejection rate where q is right. Oracles know the true posterior, and are no local tests. Of ours,
those with a local null are listed by themselves as well: the others may owe power to errors of q
elsewhere.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import numpy as np

from .fig2 import ALPHA, rates
from .methods import METHODS, ORACLES
from .runs import Context, Experiment, Job
from .tasks import task

__all__ = ["GROUPS", "TABLE2", "best", "rejections", "shared"]

# The structure of posteriors and the better local methods, in the words of the paper.
POSTERIORS = {
    "slcp": "four symmetrical modes",
    "two_moons": "two modes, crescents",
    "gaussian_mixture": "Gaussian",
    "gaussian_linear_uniform": "Gaussian",
    "bernoulli_glm": "one mode, concave",
    "bernoulli_glm_raw": "one mode, concave",
}
PRINTED = {
    "slcp": "L-C2ST-NF",
    "two_moons": "local HPD / L-C2ST-NF",
    "gaussian_mixture": "all similar",
    "gaussian_linear_uniform": "local HPD / L-C2ST",
    "bernoulli_glm": "L-C2ST(-NF)",
    "bernoulli_glm_raw": "L-C2ST-NF",
}
LOCAL = ("score", "score-NF", "LocalExchange", "LocalExchange-NF")
# Powers that differ by less are called alike.
TIE = 0.005


def _ours(name: str) -> bool:
    return name not in ORACLES and not name.startswith("published")


GROUPS: dict[str, Callable[[str], bool]] = {
    "oracle": lambda name: name in ORACLES,
    "published": lambda name: name not in ORACLES and name.startswith("published"),
    "ours": _ours,
    "ours, local null": lambda name: name in LOCAL,
}


def jobs(budget: str) -> list[Job]:
    """The only job."""
    return [{"source": "fig2.json", "budget": budget, "alpha": ALPHA}]


def _source(job: Job, context: Context) -> Path:
    path = context.folder / str(job["source"])
    if not path.is_file():
        command = f"python -m experiments fig2 --budget {job['budget']} --out {context.folder}"
        raise ValueError(
            f"{job['source']}: expected the results of Figure 2 in {context.folder}; got none. "
            f"Run `{command}` first."
        )
    return path


def prepare(todo: list[Job], context: Context, executor: Executor | None = None) -> None:
    """Makes what the source holds a parameter, so that a new source is a new job."""
    for job in todo:
        content = _source(job, context).read_bytes()
        job["digest"] = hashlib.blake2b(content, digest_size=8).hexdigest()


def run(job: Job, context: Context) -> dict[str, Any]:
    """A row for each task."""
    whole = json.loads(_source(job, context).read_text(encoding="utf-8"))
    found = whole["results"]
    names = dict.fromkeys(row["task"] for row in found)
    rows = [_row(name, [row for row in found if row["task"] == name]) for name in names]
    return {"of": whole["budget"], "tasks": rows}


def _row(name: str, found: list[dict[str, Any]]) -> dict[str, Any]:
    of = task(name)
    methods = [method for method in METHODS if any(row["method"] == method for row in found)]
    cells = shared(found)
    found = [row for row in found if row["right"] or _cell(row) in cells]
    return {
        "task": name,
        "cells": len(cells),
        "m": of.m,
        "d": of.d,
        "posterior": POSTERIORS.get(name, ""),
        "printed": PRINTED.get(name, ""),
        **{group: best(found, filter(has, methods)) for group, has in GROUPS.items()},
    }


def _cell(row: dict[str, Any]) -> tuple[int, int]:
    return row["train"], row["cal"]


def shared(found: list[dict[str, Any]]) -> set[tuple[int, int]]:
    """Pairs of N_train and N_cal at which all methods were run where q is wrong."""
    each: dict[str, set[tuple[int, int]]] = {}
    for row in found:
        if not row["right"] and row["method"] in METHODS:
            each.setdefault(row["method"], set()).add(_cell(row))
    return set.intersection(*each.values()) if each else set()


def rejections(found: list[dict[str, Any]]) -> dict[str, float]:
    """Mean rejection rates over N_train and N_cal, by method."""
    cells = dict.fromkeys((row["method"], row["train"], row["cal"]) for row in found)
    each: dict[str, list[float]] = {}
    for method, train, cal in cells:
        each.setdefault(method, []).append(rates(found, method=method, train=train, cal=cal)[0])
    return {method: float(np.mean(some)) for method, some in each.items()}


def best(found: list[dict[str, Any]], methods: Iterable[str]) -> dict[str, Any] | None:
    """The method with the most power, its power and level, and all that are as good.

    Args:
        found: What was found for a task.
        methods: The methods to choose from; None is returned where there is none.
    """
    wrong, right = (rejections([r for r in found if r["right"] == q]) for q in (False, True))
    order = sorted((m for m in methods if m in wrong), key=lambda m: -wrong[m])
    if not order:
        return None
    first = order[0]
    return {
        "method": first,
        "power": round(wrong[first], 4),
        "level": round(right[first], 4) if first in right else None,
        "alike": [m for m in order[1:] if wrong[first] - wrong[m] < TIE],
    }


def table(found: list[dict[str, Any]]) -> str:
    """A line for each task and group."""
    (only,) = found
    lines = [
        f"mean power over N_train and N_cal at {only['alpha']}, from results of budget "
        f"{only['of']}; (level); / others within {TIE}"
    ]
    for row in only["tasks"]:
        dimensions = f"m {row['m']}, d {row['d']}"
        lines.append(f"{row['task']}, {dimensions}, {row['posterior']}; {row['cells']} cells")
        lines += [f"  {group:18}{_said(row[group])}" for group in GROUPS]
        lines.append(f"  {'paper':18}{row['printed']}")
    return "\n".join(lines)


def _said(found: dict[str, Any] | None) -> str:
    if found is None:
        return "-"
    level = "-" if found["level"] is None else f"{found['level']:.3f}"
    names = " / ".join([found["method"], *found["alike"]])
    return f"{found['power']:.3f} ({level})  {names}"


TABLE2 = Experiment(
    name="table2",
    about="The tasks and the best local tests on them, from the results of fig2 (Table 2).",
    jobs=jobs,
    run=run,
    table=table,
    prepare=prepare,
)

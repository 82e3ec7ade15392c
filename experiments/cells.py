"""The cells of Figures 2 and 5 with the tests as published, as jobs in the order of their use.

A cell has fifty runs where its printed rate is between 0.05 and 0.95, and ten elsewhere. Jobs come
in stages, and within one panel after panel, so that a stop leaves few panels that are cut.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from .authors import FIXED_PAIRS, FIXED_TRAIN, ORACLE, PAIRS, TRAINED, informative, printed_rate
from .runs import Job

__all__ = ["BUDGETS", "STAGES", "jobs", "units"]

# The kind of flow, and the tasks: cheap ones first, and last the one that has nothing in print.
KIND = "SbiNSF"
TASKS = (
    *("two_moons", "slcp", "gaussian_linear_uniform"),
    *("bernoulli_glm", "bernoulli_glm_raw", "gaussian_mixture"),
)
SIZES = {
    "two_moons": (2, 2),
    "slcp": (5, 8),
    "gaussian_linear_uniform": (10, 10),
    "bernoulli_glm": (10, 10),
    "bernoulli_glm_raw": (10, 100),
    "gaussian_mixture": (2, 2),
}
LOCAL = ("published L-C2ST", "published L-C2ST-NF")
# Runs of all cells, and of informative ones.
FEW, MANY = 10, 50
# The authors' samples: tasks, and runs by the number of pairs; all of them make one.
THEIRS, ALL = ("two_moons", "slcp"), 10_000
AGAIN = {100: 50, 500: 50, 1000: 50, 2000: 50, 5000: 50}
# By the name of a stage: methods, which rate, and which runs.
STAGES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "power": (LOCAL, "power", "few"),
    "power-more": (LOCAL, "power", "more"),
    "oracle": ((ORACLE,), "power", "all"),
    "level": (LOCAL, "level", "few"),
    "level-more": (LOCAL, "level", "more"),
    "oracle-level": ((ORACLE,), "level", "all"),
    "samples": (LOCAL, "power", "theirs"),
}
BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {
        "tasks": ("two_moons",),
        "train": (200,),
        "cal": (60,),
        "fixed": (200, 60),
        "few": 2,
        "many": 3,
        "nulls": 9,
        "draws": 50,
        "epochs": 3,
        "again": {100: 2},
        "whole": (),
    },
    "paper": {
        "tasks": TASKS,
        "train": TRAINED,
        "cal": PAIRS,
        "fixed": (FIXED_TRAIN, FIXED_PAIRS),
        "few": FEW,
        "many": MANY,
        "nulls": 100,
        "draws": 10_000,
        "epochs": 10_000,
        "again": AGAIN,
        "whole": TRAINED,
    },
}


def jobs(budget: str, stages: Sequence[str] = tuple(STAGES), draw: int = 0) -> list[Job]:
    """One job for each cell and block of runs, stage after stage.

    Args:
        budget: Its name.
        stages: Names of stages.
        draw: Which of the flows.
    """
    given = BUDGETS[budget]
    return [job for stage in stages for job in _stage(given, draw, *STAGES[stage])]


def _stage(
    given: dict[str, Any], draw: int, methods: tuple[str, ...], level: str, which: str
) -> Iterator[Job]:
    rest = {"nulls": given["nulls"], "draws": given["draws"]}
    if which == "theirs":
        yield from _theirs(given, rest)
        return
    rest |= {"epochs": given["epochs"]}
    for cell in _cells(given, methods, level):
        runs = given["many"] if informative(printed_rate(cell)) else given["few"]
        for first, count in _blocks(runs, given["few"], which):
            flow = {"kind": KIND, "draw": draw}
            shared = {"null": "shared"} if cell["method"] == ORACLE else {}
            yield {**cell, **flow, "first": first, "runs": count, **rest, **shared}


def _cells(given: dict[str, Any], methods: tuple[str, ...], rate: str) -> Iterator[Job]:
    """Panel after panel: along N_cal, and power along N_train."""
    right = rate == "level"
    train, cal = given["fixed"]
    panels = [[(train, n) for n in given["cal"]]]
    if not right:
        panels.append([(n, cal) for n in given["train"] if n != train])
    for task in given["tasks"]:
        for panel in panels:
            for method in methods:
                for n_train, n_cal in panel:
                    where = {"task": task, "train": n_train, "cal": n_cal}
                    yield {**where, "right": right, "method": method}


def _blocks(runs: int, few: int, which: str) -> list[tuple[int, int]]:
    """The first run and the number of runs of each block."""
    if which == "all":
        return [(0, runs)]
    if which == "few":
        return [(0, few)]
    return [(few, runs - few)] if runs > few else []


def _theirs(given: dict[str, Any], rest: dict[str, Any]) -> Iterator[Job]:
    """Jobs of ``samples``, with as many runs as asked for."""
    for task in THEIRS:
        cells = [(FIXED_TRAIN, cal, runs) for cal, runs in given["again"].items()]
        cells += [(train, ALL, 1) for train in given["whole"]]
        for method in LOCAL:
            for train, cal, runs in cells:
                where = {"task": task, "train": train, "cal": cal, "right": False}
                yield {**where, "runs": runs, "method": method, **rest}


# Epochs that networks are trained on average, a little more than most were.
EPOCHS = 90


def units(job: Job) -> float:
    """The operations of a job: products and sums of all steps, and of what is asked."""
    (m, d), n = SIZES[job["task"]], job["cal"]
    inputs, width = (m if job["method"] == ORACLE else m + d), 10 * m
    observations = 10
    if job["method"] == ORACLE:
        copies, asked = observations * (job["nulls"] + job["runs"]), 2 * job["draws"]
    else:
        copies, asked = job["runs"] * (1 + job["nulls"]), observations * job["draws"]
    first, rest = inputs * width, width * width + width
    per_row = 2 * (2 * first + 3 * rest)
    steps = -(-round(1.8 * n) // 200)
    return float(copies * (EPOCHS * steps * 200 * per_row + asked * 2 * (m * width + rest)))

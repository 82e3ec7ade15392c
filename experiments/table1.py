"""Table 1: seconds of one test, with and without nulls, all methods on one machine in one run.

A test is trained on a calibration of SLCP and asked at one observation. What it looks at is made
before and counted apart: draws of q, latents, and draws of the true posterior for the oracle.
Rounds, of which there may be one, take turns over all methods, each on data of its own, and the
table has their medians.

As published there are two columns: scikit-learn, of which one fit is timed and multiplied by 1 +
H, and the same recipe with all copies in one stack. Local HPD as published has eleven networks in
place of one, and HPD levels of 1000 draws, made once and for all x together; where that many are
too many, fewer are timed, and multiplied. Ours accept no fewer than one null, which stands for
none. Times are of this machine: run it alone, with one worker.

The printed times are those of the authors' machine: of local methods the fit without its
evaluation, and for local HPD also draws and levels, one pair at a time.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

import assay
from assay import Calibration

from . import published
from .authors import published_numbers
from .local_hpd import curves, grid
from .material import Recipe, Setting, flow, train_flows
from .methods import METHODS
from .networks import LEVELS, Batched, Classifier, Fitted, Sklearn, two_layers
from .runs import Context, Experiment, Job

__all__ = ["TABLE1", "TESTS", "Alone", "Ready", "medians"]

# Numbers of simulations in the printed table.
TRAINED = (100, 1000, 10_000, 100_000)
# Pairs of a test that is made before the clock starts.
WARM = 60
Made = TypeVar("Made")


@dataclass(frozen=True, eq=False)
class Ready(Setting):
    """A setting at one observation that makes everything once and takes the time of it.

    Args:
        level_draws: Draws of q at each x for HPD levels as published.
        level_timed: How many of them are made, at most.
        made: What was made, by its name.
        spent: Seconds spent on making it.
    """

    level_draws: int = 1000
    level_timed: int = 100
    made: dict[Any, Any] = field(default_factory=dict, init=False)
    spent: list[float] = field(default_factory=list, init=False)

    def _once(self, key: Any, make: Callable[[], Made]) -> Made:
        if key not in self.made:
            start = _now()
            self.made[key] = make()
            self.spent.append(_now() - start)
        return cast(Made, self.made[key])

    def seconds(self, test: Callable[[], Any]) -> float:
        """Seconds of a test, less those in which what it looks at was made."""
        before, start = sum(self.spent), _now()
        test()
        return _now() - start - (sum(self.spent) - before)

    @property
    def x_o(self) -> Tensor:
        """The first observation of the benchmark."""
        return super().x_o[:1]

    def sets(self, k: int) -> Any:
        """The pairs with k draws of q at each x."""
        return self._once(("sets", k), partial(super().sets, k))

    @property
    def latents(self) -> Any:
        """The pairs in the base space of the flow."""
        return self._once("latents", lambda: super(Ready, self).latents)

    @property
    def theta_o(self) -> Tensor:
        """Draws of q at the observation."""
        return self._once("theta_o", lambda: super(Ready, self).theta_o)

    def exact(self, n: int) -> list[Tensor]:
        """Draws of the true posterior at the observation."""
        return self._once(("exact", n), partial(super().exact, n))

    def q(self, n: int) -> Tensor:
        """Other draws of q at the observation."""
        return self._once(("q", n), partial(super().q, n))


def _now() -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


@dataclass(frozen=True)
class Alone:
    """A classifier that is fitted to the data and to none of its null copies.

    Args:
        classifier: The classifier.
    """

    classifier: Classifier

    def fit(self, inputs: Tensor, labels: Tensor) -> Fitted:
        """Fits the first of the copies (h, n, p)."""
        return self.classifier.fit(inputs[:1], labels[:1])


def _lc2st(setting: Ready, classifier: Any, nulls: int) -> None:
    sets, device = setting.sets(1), setting.device
    there = setting.x_o.to(device), setting.theta_o.to(device)
    published.lc2st(classifier, (sets.theta, sets.x, sets.theta_q[:, 0]), there, nulls)


def _lc2st_nf(setting: Ready, classifier: Any, nulls: int) -> None:
    latents, x_o = setting.latents, setting.x_o.to(setting.device)
    published.lc2st_nf(classifier, (latents.theta, latents.x), x_o, nulls, setting.draws)


def _c2st(setting: Ready, classifier: Any, nulls: int) -> None:
    size, device = setting.pairs + setting.draws, setting.device
    samples = setting.q(size)[0].to(device), setting.exact(size)[0].to(device)
    published.c2st(classifier, samples, setting.pairs, nulls)


# Seconds without nulls and with so many.
Times = Callable[[Ready, int], tuple[float, float]]


def _timed(without: Callable[[Ready], Any], with_nulls: Callable[[Ready, int], Any]) -> Times:
    """Both after a small test, which loads what is loaded on first use."""

    def times(setting: Ready, nulls: int) -> tuple[float, float]:
        with_nulls(replace(setting, pairs=WARM, draws=WARM), 1)
        one = setting.seconds(lambda: without(setting))
        return one, setting.seconds(lambda: with_nulls(setting, nulls))

    return times


def _extrapolated(without: Callable[[Ready], Any]) -> Times:
    def times(setting: Ready, nulls: int) -> tuple[float, float]:
        one = setting.seconds(lambda: without(setting))
        return one, one * (1 + nulls)

    return times


Test = Callable[[Ready, Any, int], None]


def _ours(name: str) -> Times:
    method: Any = METHODS[name]
    return _timed(lambda setting: method(setting, 1), method)


def _batched(test: Test) -> Times:
    def classifier(setting: Ready) -> Batched:
        return Batched(two_layers(setting.task.m))

    return _timed(
        lambda setting: test(setting, Alone(classifier(setting)), 1),
        lambda setting, nulls: test(setting, classifier(setting), nulls),
    )


def _sklearn(test: Test) -> Times:
    return _extrapolated(
        lambda setting: test(setting, Alone(Sklearn(two_layers(setting.task.m))), 1)
    )


def _lhpd(setting: Ready, nulls: int) -> tuple[float, float]:
    """The published local HPD: levels are made once, whatever the number of nulls."""
    levels: list[Calibration] = []
    timed = min(setting.level_timed, setting.level_draws)
    sets, log_q = setting.sets(timed), setting.flow.log_prob
    # As if all draws had been made.
    setting.spent.append(sum(setting.spent) * (setting.level_draws / timed - 1))
    made = setting.seconds(lambda: levels.append(assay.lhpd(sets, log_q).levels))
    made *= setting.level_draws / timed
    one = setting.seconds(lambda: _level_networks(levels[0], setting.x_o))
    return made + one, made + one * (1 + nulls)


def _level_networks(levels: Calibration, x_o: Tensor) -> None:
    """One network for each level that has truths on both sides."""
    x, u = levels.x.cpu().numpy(), levels.theta[:, 0].cpu().numpy()
    curves([u], x, x_o.numpy(), [grid(u)], Sklearn(LEVELS))


PUBLISHED = {"C2ST": _c2st, "L-C2ST": _lc2st, "L-C2ST-NF": _lc2st_nf}
TESTS: dict[str, Times] = {
    **{f"published {name}, scikit-learn": _sklearn(test) for name, test in PUBLISHED.items()},
    "published local HPD, scikit-learn": _lhpd,
    **{f"published {name}": _batched(test) for name, test in PUBLISHED.items()},
    **{name: _ours(name) for name in METHODS if not name.startswith("published")},
}


BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {
        "train": (200,),
        "cal": (100,),
        "rounds": 2,
        "nulls": 9,
        "draws": 50,
        "level_draws": 20,
        "epochs": 3,
        "methods": ("published L-C2ST-NF, scikit-learn", "published L-C2ST-NF", "L-C2ST-NF"),
    },
    "smoke": {
        "train": (1000,),
        "cal": (500,),
        "rounds": 2,
        "nulls": 100,
        "draws": 1000,
        "level_draws": 50,
        "epochs": 100,
        "methods": tuple(TESTS),
    },
    # Times hardly depend on the flow.
    "paper": {
        "train": (1000,),
        "cal": (5000, 10_000),
        "rounds": 1,
        "nulls": 100,
        "draws": 10_000,
        "level_draws": 1000,
        "epochs": 10_000,
        "methods": tuple(TESTS),
    },
}


def jobs(budget: str) -> list[Job]:
    """One job for each method, flow, calibration size and round; rounds are outermost."""
    given = BUDGETS[budget]
    return [
        {
            "task": "slcp",
            "train": train,
            "cal": cal,
            "round": number,
            "method": method,
            "nulls": given["nulls"],
            "draws": given["draws"],
            "level_draws": given["level_draws"],
            "epochs": given["epochs"],
        }
        for number in range(given["rounds"])
        for cal in given["cal"]
        for train in given["train"]
        for method in given["methods"]
    ]


def run(job: Job, context: Context) -> dict[str, Any]:
    """Seconds of one method."""
    recipe = Recipe.of(job)
    sizes = job["cal"], job["round"], job["draws"]
    setting = Ready(recipe, flow(recipe, context), *sizes, level_draws=job["level_draws"])
    without, with_nulls = TESTS[job["method"]](setting, job["nulls"])
    return {
        "samples": float(f"{sum(setting.spent):.4g}"),
        "without": float(f"{without:.4g}"),
        "with": float(f"{with_nulls:.4g}"),
        "extrapolated": "scikit-learn" in job["method"],
        "device": _device(context.device),
    }


def _device(name: str) -> str:
    if name.startswith("cuda"):
        return f"{torch.cuda.get_device_name(name)} beside {os.cpu_count()} cores"
    return f"{torch.get_num_threads()} thread(s) of {os.cpu_count()} cores"


def medians(
    found: list[dict[str, Any]], cal: int, part: str
) -> dict[str, dict[int, tuple[float, int]]]:
    """Medians over rounds and their number, by method and N_train.

    Args:
        found: What jobs found.
        cal: The size of the calibration.
        part: One of samples, without and with.
    """
    values: dict[str, dict[int, list[float]]] = {}
    for row in found:
        if row["cal"] == cal:
            values.setdefault(row["method"], {}).setdefault(row["train"], []).append(row[part])
    return {
        method: {train: (float(np.median(some)), len(some)) for train, some in by_train.items()}
        for method, by_train in values.items()
    }


# Rows of the printed table, and the names that its numbers have here.
PRINTED = {"C2ST": "c2st", "L-C2ST": "lc2st", "L-C2ST-NF": "lc2st_nf", "local HPD": "lhpd"}


def table(found: list[dict[str, Any]]) -> str:
    """A block for each N_cal and part, with a column for each N_train, as in the paper."""
    nulls, devices = found[0]["nulls"], sorted({row["device"] for row in found})
    lines = [f"seconds, {found[0]['task']}, one observation; on {' AND '.join(devices)}"]
    if len(devices) > 1:
        lines.append("these are different machines, so the rows must not be compared")
    parts = {
        "without": "one test without nulls (ours: one null)",
        "with": f"one test with {nulls} nulls (scikit-learn: one fit times {1 + nulls})",
        "samples": "what the test looks at: draws and latents",
    }
    for cal in sorted({row["cal"] for row in found}):
        for part, words in parts.items():
            lines += [f"N_cal {cal}, {words}", *_block(medians(found, cal, part))]
            lines += _printed(cal, sorted({row["train"] for row in found}), part)
    return "\n".join(lines)


def _block(by_method: dict[str, dict[int, tuple[float, int]]]) -> list[str]:
    trains = sorted({train for values in by_method.values() for train in values})
    rounds = min(n for values in by_method.values() for _, n in values.values())
    name = f"  N_train; rounds: {rounds}"
    return [f"{name:38}" + "".join(f"{train:>10}" for train in trains)] + [
        f"  {method:36}" + "".join(f"{values[train][0]:>10.4g}" for train in trains)
        for method, values in by_method.items()
    ]


def _printed(cal: int, trains: list[int], part: str) -> list[str]:
    """The printed times, where they are at hand and of this size."""
    theirs = published_numbers().get("table1_printed_runtime_slcp", {}).get(f"n_cal_{cal}")
    if theirs is None or part != "without" or not set(trains) <= set(TRAINED):
        return []
    return [
        f"  {f'printed {name} (their machine)':36}"
        + "".join(f"{theirs[key][TRAINED.index(train)]:>10.4g}" for train in trains)
        for name, key in PRINTED.items()
    ]


TABLE1 = Experiment(
    name="table1",
    about="Seconds of one test with and without nulls, all methods, on one machine (Table 1).",
    jobs=jobs,
    run=run,
    table=table,
    prepare=train_flows,
)

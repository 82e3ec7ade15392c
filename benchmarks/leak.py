"""Leak and power, side by side: q is right on one half of x-space and shifted on the other.

    python -m benchmarks.bars leak,leak-networks

q is the exact posterior where a number of x is positive, and shifted by a part of a posterior
standard deviation in one parameter where it is not. Two observations lie in such a way that all
simulations near them are on one side. Where q is right, a rejection is a leak: a test with a local
claim makes them at its level, one whose claim is about all x need not. Where q is wrong it is
power. The score as a classifier of observations, "AUC", is the area under the curve of p-values.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
import torch
from sklearn.metrics import roc_auc_score
from torch import Tensor

import assay
from assay._support.random import stream
from assay.neighbourhood import Nearest

LEVEL, NEAR = 0.05, Nearest(0.05)
# Draws of q at each x, and at an observation; copies of closed forms, and of networks.
K, DRAWS, NULLS, FEW = 8, 300, 99, 39
# Of each task the number of x whose sign decides, and observations where q is right and wrong.
PLACES = {
    "gaussian": (0, ((3.0, 0, 0, 0, 0), (-2.4, 0, 0, 0, 0))),
    "two_moons": (1, ((-0.4, 0.8), (-0.4, -0.8))),
}


class Leak(NamedTuple):
    """A task, the number of pairs, and the shift in posterior standard deviations."""

    task: str
    pairs: int
    shift: float


DESIGNS = {
    f"{each.task}, {each.pairs} pairs, {each.shift:g} sd": each
    for each in (
        Leak("gaussian", 2000, 0.3),
        Leak("gaussian", 2000, 0.6),
        Leak("gaussian", 10_000, 0.3),
        Leak("two_moons", 2000, 0.3),
    )
}


def wrong(x: Tensor, column: int) -> Tensor:
    return x[:, column] < 0


@cache
def posterior(design: Leak) -> Any:
    """The posterior of a design, and its task."""
    from experiments.tasks import ConjugateGaussian, Perturbed, task
    from experiments.tasks.errors import Shift

    model = ConjugateGaussian(3, 5) if design.task == "gaussian" else task(design.task)
    column, _ = PLACES[design.task]
    return Perturbed(model, Shift(0), design.shift, partial(wrong, column=column))


def make(design: Leak, seed: int) -> tuple[assay.Calibration, assay.Draws]:
    """Pairs, and two observations with draws of q: where it is right, and where it is wrong."""
    q, (column, observations) = posterior(design), PLACES[design.task]
    generator = stream(seed, "leak", design.task)
    theta, x = q.task.joint(design.pairs, generator)
    x_o = torch.tensor(observations, dtype=x.dtype)
    calibration = assay.Calibration(theta, x, q.draws(x, K, generator))
    near = NEAR.inside(calibration.features, x_o.to(calibration.features))
    there = wrong(calibration.x, column)
    if there[near[0]].any() or not there[near[1]].all():
        raise RuntimeError("simulations near an observation are not all on one side of it.")
    return calibration, assay.Draws(x_o, q.draws(x_o, DRAWS, generator))


def first(calibration: assay.Calibration, k: int) -> assay.Calibration:
    """The same pairs with the first k draws."""
    return assay.Calibration(calibration.theta, calibration.x, calibration.theta_q[:, :k])


Tests = dict[str, Callable[[], Any]]


def closed_forms(sets: assay.Calibration, seed: int) -> Tests:
    """Tests that train nothing, or networks of no layer."""
    few, ridge = first(sets, 4), assay.Ridge()
    return {
        "Ridge, Exchange": lambda: assay.lc2st(few, ridge, assay.Exchange(NULLS), seed=seed),
        "Ridge, LocalExchange": lambda: assay.lc2st(
            few, ridge, assay.LocalExchange(NULLS, NEAR), seed=seed
        ),
        "score": lambda: assay.score(sets, NEAR, NULLS, seed),
        "lpit": lambda: assay.lpit(sets, NEAR, NULLS, seed=seed),
    }


def networks(sets: assay.Calibration, seed: int) -> Tests:
    """The paper's test, with either null."""
    pairs = first(sets, 1)
    return {
        "MLP, Exchange": lambda: assay.lc2st(pairs, null=assay.Exchange(FEW), seed=seed),
        "MLP, LocalExchange": lambda: assay.lc2st(
            pairs, null=assay.LocalExchange(FEW, NEAR), seed=seed
        ),
    }


def once(name: str, seed: int, tests: Callable[[assay.Calibration, int], Tests]) -> dict[str, Any]:
    """P-values (2,) of each test, where q is right and where it is wrong."""
    calibration, draws = make(DESIGNS[name], seed)
    each = tests(calibration, seed).items()
    return {"pvalues": {test: prepared()(draws).pvalue.tolist() for test, prepared in each}}


def summary(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Rates of rejection by test, and the 99 % interval of an exact one."""
    low, high = (float(v) for v in scipy.stats.binom.interval(0.99, len(rows), LEVEL))
    found: dict[str, Any] = {"exact": [low / len(rows), high / len(rows)]}
    for test in rows[0]["pvalues"]:
        p = np.array([row["pvalues"][test] for row in rows])
        leak, power = (p <= LEVEL + 1e-9).mean(0).tolist()
        auc = roc_auc_score(np.repeat([[0, 1]], len(p), 0).ravel(), -p.ravel())
        found[test] = {"leak": leak, "power": power, "auc": float(auc)}
    return found

"""What the authors published, where a copy of it lies beside the project.

Their numbers and samples carry no licence and are not part of the project: experiments look for
``../shared/data/paper``, or where ``ASSAY_PAPER_SAMPLES`` says, and do without where it is absent.
"""

import json
import math
import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.stats
import torch
from torch import Tensor

__all__ = [
    "ASIDE",
    "FOLDER",
    "Difference",
    "absent",
    "arrays",
    "difference",
    "difference_over_flows",
    "informative",
    "printed_rate",
    "printed_statistic",
    "published_numbers",
]

FOLDER = Path(
    os.environ.get("ASSAY_PAPER_SAMPLES")
    or Path(__file__).resolve().parents[2] / "shared" / "data" / "paper"
)


@cache
def published_numbers() -> dict[str, Any]:
    """The numbers behind the paper's figures and tables; empty where they are absent."""
    path = FOLDER / "published_results.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def arrays(name: str) -> dict[str, Tensor]:
    """What is kept in one of their files, but for the words about it."""
    with np.load(FOLDER / name) as archive:
        return {key: torch.from_numpy(archive[key]) for key in archive.files if key != "meta"}


def absent() -> str:
    """What is missing where the samples are absent; empty where they are there."""
    if FOLDER.is_dir():
        return ""
    return (
        "samples: expected the authors' samples in ../shared/data/paper, or where the "
        "environment variable ASSAY_PAPER_SAMPLES says"
    )


# How the authors call the methods, and their numbers of simulations, pairs and runs.
ORACLE = "published C2ST"
NAMES = {
    ORACLE: "c2st",
    "published L-C2ST": "lc2st",
    "published L-C2ST-NF": "lc2st_nf",
    "local HPD": "lhpd",
}
TRAINED, PAIRS = (100, 1000, 10_000, 100_000), (100, 500, 1000, 2000, 5000, 10_000)
FIXED_TRAIN, FIXED_PAIRS = 1000, 10_000
RUNS, OBSERVATIONS = 50, 10
# Where the paper's own curves are contaminated by its simulator.
ASIDE = "gaussian_mixture"
# Runs of a local test that tell how its rate varies.
FEWEST = 3


def printed_rate(row: dict[str, Any]) -> float | None:
    """The authors' rejection rate by the MSE in a cell of Figures 2 and 5; None if there is none.

    Of Gaussian Mixture there is none: its printed rates are of a faulty simulator.

    Args:
        row: The task, N_train, N_cal, method, and whether q is right.
    """
    task = published_numbers().get("exp2", {}).get(row["task"])
    method = NAMES.get(row["method"])
    if task is None or method is None or row["task"] == ASIDE:
        return None
    if row["train"] == FIXED_TRAIN and row["cal"] in PAIRS:
        kind = "FPR_mean" if row["right"] else "TPR_mean"
        return float(task["vs_n_cal"][method][kind]["mse"][PAIRS.index(row["cal"])])
    if row["cal"] == FIXED_PAIRS and row["train"] in TRAINED and not row["right"]:
        return float(task["vs_n_train"][method]["TPR_mean"]["mse"][TRAINED.index(row["train"])])
    return None


def informative(printed: float | None) -> bool:
    """Whether a printed power could show a difference: it is between 0.05 and 0.95."""
    return printed is not None and 0.05 <= printed <= 0.95


def printed_statistic(row: dict[str, Any]) -> float | None:
    """The authors' mean statistic over the observations, of this very run, if there is one."""
    method = NAMES.get(row["method"].split(",")[0])
    numbers = published_numbers().get("exp2", {}).get(row["task"])
    if (
        numbers is None
        or method is None
        or row["cal"] != FIXED_PAIRS
        or row["train"] not in TRAINED
    ):
        return None
    values = numbers["vs_n_train"][method]["t_stat_mean"]["mse"]
    return float(values[TRAINED.index(row["train"])])


class Difference(NamedTuple):
    """How far a rate is from a printed one, and half the 95 % interval of that."""

    size: float
    half: float

    @property
    def agrees(self) -> bool:
        """Whether they cannot be told apart."""
        return self.size <= self.half


def difference(method: str, each: np.ndarray, printed: float) -> Difference | None:
    """A rate beside a printed one; None if it cannot be judged.

    The observations of a run share the classifiers of a local test, so that its rates vary from
    run to run; fewer than three runs tell nothing of that, and are not judged. An oracle has a
    classifier and data of its own at each observation, and all count. Of the printed rate its
    runs are known, and not how they vary: each counts once.

    Args:
        method: The method.
        each: Its rejection rates, one for each run.
        printed: The printed rate.

    Example:
        >>> difference("published L-C2ST", np.array([0.9, 0.8, 1.0]), 0.86).agrees
        True
        >>> difference("published L-C2ST", np.array([0.2, 0.2, 0.2]), 0.86).agrees
        False
    """
    runs, tests = len(each), OBSERVATIONS * len(each)
    if method != ORACLE and runs < FEWEST:
        return None
    known = RUNS * (OBSERVATIONS if method == ORACLE else 1)
    # No less than if all tests were independent (Agresti and Caffo 2000, *Simple and effective
    # confidence intervals for proportions*).
    (one, two), (other, far) = _variance(float(each.mean()), tests), _variance(printed, known)
    if method == ORACLE:
        quantile = 1.96
    else:
        two = max(two, float(each.var(ddof=1)) / runs)
        quantile = float(scipy.stats.t.ppf(0.975, runs - 1))
    return Difference(abs(one - other), quantile * math.sqrt(two + far))


def difference_over_flows(
    method: str, flows: Sequence[np.ndarray], printed: float
) -> Difference | None:
    """A mean rate beside a printed one, which may be that of one more flow, trained as ours were.

    The printed rate is that of one flow, so that the variance between flows enters the difference
    once for it, and divided by their number for our mean. It is what the means of flows vary by,
    less what runs on one flow do; both are estimated here, from few flows, and the interval has
    the quantile of their number. Fewer than three are not judged.

    Args:
        method: The method.
        flows: Rejection rates on each flow, one for each run; of an oracle there may be one run,
            whose observations count, as in :func:`difference`.
        printed: The printed rate.

    Example:
        >>> each = [np.array([0.0, 0.1]), np.array([0.9, 1.0]), np.array([0.4, 0.5])]
        >>> difference_over_flows("published L-C2ST", each, 0.8).agrees
        True
        >>> difference_over_flows("published L-C2ST", each[:1] * 3, 0.8).agrees
        False
    """
    if len(flows) < FEWEST:
        return None
    means, tests = np.array([one.mean() for one in flows]), OBSERVATIONS * sum(map(len, flows))
    known = RUNS * (OBSERVATIONS if method == ORACLE else 1)
    (one, floor), (other, far) = _variance(float(means.mean()), tests), _variance(printed, known)
    between = float(means.var(ddof=1))
    owed = max(0.0, between - float(np.mean([_of_runs(method, each) for each in flows])))
    variance = max(floor, between / len(flows)) + owed + far
    quantile = float(scipy.stats.t.ppf(0.975, len(flows) - 1))
    return Difference(abs(one - other), quantile * math.sqrt(variance))


def _of_runs(method: str, each: np.ndarray) -> float:
    """The variance of a flow's mean rate that is owed to its runs."""
    if method == ORACLE:
        return _variance(float(each.mean()), OBSERVATIONS * len(each))[1]
    return float(each.var(ddof=1)) / len(each) if len(each) > 1 else 0.0


def _variance(rate: float, n: int) -> tuple[float, float]:
    """A rate with one success and one failure more, and its variance."""
    share = (rate * n + 1) / (n + 2)
    return share, share * (1 - share) / (n + 2)

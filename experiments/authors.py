"""What the authors published, where a copy of it lies beside the project.

Their numbers and samples carry no licence and are not part of the project: experiments look for
``../shared/data/paper``, or where ``ASSAY_PAPER_SAMPLES`` says, and do without where it is absent.
"""

import json
import math
import os
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["FOLDER", "agree", "printed_rate", "published_numbers"]

FOLDER = Path(
    os.environ.get("ASSAY_PAPER_SAMPLES")
    or Path(__file__).resolve().parents[2] / "shared" / "data" / "paper"
)


@cache
def published_numbers() -> dict[str, Any]:
    """The numbers behind the paper's figures and tables; empty where they are absent."""
    path = FOLDER / "published_results.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


# How the authors call the methods, and their numbers of simulations, pairs and runs.
NAMES = {
    "published C2ST": "c2st",
    "published L-C2ST": "lc2st",
    "published L-C2ST-NF": "lc2st_nf",
    "local HPD": "lhpd",
}
TRAINED, PAIRS = (100, 1000, 10_000, 100_000), (100, 500, 1000, 2000, 5000, 10_000)
FIXED_TRAIN, FIXED_PAIRS = 1000, 10_000
RUNS = 50


def printed_rate(row: dict[str, Any]) -> float | None:
    """The authors' rejection rate by the MSE in a cell of Figures 2 and 5; None if there is none.

    Args:
        row: The task, N_train, N_cal, method, and whether q is right.
    """
    task = published_numbers().get("exp2", {}).get(row["task"])
    method = NAMES.get(row["method"])
    if task is None or method is None:
        return None
    if row["train"] == FIXED_TRAIN and row["cal"] in PAIRS:
        kind = "FPR_mean" if row["right"] else "TPR_mean"
        return float(task["vs_n_cal"][method][kind]["mse"][PAIRS.index(row["cal"])])
    if row["cal"] == FIXED_PAIRS and row["train"] in TRAINED and not row["right"]:
        return float(task["vs_n_train"][method]["TPR_mean"]["mse"][TRAINED.index(row["train"])])
    return None


def agree(rate: float, runs: int, printed: float, printed_runs: int = RUNS) -> bool:
    """Whether two rates differ by no more than the 95 % interval of their difference.

    The observations of a run share its classifiers, so that a run counts once (Agresti and Caffo
    2000, *Simple and effective confidence intervals for proportions*).

    Example:
        >>> agree(0.8, 5, 0.86), agree(0.2, 5, 0.86)
        (True, False)
    """
    both = ((rate, runs), (printed, printed_runs))
    (one, first), (other, second) = (((p * n + 1) / (n + 2), n + 2) for p, n in both)
    scale = math.sqrt(one * (1 - one) / first + other * (1 - other) / second)
    return abs(one - other) <= 1.96 * scale

"""Figure 1 of the paper, from the two-sample test alone: ours beside the published values.

    python benchmarks/figure1.py [--runs 100] [--nulls 99]

q = N(0, I) is class 0 and p = N(0, s I) is class 1, in two dimensions, as in the authors' code;
the text of the paper has it the other way round. First the statistics of the Bayes classifier on
10 000 rows of each class, and in closed form, then the share of runs in which QDA rejects at
0.05, trained on 2000 rows of each class and judged on 10 000. Published power comes from one null
of fresh data for all runs and p = #{T_h > T} / H, ours from exchanged labels in each run. Last,
the same power with 2000 rows of each class in all, cross-validated.
"""

import argparse
import json
import math

import numpy as np
import scipy.integrate
import torch
from paper_samples import FOLDER
from torch import Tensor

from assay import Exchange, c2st
from assay.classifiers import QDA, Bayes
from assay.diagnostics.c2st import STATISTICS, Evaluation, Folds, HeldOut
from assay.randomness import stream

GRID = (0.01, *(i / 10 for i in range(1, 16)))
SHOWN = {
    "accuracy": "acc_ref",
    "acc0": "acc_single_class",
    "mse": "mse_ref",
    "mse0": "mse_single_class",
}


def samples(s: float, n: int, run: int) -> tuple[Tensor, Tensor]:
    """Draws of p = N(0, s I) and of q = N(0, I)."""
    generator = stream(run, "figure 1", round(100 * s))
    q, p = torch.randn(2, n, 2, generator=generator, dtype=torch.float64)
    return math.sqrt(s) * p, q


def normal(s: float) -> object:
    return lambda v: -v.square().sum(1) / (2 * s) - math.log(s)


def closed_form(s: float) -> dict[str, float]:
    """The statistics of the Bayes classifier; the squared radius is exponential."""
    if s == 1:
        return {"accuracy": 0.5, "acc0": 0.5, "mse": 0.0, "mse0": 0.0}

    def square(t: float, variance: float) -> float:
        d = 1 / (1 + s * math.exp(min(700, -0.5 * t * (1 - 1 / s))))
        return (d - 0.5) ** 2 * math.exp(-t / (2 * variance)) / (2 * variance)

    edge = 2 * math.log(s) / (1 - 1 / s)
    inside_q, inside_p = (1 - math.exp(-edge / (2 * v)) for v in (1.0, s))
    mse0, mse1 = (
        scipy.integrate.quad(square, 0, 80 * v, (v,), limit=500, points=(min(edge, 79 * v),))[0]
        for v in (1.0, s)
    )
    return {
        "accuracy": 0.5 + abs(inside_p - inside_q) / 2,
        "acc0": 1 - inside_q if s < 1 else inside_q,
        "mse": (mse0 + mse1) / 2,
        "mse0": mse0,
    }


def bayes(s: float) -> dict[str, float]:
    """The statistics of the Bayes classifier on draws."""
    p, q = samples(s, 10_000, 0)
    result = c2st(p, q, Bayes(normal(s), normal(1.0)), Exchange(1))
    return dict(zip(result.names, result.statistic, strict=True))


def power(s: float, n: int, runs: int, nulls: int, evaluation: Evaluation) -> dict[str, float]:
    """The share of runs in which QDA rejects at 0.05, for each statistic."""
    each = (samples(s, n, run) for run in range(runs))
    found = [c2st(*pair, QDA(), Exchange(nulls), evaluation).pvalue for pair in each]
    return dict(zip(STATISTICS, (np.array(found) <= 0.05).mean(0), strict=True))


def published(key: str, name: str, i: int) -> float:
    """A published value, or NaN where the authors' results are absent."""
    path = FOLDER / "published_results.json"
    if not path.is_file():
        return math.nan
    return float(json.loads(path.read_text())["exp1"][key][SHOWN[name]][i])


def table(title: str, columns: dict[str, list[dict[str, float]]], digits: int) -> None:
    """Prints one block for each statistic, side by side."""
    print(f"\n{title}")
    width = 10
    print(" " * 5 + "".join(f"{name:>{width * len(columns)}}" for name in SHOWN))
    print(f"{'s':>5}" + "".join(f"{column:>{width}}" for _ in SHOWN for column in columns))
    for i, s in enumerate(GRID):
        values = [rows[i].get(name, math.nan) for name in SHOWN for rows in columns.values()]
        print(f"{s:>5}" + "".join(f"{value:>{width}.{digits}f}" for value in values), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--nulls", type=int, default=99)
    run = parser.parse_args()

    def theirs(key: str) -> list[dict[str, float]]:
        return [{name: published(key, name, i) for name in SHOWN} for i in range(len(GRID))]

    statistics = {
        "exact": [closed_form(s) for s in GRID],
        "ours": [bayes(s) for s in GRID],
        "published": theirs("optbayes_statistic"),
    }
    table("Statistics of the Bayes classifier, 10 000 rows of each class", statistics, 4)
    settings = run.runs, run.nulls
    powers = {
        "ours": [power(s, 12_000, *settings, HeldOut(10 / 12)) for s in GRID],
        "published": theirs("qda_power"),
        "folds": [power(s, 2000, *settings, Folds(5)) for s in GRID],
    }
    table(f"Power of QDA over {run.runs} runs, {run.nulls} nulls", powers, 2)


if __name__ == "__main__":
    main()

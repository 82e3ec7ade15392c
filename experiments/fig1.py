"""Figure 1: N(0, I) against N(0, s I): what statistics see, and what single-class ones lose.

Class 0 is N(0, I), class 1 is N(0, s I), in two dimensions, as in the authors' code; the text of
the paper has it the other way round. On the left the statistics of the Bayes classifier on 10 000
rows of each class, with their values in closed form; on the right the share of runs in which QDA,
trained on 2000 rows of each class and judged on 10 000, rejects at 0.05. As published, one null of
fresh data from N(0, I) on both sides serves all runs, with p = #{T_h > T} / H; ours exchanges
labels in each run.
"""

import math
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import scipy.integrate
import torch
from sklearn.model_selection import ShuffleSplit
from torch import Tensor

from assay import Exchange, c2st
from assay._support.random import stream
from assay.c2st import STATISTICS

from .authors import published_numbers
from .discriminant import QDA, Bayes
from .pictures import save
from .runs import Context, Experiment, Job

__all__ = ["FIG1", "closed_form"]

GRID = (0.01, *(i / 10 for i in range(1, 16)))
ALPHA = 0.05
# Our names of the statistics, and the authors'.
SHOWN = {
    "accuracy": "acc_ref",
    "acc0": "acc_single_class",
    "mse": "mse_ref",
    "mse0": "mse_single_class",
}
BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {"grid": (0.5, 1.0), "runs": 2, "nulls": 19, "trials": 20, "n": 300, "rows": 300},
    "smoke": {"grid": GRID, "runs": 10, "nulls": 39, "trials": 100, "n": 12_000, "rows": 10_000},
    "paper": {"grid": GRID, "runs": 100, "nulls": 99, "trials": 1000, "n": 12_000, "rows": 10_000},
}
# Rows to judge by, of all that there are.
JUDGED = ShuffleSplit(1, test_size=10 / 12, random_state=0)
# Trials of the published null in one job.
BLOCK = 50


def jobs(budget: str) -> list[Job]:
    """Statistics at every s, runs at every s, and blocks of the published null."""
    given = BUDGETS[budget]
    blocks = range(math.ceil(given["trials"] / BLOCK))
    sizes = {"n": given["n"], "nulls": given["nulls"]}
    return [
        *({"kind": "bayes", "s": s, "n": given["rows"]} for s in given["grid"]),
        *(
            {"kind": "null", "block": b, "trials": min(BLOCK, given["trials"]), "n": given["n"]}
            for b in blocks
        ),
        *(
            {"kind": "power", "s": s, "run": run, **sizes}
            for s in given["grid"]
            for run in range(given["runs"])
        ),
    ]


def run(job: Job, context: Context) -> dict[str, Any]:
    """Statistics, a block of nulls, or one run."""
    if job["kind"] == "bayes":
        p, q = _samples(job["s"], job["n"], 0)
        result = c2st(p, q, Bayes(_normal(job["s"]), _normal(1.0)), Exchange(1))
        return {"statistic": _named(result.statistic), "exact": closed_form(job["s"])}
    if job["kind"] == "null":
        first = 1000 + job["block"] * BLOCK
        found = [_judged(1.0, job["n"], first + t, 1).statistic for t in range(job["trials"])]
        return {"null": [_named(one) for one in found]}
    result = _judged(job["s"], job["n"], job["run"], job["nulls"])
    return {"statistic": _named(result.statistic), "pvalue": _named(result.pvalue)}


def _judged(s: float, n: int, number: int, nulls: int) -> Any:
    return c2st(*_samples(s, n, number), QDA(), Exchange(nulls), JUDGED, seed=number)


def _samples(s: float, n: int, number: int) -> tuple[Tensor, Tensor]:
    """Draws of class 1, N(0, s I), and of class 0, N(0, I)."""
    generator = stream(number, "figure 1", round(100 * s))
    q, p = torch.randn(2, n, 2, generator=generator, dtype=torch.float64)
    return math.sqrt(s) * p, q


def _normal(s: float) -> Any:
    return lambda v: -v.square().sum(1) / (2 * s) - math.log(s)


def _named(values: np.ndarray) -> dict[str, float]:
    found = dict(zip(STATISTICS, map(float, values), strict=True))
    return {name: found[name] for name in SHOWN}


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


def powers(found: list[dict[str, Any]]) -> dict[str, dict[str, dict[float, float]]]:
    """Rejection rates by column, statistic and s: ours and those of the rerun."""
    runs = [row for row in found if row["kind"] == "power"]
    null = [one for row in found if row["kind"] == "null" for one in row["null"]]
    grid = sorted({row["s"] for row in runs})
    columns: dict[str, dict[str, dict[float, float]]] = {"ours": {}, "rerun": {}}
    for name in SHOWN:
        copies = np.array([one[name] for one in null])
        for s in grid:
            mine = [row for row in runs if row["s"] == s]
            p = np.array([row["pvalue"][name] for row in mine])
            shares = np.array([(copies > row["statistic"][name]).mean() for row in mine])
            columns["ours"].setdefault(name, {})[s] = float((p <= ALPHA + 1e-9).mean())
            columns["rerun"].setdefault(name, {})[s] = float((shares <= ALPHA).mean())
    return columns


def table(found: list[dict[str, Any]]) -> str:
    """Statistics and powers beside the published ones."""
    theirs = published_numbers().get("exp1", {})
    statistics = {row["s"]: row for row in found if row["kind"] == "bayes"}
    columns = powers(found)
    lines = [f"{'':6}{'statistic':>11}{'s':>6}{'found':>9}{'exact':>9}{'printed':>9}"]
    lines[0] += f"{'power':>9}{'as publ.':>9}{'printed':>9}"
    for name, key in SHOWN.items():
        for s, row in statistics.items():
            at = GRID.index(s) if s in GRID else None
            printed = [
                theirs.get(part, {}).get(key, [math.nan] * len(GRID))[at]
                if at is not None
                else math.nan
                for part in ("optbayes_statistic", "qda_power")
            ]
            lines.append(
                f"{'':6}{name:>11}{s:>6}{row['statistic'][name]:>9.4f}{row['exact'][name]:>9.4f}"
                f"{printed[0]:>9.4f}{columns['ours'][name][s]:>9.2f}"
                f"{columns['rerun'][name][s]:>9.2f}{printed[1]:>9.2f}"
            )
    return "\n".join(lines)


COLOURS = {"accuracy": "#333333", "acc0": "#999999", "mse": "#0072B2", "mse0": "#D55E00"}
LABELS = {"accuracy": "Acc", "acc0": "Acc$_0$", "mse": "MSE + ½", "mse0": "MSE$_0$ + ½"}


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Statistics of the Bayes classifier, and power of QDA."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(7.0, 2.9), layout="constrained")
    rows = [row for row in found if row["kind"] == "bayes"]
    columns = powers(found)
    for name, colour in COLOURS.items():
        up = 0.5 if "mse" in name else 0.0
        at = [row["s"] for row in rows]
        exact = [row["exact"][name] + up for row in rows]
        left.plot(at, exact, color=colour, lw=1.2, label=LABELS[name])
        left.plot(at, [r["statistic"][name] + up for r in rows], "o", color=colour, ms=3)
        for column, style in (("ours", "-"), ("rerun", "--")):
            curve = columns[column][name]
            # Colours are those of the left panel; the style tells the column.
            label = column if name == "mse0" else None
            right.plot(*zip(*curve.items(), strict=True), style, color=colour, lw=1.2, label=label)
    left.set(xlabel="s", ylabel="statistic", title="Bayes classifier")
    right.axhline(ALPHA, color="#333333", lw=0.8, ls=":")
    right.set(xlabel="s", ylabel="rejection rate", ylim=(-0.03, 1.03), title="QDA")
    left.legend(fontsize=7, frameon=False)
    right.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(0.3, 0.5))
    for ax in (left, right):
        ax.title.set_fontsize(9)
    save(figure, path)


FIG1 = Experiment(
    name="fig1",
    about="Statistics of the Bayes classifier and power of QDA where variances differ (Figure 1).",
    jobs=jobs,
    run=run,
    table=table,
    draw=draw,
)

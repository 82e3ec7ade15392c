"""Figure 4 and appendix D: where q is wrong at every gain, in pictures and in words."""

import textwrap
from concurrent.futures import Executor
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.figure import SubFigure
from torch import Tensor

import assay
from assay.local.lc2st import LC2STResult
from assay.plots import pp

from .fig3 import BUDGETS, score
from .jansen_rit import NAMES, SEED, Setting, file_name, observed
from .methods import DRAWS
from .pictures import colour_bar, save, triangle
from .runs import Context, Experiment, Job
from .tasks import JansenRit

__all__ = ["FIG4"]

# Gains of the figure, of which the paper has the last; all others are in the appendix.
SHOWN = (-20, 0, 10)
# Sentences on what is wrong, at most.
MOST = 4
# Draws of which nulls are kept: their curves need fewer than a pair plot does.
CURVE_DRAWS = 1000
# Inches: a column, the PP-plot with its legend, the pair plot, the words; and the bar of colours.
COLUMN, CURVE, PAIRS, WORDS, BAR = 3.7, 2.9, 3.9, 1.3, 0.8
HIGH = CURVE + PAIRS + WORDS + 0.3
LETTERS = 68


def jobs(budget: str) -> list[Job]:
    """One job for each gain."""
    given = BUDGETS[budget]
    rest = {k: v for k, v in given.items() if k not in ("gains", "drawn", "k")}
    return [{"gain": gain, **rest} for gain in given["drawn"]]


def prepare(todo: list[Job], context: Context, executor: Executor | None = None) -> None:
    """Trains the flow and the test."""
    Setting.of(todo[0], context).test(todo[0]["nulls"])


def run(job: Job, context: Context) -> dict[str, Any]:
    """What is wrong at one gain; what is drawn of it goes to files beside."""
    setting, there = Setting.of(job, context), observed([job["gain"]])
    draws = assay.Draws(there.x[0], n=job["draws"])
    result = setting.test(job["nulls"])(draws)
    found = {
        "made": setting.recipe.made,
        "truth": there.theta[0].tolist(),
        "statistic": _number(result.statistic),
        "pvalue": _number(result.pvalue),
        "null_high": _number(np.quantile(result.null, 0.975)),
        "curve_pvalue": _number(result.pp_curve().pvalue),
        "outside": _outside(result),
        "score_pvalue": score(setting, {**job, "gains": [job["gain"]]})["pvalue"][0],
        "wrong": _wrong(setting, there.x[0]),
    }
    return {**found, **_kept(result, job, context.folder)}


def _number(value: Any) -> float:
    return float(f"{float(value):.6g}")


def _outside(result: LC2STResult) -> float:
    """The share of draws of q outside the prior."""
    inside = JansenRit().prior.inside(torch.from_numpy(np.array(result.theta)))
    return _number(1 - inside.double().mean())


def _wrong(setting: Setting, x_o: Tensor) -> str:
    """What is wrong beyond its interval near the observation, the worst first."""
    (rows,) = assay.bounds(setting.sets(DRAWS), x_o, seed=SEED).wrong
    return "; ".join(row.sentence for row in rows[:MOST]) or "nothing beyond its interval"


def _kept(result: LC2STResult, job: Job, folder: Path) -> dict[str, str]:
    """Names of the files with what is drawn: a result with nulls, and one with all draws."""
    assert result.null_probabilities is not None
    assert result.theta is not None
    few = slice(CURVE_DRAWS)
    curve = replace(
        result,
        probabilities=result.probabilities[few],
        null_probabilities=result.null_probabilities[:, few],
        draws=result.draws[few],
        theta=result.theta[few],
    )
    parts = {"curve": curve, "pairs": replace(result, null_probabilities=None)}
    names = {f"{kind}_file": f"{file_name(kind, job)}.npz" for kind in parts}
    for part, name in zip(parts.values(), names.values(), strict=True):
        assay.save(part, folder / name)
    return names


def table(found: list[dict[str, Any]]) -> str:
    """At every gain: statistic, p-values, and what is wrong."""
    head = found[0]
    lines = [
        f"N_train {head['train']}, N_cal {head['pairs']}, {head['nulls']} nulls",
        f"{'gain':>5}{'statistic':>11}{'p':>8}{'p curve':>9}{'p score':>9}{'outside':>9}",
    ]
    for row in found:
        lines.append(
            f"{row['gain']:>5}{row['statistic']:>11.4f}{row['pvalue']:>8.3f}"
            f"{row['curve_pvalue']:>9.3f}{row['score_pvalue']:>9.3f}{row['outside']:>9.3f}"
        )
        lines.append(f"      {row['wrong']}")
    return "\n".join(lines)


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Three gains as in Figure 4, and all of them as in appendix D in a second file."""
    chosen = [row for row in found if row["gain"] in SHOWN]
    _grid(chosen or found[:3], path)
    _grid(found, path.with_name(f"{path.stem}_all{path.suffix}"))


def _grid(rows: list[dict[str, Any]], path: Path) -> None:
    """A block for each gain, three in a line, and one bar for all."""
    lines, columns = -(-len(rows) // 3), min(3, len(rows))
    with mpl.rc_context({"font.size": 8}):
        figure = plt.figure(figsize=(columns * COLUMN, lines * HIGH + BAR), layout="constrained")
        halves: Any = figure.subfigures(2, 1, height_ratios=(lines * HIGH, BAR))
        blocks = halves[0].subfigures(lines, columns, squeeze=False).ravel()
        for part, row in zip(blocks, rows, strict=False):
            mesh = _block(part, row, path.parent)
        colour_bar(halves[1], mesh)
        save(figure, path)


def _block(part: SubFigure, row: dict[str, Any], folder: Path) -> Any:
    """One gain: PP-plot, pair plot, and words."""
    title = f"gain {row['gain']}: statistic {row['statistic']:.3f}, p = {row['pvalue']:.3f}"
    part.suptitle(title, fontsize=9)
    parts: Any = part.subfigures(3, 1, height_ratios=(CURVE, PAIRS, WORDS))
    curve = parts[0].subplots()
    pp(assay.load(folder / row["curve_file"]), curve)
    curve.set_title("")
    found, prior = assay.load(folder / row["pairs_file"]), JansenRit().prior
    ends = np.stack([np.asarray(prior.low), np.asarray(prior.high)], 1)
    mesh = triangle(parts[1], found.theta, found.probabilities, row["truth"], ends, NAMES)
    parts[2].text(0.04, 0.95, textwrap.fill(row["wrong"], LETTERS), va="top", size=6.5)
    return mesh


FIG4 = Experiment(
    name="fig4",
    about="Where q is wrong at every gain, in pictures and words (Figure 4, appendix D).",
    jobs=jobs,
    run=run,
    table=table,
    draw=draw,
    prepare=prepare,
)

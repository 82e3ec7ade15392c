"""The tables of the reproduction's pages, from results and the authors' numbers: never by hand.

    python -m experiments.reproduction [--results results/paper] [--pages docs]

``reproduction.md`` has short tables (:mod:`experiments.summary`), ``reproduction_tables.md`` those
of every number. Each table stands between ``<!-- NAME -->`` and ``<!-- end -->``; what is between
them is written anew, the words around stay.
"""

import argparse
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np

from assay._support.files import atomic_write

from . import fig1, fig3, fig6, hpd, latents, table1, table2, why
from .authors import PAIRS, TRAINED, printed_rate, printed_statistic, published_numbers
from .fig2 import agreed, cells_of, per_flow, per_run, rates, relative
from .jansen_rit import NAMES as PARAMETERS
from .methods import METHODS
from .samples import SKLEARN
from .summary import SHORT, Rows, markdown

__all__ = ["BLOCKS", "main", "rewritten"]

PAGES = ("reproduction.md", "reproduction_tables.md")
MARK = re.compile(r"(<!-- ([\w, -]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)
# Values of s in the table of Figure 1.
SHOWN = (0.01, 0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.2, 1.5)


def _figure1(found: Rows) -> str:
    theirs, ours = published_numbers()["exp1"]["qda_power"], fig1.powers(found)
    shown = [s for s in SHOWN if s in ours["ours"]["mse"]]
    return markdown(
        ["power of QDA, s =", *map(str, shown)],
        [
            [f"{name}, {column}", *(f"{values(s):.2f}" for s in shown)]
            for name, key in fig1.SHOWN.items()
            for column, values in (
                ("printed", lambda s, key=key: theirs[key][fig1.GRID.index(s)]),
                ("rerun", lambda s, name=name: ours["rerun"][name][s]),
                ("ours", lambda s, name=name: ours["ours"][name][s]),
            )
        ],
    )


def _rate(found: Rows, **cell: Any) -> str:
    """A rate with its number of runs, and the printed one behind a slash."""
    rate, _, _, runs = rates(found, **cell)
    if not runs:
        return ""
    printed = printed_rate(cell)
    if printed is None:
        return f"{rate:.2f} ({runs})"
    # Printed levels are of other data, and local HPD in print is another test.
    judged = cell["method"].startswith("published") and not cell["right"]
    differs = judged and agreed(found, cell) is False
    return f"{rate:.2f} ({runs}) / {printed:.2f}{' †' if differs else ''}"


def _along(found: Rows, key: str, at: Sequence[int], **rest: Any) -> str:
    """Tables of all tasks: a line for each method, a column for each size."""
    text = ""
    for task in dict.fromkeys(row["task"] for row in found):
        here = [row for row in found if row["task"] == task]
        methods = [m for m in (*METHODS, *sorted({r["method"] for r in here} - METHODS.keys()))]
        lines = [
            [method, *(_rate(here, task=task, method=method, **rest, **{key: n}) for n in at)]
            for method in methods
        ]
        name = {"train": "N_train", "cal": "N_cal"}[key]
        head = [f"{task.replace('_', ' ')}, {name} =", *map(str, at)]
        kept = [line for line in lines if any(line[1:])]
        text += f"{markdown(head, kept)}\n" if kept else ""
    return text


def _figure2_train(found: Rows) -> str:
    return _along(found, "train", TRAINED, cal=10_000, right=False)


def _figure2_power(found: Rows) -> str:
    return _along(_swept(found), "cal", PAIRS, train=1000, right=False)


def _figure2_level(found: Rows) -> str:
    return _along(_swept(found), "cal", PAIRS, train=1000, right=True)


def _swept(found: Rows) -> Rows:
    """Tasks of which there is more than the largest calibration."""
    tasks = {row["task"] for row in found if row["cal"] < max(PAIRS)}
    return [row for row in found if row["task"] in tasks]


def _agreement(found: Rows) -> str:
    """How many powers of the published column agree with the printed ones, and mean powers."""
    some = [r for r in found if r["method"].startswith("published")]
    wrong = [r for r in some if r["pvalue"] and not r["right"]]
    groups: dict[str, list[tuple[bool | None, float, float]]] = {}
    for cell in cells_of(wrong):
        printed = printed_rate(cell)
        if printed is not None:
            mean = float(per_run(found, **cell).mean())
            groups.setdefault(cell["method"], []).append((agreed(found, cell), mean, printed))
    lines = [[method, *_compared(some)] for method, some in groups.items()]
    lines.append(["all", *_compared([cell for some in groups.values() for cell in some])])
    head = ["power as published", "cells", "of which judged", "that agree", "mean", "printed"]
    return markdown(head, lines)


def _compared(cells: list[tuple[bool | None, float, float]]) -> list[str]:
    same, ours, theirs = zip(*cells, strict=True)
    judged = [one for one in same if one is not None]
    counts = len(cells), len(judged), sum(judged)
    return [*map(str, counts), f"{np.mean(ours):.3f}", f"{np.mean(theirs):.3f}"]


def _relative(found: Rows) -> str:
    """Mean power over tasks and N_train at N_cal = 10 000, in all and over the oracle's."""
    return markdown(
        ["mean over tasks and N_train", "runs in a cell", "power", "over the oracle's"],
        [[name, runs, f"{mean:.3f}", f"{over:.2f}"] for name, mean, runs, over in relative(found)],
    )


def _retrained(found: Rows) -> str:
    """Rates of informative cells on flows of sbi, beside the printed ones, and by flow; levels."""
    lines = []
    order = itemgetter("right", "task", "method", "train", "cal")
    for cell in sorted(cells_of(found), key=order):
        kind = "level" if cell["right"] else "power"
        where = [kind, cell["task"].replace("_", " "), cell["method"].removeprefix("published ")]
        flows = ", ".join(f"{each.mean():.2f}" for each in per_flow(found, **cell))
        lines.append([*where, str(cell["train"]), str(cell["cal"]), _rate(found, **cell), flows])
    return markdown(["", "task", "rerun", "N_train", "N_cal", "all flows", "each flow"], lines)


def _hpd(found: Rows) -> str:
    """Rates of local HPD as published, beside the printed ones where q is wrong."""
    lines = []
    for cell in cells_of(found):
        printed = hpd.printed(cell)
        rate, _, _, runs = rates(found, **cell)
        beside = "" if printed is None else f" / {printed:.2f}"
        kind = "level" if cell["right"] else "power"
        where = [cell["task"].replace("_", " "), kind, str(cell["train"]), str(cell["cal"])]
        lines.append([*where, f"{rate:.2f} ({runs}){beside}"])
    return markdown(["task", "", "N_train", "N_cal", "local HPD, rerun"], lines)


def _levels(found: Rows) -> str:
    """Rejection rates where q is right, over all cells, by method."""
    right = [row for row in found if row["right"]]
    lines = []
    for method in dict.fromkeys(row["method"] for row in right):
        rate, low, high, runs = rates(right, method=method)
        lines.append([method, str(runs), f"{rate:.3f}", f"[{low:.3f}, {high:.3f}]"])
    return markdown(["where q is right", "runs", "rejected at 0.05", "95 % interval"], lines)


def _samples(found: Rows) -> str:
    return _along(
        [row for row in found if row["train"] == 1000 and row["method"] != SKLEARN],
        "cal",
        PAIRS,
        train=1000,
        right=False,
    )


def _samples_whole(found: Rows) -> str:
    """Rates and mean statistics on all of the authors' pairs, beside their own of that run."""
    whole = [row for row in found if row["cal"] == 10_000]
    lines = []
    for task, train in dict.fromkeys((r["task"], r["train"]) for r in whole):
        for method in ("published L-C2ST", "published L-C2ST-NF", SKLEARN):
            rows = [
                r for r in whole if (r["task"], r["train"], r["method"]) == (task, train, method)
            ]
            if not rows:
                continue
            theirs = printed_statistic(rows[0])
            mean = np.mean([r["statistic"] for r in rows])
            rate = f"{rates(rows)[0]:.1f}" if rows[0]["pvalue"] else ""
            key = {"published L-C2ST": "lc2st"}.get(method, "lc2st_nf")
            numbers = published_numbers()["exp2"][task]["vs_n_train"][key]["TPR"]["mse"]
            single = f"{numbers[TRAINED.index(train)]:.1f}" if rate else ""
            statistic = [f"{mean:.4f}", "" if theirs is None else f"{theirs:.4f}"]
            lines.append([task.replace("_", " "), str(train), method, *statistic, rate, single])
    head = ["task", "N_train", "method", "statistic", "theirs", "rejected", "theirs, this run"]
    return markdown(head, lines)


def _samples_ours(found: Rows) -> str:
    whole = [row for row in found if row["method"] != SKLEARN]
    return _along(whole, "train", TRAINED, cal=10_000, right=False)


def _along_gains(rows: Rows) -> str:
    """Statistics and p-values over the gain."""
    gains, lines = rows[0]["gains"], []
    for row in rows:
        along = f"{fig3.u_shape(gains, row['statistic']):+.2f}"
        values = (f"{v:.3g}" for v in row["statistic"])
        lines.append([f"{row['method']}, statistic", *values, along])
        if "pvalue" in row:
            lines.append([f"{row['method']}, p", *(f"{v:.3f}" for v in row["pvalue"]), ""])
    return markdown(["gain", *map(str, gains), "rank correlation with \\|gain\\|"], lines)


def _figure3(found: Rows) -> str:
    return _along_gains([row for row in found if "statistic" in row])


def _latents(found: Rows) -> str:
    alone = [row for row in found if row["method"] == latents.SKLEARN]
    return _along_gains([*latents.joined(found), *alone])


def _global(rows: Iterable[tuple[str, float, float]]) -> str:
    lines = [[name, f"{far:.4f}", f"{p:.2g}"] for name, far, p in rows]
    return markdown(["over all x", "largest distance", "p"], lines)


def _figure3_global(found: Rows) -> str:
    whole = next(row for row in found if row["method"] == fig3.GLOBAL)
    return _global(zip(whole["names"], whole["distance"], whole["pvalue"], strict=True))


def _latents_global(found: Rows) -> str:
    names = (*PARAMETERS, "HPD")
    return _global((name, *pair) for name, pair in zip(names, fig3.paper_overall(), strict=True))


def _figure4(found: Rows) -> str:
    lines = [[str(r["gain"]), f"{r['pvalue']:.3f}", f"{100 * r['outside']:.0f} %"] for r in found]
    return markdown(["gain", "p", "q outside the prior"], lines)


def _table3(found: Rows) -> str:
    """Correlations over the joint's observations, with signs, beside the printed p-values."""
    lines = []
    for row in found:
        if row["places"] != "joint":
            continue
        cells = [row["task"].replace("_", " "), str(row["train"])]
        for method in fig6.THEIRS:
            theirs = fig6.printed(row, method)
            mine = _correlation(row, method, "published C2ST")
            r = theirs.get("pearson_r")
            mark = "" if r is None or fig6.alike(row, method, theirs) else " †"
            cells += [f"{mine}{mark}", "-" if r is None else f"{r:+.2f}"]
            cells.append(str(theirs.get("table3", "")))
        cells += [_correlation(row, m, "Bayes") for m in ("L-C2ST", "L-C2ST-NF")]
        lines.append(cells)
    head = ["task", "N_train"]
    for name in ("L-C2ST", "L-C2ST-NF"):
        head += [f"{name} as published, r (p)", "their r", "their p, printed"]
    head += [f"{m}, r (p) with Bayes" for m in ("L-C2ST", "L-C2ST-NF")]
    return markdown(head, lines)


def _correlation(row: dict[str, Any], method: str, oracle: str) -> str:
    for c in row["correlation"]:
        if (c["method"], c["oracle"]) == (method, oracle) and c["pearson_r"] is not None:
            return f"{c['pearson_r']:+.2f} ({c['pearson_p']:.1g})"
    return "-"


def _table1(found: Rows) -> str:
    numbers = published_numbers()["table1_printed_runtime_slcp"]
    sizes = sorted({row["cal"] for row in found})
    lines = []
    for method in dict.fromkeys(row["method"] for row in found):
        cells = [method]
        for cal in sizes:
            for part in ("samples", "without", "with"):
                values = table1.medians(found, cal, part)[method]
                cells.append(_seconds(next(iter(values.values()))[0]))
        lines.append(cells)
    for name, key in table1.PRINTED.items():
        at = TRAINED.index(found[0]["train"])
        cells = [f"printed {name} (their machine)"]
        for cal in sizes:
            cells += ["", _seconds(numbers[f"n_cal_{cal}"][key][at]), ""]
        lines.append(cells)
    head = ["seconds"]
    for cal in sizes:
        head += [f"N_cal {cal}: draws", "no nulls", f"{found[0]['nulls']} nulls"]
    return markdown(head, lines)


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.2g}"


def _table2(found: Rows) -> str:
    """The tasks and their best tests, with power and level."""
    ((only,), names) = found, [name for name in table2.GROUPS if name != "oracle"]
    lines = []
    for row in only["tasks"]:
        cells = [row["task"].replace("_", " "), f"{row['m']}, {row['d']}", row["posterior"]]
        each = (row[name] for name in names)
        lines.append([*cells, str(row["cells"]), row["printed"], *map(_best, each)])
    head = ["task", "m, d", "posterior", "cells", "best in print", *(f"best {n}" for n in names)]
    return markdown(head, lines)


def _best(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    level = "" if found["level"] is None else f", level {found['level']:.2f}"
    names = ", ".join([found["method"], *found["alike"]]).replace("published ", "")
    return f"{names}: {found['power']:.2f}{level}"


def _permutation(found: Rows) -> str:
    """Rates of the published test in parameters with either null."""
    some = [row for row in found if row["question"] == why.PERMUTATION]
    sizes = sorted({row["cal"] for row in some})
    lines = []
    for task, right, null in product(
        dict.fromkeys(row["task"] for row in some), (False, True), why.NULLS
    ):
        each = [rates(some, task=task, right=right, null=null, cal=n) for n in sizes]
        name = f"{task.replace('_', ' ')}, {'level' if right else 'power'}"
        lines.append([name, null, *(f"{rate:.2f} ({runs})" for rate, _, _, runs in each)])
    return markdown(["L-C2ST as published", "permuted", *(f"N_cal {n}" for n in sizes)], lines)


def _outside(found: Rows) -> str:
    """The share of q outside the prior, and how much of the Bayes MSE is owed to it."""
    lines = []
    for row in found:
        if row["question"] == why.OUTSIDE:
            share, whole, truncated = why.means(row)
            owed = f"{100 * (1 - truncated / whole):.0f} %"
            cells = [row["task"].replace("_", " "), str(row["train"]), f"{100 * share:.1f} %"]
            lines.append([*cells, f"{whole:.4f}", f"{truncated:.4f}", owed])
    return markdown(
        ["task", "N_train", "outside", "MSE of q", "of q truncated", "owed to mass outside"], lines
    )


def _smoke(found: Rows) -> str:
    """How long the small budget took, and that it went on after a kill."""
    (run,) = found
    minutes = (run["killed after"] + run["rest"]) / 60
    cores = f"{run['workers']} process{'es' * (run['workers'] > 1)} on two cores"
    return (
        f"At the small budget {run['jobs']} jobs took {minutes:.0f} minutes in {cores}, beside "
        f"other work. The run was killed after {run['killed after']} s, with {run['kept']} jobs "
        "done, and went on with the others (`benchmarks/smoke.py`).\n"
    )


# Tables by their names on the pages: the experiments, and what makes it of their results.
BLOCKS: dict[str, tuple[str, Callable[..., str]]] = {
    **SHORT,
    "figure 1": ("fig1", _figure1),
    "figure 2 train": ("fig2", _figure2_train),
    "figure 2 power": ("fig2", _figure2_power),
    "figure 2 level": ("fig2", _figure2_level),
    "agreement": ("fig2", _agreement),
    "relative": ("fig2", _relative),
    "levels": ("fig2", _levels),
    "retrained": ("retrained", _retrained),
    "local hpd": ("hpd", _hpd),
    "samples": ("samples", _samples),
    "samples whole": ("samples", _samples_whole),
    "samples ours": ("samples", _samples_ours),
    "samples agreement": ("samples", _agreement),
    "figure 3": ("fig3", _figure3),
    "figure 3 global": ("fig3", _figure3_global),
    "latents": ("latents", _latents),
    "latents global": ("latents", _latents_global),
    "figure 4": ("fig4", _figure4),
    "table 3": ("fig6", _table3),
    "table 1": ("table1", _table1),
    "table 2": ("table2", _table2),
    "smoke": ("smoke", _smoke),
    "permutation": ("why", _permutation),
    "outside": ("why", _outside),
}


def rewritten(text: str, folder: Path) -> str:
    """A page with all its tables made anew.

    Args:
        text: The page.
        folder: Where results are.
    """
    names = {name for experiments in _named(text) for name in experiments.split()}
    results = {name: _results(folder / f"{name}.json") for name in names}

    def made(found: re.Match[str]) -> str:
        experiments, make = BLOCKS[found[2]]
        return f"{found[1]}{make(*(results[name] for name in experiments.split()))}{found[4]}"

    return MARK.sub(made, text)


def _named(text: str) -> Iterator[str]:
    for found in MARK.finditer(text):
        if found[2] not in BLOCKS:
            raise ValueError(f"page: expected a table of {', '.join(BLOCKS)}, got {found[2]}")
        yield BLOCKS[found[2]][0]


def _results(path: Path) -> Rows:
    found: Rows = json.loads(path.read_text(encoding="utf-8"))["results"]
    return found


def main(arguments: list[str] | None = None) -> None:
    """Writes the tables of both pages anew."""
    parser = argparse.ArgumentParser(prog="python -m experiments.reproduction")
    parser.add_argument("--results", type=Path, default=Path("results/paper"))
    parser.add_argument("--pages", type=Path, default=Path("docs"), help="their folder")
    given = parser.parse_args(arguments)
    if not published_numbers():
        parser.error("expected the authors' numbers in ../shared/data/paper")
    for name in PAGES:
        page = given.pages / name
        text = rewritten(page.read_text(encoding="utf-8"), given.results)
        with atomic_write(page) as file:
            file.write(text.encode())


if __name__ == "__main__":
    main()

"""The short tables of docs/reproduction.md: what was claimed, what was run, and what was found.

A claim of the paper *holds* where a stated number of the rerun says so, *holds in part* where it
does somewhere, and else *does not hold*; the rule stands in the function that makes the number.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from . import exceptions, fig1, fig3, fig6, latents, table1, table2
from .authors import (
    ASIDE,
    PAIRS,
    RUNS,
    TRAINED,
    Difference,
    informative,
    printed_rate,
    published_numbers,
)
from .beyond import needed
from .fig2 import ALPHA, agreed, cells_of, compared, per_flow, per_run, rates
from .jansen_rit import NAMES as PARAMETERS

__all__ = ["SHORT", "Rows", "markdown", "power"]

Rows = list[dict[str, Any]]
L, NF, ORACLE = "published L-C2ST", "published L-C2ST-NF", "published C2ST"
MOST, FIXED, TASKS = max(PAIRS), 1000, 6
VERDICTS = ("holds", "holds in part", "does not hold")


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def power(found: Rows, method: str) -> dict[tuple[str, int], float]:
    """Rates where q is wrong, with all pairs, by task and N_train; Gaussian Mixture aside."""
    some = [
        r
        for r in found
        if r["method"] == method and r["cal"] == MOST and not r["right"] and r["task"] != ASIDE
    ]
    cells = dict.fromkeys((r["task"], r["train"]) for r in some)
    return {(t, n): float(per_run(some, task=t, train=n).mean()) for t, n in cells}


def _printed(cells: Iterable[tuple[str, int]], method: str) -> float:
    """The mean of printed powers over the same cells."""
    each = [
        printed_rate({"task": t, "train": n, "cal": MOST, "right": False, "method": method})
        for t, n in cells
    ]
    return float(np.mean([v for v in each if v is not None]))


def _verdict(whole: Any, some: Any) -> str:
    return VERDICTS[0 if whole else 1 if some else 2]


Claim = tuple[str, str]


def _single_class(found: Rows) -> Claim:
    """As much power as with both classes, within 0.05; accuracy has 0.2 less."""
    columns = fig1.powers(found)["rerun"]
    mean = {k: np.mean([v for s, v in columns[k].items() if s != 1]) for k in fig1.SHOWN}
    one, two, accuracy = mean["mse0"], mean["mse"], mean["acc0"]
    whole = one >= two - 0.05 and accuracy < one - 0.2
    said = f"mean power of MSE₀ {one:.2f}, of MSE {two:.2f}, of one-class accuracy {accuracy:.2f}"
    return _verdict(whole, one >= two - 0.05), said


def _falls(found: Rows) -> Claim:
    """Every curve falls at every step; or nine of ten steps do."""
    curves, steps = [], []
    for task in dict.fromkeys(r["task"] for r in found):
        for method in (L, NF):
            some = [r for r in found if (r["task"], r["method"]) == (task, method)]
            here = [r for r in some if r["cal"] == MOST and not r["right"]]
            means = [
                np.mean([r["statistic"] for r in here if r["train"] == n])
                for n in sorted({r["train"] for r in here})
            ]
            steps += list(np.diff(means) < 0)
            curves.append(bool((np.diff(means) < 0).all()))
    counts = sum(curves), len(curves), sum(steps), len(steps)
    said = "{} of {} curves (five tasks, two tests) fall throughout, at {} of {} steps"
    said = said.format(*counts)
    return _verdict(all(curves), float(np.mean(steps)) >= 0.9), said


def _latents_better(samples: Rows, retrained: Rows) -> Claim:
    """At least the power of L-C2ST in all cells where either is informative, or in most."""
    said, every = [], []
    for name, found in (("their samples", samples), ("sbi's flows", retrained)):
        better, print_better = [], []
        for cell in _cells(found, (NF,)):
            pair = [{**cell, "method": method} for method in (L, NF)]
            printed = [printed_rate(c) for c in pair]
            each = [per_run(found, **c) for c in pair]
            if not any(map(informative, printed)) or not len(each[0]):
                continue
            better.append(each[1].mean() >= each[0].mean())
            print_better.append((printed[1] or 0) >= (printed[0] or 0))
        said.append(f"{sum(better)} of {len(better)} on {name}, in print in {sum(print_better)}")
        every += better
    words = f"as much power or more, in cells in which either is informative: {'; '.join(said)}"
    return _verdict(all(every), float(np.mean(every)) > 0.5), words


def _like_the_oracle(found: Rows) -> Claim:
    """At least 0.9 of the oracle's mean power; or 0.6 for one of the two."""
    shares: list[list[float]] = []
    for method in (L, NF):
        mine, best = power(found, method), power(found, ORACLE)
        both = [cell for cell in mine if cell in best]
        shares.append(
            [
                sum(mine[c] for c in both) / sum(best[c] for c in both),
                _printed(both, method) / _printed(both, ORACLE),
            ]
        )
    (plain, print_plain), (latent, print_latent) = shares
    said = (
        f"{plain:.2f} of the oracle's mean power, {latent:.2f} with -NF; "
        f"in print {print_plain:.2f} and {print_latent:.2f}"
    )
    return _verdict(min(plain, latent) >= 0.9, max(plain, latent) >= 0.6), said


def _level(found: Rows) -> Claim:
    """No interval of a mean, nor of a cell, lies above 6/101; or none of a mean does."""
    nominal, right = 6 / 101, [r for r in found if r["right"]]
    whole, cells = [], []
    for method in (L, NF):
        some = [r for r in right if r["method"] == method]
        whole.append(rates(some))
        places = dict.fromkeys((r["task"], r["cal"]) for r in some)
        cells += [rates(some, task=t, cal=n) for t, n in places]
    means = [found[1] <= nominal for found in whole]
    said = (
        f"{whole[0][0]:.3f} and {whole[1][0]:.3f} with -NF over {whole[0][3]} runs each of two "
        f"tasks; at most {max(c[0] for c in cells):.2f} in a cell of {min(c[3] for c in cells)}"
    )
    return _verdict(all(means) and all(c[1] <= nominal for c in cells), all(means)), said


def _full_power(samples: Rows) -> Claim:
    """At least 0.95 on their samples; or 0.8."""
    cell = {"task": "two_moons", "train": FIXED, "cal": 2000, "right": False, "method": NF}
    rate, _, _, runs = rates(samples, **cell)
    said = f"power {rate:.2f} ({runs} runs) on their samples, {printed_rate(cell):.2f} in print"
    return _verdict(rate >= 0.95, rate >= 0.8), said


def _above_hpd(found: Rows, again: Rows) -> Claim:
    """Both above local HPD on every task, in print; or one of them on average."""
    cells = list(power(found, L))
    tasks = list(dict.fromkeys(t for t, _ in cells))
    means = [_printed(cells, m) for m in (L, NF, "local HPD")]
    above = sum(
        min(_printed(some, m) for m in (L, NF)) >= _printed(some, "local HPD")
        for task in tasks
        for some in [[c for c in cells if c[0] == task]]
    )
    closed = np.mean(list(power(found, "local HPD").values()))
    said = (
        f"printed power {means[0]:.2f} and {means[1]:.2f} with -NF against {means[2]:.2f}; both "
        f"above on {above} of {len(tasks)} tasks. In closed form local HPD has {closed:.2f}; "
        f"rerun on Two Moons {_rerun_hpd(again)}"
    )
    return _verdict(above == len(tasks), max(means[:2]) > means[2]), said


def _rerun_hpd(found: Rows) -> str:
    """Mean powers of local HPD as published with all pairs, beside print over the same cells."""
    cells = [c for c in cells_of(found) if not c["right"] and c["cal"] == MOST]
    cells = [c for c in cells if c["task"] == "two_moons"]
    mean = np.mean([rates(found, **cell)[0] for cell in cells])
    printed = _printed([(c["task"], c["train"]) for c in cells], "local HPD")
    return f"{mean:.2f}, printed {printed:.2f}"


def _cheaper(found: Rows) -> Claim:
    """Draws and one fit take less than a tenth of the time; or less time."""
    rows = {row["method"]: row for row in found if row["cal"] == MOST}
    names = [f"{m}, scikit-learn" for m in (L, NF, "published local HPD")]
    (plain, latent, hpd), whole = (
        [rows[name]["samples"] + rows[name][part] for name in names]
        for part in ("without", "with")
    )
    said = (
        f"a statistic: {plain:.0f} s and {latent:.0f} s with -NF against {hpd:.0f} s; with 100 "
        "nulls: {:.0f} s and {:.0f} s against {:.0f} s".format(*whole)
    )
    return _verdict(max(plain, latent) < hpd / 10, max(plain, latent) < hpd), said


def _nine(found: Rows) -> Claim:
    """Nine rejections, and a rank correlation with gain's size over 0.5, in both; or in one."""
    rows = {row["method"]: row for row in latents.joined(found)}
    counts = {name: _rejected(row) for name, row in rows.items()}
    again = rows.get(latents.RERUN)
    rerun = "no rerun"
    if again:
        nulls = f"{again['nulls']} nulls"
        rerun = f"{counts[latents.RERUN]} in the rerun ({nulls}, {_shape(again):+.2f})"
    theirs = f"{counts[latents.THEIRS]} of 9 as they ran it"
    said = f"{theirs} (rank correlation with |gain| {_shape(rows[latents.THEIRS]):+.2f}), {rerun}"
    said = said.replace("|", "\\|")
    both = [name for name in (latents.THEIRS, latents.RERUN) if name in counts]
    each = [counts[name] == 9 and _shape(rows[name]) > 0.5 for name in both]
    return _verdict(all(each) and bool(again), any(each)), said


def _shape(row: dict[str, Any]) -> float:
    return float(fig3.u_shape(row["gains"], row["statistic"]))


def _rejected(row: dict[str, Any]) -> int:
    return sum(p <= ALPHA + 1e-9 for p in row["pvalue"])


def _sbc_silent(found: Rows) -> Claim:
    """No p-value of their ranks (Kolmogorov and Smirnov) is below 0.05; there is no part of it."""
    p = dict(zip(PARAMETERS, published_numbers()["exp3_jrnmm"]["sbc"]["ks_p"], strict=True))
    named = [f"{name} {value:.2g}" for name, value in p.items()]
    said = f"p-values of their own ranks: {', '.join(named)}"
    return _verdict(min(p.values()) > ALPHA, min(p.values()) > ALPHA), said


# In the words of the paper, shortened; the results that each is judged by.
CLAIMS: tuple[tuple[str, str, Callable[..., Claim]], ...] = (
    (
        "One class is enough for the MSE, and not for the accuracy (Fig. 1)",
        "fig1",
        _single_class,
    ),
    ("Statistics fall as N_train grows (Fig. 2, column 1)", "fig2", _falls),
    ("L-C2ST-NF is uniformly better than L-C2ST (Fig. 2)", "samples retrained", _latents_better),
    ("Local tests are comparable to the oracle C2ST (abstract)", "fig2", _like_the_oracle),
    ("Type I errors are controlled at 0.05 (Fig. 2, column 4)", "retrained", _level),
    (
        "On Two Moons L-C2ST-NF has full power from N_cal = 2000 (Fig. 2, column 3)",
        "samples",
        _full_power,
    ),
    ("Both outperform local HPD (abstract)", "fig2 hpd", _above_hpd),
    ("Both are cheaper than local HPD (Table 1)", "table1", _cheaper),
    (
        "Jansen-Rit: L-C2ST-NF rejects at all nine gains, with larger statistics far from zero "
        "(Fig. 3)",
        "latents",
        _nine,
    ),
    ("Jansen-Rit: SBC is unable to detect any inconsistency (Fig. 3)", "latents", _sbc_silent),
)


def _claims(**results: Rows) -> str:
    lines = []
    for i, (claim, needs, judge) in enumerate(CLAIMS, 1):
        verdict, said = judge(*(results[name] for name in needs.split()))
        lines.append([str(i), claim, f"**{verdict}**", said])
    return markdown(["", "the paper says", "it", "by this number"], lines)


def _rules(*results: Rows) -> str:
    """By which rule each claim was judged."""
    lines = [[str(i), claim, judge.__doc__ or ""] for i, (claim, _, judge) in enumerate(CLAIMS, 1)]
    return markdown(["", "the paper says", "it holds if, or in part if"], lines)


def _coverage(
    fig1: Rows,
    fig2: Rows,
    latents_: Rows,
    table1: Rows,
    fig6: Rows,
    retrained: Rows,
    hpd_: Rows,
) -> str:
    """Runs in cells of Figures 2 and 5, and what else the paper has, beside what was done."""
    budget = TASKS * (len(TRAINED) + 2 * len(PAIRS) - 1) * RUNS
    lines = [
        (f"Figures 2, 5: runs of {name.removeprefix('published ')}, over cells", budget, done)
        for name in (ORACLE, L, NF)
        for done in [sum(r["method"] == name for r in (*fig2, *retrained))]
    ]
    lines.append(("Figures 2, 5: runs of local HPD as published", budget, len(hpd_)))
    lines.append(("Figure 1: runs", 1600, sum(r["kind"] == "power" for r in fig1)))
    nulls = sum(len(r["null"][0]) for r in latents_ if r["method"] == latents.RERUN)
    lines.append(("Figure 3: nulls, on their latents", 1000, nulls))
    lines.append(("Table 1: columns", 8, len({(r["train"], r["cal"]) for r in table1})))
    flows = {(r["task"], r["train"]) for r in fig6}
    lines.append(("Figure 6, Table 3: flows", TASKS * len(TRAINED), len(flows)))
    cells = [[name, str(n), str(done), f"{100 * done / n:.1f} %"] for name, n, done in lines]
    return markdown(["what", "in the paper", "rerun", "share"], cells)


def _cells(found: Rows, methods: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Cells of Figures 2 and 5 in which q is wrong, by method."""
    some = [r for r in found if r["method"] in methods and r["task"] != ASIDE]
    yield from cells_of([r for r in some if r["pvalue"] and not r["right"]])


def _agreement(samples: Rows, fig2: Rows, retrained: Rows) -> str:
    """How many informative cells agree, and how far rates are from printed ones."""
    lines, counted = [], []
    for name, found in _places(samples, fig2, retrained):
        each = {method: list(_judged(found, (method,))) for method in (ORACLE, L, NF)}
        every = [cell for some in each.values() for cell in some]
        for method, cells in [*each.items(), ("all", every)]:
            if cells:
                lines.append([f"{name}, {method.removeprefix('published ')}", *_counts(cells)])
        judged = [d.agrees for d, *_ in every if d is not None]
        if judged:
            counted.append(f"{sum(judged)} of {len(judged)} on {name}")
    head = ["informative cells", "cells", "judged", "agree", "share"]
    head += ["mean absolute difference of judged", "mean half-width of the interval"]
    return f"{markdown(head, lines)}\n**Of judged cells agree: {', '.join(counted)}.**\n"


Cell = tuple[Difference | None, float, float]


def _counts(cells: list[Cell]) -> list[str]:
    """How many cells there are, are judged and agree; of the judged, how far rates are and may."""
    judged = [(d, abs(rate - printed)) for d, rate, printed in cells if d is not None]
    counts = [str(len(cells)), str(len(judged))]
    if not judged:
        return [*counts, "0", "-", "-", "-"]
    agree = sum(d.agrees for d, _ in judged)
    far, half = np.mean([size for _, size in judged]), np.mean([d.half for d, _ in judged])
    share = f"{100 * agree / len(judged):.0f} %"
    return [*counts, str(agree), share, f"{far:.2f}", f"{half:.2f}"]


def _places(samples: Rows, fig2: Rows, retrained: Rows) -> list[tuple[str, Rows]]:
    """Whose draws were tested, and what was found there.

    On zuko's flow all runs of L-C2ST-NF have the same base draws of class 0, so that they are no
    sample of runs, and are not judged.
    """
    alone = [row for row in fig2 if row["method"] != NF]
    return [("their samples", samples), ("zuko's flow, older", alone), ("sbi's flows", retrained)]


def _judged(found: Rows, methods: Sequence[str]) -> Iterator[Cell]:
    for cell in _cells(found, methods):
        printed = printed_rate(cell)
        if printed is not None and informative(printed):
            yield compared(found, cell), float(per_run(found, **cell).mean()), printed


def _exceptions(samples: Rows, fig2: Rows, retrained: Rows, found: Rows) -> str:
    """Informative cells in which a rate differs from the printed one, wherever it does."""
    places = _places(samples, fig2, retrained)
    lines = []
    for cell in _differing(places):
        printed = printed_rate(cell)
        said = f"{cell['method'].removeprefix('published ')}, {cell['task'].replace('_', ' ')}"
        each = [_on_samples(cell, samples, found)]
        each += [_marked(rows, cell) for _, rows in places[1:]]
        sizes = f"{cell['train']}, {cell['cal']}"
        lines.append([said, sizes, f"{printed:.2f}", *each])
    head = ["test", "N_train, N_cal", "printed", *(name for name, _ in places)]
    return markdown(head, lines)


def _differing(places: list[tuple[str, Rows]]) -> list[dict[str, Any]]:
    """Informative cells that differ from print somewhere, each once."""
    found = []
    for _, rows in places:
        for cell in _cells(rows, (ORACLE, L, NF)):
            printed = printed_rate(cell)
            if informative(printed) and cell not in found and agreed(rows, cell) is False:
                found.append(cell)
    return found


def _marked(rows: Rows, cell: dict[str, Any]) -> str:
    """A rate with its runs and what it is on single flows, marked where it differs from print."""
    each, flows = per_run(rows, **cell), [one.mean() for one in per_flow(rows, **cell)]
    if not len(each):
        return "-"
    over = f", {min(flows):.2f} to {max(flows):.2f} over {len(flows)} flows" if flows else ""
    mark = " †" if agreed(rows, cell) is False else ""
    return f"{each.mean():.2f} ({len(each)}{over}){mark}"


def _on_samples(cell: dict[str, Any], samples: Rows, found: Rows) -> str:
    """The rate of a cell on their samples; of the oracle, with a null made once."""
    if cell["method"] != ORACLE:
        return _marked(samples, cell)
    some = [r for r in found if r["question"] == exceptions.ONCE and r["null"] != "its own"]
    return _plain_rate(some, task=cell["task"], cal=cell["cal"])


def _states(samples: Rows, found: Rows) -> str:
    """Rates on their samples by networks with other random states, and by scikit-learn's own."""
    some = [r for r in found if r["question"] == exceptions.STATE]
    own = [r for r in found if r["question"] == exceptions.ORIGINAL]
    states, lines = sorted({r["state"] for r in some}), []
    for cell in cells_of(some):
        name = f"{cell['method'].removeprefix('published ')}, {cell['task'].replace('_', ' ')}"
        each = [_rate(samples, cell)]
        each += [_plain_rate(some, state=state, **cell) for state in states]
        lines.append([f"{name}, {cell['cal']} pairs", *each, _original(samples, own, cell)])
    head = [f"random state {state}" for state in (0, *states)]
    return markdown(["on their samples", *head, "scikit-learn's networks, and ours"], lines)


def _original(samples: Rows, own: Rows, cell: dict[str, Any]) -> str:
    """The rate by scikit-learn's networks, and by the stack in the same runs."""
    runs = {r["run"] for r in own if all(r[k] == v for k, v in cell.items())}
    same = [r for r in samples if r["run"] in runs]
    if not runs:
        return ""
    return f"{rates(own, **cell)[0]:.2f}, {rates(same, **cell)[0]:.2f} ({len(runs)})"


def _plain_rate(found: Rows, **chosen: Any) -> str:
    rate, _, _, runs = rates(found, **chosen)
    return f"{rate:.2f} ({runs})" if runs else "-"


FIGURE1 = (0.2, 0.5, 0.8, 0.9, 1.0, 1.1, 1.2)


def _figure1(found: Rows) -> str:
    theirs, ours = published_numbers()["exp1"]["qda_power"], fig1.powers(found)["rerun"]
    lines = []
    for name, key in fig1.SHOWN.items():
        printed = [theirs[key][fig1.GRID.index(s)] for s in FIGURE1]
        lines.append([f"{name}, printed", *(f"{v:.2f}" for v in printed)])
        lines.append([f"{name}, rerun", *(f"{ours[name][s]:.2f}" for s in FIGURE1)])
    return markdown(["power of QDA, s =", *map(str, FIGURE1)], lines)


def _figure2(found: Rows) -> str:
    """Mean powers with all pairs: printed, rerun and ours, over the same cells."""
    lines = []
    for name in ("C2ST", "L-C2ST", "L-C2ST-NF", "local HPD", "Ridge-NF", "score-NF"):
        again, ours = power(found, f"published {name}"), power(found, name)
        if not ours:
            continue
        key = "local HPD" if name == "local HPD" else f"published {name}"
        cells = list(again or ours)
        known = key in (ORACLE, L, NF, "local HPD")
        printed = f"{_printed(cells, key):.2f}" if known else ""
        rerun = f"{np.mean(list(again.values())):.2f}" if again else ""
        mean = f"{np.mean(list(ours.values())):.2f}"
        lines.append([name, str(len(cells)), printed, rerun, mean])
    return markdown(["mean power, N_cal = 10 000", "cells", "printed", "rerun", "ours"], lines)


def _samples(found: Rows) -> str:
    """Power against N_cal on their samples, at N_train = 1000."""
    lines = []
    for task in dict.fromkeys(r["task"] for r in found):
        for method in (L, NF, "L-C2ST-NF", "score-NF"):
            cells = [
                {"task": task, "train": FIXED, "cal": n, "right": False, "method": method}
                for n in PAIRS
            ]
            name = method.replace("published ", "rerun ")
            name = name if name != method else f"our {method}"
            lines.append([f"{task.replace('_', ' ')}, {name}", *(_rate(found, c) for c in cells)])
    return markdown(["power, N_cal =", *map(str, PAIRS)], lines)


# Tests whose pairs are counted, as they are called on the page; the printed rate of a rerun is
# that of its method.
COUNTED = {
    "printed L-C2ST": L,
    "printed L-C2ST-NF": NF,
    "rerun L-C2ST": L,
    "rerun L-C2ST-NF": NF,
    "our L-C2ST-NF": "L-C2ST-NF",
    "our score-NF": "score-NF",
    "our score": "score",
}


def _pairs(found: Rows) -> str:
    """Pairs at which power reaches 0.8 on their samples, and how many times fewer than printed."""
    tasks = list(dict.fromkeys(r["task"] for r in found))
    needs = {name: [_needed(found, name, task) for task in tasks] for name in COUNTED}
    lines = []
    for name, each in needs.items():
        cells = [name, "yes" if "score" in name else "no"]
        for mine, theirs in zip(each, needs["printed L-C2ST-NF"], strict=True):
            less = f" ({theirs / mine:.1f} times fewer)" if name.startswith("our") else ""
            cells.append(f"{mine:.0f}{less}" if np.isfinite(mine) else "not reached")
        lines.append(cells)
    head = ["pairs for power 0.8", "claim is local", *(task.replace("_", " ") for task in tasks)]
    return markdown(head, lines)


def _needed(found: Rows, name: str, task: str) -> float:
    """Where power reaches 0.8 at N_train = 1000, between two sizes by logarithms."""
    cell = {"task": task, "train": FIXED, "right": False, "method": COUNTED[name]}
    if name.startswith("printed"):
        known = {n: printed_rate({**cell, "cal": n}) for n in PAIRS}
    else:
        known = {n: rates(found, **cell, cal=n)[0] for n in sorted({r["cal"] for r in found})}
    each = {n: v for n, v in known.items() if v is not None and np.isfinite(v)}
    return needed(list(each), list(each.values()))


def _rate(found: Rows, cell: dict[str, Any]) -> str:
    rate, _, _, runs = rates(found, **cell)
    if not runs:
        return ""
    printed = printed_rate(cell)
    return f"{rate:.2f} ({runs})" + ("" if printed is None else f" / {printed:.2f}")


def _levels(found: Rows, retrained: Rows) -> str:
    """Rejection rates where q is right, and the largest of a cell; reruns on sbi's flows."""
    lines = []
    for method in (L, NF, "L-C2ST", "L-C2ST-NF", "Ridge-NF", "score-NF", "local HPD"):
        rows = retrained if method in (L, NF) else found
        some = [r for r in rows if r["right"] and r["method"] == method]
        if not some:
            continue
        rate, low, high, runs = rates(some)
        places = dict.fromkeys((r["task"], r["cal"]) for r in some)
        most = max((rates(some, task=t, cal=n)[0], t, n) for t, n in places)
        name = method.replace("published", "rerun") if "published" in method else f"our {method}"
        worst = f"{most[0]:.2f} ({most[1].replace('_', ' ')}, N_cal = {most[2]})"
        lines.append([name, str(runs), f"{rate:.3f}", f"{low:.3f} to {high:.3f}", worst])
    return markdown(["where q is right", "runs", "rejected", "95 % interval", "worst cell"], lines)


def _figure3(found: Rows) -> str:
    lines = []
    for row in latents.joined(found):
        along = f"{fig3.u_shape(row['gains'], row['statistic']):+.2f}"
        names = {latents.THEIRS: "L-C2ST-NF, as they ran it", latents.RERUN: "L-C2ST-NF, rerun"}
        name = names.get(row["method"], f"our {row['method']}")
        p = f"{max(row['pvalue']):.3f}"
        ends = ", ".join(f"{row['null_high'][row['gains'].index(g)]:.4f}" for g in (-20, 0, 20))
        null = ends if row["method"] in (latents.THEIRS, latents.RERUN) else ""
        lines.append([name, str(row["nulls"]), f"{_rejected(row)} of 9", p, along, null])
    head = ["on their latents", "nulls", "rejected", "largest p"]
    along, null = "rank correlation with \\|gain\\|", "97.5 % of nulls at gains -20, 0, 20"
    return markdown([*head, along, null], lines)


GAIN = 10


def _figure4(found: Rows) -> str:
    """Bias and width of q at a gain, if a classifier is believed."""
    network = next(row for row in found if row["method"] == latents.NETWORK)
    theta, theirs = latents.at_gain(GAIN)
    ours = np.array(network["d"][network["gains"].index(GAIN)])
    told = [latents.moved(theta, d) for d in (theirs, ours)]
    lines = [
        [
            name,
            *(
                f"{values[j]:{form}}"
                for shift, width in told
                for values, form in ((shift, "+.2f"), (width, ".2f"))
            ),
        ]
        for j, name in enumerate(PARAMETERS)
    ]
    head = [f"q at gain {GAIN}", "bias, their classifier", "width", "bias, ours", "width"]
    return markdown(head, lines)


def _table3(found: Rows) -> str:
    """Correlations with the oracle over the joint's observations, by N_train."""
    lines = []
    for train in TRAINED:
        rows = [r for r in found if r["places"] == "joint" and r["train"] == train]
        cells = [str(train)]
        for method in fig6.THEIRS:
            theirs = [fig6.printed(row, method) for row in rows]
            mine = [
                c
                for row in rows
                for c in row["correlation"]
                if (c["method"], c["oracle"]) == (method, ORACLE)
            ]
            for some in (theirs, mine):
                r = [c["pearson_r"] for c in some]
                sure = [c["pearson_r"] > 0 for c in some if c["pearson_p"] <= ALPHA]
                cells.append(f"{np.mean(r):+.2f} ({sum(sure)} +, {len(sure) - sum(sure)} −)")
        lines.append(cells)
    head = [f"{m}, {c}" for m in ("L-C2ST", "L-C2ST-NF") for c in ("printed", "rerun")]
    return markdown(["N_train", *head], lines)


def _table1(found: Rows) -> str:
    """Seconds with all pairs: printed and rerun without nulls, and with a hundred."""
    numbers = published_numbers()["table1_printed_runtime_slcp"][f"n_cal_{MOST}"]
    at = TRAINED.index(found[0]["train"])
    rows = {row["method"]: row for row in found if row["cal"] == MOST}
    lines = []
    for name in ("C2ST", "L-C2ST", "L-C2ST-NF", "local HPD", "Ridge-NF", "score-NF"):
        if name not in rows:
            continue
        key, again = table1.PRINTED.get(name), rows.get(f"published {name}, scikit-learn")
        cells = [f"{numbers[key][at]:.0f}" if key else ""]
        cells += (
            [_seconds(again[k]) for k in ("samples", "without", "with")] if again else [""] * 3
        )
        cells += [_seconds(rows[name][k]) for k in ("samples", "without", "with")]
        lines.append([name, *cells])
    rerun, ours = (
        [f"{who}: draws", f"{who}: one fit", f"{who}: 100 nulls"] for who in ("rerun", "ours")
    )
    return markdown(["seconds", "printed: one fit", *rerun, *ours], lines)


def _seconds(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _table2(found: Rows) -> str:
    """The best local tests of each task."""
    ((only,), lines) = found, []
    for row in only["tasks"]:
        cells = [row["task"].replace("_", " "), str(row["cells"]), row["printed"]]
        for name in table2.GROUPS:
            if name != "oracle":
                cells.append(_best(row[name]))
        lines.append(cells)
    names = [n for n in table2.GROUPS if n != "oracle"]
    return markdown(["task", "cells", "best in print", *(f"best {n}" for n in names)], lines)


def _best(found: dict[str, Any] | None) -> str:
    if found is None:
        return ""
    others = f" and {len(found['alike'])} more" if found["alike"] else ""
    return f"{found['method'].removeprefix('published ')}{others}: {found['power']:.2f}"


# Experiments by which claims are judged.
JUDGED_BY = "fig1 fig2 samples retrained latents table1 hpd"
# Tables by their names on the page: the experiments, and what makes it of their results.
SHORT: dict[str, tuple[str, Callable[..., str]]] = {
    "claims": (JUDGED_BY, lambda *r: _claims(**dict(zip(JUDGED_BY.split(), r, strict=True)))),
    "rules": ("table2", _rules),
    "coverage": ("fig1 fig2 latents table1 fig6 retrained hpd", _coverage),
    "agreement, informative": ("samples fig2 retrained", _agreement),
    "exceptions": ("samples fig2 retrained exceptions", _exceptions),
    "states": ("samples exceptions", _states),
    "figure 1, short": ("fig1", _figure1),
    "figure 2, short": ("fig2", _figure2),
    "samples, short": ("samples", _samples),
    "pairs needed": ("samples", _pairs),
    "levels, short": ("fig2 retrained", _levels),
    "figure 3, short": ("latents", _figure3),
    "figure 4, short": ("latents", _figure4),
    "table 1, short": ("table1", _table1),
    "table 2, short": ("table2", _table2),
    "table 3, short": ("fig6", _table3),
}

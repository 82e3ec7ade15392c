"""Figure 3: global and local tests of a flow of the Jansen-Rit model, over the gain."""

from collections.abc import Callable
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import scipy.stats
from matplotlib.axes import Axes
from torch import Tensor

import assay
from assay.average.ranks import Values
from assay.plots._style import COLOURS as CURVES
from assay.plots._style import ENVELOPE, INK

from . import published
from .authors import published_numbers
from .jansen_rit import GAINS, NAMES, SEED, Setting, at, observed
from .methods import NEAR
from .networks import Batched, two_layers
from .pictures import save
from .runs import Context, Experiment, Job

__all__ = ["FIG3", "asked", "paper_local", "paper_overall", "score", "summed", "u_shape"]

Found = dict[str, Any]

GLOBAL = "global"
# The ends of the band in which a null statistic lies in 95 % of cases, as in the paper.
ENDS = (0.025, 0.975)
BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {
        "train": 120,
        "epochs": 2,
        "pairs": 120,
        "nulls": 9,
        "draws": 100,
        "k": 19,
        "gains": [-20, 0, 20],
        "drawn": [0],
    },
    "smoke": {
        "train": 2000,
        "epochs": 100,
        "pairs": 1000,
        "nulls": 39,
        "draws": 1000,
        "k": 99,
        "gains": list(GAINS),
        "drawn": list(GAINS),
    },
    "paper": {
        "train": 50_000,
        "epochs": 10_000,
        "pairs": 10_000,
        "nulls": 1000,
        "draws": 10_000,
        "k": 199,
        "gains": list(GAINS),
        "drawn": list(GAINS),
    },
}


def jobs(budget: str) -> list[Job]:
    """One job for all global tests, and one for each local test at all gains."""
    rest = {k: v for k, v in BUDGETS[budget].items() if k != "drawn"}
    return [{"method": method, **rest} for method in (GLOBAL, *METHODS)]


def prepare(todo: list[Job], context: Context, executor: Executor | None = None) -> None:
    """Trains the flow and simulates the calibration."""
    _ = Setting.of(todo[0], context).pairs


def run(job: Job, context: Context) -> Found:
    """What one method finds."""
    setting = Setting.of(job, context)
    if job["method"] == GLOBAL:
        return {"made": setting.recipe.made, **overall(setting, job["k"])}
    return METHODS[job["method"]](setting, job)


def overall(setting: Setting, k: int) -> Found:
    """SBC of all parameters and expected coverage of HPD regions, among k draws of the flow."""
    sets = setting.sets(k)
    assert sets.theta_q is not None
    columns = zip(NAMES, sets.theta.unbind(1), sets.theta_q.unbind(2), strict=True)
    ranks = assay.sbc(sets, {name: Values(t, q) for name, t, q in columns}, seed=SEED)
    inside = assay.coverage(sets, setting.flow.log_prob, seed=SEED)
    lines, whole = ranks.ecdf(), inside.curve()
    return {
        "names": [*NAMES, "HPD"],
        "levels": _numbers(lines.levels),
        "curves": [_numbers(line) for line in (*lines.ecdf, *whole.ecdf)],
        "lower": _numbers(whole.null_lower),
        "upper": _numbers(whole.null_upper),
        "distance": _numbers(_distances(np.r_[lines.ecdf, whole.ecdf], lines.levels)),
        "pvalue": _numbers([*ranks.pvalue, *inside.pvalue]),
        "said": [ranks.sentence, inside.sentence],
    }


def _distances(curves: np.ndarray, levels: np.ndarray) -> np.ndarray:
    """The largest distance of curves (j, g) from the diagonal."""
    return np.asarray(np.abs(curves - levels).max(1))


def as_published(setting: Setting, job: Job) -> Found:
    """L-C2ST-NF as published, with p = #/H."""
    latents, x_o = setting.latents, observed(job["gains"]).x.to(setting.context.device)
    pairs, classifier = (latents.theta, latents.x), Batched(two_layers(latents.m))
    found = published.lc2st_nf(classifier, pairs, x_o, job["nulls"], job["draws"])
    return summed(*(part.cpu().numpy() for part in (*found, published.pvalue(*found))))


def network(setting: Setting, job: Job) -> Found:
    """Our network in latents, exact if q is right everywhere."""
    return _asked(setting.test(job["nulls"]), job)


def score(setting: Setting, job: Job) -> Found:
    """What decides in ``assay.check``: the local score test, of latents."""
    return _asked(assay.score(setting.latents, null=job["nulls"], seed=SEED), job)


def local_exchange(setting: Setting, job: Job) -> Found:
    """Least squares in latents under the local null, exact for the nearest fifth."""
    null = assay.LocalExchange(job["nulls"], NEAR)
    return _asked(assay.lc2st(setting.latents, assay.Ridge(), null, seed=SEED), job)


def local_hpd(setting: Setting, job: Job) -> Found:
    """Local HPD in closed form, from the flow's own density."""
    sets, log_q = setting.sets(job["k"]), setting.flow.log_prob
    return _asked(assay.lhpd(sets, log_q, NEAR, job["nulls"], seed=SEED), job)


METHODS: dict[str, Callable[[Setting, Job], Found]] = {
    "published L-C2ST-NF": as_published,
    "L-C2ST-NF": network,
    "score-NF": score,
    "LocalExchange-NF": local_exchange,
    "local HPD": local_hpd,
}


def _asked(test: Any, job: Job) -> Found:
    """A test at every gain."""
    return asked(test, observed(job["gains"]).x, job["draws"])


def asked(test: Any, x_o: Tensor, draws: int) -> Found:
    """A test at observations (o, 33)."""
    results = [test(there) for there in at(x_o, draws)]
    names = ("statistic", "null", "pvalue")
    return summed(*(np.stack([getattr(r, name) for r in results]) for name in names))


def summed(statistic: np.ndarray, null: np.ndarray, p: np.ndarray) -> Found:
    """Statistics (o,), p-values (o,) and the 95 % band of nulls (o, h), as plain values."""
    low, high = np.quantile(null, ENDS, axis=1)
    parts = {"statistic": statistic, "pvalue": p, "null_low": low, "null_high": high}
    return {name: _numbers(part) for name, part in parts.items()}


def _numbers(values: Any) -> list[float]:
    return [float(f"{v:.6g}") for v in np.asarray(values, float).ravel()]


def u_shape(gains: list[int], statistic: list[float]) -> float:
    """Spearman's correlation of the statistic with the distance of the gain from zero."""
    return float(scipy.stats.spearmanr(np.abs(gains), statistic).statistic)


def table(found: list[dict[str, Any]]) -> str:
    """Global tests, then all local ones by gain, beside the numbers of the paper."""
    whole, *local = found
    lines = [
        f"N_train {whole['train']}, N_cal {whole['pairs']}, {whole['nulls']} nulls",
        *_overall_lines(whole),
    ]
    for row in local:
        lines += _local_lines(row)
    return "\n".join(lines)


def _overall_lines(row: dict[str, Any]) -> list[str]:
    paper = paper_overall()
    head = f"{'global':12}{'distance':>10}{'p':>8}" + (f"{'paper':>12}{'p':>10}" if paper else "")
    lines = [head]
    for i, (name, far, p) in enumerate(
        zip(row["names"], row["distance"], row["pvalue"], strict=True)
    ):
        theirs = "{:>12.4f}{:>10.2g}".format(*paper[i]) if paper else ""
        lines.append(f"  {name:10}{far:>10.4f}{p:>8.3f}{theirs}")
    return [*lines, *row["said"]]


def _local_lines(row: dict[str, Any]) -> list[str]:
    theirs = paper_local() if row["method"].startswith("published") else {}
    columns = f"{'statistic':>11}{'p':>8}{'null 97.5 %':>13}"
    along = u_shape(row["gains"], row["statistic"])
    head = f"{row['method']}, rank correlation with |gain| {along:+.2f}"
    lines = [head, f"  {'gain':>5}{columns}" + (f"   in the paper{columns}" if theirs else "")]
    each = zip(*(row[k] for k in ("gains", "statistic", "pvalue", "null_high")), strict=True)
    for gain, *numbers in each:
        line = f"  {gain:>5}{_cells(numbers)}"
        lines.append(f"{line}{'':15}{_cells(theirs[gain])}" if gain in theirs else line)
    return lines


def _cells(numbers: list[float]) -> str:
    statistic, p, high = numbers
    return f"{statistic:>11.4f}{p:>8.3f}{high:>13.4f}"


def paper_overall() -> list[tuple[float, float]]:
    """Distances and p-values of SBC and HPD in the paper's own files; empty where absent."""
    numbers = published_numbers().get("exp3_jrnmm")
    if numbers is None:
        return []
    ranks, hpd = numbers["sbc"], numbers["hpd"]
    distances, ps = [*ranks["ks_stat"], hpd["ks_stat"]], [*ranks["ks_p"], hpd["ks_p"]]
    return list(zip(distances, ps, strict=True))


def paper_local() -> dict[int, list[float]]:
    """Statistic, p-value and null quantile of the paper by gain; empty where absent."""
    numbers = published_numbers().get("exp3_jrnmm", {}).get("per_gain", {})
    keys = ("t_stat", "p_value", "null_q975")
    return {int(gain): [row["mse"][k] for k in keys] for gain, row in numbers.items()}


COLOURS = dict(zip(METHODS, ("#333333", "#0072B2", "#009E73", "#D55E00", "#CC79A7"), strict=True))
MARKERS = dict(zip(METHODS, ("o", "s", "^", "D", "v"), strict=True))


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Global curves on the left, statistics over the gain on the right."""
    whole, *local = found
    with mpl.rc_context({"font.size": 8, "legend.fontsize": 7, "legend.frameon": False}):
        figure, axes = plt.subplots(2, 2, figsize=(7.6, 6.4), layout="constrained")
        _curves(axes[0, 0], whole, np.zeros(len(whole["levels"])))
        _curves(axes[1, 0], whole, np.array(whole["levels"]))
        axes[0, 0].set_ylabel("share of truths below")
        _legend(axes[0, 0])
        axes[1, 0].set_ylabel("share of truths below − level")
        _statistics(axes[0, 1], [row for row in local if row["method"] in list(METHODS)[:2]])
        _ratios(axes[1, 1], local)
        save(figure, path)


def _curves(ax: Axes, row: dict[str, Any], less: np.ndarray) -> None:
    """SBC and HPD curves, less something, with the band of one whole curve if q is right."""
    levels = np.array(row["levels"])
    lower, upper = (np.array(row[k]) - less for k in ("lower", "upper"))
    label = "95 % null, whole curve"
    ax.fill_between(levels, lower, upper, color=ENVELOPE, lw=0, label=label)
    ax.plot(levels, levels - less, color=INK, lw=0.8, ls="--")
    for name, colour, curve in zip(row["names"], CURVES, row["curves"], strict=False):
        hpd = name == "HPD"
        shown = f"{'' if hpd else 'SBC, '}{name}"
        ax.plot(levels, curve - less, color=colour, lw=2.0 if hpd else 1.1, label=shown)
    ax.set(xlim=(0, 1), xlabel="level")


def _statistics(ax: Axes, local: list[dict[str, Any]]) -> None:
    """The statistics of both networks over the gain, each with the 95 % band of its nulls."""
    for row in local:
        colour = COLOURS[row["method"]]
        band = row["gains"], row["null_low"], row["null_high"]
        _line(ax, row, row["statistic"])
        ax.fill_between(*band, color=colour, alpha=0.2, lw=0, label="its 95 % null")
    theirs = paper_local()
    gains = [gain for gain in local[0]["gains"] if gain in theirs]
    if gains:
        values = [theirs[gain][0] for gain in gains]
        ax.plot(gains, values, color="#999999", lw=1, ls=":", marker=".", label="in the paper")
    ax.set(xlabel="gain of the observation", ylabel="mean squared $d - 1/2$", ylim=(0, None))
    _legend(ax)


def _ratios(ax: Axes, local: list[dict[str, Any]]) -> None:
    """All statistics, over the upper end of their nulls' band."""
    for row in local:
        _line(ax, row, np.array(row["statistic"]) / np.array(row["null_high"]))
    ax.axhline(1, color=INK, lw=0.8, ls=":")
    ax.set(xlabel="gain of the observation", ylabel="statistic / its null 97.5 % quantile")
    ax.set_yscale("log")
    _legend(ax)


def _legend(ax: Axes) -> None:
    """A legend above the axes, where it hides nothing."""
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, columnspacing=1.2)


def _line(ax: Axes, row: dict[str, Any], values: Any) -> None:
    name = row["method"]
    style: dict[str, Any] = {"ls": "-"}
    if name.startswith("published"):
        style = {"ls": "--", "mfc": "none"}
    style |= {"color": COLOURS[name], "marker": MARKERS[name]}
    ax.plot(row["gains"], values, ms=4, lw=1.3, label=name, **style)


FIG3 = Experiment(
    name="fig3",
    about="Global and local tests of a flow of the Jansen-Rit model, over the gain (Figure 3).",
    jobs=jobs,
    run=run,
    table=table,
    draw=draw,
    prepare=prepare,
)

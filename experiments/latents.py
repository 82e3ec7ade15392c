"""Figures 3 and 4 on the authors' own latents of the Jansen-Rit model, with 1000 nulls.

Their flow is not ours to run, but what it made of 10 000 pairs is at hand: latents of the truths,
draws at each observation, the classifier that they trained, and the statistics of their nulls. So
the published test is here twice: as they ran it, and again with a network and nulls of our own;
and every test of ours in latents has the very pairs that they had.

The rerun comes in blocks of fifty nulls, each of which is a job.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from torch import Tensor

import assay
from assay.plots._style import INK

from . import published
from .authors import absent, arrays
from .fig3 import Found, asked, summed, u_shape
from .jansen_rit import GAINS, NAMES, SEED
from .methods import NEAR
from .networks import Batched, Sklearn, two_layers
from .pictures import colour_bar, save, triangle
from .runs import Context, Experiment, Job

__all__ = ["LATENTS", "NETWORK", "RERUN", "SKLEARN", "THEIRS", "at_gain", "joined", "moved"]

# As the authors ran it, and again.
THEIRS, RERUN = "printed L-C2ST-NF", "published L-C2ST-NF"
SKLEARN = f"{RERUN} (scikit-learn)"
# Nulls in one job of the rerun; draws at each observation of which parameters were kept.
BLOCK, KEPT = 50, 1000
BUDGETS: dict[str, dict[str, Any]] = {
    "ci": {"pairs": 150, "nulls": 9, "draws": 100, "gains": [-20, 0, 20], "slow": False},
    "smoke": {"pairs": 1000, "nulls": 39, "draws": 500, "gains": list(GAINS), "slow": False},
    "paper": {"pairs": 10_000, "nulls": 1000, "draws": 10_000, "gains": list(GAINS), "slow": True},
}

TESTS: dict[str, Callable[[assay.Calibration, int], Any]] = {
    "score-NF": lambda sets, n: assay.score(sets, null=n, seed=SEED),
    "Ridge-NF": lambda sets, n: assay.lc2st(sets, assay.Ridge(), assay.Exchange(n), seed=SEED),
    "L-C2ST-NF": lambda sets, n: assay.lc2st(sets, null=assay.KnownBase(n), seed=SEED),
    "LocalExchange-NF": lambda sets, n: assay.lc2st(
        sets, assay.Ridge(), assay.LocalExchange(n, NEAR), seed=SEED
    ),
}
NETWORK = "L-C2ST-NF"


@cache
def _theirs() -> dict[str, Tensor]:
    return arrays("jrnmm.npz")


def _rows(gains: list[int]) -> list[int]:
    known = [int(gain) for gain in _theirs()["gains"]]
    return [known.index(gain) for gain in gains]


def jobs(budget: str) -> list[Job]:
    """One job for each test at all gains, and one for each block of nulls of the rerun."""
    given = BUDGETS[budget]
    rest = {k: v for k, v in given.items() if k != "slow"}
    blocks = range(0, given["nulls"], BLOCK)
    return [
        *({"method": name, **rest} for name in TESTS),
        *([{"method": SKLEARN, **rest}] if given["slow"] else []),
        *({"method": RERUN, "part": first, **rest} for first in blocks),
    ]


def run(job: Job, context: Context) -> Found:
    """What one test finds at the gains."""
    n, rows = job["pairs"], _rows(job["gains"])
    z, x, x_o = (_theirs()[k] for k in ("z_cal", "x_cal", "x_obs"))
    pairs, x_o = (z[:n], x[:n]), x_o[rows]
    if job["method"] in (RERUN, SKLEARN):
        return _published(job, pairs, x_o, context.device)
    sets = assay.Calibration.from_base(*pairs).to(context.device)
    test = TESTS[job["method"]](sets, job["nulls"])
    found = asked(test, x_o, job["draws"])
    if job["method"] == NETWORK:
        found["d"] = [_scores(test, x) for x in x_o]
    return found


def _published(job: Job, pairs: tuple[Tensor, Tensor], x_o: Tensor, device: str) -> dict[str, Any]:
    """The statistics, and those of some of the nulls; scikit-learn is too slow for nulls."""
    sample, at = (pairs[0].to(device), pairs[1].to(device)), x_o.to(device)
    first, network = job.get("part", 0), two_layers(pairs[0].shape[1])
    part = range(first, min(first + BLOCK, job["nulls"]))
    trial = published.trial_of_lc2st_nf(sample, at, job["nulls"], job["draws"], part)
    copies = slice(None) if "part" in job else slice(1)
    kind = Batched if "part" in job else Sklearn
    fitted = kind(network).fit(*(rows[copies] for rows in trial.rows))
    statistic, null = trial.judge(fitted)
    return {"statistic": _numbers(statistic), "null": [_numbers(row) for row in null]}


def _numbers(values: Tensor) -> list[float]:
    return [float(f"{v:.6g}") for v in values.tolist()]


def _scores(test: Any, x: Tensor) -> list[float]:
    """P(class 1) by the network at the base draws of which the authors kept parameters."""
    observed = test.calibration.observe(assay.Draws(x, n=1), SEED)
    z = _theirs()["z_base_eval"][None, :KEPT].to(observed.draws)
    return [float(f"{v:.4f}") for v in test.scores(z, observed.observation.features)[0, 0]]


def joined(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each test: the authors' own, the rerun with all nulls that are done, and ours."""
    gains = found[0]["gains"]
    blocks = [row for row in found if row["method"] == RERUN]
    theirs, rows = _theirs(), _rows(gains)
    null = theirs["t_null_mse"][rows].double().numpy()
    t = theirs["t_stat_mse"][rows].double().numpy()
    made = [{"method": THEIRS, "nulls": null.shape[1], **_as_published(t, null)}]
    if blocks:
        null = np.concatenate([np.array(row["null"]) for row in blocks], 1)
        t = np.array(blocks[0]["statistic"])
        made.append({"method": RERUN, "nulls": null.shape[1], **_as_published(t, null)})
    alone = [row for row in found if "pvalue" in row]
    return [{"gains": gains, **row} for row in (*made, *alone)]


def _as_published(statistic: np.ndarray, null: np.ndarray) -> Found:
    return summed(statistic, null, (null > statistic[:, None]).mean(1))


def at_gain(gain: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws (s, 4) of their flow at a gain, and P(class 1) there (s,) by their classifier."""
    (row,) = _rows([gain])
    theirs = _theirs()
    return theirs["theta_q_obs_eval"][row].numpy(), 1 - theirs["proba_class0_obs"][row].numpy()


def moved(theta: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bias of draws (s, m) in standard deviations, and their width over the true one, each (m,).

    If d is right, weights d / (1 - d) make draws of the posterior of draws of q.
    """
    weight = d / (1 - d)
    weight = weight / weight.sum()
    mean = weight @ theta
    sd = np.sqrt(weight @ (theta - mean) ** 2)
    return (theta.mean(0) - mean) / sd, theta.std(0) / sd


def table(found: list[dict[str, Any]]) -> str:
    """Statistics, p-values and nulls of all tests by gain."""
    lines = []
    for row in joined(found):
        along = u_shape(row["gains"], row["statistic"])
        rejected = sum(p <= 0.05 + 1e-9 for p in row["pvalue"])
        lines.append(
            f"{row['method']}, {row['nulls']} nulls: rejects at {rejected} of {len(row['gains'])} "
            f"gains; rank correlation with |gain| {along:+.2f}"
        )
        each = zip(*(row[k] for k in ("gains", "statistic", "pvalue", "null_high")), strict=True)
        lines += [f"  {g:>5}{t:>11.4g}{p:>8.3f}{high:>11.4g}" for g, t, p, high in each]
    return "\n".join(lines)


# Colours and markers of tests in the last panel of Figure 3.
LOOKS = {
    THEIRS: ("#333333", "o"),
    RERUN: ("#999999", "o"),
    "score-NF": ("#0072B2", "s"),
    "Ridge-NF": ("#E69F00", "D"),
    "L-C2ST-NF": ("#D55E00", "P"),
}


def draw(found: list[dict[str, Any]], path: Path) -> None:
    """Figure 3 with the authors' own null, and Figure 4 in a second file."""
    rows = joined(found)
    figure, axes = plt.subplots(1, 3, figsize=(10.2, 3.5), layout="constrained")
    _overall(axes[0])
    _statistics(axes[1], [row for row in rows if row["method"] in (THEIRS, RERUN)])
    _ratios(axes[2], rows)
    for ax in axes:
        ax.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, frameon=False, fontsize=7
        )
    save(figure, path)
    for row in found:
        if row["method"] == NETWORK:
            _pictures(row, path.with_name(f"{path.stem}_pairs{path.suffix}"))


def _overall(ax: Axes) -> None:
    """SBC of all parameters and the coverage of HPD regions, less the diagonal."""
    theirs, n = _theirs(), len(_theirs()["hpd_values"])
    columns = [*(theirs["sbc_ranks"].T / 1000), theirs["hpd_values"]]
    levels = np.linspace(0, 1, 201)
    half = 1.358 / np.sqrt(n)
    ax.axhspan(-half, half, color="#dddddd", lw=0, label="95 % null, whole curve")
    for name, values in zip((*NAMES, "HPD"), columns, strict=True):
        share = np.searchsorted(np.sort(values.numpy()), levels, "right") / n
        ax.plot(levels, share - levels, lw=2 if name == "HPD" else 1.1, label=name)
    ax.set(xlabel="level", ylabel="share of truths below $-$ level", xlim=(0, 1))


def _statistics(ax: Axes, rows: list[dict[str, Any]]) -> None:
    """The published statistic over the gain, with the 95 % band of its nulls."""
    for row, style in zip(rows, ("-", "--"), strict=False):
        said = "as they ran it" if row["method"] == THEIRS else "rerun"
        colour = "#333333" if row["method"] == THEIRS else "#0072B2"
        ax.plot(
            row["gains"], row["statistic"], style, marker="o", ms=3.5, color=colour, label=said
        )
        band = row["gains"], row["null_low"], row["null_high"]
        label = f"its 95 % null ({row['nulls']})"
        ax.fill_between(*band, color=colour, alpha=0.2, lw=0, label=label)
    ax.set(xlabel="gain of the observation", ylabel="mean squared $d - 1/2$", ylim=(0, None))


def _ratios(ax: Axes, rows: list[dict[str, Any]]) -> None:
    """All statistics, over the upper end of their nulls' band."""
    for method, (colour, marker) in LOOKS.items():
        for row in rows:
            if row["method"] != method:
                continue
            ratio = np.array(row["statistic"]) / np.array(row["null_high"])
            said = {THEIRS: "as they ran it", RERUN: "rerun"}.get(method, f"our {method}")
            look: dict[str, Any] = {"marker": marker, "ms": 3.5, "lw": 1.1, "color": colour}
            ax.plot(row["gains"], ratio, "--" if method == RERUN else "-", label=said, **look)
    ax.axhline(1, color=INK, lw=0.8, ls=":")
    ax.set(xlabel="gain of the observation", ylabel="statistic / its null 97.5 % quantile")
    ax.set_yscale("log")


# Gains of Figure 4, of which the paper has the last.
SHOWN = (-20, 0, 10)


def _pictures(network: dict[str, Any], path: Path) -> None:
    """Where q has too much and too little mass: by the authors' classifier, and by ours."""
    gains = [gain for gain in SHOWN if gain in network["gains"]]
    figure = plt.figure(figsize=(3.6 * len(gains), 8.2), layout="constrained")
    halves: Any = figure.subfigures(2, 1, height_ratios=(7.4, 0.8))
    above, below = halves
    parts = above.subfigures(2, len(gains), squeeze=False)
    truth, *ends = (_theirs()[k] for k in ("theta_obs_true", "prior_low", "prior_high"))
    prior = np.stack([end.numpy() for end in ends], 1)
    for column, gain in zip(parts.T, gains, strict=True):
        (row,), (theta, given) = _rows([gain]), at_gain(gain)
        ours = np.array(network["d"][network["gains"].index(gain)])
        for part, d, said in zip(column, (given, ours), ("as they ran it", "ours"), strict=True):
            part.suptitle(f"gain {gain}, {said}", fontsize=9)
            mesh = triangle(part, theta, d, truth[row].numpy(), prior, NAMES)
    colour_bar(below, mesh)
    save(figure, path)


LATENTS = Experiment(
    name="latents",
    about="Figures 3 and 4 on the authors' own latents, where a copy of them is at hand.",
    jobs=jobs,
    run=run,
    table=table,
    draw=draw,
    partial=True,
    absent=absent,
)

"""Draws the pictures that pages keep as files, each from a real run or a record of one.

python docs/pictures.py [NAME]
"""

import json
import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import torch

import assay

FOLDER = Path(__file__).parent / "pictures"
RECORDS = Path(__file__).parents[1] / "results" / "speed"
# Engines in the picture of costs, and what its axes are.
ENGINES, MARKERS = ("MLP", "Ridge", "moments", "score"), "osD^"
AXES = {
    "n": "calibration pairs",
    "nulls": "null copies",
    "observations": "observations",
    "d": "features of x",
    "m": "parameters",
    "k": "draws of q at each x",
}
X_O = (2.0, 0.4)
# The stages of the data flow: name, what it is, its place, and where data go from there.
STAGES = {
    "posterior": ("a posterior", "a flow, sample(x, n), a function,\narrays or a file", 0, 0),
    "adapters": ("adapters/", "the only code that\nknows foreign libraries", 1, -1),
    "samples": ("samples/", "Calibration and Draws;\nwhat is near x_o", 1, 0),
    "nulls": ("nulls/", "copies: copy 0 is the data,\nothers what it could have been", 2, 0),
    "classifiers": ("classifiers/", "scores of all copies at once", 3, 0),
    "local": ("diagnostics/local/", "asked at x_o", 4, -1),
    "c2st": ("diagnostics/c2st", "with reference draws", 4, 0),
    "average": ("diagnostics/average/", "over all x", 4, 1),
    "results": ("results", "statistic, null, p-value,\nhypothesis, settings", 5, 0),
    "interpret": ("interpret/", "effects, power, trust map,\nhealth, verdict", 6, 0),
    "suite": ("suite", "assay.check: the one-liner", 7, 0),
    "shown": ("plots/, report/, cli/, io", "pictures, a page,\na terminal, files", 8, 0),
}
ARROWS = (
    "posterior adapters, posterior samples, adapters samples, samples nulls, nulls classifiers, "
    "classifiers local, classifiers c2st, classifiers average, nulls local, nulls average, "
    "local results, c2st results, average results, results interpret, interpret suite, suite shown"
)


def promise() -> None:
    """A posterior whose errors cancel over all x: ranks, verdicts, and truths near x_o."""
    torch.manual_seed(0)
    theta = torch.randn(2000, 2)
    x = theta + torch.randn(2000, 2)
    theta_q = posterior(x, 16)
    calibration = assay.Calibration(theta, x, theta_q)
    x_o = torch.tensor(X_O)
    draws = assay.Draws(x_o, posterior(x_o[None], 1000)[0])
    suite = assay.Suite(classifier=None, context=60)
    found = assay.check(calibration, x_o=draws, suite=suite, names=["mass", "spin"])
    print(found)  # noqa: T201
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.7), width_ratios=(1, 1, 1))
    assay.plots.rank_difference(found.sbc, axes[0])
    assay.plots.trust_map(found.context, axes[1])
    axes[1].plot(*X_O, marker="*", ms=15, c="black", mec="white", mew=1, ls="")
    assay.plots.near(calibration, [axes[2]], ["mass", "spin"], x_o=x_o)
    titles = (
        "over all x: ranks look right",
        "at 60 observations",
        "near x_o (star): q is too high",
    )
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title, fontsize=11, fontweight="bold", pad=44)
    figure.tight_layout()
    keep(figure, "promise")


def posterior(x: torch.Tensor, k: int) -> torch.Tensor:
    """Draws (n, k, 2) at x (n, 2): too high at one edge, as much too low at the other."""
    edge = (x[:, :1] > 1.2).float() - (x[:, :1] < -1.2).float()
    mean = x / 2 + torch.tensor([0.4, 0.0]) * edge
    return mean[:, None] + 0.5**0.5 * torch.randn(len(x), k, 2)


def flow() -> None:
    """The data flow of the library."""
    figure, ax = plt.subplots(figsize=(7.6, 9.4))
    box = {"boxstyle": "round,pad=0.5", "fc": "#eef3f8", "ec": "#4c78a8", "lw": 1}
    shape = {"ha": "center", "va": "center", "fontsize": 8.5, "bbox": box, "zorder": 3}
    drawn = {
        key: ax.text(column, -row, f"{name}\n{words}", **shape)
        for key, (name, words, row, column) in STAGES.items()
    }
    line = {"arrowstyle": "-|>", "color": "#55606b", "lw": 1, "shrinkA": 0, "shrinkB": 1}
    for arrow in ARROWS.split(", "):
        first, last = (drawn[name] for name in arrow.split())
        patches = {"patchA": first.get_bbox_patch(), "patchB": last.get_bbox_patch()}
        ends = {"xy": last.get_position(), "xytext": first.get_position()}
        ax.annotate("", **ends, arrowprops=line | patches, zorder=4)
    ax.set(xlim=(-1.5, 1.5), ylim=(-8.5, 0.5))
    ax.axis("off")
    figure.tight_layout()
    keep(figure, "flow")


def costs() -> None:
    """Seconds along each axis of a problem, as measured, with fitted powers."""
    record = json.loads((RECORDS / "sizes.json").read_text(encoding="utf-8"))["sizes"]
    figure, axes = plt.subplots(2, 3, figsize=(10, 6), sharey=True)
    for ax, (axis, found) in zip(axes.flat, record.items(), strict=True):
        values = np.array(found["values"], float)
        for number, name in enumerate(ENGINES):
            if name not in found:
                continue
            seconds, power = found[name]["seconds"], found[name]["exponent"]
            level = np.mean(np.log(seconds) - power * np.log(values))
            color = f"C{number}"
            ax.plot(values, seconds, marker=MARKERS[number], ls="", c=color)
            label = f"{name}: {power:.2f}"
            ax.plot(values, np.exp(level) * values**power, c=color, lw=1, label=label)
        ax.set(xscale="log", yscale="log", xlabel=AXES[axis], ylim=(0.08, 1000))
        ax.set_xticks(values, [f"{value:g}" for value in values])
        ax.minorticks_off()
        key = {"loc": "upper left", "ncols": 2, "frameon": False}
        ax.legend(**key, fontsize=8, title="exponents", title_fontsize=8)
    for ax in axes[:, 0]:
        ax.set_ylabel("seconds")
    figure.tight_layout()
    keep(figure, "costs")


def keep(figure: plt.Figure, name: str) -> None:
    """Writes a picture; the same drawing is the same file."""
    mpl.rcParams["svg.hashsalt"] = name
    figure.savefig(FOLDER / f"{name}.svg", facecolor="white", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    mpl.use("Agg")
    FOLDER.mkdir(exist_ok=True)
    every = {"flow": flow, "promise": promise, "costs": costs}
    for name in sys.argv[1:] or every:
        every[name]()

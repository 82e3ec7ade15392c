"""Draws the picture that pages keep as a file, from a real run.

python docs/pictures.py
"""

from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import torch

import assay

FOLDER = Path(__file__).parent / "pictures"
X_O = (2.0, 0.4)


def promise() -> None:
    """A posterior whose errors cancel over all x: ranks, verdicts, true parameters near x_o."""
    torch.manual_seed(0)
    theta = torch.randn(4000, 2)
    x = theta + torch.randn(4000, 2)
    calibration = assay.Calibration(theta, x, posterior(x, 16))
    x_o = torch.cat([torch.tensor([X_O]), 2**0.5 * torch.randn(59, 2)])
    draws = assay.Draws(x_o, posterior(x_o, 100))
    found = assay.check(calibration, x_o=draws, names=["mass", "spin"], classifier=None)
    print(found)  # noqa: T201
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.7))
    assay.plots.rank_difference(found.sbc, axes[0])
    assay.plots.surroundings(found, axes[1])
    axes[1].plot(*X_O, marker="*", ms=15, c="black", mec="white", mew=1, ls="")
    assay.plots.near(found.bounds, [axes[2]])
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


def keep(figure: plt.Figure, name: str) -> None:
    """Writes a picture; the same drawing is the same file."""
    mpl.rcParams["svg.hashsalt"] = name
    figure.savefig(FOLDER / f"{name}.svg", facecolor="white", metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    mpl.use("Agg")
    FOLDER.mkdir(exist_ok=True)
    promise()

"""The demo: a flow trained on the spot, tested where it is right and where it is not.

The posterior of Two Moons consists of two crescents. The flow is trained on simulations with
theta_1 < 0.4 only, as happens when a prior is widened after the training; the calibration pairs
come from the whole prior. Where both crescents lie in the part it has seen the flow is about
right; where one lies outside, it has lost a mode.
"""

from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import torch
import zuko

from .. import plots
from .._core import atomic_write, cpu, isolated, progress, stream
from ..adapters.zuko import ZukoFlow
from ..results import LC2STResult, wrapped
from ..suite import Check, check
from ..tasks.two_moons import TwoMoons

SEEN = 0.4
OBSERVATIONS = {"good": (-0.12, 0.7), "bad": (-0.145, -0.495)}
PAIRS = 1200
BATCH, RATE = 1000, 4e-3


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demo found, by observation where it is a dictionary."""

    check: Check
    results: dict[str, LC2STResult]  # what the classifier found
    lost: dict[str, float]  # the share of the true posterior where the flow has never been

    def __str__(self) -> str:
        lost = ", ".join(f"{share:.0%} at {name}" for name, share in self.lost.items())
        true = (
            f"What is true: of the true posterior, {lost} lies where the flow was never trained."
        )
        return f"{self.check}\n\n{wrapped(true)}"

    def save(self, folder: Path) -> list[Path]:
        """Writes the report, a table, a figure and the check into a folder; says what it wrote."""
        names = ("table.txt", "pp.png", "check.npz", "report.html")
        table, figure, saved, report = (folder / name for name in names)
        with atomic_write(table) as file:
            file.write(f"{self}\n".encode())
        self._draw(figure)
        self.check.save(saved)
        self.check.report(report)
        return [table, figure, saved, report]

    def _draw(self, path: Path) -> None:
        figure, axes = plt.subplots(1, len(self.lost), figsize=(7.0, 3.9), layout="constrained")
        for ax, (name, result) in zip(axes, self.results.items(), strict=True):
            plots.pp(result, ax)
            ax.legend_ = None
            ax.set_title(f"{name} x_o: p = {result.pvalue:.3f}", fontsize=9)
        handles = axes[0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
        with atomic_write(path) as file:
            figure.savefig(file, dpi=160)
        plt.close(figure)


def demo(epochs: int = 30, simulations: int = 50_000, seed: int = 0) -> Demo:
    """Trains a flow for some epochs on so many simulations and checks it at two observations."""
    flow, task = ZukoFlow(_train(epochs, simulations, seed)), TwoMoons()
    generator = stream(seed, "calibration")
    pairs = task.joint(PAIRS, generator)
    x_o = cpu.tensor(list(OBSERVATIONS.values()))
    labels = tuple(OBSERVATIONS)
    result = check(flow, *pairs, x_o, names=task.parameters, labels=labels, seed=seed)
    assert result.classifier is not None
    results = {name: result.classifier[i] for i, name in enumerate(OBSERVATIONS)}
    exact = (task.posterior(at, 10_000, generator).theta for at in x_o)
    lost = (float((theta[:, 0] >= SEEN).double().mean()) for theta in exact)
    return Demo(result, results, dict(zip(OBSERVATIONS, lost, strict=True)))


def _train(epochs: int, simulations: int, seed: int) -> zuko.flows.NSF:
    """Trains a neural spline flow on the part of the prior that it is shown."""
    generator = stream(seed, "training")
    theta = TwoMoons().prior.sample(2 * simulations, generator)
    theta = theta[theta[:, 0] < SEEN][:simulations]
    x = TwoMoons().simulate(theta, generator)
    batch = min(BATCH, len(x))
    batches = len(x) // batch
    with isolated(generator):
        flow = zuko.flows.NSF(2, 2, transforms=3, hidden_features=(64, 64))
    optimizer = torch.optim.AdamW(flow.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, epochs * batches)
    for _ in progress(range(epochs), "training the flow", unit="epoch"):
        order = cpu.randperm(len(x), generator=generator)
        for rows in order[: batches * batch].split(batch):
            optimizer.zero_grad()
            (-flow(x[rows]).log_prob(theta[rows]).mean()).backward()
            torch.nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
            optimizer.step()
            schedule.step()
    return flow

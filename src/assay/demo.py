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
from torch import Tensor
from tqdm import tqdm

from . import plots
from .adapters.zuko import ZukoFlow
from .diagnostics.lc2st import lc2st
from .io import save
from .randomness import isolated, stream
from .results import LocalResult
from .samples import Calibration, Draws
from .tasks.two_moons import TwoMoons

__all__ = ["Demo", "demo"]

SEEN = 0.4
OBSERVATIONS = {"good": (-0.25, 0.75), "bad": (-0.145, -0.495)}
PAIRS, DRAWS = 1000, 1000
BATCH, RATE = 1000, 4e-3


@dataclass(frozen=True, eq=False)
class Demo:
    """What the demo found.

    Args:
        results: A result by space, "parameters" and "latents", and by observation.
        lost: The share of the true posterior where the flow has never been, by observation.
    """

    results: dict[str, dict[str, LocalResult]]
    lost: dict[str, float]

    def __str__(self) -> str:
        lines = [
            f"{'':17}" + "".join(f"{space:>22}" for space in self.results),
            f"{'x_o':5}{'lost mass':>12}" + f"{'statistic':>13}{'p-value':>9}" * len(self.results),
        ]
        for name, lost in self.lost.items():
            found = [by_name[name] for by_name in self.results.values()]
            cells = "".join(f"{r.statistic:>13.5f}{r.pvalue:>9.3f}" for r in found)
            lines.append(f"{name:5}{lost:>12.0%}{cells}")
        return "\n".join(lines)

    def save(self, folder: Path) -> list[Path]:
        """Writes a table, a figure and the results into a folder, and says what it wrote."""
        table, figure = folder / "table.txt", folder / "pp.png"
        table.write_text(f"{self}\n", encoding="utf-8")
        self._draw(figure)
        files = [table, figure]
        for space, by_name in self.results.items():
            for name, result in by_name.items():
                files.append(folder / f"{space}-{name}.npz")
                save(result, files[-1])
        return files

    def _draw(self, path: Path) -> None:
        shape = len(self.results), len(self.lost)
        figure, axes = plt.subplots(*shape, figsize=(7.0, 7.0), layout="constrained")
        for row, (space, by_name) in zip(axes, self.results.items(), strict=True):
            for ax, (name, result) in zip(row, by_name.items(), strict=True):
                plots.pp(result, ax)
                ax.legend_ = None
                ax.set_title(f"{space}, {name} x_o: p = {result.pvalue:.3f}", fontsize=9)
        handles = axes[0, 0].get_legend_handles_labels()
        figure.legend(*handles, loc="outside lower center", ncols=4, fontsize=8, frameon=False)
        figure.savefig(path, dpi=160)
        plt.close(figure)


def demo(epochs: int = 30, simulations: int = 50_000, seed: int = 0) -> Demo:
    """Trains a flow and tests it in both spaces at two observations.

    Args:
        epochs: Passes of the flow over its simulations.
        simulations: The number of simulations the flow is trained on.
        seed: The seed of everything.
    """
    flow = ZukoFlow(_train(epochs, simulations, seed))
    generator = stream(seed, "calibration")
    task = TwoMoons()
    theta, x = task.joint(PAIRS, generator)
    calibration = Calibration(theta, x, _sample(flow, x, 1, generator))
    x_o = torch.tensor(list(OBSERVATIONS.values()))
    theta_o = _sample(flow, x_o, DRAWS, generator)
    draws = {name: Draws(x_o[i], theta_o[i]) for i, name in enumerate(OBSERVATIONS)}
    spaces = {"parameters": calibration, "latents": calibration.to_latent(flow, seed)}
    tests = {space: lc2st(samples, seed=seed) for space, samples in spaces.items()}
    results = {
        space: {name: test(there) for name, there in draws.items()}
        for space, test in tests.items()
    }
    exact = {
        n: task.posterior(x, 10_000, generator).theta for n, x in zip(draws, x_o, strict=True)
    }
    lost = {name: float((theta[:, 0] >= SEEN).double().mean()) for name, theta in exact.items()}
    return Demo(results, lost)


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
    for _ in tqdm(range(epochs), desc="training the flow", unit="epoch", disable=None):
        order = torch.randperm(len(x), generator=generator)
        for rows in order[: batches * batch].split(batch):
            optimizer.zero_grad()
            (-flow(x[rows]).log_prob(theta[rows]).mean()).backward()
            torch.nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
            optimizer.step()
            schedule.step()
    return flow


def _sample(flow: ZukoFlow, x: Tensor, n: int, generator: torch.Generator) -> Tensor:
    """Draws n parameters at each observation (o, d), with shape (o, n, m)."""
    with isolated(generator):
        return torch.stack([flow.sample(x_o, n) for x_o in x])

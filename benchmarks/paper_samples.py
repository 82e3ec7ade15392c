"""The published samples of the paper's authors, where a copy of them lies beside the project.

The samples carry no licence and are not part of the project; benchmarks that need them look for
``../shared/data/paper``, or where ``ASSAY_PAPER_SAMPLES`` says, and say so when it is absent.
"""

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import assay

BESIDE = Path(__file__).resolve().parents[2] / "shared" / "data" / "paper"
FOLDER = Path(os.environ.get("ASSAY_PAPER_SAMPLES", BESIDE))


def require() -> None:
    """Ends the program, with a message, where the samples are absent."""
    if not FOLDER.is_dir():
        print(f"skipped: this benchmark needs the authors' samples in {FOLDER}, which is absent.")
        sys.exit(0)


@dataclass(frozen=True)
class Case:
    """One trained flow of the paper: a task and the number of simulations it was trained on."""

    task: str
    n_train: int

    def __str__(self) -> str:
        return f"{self.task}, N_train = {self.n_train:g}"

    def load(self) -> dict[str, np.ndarray]:
        """All arrays of this case."""
        with np.load(FOLDER / f"{self.task}_npe_{self.n_train}.npz") as archive:
            return {name: archive[name] for name in archive.files}

    def parameters(self, n: int) -> tuple[assay.Calibration, assay.Draws]:
        """The first n calibration pairs in parameter space, and the ten observations."""
        a = self.load()
        calibration = assay.Calibration(a["theta_cal"][:n], a["x_cal"][:n], a["q_samples_cal"][:n])
        return calibration, assay.Draws(a["x_obs"], a["theta_q_obs_eval"])

    def sets(self, n: int) -> tuple[assay.Calibration, assay.Draws]:
        """The first n calibration pairs with 32 draws at each x, and the ten observations."""
        a = self.load()
        with np.load(FOLDER / f"{self.task}_npe_{self.n_train}_draws.npz") as archive:
            theta_q = archive["q_draws_cal"][:n]
        calibration = assay.Calibration(a["theta_cal"][:n], a["x_cal"][:n], theta_q)
        return calibration, assay.Draws(a["x_obs"], a["theta_q_obs_eval"])

    def latents(self, n: int) -> tuple[assay.Calibration, assay.Draws]:
        """The first n calibration pairs in latent space, and the ten observations."""
        a = self.load()
        return assay.Calibration.from_base(a["z_cal"][:n], a["x_cal"][:n]), assay.Draws(a["x_obs"])

    def published(self, method: str, n_cal: int) -> float:
        """The published rejection rate at 0.05, mean over ten observations and 50 runs, or NaN."""
        results = json.loads((FOLDER / "published_results.json").read_text())
        task = results["exp2"][self.task]
        if n_cal == 10_000:
            index = [100, 1000, 10_000, 100_000].index(self.n_train)
            return float(task["vs_n_train"][method]["TPR_mean"]["mse"][index])
        if self.n_train == 1000 and n_cal in (grid := [100, 500, 1000, 2000, 5000, 10_000]):
            return float(task["vs_n_cal"][method]["TPR_mean"]["mse"][grid.index(n_cal)])
        return float("nan")


HARD = tuple(Case(task, n) for task in ("slcp", "two_moons") for n in (10_000, 100_000))
EASY = tuple(Case(task, 1000) for task in ("slcp", "two_moons"))

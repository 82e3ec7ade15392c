"""The tasks: how long ten thousand posterior draws take, and whether they are the authors'.

    python -m benchmarks.tasks [--observations 100]

For every task the seconds for 10 000 draws at one observation, over prior-predictive observations,
with the sampler's own indicators of error. Then, where the authors' samples lie beside it,
simulations at their parameters against theirs, by two-sample tests of x within bins of every
parameter and by the accuracy of a classifier on (theta, x); and our posterior draws against their
reference draws at the ten observations, by the accuracy of a classifier. An accuracy of 0.5 within
two standard errors is what the same distribution gives.
"""

import argparse
import time

import numpy as np
import scipy.stats
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import cross_val_score

from assay._support.random import stream
from experiments.tasks import TASKS, Task, task

from .paper_samples import HARD, Case, require

DRAWS, BINS = 10_000, 4
KNOWN = [name for name in TASKS if name != "jansen_rit"]


def speed(observations: int) -> None:
    print(f"{DRAWS} posterior draws at each of {observations} prior-predictive observations")
    print(
        f"{'':26}{'median s':>10}{'largest s':>10}{'acceptance':>12}{'least':>8}{'exceeded':>10}"
    )
    for name in KNOWN:
        of, generator = task(name), stream(0, "speed", name)
        _, x = of.joint(observations, generator)
        seconds, found = [], []
        for x_o in x:
            start = time.perf_counter()
            found.append(of.posterior(x_o, DRAWS, generator))
            seconds.append(time.perf_counter() - start)
        rates = [f.acceptance for f in found]
        print(
            f"{name:26}{np.median(seconds):>10.3f}{max(seconds):>10.3f}{np.median(rates):>12.3f}"
            f"{min(rates):>8.3f}{sum(f.exceeded for f in found):>10}",
            flush=True,
        )


def accuracy(first: np.ndarray, second: np.ndarray) -> tuple[float, float]:
    """Cross-validated accuracy of boosted trees on two samples, and its standard error."""
    rows = np.concatenate([first, second])
    labels = np.repeat([0, 1], [len(first), len(second)])
    order = np.random.default_rng(0).permutation(len(rows))
    trees = HistGradientBoostingClassifier(max_iter=50, random_state=0)
    scores = cross_val_score(trees, rows[order], labels[order], cv=5)
    return float(scores.mean()), 0.5 / len(rows) ** 0.5


def simulator(case: Case, of: Task) -> None:
    a = case.load()
    theta, theirs = a["theta_cal"], a["x_cal"]
    ours = of.simulate(torch.tensor(theta), stream(0, "simulator")).numpy()
    pvalues = []
    for j in range(of.m):
        edges = np.quantile(theta[:, j], np.linspace(0, 1, BINS + 1)[1:-1])
        bins = np.digitize(theta[:, j], edges)
        for b in range(BINS):
            for i in range(of.d):
                both = ours[bins == b, i], theirs[bins == b, i]
                pvalues.append(scipy.stats.ks_2samp(*both).pvalue)
    # Each half of the parameters for one of both: the same ones in both would tell a classifier
    # that their labels differ.
    half = len(theta) // 2
    mine = np.hstack([theta, ours])[:half]
    found, error = accuracy(mine, np.hstack([theta, theirs])[half:])
    adjusted = min(1.0, len(pvalues) * min(pvalues))
    print(
        f"{case.task:12} simulator: accuracy {found:.4f} ± {error:.4f}; smallest of "
        f"{len(pvalues)} p-values, Bonferroni {adjusted:.3f}",
        flush=True,
    )


def posterior(case: Case, of: Task) -> None:
    a = case.load()
    found = []
    for x_o, reference in zip(a["x_obs"], a["ref_theta_obs_cal"], strict=True):
        theta = of.posterior(torch.tensor(x_o), len(reference), stream(0, "reference")).theta
        found.append(accuracy(theta.numpy(), reference))
    means, error = np.array(found).mean(0)
    print(
        f"{case.task:12} posterior: accuracy {means:.4f} ± {error / 10**0.5:.4f} over ten "
        f"observations of {len(reference)} draws, {min(f[0] for f in found):.3f} to "
        f"{max(f[0] for f in found):.3f}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--observations", type=int, default=100)
    run = parser.parse_args()
    speed(run.observations)
    print()
    require()
    for case in HARD[::2]:
        simulator(case, task(case.task))
        posterior(case, task(case.task))


if __name__ == "__main__":
    main()

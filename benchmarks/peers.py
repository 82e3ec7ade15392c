"""Peers side by side: the same samples, like-for-like calls, by turns in one run.

    python -m benchmarks.peers [--rounds 3] [--out FILE.json]

BayesFlow may live in an environment of its own (it brings Keras), with the others in it.
Processor time on one thread, the least of several rounds.

- **a null of a local test**: sbi's `LC2ST`, scikit-learn's network (of the same layers and passes
  as ours, through `assay.Sklearn`), and `assay.lc2st` with `MLP`: time for each null copy.
- **two samples of one law**: BayesFlow's `classifier_two_sample_test`, sbi's `c2st` and
  `assay.c2st` with `MLP`: the statistic alone, and ours with 19 nulls and a p-value.
- **coverage**: lampe's `expected_coverage_mc` and `assay.coverage`, with a p-value, of the same
  draws and density.
- **TARP**: `tarp.get_tarp_coverage`, sbi's `run_tarp` and `assay.tarp`, with a p-value.
"""

import argparse
import json
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import assay
from assay._support.random import stream
from assay._support.work import without_progress

from .data import Data, Size
from .record import origin

PAIRS, NULLS, SAMPLES, DRAWS = 2000, 9, 1000, 100


class Stored:
    """A posterior in the manners of sbi and lampe that hands over stored draws (k, n, m)."""

    def __init__(self, draws: Tensor, mean: Tensor) -> None:
        self.draws, self.mean, self.number = draws, mean, -1

    def sample_batched(self, shape: tuple[int], x: Tensor, **settings: object) -> Tensor:
        """The stored draws, whatever is asked."""
        return self.draws

    def __call__(self, x: Tensor) -> "Stored":
        """The posterior at the next x."""
        self.number = (self.number + 1) % self.draws.shape[1]
        return self

    def sample(self, shape: tuple[int]) -> Tensor:
        """The draws at the current x."""
        return self.draws[: shape[0], self.number]

    def log_prob(self, theta: Tensor) -> Tensor:
        """The log-density there, up to a constant."""
        return -0.5 * ((theta - self.mean[self.number]) / 0.75).square().sum(-1)


Calls = dict[str, tuple[Callable[[], Any], int]]


def local() -> Calls:
    """What trains nulls of a local test, and how many."""
    from sbi.diagnostics.lc2st import LC2ST
    from sklearn.neural_network import MLPClassifier

    data, recipe = Data.of(Size(n=PAIRS)).pairs, assay.MLP()
    given = {"prior_samples": data.theta, "xs": data.x, "posterior_samples": data.theta_q[:, 0]}

    def theirs() -> None:
        LC2ST(**given, num_trials_null=NULLS).train_under_null_hypothesis(0)

    layers = {"hidden_layer_sizes": recipe.hidden, "max_iter": recipe.epochs}
    network = assay.Sklearn(MLPClassifier(**layers, batch_size=256, n_iter_no_change=99))
    exchange = assay.Exchange(NULLS)
    return {
        "sbi LC2ST": (theirs, NULLS),
        "scikit-learn MLPClassifier": (lambda: assay.lc2st(data, network, exchange), NULLS + 1),
        "assay.lc2st, MLP": (lambda: assay.lc2st(data, recipe, exchange), NULLS + 1),
    }


def two_samples() -> Calls:
    """C2ST of two samples of five parameters."""
    from sbi.utils.metrics import c2st

    p, q = torch.randn(2, SAMPLES, 5, generator=stream(0, "peers"))
    calls: Calls = {
        "sbi c2st, MLP, statistic": (lambda: c2st(p, q, classifier="mlp"), 1),
        "assay.c2st, MLP, 19 nulls and p-value": (
            lambda: assay.c2st(p, q, assay.MLP(), assay.Exchange(19)),
            1,
        ),
    }
    try:
        from bayesflow.diagnostics.metrics import classifier_two_sample_test as theirs
    except ImportError:
        return calls
    return {
        "BayesFlow classifier_two_sample_test, statistic": (
            lambda: theirs(p.numpy(), q.numpy()),
            1,
        ),
        **calls,
    }


def regions() -> Calls:
    """Coverage of regions of highest density."""
    from lampe.diagnostics import expected_coverage_mc

    sets, stored, log_q = _stored()
    pairs = list(zip(sets.theta, sets.x, strict=True))
    return {
        "lampe expected_coverage_mc": (lambda: expected_coverage_mc(stored, pairs, DRAWS), 1),
        "assay.coverage, with p-value": (lambda: assay.coverage(sets, log_q), 1),
    }


def balls() -> Calls:
    """TARP."""
    from sbi.diagnostics.tarp import run_tarp
    from tarp import get_tarp_coverage

    sets, stored, _ = _stored()
    plain = {"num_posterior_samples": DRAWS, "show_progress_bar": False}
    arrays = stored.draws.numpy(), sets.theta.numpy()
    return {
        "tarp get_tarp_coverage": (lambda: get_tarp_coverage(*arrays, norm=True), 1),
        "sbi run_tarp": (lambda: run_tarp(sets.theta, sets.x, stored, **plain), 1),
        "assay.tarp, with p-value": (lambda: assay.tarp(sets), 1),
    }


def _stored() -> tuple[assay.Calibration, Stored, Callable[[Tensor, Tensor], Tensor]]:
    """The same draws for all, and the density of q."""
    size = Size(n=PAIRS, k=DRAWS)
    sets = Data.of(size).sets
    draws = sets.members[:, 1:].transpose(0, 1).contiguous()
    which = [j % size.d for j in range(size.m)]

    def log_q(theta: Tensor, x: Tensor) -> Tensor:
        return -0.5 * ((theta - x[:, which] / 2) / 0.75).square().sum(1)

    return sets, Stored(draws, sets.x[:, which] / 2), log_q


def timed(calls: Calls, rounds: int) -> dict[str, float]:
    """The least processor seconds of each call, or of one null, by turns."""
    found: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, (call, parts) in calls.items():
            start = time.process_time()
            with without_progress():
                call()
            found[name].append((time.process_time() - start) / parts)
            print(name, round(found[name][-1], 4), flush=True)
    return {name: min(took) for name, took in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    kinds = {
        f"a null of a local test, {PAIRS} pairs": local,
        f"two samples of {SAMPLES}, five parameters": two_samples,
        f"coverage of {PAIRS} pairs, {DRAWS} draws at each": regions,
        f"TARP of {PAIRS} pairs, {DRAWS} draws at each": balls,
    }
    record = {**origin(), "threads_used": 1, "seed": 0}
    found = {name: timed(make(), given.rounds) for name, make in kinds.items()}
    record |= {"load": os.getloadavg()[0], "peers": found}
    if given.out:
        Path(given.out).write_text(json.dumps(record, indent=1))
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

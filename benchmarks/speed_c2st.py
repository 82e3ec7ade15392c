"""Seconds of a two-sample test with its nulls: all copies at once, beside a loop over fits.

    python -m benchmarks.speed_c2st [--n 1000] [--m 5] [--nulls 99] [--rounds 3]

Both sides do the same work on the same samples: five folds, and a classifier fitted to the data
and to every null copy in each. Discriminant analysis in closed form is compared with a loop over
scikit-learn's, whose statistics must agree, and a stack of networks with a loop over
scikit-learn's networks of the same shape and number of epochs. Last the closed form alone, with
999 nulls. Sides take turns; medians over rounds.
"""

import argparse
import time
import warnings

import numpy as np
import torch
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from assay import MLP, Exchange, Sklearn, c2st
from assay._support.random import stream
from assay.c2st import C2STResult
from assay.classifiers.base import Classifier
from experiments.discriminant import LDA, QDA

EVEN = {"priors": [0.5, 0.5]}
NETWORK = MLPClassifier((64, 64, 64), max_iter=20, batch_size=256)
SIDES: dict[str, tuple[Classifier, Classifier]] = {
    "QDA": (QDA(0.0), Sklearn(QuadraticDiscriminantAnalysis(**EVEN))),
    "LDA": (LDA(0.0), Sklearn(LinearDiscriminantAnalysis(**EVEN))),
    "MLP": (MLP(), Sklearn(make_pipeline(StandardScaler(), NETWORK))),
}


def samples(n: int, m: int) -> tuple[Tensor, Tensor]:
    """Draws of the truth, and of a q that is slightly too wide."""
    p, q = torch.randn(2, n, m, generator=stream(0, "speed"), dtype=torch.float64)
    return p, 1.05 * q


def timed(
    pair: tuple[Tensor, Tensor], classifier: Classifier, nulls: int
) -> tuple[float, C2STResult]:
    """Seconds of a test, and its result."""
    start = time.perf_counter()
    with warnings.catch_warnings():
        # Networks of few epochs have not converged, on either side.
        warnings.simplefilter("ignore")
        result = c2st(*pair, classifier, Exchange(nulls))
    return time.perf_counter() - start, result


def side_by_side(pair: tuple[Tensor, Tensor], name: str, nulls: int, rounds: int) -> float:
    """Prints seconds of both sides; returns those of the loop for each null."""
    ours, theirs = [], []
    for _ in range(rounds):
        for classifier, seconds in zip(SIDES[name], (ours, theirs), strict=True):
            seconds.append(timed(pair, classifier, nulls))
    a, b = (float(np.median([t for t, _ in side])) for side in (ours, theirs))
    apart = np.abs(ours[0][1].null - theirs[0][1].null).max()
    print(f"{name:6}{nulls:>7}{a:>12.3f}{b:>12.2f}{b / a:>9.0f}{apart:>16.1e}", flush=True)
    return b / (nulls + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--m", type=int, default=5)
    parser.add_argument("--nulls", type=int, default=99)
    parser.add_argument("--network-nulls", type=int, default=19)
    parser.add_argument("--rounds", type=int, default=3)
    run = parser.parse_args()
    pair = samples(run.n, run.m)
    timed(pair, QDA(), 1)
    print(f"n_p = n_q = {run.n}, m = {run.m}, five folds, median of {run.rounds} rounds")
    print(f"{'':6}{'nulls':>7}{'batched s':>12}{'loop s':>12}{'ratio':>9}{'nulls apart':>16}")
    side_by_side(pair, "MLP", run.network_nulls, run.rounds)
    loops = {name: side_by_side(pair, name, run.nulls, run.rounds) for name in ("QDA", "LDA")}
    for name, loop in loops.items():
        seconds = np.median([timed(pair, SIDES[name][0], 999)[0] for _ in range(run.rounds)])
        print(
            f"{name} with 999 nulls: {seconds:.2f} s, or {seconds:.2f} ms for each copy; "
            f"the loop's {1e3 * loop:.1f} ms are {1e3 * loop / seconds:.0f} times as long"
        )


if __name__ == "__main__":
    main()

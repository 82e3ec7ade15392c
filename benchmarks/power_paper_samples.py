"""How often each test rejects on the authors' own samples, beside the published rates.

    python benchmarks/power_paper_samples.py [--seeds 5] [--nulls 99] [--device cuda] [--only MLP]

A seed changes the nulls, the initial weights and the order of batches; the samples are the same.
The published rates are means over 50 runs with fresh calibration sets, of p-values #/H at H = 100.
"local" is LocalExchange, exact for the neighbourhood; the others speak against q as a whole.
"""

import argparse
import re
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from paper_samples import EASY, HARD, Case, require

import assay
from assay.classifiers.base import Classifier
from assay.samples.neighbourhoods import Nearest, Smooth

Test = Callable[[assay.Draws], "assay.results.LocalTested"]


@dataclass(frozen=True)
class Method:
    """A test, the samples it sees, and the published test that sees the same."""

    name: str
    space: str
    published: str
    test: Callable[[assay.Calibration, int, int], Test]


def mlp(calibration: assay.Calibration, nulls: int, seed: int) -> Test:
    null = assay.Exchange(nulls) if calibration.base is None else assay.KnownBase(nulls)
    return assay.lc2st(calibration, null=null, seed=seed)


def ridge(calibration: assay.Calibration, nulls: int, seed: int) -> Test:
    return assay.lc2st(calibration, assay.Ridge(), assay.Exchange(nulls), seed=seed)


def local(classifier: Classifier) -> Callable[[assay.Calibration, int, int], Test]:
    def test(calibration: assay.Calibration, nulls: int, seed: int) -> Test:
        return assay.lc2st(calibration, classifier, assay.LocalExchange(nulls, 0.2), seed=seed)

    return test


def region(calibration: assay.Calibration, nulls: int, seed: int) -> Test:
    return assay.region(calibration, where=Nearest((0.2,)), seed=seed)


def local_moments(calibration: assay.Calibration, nulls: int, seed: int) -> Test:
    return assay.moments(calibration, null=assay.LocalExchange(nulls, 0.2), seed=seed)


def moments(where: Nearest | Smooth) -> Callable[[assay.Calibration, int, int], Test]:
    def test(calibration: assay.Calibration, nulls: int, seed: int) -> Test:
        null = assay.Exchange(nulls) if calibration.base is None else assay.KnownBase(nulls)
        return assay.moments(calibration, where, null, seed=seed)

    return test


METHODS = (
    Method("MLP", "parameters", "lc2st", mlp),
    Method("Ridge", "parameters", "lc2st", ridge),
    Method("Ridge", "sets", "lc2st", ridge),
    Method("MLP, local 20 %", "parameters", "lc2st", local(assay.MLP())),
    Method("Ridge, local 20 %", "parameters", "lc2st", local(assay.Ridge())),
    Method("Ridge, local 20 %", "sets", "lc2st", local(assay.Ridge())),
    Method("moments, local 20 %", "sets", "lc2st", local_moments),
    Method("MLP, region 20 %", "sets", "lc2st", region),
    Method("MLP", "latents", "lc2st_nf", mlp),
    Method("Ridge", "latents", "lc2st_nf", ridge),
    Method("MLP, local 20 %", "latents", "lc2st_nf", local(assay.MLP())),
    Method("Ridge, local 20 %", "latents", "lc2st_nf", local(assay.Ridge())),
    Method("moments, local 20 %", "latents", "lc2st_nf", local_moments),
    Method("MLP, region 20 %", "latents", "lc2st_nf", region),
    Method("moments, default", "latents", "lc2st_nf", moments(Nearest())),
    Method("moments, smoothed", "latents", "lc2st_nf", moments(Smooth())),
)


def rejections(
    method: Method, case: Case, n_cal: int, run: argparse.Namespace
) -> tuple[np.ndarray, float]:
    """Rejection rates (seeds,) at 0.05, and seconds for a test of all ten observations."""
    calibration, draws = getattr(case, method.space)(n_cal)
    calibration = calibration.to(run.device)
    start = time.perf_counter()
    tests = (method.test(calibration, run.nulls, seed) for seed in range(run.seeds))
    rates = np.array([np.mean(test(draws).pvalue <= 0.05) for test in tests])
    return rates, (time.perf_counter() - start) / run.seeds


def table(cases: tuple[Case, ...], n_cal: int, run: argparse.Namespace) -> None:
    print(f"\nN_cal = {n_cal}, H = {run.nulls}, {run.seeds} seeds, 10 observations, {run.device}")
    print(f"{'':58}{'published':>10}{'assay':>8}{'± s.e.':>8}{'s / test':>10}")
    for method in METHODS:
        if not re.search(run.only, f"{method.name} {method.space}"):
            continue
        label = f"{method.name:24}{method.space:12}"
        means, published, times = [], [], []
        for case in cases:
            rates, seconds = rejections(method, case, n_cal, run)
            means.append(rates.mean())
            published.append(case.published(method.published, n_cal))
            times.append(seconds)
            error = rates.std(ddof=1) / np.sqrt(run.seeds) if run.seeds > 1 else float("nan")
            print(
                f"{label}{case!s:22}{published[-1]:>10.3f}{means[-1]:>8.3f}"
                f"{error:>8.3f}{seconds:>10.2f}",
                flush=True,
            )
        print(
            f"{label}{'mean':22}{np.mean(published):>10.3f}{np.mean(means):>8.3f}{'':8}"
            f"{np.mean(times):>10.2f}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--nulls", type=int, default=99)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--only", default="", help="a pattern of methods and spaces to run")
    run = parser.parse_args()
    require()
    table(HARD, 10_000, run)
    table(EASY, 2000, run)
    table(HARD, 2000, run)


if __name__ == "__main__":
    main()

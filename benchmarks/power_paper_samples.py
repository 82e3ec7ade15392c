"""How often each test rejects on the authors' own samples, beside the published rates.

    python benchmarks/power_paper_samples.py [--seeds 5] [--nulls 99] [--device cuda]

A seed changes the nulls, the initial weights and the order of batches; the samples are the same.
The published rates are means over 50 runs with fresh calibration sets, of p-values #/H at H = 100.
"""

import argparse
import time

import numpy as np
from paper_samples import EASY, HARD, Case, require

import assay


def rejections(case: Case, space: str, n_cal: int, run: argparse.Namespace) -> np.ndarray:
    """Rejections at 0.05, with shape (seeds, observations)."""
    calibration, draws = getattr(case, space)(n_cal)
    calibration = calibration.to(run.device)
    null = assay.Exchange(run.nulls) if space == "parameters" else assay.KnownBase(run.nulls)
    tests = (assay.lc2st(calibration, null=null, seed=seed) for seed in range(run.seeds))
    return np.stack([test(draws).pvalue <= 0.05 for test in tests])


def table(cases: tuple[Case, ...], n_cal: int, run: argparse.Namespace) -> None:
    print(f"\nN_cal = {n_cal}, H = {run.nulls}, {run.seeds} seeds, 10 observations, {run.device}")
    print(f"{'':32}{'published':>12}{'assay':>8}{'± s.e.':>8}{'s / test':>10}")
    for space, method in (("parameters", "lc2st"), ("latents", "lc2st_nf")):
        means, published = [], []
        for case in cases:
            start = time.perf_counter()
            rates = rejections(case, space, n_cal, run).mean(1)
            seconds = (time.perf_counter() - start) / run.seeds
            means.append(rates.mean())
            published.append(case.published(method, n_cal))
            error = rates.std(ddof=1) / np.sqrt(run.seeds) if run.seeds > 1 else float("nan")
            print(
                f"{space:11}{case!s:21}{published[-1]:>12.3f}{means[-1]:>8.3f}"
                f"{error:>8.3f}{seconds:>10.1f}",
                flush=True,
            )
        print(f"{space:11}{'mean':21}{np.mean(published):>12.3f}{np.mean(means):>8.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--nulls", type=int, default=99)
    parser.add_argument("--device", default="cpu")
    run = parser.parse_args()
    require()
    table(HARD, 10_000, run)
    table(EASY, 2000, run)


if __name__ == "__main__":
    main()

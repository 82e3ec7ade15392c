"""How often each test rejects on the authors' own samples, beside the published rates.

    python benchmarks/power_paper_samples.py [--seeds 5] [--nulls 99]

A seed changes the nulls, the initial weights and the order of batches; the samples are the same.
The published rates are means over 50 runs with fresh calibration sets, of p-values #/H at H = 100.
"""

import argparse
import time

import numpy as np
from paper_samples import EASY, HARD, Case, require

import assay


def rejections(case: Case, space: str, n_cal: int, nulls: int, seeds: int) -> np.ndarray:
    """Rejections at 0.05, with shape (seeds, observations)."""
    calibration, draws = getattr(case, space)(n_cal)
    null = assay.Exchange(nulls) if space == "parameters" else assay.KnownBase(nulls)
    tests = (assay.lc2st(calibration, null=null, seed=seed) for seed in range(seeds))
    return np.stack([test(draws).pvalue <= 0.05 for test in tests])


def table(cases: tuple[Case, ...], n_cal: int, nulls: int, seeds: int) -> None:
    print(f"\nN_cal = {n_cal}, H = {nulls}, {seeds} seeds, 10 observations")
    print(f"{'':32}{'published':>12}{'assay':>8}{'± s.e.':>8}{'s / test':>10}")
    for space, method in (("parameters", "lc2st"), ("latents", "lc2st_nf")):
        means, published = [], []
        for case in cases:
            start = time.perf_counter()
            rates = rejections(case, space, n_cal, nulls, seeds).mean(1)
            seconds = (time.perf_counter() - start) / seeds
            means.append(rates.mean())
            published.append(case.published(method, n_cal))
            error = rates.std(ddof=1) / np.sqrt(seeds) if seeds > 1 else float("nan")
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
    options = parser.parse_args()
    require()
    table(HARD, 10_000, options.nulls, options.seeds)
    table(EASY, 2000, options.nulls, options.seeds)


if __name__ == "__main__":
    main()

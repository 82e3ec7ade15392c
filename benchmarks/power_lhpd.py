"""Power and leak of local levels by the weights around x_o, always together.

    python benchmarks/power_lhpd.py [--repetitions 100] [--nulls 99]

A conjugate Gaussian, N_cal = 2000: q is wrong where the first feature of x is negative, and right
elsewhere. Power is the share of rejections at 0.05 at (-1.5, 0), leak that at (2, 0), where q is
right. Then the authors' samples, where they are at hand: rejections at their ten observations. The
densities of their flows were not kept, so "radius" is the level of the latent's distance from the
centre of the base, exactly uniform for a right q as an HPD level is, but not an HPD level.
"""

import argparse

import numpy as np
import scipy.stats
import torch
from paper_samples import EASY, FOLDER, HARD

import assay
from assay._core import stream
from assay.diagnostics.local.levels import Levels
from assay.diagnostics.local.lhpd import LHPD
from assay.diagnostics.local.lpit import LPIT
from assay.samples.neighbourhoods import Nearest, Smooth

N, M = 2000, 2
WHERES = {
    "nearest": Nearest(),
    "nearest 20 %": Nearest((0.2,)),
    "smooth": Smooth(),
}
# Width and shift of q where it is wrong.
ERRORS = {"width 1.12": (1.12, 0.0), "width 1.4": (1.4, 0.0), "shift 0.3 sd": (1.0, 0.3)}
OBSERVATIONS = torch.tensor([[-1.5, 0.0], [2.0, 0.0]])


def latents(width: float, shift: float, seed: int) -> assay.Calibration:
    """Latents of a flow that is wrong where the first feature of x is negative."""
    generator = stream(seed, "power")
    z = torch.randn(N, M, generator=generator)
    x = torch.randn(N, M, generator=generator) * 2**0.5
    return assay.Calibration.from_base(torch.where(x[:, :1] < 0, z / width - shift, z), x)


def radius(calibration: assay.Calibration) -> Levels:
    """Levels of the distances of latents from the centre of the base."""
    law = scipy.stats.chi2(calibration.m)
    return Levels(law.cdf(calibration.theta.double().square().sum(1)), calibration.x)


def tests(calibration: assay.Calibration, nulls: int) -> dict[tuple[str, str], LHPD | LPIT]:
    found: dict[tuple[str, str], LHPD | LPIT] = {}
    for name, where in WHERES.items():
        found["radius", name] = assay.lhpd(radius(calibration), where=where, null=nulls)
        found["local PIT", name] = assay.lpit(calibration, where=where, null=nulls)
    return found


def gaussian(repetitions: int, nulls: int) -> None:
    for error, (width, shift) in ERRORS.items():
        rejected: dict[tuple[str, str], list[np.ndarray]] = {}
        for seed in range(repetitions):
            for name, test in tests(latents(width, shift, seed), nulls).items():
                found = test(assay.Draws(OBSERVATIONS)).pvalue <= 0.05
                rejected.setdefault(name, []).append(found)
        print(f"\n{error} on one side, {repetitions} repetitions{'power':>12}{'leak':>8}")
        for (kind, name), each in rejected.items():
            power, leak = np.mean(each, 0)
            print(f"{kind:12}{name:30}{power:>8.2f}{leak:>8.2f}", flush=True)


def authors(nulls: int) -> None:
    if not FOLDER.is_dir():
        print(f"\nskipped: the authors' samples are absent from {FOLDER}.")
        return
    for n in (2000, 10_000):
        print(f"\nAuthors' samples, N_cal = {n}: rejections at ten observations")
        print(f"{'':28}{'published':>11}" + "".join(f"{name:>20}" for name in WHERES))
        for case in (*EASY, *HARD):
            calibration, draws = case.latents(n)
            found = tests(calibration, nulls)
            rates = {
                key: float((test(draws).pvalue <= 0.05).mean()) for key, test in found.items()
            }
            for kind in ("radius", "local PIT"):
                row = "".join(f"{rates[kind, name]:>20.1f}" for name in WHERES)
                label = f"{case.task} {case.n_train} {kind}"
                print(f"{label:28}{case.published('lhpd', n):>11.2f}{row}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repetitions", type=int, default=100)
    parser.add_argument("--nulls", type=int, default=99)
    run = parser.parse_args()
    gaussian(run.repetitions, run.nulls)
    authors(run.nulls)


if __name__ == "__main__":
    main()

"""Seconds per null of assay.lc2st and of sbi.diagnostics.LC2ST, side by side in one run.

    python benchmarks/speed_lc2st.py [--pairs 10000] [--nulls 99] [--peer-nulls 10] [--rounds 3]

The data have the shape of SLCP: five parameters, eight observed numbers. The two take turns, so
that both see the same noise of the machine. The peer runs its default network on the CPU.
"""

import argparse
import os
import statistics
import time
import warnings

# Before torch: one process at a time uses all cores.
os.environ.setdefault("OMP_NUM_THREADS", str(os.cpu_count()))

import torch

import assay


def slcp(n: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Parameters and observations of the SLCP task (Lueckmann et al. 2021)."""
    theta = 6 * torch.rand(n, 5, generator=generator) - 3
    s1, s2, rho = theta[:, 2] ** 2, theta[:, 3] ** 2, theta[:, 4].tanh()
    a, b = torch.randn(2, n, 4, generator=generator)
    first = theta[:, :1] + s1[:, None] * a
    second = theta[:, 1:2] + s2[:, None] * (rho[:, None] * a + (1 - rho**2).sqrt()[:, None] * b)
    return theta, torch.stack([first, second], 2).flatten(1)


def peer_seconds(theta: torch.Tensor, x: torch.Tensor, q: torch.Tensor, nulls: int) -> float:
    """Seconds per null of sbi."""
    from sbi.diagnostics.lc2st import LC2ST

    test = LC2ST(prior_samples=theta, xs=x, posterior_samples=q, num_trials_null=nulls)
    start = time.perf_counter()
    test.train_under_null_hypothesis(verbosity=0)
    return (time.perf_counter() - start) / nulls


def own_seconds(calibration: assay.Calibration, nulls: int) -> float:
    """Seconds per network of this library, the observed one counted in."""
    null = assay.Exchange(nulls) if calibration.base is None else assay.KnownBase(nulls)
    start = time.perf_counter()
    assay.lc2st(calibration, null=null)
    return (time.perf_counter() - start) / (nulls + 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--nulls", type=int, default=99)
    parser.add_argument("--peer-nulls", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    run = parser.parse_args()
    warnings.simplefilter("ignore")
    generator = torch.Generator().manual_seed(0)
    theta, x = slcp(run.pairs, generator)
    q = theta[torch.randperm(run.pairs, generator=generator)]
    parameters = assay.Calibration(theta, x, q)
    latents = assay.Calibration.from_base(torch.randn(run.pairs, 5, generator=generator), x)
    seconds: dict[str, list[float]] = {"sbi": [], "assay": [], "assay, latent": []}
    print(f"N_cal = {run.pairs}, m = 5, d = 8, {torch.get_num_threads()} threads")
    print("round" + "".join(f"{name:>16}" for name in seconds) + f"{'ratio':>8}{'latent':>8}")
    for i in range(run.rounds):
        seconds["sbi"].append(peer_seconds(theta, x, q, run.peer_nulls))
        seconds["assay"].append(own_seconds(parameters, run.nulls))
        seconds["assay, latent"].append(own_seconds(latents, run.nulls))
        peer, own, latent = (times[-1] for times in seconds.values())
        row = "".join(f"{times[-1]:>16.3f}" for times in seconds.values())
        print(f"{i:5}{row}{peer / own:>8.1f}{peer / latent:>8.1f}", flush=True)
    # Means, because the peer's time per null varies with the epochs it happens to take.
    peer, own, latent = map(statistics.mean, seconds.values())
    print("seconds per null, mean over rounds; ratio = sbi / assay")
    print(f"mean  {peer:>15.3f}{own:>16.3f}{latent:>16.3f}{peer / own:>8.1f}{peer / latent:>8.1f}")


if __name__ == "__main__":
    main()

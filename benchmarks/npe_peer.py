"""Neural posterior estimation beside sbi's, on Two Moons: nats on fresh data, and seconds.

    python benchmarks/npe_peer.py [--n 1000] [--seeds 20] [--batch 200]

For each seed, new simulations; on them the paper's neural spline flow trained by us (SbiNSF) and
by sbi itself (the same builder, batch, rate, patience and share of validation), and zuko's (NSF).
The loss of each is taken on the same 5000 fresh simulations, in the units of theta. With 1000
simulations single trainings differ by 0.1 nats and more, as early stopping hears only a hundred
rows: methods are compared over seeds.
"""

import argparse
import contextlib
import io
import time
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from assay.randomness import isolated, stream
from assay.tasks.npe import NSF, SbiNSF, train
from assay.tasks.two_moons import TwoMoons

FRESH = 5000
LogProb = Callable[[Tensor, Tensor], Tensor]


# A tracker that writes nothing, where sbi would write a folder of logs.
CALLS = ("log_metric", "log_metrics", "log_params", "add_figure", "flush")
SILENCE = SimpleNamespace(log_dir=None, **dict.fromkeys(CALLS, lambda *_, **__: None))


def ours(architecture: NSF | SbiNSF) -> Callable[[Tensor, Tensor, int, int], LogProb]:
    def run(theta: Tensor, x: Tensor, batch: int, seed: int) -> LogProb:
        return train(theta, x, architecture, batch=batch, seed=seed).log_prob

    return run


def theirs(theta: Tensor, x: Tensor, batch: int, seed: int) -> LogProb:
    """The same flow by sbi, from its defaults but for the batch."""
    from sbi.inference import NPE
    from sbi.neural_nets import posterior_nn
    from sbi.utils import BoxUniform

    builder = posterior_nn("nsf", hidden_features=50, num_transforms=5, num_bins=10)
    prior = BoxUniform(-torch.ones(2), torch.ones(2))
    with isolated(stream(seed, "sbi")), contextlib.redirect_stdout(io.StringIO()):
        peer = NPE(prior, builder, tracker=SILENCE, show_progress_bars=False)
        flow = peer.append_simulations(theta, x).train(
            training_batch_size=batch,
            learning_rate=5e-4,
            validation_fraction=0.1,
            stop_after_epochs=20,
            clip_max_norm=5.0,
        )
    return lambda theta, x: flow.log_prob(theta[None], x)[0]


METHODS = {"ours, SbiNSF": ours(SbiNSF()), "sbi": theirs, "ours, zuko NSF": ours(NSF())}


def warm() -> None:
    """Imports what is imported late, so that no seconds are counted for it."""
    theta, x = TwoMoons().joint(50, stream(0, "warm"))
    for architecture in (SbiNSF(), NSF()):
        train(theta, x, architecture, epochs=1)
    import sbi.inference  # noqa: F401


def compare(n: int, seeds: int, batch: int) -> dict[str, np.ndarray]:
    """Nats and seconds (seeds, 2) of each method."""
    task = TwoMoons()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in METHODS}
    for seed in range(seeds):
        theta, x = task.joint(n, stream(seed, "simulations"))
        fresh = task.joint(FRESH, stream(seed, "fresh"))
        for name, method in METHODS.items():
            start = time.perf_counter()
            log_prob = method(theta, x, batch, seed)
            seconds = time.perf_counter() - start
            with torch.no_grad():
                found[name].append((-float(log_prob(*fresh).mean()), seconds))
            print(f"seed {seed}  {name:16}{found[name][-1][0]:>9.3f}{seconds:>9.1f}", flush=True)
    return {name: np.array(rows) for name, rows in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=1000)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--batch", type=int, default=200)
    run = parser.parse_args()
    warm()
    found = compare(run.n, run.seeds, run.batch)
    print(f"\nTwo Moons, n = {run.n}, batch {run.batch}: mean over {run.seeds} seeds (s.e.)")
    print(f"{'':16}{'nats':>9}{'s.e.':>7}{'minus sbi':>11}{'s.e.':>7}{'seconds':>9}{'longest':>9}")
    root = np.sqrt(run.seeds)
    for name, rows in found.items():
        nats, seconds = rows.T
        gap = nats - found["sbi"][:, 0]
        print(
            f"{name:16}{nats.mean():>9.3f}{nats.std(ddof=1) / root:>7.3f}{gap.mean():>11.3f}"
            f"{gap.std(ddof=1) / root:>7.3f}{np.median(seconds):>9.1f}{seconds.max():>9.1f}"
        )


if __name__ == "__main__":
    main()

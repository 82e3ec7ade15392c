"""What a local answer costs: ten observations, a local null, effects and power.

    python benchmarks/speed_local.py [--pairs 10000] [--nulls 199] [--device cpu]

SLCP's sizes (m = 5, d = 8) on a conjugate Gaussian whose q is 20 % too wide. Seconds of each part.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import torch

import assay
from assay._core import stream
from assay.interpret.errors import Wide
from assay.tasks.linear_gaussian import ConjugateGaussian
from assay.tasks.perturbed import Perturbed

K, OBSERVATIONS = 16, 10


def timed(name: str, function: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    found = function()
    seconds = time.perf_counter() - start
    print(f"  {name:28}{seconds:8.1f} s", flush=True)
    return found, seconds


def answer(name: str, test: Callable[[], Any], draws: assay.Draws, *, power: bool) -> None:
    """Runs a test at all observations, its effects and, where asked for, its power."""
    print(name)
    made, first = timed("test", test)
    result, second = timed("ten observations", lambda: made(draws))
    _, third = timed("effects", lambda: assay.effects(result))
    fourth = timed("power", lambda: assay.power(made, draws))[1] if power else 0.0
    print(f"  {'together':28}{first + second + third + fourth:8.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--nulls", type=int, default=199)
    parser.add_argument("--device", default="cpu")
    run = parser.parse_args()
    model, generator = ConjugateGaussian(5, 8), stream(0, "speed, local")
    q = Perturbed(model, Wide(), 0.2)
    theta, x = model.joint(run.pairs, generator)
    x_o = model.joint(OBSERVATIONS, generator)[1]
    draws = assay.Draws(x_o, q.draws(x_o, 1000, generator))
    sets = assay.Calibration(theta, x, q.draws(x, K, generator)).to(run.device)
    pairs = assay.Calibration(sets.theta, sets.x, sets.theta_q[:, 0])
    z = q.theta_to_base(theta, x).float()
    latents = assay.Calibration.from_base(z, x.float()).to(run.device)
    null = assay.LocalExchange(run.nulls)
    print(f"{run.pairs} pairs, H = {run.nulls}, {torch.get_num_threads()} threads, {run.device}")
    there = assay.Draws(x_o)
    answer("moments, latents", lambda: assay.moments(latents, null=null), there, power=True)
    answer(f"moments, {K} draws", lambda: assay.moments(sets, null=null), there, power=True)
    answer("Ridge, one draw", lambda: assay.lc2st(pairs, assay.Ridge(), null), draws, power=False)
    if run.device != "cpu":
        answer("MLP, one draw", lambda: assay.lc2st(pairs, null=null), draws, power=False)


if __name__ == "__main__":
    main()

"""Seconds that draws of q take, for posteriors of other libraries as they are.

    python -m benchmarks.reach [--observations 1000] [--draws 16]

Each posterior is trained for a few epochs, and `Calibration.of` draws from it at every x; Markov
chains run at a twentieth of them. On one thread, but for what JAX does. It needs sbi and BayesFlow
in one environment, as that of the site (`make docs`). It leaves results/reach/draws.json.
"""

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

os.environ |= {"KERAS_BACKEND": "jax", "OMP_NUM_THREADS": "1"}

import numpy as np
import torch

from assay import Calibration

from .record import origin

RECORD = Path(__file__).parents[1] / "results" / "reach" / "draws.json"
SEED, TRAINED, EPOCHS = 0, 2000, 5
M = 3
# A posterior, and what makes so many of its pairs.
Made = tuple[Any, Callable[[int], Any]]


def sbi(name: str, *, box: bool = False) -> Made:
    """A posterior of sbi."""
    from sbi import inference
    from sbi.utils import BoxUniform

    normal = torch.distributions.MultivariateNormal(torch.zeros(M), torch.eye(M))
    prior = BoxUniform(-2 * torch.ones(M), 2 * torch.ones(M)) if box else normal

    def pairs(n: int) -> Any:
        theta = prior.sample((n,))
        return theta, theta + 0.5 * torch.randn(n, M)

    trained = getattr(inference, name)(prior, show_progress_bars=False)
    trained.append_simulations(*pairs(TRAINED)).train(max_num_epochs=EPOCHS)
    return trained.build_posterior(), pairs


def bayesflow(name: str) -> Made:
    """A workflow of BayesFlow."""
    import bayesflow as bf
    import keras

    keras.utils.set_random_seed(SEED)
    rng = np.random.default_rng(SEED)
    simulator = bf.make_simulator(
        [
            lambda: {"theta": rng.normal(size=M)},
            lambda theta: {"x": theta + 0.5 * rng.normal(size=M)},
        ]
    )
    workflow = bf.BasicWorkflow(
        simulator=simulator,
        inference_network=getattr(bf.networks, name)(),
        inference_variables=["theta"],
        inference_conditions=["x"],
    )
    workflow.fit_offline(simulator.sample(TRAINED), epochs=EPOCHS, batch_size=100, verbose=0)

    def pairs(n: int) -> Any:
        data = simulator.sample(n)
        return {"theta": data["theta"]}, {"x": data["x"]}

    return workflow, pairs


# Posteriors, and the share of all x at which they are asked.
CASES: dict[str, tuple[Callable[[], Made], float]] = {
    "sbi NPE": (partial(sbi, "NPE"), 1),
    "sbi NPE, prior with bounds": (partial(sbi, "NPE", box=True), 1),
    "sbi FMPE": (partial(sbi, "FMPE"), 1),
    "sbi FMPE, prior with bounds": (partial(sbi, "FMPE", box=True), 1),
    "BayesFlow coupling flow": (partial(bayesflow, "CouplingFlow"), 1),
    "BayesFlow flow matching": (partial(bayesflow, "FlowMatching"), 1),
    "sbi NRE by MCMC": (partial(sbi, "NRE"), 0.05),
    "sbi NLE by MCMC": (partial(sbi, "NLE"), 0.05),
}


def drawn(make: Callable[[], Made], n: int, k: int) -> dict[str, float]:
    """Seconds of k draws at each of n observations, the first that a posterior makes."""
    torch.manual_seed(SEED)
    posterior, pairs = make()
    given = pairs(n)
    start, busy = time.perf_counter(), time.process_time()
    made = Calibration.of(posterior, *given, k)
    found = {"clock": time.perf_counter() - start, "processor": time.process_time() - busy}
    assert made.members.shape == (n, k + 1, M)
    return {"observations": n, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--observations", type=int, default=1000)
    parser.add_argument("--draws", type=int, default=16)
    run = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    where, rows = origin(), []
    os.chdir(tempfile.mkdtemp())  # where sbi leaves its logs
    for name, (make, share) in CASES.items():
        found = drawn(make, round(share * run.observations), run.draws)
        rows.append({"posterior": name, **found, "load": os.getloadavg()[0]})
        print(rows[-1], flush=True)
    record = {**vars(run), "seed": SEED, "threads": 1, **where, "rows": rows}
    record["versions"] |= {name: version(name) for name in ("sbi", "bayesflow", "jax")}
    RECORD.parent.mkdir(parents=True, exist_ok=True)
    RECORD.write_text(f"{json.dumps(record, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    main()

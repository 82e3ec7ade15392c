"""The demo: a flow trained on the spot, right at one observation and wrong at another.

The posterior of Two Moons (Greenberg, Nonnenmacher and Macke 2019) consists of two crescents. The
flow is trained on simulations with theta_1 < 0.4 only, as happens when a prior is widened after
the training; the calibration pairs come from the whole prior. Where both crescents lie in the part
that it was trained on the flow is about right; where one lies outside, it has lost a mode.
"""

import math
from typing import Any

import torch
import zuko
from torch import Tensor

from .._support.inputs import cpu
from .._support.random import isolated, stream
from .._support.work import progress
from ..adapters.zuko import ZukoFlow

# Where the flow was trained, the observations, the pairs of the check, and how it was trained.
TRAINED_BELOW = 0.4
OBSERVATIONS = {"good": (-0.12, 0.7), "bad": (-0.145, -0.495)}
PAIRS, BATCH, RATE = 1200, 1000, 4e-3
TRUE = "What is true: the flow has lost one of two modes at 'bad', and none at 'good'."


def demo_inputs(epochs: int = 30, simulations: int = 50_000, seed: int = 0) -> dict[str, Any]:
    """Arguments of :func:`assay.check`: a flow that is trained here, pairs and observations."""
    flow = ZukoFlow(train(epochs, simulations, seed))
    generator = stream(seed, "calibration")
    theta = sample_prior(PAIRS, generator)
    x, x_o = simulate(theta, generator), cpu.tensor(list(OBSERVATIONS.values()))
    named = {"names": ("theta_1", "theta_2"), "labels": tuple(OBSERVATIONS)}
    return {"posterior": flow, "theta": theta, "x": x, "x_o": x_o, **named, "seed": seed}


def sample_prior(n: int, generator: torch.Generator) -> Tensor:
    """Parameters (n, 2), uniform on a square."""
    return 2 * cpu.rand(n, 2, generator=generator) - 1


def simulate(theta: Tensor, generator: torch.Generator) -> Tensor:
    """Observations (n, 2) of parameters (n, 2)."""
    angle = math.pi * (cpu.rand(len(theta), generator=generator) - 0.5)
    radius = 0.1 + 0.01 * cpu.randn(len(theta), generator=generator)
    crescent = torch.stack([radius * angle.cos() + 0.25, radius * angle.sin()], 1)
    moved = torch.stack([-theta.sum(1).abs(), theta[:, 1] - theta[:, 0]], 1) / math.sqrt(2)
    return crescent + moved


def train(epochs: int, simulations: int, seed: int) -> zuko.flows.NSF:
    """Trains a neural spline flow on a part of the prior."""
    generator = stream(seed, "training")
    theta = sample_prior(2 * simulations, generator)
    theta = theta[theta[:, 0] < TRAINED_BELOW][:simulations]
    x = simulate(theta, generator)
    batch = min(BATCH, len(x))
    batches = len(x) // batch
    with isolated(generator):
        flow = zuko.flows.NSF(2, 2, transforms=3, hidden_features=(64, 64))
    optimizer = torch.optim.AdamW(flow.parameters(), lr=RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, epochs * batches)
    for _ in progress(range(epochs), "training the flow", unit="epoch"):
        order = cpu.randperm(len(x), generator=generator)
        for rows in order[: batches * batch].split(batch):
            optimizer.zero_grad()
            (-flow(x[rows]).log_prob(theta[rows]).mean()).backward()
            torch.nn.utils.clip_grad_norm_(flow.parameters(), 5.0)
            optimizer.step()
            schedule.step()
    return flow

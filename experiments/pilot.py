"""A pilot on a machine with a GPU: are networks scikit-learn's own there, and how fast are they?

Each part is written as soon as it is done; one that fails does not stop the others.
"""

import json
import platform
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .blocks import Blocks
from .cells import SIZES, STAGES, jobs, units
from .flows import SbiNSF, Training, train
from .kernels import Compiler, Kernels, nvcc
from .networks import Network, Sklearn, two_layers
from .runner import Clock, Runner, expected, say
from .runs import Job, Records
from .stacked import Engine, Fit, Places, Rows, Stacked, Torch

__all__ = ["pilot", "precompiled"]

# Shapes of rows, left and right, with the units of their networks, and epochs to look at.
SHAPES = ((2, 2, 20), (5, 8, 50), (10, 10, 100), (10, 100, 100), (10, 0, 100))
# Other ways in which kernels can share work, by the task that tells which is faster.
VARIANTS = {
    "two_moons": ((), ("-DBLOCKS=4",), ("-DGROUPS=25", "-DDEEP=8", "-DBLOCKS=4")),
    "slcp": ((), ("-DBLOCKS=2",), ("-DGROUPS=7", "-DBLOCKS=4"), ("-DGROUPS=7", "-DBLOCKS=5")),
    "gaussian_linear_uniform": ((), ("-DGROUPS=10", "-DBLOCKS=1")),
    "bernoulli_glm_raw": ((),),
}
SHORT = 4
# Differences of probabilities that are rounding.
CLOSE = 1e-4


def pilot(
    out: Path, blocks: Blocks, engine_of: Callable[[str], Engine], records: Records, folder: Path
) -> None:
    """Checks and times; leaves ``pilot.json``, and records of the jobs that were timed.

    Args:
        out: Where these go.
        blocks: What jobs are made of.
        engine_of: What trains networks, by its name.
        records: Where findings go.
        folder: Where kernels are kept.
    """
    told: dict[str, Any] = {}
    parts: dict[str, Callable[[], Any]] = {
        "machine": lambda: _machine(blocks.device),
        "compiled": lambda: _seconds(engine_of, "kernels"),
        "exact": lambda: exact(blocks.device, engine_of),
        "variants": lambda: variants(blocks, folder),
        "torch": lambda: _torch(blocks),
        "jobs alone": lambda: _jobs(blocks, engine_of("kernels"), records, "L-C2ST", 1),
        "jobs together": lambda: _jobs(blocks, engine_of("kernels"), records, "L-C2ST-NF", 3),
        "flows": lambda: _flow_steps(blocks),
        "seconds by stage": _by_stage,
    }
    for name, part in parts.items():
        start = time.perf_counter()
        try:
            told[name] = part()
        except Exception:
            told[name] = traceback.format_exc()
        say(f"{name}, {time.perf_counter() - start:.1f} s: {json.dumps(told[name])}")
        (out / "pilot.json").write_text(json.dumps(told, indent=1), encoding="utf-8")


def _machine(device: torch.device) -> dict[str, Any]:
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else "none"
    return {"python": platform.python_version(), "torch": torch.__version__, "gpu": gpu}


def _seconds(call: Callable[..., Any], *given: Any) -> float:
    """How long a call takes, with all that it leaves a GPU to do."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    call(*given)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return round(time.perf_counter() - start, 3)


def exact(device: torch.device, engine_of: Callable[[str], Engine]) -> dict[str, Any]:
    """Largest differences of probabilities to scikit-learn's, and whether epochs are the same."""
    told: dict[str, Any] = {}
    for m, d, width in SHAPES:
        for n, epochs in ((90, 1000), (730, 12)) if width == 20 else ((90, 40), (730, 6)):
            network = Network((width, width), epochs=epochs)
            inputs, labels = _samples(n, m + d)
            right = Sklearn(network).fit(inputs, labels)
            found: Any
            for name in ("kernels", "torch"):
                try:
                    rows = Rows.of(inputs.to(device), labels.to(device), m)
                    found = _compared(Stacked(network, engine=engine_of(name)), rows, right)
                except Exception:
                    found = traceback.format_exc()
                told[f"{name} {m} {d} {n}"] = found
    return told


def _compared(classifier: Stacked, rows: Rows, right: Any) -> dict[str, Any]:
    """Networks beside scikit-learn's, at the first rows that they were trained on."""
    trained = classifier.train(rows)
    at = rows.at(torch.arange(len(rows.codes), device=rows.codes.device), rows.codes[:, :200])
    each = zip(trained.fitted, right, at, strict=True)
    apart = [float((one(x).cpu() - other(x.cpu())).abs().max()) for one, other, x in each]
    places = Places(rows.left, rows.right[:2], rows.left_at[:, None].repeat(1, 2), at.shape[1])
    asked = Torch().ask(trained, places) - classifier.engine.ask(trained, places)
    epochs = [one.args[0].n_iter_ for one in right]
    return {
        "probabilities": max(apart),
        "asked": float(asked.abs().max()),
        "epochs": trained.epochs.tolist(),
        "right": trained.epochs.tolist() == epochs and max(apart) < CLOSE,
    }


def _samples(n: int, p: int, copies: int = 3) -> tuple[Tensor, Tensor]:
    """Rows (h, 2 n, p) in any order, and their classes, which differ by a shift."""
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(copies, 2 * n, p, generator=generator)
    orders = [torch.randperm(2 * n, generator=generator) for _ in range(copies)]
    labels = torch.stack([(order < n).long() for order in orders])
    inputs[..., 0] += 0.7 * labels
    return inputs, labels


def _large(task: str, name: str = "L-C2ST") -> Job:
    """The first ten runs of the largest cell of a task whose flow is there."""
    (job,) = (
        job
        for job in jobs("paper", ("power",))
        if (job["task"], job["train"], job["cal"]) == (task, 1000, 10_000)
        and job["method"] == f"published {name}"
    )
    return job


def variants(blocks: Blocks, folder: Path) -> dict[str, Any]:
    """Seconds of few epochs of a large cell, and what that is in 10^12 operations a second."""
    told = {}
    for task, options in VARIANTS.items():
        job = _large(task)
        stack = blocks.stack(job)
        network = Network(two_layers(stack.m).hidden, epochs=SHORT)
        fit = Fit.of(network, stack.rows)
        _ = fit.split
        for further in options:
            engine = Kernels(_compiler(folder, *further))
            seconds = min(_seconds(engine.train, fit) for _ in range(2))
            speed = _operations(fit) / seconds / 1e12
            told[f"{task} {' '.join(further)}"] = [seconds, round(speed, 2)]
        trained = engine.train(fit)
        told[f"{task} asked"] = [_seconds(engine.ask, trained, stack.places)]
    return told


def _compiler(folder: Path, *further: str) -> Compiler:
    return nvcc(folder, *further)


def precompiled(folder: Path) -> None:
    """Compiles what :func:`variants` looks at."""
    for task, options in VARIANTS.items():
        m, d = SIZES[task]
        for further in options:
            _compiler(folder, *further).library(m, d, 10 * m)


def _operations(fit: Fit) -> float:
    """Products and sums of all steps of a fit."""
    matrices = [a * b for a, b in fit.plan.shapes[::2]]
    per_row = 2 * (2 * matrices[0] + 3 * sum(matrices[1:]))
    return float(len(fit.rows.codes) * fit.network.epochs * len(fit.plan.known) * per_row)


def _torch(blocks: Blocks) -> dict[str, Any]:
    """The same by operations of torch, whose first epochs take longer."""
    told = {}
    for task in ("two_moons", "gaussian_linear_uniform"):
        stack = blocks.stack(_large(task))
        hidden = two_layers(stack.m).hidden
        fits = [Fit.of(Network(hidden, epochs=n), stack.rows) for n in (3, 3 + SHORT)]
        few, more = (_seconds(Torch().train, fit) for fit in fits)
        speed = _operations(fits[1]) * SHORT / (3 + SHORT) / max(more - few, 1e-9) / 1e12
        told[task] = {"seconds": [few, more], "speed": round(speed, 2)}
    return told


def _jobs(
    blocks: Blocks, engine: Engine, records: Records, name: str, workers: int
) -> dict[str, Any]:
    """Seconds of whole jobs, as they are done later; the first of them sets up libraries."""
    some = [_large(task, name) for task in VARIANTS]
    clock = Clock(120.0)
    Runner(blocks, engine, records, clock).run(some, workers)
    return {"seconds": round(clock.elapsed, 2), "expected": round(sum(map(expected, some)), 2)}


def _flow_steps(blocks: Blocks) -> dict[str, Any]:
    """Seconds of an epoch when flows are trained."""
    told = {}
    generator = torch.Generator().manual_seed(0)
    for n in (10_000, 100_000):
        theta, x = (
            torch.randn(n, 10, generator=generator),
            torch.randn(n, 100, generator=generator),
        )
        spent = []
        for epochs in (1, 6):
            how = Training(batch=min(10_000, round(0.9 * n)), epochs=epochs)
            spent.append(_seconds(train, theta, x, SbiNSF(), how, blocks.device))
        told[str(n)] = round((spent[1] - spent[0]) / 5, 4)
    return told


def _by_stage() -> dict[str, list[float]]:
    """Expected seconds of each stage, and its operations in 10^15."""
    each = {name: jobs("paper", (name,)) for name in STAGES}
    return {
        name: [round(sum(map(expected, some))), round(sum(map(units, some)) / 1e15, 2)]
        for name, some in each.items()
    }

"""Material: flows, calibration sets and draws at observations that experiments share.

Flows are autoregressive neural spline flows, or those of the paper, which have coupling layers;
they are trained with the settings of the SBI benchmark, and never truncated to the prior. Flows of
the paper's kind that were trained are kept in ``results/flows``, and found there.
"""

import hashlib
import json
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import assay
from assay._support.random import stream

from .flows import ARCHITECTURES, Flow, Training, train
from .runs import Context, Job
from .tasks import task
from .tasks.task import Task

__all__ = ["KEPT", "Recipe", "Setting", "flow", "train_flows"]

# Flows that were trained before.
KEPT = Path(__file__).resolve().parents[1] / "results" / "flows"


@dataclass(frozen=True)
class Recipe:
    """A flow of a task.

    Args:
        task: The name of the task.
        train: The number of simulations it is trained on.
        epochs: The most passes over them.
        kind: The name of its architecture.
        draw: Which draw of the simulations, and of all chance in training.
    """

    task: str
    train: int
    epochs: int = 10_000
    kind: str = "NSF"
    draw: int = 0

    @classmethod
    def of(cls, job: Job) -> "Recipe":
        """The flow that a job looks at."""
        return cls(**{key: job[key] for key in cls.__annotations__ if key in job})

    @property
    def name(self) -> str:
        """The start of a file name, with a hash of what made it."""
        text = json.dumps(asdict(self), sort_keys=True)
        made = hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
        return f"{self.task}-{self.train}-{self.kind}-{self.draw}-{made}"

    def trained(self, device: str) -> Flow:
        """Trains the flow."""
        name = f"simulations {self.draw}" if self.draw else "simulations"
        theta, x = task(self.task).joint(self.train, stream(self.train, name))
        # Whole batches up to 10 000 rows, as in the benchmark.
        batch = min(10_000, round(0.9 * self.train))
        how = Training(batch=batch, epochs=self.epochs, seed=self.draw)
        return train(theta, x, ARCHITECTURES[self.kind](), how, device)


def flow(recipe: Recipe, context: Context) -> Flow:
    """A trained flow, trained now if it is not there."""
    name = f"{recipe.name}.safetensors"
    path = next((p for p in _places(name, context) if p.exists()), context.folder / name)
    if not path.exists():
        recipe.trained(context.device).save(path)
    return Flow.load(path, context.device)


def _places(name: str, context: Context) -> Iterable[Path]:
    return (context.folder / name, KEPT / name)


def train_flows(jobs: list[Job], context: Context, executor: Executor | None = None) -> None:
    """Trains all flows that jobs look at, so that none is trained twice at once."""
    each = dict.fromkeys(map(Recipe.of, jobs))
    run = map if executor is None else executor.map
    list(run(partial(_made, context), each))


def _made(context: Context, recipe: Recipe) -> None:
    """Sees to it that a flow is there; flows themselves do not travel between processes."""
    flow(recipe, context)


@dataclass(frozen=True, eq=False)
class Setting:
    """One run: a flow, a calibration set and draws at the observations.

    Args:
        recipe: How the flow was made.
        flow: The flow.
        pairs: The size of the calibration.
        run: The number of the run, on which all chance depends.
        draws: Draws of q at each observation.
        right: Whether truths are draws of q, so that the hypothesis is true everywhere.
    """

    recipe: Recipe
    flow: Flow
    pairs: int
    run: int
    draws: int
    right: bool = False

    @property
    def task(self) -> Task:
        """The task."""
        return task(self.recipe.task)

    @property
    def seed(self) -> int:
        """A seed that depends on the run alone."""
        return self.run

    def _stream(self, purpose: str) -> torch.Generator:
        key = (self.recipe.task, self.recipe.train, self.pairs, purpose)
        return stream(self.run, *key)

    @cached_property
    def joint(self) -> tuple[Tensor, Tensor]:
        """Truths (n, m) and observations (n, d)."""
        theta, x = self.task.joint(self.pairs, self._stream("joint"))
        if self.right:
            theta = self.flow.sample_each(x, 1, self._stream("truths"))[:, 0]
        return theta, x

    def sets(self, k: int) -> assay.Calibration:
        """The pairs with k draws of q at each x."""
        theta, x = self.joint
        drawn = self.flow.sample_each(x, k, self._stream("draws"))
        return assay.Calibration(theta, x, drawn).to(self.device)

    @cached_property
    def latents(self) -> assay.Calibration:
        """The pairs in the base space of the flow."""
        theta, x = self.joint
        found = assay.Calibration.from_base(self.flow.theta_to_base(theta, x), x)
        return found.to(self.device)

    @property
    def device(self) -> str:
        """Where the flow is."""
        return str(self.flow.device)

    @property
    def x_o(self) -> Tensor:
        """The ten observations of the benchmark."""
        return self.task.observations.x

    @cached_property
    def theta_o(self) -> Tensor:
        """Draws of q at the observations, (o, s, m)."""
        return self.flow.sample_each(self.x_o, self.draws, self._stream("observations"))

    @property
    def there(self) -> assay.Draws:
        """The observations with draws of q."""
        return assay.Draws(self.x_o, self.theta_o)

    def exact(self, n: int) -> list[Tensor]:
        """Draws (n, m) of the true posterior at every observation; of q where q is right."""
        generator = self._stream("posterior")
        if self.right:
            return list(self.flow.sample_each(self.x_o, n, generator))
        return [self.task.posterior(x, n, generator).theta for x in self.x_o]

    def q(self, n: int) -> Tensor:
        """Other draws (o, n, m) of q at every observation."""
        return self.flow.sample_each(self.x_o, n, self._stream("q"))

    @property
    def parameters(self) -> dict[str, Any]:
        """What made it, as plain values."""
        return {**asdict(self.recipe), "pairs": self.pairs, "run": self.run, "right": self.right}

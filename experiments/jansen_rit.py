"""Jansen-Rit: the flow, the calibration and the trained test that Figures 3 and 4 share.

The flow is a masked autoregressive one of ten transforms, without the batch normalisation of the
paper's, trained as there (batches of 100, rate 0.0005, patience of 20 epochs) and never truncated
to the prior. There is one calibration set, and one observation for each gain from -20 to 20
decibels, at C = 135, mu = 220, sigma = 2000.
"""

import hashlib
import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import assay
from assay._support.random import stream
from assay.local.lc2st import LC2ST

from .flows import MAF, Flow, Training, train
from .runs import Context, Job
from .tasks import JansenRit, Observations

__all__ = ["GAINS", "NAMES", "Recipe", "Setting", "file_name", "observed"]

NAMES = JansenRit.parameters
GAINS = tuple(range(-20, 21, 5))
BATCH, RATE, PATIENCE = 100, 5e-4, 20
SEED = 0


def file_name(kind: str, made: Any) -> str:
    """A file name that says nothing; what made it stands inside the results.

    Args:
        kind: What the file holds, in a word.
        made: The parameters that made it, as plain values.

    Example:
        >>> file_name("flow", {"train": 100})
        'flow-d966e918d8ab676c'
    """
    text = json.dumps(made, sort_keys=True)
    return f"{kind}-{hashlib.blake2b(text.encode(), digest_size=8).hexdigest()}"


@cache
def _observations() -> Observations:
    return JansenRit().observations


def observed(gains: list[int]) -> Observations:
    """The observations (o, 33) at some gains, and the parameters (o, 4) that made them."""
    x, theta = _observations()
    rows = [GAINS.index(gain) for gain in gains]
    return Observations(x[rows], theta[rows])


@dataclass(frozen=True)
class Recipe:
    """A flow and the pairs that it is tested on.

    Args:
        train: The number of simulations that the flow is trained on.
        epochs: The most passes over them.
        pairs: The size of the calibration.
    """

    train: int
    epochs: int
    pairs: int

    @classmethod
    def of(cls, job: Job) -> "Recipe":
        """The recipe of a job."""
        return cls(job["train"], job["epochs"], job["pairs"])

    @property
    def flow_made(self) -> dict[str, Any]:
        """What makes the flow, as plain values."""
        how = {"batch": BATCH, "rate": RATE, "patience": PATIENCE, "epochs": self.epochs}
        return {"task": JansenRit.name, "flow": repr(MAF()), "train": self.train, **how}

    @property
    def made(self) -> dict[str, Any]:
        """What makes the calibration, as plain values."""
        return {**self.flow_made, "pairs": self.pairs}


@dataclass(frozen=True, eq=False)
class Setting:
    """A flow, its calibration and tests of it, all made once and kept in files.

    Args:
        recipe: What makes them.
        context: Where they are kept, and the device of networks.
    """

    recipe: Recipe
    context: Context

    @classmethod
    def of(cls, job: Job, context: Context) -> "Setting":
        """The setting of a job."""
        return cls(Recipe.of(job), context)

    @cached_property
    def flow(self) -> Flow:
        """The flow, trained now if it is not there."""
        path = self._path("flow", self.recipe.flow_made, ".safetensors")
        if not path.exists():
            # On the CPU whatever the device, since noise depends on its kind.
            joint = JansenRit().joint(self.recipe.train, stream(self.recipe.train, "simulations"))
            how = Training(BATCH, RATE, PATIENCE, self.recipe.epochs)
            train(*joint, MAF(), how, self.context.device).save(path)
        return Flow.load(path, self.context.device)

    @cached_property
    def pairs(self) -> assay.Calibration:
        """Pairs of the joint with one draw of the flow at each x."""
        path = self._path("calibration", self.recipe.made)
        if not path.exists():
            theta, x = JansenRit().joint(self.recipe.pairs, self._stream("joint"))
            draws = self.flow.sample_each(x, 1, self._stream("draw"))
            assay.save(assay.Calibration(theta, x, draws), path)
        found: assay.Calibration = assay.load(path)
        return found

    def sets(self, k: int) -> assay.Calibration:
        """The pairs with k draws of the flow at each x."""
        theta, x = self.pairs.theta, self.pairs.x
        drawn = self.flow.sample_each(x, k, self._stream("draws"))
        return assay.Calibration(theta, x, drawn, names=NAMES).to(self.context.device)

    @cached_property
    def latents(self) -> assay.Calibration:
        """The pairs in the base space of the flow."""
        return self.pairs.to_latent(self.flow).to(self.context.device)

    def test(self, nulls: int) -> LC2ST:
        """The network in latents, with its nulls; the same for all who ask."""
        path = self._path("test", {**self.recipe.made, "nulls": nulls})
        if not path.exists():
            null = assay.KnownBase(nulls)
            assay.save(assay.lc2st(self.latents, null=null, seed=SEED), path)
        found: LC2ST = assay.load(path, flow=self.flow)
        return found

    def _path(self, kind: str, made: Any, ending: str = ".npz") -> Path:
        return self.context.folder / f"{file_name(kind, made)}{ending}"

    def _stream(self, purpose: str) -> torch.Generator:
        return stream(SEED, JansenRit.name, self.recipe.pairs, purpose)


def at(x_o: Tensor, draws: int) -> list[assay.Draws]:
    """Observations (o, 33) one by one, which needs less memory than all at once."""
    return [assay.Draws(x, n=draws) for x in x_o]

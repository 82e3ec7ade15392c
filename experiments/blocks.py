"""Jobs of :mod:`experiments.cells` as stacks of networks: flows, pairs, draws, and the samples.

What a run is made of has the streams of :class:`experiments.material.Setting`, with draws of q at
the observations that are the same in all runs. All runs of a job pass through the flow at once.
"""

import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from assay._support.random import stream

from .authors import ORACLE, arrays
from .flows import Flow
from .material import Recipe, Setting, flow
from .runs import Context, Job
from .tasks import task
from .trials import NULLS_OF, Stack, stack_of_c2st, stack_of_lc2st, stack_of_lc2st_nf

__all__ = ["Blocks", "Posteriors", "has_flow"]

NF = "published L-C2ST-NF"
# The run of draws on which oracles are judged.
JUDGED = NULLS_OF + 1
# Tasks whose posteriors are those of another.
ALIKE = {"bernoulli_glm_raw": "bernoulli_glm"}


def has_flow(job: Job) -> bool:
    """Whether a job is about a flow, and not about the authors' samples."""
    return "kind" in job


def _posterior(name: str, place: int, n: int, run: int) -> np.ndarray:
    """Draws (n, m) of the true posterior at one of the observations."""
    torch.set_num_threads(1)
    x = task(name).observations.x[place]
    return task(name).posterior(x, n, stream(run, name, n, place, "posterior")).theta.numpy()


class Posteriors:
    """Draws of true posteriors, by other processes if there are any, each once.

    Args:
        executor: Any executor; none if None.
    """

    def __init__(self, executor: Executor | None = None) -> None:
        self.executor = executor
        self._known: dict[tuple[str, int, int, int], Future[np.ndarray]] = {}

    def expect(self, jobs: Iterable[Job]) -> None:
        """Begins with what jobs will ask for."""
        for job in jobs:
            if self.executor is not None and job["method"] == ORACLE and not job["right"]:
                for run in (JUDGED, NULLS_OF, *_runs(job)):
                    n = job["draws"] if run == JUDGED else job["cal"]
                    self._futures(job["task"], n, run)

    def draws(self, name: str, n: int, run: int) -> Tensor:
        """Draws (o, n, m) at all observations."""
        found = [future.result() for future in self._futures(name, n, run)]
        return torch.from_numpy(np.stack(found))

    def _futures(self, name: str, n: int, run: int) -> list[Future[np.ndarray]]:
        name = ALIKE.get(name, name)
        places = range(len(task(name).observations.x))
        return [self._future(name, place, n, run) for place in places]

    def _future(self, *key: Any) -> Future[np.ndarray]:
        if key not in self._known:
            if self.executor is not None:
                self._known[key] = self.executor.submit(_posterior, *key)
            else:
                self._known[key] = Future()
                self._known[key].set_result(_posterior(*key))
        return self._known[key]


def _runs(job: Job) -> range:
    """Numbers of the runs of a job."""
    first = job.get("first", 0)
    return range(first, first + job["runs"])


class Blocks:
    """What jobs are made of.

    Args:
        context: Where flows are, and the device.
        posteriors: Where draws of true posteriors come from.
    """

    def __init__(self, context: Context, posteriors: Posteriors | None = None) -> None:
        self.context, self.device = context, torch.device(context.device)
        self.posteriors = posteriors or Posteriors()
        # What jobs share: all threads have the same, and wait for who makes it.
        self._lock = threading.RLock()
        self._flow = lru_cache(maxsize=32)(self._loaded)
        self._fixed = lru_cache(maxsize=32)(self._drawn)

    def flow(self, recipe: Recipe) -> Flow:
        """A trained flow."""
        with self._lock:
            return self._flow(recipe)

    def fixed(self, recipe: Recipe, n: int, purpose: str) -> Tensor:
        """Draws of q (o, n, m) at the observations that are those of all runs."""
        with self._lock:
            return self._fixed(recipe, n, purpose)

    def _loaded(self, recipe: Recipe) -> Flow:
        trained = flow(recipe, self.context)
        _finish(self.device)
        return trained

    def _drawn(self, recipe: Recipe, n: int, purpose: str) -> Tensor:
        x = task(recipe.task).observations.x.to(self.device)
        generator = stream(0, recipe.task, recipe.train, purpose)
        drawn = self.flow(recipe).sample_each(x, n, generator)
        _finish(self.device)
        return drawn

    def stack(self, job: Job) -> Stack:
        """All runs of a job."""
        if not has_flow(job):
            return self._theirs(job)
        if job["method"] == ORACLE:
            return self._oracle(job)
        theta, x = self._joint(job)
        trained, rest = self.flow(Recipe.of(job)), (list(_runs(job)), job["nulls"])
        x_o = task(job["task"]).observations.x.to(self.device)
        if job["method"] == NF:
            z = trained.theta_to_base(theta.flatten(0, 1), x.flatten(0, 1)).reshape(theta.shape)
            return stack_of_lc2st_nf((z, x), x_o, *rest, job["draws"])
        theta_q = self._through(trained, x, self._noise(job, "draws"))
        there = x_o, self.fixed(Recipe.of(job), job["draws"], "observations")
        return stack_of_lc2st((theta, x, theta_q), there, *rest)

    def _settings(self, job: Job, runs: Iterable[int]) -> list[Setting]:
        recipe = Recipe.of(job)
        trained, size = self.flow(recipe), (job["cal"], job["draws"])
        return [Setting(recipe, trained, size[0], run, size[1], job["right"]) for run in runs]

    def _noise(
        self, job: Job, purpose: str, runs: Sequence[int] | None = None, places: int = 1
    ) -> Tensor:
        """Latents (r, places x n, m) of a purpose."""
        settings = self._settings(job, _runs(job) if runs is None else runs)
        size = (places * job["cal"], settings[0].task.m)
        drawn = [torch.randn(size, generator=one._stream(purpose)) for one in settings]
        return torch.stack(drawn).to(self.device)

    def _joint(self, job: Job) -> tuple[Tensor, Tensor]:
        """Truths (r, n, m) and observations (r, n, d)."""
        settings = self._settings(job, _runs(job))
        each = [one.task.joint(one.pairs, one._stream("joint")) for one in settings]
        theta, x = (torch.stack(some).to(self.device) for some in zip(*each, strict=True))
        if job["right"]:
            theta = self._through(settings[0].flow, x, self._noise(job, "truths"))
        return theta, x

    def _through(self, trained: Flow, x: Tensor, z: Tensor) -> Tensor:
        """Parameters (r, n, m) of latents (r, n, m) at observations (r, n, d)."""
        return trained.base_to_theta(z.flatten(0, 1), x.flatten(0, 1)).reshape(z.shape)

    def _oracle(self, job: Job) -> Stack:
        recipe, runs = Recipe.of(job), list(_runs(job))
        samples = self._samples(job, runs)
        q, exact = self._samples(job, [NULLS_OF])
        judged = self.fixed(recipe, job["draws"], "judged")
        if job["right"]:
            other = self.fixed(recipe, job["draws"], "judged as truths")
        else:
            other = self.posteriors.draws(job["task"], job["draws"], JUDGED).to(judged)
        return stack_of_c2st(samples, (q[0], exact[0]), (judged, other), runs, job["nulls"])

    def _samples(self, job: Job, runs: list[int]) -> tuple[Tensor, Tensor]:
        """Draws of q and of the true posterior, or of q once more, each (r, o, n, m)."""
        q = self._at_observations(job, runs, "q")
        if job["right"]:
            return q, self._at_observations(job, runs, "posterior")
        drawn = [self.posteriors.draws(job["task"], job["cal"], run) for run in runs]
        return q, torch.stack(drawn).to(q)

    def _at_observations(self, job: Job, runs: list[int], purpose: str) -> Tensor:
        """Draws of q (r, o, n, m) of a purpose."""
        x, n = task(job["task"]).observations.x.to(self.device), job["cal"]
        z = self._noise(job, purpose, runs, len(x))
        x = x.repeat_interleave(n, 0).expand(len(runs), -1, -1)
        drawn = self._through(self.flow(Recipe.of(job)), x, z)
        return drawn.reshape(len(runs), -1, n, z.shape[2])

    def _theirs(self, job: Job) -> Stack:
        """Parts of the authors' pairs."""
        archive = _archive(job["task"], job["train"])
        whole = {key: rows.to(self.device) for key, rows in archive.items()}
        runs = list(_runs(job))

        def parts(key: str) -> Tensor:
            return torch.stack([part(whole[key], job["cal"], run) for run in runs])

        x, x_o, rest = parts("x_cal"), whole["x_obs"], (runs, job["nulls"])
        if job["method"] == NF:
            return stack_of_lc2st_nf((parts("z_cal"), x), x_o, *rest, job["draws"])
        pairs = parts("theta_cal"), x, parts("q_samples_cal")
        return stack_of_lc2st(pairs, (x_o, whole["theta_q_obs_eval"]), *rest)


def _finish(device: torch.device) -> None:
    """Waits for what this thread has queued, before others use it."""
    if device.type == "cuda":
        torch.cuda.current_stream(device).synchronize()


@lru_cache(maxsize=8)
def _archive(name: str, train: int) -> dict[str, Tensor]:
    return arrays(f"{name}_npe_{train}.npz")


def part(rows: Tensor, pairs: int, run: int) -> Tensor:
    """A part of rows, as in :class:`experiments.samples.Theirs`: they do not overlap.

    Where they are used up, all rows are shuffled and dealt anew.
    """
    dealt, number = divmod(run, len(rows) // pairs)
    order = torch.arange(len(rows))
    if dealt:
        order = torch.randperm(len(rows), generator=stream(dealt, "parts"))
    return rows[order[number * pairs : (number + 1) * pairs].to(rows.device)]

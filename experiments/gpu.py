"""All cells of Figures 2 and 5 with the tests as published, on a GPU, as far as the time goes.

``carry`` gathers what a bare machine lacks; there ``pilot`` checks and times, ``flows`` trains the
flows that are missing, and ``run`` does jobs of :mod:`experiments.cells`; ``merge`` joins records.
The commands in their order are in ``GPU.md``.
"""

import argparse
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from assay._support.files import atomic_write

from .authors import FOLDER
from .blocks import Blocks, Posteriors, has_flow
from .cells import KIND, SIZES, STAGES, TASKS, THEIRS, jobs
from .kernels import Kernels, nvcc
from .material import KEPT, Recipe, flow
from .pilot import pilot, precompiled
from .runner import Clock, Runner, done, say
from .runs import Context, Experiment, Job, Records, assembled
from .stacked import Engine, Torch

__all__ = ["PUBLISHED", "main"]

# Where what a bare machine lacks is carried to; it is ignored by git.
CARRIED = Path("build") / "carry"
# What is written there and elsewhere.
RECORDS = "published.jsonl"
PACKAGES = ("nflows", "zuko")


def shapes() -> list[tuple[int, int, int]]:
    """Numbers of a row, left and right, and units, of all networks."""
    each = [(m, d, 10 * m) for m, right in SIZES.values() for d in (right, 0)]
    return list(dict.fromkeys(each))


def engine_of(name: str, clock: Clock) -> Engine:
    """What trains networks, by its name; kernels are compiled now."""
    if name == "torch":
        return Torch()
    compiler = nvcc(CARRIED / "kernels")
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda shape: compiler.library(*shape), shapes()))
    return Kernels(compiler, clock.watch)


def run_jobs(given: argparse.Namespace) -> None:
    """Does jobs of some stages, and says what is left."""
    torch.set_num_threads(min(4, torch.get_num_threads()))
    clock, context = Clock(given.seconds), Context(given.flows, given.device)
    chosen = _chosen(given)
    there = [job for job in chosen if not has_flow(job) or _path(Recipe.of(job), context)]
    if len(there) < len(chosen):
        say(f"{len(chosen) - len(there)} jobs have no flow, and are left out")
    records = _records(given.out, given.device)
    known = [Records(path) for path in given.done if path.exists()]
    todo = [job for job in there if not any(job in one for one in known)]
    say(f"{len(todo)} jobs, {len(there) - len(todo)} were done before")
    with _processes(given.processes) as executor:
        posteriors = Posteriors(executor)
        posteriors.expect(job for job in todo if job not in records)
        runner = Runner(
            Blocks(context, posteriors), engine_of(given.engine, clock), records, clock
        )
        left = runner.run(todo, given.workers)
        executor.shutdown(wait=False, cancel_futures=True)
    say(f"{len(left)} jobs are left after {clock.elapsed:.0f} s")


def _processes(count: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(count, multiprocessing.get_context("spawn"))


def _records(folder: Path, device: str) -> Records:
    """Records in a folder, with the commit that was carried if there is no git."""
    folder.mkdir(parents=True, exist_ok=True)
    records, commit = Records(folder / RECORDS, device), CARRIED / "commit"
    if not records.now["commit"] and commit.exists():
        records.now["commit"] = commit.read_text(encoding="utf-8").strip()
    return records


def _chosen(given: argparse.Namespace) -> list[Job]:
    """Jobs of some stages, tasks and methods."""
    chosen = jobs(
        given.budget, given.stage.split(",") if given.stage else tuple(STAGES), given.draw
    )
    for key, wanted in (("task", given.task), ("method", given.method), ("train", given.train)):
        if wanted:
            values = wanted.split(",")
            chosen = [job for job in chosen if str(job[key]).removeprefix("published ") in values]
    return chosen


def _path(recipe: Recipe, context: Context) -> Path | None:
    """Where a trained flow is, if it is."""
    places = (folder / f"{recipe.name}.safetensors" for folder in (context.folder, KEPT))
    return next((path for path in places if path.exists()), None)


def missing_flows(context: Context, draw: int = 0) -> list[Recipe]:
    """Flows of jobs that are not trained yet, the longest first."""
    every = [Recipe.of(job) for job in jobs("paper", tuple(STAGES), draw) if has_flow(job)]
    recipes = [one for one in dict.fromkeys(every) if _path(one, context) is None]
    return sorted(recipes, key=lambda one: -one.train)


def train_flows(given: argparse.Namespace) -> None:
    """Trains flows that are missing, some at a time, and packs them."""
    clock, context = Clock(given.seconds), Context(given.flows, given.device)
    given.out.mkdir(parents=True, exist_ok=True)
    recipes = [
        one
        for one in missing_flows(context, given.draw)
        if not given.train or str(one.train) in given.train.split(",")
    ]
    names = [f"{one.name}.safetensors" for one in recipes]
    under_way: list[tuple[Recipe, subprocess.Popen[bytes]]] = []
    while (recipes or under_way) and clock.elapsed < given.seconds:
        while recipes and len(under_way) < given.processes:
            under_way.append((recipes[0], _begun(recipes.pop(0), context)))
        time.sleep(0.2)
        for recipe, process in [one for one in under_way if one[1].poll() is not None]:
            under_way.remove((recipe, process))
            say(f"{clock.elapsed:6.1f} s  {recipe.name}: ended with {process.returncode}")
    for recipe, process in under_way:
        process.kill()
        say(f"{recipe.name}: given up, the time is over")
    with tarfile.open(given.out / "flows.tar", "w") as archive:
        for name in names:
            if (context.folder / name).exists():
                archive.add(context.folder / name, name)


def _begun(recipe: Recipe, context: Context) -> "subprocess.Popen[bytes]":
    """A process that trains one flow."""
    words = [recipe.task, str(recipe.train), str(recipe.draw), str(context.folder), context.device]
    return subprocess.Popen(
        [sys.executable, "-m", "experiments.gpu", "flow", *words],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def train_flow(given: argparse.Namespace) -> None:
    """Trains one flow."""
    torch.set_num_threads(1)
    given.folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    recipe = Recipe(given.task, given.train, kind=KIND, draw=given.draw)
    trained = flow(recipe, Context(given.folder, given.device))
    losses, seconds = trained.losses, time.perf_counter() - start
    say(f"{recipe.name}: {len(losses)} epochs, loss {min(losses):.3f}, {seconds:.0f} s")


def carry(given: argparse.Namespace) -> None:
    """Gathers packages, the authors' samples and numbers, and the commit."""
    CARRIED.mkdir(parents=True, exist_ok=True)
    for name in PACKAGES:
        _copied(name, CARRIED / "site" / name)
    samples = CARRIED / "paper"
    samples.mkdir(exist_ok=True)
    names = [
        f"{task}_npe_{train}.npz" for task in THEIRS for train in (100, 1000, 10_000, 100_000)
    ]
    for name in ("published_results.json", *names):
        shutil.copyfile(FOLDER / name, samples / name)
    records = Records(CARRIED / RECORDS)
    (CARRIED / "commit").write_text(records.now["commit"], encoding="utf-8")
    (CARRIED / "flows").mkdir(exist_ok=True)
    compiler = nvcc(CARRIED / "kernels")
    if shutil.which("nvcc"):
        for shape in shapes():
            compiler.library(*shape)
        precompiled(compiler.folder)
    size = sum(path.stat().st_size for path in CARRIED.rglob("*") if path.is_file())
    say(f"{CARRIED}: {size / 2**20:.1f} MiB")


def _copied(name: str, target: Path) -> None:
    """A package as it is installed; what draws in it is not wanted."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise ValueError(f"package: expected {name} to be installed")
    shutil.rmtree(target, ignore_errors=True)
    ignored = shutil.ignore_patterns("__pycache__", "tests")
    shutil.copytree(Path(spec.origin).parent, target, ignore=ignored)
    for path in target.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        drawn = "from matplotlib import pyplot as plt\n"
        if drawn in text:
            path.write_text(text.replace(drawn, ""), encoding="utf-8")


def _published_jobs(budget: str) -> list[Job]:
    """Those on flows; the authors' samples are an experiment of their own."""
    known = "paper" if budget == "paper" else "ci"
    return [job for job in jobs(known) if has_flow(job)]


def _run(job: Job, context: Context) -> dict[str, Any]:
    engine = engine_of("kernels" if context.device.startswith("cuda") else "torch", Clock(1e9))
    return done(job, Blocks(context), engine).found


def _table(found: list[dict[str, Any]]) -> str:
    # Tables know tests that a run here does not need.
    from .retrained import table

    return table(found)


PUBLISHED = Experiment(
    name="published",
    about="The tests as published in all cells of Figures 2 and 5, on one flow of each task.",
    jobs=_published_jobs,
    run=_run,
    table=_table,
    partial=True,
)


def merge(given: argparse.Namespace) -> None:
    """Joins records, and leaves the JSON of those on flows; others are for ``samples``."""
    given.into.mkdir(parents=True, exist_ok=True)
    lines: dict[str, str] = {}
    ours = given.into / RECORDS
    for path in (ours, *given.records):
        for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
            job = json.loads(line)["job"]
            lines.setdefault(json.dumps(job, sort_keys=True), line)
    on_flows = [line for line in lines.values() if has_flow(json.loads(line)["job"])]
    _write(ours, on_flows)
    theirs = [line for line in lines.values() if line not in set(on_flows)]
    if theirs:
        _write(given.into / "samples-gpu.jsonl", theirs)
    assembled(PUBLISHED, "paper", Context(given.into), Records(ours))
    say(f"{len(on_flows)} jobs on flows, {len(theirs)} on the authors' samples")


def _write(path: Path, lines: Iterable[str]) -> None:
    with atomic_write(path) as file:
        file.write("".join(f"{line}\n" for line in lines).encode())


def _pilot(given: argparse.Namespace) -> None:
    clock = Clock(given.seconds)
    blocks = Blocks(Context(given.flows, given.device))
    records = _records(given.out, given.device)
    pilot(given.out, blocks, partial(engine_of, clock=clock), records, CARRIED / "kernels")


def main(arguments: Sequence[str] | None = None) -> None:
    """The commands."""
    parser = argparse.ArgumentParser(prog="python -m experiments.gpu", description=__doc__)
    commands = parser.add_subparsers(required=True)
    for name, call in (("run", run_jobs), ("flows", train_flows), ("pilot", _pilot)):
        command = commands.add_parser(name, help=call.__doc__)
        command.set_defaults(call=call)
        command.add_argument("--out", type=Path, required=True)
        command.add_argument("--seconds", type=float, default=540.0)
        command.add_argument("--device", default="cuda")
        command.add_argument("--flows", type=Path, default=CARRIED / "flows")
        command.add_argument("--processes", type=int, default=12)
        command.add_argument("--draw", type=int, default=0)
        command.add_argument("--train", default="", help="N_TRAIN[,N_TRAIN]")
    command = commands.choices["run"]
    command.add_argument("--budget", default="paper")
    command.add_argument("--stage", default="", help=f"of {', '.join(STAGES)}; all if none")
    command.add_argument("--task", default="", help=f"of {', '.join(TASKS)}; all if none")
    command.add_argument("--method", default="", help="L-C2ST,L-C2ST-NF,C2ST")
    command.add_argument("--done", type=Path, nargs="*", default=[CARRIED / RECORDS])
    command.add_argument("--engine", choices=("kernels", "torch"), default="kernels")
    command.add_argument("--workers", type=int, default=3)
    command = commands.add_parser("flow", help="trains one flow")
    command.set_defaults(call=train_flow)
    for name, kind in (("task", str), ("train", int), ("draw", int), ("folder", Path)):
        command.add_argument(name, type=kind)
    command.add_argument("device")
    commands.add_parser("carry", help=carry.__doc__).set_defaults(call=carry)
    command = commands.add_parser("merge", help=merge.__doc__)
    command.set_defaults(call=merge)
    command.add_argument("records", type=Path, nargs="+")
    command.add_argument("--into", type=Path, default=Path("results") / "paper")
    given = parser.parse_args(arguments)
    given.call(given)


if __name__ == "__main__":
    main()

"""The command line: ``python -m experiments fig2 --budget smoke``."""

import argparse
import multiprocessing
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import matplotlib as mpl
import torch

from . import EXPERIMENTS
from .runs import Context, conduct


def main(arguments: list[str] | None = None) -> None:
    """Runs one experiment, or all."""
    names = ", ".join(f"{e.name} ({e.about})" for e in EXPERIMENTS)
    parser = argparse.ArgumentParser(prog="python -m experiments", description=__doc__)
    parser.add_argument("name", help=f"one of: {names}; or all")
    parser.add_argument("--budget", choices=("ci", "smoke", "paper"), default="smoke")
    parser.add_argument("--out", type=Path, help="the folder of results; results/BUDGET if none")
    parser.add_argument("--workers", type=int, default=1, help="processes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="KEY=VALUE[,VALUE]",
        help="jobs with such parameters alone; records of several machines can be joined",
    )
    given = parser.parse_args(arguments)
    chosen = [e for e in EXPERIMENTS if given.name in ("all", e.name)]
    if not chosen:
        parser.error(f"name: expected one of {', '.join(e.name for e in EXPERIMENTS)} or all")
    if any("=" not in one for one in given.only):
        parser.error(f"--only: expected KEY=VALUE[,VALUE], got {' '.join(given.only)}")
    only = {key: values.split(",") for key, _, values in (o.partition("=") for o in given.only)}
    mpl.use("Agg")
    context = Context(given.out or Path("results") / given.budget, given.device)
    spawn = multiprocessing.get_context("spawn")
    pool = None
    if given.workers > 1:
        pool = ProcessPoolExecutor(given.workers, spawn, torch.set_num_threads, (1,))
    try:
        for i, experiment in enumerate(chosen, 1):
            missing = experiment.absent() if experiment.absent else ""
            if missing and given.name != "all":
                parser.error(missing)
            if missing:
                print(f"left out, {missing}", file=sys.stderr)
                continue
            said = f"{i} of {len(chosen)}, {experiment.name}: {experiment.about}"
            print(said, file=sys.stderr, flush=True)
            found = conduct(experiment, given.budget, context, pool, only)
            if experiment.partial or len(found) == len(experiment.jobs(given.budget)):
                print(experiment.table(found), flush=True)
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)


if __name__ == "__main__":
    main()

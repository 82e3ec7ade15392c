"""Why rates differ: other starts of the network, and a null that is made once."""

import json

import numpy as np
import torch

from experiments import exceptions
from experiments.exceptions import EXCEPTIONS, ONCE, _oracle
from experiments.runs import Context
from experiments.samples import Theirs

from .test_samples import folder  # noqa: F401


def test_starts_differ_and_come_back(folder, tmp_path):  # noqa: F811
    jobs = [job for job in exceptions.jobs("ci") if job.get("state") is not None]
    jobs = [job for job in jobs if job["method"] == "published L-C2ST-NF"]
    one, other, again = (
        EXCEPTIONS.run(job, context=Context(tmp_path)) for job in (*jobs, jobs[0])
    )
    assert one == again
    assert one["each"][0]["statistic"] != other["each"][0]["statistic"]
    found = [
        {**job, **row} for job, f in zip(jobs, (one, other), strict=True) for row in f["each"]
    ]
    assert EXCEPTIONS.table(found).count("2 runs") == 2
    EXCEPTIONS.draw(found, tmp_path / "starts.png")
    assert (tmp_path / "starts.pdf").exists()


def test_one_null_for_all_runs(folder):  # noqa: F811
    """The first run is its own null's; others have p-values from that of the first."""
    path = folder / "two_moons_npe_1000.npz"
    arrays = {k: v for k, v in np.load(path).items() if k != "meta"}
    generator = torch.Generator().manual_seed(0)
    for key in ("theta_q_obs_cal", "ref_theta_obs_cal", "ref_theta_obs_eval"):
        arrays[key] = torch.randn(10, 100, 2, generator=generator).numpy()
    np.savez(path, meta=json.dumps({}), **arrays)
    settings = [Theirs("two_moons", 1000, 40, i, 50) for i in range(2)]
    found = {(row["null"], row["run"]): row for row in _oracle(settings, 9)}
    assert found["its own", 0]["pvalue"] == found["of the first", 0]["pvalue"]
    assert found["its own", 1]["statistic"] == found["of the first", 1]["statistic"]
    assert found["its own", 1]["pvalue"] != found["of the first", 1]["pvalue"]
    assert ONCE in {job["question"] for job in exceptions.jobs("paper")}

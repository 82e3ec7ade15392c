"""Work over executors: the same numbers whoever does it; nothing is lost where a worker dies."""

import os
import signal
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from distributed import Client, LocalCluster

import assay
from assay._support.work import run_jobs

SQUARES = {n: n * n for n in range(120)}


def slow_square(n):
    time.sleep(0.05)
    return n * n


def deadly(mark, n):
    """Dies once, at the third job."""
    if n == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return n * n


def posterior(x, n, fails_at=np.nan):
    return 1 / 0 if x[0] == fails_at else x / 2 + 0.5**0.5 * torch.randn(n, 1)


def simulator(theta):
    return theta + torch.randn(theta.shape)


@pytest.fixture(scope="module")
def executor():
    sizes = {"n_workers": 2, "threads_per_worker": 1, "processes": True}
    with LocalCluster(**sizes, dashboard_address=None) as cluster, Client(cluster) as client:
        yield client.get_executor()


def test_all_jobs_in_any_order_few_before_they_are_needed():
    made = []
    with ThreadPoolExecutor(4) as threads:
        work = run_jobs(threads, slow_square, (made.append(n) or n for n in SQUARES))
        found = [next(work)]
        assert len(made) <= 69
        assert dict([*found, *work]) == SQUARES
        with pytest.raises(ValueError, match="invalid literal"):
            list(run_jobs(threads, int, ["no number"]))
    assert dict(run_jobs(None, abs, [-3])) == {0: 3}


def test_a_process_that_dies_loses_nothing(tmp_path):
    work = partial(deadly, tmp_path / "dead")
    with ProcessPoolExecutor(2, get_context("spawn")) as processes:
        with pytest.warns(UserWarning, match="worker died"):
            assert dict(run_jobs(processes, work, SQUARES)) == SQUARES


class TestDask:
    def test_a_worker_that_is_killed_midway(self, executor):
        """Its jobs are run by the others, or by the one that takes its place."""
        found = {}
        for number, square in run_jobs(executor, slow_square, SQUARES):
            found[number] = square
            if len(found) == 20:
                os.kill(next(iter(executor._client.run(os.getpid).values())), signal.SIGKILL)
        assert found == SQUARES

    def test_bits_of_a_simulator(self, executor):
        prior = torch.distributions.MultivariateNormal(torch.zeros(1), torch.eye(1))
        how = {"simulator": simulator, "prior": prior, "x_o": torch.zeros(1), "simulations": 200}
        makes = partial(assay.check, posterior, **how, nulls=39, classifier=None)
        serial, found = makes(), makes(executor=executor)
        np.testing.assert_array_equal(found.test.null, serial.test.null)
        np.testing.assert_array_equal(found.bounds.width_upper, serial.bounds.width_upper)
        np.testing.assert_array_equal(found.predictive.null, serial.predictive.null)

    def test_draws(self, executor):
        """The same bits; and what fails elsewhere is named, or left out."""
        theta, x, how = torch.zeros(120, 1), torch.arange(120.0)[:, None], {"executor": executor}
        makes = partial(assay.Calibration.of, posterior, theta, x)
        assert torch.equal(makes().theta_q, makes(drawing=assay.Drawing(**how)).theta_q)
        makes = partial(assay.Calibration.of, partial(posterior, fails_at=70), theta, x)
        with pytest.raises(ValueError, match=r"got none at x\[70\]"):
            makes(drawing=assay.Drawing(**how))
        assert len(makes(drawing=assay.Drawing(failures=0.01, **how))) == 119

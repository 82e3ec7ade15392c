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
from sklearn.linear_model import LogisticRegression

import assay
from assay._support.work import run_jobs
from experiments.runs import Records, completed

SPAWN = get_context("spawn")


def slow_square(n, seconds=0.05):
    time.sleep(seconds)
    return n * n


def deadly(folder, n):
    """Dies once, at the third job."""
    mark = os.path.join(folder, "dead")
    if n == 3 and not os.path.exists(mark):
        with open(mark, "w"):
            pass
        os.kill(os.getpid(), signal.SIGKILL)
    return n * n


def wrong(n):
    raise ValueError(f"no {n}")


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as made:
        yield made


@pytest.fixture(scope="module")
def client(cluster):
    with Client(cluster) as made:
        yield made


def test_all_jobs_in_any_order():
    with ThreadPoolExecutor(4) as executor:
        found = dict(run_jobs(executor, slow_square, range(200)))
    assert found == {n: n * n for n in range(200)}
    assert dict(run_jobs(None, abs, [-3])) == {0: 3}


def test_few_jobs_are_made_before_they_are_needed():
    made = []

    def jobs():
        for n in range(1000):
            made.append(n)
            yield n

    with ThreadPoolExecutor(1) as executor:
        work = run_jobs(executor, slow_square, jobs())
        next(work)
        assert len(made) <= 66
        work.close()


def test_an_error_of_the_work_is_its_own():
    with ThreadPoolExecutor(1) as executor, pytest.raises(ValueError, match="no 0"):
        list(run_jobs(executor, wrong, range(3)))


def test_a_process_that_dies_loses_nothing(tmp_path):
    with ProcessPoolExecutor(2, SPAWN) as executor, pytest.warns(UserWarning, match="worker died"):
        found = dict(run_jobs(executor, partial(deadly, tmp_path), range(10)))
    assert found == {n: n * n for n in range(10)}


class TestDask:
    def test_a_worker_that_is_killed_midway(self, client):
        """Its jobs are run by the others, or by the one that takes its place."""
        found, killed = {}, None
        for number, square in run_jobs(client.get_executor(), slow_square, range(120)):
            found[number] = square
            if len(found) == 20:
                killed = next(iter(client.run(os.getpid).values()))
                os.kill(killed, signal.SIGKILL)
        assert killed is not None
        assert found == {n: n * n for n in range(120)}

    def test_bits_of_nulls_of_scikit_learn(self, client, gaussian):
        calibration, draws = gaussian().calibration(200), gaussian().draws(torch.zeros(2))
        recipe = assay.Sklearn(LogisticRegression())
        serial = assay.lc2st(calibration, recipe, assay.Exchange(19))(draws)
        spread = assay.Sklearn(LogisticRegression(), client.get_executor())
        found = assay.lc2st(calibration, spread, assay.Exchange(19))(draws)
        np.testing.assert_array_equal(found.null, serial.null)
        assert found.pvalue == serial.pvalue

    def test_bits_of_a_simulator(self, client):
        makes = partial(
            assay.check,
            _posterior,
            simulator=_simulator,
            prior=torch.distributions.MultivariateNormal(torch.zeros(1), torch.eye(1)),
            x_o=torch.zeros(1),
            simulations=200,
            nulls=39,
            classifier=None,
        )
        serial, found = makes(), makes(executor=client.get_executor())
        np.testing.assert_array_equal(found.test.null, serial.test.null)
        np.testing.assert_array_equal(found.bounds.width_upper, serial.bounds.width_upper)
        np.testing.assert_array_equal(found.predictive.null, serial.predictive.null)
        assert found.verdicts == serial.verdicts

    def test_jobs_of_experiments(self, client, tmp_path):
        jobs = [{"n": n} for n in range(20)]
        found = completed(jobs, _squared, Records(tmp_path / "r.jsonl"), client.get_executor())
        assert found == [{"n": n, "square": n * n} for n in range(20)]

    def test_bits_of_draws(self, client):
        theta = torch.randn(300, 1, generator=torch.Generator().manual_seed(0))
        x = theta + torch.randn(300, 1, generator=torch.Generator().manual_seed(1))
        makes = partial(assay.Calibration.of, _posterior, theta, x, 4)
        far = makes(drawing=assay.Drawing(executor=client.get_executor()))
        assert torch.equal(far.theta_q, makes().theta_q)

    def test_what_fails_elsewhere_is_named(self, client):
        theta = torch.zeros(120, 1)
        x = torch.arange(120.0)[:, None]
        makes = partial(assay.Calibration.of, _fails_at_70, theta, x, 4)
        with pytest.raises(ValueError, match=r"got none at x\[70\]"):
            makes(drawing=assay.Drawing(executor=client.get_executor()))
        how = assay.Drawing(failures=0.01, executor=client.get_executor())
        assert len(makes(drawing=how)) == 119


def _fails_at_70(x, n):
    if x[0] == 70:
        raise RuntimeError("no draws here")
    return x + torch.randn(n, 1)


def _squared(job):
    return {"square": job["n"] ** 2}


def _posterior(x, n):
    return x / 2 + 0.5**0.5 * torch.randn(n, 1)


def _simulator(theta):
    return theta + torch.randn(theta.shape)

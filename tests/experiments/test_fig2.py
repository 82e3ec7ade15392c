import numpy as np
import pytest

from experiments.fig2 import FIG2, LIMIT, jobs, rates, relative, table


def row(**given):
    start = {"task": "slcp", "train": 100, "cal": 50, "right": False, "run": 0, "method": "L-C2ST"}
    return {**start, "pvalue": [0.01, 0.5], "statistic": [1.0, 2.0], **given}


def test_rates_are_means_over_runs():
    found = [row(run=i, pvalue=[0.01] * i + [0.5] * (4 - i)) for i in range(5)]
    rate, low, high, runs = rates(found, method="L-C2ST")
    assert (rate, runs) == (0.5, 5)
    assert low < rate < high
    assert np.isnan(rates(found, method="moments")[0])


def test_intervals_of_few_runs_and_of_runs_that_are_alike():
    """Clopper and Pearson's for as many tests as runs: 0.025 ** (1 / n) where all reject."""
    always = [row(run=i, pvalue=[0.01, 0.01]) for i in range(4)]
    for runs in (1, 2, 4):
        rate, low, high, _ = rates(always[:runs])
        assert (rate, high) == (1, 1)
        assert low == pytest.approx(0.025 ** (1 / runs))
    # Of an oracle, as many tests as observations.
    oracle = [{**one, "method": "C2ST"} for one in always]
    assert rates(oracle)[1] == pytest.approx(0.025 ** (1 / 8))


def test_methods_that_have_not_been_everywhere_are_not_compared():
    found = [
        *(row(method="C2ST", pvalue=[0.01], train=n) for n in (10, 20)),
        *(row(method="Ridge", pvalue=[0.01, 0.5], train=n) for n in (10, 20)),
        row(method="moments", pvalue=[0.01], train=10),
    ]
    assert relative(found) == [("C2ST", 1.0, "1", 1.0), ("Ridge", 0.5, "1", 0.5)]


def test_power_over_the_oracle_leaves_the_mixture_aside():
    found = [
        row(method="C2ST", pvalue=[0.01, 0.01]),
        row(),
        row(task="gaussian_mixture", pvalue=[0.01, 0.01]),
    ]
    last = table(found).splitlines()[-1].split()
    assert last == ["L-C2ST", "0.500", "0.50"]


@pytest.mark.parametrize("budget", ["ci", "smoke", "paper"])
def test_jobs_are_all_different(budget):
    found = jobs(budget)
    assert len({str(job) for job in found}) == len(found)
    assert {job["right"] for job in found} == {True, False}
    assert not any(job["right"] for job in found if job["method"] == LIMIT)
    assert FIG2.prepare is not None

"""Local HPD as published: every cell of a task, judged by nulls that are made once."""

import numpy as np
from experiments import hpd
from experiments.hpd import HPD, METHOD
from experiments.local_hpd import published_statistic
from experiments.runs import Context
from sklearn.linear_model import LogisticRegression


def test_cells():
    """Every N_cal at one N_train, and every N_train with all pairs."""
    jobs = hpd.jobs("paper")
    assert len(jobs) == 3 * 6
    assert {len(job["trains"]) for job in jobs if job["cal"] < 10_000} == {1}
    assert all(job["trains"] == [100, 1000, 10_000, 100_000] for job in jobs if job["cal"] == 1e4)


def test_a_job(tmp_path):
    job = hpd.jobs("ci")[0]
    found = HPD.run(job, context=Context(tmp_path))
    assert [row["right"] for row in found["each"]] == [False, True]
    assert {row["method"] for row in found["each"]} == {METHOD}
    rows = [{**job, **row} for row in found["each"]]
    assert all(0 <= p <= 1 for row in rows for p in row["pvalue"])
    assert "level at 0.05" in HPD.table(rows)
    HPD.draw(rows, tmp_path / "hpd.png")
    assert (tmp_path / "hpd.pdf").exists()


def test_the_grid_ends_below_the_largest_level():
    """Uniform levels up to 1/2 lie on the grid of eleven levels, and are told as such."""
    x = np.random.default_rng(0).normal(size=(2000, 1))
    u = np.linspace(0, 0.5, 2000)
    (half,) = published_statistic(u, x, x[:1], LogisticRegression)
    # P(u <= a) = 2 a at a = 0, 0.05, ..., 0.5, which is a too much.
    assert abs(half - np.square(np.linspace(0, 0.5, 11)).mean()) < 0.01

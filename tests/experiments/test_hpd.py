"""Local HPD as published: every cell of a task, judged by nulls that are made once."""

from experiments import hpd
from experiments.hpd import HPD, METHOD
from experiments.runs import Context


def test_cells():
    """Every N_cal at one N_train, and every N_train with all pairs."""
    jobs = hpd.jobs("paper")
    assert len(jobs) == 2 * 3 * 6
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

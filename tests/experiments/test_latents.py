"""Figures 3 and 4 on latents of the authors' shape: a flow whose error grows with the gain."""

import json

import numpy as np
import pytest

from experiments import authors, latents, published
from experiments.__main__ import main
from experiments.latents import joined, moved
from experiments.runs import Context

N, GAINS = 300, np.arange(-25.0, 26, 5)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    x, theta = rng.normal(size=(N, 33)), rng.normal(size=(N, 4))
    there = rng.normal(size=(11, 33))
    arrays = {
        # Truths lie one standard deviation off, everywhere.
        "z_cal": rng.normal(size=(N, 4)) + 1,
        "x_cal": x,
        "z_base_eval": rng.normal(size=(1000, 4)),
        "gains": GAINS,
        "x_obs": there,
        "theta_obs_true": np.c_[np.zeros((11, 3)), GAINS],
        "theta_q_obs_eval": rng.normal(size=(11, 1000, 4)),
        "proba_class0_obs": np.full((11, 1000), 0.4),
        "t_stat_mse": np.abs(GAINS),
        "t_null_mse": np.tile(np.linspace(0, 18, 1000), (11, 1)),
        "sbc_ranks": 1000 * rng.random((N, 4)),
        "hpd_values": rng.random(N),
        "prior_low": np.full(4, -3.0),
        "prior_high": np.full(4, 3.0),
        "theta_cal": theta,
    }
    kept = {key: rows.astype(np.float32) for key, rows in arrays.items()}
    np.savez(tmp_path / "jrnmm.npz", meta=json.dumps({}), **kept)
    monkeypatch.setattr(authors, "FOLDER", tmp_path)
    latents._theirs.cache_clear()
    yield tmp_path
    latents._theirs.cache_clear()


def test_the_smallest_budget(folder, tmp_path, capsys):
    main(["latents", "--budget", "ci", "--out", str(tmp_path / "out")])
    found = json.loads((tmp_path / "out" / "latents.json").read_text())["results"]
    rows = {row["method"]: row for row in joined(found)}
    assert set(rows) == {latents.THEIRS, latents.RERUN, *latents.TESTS}
    # Their own null has 1000 copies from 0 to 18.
    assert rows[latents.THEIRS]["pvalue"] == [0, 0.999, 0]
    assert rows[latents.THEIRS]["nulls"] == 1000
    # Where nine copies are all smaller, 999 are made.
    assert rows["score-NF"]["pvalue"] == [0.001] * 3
    for ending in ("", "_pairs"):
        for kind in ("png", "pdf"):
            assert (tmp_path / "out" / f"latents{ending}.{kind}").stat().st_size > 1000
    assert "rank correlation with |gain| +0.87" in capsys.readouterr().out


def test_blocks_of_nulls_are_those_of_the_whole(folder):
    """The statistic is the same in each, and nulls are one after the other."""
    theirs = latents._theirs()
    pairs, x_o = (theirs["z_cal"], theirs["x_cal"]), theirs["x_obs"][:2]
    whole, *blocks = (
        published.trial_of_lc2st_nf(pairs, x_o, 4, 50, part)
        for part in (None, range(2), range(2, 4))
    )
    for block, rows in zip(blocks, ([0, 1, 2], [0, 3, 4]), strict=True):
        assert (block.inputs == whole.inputs[rows]).all()


def test_the_original_has_no_nulls(folder, tmp_path):
    job = {**latents.jobs("ci")[0], "method": latents.SKLEARN}
    found = latents.run(job, Context(tmp_path))
    assert found["null"] == [[]] * 3
    assert min(found["statistic"]) > 0


def test_what_a_classifier_says_of_bias_and_width():
    """Draws of N(0, 1) where the posterior is N(0.5, 0.5²), with the Bayes classifier."""
    theta = np.random.default_rng(0).normal(size=(200_000, 1))
    ratio = 2 * np.exp(-0.5 * ((theta[:, 0] - 0.5) / 0.5) ** 2 + 0.5 * theta[:, 0] ** 2)
    bias, width = moved(theta, ratio / (1 + ratio))
    assert bias == pytest.approx([-1], abs=0.02)
    assert width == pytest.approx([2], abs=0.02)

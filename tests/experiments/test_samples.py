"""The authors' samples: as a setting of the methods, beside what they published."""

import json

import numpy as np
import pytest
import torch

from experiments import authors, samples
from experiments.__main__ import main
from experiments.authors import difference, printed_rate, printed_statistic
from experiments.samples import SAMPLES, Theirs

N = 400


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Two flows of the same shape as theirs, a conjugate Gaussian with q too narrow."""
    rng = np.random.default_rng(0)
    theta, noise, z, further = (rng.normal(size=(N, 2)) for _ in range(4))
    x = theta + noise
    there = np.zeros((10, 2))
    mean, scale = x / 2, 0.35
    arrays = {
        "theta_cal": theta,
        "x_cal": x,
        "q_samples_cal": mean + scale * z,
        "z_cal": (theta - mean) / scale,
        "x_obs": there,
        "theta_q_obs_eval": scale * rng.normal(size=(10, 50, 2)),
    }
    arrays = {key: rows.astype(np.float32) for key, rows in arrays.items()}
    np.savez(tmp_path / "two_moons_npe_1000.npz", meta=json.dumps({}), **arrays)
    draws = mean[:, None] + scale * rng.normal(size=(N, 32, 2))
    np.savez(tmp_path / "two_moons_npe_1000_draws.npz", q_draws_cal=draws.astype(np.float32))
    monkeypatch.setattr(authors, "FOLDER", tmp_path)
    return tmp_path


def test_parts_do_not_overlap(folder):
    first, second = (Theirs("two_moons", 1000, 150, run, 20) for run in range(2))
    assert torch.equal(first.latents.x, first.sets(4).x)
    assert not (first.sets(1).theta[:, None] == second.sets(1).theta[None]).all(2).any()
    assert first.sets(4).theta_q.shape == (150, 4, 2)


def test_pairs_are_dealt_anew_where_parts_are_used_up(folder):
    """Two parts of a deal hold all rows once; those of the next deal are others."""
    parts = [Theirs("two_moons", 1000, 200, run, 20).sets(1).theta for run in range(4)]
    for deal in (parts[:2], parts[2:]):
        assert len({tuple(row) for row in torch.cat(deal).tolist()}) == N
    shared = {tuple(row) for row in parts[0].tolist()} & {tuple(row) for row in parts[2].tolist()}
    assert 60 < len(shared) < 140


def test_the_smallest_budget(folder, tmp_path, capsys):
    main(["samples", "--budget", "ci", "--out", str(tmp_path / "out")])
    found = json.loads((tmp_path / "out" / "samples.json").read_text())["results"]
    assert {row["method"] for row in found} == set(samples.LOCALS)
    assert all(len(row["pvalue"]) == 10 for row in found)
    (mine,) = (row["pvalue"] for row in found if row["method"] == "score-NF")
    # The flow is half as wide as it should be.
    assert np.max(mine) <= 0.05
    assert "two_moons, N_train 1000, N_cal 200" in capsys.readouterr().out


def test_where_they_are_absent(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(authors, "FOLDER", tmp_path / "nowhere")
    with pytest.raises(SystemExit):
        main(["samples", "--budget", "ci", "--out", str(tmp_path)])
    assert "expected the authors' samples" in capsys.readouterr().err
    monkeypatch.setattr("experiments.__main__.EXPERIMENTS", (SAMPLES,))
    main(["all", "--budget", "ci", "--out", str(tmp_path)])
    assert "left out, samples" in capsys.readouterr().err


def test_jobs_ask_only_for_what_is_there():
    found = samples.jobs("paper")
    assert len({str(job) for job in found}) == len(found)
    ours = [job for job in found if not job["method"].startswith("published")]
    assert all(job["runs"] * job["cal"] <= samples.ALL for job in ours)
    assert not any(job["train"] == 100 and job["method"] == "score" for job in found)


NUMBERS = {
    "exp2": {
        "slcp": {
            "vs_n_train": {
                "lc2st": {
                    "TPR_mean": {"mse": [1, 0.9, 0.6, 0.1]},
                    "t_stat_mean": {"mse": [0.4, 0.3, 0.2, 0.1]},
                }
            },
            "vs_n_cal": {
                "lc2st": {
                    "TPR_mean": {"mse": [0, 0.1, 0.2, 0.3, 0.4, 0.5]},
                    "FPR_mean": {"mse": [0.01, 0.02, 0.03, 0.04, 0.05, 0.06]},
                }
            },
        }
    }
}


def test_what_is_printed(monkeypatch):
    monkeypatch.setattr(authors, "published_numbers", lambda: NUMBERS)
    row = {"task": "slcp", "train": 1000, "cal": 500, "right": False, "method": "published L-C2ST"}
    assert printed_rate(row) == 0.1
    assert printed_rate({**row, "right": True}) == 0.02
    assert printed_rate({**row, "train": 10_000, "cal": 10_000}) == 0.6
    assert printed_rate({**row, "train": 10_000}) is None
    assert printed_rate({**row, "method": "L-C2ST"}) is None
    assert printed_statistic({**row, "train": 100_000, "cal": 10_000}) == 0.1
    assert printed_statistic(row) is None


def test_few_runs_agree_with_more():
    local, oracle = "published L-C2ST", "published C2ST"
    spread, close = np.array([0.2, 0.4, 0.6, 0.8, 1.0]), np.full(5, 0.6)
    # Runs that vary tell less than runs that do not.
    assert difference(local, spread, 0.9).agrees
    assert not difference(local, close, 0.9).agrees
    assert difference(local, np.ones(5), 0.98).agrees
    # One run is not judged, but the ten observations of an oracle are ten tests.
    assert difference(local, np.array([0.4]), 0.9) is None
    assert not difference(oracle, np.array([0.4]), 0.9).agrees
    assert difference(oracle, np.array([0.8]), 0.9).agrees

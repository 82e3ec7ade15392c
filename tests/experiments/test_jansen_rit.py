"""Figures 3 and 4: what they share is made once, and they say the same."""

import json
from dataclasses import dataclass
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
import torch

import assay
from experiments import fig3, fig4
from experiments.jansen_rit import GAINS, Recipe, at, file_name, observed
from experiments.runs import Context, conduct

# The box that parameters are drawn from.
LIMITS = np.array([[10, 50, 100, -20], [250, 500, 5000, 20]])


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Both figures at the smallest budget, in one folder."""
    context = Context(tmp_path_factory.mktemp("results"))
    return context, conduct(fig3.FIG3, "ci", context), conduct(fig4.FIG4, "ci", context)


def test_file_names_say_nothing():
    name = file_name("flow", {"train": 100, "epochs": 2})
    assert name == file_name("flow", {"epochs": 2, "train": 100})
    assert name != file_name("flow", {"train": 1000, "epochs": 2})
    kind, digest = name.split("-")
    assert (kind, len(digest)) == ("flow", 16)


def test_what_makes_a_flow_does_not_depend_on_its_calibration():
    one, other = Recipe(100, 2, 50), Recipe(100, 2, 60)
    assert one.flow_made == other.flow_made
    assert one.flow_made != Recipe(100, 3, 50).flow_made


def test_observations_by_gain():
    x, theta = observed([20, -20])
    assert x.shape == (2, 33)
    assert theta.tolist() == [[135, 220, 2000, 20], [135, 220, 2000, -20]]
    # Forty decibels are eight in the logarithm of power, up to noise.
    assert float((x[0] - x[1]).mean()) == pytest.approx(8, abs=0.3)


def test_every_observation_has_its_draws():
    found = at(torch.zeros(3, 33), 7)
    assert [(d.x.shape, d.n) for d in found] == [((33,), 7)] * 3


def test_budgets_are_those_of_the_paper():
    job = fig3.jobs("paper")[1]
    assert job["method"] == "published L-C2ST-NF"
    assert (job["train"], job["pairs"], job["nulls"], job["draws"]) == (
        50_000,
        10_000,
        1000,
        10_000,
    )
    assert job["gains"] == list(GAINS) == [g["gain"] for g in fig4.jobs("paper")]
    assert len(fig4.jobs("smoke")) == 9


def test_statistics_and_pvalues(runs):
    _, (_, *local), _ = runs
    h = local[0]["nulls"]
    for row in local:
        assert len(row["statistic"]) == len(row["gains"])
        assert (np.array(row["null_low"]) <= np.array(row["null_high"])).all()
        p = np.array(row["pvalue"])
        published = row["method"].startswith("published")
        # Of small p-values of the score test 999 copies are made.
        copies = np.where((row["method"] == "score-NF") & (p <= 0.1), 999, h)
        steps = p * (copies + (not published))
        np.testing.assert_allclose(steps, steps.round(), atol=1e-4)
        assert published or (steps >= 1 - 1e-4).all()


def test_the_parts_are_made_once(runs):
    context, _, _ = runs
    kinds = [path.name.split("-")[0] for path in context.folder.iterdir() if "-" in path.name]
    assert kinds.count("flow") == kinds.count("test") == 1


def test_both_figures_say_the_same(runs):
    _, found, (shown,) = runs
    network = next(row for row in found if row["method"] == "L-C2ST-NF")
    score = next(row for row in found if row["method"] == "score-NF")
    i = network["gains"].index(shown["gain"])
    assert shown["statistic"] == pytest.approx(network["statistic"][i], rel=1e-5)
    assert shown["pvalue"] == network["pvalue"][i]
    assert shown["score_pvalue"] == score["pvalue"][i]


def test_what_is_drawn_is_what_was_found(runs):
    context, _, (shown,) = runs
    curve, pairs = (
        assay.load(context.folder / shown[f"{kind}_file"]) for kind in ("curve", "pairs")
    )
    assert float(pairs.statistic) == pytest.approx(shown["statistic"], rel=1e-5)
    assert pairs.theta.shape == (shown["draws"], 4)
    assert pairs.null_probabilities is None
    assert curve.null_probabilities.shape == (shown["nulls"], min(shown["draws"], 1000))
    assert (context.folder / "fig4_all.png").stat().st_size > 1000
    assert shown["truth"] == [135, 220, 2000, shown["gain"]]
    beyond = (pairs.theta < LIMITS[0]) | (pairs.theta > LIMITS[1])
    assert shown["outside"] == pytest.approx(beyond.any(1).mean(), rel=1e-5)


def test_words(runs):
    _, found, shown = runs
    text = fig4.table(shown)
    assert all(row["wrong"] in text for row in shown)
    assert all(said in fig3.table(found) for said in found[0]["said"])


def test_a_job_found_again_is_the_same(runs):
    context, found, shown = runs
    job = fig4.jobs("ci")[0]
    assert job | json.loads(json.dumps(fig4.run(job, context))) == shown[0]
    job = fig3.jobs("ci")[0]
    assert job | json.loads(json.dumps(fig3.run(job, context))) == found[0]


@dataclass(frozen=True)
class Known:
    """A setting whose q and posterior are Gaussian."""

    q: Any

    def sets(self, k):
        return self.q.calibration(1000, k)

    @property
    def flow(self):
        return self

    def log_prob(self, theta, x):
        return -((self.q.theta_to_base(theta, x)) ** 2).sum(1) / 2


@pytest.mark.parametrize(("width", "sign"), [(1.0, 0), (1.5, 1), (0.7, -1)])
def test_global_curves(gaussian, width, sign):
    """The HPD curve is above the diagonal for a wide q, below for a narrow one."""
    found = fig3.overall(Known(gaussian(width=width, m=4)), 39)
    levels, curve = np.array(found["levels"]), np.array(found["curves"][-1])
    lower, upper = np.array(found["lower"]), np.array(found["upper"])
    assert found["names"] == ["C", "mu", "sigma", "gain", "HPD"]
    assert len(found["curves"]) == len(found["pvalue"]) == len(found["distance"]) == 5
    assert found["distance"][-1] == pytest.approx(np.abs(curve - levels).max(), abs=1e-5)
    if sign:
        assert found["pvalue"][-1] <= 0.01
        assert np.sign((curve - levels).sum()) == sign
    else:
        assert found["pvalue"][-1] > 0.05
        assert ((curve >= lower - 1e-6) & (curve <= upper + 1e-6)).all()


def test_the_band_of_nulls():
    null = np.arange(1001.0)[None]
    found = fig3.summed(np.array([990.0]), null, np.array([0.01]))
    assert found["null_low"] == [25.0]
    assert found["null_high"] == [975.0]


def test_the_shape_over_the_gain():
    gains = list(GAINS)
    assert fig3.u_shape(gains, [abs(g) for g in gains]) == pytest.approx(1)
    assert fig3.u_shape(gains, [-abs(g) for g in gains]) == pytest.approx(-1)
    assert abs(fig3.u_shape(gains, gains)) < 1e-9


def row(method="published L-C2ST-NF"):
    return {
        "method": method,
        "gains": [-20, 0, 20],
        "statistic": [0.3, 0.1, 0.2],
        "pvalue": [0.0, 0.5, 0.1],
        "null_low": [0.01, 0.01, 0.01],
        "null_high": [0.1, 0.2, 0.1],
    }


PAPER = {
    "exp3_jrnmm": {
        "per_gain": {"0": {"mse": {"t_stat": 0.0163, "p_value": 0.0, "null_q975": 0.0085}}},
        "sbc": {"ks_stat": [0.1] * 4, "ks_p": [0.5] * 4},
        "hpd": {"ks_stat": 0.2, "ks_p": 0.0},
    }
}


def test_the_paper_stands_beside_where_it_is_at_hand(monkeypatch):
    monkeypatch.setattr(fig3, "published_numbers", lambda: PAPER)
    lines = fig3._local_lines(row())
    assert "in the paper" in lines[1]
    assert lines[3].split() == ["0", "0.1000", "0.500", "0.2000", "0.0163", "0.000", "0.0085"]
    assert "paper" not in "".join(fig3._local_lines(row("L-C2ST-NF")))
    assert fig3.paper_overall()[-1] == (0.2, 0.0)


def test_nothing_is_missed_where_it_is_not(monkeypatch):
    monkeypatch.setattr(fig3, "published_numbers", dict)
    assert "paper" not in "".join(fig3._local_lines(row()))
    assert fig3.paper_overall() == []
    _, ax = plt.subplots()
    fig3._statistics(ax, [row()])
    assert len(ax.lines) == 1
    plt.close("all")


def test_statistics_are_drawn_with_their_bands(monkeypatch):
    monkeypatch.setattr(fig3, "published_numbers", lambda: PAPER)
    _, (left, right) = plt.subplots(1, 2)
    fig3._statistics(left, [row(), row("L-C2ST-NF")])
    assert left.lines[0].get_ydata().tolist() == [0.3, 0.1, 0.2]
    assert len(left.collections) == 2
    assert left.collections[0].get_paths()[0].get_extents().ymax == pytest.approx(0.2)
    assert left.lines[2].get_ydata().tolist() == [0.0163]
    fig3._ratios(right, [row()])
    np.testing.assert_allclose(right.lines[0].get_ydata(), [3, 0.5, 2])
    assert list(right.lines[1].get_ydata()) == [1, 1]
    plt.close("all")

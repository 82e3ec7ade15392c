"""Is x_o what the simulator makes of a draw of q? Level, power, words, failures."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay._support.random import stream
from assay.answers.predictive import PredictiveResult, rank_among
from assay.data.simulate import Form, Runner, one_of
from tests.data.test_simulate import PRIOR, RIGHT, X_O, Posterior, fail, pairs

# theta ~ N(0, I) in two dimensions, x = A theta + N(0, I) in three, whose posterior is known.
A = torch.tensor([[1.0, 0.5], [0.0, 2.0], [-1.0, 1.0]])
COVARIANCE = torch.linalg.inv(torch.eye(2) + A.mT @ A)


def simulate(theta):
    return theta @ A.mT + torch.randn(len(theta), 3)


def posterior(x, generator, shift=0.0):
    """A draw (o, m) of the posterior at each x (o, 3)."""
    noise = torch.randn(len(x), 2, generator=generator) @ torch.linalg.cholesky(COVARIANCE).mT
    return x @ A @ COVARIANCE + shift + noise


def pvalues(o, n=39, shift=0.0, unlike=0.0):
    """P-values (o,) at observations of the prior, each moved by so much."""
    g = stream(0, "predictive", n)
    theta, noise = (torch.randn(o, j, generator=g) for j in (2, 3))
    x_o = theta @ A.mT + noise + unlike
    draw = posterior(x_o, g, shift)
    made = (draw @ A.mT)[:, None] + torch.randn(o, n, 3, generator=g)
    return rank_among(made, draw, x_o, None).pvalue


def test_p_is_uniform_where_q_is_right():
    """20 000 observations: chi-square over 40 ranks; shares below levels within four errors."""
    p = pvalues(6000)
    counts = np.bincount(np.round(40 * p).astype(int) - 1, minlength=40)
    assert scipy.stats.chisquare(counts).pvalue > 0.001
    for level in (0.025, 0.05, 0.25, 0.5):
        assert abs((p <= level).mean() - level) < 4 * (level * (1 - level) / len(p)) ** 0.5


def test_p_is_small_where_the_simulator_or_q_is_wrong():
    """500 observations; at level 0.05."""
    for wrong in ({"unlike": torch.tensor([0.0, 0.0, 8.0])}, {"shift": 3.0}):
        assert (pvalues(500, **wrong) <= 0.05).mean() > 0.7


def test_the_simulator_is_run():
    x_o, g = torch.tensor([0.5, 1.0, -0.5]), stream(1, "x")
    theta_o = posterior(x_o.expand(50, 3), g)
    found = assay.predictive(theta_o, simulate, x_o)
    assert found.null.shape == (199,)
    assert found.theta.tolist() in theta_o.tolist()
    again = assay.predictive(theta_o, simulate, x_o)
    np.testing.assert_array_equal(found.null, again.null)
    assert found.sentence == (
        "x_o is typical of what the simulator makes of a draw of q there "
        f"(p = {float(found.pvalue):.3f}; 199 simulations)."
    )


def test_an_embedding_is_used():
    theta_o = torch.zeros(5, 2)
    found = assay.predictive(theta_o, simulate, [0.0, 0, 90], 19, embed=lambda x: x[:, :2])
    assert found.pvalue > 0.05
    assert assay.predictive(theta_o, simulate, [0.0, 0, 90], 19).pvalue == 0.05


def test_ties_do_not_make_p_small():
    counts = lambda theta: torch.poisson(torch.ones(len(theta), 1))  # noqa: E731
    assert assay.predictive(torch.zeros(3, 1), counts, [1.0], 39).pvalue > 0.05


def test_one_of_many_draws():
    theta = torch.arange(12.0).reshape(2, 3, 2)
    chosen = torch.stack([one_of(theta, seed) for seed in range(30)])
    assert set(chosen[:, 0, 0].tolist()) == {0.0, 2.0, 4.0}


class TestCheck:
    def check(self, x_o=X_O, q=RIGHT, simulator=None, **how):
        given = {"simulator": simulator or simulated, "prior": PRIOR, "simulations": 200}
        given |= {"nulls": 19, "classifier": None}
        return assay.check(q, x_o=x_o, **{**given, **how})

    def test_it_is_printed_and_sets_no_verdict(self):
        found = self.check()
        assert found.predictive.null.shape == (1, 20)
        assert found.predictive.sentence in words(found)
        assert found.predictive.sentence.startswith("x_o is typical of what the simulator makes")
        far = self.check(q=Posterior(shift=3.0))
        assert "x_o is unusual even for what the simulator makes" in words(far)
        assert "This does not set the verdict." in words(far)
        without = replace(far, predictive=None)
        assert without.verdicts == far.verdicts
        assert "does not set" not in words(without)

    def test_many_observations(self):
        found = self.check(x_o=[[0.5], [40.0]], labels=["near", "far"], simulations=1000)
        assert found.predictive.pvalue[1] == 1 / 51
        assert found.verdicts[1] == "outside"
        assert "Every other x_o is typical" in words(found)
        assert "corrected for 2 observations; 50 simulations" in words(found)

    def test_simulations_that_fail_are_left_out(self):
        found = pairs(RIGHT, 400, fail)
        assert found.failed[2] + found.predicted[0].shape[1] == found.counts[2] == 40

    def test_where_all_fail(self):
        runner = Runner(lambda theta: theta * torch.nan, Form(50, numpy=False, shape=(1,)), 0)
        made = runner.repeat("predictive", torch.zeros(1), 19)
        assert made.failed == 19
        assert rank_among(made.x[None], torch.zeros(1, 1), X_O[None], None) is None

    def test_it_goes_on_where_it_was_stopped(self, tmp_path):
        first = self.check(resume=tmp_path)
        assert list(tmp_path.glob("predictive-0-*.npz"))
        again = self.check(resume=tmp_path, simulator=never)
        np.testing.assert_array_equal(first.predictive.null, again.predictive.null)


def words(found):
    """What is printed, without line ends."""
    return " ".join(str(found).split())


def simulated(theta):
    return theta + 0.5 * torch.randn(theta.shape)


def never(theta):
    raise AssertionError("everything is kept")


SENTENCES = [
    ((0.5, 0.5), None, "Every x_o is typical of"),
    ((0.5, 0.01), None, "b is unusual even for"),
    ((0.01, 0.01), None, "a, b are unusual even for"),
    ((0.5, 0.01), (True, False), "Every other x_o is typical of"),
    ((0.01, 0.01), (True, False), "a is unusual even for"),
]


@pytest.mark.parametrize(("pvalues", "some", "start"), SENTENCES)
def test_sentences_of_many(pvalues, some, start):
    """Observations of which nothing is said are left out, and count in the correction."""
    null = np.arange(100.0) + np.zeros((2, 1))
    statistic = np.array([100.5 - 101 * p for p in pvalues])
    parts = {"hypothesis": "", "settings": {}, "x": np.zeros((2, 1)), "theta": np.zeros((2, 1))}
    sentence = PredictiveResult(statistic=statistic, null=null, **parts).describe(
        0.05, ("a", "b"), some
    )
    assert sentence.startswith(
        f"{start} what the simulator makes of a draw of q there (smallest p"
    )
    assert "corrected for 2 observations; 100 simulations)" in sentence


def test_nothing_succeeds():
    with pytest.raises(ValueError, match="simulator: expected"):
        assay.predictive(torch.zeros(3, 1), lambda theta: theta * torch.nan, [0.0])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"theta_o": torch.zeros(3)}, r"theta_o: expected draws \(s, m\)"),
        ({"theta_o": torch.full((3, 1), torch.nan)}, "theta_o: expected finite"),
        ({"x_o": [0.0, 0.0]}, r"like x_o of shape \(2,\)"),
        ({"n": 0}, "n: expected"),
        ({"simulator": None}, "simulator: expected"),
    ],
)
def test_bad_input(given, words):
    whole = {"theta_o": torch.zeros(3, 1), "simulator": simulated, "x_o": [0.0]} | given
    with pytest.raises((TypeError, ValueError), match=words):
        assay.predictive(**whole)

"""Is x_o what the simulator makes of a draw of q? Level, power, words, failures."""

from dataclasses import replace
from functools import partial
from itertools import count

import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay._support.random import stream
from assay.answers.predictive import PredictiveResult, rank_among

# theta ~ N(0, I) in two dimensions, x = A theta + N(0, I) in three, whose posterior is known.
A = torch.tensor([[1.0, 0.5], [0.0, 2.0], [-1.0, 1.0]])
COVARIANCE = torch.linalg.inv(torch.eye(2) + A.mT @ A)
PRIOR = torch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))


def simulate(theta):
    return theta @ A.mT + torch.randn(len(theta), 3)


def posterior(x, generator=None, shift=0.0):
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
    """6000 observations: chi-square over 40 ranks; shares below levels within four errors."""
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
    x_o = torch.tensor([0.5, 1.0, -0.5])
    theta_o = posterior(x_o.expand(50, 3), stream(1, "x"))
    found, again, other = (assay.predictive(theta_o, simulate, x_o, seed=s) for s in (0, 0, 1))
    assert found.null.shape == (199,)
    np.testing.assert_array_equal(found.null, again.null)
    assert found.sentence == (
        "x_o is typical of what the simulator makes of a draw of q there "
        f"(p = {float(found.pvalue):.3f}; 199 simulations)."
    )
    # A draw by chance; an embedding is used; ties do not make p small.
    assert found.theta.tolist() != other.theta.tolist()
    assert {tuple(one.theta) for one in (found, other)} < set(map(tuple, theta_o.tolist()))
    far = partial(assay.predictive, theta_o, simulate, [0.5, 1.0, 90.0], 19)
    assert far().pvalue == 0.05 < far(embed=lambda x: x[:, :2]).pvalue
    counts = lambda theta: torch.poisson(torch.ones(len(theta), 1))  # noqa: E731
    assert assay.predictive(torch.zeros(3, 1), counts, [1.0], 39).pvalue > 0.05


def check(x_o, simulator=simulate, shift=0.0, n=200, **how):
    how |= {"simulator": simulator, "prior": PRIOR, "simulations": n, "nulls": 19}
    q = lambda x, n: posterior(x.expand(n, 3), shift=shift)  # noqa: E731
    found = assay.check(q, x_o=x_o, classifier=None, **how)
    return found, " ".join(str(found).split())


def test_a_check_prints_it_goes_on_and_sets_no_verdict(tmp_path):
    x_o = [0.5, 1.0, -0.5]
    found, printed = check(x_o, resume=tmp_path)
    assert found.predictive.null.shape == (1, 20)
    assert found.predictive.sentence in printed
    assert list(tmp_path.glob("predictive-0-*.npz"))
    again, _ = check(x_o, lambda theta: 1 / 0, resume=tmp_path)
    np.testing.assert_array_equal(found.predictive.null, again.predictive.null)
    far, printed = check(x_o, shift=3.0)
    assert "x_o is unusual even for what the simulator makes" in printed
    assert "This does not set the verdict." in printed
    without = replace(far, predictive=None)
    assert without.verdicts == far.verdicts
    assert "does not set" not in str(without)
    found, printed = check([x_o, [0.0, 0.0, 90.0]], n=1000, labels=["near", "far"])
    assert found.predictive.pvalue[1] == 1 / 51
    assert found.verdicts[1] == "outside"
    assert "Every other x_o is typical" in printed
    assert "corrected for 2 observations; 50 simulations" in printed


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
    parts = {"null": np.arange(100.0) + np.zeros((2, 1)), "hypothesis": "", "settings": {}}
    parts |= {"statistic": 100.5 - 101 * np.array(pvalues), "x": np.zeros((2, 1))}
    found = PredictiveResult(**parts, theta=np.zeros((2, 1)))
    sentence = found.describe(0.05, ("a", "b"), some)
    assert sentence.startswith(f"{start} what the simulator makes of a draw of q there (smallest")
    assert "corrected for 2 observations; 100 simulations)" in sentence


CALLS = count()


def tried(theta):
    """Works when it is tried, and never after."""
    return theta + torch.randn(theta.shape) if next(CALLS) < 4 else 1 / 0


BAD = [
    ({"theta_o": torch.zeros(3)}, r"theta_o: expected draws \(s, m\)"),
    ({"theta_o": torch.full((3, 1), torch.nan)}, "theta_o: expected finite"),
    ({"x_o": [0.0, 0.0]}, r"like x_o of shape \(2,\)"),
    ({"x_o": [[0.0]]}, r"x_o: expected one observation of shape \(1,\)"),
    ({"n": 0}, "n: expected"),
    ({"simulator": None}, "simulator: expected"),
    ({"simulator": tried}, "simulator: expected some simulations to succeed; got ZeroDivision"),
]


@pytest.mark.parametrize(("given", "words"), BAD)
def test_bad_input(given, words):
    noisy = lambda theta: theta + torch.randn(theta.shape)  # noqa: E731
    whole = {"theta_o": torch.zeros(3, 1), "simulator": noisy, "x_o": [0.0]} | given
    with pytest.raises((TypeError, ValueError), match=words):
        assay.predictive(**whole)

"""Pairs around x_o, by exactness: the rank of the truth in its set is uniform if q is right.

theta ~ N(0, 1), x ~ N(theta, 1 / 4), and simulations succeed with chance exp(-c theta^2): then
p(theta | x, success) is that of a prior with precision 1 + 2 c.
"""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, Uniform

import assay
from assay._support.random import stream
from assay.data.pairs import Simulations, pairs_around
from experiments.tasks import TwoMoons

PRIOR = MultivariateNormal(torch.zeros(1), torch.eye(1))
X_O, FAILING = torch.tensor([1.0]), 0.4


def simulate(theta):
    return theta + 0.5 * torch.randn(theta.shape)


def fail(theta, rate=FAILING):
    """A simulator that returns NaN where it fails, more often for large parameters."""
    success = torch.rand(len(theta), 1) < (-rate * theta.square()).exp()
    return torch.where(success, simulate(theta), torch.nan)


def fail_loudly(theta):
    """The same for one vector, by an error."""
    x = fail(theta.reshape(1, 1))[0]
    if x.isnan():
        raise ArithmeticError("no solution")
    return x


@dataclass(frozen=True)
class Posterior:
    """The posterior for a prior of some precision, shifted, and more so for negative x."""

    precision: float = 1.0
    shift: float = 0.0
    shift_below: float = 0.0

    def sample(self, x, n):
        return self.sample_batched(x[None], n)[0]

    def sample_batched(self, x, n):
        b, m = x.shape
        variance = 1 / (self.precision + 4)
        mean = 4 * variance * x + self.shift + self.shift_below * (x < -0.5)
        return mean[:, None] + variance**0.5 * torch.randn(b, n, m)


RIGHT = Posterior()
GIVEN_SUCCESS = Posterior(1 + 2 * FAILING)


def pairs(q=RIGHT, n=400, simulator=simulate, x_o=X_O, **how):
    run = {name: how.pop(name) for name in ("resume", "executor") if name in how}
    return pairs_around(q, x_o, Simulations(simulator, PRIOR, n, **run), **how)


def same(first, second):
    for part in ("prior", "near"):
        one, other = getattr(first, part), getattr(second, part)
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.members, other.members)


def uniform(calibration):
    """The p-value of uniform ranks."""
    members = calibration.members[..., 0]
    # A member may be its own companion: chance decides between them.
    chance = 1e-6 * torch.rand(members.shape, generator=stream(0, "ties"))
    ranks = (members[:, 1:] + chance[:, 1:] < members[:, :1] + chance[:, :1]).sum(1)
    levels = (ranks + torch.rand(len(ranks), generator=stream(0, "levels"))) / members.shape[1]
    return scipy.stats.kstest(levels.numpy(), "uniform").pvalue


def test_two_stages():
    found = pairs()
    assert found.made == (len(found.prior), len(found.near), 40) == (200, 160, 40)
    assert found.prior.k == found.near.k == 16
    assert found.draws.x.shape == (1, 1)
    assert found.draws.theta.shape == (1, 1000, 1)
    # Posterior sd 0.45; a window of twice that, and some of the prior.
    assert 0.5 < found.near.theta.std() < 1.1
    assert abs(float(found.near.theta.mean()) - 0.75) < 0.2
    assert found.share == 0.8


class TestExact:
    @pytest.mark.parametrize(
        ("q", "simulator", "right"),
        [
            (RIGHT, simulate, True),
            (Posterior(shift=0.3), simulate, False),
            # Failures make it the posterior given success, and not that of a likelihood.
            (GIVEN_SUCCESS, fail, True),
            (RIGHT, fail, False),
        ],
    )
    def test_sets_around_x_o(self, q, simulator, right):
        found = pairs(q, 2000, simulator)
        assert (uniform(found.near) > 0.001) == right
        assert len(found.near) == found.made[1] - found.failed[1]
        assert (sum(found.failed) > 200) == (simulator is fail)

    def test_sets_of_the_prior(self):
        assert uniform(pairs(n=2000).prior) > 0.001


class TestWeights:
    """Prior over proposal: what is weighted is as if parameters were of the prior."""

    def test_moments_of_the_prior(self):
        near = pairs(n=2000).near
        theta, weights = near.theta[:, 0].double(), near.weights.double() / len(near)
        assert float(weights.sum()) == pytest.approx(1)
        error = 4 * float(weights.square().sum()) ** 0.5
        assert abs(float(weights @ theta)) < error
        assert abs(float(weights @ theta.square()) - 1) < 2 * error
        # And it can fail: without weights the mean is that of the proposal.
        assert theta.mean() > error

    def test_truths_among_plain_draws(self):
        """Weighted ranks of truths among draws of q that were not chosen are uniform."""
        near = pairs(n=2000).near
        assert near.plain_draws.shape == (len(near), 16, 1)
        ranks = (near.plain_draws[..., 0] < near.theta).sum(1).double() / 16
        weights = near.weights.double() / len(near)
        error = 4 * 0.3 * float(weights.square().sum()) ** 0.5
        assert abs(float(weights @ ranks) - 0.5) < error
        assert abs(float(ranks.mean()) - 0.5) > error

    def test_pairs_of_the_prior_have_none(self):
        assert pairs(n=60).prior.weights is pairs(n=60).prior.plain_draws is None


class TestPredicted:
    """Simulations of one draw of q at each observation, where there are enough."""

    @pytest.mark.parametrize(("n", "o", "each"), [(400, 1, 40), (180, 1, 0), (600, 3, 20)])
    def test_how_many(self, n, o, each):
        found = pairs(n=n, x_o=torch.linspace(-1, 1, o)[:, None])
        x, theta = found.predicted
        assert x.shape == (o, each, 1)
        assert theta.shape == (o, 1)
        assert found.made[2] == o * each
        assert all(t in draws for t, draws in zip(theta, found.draws.theta, strict=True))

    def test_they_are_of_that_draw(self):
        x, theta = pairs(n=1000).predicted
        assert abs(float((x[0] - theta).mean())) < 4 * 0.5 / 100**0.5


class TestSentence:
    @pytest.mark.parametrize(
        ("how", "words"),
        [
            ({}, "50 simulations have parameters from the prior, 50 have parameters drawn around"),
            ({}, "around q at x_o (50 at a time). Only the second decide."),
            (
                {"q": GIVEN_SUCCESS, "simulator": fail_loudly},
                "ArithmeticError: no solution",
            ),
            ({"q": GIVEN_SUCCESS, "simulator": fail_loudly}, "(one at a time)"),
            ({"simulator": fail}, "failed (NaN or infinity)"),
            ({"n": 300}, "30 repeat a draw of q there"),
        ],
    )
    def test_how_they_were_made(self, how, words):
        found = pairs(**{"n": 100, **how})
        assert words in found.sentence
        failed = f"{sum(found.failed)} of them failed"
        assert (failed in found.sentence) == ("simulator" in how)

    def test_a_generator_of_its_own(self):
        source = np.random.default_rng(0)
        own = pairs(n=60, simulator=lambda theta: theta + source.standard_normal(1))
        assert "keeps a random generator of its own" in own.sentence


class TestManyObservations:
    X = torch.tensor([[1.0], [-1.5], [0.0]])

    def test_simulations_are_spread(self):
        found = pairs(n=100, x_o=self.X)
        assert found.draws.theta.shape == (3, 1000, 1)
        assert found.share == pytest.approx(0.8 / 3)
        assert "around q at the 3 observations" in found.sentence
        assert pairs(n=60, x_o=self.X.repeat(10, 1)).share == 0.2

    def test_exact(self):
        assert uniform(pairs(n=600, x_o=self.X).near) > 0.001

    def test_each_is_tested(self):
        found = pairs(Posterior(shift_below=0.5), n=400, x_o=self.X[:2])
        result = assay.score(found.near, found.share)(found.draws)
        assert (result.adjusted <= 0.05).tolist() == [False, True]


class TestGiven:
    def test_draws(self):
        theta = RIGHT.sample(X_O, 300)
        found = pairs(n=100, x_o=assay.Draws(X_O, theta))
        assert torch.equal(found.draws.theta[0], theta)

    def test_arrays_of_double_precision(self):
        def numpy_only(theta):
            assert isinstance(theta, np.ndarray)
            return theta + 0.5 * np.random.randn(*theta.shape)

        assert pairs(n=60, simulator=numpy_only).near.x.dtype == torch.float32
        double = pairs(n=60, simulator=numpy_only, x_o=X_O.double().numpy())
        assert double.near.x.dtype == torch.float64

    @pytest.mark.parametrize(
        "prior", [TwoMoons().prior, Independent(Uniform(-torch.ones(2), 1.0), 1)], ids=["own", "t"]
    )
    def test_priors_of_any_kind(self, prior):
        task = TwoMoons()
        found = pairs_around(
            lambda x, n: task.posterior(x, n, torch.default_generator).theta,
            [-0.4, 0.2],
            Simulations(lambda theta: task.simulate(theta, torch.default_generator), prior, 60),
        )
        assert found.near.theta.abs().max() <= 1

    def test_more_draws_for_many_parameters(self):
        prior = MultivariateNormal(torch.zeros(20), torch.eye(20))
        source = Simulations(lambda theta: theta + torch.randn(theta.shape), prior, 60)
        wide = pairs_around(
            lambda x, n: x / 2 + 0.5**0.5 * torch.randn(n, 20), torch.zeros(20), source
        )
        assert wide.near.k == 24


class Killed:
    """Ends its process in the middle of a run."""

    def __init__(self, at):
        self.at, self.calls = at, 0

    def __call__(self, theta):
        self.calls += 1
        if self.calls == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        return simulate(theta)


class TestResume:
    def test_killed(self, tmp_path):
        """After four calls to find out how it is called, two from the prior and one other."""
        code = (
            "from tests.data.test_pairs import *; "
            f"pairs(n=200, simulator=Killed(8), resume={str(tmp_path)!r})"
        )
        root = Path(__file__).parents[2]
        done = subprocess.run([sys.executable, "-c", code], cwd=root, timeout=120, check=False)
        assert done.returncode == -signal.SIGKILL
        kept = {"call.json", "prior-50-00000.npz", "prior-50-00001.npz", "around-50-00000.npz"}
        assert kept == {file.name for file in tmp_path.iterdir()}
        same(pairs(n=200, resume=tmp_path), pairs(n=200))

    def test_the_same_call_goes_on(self, tmp_path):
        first = pairs(n=200, resume=tmp_path)
        names = sorted(file.name for file in tmp_path.iterdir())
        assert names[0] == "around-50-00000.npz"
        assert {"call.json", "prior-50-00000.npz"} < set(names)
        (tmp_path / "around-50-00001.npz").unlink()
        same(pairs(n=200, resume=tmp_path), first)

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"seed": 1}, "another seed"),
            ({"n": 300}, "another simulations"),
            ({"x_o": 2 * X_O}, "another x_o"),
            ({"n": 300, "seed": 1}, "another seed and another simulations"),
            ({"q": Posterior(shift=1.0)}, "of the same parameters; got others in .*around"),
        ],
    )
    def test_another_call_is_refused(self, tmp_path, change, words):
        pairs(n=200, resume=tmp_path)
        with pytest.raises(ValueError, match=f"resume: expected .*{words}"):
            pairs(resume=tmp_path, **{"n": 200, **change})

    def test_a_file_in_place_of_a_folder(self, tmp_path):
        (tmp_path / "file").touch()
        with pytest.raises(ValueError, match="resume: expected a folder; got the file"):
            pairs(resume=tmp_path / "file")


@dataclass
class Sluggish:
    """The right posterior, which draws nothing or hangs at an x above 2, and is counted."""

    hangs: bool = False
    calls: int = 0

    def sample(self, x, n):
        self.calls += 1
        if x[0] > 2:
            if self.hangs:
                time.sleep(60)
            raise RuntimeError("no acceptance")
        return RIGHT.sample(x, n)


class TestDrawing:
    """Where q cannot be sampled."""

    @pytest.mark.parametrize("hangs", [False, True])
    def test_x_that_fail_are_left_out(self, hangs):
        found = pairs(Sluggish(hangs), 100, drawing=assay.Drawing(limit=0.2, failures=0.2))
        (words,) = found.near.remarks
        assert words.startswith("No draws of q could be made")
        assert "simulation" in words
        assert "around x_o" in words
        assert ("0.2 s" in words) == hangs
        assert len(found.near) < found.made[1]

    def test_none_may_fail_by_default(self):
        with pytest.raises(ValueError, match="at simulation .* \\(RuntimeError: no acceptance"):
            pairs(Sluggish(), 100)

    def test_sets_without_them_are_exact(self):
        found = pairs(Sluggish(), 600, drawing=assay.Drawing(failures=0.3))
        assert len(found.near) < found.made[1]
        assert uniform(found.near) > 0.001

    def test_resumption(self, tmp_path):
        first, again = Sluggish(), Sluggish()
        how = assay.Drawing(failures=0.3, resume=tmp_path)
        same(pairs(first, 100, drawing=how), pairs(again, 100, drawing=how))
        assert again.calls < first.calls / 4


BAD = {
    "simulator": (lambda: Simulations(3, PRIOR), "simulator: expected a function"),
    "prior": (lambda: Simulations(simulate, None), "prior: expected a torch distribution"),
    "few": (lambda: pairs(n=20), "simulations: expected at least 50"),
    "marginals": (
        lambda: pairs_around(RIGHT, X_O, Simulations(simulate, Normal(0.0, 1.0), 60)),
        "prior: expected draws with shape",
    ),
    "posterior": (lambda: pairs(3), "posterior: expected an object with sample"),
    "x_o": (lambda: pairs(x_o=[1.0, 2.0]), r"x_o of shape \(2,\)"),
    "simulations": (lambda: pairs_around(RIGHT, X_O, simulate), "simulations: expected"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.0, 0.15])
def test_level(rate):
    """1000 repetitions: rejections at 0.05 and 0.2 within 99.9 % binomial intervals."""
    found, simulator = [], partial(fail, rate=rate)
    for seed in range(1000):
        made = pairs(Posterior(1 + 2 * rate), 100, simulator, seed=seed, draws=100)
        result = assay.score(made.near, made.share, 19, seed=seed)(made.draws)
        found.append(float(result.pvalue[0]))
    for alpha in (0.05, 0.2):
        low, high = scipy.stats.binom(1000, alpha).interval(0.999)
        assert low <= (np.array(found) <= alpha + 1e-9).sum() <= high

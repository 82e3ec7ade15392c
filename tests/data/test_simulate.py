"""How a simulator is called and run; pairs around x_o, by exactness.

Pairs are exact if the rank of the true parameter in its set is uniform when q is right.
theta ~ N(0, 1), x ~ N(theta, 1 / 4), and simulations succeed with chance exp(-c theta^2): then
p(theta | x, success) is that of a prior with precision 1 + 2 c.
"""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
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
from assay.data.simulate import TOGETHER, Runner, Simulations, form_of, pairs_around
from experiments.tasks import TwoMoons

ORIGIN = torch.zeros(2)
N = 2 * TOGETHER + 20


def draw(n, seed):
    return torch.randn(n, 3, generator=stream(seed, "theta"))


def batch(theta):
    return theta[:, :2] + torch.randn(len(theta), 2)


def batch_numpy(theta):
    """Products of tensors with arrays are refused."""
    return theta @ np.ones((3, 2), np.float32) + np.random.randn(len(theta), 2)


def row(theta):
    a, b, _ = theta.tolist()
    return torch.tensor([a, b]) + torch.randn(2)


def row_numpy(theta):
    assert isinstance(theta, np.ndarray)
    return [theta[0] + random.gauss(0, 1), float(theta[1])]


def entangled(theta):
    """Every row depends on the others."""
    return batch(theta) + theta.mean()


GENERATOR = np.random.default_rng(0)


def own_generator(theta):
    return theta[:, :2].numpy() + GENERATOR.standard_normal((len(theta), 2))


def failing(theta):
    x = batch(theta)
    x[torch.rand(len(x)) < 0.05] = torch.nan
    x[torch.rand(len(x)) < 0.05, 0] = torch.inf
    return x


def raising(theta):
    if (torch.rand(len(theta)) < 0.05).any():
        raise ArithmeticError("no\nsolution")
    return batch(theta)


def raising_row(theta):
    if theta[2] > 1.5:
        raise ArithmeticError("too large")
    return row(theta)


def simulated(simulator, n=N, seed=0, **how):
    form = form_of(simulator, draw, ORIGIN, seed)
    return Runner(simulator, form, seed, **how).run("prior", draw, n)


def same_simulations(first, second):
    assert torch.equal(first.theta, second.theta)
    assert torch.equal(first.x, second.x)
    assert (first.failed, first.error) == (second.failed, second.error)


def mixed(theta):
    """As many numbers as parameters: three rows would be taken for three parameters."""
    a, b, c = theta
    return torch.stack([a + torch.randn(()), b * c, c])


FORMS = {
    "batch": (batch, ORIGIN, (TOGETHER, False, "float32", True)),
    "batch_numpy": (batch_numpy, ORIGIN, (TOGETHER, True, "float32", True)),
    "row": (row, ORIGIN, (0, False, "float32", True)),
    "row_numpy": (row_numpy, ORIGIN, (0, True, "float32", True)),
    "entangled": (entangled, ORIGIN, (1, False, "float32", True)),
    "own_generator": (own_generator, ORIGIN, (1, False, "float32", False)),
    "raising": (raising, ORIGIN, (TOGETHER, False, "float32", True)),
    "mixed": (mixed, torch.zeros(3), (0, False, "float32", True)),
    "counts": (
        lambda theta: torch.zeros(len(theta), 2),
        ORIGIN,
        (TOGETHER, False, "float32", True),
    ),
    "many observations": (batch, torch.zeros(7, 2), (TOGETHER, False, "float32", True)),
    # The precision is the lesser of simulator and observation.
    "double x_o": (batch, ORIGIN.double(), (TOGETHER, False, "float32", True)),
    "double both": (batch_numpy, ORIGIN.double(), (TOGETHER, True, "float64", True)),
}


class TestForm:
    @pytest.mark.parametrize(("simulator", "x_o", "expected"), FORMS.values(), ids=FORMS)
    def test_it_is_found_out(self, simulator, x_o, expected):
        form = form_of(simulator, draw, x_o, 0)
        assert (form.rows, form.numpy, form.dtype, form.repeats) == expected
        assert form.shape == x_o.shape[-1:]

    @pytest.mark.parametrize("rows", [TOGETHER, 0])
    def test_failures_do_not_hide_it(self, rows):
        def often(theta):
            if torch.rand(()) < 0.2:
                raise ArithmeticError
            x = batch(theta) if rows else row(theta)
            return x if torch.rand(()) < 0.8 else torch.nan * x

        forms = [form_of(often, draw, ORIGIN, seed) for seed in range(10)]
        assert all(bool(form.rows) == bool(rows) for form in forms)
        assert all(form.repeats for form in forms)

    @pytest.mark.parametrize("how", [batch, row])
    def test_fixed_noise_is_refused(self, how):
        def fixed(theta):
            torch.manual_seed(0)
            return how(theta)

        with pytest.raises(ValueError, match="simulator: expected other noise in every call"):
            form_of(fixed, draw, ORIGIN, 0)

    @pytest.mark.parametrize(
        ("simulator", "words"),
        [
            (lambda theta: theta, r"From 4 vectors came: ValueError: shape \(4, 3\)"),
            (lambda theta: theta[..., :2] * torch.nan, "came: ValueError: NaN or infinity"),
            (lambda theta: 1 / 0, "From one came: ZeroDivisionError"),
            (lambda: 0, "TypeError"),
        ],
    )
    def test_what_cannot_be_called(self, simulator, words):
        with pytest.raises(
            ValueError, match=r"simulator: expected a function that takes"
        ) as caught:
            form_of(simulator, draw, ORIGIN, 0)
        caught.match(words)
        caught.match(r"x_o of shape \(2,\)")


class TestRun:
    @pytest.mark.parametrize("simulator", [batch, batch_numpy, row, row_numpy, entangled])
    def test_pairs_belong_together(self, simulator):
        found = simulated(simulator)
        assert found.theta.shape == (N, 3)
        assert found.x.shape == (N, 2)
        assert (found.failed, found.error) == (0, "")
        expected = found.theta.sum(1) if simulator is batch_numpy else found.theta[:, 1]
        correlation = np.corrcoef(found.x[:, 1].numpy(), expected.numpy())[0, 1]
        assert correlation > 0.5

    def test_noise_differs_between_rows_and_chunks_and_the_seed_decides(self):
        for simulator in (batch, row):
            found = simulated(simulator)
            noise = (found.x - found.theta[:, :2]).round(decimals=4)
            assert len(noise.unique(dim=0)) == N
        same_simulations(simulated(batch), simulated(batch))
        assert not torch.equal(simulated(batch).x, simulated(batch, seed=1).x)

    def test_global_generators_are_left_alone(self):
        states = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
        for simulator in (batch, row_numpy):
            simulated(simulator)
        assert torch.equal(torch.get_rng_state(), states[0])
        np.testing.assert_array_equal(np.random.get_state()[1], states[1])
        assert random.getstate() == states[2]

    def test_parameters_cannot_be_changed(self):
        def spoil(theta):
            x = batch(theta)
            theta[:] = 0
            return x

        assert torch.equal(simulated(spoil).theta, simulated(batch).theta)


@pytest.fixture(scope="module")
def processes():
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


class TestExecutors:
    @pytest.mark.parametrize("simulator", [failing, raising, row_numpy])
    def test_numbers_are_the_same_anywhere(self, simulator, processes):
        here = simulated(simulator)
        with ThreadPoolExecutor(3) as threads:
            same_simulations(here, simulated(simulator, executor=threads))
        same_simulations(here, simulated(simulator, executor=processes))

    def test_what_workers_cannot_import(self, processes):
        with pytest.raises(RuntimeError, match="executor: expected one that runs the simulator"):
            simulated(lambda theta: batch(theta), executor=processes)


class TestFailures:
    @pytest.mark.parametrize(
        ("simulator", "n", "rows", "least", "most", "error"),
        [
            (failing, 1000, TOGETHER, 60, 140, ""),
            (raising, 300, 1, 3, 33, "ArithmeticError: no solution"),
            (raising_row, 300, 0, 5, 40, "ArithmeticError: too large"),
        ],
    )
    def test_they_are_left_out(self, simulator, n, rows, least, most, error):
        found = simulated(simulator, n)
        assert least < found.failed < most
        assert len(found.x) == n - found.failed
        assert found.x.isfinite().all()
        assert (found.error, found.form.rows) == (error, rows)
        if simulator is raising_row:
            assert found.theta[:, 2].max() <= 1.5

    def test_a_batch_that_raises_is_drawn_anew_one_at_a_time(self):
        assert form_of(raising, draw, ORIGIN, 0).rows == TOGETHER
        kept = set(map(tuple, simulated(batch, 300).theta.tolist()))
        assert not kept & set(map(tuple, simulated(raising, 300).theta.tolist()))

    def test_what_is_kept_is_conditioned_on_success(self):
        """Uniform parameters that succeed with chance (1 + theta) / 2: their mean is 5 / 9."""

        def uniform(n, seed):
            return torch.rand(n, 1, generator=stream(seed, "uniform"))

        def simulator(theta):
            if (torch.rand(len(theta), 1) > (1 + theta) / 2).any():
                raise ArithmeticError
            return theta + torch.randn(theta.shape)

        form = form_of(simulator, uniform, torch.zeros(1), 0)
        found = Runner(simulator, form, 0).run("prior", uniform, 800)
        # It is more than 4 standard errors from 1 / 2.
        assert abs(float(found.theta.mean()) - 5 / 9) < 3 * 0.29 / 600**0.5
        assert abs(found.failed - 200) < 3 * (800 * 3 / 16) ** 0.5

    @pytest.mark.parametrize("usual", [batch, row])
    @pytest.mark.parametrize("error", ["NaN or infinity", "ArithmeticError: never"])
    def test_most_fail(self, usual, error):
        def simulator(theta):
            if error.startswith("Arithmetic"):
                raise ArithmeticError("never")
            return usual(theta).log()

        form = form_of(usual, draw, ORIGIN, 0)
        with pytest.raises(ValueError, match="simulations most of which succeed") as caught:
            Runner(simulator, form, 0).run("prior", draw, N)
        caught.match(f"failed, the first with: {error}$")

    def test_another_shape_is_a_failure(self):
        def simulator(theta):
            return row(theta)[: 1 + (theta[2] < 1.5)]

        found = simulated(simulator)
        assert 0 < found.failed < N / 4
        assert "an observation of shape (2,)" in found.error


class Interrupted:
    """Stops in the middle of a run."""

    def __init__(self, at):
        self.at, self.calls = at, 0

    def __call__(self, theta):
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return row(theta)


class TestResumedRun:
    FORM = form_of(row, draw, ORIGIN, 0)

    def run(self, simulator, folder, seed=0, n=N):
        return Runner(simulator, self.FORM, seed, folder=folder).run("prior", draw, n)

    def test_only_what_is_missing_is_simulated(self, tmp_path):
        first, second, third = (Interrupted(at) for at in (TOGETHER + 7, -1, 1))
        with pytest.raises(KeyboardInterrupt):
            self.run(first, tmp_path)
        assert len(list(tmp_path.iterdir())) == 1
        for again, calls in ((second, N - TOGETHER), (third, 0)):
            same_simulations(self.run(again, tmp_path), self.run(row, None))
            assert again.calls == calls

    def test_batches_that_failed_stay_failed(self, tmp_path):
        form = form_of(raising, draw, ORIGIN, 0)
        first = Runner(raising, form, 0, folder=tmp_path).run("prior", draw, N)
        # All is there, so that nothing is simulated, whatever it would give.
        again = Runner(batch, form, 0, folder=tmp_path).run("prior", draw, N)
        same_simulations(first, again)

    def test_another_call_is_refused(self, tmp_path):
        self.run(row, tmp_path)
        with pytest.raises(ValueError, match="resume: expected simulations of the same param"):
            self.run(row, tmp_path, seed=1)

    @pytest.mark.parametrize("content", [b"", b"PK\x03\x04 half a file"])
    def test_a_file_that_cannot_be_read(self, tmp_path, content):
        self.run(row, tmp_path)
        (tmp_path / "prior-0-00001.npz").write_bytes(content)
        with pytest.raises(ValueError, match=r"00001.npz cannot be read. Delete it"):
            self.run(row, tmp_path)


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


def same_pairs(first, second):
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
    assert found.counts == (len(found.prior), len(found.near), 40) == (200, 160, 40)
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
        assert len(found.near) == found.counts[1] - found.failed[1]
        assert (sum(found.failed) > 200) == (simulator is fail)

    def test_sets_of_the_prior(self):
        assert uniform(pairs(n=2000).prior) > 0.001


class TestWeights:
    """Prior over proposal: what is weighted is as if parameters were of the prior."""

    def test_true_parameters_among_plain_draws(self):
        """Weighted ranks of true parameters among draws of q that were not chosen are uniform."""
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
        assert found.counts[2] == o * each
        assert all(t in draws for t, draws in zip(theta, found.draws.theta, strict=True))

    def test_they_are_of_that_draw(self):
        x, theta = pairs(n=1000).predicted
        assert abs(float((x[0] - theta).mean())) < 4 * 0.5 / 100**0.5


def narrow(x, n):
    """Far too narrow: no draw of q at what it makes is near those at x_o."""
    return x / 2 + 2 + 0.001 * torch.randn(n, 1)


class TestSentence:
    @pytest.mark.parametrize(
        ("how", "words"),
        [
            ({}, "50 simulations have parameters from the prior, 50 have parameters drawn around"),
            ({}, "around q at x_o (50 at a time). Only the second decide."),
            ({"q": GIVEN_SUCCESS, "simulator": fail_loudly}, "ArithmeticError: no solution"),
            ({"q": GIVEN_SUCCESS, "simulator": fail_loudly}, "(one at a time)"),
            ({"simulator": fail}, "failed (NaN or infinity)"),
            ({"n": 300}, "30 repeat a draw of q there"),
            ({"q": narrow}, "Only the first decide: q at x_o is far from q at what it makes."),
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


class TestResumedPairs:
    def test_killed(self, tmp_path):
        """After four calls to find out how it is called, two from the prior and one other."""
        code = (
            "from tests.data.test_simulate import *; "
            f"pairs(n=200, simulator=Killed(8), resume={str(tmp_path)!r})"
        )
        root = Path(__file__).parents[2]
        done = subprocess.run([sys.executable, "-c", code], cwd=root, timeout=120, check=False)
        assert done.returncode == -signal.SIGKILL
        kept = {"call.json", "prior-50-00000.npz", "prior-50-00001.npz", "around-50-00000.npz"}
        assert kept == {file.name for file in tmp_path.iterdir()}
        same_pairs(pairs(n=200, resume=tmp_path), pairs(n=200))

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
        assert len(found.near) < found.counts[1]

    def test_none_may_fail_by_default(self):
        with pytest.raises(ValueError, match="at simulation .* \\(RuntimeError: no acceptance"):
            pairs(Sluggish(), 100)

    def test_sets_without_them_are_exact(self):
        found = pairs(Sluggish(), 600, drawing=assay.Drawing(failures=0.3))
        assert len(found.near) < found.counts[1]
        assert uniform(found.near) > 0.001

    def test_resumption(self, tmp_path):
        first, again = Sluggish(), Sluggish()
        how = assay.Drawing(failures=0.3, resume=tmp_path)
        same_pairs(pairs(first, 100, drawing=how), pairs(again, 100, drawing=how))
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
        around = pairs(Posterior(1 + 2 * rate), 100, simulator, seed=seed, draws=100)
        result = assay.score(around.near, around.share, 19, seed=seed)(around.draws)
        found.append(float(result.pvalue[0]))
    for alpha in (0.05, 0.2):
        low, high = scipy.stats.binom(1000, alpha).interval(0.999)
        assert low <= (np.array(found) <= alpha + 1e-9).sum() <= high

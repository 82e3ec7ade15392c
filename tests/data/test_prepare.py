"""The samples of a check, from pairs, a calibration or a simulator; sets around x_o, by exactness.

Sets are exact if the rank of the true parameter is uniform when q is right. theta ~ N(0, 1),
x ~ N(theta, 1 / 4), and simulations succeed with chance exp(-c theta^2): then p(theta | x,
success) is that of a prior with precision 1 + 2 c.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import scipy.stats
import torch
from torch.distributions import Independent, MultivariateNormal, Uniform

import assay
from assay import Calibration, Drawing, Draws, Nearest
from assay._support.random import stream
from assay.data.calibration import Latents
from assay.data.posterior import Posterior
from assay.data.prepare import prepare
from assay.data.simulate import Simulations
from assay.neighbourhood import Distance, DistanceForQ
from tests.conftest import Gaussian

N, M = 200, 2


class BatchedFlow(Gaussian):
    """A Gaussian q with its inverse, which draws at many x at once."""

    def sample_batched(self, x, n):
        return x[:, None] / 2 + self.shift + self.scale * torch.randn(len(x), n, self.m)

    def sample(self, x, n):
        return self.sample_batched(x[None], n)[0]


RIGHT = BatchedFlow()
THETA, X = RIGHT.calibration(N).theta, RIGHT.calibration(N).x
X_O, ONE = torch.tensor([0.5, -0.5]), torch.tensor([1.0])


def draw(x, n):
    """Draws of the right q at many x, which has no inverse."""
    return x[:, None] / 2 + 0.5**0.5 * torch.randn(len(x), n, x.shape[1])


def of_pairs(posterior=draw, theta=THETA, x=X, x_o=X_O, **how):
    return prepare(posterior, theta, x, x_o, **{"draws": 8} | how)


def of_calibration(calibration=None, x_o=None, **how):
    calibration = RIGHT.calibration(N, k=8) if calibration is None else calibration
    return prepare(calibration, None, None, RIGHT.draws(X_O) if x_o is None else x_o, **how)


def exact(precision=1.0, shift=0.0, below=0.0):
    """The posterior for a prior of some precision, shifted, and more so for negative x."""
    variance = 1 / (precision + 4)

    def q(x, n):
        mean = 4 * variance * x + shift + below * (x < -0.5)
        return mean[:, None] + variance**0.5 * torch.randn(len(x), n, x.shape[1])

    return q


def simulate(theta):
    return theta + 0.5 * torch.randn(theta.shape)


def fail(theta, rate=0.4):
    """Returns NaN where it fails, more often for large parameters."""
    success = torch.rand(len(theta), 1) < (-rate * theta.square()).exp()
    return torch.where(success, simulate(theta), torch.nan)


def fail_loudly(theta):
    """The same for one vector, by an error."""
    x = fail(theta.reshape(1, 1))[0]
    return 1 / 0 if x.isnan() else x


def of_simulator(q=None, n=400, simulator=simulate, x_o=ONE, prior=None, resume=None, **how):
    m = np.shape(x_o.x if isinstance(x_o, Draws) else x_o)[-1]
    prior = prior or MultivariateNormal(torch.zeros(m), torch.eye(m))
    source = Simulations(simulator, prior, n, resume=resume)
    return prepare(q or exact(), None, None, x_o, source, **how)


SOURCES = {
    "pairs": of_pairs,
    "flow": partial(of_pairs, RIGHT),
    "calibration": of_calibration,
    "latents": partial(of_calibration, RIGHT.latents(N), X_O, draws=8),
    "simulator": partial(of_simulator, x_o=X_O, draws=8),
}


@pytest.mark.parametrize("name", SOURCES)
def test_every_source(name):
    make, own = SOURCES[name], Nearest(0.1, Distance(torch.sin))
    found = make()
    assert torch.equal(found.pairs.x, found.test_pairs.x)
    assert (found.pairs.k, found.pairs.m) == (8, M)
    assert (found.observed.x.shape, found.observed.theta.shape[::2]) == ((1, M), (1, M))
    kind = "latent" if name == "latents" else "theta"
    assert (found.names, found.labels) == ((f"{kind}[0]", f"{kind}[1]"), ("x_o",))
    found = make(names=["mu", "tau"], labels=["the galaxy"], near=own)
    assert (found.names, found.labels, found.near) == (("mu", "tau"), ("the galaxy",), own)
    assert make(near=0.3).near.share == 0.3
    for given in ({"names": ["mu"]}, {"labels": ["a", "b"]}, {"names": ["$a$", "a"]}):
        with pytest.raises(ValueError, match=f"{next(iter(given))}: expected"):
            make(**given)


class TestPairs:
    def test_draws_are_made_and_those_given_are_kept(self):
        found = of_pairs(x_o=X[:3] + 1)
        assert found.test_pairs is found.prior_pairs is found.pairs
        assert torch.equal(found.pairs.theta, THETA)
        assert not torch.equal(found.pairs.theta_q, of_pairs(seed=1).pairs.theta_q)
        assert found.observed.theta.shape == (3, 1000, M)
        assert found.labels == ("x_o[0]", "x_o[1]", "x_o[2]")
        given = RIGHT.draws(X_O, 70)
        assert torch.equal(of_pairs(x_o=given).observed.theta[0], given.theta)
        assert of_pairs(x_o=Draws(X_O, n=30)).observed.theta.shape == (1, 30, M)

    def test_names_of_draws_and_observations(self):
        """Those of parameters take the order of those of draws."""
        dicts = {"theta": {"b": THETA[:, 1], "a": THETA[:, 0]}, "x": {"u": X[:, 0], "v": X[:, 1]}}
        dicts["x_o"] = {"v": X_O[1], "u": X_O[0]}

        def named(x, n):
            theta = draw(torch.stack([x["u"], x["v"]], 1), n)
            return {"a": theta[..., 0], "b": theta[..., 1]}

        found = of_pairs(named, **dicts)
        assert found.names == ("a", "b")
        assert torch.equal(found.pairs.theta, THETA)
        assert torch.equal(found.observed.x[0], X_O)

    def test_x_that_fail_are_left_out_and_remarked_but_for_x_o(self):
        def fails(x, n):
            return torch.where((x[:, :1] > 2)[..., None], torch.nan, draw(x, n))

        found = of_pairs(fails, drawing=Drawing(failures=0.2))
        assert len(found.pairs) == int((X[:, 0] <= 2).sum()) < N
        assert found.remarks[0].startswith("No draws of q could be made at")
        with pytest.raises(ValueError, match=r"x_o\[1\] .* Is x_o like the observations"):
            of_pairs(fails, x_o=[[0.0, 0.0], [3.0, 0.0]], drawing=Drawing(failures=0.9))


class TestFlow:
    def test_latents_are_tested_and_parameters_bounded(self):
        found = of_pairs(RIGHT)
        assert found.prior_pairs is found.pairs
        assert torch.equal(found.test_pairs.theta, RIGHT.theta_to_base(THETA, X))
        assert found.remarks == ()

    def test_draws_of_another_q_at_x_o_alone(self):
        self.check_draws_are_tested(RIGHT, Gaussian(width=0.8).draws(X_O, 2000))

    def test_draws_of_a_flow_that_is_truncated_where_it_is_sampled(self):
        class Cut(BatchedFlow):
            def sample_batched(self, x, n):
                return super().sample_batched(x, n).clamp_min(-0.2)

        self.check_draws_are_tested(Cut(), X_O)

    def check_draws_are_tested(self, q, x_o):
        found = of_pairs(q, x_o=x_o)
        assert found.test_pairs is found.pairs
        assert "q is what is sampled: it is tested with draws" in found.remarks[0]

    @pytest.mark.parametrize("edge", [False, True])
    def test_coordinates(self, edge):
        """A true parameter at the end of its range has no finite coordinate."""

        class Truncated(Posterior):
            rows = 50
            coordinates = staticmethod(lambda theta, x: (theta - x).log() if edge else theta - x)

            def sample_batched(self, x, n):
                return x[:, None] + torch.rand(len(x), n, M)

        found = of_pairs(Truncated(), X if edge else X + 0.5, X)
        assert (found.test_pairs is found.pairs) == edge
        assert ("latent coordinates" in "".join(found.remarks)) != edge
        if not edge:
            torch.testing.assert_close(found.test_pairs.theta, torch.full((N, M), 0.5))
            assert found.test_pairs.members.shape == (N, 9, M)


class TestCalibration:
    def test_it_is_taken_as_it_is(self):
        calibration = replace(RIGHT.calibration(N, k=5), remarks=("one", "two", "one"))
        found = of_calibration(calibration)
        assert found.pairs is found.test_pairs is found.prior_pairs is calibration
        assert torch.equal(found.observed.theta[0], RIGHT.draws(X_O).theta)
        assert found.remarks == ("one", "two")

    def test_latents_alone_have_base_draws_in_place_of_parameters(self):
        latents = RIGHT.latents(N)
        found = of_calibration(latents, X_O)
        assert found.test_pairs is latents
        assert torch.equal(found.pairs.theta, latents.theta)
        assert float(found.pairs.theta_q.std()) == pytest.approx(1, abs=0.1)
        assert found.observed.theta.shape == (1, 1000, M)
        assert found.prior_pairs is found.pairs

    def test_remarks_on_draws(self):
        """In other units at x_o, or correlated."""
        there = RIGHT.draws(torch.stack([X_O, -X_O]))
        strange = replace(there, theta=there.theta * torch.tensor([1.0, 1000.0])[:, None, None])
        (words,) = of_calibration(None, strange).remarks
        assert words.startswith("The draws theta_o at x_o[1] lie outside those of q at the near")
        noise = torch.randn(N, 9, M, generator=stream(0, "chain"))
        with pytest.warns(UserWarning, match="theta_q: "):
            chains = Calibration(THETA, X, X[:, None] / 2 + (noise[:, 1:] + noise[:, :-1]) / 2)
        assert "as those of a Markov chain" in of_calibration(chains).remarks[0]


@pytest.mark.parametrize(("d", "kind"), [(2, Distance), (5, DistanceForQ)])
def test_what_is_near_does_not_depend_on_true_parameters(d, kind):
    """Near in x, or for q; of latents, whose true parameters are exchanged, by draws alone."""
    q, x_o = BatchedFlow(m=d), torch.zeros(1, d)
    pairs = q.calibration(N)
    found = [of_pairs(q, theta, pairs.x, x_o) for theta in (pairs.theta, pairs.theta**3)]
    assert isinstance(found[0].test_pairs, Latents)
    assert torch.equal(*(one.near.inside(one.pairs.features, x_o) for one in found))
    found.append(of_pairs(draw, pairs.theta, pairs.x, x_o))
    assert {type(one.near.distance) for one in found} == {kind}


def uniform(pairs):
    """The p-value of uniform ranks."""
    members = pairs.members[..., 0]
    # A member may be its own companion: chance decides between them.
    chance = 1e-6 * torch.rand(members.shape, generator=stream(0, "ties"))
    ranks = (members[:, 1:] + chance[:, 1:] < members[:, :1] + chance[:, :1]).sum(1)
    levels = (ranks + torch.rand(len(ranks), generator=stream(0, "levels"))) / members.shape[1]
    return scipy.stats.kstest(levels.numpy(), "uniform").pvalue


def far(x, n):
    return x / 2 + 2 + 0.001 * torch.randn(n, 1)


OWN, LOUD = np.random.default_rng(0), {"q": exact(1.8), "simulator": fail_loudly}
SENTENCES = [
    ({}, "50 simulations have parameters from the prior, 50 have parameters drawn around"),
    ({}, "around q at x_o (50 at a time). Only the second decide."),
    ({"n": 300}, "30 repeat a draw of q there"),
    ({"q": far}, "Only the first decide: q at x_o is far from q at what it makes."),
    ({"x_o": [[1.0], [-1.5], [0.0]]}, "around q at the 3 observations"),
    ({"simulator": fail}, " of them failed (NaN or infinity)"),
    (LOUD, "of them failed (the first: ZeroDivisionError: division by zero)"),
    (LOUD, "(one at a time)"),
    ({"simulator": lambda t: t + OWN.standard_normal(1)}, "keeps a random generator of its own"),
]
# Failures make it the posterior given success, and not that of a likelihood.
EXACT = [(1, 0, simulate), (1, 0.3, simulate), (1.8, 0, fail), (1, 0, fail)]


class TestSimulator:
    @pytest.mark.parametrize(("how", "words"), SENTENCES)
    def test_how_they_were_made_is_remarked(self, how, words):
        found = of_simulator(**{"n": 100} | how)
        assert words in found.remarks[0]
        assert ("failed" in found.remarks[0]) == (how.get("simulator") in (fail, fail_loudly))
        assert (found.pairs is found.prior_pairs) == (how.get("q") is far)

    @pytest.mark.parametrize(("precision", "shift", "simulator"), EXACT)
    def test_sets_around_x_o_are_exact(self, precision, shift, simulator):
        found = of_simulator(exact(precision, shift), 2000, simulator)
        right = shift == 0 and (precision > 1) == (simulator is fail)
        assert (uniform(found.pairs) > 0.001) == right
        # Posterior sd 0.45; a window of twice that, and some of the prior.
        assert 0.5 < found.pairs.theta.std() < 1.1

    def test_pairs_around_x_o_are_tested_with_weights(self):
        """Weighted ranks of true parameters among draws that were not chosen are uniform."""
        pairs = of_simulator(n=2000).pairs
        assert float(pairs.weights.mean()) == pytest.approx(1)
        ranks = (pairs.plain_draws[..., 0] < pairs.theta).sum(1).double() / 16
        weights = pairs.weights.double() / len(pairs)
        error = 4 * 0.3 * float(weights.square().sum()) ** 0.5
        assert abs(float(weights @ ranks) - 0.5) < error < abs(float(ranks.mean()) - 0.5)

    def test_pairs_of_the_prior_alone_say_what_is_usual(self):
        pairs = of_simulator(embed=lambda x: torch.cat([x, x], 1)).prior_pairs
        assert (len(pairs), pairs.features.shape[1]) == (200, 2)
        assert pairs.weights is pairs.plain_draws is None
        assert float(pairs.theta.std()) == pytest.approx(1, abs=0.15)
        assert uniform(of_simulator(n=2000).prior_pairs) > 0.001

    @pytest.mark.parametrize(("n", "o", "each"), [(400, 1, 40), (180, 1, 0), (600, 3, 20)])
    def test_simulations_of_a_draw_at_each_observation(self, n, o, each):
        found = of_simulator(n=n, x_o=torch.linspace(-1, 1, o)[:, None])
        assert (found.predicted is not None) == (each > 0)
        assert found.near.share == pytest.approx(0.8 / o)
        if each:
            x, theta = found.predicted
            assert (x.shape, theta.shape) == ((o, each, 1), (o, 1))
            assert all(t in draws for t, draws in zip(theta, found.observed.theta, strict=True))
            assert (x.mean(1) - theta).abs().max() < 4 * 0.5 / each**0.5

    def test_each_of_many_observations_is_tested(self):
        found = of_simulator(exact(below=0.5), x_o=[[1.0], [-1.5]])
        result = assay.score(found.pairs, found.near)(found.observed)
        assert (result.adjusted <= 0.05).tolist() == [False, True]
        found = of_simulator(n=600, x_o=[[1.0], [-1.5]] * 15)
        assert found.near.share == 0.2
        assert uniform(found.pairs) > 0.001

    def test_what_is_given(self):
        """Draws; NumPy in double precision, and more draws for many parameters; other priors."""
        theta, box = torch.linspace(0, 2, 300)[:, None], Independent(Uniform(-ONE, ONE), 1)
        found = of_simulator(n=60, x_o=Draws(ONE, theta), prior=box)
        assert torch.equal(found.observed.theta[0], theta)
        assert found.pairs.theta.abs().max() <= 1
        found = of_simulator(None, 60, lambda t: t + np.random.randn(*np.shape(t)), np.ones(20))
        assert (found.pairs.k, found.pairs.x.dtype) == (24, torch.float64)

    def test_x_without_draws_are_left_out(self):
        def sluggish(x, n):
            return 1 / 0 if x[0] > 2 else exact()(x[None], n)[0]

        found = of_simulator(sluggish, 600, drawing=Drawing(failures=0.3))
        assert uniform(found.pairs) > 0.001
        assert " of 340 x: simulation" in found.remarks[1]
        assert "around x_o" in found.remarks[1]
        with pytest.raises(ValueError, match=r"at simulation .* \(ZeroDivisionError"):
            of_simulator(sluggish)

    def test_another_call_is_no_resumption(self, tmp_path):
        found = of_simulator(n=200, resume=tmp_path)
        again = of_simulator(n=200, resume=tmp_path, simulator=lambda theta: 1 / 0)
        assert torch.equal(found.pairs.members, again.pairs.members)
        for words, change in (
            ("another x_o", {"x_o": 2 * ONE}),
            ("another seed and another simulations", {"n": 300, "seed": 1}),
            ("of the same parameters; got others in .*around", {"q": exact(shift=1.0)}),
            ("a folder; got the file", {"resume": tmp_path / "call.json"}),
        ):
            with pytest.raises(ValueError, match=f"resume: expected .*{words}"):
                of_simulator(**{"n": 200, "resume": tmp_path} | change)


SOURCE = {"source": Simulations(simulate, MultivariateNormal(X_O, torch.eye(M)))}
ALONE, CAL = {"theta": None, "x": None}, {"posterior": RIGHT.calibration(N)}
REFUSED = [
    ({"x_o": None}, "x_o: expected the observation to be"),
    ({"theta": None}, "theta, x: expected calibration pairs that"),
    ({"x": None}, "theta, x: expected calibration pairs .* got None"),
    ({"x": X[:-1]}, r"x: expected shape \(200, ...\)"),
    ({"x_o": [1.0, 2.0, 3.0]}, r"x_o: expected shape \(2,\)"),
    ({"posterior": 3}, "posterior: expected an object with"),
    (CAL, r"theta: expected None with a calibration.*check\(calibration"),
    (CAL | ALONE | {"embed": torch.sin}, "theta: expected None with a calibration, which holds"),
    (CAL | ALONE, r"draws: expected Draws\(x_o, theta_o\)"),
    (SOURCE, "simulator: expected it in place of pairs; got both"),
    (SOURCE | ALONE | CAL, "simulator: expected it in place of pairs; got both"),
    (SOURCE | ALONE | {"posterior": 3}, "posterior: expected an object with"),
    (SOURCE | ALONE | {"x_o": [1.0, 2.0, 3.0]}, r"x_o of shape \(3,\)"),
    (SOURCE | ALONE | {"x_o": [1.0, np.nan]}, "x_o: expected finite"),
    ({"near": 1.5}, "near: expected a number between 0"),
    ({"draws": 0}, "draws: expected at least 1"),
    ({"drawing": 60}, r"drawing: expected a Drawing\(\)"),
]


@pytest.mark.parametrize(("given", "message"), REFUSED)
def test_what_is_refused(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        prepare(**{"posterior": draw, "theta": THETA, "x": X, "x_o": X_O} | given)


@pytest.mark.slow
@pytest.mark.parametrize("rate", [0.0, 0.15])
def test_level(rate):
    """1000 repetitions: rejections at 0.05 and 0.2 within 99.9 % binomial intervals."""
    found, how = [], (exact(1 + 2 * rate), 100, partial(fail, rate=rate), Draws(ONE, n=100))
    for seed in range(1000):
        data = of_simulator(*how, seed=seed)
        result = assay.score(data.pairs, data.near, 19, seed=seed)(data.observed)
        found.append(float(result.pvalue[0]))
    for alpha in (0.05, 0.2):
        low, high = scipy.stats.binom(1000, alpha).interval(0.999)
        assert low <= (np.array(found) <= alpha + 1e-9).sum() <= high

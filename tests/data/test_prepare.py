"""The samples of a check, from pairs, a calibration or a simulator."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.distributions import MultivariateNormal

import assay
from assay._support.random import stream
from assay.data.calibration import Calibration, Draws, Latents
from assay.data.draw import Drawing
from assay.data.posterior import Posterior
from assay.data.prepare import options_of, prepare
from assay.data.simulate import Simulations
from assay.neighbourhood import Distance, DistanceForQ, Nearest
from tests.conftest import Gaussian

N, M = 200, 2


class BatchedFlow(Gaussian):
    """A Gaussian q with its inverse, which draws at many x at once."""

    def sample_batched(self, x, n):
        b, m = x.shape
        return x[:, None] / 2 + self.shift + self.scale * torch.randn(b, n, m)

    def sample(self, x, n):
        return self.sample_batched(x[None], n)[0]


RIGHT = BatchedFlow()
THETA, X = RIGHT.calibration(N).theta, RIGHT.calibration(N).x
X_O = torch.tensor([0.5, -0.5])
ASKED = {"near": None, "draws": 8, "seed": 0}
ASKED |= dict.fromkeys(("embed", "drawing", "names", "labels"))
PRIOR = MultivariateNormal(torch.zeros(M), torch.eye(M))
SOURCE = Simulations(lambda theta: theta + torch.randn(theta.shape), PRIOR, 400)


def draw(x, n):
    """Draws of the right q at many x, which has no inverse."""
    b, m = x.shape
    return x[:, None] / 2 + 0.5**0.5 * torch.randn(b, n, m)


def of_posterior(posterior=draw, theta=THETA, x=X, x_o=X_O, **asked):
    return prepare(posterior, theta, x, x_o, options_of(**ASKED | asked))


def of_calibration(calibration=None, x_o=None, **asked):
    calibration = RIGHT.calibration(N, k=8) if calibration is None else calibration
    x_o = RIGHT.draws(X_O) if x_o is None else x_o
    return prepare(calibration, None, None, x_o, options_of(**ASKED | asked))


def of_simulator(posterior=draw, x_o=X_O, source=SOURCE, **asked):
    return prepare(posterior, None, None, x_o, options_of(**ASKED | asked), source)


SOURCES = {
    "posterior": of_posterior,
    "flow": lambda **asked: of_posterior(RIGHT, **asked),
    "calibration": of_calibration,
    "latents": lambda **asked: of_calibration(RIGHT.latents(N), X_O, **asked),
    "simulator": of_simulator,
}


@pytest.mark.parametrize("make", SOURCES.values(), ids=SOURCES)
class TestEverySource:
    def test_what_belongs_together(self, make):
        found = make()
        assert len(found.pairs) == len(found.test_pairs)
        assert torch.equal(found.pairs.x, found.test_pairs.x)
        assert (found.pairs.k, found.pairs.m) == (8, M)
        assert found.observed.x.shape == (1, M)
        assert found.observed.theta.shape[::2] == (1, M)
        assert found.near.distance is not None
        assert found.labels == ("x_o",)

    def test_names_and_labels(self, make):
        found = make(names=["mu", "tau"], labels=["the galaxy"])
        assert found.names == ("mu", "tau")
        assert found.labels == ("the galaxy",)
        kind = "latent" if make is SOURCES["latents"] else "theta"
        assert make().names == (f"{kind}[0]", f"{kind}[1]")

    def test_what_is_near(self, make):
        assert make(near=0.3).near.share == 0.3
        own = Nearest(0.1, Distance(torch.sin))
        assert make(near=own).near == own

    def test_too_few_names(self, make):
        with pytest.raises(ValueError, match="names: expected 2"):
            make(names=["mu"])
        with pytest.raises(ValueError, match="labels: expected 1"):
            make(labels=["a", "b"])


class TestPosterior:
    def test_draws_are_made_and_those_given_are_kept(self):
        found = of_posterior()
        assert found.test_pairs is found.prior_pairs is found.pairs
        assert torch.equal(found.pairs.theta, THETA)
        assert found.observed.theta.shape == (1, 1000, M)
        assert not found.around
        assert found.predicted is None
        given = RIGHT.draws(X_O, 70)
        assert torch.equal(of_posterior(x_o=given).observed.theta[0], given.theta)
        assert of_posterior(x_o=Draws(X_O, n=30)).observed.theta.shape == (1, 30, M)

    def test_the_seed_decides(self):
        first, again, other = (of_posterior(seed=seed) for seed in (0, 0, 1))
        assert torch.equal(first.pairs.theta_q, again.pairs.theta_q)
        assert not torch.equal(first.pairs.theta_q, other.pairs.theta_q)

    def test_many_observations(self):
        found = of_posterior(x_o=X[:3] + 1)
        assert found.observed.theta.shape == (3, 1000, M)
        assert found.labels == ("x_o[0]", "x_o[1]", "x_o[2]")

    def test_names_come_with_parameters_or_with_draws(self):
        theta = {"b": THETA[:, 1], "a": THETA[:, 0]}
        assert of_posterior(lambda x, n: draw(x, n).flip(-1), theta).names == ("b", "a")

        def named(x, n):
            return {"a": draw(x, n)[..., 0], "b": draw(x, n)[..., 1]}

        found = of_posterior(named, theta)
        assert found.names == ("a", "b")
        assert torch.equal(found.pairs.theta, THETA)

    def test_dicts_of_observations(self):
        found = of_posterior(
            lambda x, n: draw(torch.stack([x["u"], x["v"]], 1), n),
            x={"u": X[:, 0], "v": X[:, 1]},
            x_o={"v": X_O[1], "u": X_O[0]},
        )
        assert torch.equal(found.observed.x[0], X_O)

    def test_x_that_fail_are_left_out_and_remarked(self):
        def fails(x, n):
            return torch.where((x[:, :1] > 2)[..., None], torch.nan, draw(x, n))

        found = of_posterior(fails, drawing=Drawing(failures=0.2))
        assert len(found.pairs) == int((X[:, 0] <= 2).sum()) < N
        assert found.remarks[0].startswith("No draws of q could be made at")


class TestFlow:
    def test_latents_are_tested_and_parameters_bounded(self):
        found = of_posterior(RIGHT)
        assert isinstance(found.test_pairs, Latents)
        assert found.prior_pairs is found.pairs
        assert found.pairs.space == "parameters"
        z = RIGHT.theta_to_base(found.pairs.theta, found.pairs.x)
        assert torch.equal(found.test_pairs.theta, z)
        assert found.remarks == ()

    def test_draws_of_another_q_are_tested_themselves(self):
        """A flow that is truncated where it is sampled."""

        class Cut(BatchedFlow):
            def sample_batched(self, x, n):
                return super().sample_batched(x, n).clamp_min(-0.2)

        found = of_posterior(Cut())
        assert found.test_pairs is found.pairs
        assert "q is what is sampled: it is tested with draws" in found.remarks[0]

    def test_draws_of_another_q_at_x_o_alone(self):
        found = of_posterior(RIGHT, x_o=Gaussian(width=0.8).draws(X_O, 2000))
        assert found.test_pairs is found.pairs
        assert "does not belong to the draws" in found.remarks[0]

    @pytest.mark.parametrize("edge", [False, True])
    def test_coordinates(self, edge):
        """A true parameter at the end of its range has no finite coordinate."""

        class Truncated(Posterior):
            rows = 50
            coordinates = staticmethod(lambda theta, x: (theta - x).log() if edge else theta - x)

            def sample_batched(self, x, n):
                return x[:, None] + torch.rand(len(x), n, M)

        x = torch.randn(N, M, generator=stream(0, "x"))
        found = of_posterior(Truncated(), x if edge else x + 0.5, x)
        assert (found.test_pairs is found.pairs) == edge
        assert ("latent coordinates" in "".join(found.remarks)) != edge
        if not edge:
            torch.testing.assert_close(found.test_pairs.theta, torch.full((N, M), 0.5))
            assert found.test_pairs.members.shape == (N, 9, M)


class TestCalibration:
    def test_it_is_taken_as_it_is(self):
        calibration, draws = RIGHT.calibration(N, k=5), RIGHT.draws(X_O)
        found = of_calibration(calibration, draws)
        assert found.pairs is found.test_pairs is found.prior_pairs is calibration
        assert torch.equal(found.observed.theta[0], draws.theta)
        assert found.predicted is None
        assert not found.around

    def test_latents_alone_have_base_draws_in_place_of_parameters(self):
        latents = RIGHT.latents(N)
        found = of_calibration(latents, X_O)
        assert found.test_pairs is latents
        assert torch.equal(found.pairs.theta, latents.theta)
        assert found.pairs.theta_q.shape == (N, 8, M)
        assert float(found.pairs.theta_q.std()) == pytest.approx(1, abs=0.1)
        assert found.observed.theta.shape == (1, 1000, M)
        assert found.prior_pairs is found.pairs

    def test_remarks_are_kept_once(self):
        calibration = replace(RIGHT.calibration(N, k=8), remarks=("one", "two", "one"))
        assert of_calibration(calibration).remarks == ("one", "two")

    def test_draws_far_from_those_at_the_nearest_x(self):
        """As if they were in other units."""
        there = RIGHT.draws(torch.stack([X_O, -X_O]))
        strange = replace(there, theta=there.theta * torch.tensor([1.0, 1000.0])[:, None, None])
        (words,) = of_calibration(None, strange).remarks
        assert words.startswith("The draws theta_o at x_o[1] lie outside those of q at the near")

    def test_a_chain(self):
        """Correlated draws are warned of where they come in, and remarked."""
        noise = torch.randn(N, 9, M, generator=stream(0, "chain"))
        with pytest.warns(UserWarning, match="theta_q: "):
            chains = Calibration(THETA, X, X[:, None] / 2 + (noise[:, 1:] + noise[:, :-1]) / 2)
        assert "as those of a Markov chain" in of_calibration(chains).remarks[0]


class TestSimulator:
    def test_pairs_around_x_o_are_tested_with_weights(self):
        found = of_simulator()
        assert found.around
        assert found.test_pairs is found.pairs
        assert found.pairs.weights.shape == (len(found.pairs),)
        assert float(found.pairs.weights.mean()) == pytest.approx(1)
        assert found.pairs.plain_draws.shape == found.pairs.theta_q.shape
        assert float(found.pairs.theta.std(0).max()) < 1.2

    def test_pairs_of_the_prior_alone_say_what_is_usual(self):
        pairs = of_simulator().prior_pairs
        assert len(pairs) == 200
        assert pairs.weights is pairs.plain_draws is None
        assert float(pairs.theta.std()) == pytest.approx(1, abs=0.15)

    def test_how_they_were_made_is_remarked(self):
        (words,) = of_simulator().remarks
        assert words.startswith("200 simulations have parameters from the prior, 160 have")

    def test_simulations_of_a_draw_at_each_observation(self):
        x, theta = of_simulator().predicted
        assert (x.shape, theta.shape) == ((1, 40, M), (1, M))

    @pytest.mark.parametrize(("o", "share"), [(1, 0.8), (2, 0.4), (8, 0.2)])
    def test_a_large_share_is_near(self, o, share):
        x_o = torch.randn(o, M, generator=stream(0, "x_o"))
        assert of_simulator(x_o=x_o).near.share == pytest.approx(share)
        assert of_simulator(x_o=x_o, near=0.3).near.share == 0.3

    def test_an_embedding(self):
        found = of_simulator(embed=lambda x: x[:, :1])
        assert found.pairs.features.shape == (len(found.pairs), 1)
        assert found.prior_pairs.features.shape == (200, 1)


@pytest.mark.parametrize(("d", "kind"), [(2, Distance), (5, DistanceForQ)])
@pytest.mark.parametrize("flow", [False, True])
def test_near_in_x_or_near_for_q(d, kind, flow):
    """With many features, and for latents by the draws of q alone."""
    q = BatchedFlow(m=d)
    calibration = q.calibration(N)
    found = of_posterior(q if flow else draw, calibration.theta, calibration.x, torch.zeros(d))
    assert type(found.near.distance) is kind
    assert isinstance(found.test_pairs, Latents) == flow


@pytest.mark.parametrize("d", [2, 5])
def test_what_is_near_does_not_depend_on_true_parameters(d):
    """Of latents, whose true parameters alone are exchanged: nor does what is near for q."""
    q, x_o = BatchedFlow(m=d), torch.zeros(1, d)
    pairs = q.calibration(N)
    one, two = (of_posterior(q, theta, pairs.x, x_o) for theta in (pairs.theta, pairs.theta**3))
    assert isinstance(one.test_pairs, Latents)
    inside = [found.near.inside(found.pairs.features, x_o) for found in (one, two)]
    assert torch.equal(*inside)


REFUSED = {
    "no observation": (lambda: of_posterior(x_o=None), "x_o: expected the observation to be"),
    "no pairs": (lambda: of_posterior(theta=None), r"theta, x: expected calibration pairs that"),
    "no x": (lambda: of_posterior(x=None), r"theta, x: expected calibration pairs .* got None"),
    "pairs of other lengths": (lambda: of_posterior(x=X[:-1]), r"x: expected shape \(200, ...\)"),
    "another x_o": (lambda: of_posterior(x_o=[1.0, 2.0, 3.0]), r"x_o: expected shape \(2,\)"),
    "theta beside a calibration": (
        lambda: prepare(RIGHT.calibration(N), THETA, None, X_O, options_of(**ASKED)),
        r"theta: expected None with a calibration.*check\(calibration, x_o=Draws",
    ),
    "an embedding beside a calibration": (
        lambda: of_calibration(embed=torch.sin),
        "theta: expected None with a calibration, which holds theta, x and embed",
    ),
    "a calibration without draws at x_o": (
        lambda: of_calibration(None, X_O),
        r"draws: expected Draws\(x_o, theta_o\)",
    ),
    "pairs beside a simulator": (
        lambda: prepare(draw, THETA, X, X_O, options_of(**ASKED), SOURCE),
        "simulator: expected it in place of pairs; got both",
    ),
    "a calibration beside a simulator": (
        lambda: of_simulator(RIGHT.calibration(N)),
        "simulator: expected it in place of pairs; got both",
    ),
    "a posterior that is none": (lambda: of_posterior(3), "posterior: expected an object with"),
    "near": (lambda: options_of(**ASKED | {"near": 1.5}), "near: expected a number between 0"),
    "draws": (lambda: options_of(**ASKED | {"draws": 0}), "draws: expected at least 1"),
    "drawing": (lambda: options_of(**ASKED | {"drawing": 60}), r"drawing: expected a Drawing\(\)"),
}


@pytest.mark.parametrize(("call", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_refused(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()


def test_a_check_passes_its_options_on():
    """Which are those of its keywords."""
    found = assay.check(
        draw, THETA, X, X_O, names=["mu", "tau"], near=0.5, draws=6, nulls=19, classifier=None
    )
    assert found.names == found.bounds.names == ("mu", "tau")
    assert found.settings["k"] == found.settings["draws"] == 6
    np.testing.assert_array_equal(found.test.near, [N // 2])

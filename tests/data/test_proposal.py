import math
from dataclasses import dataclass

import numpy as np
import pytest
import scipy.stats
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, Uniform

import assay
from assay import MLP, Exchange, LocalExchange, Ridge, lc2st
from assay._support.random import stream
from assay.classifiers.features import Joint
from assay.data.proposal import Around, Model, exchangeable, log_density, prior_over_proposal, zoom
from assay.neighbourhood import Nearest
from experiments.discriminant import QDA
from experiments.tasks import ConjugateGaussian
from experiments.tasks.priors import Box

TASK = ConjugateGaussian(2, 2, noise=0.5)
X_O = torch.tensor([1.0, -1.0])


@dataclass(frozen=True)
class Wrong:
    """The exact posterior of the task, wider by a factor and shifted."""

    width: float = 1.0
    shift: float = 0.0

    def draws(self, x, k, generator):
        mean = (x.double() @ TASK.gain.mT).to(x)[:, None]
        return mean + self.shift + self.width * (TASK.draws(x, k, generator) - mean)

    def at(self, n, seed):
        return assay.Draws(X_O, self.draws(X_O[None], n, stream(seed, "x_o"))[0])

    def zoomed(self, n, k=4, seed=0):
        proposal = Around(self.at(200, seed).theta, TASK.prior)
        return zoom(TASK, self.draws, proposal, n, k, seed)


def plain(n, k, seed):
    """The same without any weights: draws of the proposal with draws of q as they are."""
    proposal = Around(Wrong().at(200, seed).theta, TASK.prior)
    theta = proposal.sample(n, stream(seed, "theta"))
    x = TASK.simulate(theta, stream(seed, "x"))
    return assay.Calibration(theta, x, TASK.draws(x, k, stream(seed, "q")))


class TestExchangeable:
    def test_equal_weights_keep_the_set(self):
        kept = exchangeable(torch.full((50, 6), 3.0), 5)
        assert (kept.sort(1).values == torch.arange(1, 6)).all()

    @pytest.mark.parametrize("k", [1, 2, 4])
    def test_every_member_is_the_true_parameter_equally_often(self, k):
        """400 000 sets: of those with the same members, each member is the truth as often."""
        n, weights = 400_000, torch.tensor([1.0, 2.0, 3.0, 0.5, 1.5, 2.0])
        truth = torch.multinomial(weights, n, replacement=True, generator=stream(k, "truth"))
        # The truth stands first, the others in their order.
        others = torch.arange(6).expand(n, -1)
        others = others[others != truth[:, None]].reshape(n, 5)
        members = torch.cat([truth[:, None], others], 1)
        kept = members.gather(1, exchangeable(weights[members].log(), k, seed=k))
        sets = torch.cat([truth[:, None], kept], 1)
        keys = (sets.sort(1).values * 8 ** torch.arange(k + 1)).sum(1)
        statistic, freedom = 0.0, 0
        for key in keys.unique():
            rows = sets[keys == key]
            names, shares = rows[0].unique(return_counts=True)
            counts = (rows[:, :1] == names).sum(0).double()
            expected = len(rows) * shares / (k + 1)
            statistic += float(((counts - expected) ** 2 / expected).sum())
            freedom += len(names) - 1
        assert scipy.stats.chi2(freedom).sf(statistic) > 1e-3
        # And it can fail: truths are no equal draws of all members.
        assert scipy.stats.chisquare(truth.bincount(minlength=6)).pvalue < 1e-9

    def test_members_are_hit_in_proportion_to_their_weights(self):
        weights = torch.tensor([1.0, 2.0, 3.0, 4.0]).expand(100_000, -1)
        truth = torch.multinomial(weights[0], 100_000, True, generator=stream(0, "t"))
        order = (torch.arange(4) + truth[:, None]) % 4
        kept = order.gather(1, exchangeable(weights.gather(1, order).log(), 1))
        hits = torch.cat([truth, kept.flatten()]).bincount() / 200_000
        torch.testing.assert_close(hits, weights[0] / 10, atol=0.005, rtol=0)

    def test_a_constant_does_not_matter_and_the_seed_does(self):
        weights = torch.randn(100, 9, generator=stream(0, "weights"))
        first, moved = exchangeable(weights, 4), exchangeable(weights + 7, 4)
        assert torch.equal(first, moved)
        assert not torch.equal(first, exchangeable(weights, 4, seed=1))

    def test_members_without_weight_are_never_kept(self):
        weights = torch.zeros(200, 9)
        weights[:, 5:] = -torch.inf
        assert exchangeable(weights, 3).max() < 5

    def test_all_weight_on_one_member(self):
        weights = torch.zeros(100, 9)
        weights[:, 0] = 30
        with pytest.raises(ValueError, match="proposal: expected weights that several members"):
            exchangeable(weights, 4)


class TestRanks:
    """The rank of the true parameter in its set is uniform if and only if q is right."""

    def ranks(self, calibration):
        members = torch.cat([calibration.theta[:, None], calibration.theta_q], 1)
        # A member may be its own companion: chance decides between them.
        chance = 1e-9 * torch.rand(members.shape[:2], generator=stream(0, "ties")).double()
        scores = members.double() @ torch.tensor([1.0, 0.5]).double() + chance
        return (scores[:, 1:] < scores[:, :1]).sum(1)

    def pvalue(self, calibration):
        counts = self.ranks(calibration).bincount(minlength=calibration.k + 1)
        return scipy.stats.chisquare(counts.numpy()).pvalue

    def test_exact(self):
        """20 000 sets, each a level check of its own."""
        assert self.pvalue(Wrong().zoomed(20_000, 8)) > 0.001

    def test_without_weights(self):
        assert self.pvalue(plain(20_000, 8, 0)) < 1e-9

    @pytest.mark.parametrize(("width", "least", "most"), [(1.5, 0, 0.7), (0.6, 1.5, 9)])
    def test_conservative_and_overconfident(self, width, least, most):
        counts = self.ranks(Wrong(width=width).zoomed(5000, 8)).bincount(minlength=9)
        assert least < counts[[0, 8]].sum() / counts[[3, 5]].sum() < most

    def test_biased(self):
        """A q that is too high leaves the truth at low ranks."""
        assert self.ranks(Wrong(shift=0.3).zoomed(5000, 8)).double().mean() < 3.5


class TestTests:
    """A zoomed calibration goes into every test of parameters."""

    FORMS = {
        "MLP": lambda c: lc2st(c, MLP((16, 16), epochs=10, batch=64), Exchange(19)),
        "Ridge": lambda c: lc2st(c, RIDGE, Exchange(99)),
        "local": lambda c: lc2st(c, RIDGE, LocalExchange(99, Nearest(0.5))),
        "QDA": lambda c: lc2st(c, QDA(), Exchange(99)),
        "score": lambda c: assay.score(c, 0.5),
    }

    @pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
    def test_what_is_wrong_is_found(self, form):
        q = Wrong(width=1.6)
        assert form(q.zoomed(800))(q.at(300, 1)).pvalue <= 0.05
        assert form(Wrong().zoomed(800))(Wrong().at(300, 1)).pvalue > 0.05

    def test_direction(self):
        for width, sign in ((1.6, -1), (0.6, 1)):
            q = Wrong(width=width)
            result = lc2st(q.zoomed(1000), QDA(), Exchange(19))(q.at(500, 1))
            z = TASK.theta_to_base(torch.tensor(result.draws), X_O.expand(500, -1))
            radius = z.norm(dim=1).numpy()
            assert sign * scipy.stats.spearmanr(radius, result.probabilities).statistic > 0.7

    def test_probabilities_are_about_one_half_if_q_is_right(self):
        """Weights do not show: they would make probabilities range from 0.2 to 0.7 here."""
        test = lc2st(Wrong().zoomed(4000), QDA(), Exchange(1))
        assert np.abs(test(Wrong().at(500, 1)).probabilities - 0.5).max() < 0.1
        test = lc2st(plain(4000, 4, 0), QDA(), Exchange(1))
        assert np.abs(test(Wrong().at(500, 1)).probabilities - 0.5).max() > 0.2

    def test_held_out_sets(self):
        assert lc2st(Wrong().zoomed(500), QDA(), Exchange(1)).quality().log_loss > 0.69
        assert lc2st(Wrong(width=1.6).zoomed(500), QDA(), Exchange(1)).quality().log_loss < 0.62

    def test_bounds(self):
        """With weights, they hold what is right, and what is wrong they do not."""
        for width in (1.0, 1.6):
            found = assay.bounds(Wrong(width=width).zoomed(2000, 8), X_O, 0.5)
            assert ((found.width_lower < width) & (width < found.width_upper)).all()
            assert ((found.bias_lower < 0) & (0 < found.bias_upper)).all()
            assert ((found.width_lower > 1).all()) == (width > 1)


RIDGE = Ridge((Joint(64),), (0.1,))
LEVELS = {
    "QDA": lambda c, i: lc2st(c, QDA(), Exchange(19), seed=i),
    "MLP": lambda c, i: lc2st(c, MLP((8,), epochs=2, batch=32), Exchange(19), seed=i),
    "local": lambda c, i: lc2st(c, RIDGE, LocalExchange(19, Nearest(0.5)), seed=i),
    "score": lambda c, i: assay.score(c, 0.5, 19, seed=i),
}


def level(form, calibration):
    """P-values of disjoint parts of 100 sets each."""
    parts = enumerate(torch.arange(len(calibration)).split(100))
    return np.array([form(calibration.subset(p), i)(Wrong().at(100, i)).pvalue for i, p in parts])


@pytest.mark.slow
@pytest.mark.parametrize("form", LEVELS.values(), ids=LEVELS)
def test_level(form):
    """2000 repetitions: rejections at 0.05 and 0.2 within 99.9 % binomial intervals."""
    found = level(form, Wrong().zoomed(200_000))
    for alpha in (0.05, 0.2):
        low, high = scipy.stats.binom(2000, alpha).interval(0.999)
        assert low <= (found <= alpha + 1e-9).sum() <= high


def test_level_of_few():
    """300 repetitions, every day: within a 99.9 % binomial interval; without weights far off."""
    low, high = scipy.stats.binom(300, 0.1).interval(0.999)
    assert low <= (level(LEVELS["QDA"], Wrong().zoomed(30_000)) <= 0.1 + 1e-9).sum() <= high
    assert (level(LEVELS["QDA"], plain(3000, 4, 0)) <= 0.1).mean() > 0.5


class TestAround:
    def test_its_density_is_that_of_its_draws(self):
        """With a prior on all of space, the mean of prior over proposal is one."""
        proposal = Around(Wrong().at(200, 0).theta, TASK.prior, times=1.5, share=0.3)
        theta = proposal.sample(50_000, stream(0, "around"))
        ratio = (TASK.prior.log_prob(theta.double()) - proposal.log_prob(theta)).exp()
        assert abs(float(ratio.mean()) - 1) < 4 * float(ratio.std()) / 50_000**0.5
        assert ratio.max() <= 1 / 0.3 + 1e-3

    def test_around_several_observations(self):
        """Its density is that of its draws, which are around both, equally often."""
        draws = torch.stack([Wrong().at(200, 0).theta, Wrong().at(200, 1).theta - 3])
        proposal = Around(draws, TASK.prior, share=0.3)
        theta = proposal.sample(50_000, stream(0, "around"))
        ratio = (TASK.prior.log_prob(theta.double()) - proposal.log_prob(theta)).exp()
        assert abs(float(ratio.mean()) - 1) < 4 * float(ratio.std()) / 50_000**0.5
        low = Around(draws, TASK.prior, share=0.0).sample(5000, stream(0, "around")).mean(1) < -1.3
        assert abs(float(low.double().mean()) - 0.5) < 0.05
        alone = Around(draws[0], TASK.prior, share=0.3)
        same = Around(draws[:1].expand(2, -1, -1), TASK.prior, share=0.3)
        torch.testing.assert_close(alone.log_prob(theta), same.log_prob(theta))

    def test_it_stays_in_the_support_of_the_prior(self):
        box = Box((0.0, 0.0), (1.0, 1.0))
        draws = 0.05 + 0.1 * torch.rand(100, 2, generator=stream(0, "draws"))
        proposal = Around(draws, box, times=5.0)
        theta = proposal.sample(1000, stream(0, "around"))
        assert theta.shape == (1000, 2)
        assert box.inside(theta).all()
        assert proposal.log_prob(torch.tensor([[-0.01, 0.1]])) == -torch.inf

    def test_prior_over_proposal(self):
        """With these weights, parameters of the proposal are as if of the prior."""
        proposal = Around(Wrong().at(200, 0).theta, TASK.prior)
        theta = proposal.sample(20_000, stream(0, "around"))
        weights = prior_over_proposal(theta, TASK.prior, proposal) / 20_000
        assert float(weights.sum()) == pytest.approx(1)
        error = 4 * float(weights.square().sum()) ** 0.5
        moments = torch.cat([weights @ theta.double(), weights @ theta.double().square()])
        assert (moments - torch.tensor([0.0, 0, 1, 1])).abs().max() < 2 * error < 0.2


class TestForeign:
    """Torch distributions, and code that reads global generators."""

    prior = Independent(Uniform(torch.zeros(2), torch.ones(2)), 1)

    def model(self):
        return Model(self.prior, lambda theta, generator: theta + 0.1 * torch.randn(theta.shape))

    def sample(self, x, k, generator):
        return x[:, None] + 0.1 * torch.randn(len(x), k, 2)

    def test_they_are_reproducible_and_move_nothing(self):
        draws = 0.5 + 0.1 * torch.randn(100, 2, generator=stream(0, "q"))
        proposal = Around(draws, self.prior)
        states = torch.get_rng_state(), np.random.get_state()[1].copy()
        first, again = (zoom(self.model(), self.sample, proposal, 50, 4, 3) for _ in range(2))
        other = zoom(self.model(), self.sample, proposal, 50, 4, 4)
        assert torch.equal(torch.get_rng_state(), states[0])
        np.testing.assert_array_equal(np.random.get_state()[1], states[1])
        assert torch.equal(first.theta_q, again.theta_q)
        assert torch.equal(first.x, again.x)
        assert not torch.equal(first.x, other.x)

    def test_outside_a_support_there_is_no_density(self):
        density = Around(torch.rand(50, 2, generator=stream(0, "d")), self.prior).prior
        theta = torch.tensor([[0.5, 0.5], [2.0, 0.5]])
        assert log_density("prior", density, theta).tolist() == [0.0, -math.inf]

    def test_the_prior_as_its_own_proposal_changes_nothing(self):
        found = zoom(TASK, TASK.draws, TASK.prior, 200, 3)
        assert len(found.theta.unique(dim=0)) == 200
        members = torch.cat([found.theta[:, None], found.theta_q], 1)
        assert all(len(rows.unique(dim=0)) == 4 for rows in members)
        torch.testing.assert_close(found.weights, torch.ones(200))
        assert found.plain_draws.shape == (200, 3, 2)


def test_a_q_that_leaks_out_of_the_prior_keeps_its_draws_there():
    box = Box((0.0,), (1.0,))
    model = Model(box, lambda theta, g: theta + 0.3 * torch.randn(len(theta), 1, generator=g))

    def leaking(x, k, generator):
        return x[:, None] + 0.3 * torch.randn(len(x), k, 1, generator=generator)

    draws = torch.rand(100, 1, generator=stream(0, "draws"))
    found = zoom(model, leaking, Around(draws, box), 500, 4)
    outside = (found.theta_q < 0) | (found.theta_q > 1)
    assert 0.05 < outside.double().mean() < 0.6
    assert box.inside(found.theta).all()


BOX = Box((0.0, 0.0), (1.0, 1.0))
WIDE = MultivariateNormal(torch.zeros(2), torch.eye(2))


class Density:
    """Draws of a proposal with a density that is not what it should be."""

    def __init__(self, value):
        self.value = value

    def sample(self, n, generator):
        return torch.rand(n, 2, generator=generator)

    def log_prob(self, theta):
        return torch.full((len(theta),), self.value)


def simulate(theta, generator):
    return theta + torch.randn(theta.shape, generator=generator)


def sample(x, k, generator):
    return torch.rand(len(x), k, 2, generator=generator)


MODEL = Model(BOX, simulate)
DRAWS = Wrong().at(50, 0).theta
BAD = {
    "outside the prior": (lambda: zoom(MODEL, sample, WIDE, 50), "support of the prior"),
    "nan density": (lambda: zoom(MODEL, sample, Density(math.nan), 50), "proposal: expected log-"),
    "infinite density": (lambda: zoom(MODEL, sample, Density(math.inf), 50), "NaN or infinity"),
    "no density": (lambda: zoom(MODEL, sample, Density(-math.inf), 50), "at its own draws"),
    "marginals": (
        lambda: zoom(Model(Normal(torch.zeros(2), 1.0), simulate), sample, BOX, 50),
        "Independent",
    ),
    "draws of q": (lambda: zoom(MODEL, lambda x, k, g: x, BOX, 50), "sample: expected shape"),
    "simulations": (
        lambda: zoom(Model(BOX, lambda t, g: t[:9]), sample, BOX, 50),
        "simulate: expected shape",
    ),
    "nan x": (
        lambda: zoom(Model(BOX, lambda t, g: t * math.nan), sample, BOX, 50),
        "simulate: expected finite",
    ),
    "a narrow proposal": (
        lambda: zoom(
            Model(WIDE, simulate),
            lambda x, k, g: 9 * torch.randn(len(x), k, 2, generator=g),
            MultivariateNormal(torch.zeros(2), 1e-4 * torch.eye(2)),
            50,
        ),
        "proposal: expected weights that several members",
    ),
    "no k": (lambda: zoom(MODEL, sample, BOX, 50, 0), "k: expected at least 1"),
    "no model": (lambda: zoom(BOX, sample, BOX, 50), "model: expected"),
    "no sampler": (lambda: zoom(MODEL, 3, BOX, 50), "sample: expected"),
    "no proposal": (lambda: zoom(MODEL, sample, 3, 50), "proposal: expected"),
    "n": (lambda: zoom(MODEL, sample, BOX, 50.0), "n: expected"),
    "one draw": (lambda: Around(DRAWS[0], TASK.prior), "theta: expected draws of q"),
    "a line": (
        lambda: Around(DRAWS[:, :1].expand(-1, 2), TASK.prior),
        "theta: expected draws that vary in all directions",
    ),
    "share": (lambda: Around(DRAWS, TASK.prior, share=1.5), "share: expected a number between"),
    "times": (lambda: Around(DRAWS, TASK.prior, times=0.0), "times: expected a finite number ab"),
    "no prior": (lambda: Around(DRAWS, "prior"), "prior: expected a torch distribution"),
    "far away": (
        lambda: Around(DRAWS + 1000, BOX, share=0.0).sample(10, stream(0, "outside")),
        "theta: expected draws of q at x_o in the support of the prior",
    ),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input(call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call()

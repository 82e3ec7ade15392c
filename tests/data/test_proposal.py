"""Proposals around x_o, and sets from them: by exactness, levels, and closed forms."""

import math
from dataclasses import dataclass

import pytest
import scipy.stats
import torch
from torch.distributions import Independent, MultivariateNormal, Normal, Uniform

import assay
from assay import Exchange, lc2st, zoom
from assay._support.random import stream
from assay.data.proposal import Around, Model, exchangeable, log_density
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

    def zoomed(self, n, k=4):
        return zoom(TASK, self.draws, Around(self.at(200, 0).theta, TASK.prior), n, k)


RIGHT = Wrong()
DRAWS = RIGHT.at(200, 0).theta


def plain(n, k):
    """The same without any weights: draws of the proposal with draws of q as they are."""
    theta = Around(DRAWS, TASK.prior).sample(n, stream(0, "theta"))
    x = TASK.simulate(theta, stream(0, "x"))
    return assay.Calibration(theta, x, TASK.draws(x, k, stream(0, "q")))


class TestExchangeable:
    @pytest.mark.parametrize("k", [1, 2, 4])
    def test_every_member_is_the_true_parameter_equally_often(self, k):
        """400 000 sets: of those with the same members, each member is the truth as often."""
        n, weights = 400_000, torch.tensor([1.0, 2.0, 3.0, 0.5, 1.5, 2.0])
        truth = torch.multinomial(weights, n, replacement=True, generator=stream(k, "truth"))
        # The truth comes first, the others in their order.
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
        # And it can fail: truths are no equal draws of all members. Hits are, by their weights.
        assert scipy.stats.chisquare(truth.bincount(minlength=6)).pvalue < 1e-9
        shares = sets.flatten().bincount() / sets.numel()
        torch.testing.assert_close(shares, weights / 10, atol=0.005, rtol=0)

    def test_weights_up_to_a_constant_and_the_seed_decide(self):
        weights = torch.randn(100, 9, generator=stream(0, "weights"))
        assert torch.equal(exchangeable(weights, 4), exchangeable(weights + 7, 4))
        assert not torch.equal(exchangeable(weights, 4), exchangeable(weights, 4, seed=1))
        weights[:, 5:] = -torch.inf
        assert exchangeable(weights, 3).max() < 5


class TestRanks:
    """The rank of the true parameter in its set is uniform if and only if q is right."""

    def ranks(self, calibration):
        """How often each rank of 0 to 8 is taken, (9,)."""
        # A member may be its own companion: chance decides between them.
        chance = 1e-9 * torch.rand(calibration.members.shape[:2], generator=stream(0, "ties"))
        scores = calibration.members.double() @ torch.tensor([1.0, 0.5]).double() + chance
        return (scores[:, 1:] < scores[:, :1]).sum(1).bincount(minlength=9).numpy()

    def test_exact(self):
        """20 000 sets, each a level check of its own; without weights they are far off."""
        assert scipy.stats.chisquare(self.ranks(RIGHT.zoomed(20_000, 8))).pvalue > 0.001
        assert scipy.stats.chisquare(self.ranks(plain(20_000, 8))).pvalue < 1e-9

    def test_direction(self):
        """Conservative, overconfident, and too high, which leaves the truth at low ranks."""
        for width, least, most in ((1.5, 0, 0.7), (0.6, 1.5, 9)):
            counts = self.ranks(Wrong(width).zoomed(5000, 8))
            assert least < counts[[0, 8]].sum() / counts[[3, 5]].sum() < most
        assert self.ranks(Wrong(shift=0.3).zoomed(5000, 8))[:4].sum() > 2500


def test_every_test_takes_them():
    """Bounds, with weights, hold what is right, and what is wrong they do not."""
    for width in (1.0, 1.6):
        pairs = Wrong(width).zoomed(2000, 8)
        found = assay.bounds(pairs, X_O, 0.5)
        assert ((found.width_lower < width) & (width < found.width_upper)).all()
        assert ((found.bias_lower < 0) & (0 < found.bias_upper)).all()
        assert (found.width_lower > 1).all() == (width > 1)
        assert (lc2st(pairs, QDA(), Exchange(1)).quality().log_loss < 0.65) == (width > 1)
        assert (assay.score(pairs)(X_O).pvalue <= 0.05) == (width > 1)


BOX = Box((0.0, 0.0), (1.0, 1.0))
UNIT = torch.rand(500, 2, generator=stream(0, "unit"))


class TestAround:
    @pytest.mark.parametrize("theta", [DRAWS, torch.stack([DRAWS, RIGHT.at(200, 1).theta - 3])])
    def test_its_density_is_that_of_its_draws(self, theta):
        """With a prior on all of space, the mean of prior over proposal is one."""
        proposal = Around(theta, TASK.prior, times=1.5, share=0.3)
        theta = proposal.sample(50_000, stream(0, "around"))
        ratio = (TASK.prior.log_prob(theta.double()) - proposal.log_prob(theta)).exp()
        assert abs(float(ratio.mean()) - 1) < 4 * float(ratio.std()) / 50_000**0.5
        assert ratio.max() <= 1 / 0.3 + 1e-3
        alone, twice = (Around(t, TASK.prior) for t in (DRAWS, DRAWS.expand(2, -1, -1)))
        torch.testing.assert_close(alone.log_prob(theta), twice.log_prob(theta))

    def test_it_stays_in_the_support_of_the_prior(self):
        proposal = Around(0.05 + 0.1 * UNIT[:100], BOX, times=5.0)
        theta = proposal.sample(1000, stream(0, "around"))
        assert theta.shape == (1000, 2)
        assert BOX.inside(theta).all()
        assert proposal.log_prob(torch.tensor([[-0.01, 0.1]])) == -torch.inf

    def test_prior_over_proposal(self):
        """With these weights, parameters of the proposal are as if of the prior."""
        pairs = RIGHT.zoomed(20_000, 1)
        weights, theta = pairs.weights.double() / 20_000, pairs.theta.double()
        assert float(weights.sum()) == pytest.approx(1)
        error = 4 * float(weights.square().sum()) ** 0.5
        moments = torch.cat([weights @ theta, weights @ theta.square()])
        assert (moments - torch.tensor([0.0, 0, 1, 1])).abs().max() < 2 * error < 0.2


def noisy(theta, generator):
    return theta + 0.1 * torch.randn(theta.shape)


def near(x, k, generator):
    return x[:, None] + 0.3 * torch.randn(len(x), k, 2)


class TestZoom:
    def test_torch_distributions_and_global_generators(self):
        """They are reproducible and move nothing; there is no density outside a support."""
        prior, state = Independent(Uniform(torch.zeros(2), 1.0), 1), torch.get_rng_state()
        proposal = Around(UNIT[:100], prior)
        made = [zoom(Model(prior, noisy), near, proposal, 50, 4, seed) for seed in (3, 3, 4)]
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.equal(made[0].members, made[1].members)
        assert not torch.equal(made[0].x, made[2].x)
        theta = torch.tensor([[0.5, 0.5], [2.0, 0.5]])
        assert log_density("prior", proposal.prior, theta).tolist() == [0.0, -math.inf]

    def test_the_prior_as_its_own_proposal_changes_nothing(self):
        found = zoom(TASK, TASK.draws, TASK.prior, 200, 3)
        assert all(len(rows.unique(dim=0)) == 4 for rows in found.members)
        torch.testing.assert_close(found.weights, torch.ones(200))
        assert found.plain_draws.shape == (200, 3, 2)

    def test_a_q_that_leaks_out_of_the_prior_keeps_its_draws_there(self):
        found = zoom(Model(BOX, noisy), near, Around(UNIT, BOX), 500, 4)
        outside = ((found.theta_q < 0) | (found.theta_q > 1)).any(2)
        assert 0.05 < outside.double().mean() < 0.7
        assert BOX.inside(found.theta).all()


class Density:
    """Draws with a density that is not what it should be."""

    def __init__(self, value):
        self.sample = lambda n, generator: UNIT[:n]
        self.log_prob = lambda theta: torch.full((len(theta),), value)


WIDE, NARROW = (MultivariateNormal(torch.zeros(2), s * torch.eye(2)) for s in (1.0, 1e-4))
ZOOMED = {"model": Model(BOX, noisy), "sample": near, "proposal": BOX, "n": 50, "k": 8}
MARGINALS = Normal(torch.zeros(2), 1.0)
BAD = [
    ({"proposal": WIDE}, "proposal: expected draws in the support of the prior; got .* Reject"),
    ({"proposal": Density(math.nan)}, "proposal: expected log-densities that are finite"),
    ({"proposal": Density(math.inf)}, "proposal: .*; got NaN or infinity"),
    ({"proposal": Density(-math.inf)}, "proposal: expected a finite log_prob at its own draws"),
    ({"proposal": Normal(0.0, 1.0)}, r"proposal: expected draws with shape \(50, m\)"),
    ({"model": Model(MARGINALS, noisy)}, "prior: expected log-densities .* Independent"),
    ({"sample": lambda x, k, g: x}, "sample: expected shape"),
    ({"model": Model(BOX, lambda t, g: t[:9])}, "simulate: expected shape"),
    ({"model": Model(BOX, lambda t, g: t * math.nan)}, "simulate: expected finite"),
    ({"model": Model(WIDE, noisy), "proposal": NARROW}, "proposal: expected weights that several"),
    ({"k": 0}, "k: expected at least 1"),
    ({"n": 50.0}, "n: expected"),
    ({"sample": 3}, "sample: expected"),
    ({"proposal": 3}, "proposal: expected"),
    ({"model": BOX}, "model: expected"),
]
BAD_AROUND = [
    ({"theta": DRAWS[0]}, "theta: expected draws of q"),
    ({"theta": DRAWS[:, :1].expand(-1, 2)}, "theta: expected draws that vary in all directions"),
    ({"share": 1.5}, "share: expected a number between"),
    ({"times": 0.0}, "times: expected a finite number ab"),
    ({"prior": "prior"}, "prior: expected a torch distribution"),
    ({"theta": DRAWS + 1000, "prior": BOX, "share": 0.0}, "theta: expected .* in the support of"),
]


@pytest.mark.parametrize(("given", "message"), BAD)
def test_bad_input(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        zoom(**ZOOMED | given)


@pytest.mark.parametrize(("given", "message"), BAD_AROUND)
def test_bad_proposals(given, message):
    with pytest.raises((TypeError, ValueError), match=message):
        Around(**{"theta": DRAWS, "prior": TASK.prior} | given).sample(10, stream(0, "outside"))

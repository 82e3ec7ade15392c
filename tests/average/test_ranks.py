import numpy as np
import pytest
import scipy.stats
import torch

from assay import Calibration
from assay._support.random import stream
from assay.average.ranks import (
    RowStream,
    Values,
    count_below,
    evaluate,
    levels_of,
    log_densities,
    rank,
)
from experiments.tasks import task


def first(theta, x):
    return theta[:, 0]


def log_density(posterior):
    return lambda theta, x: -posterior.theta_to_base(theta, x).square().sum(1) / 2


def ranks_of(calibration, quantities=None, seed=0):
    return rank(calibration, evaluate(calibration, quantities), seed)


def densities(calibration, log_q):
    """The log-densities as they are, of true parameters and of draws, without any check."""
    return evaluate(calibration, {"log_q": log_q})["log_q"]


class TestRanks:
    def test_against_a_loop(self, gaussian):
        calibration = gaussian().calibration(40, k=7)
        values = evaluate(calibration)
        assert tuple(values) == ("theta[0]", "theta[1]")
        ranks = rank(calibration, values, 0)
        for i in range(40):
            for j in range(2):
                draws = calibration.theta_q[i, :, j].tolist()
                truth = float(calibration.theta[i, j])
                assert ranks[i, j] == sum(draw < truth for draw in draws)

    def test_parameters_are_ranked_alike_as_values_and_as_functions(self, gaussian):
        calibration = gaussian().calibration(60, k=5)
        second = Values(calibration.theta[:, 1], calibration.theta_q[..., 1])
        ranks = ranks_of(calibration, {"a": first, "b": second})
        np.testing.assert_array_equal(ranks, ranks_of(calibration))

    def test_a_function_sees_matching_rows(self, gaussian):
        calibration = gaussian().calibration(30, k=6)
        ranks = ranks_of(calibration, {"f": lambda theta, x: (theta * x).sum(1)})
        both = (calibration.theta_q * calibration.x[:, None]).sum(2)
        truth = (calibration.theta * calibration.x).sum(1, keepdim=True)
        np.testing.assert_array_equal(ranks[:, 0], (both < truth).sum(1))

    def test_pieces_do_not_matter(self, gaussian, monkeypatch):
        calibration = gaussian().calibration(50, k=6)
        whole = ranks_of(calibration, {"f": first})
        monkeypatch.setattr("assay.average.ranks.PIECE", 20)
        monkeypatch.setattr("assay.average.ranks.ROWS", 20)
        np.testing.assert_array_equal(ranks_of(calibration, {"f": first}), whole)

    def test_infinite_values_have_ranks(self):
        truth = torch.tensor([torch.inf, -torch.inf, 1.0])
        draws = torch.tensor([[torch.inf, 0, 1], [0, 1, 2], [-torch.inf, 2, torch.inf]])
        np.testing.assert_array_equal(count_below(truth, draws), [[2, 0, 1], [1, 0, 0]])

    def test_levels_are_uniform(self, gaussian):
        ranks = ranks_of(gaussian().calibration(1000, k=3))
        levels = levels_of(ranks, 3, 0)
        assert (np.floor(levels * 4) == ranks).all()
        assert min(scipy.stats.kstest(column, "uniform").pvalue for column in levels.T) > 1e-3

    def test_units_do_not_matter(self, gaussian):
        given = gaussian().calibration(80, k=9)
        moved = Calibration(5 * given.theta + 3, 5 * given.x + 3, 5 * given.theta_q + 3)
        np.testing.assert_array_equal(ranks_of(given), ranks_of(moved))


class TestTies:
    def calibration(self, n=3000, k=6, values=3):
        generator = stream(0, "ties")
        members = torch.randint(values, (n, k + 1, 1), generator=generator).float()
        x = torch.randn(n, 2, generator=generator)
        return Calibration(members[:, 0], x, members[:, 1:])

    def test_ranks_are_uniform(self):
        """Three values among seven members: chi-square over all ranks at 0.001."""
        counts = np.bincount(ranks_of(self.calibration())[:, 0], minlength=7)
        assert scipy.stats.chisquare(counts).pvalue > 1e-3

    def test_they_stay_within_the_tie(self):
        calibration = self.calibration()
        ranks = ranks_of(calibration)[:, 0]
        draws, truth = calibration.theta_q[..., 0], calibration.theta
        assert (ranks >= (draws < truth).sum(1).numpy()).all()
        assert (ranks <= (draws <= truth).sum(1).numpy()).all()

    def test_the_order_of_rows_does_not_matter(self):
        calibration = self.calibration(200)
        order = np.random.default_rng(0).permutation(200)
        before, after = (ranks_of(c, seed=3) for c in (calibration, calibration.subset(order)))
        np.testing.assert_array_equal(before[order], after)

    def test_the_order_of_rows_where_constant_features_come_first(self):
        theta, x = torch.randn(2, 100, 2, generator=stream(0, "constant"))
        features = torch.cat([torch.zeros(100, 5), x], 1)
        draws = torch.randn(100, 9, 2, generator=stream(1, "constant")).round()
        calibration = Calibration(theta.round(), features, draws)
        order = torch.randperm(100, generator=stream(2, "constant"))
        one, two = (ranks_of(c) for c in (calibration, calibration.subset(order)))
        np.testing.assert_array_equal(one[order], two)

    def test_the_seed_breaks_them(self):
        first, again, other = (ranks_of(self.calibration(), seed=s) for s in (0, 0, 1))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)

    def test_a_quantity_that_is_constant_everywhere(self, gaussian):
        calibration = gaussian().calibration(20, k=4)
        with pytest.raises(ValueError, match="f: expected a quantity that varies .* a constant"):
            ranks_of(calibration, {"f": lambda theta, x: theta[:, 0] * 0})


class TestChance:
    def test_it_follows_x_not_rows(self, gaussian):
        calibration = gaussian().calibration(100)
        order = np.random.default_rng(0).permutation(100)
        before, after = RowStream.of(calibration, 0), RowStream.of(calibration.subset(order), 0)
        assert before.seed == after.seed
        assert torch.equal(before.uniform("a")[order], after.uniform("a"))

    @pytest.mark.parametrize("m", [1, 2])
    def test_another_x_is_another_seed(self, gaussian, m):
        seeds = {RowStream.of(gaussian(m=m).calibration(50, seed=s), 0).seed for s in range(5)}
        assert len(seeds) == 5

    def test_where_x_is_constant_members_choose_the_seed(self, gaussian):
        given = [gaussian().calibration(50, k=4, seed=s) for s in range(5)]
        constant = [Calibration(c.theta, torch.ones(50, 2), c.theta_q) for c in given]
        assert len({RowStream.of(c, 0).seed for c in constant}) == 5


BAD = {
    "latents": (lambda g: ranks_of(g().latents(20)), "calibration: .* got latents"),
    "a single draw": (lambda g: ranks_of(g().calibration(20)), "theta_q: .* got 1"),
    "not a mapping": (lambda g: ranks_of(g().calibration(20, 3), [first]), "quantities: "),
    "nothing": (lambda g: ranks_of(g().calibration(20, 3), {}), "quantities: "),
    "not a function": (
        lambda g: ranks_of(g().calibration(20, 3), {"f": 3}),
        "f: expected a function of theta and x",
    ),
    "another shape": (
        lambda g: ranks_of(g().calibration(20, 3), {"f": lambda theta, x: theta}),
        r"f: expected a function that maps .* got \(80, 2\)",
    ),
    "values of another size": (
        lambda g: ranks_of(
            g().calibration(20, 3), {"f": Values(torch.rand(20), torch.rand(20, 4))}
        ),
        r"f: expected values at \(20, 3\) draws",
    ),
    "not a number": (
        lambda g: ranks_of(g().calibration(20, 3), {"f": lambda t, x: t[:, 0] * torch.nan}),
        "f: expected finite numbers; got NaN",
    ),
    "values without rows": (lambda g: Values(torch.rand(3), torch.rand(3)), "values: expected"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input(gaussian, call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(gaussian)


def of_task(name, n, k):
    """A right posterior of a task, and its log-density."""
    of, generator = task(name), stream(0, "densities", name)
    theta, x = of.joint(n, generator)
    calibration = Calibration(theta, x, of.draws(x, k, generator))
    return calibration, lambda theta, x: of.log_posterior(theta.double(), x.double())


def of_gaussian(posterior, n, k):
    return posterior.calibration(n, k), log_density(posterior)


@pytest.fixture(params=["two_moons", "gaussian_mixture", "gaussian_linear_uniform", 1, 2, 10])
def right(request, gaussian):
    """Calibrations with their right densities, of tasks and of Gaussians."""
    if isinstance(request.param, str):
        return of_task(request.param, 200, 100)
    return of_gaussian(gaussian(m=request.param), 200, 100)


class TestDensities:
    def test_right_ones_pass(self, right):
        log_densities(*right)

    @pytest.mark.parametrize("k", [12, 20, 40])
    @pytest.mark.parametrize("name", ["two_moons", "gaussian_mixture", "gaussian_linear_uniform"])
    def test_right_ones_pass_with_few_draws(self, name, k):
        log_densities(*of_task(name, 200, k))

    @pytest.mark.slow
    def test_slcp(self):
        """Four modes and a crest, with few sets."""
        calibration, log_q = of_task("slcp", 25, 100)
        true, draws = log_densities(calibration, log_q)
        with pytest.raises(ValueError, match="log_q: expected the density of the q that made"):
            log_densities(calibration, Values(true, -draws))

    @pytest.mark.parametrize("roll", [0, 1])
    def test_shuffled_rows_or_draws(self, right, roll):
        true, draws = densities(*right)
        with pytest.raises(ValueError, match="log_q: .* rows in another order"):
            log_densities(right[0], Values(true, draws.roll(1, roll)))

    def test_densities_at_another_x_or_of_the_opposite_sign(self, right):
        calibration, log_q = right
        moved = Calibration(calibration.theta, calibration.x.roll(1, 0), calibration.theta_q)
        for given, density in ((moved, log_q), (calibration, lambda t, x: -log_q(t, x))):
            with pytest.raises(ValueError, match="log_q: expected the density of the q that made"):
                log_densities(given, density)

    def test_thin_posteriors_are_not_refused(self):
        """On a ring of width 0.001 neighbours see one dimension only, and nothing is refused."""
        generator = stream(0, "ring")
        angle = 3 * torch.rand(200, 51, generator=generator)
        noise = torch.randn(200, 51, generator=generator)
        radius = 1 + 1e-3 * noise
        members = torch.stack([radius * angle.cos(), radius * angle.sin()], 2)
        calibration = Calibration(members[:, 0], torch.randn(200, 1), members[:, 1:])
        log_q = -noise.square() / 2
        log_densities(calibration, Values(log_q[:, 0], log_q[:, 1:]))

    def test_strong_correlations(self, gaussian):
        calibration = gaussian().calibration(200, 50)
        mix = torch.tensor([[1.0, 1.0], [0.0, 1e-3]])
        thin = Calibration(calibration.theta @ mix, calibration.x, calibration.theta_q @ mix)
        true, draws = densities(calibration, log_density(gaussian()))
        log_densities(thin, Values(true, draws))
        with pytest.raises(ValueError, match="log_q: .* rows in another order"):
            log_densities(thin, Values(true, draws.roll(1, 0)))

    def test_what_is_not_refused(self, gaussian):
        """A constant for each x, a flat density, and draws that are there several times."""
        posterior, log_q = gaussian(), log_density(gaussian())
        calibration = posterior.calibration(200, 50)
        log_densities(calibration, lambda theta, x: log_q(theta, x) + 100 * x[:, 0])
        members = torch.rand(200, 51, 2, generator=stream(0, "flat"))
        flat = Calibration(members[:, 0], members[:, 0], members[:, 1:])
        log_densities(flat, lambda theta, x: theta[:, 0] * 0)
        repeated = calibration.theta_q[:, :10].repeat(1, 4, 1)
        log_densities(Calibration(calibration.theta, calibration.x, repeated), log_q)

    def test_zero_and_infinity(self, gaussian):
        calibration, log_q = gaussian().calibration(50, 8), log_density(gaussian())

        def truncated(theta, x):
            return torch.where(theta[:, 0] > 1, -torch.inf, log_q(theta, x))

        with pytest.raises(ValueError, match="positive at every draw; got zero at .* Truncate"):
            log_densities(calibration, truncated)
        with pytest.raises(ValueError, match="log_q: expected numbers below infinity"):
            log_densities(calibration, lambda theta, x: theta[:, 0] + torch.inf)
        # Zero at a true parameter is allowed.
        true, draws = densities(calibration, log_q)
        true = torch.where(torch.arange(50) == 3, -torch.inf, true)
        assert log_densities(calibration, Values(true, draws))[0][3] == -torch.inf

import numpy as np
import pytest
import scipy.stats
import torch

from assay import Calibration, Draws
from assay.levels import Levels, Uniform
from assay.randomness import stream
from assay.ranks import Values

N = 3000


def log_q(posterior):
    def density(theta, x):
        centred = (theta - x / 2 - posterior.shift) / posterior.scale
        return -0.5 * centred.square().sum(1)

    return density


def uniform(u):
    return scipy.stats.kstest(np.asarray(u).ravel(), "uniform").pvalue


class TestHPD:
    def test_levels_are_uniform_for_few_draws(self, gaussian):
        levels = Levels.hpd(gaussian().calibration(N, k=3), log_q(gaussian()))
        assert uniform(levels.u) > 0.01
        assert levels.names == ("HPD level",)

    def test_small_levels_are_in_the_middle(self, gaussian):
        calibration = gaussian().calibration(500, k=200)
        levels = Levels.hpd(calibration, log_q(gaussian()))
        radius = (calibration.sorted().theta - levels.x / 2).norm(dim=1)
        exact = scipy.stats.chi2(2).cdf(2 * radius.square())
        assert np.abs(levels.u[:, 0].numpy() - exact).max() < 0.15
        assert scipy.stats.spearmanr(radius, levels.u[:, 0]).statistic > 0.99

    def test_a_wide_q_has_small_levels(self, gaussian):
        wide = gaussian(width=1.5)
        assert Levels.hpd(wide.calibration(N, k=20), log_q(wide)).u.mean() < 0.4

    def test_values_are_as_good_as_a_function(self, gaussian):
        calibration = gaussian().calibration(100, k=5)
        density = log_q(gaussian())
        x = calibration.x.repeat_interleave(5, 0)
        draws = density(calibration.theta_q.flatten(0, 1), x).reshape(100, 5)
        values = Values(density(calibration.theta, calibration.x), draws)
        again = Levels.hpd(calibration, values)
        assert torch.equal(again.u, Levels.hpd(calibration, density).u)

    def test_a_truth_where_q_has_no_density(self, gaussian):
        calibration = gaussian().calibration(100, k=5)
        density = log_q(gaussian())
        truth = density(calibration.theta, calibration.x).numpy().copy()
        truth[3] = -np.inf
        x = calibration.x.repeat_interleave(5, 0)
        draws = density(calibration.theta_q.flatten(0, 1), x).reshape(100, 5)
        levels = Levels.hpd(calibration, Values(truth, draws))
        row = (levels.x == calibration.x[3]).all(1)
        assert levels.u[row] >= 5 / 6

    def test_the_density_of_another_q(self, gaussian):
        calibration, density = gaussian().calibration(300, k=20), log_q(gaussian())
        with pytest.raises(ValueError, match="log_q: expected the density of the q that made"):
            Levels.hpd(calibration, lambda theta, x: -density(theta, x))


class TestPIT:
    def test_latents(self, gaussian):
        latents = gaussian().latents(200)
        levels = Levels.pit(latents)
        expected = scipy.stats.norm.cdf(latents.sorted().theta.double())
        np.testing.assert_allclose(levels.u, expected, atol=1e-6)
        assert levels.names == ("z[0]", "z[1]")
        assert levels.u_q is None

    def test_draws_of_a_correlated_q_are_conditional(self):
        """Theta_1 given theta_0: uniform, and independent of the first column."""
        generator = stream(0, "correlated")
        mix = torch.tensor([[1.0, 0.0], [0.9, 0.3]])
        members = torch.randn(N, 33, 2, generator=generator) @ mix.mT
        x = torch.randn(N, 1, generator=generator)
        levels = Levels.pit(Calibration(members[:, 0], x, members[:, 1:]))
        assert uniform(levels.u[:, 0]) > 0.01
        assert uniform(levels.u[:, 1]) > 0.01
        assert abs(np.corrcoef(levels.u.T)[0, 1]) < 4 / np.sqrt(N)
        assert levels.names == ("theta[0]", "theta[1] | theta[0]")

    def test_ranks_within_a_set_are_all_there(self, gaussian):
        levels = Levels.pit(gaussian().calibration(50, k=9))
        members = torch.cat([levels.u[:, None], levels.u_q], 1)
        ranks = (members * 10).floor().sort(1).values
        assert torch.equal(ranks, torch.arange(10.0)[:, None].expand_as(ranks))

    def test_ties_are_broken_by_chance(self):
        """Counts of a discrete q: the truth is no more often first among its equals."""
        generator = stream(1, "ties")
        members = torch.randint(3, (N, 9, 1), generator=generator).float()
        x = torch.randn(N, 1, generator=generator)
        assert uniform(Levels.pit(Calibration(members[:, 0], x, members[:, 1:])).u) > 0.01

    def test_another_base(self):
        z, x = torch.rand(2, 50, 2, generator=stream(0, "base"))
        with pytest.raises(ValueError, match=r"calibration: expected latents with base N\(0, I\)"):
            Levels.pit(Calibration.from_base(z, x, Uniform(2)))

    def test_too_few_draws(self, gaussian):
        with pytest.raises(ValueError, match="theta_q: expected at least 4 draws"):
            Levels.pit(gaussian().calibration(50, k=2))


def test_the_order_of_rows_does_not_matter(gaussian):
    calibration = gaussian().calibration(200, k=9)
    shuffled = calibration.subset(torch.randperm(200, generator=stream(0, "shuffle")))
    for make in (lambda c: Levels.hpd(c, log_q(gaussian())), Levels.pit):
        first, again = make(calibration), make(shuffled)
        assert torch.equal(first.u, again.u)
        assert torch.equal(first.x, again.x)
    u, x = calibration.theta.sigmoid(), calibration.x
    order = torch.randperm(200, generator=stream(0, "shuffle"))
    rows = torch.arange(200)
    first, again = Levels(u, x).copies(3, 0), Levels(u[order], x[order]).copies(3, 0)
    for h in range(4):
        assert torch.equal(first(h, rows), again(h, rows))


def test_units_of_parameters_do_not_matter(gaussian):
    calibration = gaussian().calibration(200, k=9)
    scale, shift = torch.tensor([100.0, 0.01]), torch.tensor([3.0, -5.0])
    moved = Calibration(
        calibration.theta * scale + shift, calibration.x, calibration.theta_q * scale + shift
    )
    changed = (Levels.pit(calibration).u - Levels.pit(moved).u).abs() > 0.05
    assert changed.double().mean() < 0.01


class TestCopies:
    def test_the_data_is_the_first(self, gaussian):
        levels = Levels.pit(gaussian().calibration(100, k=9))
        assert torch.equal(levels.copies(3, 0)(0, torch.arange(100)), levels.u)

    def test_known_law(self):
        u, x = torch.zeros(N), torch.randn(N, 1, generator=stream(0, "x"))
        copies = Levels(u, x).copies(2, 0)
        first, second = (copies(h, torch.arange(N)) for h in (1, 2))
        assert uniform(first) > 0.01
        assert not torch.equal(first, second)
        assert torch.equal(copies(1, torch.tensor([5, 7])), first[[5, 7]])

    def test_exchange_takes_members_of_the_same_set_in_all_columns(self, gaussian):
        levels = Levels.pit(gaussian().calibration(200, k=9))
        copy = levels.copies(1, 0)(1, torch.arange(200))
        members = torch.cat([levels.u[:, None], levels.u_q], 1)
        same = (members == copy[:, None]).all(2)
        assert (same.sum(1) == 1).all()
        chosen = np.bincount(same.long().argmax(1), minlength=10)
        assert scipy.stats.chisquare(chosen).pvalue > 1e-3

    def test_other_observations_meet_other_nulls(self):
        x = torch.randn(2, 100, 2, generator=stream(0, "x"))
        a, b = (Levels(torch.zeros(100), part).copies(1, 0)(1, torch.arange(100)) for part in x)
        assert not torch.equal(a, b)


def test_ranks_that_were_saved():
    x = torch.randn(N, 1, generator=stream(0, "x"))
    ranks = torch.randint(4, (N,), generator=stream(0, "ranks"))
    levels = Levels.from_ranks(ranks, 3, x)
    assert uniform(levels.u) > 0.01
    order = levels.calibration.order
    np.testing.assert_array_equal(order, np.arange(N))
    assert torch.equal((levels.u[:, 0] * 4).floor().sort().values.long(), ranks.sort().values)
    with pytest.raises(ValueError, match="ranks: expected whole numbers from 0 to 3"):
        Levels.from_ranks(ranks + 1, 3, x)


def test_an_embedding_comes_along(gaussian):
    calibration = gaussian().calibration(100, k=9)
    images = Calibration(
        calibration.theta,
        calibration.x[..., None].expand(-1, -1, 4),
        calibration.theta_q,
        lambda x: x.mean(2),
    )
    levels = Levels.pit(images)
    assert levels.calibration.features.shape == (100, 2)
    assert levels.calibration.place(Draws(images.x[0])).features.shape == (1, 2)


X = torch.randn(50, 2, generator=stream(0, "x"))
BAD = {
    "above one": (lambda: Levels(torch.full((50,), 1.1), X), "u: expected levels between 0 and 1"),
    "below zero": (lambda: Levels(-torch.ones(50, 2), X), "u: expected .*got 100 of 100 outside"),
    "nan": (lambda: Levels(torch.full((50,), torch.nan), X), "or NaN"),
    "rows": (lambda: Levels(torch.ones(49), X), "u: expected levels"),
    "too many axes": (lambda: Levels(torch.ones(50, 1, 1), X), "u: expected levels"),
    "x flat": (lambda: Levels(torch.ones(50), X[:, 0]), "x .n, "),
    "few": (lambda: Levels(torch.ones(5), X[:5]), "at least 10"),
    "names": (lambda: Levels(torch.ones(50), X, None, ("a", "b")), "names: expected 1"),
    "draws": (lambda: Levels(torch.ones(50), X, u_q=2 * torch.ones(50, 3, 1)), "u_q: expected"),
}


@pytest.mark.parametrize(("make", "message"), BAD.values(), ids=BAD)
def test_bad_levels(make, message):
    with pytest.raises(ValueError, match=message):
        make()

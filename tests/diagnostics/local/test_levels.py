import numpy as np
import pytest
import scipy.stats
import torch

from assay import Calibration, Draws, LocalExchange
from assay._core import stream
from assay.diagnostics.average.ranks import Values
from assay.diagnostics.local.levels import (
    Around,
    Band,
    CurvesAt,
    Levels,
    Uniform,
    level_test,
    null_band,
    weighted_curves,
)
from assay.samples.neighbourhoods import Nearest, Smooth

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
    assert levels.calibration.observation(Draws(images.x[0])).features.shape == (1, 2)


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


ALPHAS = np.array([0.1, 0.5, 0.9])
GRID = torch.randn(200, 2, generator=stream(0, "x"))
U = torch.rand(200, 2, generator=stream(0, "u"))


def curves(where, copies, x_o):
    """Curves (c, o, H + 1, j, g) of all copies."""
    return weighted_curves(Around.of(where, copies, x_o), copies, ALPHAS)


@pytest.mark.parametrize("where", [Nearest(), Smooth()])
def test_against_a_loop(where):
    """Every curve of every copy, counted one by one."""
    copies = Levels(U, GRID).copies(4, 0)
    x_o = torch.tensor([[0.0, 0.0], [1.0, -1.0]])
    found = curves(where, copies, x_o)
    weights = where.weights(copies.levels.x, x_o).double().numpy()
    o, c, n = weights.shape
    assert found.shape == (c, o, 5, 2, 3)
    for h in range(5):
        u = copies(h, torch.arange(n)).numpy()
        for i in range(o):
            for s in range(c):
                for j in range(2):
                    for g, alpha in enumerate(ALPHAS):
                        w = weights[i, s]
                        expected = w[u[:, j] <= np.float32(alpha)].sum() / w.sum()
                        assert found[s, i, h, j, g] == pytest.approx(expected, abs=1e-6)


def test_the_nearest_alone_is_an_empirical_distribution():
    copies = Levels(U, GRID).copies(1, 0)
    found = curves(Nearest((1.0,)), copies, GRID[:1])[0, 0, 0]
    expected = (U[..., None] <= torch.tensor(ALPHAS).float()).double().mean(0)
    np.testing.assert_allclose(found, expected)


def test_a_level_at_alpha_is_below_it():
    u = torch.full((50,), 0.1)
    copies = Levels(u, GRID[:50]).copies(1, 0)
    found = curves(Nearest((1.0,)), copies, GRID[:1])[0, 0, 0, 0]
    np.testing.assert_allclose(found, 1)


def test_threads_change_nothing():
    copies = Levels(U, GRID).copies(20, 0)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(curves(Nearest(), copies, GRID[:2]))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*found)


def test_rows_without_weight_are_left_out():
    copies = Levels(U, GRID).copies(1, 0)
    around = Around.of(Nearest((0.1, 0.2)), copies, GRID[:1])
    assert around.shape == (1, 2)
    assert len(around.rows) == 40
    torch.testing.assert_close(around.weights.sum(0), torch.ones(2).double())
    np.testing.assert_allclose(around.pairs, [[20, 40]])
    assert len(Around.of(Smooth(), copies, GRID[:1]).rows) == 200


def test_columns_and_sizes_are_combined_and_one_of_each_stays_what_it_is():
    statistics = np.random.default_rng(0).uniform(size=(2, 3, 4, 10))
    curves = CurvesAt(np.zeros((4, 10, 3, 5)), statistics)
    assert curves.columns.shape == (3, 4, 10)
    assert curves.total.shape == (4, 10)
    assert curves.fields["null_statistics"].shape == (4, 3, 9)
    single = CurvesAt(np.zeros((4, 10, 1, 5)), statistics[:1, :1])
    np.testing.assert_array_equal(single.total, statistics[0, 0])
    # Larger in every size and column is larger together.
    statistics[..., 7] = 5
    assert (curves.total.argmax(1) == 7).all()


def test_a_null_band_holds_what_it_says():
    """Data that are like their 39 null copies lie beyond it in 5 %; 20 000 repetitions."""
    values = np.random.default_rng(0).standard_normal((20_000, 40))
    beyond = Band(values[:, 0], *null_band(values[:, 1:], 1)).sign
    low, high = scipy.stats.binom(20_000, 0.025).interval(0.999)
    assert all(low <= (beyond == side).sum() <= high for side in (-1, 1))


def test_a_band_says_on_which_side_a_number_lies():
    band = Band(np.array([[1.0, 0.0, -1.0]]), *np.array([[[-0.5] * 3], [[0.5] * 3]]))
    assert band.sign.tolist() == [[1, 0, -1]]
    assert band[0].sign.tolist() == [1, 0, -1]


class TestArguments:
    LEVELS = Levels(U, GRID)

    def test_defaults(self):
        fields = level_test(self.LEVELS, None, None, (0.5, 0.1, 0.5), 3)
        assert (fields["copies"].n, fields["copies"].seed) == (999, 3)
        assert fields["where"] == Nearest()
        assert fields["alphas"].tolist() == [0.1, 0.5]

    def test_a_local_null_says_what_is_near(self):
        null = LocalExchange(19, 0.3)
        for where in (None, Nearest((0.3,))):
            fields = level_test(self.LEVELS, where, null, ALPHAS, 0)
            assert (fields["copies"].n, fields["where"]) == (19, Nearest((0.3,)))
        with pytest.raises(ValueError, match="where: expected None, since LocalExchange"):
            level_test(self.LEVELS, Nearest((0.5,)), null, ALPHAS, 0)

    @pytest.mark.parametrize("null", [2.5, True, "many"])
    def test_a_number_that_is_none(self, null):
        with pytest.raises(TypeError, match="null: expected"):
            level_test(self.LEVELS, None, null, ALPHAS, 0)

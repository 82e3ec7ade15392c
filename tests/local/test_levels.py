import numpy as np
import pytest
import scipy.stats
import torch

from assay import Calibration, Draws, lhpd, lpit
from assay._support.random import stream
from assay.average.ranks import Values
from assay.local.levels import Band, Levels
from assay.local.pit import LPIT
from assay.neighbourhood import Distance, Nearest
from tests.average.test_ranks import densities

N = 3000


def log_q(posterior):
    def density(theta, x):
        centred = (theta - x / 2 - posterior.shift) / posterior.scale
        return -0.5 * centred.square().sum(1)

    return density


def uniform(u):
    return scipy.stats.kstest(np.asarray(u).ravel(), "uniform").pvalue


def level_test(levels, near=None, null=None, alphas=(0.1, 0.5, 0.9), seed=0):
    """A test of levels, which may have any number of columns."""
    return LPIT.of(levels, near, null, alphas, seed)


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
        again = Levels.hpd(calibration, Values(*densities(calibration, log_q(gaussian()))))
        assert torch.equal(again.u, Levels.hpd(calibration, log_q(gaussian())).u)

    def test_a_true_parameter_where_q_has_no_density(self, gaussian):
        calibration = gaussian().calibration(100, k=5)
        true, draws = densities(calibration, log_q(gaussian()))
        true = torch.where(torch.arange(100) == 3, -torch.inf, true)
        levels = Levels.hpd(calibration, Values(true, draws))
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
        """Counts of a discrete q: the true parameter is no more often first among its equals."""
        generator = stream(1, "ties")
        members = torch.randint(3, (N, 9, 1), generator=generator).float()
        x = torch.randn(N, 1, generator=generator)
        assert uniform(Levels.pit(Calibration(members[:, 0], x, members[:, 1:])).u) > 0.01

    def test_another_base(self):
        z, x = torch.rand(2, 50, 2, generator=stream(0, "base"))
        zero, one = torch.zeros(2), torch.ones(2)
        uniform_base = torch.distributions.Independent(torch.distributions.Uniform(zero, one), 1)
        with pytest.raises(ValueError, match=r"calibration: expected latents with base N\(0, I\)"):
            Levels.pit(Calibration.from_base(z, x, uniform_base))

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
    first, again = level_test(Levels(u, x)), level_test(Levels(u[order], x[order]))
    for h in range(4):
        assert torch.equal(first.version(h, rows), again.version(h, rows))


def test_units_of_parameters_do_not_matter(gaussian):
    calibration = gaussian().calibration(200, k=9)
    scale, shift = torch.tensor([100.0, 0.01]), torch.tensor([3.0, -5.0])
    theta, theta_q = (part * scale + shift for part in (calibration.theta, calibration.theta_q))
    moved = Calibration(theta, calibration.x, theta_q)
    changed = (Levels.pit(calibration).u - Levels.pit(moved).u).abs() > 0.05
    assert changed.double().mean() < 0.01


class TestVersions:
    def test_the_data_is_the_first(self, gaussian):
        levels = Levels.pit(gaussian().calibration(100, k=9))
        assert torch.equal(level_test(levels).version(0, torch.arange(100)), levels.u)

    def test_known_law(self):
        u, x = torch.zeros(N), torch.randn(N, 1, generator=stream(0, "x"))
        version = level_test(Levels(u, x)).version
        first, second = (version(h, torch.arange(N)) for h in (1, 2))
        assert uniform(first) > 0.01
        assert not torch.equal(first, second)
        assert torch.equal(version(1, torch.tensor([5, 7])), first[[5, 7]])

    def test_exchange_takes_members_of_the_same_set_in_all_columns(self, gaussian):
        levels = Levels.pit(gaussian().calibration(1000, k=9))
        copy = level_test(levels).version(1, torch.arange(1000))
        members = torch.cat([levels.u[:, None], levels.u_q], 1)
        same = (members == copy[:, None]).all(2)
        assert (same.sum(1) == 1).all()
        chosen = np.bincount(same.long().argmax(1), minlength=10)
        assert scipy.stats.chisquare(chosen).pvalue > 1e-3

    def test_other_observations_meet_other_nulls(self):
        x = torch.randn(2, 100, 2, generator=stream(0, "x"))
        tests = [level_test(Levels(torch.zeros(100), part)) for part in x]
        assert not torch.equal(*(test.version(1, torch.arange(100)) for test in tests))


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


GRID = torch.randn(200, 2, generator=stream(0, "x"))
U = torch.rand(200, 2, generator=stream(0, "u"))


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_against_a_loop(share):
    """Every curve of every version, counted one by one."""
    test = level_test(Levels(U, GRID), share, 4)
    x_o = torch.tensor([[0.0, 0.0], [1.0, -1.0]])
    found, inside = test.curves(x_o), test.near.inside(test.levels.x, x_o).numpy()
    assert found.shape == (2, 5, 2, 3)
    for h in range(5):
        u = test.version(h, torch.arange(200)).numpy()
        for i in range(2):
            for g, alpha in enumerate(test.alphas):
                expected = (u[inside[i]] <= np.float32(alpha)).mean(0)
                np.testing.assert_allclose(found[i, h, :, g], expected, atol=1e-6)


def test_all_of_them_are_an_empirical_distribution():
    test = level_test(Levels(U, GRID), 1.0, 1)
    expected = (U[..., None] <= torch.tensor(test.alphas).float()).double().mean(0)
    np.testing.assert_allclose(test.curves(GRID[:1])[0, 0], expected)


def test_a_level_at_alpha_is_below_it():
    test = level_test(Levels(torch.full((50,), 0.1), GRID[:50]), 1.0, 1)
    np.testing.assert_allclose(test.curves(GRID[:1])[0, 0, 0], 1)


def test_threads_change_nothing():
    test = level_test(Levels(U, GRID), null=20)
    before = torch.get_num_threads()
    found = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            found.append(test.curves(GRID[:2]))
    finally:
        torch.set_num_threads(before)
    np.testing.assert_array_equal(*found)


def test_a_null_band_holds_what_it_says():
    """Data that are like their 39 null copies lie beyond it in 5 %; 20 000 repetitions."""
    values = np.random.default_rng(0).standard_normal((20_000, 40))
    beyond = Band.of(values[:, 0], values[:, 1:].T).sign
    low, high = scipy.stats.binom(20_000, 0.025).interval(0.999)
    assert all(low <= (beyond == side).sum() <= high for side in (-1, 1))


def test_a_band_says_on_which_side_a_number_lies():
    band = Band(np.array([[1.0, 0.0, -1.0]]), *np.array([[[-0.5] * 3], [[0.5] * 3]]))
    assert band.sign.tolist() == [[1, 0, -1]]


class TestArguments:
    def test_defaults(self):
        test = level_test(Levels(U, GRID), alphas=(0.5, 0.1, 0.5), seed=3)
        assert (test.null, test.seed) == (999, 3)
        assert test.near == Nearest(distance=Distance())
        assert test.alphas.tolist() == [0.1, 0.5]

    def test_what_is_near(self):
        assert level_test(Levels(U, GRID), 0.3).near == Nearest(0.3, Distance())
        own = Nearest(0.3, Distance(torch.sin))
        assert level_test(Levels(U, GRID), own).near is own

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            *(({"null": null}, "null: expected a whole") for null in (2.5, True, "many")),
            ({"null": 0}, "null: expected at least 1; got 0"),
            *(({"near": near}, "near: expected") for near in (1.5, 0, "all", Nearest)),
            *(
                ({"alphas": alphas}, "alphas: expected levels above 0 and below 1")
                for alphas in ((0, 0.5), (0.5, 1.0), (0.5, 1.5), (np.nan,))
            ),
            ({"alphas": ()}, "alphas: expected a non-empty"),
            ({"alphas": "many"}, "alphas: expected an array of real"),
        ],
    )
    def test_bad_ones(self, given, message):
        with pytest.raises((TypeError, ValueError), match=message):
            level_test(Levels(U, GRID), **given)


def same(calibration):
    return calibration


def hpd_of(posterior, n=200, k=9, seed=0, change=same, **how):
    return lhpd(change(posterior.calibration(n, k, seed)), log_q(posterior), **how)


def pit_of_latents(posterior, n=200, k=9, seed=0, change=same, **how):
    return lpit(change(posterior.latents(n, seed)), **how)


def pit_of_draws(posterior, n=200, k=9, seed=0, change=same, **how):
    return lpit(change(posterior.calibration(n, k, seed)), **how)


TESTS = {"HPD": hpd_of, "PIT of latents": pit_of_latents, "PIT of draws": pit_of_draws}
X_O = torch.tensor([0.3, -0.3])


@pytest.mark.parametrize("make", TESTS.values(), ids=TESTS)
class TestEveryTest:
    def test_one_observation_is_a_row_of_many(self, gaussian, make):
        test, x_o = make(gaussian(width=1.2), null=19), torch.stack([X_O, -X_O, 2 * X_O])
        many, one = test(Draws(x_o)), test(Draws(x_o[1]))
        j = len(many.names)
        assert many.statistic.shape == many.adjusted.shape == (3,)
        assert many.null.shape == (3, 19)
        assert many.curves.shape == many.bands().envelope_upper.shape == (3, j, 19)
        assert many.null_curves.shape == (3, 19, j, 19)
        assert many.pvalues.shape == many.area.value.shape == many.bands().pvalue.shape == (3, j)
        assert one.curves.shape == one.bands().lower.shape == (j, 19)
        np.testing.assert_array_equal(many.curves[1], one.curves)
        np.testing.assert_allclose(many.null[1], one.null)
        assert many.pvalue[1] == one.pvalue
        assert len(many.table) == 3
        assert "At " in repr(many)
        assert "Near x_o" in repr(one)

    def test_observations_are_worked_off_in_parts(self, gaussian, make, monkeypatch):
        test, x_o = make(gaussian(), null=19), torch.randn(7, 2, generator=stream(0, "x_o"))
        whole = test(x_o)
        monkeypatch.setattr("assay.local.levels.ROOM", 4000)
        parts = test(x_o)
        np.testing.assert_allclose(parts.null_curves, whole.null_curves)
        np.testing.assert_allclose(parts.null, whole.null)

    def test_the_order_of_rows_does_not_matter(self, gaussian, make):
        order = torch.randperm(200, generator=stream(0, "shuffle"))
        changes = (same, lambda calibration: calibration.subset(order))
        first, again = (make(gaussian(width=1.2), null=19, change=c)(X_O) for c in changes)
        np.testing.assert_array_equal(first.null_curves, again.null_curves)
        np.testing.assert_array_equal(first.curves, again.curves)
        np.testing.assert_allclose(first.null, again.null)

    def test_the_same_seed_gives_the_same_result_and_no_generator_moves(self, gaussian, make):
        state = torch.get_rng_state()
        first, again, other = (make(gaussian(), null=19, seed=s)(X_O) for s in (4, 4, 5))
        np.testing.assert_array_equal(first.null, again.null)
        assert not np.array_equal(first.null, other.null)
        assert torch.equal(torch.get_rng_state(), state)

    def test_errors_elsewhere_do_not_leak_in(self, gaussian, make):
        """60 repetitions with q too high outside the nearest 20 %: a 99.9 % interval."""

        def shift(right):
            far = ~Nearest().inside(right.x, X_O[None])[0]
            return right.with_members(right.theta - far.float()[:, None], right.theta_q)

        def rejections(near, repetitions):
            how = {"k": 5, "null": 19, "near": near, "change": shift}
            found = [make(gaussian(), seed=i, **how)(X_O).pvalue for i in range(repetitions)]
            return (np.array(found) <= 0.2 + 1e-9).sum()

        low, high = scipy.stats.binom(60, 0.2).interval(0.999)
        assert low <= rejections(None, 60) <= high
        # And it can fail: all x together are rejected.
        assert rejections(1.0, 5) == 5

    def test_what_it_says(self, gaussian, make):
        result = make(gaussian(), n=100, near=0.2, null=19)(X_O)
        assert result.hypothesis.endswith("throughout the nearest 20% of x around x_o")
        assert result.adjustment.words.endswith("whichever of the local hypotheses are true")
        assert {"n": 100, "nulls": 19, "seed": 0, "d": 2}.items() <= result.settings.items()
        assert result.settings["test"] in ("local HPD coverage", "local PIT")
        assert {"assay", "torch", "numpy"} <= set(result.settings)

    def test_x_o_that_does_not_fit(self, gaussian, make):
        test = make(gaussian(), n=50, null=19)
        for bad, kind in ((torch.zeros(3), ValueError), ("x_o", TypeError)):
            with pytest.raises(kind, match="x_o: expected"):
                test(bad)
        with pytest.raises(ValueError, match="alpha: expected a number between 0 and 1"):
            test(X_O).bands(2)


def test_bands_hold_the_nulls(gaussian):
    result = pit_of_latents(gaussian(m=1), 500)(torch.zeros(1))
    bands = result.bands(0.1)
    inside = (result.null_curves >= bands.lower) & (result.null_curves <= bands.upper)
    assert inside.mean() == pytest.approx(0.9, abs=0.02)
    whole = (result.null_curves >= bands.envelope_lower) & (
        result.null_curves <= bands.envelope_upper
    )
    assert whole.all((1, 2)).mean() == pytest.approx(0.9, abs=0.02)

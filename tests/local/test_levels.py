from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
import torch

from assay import Calibration, lhpd, lpit
from assay._support.random import stream
from assay.local.levels import Band
from assay.neighbourhood import Distance, Nearest

N = 3000
X_O = torch.tensor([0.3, -0.3])


def log_q(posterior):
    def density(theta, x):
        return -0.5 * ((theta - x / 2 - posterior.shift) / posterior.scale).square().sum(1)

    return density


def uniform(u):
    return scipy.stats.kstest(np.asarray(u).ravel(), "uniform").pvalue


def hpd_of(posterior, n=200, k=9, data=0, change=lambda c: c, **how):
    return lhpd(change(posterior.calibration(n, k, data)), log_q(posterior), **how)


def pit_of_latents(posterior, n=200, k=9, data=0, change=lambda c: c, **how):
    return lpit(change(posterior.latents(n, data)), **how)


def pit_of_draws(posterior, n=200, k=9, data=0, change=lambda c: c, **how):
    return lpit(change(posterior.calibration(n, k, data)), **how)


PITS = {"PIT of latents": pit_of_latents, "PIT of draws": pit_of_draws}
TESTS = {"HPD": hpd_of, **PITS}


class TestHPD:
    def test_levels_are_uniform_for_few_draws(self, gaussian):
        test = hpd_of(gaussian(), N, 3)
        assert uniform(test.levels.theta) > 0.01
        assert test.names == ("HPD level",)

    @pytest.mark.parametrize(
        ("width", "words"), [(1, "neither too wide"), (1.6, "too wide"), (0.6, "too narrow")]
    )
    def test_triple(self, gaussian, width, words):
        """An exact, a conservative and an overconfident posterior."""
        result, sign = hpd_of(gaussian(width=width), 500, 30)(X_O), np.sign(width - 1)
        assert words in result.sentence
        assert result.area.sign == [sign]
        assert result.pvalue == 0.001 if sign else result.pvalue > 0.05
        assert not sign or (sign * (result.curves[0] - result.alphas) > 0).all()

    def test_against_the_chi_square_law(self, gaussian):
        """A region of mass alpha holds the true parameter in F(width^2 F^-1(alpha)) of cases."""
        result = hpd_of(gaussian(width=1.3, m=3), 4000, 200)(torch.zeros(3))
        law = scipy.stats.chi2(3)
        expected = law.cdf(1.3**2 * law.ppf(result.alphas))
        bands = result.bands(0.001)
        assert (result.curves[0] - expected <= bands.envelope_upper[0] - result.alphas).all()
        assert (result.curves[0] - expected >= bands.envelope_lower[0] - result.alphas).all()
        assert np.abs(expected - result.alphas).max() > 0.1
        area = np.trapezoid(expected - result.alphas, result.alphas)
        # Four standard deviations, as wide as the null band.
        wide = result.area.upper[0] - result.area.lower[0]
        assert result.area.value[0] == pytest.approx(area, abs=wide)


class TestPIT:
    def test_latents(self, gaussian):
        test, z = lpit(gaussian().latents(200)), gaussian().latents(200).sorted().theta
        expected = scipy.stats.norm.cdf(z.double())
        np.testing.assert_allclose(test.levels.theta, expected, atol=1e-6)
        assert (test.names, test.u_q) == (("z[0]", "z[1]"), None)

    def test_draws_of_a_correlated_q_are_conditional(self):
        """Theta_1 given theta_0: uniform, independent of the first column, and not rejected."""
        generator = stream(0, "correlated")
        mix = torch.tensor([[1.0, 0.0], [0.9, 0.3]])
        members = torch.randn(N, 33, 2, generator=generator) @ mix.mT
        x = torch.randn(N, 2, generator=generator)
        test = lpit(Calibration(members[:, 0], x, members[:, 1:]))
        assert min(map(uniform, test.levels.theta.T)) > 0.01
        assert abs(np.corrcoef(test.levels.theta.T)[0, 1]) < 4 / np.sqrt(N)
        assert test.names == ("theta[0]", "theta[1] | theta[0]")
        result = test(X_O)
        assert min(result.pvalue_independence, result.pvalue) > 0.05

    def test_ties_are_broken_by_chance(self):
        """Counts of a discrete q: the true parameter is no more often first among its equals."""
        generator = stream(1, "ties")
        members = torch.randint(3, (N, 9, 1), generator=generator).float()
        x = torch.randn(N, 1, generator=generator)
        test = lpit(Calibration(members[:, 0], x, members[:, 1:]))
        assert uniform(test.levels.theta) > 0.01

    @pytest.mark.parametrize("make", PITS.values(), ids=PITS)
    @pytest.mark.parametrize(
        ("posterior", "words"),
        [
            ({}, "no curve leaves"),
            ({"width": 1.6}, "too wide"),
            ({"width": 0.6}, "too narrow"),
            ({"shift": 0.4}, "too high"),
            ({"shift": -0.4}, "too low"),
        ],
    )
    def test_triple(self, gaussian, make, posterior, words):
        """A right, a wide, a narrow and a shifted posterior, and the direction of the error."""
        result = make(gaussian(**posterior), 1500, 15, null=199)(X_O)
        assert words in result.sentence
        assert (result.pvalue <= 0.01) == bool(posterior)
        if "width" in posterior:
            assert (result.width.sign == np.sign(posterior["width"] - 1)).all()
        if "shift" in posterior:
            assert (result.pvalues <= 0.05).all()
            assert (result.area.sign == np.sign(posterior["shift"])).all()

    @pytest.mark.parametrize("latent", [True, False])
    def test_a_wrong_correlation_shows_in_the_independence_alone(self, latent):
        """True parameters with correlated coordinates, where q has no correlation."""
        generator = stream(0, "correlated")
        factor = torch.linalg.cholesky(torch.tensor([[1.0, 0.6], [0.6, 1.0]]))
        theta = torch.randn(1000, 2, generator=generator) @ factor.mT
        x = torch.randn(1000, 2, generator=generator)
        draws = torch.randn(1000, 15, 2, generator=generator)
        pairs = Calibration.from_base(theta, x) if latent else Calibration(theta, x, draws)
        result = lpit(pairs)(X_O)
        assert result.pvalue_independence == result.pvalue == 0.001
        assert result.pvalue_curves > 0.05
        np.testing.assert_allclose(result.correlation, [[1, 0.6], [0.6, 1]], atol=0.15)
        assert "a dependence of coordinates shows" in result.sentence

    def test_wrong_margins_alone_are_no_dependence(self, gaussian):
        found = lpit(gaussian(width=1.4, shift=0.4).latents(1000))(X_O)
        assert found.pvalue_curves == 0.001
        assert found.pvalue_independence > 0.05

    def test_single_columns_and_levels_of_zero_and_one(self, gaussian):
        result = lpit(gaussian(m=1, shift=1.0).latents(200), null=99)([0.3])
        assert result.pvalue == result.pvalue_curves == 0.01
        assert result.pvalue_independence == 1
        assert "dependence" not in result.sentence
        x = torch.randn(100, 2, generator=stream(0, "x"))
        z = torch.tensor([-99.0, 99.0]).expand(100, 2)
        result = lpit(Calibration.from_base(z, x), null=19)(x[0])
        assert result.pvalue == 0.05
        assert np.isfinite(result.correlation).all()


class TestVersions:
    def test_known_law(self, gaussian):
        """Uniform, and other where data are others."""
        tests = [hpd_of(gaussian(), N, 2, data) for data in (0, 1)]
        first, second = (test.version(1, torch.arange(N)) for test in tests)
        assert uniform(first) > 0.01
        assert not torch.equal(first, second)
        assert torch.equal(tests[0].version(1, torch.tensor([5, 7])), first[[5, 7]])

    def test_exchange_takes_members_of_the_same_set_in_all_columns(self, gaussian):
        test = pit_of_draws(gaussian(), 1000)
        copy = test.version(1, torch.arange(1000))
        members = torch.cat([test.levels.theta[:, None], test.u_q], 1)
        same = (members == copy[:, None]).all(2)
        assert (same.sum(1) == 1).all()
        chosen = np.bincount(same.long().argmax(1), minlength=10)
        assert scipy.stats.chisquare(chosen).pvalue > 1e-3


def test_against_a_loop(gaussian):
    """Every curve of every version, counted one by one; a level at alpha is below it."""
    test = pit_of_draws(gaussian(), near=0.3, null=4, alphas=(0.1, 0.5, 0.9))
    test = replace(test, alphas=np.append(test.alphas, float(test.levels.theta[0, 0])))
    x_o = torch.tensor([[0.0, 0.0], [1.0, -1.0]])
    found, inside = test.curves(x_o), test.near.inside(test.levels.x, x_o).numpy()
    assert found.shape == (2, 5, 2, 4)
    for h in range(5):
        u = test.version(h, torch.arange(200)).numpy()
        for i in range(2):
            for g, alpha in enumerate(test.alphas):
                expected = (u[inside[i]] <= np.float32(alpha)).mean(0)
                np.testing.assert_allclose(found[i, h, :, g], expected, atol=1e-6)


def test_a_null_band_holds_what_it_says():
    """Data that are like their 39 null copies lie beyond it in 5 %; 20 000 repetitions."""
    values = np.random.default_rng(0).standard_normal((20_000, 40))
    beyond = Band.of(values[:, 0], values[:, 1:].T).sign
    low, high = scipy.stats.binom(20_000, 0.025).interval(0.999)
    assert all(low <= (beyond == side).sum() <= high for side in (-1, 1))
    band = Band(np.array([1.0, 0.0, -1.0]), np.full(3, -0.5), np.full(3, 0.5))
    assert band.sign.tolist() == [1, 0, -1]


def test_defaults(gaussian):
    own = Nearest(0.3, Distance(torch.sin))
    test, other = (pit_of_latents(gaussian(), near=near) for near in (None, own))
    assert test.near == Nearest(distance=Distance())
    assert other.near is own
    assert "null=999" in repr(test)


@pytest.mark.parametrize("make", TESTS.values(), ids=TESTS)
class TestEveryTest:
    def test_one_observation_is_a_row_of_many(self, gaussian, make, monkeypatch):
        test, x_o = make(gaussian(width=1.2), null=19), torch.stack([X_O, -X_O, 2 * X_O])
        many, one = test(x_o), test(x_o[1])
        j = len(many.names)
        assert many.curves.shape == many.bands().envelope_upper.shape == (3, j, 19)
        assert many.null_curves.shape == (3, 19, j, 19)
        assert many.pvalues.shape == many.area.value.shape == many.bands().pvalue.shape == (3, j)
        assert one.curves.shape == one.bands().lower.shape == (j, 19)
        for name in ("curves", "null", "pvalue", "correlation"):
            np.testing.assert_allclose(getattr(many, name)[1], getattr(one, name), atol=1e-12)
        assert len(many.table) == 3
        assert "At " in repr(many)
        assert "Near x_o" in repr(one)
        monkeypatch.setattr("assay.local.levels.ROOM", 4000)
        np.testing.assert_allclose(test(x_o).null, many.null)

    def test_rows_do_not_matter_and_seeds_do(self, gaussian, make):
        order = torch.randperm(200, generator=stream(0, "shuffle"))
        first = make(gaussian(width=1.2), null=19)(X_O)
        again = make(gaussian(width=1.2), null=19, change=lambda c: c.subset(order))(X_O)
        np.testing.assert_array_equal(first.null_curves, again.null_curves)
        other = make(gaussian(width=1.2), null=19, seed=1)(X_O)
        assert not np.array_equal(first.null, other.null)

    def test_errors_elsewhere_do_not_leak_in(self, gaussian, make):
        """60 repetitions with q too high outside the nearest 20 %: a 99.9 % interval."""

        def shift(right):
            far = ~Nearest().inside(right.x, X_O[None])[0]
            return right.with_members(right.theta - far.float()[:, None], right.theta_q)

        def rejections(near, repetitions):
            how = {"k": 5, "null": 19, "near": near, "change": shift}
            found = [make(gaussian(), data=i, **how)(X_O).pvalue for i in range(repetitions)]
            return (np.array(found) <= 0.2 + 1e-9).sum()

        low, high = scipy.stats.binom(60, 0.2).interval(0.999)
        assert low <= rejections(None, 60) <= high
        # And it can fail: all x together are rejected.
        assert rejections(1.0, 5) == 5

    def test_what_it_says(self, gaussian, make):
        result = make(gaussian(), n=100, near=0.2, null=19)(X_O)
        assert result.hypothesis.endswith("throughout the nearest 20% of x around x_o")
        own = {"n": 100, "nulls": 19, "seed": 0, "d": 2, "space": "levels"}
        assert own.items() <= result.settings.items()
        with pytest.raises(ValueError, match="alpha: expected a number between 0 and 1"):
            result.bands(2)


def test_an_embedding_comes_along(gaussian):
    given = gaussian().calibration(100, k=9)
    x = given.x[..., None].expand(-1, -1, 4)
    test = lpit(Calibration(given.theta, x, given.theta_q, lambda x: x.mean(2)), null=19)
    assert test.levels.features.shape == (100, 2)
    assert np.array_equal(test(x[0]).null, lpit(given, null=19)(given.x[0]).null)


Z, X = torch.rand(2, 50, 2, generator=stream(0, "base"))
BASE = torch.distributions.Independent(torch.distributions.Uniform(0 * Z[0], 1 + 0 * Z[0]), 1)
BAD = {
    "another base": (
        lambda c: lpit(Calibration.from_base(Z, X, BASE)),
        r"calibration: expected latents with base N\(0, I\)",
    ),
    "few draws": (lambda c: lpit(replace(c, theta_q=c.theta_q[:, :2])), "theta_q: .* least 4"),
    "null": (lambda c: lpit(c, null=0), "null: expected at least 1; got 0"),
    "near": (lambda c: lpit(c, near="all"), "near: expected"),
    "alphas": (lambda c: lpit(c, alphas=(0, 0.5)), "alphas: .* above 0 and below 1"),
    "no alphas": (lambda c: lpit(c, alphas=()), "alphas: expected a non-empty"),
    "x_o": (lambda c: lpit(c, null=9)(torch.zeros(3)), "x_o: expected"),
    "arrays": (lambda c: lpit(c.theta), "calibration: expected a Calibration"),
    "no density": (lambda c: lhpd(c), "log_q: expected the log-density"),
    "a number": (lambda c: lhpd(c, 3), "log_q: expected a function"),
    "another q": (lambda c: lhpd(c, lambda t, x: (t - x / 2).square().sum(1)), "log_q: .* that m"),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input(gaussian, call, message):
    with pytest.raises((TypeError, ValueError), match=message):
        call(gaussian().calibration(300, k=20))

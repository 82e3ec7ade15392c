import numpy as np
import pytest
import scipy.stats
import torch

from assay import Calibration
from assay._support.random import stream
from assay.average.ranks import Cells, Sets, UniformRanks, Values, uniform_counts


def log_density(posterior):
    return lambda theta, x: -posterior.theta_to_base(theta, x).square().sum(1) / 2


def ranks_of(calibration, quantity=None, seed=0):
    """Ranks of a quantity, or of every parameter."""
    sets = Sets.of(calibration, seed)
    return sets.rank({"f": sets.evaluate("f", quantity)} if quantity else sets.parameters())


class TestRanks:
    def test_against_a_loop(self, gaussian):
        calibration = gaussian().calibration(40, k=7)
        assert tuple(Sets.of(calibration, 0).parameters()) == ("theta[0]", "theta[1]")
        ranks = ranks_of(calibration)
        for i in range(40):
            for j in range(2):
                draws = calibration.theta_q[i, :, j].tolist()
                truth = float(calibration.theta[i, j])
                assert ranks[i, j] == sum(draw < truth for draw in draws)

    def test_values_and_functions_of_matching_rows_in_pieces(self, gaussian, monkeypatch):
        given = gaussian().calibration(50, k=6)
        whole = ranks_of(given, lambda theta, x: (theta * x).sum(1))
        both = (given.members * given.x[:, None]).sum(2)
        assert np.array_equal(whole[:, 0], (both[:, 1:] < both[:, :1]).sum(1))
        assert np.array_equal(ranks_of(given, Values(both[:, 0], both[:, 1:])), whole)
        moved = Calibration(5 * given.theta, 5 * given.x, 5 * given.theta_q)
        monkeypatch.setattr("assay.average.ranks.PIECE", 20)
        assert np.array_equal(ranks_of(moved, lambda theta, x: (theta * x).sum(1)), whole)

    def test_infinite_values_have_ranks(self, gaussian):
        """Ties among infinities are broken by chance, too."""
        calibration, inf = gaussian().calibration(90, k=3), torch.inf
        truth = torch.tensor([inf, -inf, 1.0]).repeat(30)
        draws = torch.tensor([[inf, 0, 1], [-inf, 1, 2], [-inf, 2, inf]]).repeat(30, 1)
        ranks = ranks_of(calibration, Values(truth, draws))[:, 0]
        assert set(ranks[::3]) == {2, 3}
        assert set(ranks[1::3]) == {0, 1}
        assert set(ranks[2::3]) == {1}


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

    @pytest.mark.parametrize("constant", [0, 5])
    def test_the_order_of_rows_does_not_matter(self, constant):
        """Whether or not constant features come first."""
        given = self.calibration(200)
        features = torch.cat([torch.zeros(200, constant), given.x], 1)
        calibration = Calibration(given.theta, features, given.theta_q)
        order = np.random.default_rng(0).permutation(200)
        before, after = (ranks_of(c, seed=3) for c in (calibration, calibration.subset(order)))
        np.testing.assert_array_equal(before[order], after)
        assert not np.array_equal(before, ranks_of(calibration, seed=4))


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.parametrize("constant", [False, True])
def test_other_data_are_another_seed(gaussian, m, constant):
    """Another x; where x is constant, other members."""
    given = [gaussian(m=m).calibration(50, k=4, seed=s) for s in range(5)]
    if constant:
        given = [Calibration(c.theta, torch.ones(50, 2), c.theta_q) for c in given]
    assert len({Sets.of(c, 0).seed for c in given}) == 5


def evaluated(quantity, k=3):
    return lambda g: Sets.of(g().calibration(20, k), 0).evaluate("f", quantity)


BAD = {
    "an array": (lambda g: Sets.of(torch.zeros(5, 2), 0), "calibration: expected a Calibration"),
    "latents": (lambda g: Sets.of(g().latents(20), 0), "calibration: .* got latents"),
    "a single draw": (lambda g: Sets.of(g().calibration(20), 0), "theta_q: .* got 1"),
    "not a function": (evaluated(3), "f: expected a function of theta and x"),
    "another shape": (evaluated(lambda theta, x: theta), r"f: expected a function .* \(80, 2\)"),
    "values of another size": (
        evaluated(Values(torch.rand(20), torch.rand(20, 4))),
        r"f: expected values at \(20, 3\) draws",
    ),
    "values without rows": (evaluated(Values(torch.rand(3), torch.rand(3))), "f: expected values"),
    "not a number": (evaluated(lambda t, x: t[:, 0] * torch.nan), "f: .* finite .* got NaN"),
    "a constant": (
        lambda g: ranks_of(g().calibration(20, 3), lambda t, x: t[:, 0] * 0),
        "f: .* that varies .* a constant",
    ),
}


@pytest.mark.parametrize(("call", "message"), BAD.values(), ids=BAD)
def test_bad_input(gaussian, call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(gaussian)


def plain(k):
    return Cells.of(np.ones(k + 1, int))


def draw(n, k, copies, seed=0):
    """Ranks (n, copies), independent of the library's own null."""
    return np.random.default_rng(seed).integers(0, k + 1, (n, copies))


class TestCells:
    @pytest.mark.parametrize("k", [1, 59, 60, 61, 250, 5000, 10**5])
    def test_they_cut_all_ranks(self, k):
        cells = plain(k)
        assert len(cells.sizes) == min(k + 1, 60)
        assert sum(cells.sizes) == k + 1
        assert cells.sizes[0] == cells.sizes[-1] == min(cells.sizes) == 1
        assert max(cells.sizes) <= 1 + 2 * k / 60
        np.testing.assert_allclose(cells.edges, k + 1 - cells.edges[::-1], atol=1)
        assert (cells.levels[0], cells.levels[-1]) == (0, 1)
        np.testing.assert_allclose(np.diff(cells.levels), np.array(cells.sizes) / (k + 1))

    @pytest.mark.parametrize(("n", "k", "count"), [(30, 100, 2), (200, 100, 10), (9999, 100, 20)])
    def test_the_number_of_bins(self, n, k, count):
        starts = plain(k).bins(n)
        assert len(starts) == count + 1
        np.testing.assert_allclose(np.diff(plain(k).levels[starts]), 1 / count, atol=3 / k)


class TestNull:
    @pytest.mark.parametrize(("n", "k"), [(7, 3), (50, 9), (400, 250)])
    def test_counts_are_multinomial(self, n, k):
        """Laws of single cells by chi-square at 0.001, and covariances within five errors."""
        cells, copies = plain(k), 20_000
        shares = np.diff(cells.levels)
        below = uniform_counts(n, cells.sizes, copies, seed=3)
        counts = np.diff(below, axis=0, prepend=0)
        assert counts.min() >= 0
        assert (below[-1] == n).all()
        for g in {0, len(shares) // 2, len(shares) - 1}:
            expected = copies * scipy.stats.binom(n, shares[g]).pmf(np.arange(n + 1))
            common = expected > 5
            found = np.bincount(counts[g], minlength=n + 1)
            rest = found[~common].sum(), expected[~common].sum()
            test = scipy.stats.chisquare([*found[common], rest[0]], [*expected[common], rest[1]])
            assert test.pvalue > 1e-3
        exact = n * (np.diag(shares) - np.outer(shares, shares))
        assert np.abs(np.cov(counts) - exact).max() < 5 * np.sqrt(2 / copies) * exact.max()

    def test_enough_copies(self):
        """Twenty for each quantity at level 0.05, but not fewer than usual."""
        assert UniformRanks.enough(5) == UniformRanks(999)
        assert UniformRanks.enough(201) == UniformRanks(4019)
        assert UniformRanks.enough(201, 0.1) == UniformRanks(2009)
        with pytest.raises(ValueError, match="n: expected at least 1"):
            UniformRanks(0)


class TestStatistics:
    @pytest.mark.parametrize("k", [1, 9, 60])
    def test_ks_against_its_definition(self, k):
        ranks, cells = draw(80, k, 4), plain(k)
        for column, value in zip(ranks.T, cells.ks(cells.below(ranks)), strict=True):
            steps = [abs((column <= r).mean() - (r + 1) / (k + 1)) for r in range(k + 1)]
            assert value == pytest.approx(max(steps))

    def test_chi_square_against_scipy(self):
        """Nine ranks in cells of their own, 130 counts: four bins of two or three ranks."""
        ranks, cells = draw(130, 8, 6), plain(8)
        starts = cells.bins(130)
        assert len(starts) == 5
        for column, value in zip(ranks.T, cells.chi_square(cells.below(ranks)), strict=True):
            counts = np.histogram(column, starts - 0.5)[0]
            expected = 130 * np.diff(starts) / 9
            assert value == pytest.approx(scipy.stats.chisquare(counts, expected).statistic)

    def test_surprise_against_scipy(self):
        n, k = 40, 12
        ranks, cells = draw(n, k, 20), plain(k)
        for column, value in zip(ranks.T, cells.surprise(cells.below(ranks)), strict=True):
            gamma = 1.0
            for r in range(k):
                law, count = scipy.stats.binom(n, (r + 1) / (k + 1)), (column <= r).sum()
                gamma = min(gamma, 2 * law.cdf(count), 2 * law.sf(count - 1))
            assert value == pytest.approx(-np.log(gamma))
        far = cells.surprise(cells.below(np.zeros((n, 1), int)))
        assert 20 < far < np.inf


def exact_coverage(n, cells, lower, upper):
    """P(all counts below edges stay within bounds), by a recursion over the edges.

    Given c of n ranks below one edge, the number below the next is c plus a binomial number of
    the n - c others, with the share of the next cell among what is left.
    """
    law = np.zeros(n + 1)
    law[0] = 1
    levels = cells.levels
    for i in range(1, len(levels) - 1):
        share = (levels[i] - levels[i - 1]) / (1 - levels[i - 1])
        moved = np.zeros(n + 1)
        for c in np.flatnonzero(law):
            moved[c:] += law[c] * scipy.stats.binom.pmf(np.arange(n - c + 1), n - c, share)
        outside = (np.arange(n + 1) < lower[i]) | (np.arange(n + 1) > upper[i])
        law = np.where(outside, 0, moved)
    return law.sum()


def null_of(n, cells, copies=19_999, seed=1):
    return cells.surprise(uniform_counts(n, cells.sizes, copies, seed))


class TestBands:
    @pytest.mark.parametrize(("n", "k"), [(30, 9), (60, 30), (25, 200)])
    @pytest.mark.parametrize("alpha", [0.05, 0.2])
    def test_joint_coverage_is_exact(self, n, k, alpha):
        """Against the recursion, for a band tuned on 20 000 copies.

        Counts are whole, so the coverage may exceed its target by a step, never fall short by more
        than the Monte-Carlo error of the tuning.
        """
        cells, error = plain(k), 4 * np.sqrt(alpha * (1 - alpha) / 20_000)
        null = null_of(n, cells)
        edge = np.sort(null)[-int(alpha * 20_000 + 1e-9)]
        narrower = np.full_like(null, max(value for value in null if value < edge - 1e-9))
        wide, narrow = (cells.curve(draw(n, k, 1), v, alpha) for v in (null, narrower))
        wide, narrow = (
            exact_coverage(n, cells, *(np.rint(n * ends) for ends in (c.null_lower, c.null_upper)))
            for c in (wide, narrow)
        )
        assert wide > 1 - alpha - error
        assert narrow < 1 - alpha + error

    def test_a_curve_leaves_the_band_if_and_only_if_it_is_rejected(self):
        cells, alpha, ranks = plain(12), 0.1, draw(40, 12, 300, seed=7)
        (test,) = cells.compare(ranks, UniformRanks(199), 0, cells.surprise)
        curve = cells.curve(ranks, test.null[0], alpha)
        out = ((curve.ecdf < curve.null_lower) | (curve.ecdf > curve.null_upper)).any(1)
        np.testing.assert_array_equal(out, test.pvalue <= alpha)
        assert 0 < out.sum() < 100
        assert (curve.null_lower <= curve.levels).all()
        assert (curve.null_upper >= curve.levels).all()

    def test_both_sides_count_alike(self):
        """Ranks and the same ranks counted from the other end are as far from uniform."""
        ranks, cells = draw(40, 12, 200, seed=3), plain(12)
        here, there = (cells.surprise(cells.below(r)) for r in (ranks, 12 - ranks))
        np.testing.assert_allclose(here, there)

    @pytest.mark.parametrize("alpha", [0, 0.001, 1, 2, float("nan"), "a"])
    def test_bad_levels(self, alpha):
        with pytest.raises((ValueError, TypeError), match="alpha: expected"):
            plain(9).curve(draw(50, 9, 1), null_of(50, plain(9), 99), alpha)

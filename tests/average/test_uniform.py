import numpy as np
import pytest
import scipy.stats

from assay.average.uniform import (
    Cells,
    RankCurve,
    UniformRanks,
    bins,
    chi_square,
    compare,
    critical_value,
    ks,
    tails,
)


def plain(k):
    return Cells.of(np.ones(k + 1, int))


def draw(n, k, copies, seed=0):
    """Ranks (copies, n), independent of the library's own null."""
    return np.random.default_rng(seed).integers(0, k + 1, (copies, n))


def test_enough_copies():
    """Twenty for each quantity at level 0.05, but not fewer than usual."""
    assert UniformRanks.enough(5) == UniformRanks(999)
    assert UniformRanks.enough(201) == UniformRanks(4019)
    assert UniformRanks.enough(201, 0.1) == UniformRanks(2009)


class TestCells:
    @pytest.mark.parametrize("k", [1, 9, 59, 60, 61, 100, 250, 999, 5000, 10**5])
    def test_they_cut_all_ranks(self, k):
        cells = plain(k)
        assert len(cells.sizes) == min(k + 1, 60)
        assert sum(cells.sizes) == k + 1
        assert cells.sizes[0] == cells.sizes[-1] == min(cells.sizes) == 1
        assert max(cells.sizes) <= 1 + 2 * k / 60
        np.testing.assert_allclose(cells.edges, k + 1 - cells.edges[::-1], atol=1)
        assert cells.levels[0] == 0
        assert cells.levels[-1] == 1
        np.testing.assert_allclose(np.diff(cells.levels), np.array(cells.sizes) / (k + 1))

    def test_counts(self):
        ranks = draw(300, 250, 3).T
        below = plain(250).below(ranks)
        edges = plain(250).edges
        for j in range(3):
            expected = np.cumsum(np.histogram(ranks[:, j], edges - 0.5)[0])
            np.testing.assert_array_equal(below[:, j], expected)

    def test_shares_below_a_level_are_interpolated(self):
        """Among two draws the steps are at 1/3 and 2/3."""
        found = plain(2).covered(np.array([[0], [0], [1], [2]]), np.array([1 / 6, 1 / 3, 0.5]))
        np.testing.assert_allclose(found, [[0.25, 0.5, 0.625]])


class TestNull:
    @pytest.mark.parametrize(("n", "k"), [(7, 3), (50, 9), (400, 250)])
    def test_counts_are_multinomial(self, n, k):
        """Laws of single cells by chi-square at 0.001, and covariances within five errors."""
        cells, copies = plain(k), 20_000
        shares = np.diff(cells.levels)
        below = UniformRanks(copies).below(n, cells, seed=3)
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

    def test_the_same_seed_gives_the_same_null(self):
        first, again, other = (UniformRanks(9).below(50, plain(9), s) for s in (0, 0, 1))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)

    @pytest.mark.parametrize("n", [0, -1, 2.5, True])
    def test_a_bad_number_of_copies(self, n):
        with pytest.raises((ValueError, TypeError), match="n: expected"):
            UniformRanks(n)


class TestStatistics:
    @pytest.mark.parametrize("k", [1, 9, 60])
    def test_ks_against_its_definition(self, k):
        ranks = draw(80, k, 4)
        found = ks(plain(k).below(ranks.T), plain(k))
        for row, value in zip(ranks, found, strict=True):
            steps = [abs((row <= r).mean() - (r + 1) / (k + 1)) for r in range(k + 1)]
            assert value == pytest.approx(max(steps))

    def test_ks_of_many_ranks_is_nearly_that_of_scipy(self):
        ranks = draw(500, 10**6, 5)
        found = ks(plain(10**6).below(ranks.T), plain(10**6))
        exact = [scipy.stats.kstest(row / (10**6 + 1), "uniform").statistic for row in ranks]
        np.testing.assert_allclose(found, exact, atol=0.02)

    def test_chi_square_against_scipy(self):
        """Nine ranks in cells of their own, 130 counts: four bins of two or three ranks."""
        ranks = draw(130, 8, 6)
        cells, starts = plain(8), bins(130, plain(8))
        assert len(starts) == 5
        found = chi_square(cells.below(ranks.T), cells)
        for row, value in zip(ranks, found, strict=True):
            counts = np.histogram(row, starts - 0.5)[0]
            expected = 130 * np.diff(starts) / 9
            assert value == pytest.approx(scipy.stats.chisquare(counts, expected).statistic)

    @pytest.mark.parametrize(("n", "k", "count"), [(30, 100, 2), (200, 100, 10), (9999, 100, 20)])
    def test_the_number_of_bins(self, n, k, count):
        starts = bins(n, plain(k))
        assert len(starts) == count + 1
        np.testing.assert_allclose(np.diff(plain(k).levels[starts]), 1 / count, atol=3 / k)

    def test_more_bins_than_ranks(self):
        np.testing.assert_array_equal(bins(1000, plain(2)), [0, 1, 2, 3])

    def test_tails_against_scipy(self):
        n, k = 40, 12
        ranks = draw(n, k, 20)
        cells = plain(k)
        found = tails(n, cells.sizes)(cells.below(ranks.T))
        for row, value in zip(ranks, found, strict=True):
            gamma = 1.0
            for r in range(k):
                law, count = scipy.stats.binom(n, (r + 1) / (k + 1)), (row <= r).sum()
                gamma = min(gamma, 2 * law.cdf(count), 2 * law.sf(count - 1))
            assert value == pytest.approx(-np.log(gamma))

    def test_ranks_far_from_uniform_have_a_finite_surprise(self):
        for n in (10, 10_000):
            cells = plain(500)
            below = cells.below(np.zeros((n, 1), int))
            surprise = tails(n, cells.sizes)(below)
            assert np.isfinite(surprise).all()
            assert surprise[0] > tails(n, cells.sizes)(UniformRanks(99).below(n, cells, 0)).max()


def exact_coverage(n, cells, lower, upper):
    """P(all counts below inner edges stay within bounds), by a recursion over the edges.

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
        outside = (np.arange(n + 1) < lower[i - 1]) | (np.arange(n + 1) > upper[i - 1])
        law = np.where(outside, 0, moved)
    return law.sum()


class TestBands:
    @pytest.mark.parametrize(("n", "k"), [(30, 9), (60, 30), (25, 200)])
    @pytest.mark.parametrize("alpha", [0.05, 0.2])
    def test_joint_coverage_is_exact(self, n, k, alpha):
        """Against the recursion, for a band tuned on 20 000 copies.

        Counts are whole, so the coverage may exceed its target by a step, never fall short by more
        than the Monte-Carlo error of the tuning.
        """
        cells = plain(k)
        null = tails(n, cells.sizes)(UniformRanks(19_999).below(n, cells, seed=1))
        edge = critical_value(null, alpha)
        covered = exact_coverage(n, cells, *tails(n, cells.sizes).band(edge))
        error = 4 * np.sqrt(alpha * (1 - alpha) / 20_000)
        assert covered > 1 - alpha - error
        narrower = max(value for value in null if value < edge - 1e-9)
        assert exact_coverage(n, cells, *tails(n, cells.sizes).band(narrower)) < 1 - alpha + error

    @pytest.mark.parametrize(("n", "k"), [(100, 20), (500, 150)])
    def test_joint_coverage_by_simulation(self, n, k):
        """Whole curves of ranks drawn elsewhere stay inside, within a 99.9 % interval."""
        cells, alpha, copies = plain(k), 0.1, 4000
        null = tails(n, cells.sizes)(UniformRanks(19_999).below(n, cells, seed=2))
        curve = RankCurve.of(draw(n, k, copies, seed=5).T, cells, null, alpha)
        inside = ((curve.ecdf >= curve.lower) & (curve.ecdf <= curve.upper)).all(1)
        low = scipy.stats.binom(copies, 1 - alpha).ppf(0.0005)
        assert inside.sum() >= low
        # A discrete statistic: at most a step more than the target.
        assert inside.mean() < 1 - alpha + 0.03

    def test_a_curve_leaves_the_band_if_and_only_if_it_is_rejected(self):
        n, k = 40, 12
        cells, alpha = plain(k), 0.1
        ranks = draw(n, k, 300, seed=7).T
        copies = UniformRanks(199).below(n, cells, 0)
        test = compare(cells.below(ranks), copies, tails(n, cells.sizes))
        curve = RankCurve.of(ranks, cells, test.null[0], alpha)
        out = ((curve.ecdf < curve.lower) | (curve.ecdf > curve.upper)).any(1)
        np.testing.assert_array_equal(out, test.pvalue <= alpha)
        assert 0 < out.sum() < 100

    def test_both_sides_count_alike(self):
        """Ranks and the same ranks counted from the other end are as far from uniform."""
        ranks = draw(40, 12, 200, seed=3).T
        here, there = (tails(40, plain(12).sizes)(plain(12).below(r)) for r in (ranks, 12 - ranks))
        np.testing.assert_allclose(here, there)

    def test_the_difference(self):
        cells = plain(9)
        null = tails(50, cells.sizes)(UniformRanks(99).below(50, cells, 0))
        curve = RankCurve.of(draw(50, 9, 2).T, cells, null, 0.1)
        np.testing.assert_allclose(curve.difference, curve.ecdf - curve.levels)
        np.testing.assert_allclose(curve.difference_lower, curve.lower - curve.levels)
        assert (curve.difference_lower <= 0).all()
        assert (curve.difference_upper >= 0).all()

    @pytest.mark.parametrize("alpha", [0, 0.001, 1, 2, float("nan"), "a"])
    def test_bad_levels(self, alpha):
        with pytest.raises((ValueError, TypeError), match="alpha: expected"):
            critical_value(np.arange(99.0), alpha)

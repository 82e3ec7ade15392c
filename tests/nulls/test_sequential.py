"""Copies that end when enough of them reach the data: exact, and those of a whole run."""

import numpy as np
import pytest
import scipy.stats
import torch

import assay
from assay.results import pvalue, reached

SMALL = assay.MLP(hidden=(8,), epochs=1)
X_O = torch.zeros(2)


def stopped(null, statistics, nulls):
    """P-values of statistics (o,) with nulls (o, H), and how many copies each took."""
    kept = [null.kept(row) for row in reached(statistics, nulls)]
    ends = [null.n if k is None else k for k in kept]
    each = zip(statistics, nulls, ends, strict=True)
    return np.array([pvalue(t, row[:end]) for t, row, end in each]), np.array(ends) + 1


@pytest.fixture(scope="module")
def exchangeable():
    """Statistics of 20 000 data sets and of their copies."""
    table = np.random.default_rng(0).standard_normal((20_000, 100))
    return table[:, 0], table[:, 1:]


@pytest.mark.parametrize("enough", [2, 5, 10])
@pytest.mark.parametrize("alpha", [0.02, 0.05, 0.1, 0.25, 0.5])
def test_level(exchangeable, enough, alpha):
    """Not above alpha, but for one case in 10 000 of such tests; nor far below."""
    p, _ = stopped(assay.Sequential(99, enough), *exchangeable)
    low = int((p <= alpha + 1e-9).sum())
    assert scipy.stats.binom.sf(low - 1, len(p), alpha) > 1e-4
    assert low / len(p) > 0.8 * alpha


def test_the_rule(exchangeable):
    """h / L with copy L, the h-th as large as the data; else that of all copies."""
    null = assay.Sequential(99, 5)
    p, made = stopped(null, *exchangeable)
    for t, copies, found in list(zip(*exchangeable, p, strict=True))[:500]:
        larger = np.flatnonzero(copies >= t)
        if len(larger) >= 5:
            assert found == pytest.approx(5 / (larger[4] + 1))
        else:
            assert found == pytest.approx((1 + len(larger)) / 100)
    # On average h (1 + log(H / h)), about.
    assert made.mean() == pytest.approx(5 * (1 + np.log(100 / 5)), rel=0.1)


@pytest.mark.parametrize("kind", ["draws", "latents"])
def test_copies_are_the_first_of_a_whole_run(gaussian, kind):
    q, null = gaussian(), assay.Sequential(60, 3)
    calibration = q.calibration(200) if kind == "draws" else q.latents(200)
    whole = assay.Exchange(60) if kind == "draws" else assay.KnownBase(60)
    draws = q.draws(X_O) if kind == "draws" else X_O
    found = assay.lc2st(calibration, SMALL, null)(draws)
    every = assay.lc2st(calibration, SMALL, whole)(draws)
    assert len(found.null) < 60
    np.testing.assert_array_equal(found.null, every.null[: len(found.null)])
    larger = np.flatnonzero(every.null >= every.statistic)
    assert found.pvalue == pytest.approx(3 / (larger[2] + 1))


def test_a_wrong_q_takes_all_copies(gaussian):
    q = gaussian(shift=3.0)
    found = assay.lc2st(q.calibration(400), assay.MLP(epochs=5), assay.Sequential(39))(
        q.draws(X_O)
    )
    assert len(found.null) == 39
    assert found.pvalue == 1 / 40


def test_what_it_is_not_for(gaussian):
    q = gaussian()
    test = assay.lc2st(q.calibration(60), SMALL, assay.Sequential(19))
    with pytest.raises(ValueError, match="x_o: expected one observation with Sequential"):
        test(q.draws(torch.zeros(3, 2)))
    with pytest.raises(ValueError, match="null: expected all copies at once"):
        assay.lc2st(q.calibration(60), assay.Ridge(), assay.Sequential(19))
    with pytest.raises(ValueError, match="enough: expected at least 2"):
        assay.Sequential(19, enough=1)
